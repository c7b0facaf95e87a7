/*
 * The table of code that came into being (vm/ruby_iseq_log), from records made here: which code was
 * at an address at a moment, its lines, what is cut, nameless, lost, or no record at all; its
 * limits; and what a Ruby's layout must be like for the probe.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "vm/ruby_iseq_log.h"
#include "vm/ruby_symbol.h"

#define ENTRY 12u

static const struct scry_ruby_layout layout = {
	.insns_entry_size = ENTRY,
	.insns_entry_line = 0,
	.insns_positions = 8,
	.insns_count = 16,
	.insns_succ = 24,
	.first_line_fixnum = true,
};

/* Code of `lines` entries, one each two words, the i-th at line 100 + i. */
static void add(struct scry_iseq_log *b, uint64_t iseq, uint64_t time_ns, const char *label,
		uint32_t lines)
{
	static uint8_t bytes[SCRY_ISEQ_EVENT_LARGE];
	struct scry_iseq_event *r = (struct scry_iseq_event *)bytes;
	bool small = lines <= SCRY_ISEQ_EVENT_LINES_SMALL;
	uint8_t *at = (uint8_t *)(r + 1);

	memset(bytes, 0, sizeof(bytes));
	*r = (struct scry_iseq_event){
		.time_ns = time_ns,
		.iseq = iseq,
		.body = iseq + 0x1000,
		.encoded = iseq + 0x2000,
		.size = 2 * lines + 2,
		.first_line = 2 * 99 + 1,
		.label_size = label ? (uint32_t)strlen(label) : SCRY_ISEQ_EVENT_NO_TEXT,
		.path_size = label ? 6 : SCRY_ISEQ_EVENT_NO_TEXT,
		.line_count = lines,
		.label_room = small ? SCRY_ISEQ_EVENT_LABEL_SMALL : SCRY_ISEQ_EVENT_LABEL_LARGE,
		.path_room = small ? SCRY_ISEQ_EVENT_PATH_SMALL : SCRY_ISEQ_EVENT_PATH_LARGE,
		.line_room = small ? SCRY_ISEQ_EVENT_LINES_SMALL : SCRY_ISEQ_EVENT_LINES_LARGE,
	};
	if (label) {
		memcpy(at, label, strlen(label) < r->label_room ? strlen(label) : r->label_room);
		memcpy(at + r->label_room, "a\x01.rb\xff", 6);
	}
	at += r->label_room + r->path_room;
	for (uint32_t i = 0; i < lines && i < r->line_room; i++) {
		uint32_t pos = 2 * i, line = 100 + i;

		memcpy(at + 4 * i, &pos, 4);
		memcpy(at + 4 * r->line_room + ENTRY * i, &line, 4);
	}
	assert_int_equal(
		scry_iseq_log_add(b, bytes, small ? SCRY_ISEQ_EVENT_SMALL : SCRY_ISEQ_EVENT_LARGE),
		0);
}

static const struct scry_born *find(const struct scry_iseq_log *b, uint64_t iseq, uint64_t time_ns,
				    bool *ret_is_newest)
{
	const struct scry_iseq_event_ask ask = {iseq, iseq + 0x2000 + 8, time_ns};

	return scry_iseq_log_find(b, &ask, ret_is_newest);
}

static const char *label_at(const struct scry_iseq_log *b, uint64_t iseq, uint64_t time_ns,
			    bool *ret_is_newest)
{
	const struct scry_born *born = find(b, iseq, time_ns, ret_is_newest);

	return born ? born->label : NULL;
}

static void an_address_and_a_time_are_one_piece_of_code(void **state)
{
	struct scry_iseq_log b;
	bool newest;

	scry_iseq_log_init(&b, &layout);
	add(&b, 0x8000, 100, "first", 3);
	add(&b, 0x9000, 150, "elsewhere", 3);
	add(&b, 0x8000, 200, "second", 3);
	assert_null(label_at(&b, 0x8000, 99, &newest));
	assert_false(newest); /* what is there now is not what was there then */
	assert_string_equal(label_at(&b, 0x8000, 100, &newest), "first");
	assert_false(newest);
	assert_string_equal(label_at(&b, 0x8000, 199, &newest), "first");
	assert_string_equal(label_at(&b, 0x8000, 200, &newest), "second");
	assert_true(newest);
	assert_string_equal(label_at(&b, 0x9000, UINT64_MAX, &newest), "elsewhere");
	assert_null(label_at(&b, 0xa000, 1000, &newest));
	assert_true(newest); /* nobody was born there: memory may know */
	/* A gap in the records: nobody knows who came after. */
	scry_iseq_log_doubt(&b, 180);
	assert_null(label_at(&b, 0x9000, 1000, &newest));
	assert_string_equal(label_at(&b, 0x8000, 1000, &newest), "second");
	scry_iseq_log_done(&b);
}

static void lines_are_exact(void **state)
{
	const struct scry_born *born;
	struct scry_iseq_log b;
	uint32_t line = 0;
	bool newest;

	scry_iseq_log_init(&b, &layout);
	for (uint32_t lines = 1; lines <= SCRY_ISEQ_EVENT_LINES_LARGE;
	     lines += lines < 60 ? 1 : 241) {
		add(&b, 0x8000, lines, "code", lines);
		born = find(&b, 0x8000, lines, &newest);
		assert_non_null(born);
		assert_true(born->is_whole);
		assert_int_equal(born->first_line, 99);
		for (uint32_t pos = 0; pos < born->code.size; pos++) {
			uint32_t entry = pos / 2 < lines ? pos / 2 : lines - 1;

			assert_int_equal(scry_born_line(born, pos, &line), 0);
			assert_int_equal(line, 100 + entry);
		}
	}
	/* More than were told: the last that was may not be the last there is. */
	add(&b, 0x9000, 1, "long", 2 * SCRY_ISEQ_EVENT_LINES_LARGE);
	born = find(&b, 0x9000, 1, &newest);
	assert_false(born->is_whole);
	assert_int_equal(scry_born_line(born, 2 * SCRY_ISEQ_EVENT_LINES_LARGE - 3, &line), 0);
	assert_int_equal(line, 100 + SCRY_ISEQ_EVENT_LINES_LARGE - 2);
	assert_int_equal(scry_born_line(born, 2 * SCRY_ISEQ_EVENT_LINES_LARGE - 2, &line),
			 -ENODATA);
	add(&b, 0xa000, 1, "none", 0);
	born = find(&b, 0xa000, 1, &newest);
	assert_int_equal(scry_born_line(born, 0, &line), -ENOENT);
	scry_iseq_log_done(&b);
}

static void names_are_whole_or_none(void **state)
{
	char name[SCRY_ISEQ_EVENT_LABEL_LARGE + 1];
	const struct scry_born *born;
	struct scry_iseq_log b;
	bool newest;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	scry_iseq_log_init(&b, &layout);
	add(&b, 0x8000, 1, "caf\xc3\xa9", 3);
	born = find(&b, 0x8000, 1, &newest);
	assert_string_equal(born->label, "caf\xc3\xa9");
	assert_string_equal(born->path, "a?.rb?"); /* safe to print */
	add(&b, 0x9000, 1, name, 3);		   /* cut */
	assert_null(label_at(&b, 0x9000, 1, &newest));
	add(&b, 0xa000, 1, NULL, 3); /* of binary form */
	assert_null(label_at(&b, 0xa000, 1, &newest));
	assert_int_equal(b.waiting_count, 2);
	name[SCRY_ISEQ_EVENT_LABEL_LARGE - 1] = '\0';
	add(&b, 0xb000, 1, name, SCRY_ISEQ_EVENT_LINES_SMALL + 1);
	assert_string_equal(label_at(&b, 0xb000, 1, &newest), name);
	scry_iseq_log_done(&b);
}

static void much_evaluating_takes_no_memory(void **state)
{
	struct scry_iseq_log b;
	bool newest;

	scry_iseq_log_init(&b, &layout);
	for (uint64_t i = 1; i <= 200000; i++) {
		char label[32];

		snprintf(label, sizeof(label), "code_%llu", (unsigned long long)i);
		add(&b, 0x8000 + i % 50 * 0x10000, i, label, 4);
	}
	assert_int_equal(b.sums.born, 200000);
	assert_int_equal(b.count, 50 * SCRY_ISEQ_LOG_DEEP);
	/* The newest and those right before it are there, no others, and none is mixed up. */
	assert_string_equal(label_at(&b, 0x8000, 200000, &newest), "code_200000");
	assert_true(newest);
	assert_string_equal(label_at(&b, 0x8000, 199999, &newest), "code_199950");
	assert_string_equal(label_at(&b, 0x8000, 200000 - 50 * (SCRY_ISEQ_LOG_DEEP - 1), &newest),
			    "code_196850");
	assert_null(label_at(&b, 0x8000, 196849, &newest));
	assert_false(newest);
	/* What made room long ago goes first. */
	for (uint64_t i = 1; i <= 20; i++)
		add(&b, 0x800000, i * SCRY_ISEQ_LOG_KEPT_NS * 2, "slow", 4);
	assert_int_equal(b.count, 50 * SCRY_ISEQ_LOG_DEEP + 2);
	scry_iseq_log_done(&b);
}

/* An iseq that a compaction has moved to where another was born; instructions in the memory of dead
 * ones. */
static void instructions_tell_who_it_was(void **state)
{
	const uint64_t pc = 0x8000 + 0x2000 + 8;
	struct scry_iseq_event_ask ask = {.iseq = 0x9000, .pc = pc, .time_ns = 300};
	const struct scry_born *born;
	struct scry_iseq_log b;
	bool newest;

	scry_iseq_log_init(&b, &layout);
	add(&b, 0x9000, 100, "there before", 3);
	add(&b, 0x8000, 200, "moved there", 3);
	born = scry_iseq_log_find(&b, &ask, &newest);
	assert_string_equal(born->label, "moved there");
	ask.time_ns = 150; /* not yet */
	assert_null(scry_iseq_log_find(&b, &ask, &newest));
	assert_false(newest);
	/* Overlapping by a word: the first is dead by then, and was alive before. */
	add(&b, 0x8000 + 3 * 16, 400, "in its memory", 3);
	ask = (struct scry_iseq_event_ask){.iseq = 0x8000, .pc = pc, .time_ns = 399};
	born = scry_iseq_log_find(&b, &ask, &newest);
	assert_string_equal(born->label, "moved there");
	assert_int_equal(born->died_ns, 400);
	ask.time_ns = 400;
	assert_null(scry_iseq_log_find(&b, &ask, &newest));
	/* Longer than a page. */
	add(&b, 0xb000, 500, "long", 1000);
	ask = (struct scry_iseq_event_ask){
		.iseq = 1, .pc = 0xb000 + 0x2000 + 2000 * 8, .time_ns = 501};
	born = scry_iseq_log_find(&b, &ask, &newest);
	assert_string_equal(born->label, "long");
	add(&b, 0xb000 + 0x1000, 600, "in its midst", 3);
	ask.time_ns = 600;
	assert_null(scry_iseq_log_find(&b, &ask, &newest));
	scry_iseq_log_done(&b);
}

/* A sample's frame is named by its birth also when others live at its address; no memory is asked
 * (there is no process). */
static void a_frame_is_named_by_its_birth(void **state)
{
	struct scry_walk_frame frames[2] = {{.iseq = 0x8000, .pc = 0x8000 + 0x2000 + 24},
					    {.iseq = 0xa000, .pc = 0xa000 + 0x2000 + 24}};
	struct scry_walk w = {.frames = frames, .count = 2, .time_ns = 150};
	const struct scry_ruby ruby = {.layout = layout};
	struct scry_named_frame named = {.symbol = 7, .line = 8}, again = {0};
	const struct scry_symbol *symbol;
	struct scry_symbols s;
	struct scry_iseq_log b;

	scry_iseq_log_init(&b, &layout);
	add(&b, 0x8000, 100, "gone", 3);
	add(&b, 0x8000, 200, "heir", 3);
	assert_int_equal(scry_symbols_init(&s), 0);
	assert_false(scry_symbols_report(&s, &ruby, &w, 0, &named)); /* nobody tells */
	s.births = &b;
	assert_false(scry_symbols_report(&s, &ruby, &w, 1, &named)); /* it was not told of */
	assert_int_equal(named.symbol, 7);
	assert_int_equal(named.line, 8);
	assert_true(scry_symbols_report(&s, &ruby, &w, 0, &named));
	symbol = scry_symbols_get(&s, named.symbol);
	assert_non_null(symbol);
	assert_true(symbol->is_reported);
	assert_string_equal(scry_symbols_text(&s, symbol->name), "gone");
	assert_int_equal(named.line, 101);
	assert_false(named.is_hidden);
	assert_true(scry_symbols_report(&s, &ruby, &w, 0, &again));
	assert_int_equal(again.symbol, named.symbol); /* however often */
	w.time_ns = 250;
	assert_true(scry_symbols_report(&s, &ruby, &w, 0, &again));
	assert_string_equal(scry_symbols_text(&s, scry_symbols_get(&s, again.symbol)->name),
			    "heir");
	scry_symbols_done(&s);
	scry_iseq_log_done(&b);
}

static void what_is_no_record_is_counted(void **state)
{
	struct scry_iseq_event r = {.iseq = 8, .encoded = 8, .size = 1, .label_room = 100};
	struct scry_iseq_log b;

	scry_iseq_log_init(&b, &layout);
	assert_int_equal(scry_iseq_log_add(&b, &r, sizeof(r) - 1), 0);
	assert_int_equal(scry_iseq_log_add(&b, &r, sizeof(r)), 0); /* no room for its rooms */
	r.label_room = 0;
	r.iseq = 3;
	assert_int_equal(scry_iseq_log_add(&b, &r, sizeof(r)), 0);
	r.iseq = 0;
	assert_int_equal(scry_iseq_log_add(&b, &r, sizeof(r)), 0);
	assert_int_equal(b.sums.bad, 4);
	assert_int_equal(b.count, 0);
	scry_iseq_log_done(&b);
}

static void a_layout_that_the_probe_does_not_read_is_refused(void **state)
{
	struct scry_ruby_layout l = layout;
	struct scry_iseq_event_layout ret;

	l.body_insns_info = 120;
	assert_int_equal(scry_iseq_log_layout(&l, &ret), 0);
	assert_int_equal(ret.positions, 120 + 8);
	assert_int_equal(ret.count, 120 + 16);
	l.insns_positions = SCRY_RUBY_NONE;
	assert_int_equal(scry_iseq_log_layout(&l, &ret), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "; fix: "));
	l = layout;
	l.insns_entry_size = 16;
	assert_int_equal(scry_iseq_log_layout(&l, &ret), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_address_and_a_time_are_one_piece_of_code),
		cmocka_unit_test(lines_are_exact),
		cmocka_unit_test(names_are_whole_or_none),
		cmocka_unit_test(much_evaluating_takes_no_memory),
		cmocka_unit_test(instructions_tell_who_it_was),
		cmocka_unit_test(a_frame_is_named_by_its_birth),
		cmocka_unit_test(what_is_no_record_is_counted),
		cmocka_unit_test(a_layout_that_the_probe_does_not_read_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
