/*
 * The sampler of a Ruby's stacks, from outside: at each tick every Ruby thread of every ractor, its
 * stack and its state; the sums as SAMPLES events.
 *
 * Nothing is stopped (but see pause.h), no lock is taken, nothing is written into the process. A
 * thread that has not run since the tick before costs a look at a page that the kernel shares
 * (sys/task.h), or else one small read; its sample is that of the tick before.
 *
 * A collection of garbage is one more frame, "(garbage collection)", at the place of the line whose
 * allocation, or call, caused it.
 *
 * With a clock (`clock_ns`), what runs is not read: it gives itself, in records of
 * bpf/stacks.bpf.c, at each clock_ns of a processor. Ticks then count the threads that wait, and of
 * threads that run or are ready what their clocks have not reported: they were only ready.
 */
#ifndef SCRY_SAMPLE_SAMPLES_H
#define SCRY_SAMPLE_SAMPLES_H

#include "base/map.h"
#include "sample/cpu.h"
#include "sample/native.h"
#include "sample/pause.h"
#include "name/stacks.h"
#include "name/thread_state.h"
#include "rec/writer.h"
#include "vm/ruby_symbol.h"
#include "wire/bpf_stacks.h"

struct scry_samples_thread {
	struct scry_ruby_thread ruby;
	uint32_t number; /* of its THREAD events */
	pid_t tid;	 /* of its task, or of the last that it had; 0: it has had none */
	bool is_named;	 /* by a THREAD event: */
	uint32_t name_str, named_tid;  /* as it says */
	uint64_t name;		       /* its String then; 0: it had none */
	uint64_t name_ns, name_due_ns; /* its task's name is read again after so long, and when */
	bool is_here;		       /* in the list that is being read */
	struct scry_task task;
	struct scry_task_now now;
	uint64_t asked_ns; /* when the kernel's count was asked whether it rests */
	struct scry_walk_hint hint;
	bool has_last; /* of what follows, from the tick before */
	uint32_t stack;
	enum scry_thread_state state;
	bool in_gc; /* the collector was at work when its stack was read */
	enum scry_walk_verdict verdict;
	unsigned int rests; /* ticks since it ran */
	bool is_given;	    /* the clock's: its kernel side knows it */
	bool is_clocked;    /* it runs, or is ready to: it gives its samples itself */
	int64_t owed_ns;    /* it was seen so at ticks, less what its clock has reported */
};

struct scry_samples {
	struct scry_ruby *ruby;
	struct scry_writer *writer;
	struct scry_symbols symbols;
	struct scry_stacks stacks;
	struct scry_walk walk;
	struct scry_samples_native *native; /* NULL: not wanted; owned */
	struct scry_samples_pause *pause;   /* NULL: no thread is held; owned */
	struct scry_named_frame *named;
	uint32_t gc_name, unknown_name; /* of frames that say so, in symbols.names */
	struct scry_samples_thread *threads;
	struct scry_ruby_thread *list; /* of the same size: for the question which thread waits */
	bool *waits;
	size_t count, room;
	uint32_t numbers;	      /* THREAD events written */
	struct scry_ev_samples *rows; /* sums; stack: a frame number of `stacks`; cpu_ns: by the
					 clock, or what the looks at which it ran stand for */
	struct scry_samples_cpu cpu;
	size_t row_count, row_room;
	struct scry_intern keys;	 /* {thread, stack, state} -> row + 1 */
	uint64_t listed_ns;		 /* when the list of threads was read, or found unchanged */
	uint64_t named_ns;		 /* when names of threads were looked at */
	struct scry_ruby_thread *listed; /* as it was read; owned */
	size_t listed_count;
	uint64_t tick_ns, checked_ns; /* this tick began; the program was found to be the same */
	bool is_doubtful;	      /* in this tick a thread had no stack that was read */
	uint64_t clock_ns;	      /* what a record stands for; 0: there are none */
	uint32_t listings;	      /* how often the list was read */
	struct scry_ev_sampling sums;
	uint64_t unrecorded; /* samples beyond the limit of rows */
	uint64_t unsure;     /* records with code that was dead before its name was read */
};

/* `ruby` and `writer` stay the caller's. 0 or -errno. */
int scry_samples_init(struct scry_samples *s, struct scry_ruby *ruby, struct scry_writer *writer);
void scry_samples_done(struct scry_samples *s);
/* Stacks have native frames too, from now on. As scry_samples_native_open. */
int scry_samples_with_native(struct scry_samples *s);
/* What runs is held for each look, from now on: stacks are exact. As scry_samples_pause_open. */
int scry_samples_with_pause(struct scry_samples *s);

/*
 * One look at all threads, each sample stands for `stands_ns`. 0; -ESRCH: the process, or its
 * program, is gone: what this call has read is not counted; or -errno.
 */
int scry_samples_tick(struct scry_samples *s, uint64_t stands_ns);

/* Without a look: the list of threads, and whether the program is still the same; when they are
 * due, or `now`. Results as of a tick. */
int scry_samples_list(struct scry_samples *s, bool now);

/*
 * One record of bpf/stacks.bpf.c, its names read now: call it soon. 0; -ENOENT: of a thread that is
 * not in the list (nothing was counted); -EPROTO: no record; or -errno.
 */
int scry_samples_record(struct scry_samples *s, const void *record, size_t size);

/* STACK, SAMPLES and SAMPLING events. 0 or -errno. */
int scry_samples_write(struct scry_samples *s);

#endif
