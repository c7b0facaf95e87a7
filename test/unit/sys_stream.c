/*
 * Words of many threads in one order: against a model that knows what each thread has written, with
 * any pieces, watermarks, limits and refusals; threads that end; words that make no sense.
 */
#include "sys/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include <cmocka.h>

#define THREADS 7
#define RECORDS 200000
#define TIME_OP 1ull
#define PASS_OP 2ull
#define BAD_OP 3ull
#define LONG_OP 4ull /* three words; others have two */
#define FIRST 16ull  /* plus 16 for each record of a thread: its number */

/* C says nothing of an address that is none, not even with no bytes. */
void *__real_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n)
{
	assert_non_null(to);
	assert_non_null(from);
	return __real_memmove(to, from, n);
}

struct own {
	uint64_t next; /* number of the record that comes */
};

struct model {
	struct scry_stream *s;
	uint64_t given, tick, watermark; /* the tick of the last one, and what is allowed */
	uint64_t bad, ended, scanned, born;
	size_t refuses; /* takes no more than that of a run */
};

static size_t size_of(uint64_t word)
{
	return (word & 15) == LONG_OP ? 3 : 2;
}

static void scan(void *arg, struct scry_stream_scan *scan)
{
	struct model *m = arg;

	m->scanned += scan->count;
	for (size_t i = 0, size; i < scan->count; i += size) {
		uint64_t op = scan->words[i] & 15;

		size = size_of(scan->words[i]);
		if (op == BAD_OP || i + size > scan->count) {
			m->bad++;
			return;
		}
		if (op == TIME_OP)
			scan->tick = scan->words[i + 1];
		else if (op != PASS_OP)
			scan->records[scan->found++] = (struct scry_stream_record){
				scan->words[i + 1], (uint32_t)i, (uint32_t)size};
	}
}

static ssize_t give(void *arg, struct scry_stream_thread *thread,
		    const struct scry_stream_record *records, size_t count)
{
	struct model *m = arg;
	struct own *own = thread->own;
	size_t take = m->refuses && count > m->refuses ? m->refuses : count;

	assert_true(count >= 1);
	for (size_t i = 0; i < take; i++) {
		const uint64_t *words = scry_stream_words_of(thread, &records[i]);

		assert_true(records[i].tick >= m->tick);
		assert_true(records[i].tick <= m->watermark);
		assert_int_equal(words[0] / FIRST, ++own->next);
		assert_true(words >= thread->words && words + records[i].count <= thread->end);
		assert_int_equal(records[i].count, size_of(words[0]));
		m->tick = records[i].tick;
	}
	m->given += take;
	return (ssize_t)take;
}

static void born(void *arg, struct scry_stream_thread *thread)
{
	struct model *m = arg;

	assert_int_equal(((struct own *)thread->own)->next, 0);
	m->born++;
}

static int ended(void *arg, struct scry_stream_thread *thread)
{
	struct model *m = arg;

	assert_true(thread->id >= 1);
	m->ended++;
	return 0;
}

static const struct scry_stream_kind kind = {
	.scan = scan,
	.give = give,
	.born = born,
	.ended = ended,
	.own_bytes = sizeof(struct own),
};

static void look(struct model *m, uint64_t tsc)
{
	scry_stream_clock(m->s, &(struct scry_ticks_pair){tsc, 1000 + tsc, 1000 + tsc});
}

static void open_stream(struct model *m)
{
	*m = (struct model){0};
	m->s = scry_stream_new(&kind, m);
	assert_non_null(m->s);
	look(m, 1);
}

static void merge(struct model *m, uint64_t watermark, size_t most)
{
	m->watermark = watermark;
	assert_int_equal(scry_stream_merge(m->s, watermark, most), 0);
}

static void add(struct model *m, uint64_t thread, const uint64_t *words, size_t count)
{
	const struct scry_stream_words w = {
		.thread = thread, .tid = 7, .words = words, .count = count};

	assert_int_equal(scry_stream_add(m->s, &w), 0);
}

/* what threads have written, and nobody has taken */
static struct {
	uint64_t words[4096], number;
	size_t count;
} written[THREADS];

static void write_record(uint64_t tick)
{
	size_t t = (size_t)random() % THREADS;
	uint64_t *at = written[t].words + written[t].count;
	uint64_t op = random() % 8 ? 0 : LONG_OP;

	if (random() % 16 == 0) {
		*at++ = PASS_OP;
		*at++ = (uint64_t)random();
	}
	*at++ = ++written[t].number * FIRST | op;
	*at++ = tick;
	if (op)
		*at++ = (uint64_t)random();
	written[t].count = (size_t)(at - written[t].words);
}

static void add_all(struct model *m, uint64_t tick)
{
	for (uint64_t t = 0; t < THREADS; t++) {
		add(m, t + 1, written[t].words, written[t].count);
		written[t].count = 0;
	}
	look(m, tick);
}

/* Threads repeat ticks now and then, pieces are of any size, and so is what is given at once. */
static void in_order(void **state)
{
	const struct scry_stream_words last = {.thread = 3, .has_ended = true};
	uint64_t tick = 100;
	struct model m;

	(void)state;
	srandom(5);
	memset(written, 0, sizeof(written));
	open_stream(&m);
	for (int i = 0; i < RECORDS; i++) {
		tick += (uint64_t)random() % 3;
		write_record(tick);
		if (random() % 500)
			continue;
		add_all(&m, tick);
		m.refuses = random() % 4 ? 0 : 1 + (size_t)random() % 5;
		merge(&m, tick - (uint64_t)random() % 200,
		      random() % 3 ? SIZE_MAX : (size_t)random() % 1000);
		assert_int_equal(m.ended, 0);
	}
	add_all(&m, tick);
	assert_int_equal(scry_stream_add(m.s, &last), 0);
	m.refuses = 0;
	merge(&m, tick, 10);
	assert_true(scry_stream_is_behind(m.s));
	assert_true(m.given < RECORDS);
	merge(&m, UINT64_MAX, SIZE_MAX);
	assert_false(scry_stream_is_behind(m.s));
	assert_int_equal(m.given, RECORDS);
	assert_int_equal(m.tick, tick);
	assert_int_equal(m.born, THREADS);
	assert_int_equal(m.ended, 1);
	assert_true(m.scanned > 2 * RECORDS);
	assert_int_equal(scry_stream_waiting(m.s), 0);
	assert_true(scry_stream_bytes(m.s) > 0);
	scry_stream_free(m.s);
}

/* Nothing beyond the watermark, and what is there for the next one. */
static void waits(void **state)
{
	const uint64_t one[] = {FIRST, 50, 2 * FIRST, 70}, two[] = {FIRST, 60};
	struct model m;

	(void)state;
	open_stream(&m);
	add(&m, 1, one, 4);
	add(&m, 2, two, 2);
	look(&m, 100);
	merge(&m, 49, SIZE_MAX);
	assert_int_equal(m.given, 0);
	assert_int_equal(scry_stream_waiting(m.s), 6);
	merge(&m, 60, SIZE_MAX);
	assert_int_equal(m.given, 2);
	assert_int_equal(m.tick, 60);
	merge(&m, 80, 0);
	assert_int_equal(m.given, 2);
	assert_true(scry_stream_is_behind(m.s));
	merge(&m, 80, SIZE_MAX);
	assert_int_equal(m.given, 3);
	scry_stream_free(m.s);
}

/* A tick that falls is that of the one before, one of the future is now: no thread holds up others
 * for ever, nothing comes before what was given. What makes no sense goes, with what was added
 * behind it. */
static void hostile(void **state)
{
	const uint64_t falls[] = {FIRST, 90, 2 * FIRST, 10, TIME_OP, 1, 3 * FIRST, 5};
	const uint64_t future[] = {FIRST, UINT64_MAX - 1}, more[] = {2 * FIRST, 30};
	const uint64_t bad[] = {FIRST, 20, BAD_OP, 0, 9 * FIRST, 30}, goes_on[] = {2 * FIRST, 95};
	const uint64_t part[] = {FIRST, 96, 2 * FIRST | LONG_OP, 97};
	struct model m;

	(void)state;
	open_stream(&m);
	add(&m, 1, falls, 8);
	add(&m, 3, bad, 6);
	add(&m, 3, goes_on, 2);
	add(&m, 4, part, 4);
	add(&m, 2, future, 2);
	add(&m, 2, more, 2);
	merge(&m, 100, SIZE_MAX);
	assert_int_equal(m.given, 6);
	assert_int_equal(m.tick, 96);
	assert_int_equal(m.bad, 2);
	merge(&m, __rdtsc(), SIZE_MAX);
	assert_int_equal(m.given, 8);
	assert_int_equal(scry_stream_waiting(m.s), 0);
	scry_stream_free(m.s);
}

/* A beginning of the future, said by the segment or by a record that says no more, is now: what
 * follows is given in its time. */
static void from_the_future(void **state)
{
	const uint64_t first[] = {FIRST, 20}, second[] = {FIRST, 30, TIME_OP, UINT64_MAX - 1};
	const uint64_t later[] = {2 * FIRST, 40};
	const struct scry_stream_words begins = {
		.thread = 1, .begin_tick = UINT64_MAX - 1, .words = first, .count = 2};
	struct model m;

	(void)state;
	open_stream(&m);
	assert_int_equal(scry_stream_add(m.s, &begins), 0);
	add(&m, 2, second, 4);
	add(&m, 1, later, 2);
	add(&m, 2, later, 2);
	merge(&m, __rdtsc(), SIZE_MAX);
	assert_int_equal(m.given, 4);
	assert_int_equal(scry_stream_waiting(m.s), 0);
	scry_stream_free(m.s);
}

/* What others tell of a thread, each time as if it were its last. */
static void told(void **state)
{
	const uint64_t words[] = {FIRST, 10};
	const struct scry_stream_words w = {.thread = SCRY_STREAM_BESIDE(7),
					    .tid = 7,
					    .has_ended = true,
					    .begin_tick = 5,
					    .words = words,
					    .count = 2};
	struct model m;

	(void)state;
	open_stream(&m);
	look(&m, 100);
	for (uint64_t i = 1; i <= 1000; i++) {
		assert_int_equal(scry_stream_add(m.s, &w), 0);
		merge(&m, 100, SIZE_MAX);
		assert_int_equal(m.given, i);
		assert_int_equal(m.ended, i);
		assert_int_equal(scry_stream_bytes(m.s), 0);
	}
	scry_stream_free(m.s);
}

/* Times never fall, whatever is learned of the clock's rate between two. */
static void times(void **state)
{
	struct model m;
	uint64_t then;

	(void)state;
	open_stream(&m);
	scry_stream_clock(m.s, &(struct scry_ticks_pair){10000001, 10001001, 10001001});
	then = scry_stream_time(m.s, 10000001);
	assert_int_equal(then, 10001001);
	assert_int_equal(scry_stream_length(m.s, 500), 500);
	assert_int_equal(scry_stream_time(m.s, 5000), then);
	assert_int_equal(scry_stream_now(m.s), 10000001);
	assert_true(scry_stream_look(m.s) > 10000001);
	scry_stream_free(m.s);
	scry_stream_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order), cmocka_unit_test(waits),
		cmocka_unit_test(hostile),  cmocka_unit_test(from_the_future),
		cmocka_unit_test(told),	    cmocka_unit_test(times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
