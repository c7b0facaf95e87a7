/*
 * What is learned of a Ruby's structs: offsets in bytes, flag bits, handlers of instructions.
 * Nothing here is typed in by version: ruby_calib learns it from a child, ruby_validate checks it
 * on the live target.
 */
#ifndef SCRY_VM_RUBY_LAYOUT_H
#define SCRY_VM_RUBY_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "vm/ruby_gvl_place.h"
#include "vm/ruby_lock_place.h"
#include "vm/ruby_rehearsal.h"
#include "wire/ruby_size.h"

#define SCRY_RUBY_LEAF_MAX 64
#define SCRY_RUBY_NONE 0xffffffffu
/* Fields are looked for, and so found, in the first bytes of an ec, an iseq and its body. */
#define SCRY_RUBY_EC_BYTES 256u
#define SCRY_RUBY_ISEQ_BYTES 64u
#define SCRY_RUBY_BODY_BYTES 512u

/*
 * An instruction that allocates by itself, with its frame the newest. A leaf does so while the
 * frame's pc still points AT it; an "after" one when pc has moved past it, so that its handler is
 * the word at pc - 8 * words. When a leaf is at pc and an after-instruction ends there, either may
 * have allocated; the types tell them apart where they differ, the depth of the value stack where
 * pops_nothing.
 */
struct scry_ruby_leaf {
	uint64_t word;	   /* handler: the instruction's word in iseq_encoded, module-relative */
	uint32_t types;	   /* 1 << T_type of each kind of object it was seen to make */
	uint8_t type;	   /* T_type when it makes one kind only, else 0 */
	uint8_t words;	   /* length, operands included */
	bool pops_nothing; /* it takes no operand from the value stack */
};

#define SCRY_RUBY_ALLOC_FUNCTIONS_MAX 24

/*
 * The functions that make and free objects, found by counting calls of all functions
 * (instrument/objects/alloc_functions): each object is made by one call of one of `make`, and freed
 * by one of `end`. Entries are module-relative.
 */
struct scry_ruby_alloc_functions {
	bool is_known;		 /* it was tried: proven, or `why` says why not */
	bool is_proven;		 /* the counts were the VM's own */
	uint32_t count, called;	 /* functions; of them such as were seen to make objects */
	uint32_t objects, freed; /* how many the counts were equal for */
	uint64_t make[SCRY_RUBY_ALLOC_FUNCTIONS_MAX];
	uint64_t end;
	/* of `end`, arguments from 0: the object; or the first of slots in a row, and which of them
	 * (6: none) is a mask of what is freed */
	uint32_t end_argument, end_mask;
	/* vm -> the struct of the heap; there, words: objects made, freed, GCs begun; 0 not known
	 */
	uint32_t vm_objspace, objspace_made, objspace_freed, objspace_gcs;
	bool has_ec;
	uint32_t ec_offset; /* in the module's thread-local storage: the execution context */
	char why[128];
};

/* What was learned. Offsets in bytes; code is module-relative. ruby_cache.c has all bools too. */
struct scry_ruby_layout {
	/* control frame */
	uint32_t frame_size; /* stride of the control frame array */
	uint32_t frame_pc, frame_sp, frame_iseq, frame_self, frame_ep;
	/* execution context */
	uint32_t ec_stack, ec_stack_size, ec_cfp, ec_thread;
	/* thread, ractor, vm */
	uint32_t th_ec, th_ractor, th_vm, th_self;
	uint32_t th_tid;	 /* SCRY_RUBY_NONE when this Ruby keeps none */
	uint32_t th_nt;		 /* pointer to the struct that th_tid is in; NONE: th itself */
	uint32_t th_node;	 /* list node inside the thread */
	uint32_t ractor_threads; /* list head inside the ractor */
	uint32_t ractor_node;	 /* list node inside the ractor */
	uint32_t vm_ractors; /* list head inside the vm; NONE: no ractors, the vm stands for one */
	uint64_t vm_root;    /* module-relative address of the word that holds the vm */
	/* iseq */
	uint32_t iseq_body, body_encoded, body_size, body_path, body_label, body_first_line;
	bool first_line_fixnum;	  /* body_first_line is a VALUE (2n + 1), not an int */
	uint32_t body_insns_info; /* struct iseq_insn_info; in it: entries*, size, succ table* */
	uint32_t insns_entries, insns_count, insns_succ;
	uint32_t insns_positions; /* positions*, until code runs; NONE: not known */
	uint32_t insns_entry_size, insns_entry_line;
	uint64_t iseq_flags_mask,
		iseq_flags_value; /* flags & mask == value for every iseq object */
	/* objects */
	uint32_t slot_size;
	/* where the page of an object says how long its slots are; page_mask 0: not known */
	uint64_t page_mask;	 /* address & page_mask: the page's memory */
	uint32_t page_header;	 /* there: pointer to the page's struct */
	uint32_t page_slot_size; /* in that: u16 */
	bool slots_differ;	 /* in size, so without page_mask that of an object's slot is
				    not known */
	bool gc_stat_compact;	 /* GC.stat has :compact_count */
	uint64_t string_noembed; /* flag bit: text is not in the slot */
	uint32_t string_ptr, string_len; /* of a string not embedded */
	uint32_t string_embed;		 /* embedded text */
	uint64_t string_embed_len_mask; /* embedded length = (flags & mask) >> shift; mask 0: length
					   word at string_len */
	uint32_t string_embed_len_shift;
	uint64_t array_embed; /* flag bit: elements are in the slot */
	uint32_t array_embed_ptr, array_ptr;
	/* the method that a C frame runs, and names of ids; frame_me 0: not known */
	uint32_t frame_me;	 /* bytes below ep: the method entry */
	uint32_t me_def, def_id; /* its definition, and there the id it was defined under */
	uint64_t me_flags;	 /* flags & iseq_flags_mask of a method entry */
	uint32_t me_owner;	 /* the class or module that it is defined in; 0: not known */
	uint32_t def_iseq;	 /* of a method written in Ruby: its code; 0: not known */
	uint64_t leave_word;	 /* handler of `leave`, module-relative; 0: not known */
	uint64_t ids_root;	 /* module-relative address of the word with the Array of names */
	uint32_t ids_data;	 /* its groups are T_DATA, with a pointer there; 0: Arrays */
	uint32_t ids_pad;
	/* class name, one of three ways: see ruby_class.c */
	uint32_t class_ext;	   /* RClass -> ext pointer (or 0: the fields follow in the slot) */
	uint32_t class_super;	   /* superclass, from the class itself */
	uint32_t class_path;	   /* ext -> name String, when neither of the other two */
	uint32_t class_attached;   /* ext -> a singleton's object, with class_path; 0 unknown */
	uint32_t class_path_table; /* ext -> st_table holding {classpath id: String}; 0 unused */
	uint32_t st_entries, st_bound_start, st_bound; /* inside st_table */
	uint32_t class_ivs; /* ext -> array of ivars, whose place a shape gives; 0 unused */
	uint32_t vm_shapes; /* vm -> array of shapes; the number of a class's is in flags >> 32 */
	uint32_t shape_size, shape_edge, shape_index, shape_parent; /* id, place + 1, number */
	uint64_t classpath_id;					    /* key in table or shapes */
	uint64_t tmp_classpath_id; /* key of the name of a class inside an anonymous one; 0 unknown
				    */
	uint64_t attached_id;	   /* key of a singleton's object; 0 unknown */
	uint64_t singleton_flag;
	/* the trace argument that a raw event hook receives */
	uint32_t trace_event, trace_ec, trace_cfp, trace_data;
	bool recycles; /* the VM frees some objects without an event (rb_gc_force_recycle, to 3.0)
			*/
	bool hooks_of_all_ractors; /* an event hook holds in every ractor, not in one */
	bool hooks_break_ractors;  /* the VM crashes when a ractor starts while they are on */
	bool trace_pc_advanced;	   /* the VM adds one word to the top frame's pc around the hook */
	/* instructions that allocate without pushing a frame: see struct scry_ruby_leaf */
	uint32_t leaf_count, after_count;
	struct scry_ruby_leaf leaf[SCRY_RUBY_LEAF_MAX];
	struct scry_ruby_leaf after[SCRY_RUBY_LEAF_MAX];
	struct scry_ruby_alloc_functions alloc_functions;
	struct scry_ruby_gvl gvl;
	struct scry_ruby_lock_place locks;
	struct scry_ruby_rehearsal rehearsed[SCRY_RUBY_WAYS];
	/* bytes of an object outside its slot; addresses in it are module-relative here */
	struct scry_size_rules sizes;
};

#endif
