/*
 * A Ruby VM in another process, seen from outside: where it is, how its structs are laid out, its
 * threads.
 *
 * Nothing is tabulated by version. scry_ruby_open() finds the module that is Ruby, learns the
 * layout from a calibration child (ruby_calib: the target's own binary running a script of known
 * shape), validates every item on the live target, and refuses with the reason when one does not
 * hold. Reads only.
 */
#ifndef SCRY_VM_RUBY_H
#define SCRY_VM_RUBY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "sys/elf.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"

#define SCRY_RUBY_LEAF_MAX 64
#define SCRY_RUBY_NONE 0xffffffffu

/*
 * An instruction that allocates by itself, with its frame the newest. A leaf does so while the
 * frame's pc still points AT it; an "after" one when pc has moved past it, so that its handler is
 * the word at pc - 8 * words. When a leaf stands at pc and an after-instruction ends there, either
 * may have allocated; the types tell them apart where they differ, the depth of the value stack
 * where pops_nothing.
 */
struct scry_ruby_leaf {
	uint64_t word;	   /* handler: the instruction's word in iseq_encoded, module-relative */
	uint32_t types;	   /* 1 << T_type of each kind of object it was seen to make */
	uint8_t type;	   /* T_type when it makes one kind only, else 0 */
	uint8_t words;	   /* length, operands included */
	bool pops_nothing; /* it takes no operand from the value stack */
};

/* What was learned. Offsets in bytes; all addresses of code are relative to the Ruby module's bias.
 */
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
	uint32_t vm_ractors;	 /* list head inside the vm */
	uint64_t vm_root;	 /* module-relative address of the word that holds the vm */
	/* iseq */
	uint32_t iseq_body, body_encoded, body_size, body_path, body_label, body_first_line;
	bool first_line_fixnum;	  /* body_first_line is a VALUE (2n + 1), not an int */
	uint32_t body_insns_info; /* struct iseq_insn_info */
	uint32_t insns_entry_size, insns_entry_line;
	uint32_t insns_entries, insns_count,
		insns_succ; /* inside insns_info: entries*, size, succ table* */
	uint64_t iseq_flags_mask,
		iseq_flags_value; /* flags & mask == value for every iseq object */
	/* objects */
	uint32_t slot_size;
	uint64_t string_noembed;	 /* flag bit: text is not in the slot */
	uint32_t string_ptr, string_len; /* of a string not embedded */
	uint32_t string_embed;		 /* embedded text */
	uint64_t string_embed_len_mask; /* embedded length = (flags & mask) >> shift; mask 0: length
					   word at string_len */
	uint32_t string_embed_len_shift;
	uint64_t array_embed; /* flag bit: elements are in the slot */
	uint32_t array_embed_ptr, array_ptr;
	/* class name: see ruby_class.c */
	uint32_t class_ext;	   /* RClass -> ext pointer (or 0: the fields follow in the slot) */
	uint32_t class_path;	   /* ext -> name String, when class_path_table is 0 */
	uint32_t class_path_table; /* ext -> st_table holding {classpath id: String}; 0 unused */
	uint32_t st_entries, st_bound_start, st_bound; /* inside st_table */
	uint64_t classpath_id;			       /* key in that table */
	uint64_t tmp_classpath_id; /* key of the name of a class inside an anonymous one; 0 unknown
				    */
	uint64_t attached_id;	   /* key of a singleton's object; 0 unknown */
	uint64_t singleton_flag;
	/* the trace argument that a raw event hook receives */
	uint32_t trace_ec, trace_cfp, trace_data;
	bool trace_pc_advanced; /* the VM adds one word to the top frame's pc around the hook */
	/* instructions that allocate without pushing a frame: see struct scry_ruby_leaf */
	uint32_t leaf_count, after_count;
	struct scry_ruby_leaf leaf[SCRY_RUBY_LEAF_MAX];
	struct scry_ruby_leaf after[SCRY_RUBY_LEAF_MAX];
};

struct scry_ruby_thread {
	uint64_t th, ec, ractor;
	pid_t tid; /* host's view; 0 unknown */
};

struct scry_ruby {
	pid_t pid;
	struct scry_mem mem;   /* own handle, closed with the ruby */
	struct scry_maps maps; /* snapshot at open */
	struct scry_elf *elf;  /* the module that is Ruby */
	uint64_t bias;
	char module[512];      /* path of that module */
	char description[128]; /* the ruby_description string */
	bool is_driver; /* the main program is the ruby command (not a program that embeds it) */
	struct scry_ruby_layout layout;
	bool booted; /* the vm root is set and a thread runs */
	struct scry_ruby_check *checks;
	size_t check_count;
};

/* One learned or validated item, for `scry doctor -p`. */
struct scry_ruby_check {
	char item[40];	/* "frame size" */
	char value[40]; /* "64" */
	char how[64];	/* "calibration child", "decoded rb_tracearg_object" */
	char proof[96]; /* "17 of 17 frames", or the reason why not */
	bool ok;
};

/*
 * Is there a Ruby in `maps`? Fills module entry index and returns 0, or -ENOENT: no module exports
 * ruby_version (no sentence: an ordinary answer). Cheap: looks at the names of mapped files first,
 * then at dynsym.
 */
int scry_ruby_find(pid_t pid, const struct scry_maps *maps, size_t *ret_entry);

/*
 * Opens the Ruby of `pid`: find, learn, validate. 0, or -errno with a sentence: -ENOENT no Ruby,
 * -ENOTSUP a layout that did not validate or cannot be learned, -EAGAIN the VM has not booted yet
 * AND `need_booted` was set. Without need_booted the layout is learned, and validation is left to
 * scry_ruby_validate().
 */
int scry_ruby_open(pid_t pid, bool need_booted, struct scry_ruby **ret);
void scry_ruby_free(struct scry_ruby *ruby);

/* Checks the layout on the live target, read-only, about 1 ms. 0, -EAGAIN not booted, -ENOTSUP with
 * the reason. */
int scry_ruby_validate(struct scry_ruby *ruby);

/* Run-time address of an exported symbol of the Ruby module, 0 when it has none. */
uint64_t scry_ruby_symbol(const struct scry_ruby *ruby, const char *name);

/* All Ruby threads of all ractors, into *ret (malloc'ed, caller frees). Count or -errno. A racing
 * list is retried 3 times. */
ssize_t scry_ruby_threads(const struct scry_ruby *ruby, struct scry_ruby_thread **ret);
/* Number of ractors, or -errno. */
int scry_ruby_ractors(const struct scry_ruby *ruby);

/* Reads a Ruby String at VALUE `str` into buf (NUL terminated, invalid UTF-8 and control bytes kept
 * out by '?'). Length or -errno. */
ssize_t scry_ruby_string(const struct scry_ruby *ruby, uint64_t str, char *buf, size_t size);

/* Name of a class as Ruby prints it: "Hash", "Foo::Bar", "#<Class:0x000...>" (anonymous),
 * "#<Class:Foo>" (singleton). 0; -ENOENT: not a class now. */
int scry_ruby_class_name(const struct scry_ruby *ruby, uint64_t klass, char *buf, size_t size);

/* Prints each check, one line. */
void scry_ruby_print_checks(const struct scry_ruby *ruby, FILE *out);

#endif
