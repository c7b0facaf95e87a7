/*
 * The objects instrument between agent and keeper: the words of the ring, and what the agent is
 * told of the VM.
 *
 * Freestanding. What comes out of the ring is hostile input for the host.
 */
#ifndef SCRY_WIRE_RUBY_RING_H
#define SCRY_WIRE_RUBY_RING_H

#include "wire/ruby_size.h"

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
			      scry_ring_gc. Objects by hooks: GCs in which nothing ended are told by
			      the next one's number */
	SCRY_RING_NODE,	   /* struct scry_ring_node: what a node of the stack tree means */
	SCRY_RING_STACK,   /* no word: the node in bits 48..63 called what the next objects are from
			    */
	SCRY_RING_SIZE,	   /* one word: bytes outside the slot of the object freed next */
	SCRY_RING_MOVED,   /* pairs of words: objects that a compaction moved, from and to, with the
			      new slot's bytes in bits 48..63 of the latter. Bit 48 of the escape
			      word: a new compaction */
	SCRY_RING_SLOT,	   /* no word: bytes of the slots of the next objects made, in bits 48..63;
			      0, as before the first one: not known. Where slots differ in size: who
			      reads the ring comes too late, as a page may have been cut anew */
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
 * says), size not known, or so many bytes. Codes up to SCRY_SITE_SLOTS are objects made.
 */
#define SCRY_RING_FREED 0u
#define SCRY_RING_FREED_UNKNOWN 0x1ffffu
#define SCRY_RING_FREED_SIZED 0x20000u
#define SCRY_RING_SIZED_MAX (SCRY_RING_ESCAPE - SCRY_RING_FREED_SIZED - 1)

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
 * A frame that called something, in the tree of all stacks seen. Node 0 is nobody. A node may be
 * defined anew; its children are then defined anew before they are used.
 */
#define SCRY_STACK_NODES 65536u
struct scry_ring_node {
	uint32_t node, parent;
	uint32_t line;
	uint16_t path_size, label_size; /* bytes that follow, padded to 8 */
};
_Static_assert(sizeof(struct scry_ring_node) == 16, "part of the ring format");

/* How sampling is done: one object in `mean`, by gaps drawn from `gaps`. Host writes. */
#define SCRY_SAMPLE_GAPS 1024u
struct scry_agent_sampling {
	uint32_t on;
	uint32_t by_bytes; /* a gap counts units of slot bytes, not objects */
	uint32_t unit;	   /* bytes */
	uint32_t reserved;
	uint32_t gaps[SCRY_SAMPLE_GAPS];
};

/* Flags that say of an object that nothing lies outside its slot; mask 0 with value 1: none do. */
struct scry_agent_plain {
	uint64_t mask, value;
};

/* control->ended: why the handler ended the watch itself. */
#define SCRY_ENDED_RACTOR 1u	 /* before a first ractor began */
#define SCRY_ENDED_COMPACTION 2u /* objects had moved */

/* What the agent must know of the VM; a copy of scry_ruby_layout's part plus addresses. Host
 * writes. */
struct scry_agent_ruby {
	uint32_t iseq_body, body_encoded, body_size, body_path, body_label, body_first_line;
	uint32_t body_insns_info, insns_entries, insns_count, insns_succ;
	uint32_t insns_entry_size, insns_entry_line;
	uint32_t string_ptr, string_len, string_embed, string_embed_len_shift;
	uint32_t array_embed_ptr, array_ptr;
	uint32_t first_line_is_value;			  /* a Fixnum VALUE rather than an int */
	uint32_t class_ext, class_path, class_path_table; /* as in scry_ruby_layout */
	uint32_t class_super, class_attached;
	uint32_t st_entries, st_bound_start, st_bound;
	uint32_t class_ivs, vm_shapes;
	uint32_t shape_size, shape_edge, shape_index, shape_parent;
	uint32_t reserved;
	uint64_t classpath_id, tmp_classpath_id, attached_id, singleton_flag;
	uint64_t iseq_flags_mask, iseq_flags_value;
	uint64_t string_noembed, string_embed_len_mask, array_embed;
	uint32_t page_header, page_slot_size; /* heap page of an object: address & page_mask */
	uint64_t page_mask;
	/* run-time addresses in the Ruby module */
	uint64_t ractor_class; /* word that holds it, where a watch must end with the first ractor;
				  or 0 */
	uint64_t vm_word;      /* holds the VM; 0 once that is taken down */
	uint64_t add_event_hook2, remove_event_hook;
	uint64_t job_register;		       /* to 3.2 */
	uint64_t job_preregister, job_trigger; /* 3.3 on; 0: not there */
	uint64_t job_wake;		       /* a function that does nothing: see agent/job.c */
	uint64_t gc_count, gc_stat, intern, id2sym, gc_start; /* 0: this Ruby has none */
	uint64_t xmalloc, data_wrap, gc_register, gc_unregister, gc_location, each_objects;
	uint64_t set_end_proc, memsize_of; /* for the last look: agent/last.c */
	uint64_t is_marked;		   /* to 3.3 */
	uint64_t in_heap;		   /* 3.4 on */
	uint64_t ends_at_compaction;	   /* 1: data_wrap is 0, so they are not followed */
	struct scry_size_rules sizes;
	struct scry_agent_plain plain[SCRY_SIZE_TYPES]; /* by type */
};

#endif
