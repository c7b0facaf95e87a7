/*
 * The objects instrument between agent and keeper: the words of the ring. What the agent knows
 * of the VM: wire/ruby_plan.h.
 *
 * Freestanding. What comes out of the ring is hostile input for the host.
 */
#ifndef SCRY_WIRE_RUBY_RING_H
#define SCRY_WIRE_RUBY_RING_H

#include <stdint.h>

/*
 * The objects ring: u64 words as in SCRY_CHUNK_OBJECTS, but `code` is a slot of the agent's site
 * table, whose meaning a DEF record sets from that point of the stream on. Escape words carry their
 * length in words.
 */
#define SCRY_RING_ESCAPE 0xfffffu
enum scry_ring_record {
	SCRY_RING_DEF = 1, /* struct scry_ring_def: what a code means from here on */
	SCRY_RING_GC,	   /* one word: GCs begun << 24 | full marks since the last << 8 | enum
			      scry_ring_gc. Objects by hooks: GCs in which nothing ended are reported by
			      the next one's number */
	SCRY_RING_NODE,	   /* struct scry_ring_node: what a node of the stack tree means */
	SCRY_RING_STACK,   /* no word: the node in bits 48..63 called what the next objects are from
			    */
	SCRY_RING_SIZE,	   /* one word: bytes outside the slot of the object freed next */
	SCRY_RING_MOVED,   /* pairs of words: objects that a compaction moved, from and to, with the
			      new slot's bytes in bits 48..63 of the latter. Bit 48 of the escape
			      word: a new compaction */
	SCRY_RING_SLOT,	   /* no word: bytes of the slots of the next objects made, in bits 48..63;
			      0, as before the first one: not known. Where slots differ in size: what
			      reads the ring comes too late, as a page may have been cut anew */
	SCRY_RING_UNFOLLOWED, /* one word: the address of an object that lives, or does not, and of
				 which nothing more will be said */
};
enum scry_ring_gc {
	SCRY_RING_GC_START = 1,
	SCRY_RING_GC_MARKED,	  /* what is to die is known */
	SCRY_RING_GC_FULL_MARKED, /* the same of a full mark */
	SCRY_RING_GC_SWEPT,	  /* and is gone */
};
#define SCRY_RING_GC_FULLS_MAX 0xffffull
/* escape word: bits 0..19 all ones, 20..31 record kind, 32..47 words that follow, 48..63 by kind */
#define SCRY_RING_ESCAPE_WORD(kind, words) \
	((uint64_t)SCRY_RING_ESCAPE | (uint64_t)(kind) << 20 | (uint64_t)(words) << 32)

/*
 * Codes of the word of a freed object: nothing outside its slot (or what a SIZE record before it
 * says), size not known, or so many bytes; each of them + an enum scry_ring_class of its end times
 * SCRY_RING_CLASS. Codes 1 .. SCRY_SITE_SLOTS are objects made.
 */
enum scry_ring_class {
	SCRY_RING_CLASS_CORE,  /* String, for a T_STRING, and so on: scry_agent_ruby.core_class */
	SCRY_RING_CLASS_OTHER, /* another one */
	SCRY_RING_CLASS_NONE,  /* its class word was 0, or it is not known */
	SCRY_RING_CLASSES,
};
#define SCRY_RING_FREED 0x10001u
#define SCRY_RING_FREED_UNKNOWN 0x10002u
#define SCRY_RING_FREED_SIZED 0x10003u
#define SCRY_RING_CLASS 0x4f000u
#define SCRY_RING_SIZED_MAX (SCRY_RING_CLASS - 3u)
_Static_assert(SCRY_RING_FREED + SCRY_RING_CLASSES * SCRY_RING_CLASS <= SCRY_RING_ESCAPE,
	       "each code says one thing");

#define SCRY_SITE_SLOTS 65536u /* codes 1 .. SCRY_SITE_SLOTS */
#define SCRY_DEF_TEXT_MAX 640u
#define SCRY_DEF_BEFORE 3

struct scry_ring_def {
	uint32_t slot;	     /* code that the following words use */
	uint16_t class_size; /* 0: not known */
	uint16_t reserved;
	uint64_t klass;	 /* the object's class word */
	uint64_t flags;	 /* the object's flags word */
	uint64_t iseq;	 /* 0: no Ruby frame was found */
	uint64_t opcode; /* word at pc; 0 where pc is the end of the code */
	uint64_t
		before[SCRY_DEF_BEFORE]; /* words at pc - 8, pc - 16, ...; 0 before the beginning */
	uint32_t position;    /* (pc - encoded) / 8, pc as the VM keeps it outside the hook */
	uint32_t line_at;     /* line of `position`; 0 unknown */
	uint32_t line_before; /* line of `position` - 1 */
	uint32_t first_line;
	uint16_t depth; /* (sp - ep) / 8 of the frame; 0xffff not known */
	uint16_t top;	/* 1: the Ruby frame itself was running, 0: a C function above it was */
	uint16_t path_size, label_size; /* bytes that follow: path, label, class; padded to 8 */
};
_Static_assert(sizeof(struct scry_ring_def) == 88, "part of the ring format");

/*
 * A frame that called something, in the tree of all stacks seen. Node 0 is no frame. A node may be
 * defined anew; its children are then defined anew before they are used.
 */
#define SCRY_STACK_NODES 65536u
struct scry_ring_node {
	uint32_t node, parent;
	uint32_t line;
	uint16_t path_size, label_size; /* bytes that follow, padded to 8 */
};
_Static_assert(sizeof(struct scry_ring_node) == 16, "part of the ring format");

#endif
