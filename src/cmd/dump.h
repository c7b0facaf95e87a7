/* What `scry dump` has found out about the threads of a process, and how it is printed. */
#ifndef SCRY_CMD_DUMP_H
#define SCRY_CMD_DUMP_H

#include "name/thread_state.h"
#include "sys/core.h"
#include "sys/proc.h"
#include "vm/ruby_symbol.h"

struct scry_dump_frame {
	const char *path, *name,
		*label; /* of scry_dump.symbols; a C method's path is its caller's */
	uint32_t line;
	bool is_c;
};

struct scry_dump_thread {
	struct scry_ruby_thread ruby;
	char name[32];
	enum scry_thread_state state;
	char wait[512]; /* "read(7), pipe"; "" */
	enum scry_walk_verdict verdict;
	bool is_cut, has_signal;	/* has_signal: it is the one that the core's signal hit */
	size_t unnamed;			/* frames that could not be named */
	struct scry_dump_frame *frames; /* the newest first */
	size_t count;
	size_t same_as; /* index of the first thread with the same frames and wait; its own */
};

struct scry_dump {
	struct scry_proc proc;	/* of a core: pid and comm */
	struct scry_core *core; /* NULL: it lives */
	const char *core_path;
	bool is_odd; /* the core's state is not all as a Ruby's should be */
	struct scry_ruby *ruby;
	struct scry_symbols symbols;
	struct scry_dump_thread *threads;
	size_t count;
	size_t others; /* tasks that run no Ruby */
	uint64_t pause_ns;
	int64_t wall_s; /* since 1970: now, or when the core was written */
};

/* What it waits for, into t->wait; t->state is known. */
void scry_dump_wait(const struct scry_dump *d, const struct scry_task_now *now,
		    struct scry_dump_thread *t);

/* Opens a core and its Ruby; `exe` as scry_core_open's program. 0 or -errno with a sentence;
 * d->core is to be closed in any case. */
int scry_dump_core_open(struct scry_dump *d, const char *path, const char *exe);
/* States of the threads, from the registers that the core has. */
void scry_dump_core_states(struct scry_dump *d);

/* All threads for a person; at most `depth` frames of each, 0: all. */
void scry_dump_text(const struct scry_dump *d, uint64_t depth, FILE *out);
/* schema scry.dump/1. 0 or -errno with a sentence. */
int scry_dump_json(const struct scry_dump *d, FILE *out);

#endif
