/* From calls to words to calls: the feeder, scry-replay and what allocators answer. */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "malloc_gen.h"
#include "replan/feed.h"
#include "replan/run.h"

static struct malloc_gen gen;
static struct scry_malloc_result result;

static const struct scry_malloc_allocator glibc = {.label = "glibc"};
static const struct scry_malloc_allocator null = {.label = "null", .is_null = true};
static const struct scry_malloc_allocator others[] = {
	{.label = "glibc"},
	{.label = "jemalloc", .path = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"},
	{.label = "tcmalloc", .path = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"},
	{.label = "mimalloc", .path = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0"},
};

static struct scry_malloc_run_opts opts = {
	.mode = SCRY_REPLAY_VERIFY,
	.touch = SCRY_TOUCH_RECORDED,
	.sample_every = 61,
	.rss_every_ns = 1000000,
	.memory = UINT64_C(4) << 30,
	.stuck_ns = UINT64_C(60000000000),
};

static struct scry_malloc_feed *feed_of(bool one_thread)
{
	struct scry_malloc_feed_opts o = {.one_thread = one_thread, .live_max = opts.memory};
	struct scry_malloc_feed *f;

	malloc_gen_init(&gen);
	assert_int_equal(scry_malloc_feed_new(&gen.source, &o, &f), 0);
	return f;
}

static void run(struct scry_malloc_feed *f, const struct scry_malloc_allocator *a)
{
	int err = scry_malloc_run(f, a, &opts, &result);

	if (err || result.wrong)
		fail_msg("%s: %d %s; %llu wrong: %s", a->label, err, scry_error(),
			 (unsigned long long)result.wrong, result.why);
}

/* All functions, one thread: right under all allocators, and the same blocks live at the end. */
static void one_thread(void **state)
{
	struct scry_malloc_feed *f;

	gen = (struct malloc_gen){
		.calls = 200000, .threads = 1, .live = 5000, .size_max = 300000, .seed = 1};
	f = feed_of(false);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (others[i].path && access(others[i].path, R_OK)) {
			print_message("# no %s here: not tried\n", others[i].label);
			continue;
		}
		run(f, &others[i]);
		assert_int_equal(result.live_blocks, gen.count);
		assert_int_equal(result.failed, 0);
		assert_true(result.rss_peak > gen.live_bytes / 2);
	}
	assert_int_equal(scry_malloc_feed_stats(f)->live_blocks, gen.count);
	assert_int_equal(scry_malloc_feed_stats(f)->live_bytes, gen.live_bytes);
	assert_int_equal(scry_malloc_feed_stats(f)->calls, gen.calls);
	assert_int_equal(scry_malloc_feed_stats(f)->strange, 0);
	assert_int_equal(scry_malloc_feed_stats(f)->batches, 1);
	scry_malloc_feed_free(f);
}

/* Threads that take blocks over from each other, that end and begin. */
static void many_threads(void **state)
{
	struct scry_malloc_feed *f;

	gen = (struct malloc_gen){.calls = 300000,
				  .threads = 5,
				  .live = 3000,
				  .cross = 40,
				  .churn = 1000,
				  .size_max = 20000,
				  .seed = 2};
	f = feed_of(false);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (others[i].path && access(others[i].path, R_OK))
			continue;
		run(f, &others[i]);
		assert_int_equal(result.live_blocks, gen.count);
	}
	assert_true(scry_malloc_feed_stats(f)->tags > 10000);
	assert_true(scry_malloc_feed_stats(f)->threads > 100);
	assert_int_equal(scry_malloc_feed_stats(f)->threads_peak, 5);
	scry_malloc_feed_free(f);
}

/* The same calls by one thread. */
static void as_one(void **state)
{
	struct scry_malloc_feed *f;

	gen = (struct malloc_gen){.calls = 100000,
				  .threads = 5,
				  .live = 3000,
				  .cross = 40,
				  .churn = 1000,
				  .size_max = 20000,
				  .seed = 3};
	f = feed_of(true);
	run(f, &glibc);
	assert_int_equal(result.live_blocks, gen.count);
	assert_int_equal(scry_malloc_feed_stats(f)->tags, 0);
	scry_malloc_feed_free(f);
}

/* More than a batch holds: it is decoded again for each run, blocks live on from one to the next.
 */
static void batches(void **state)
{
	struct scry_malloc_feed *f;

	gen = (struct malloc_gen){.calls = 20000000,
				  .threads = 3,
				  .live = 10000,
				  .cross = 20,
				  .churn = 1000000,
				  .size_max = 200,
				  .is_plain = true,
				  .seed = 4};
	f = feed_of(false);
	opts.mode = SCRY_REPLAY_TIMED;
	for (int i = 0; i < 2; i++) {
		run(f, i ? &glibc : &null);
		assert_int_equal(result.live_blocks, gen.count);
		assert_true(scry_malloc_feed_stats(f)->batches > 1);
	}
	opts.mode = SCRY_REPLAY_VERIFY;
	scry_malloc_feed_free(f);
}

/* Calls that nobody made: whatever a recording says, what is made of it can be replayed. */
struct noise {
	struct scry_malloc_source source;
	uint64_t random, left, seed;
	struct scry_ev_malloc call;
};

static uint64_t draw(struct noise *n, uint64_t below)
{
	n->random ^= n->random << 13;
	n->random ^= n->random >> 7;
	n->random ^= n->random << 17;
	return (n->random >> 11) % below;
}

static int noise_rewind(struct scry_malloc_source *s)
{
	struct noise *n = (struct noise *)s;

	n->random = n->seed * 2654435761u + 1;
	n->left = 20000;
	s->time_ns = 0;
	return 0;
}

static int noise_next(struct scry_malloc_source *s, const struct scry_ev_malloc **ret_call)
{
	struct noise *n = (struct noise *)s;

	if (!n->left--)
		return 0;
	s->time_ns += draw(n, 50) ? draw(n, 2000) : draw(n, 20000000);
	n->call = (struct scry_ev_malloc){
		.function = (uint32_t)draw(n, draw(n, 50) ? SCRY_MALLOC_FUNCTIONS : UINT32_MAX),
		.flags = draw(n, 3) ? 0 : (uint32_t)draw(n, 32),
		.thread = (uint32_t)draw(n, draw(n, 2) ? 3 : 40),
		.block = (uint32_t)draw(n, draw(n, 200) ? 20 : 5000),
		.size = draw(n, draw(n, 100) ? 300 : 1 << 20),
		.usable = draw(n, 1 << 20),
		.align = UINT64_C(1) << draw(n, 7),
	};
	if (draw(n, 2000) == 0)
		n->call.size = draw(n, UINT64_MAX) | UINT64_C(1) << 42;
	*ret_call = &n->call;
	return 1;
}

static void any_calls(void **state)
{
	static struct noise n;
	struct scry_malloc_feed_opts o = {.live_max = opts.memory};
	struct scry_malloc_feed *f;
	unsigned int seeds = getenv("SCRY_SOAK") ? 400 : 20;

	n.source = (struct scry_malloc_source){.rewind = noise_rewind, .next = noise_next};
	for (n.seed = 1; n.seed <= seeds; n.seed++) {
		o.one_thread = n.seed % 8 == 0;
		o.is_thinking = n.seed % 2;
		n.source.cpu_ns = n.seed * 1000000;
		n.source.main_thread = (uint32_t)(n.seed % 3);
		assert_int_equal(scry_malloc_feed_new(&n.source, &o, &f), 0);
		run(f, &glibc);
		run(f, &glibc); /* with what the first pass has learned */
		scry_malloc_feed_free(f);
	}
}

/* Words of a kind that a stream has in the batch that stands in memory. */
static uint32_t words_of(struct scry_malloc_feed *f, uint32_t stream, enum scry_replay_op which)
{
	const struct scry_replay_memory *m = scry_malloc_feed_memory(f);
	uint32_t count = 0, op;
	const uint64_t *w;

	if (m->streams[stream] == SCRY_REPLAY_NONE)
		return 0;
	w = m->words[m->streams[stream]];
	while ((op = *w & 31) != SCRY_REPLAY_END && op != SCRY_REPLAY_STOP) {
		count += op == which;
		w = op == SCRY_REPLAY_LINK ? m->words[SCRY_REPLAY_SLOT(*w)] : w + 1 + (*w >> 5 & 1);
	}
	return count;
}

static uint32_t gates(struct scry_malloc_feed *f)
{
	uint32_t count = 0;

	for (uint32_t stream = 0; stream < scry_malloc_feed_memory(f)->head.streams; stream++)
		count += words_of(f, stream, SCRY_REPLAY_GATE);
	return count;
}

/* Threads that hand blocks over keep together; those that do not run on, once that is known. */
static void pace(void **state)
{
	struct scry_malloc_feed *f;

	for (uint32_t cross = 0; cross <= 40; cross += 40) {
		gen = (struct malloc_gen){.calls = 300000,
					  .threads = 5,
					  .live = 3000,
					  .cross = cross,
					  .size_max = 20000,
					  .seed = 5};
		f = feed_of(false);
		run(f, &glibc);
		assert_true(gates(f) > 0);
		run(f, &glibc);
		if (cross)
			assert_true(gates(f) > 0);
		else
			assert_int_equal(gates(f), 0);
		scry_malloc_feed_free(f);
	}
}

/* Calls that a function of their number tells. */
struct script {
	struct scry_malloc_source source;
	bool (*tell)(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *ret_call);
	uint64_t i;
	uint64_t main_from; /* before that call it is not known who the main thread is */
	struct scry_ev_malloc call;
};

static int script_rewind(struct scry_malloc_source *s)
{
	((struct script *)s)->i = 0;
	return 0;
}

static int script_next(struct scry_malloc_source *s, const struct scry_ev_malloc **ret_call)
{
	struct script *t = (struct script *)s;
	uint64_t us = 0;

	t->call = (struct scry_ev_malloc){.function = SCRY_MALLOC_MALLOC, .size = 100};
	if (t->i == t->main_from)
		s->main_thread = 1;
	if (!t->tell(t->i++, &us, &t->call))
		return 0;
	s->time_ns = 1000000000 + us * 1000;
	*ret_call = &t->call;
	return 1;
}

static struct scry_malloc_feed *feed_of_script(struct script *t, bool is_thinking)
{
	struct scry_malloc_feed_opts o = {.is_thinking = is_thinking, .live_max = opts.memory};
	struct scry_malloc_feed *f;

	t->source.rewind = script_rewind;
	t->source.next = script_next;
	t->source.main_thread = 0;
	assert_int_equal(scry_malloc_feed_new(&t->source, &o, &f), 0);
	run(f, &glibc);
	run(f, &glibc);
	return f;
}

/* Thread 1 works for a ms between its calls; thread 2 does nothing for 99. */
static bool work_and_wait(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	static const struct {
		uint64_t us;
		uint32_t thread, block, function;
	} calls[] = {
		{0, 1, 0, SCRY_MALLOC_MALLOC},
		{0, 2, 1, SCRY_MALLOC_MALLOC},
		{1000, 1, 0, SCRY_MALLOC_FREE},
		{99000, 2, 1, SCRY_MALLOC_FREE},
	};

	if (i == sizeof(calls) / sizeof(calls[0]))
		return false;
	*ret_us = calls[i].us;
	c->thread = calls[i].thread;
	c->block = calls[i].block;
	c->function = calls[i].function;
	return true;
}

/* What lies between calls is work as far as the program's CPU time goes, and none is made up. */
static void think(void **state)
{
	struct script t = {.source.cpu_ns = 2400000, .tell = work_and_wait};
	struct scry_malloc_feed *f = feed_of_script(&t, true);
	uint64_t ns = scry_malloc_feed_stats(f)->think_ns;

	assert_in_range(ns, 2000000, 2400000);
	assert_int_equal(words_of(f, 0, SCRY_REPLAY_THINK), 1);
	assert_int_equal(words_of(f, 1, SCRY_REPLAY_THINK), 1);
	opts.mode = SCRY_REPLAY_TIMED;
	opts.is_thinking = true;
	run(f, &glibc);
	assert_true(result.wait_ns > ns / 10 * 9); /* all of it was spent, and is not counted */
	/* As long as is asked for, shared out as the gaps are: 1 ms and 1.4 of them, four calls. */
	scry_malloc_feed_work(f, 1200000);
	run(f, &glibc);
	assert_in_range(scry_malloc_feed_stats(f)->think_ns, 1100000, 1300000);
	assert_int_equal(words_of(f, 0, SCRY_REPLAY_THINK), 1);
	assert_int_equal(words_of(f, 1, SCRY_REPLAY_THINK), 1);
	scry_malloc_feed_work(f, 0);
	run(f, &glibc);
	assert_int_equal(scry_malloc_feed_stats(f)->think_ns, 0);
	opts.is_thinking = false;
	opts.mode = SCRY_REPLAY_VERIFY;
	scry_malloc_feed_free(f);
	f = feed_of_script(&t, false);
	assert_int_equal(scry_malloc_feed_stats(f)->think_ns, 0);
	scry_malloc_feed_free(f);
	t.source.cpu_ns = 0; /* not known */
	f = feed_of_script(&t, true);
	assert_int_equal(scry_malloc_feed_stats(f)->think_ns, 0);
	scry_malloc_feed_free(f);
}

/* Two threads that do without memory for five seconds, on processors all the time. */
static bool compute(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	*ret_us = i / 2 * 5000000;
	c->thread = c->block = (uint32_t)(i % 2 + 1);
	c->function = i < 2 ? SCRY_MALLOC_MALLOC : SCRY_MALLOC_FREE;
	return i < 4;
}

/* A second of it at most is made again, and no word says more than a replay takes. */
static void think_long(void **state)
{
	struct script t = {.source.cpu_ns = 20000000000, .tell = compute};
	struct scry_malloc_feed *f = feed_of_script(&t, true);

	(void)state;
	assert_in_range(scry_malloc_feed_stats(f)->think_ns, 1900000000, 2000000000);
	scry_malloc_feed_free(f);
}

/* Thread 1 makes blocks, thread 2 ends them, and then itself; thread 1 makes one more. */
static bool hand_over(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	enum { CALLS = 20000 };

	*ret_us = i;
	if (i > CALLS + 1)
		return false;
	c->thread = i < CALLS && i % 2 ? 2 : 1;
	c->block = 0;
	if (i == CALLS) {
		c->thread = 2;
		c->function = SCRY_MALLOC_THREAD_END;
	} else if (c->thread == 2) {
		c->function = SCRY_MALLOC_FREE;
	}
	return true;
}

/* Who takes is held by what it takes alone; who was behind a thread's end is behind it again. */
static void takers(void **state)
{
	struct script t = {.tell = hand_over};
	struct scry_malloc_feed *f = feed_of_script(&t, false);

	assert_true(words_of(f, 0, SCRY_REPLAY_GATE) > 10);
	assert_int_equal(words_of(f, 1, SCRY_REPLAY_GATE), 0);
	assert_true(words_of(f, 1, SCRY_REPLAY_MARK) > 10);
	assert_int_equal(words_of(f, 0, SCRY_REPLAY_JOIN), 1);
	scry_malloc_feed_free(f);
}

/* Thread 1 makes a table of blocks; then 2 and 3 put a new one for each of the other's, in turn. */
static uint64_t swap_rounds;
static bool swap(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	enum { BLOCKS = 5000 };

	*ret_us = i / 1000;
	c->block = (uint32_t)(i < BLOCKS ? i : (i - BLOCKS) / 2 % BLOCKS);
	c->thread = i < BLOCKS ? 1 : 2 + (i - BLOCKS) / 2 / BLOCKS % 2;
	if (i >= BLOCKS && (i - BLOCKS) % 2 == 0)
		c->function = SCRY_MALLOC_FREE;
	return i < BLOCKS * (1 + 2 * swap_rounds);
}

/* Who gives as many as it takes is held to the others, but not in a short life. */
static void swappers(void **state)
{
	struct script t = {.tell = swap};
	struct scry_malloc_feed *f;

	for (swap_rounds = 4; swap_rounds <= 40; swap_rounds *= 10) {
		f = feed_of_script(&t, false);
		for (uint32_t stream = 1; stream < 3; stream++) {
			assert_true(words_of(f, stream, SCRY_REPLAY_MARK) > 10);
			assert_int_equal(words_of(f, stream, SCRY_REPLAY_GATE) > 10,
					 swap_rounds == 40);
			assert_int_equal(words_of(f, stream, SCRY_REPLAY_GATE) == 0,
					 swap_rounds == 4);
		}
		scry_malloc_feed_free(f);
	}
}

/* Who works for long between two calls is not stuck, and what that takes is no cost of the calls.
 */
static void think_unstuck(void **state)
{
	const struct scry_malloc_run_opts usual = opts;
	struct script t = {.source.cpu_ns = 20000000000, .tell = compute};
	struct scry_malloc_feed *f = feed_of_script(&t, true);

	(void)state;
	opts.mode = SCRY_REPLAY_TIMED;
	opts.is_thinking = true;
	opts.stuck_ns = 400000000;
	run(f, &null);
	assert_true(result.cpu_ns < scry_malloc_feed_stats(f)->think_ns / 400);
	opts = usual;
	scry_malloc_feed_free(f);
}

/* However seldom memory is looked at, an end is noticed. */
static void refused(void **state)
{
	static const struct scry_malloc_allocator none = {.label = "none", .path = "/no/such.so"};
	const struct scry_malloc_run_opts usual = opts;
	struct script t = {.tell = compute};
	struct scry_malloc_feed *f = feed_of_script(&t, false);

	(void)state;
	opts.rss_every_ns = UINT64_C(3600000000000);
	alarm(60);
	assert_int_equal(scry_malloc_run(f, &none, &opts, &result), -EINVAL);
	alarm(0);
	opts = usual;
	scry_malloc_feed_free(f);
}

enum { SHORT_THREADS = 1000 };

static bool short_threads(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	static const uint32_t functions[] = {SCRY_MALLOC_MALLOC, SCRY_MALLOC_FREE,
					     SCRY_MALLOC_THREAD_END};

	*ret_us = i * 1000;
	c->thread = (uint32_t)(2 + i / 3);
	c->function = functions[i % 3];
	c->size = 1 << 20;
	return i < SHORT_THREADS * 3;
}

static bool big_blocks(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	*ret_us = i;
	c->thread = 1;
	c->block = (uint32_t)i;
	c->size = 60000000;
	return i < 5;
}

/* What is taken off every allocator has no page faults, and a thread leaves nothing behind. */
static void null_memory(void **state)
{
	const struct scry_malloc_run_opts usual = opts;
	struct script t = {.tell = short_threads};
	struct scry_malloc_feed *f = feed_of_script(&t, false);

	(void)state;
	assert_int_equal(scry_malloc_feed_stats(f)->threads, SHORT_THREADS);
	opts.mode = SCRY_REPLAY_TIMED;
	opts.memory = UINT64_C(256) << 20;
	run(f, &null);
	assert_true(result.faults < SHORT_THREADS * 32);
	opts.memory = usual.memory;
	scry_malloc_feed_free(f);
	t.tell = big_blocks;
	f = feed_of_script(&t, false);
	for (opts.touch = SCRY_TOUCH_ALL; opts.touch <= SCRY_TOUCH_RECORDED; opts.touch++) {
		run(f, &null);
		assert_true(result.faults < 1000);
	}
	opts = usual;
	scry_malloc_feed_free(f);
}

enum { OLDER = 3000, SINCE = 20 };

static bool attached(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	*ret_us = i < OLDER ? 0 : i;
	c->block = (uint32_t)(i < OLDER ? i : OLDER);
	c->thread = i >= OLDER;
	c->function = i < OLDER		? SCRY_MALLOC_OLDER
		      : (i - OLDER) % 2 ? SCRY_MALLOC_FREE
					: SCRY_MALLOC_MALLOC;
	c->size = i < OLDER ? 8000 : 100;
	return i < OLDER + SINCE;
}

/* Blocks older than the recording are made, and nothing of that counts as the program's calls. */
static void older(void **state)
{
	const struct scry_malloc_run_opts usual = opts;
	struct script t = {.tell = attached, .main_from = OLDER};
	struct scry_malloc_feed *f = feed_of_script(&t, false);
	const struct scry_malloc_feed_stats *s = scry_malloc_feed_stats(f);
	uint64_t timed = 0;

	(void)state;
	assert_int_equal(s->threads, 1);
	assert_int_equal(s->threads_peak, 1);
	assert_int_equal(s->older, OLDER);
	assert_int_equal(s->live_blocks, OLDER);
	assert_int_equal(s->calls, SINCE);
	assert_int_equal(s->by_kind[SCRY_REPLAY_KIND_MALLOC], SINCE / 2);
	opts.mode = SCRY_REPLAY_TIMED;
	run(f, &glibc);
	assert_true(result.faults < OLDER / 2);
	assert_true(result.rss_end > OLDER * 8000);
	opts.mode = SCRY_REPLAY_SAMPLED;
	opts.sample_every = 1;
	run(f, &glibc);
	for (uint32_t i = 0; i < SCRY_REPLAY_BUCKETS; i++)
		timed += result.histogram[SCRY_REPLAY_KIND_MALLOC][i];
	assert_int_equal(timed, SINCE / 2);
	opts.mode = SCRY_REPLAY_COUNTED;
	run(f, &glibc);
	assert_int_equal(result.syscalls[SCRY_REPLAY_BRK], 0);
	opts = usual;
	scry_malloc_feed_free(f);
}

/* A process that was forked resizes blocks of its parent, and ends one. */
static bool inherited(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	*ret_us = i;
	c->thread = 1;
	c->block = (uint32_t)i;
	c->function = i < 100 ? SCRY_MALLOC_REALLOC : SCRY_MALLOC_FREE;
	c->size = 100000;
	return i <= 100;
}

static void child(void **state)
{
	struct script t = {.tell = inherited};
	struct scry_malloc_feed *f = feed_of_script(&t, false);
	const struct scry_malloc_feed_stats *s = scry_malloc_feed_stats(f);

	(void)state;
	assert_int_equal(s->calls, 100);
	assert_int_equal(s->live_bytes, 100 * 100000);
	assert_int_equal(s->strange, 1);
	scry_malloc_feed_free(f);
}

static const uint32_t far_numbers[] = {1, 0, 16000000, UINT32_MAX - 1};

/* Each makes a block and ends it, twice; the last one ends. */
static bool far_thread(uint64_t i, uint64_t *ret_us, struct scry_ev_malloc *c)
{
	const uint64_t count = sizeof(far_numbers) / sizeof(far_numbers[0]);

	*ret_us = i;
	c->thread = far_numbers[i / 2 % count];
	c->function = i % 2 ? SCRY_MALLOC_FREE : SCRY_MALLOC_MALLOC;
	if (i == 4 * count) {
		c->thread = far_numbers[count - 1];
		c->function = SCRY_MALLOC_THREAD_END;
	}
	return i <= 4 * count;
}

/* A thread's number says nothing of how many there are. */
static void far_threads(void **state)
{
	size_t heap = mallinfo2().hblkhd + mallinfo2().uordblks;
	struct script t = {.tell = far_thread};
	struct scry_malloc_feed *f = feed_of_script(&t, false);

	(void)state;
	assert_int_equal(scry_malloc_feed_stats(f)->threads, 4);
	assert_int_equal(scry_malloc_feed_stats(f)->threads_peak, 4);
	assert_int_equal(scry_malloc_feed_stats(f)->calls, 16);
	assert_true(mallinfo2().hblkhd + mallinfo2().uordblks < heap + (16u << 20));
	scry_malloc_feed_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread),	 cmocka_unit_test(many_threads),
		cmocka_unit_test(as_one),	 cmocka_unit_test(batches),
		cmocka_unit_test(any_calls),	 cmocka_unit_test(pace),
		cmocka_unit_test(think),	 cmocka_unit_test(think_long),
		cmocka_unit_test(takers),	 cmocka_unit_test(swappers),
		cmocka_unit_test(think_unstuck), cmocka_unit_test(refused),
		cmocka_unit_test(null_memory),	 cmocka_unit_test(older),
		cmocka_unit_test(child),	 cmocka_unit_test(far_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
