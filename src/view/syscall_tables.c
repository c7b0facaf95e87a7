/* Tables of the syscalls view: rows, and calls in vain. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "view/functions.h"
#include "view/syscall_columns.h"
#include "view/syscalls.h"
#include "wire/bpf_syscalls.h"
#include "view/table.h"

#define WORD_MOST 40   /* columns: of a longer symbol the middle is left out */
#define CALLER_MOST 90 /* percent: it stands for all */
#define VERDICTS_SHOWN 10
#define PATHS_MAX (1u << 16)
#define CURES_MAX 64 /* there are fewer patterns */

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

struct scry_cell scry_syscall_tenths(uint64_t part, uint64_t whole)
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

struct scry_cell scry_syscall_share_cell(uint64_t part, uint64_t whole,
					 struct scry_doc_value *value)
{
	*value = scry_syscall_share(part, whole);
	return (struct scry_cell){.values = value, .number = 1};
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

uint64_t scry_syscall_line_whole(const struct scry_syscall_row *row)
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
	if (!text ||
	    scry_syscall_line_whole(row) - row->lines_seen + row->lineless > row->line_seen) {
		text = "[no line]";
		seen = scry_syscall_line_whole(row) - row->lines_seen + row->lineless;
	}
	if (row->lines_seen && seen * 100 < scry_syscall_line_whole(row) * CALLER_MOST)
		scry_buf_printf(
			buf, "%llu %% ",
			(unsigned long long)scry_share(seen, scry_syscall_line_whole(row), 100));
	scry_buf_printf(buf, "%s", text);
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
	return order ? order : scry_functions_compare(b->calls, a->calls);
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
	/* by call all of them are shown, as strace -c does: there are a few dozen */
	if (v->opts->top == SCRY_VIEW_TOP_DEFAULT && v->opts->by == SCRY_VIEW_BY_SYSCALL)
		return 0;
	return scry_view_top(v->opts, v->doc);
}

static void add(struct scry_syscall_row *total, const struct scry_syscall_row *row)
{
	total->why_str = total->why_str ? total->why_str : row->why_str;
	total->calls += row->calls;
	total->errors += row->errors;
	total->ticks += row->ticks;
	total->timed += row->timed;
	total->total_ns += row->total_ns;
	total->max_ns = row->max_ns > total->max_ns ? row->max_ns : total->max_ns;
}

int scry_syscall_push_rows(struct scry_syscall_view *v)
{
	const struct scry_syscall_table *t =
		v->opts->by == SCRY_VIEW_BY_SITE ? &v->places : &v->shown;
	const struct scry_syscall_row **rows = scry_syscall_sorted(v, t);
	struct scry_column columns[SCRY_DOC_COLUMNS_MAX];
	struct scry_syscall_row total = {0};
	struct scry_table table = {.columns = columns,
				   .column_count = scry_syscall_columns(v, columns),
				   SCRY_ROW_POINTERS(rows, t->keys.count),
				   .view = v,
				   .grep = v->grep,
				   .filter = &v->opts->filter,
				   .sort = v->opts->sort_key,
				   .order = by_weight,
				   .top = most_rows(v)};

	if (!rows)
		return scry_no_memory("rows of system calls");
	if (!v->doc->is_data && v->opts->by == SCRY_VIEW_BY_SYSCALL) {
		for (uint32_t i = 0; i < t->keys.count; i++)
			if (scry_table_wants(&table, rows[i]))
				add(&total, rows[i]);
		table.last = &total;
	}
	scry_table_push(&table, v->doc);
	free(rows);
	return 0;
}

static uint64_t most_verdicts(const struct scry_syscall_view *v)
{
	if (v->opts->top == SCRY_VIEW_TOP_DEFAULT)
		return v->doc->is_data ? 0 : VERDICTS_SHOWN;
	return v->opts->top;
}

static struct scry_cell paths_cell(const struct scry_syscall_view *v,
				   const struct scry_syscall_verdict *d, bool directories,
				   struct scry_buf *buf)
{
	if (d->has_paths && d - v->verdicts < SCRY_SYSCALL_WITH_PATHS)
		scry_syscall_put_paths(v, d->row, directories, buf);
	return scry_cell_buf(buf);
}

static struct scry_cell from_cell(const struct scry_syscall_view *v,
				  const struct scry_syscall_verdict *d, struct scry_buf *buf)
{
	scry_syscall_put_place(v, scry_syscall_site_of(v, d->row), buf);
	if (!v->doc->is_data)
		scry_syscall_shorten(buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

static uint64_t vain_whole(const struct scry_syscall_view *v)
{
	return scry_syscall_has_vain_ticks(v) ? v->sums.ticks : 0;
}

#define VERDICT(member) SCRY_AT(struct scry_syscall_verdict, member)
#define GET_VERDICT(get, ...) \
	SCRY_GET(get, struct scry_syscall_verdict, struct scry_syscall_view, __VA_ARGS__)

GET_VERDICT(get_vain_share, scry_syscall_tenths(row->ticks, vain_whole(view)))
GET_VERDICT(get_vain_data, scry_syscall_share_cell(row->ticks, vain_whole(view), &view->shares[0]))
GET_VERDICT(get_grade, scry_cell_string(scry_syscall_grade_name(row->grade)))
GET_VERDICT(get_pattern, scry_cell_string(row->pattern))
GET_VERDICT(get_vain_name,
	    scry_functions_string(view->reader, scry_syscall_site_of(view, row->row)->name_str))
GET_VERDICT(get_from, from_cell(view, row, buf))
GET_VERDICT(get_did, scry_cell_string(row->did))
GET_VERDICT(get_paths, paths_cell(view, row, false, buf))
GET_VERDICT(get_directories, paths_cell(view, row, true, buf))
GET_VERDICT(get_cure, scry_cell_string(row->cure))
GET_VERDICT(get_risk, scry_cell_string(row->risk))

static void push_table(struct scry_syscall_view *v, size_t count)
{
	static const struct scry_column columns[] = {
		{"in vain", "count", SCRY_CELL_COUNT, VERDICT(vain)},
		{"of", "of", SCRY_CELL_COUNT, VERDICT(of)},
		{"time %", NULL, SCRY_CELL_TENTHS, get_vain_share, 0},
		{NULL, "share", SCRY_CELL_VALUE, get_vain_data, 0},
		{"grade", "grade", SCRY_CELL_TEXT, get_grade, 0},
		{NULL, "pattern", SCRY_CELL_TEXT, get_pattern, 0},
		{"syscall", "name", SCRY_CELL_TEXT, get_vain_name, 0},
		{"from", "from", SCRY_CELL_TEXT, get_from, SCRY_COLUMN_ELASTIC},
		{"they", "did", SCRY_CELL_TEXT, get_did, SCRY_COLUMN_CUT_AT_END},
		{NULL, "paths", SCRY_CELL_TEXT, get_paths, 0},
		{NULL, "directories", SCRY_CELL_TEXT, get_directories, 0},
		{NULL, "cure", SCRY_CELL_TEXT, get_cure, 0},
		{NULL, "risk", SCRY_CELL_TEXT, get_risk, 0},
	};

	v->doc->section = "verdicts";
	v->doc->title = "calls in vain";
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns), SCRY_ROWS(v->verdicts, count),
					     .view = v, .order = scry_syscall_verdict_compare,
					     .top = most_verdicts(v),
					     .noun = "kinds of calls in vain"},
			v->doc);
	v->doc->section = v->doc->title = NULL;
}

/* What ends each kind, once. */
static void push_cures(struct scry_syscall_view *v, size_t count)
{
	const struct scry_syscall_verdict *verdicts = v->verdicts;
	const uint64_t most = most_verdicts(v);
	const char *shown[CURES_MAX];
	size_t cures = 0;

	if (v->doc->is_data)
		return;
	for (size_t i = 0; i < count && (!most || i < most); i++) {
		struct scry_buf paths = {0};
		size_t k = 0;

		if (i < SCRY_SYSCALL_WITH_PATHS)
			scry_syscall_put_paths(v, verdicts[i].row, true, &paths);
		if (paths.len && verdicts[i].has_paths)
			scry_doc_remark(v->doc, "%s: most were asked for in %s",
					verdicts[i].pattern, paths.data);
		scry_buf_done(&paths);
		while (k < cures && shown[k] != verdicts[i].cure)
			k++;
		if (k < cures || cures == CURES_MAX)
			continue;
		shown[cures++] = verdicts[i].cure;
		scry_doc_remark(v->doc, "%s: fix: %s (risk: %s)", verdicts[i].pattern,
				verdicts[i].cure, verdicts[i].risk);
	}
}

/* By --filter: as a row of the table of places. */
static bool is_let_through(struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	struct scry_column columns[SCRY_DOC_COLUMNS_MAX];
	const struct scry_table table = {.columns = columns,
					 .column_count = scry_syscall_columns(v, columns),
					 .view = v,
					 .filter = &v->opts->filter};

	return scry_table_wants(&table, row);
}

static bool is_place_wanted(struct scry_syscall_view *v, const struct scry_syscall_row *row)
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
	return is && (v->opts->by != SCRY_VIEW_BY_SITE || is_let_through(v, row));
}

void scry_syscall_push_verdicts(struct scry_syscall_view *v, size_t count)
{
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		if (is_place_wanted(v, v->verdicts[i].row))
			v->verdicts[wanted++] = v->verdicts[i];
	if (!wanted && !v->doc->is_data)
		return;
	push_table(v, wanted);
	push_cures(v, wanted);
}
