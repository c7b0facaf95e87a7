/*
 * The malloc view: which callers hold the memory, at its peak or later, and whether it grows.
 *
 * Tables are of one process: --pid, else the one that made most calls.
 */
#include "view/malloc.h"

#include "base/err.h"
#include "base/opt.h"
#include "base/text.h"
#include "view/functions.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/malloc_growth.h"
#include "view/malloc_lines.h"
#include "view/malloc_places.h"
#include "view/malloc_sizes.h"
#include "view/malloc_tables.h"
#include "view/malloc_tree.h"
#include "view/malloc_verdict.h"
#include "view/table.h"
#include "view/verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum moment {
	MOMENT_PEAK,
	MOMENT_END,
	MOMENT_TIME,
};

static const char *const at_titles[] = {
	[MOMENT_PEAK] = "bytes at peak",
	[MOMENT_END] = "bytes at end",
	[MOMENT_TIME] = "bytes then",
};

#define LOST 1000	/* one of so many calls: more missing ones, and no verdict can be given */
#define GROWING_NAMED 3 /* callers named */
#define OTHERS_NAMED 3	/* programs named in a line; the table at the end has all */

struct malloc_view {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_data_quality quality;
	enum scry_malloc_verdict verdict;
	bool is_cut; /* more was lost than a verdict can do without */
	struct scry_malloc_sum sum;
	struct scry_malloc_process *process;
	struct scry_malloc_places places;
	struct scry_malloc_lines lines;
	enum moment moment;
	uint64_t time_ns; /* since the beginning; MOMENT_TIME */
	uint64_t end_ns;  /* of the recording */
	struct scry_buf buf;
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH]; /* of the row that is printed, and: */
	struct scry_doc_value sizes[SCRY_MALLOC_SIZE_VALUES];
};

/* --at as one of the moments. 0 or -EINVAL with a sentence. */
static int read_moment(const char *text, enum moment *ret_moment, uint64_t *ret_ns)
{
	*ret_moment = MOMENT_PEAK;
	if (!text || !strcmp(text, "peak"))
		return 0;
	*ret_moment = MOMENT_END;
	if (!strcmp(text, "end"))
		return 0;
	*ret_moment = MOMENT_TIME;
	if (scry_opt_read_duration(text, ret_ns))
		return scry_fail(-EINVAL,
				 "invalid --at '%s'; fix: peak, end, or a time since "
				 "the beginning, as 30s",
				 text);
	return 0;
}

int scry_view_malloc_check(const struct scry_view_opts *opts)
{
	enum moment moment;
	uint64_t ns;

	return read_moment(opts->at, &moment, &ns);
}

/* What lives `at` a moment is what --at asks for, from here on. */
static void settle_moment(struct malloc_view *v)
{
	struct scry_malloc_process *p = v->process;

	if (v->moment == MOMENT_TIME)
		return;
	p->at = v->moment == MOMENT_PEAK ? p->peak : p->live;
	for (uint32_t i = 0; i < p->caller_count; i++)
		p->callers[i].at =
			v->moment == MOMENT_PEAK ? p->callers[i].peak : p->callers[i].live;
}

static bool is_empty(const struct scry_malloc_process *p)
{
	return !p || (!p->calls && !p->functions[SCRY_MALLOC_OLDER]);
}

static uint64_t since(const struct malloc_view *v, uint64_t ns)
{
	uint64_t start = v->sum.began_ns;

	return ns > start ? ns - start : 0;
}

struct row {
	const struct scry_malloc_caller_sum *caller;
	uint64_t key;
	uint64_t bytes_per_s; /* that it grew by; 0: not, or not sorted by it */
};

static int compare_rows(const void *left, const void *right)
{
	const struct row *a = left, *b = right;
	int order = scry_functions_compare(b->bytes_per_s, a->bytes_per_s);

	order = order ? order : scry_functions_compare(b->key, a->key);
	return order ? order : scry_functions_compare(b->caller->bytes, a->caller->bytes);
}

static uint64_t row_key(const struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	switch (v->opts->sort) {
	case SCRY_VIEW_SORT_ALLOCATED:
		return c->allocated;
	case SCRY_VIEW_SORT_BYTES:
		return c->bytes;
	case SCRY_VIEW_SORT_LIVE:
		return c->at.blocks;
	case SCRY_VIEW_SORT_TEMPORARY:
		return c->temporary;
	default:
		return c->at.bytes;
	}
}

static void put_place(const struct malloc_view *v, const struct row *row)
{
	struct scry_buf *buf = (struct scry_buf *)&v->buf;

	scry_buf_clear(buf);
	scry_malloc_places_put(&v->places, row->caller, buf);
}

/* In a sentence: of a stack the end. */
static void put_short(const struct malloc_view *v, const struct row *row)
{
	struct scry_buf *buf = (struct scry_buf *)&v->buf;
	const char *at;
	size_t skip, arrows = 0;

	put_place(v, row);
	if (v->places.by != SCRY_VIEW_BY_STACK)
		return;
	for (at = buf->data + buf->len; at > buf->data && arrows < 4; at--)
		arrows += at[-1] == '>';
	skip = (size_t)(at - buf->data);
	if (arrows < 4 || skip < 3)
		return; /* "..." is no shorter */
	memmove(buf->data + 3, buf->data + skip, buf->len - skip + 1);
	memcpy(buf->data, "...", 3);
	buf->len -= skip - 3;
}

static uint64_t percent(uint64_t part, uint64_t whole)
{
	return scry_share(part, whole, 100);
}

/* Where something leaks it comes above all else. */
static struct row row_of(const struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	struct scry_malloc_growth growth = {0};

	if (v->verdict == SCRY_MALLOC_VERDICT_GROWS && v->opts->sort == SCRY_VIEW_SORT_DEFAULT)
		scry_malloc_caller_growth(v->process, c, &growth);
	return (struct row){c, row_key(v, c), growth.bytes_per_s};
}

static const struct malloc_view *sorting;

static int compare_callers(const void *left, const void *right)
{
	const struct row a = row_of(sorting, *(const struct scry_malloc_caller_sum *const *)left);
	const struct row b = row_of(sorting, *(const struct scry_malloc_caller_sum *const *)right);

	return compare_rows(&a, &b);
}

static struct scry_cell growth_rate(const struct malloc_view *v,
				    const struct scry_malloc_caller_sum *c)
{
	struct scry_malloc_growth growth = {0};
	const bool grows = scry_malloc_caller_growth(v->process, c, &growth);

	return (struct scry_cell){.number = growth.bytes_per_s,
				  .is_unknown = !grows,
				  .is_blank = !grows,
				  .mark = grows ? '+' : ' '};
}

static struct scry_cell growth(const struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	uint64_t half = 0;
	const bool has_half = scry_malloc_caller_half(v->process, c, &half);

	return scry_cell_known(half, has_half);
}

static struct scry_cell frames(struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	struct scry_doc_frame *caller = &v->frames[0];
	uint32_t depth;

	if (v->places.by != SCRY_VIEW_BY_STACK)
		return scry_cell_unknown();
	depth = scry_native_frames_all(&v->sum.stacks, v->reader, c->name.stack, v->frames);
	if (!depth) { /* recorded without: the caller alone */
		*caller = (struct scry_doc_frame){.is_native = true, .offset = c->name.offset};
		caller->file =
			scry_reader_string(v->reader, c->name.module_str, &caller->file_length);
		caller->method =
			scry_reader_string(v->reader, c->name.symbol_str, &caller->method_length);
		depth = 1;
	}
	return (struct scry_cell){.number = depth, .frames = v->frames};
}

static struct scry_cell sizes(struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	const uint32_t count = scry_malloc_sizes_values(c, v->sizes);

	return (struct scry_cell){.number = count, .values = v->sizes};
}

/* 0 too where the row is a whole module or function, which is more than one of its lines. */
static uint32_t line_of(struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	const int by = v->places.by;

	return by == SCRY_VIEW_BY_MODULE || by == SCRY_VIEW_BY_FILE || by == SCRY_VIEW_BY_METHOD
		       ? 0
		       : scry_malloc_lines_find(&v->lines, &c->name);
}

static struct scry_cell source_line(struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	const uint32_t line = line_of(v, c);

	return scry_cell_known(line, line != 0);
}

static struct scry_cell source_file(struct malloc_view *v, const struct scry_malloc_caller_sum *c)
{
	const uint32_t line = line_of(v, c);

	return scry_cell_string(line ? scry_buf_str(&v->lines.file) : NULL);
}

static struct scry_cell place(struct malloc_view *v, const struct scry_malloc_caller_sum *c,
			      struct scry_buf *buf)
{
	const uint32_t line = v->doc->is_data ? 0 : line_of(v, c);

	scry_malloc_places_put(&v->places, c, buf);
	if (line) {
		const char *file = scry_buf_str(&v->lines.file), *slash = strrchr(file, '/');

		scry_buf_printf(buf, " %s:%u", slash ? slash + 1 : file, line);
	}
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

static struct scry_cell share(uint64_t part, uint64_t whole)
{
	return scry_cell_known(percent(part, whole), whole != 0);
}

#define GET(get, ...) SCRY_GET(get, struct scry_malloc_caller_sum, struct malloc_view, __VA_ARGS__)
#define NUMBER(member) SCRY_AT(struct scry_malloc_caller_sum, member)
#define GET_STRING(get, id) GET(get, scry_functions_string(view->reader, row->name.id))

GET(get_share, scry_cell_number(percent(row->at.bytes, view->process->at.bytes)))
GET(get_short_share, share(row->short_lived, row->allocated))
GET(get_temporary, scry_cell_known(row->temporary, !view->process->has_more_threads))
GET(get_growth_rate, growth_rate(view, row))
GET(get_kept_share, share(row->live.blocks, row->allocated))
GET(get_growth, growth(view, row))
GET(get_is_growing, scry_cell_number(!growth_rate(view, row).is_unknown))
GET_STRING(get_module, module_str)
GET_STRING(get_symbol, symbol_str)
GET(get_offset, scry_cell_known(row->name.offset, row->name.offset != 0))
GET_STRING(get_file, file_str)
GET(get_line, scry_cell_known(row->name.line, row->name.line != 0))
GET_STRING(get_method, method_str)
GET(get_frames, frames(view, row))
GET(get_sizes, sizes(view, row))
GET(get_source_file, source_file(view, row))
GET(get_source_line, source_line(view, row))
GET(get_place, place(view, row, buf))

static void push_rows(struct malloc_view *v, const struct scry_malloc_caller_sum *const *rows,
		      uint32_t count, const struct scry_grep *grep)
{
	const struct scry_column columns[] = {
		{at_titles[v->moment], "at_bytes", SCRY_CELL_COUNT, NUMBER(at.bytes)},
		{"blocks", "at_blocks", SCRY_CELL_COUNT, NUMBER(at.blocks)},
		{"%", NULL, SCRY_CELL_COUNT, get_share, 0},
		{"allocated", "allocated", SCRY_CELL_COUNT, NUMBER(allocated)},
		{"bytes", "bytes", SCRY_CELL_COUNT, NUMBER(bytes)},
		{"short %", NULL, SCRY_CELL_COUNT, get_short_share, 0},
		{"temporary", "temporary", SCRY_CELL_COUNT, get_temporary, 0},
		{"growth/s", "growth_bytes_per_s", SCRY_CELL_COUNT, get_growth_rate, 0},
		{"kept %", "never_freed_pct", SCRY_CELL_COUNT, get_kept_share, 0},
		{NULL, "growth_bytes", SCRY_CELL_DELTA, get_growth, 0},
		{NULL, "ended", SCRY_CELL_COUNT, NUMBER(ended)},
		{NULL, "short_lived", SCRY_CELL_COUNT, NUMBER(short_lived)},
		{NULL, "peak_bytes", SCRY_CELL_COUNT, NUMBER(peak.bytes)},
		{NULL, "peak_blocks", SCRY_CELL_COUNT, NUMBER(peak.blocks)},
		{NULL, "end_bytes", SCRY_CELL_COUNT, NUMBER(live.bytes)},
		{NULL, "end_blocks", SCRY_CELL_COUNT, NUMBER(live.blocks)},
		{NULL, "is_growing", SCRY_CELL_BOOL, get_is_growing, 0},
		{NULL, "caller", SCRY_CELL_NUMBER, NUMBER(name.caller)},
		{NULL, "module", SCRY_CELL_TEXT, get_module, 0},
		{NULL, "symbol", SCRY_CELL_SYMBOL, get_symbol, 0},
		{NULL, "offset", SCRY_CELL_NUMBER, get_offset, 0},
		{NULL, "file", SCRY_CELL_TEXT, get_file, SCRY_COLUMN_GREP}, /* whole */
		{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
		{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
		{NULL, "frames", SCRY_CELL_FRAMES, get_frames, 0},
		{NULL, "sizes", SCRY_CELL_VALUES, get_sizes, 0},
		{NULL, "source_file", SCRY_CELL_TEXT, get_source_file, 0},
		{NULL, "source_line", SCRY_CELL_NUMBER, get_source_line, 0},
		{scry_malloc_places_noun(&v->places, 1), NULL, SCRY_CELL_TEXT, get_place,
		 SCRY_COLUMN_ELASTIC | SCRY_COLUMN_GREP},
	};

	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns), SCRY_ROW_POINTERS(rows, count),
					     .view = v, .grep = grep, .sort = v->opts->sort_key,
					     .order = compare_callers, .filter = &v->opts->filter,
					     .top = scry_view_top(v->opts, v->doc),
					     .noun = scry_malloc_places_noun(&v->places, 2)},
			v->doc);
}

static int push_callers(struct malloc_view *v)
{
	const struct scry_malloc_process *p = v->process;
	const struct scry_malloc_caller_sum **sorted = calloc(p->caller_count + 1, sizeof(*sorted));
	struct row *rows = calloc(p->caller_count + 1, sizeof(*rows));
	struct scry_grep grep;
	uint32_t i, count = 0;
	int err =
		rows && sorted ? scry_grep_init(&grep, v->opts->grep) : scry_no_memory("the rows");

	if (err)
		goto out;
	for (i = 0; i < p->caller_count; i++)
		if (p->callers[i].allocated)
			rows[count++] = row_of(v, &p->callers[i]);
	sorting = v;
	qsort(rows, count, sizeof(*rows), compare_rows);
	for (i = 0; i < count; i++)
		sorted[i] = rows[i].caller;
	v->doc->weight = v->opts->sort == SCRY_VIEW_SORT_ALLOCATED   ? "allocated"
			 : v->opts->sort == SCRY_VIEW_SORT_BYTES     ? "bytes"
			 : v->opts->sort == SCRY_VIEW_SORT_LIVE	     ? "at_blocks"
			 : v->opts->sort == SCRY_VIEW_SORT_TEMPORARY ? "temporary"
								     : "at_bytes";
	push_rows(v, sorted, count, &grep);
	scry_doc_remark(v->doc,
			"short %%: of the blocks, ended within %u calls of malloc and free; "
			"temporary: freed or resized by the thread that made them, before it made "
			"another; growth/s: bytes by which what lives rose each second, to the end "
			"(+), and "
			"the share of the caller's blocks that was never freed",
			SCRY_MALLOC_SHORT_CALLS);
	scry_grep_done(&grep);
out:
	free(sorted);
	free(rows);
	return err;
}

static void push_totals(struct malloc_view *v)
{
	const struct scry_malloc_process *p = v->process;
	const char *word = scry_malloc_verdict_word(v->verdict);
	bool has_rss = p->rss_peak != 0 && scry_malloc_is_measured(p);
	uint64_t explained = percent(p->taken_peak, p->rss_peak);
	struct scry_cell verdict = scry_cell_text(word, strlen(word));
	struct scry_cell pid = scry_cell_number(p->pid);

	verdict.is_blank = true; /* people have the sentence */
	pid.is_blank = v->sum.count < 2;
	const struct scry_pair pairs[] = {
		{"pid", "is the process shown", SCRY_CELL_NUMBER, 0, pid},
		{"verdict", "verdict", SCRY_CELL_TEXT, 0, verdict},
		{"allocator", "serves malloc", SCRY_CELL_TEXT, 0,
		 scry_functions_string(v->reader, p->allocator.name_str ? p->allocator.name_str
									: p->allocator.module_str)},
		{"peak_bytes", "bytes live at the peak", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->peak.bytes)},
		{"peak_blocks", "blocks of it", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->peak.blocks)},
		{"peak_taken_bytes", "bytes that live blocks took up at most, heads included",
		 SCRY_CELL_COUNT, 0, scry_cell_number(p->taken_peak)},
		{"peak_ns", "s after the beginning, the peak", SCRY_CELL_TIME, 0,
		 scry_cell_number(since(v, p->peak_ns))},
		{"end_bytes", "bytes live at the end", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->live.bytes)},
		{"end_blocks", "blocks of it", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->live.blocks)},
		{"rss_peak_bytes",
		 p->rss_peak < p->peak.bytes
			 ? "resident bytes (anonymous), the most seen by looks now and then: fewer "
			   "than were live (not touched, or gone between two looks)"
			 : "resident bytes (anonymous), the most seen by looks now and then",
		 SCRY_CELL_COUNT, 0, scry_cell_known(p->rss_peak, has_rss)},
		{"held_peak_bytes", "bytes that malloc held of the kernel's, the most seen",
		 SCRY_CELL_COUNT, 0, scry_cell_known(p->held_peak, p->held_peak != 0)},
		{"rss_explained_pct", "% of them are explained by what live blocks took up",
		 SCRY_CELL_COUNT, 0,
		 scry_cell_known(explained < 100 ? explained : 100,
				 scry_malloc_peak_looked_at(p) && !scry_malloc_older_unknown(p))},
		{"arenas", p->arenas == 1 ? "arena of malloc" : "arenas of malloc at most",
		 SCRY_CELL_COUNT, 0, scry_cell_known(p->arenas, p->arenas != 0)},
		{"arenas_held_bytes", "bytes that malloc held in those of threads", SCRY_CELL_COUNT,
		 0, scry_cell_known(p->arenas_held, p->arenas != 0)},
		{"allocated", "blocks allocated or resized", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->allocated)},
		{"bytes", "bytes asked for", SCRY_CELL_COUNT, 0, scry_cell_number(p->bytes)},
		{"ended", "blocks freed", SCRY_CELL_COUNT, 0, scry_cell_number(p->ended)},
		{"short_lived_pct", "% of them short-lived", SCRY_CELL_COUNT, 0,
		 scry_cell_known(percent(p->short_lived, p->lived), p->lived != 0)},
		{"temporary", "blocks temporary", SCRY_CELL_COUNT, 0,
		 scry_cell_known(p->temporary, !p->has_more_threads)},
		{"foreign_ends_pct", "% of them freed by another thread", SCRY_CELL_COUNT, 0,
		 scry_cell_known(percent(p->foreign_ends, p->lived), p->lived != 0)},
		{"unknown_ends",
		 "blocks freed that were not known: older, and not found at the beginning",
		 SCRY_CELL_COUNT, 0, scry_cell_number(p->unknown_ends)},
		{"older_blocks", "blocks found at the beginning", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->functions[SCRY_MALLOC_OLDER])},
		{"null_frees", "calls of free(NULL)", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->null_frees)},
		{"failed", "calls that got no memory", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->failed)},
		{"threads", p->threads == 1 ? "thread" : "threads", SCRY_CELL_COUNT, 0,
		 scry_cell_number(p->threads)},
	};

	v->doc->ops->totals(v->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

static void note(struct malloc_view *v, struct scry_buf *line)
{
	v->doc->ops->note(v->doc, line->data, line->len);
	scry_buf_clear(line);
}

/* Those that grew fastest, each with what it never gave back. */
static void note_growing(struct malloc_view *v, struct scry_buf *line)
{
	const struct scry_malloc_process *p = v->process;
	struct row most[GROWING_NAMED + 1] = {0};
	uint32_t count = 0, named;

	for (uint32_t i = 0; i < p->caller_count; i++) {
		const struct scry_malloc_caller_sum *c = &p->callers[i];
		struct scry_malloc_growth g;
		uint32_t at = count < GROWING_NAMED ? count : GROWING_NAMED;

		if (!scry_malloc_caller_growth(p, c, &g))
			continue;
		most[at] = (struct row){c, g.bytes, g.bytes_per_s};
		for (; at && compare_rows(&most[at - 1], &most[at]) > 0; at--) {
			struct row other = most[at];

			most[at] = most[at - 1];
			most[at - 1] = other;
		}
		count++;
	}
	named = count < GROWING_NAMED ? count : GROWING_NAMED;
	if (!count)
		return;
	scry_buf_printf(line, "%u caller%s grew%s: ", count, count == 1 ? "" : "s",
			count > named ? ", most of all" : "");
	for (uint32_t i = 0; i < named; i++) {
		const struct scry_malloc_caller_sum *c = most[i].caller;

		put_short(v, &most[i]);
		scry_buf_printf(line, "%s", i ? "; " : "");
		scry_buf_append(line, v->buf.data, v->buf.len);
		scry_buf_printf(line, " by ");
		scry_text_size(line, most[i].bytes_per_s);
		scry_buf_printf(line, " a second, %u %% of its blocks were %s",
				(unsigned int)percent(c->last.blocks, c->allocated),
				p->is_released ? "not freed before the end" : "never freed");
	}
	note(v, line);
}

static void note_peak(struct malloc_view *v, struct scry_buf *line, const struct row *most)
{
	const struct scry_malloc_process *p = v->process;

	put_short(v, most);
	scry_buf_printf(line, "the peak of ");
	scry_text_size(line, p->peak.bytes);
	scry_buf_printf(line, " was after ");
	scry_text_duration(line, since(v, p->peak_ns));
	scry_buf_printf(line, "; %u %% of it came from ",
			(unsigned int)percent(most->key, p->peak.bytes));
	scry_buf_append(line, v->buf.data, v->buf.len);
	note(v, line);
}

/* What grew and what made the peak: what to look at first. */
static void note_callers(struct malloc_view *v)
{
	const struct scry_malloc_process *p = v->process;
	struct scry_buf line = {0};
	struct row most = {0};

	for (uint32_t i = 0; i < p->caller_count; i++) {
		const struct scry_malloc_caller_sum *c = &p->callers[i];

		if (!most.caller || c->peak.bytes > most.key)
			most = (struct row){c, c->peak.bytes, 0};
	}
	if (!v->is_cut)
		note_growing(v, &line);
	if (p->peak.bytes)
		note_peak(v, &line, &most);
	scry_malloc_places_wrappers(&v->places, &line);
	if (line.len)
		note(v, &line);
	scry_buf_done(&line);
}

/* A share of what was recorded is not by how much it was slower. */
static void note_slowdown(struct malloc_view *v)
{
	const struct scry_data_quality *h = &v->quality;
	struct scry_buf line = {0};
	double slower;

	if (!h->has_totals || !h->overhead_cpu_ns || h->overhead_cpu_ns >= h->target_cpu_ns)
		return;
	slower = (double)h->overhead_cpu_ns / (double)(h->target_cpu_ns - h->overhead_cpu_ns);
	scry_buf_printf(&line,
			"recording took about %.*f %% of processor time on top of what the program "
			"takes without it",
			slower < 0.0995 ? 1 : 0, slower * 100);
	v->doc->is_cost = true;
	note(v, &line);
	v->doc->is_cost = false;
	scry_buf_done(&line);
}

/* --at behind the end. */
static void note_moment(struct malloc_view *v)
{
	uint64_t end = since(v, v->end_ns);
	struct scry_buf line = {0};

	if (v->moment != MOMENT_TIME || v->time_ns <= end)
		return;
	scry_buf_printf(&line, "the recording ends after ");
	scry_text_duration(&line, end);
	scry_buf_printf(&line, "; shown is its end, not what --at asks for");
	note(v, &line);
	scry_buf_done(&line);
}

/* Programs that the same process ran, and other processes: a reader who looks for one finds it. */
static void note_others(struct malloc_view *v)
{
	uint32_t named = 0, others = 0;

	scry_buf_clear(&v->buf);
	for (uint32_t i = 0; i < v->sum.count; i++) {
		const struct scry_malloc_process *p = v->sum.processes[i];
		const char *exe = scry_reader_string(v->reader, p->exe_str, NULL);

		if (p == v->process || !p->calls)
			continue;
		if (++others > OTHERS_NAMED)
			continue;
		scry_buf_printf(&v->buf, "%s%s (process %u, ",
				named++ ? ", " : "not above: ", exe ? exe : "a program", p->pid);
		scry_text_things(&v->buf, p->calls, "calls");
		scry_buf_printf(&v->buf, ")");
	}
	if (others > named)
		scry_buf_printf(&v->buf, " and %u more", others - named);
	if (named && !v->opts->pid)
		scry_buf_printf(&v->buf, "; --pid PID shows another one, the last table has all");
	if (named)
		v->doc->ops->note(v->doc, v->buf.data, v->buf.len);
}

static void note_left_out(struct malloc_view *v)
{
	if (!v->sum.left_out)
		return;
	scry_buf_clear(&v->buf);
	scry_text_count(&v->buf, v->sum.left_out);
	scry_buf_printf(&v->buf, " calls are in no row: there are more than ");
	scry_text_count(&v->buf, SCRY_MALLOC_SUM_PROCESSES);
	scry_buf_printf(&v->buf, " processes; --pid PID shows one of them");
	v->doc->ops->note(v->doc, v->buf.data, v->buf.len);
}

/* --pid of a process that is not in it: which are. */
static int no_such_process(struct malloc_view *v)
{
	const struct scry_data_quality *h = &v->quality;
	uint32_t count = h->process_count < SCRY_DATA_QUALITY_PROCESSES
				 ? h->process_count
				 : SCRY_DATA_QUALITY_PROCESSES;
	int named = 0;

	scry_buf_clear(&v->buf);
	for (uint32_t i = 0; i < count; i++) {
		const char *exe = scry_reader_string(v->reader, h->processes[i].exe_str, NULL);

		if (i && h->processes[i].pid == h->processes[i - 1].pid)
			continue; /* it ran another program */
		scry_buf_printf(&v->buf, "%s%u (%s)", named++ ? ", " : "", h->processes[i].pid,
				exe ? exe : "a program");
	}
	return scry_fail(-EINVAL,
			 "process %llu has no calls in this recording; fix: --pid PID, of %s",
			 (unsigned long long)v->opts->pid, named ? scry_buf_str(&v->buf) : "none");
}

/* Of a recording that is cut, or has holes, nothing is stated that the rest would change. */
static enum scry_malloc_verdict judge(struct malloc_view *v)
{
	const struct scry_data_quality *h = &v->quality;

	v->is_cut = h->has_lost_more || h->lost > v->process->calls / LOST;
	if (!v->is_cut) {
		if (!h->has_totals) /* it ends before the watch did */
			scry_buf_printf(&v->buf, "as far as the recording goes: ");
		return scry_malloc_verdict(v->process, &v->buf);
	}
	scry_buf_clear(&v->buf);
	scry_buf_printf(&v->buf, "the recording is cut, or has holes: ");
	scry_text_count(&v->buf, v->process->calls);
	scry_buf_printf(&v->buf, " calls are in it, and ");
	if (h->lost) {
		scry_buf_printf(&v->buf, "%s", h->has_lost_more ? "at least " : "");
		scry_text_count(&v->buf, h->lost);
		scry_buf_printf(&v->buf, " are not");
	} else {
		scry_buf_printf(&v->buf, "an unknown number are not");
	}
	scry_buf_printf(&v->buf, ": whether there is a leak is not known, and all "
				 "figures are of the recorded calls only");
	return SCRY_MALLOC_VERDICT_UNKNOWN;
}

static int push(struct malloc_view *v)
{
	const struct scry_malloc_tree tree = {
		.places = &v->places, .opts = v->opts, .at_title = at_titles[v->moment]};
	int err;

	for (uint32_t i = 0; i < v->sum.count; i++) {
		const struct scry_malloc_process *p = v->sum.processes[i];

		v->quality.shown += p->calls;
		v->quality.nameless_count += !p->exe_str && p->calls &&
					     !scry_data_quality_has_process(&v->quality, p->pid);
	}
	v->quality.noun = "calls";
	v->process = scry_malloc_sum_main(&v->sum);
	if (v->opts->pid && is_empty(v->process))
		return no_such_process(v);
	v->doc->ops->quality(v->doc, &v->quality);
	if (is_empty(v->process)) {
		scry_data_quality_notes(&v->quality, v->doc);
		scry_buf_clear(&v->buf);
		scry_buf_printf(&v->buf, "no call of malloc was recorded");
		scry_verdict_note(v->doc, &v->buf);
		return 0;
	}
	v->places = (struct scry_malloc_places){
		.process = v->process,
		.stacks = &v->sum.stacks,
		.reader = v->reader,
		.has_whole_paths = v->doc->is_data,
		.by = v->opts->stacks ? SCRY_VIEW_BY_STACK : (enum scry_view_by)v->opts->by};
	err = scry_malloc_places_merge(&v->places);
	if (err)
		return err;
	settle_moment(v);
	v->verdict = judge(v);
	scry_verdict_note(v->doc, &v->buf);
	note_callers(v);
	note_moment(v);
	note_others(v);
	note_left_out(v);
	note_slowdown(v);
	scry_data_quality_notes(&v->quality, v->doc);
	push_totals(v);
	if (!v->opts->stacks || v->doc->is_data)
		err = push_callers(v);
	if (v->opts->stacks && !v->doc->is_folded && !err)
		err = scry_malloc_tree_push(&tree, v->doc);
	if (err || v->doc->is_folded)
		return err;
	scry_malloc_tables_push(&v->sum, &v->places, v->doc);
	return 0;
}

int scry_view_malloc(struct scry_reader *reader, const struct scry_view_opts *opts,
		     struct scry_doc *doc)
{
	struct malloc_view v = {.reader = reader, .opts = opts, .doc = doc};
	const struct scry_event *event;
	int got = 0, err = read_moment(opts->at, &v.moment, &v.time_ns);

	if (!err)
		err = scry_malloc_places_check(opts);
	if (err)
		return err;
	v.sum.reader = reader;
	v.sum.pid = (uint32_t)opts->pid;
	v.sum.began_ns = scry_reader_head(reader)->mono_ns;
	v.sum.has_at = v.moment == MOMENT_TIME;
	v.sum.at_ns = v.time_ns;
	scry_data_quality_init(&v.quality, reader);
	scry_malloc_lines_init(&v.lines, reader, opts->lines);
	while (!err && (got = scry_reader_next(reader, &event)) > 0) {
		v.end_ns = event->time_ns > v.end_ns ? event->time_ns : v.end_ns;
		scry_data_quality_event(&v.quality, event);
		if (event->type == SCRY_EVENT_OBJECT_FILE)
			scry_malloc_lines_event(&v.lines, (const void *)(event + 1));
		err = scry_malloc_sum_event(&v.sum, event);
	}
	err = err ? err : got;
	if (!err) {
		scry_data_quality_close(&v.quality);
		scry_malloc_sum_close(&v.sum);
		err = push(&v);
		doc->section = doc->title = NULL;
	}
	scry_malloc_sum_done(&v.sum);
	scry_malloc_lines_done(&v.lines);
	scry_buf_done(&v.buf);
	return err;
}
