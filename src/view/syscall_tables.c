/* Tables of the syscalls view: rows, and calls in vain. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "view/functions.h"
#include "view/syscalls.h"
#include "wire/bpf_syscalls.h"
#include "view/table.h"

#define WORD_MOST 40   /* columns: of a longer symbol the middle is left out */
#define CALLER_MOST 90 /* percent: it stands for all */
#define VERDICTS_SHOWN 10
#define PATHS_MAX (1u << 16)
#define CURES_MAX 64 /* there are fewer patterns */
#define TIME_ROOM 24 /* "1234.5 s" */

/* --- cells ----------------------------------------------------------------------------------- */

const struct scry_ev_syscall_site *scry_syscall_site_of(const struct scry_syscall_view *v,
							const struct scry_syscall_row *row)
{
	return row->site ? &v->sites[row->site - 1] : NULL;
}

static const char *base_name(const char *path)
{
	const char *slash = path[0] == '[' ? NULL : strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void scry_syscall_put_place(const struct scry_syscall_view *v,
			    const struct scry_ev_syscall_site *site, struct scry_buf *buf)
{
	size_t length;
	const char *module = scry_reader_string(v->reader, site->module_str, &length);
	const char *symbol = scry_reader_string(v->reader, site->symbol_str, &length);

	if (!module) {
		scry_buf_printf(buf, "[nowhere]");
		return;
	}
	scry_buf_printf(buf, "%s", base_name(module));
	scry_buf_append(buf, " ", symbol ? 1 : 0);
	if (symbol)
		scry_demangle_put(symbol, length, buf);
	scry_buf_printf(buf, "+%#llx", (unsigned long long)site->offset);
}

void scry_syscall_shorten(struct scry_buf *buf)
{
	struct scry_buf whole = *buf;

	*buf = (struct scry_buf){0};
	scry_text_shorten(buf, scry_buf_str(&whole), WORD_MOST);
	scry_buf_done(&whole);
}

static size_t directory_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
}

/* Of equal counts: a map has no order that would be the same again. */
static bool comes_before(const struct scry_intern *names, const struct scry_map_slot *a,
			 const struct scry_map_slot *b)
{
	const char *left = scry_intern_get(names, (uint32_t)a->key, NULL);
	const char *right = scry_intern_get(names, (uint32_t)b->key, NULL);

	return left && right && strcmp(left, right) < 0;
}

uint64_t scry_syscall_put_paths(const struct scry_syscall_view *v,
				const struct scry_syscall_row *row, bool directories,
				struct scry_buf *buf)
{
	const uint64_t of = (uint64_t)(row - v->places.rows);
	struct scry_map_slot slot;
	struct scry_intern names;
	struct scry_map counts;
	static const char here[] = ".";
	uint64_t all = 0, most = 0;
	size_t cursor = 0, length;

	scry_intern_init(&names, PATHS_MAX, 64u << 20);
	scry_map_init(&counts, PATHS_MAX);
	while (scry_map_next(&v->paths, &cursor, &slot)) {
		const char *path = scry_reader_string(v->reader, (uint32_t)slot.key, &length);
		uint64_t *count = NULL;
		uint32_t id;

		if (slot.key >> 32 != of || !path)
			continue;
		if (directories)
			length = directory_length(path);
		if (!length)
			path = here;
		length = length ? length : strlen(here);
		all += slot.value;
		if (scry_intern_put(&names, path, length, &id) == 0)
			count = scry_map_ref(&counts, id);
		if (count)
			*count += slot.value;
	}
	for (int i = 0; i < SCRY_SYSCALL_PATHS; i++) {
		struct scry_map_slot best = {0};

		for (cursor = 0; scry_map_next(&counts, &cursor, &slot);)
			if (slot.value > best.value ||
			    (slot.value == best.value && comes_before(&names, &slot, &best)))
				best = slot;
		if (!best.value)
			break;
		scry_map_remove(&counts, best.key, NULL);
		most = i ? most : scry_share(best.value, all, 100);
		scry_buf_printf(buf, "%s%s", i ? ", " : "",
				scry_intern_get(&names, (uint32_t)best.key, &length));
		scry_buf_printf(buf, " %llu %%",
				(unsigned long long)scry_share(best.value, all, 100));
	}
	scry_intern_done(&names);
	scry_map_done(&counts);
	return most;
}

/* The time that no more than so many thousandths took: the end of its step, as none took longer
 * than the longest. */
static struct scry_cell quantile(const struct scry_syscall_row *row, uint64_t thousandths)
{
	uint64_t all = 0, seen = 0;
	size_t i;

	for (i = 0; i < row->step_count; i++)
		all += row->steps[i].calls;
	for (i = 0; i < row->step_count; i++) {
		seen += row->steps[i].calls;
		if (seen * 1000 >= all * thousandths)
			break;
	}
	if (!all || i == row->step_count) /* sums that no watch has */
		return scry_cell_unknown();
	return scry_cell_number(row->steps[i].to_ns < row->max_ns ? row->steps[i].to_ns
								  : row->max_ns);
}

/* "346 ns", "1.2 us", "96 ms": of what is known to some two digits. */
static struct scry_cell time_cell(const struct scry_cell *ns, char room[TIME_ROOM])
{
	const double t = (double)ns->number;

	if (ns->is_unknown)
		return scry_cell_unknown();
	if (t < 1e3)
		snprintf(room, TIME_ROOM, "%.0f ns", t);
	else if (t < 1e6)
		snprintf(room, TIME_ROOM, t < 1e4 ? "%.1f us" : "%.0f us", t / 1e3);
	else if (t < 1e9)
		snprintf(room, TIME_ROOM, t < 1e7 ? "%.1f ms" : "%.0f ms", t / 1e6);
	else
		snprintf(room, TIME_ROOM, "%.1f s", t / 1e9);
	return scry_cell_text(room, strlen(room));
}

static struct scry_cell tenths(uint64_t part, uint64_t whole)
{
	return scry_cell_known(scry_share(part, whole, 1000), whole != 0);
}

struct scry_doc_value scry_syscall_share(uint64_t part, uint64_t whole)
{
	struct scry_doc_value value = {.kind = whole ? SCRY_VALUE_DOUBLE : SCRY_VALUE_NULL};
	double share = whole ? (double)part / (double)whole : 0;

	memcpy(&value.number, &share, sizeof(share));
	return value;
}

const char *scry_syscall_text(const struct scry_syscall_view *v, uint32_t id)
{
	size_t length;
	const char *text = scry_reader_string(v->reader, id, &length);

	return text ? text : "";
}

/* "main+0x4 < ...", and how much of the samples that is where it is not all. */
void scry_syscall_put_caller(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
			     struct scry_buf *buf)
{
	const char *text = scry_intern_get(&v->texts, row->caller_str, NULL);
	const uint64_t part = scry_share(row->caller_seen, row->callers_seen, 100);

	if (!text)
		return;
	if (part < CALLER_MOST)
		scry_buf_printf(buf, "%llu %% ", (unsigned long long)part);
	scry_buf_printf(buf, "%s", text);
}

/* "2,752,057 of 2,752,057 calls set ..." */
void scry_syscall_put_verdict(const struct scry_syscall_verdict *verdict, struct scry_buf *buf)
{
	scry_text_count(buf, verdict->vain);
	scry_buf_printf(buf, " of ");
	scry_text_count(buf, verdict->of);
	scry_buf_printf(buf, " calls %s", verdict->did);
}

/* --- tables ---------------------------------------------------------------------------------- */

/* Columns of every form; a title is NULL where it is not shown as text. */
enum {
	COL_PID,
	COL_TID,
	COL_THREAD,
	COL_SHARE,
	COL_SHARE_DATA,
	COL_TICKS,
	COL_CALLS,
	COL_RATE,
	COL_ERRORS,
	COL_AGAIN,
	COL_ABSENT,
	COL_ERRNO,
	COL_TOTAL,
	COL_MEAN_SHOWN,
	COL_P50_SHOWN,
	COL_P99_SHOWN,
	COL_MAX_SHOWN,
	COL_MEAN,
	COL_P50,
	COL_P99,
	COL_MAX,
	COL_TIMED,
	COL_NAME,
	COL_NUMBER,
	COL_ABI,
	COL_PLACE,
	COL_MODULE,
	COL_SYMBOL,
	COL_OFFSET,
	COL_LINE,
	COL_LINE_PATH,
	COL_LINE_NUMBER,
	COL_LINE_METHOD,
	COL_LINE_SHARE,
	COL_LINE_FRAMES,
	COL_CALLER,
	COL_FRAMES,
	COL_VERDICT,
	COL_WHY,
	COLUMNS,
};

static void set_columns(const struct scry_syscall_view *v, struct scry_column *c)
{
	static const struct scry_column all[COLUMNS] = {
		[COL_PID] = {"pid", "pid", SCRY_CELL_NUMBER, NULL, 0},
		[COL_TID] = {"tid", "tid", SCRY_CELL_NUMBER, NULL, 0},
		[COL_THREAD] = {"thread", "thread", SCRY_CELL_TEXT, NULL, 0},
		[COL_SHARE] = {"time %", NULL, SCRY_CELL_TENTHS, NULL, 0},
		[COL_SHARE_DATA] = {NULL, "share", SCRY_CELL_VALUE, NULL, 0},
		[COL_TICKS] = {"samples", "samples", SCRY_CELL_COUNT, NULL, 0},
		[COL_CALLS] = {"calls", "count", SCRY_CELL_COUNT, NULL, 0},
		[COL_RATE] = {"calls/s", "calls_per_second", SCRY_CELL_COUNT, NULL, 0},
		[COL_ERRORS] = {"errors", "errors", SCRY_CELL_COUNT, NULL, 0},
		[COL_AGAIN] = {NULL, "eagain", SCRY_CELL_COUNT, NULL, 0},
		[COL_ABSENT] = {NULL, "enoent", SCRY_CELL_COUNT, NULL, 0},
		[COL_ERRNO] = {NULL, "other_errno", SCRY_CELL_NUMBER, NULL, 0},
		[COL_TOTAL] = {"total s", "total_ns", SCRY_CELL_TIME, NULL, 0},
		[COL_MEAN_SHOWN] = {"mean", NULL, SCRY_CELL_TEXT, NULL, 0},
		[COL_P50_SHOWN] = {"p50", NULL, SCRY_CELL_TEXT, NULL, 0},
		[COL_P99_SHOWN] = {"p99", NULL, SCRY_CELL_TEXT, NULL, 0},
		[COL_MAX_SHOWN] = {"max", NULL, SCRY_CELL_TEXT, NULL, 0},
		[COL_MEAN] = {NULL, "mean_ns", SCRY_CELL_NUMBER, NULL, 0},
		[COL_P50] = {NULL, "p50_ns", SCRY_CELL_NUMBER, NULL, 0},
		[COL_P99] = {NULL, "p99_ns", SCRY_CELL_NUMBER, NULL, 0},
		[COL_MAX] = {NULL, "max_ns", SCRY_CELL_NUMBER, NULL, 0},
		[COL_TIMED] = {NULL, "timed", SCRY_CELL_COUNT, NULL, 0},
		[COL_NAME] = {"syscall", "name", SCRY_CELL_TEXT, NULL, 0},
		[COL_NUMBER] = {NULL, "number", SCRY_CELL_NUMBER, NULL, 0},
		[COL_ABI] = {NULL, "abi", SCRY_CELL_TEXT, NULL, 0},
		[COL_PLACE] = {"from", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
		[COL_MODULE] = {NULL, "module", SCRY_CELL_TEXT, NULL, 0},
		[COL_SYMBOL] = {NULL, "symbol", SCRY_CELL_SYMBOL, NULL, 0},
		[COL_OFFSET] = {NULL, "offset", SCRY_CELL_NUMBER, NULL, 0},
		[COL_LINE] = {"line", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
		[COL_LINE_PATH] = {NULL, "file", SCRY_CELL_TEXT, NULL, 0},
		[COL_LINE_NUMBER] = {NULL, "line", SCRY_CELL_NUMBER, NULL, 0},
		[COL_LINE_METHOD] = {NULL, "method", SCRY_CELL_TEXT, NULL, 0},
		[COL_LINE_SHARE] = {NULL, "line_share", SCRY_CELL_VALUE, NULL, 0},
		[COL_LINE_FRAMES] = {NULL, "ruby_frames", SCRY_CELL_FRAMES, NULL, 0},
		[COL_CALLER] = {"called by", "caller", SCRY_CELL_TEXT, NULL,
				SCRY_COLUMN_CUT_AT_END},
		[COL_FRAMES] = {NULL, "frames", SCRY_CELL_FRAMES, NULL, 0},
		[COL_VERDICT] = {NULL, "verdict", SCRY_CELL_TEXT, NULL, 0},
		[COL_WHY] = {NULL, "not_counted", SCRY_CELL_TEXT, NULL, 0},
	};
	const int by = v->opts->by;
	const bool is_thread = by == SCRY_VIEW_BY_THREAD, is_place = by == SCRY_VIEW_BY_SITE;
	const bool is_line = by == SCRY_VIEW_BY_LINE;
	const struct scry_column none = {NULL, NULL, SCRY_CELL_TEXT, NULL, 0};

	memcpy(c, all, sizeof(all));
	if (scry_syscall_is_exact(v))
		c[COL_TICKS].title = NULL;
	for (int i = COL_CALLS; i <= COL_ERRORS && !scry_syscall_is_exact(v); i++)
		c[i].title = NULL;
	for (int i = COL_TOTAL; i <= COL_MAX_SHOWN; i++)
		if (!scry_syscall_is_timed(v) || (is_place && i <= COL_MEAN_SHOWN))
			c[i].title = NULL;
	if (is_thread)
		c[COL_P50_SHOWN].title = c[COL_P99_SHOWN].title = NULL;
	if (is_line)
		c[COL_ERRORS].title = c[COL_P50_SHOWN].title = c[COL_P99_SHOWN].title =
			c[COL_MAX_SHOWN].title = NULL;
	if (!scry_syscall_is_at_sites(v))
		c[COL_WHY] = none;
	if (is_place && !v->lines_seen)
		c[COL_LINE].title = NULL;
	for (int i = COL_PID; i <= COL_THREAD && !is_thread; i++)
		c[i] = none;
	for (int i = COL_NAME; i <= COL_ABI && (is_thread || is_line); i++)
		c[i] = none;
	for (int i = COL_PLACE; i <= COL_VERDICT && !is_place; i++)
		if (!is_line || i < COL_LINE || i > COL_LINE_METHOD)
			c[i] = none;
}

/* Of all samples at the place, also of programs that are no Ruby. */
static uint64_t line_whole(const struct scry_syscall_row *row)
{
	return row->callers_seen > row->lines_seen ? row->callers_seen : row->lines_seen;
}

void scry_syscall_put_line(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
			   struct scry_buf *buf)
{
	const char *text = scry_intern_get(&v->texts, row->line_str, NULL);
	uint64_t seen = row->line_seen;

	if (!row->lines_seen && !text)
		return;
	if (!text || line_whole(row) - row->lines_seen + row->lineless > row->line_seen) {
		text = "[no line]";
		seen = line_whole(row) - row->lines_seen + row->lineless;
	}
	if (row->lines_seen && seen * 100 < line_whole(row) * CALLER_MOST)
		scry_buf_printf(buf, "%llu %% ",
				(unsigned long long)scry_share(seen, line_whole(row), 100));
	scry_buf_printf(buf, "%s", text);
}

/* File, line and method of a line's text, as line_of made it. */
static void line_cells(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
		       struct scry_cell *c)
{
	const char *text = scry_intern_get(&v->texts, row->line_str, NULL);
	const char *colon = text ? strrchr(text, ':') : NULL, *space;

	while (colon && (colon[1] < '0' || colon[1] > '9')) /* of a method: Foo::Bar */
		colon = colon > text ? memrchr(text, ':', (size_t)(colon - text)) : NULL;
	space = colon ? strchr(colon, ' ') : NULL;
	c[COL_LINE_PATH] = scry_cell_text(colon ? text : NULL, colon ? (size_t)(colon - text) : 0);
	c[COL_LINE_NUMBER] = scry_cell_known(colon ? strtoul(colon + 1, NULL, 10) : 0, colon);
	c[COL_LINE_METHOD] =
		scry_cell_text(space ? space + 1 : NULL, space ? strlen(space + 1) : 0);
}

static void push_row(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
		     const struct scry_syscall_verdict *verdict)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH];
	const uint32_t depth =
		row->stack ? scry_native_frames_all(&v->frames, v->reader, row->stack, frames) : 0;
	const struct scry_doc_value share = scry_syscall_share(row->ticks, v->sums.ticks);
	const struct scry_doc_value line_share =
		scry_syscall_share(row->line_seen, line_whole(row));
	struct scry_doc_frame line_frames[SCRY_NATIVE_DEPTH];
	const uint32_t line_depth =
		row->line ? scry_native_frames_all(&v->frames, v->reader, row->line, line_frames)
			  : 0;
	struct scry_buf place = {0}, caller = {0}, said = {0}, line = {0};
	struct scry_cell c[COLUMNS];
	const bool is_line = v->opts->by == SCRY_VIEW_BY_LINE;
	/* rt_sigreturn has none */
	const bool is_counted = scry_syscall_is_exact(v) && !row->why_str;
	const bool has_results = is_counted && !scry_syscall_is_at_sites(v) && !is_line &&
				 (!site || v->opts->by == SCRY_VIEW_BY_THREAD ||
				  site->number < SCRY_SYSCALLS_UNKNOWN);
	char shown[4][TIME_ROOM];

	if (site)
		scry_syscall_put_place(v, site, &place);
	scry_syscall_put_caller(v, row, &caller);
	if (!v->doc->is_data) {
		scry_syscall_shorten(&place);
		scry_syscall_shorten(&caller);
	}
	if (verdict)
		scry_syscall_put_verdict(verdict, &said);
	c[COL_PID] = scry_cell_number(row->pid);
	c[COL_TID] = scry_cell_known(row->tid, row->tid != 0);
	c[COL_THREAD] = scry_functions_string(v->reader, row->thread_str);
	c[COL_SHARE] = tenths(row->ticks, v->sums.ticks);
	c[COL_SHARE_DATA] = (struct scry_cell){.values = &share, .number = 1};
	c[COL_TICKS] = scry_cell_number(row->ticks);
	c[COL_CALLS] = scry_cell_known(row->calls, is_counted);
	c[COL_RATE] = scry_cell_known(scry_share(row->calls, v->sums.watched_ns, 1000000000u),
				      is_counted && v->sums.watched_ns);
	c[COL_ERRORS] = scry_cell_known(row->errors, has_results);
	c[COL_AGAIN] = scry_cell_known(row->again, has_results);
	c[COL_ABSENT] = scry_cell_known(row->absent, has_results);
	c[COL_ERRNO] = scry_cell_known(row->error, row->error != 0);
	c[COL_TOTAL] = scry_cell_known(row->total_ns, row->timed != 0);
	c[COL_MEAN] = scry_cell_known(row->timed ? row->total_ns / row->timed : 0, row->timed != 0);
	c[COL_P50] = quantile(row, 500);
	c[COL_P99] = quantile(row, 990);
	c[COL_MAX] = scry_cell_known(row->max_ns, row->timed != 0);
	for (int i = 0; i < 4; i++)
		c[COL_MEAN_SHOWN + i] = time_cell(&c[COL_MEAN + i], shown[i]);
	c[COL_TIMED] = scry_cell_known(row->timed, scry_syscall_is_timed(v));
	c[COL_NAME] = site ? scry_functions_string(v->reader, site->name_str)
			   : scry_cell_text("total", 5);
	c[COL_NUMBER] =
		scry_cell_known(site ? site->number : 0, site && site->number < SCRY_SYSCALLS_NONE);
	c[COL_ABI] = scry_cell_text(site && site->abi ? "32" : "64", 2);
	c[COL_PLACE] = scry_cell_text(scry_buf_str(&place), place.len);
	c[COL_MODULE] = scry_functions_string(v->reader, site ? site->module_str : 0);
	c[COL_SYMBOL] = scry_functions_string(v->reader, site ? site->symbol_str : 0);
	c[COL_OFFSET] = scry_cell_known(site ? site->offset : 0, site && site->module_str);
	scry_syscall_put_line(v, row, &line);
	if (!line.len && v->opts->by == SCRY_VIEW_BY_LINE)
		scry_buf_printf(&line, "[no line]");
	line_cells(v, row, c);
	c[COL_LINE] = line.len ? scry_cell_text(line.data, line.len)
			       : (struct scry_cell){.is_unknown = true};
	c[COL_LINE_SHARE] = (struct scry_cell){.values = &line_share, .number = 1};
	c[COL_LINE_FRAMES] = (struct scry_cell){
		.is_unknown = !line_depth, .frames = line_frames, .number = line_depth};
	c[COL_CALLER] = caller.len ? scry_cell_text(caller.data, caller.len) : scry_cell_unknown();
	c[COL_FRAMES] = (struct scry_cell){.is_unknown = !depth, .frames = frames, .number = depth};
	c[COL_VERDICT] = said.len ? scry_cell_text(said.data, said.len) : scry_cell_unknown();
	c[COL_WHY] = scry_functions_string(v->reader, row->why_str);
	v->doc->ops->row(v->doc, c);
	scry_buf_done(&place);
	scry_buf_done(&caller);
	scry_buf_done(&said);
	scry_buf_done(&line);
}

bool scry_syscall_is_place_wanted(const struct scry_syscall_view *v,
				  const struct scry_syscall_row *row)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
	struct scry_buf text = {0};
	bool is;

	scry_syscall_put_line(v, row, &text);
	scry_buf_printf(&text, "\n%s\n", scry_syscall_text(v, site->name_str));
	scry_syscall_put_place(v, site, &text);
	scry_buf_printf(&text, "\n");
	scry_syscall_put_caller(v, row, &text);
	is = scry_grep_matches_row(v->grep, &text);
	scry_buf_done(&text);
	return is;
}

static bool is_wanted(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
	struct scry_buf text = {0};
	bool is;

	if (v->opts->by == SCRY_VIEW_BY_SITE)
		return scry_syscall_is_place_wanted(v, row);
	scry_syscall_put_line(v, row, &text);
	if (v->opts->by == SCRY_VIEW_BY_THREAD)
		scry_buf_printf(&text, "\n%s", scry_syscall_text(v, row->thread_str));
	else if (site)
		scry_buf_printf(&text, "\n%s", scry_syscall_text(v, site->name_str));
	is = scry_grep_matches_row(v->grep, &text);
	scry_buf_done(&text);
	return is;
}

static const struct scry_syscall_view *sorting;

static int by_weight(const void *left, const void *right)
{
	const struct scry_syscall_row *a = *(const struct scry_syscall_row *const *)left,
				      *b = *(const struct scry_syscall_row *const *)right;
	int order = 0;

	if (scry_syscall_is_timed(sorting) && sorting->opts->by != SCRY_VIEW_BY_SITE)
		order = scry_functions_compare(b->total_ns, a->total_ns);
	order = order ? order : scry_functions_compare(b->ticks, a->ticks);
	order = order ? order : scry_functions_compare(b->calls, a->calls);
	return order ? order : scry_functions_compare(a->site, b->site);
}

const struct scry_syscall_row **scry_syscall_sorted(const struct scry_syscall_view *v,
						    const struct scry_syscall_table *t)
{
	const struct scry_syscall_row **all = calloc(t->keys.count + 1, sizeof(*all));

	for (uint32_t i = 0; all && i < t->keys.count; i++)
		all[i] = &t->rows[i];
	sorting = v;
	if (all && t->keys.count)
		qsort(all, t->keys.count, sizeof(*all), by_weight);
	return all;
}

static uint64_t most_rows(const struct scry_syscall_view *v)
{
	/* who asks by call wants all of them, as of strace -c: there are a few dozen */
	if (v->opts->top == SCRY_VIEW_TOP_DEFAULT && v->opts->by == SCRY_VIEW_BY_SYSCALL)
		return 0;
	return scry_view_top(v->opts, v->doc);
}

int scry_syscall_push_rows(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts)
{
	const struct scry_syscall_table *t =
		v->opts->by == SCRY_VIEW_BY_SITE ? &v->places : &v->shown;
	const struct scry_syscall_row **rows = scry_syscall_sorted(v, t);
	struct scry_column columns[COLUMNS];
	struct scry_syscall_row total = {0};
	const uint64_t most = most_rows(v);
	struct scry_left_out left_out = {0};
	uint64_t shown = 0;

	if (!rows)
		return scry_fail(-ENOMEM, "no memory for rows of system calls");
	set_columns(v, columns);
	scry_doc_table(v->doc, columns, COLUMNS);
	for (uint32_t i = 0; i < t->keys.count; i++) {
		const struct scry_syscall_row *row = rows[i];

		if (!is_wanted(v, row)) {
			left_out.by_grep++;
			continue;
		}
		if (most && shown == most)
			left_out.by_top++;
		else
			push_row(v, row, row->verdict ? &verdicts[row->verdict - 1] : NULL);
		shown += !most || shown < most;
		total.why_str = total.why_str ? total.why_str : row->why_str;
		total.calls += row->calls;
		total.errors += row->errors;
		total.ticks += row->ticks;
		total.timed += row->timed;
		total.total_ns += row->total_ns;
		total.max_ns = row->max_ns > total.max_ns ? row->max_ns : total.max_ns;
	}
	if (!v->doc->is_data && v->opts->by == SCRY_VIEW_BY_SYSCALL && shown > 1)
		push_row(v, &total, NULL);
	scry_left_out_push(&left_out, v->doc);
	free(rows);
	return 0;
}

static uint64_t most_verdicts(const struct scry_syscall_view *v)
{
	if (v->opts->top == SCRY_VIEW_TOP_DEFAULT)
		return v->doc->is_data ? 0 : VERDICTS_SHOWN;
	return v->opts->top;
}

static void push_table(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts,
		       size_t count)
{
	static const struct scry_column columns[] = {
		{"in vain", "count", SCRY_CELL_COUNT, NULL, 0},
		{"of", "of", SCRY_CELL_COUNT, NULL, 0},
		{"time %", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{NULL, "share", SCRY_CELL_VALUE, NULL, 0},
		{"grade", "grade", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "pattern", SCRY_CELL_TEXT, NULL, 0},
		{"syscall", "name", SCRY_CELL_TEXT, NULL, 0},
		{"from", "from", SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
		{"they", "did", SCRY_CELL_TEXT, NULL, SCRY_COLUMN_CUT_AT_END},
		{NULL, "paths", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "directories", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "cure", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "risk", SCRY_CELL_TEXT, NULL, 0},
	};
	const uint64_t most = most_verdicts(v);

	v->doc->section = "verdicts";
	v->doc->title = "calls in vain";
	scry_doc_table(v->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < count && (!most || i < most); i++) {
		const struct scry_syscall_verdict *d = &verdicts[i];
		const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, d->row);
		const uint64_t whole = scry_syscall_has_vain_ticks(v) ? v->sums.ticks : 0;
		const struct scry_doc_value share = scry_syscall_share(d->ticks, whole);
		const char *grade = scry_syscall_grade_name(d->grade);
		struct scry_buf place = {0}, paths = {0}, directories = {0};

		scry_syscall_put_place(v, site, &place);
		if (!v->doc->is_data)
			scry_syscall_shorten(&place);
		if (d->has_paths && i < SCRY_SYSCALL_WITH_PATHS) {
			scry_syscall_put_paths(v, d->row, false, &paths);
			scry_syscall_put_paths(v, d->row, true, &directories);
		}
		const struct scry_cell cells[] = {
			scry_cell_number(d->vain),
			scry_cell_number(d->of),
			tenths(d->ticks, whole),
			{.values = &share, .number = 1},
			scry_cell_text(grade, strlen(grade)),
			scry_cell_text(d->pattern, strlen(d->pattern)),
			scry_functions_string(v->reader, site->name_str),
			scry_cell_text(scry_buf_str(&place), place.len),
			scry_cell_text(d->did, strlen(d->did)),
			paths.len ? scry_cell_text(paths.data, paths.len) : scry_cell_unknown(),
			directories.len ? scry_cell_text(directories.data, directories.len)
					: scry_cell_unknown(),
			scry_cell_text(d->cure, strlen(d->cure)),
			scry_cell_text(d->risk, strlen(d->risk)),
		};

		v->doc->ops->row(v->doc, cells);
		scry_buf_done(&place);
		scry_buf_done(&paths);
		scry_buf_done(&directories);
	}
	v->doc->section = v->doc->title = NULL;
}

/* What ends each kind, once. */
static void push_cures(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts,
		       size_t count)
{
	const uint64_t most = most_verdicts(v);
	const char *told[CURES_MAX];
	size_t cures = 0;

	if (v->doc->is_data)
		return;
	if (most && count > most)
		scry_left_out_push(&(struct scry_left_out){.noun = "kinds of calls in vain",
							   .by_top = count - most},
				   v->doc);
	for (size_t i = 0; i < count && (!most || i < most); i++) {
		struct scry_buf paths = {0};
		size_t k = 0;

		if (i < SCRY_SYSCALL_WITH_PATHS)
			scry_syscall_put_paths(v, verdicts[i].row, true, &paths);
		if (paths.len && verdicts[i].has_paths)
			scry_doc_remark(v->doc, "%s: most were asked for in %s",
					verdicts[i].pattern, paths.data);
		scry_buf_done(&paths);
		while (k < cures && told[k] != verdicts[i].cure)
			k++;
		if (k < cures || cures == CURES_MAX)
			continue;
		told[cures++] = verdicts[i].cure;
		scry_doc_remark(v->doc, "%s: fix: %s (risk: %s)", verdicts[i].pattern,
				verdicts[i].cure, verdicts[i].risk);
	}
}

void scry_syscall_push_verdicts(struct scry_syscall_view *v, struct scry_syscall_verdict *verdicts,
				size_t count)
{
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		if (scry_syscall_is_place_wanted(v, verdicts[i].row))
			verdicts[wanted++] = verdicts[i];
	if (!wanted && !v->doc->is_data)
		return;
	push_table(v, verdicts, wanted);
	push_cures(v, verdicts, wanted);
}
