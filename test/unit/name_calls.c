/*
 * Words of threads -> CALL and RETURN events, read back: who belongs to whom, in which order, and
 * what is told of calls that were left. Digests of SQL.
 */
#include "name/calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "name/sql.h"
#include "rec/reader.h"
#include "wire/event.h"

#define SLOT(n) (0x7ffd00001000ull + 64 * (n))
#define PID 42

struct got {
	uint16_t type;
	uint32_t tid, function, how;
	uint64_t call, time_ns, value, duration_ns;
	struct scry_call_part part; /* the only one */
	char text[64];
};

struct trace {
	int fd;
	struct scry_writer *w;
	struct scry_calls *c;
	struct got got[64];
	uint64_t part_tsc;
	size_t count;
};

static void begin_as(struct trace *t, struct scry_calls_opts opts)
{
	t->fd = memfd_create("calls", MFD_CLOEXEC);
	t->count = 0;
	t->part_tsc = 1200;
	assert_int_equal(scry_writer_open(t->fd, 0, &t->w), 0);
	opts.writer = t->w;
	assert_int_equal(scry_calls_new(&opts, &t->c), 0);
	assert_int_equal(scry_calls_function(t->c), 0);
	assert_int_equal(scry_calls_function(t->c), 0);
	scry_stream_clock(scry_calls_stream(t->c),
			  &(struct scry_ticks_pair){1000, 5000, 5000}); /* a tick is a nanosecond */
	scry_stream_clock(scry_calls_stream(t->c), &(struct scry_ticks_pair){2000, 6000, 6000});
}

static void begin(struct trace *t, enum scry_calls_args args)
{
	begin_as(t, (struct scry_calls_opts){.pid = PID, .args = args});
}

/* Words that a thread has written. */
static void add(struct trace *t, uint32_t tid, const uint64_t *words, size_t count)
{
	const struct scry_stream_words w = {
		.thread = tid, .tid = tid, .words = words, .count = count};

	assert_int_equal(scry_stream_add(scry_calls_stream(t->c), &w), 0);
}

static void enter(struct trace *t, uint32_t tid, uint64_t tsc, uint64_t slot, uint64_t flags)
{
	uint64_t words[] = {scry_call_head(slot, 1, 0) | flags, tsc, tsc * 10};

	add(t, tid, words, 3);
}

static void leave(struct trace *t, uint32_t tid, uint64_t tsc, uint64_t slot)
{
	uint64_t words[] = {scry_call_head(slot, SCRY_CALL_RETURN, 0), tsc, tsc + 1};

	add(t, tid, words, 3);
}

static void note_part(struct got *g, const void *more, uint32_t bytes)
{
	if (!bytes)
		return;
	memcpy(&g->part, more, sizeof(g->part));
	assert_true(g->part.bytes < sizeof(g->text));
	assert_int_equal(bytes, sizeof(g->part) + (g->part.bytes + 7) / 8 * 8);
	memcpy(g->text, (const char *)more + sizeof(g->part), g->part.bytes);
}

static void note(struct trace *t, const struct scry_event *event)
{
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_ev_return *ret = (const void *)(event + 1);
	struct got *g = &t->got[t->count++];

	*g = (struct got){.type = event->type,
			  .tid = event->tid,
			  .time_ns = event->time_ns,
			  .function = call->function,
			  .call = call->call};
	if (event->type == SCRY_EVENT_RETURN) {
		g->how = ret->how;
		g->value = ret->result;
		g->duration_ns = ret->duration_ns;
		note_part(g, ret + 1, ret->more_bytes);
		return;
	}
	g->value = call->arg1;
	note_part(g, call + 1, call->more_bytes);
}

static struct scry_calls_stats end(struct trace *t)
{
	const struct scry_event *event;
	struct scry_calls_stats stats;
	struct scry_reader *r;

	assert_int_equal(scry_calls_merge(t->c, UINT64_MAX), 0);
	scry_calls_stats(t->c, &stats);
	scry_calls_free(t->c);
	assert_int_equal(scry_writer_close(t->w), 0);
	assert_int_equal(scry_reader_open(t->fd, &r), 0);
	while (scry_reader_next(r, &event) > 0)
		note(t, event);
	scry_reader_close(r);
	close(t->fd);
	return stats;
}

static void is(const struct trace *t, size_t i, uint16_t type, uint64_t call, uint64_t value)
{
	assert_true(i < t->count);
	assert_int_equal(t->got[i].type, type);
	assert_int_equal(t->got[i].call, call);
	assert_int_equal(t->got[i].value, value);
}

/* Two threads whose words come in any order; what is beyond the watermark waits. */
static void merged(void **state)
{
	struct scry_calls_stats stats;
	struct trace t;

	begin(&t, SCRY_CALLS_FULL);
	enter(&t, 7, 1100, SLOT(0), 0);
	leave(&t, 7, 1500, SLOT(0));
	enter(&t, 8, 1050, SLOT(9), 0);
	assert_int_equal(scry_calls_merge(t.c, 1200), 0);
	leave(&t, 8, 1300, SLOT(9));
	stats = end(&t);
	assert_int_equal(t.count, 4);
	is(&t, 0, SCRY_EVENT_CALL, 1, 10500);
	is(&t, 1, SCRY_EVENT_CALL, 2, 11000);
	is(&t, 2, SCRY_EVENT_RETURN, 1, 1301);
	is(&t, 3, SCRY_EVENT_RETURN, 2, 1501);
	assert_int_equal(t.got[0].tid, 8);
	assert_int_equal(t.got[0].time_ns, 5050);
	assert_int_equal(t.got[2].duration_ns, 250);
	assert_int_equal(t.got[3].duration_ns, 400);
	assert_int_equal(stats.calls, 2);
	assert_int_equal(stats.open + stats.left + stats.strange + stats.bad, 0);
}

/* A slot that is used again was left; a tail call returns with its caller. */
static void left_and_tail(void **state)
{
	struct scry_calls_stats stats;
	struct trace t;

	begin(&t, SCRY_CALLS_FULL);
	enter(&t, 7, 1100, SLOT(0), 0);
	enter(&t, 7, 1110, SLOT(0), 0);
	enter(&t, 7, 1120, SLOT(0), SCRY_CALL_TAIL);
	leave(&t, 7, 1130, SLOT(0));
	leave(&t, 7, 1140, SLOT(0)); /* of nobody */
	enter(&t, 7, 1150, SLOT(1), 0);
	stats = end(&t);
	assert_int_equal(t.count, 7);
	is(&t, 0, SCRY_EVENT_CALL, 1, 11000);
	is(&t, 1, SCRY_EVENT_RETURN, 1, 0);
	assert_int_equal(t.got[1].how, SCRY_RETURN_LEFT);
	is(&t, 2, SCRY_EVENT_CALL, 2, 11100);
	is(&t, 3, SCRY_EVENT_CALL, 3, 11200);
	is(&t, 4, SCRY_EVENT_RETURN, 3, 1131);
	is(&t, 5, SCRY_EVENT_RETURN, 2, 1131);
	assert_int_equal(t.got[4].duration_ns, 10);
	assert_int_equal(t.got[5].duration_ns, 20);
	assert_int_equal(stats.left, 1);
	assert_int_equal(stats.strange, 1);
	assert_int_equal(stats.open, 1);
}

/* A record with one part, behind `args` registers, or of a return. */
static void give_part(struct trace *t, uint32_t args, const char *text, uint16_t flags)
{
	const struct scry_call_part part = {
		.address = 0x1234, .bytes = (uint32_t)strlen(text), .flags = flags};
	uint64_t words[16] = {scry_call_head(SLOT(2), args, 1) | SCRY_CALL_MORE, t->part_tsc, 1, 2,
			      3};
	uint64_t *at = words + 2 + (args == SCRY_CALL_RETURN ? 0 : args);

	*at = 2 + (strlen(text) + 7) / 8;
	memcpy(at + 1, &part, sizeof(part));
	memcpy(at + 3, text, strlen(text));
	assert_int_equal(scry_calls_words(t->c, 9, words, (size_t)(at - words) + 1 + *at), 0);
}

static void texts(void **state)
{
	const uint16_t sql = SCRY_PART_TEXT | SCRY_PART_SQL | SCRY_PART_MYSQL;
	struct trace t;

	begin(&t, SCRY_CALLS_FULL);
	give_part(&t, 3, "SELECT 'it'", sql | SCRY_PART_CUT);
	end(&t);
	assert_string_equal(t.got[0].text, "SELECT 'it'");
	assert_int_equal(t.got[0].part.flags, sql | SCRY_PART_CUT);
	assert_int_equal(t.got[0].part.address, 0x1234);
	begin(&t, SCRY_CALLS_DIGEST);
	give_part(&t, 3, "SELECT 'it'", sql);
	give_part(&t, 3, "secret", SCRY_PART_TEXT);
	give_part(&t, 3, "numbers", 0);
	end(&t);
	assert_string_equal(t.got[0].text, "SELECT ?");
	assert_int_equal(t.got[0].part.flags, sql | SCRY_PART_DIGEST);
	assert_string_equal(t.got[2].text, "?");
	assert_string_equal(t.got[4].text, "numbers");
	begin(&t, SCRY_CALLS_NONE);
	give_part(&t, 3, "SELECT 'it'", sql);
	end(&t);
	assert_int_equal(t.got[0].part.bytes, 0);
}

/* What is told of a call before its return comes with it, also to the one of several that it is of.
 */
static void back(void **state)
{
	struct scry_calls_stats stats;
	struct trace t;

	begin(&t, SCRY_CALLS_FULL);
	give_part(&t, SCRY_CALL_RETURN, "of nobody", 0);
	give_part(&t, 0, "in", 0);
	enter(&t, 9, 1210, SLOT(2), SCRY_CALL_TAIL);
	give_part(&t, SCRY_CALL_RETURN, "out", 0);
	leave(&t, 9, 1220, SLOT(2));
	t.part_tsc = 1230;
	give_part(&t, SCRY_CALL_RETURN, "of nobody", 0);
	stats = end(&t);
	assert_int_equal(stats.bad + stats.strange + stats.open, 0);
	assert_int_equal(t.count, 4);
	assert_string_equal(t.got[0].text, "in");
	assert_int_equal(t.got[2].function, 0);
	assert_string_equal(t.got[2].text, "");
	assert_int_equal(t.got[3].function, 1);
	assert_string_equal(t.got[3].text, "out");
}

/* Of a run that makes no sense, what came before counts. */
static void hostile(void **state)
{
	const uint64_t runs[][4] = {
		{scry_call_head(SLOT(0), 1, 2), 1100, 0, 0}, /* no such function */
		{scry_call_head(SLOT(0), 6, 0), 1100, 0, 0}, /* too short */
		{scry_call_head(SLOT(0), 1, 0) | SCRY_CALL_MORE, 1100, 0, SCRY_CALL_MORE_MAX + 1},
		{scry_call_head(SLOT(0), 1, 0) | SCRY_CALL_MORE, 1100, 0, 4},
	};
	struct scry_calls_stats stats;
	struct trace t;

	begin(&t, SCRY_CALLS_FULL);
	enter(&t, 7, 1100, SLOT(0), 0);
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		add(&t, 7, runs[i], 4);
	add(&t, 7, &(uint64_t){SCRY_CALL_TIME}, 1);
	stats = end(&t);
	assert_int_equal(stats.bad, 5);
	assert_int_equal(t.count, 1);
}

static void digests(void **state)
{
	static const struct {
		bool is_mysql;
		const char *sql, *digest;
	} rows[] = {
		{true, "SELECT * FROM t1 WHERE a='x' AND b=12.5e-3",
		 "SELECT * FROM t1 WHERE a=? AND b=?"},
		{true, "a='it\\'s secret' b=\"two\"", "a=? b=?"},
		{true, "a='it''s' # secret 1\nb", "a=?  b"},
		{true, "`t 1`.`c'` = 0x1F, -5, .5", "`t 1`.`c'` = ?, -?, ?"},
		{true, "_utf8'x' N'y' x'00'", "? ? ?"},
		{true, "f(1,2)+3 /* secret 4", "f(?,?)+?  "},
		{true, "cut 'of", "cut ?"},
		{false, "\"name\" = 'c:\\' , 'secret'", "\"name\" = ? , ?"},
		{false, "E'it\\'s' || $1 || $tag$ it's $$ $tag$ || $$x$$", "? || $1 || ? || ?"},
		{false, "a -- secret 'x\n, b", "a  , b"},
		{false, "", ""},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scry_buf buf = {0};

		scry_sql_digest(rows[i].sql, strlen(rows[i].sql), rows[i].is_mysql, &buf);
		assert_string_equal(scry_buf_str(&buf), rows[i].digest);
		scry_buf_done(&buf);
	}
}

static int meet(void *arg, uint32_t function)
{
	uint32_t *met = arg;

	met[function]++;
	return 0;
}

/* A fork child: numbers of its own, its parent's calls return in it too, and system calls stand in
 * one order with the others. */
static void child(void **state)
{
	uint32_t met[2] = {0};
	struct scry_calls_stats stats;
	struct scry_calls_event write = {.tsc = 1200,
					 .slot = 1ull << 46,
					 .tid = 7,
					 .function = 1,
					 .count = 1,
					 .values = {9}};
	struct trace t;

	begin_as(&t, (struct scry_calls_opts){.pid = PID,
					      .first_call = 1000,
					      .first_function = 64,
					      .is_child = true,
					      .meet = meet,
					      .meet_arg = met});
	leave(&t, 7, 1050, SLOT(3)); /* of a call of its parent */
	enter(&t, 7, 1100, SLOT(0), 0);
	leave(&t, 7, 1500, SLOT(0));
	assert_int_equal(scry_calls_insert(t.c, &write), 0);
	write.is_return = true;
	write.tsc = 1300;
	write.values[0] = 8;
	assert_int_equal(scry_calls_insert(t.c, &write), 0);
	enter(&t, 7, 1600, SLOT(0), 0);
	stats = end(&t);
	is(&t, 0, SCRY_EVENT_CALL, 1001, 11000);
	is(&t, 1, SCRY_EVENT_CALL, 1002, 9);
	is(&t, 2, SCRY_EVENT_RETURN, 1002, 8);
	assert_int_equal(t.got[2].duration_ns, 100);
	is(&t, 3, SCRY_EVENT_RETURN, 1001, 1501);
	is(&t, 4, SCRY_EVENT_CALL, 1003, 16000);
	assert_int_equal(t.count, 5);
	assert_int_equal(t.got[0].function, 64);
	assert_int_equal(t.got[1].function, 65);
	assert_int_equal(stats.strange, 0);
	assert_int_equal(met[0], 1);
	assert_int_equal(met[1], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merged),  cmocka_unit_test(left_and_tail), cmocka_unit_test(texts),
		cmocka_unit_test(hostile), cmocka_unit_test(digests),	    cmocka_unit_test(child),
		cmocka_unit_test(back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
