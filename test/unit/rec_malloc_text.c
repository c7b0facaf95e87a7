/* Malloc recordings as text: a round trip loses nothing, and what is no such text is refused. */
#include "rec/malloc_text.h"

#include "base/buf.h"
#include "base/err.h"
#include "rec/malloc_effect.h"
#include "rec/malloc_pack.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t rng;

static uint32_t next_random(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 32) % below;
}

/* Text of a recording; NULL when it has none. The caller frees it. */
static char *text_of(int fd, uint32_t pid, uint64_t *ret_calls)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	struct scry_malloc_text_sums sums;
	int err;

	err = scry_malloc_text_write(fd, pid, out, &sums);
	*ret_calls = sums.calls;
	scry_buf_done(&sums.lacks);
	fclose(out);
	if (!err)
		return text;
	free(text);
	return NULL;
}

/* 0 and a recording, or the error. */
static int recording_of(const char *text, size_t len, int *ret_fd)
{
	FILE *in = fmemopen((void *)text, len ? len : 1, "r");
	struct scry_writer *w;
	uint64_t calls;
	int err;

	assert_non_null(in);
	*ret_fd = memfd_create("text", MFD_CLOEXEC);
	assert_int_equal(scry_writer_open(*ret_fd, 0, &w), 0);
	err = scry_malloc_text_read(in, w, &calls);
	assert_int_equal(scry_writer_close(w), 0);
	fclose(in);
	return err;
}

/* Any calls with any flags, many times; names with odd bytes. */
static int random_recording(uint64_t seed)
{
	const struct scry_producer producer = {77, 0, 5};
	struct scry_ev_caller caller = {.caller = 1, .pid = 77, .offset = 12, .line = 3};
	struct scry_ev_memory memory = {.pid = 77, .rss_anon = 123456789012};
	struct scry_event head = {.type = SCRY_EVENT_CALLER, .time_ns = 1};
	struct scry_malloc_pack *p;
	struct scry_writer *w;
	uint32_t live[300], count = 0;
	int fd = memfd_create("random", MFD_CLOEXEC);

	rng = seed;
	assert_int_equal(scry_writer_open(fd, 0, &w), 0);
	assert_int_equal(scry_writer_string(w, "/odd %\n\x01\xff=na me", 15, &caller.module_str),
			 0);
	assert_int_equal(scry_writer_payload(w, &head, &caller, sizeof(caller)), 0);
	head.type = SCRY_EVENT_MEMORY;
	assert_int_equal(scry_writer_payload(w, &head, &memory, sizeof(memory)), 0);
	assert_int_equal(scry_malloc_pack_new(&producer, &p), 0);
	for (int i = 0; i < 20000; i++) {
		struct scry_ev_malloc call = {
			.function = 1 + next_random(SCRY_MALLOC_FUNCTIONS - 1),
			.flags = next_random(2) ? 0 : next_random(64),
			.thread = next_random(5),
			.caller = next_random(3),
			.size = next_random(9) ? next_random(3000) : UINT64_MAX,
			.usable = next_random(3) ? next_random(3000) : 0,
			.align = next_random(9) ? 0 : 64,
		};
		enum scry_malloc_effect effect;
		uint32_t at = count ? next_random(count) : 0, block;

		if (count == 300)
			call.function = SCRY_MALLOC_DELETE_ARRAY;
		effect = scry_malloc_effect_of(call.function, call.flags);
		if (effect >= SCRY_MALLOC_EFFECT_AGAIN && !count)
			continue;
		call.block = effect >= SCRY_MALLOC_EFFECT_AGAIN ? live[at] : SCRY_MALLOC_NO_BLOCK;
		assert_int_equal(scry_malloc_pack_add(p, 5000, &call, &block), 0);
		if (effect == SCRY_MALLOC_EFFECT_BEGIN)
			live[count++] = block;
		if (effect == SCRY_MALLOC_EFFECT_END)
			live[at] = live[--count];
	}
	assert_int_equal(scry_malloc_pack_write(p, w), 0);
	scry_malloc_pack_free(p);
	assert_int_equal(scry_writer_close(w), 0);
	return fd;
}

static uint64_t calls_must_be_equal(int left, int right)
{
	const struct scry_event *a, *b;
	struct scry_reader *l, *r;
	uint64_t count = 0;

	assert_int_equal(scry_reader_open(left, &l), 0);
	assert_int_equal(scry_reader_open(right, &r), 0);
	for (;; count++) {
		int got;

		while ((got = scry_reader_next(l, &a)) > 0 && a->type != SCRY_EVENT_MALLOC)
			;
		while (scry_reader_next(r, &b) > 0 && b->type != SCRY_EVENT_MALLOC)
			;
		if (got <= 0)
			break;
		assert_int_equal(b->type, SCRY_EVENT_MALLOC);
		assert_memory_equal(a + 1, b + 1, sizeof(struct scry_ev_malloc));
	}
	scry_reader_close(l);
	scry_reader_close(r);
	return count;
}

static void round_trip(void **state)
{
	for (uint64_t seed = 1; seed < 4; seed++) {
		int fd = random_recording(seed), back;
		uint64_t calls, again;
		char *text = text_of(fd, 77, &calls), *second;

		assert_non_null(text);
		assert_int_equal(recording_of(text, strlen(text), &back), 0);
		assert_int_equal(calls_must_be_equal(fd, back), calls);
		second = text_of(back, 0, &again);
		assert_non_null(second);
		assert_int_equal(again, calls);
		assert_non_null(strstr(text, "\nlost why=the%20recording%20was%20ended"));
		/* The caller with its odd name, and what the kernel said. */
		assert_non_null(strstr(second, "module=/odd%20%25%0A%01%FF=na%20me "));
		assert_non_null(strstr(second, "rss_anon=123456789012 "));
		assert_null(text_of(fd, 78, &calls)); /* nobody's calls */
		free(text);
		free(second);
		close(fd);
		close(back);
	}
}

#define HEAD "scry-malloc 1 pid 9\n"

static void refusals(void **state)
{
	static const struct {
		const char *text, *line;
	} rows[] = {
		{"", "line 1:"},
		{"scry-malloc 2 pid 9\n", "line 1:"},
		{"scry-malloc 1 pid 0\n", "line 1:"},
		{"scry-malloc 1 pid 99999999999\n", "line 1:"},
		{HEAD "x\n", "line 2:"},
		{HEAD "\n# a remark\n1: malloc\n", "line 4:"},
		{HEAD "1: malloc(1)\n", "line 2:"},
		{HEAD "1: malloc(-1) = 3\n", "line 2:"},
		{HEAD "1: malloc(18446744073709551616) = 3\n", "line 2:"},
		{HEAD "1: malloc(1) = 4294967295\n", "line 2:"},
		{HEAD "1: mallocs(1) = 1\n", "line 2:"},
		{HEAD "4294967296: malloc(1) = 1\n", "line 2:"},
		{HEAD "1: malloc(1) = 1\n1: malloc(1) = 1\n", "line 3:"},
		{HEAD "1: free(1)\n", "line 2:"},
		{HEAD "1: malloc(1) = 1\n1: free(1)\n2: free(1)\n", "line 4:"},
		{HEAD "1: malloc(1) = 1\n1: realloc(1, 9) = 2\n", "line 3:"},
		{HEAD "1: malloc(1) = 1 flags=1\n1: free(1)\n", "line 3:"},
		{HEAD "1: malloc(1) = 1 flags=256\n", "line 2:"},
		{HEAD "1: malloc(1) = 1 usable=x\n", "line 2:"},
		{HEAD "1: malloc(1) = 1 junk\n", "line 2:"},
		{HEAD "@5\n@4\n", "line 3:"},
		{HEAD "@5x\n", "line 2:"},
		{HEAD "caller caller=1 nonsense=2\n", "line 2:"},
		{HEAD "caller caller=1 pid=2\n", "line 2:"},
		{HEAD "caller caller=4294967296\n", "line 2:"},
		{HEAD "caller module=%2\n", "line 2:"},
		{HEAD "memory at=x\n", "line 2:"},
		{HEAD "caller caller=1 stack=5\n", "line 2:"},
		{HEAD "1: malloc(1) = 1\r \n", "line 2:"},
	};
	static char line[600000];
	int fd;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (recording_of(rows[i].text, strlen(rows[i].text), &fd) != -EINVAL)
			fail_msg("taken: %s", rows[i].text);
		if (!strstr(scry_error(), rows[i].line))
			fail_msg("%s: %s", rows[i].text, scry_error());
		close(fd);
	}
	memset(line, 'x', sizeof(line));
	memcpy(line, HEAD, strlen(HEAD));
	assert_int_equal(recording_of(line, sizeof(line), &fd), -EINVAL);
	assert_non_null(strstr(scry_error(), "line 2: longer"));
	close(fd);
	assert_int_equal(recording_of(HEAD "1: fr\0e", strlen(HEAD) + 7, &fd), -EINVAL);
	assert_non_null(strstr(scry_error(), "line 2: a byte"));
	close(fd);
}

/* Names as long as a recording has them, each byte written as three. */
static void long_names(void **state)
{
	struct scry_ev_caller caller = {.caller = 1, .pid = 77};
	uint32_t *const names[] = {&caller.module_str, &caller.symbol_str, &caller.file_str,
				   &caller.method_str};
	struct scry_event head = {.type = SCRY_EVENT_CALLER, .time_ns = 1};
	int fd = random_recording(3), long_fd = memfd_create("long", MFD_CLOEXEC), back;
	char *text = text_of(fd, 0, &(uint64_t){0}), *second;
	static char name[SCRY_EVENT_MAX];
	struct scry_writer *w;
	uint64_t calls;
	FILE *in = fmemopen(text, strlen(text), "r");

	assert_int_equal(scry_writer_open(long_fd, 0, &w), 0);
	for (uint32_t i = 0; i < 4; i++) {
		memset(name, 1 + (int)i, sizeof(name));
		assert_int_equal(scry_writer_string(w, name, sizeof(name), names[i]), 0);
	}
	assert_int_equal(scry_writer_payload(w, &head, &caller, sizeof(caller)), 0);
	assert_int_equal(scry_malloc_text_read(in, w, &calls), 0);
	assert_int_equal(scry_writer_close(w), 0);
	free(text);
	text = text_of(long_fd, 0, &calls);
	assert_non_null(text);
	assert_int_equal(recording_of(text, strlen(text), &back), 0);
	second = text_of(back, 0, &calls);
	assert_non_null(second);
	assert_non_null(strstr(second, "%04%04%04"));
	assert_int_equal(strlen(second), strlen(text));
	free(text);
	free(second);
	fclose(in);
	close(fd);
	close(long_fd);
	close(back);
}

static void other_line_ends(void **state)
{
	uint64_t calls;
	char *back;
	int fd;
	static const char text[] = "scry-malloc 1 pid 9\r\ncaller caller=1 symbol=f\r\n\r\n"
				   "1: malloc(10) = 1 caller=1\r\n";

	assert_int_equal(recording_of(text, sizeof(text) - 1, &fd), 0);
	back = text_of(fd, 0, &calls);
	assert_non_null(back);
	assert_int_equal(calls, 1);
	assert_non_null(strstr(back, "symbol=f\n"));
	free(back);
	close(fd);
}

/* Text by hand: any numbers, no names. */
static void by_hand(void **state)
{
	static const char text[] = HEAD "# two threads\n"
					"1: malloc(10) = 4000000000\n"
					"2: realloc(4000000000, 20) = 4000000000 moved\n"
					"2: realloc(NULL, 5) = 3\n"
					"1: operator_new(8) = 12 align=64\n"
					"1: free(NULL)\n"
					"1: free(?)\n"
					"1: malloc(9999999999999) = NULL\n"
					"2: realloc(3, 0) = NULL ended\n"
					"1: operator_delete(12) size=8\n"
					"2: free(4000000000)\n"
					"2: thread_end()";
	uint64_t calls;
	char *back;
	int fd;

	assert_int_equal(recording_of(text, sizeof(text) - 1, &fd), 0);
	back = text_of(fd, 0, &calls);
	assert_non_null(back);
	assert_int_equal(calls, 11);
	assert_non_null(strstr(back, "2: realloc(0, 20) = 0 moved\n"));
	assert_non_null(strstr(back, "1: malloc(9999999999999) = NULL\n"));
	assert_non_null(strstr(back, "1: operator_delete(2) size=8\n"));
	assert_non_null(strstr(back, "2: thread_end()\n"));
	free(back);
	close(fd);
}

/* Changed text is read or refused, and what is read is a recording without damage. */
static void changed(void **state)
{
	int fd = random_recording(9), back;
	uint64_t calls;
	char *text = text_of(fd, 0, &calls), copy[4096];

	for (int i = 0; i < 3000; i++) {
		struct scry_reader_stats stats;
		const struct scry_event *event;
		struct scry_reader *r;
		int err;

		memcpy(copy, text, sizeof(copy));
		for (uint32_t changes = 1 + next_random(4); changes--;)
			copy[next_random(sizeof(copy))] =
				"0123456789 =()?:\n@%\x80"[next_random(21)];
		err = recording_of(copy, sizeof(copy), &back);
		assert_true(err == 0 || err == -EINVAL);
		assert_int_equal(scry_reader_open(back, &r), 0);
		while (scry_reader_next(r, &event) > 0)
			;
		scry_reader_stats(r, &stats);
		assert_int_equal(stats.errors, 0);
		scry_reader_close(r);
		close(back);
	}
	free(text);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip), cmocka_unit_test(refusals),
		cmocka_unit_test(long_names), cmocka_unit_test(other_line_ends),
		cmocka_unit_test(by_hand),    cmocka_unit_test(changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
