/*
 * From the words of many threads (wire/malloc_ring.h) to the calls of a process, in one order.
 *
 * The threads' words are merged by their stamps (sys/stream), each address is followed to the block
 * that lives there, and the calls go to the packer (rec/malloc_pack.h), with THREAD and CALLER
 * events before them. Words are hostile: any content gives some calls, never a crash, and memory is
 * bounded.
 *
 * What does not fit is mended and counted: an address that begins while it lives ends first; an end
 * of an address that is not known is UNKNOWN.
 *
 * Life: new, in the order of the target's life:
 *   look  older*  (add*, look, merge)*  last add*  end  look, merge(UINT64_MAX), finish  free
 * of which add and look are its stream's.
 * What the recording has no room for is counted by its writer, and is not an error.
 * One thread. Errors are -ENOMEM, or -ENOSPC: the limit of memory is reached; all
 * with a sentence. After -ENOSPC nothing more is taken: end the recording, its part is complete.
 */
#ifndef SCRY_NAME_MALLOC_H
#define SCRY_NAME_MALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rec/writer.h"
#include "sys/stream.h"
#include "vm/ruby.h"

struct scry_malloc;

struct scry_malloc_opts {
	struct scry_producer producer;
	struct scry_writer *writer;
	uint64_t memory;	     /* bytes for all that is kept here; 0: no limit */
	uint64_t own_start, own_end; /* scry's in the process: no resident memory of its own */
	bool is_glibc;		     /* the allocator is glibc's */
	bool is_closed;		     /* its memory is not opened: callers by files alone */
	bool has_stacks; /* words are as wire/malloc_ring.h has them where stacks are recorded */
	/* The process has forked `pid` (as it sees it): all up to then is merged, nothing after it.
	 * May call scry_malloc_fork. NULL: children are not recorded. */
	int (*on_fork)(void *arg, struct scry_malloc *parent, uint32_t pid);
	void *on_fork_arg;
	/* It was forked in this program, and where is not known: callers are named as in that one,
	 * if it runs another by now. Or NULL. */
	const struct scry_malloc *origin;
};

/* Also looks which objects are loaded, for callers of a target that ends soon. */
int scry_malloc_new(const struct scry_malloc_opts *opts, struct scry_malloc **ret);
void scry_malloc_free(struct scry_malloc *m); /* NULL is legal */

/*
 * A fork child's: blocks as they are in `parent` now, which must be merged up to the fork. Threads,
 * callers and words are not taken over. Parent's chunk and the child's first are written.
 */
int scry_malloc_fork(struct scry_malloc *parent, const struct scry_malloc_opts *opts,
		     struct scry_malloc **ret);

/* A block that was there before recording began. Before the first merge. 0 also when that address
 * was added before. */
int scry_malloc_older(struct scry_malloc *m, uint64_t address, uint64_t usable);

/* Words come by it, ticks are stamps; the clock is its. */
struct scry_stream *scry_malloc_stream(struct scry_malloc *m);

/* The modules that its callers are named by: lent. */
struct scry_modules *scry_malloc_modules(const struct scry_malloc *m);

/* Makes calls of all that is stamped up to `watermark`. Packs and writes what is due. After
 * scry_stream_look. */
int scry_malloc_merge(struct scry_malloc *m, uint64_t watermark);

/* See scry_malloc_callers_ruby. */
void scry_malloc_ruby(struct scry_malloc *m, const struct scry_ruby *ruby, bool is_proven);

/* No words will come any more: the merge that follows waits for none, whatever its watermark. */
void scry_malloc_end(struct scry_malloc *m);

/* Words that wait for the watermark. Beyond this, take no more than that needs
 * (scry_thread_buffers_spare): the target's threads then wait. 0 while a fork is waited for, a
 * second at most: what says that it is done may be among what is still to be taken. */
#define SCRY_MALLOC_WAITING_MAX (16u << 20)
size_t scry_malloc_waiting(const struct scry_malloc *m);

/* Writes what is packed, with what it names. At least once a second. */
int scry_malloc_flush(struct scry_malloc *m);

/* Reads /proc/PID and writes a MEMORY event when 100 ms have passed since the last (10 ms in the
 * first second), or `now`.
 * Nothing when the process is gone. */
int scry_malloc_memory(struct scry_malloc *m, uint64_t now_ns, bool now);

/* The end, after merge(UINT64_MAX): reallocs that never returned are counted, all is written. */
int scry_malloc_finish(struct scry_malloc *m);

struct scry_malloc_stats {
	uint64_t calls;		     /* of malloc functions; OLDER, TOUCHED... are none */
	uint64_t unwritten;	     /* of them: the recording was full */
	uint64_t blocks, blocks_max; /* that live, and at most */
	uint64_t unknown;	     /* ends of blocks that are not known */
	uint64_t mended;	     /* beginnings where a block still lived */
	uint64_t late;		     /* calls that came after later ones had been emitted */
	uint64_t unreturned;	     /* reallocs that never returned: their blocks live on */
	uint64_t bad;		     /* words that make no sense */
	uint64_t callers, threads;
	uint64_t callers_unnamed;   /* whose code was used before it was defined */
	bool had_children;	    /* processes, which it waited for */
	uint64_t own_memory;	    /* resident between own_start and own_end, at most */
	uint64_t lines, lines_gone; /* callers that are lines of a VM; of these, without a name */
	uint64_t memory;	    /* bytes kept here now */
	uint64_t block_bytes;	    /* of these, for blocks: 13 to 26 each */
};
void scry_malloc_stats(const struct scry_malloc *m, struct scry_malloc_stats *ret);

#endif
