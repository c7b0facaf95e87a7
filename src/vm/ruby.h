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
#include <sys/types.h>

#include "base/buf.h"
#include "sys/elf.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"
#include "sys/space.h"
#include "vm/ruby_layout.h"

struct scry_ruby_thread {
	uint64_t th, ec, ractor;
	pid_t tid;	/* host's view; 0 unknown */
	uint32_t inner; /* as the VM has noted it */
};
struct scry_ruby {
	pid_t pid;		      /* 0: a saved image, for tests */
	const struct scry_core *core; /* it does not live; NULL, or borrowed */
	uid_t users[2];		      /* real, effective */
	struct scry_mem mem;	      /* own handle, closed with the ruby */
	struct scry_maps maps;	      /* snapshot at open */
	struct scry_elf *elf;	      /* the module that is Ruby */
	uint64_t bias;
	char module[512];      /* path of that module */
	char description[128]; /* the ruby_description string */
	bool is_driver;	       /* the ruby command, not a program that embeds it */
	struct scry_ruby_layout layout;
	bool whole;    /* learned with everything of the Ruby's own library at hand */
	bool booted;   /* the vm root is set and a thread runs */
	bool unjudged; /* the layout is from the cache, and was not validated at open */
	struct scry_ruby_check *checks;
	size_t check_count;
};

/* One learned or validated item, for `scry doctor -p`. */
struct scry_ruby_check {
	char item[40];	 /* "frame size" */
	char value[40];	 /* "64" */
	char how[64];	 /* "calibration child", "decoded rb_tracearg_object" */
	char proof[96];	 /* "17 of 17 frames", or the reason why not */
	char second[64]; /* other witnesses that say the same: "DWARF, rb_iseq_label"; or not */
	bool ok;
};

/*
 * Is there a Ruby in `maps`? Fills module entry index and returns 0, or -ENOENT: no module exports
 * ruby_version (no sentence: an ordinary answer). Cheap: looks at the names of mapped files first,
 * then at dynsym.
 */
int scry_ruby_find(pid_t pid, const struct scry_maps *maps, size_t *ret_entry);

/* Opens the Ruby of `pid`: find, learn, validate. 0, or -errno with a sentence: -ENOENT no Ruby,
 * -ENOTSUP a layout that did not validate or cannot be learned, -EAGAIN the VM has not booted yet
 * and it `need`s to have. Else validation is left to scry_ruby_validate(). */
enum scry_ruby_need {
	SCRY_RUBY_ANY,	  /* booted or not; then it is learned, once a run */
	SCRY_RUBY_STARTS, /* the same, or by a layout that was rehearsed: `unjudged` */
	SCRY_RUBY_BOOTED, /* learned anew, where a layout that is known does not fit */
	SCRY_RUBY_BOOTS,  /* it was just started and is asked again and again: -EAGAIN at once */
};
int scry_ruby_open(pid_t pid, enum scry_ruby_need need, struct scry_ruby **ret);
/*
 * The same of a core, which lives longer. The layout is learned from the program's file, if that is
 * root's or the caller's. Frames that were half made when it ended, or memory that the core lacks,
 * may fail the validator: then a layout that was just learned from that very file is used, and the
 * failed row is in `checks`.
 */
int scry_ruby_open_core(const struct scry_core *core, struct scry_ruby **ret);
void scry_ruby_free(struct scry_ruby *ruby);

/* The Ruby of a fork child of `parent`'s process: the same module and layout, learned once. Nothing
 * can be read of it until it is bound, when its process is known. 0 or -errno. */
int scry_ruby_like(const struct scry_ruby *parent, struct scry_ruby **ret);
int scry_ruby_bind(struct scry_ruby *ruby, pid_t pid);

/* Checks the layout on the live target, read-only, about 1 ms. 0, -EAGAIN not booted, -ESRCH gone,
 * -ENOTSUP with the reason. Of a VM that is being taken down it may say any of these. */
int scry_ruby_validate(struct scry_ruby *ruby);
/* The same for a caller that asks again soon: -EAGAIN at the first look. */
int scry_ruby_validate_once(struct scry_ruby *ruby);

/* Run-time address of an exported symbol of the Ruby module, 0 when it has none. */
uint64_t scry_ruby_symbol(const struct scry_ruby *ruby, const char *name);

/* All Ruby threads of all ractors, into *ret (caller frees): count or -errno. Tries 3 times. */
ssize_t scry_ruby_threads(const struct scry_ruby *ruby, struct scry_ruby_thread **ret);
/* Are these `count` still all, with their task ids? False also where that is not known. */
bool scry_ruby_threads_stand(const struct scry_ruby *ruby, const struct scry_ruby_thread *t,
			     size_t count);
/* Number of ractors, or -errno. */
int scry_ruby_ractors(const struct scry_ruby *ruby);

/* Reads a Ruby String at VALUE `str` into buf (NUL terminated, invalid UTF-8 and control bytes kept
 * out by '?'). Length or -errno. */
ssize_t scry_ruby_string(const struct scry_ruby *ruby, uint64_t str, char *buf, size_t size);

/* Name of a class as Ruby prints it: "Hash", "Foo::Bar", "#<Class:0x000...>" (anonymous),
 * "#<Class:Foo>" (singleton). 0; -ENOENT: not a class now. */
int scry_ruby_class_name(const struct scry_ruby *ruby, uint64_t klass, char *buf, size_t size);

/*
 * Name of the method that the C frame at `cfp` runs ("each_value", "<=>"), as its backtrace line
 * says. Length; -ENOENT: this Ruby's method entries are not known, or the frame has none; -EFAULT.
 */
ssize_t scry_ruby_c_method(const struct scry_ruby *ruby, uint64_t cfp, char *buf, size_t size);
/* The name that an ID stands for; length, -ENOENT: none or not known, -EFAULT. */
ssize_t scry_ruby_id_name(const struct scry_ruby *ruby, uint64_t id, char *buf, size_t size);

/* Values of up to three ivars of a class that shapes place (3.2), by their ids; those not there
 * stay 0. 0 or -EFAULT. */
int scry_ruby_shape_ivars(const struct scry_ruby *ruby, uint64_t klass, const uint64_t keys[3],
			  uint64_t ret_values[3]);

/*
 * The word that holds the execution context of the thread that runs: TLS module number (as the
 * dynamic thread vector counts) and offset in its block; module 0: offset from fs. 0, or -ENOTSUP
 * with a sentence: not known of this Ruby.
 */
int scry_ruby_current_ec(const struct scry_ruby *ruby, uint64_t *ret_module, int64_t *ret_offset);
/* The number alone; and where a thread, known by its fs, has that module's block: 0 or -ENOENT. */
int scry_ruby_tls_module(const struct scry_ruby *ruby, uint64_t *ret);
int scry_ruby_tls_block(const struct scry_mem *mem, uint64_t fs, uint64_t module, uint64_t *ret);

/* Keeps layout.alloc_functions and layout.rehearsed too, where the layout may be kept at all. */
void scry_ruby_keep(const struct scry_ruby *ruby);
/* Forgets what was kept of this Ruby, which may be gone: the next one is learned anew. */
void scry_ruby_drop(const struct scry_ruby *ruby);

/* Appends a row for `scry doctor`, or replaces the one of this item; without memory it is missing.
 */
void scry_ruby_add_check(struct scry_ruby *ruby, const struct scry_ruby_check *check);
/* Appends its value, how it was learned, and what proves it. */
void scry_ruby_put_check(const struct scry_ruby_check *check, struct scry_buf *buf);

#endif
