/*
 * Columns of the syscalls view: where their cells come from, and which forms of it have them. Of a
 * row that is the total of others there is no site.
 */
#include "view/syscall_columns.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "view/functions.h"
#include "view/syscalls.h"
#include "view/table.h"
#include "wire/bpf_syscalls.h"

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
static struct scry_cell time_cell(struct scry_cell ns, struct scry_buf *buf)
{
	const double t = (double)ns.number;

	if (ns.is_unknown)
		return scry_cell_unknown();
	if (t < 1e3)
		scry_buf_printf(buf, "%.0f ns", t);
	else if (t < 1e6)
		scry_buf_printf(buf, t < 1e4 ? "%.1f us" : "%.0f us", t / 1e3);
	else if (t < 1e9)
		scry_buf_printf(buf, t < 1e7 ? "%.1f ms" : "%.0f ms", t / 1e6);
	else
		scry_buf_printf(buf, "%.1f s", t / 1e9);
	return scry_cell_buf(buf);
}

/* Where in a line's text, as line_of made it, its number's colon is; NULL: it has none. */
static const char *colon_of(const char *text)
{
	const char *colon = text ? strrchr(text, ':') : NULL;

	while (colon && (colon[1] < '0' || colon[1] > '9')) /* of a method: Foo::Bar */
		colon = colon > text ? memrchr(text, ':', (size_t)(colon - text)) : NULL;
	return colon;
}

static struct scry_cell line_method(const char *text)
{
	const char *colon = colon_of(text), *space = colon ? strchr(colon, ' ') : NULL;

	return scry_cell_string(space ? space + 1 : NULL);
}

static struct scry_cell line_cell(const struct scry_syscall_view *v,
				  const struct scry_syscall_row *row, struct scry_buf *buf)
{
	scry_syscall_put_line(v, row, buf);
	if (!buf->len && v->opts->by == SCRY_VIEW_BY_LINE)
		scry_buf_printf(buf, "[no line]");
	return scry_cell_buf(buf);
}

static struct scry_cell place_cell(const struct scry_syscall_view *v,
				   const struct scry_syscall_row *row, struct scry_buf *buf)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);

	if (site)
		scry_syscall_put_place(v, site, buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

static struct scry_cell caller_cell(const struct scry_syscall_view *v,
				    const struct scry_syscall_row *row, struct scry_buf *buf)
{
	scry_syscall_put_caller(v, row, buf);
	return scry_cell_buf(buf);
}

/* Of a cell that was put together: as people get it. */
static struct scry_cell shortened(const struct scry_syscall_view *v, struct scry_cell cell,
				  struct scry_buf *buf)
{
	if (v->doc->is_data || cell.is_unknown)
		return cell;
	scry_syscall_shorten(buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

/* `frames`: the cell's own. */
static struct scry_cell frames_cell(struct scry_syscall_view *v, uint32_t stack,
				    struct scry_doc_frame frames[SCRY_NATIVE_DEPTH])
{
	const uint32_t depth =
		stack ? scry_native_frames_all(&v->frames, v->reader, stack, frames) : 0;

	return (struct scry_cell){.is_unknown = !depth, .frames = frames, .number = depth};
}

static struct scry_cell verdict_cell(const struct scry_syscall_view *v,
				     const struct scry_syscall_row *row, struct scry_buf *buf)
{
	if (row->verdict)
		scry_syscall_put_verdict(&v->verdicts[row->verdict - 1], buf);
	return scry_cell_buf(buf);
}

static bool is_counted(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	return scry_syscall_is_exact(v) && !row->why_str;
}

/* rt_sigreturn has none. */
static bool has_results(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);

	return is_counted(v, row) && !scry_syscall_is_at_sites(v) &&
	       v->opts->by != SCRY_VIEW_BY_LINE &&
	       (!site || v->opts->by == SCRY_VIEW_BY_THREAD ||
		site->number < SCRY_SYSCALLS_UNKNOWN);
}

/* Of a total: zeros. */
static struct scry_ev_syscall_site site_of(const struct scry_syscall_view *v,
					   const struct scry_syscall_row *row)
{
	const struct scry_ev_syscall_site none = {.number = SCRY_SYSCALLS_NONE};
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);

	return site ? *site : none;
}

static struct scry_cell name_cell(const struct scry_syscall_view *v,
				  const struct scry_syscall_row *row)
{
	if (!row->site)
		return scry_cell_string("total");
	return scry_functions_string(v->reader, site_of(v, row).name_str);
}

/* What --grep looks at beside the line: a place has a name, an address and a caller, unshortened.
 */
static struct scry_cell grep_name(const struct scry_syscall_view *v,
				  const struct scry_syscall_row *row)
{
	return scry_cell_string(scry_syscall_text(v, v->opts->by == SCRY_VIEW_BY_THREAD
							     ? row->thread_str
							     : site_of(v, row).name_str));
}

static bool is_place(const struct scry_syscall_view *v)
{
	return v->opts->by == SCRY_VIEW_BY_SITE;
}

#define NUMBER(member) SCRY_AT(struct scry_syscall_row, member)
#define GET(get, ...) SCRY_GET(get, struct scry_syscall_row, struct scry_syscall_view, __VA_ARGS__)
#define GET_STRING(get, id) GET(get, scry_functions_string(view->reader, id))
#define TEXT(row) scry_intern_get(&view->texts, row->line_str, NULL)

GET(get_tid, scry_cell_known(row->tid, row->tid != 0))
GET_STRING(get_thread, row->thread_str)
GET(get_share, scry_syscall_tenths(row->ticks, view->sums.ticks))
GET(get_share_data, scry_syscall_share_cell(row->ticks, view->sums.ticks, &view->shares[0]))
GET(get_calls, scry_cell_known(row->calls, is_counted(view, row)))
GET(get_rate, scry_cell_known(scry_share(row->calls, view->sums.watched_ns, 1000000000u),
			      is_counted(view, row) && view->sums.watched_ns))
GET(get_errors, scry_cell_known(row->errors, has_results(view, row)))
GET(get_again, scry_cell_known(row->again, has_results(view, row)))
GET(get_absent, scry_cell_known(row->absent, has_results(view, row)))
GET(get_errno, scry_cell_known(row->error, row->error != 0))
GET(get_total, scry_cell_known(row->total_ns, row->timed != 0))
GET(get_mean, scry_cell_known(row->timed ? row->total_ns / row->timed : 0, row->timed != 0))
GET(get_p50, quantile(row, 500))
GET(get_p99, quantile(row, 990))
GET(get_max, scry_cell_known(row->max_ns, row->timed != 0))
GET(get_mean_shown, time_cell(get_mean(row, view, buf), buf))
GET(get_p50_shown, time_cell(quantile(row, 500), buf))
GET(get_p99_shown, time_cell(quantile(row, 990), buf))
GET(get_max_shown, time_cell(get_max(row, view, buf), buf))
GET(get_timed, scry_cell_known(row->timed, scry_syscall_is_timed(view)))
GET(get_name, name_cell(view, row))
GET(get_number,
    scry_cell_known(site_of(view, row).number, site_of(view, row).number < SCRY_SYSCALLS_NONE))
GET(get_abi, scry_cell_string(site_of(view, row).abi ? "32" : "64"))
GET(get_place, shortened(view, place_cell(view, row, buf), buf))
GET_STRING(get_module, site_of(view, row).module_str)
GET_STRING(get_symbol, site_of(view, row).symbol_str)
GET(get_offset, scry_cell_known(site_of(view, row).offset, site_of(view, row).module_str))
GET(get_line, line_cell(view, row, buf))
GET(get_line_path,
    scry_cell_text(colon_of(TEXT(row)) ? TEXT(row) : NULL,
		   colon_of(TEXT(row)) ? (size_t)(colon_of(TEXT(row)) - TEXT(row)) : 0))
GET(get_line_number,
    scry_cell_known(colon_of(TEXT(row)) ? strtoul(colon_of(TEXT(row)) + 1, NULL, 10) : 0,
		    colon_of(TEXT(row))))
GET(get_line_method, line_method(TEXT(row)))
GET(get_line_share,
    scry_syscall_share_cell(row->line_seen, scry_syscall_line_whole(row), &view->shares[1]))
GET(get_line_frames, frames_cell(view, row->line, view->line_frames))
GET(get_caller, shortened(view, caller_cell(view, row, buf), buf))
GET(get_frames, frames_cell(view, row->stack, view->call_frames))
GET(get_verdict, verdict_cell(view, row, buf))
GET_STRING(get_why, row->why_str)
GET(grep_line, (scry_syscall_put_line(view, row, buf), scry_cell_buf(buf)))
GET(get_grep_name, grep_name(view, row))
GET(grep_place, is_place(view) ? place_cell(view, row, buf) : scry_cell_unknown())
GET(grep_caller, is_place(view) ? caller_cell(view, row, buf) : scry_cell_unknown())

enum { /* forms, and what a column is of */
       BY_CALL = 1 << 0,
       BY_THREAD = 1 << 1,
       BY_LINE = 1 << 2,
       BY_SITE = 1 << 3,
       BY_ALL = BY_CALL | BY_THREAD | BY_LINE | BY_SITE,
       SAMPLED = 1 << 4,  /* shown to people only where calls are: not counted, */
       COUNTED = 1 << 5,  /* counted, */
       TIMED = 1 << 6,	  /* timed, */
       LINED = 1 << 7,	  /* or made by lines of Ruby */
       AT_SITES = 1 << 8, /* for no reader where calls are not counted at their sites */
};

/* `has`: forms that have it at all; `shows`: forms that show it to people; both NULL title and key
 * where --grep alone looks at it. */
static const struct {
	struct scry_column column;
	unsigned int has, shows;
} all[] = {
	{{"pid", "pid", SCRY_CELL_NUMBER, NUMBER(pid)}, BY_THREAD, BY_THREAD},
	{{"tid", "tid", SCRY_CELL_NUMBER, get_tid, 0}, BY_THREAD, BY_THREAD},
	{{"thread", "thread", SCRY_CELL_TEXT, get_thread, 0}, BY_THREAD, BY_THREAD},
	{{"time %", NULL, SCRY_CELL_TENTHS, get_share, 0}, BY_ALL, BY_ALL},
	{{NULL, "share", SCRY_CELL_VALUE, get_share_data, 0}, BY_ALL, BY_ALL},
	{{"samples", "samples", SCRY_CELL_COUNT, NUMBER(ticks)}, BY_ALL, BY_ALL | SAMPLED},
	{{"calls", "count", SCRY_CELL_COUNT, get_calls, 0}, BY_ALL, BY_ALL | COUNTED},
	{{"calls/s", "calls_per_second", SCRY_CELL_COUNT, get_rate, 0}, BY_ALL, BY_ALL | COUNTED},
	{{"errors", "errors", SCRY_CELL_COUNT, get_errors, 0},
	 BY_ALL,
	 BY_CALL | BY_THREAD | BY_SITE | COUNTED},
	{{NULL, "eagain", SCRY_CELL_COUNT, get_again, 0}, BY_ALL, BY_ALL},
	{{NULL, "enoent", SCRY_CELL_COUNT, get_absent, 0}, BY_ALL, BY_ALL},
	{{NULL, "other_errno", SCRY_CELL_NUMBER, get_errno, 0}, BY_ALL, BY_ALL},
	{{"total s", "total_ns", SCRY_CELL_TIME, get_total, 0},
	 BY_ALL,
	 BY_CALL | BY_THREAD | BY_LINE | TIMED},
	{{"mean", NULL, SCRY_CELL_TEXT, get_mean_shown, 0},
	 BY_ALL,
	 BY_CALL | BY_THREAD | BY_LINE | TIMED},
	{{"p50", NULL, SCRY_CELL_TEXT, get_p50_shown, 0}, BY_ALL, BY_CALL | BY_SITE | TIMED},
	{{"p99", NULL, SCRY_CELL_TEXT, get_p99_shown, 0}, BY_ALL, BY_CALL | BY_SITE | TIMED},
	{{"max", NULL, SCRY_CELL_TEXT, get_max_shown, 0},
	 BY_ALL,
	 BY_CALL | BY_THREAD | BY_SITE | TIMED},
	{{NULL, "mean_ns", SCRY_CELL_NUMBER, get_mean, 0}, BY_ALL, BY_ALL},
	{{NULL, "p50_ns", SCRY_CELL_NUMBER, get_p50, 0}, BY_ALL, BY_ALL},
	{{NULL, "p99_ns", SCRY_CELL_NUMBER, get_p99, 0}, BY_ALL, BY_ALL},
	{{NULL, "max_ns", SCRY_CELL_NUMBER, get_max, 0}, BY_ALL, BY_ALL},
	{{NULL, "timed", SCRY_CELL_COUNT, get_timed, 0}, BY_ALL, BY_ALL},
	{{"syscall", "name", SCRY_CELL_TEXT, get_name, 0}, BY_CALL | BY_SITE, BY_ALL},
	{{NULL, "number", SCRY_CELL_NUMBER, get_number, 0}, BY_CALL | BY_SITE, BY_ALL},
	{{NULL, "abi", SCRY_CELL_TEXT, get_abi, 0}, BY_CALL | BY_SITE, BY_ALL},
	{{"from", NULL, SCRY_CELL_TEXT, get_place, SCRY_COLUMN_ELASTIC}, BY_SITE, BY_ALL},
	{{NULL, "module", SCRY_CELL_TEXT, get_module, 0}, BY_SITE, BY_ALL},
	{{NULL, "symbol", SCRY_CELL_SYMBOL, get_symbol, 0}, BY_SITE, BY_ALL},
	{{NULL, "offset", SCRY_CELL_NUMBER, get_offset, 0}, BY_SITE, BY_ALL},
	{{"line", NULL, SCRY_CELL_TEXT, get_line, SCRY_COLUMN_ELASTIC},
	 BY_LINE | BY_SITE,
	 BY_ALL | LINED},
	{{NULL, "file", SCRY_CELL_TEXT, get_line_path, 0}, BY_LINE | BY_SITE, BY_ALL},
	{{NULL, "line", SCRY_CELL_NUMBER, get_line_number, 0}, BY_LINE | BY_SITE, BY_ALL},
	{{NULL, "method", SCRY_CELL_TEXT, get_line_method, 0}, BY_LINE | BY_SITE, BY_ALL},
	{{NULL, "line_share", SCRY_CELL_VALUE, get_line_share, 0}, BY_SITE, BY_ALL},
	{{NULL, "ruby_frames", SCRY_CELL_FRAMES, get_line_frames, 0}, BY_SITE, BY_ALL},
	{{"called by", "caller", SCRY_CELL_TEXT, get_caller, SCRY_COLUMN_CUT_AT_END},
	 BY_SITE,
	 BY_ALL},
	{{NULL, "frames", SCRY_CELL_FRAMES, get_frames, 0}, BY_SITE, BY_ALL},
	{{NULL, "verdict", SCRY_CELL_TEXT, get_verdict, 0}, BY_SITE, BY_ALL},
	{{NULL, "not_counted", SCRY_CELL_TEXT, get_why, 0}, BY_ALL | AT_SITES, BY_ALL},
	{{NULL, NULL, SCRY_CELL_TEXT, grep_line, SCRY_COLUMN_GREP}, BY_ALL, BY_ALL},
	{{NULL, NULL, SCRY_CELL_TEXT, get_grep_name, SCRY_COLUMN_GREP}, BY_ALL, BY_ALL},
	{{NULL, NULL, SCRY_CELL_TEXT, grep_place, SCRY_COLUMN_GREP}, BY_ALL, BY_ALL},
	{{NULL, NULL, SCRY_CELL_TEXT, grep_caller, SCRY_COLUMN_GREP}, BY_ALL, BY_ALL},
};
#define COLUMNS (sizeof(all) / sizeof(all[0]))

/* The form, and all that is so of the recording. */
static unsigned int traits(const struct scry_syscall_view *v)
{
	const int by = v->opts->by;

	return (by == SCRY_VIEW_BY_THREAD ? BY_THREAD
		: by == SCRY_VIEW_BY_LINE ? BY_LINE
		: by == SCRY_VIEW_BY_SITE ? BY_SITE
					  : BY_CALL) |
	       (scry_syscall_is_exact(v) ? COUNTED : SAMPLED) |
	       (scry_syscall_is_timed(v) ? TIMED : 0) |
	       (v->lines_seen || by == SCRY_VIEW_BY_LINE ? LINED : 0) |
	       (scry_syscall_is_at_sites(v) ? AT_SITES : 0);
}

static bool is_given(unsigned int of, unsigned int traits)
{
	return of & traits & BY_ALL && !(of & ~traits & ~(unsigned int)BY_ALL);
}

size_t scry_syscall_columns(const struct scry_syscall_view *v,
			    struct scry_column ret_columns[SCRY_DOC_COLUMNS_MAX])
{
	for (size_t i = 0; i < COLUMNS; i++) {
		const bool has = is_given(all[i].has, traits(v));

		ret_columns[i] = all[i].column;
		ret_columns[i].key = has ? ret_columns[i].key : NULL;
		if (!has || !is_given(all[i].shows, traits(v)))
			ret_columns[i].title = NULL;
	}
	return COLUMNS;
}

int scry_syscall_check_filter(const struct scry_view_opts *opts)
{
	const struct scry_syscall_view v = {.opts = opts}; /* what a form has is --by's alone */
	struct scry_column columns[SCRY_DOC_COLUMNS_MAX];
	const struct scry_table table = {.columns = columns,
					 .column_count = scry_syscall_columns(&v, columns),
					 .filter = &opts->filter};

	return scry_table_check_filter(&table, "syscalls");
}
