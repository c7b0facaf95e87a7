/*
 * The calls-sums view: ltrace's table of -c, with quantiles. Times include callees, so where traced
 * functions call each other the column "% time" has the inner calls twice; the verdict gives no
 * share. With Ruby stacks, by the line of the program that
 * calls.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "view/calls_line.h"
#include "view/calls_where.h"
#include "view/functions.h"
#include "view/gem.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/native_frames.h"
#include "view/table.h"
#include "view/verdict.h"

#define FUNCTIONS_MAX (1u << 20)
#define PLACES_MAX (1u << 20)
#define OPEN_MAX (1u << 20)
#define STEP_BITS 4    /* sixteen linear steps to each power of two */
#define ALIASES_MAX 17 /* an instrument writes no more: hook/aliases.h */
#define STEPS ((64 - STEP_BITS + 1) << STEP_BITS)

struct sum {
	uint32_t symbol, module;
	uint32_t aliases; /* of the function; 0: none */
	uint32_t place;	  /* 0: not known */
	uint64_t calls, returned, left, alone;
	uint64_t total_ns, max_ns;
	uint32_t histogram[STEPS]; /* of ns */
};

struct sums {
	const struct scry_view_opts *opts;
	struct scry_reader *reader;
	struct scry_grep grep;
	struct scry_call_functions functions;
	struct scry_map by_name; /* of functions -> number */
	struct scry_map by_row;	 /* that << 32 | place -> row + 1 */
	struct sum **rows;
	struct scry_native_frames frames;
	struct scry_map by_line,
		called;		      /* line -> place; key of a call -> place, until it is over */
	struct scry_ev_stack *places; /* from 1: a frame of that line */
	uint32_t place_count, place_room;
	size_t count, room;
	uint64_t total_ns, calls, alone;
	uint64_t judged;	       /* by --where */
	struct scry_call_where *where; /* NULL: all calls */
	struct scry_map open;	       /* with it: key of a call -> its event, a copy */
	bool has_aliases;
	struct scry_doc_value aliases[ALIASES_MAX];
	uint64_t unsure, left_out; /* calls that cannot be judged; that find no room */
};

static uint32_t step_of(uint64_t ns)
{
	uint32_t shift;

	if (ns < 1u << STEP_BITS)
		return (uint32_t)ns;
	shift = 63u - (uint32_t)__builtin_clzll(ns) - STEP_BITS;
	return ((shift + 1) << STEP_BITS) + (uint32_t)(ns >> shift & ((1u << STEP_BITS) - 1));
}

static uint64_t step_begin(uint32_t step)
{
	uint32_t shift = step >> STEP_BITS, low = step & ((1u << STEP_BITS) - 1);

	if (!shift)
		return step;
	return shift > 64 - STEP_BITS ? UINT64_MAX : ((1ull << STEP_BITS) + low) << (shift - 1);
}

static int no_memory(const struct sums *s)
{
	return scry_no_memory("%zu functions", s->count);
}

/* The place that makes a call which comes next. */
static int on_called(struct sums *s, const struct scry_ev_called *called)
{
	const struct scry_ev_stack *line =
		scry_native_frames_line(&s->frames, s->reader, called->stack);
	uint64_t *at = line ? scry_map_ref(&s->by_line, (uint64_t)line->file_str << 32 | line->line)
			    : NULL;

	if (!line)
		return 0;
	if (at && !*at && s->place_count + 1 >= s->place_room) {
		uint32_t room = s->place_room ? 2 * s->place_room : 64;
		struct scry_ev_stack *more = reallocarray(s->places, room, sizeof(*more));

		if (!more)
			return no_memory(s);
		s->places = more;
		s->place_room = room;
	}
	if (at && !*at) {
		s->places[++s->place_count] = *line;
		*at = s->place_count;
	}
	if (at)
		scry_map_put(&s->called, scry_call_key(called->pid, called->call), *at);
	return 0;
}

/* The row of a function and a place that calls it; NULL with a sentence: no memory. */
static struct sum *row_of(struct sums *s, const struct scry_ev_function *f, uint32_t place)
{
	uint64_t *name = scry_map_ref(&s->by_name, (uint64_t)f->symbol_str << 32 | f->module_str);
	uint64_t *at;
	struct sum *row;

	if (name && !*name)
		*name = s->by_name.count;
	at = name ? scry_map_ref(&s->by_row, *name << 32 | place) : NULL;
	if (at && *at)
		return s->rows[*at - 1];
	if (at && s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct sum **more = reallocarray(s->rows, room, sizeof(struct sum *));

		if (more) {
			s->rows = more;
			s->room = room;
		}
	}
	row = at && s->count < s->room ? calloc(1, sizeof(*row)) : NULL;
	if (!row) {
		no_memory(s);
		return NULL;
	}
	row->place = place;
	row->symbol = f->symbol_str;
	row->aliases = f->aliases_str;
	s->has_aliases |= row->aliases != 0;
	row->module = f->module_str;
	s->rows[s->count++] = row;
	*at = s->count;
	return row;
}

static int add(struct sums *s, const struct scry_event *event)
{
	const struct scry_ev_return *ret = (const void *)(event + 1); /* begins as CALL does */
	const struct scry_call_function *f =
		scry_call_functions_find(&s->functions, ret->pid, ret->function);
	const uint64_t key = scry_call_key(ret->pid, ret->call);
	uint64_t place = 0;
	struct sum *row;

	if (!f || (s->opts->pid && s->opts->pid != ret->pid))
		return 0;
	if (event->type == SCRY_EVENT_RETURN)
		scry_map_remove(&s->called, key, &place);
	else
		scry_map_get(&s->called, key, &place);
	row = row_of(s, &f->ev, (uint32_t)place);
	if (!row)
		return -ENOMEM;
	if (event->type == SCRY_EVENT_CALL) {
		row->calls++;
		s->calls++;
		return 0;
	}
	if (ret->how == SCRY_RETURN_LEFT) {
		row->left++;
		return 0;
	}
	if (ret->how != SCRY_RETURN_DONE) {
		row->alone++;
		s->alone++;
		return 0;
	}
	row->returned++;
	row->total_ns += ret->duration_ns;
	s->total_ns += ret->duration_ns;
	row->max_ns = ret->duration_ns > row->max_ns ? ret->duration_ns : row->max_ns;
	row->histogram[step_of(ret->duration_ns)]++;
	return 0;
}

/* A call with its return (NULL: it has none), where it is one of the functions that are wanted. */
static int add_judged(struct sums *s, const struct scry_event *call, const struct scry_event *ret)
{
	const struct scry_ev_call *ev = (const void *)(call + 1);
	const struct scry_call_function *f =
		scry_call_functions_find(&s->functions, ev->pid, ev->function);
	const struct scry_call_image image = {.call = call, .ret = ret};
	enum scry_call_where_answer answer = SCRY_WHERE_NO;
	int r;

	if (f && (!s->opts->pid || s->opts->pid == ev->pid)) {
		answer = scry_call_where_takes(s->where, &image, f);
		s->judged++;
	}
	s->unsure += answer == SCRY_WHERE_UNKNOWN;
	if (answer != SCRY_WHERE_YES) {
		scry_map_remove(&s->called, scry_call_key(ev->pid, ev->call), NULL);
		return 0;
	}
	r = add(s, call);
	return r < 0 || !ret ? r : add(s, ret);
}

/* With --where a call waits for its return. */
static int judge_later(struct sums *s, const struct scry_event *event)
{
	const struct scry_ev_return *ret = (const void *)(event + 1); /* begins as CALL does */
	const uint64_t key = scry_call_key(ret->pid, ret->call);
	struct scry_event *call;
	uint64_t at = 0;
	int r;

	if (event->type == SCRY_EVENT_CALL) {
		call = s->open.count < OPEN_MAX ? malloc(event->size) : NULL;
		if (call)
			memcpy(call, event, event->size);
		if (!call || scry_map_get(&s->open, key, &at) ||
		    scry_map_put(&s->open, key, (uintptr_t)call) < 0) {
			free(call);
			s->left_out++;
		}
		return 0;
	}
	if (!scry_map_remove(&s->open, key, &at))
		return 0;
	call = (struct scry_event *)(uintptr_t)at;
	r = add_judged(s, call, event);
	free(call);
	return r;
}

/* Those that had not returned at the end. */
static int add_open(struct sums *s)
{
	struct scry_map_slot slot;
	size_t cursor = 0;
	int r = 0;

	while (r == 0 && scry_map_next(&s->open, &cursor, &slot))
		r = add_judged(s, (const struct scry_event *)(uintptr_t)slot.value, NULL);
	return r;
}

static void free_open(struct sums *s)
{
	struct scry_map_slot slot;
	size_t cursor = 0;

	while (scry_map_next(&s->open, &cursor, &slot))
		free((struct scry_event *)(uintptr_t)slot.value);
	scry_map_done(&s->open);
}

/* What `part` of a thousand calls do not exceed, within a thirtieth; the longest one's is known. */
static uint64_t quantile(const struct sum *row, uint64_t part)
{
	uint64_t want = (row->returned * part + 999) / 1000, seen = 0;

	for (uint32_t i = 0; i < STEPS; i++) {
		uint64_t begin = step_begin(i), at = begin + (step_begin(i + 1) - begin) / 2;

		seen += row->histogram[i];
		if (!row->histogram[i] || seen < want)
			continue;
		return seen == row->returned && row->histogram[i] == 1
			       ? row->max_ns
			       : scry_two_digits(at, row->max_ns);
	}
	return row->max_ns;
}

/* "app.rb:12  method", in `buf`. */
static struct scry_cell place_cell(const struct sums *s, const struct scry_ev_stack *at,
				   struct scry_buf *buf)
{
	const char *file = scry_reader_string(s->reader, at->file_str, NULL);
	const char *method = scry_reader_string(s->reader, at->method_str, NULL);

	if (!at->id)
		return scry_cell_unknown();
	scry_buf_clear(buf);
	scry_buf_printf(buf, "%s:%u%s%s", file ? scry_gem_path(file) : "?", at->line,
			method ? "  " : "", method ? method : "");
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

/* The lines of a string, in s->aliases; how many. */
static size_t aliases_of(struct sums *s, const struct sum *row)
{
	const char *at = row->aliases ? scry_reader_string(s->reader, row->aliases, NULL) : NULL;
	size_t count = 0;

	for (const char *end; at && count < ALIASES_MAX && (end = strchr(at, '\n')); at = end + 1)
		s->aliases[count++] = (struct scry_doc_value){
			.kind = SCRY_VALUE_TEXT, .bytes = at, .number = (uint64_t)(end - at)};
	return count;
}

static struct scry_cell aliases_values(struct sums *s, const struct sum *row)
{
	return (struct scry_cell){.number = aliases_of(s, row), .values = s->aliases};
}

static struct scry_cell aliases_cell(struct sums *s, const struct sum *row, struct scry_buf *buf)
{
	const size_t count = aliases_of(s, row);

	scry_buf_clear(buf);
	for (size_t i = 0; i < count; i++) {
		scry_buf_printf(buf, "%s", i ? ", " : "");
		scry_demangle_put(s->aliases[i].bytes, s->aliases[i].number, buf);
	}
	return count ? scry_cell_text(scry_buf_str(buf), buf->len) : scry_cell_unknown();
}

/* ---- the table ---- */

#define NUMBER(member) SCRY_AT(struct sum, member)
#define GET(name, ...) SCRY_GET(name, struct sum, struct sums, __VA_ARGS__)

static const struct scry_ev_stack *place_of(const struct sums *s, const struct sum *row)
{
	static const struct scry_ev_stack nowhere;

	return row->place ? &s->places[row->place] : &nowhere;
}

/* What a call took, where any has returned. */
static struct scry_cell took(const struct sum *row, uint64_t ns)
{
	return scry_cell_known(ns, row->returned != 0);
}

static uint64_t mean(const struct sum *row)
{
	return row->returned ? row->total_ns / row->returned : 0;
}

GET(get_share, scry_cell_known(scry_share(row->total_ns, view->total_ns, 1000),
			       view->total_ns && row->returned))
GET(get_total, took(row, row->total_ns))
GET(get_mean, took(row, mean(row)))
GET(get_p50, took(row, row->returned ? quantile(row, 500) : 0))
GET(get_p99, took(row, row->returned ? quantile(row, 990) : 0))
GET(get_max, took(row, row->max_ns))
GET(get_function, scry_functions_string(view->reader, row->symbol))
GET(get_library, scry_functions_string(view->reader, row->module))
GET(get_unfinished, scry_cell_number(row->calls - row->returned - row->left - row->alone))
GET(get_file, scry_functions_string(view->reader, place_of(view, row)->file_str))
GET(get_line, scry_cell_known(place_of(view, row)->line, place_of(view, row)->line != 0))
GET(get_method, scry_functions_string(view->reader, place_of(view, row)->method_str))
GET(get_place, place_cell(view, place_of(view, row), buf))
GET(get_aliases, aliases_values(view, row))
GET(get_other_names, aliases_cell(view, row, buf))

static const struct scry_column columns[] = {
	{"% time", NULL, SCRY_CELL_TENTHS, get_share, 0},
	{"seconds", NULL, SCRY_CELL_TIME, get_total, 0},
	{NULL, "total_ns", SCRY_CELL_NUMBER, get_total, 0},
	{"ns/call", "mean_ns", SCRY_CELL_NUMBER, get_mean, 0},
	{"calls", "calls", SCRY_CELL_NUMBER, NUMBER(calls)},
	{"p50 ns", "p50_ns", SCRY_CELL_NUMBER, get_p50, 0},
	{"p99 ns", "p99_ns", SCRY_CELL_NUMBER, get_p99, 0},
	{"max ns", "max_ns", SCRY_CELL_NUMBER, get_max, 0},
	{"function", "function", SCRY_CELL_SYMBOL, get_function, SCRY_COLUMN_GREP},
	{NULL, "library", SCRY_CELL_TEXT, get_library, 0},
	{NULL, "returned", SCRY_CELL_NUMBER, NUMBER(returned)},
	{NULL, "left", SCRY_CELL_NUMBER, NUMBER(left)},
	{NULL, "alone", SCRY_CELL_NUMBER, NUMBER(alone)},
	{NULL, "unfinished", SCRY_CELL_NUMBER, get_unfinished, 0},
	{NULL, "file", SCRY_CELL_TEXT, get_file, 0},
	{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
	{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
	{NULL, "aliases", SCRY_CELL_VALUES, get_aliases, 0},
	/* the last two: left out where there are none, and without stacks */
	{"other names", NULL, SCRY_CELL_TEXT, get_other_names, 0},
	{"called from", NULL, SCRY_CELL_TEXT, get_place, SCRY_COLUMN_ELASTIC},
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

/* Of a row without a time. */
static void judge_timeless(const struct sum *row, struct scry_buf *buf)
{
	scry_buf_printf(buf, " %s seen", scry_text_were(row->calls));
	if (row->alone == row->calls)
		scry_buf_printf(buf, "; %s not followed, so no time is known",
				row->calls == 1 ? "its return is" : "their returns are");
	else if (row->alone)
		scry_buf_printf(buf, ", and no time of any is known");
	else
		scry_buf_printf(buf, ", and none has returned");
}

static void judge_nothing(const struct sums *s, struct scry_buf *buf)
{
	if (!s->judged) {
		scry_buf_printf(buf, "nothing was seen: no call was made");
		return;
	}
	scry_text_things(buf, s->judged, "calls");
	scry_buf_printf(buf, " %s seen, and none %s --where", scry_text_were(s->judged),
			s->unsure ? "is known to fit" : "fits");
}

/* Of the first row that is shown: what took most of the time. NULL: none is. */
static void judge(const struct sums *s, const struct sum *row, struct scry_doc *doc)
{
	struct scry_buf buf = {0}, place = {0};

	if (!s->count) {
		judge_nothing(s, &buf);
	} else if (!row && s->opts->filter.count) {
		scry_verdict_filtered(&buf, s->opts->grep != NULL);
	} else if (!row) {
		scry_buf_printf(&buf, "no function contains '%s'", s->opts->grep);
	} else {
		const char *name = scry_reader_string(s->reader, row->symbol, NULL);

		if (!row->returned) {
			scry_text_things(&buf, row->calls, "calls");
			scry_buf_printf(&buf, " of ");
		}
		scry_demangle_put(name ? name : "?", name ? strlen(name) : 1, &buf);
		if (row->place) {
			place_cell(s, &s->places[row->place], &place);
			scry_buf_printf(&buf, ", called from %s,", scry_buf_str(&place));
		}
		if (row->returned)
			scry_verdict_took(&buf, row->total_ns, row->returned, row->max_ns);
		else
			judge_timeless(row, &buf);
	}
	scry_verdict(doc, &buf);
	scry_buf_done(&place);
	scry_buf_done(&buf);
}

/* All functions, as ltrace -c has them, unless --top says less. */
static int by_total(const void *left, const void *right)
{
	const struct sum *a = *(struct sum *const *)left, *b = *(struct sum *const *)right;
	int order = scry_functions_compare(b->total_ns, a->total_ns);

	return order ? order : scry_functions_compare(b->calls, a->calls);
}

static void push(struct sums *s, struct scry_doc *doc)
{
	struct scry_column shown[COLUMNS];
	size_t count = COLUMNS - 2;
	const struct scry_table table = {
		.columns = shown,
		.column_count = COLUMNS - 2 + s->has_aliases + (s->place_count != 0),
		SCRY_ROW_POINTERS(s->rows, s->count),
		.view = s,
		.grep = &s->grep,
		.filter = &s->opts->filter,
		.sort = s->opts->sort_key,
		.order = by_total,
		.top = s->opts->top == SCRY_VIEW_TOP_DEFAULT ? 0 : s->opts->top,
		.noun = "functions",
	};

	memcpy(shown, columns, sizeof(shown));
	if (s->has_aliases)
		shown[count++] = columns[COLUMNS - 2];
	if (s->place_count)
		shown[count++] = columns[COLUMNS - 1];
	judge(s, scry_table_first(&table), doc);
	scry_table_push(&table, doc);
	if (!s->count)
		scry_doc_remark(doc, s->judged ? "no call is shown" : "no call was seen");
	if (s->left_out)
		scry_doc_remark(doc, "%llu %s left out: --where found no room for them",
				(unsigned long long)s->left_out,
				s->left_out == 1 ? "call is" : "calls are");
	scry_call_remark_alone(doc, s->alone, "", "");
}

static int read_all(struct sums *s, struct scry_data_quality *quality)
{
	const struct scry_event *event;
	int got, r = 0;

	while ((got = scry_reader_next(s->reader, &event)) > 0 && r == 0) {
		scry_data_quality_event(quality, event);
		if (event->type == SCRY_EVENT_FUNCTION)
			r = scry_call_functions_add(&s->functions, s->reader,
						    (const void *)(event + 1));
		if (event->type == SCRY_EVENT_STACK)
			r = scry_native_frames_event(&s->frames, (const void *)(event + 1));
		if (event->type == SCRY_EVENT_CALLED)
			r = on_called(s, (const void *)(event + 1));
		if (event->type == SCRY_EVENT_CALL || event->type == SCRY_EVENT_RETURN)
			r = s->where ? judge_later(s, event) : add(s, event);
	}
	return got < 0 ? got : r;
}

int scry_view_calls_sums(struct scry_reader *reader, const struct scry_view_opts *opts,
			 struct scry_doc *doc)
{
	struct sums s = {.opts = opts, .reader = reader};
	struct scry_data_quality quality;
	int r = scry_grep_init(&s.grep, opts->grep);

	if (r == 0)
		r = scry_call_where_parse(opts->calls.where, &s.where);
	if (r < 0) {
		scry_grep_done(&s.grep);
		return r;
	}
	scry_map_init(&s.open, OPEN_MAX);
	scry_map_init(&s.by_name, FUNCTIONS_MAX);
	scry_map_init(&s.by_row, FUNCTIONS_MAX);
	scry_map_init(&s.by_line, PLACES_MAX);
	scry_map_init(&s.called, OPEN_MAX);
	scry_call_functions_init(&s.functions);
	scry_data_quality_init(&quality, reader);
	r = read_all(&s, &quality);
	if (r == 0)
		r = add_open(&s);
	if (r == 0) {
		scry_data_quality_close(&quality);
		quality.noun = "calls";
		quality.shown = s.calls;
		quality.unsure = s.unsure;
		if (s.count)
			qsort(s.rows, s.count, sizeof(struct sum *), by_total);
		scry_data_quality_push(&quality, doc);
		push(&s, doc);
	}
	for (size_t i = 0; i < s.count; i++)
		free(s.rows[i]);
	free(s.rows);
	free_open(&s);
	scry_call_where_free(s.where);
	scry_map_done(&s.by_name);
	scry_map_done(&s.by_row);
	scry_map_done(&s.by_line);
	scry_map_done(&s.called);
	scry_native_frames_done(&s.frames);
	free(s.places);
	scry_call_functions_done(&s.functions);
	scry_grep_done(&s.grep);
	return r;
}
