/*
 * Words of several threads -> a recording, read back and compared with a model: what, in which
 * order, and which block each call must mean.
 */
#include "name/malloc.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "name/malloc_addresses.h"
#include "rec/reader.h"
#include "sys/proc.h"
#include "wire/event.h"
#include "wire/malloc_ring.h"

#define THREADS 5
#define ADDRESSES 400 /* few, so that they are given out again, by others */
#define CALLS 60000
#define FULL (ADDRESSES - 2 * THREADS)
#define TSC_BASE 1000000ull
#define PID 1 /* init: callers and names of threads are of no matter here */

struct expected {
	struct scry_ev_malloc call; /* block: of the model, never used again */
};

struct model_thread {
	uint64_t words[CALLS * 8];
	size_t count, given;
	uint64_t stamp; /* of its newest record */
	bool reallocs;
	uint64_t old_address, size;
	uint32_t old_block, flags, function;
	uint32_t number;
};

static struct model {
	struct model_thread threads[THREADS];
	uint32_t at[ADDRESSES]; /* block that lives there */
	bool taken[ADDRESSES];	/* the allocator has given it out and not back */
	struct expected expected[CALLS * 2];
	size_t count;
	uint32_t blocks, numbers;
	uint32_t out; /* addresses taken */
	uint64_t tsc;
} model;

static struct scry_writer *writer;
static int fd;

static int set_up(void **state)
{
	(void)state;
	fd = memfd_create("name_malloc", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(scry_writer_open(fd, 0, &writer), 0);
	memset(&model, 0, sizeof(model));
	memset(model.at, 0xff, sizeof(model.at));
	model.tsc = TSC_BASE;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(fd);
	return 0;
}

/* A tick is half a nanosecond. */
static void look(struct scry_malloc *m, uint64_t tsc)
{
	const uint64_t ns = 1000 + (tsc - TSC_BASE) / 2;

	scry_stream_clock(scry_malloc_stream(m), &(struct scry_ticks_pair){tsc, ns, ns});
}

static void add(struct scry_malloc *m, const struct scry_stream_words *words)
{
	assert_int_equal(scry_stream_add(scry_malloc_stream(m), words), 0);
}

static void merge(struct scry_malloc *m, uint64_t watermark, uint64_t now_tsc)
{
	look(m, now_tsc);
	assert_int_equal(scry_malloc_merge(m, watermark), 0);
}

static struct scry_malloc *open_as(struct scry_malloc_opts opts)
{
	struct scry_malloc *m = NULL;

	opts.writer = writer;
	assert_int_equal(scry_malloc_new(&opts, &m), 0);
	look(m, TSC_BASE);
	look(m, TSC_BASE + 1000);
	return m;
}

static struct scry_malloc *open_malloc(uint64_t memory)
{
	return open_as((struct scry_malloc_opts){.producer = {.pid = PID, .start_ticks = 5},
						 .memory = memory});
}

static uint64_t address(uint32_t i)
{
	return 0x7f0000001000ull + 48ull * i;
}

/* words */

static void put(struct model_thread *h, uint64_t word)
{
	assert_true(h->count < sizeof(h->words) / sizeof(h->words[0]));
	h->words[h->count++] = word;
}

struct rec {
	enum scry_malloc_op op;
	uint64_t address, size;
	uint32_t slack, caller, function, align;
};

static void put_record(struct model_thread *h, const struct rec *r)
{
	bool always = r->op == SCRY_MALLOC_OP_ALLOC || r->op == SCRY_MALLOC_OP_FREE_BY ||
		      r->op == SCRY_MALLOC_OP_TOUCHED;
	bool is_long = always || r->size >= SCRY_MALLOC_SIZE_LONG;

	model.tsc += 1 + (uint64_t)random() % 50;
	if (random() % 5000 == 0)
		model.tsc += 3ull << SCRY_MALLOC_TSC_BITS;
	if (model.tsc - h->stamp > 1ull << (SCRY_MALLOC_TSC_BITS - 1)) {
		put(h, SCRY_MALLOC_OP_TIME);
		put(h, model.tsc);
	}
	h->stamp = model.tsc;
	if (!h->number)
		h->number = ++model.numbers;
	put(h, r->op | r->address >> 3 << 4 | (is_long ? SCRY_MALLOC_SIZE_LONG : r->size) << 48);
	put(h, scry_malloc_word1(model.tsc, r->slack, r->caller));
	if (is_long)
		put(h, r->function | r->align << 8 | r->size << 16);
}

static void expect(struct model_thread *h, struct scry_ev_malloc call)
{
	call.thread = h->number;
	assert_true(model.count < sizeof(model.expected) / sizeof(model.expected[0]));
	model.expected[model.count++].call = call;
}

static uint64_t random_size(void)
{
	return random() % 20 ? (uint64_t)random() % 2000 : (uint64_t)random() << (random() % 15);
}

static void take(uint32_t i, bool taken)
{
	model.out += taken;
	model.out -= model.taken[i];
	model.taken[i] = taken;
}

static uint32_t free_address(void)
{
	uint32_t i = (uint32_t)random() % ADDRESSES;

	for (uint32_t n = 0; n < ADDRESSES; n++, i = (i + 1) % ADDRESSES)
		if (!model.taken[i])
			return i;
	return UINT32_MAX;
}

static uint32_t living_address(void)
{
	uint32_t i = (uint32_t)random() % ADDRESSES;

	for (uint32_t n = 0; n < ADDRESSES; n++, i = (i + 1) % ADDRESSES)
		if (model.at[i] != UINT32_MAX)
			return i;
	return UINT32_MAX;
}

/* calls */

static void call_malloc(struct model_thread *h)
{
	static const uint32_t others[] = {SCRY_MALLOC_POSIX_MEMALIGN, SCRY_MALLOC_ALIGNED_ALLOC,
					  SCRY_MALLOC_MEMALIGN,	      SCRY_MALLOC_VALLOC,
					  SCRY_MALLOC_PVALLOC,	      SCRY_MALLOC_NEW,
					  SCRY_MALLOC_NEW_ARRAY};
	uint32_t i = random() % 30 && model.out < FULL ? free_address() : UINT32_MAX;
	struct rec r = {.op = SCRY_MALLOC_OP_MALLOC + (int)(random() % 3),
			.size = random_size(),
			.slack = (uint32_t)random() % 256,
			.caller = (uint32_t)random() % 10};
	struct scry_ev_malloc call = {
		.function = r.op == SCRY_MALLOC_OP_CALLOC ? SCRY_MALLOC_CALLOC : SCRY_MALLOC_MALLOC,
		.block = UINT32_MAX,
		.size = r.size,
		.caller = r.caller};

	if (r.op == SCRY_MALLOC_OP_ALLOC) {
		r.function = call.function = others[random() % 7];
		r.align = (uint32_t)random() % 13;
		call.align = r.align ? 1ull << r.align : 0;
	}
	if (i == UINT32_MAX) {
		call.flags = SCRY_MALLOC_FAILED;
	} else {
		r.address = address(i);
		call.usable = r.slack == SCRY_MALLOC_SLACK_UNKNOWN ? 0 : r.size + r.slack;
		call.block = model.at[i] = model.blocks++;
		take(i, true);
	}
	put_record(h, &r);
	expect(h, call);
}

static void call_free(struct model_thread *h)
{
	uint32_t i = random() % 30 ? living_address() : UINT32_MAX;
	struct rec r = {.op = SCRY_MALLOC_OP_FREE, .caller = (uint32_t)random() % 10};
	struct scry_ev_malloc call = {
		.function = SCRY_MALLOC_FREE, .block = UINT32_MAX, .caller = r.caller};

	if (random() % 10 == 0) {
		r.op = SCRY_MALLOC_OP_FREE_BY;
		r.function = call.function = random() % 2 ? SCRY_MALLOC_DELETE : SCRY_MALLOC_FREE;
		r.size = call.size = (uint64_t)random() % 1000;
	}
	if (i != UINT32_MAX) {
		r.address = address(i);
		call.block = model.at[i];
	} else if (random() % 2) {
		call.flags = SCRY_MALLOC_NULL;
	} else {
		r.address = 0x10000;
		call.flags = SCRY_MALLOC_UNKNOWN;
	}
	if (i != UINT32_MAX && random() % 10 == 0) {
		struct rec touched = {.op = SCRY_MALLOC_OP_TOUCHED,
				      .address = r.address,
				      .size = (uint64_t)(random() % 100) * 4096};

		put_record(h, &touched);
		expect(h, (struct scry_ev_malloc){.function = SCRY_MALLOC_TOUCHED,
						  .block = call.block,
						  .usable = touched.size});
	}
	put_record(h, &r);
	expect(h, call);
	if (i != UINT32_MAX) {
		model.at[i] = UINT32_MAX;
		take(i, false);
	}
}

static void call_usable(struct model_thread *h)
{
	uint32_t i = living_address();
	struct rec r = {.op = SCRY_MALLOC_OP_USABLE, .size = random_size()};

	if (i == UINT32_MAX)
		return;
	r.address = address(i);
	put_record(h, &r);
	expect(h, (struct scry_ev_malloc){.function = SCRY_MALLOC_USABLE_SIZE,
					  .block = model.at[i],
					  .usable = r.size});
}

/* Between a realloc's two records others go on; its old address may be theirs by then. */
static void call_realloc(struct model_thread *h)
{
	uint32_t i = random() % 20 ? living_address() : UINT32_MAX;
	struct rec r = {.op = SCRY_MALLOC_OP_REALLOC_BEGIN, .size = random() % 4 == 0};

	h->reallocs = true;
	h->function = r.size ? SCRY_MALLOC_REALLOCARRAY : SCRY_MALLOC_REALLOC;
	h->size = random() % 20 ? random_size() : 0;
	h->flags = 0;
	h->old_block = UINT32_MAX;
	h->old_address = 0;
	if (i != UINT32_MAX) {
		h->old_address = r.address = address(i);
		h->old_block = model.at[i];
		model.at[i] = UINT32_MAX;
	} else if (random() % 2) {
		h->flags = SCRY_MALLOC_NULL;
	} else {
		h->old_address = r.address = 0x20000;
		h->flags = SCRY_MALLOC_UNKNOWN;
	}
	put_record(h, &r);
	if (i != UINT32_MAX && random() % 2) { /* it moves: the old place is given back at once */
		take(i, false);
		h->flags |= SCRY_MALLOC_MOVED;
	}
}

static void end_realloc(struct model_thread *h)
{
	struct rec r = {.op = SCRY_MALLOC_OP_REALLOC_END,
			.size = h->size,
			.slack = (uint32_t)random() % 256,
			.caller = (uint32_t)random() % 10};
	struct scry_ev_malloc call = {.function = h->function,
				      .flags = h->flags & ~(uint32_t)SCRY_MALLOC_MOVED,
				      .block = h->old_block,
				      .size = r.size,
				      .caller = r.caller};
	bool has_moved = h->flags & SCRY_MALLOC_MOVED, is_old = h->old_block != UINT32_MAX;
	uint32_t i = has_moved || !is_old ? free_address()
					  : (uint32_t)((h->old_address - address(0)) / 48);

	h->reallocs = false;
	if (is_old && !has_moved && (random() % 4 == 0 || !h->size)) { /* NULL */
		call.flags |= h->size ? SCRY_MALLOC_FAILED : SCRY_MALLOC_ENDED;
		model.at[i] = h->size ? h->old_block : UINT32_MAX;
		take(i, h->size != 0);
	} else {
		r.address = address(i);
		if (r.address != h->old_address && h->old_address)
			call.flags |= SCRY_MALLOC_MOVED;
		call.usable = r.slack == SCRY_MALLOC_SLACK_UNKNOWN ? 0 : r.size + r.slack;
		call.block = is_old ? h->old_block : model.blocks++;
		model.at[i] = call.block;
		take(i, true);
	}
	put_record(h, &r);
	expect(h, call);
}

static void one_call(void)
{
	struct model_thread *h = &model.threads[random() % THREADS];
	long choice = random() % 100;

	if (h->reallocs)
		end_realloc(h);
	else if (choice < 45)
		call_malloc(h);
	else if (choice < 85)
		call_free(h);
	else if (choice < 97)
		call_realloc(h);
	else
		call_usable(h);
}

/* Gives all or some of what the threads have; returns up to where all is given. */
static uint64_t give(struct scry_malloc *m, bool all)
{
	uint64_t watermark = model.tsc;

	for (size_t i = 0; i < THREADS; i++) {
		struct model_thread *h = &model.threads[i];
		struct scry_stream_words run = {.thread = 100 + i,
						.tid = (uint32_t)(1000000 + i),
						.begin_tick = h->given ? 0 : TSC_BASE,
						.words = h->words + h->given,
						.count = h->count - h->given};

		add(m, &run);
		h->given = h->count;
	}
	return all ? UINT64_MAX : watermark - (uint64_t)random() % 100;
}

/* what was recorded */

struct place {
	uint32_t *blocks; /* number of the recording -> block of the model */
	size_t room;
	uint32_t callers[16]; /* code -> id, dense */
	uint32_t caller_count;
};

static void same_caller(struct place *p, uint32_t id, uint32_t code)
{
	if (code && !p->callers[code])
		p->callers[code] = ++p->caller_count;
	assert_int_equal(id, p->callers[code]);
}

static void same_block(struct place *p, const struct scry_ev_malloc *call, uint32_t block)
{
	if (block == UINT32_MAX) {
		assert_int_equal(call->block, SCRY_MALLOC_NO_BLOCK);
		return;
	}
	assert_true(call->block < p->room);
	if (p->blocks[call->block] == UINT32_MAX)
		p->blocks[call->block] = block; /* it begins */
	assert_int_equal(p->blocks[call->block], block);
	if ((call->function >= SCRY_MALLOC_FREE && call->function <= SCRY_MALLOC_DELETE_ARRAY) ||
	    call->flags & SCRY_MALLOC_ENDED)
		p->blocks[call->block] = UINT32_MAX;
}

static void compare(const struct scry_ev_malloc *call, const struct expected *e, struct place *p)
{
	assert_int_equal(call->function, e->call.function);
	assert_int_equal(call->flags, e->call.flags);
	assert_int_equal(call->pid, PID);
	assert_int_equal(call->thread, e->call.thread);
	assert_int_equal(call->size, e->call.size);
	assert_int_equal(call->usable, e->call.usable);
	assert_int_equal(call->align, e->call.align);
	same_block(p, call, e->call.block);
	same_caller(p, call->caller, e->call.caller);
}

static size_t read_back(struct place *p)
{
	struct scry_reader_stats stats;
	const struct scry_event *event;
	struct scry_reader *r;
	size_t n = 0;
	uint64_t ns = 0;

	assert_int_equal(scry_reader_open(fd, &r), 0);
	while (scry_reader_next(r, &event) == 1) {
		if (event->type != SCRY_EVENT_MALLOC)
			continue;
		assert_true(event->time_ns >= ns);
		ns = event->time_ns;
		assert_true(n < model.count);
		compare((const struct scry_ev_malloc *)(event + 1), &model.expected[n++], p);
	}
	scry_reader_stats(r, &stats);
	assert_int_equal(stats.errors, 0);
	scry_reader_close(r);
	return n;
}

static void test_calls(void **state)
{
	struct place p = {.blocks = calloc(ADDRESSES, 8), .room = 2ul * ADDRESSES};
	struct scry_malloc *m = open_malloc(0);
	struct scry_malloc_stats stats;

	(void)state;
	srandom(1);
	memset(p.blocks, 0xff, 4 * p.room);
	for (int i = 0; i < CALLS; i++) {
		one_call();
		if (random() % 300 == 0)
			merge(m, give(m, false), model.tsc);
		if (random() % 5000 == 0)
			assert_int_equal(scry_malloc_flush(m), 0);
	}
	for (size_t i = 0; i < THREADS; i++)
		if (model.threads[i].reallocs)
			end_realloc(&model.threads[i]);
	merge(m, give(m, true), model.tsc);
	assert_int_equal(scry_malloc_waiting(m), 0);
	assert_int_equal(scry_malloc_finish(m), 0);
	scry_malloc_stats(m, &stats);
	assert_int_equal(stats.bad + stats.late + stats.unreturned, 0);
	assert_int_equal(stats.threads, THREADS);
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(writer), 0);
	assert_int_equal(read_back(&p), model.count);
	free(p.blocks);
}

/* One record of one thread. */
static void tell(struct scry_malloc *m, uint64_t thread, uint64_t tsc, const struct rec *r)
{
	struct model_thread h = {.stamp = tsc};
	struct scry_stream_words run = {.thread = thread, .tid = 7, .begin_tick = TSC_BASE};

	model.tsc = tsc;
	put_record(&h, r);
	run.words = h.words;
	run.count = h.count;
	add(m, &run);
}

/* The next MALLOC event is this. */
static void must_come(struct scry_reader *r, uint32_t function, uint32_t flags, uint32_t block)
{
	const struct scry_ev_malloc *call;
	const struct scry_event *event;

	while (scry_reader_next(r, &event) == 1 && event->type != SCRY_EVENT_MALLOC)
		;
	assert_int_equal(event->type, SCRY_EVENT_MALLOC);
	call = (const void *)(event + 1);
	assert_int_equal(call->function, function);
	assert_int_equal(call->flags, flags);
	assert_int_equal(call->block, block);
}

/* Ends that come late, are unknown or never come; blocks from before; threads that end. */
static void test_mended(void **state)
{
	struct scry_malloc *m = open_malloc(0);
	struct scry_stream_words end = {.thread = 1, .tid = 7, .has_ended = true};
	struct scry_malloc_stats stats;
	struct scry_reader *r;

	(void)state;
	srandom(1);
	assert_int_equal(scry_malloc_older(m, 0x1000, 24), 0);
	assert_int_equal(scry_malloc_older(m, 0x1000, 24), 0);
	assert_int_equal(scry_malloc_older(m, 0x1004, 24), 0);
	tell(m, 1, 2000000, &(struct rec){.op = SCRY_MALLOC_OP_MALLOC, .address = 0x1000});
	tell(m, 2, 3000000, &(struct rec){.op = SCRY_MALLOC_OP_FREE, .address = 0x2000});
	tell(m, 1, 4000000, &(struct rec){.op = SCRY_MALLOC_OP_REALLOC_BEGIN, .address = 0x1000});
	tell(m, 2, 5000000, &(struct rec){.op = SCRY_MALLOC_OP_REALLOC_END, .address = 0x3000});
	add(m, &end);
	merge(m, UINT64_MAX, 6000000);
	assert_int_equal(scry_malloc_finish(m), 0);
	scry_malloc_stats(m, &stats);
	assert_int_equal(stats.calls, 3);
	assert_int_equal(stats.mended, 1);
	assert_int_equal(stats.unknown, 2);
	assert_int_equal(stats.unreturned, 1);
	assert_int_equal(stats.blocks_max, 1);
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(writer), 0);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	must_come(r, SCRY_MALLOC_OLDER, 0, 0);
	must_come(r, SCRY_MALLOC_FREE, 0, 0);
	must_come(r, SCRY_MALLOC_MALLOC, 0, 0);
	must_come(r, SCRY_MALLOC_FREE, SCRY_MALLOC_UNKNOWN, SCRY_MALLOC_NO_BLOCK);
	must_come(r, SCRY_MALLOC_REALLOC, SCRY_MALLOC_UNKNOWN, 1);
	must_come(r, SCRY_MALLOC_THREAD_END, 0, SCRY_MALLOC_NO_BLOCK);
	scry_reader_close(r);
}

static struct scry_malloc_stats stats_of(const struct scry_malloc *m)
{
	struct scry_malloc_stats stats;

	scry_malloc_stats(m, &stats);
	return stats;
}

/* A fork child has its parent's blocks under their numbers, and goes its own way. */
static void test_fork(void **state)
{
	const struct scry_malloc_opts opts = {.producer = {.pid = 2, .start_ticks = 6},
					      .writer = writer};
	struct scry_malloc *m = open_malloc(0), *child;
	struct scry_reader *r;

	srandom(1);
	tell(m, 1, 2000000, &(struct rec){.op = SCRY_MALLOC_OP_MALLOC, .address = 0x1000});
	tell(m, 1, 3000000, &(struct rec){.op = SCRY_MALLOC_OP_MALLOC, .address = 0x2000});
	merge(m, 3500000, 3600000);
	assert_int_equal(scry_malloc_fork(m, &opts, &child), 0);
	tell(m, 1, 4000000, &(struct rec){.op = SCRY_MALLOC_OP_FREE, .address = 0x1000});
	tell(child, 1, 4000000, &(struct rec){.op = SCRY_MALLOC_OP_FREE, .address = 0x2000});
	tell(child, 1, 5000000, &(struct rec){.op = SCRY_MALLOC_OP_FREE, .address = 0x1000});
	merge(child, UINT64_MAX, 6000000);
	merge(m, UINT64_MAX, 6000000);
	assert_int_equal(scry_malloc_finish(child), 0);
	assert_int_equal(scry_malloc_finish(m), 0);
	assert_int_equal(stats_of(child).unknown + stats_of(child).blocks, 0);
	assert_int_equal(stats_of(m).blocks, 1);
	scry_malloc_free(child);
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(writer), 0);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	must_come(r, SCRY_MALLOC_MALLOC, 0, 0);
	must_come(r, SCRY_MALLOC_MALLOC, 0, 1);
	must_come(r, SCRY_MALLOC_OLDER, 0, 0); /* the child's */
	must_come(r, SCRY_MALLOC_OLDER, 0, 1);
	must_come(r, SCRY_MALLOC_FREE, 0, 1);
	must_come(r, SCRY_MALLOC_FREE, 0, 0);
	must_come(r, SCRY_MALLOC_FREE, 0, 0);
	scry_reader_close(r);
}

struct forked {
	uint32_t pid;
	uint64_t blocks;
};

static int on_fork(void *arg, struct scry_malloc *parent, uint32_t pid)
{
	*(struct forked *)arg = (struct forked){pid, stats_of(parent).blocks};
	return 0;
}

/* Nothing after a fork is told before it is known who the child is: what lives then, it has. */
static void test_fork_waits(void **state)
{
	struct forked forked = {0};
	struct scry_malloc *m = open_as((struct scry_malloc_opts){
		.producer = {.pid = PID}, .on_fork = on_fork, .on_fork_arg = &forked});

	(void)state;
	srandom(1);
	tell(m, 1, 2000000, &(struct rec){.op = SCRY_MALLOC_OP_MALLOC, .address = 0x1000});
	tell(m, 1, 3000000, &(struct rec){.op = SCRY_MALLOC_OP_FORK});
	tell(m, 2, 4000000, &(struct rec){.op = SCRY_MALLOC_OP_MALLOC, .address = 0x2000});
	merge(m, 5000000, 5000000);
	assert_int_equal(stats_of(m).calls, 1);
	assert_int_equal(forked.pid, 0);
	tell(m, 1, 6000000, &(struct rec){.op = SCRY_MALLOC_OP_FORKED, .address = 4711ull << 3});
	merge(m, 7000000, 7000000);
	assert_int_equal(forked.pid, 4711);
	assert_int_equal(forked.blocks, 1);
	assert_int_equal(stats_of(m).calls, 2);
	/* one that is never done is waited for a second long */
	tell(m, 1, 8000000, &(struct rec){.op = SCRY_MALLOC_OP_FORK});
	tell(m, 2, 9000000, &(struct rec){.op = SCRY_MALLOC_OP_FREE, .address = 0x2000});
	merge(m, 10000000, 10000000);
	assert_int_equal(stats_of(m).calls, 2);
	merge(m, 10000000, 3000000000);
	assert_int_equal(stats_of(m).calls, 3);
	/* and not at the end, which may be said to be before that of the words */
	tell(m, 1, 21000000, &(struct rec){.op = SCRY_MALLOC_OP_FORK});
	tell(m, 2, 22000000, &(struct rec){.op = SCRY_MALLOC_OP_MALLOC, .address = 0x2000});
	tell(m, 2, 24000000, &(struct rec){.op = SCRY_MALLOC_OP_FREE, .address = 0x2000});
	scry_malloc_end(m);
	merge(m, 23000000, 25000000);
	assert_int_equal(stats_of(m).calls, 4);
	assert_int_equal(scry_malloc_finish(m), 0);
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(writer), 0);
}

/* Memory has a limit, which is said; what came before is a whole recording. */
static void test_limit(void **state)
{
	struct scry_malloc *m = open_malloc(1 << 20);
	struct scry_malloc_stats stats;
	int r = 0;

	srandom(1);
	for (uint64_t i = 1; r == 0 && i < 1000000; i++) {
		tell(m, 1, model.tsc,
		     &(struct rec){.op = SCRY_MALLOC_OP_MALLOC, .address = 16 * i});
		if (i % 1000 == 0)
			r = scry_malloc_merge(m, UINT64_MAX);
	}
	assert_int_equal(r, -ENOSPC);
	assert_non_null(strstr(scry_error(), "--memory"));
	merge(m, UINT64_MAX, model.tsc);
	assert_int_equal(scry_malloc_finish(m), 0);
	scry_malloc_stats(m, &stats);
	assert_int_equal(stats.block_bytes, 1 << 20);
	assert_in_range(stats.blocks, 70000, 90000);
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(writer), 0);
}

/* Any words: some calls, no crash, no end of time. The recording can be read. */
static void test_hostile(void **state)
{
	struct scry_malloc *m = open_malloc(0);
	struct scry_reader_stats stats;
	const struct scry_event *event;
	struct scry_reader *r;
	uint64_t words[64], count = 0;

	(void)state;
	srandom(2);
	for (int i = 0; i < 30000; i++) {
		struct scry_stream_words run = {.thread = (uint64_t)random() % 9,
						.tid = (uint32_t)random(),
						.words = words,
						.count = (size_t)random() % 64,
						.has_ended = random() % 50 == 0};

		if (random() % 3 == 0)
			run.begin_tick = (uint64_t)random() << (random() % 33);
		for (size_t n = 0; n < run.count; n++)
			words[n] = (uint64_t)random() << 33 ^ (uint64_t)random() << 12 ^
				   (uint64_t)random();
		add(m, &run);
		if (random() % 10 == 0)
			merge(m, (uint64_t)random() << 20, TSC_BASE + ((uint64_t)i << 20));
	}
	merge(m, UINT64_MAX, 1ull << 60);
	assert_int_equal(scry_malloc_finish(m), 0);
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(writer), 0);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	while (scry_reader_next(r, &event) == 1)
		count += event->type == SCRY_EVENT_MALLOC;
	scry_reader_stats(r, &stats);
	assert_true(count > 4000); /* some begin records of a thousand words */
	assert_int_equal(stats.errors, 0);
	scry_reader_close(r);
}

/* This process's own: names of callers, threads and memory. */
static void test_names(void **state)
{
	const struct scry_malloc_opts opts = {.producer = {.pid = (uint32_t)getpid()},
					      .writer = writer};
	const uint64_t here = (uint64_t)(uintptr_t)&test_hostile + 8;
	uint64_t words[] = {
		SCRY_MALLOC_OP_CALLER | 77ull << 48,	     here,
		SCRY_MALLOC_OP_MALLOC | 0x1000ull >> 3 << 4, scry_malloc_word1(TSC_BASE, 0, 77),
		SCRY_MALLOC_OP_CALLER | 78ull << 48,	     0x10008,
		SCRY_MALLOC_OP_FREE | 0x1000ull >> 3 << 4,   scry_malloc_word1(TSC_BASE, 0, 78)};
	const struct scry_stream_words run = {1, (uint32_t)getpid(), false, TSC_BASE, words, 8};
	const struct scry_event *event;
	int callers = 0, threads = 0, memory = 0;
	struct scry_reader *r;
	struct scry_malloc *m;

	(void)state;
	assert_int_equal(scry_malloc_new(&opts, &m), 0);
	add(m, &run);
	merge(m, UINT64_MAX, TSC_BASE);
	assert_int_equal(scry_malloc_memory(m, 1000, false), 0);
	assert_int_equal(scry_malloc_memory(m, 2000, false), 0); /* too early */
	assert_int_equal(scry_malloc_memory(m, 3000, true), 0);
	assert_int_equal(scry_malloc_finish(m), 0);
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(writer), 0);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	while (scry_reader_next(r, &event) == 1) {
		const struct scry_ev_caller *caller = (const void *)(event + 1);
		const struct scry_ev_thread *thread = (const void *)(event + 1);
		const struct scry_ev_memory *ev = (const void *)(event + 1);

		if (event->type == SCRY_EVENT_CALLER && ++callers == 1) {
			assert_string_equal(scry_reader_string(r, caller->symbol_str, NULL),
					    "test_hostile");
			assert_int_equal(caller->offset, 8);
			assert_non_null(strstr(scry_reader_string(r, caller->module_str, NULL),
					       "unit_name_malloc"));
		} else if (event->type == SCRY_EVENT_CALLER) {
			assert_string_equal(scry_reader_string(r, caller->module_str, NULL),
					    "[unmapped]");
			assert_int_equal(caller->symbol_str, 0);
			assert_int_equal(caller->offset, 0x10008);
		} else if (event->type == SCRY_EVENT_THREAD) {
			threads++;
			assert_int_equal(thread->thread, 1);
			assert_string_equal(scry_reader_string(r, thread->name_str, NULL),
					    "unit_name_mallo");
		} else if (event->type == SCRY_EVENT_MEMORY) {
			memory++;
			/* sys/guard's beside ours */
			assert_int_equal(ev->threads, scry_proc_task_count(getpid()));
			assert_in_range(ev->rss_anon, 4096, 1 << 30);
			assert_true(ev->faults > 0);
		}
	}
	assert_int_equal(callers, 2);
	assert_int_equal(threads, 1);
	assert_int_equal(memory, 2);
	scry_reader_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_calls, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_mended, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_fork, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_fork_waits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
