/* What `scry dump` has found out about the threads of a process, and how it is printed. */
#ifndef SCRY_CMD_DUMP_H
#define SCRY_CMD_DUMP_H

#include "name/thread_state.h"
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
	bool is_cut;
	size_t unnamed;			/* frames that could not be named */
	struct scry_dump_frame *frames; /* the newest first */
	size_t count;
	size_t same_as; /* index of the first thread with the same frames and wait; its own */
};

struct scry_dump {
	struct scry_proc proc;
	struct scry_ruby *ruby;
	struct scry_symbols symbols;
	struct scry_dump_thread *threads;
	size_t count;
	size_t others; /* tasks that run no Ruby */
	uint64_t pause_ns;
	int64_t wall_s;
};

/* All threads for a person; at most `depth` frames of each, 0: all. */
void scry_dump_text(const struct scry_dump *d, uint64_t depth, FILE *out);
/* schema scry.dump/1. 0 or -errno with a sentence. */
int scry_dump_json(const struct scry_dump *d, FILE *out);

#endif
