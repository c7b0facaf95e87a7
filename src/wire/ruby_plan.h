/*
 * The objects instrument between agent and keeper: what the agent knows of the VM, and how it is
 * to sample.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_RUBY_PLAN_H
#define SCRY_WIRE_RUBY_PLAN_H

#include "wire/ruby_size.h"

#include <stdint.h>

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

/* account->objects.ended: why the handler ended the watch itself. */
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
	uint32_t judge_first; /* 1: before code is described, the keeper judges this: agent/last.c;
				 2: it was asked, and has not. Until it has, code is read by copies
			       */
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
	uint64_t
		core_class[SCRY_SIZE_TYPES]; /* by type: word that holds its usual class; 0: none */
	struct scry_size_rules sizes;
	struct scry_agent_plain plain[SCRY_SIZE_TYPES]; /* by type */
};

#endif
