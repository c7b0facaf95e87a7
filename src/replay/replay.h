/*
 * scry-replay: calls of a recording, made again under the allocator that is loaded.
 *
 * A program of its own, so that nothing but the allocator's memory is anonymous memory of its
 * process: the words, the cells, its tables and the threads' stacks are shared mappings, so RssAnon
 * is the allocator's. Nothing here allocates while a batch is replayed, but pthread_create, which
 * takes a few hundred bytes for a thread's vector of thread-local storage, as it did in the program
 * that was recorded.
 */
#ifndef SCRY_REPLAY_REPLAY_H
#define SCRY_REPLAY_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/replay_head.h"

struct replay_calls { /* what serves; every one is set */
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void *(*reallocarray)(void *, size_t, size_t);
	void (*free)(void *);
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	void *(*memalign)(size_t, size_t);
	void *(*valloc)(size_t);
	void *(*pvalloc)(size_t);
	size_t (*usable)(void *);
	void *(*new)(size_t);
	void *(*new_array)(size_t);
	void (*delete)(void *);
	void (*delete_array)(void *);
};

struct replay {
	struct scry_replay_memory *m;
	struct scry_replay_head *head;
	struct replay_calls calls;
	uint32_t touch;			     /* head->touch */
	uint64_t *cells;		     /* SCRY_REPLAY_SLOTS: tag << 48 | address; 0: free */
	uint64_t *sizes;		     /* the same, VERIFY only: bytes asked for */
	uint32_t *epochs;		     /* SCRY_REPLAY_EPOCHS: streams that have marked it */
	struct slot *slots;		     /* the same: check.c's */
	uint32_t first[SCRY_REPLAY_STREAMS]; /* blocks of this batch, checked */
	uint32_t streams;		     /* in use */
	uint32_t slots_ready;		     /* cells below are in memory */
};
extern struct replay replay;

/* A cell holds this in place of an address: the call got no memory. */
#define REPLAY_FAILED 1u
#define REPLAY_ADDRESS ((UINT64_C(1) << 48) - 1)
/* The null allocator's memory, for each thread that lives. */
#define REPLAY_NULL_BYTES (UINT64_C(64) << 10)

/* who.c: finds the functions, and what serves them. False: not the one asked for; head->why says
 * who. */
bool replay_calls_find(struct replay_calls *ret_calls);
/* From now on head->why says in whose code it crashes. */
void replay_crash_reports(void);
/* Functions that return memory without looking for any. */
extern const struct replay_calls replay_calls_null;
/* Where those serve: memory for a thread, in memory already; to be given back when it was joined.
 * One thread at a time. */
void replay_null_init(void);
uint32_t replay_null_take(void);
void replay_null_give(uint32_t piece);
/* In the thread, before its first call. */
void replay_null_begin(uint32_t piece);

/* check.c: goes through the batch. False, and head->why, for one that must not be replayed. */
bool replay_check(void);
void replay_check_init(void);

/* threads.c: replays the batch that was checked, in the main thread and the others. */
void replay_threads_init(void);
void replay_batch(void);

/* work.c: replays the words of a stream from `block` on. What it did is added to the head. */
struct stream {
	uint32_t number;
	uint32_t left; /* calls until the next is timed */
	uint64_t failed, waits, wait_ticks, wait_ns, sink;
};
/* True: the thread ends. */
bool replay_work(struct stream *l, uint32_t block);
/* Begins a stream's thread, when `ended` have ended: threads.c. */
void replay_spawn(struct stream *by, uint32_t stream, uint32_t ended);
/* Waits until as many have. */
void replay_join(struct stream *l, uint32_t ended);

/* verify.c */
void verify_begin(struct stream *l, uint32_t slot, void *p, uint64_t size, uint64_t align);
void verify_zero(struct stream *l, uint32_t slot, const void *p, uint64_t size);
void verify_again(struct stream *l, uint32_t slot, void *p, uint64_t size);
void verify_end(struct stream *l, uint32_t slot, const void *p);
void verify_usable(struct stream *l, uint32_t slot, size_t usable);

/* syscalls.c: COUNTED. Before the first batch; then around each. */
void replay_syscalls_init(void);
void replay_syscalls_count(bool on);

/* main.c: a sentence, the first one stays. printf's %s and %u only. Always false. */
bool replay_refuse(const char *format, ...);
uint64_t replay_thread_ns(void); /* CPU time */
uint64_t replay_process_ns(void);
extern uint64_t replay_clock_ns; /* what reading that takes: half before it, half behind it */
uint64_t replay_ticks_ns(uint64_t ticks); /* of the TSC */
uint64_t replay_ns_ticks(uint64_t ns);
void *
replay_map(size_t bytes); /* shared, zeroed, taken when touched; ends the program on failure */
_Noreturn void replay_die(const char *why);

void replay_futex_wait(uint32_t *word, uint32_t value);
void replay_futex_wake(uint32_t *word);

#endif
