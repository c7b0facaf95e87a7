/* The document of a replay. See malloc_replay.h. */
#include "view/malloc_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "view/data_quality.h"
#include "view/table.h"
#include "view/verdict.h"

#define ROWS_MAX 16 /* allocators that the memory beside malloc's is learned of */
#define MISSED 0.1  /* of what is so: a prediction that is off by more is wrong */
#define EXCESS 4    /* a part of the program's memory that replays may have more, and: */
#define EXCESS_BYTES (UINT64_C(1) << 20)

static const char *const kind_names[1 + SCRY_REPLAY_KIND_ROWS] = {
	"all", "malloc", "calloc", "aligned", "realloc", "free", "usable_size",
};

static struct scry_cell text(const char *s)
{
	return scry_cell_text(s, s ? strlen(s) : 0);
}

/* A number of the whole: nothing in the rows of kinds, null in JSON. */
static struct scry_cell whole(uint64_t number, bool is_whole)
{
	struct scry_cell cell = scry_cell_known(number, is_whole);

	cell.is_blank = !is_whole;
	return cell;
}

/* For people a number that is lost in what the replay itself differs by is none. */
static struct scry_cell resolved(uint64_t number, bool is_whole, bool is_shown)
{
	struct scry_cell cell = whole(number, is_whole);

	cell.is_unknown |= !is_shown;
	return cell;
}

/* Half the width of the spread, in tenths of a percent of the median. */
static uint64_t half_tenths(const struct scry_replay_spread *s)
{
	return s->median ? (s->most - s->least) * 500 / s->median : 0;
}

/* What the first one's real run and the difference of the replays say of another. */
static uint64_t predicted_cpu(const struct scry_replay_report *r, const struct scry_replay_row *row)
{
	uint64_t real = r->rows[0].real_cpu_ns.median, from = r->rows[0].cpu_ns.median,
		 to = row->cpu_ns.median;

	return to >= from || from - to < real ? real + to - from : 0;
}

static int compare_signed(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* What the program has besides the allocator's memory comes on top: what real runs have more than
 * replays, the median of the *other* allocators, so that no allocator's own run is in its
 * prediction.
 */
static uint64_t predicted_rss(const struct scry_replay_report *r, const struct scry_replay_row *row)
{
	int64_t more[ROWS_MAX] = {0};
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->count && count < ROWS_MAX; i++)
		if (&r->rows[i] != row && r->rows[i].has_real)
			more[count++] = (int64_t)r->rows[i].real_rss.median -
					(int64_t)r->rows[i].rss_peak.median;
	if (!count)
		return row->rss_peak.median;
	qsort(more, count, sizeof(more[0]), compare_signed);
	count = (count - 1) / 2;
	return row->rss_peak.median + (uint64_t)(more[count] > 0 ? more[count] : 0);
}

static uint64_t syscalls(const struct scry_replay_row *row)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < SCRY_REPLAY_CALL_ROWS; i++)
		sum += row->syscalls[i];
	return sum;
}

/* A line of the table: all calls of an allocator, or those of one kind. */
struct line {
	const struct scry_replay_row *of;
	unsigned int kind; /* 0: all */
	bool is_data;
};

static const struct scry_replay_kind_row *kind_of(const struct line *line)
{
	return line->kind ? &line->of->kinds[line->kind - 1] : &line->of->all;
}

/* Upper bounds of the samples. */
static struct scry_cell percentile(const struct line *line, uint64_t ns)
{
	return scry_cell_known(scry_two_digits(ns, UINT64_MAX), kind_of(line)->samples != 0);
}

static bool is_shown(const struct scry_replay_report *r, const struct line *line)
{
	return line->is_data || line->of->cpu_ns.median > r->null_spread_ns / 2;
}

static bool is_predicted(const struct scry_replay_report *r, const struct line *line)
{
	return !line->kind && line->of->has_real && r->rows[0].has_real && r->rows[0].runs;
}

#define GET(name, ...) SCRY_GET(name, struct line, const struct scry_replay_report, __VA_ARGS__)
#define WHOLE(name, number) GET(get_##name, whole(row->of->number, !row->kind))
#define SPREAD(name)                  \
	WHOLE(name, name.median)      \
	WHOLE(name##_min, name.least) \
	WHOLE(name##_max, name.most)
#define REAL(name, number) GET(get_##name, whole(row->of->number, !row->kind && row->of->has_real))
#define REAL_SPREAD(name)            \
	REAL(name, name.median)      \
	REAL(name##_min, name.least) \
	REAL(name##_max, name.most)
#define SYSCALL(name, at) \
	GET(get_##name, whole(row->of->syscalls[at], !row->kind && row->of->has_syscalls))

GET(get_label, text(row->of->label))
GET(get_kind, text(kind_names[row->kind]))
GET(get_runs, scry_cell_number(row->of->runs))
GET(get_calls, scry_cell_number(kind_of(row)->calls))
SPREAD(cpu_ns)
WHOLE(cpu_us, cpu_ns.median / 1000)
GET(get_cpu_half, resolved(half_tenths(&row->of->cpu_ns), !row->kind, is_shown(view, row)))
WHOLE(kernel_ns, kernel_ns.median)
GET(get_call_tenths,
    resolved(scry_share(row->of->cpu_ns.median, view->calls, 10), !row->kind, is_shown(view, row)))
GET(get_p50, percentile(row, kind_of(row)->p50_ns))
GET(get_p99, percentile(row, kind_of(row)->p99_ns))
GET(get_p999, percentile(row, kind_of(row)->p999_ns))
SPREAD(rss_peak)
WHOLE(rss_peak_kib, rss_peak.median >> 10)
GET(get_rss_half, whole(half_tenths(&row->of->rss_peak), !row->kind))
GET(get_live_tenths,
    whole(scry_share(row->of->rss_peak.median, view->live_peak_bytes, 10), !row->kind))
GET(get_live_permille,
    whole(scry_share(row->of->rss_peak.median, view->live_peak_bytes, 1000), !row->kind))
WHOLE(rss_end_kib, rss_end.median >> 10)
WHOLE(rss_end, rss_end.median)
WHOLE(rss_drained_kib, rss_drained.median >> 10)
WHOLE(rss_drained, rss_drained.median)
WHOLE(faults, faults.median)
GET(get_syscalls, whole(syscalls(row->of), !row->kind && row->of->has_syscalls))
SYSCALL(brk, 0)
SYSCALL(mmap, 1)
SYSCALL(munmap, 2)
SYSCALL(mremap, 3)
SYSCALL(madvise, 4)
SYSCALL(mprotect, 5)
SYSCALL(futex, 6)
WHOLE(failed, failed)
GET(get_served, text(row->of->served))
REAL_SPREAD(real_cpu_ns)
REAL_SPREAD(real_wall_ns)
REAL_SPREAD(real_rss)
GET(get_predicted_cpu,
    whole(predicted_cpu(view, row->of), is_predicted(view, row) && !scry_replay_is_by_clock(view)))
GET(get_predicted_rss, whole(predicted_rss(view, row->of), is_predicted(view, row)))
#undef GET

static void push_table(const struct scry_replay_report *r, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"allocator", "allocator", SCRY_CELL_TEXT, get_label, 0},
		{"calls of", "kind", SCRY_CELL_TEXT, get_kind, 0},
		{NULL, "runs", SCRY_CELL_COUNT, get_runs, 0},
		{NULL, "calls", SCRY_CELL_COUNT, get_calls, 0},
		{"CPU us", NULL, SCRY_CELL_COUNT, get_cpu_us, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, get_cpu_half, 0},
		{NULL, "cpu_ns", SCRY_CELL_COUNT, get_cpu_ns, 0},
		{NULL, "cpu_min_ns", SCRY_CELL_COUNT, get_cpu_ns_min, 0},
		{NULL, "cpu_max_ns", SCRY_CELL_COUNT, get_cpu_ns_max, 0},
		{NULL, "kernel_ns", SCRY_CELL_COUNT, get_kernel_ns, 0},
		{"ns a call", NULL, SCRY_CELL_TENTHS, get_call_tenths, 0},
		{"p50 ns", "call_p50_ns", SCRY_CELL_COUNT, get_p50, 0},
		{"p99", "call_p99_ns", SCRY_CELL_COUNT, get_p99, 0},
		{"p99.9", "call_p999_ns", SCRY_CELL_COUNT, get_p999, 0},
		{"peak KiB", NULL, SCRY_CELL_COUNT, get_rss_peak_kib, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, get_rss_half, 0},
		{NULL, "rss_peak_bytes", SCRY_CELL_COUNT, get_rss_peak, 0},
		{NULL, "rss_peak_min_bytes", SCRY_CELL_COUNT, get_rss_peak_min, 0},
		{NULL, "rss_peak_max_bytes", SCRY_CELL_COUNT, get_rss_peak_max, 0},
		{"of live", NULL, SCRY_CELL_TENTHS, get_live_tenths, 0},
		{NULL, "peak_to_live_permille", SCRY_CELL_COUNT, get_live_permille, 0},
		{"end KiB", NULL, SCRY_CELL_COUNT, get_rss_end_kib, 0},
		{NULL, "rss_end_bytes", SCRY_CELL_COUNT, get_rss_end, 0},
		{"drained", NULL, SCRY_CELL_COUNT, get_rss_drained_kib, 0},
		{NULL, "rss_drained_bytes", SCRY_CELL_COUNT, get_rss_drained, 0},
		{"faults", "faults", SCRY_CELL_COUNT, get_faults, 0},
		{"syscalls", "syscalls", SCRY_CELL_COUNT, get_syscalls, 0},
		{NULL, "brk", SCRY_CELL_COUNT, get_brk, 0},
		{NULL, "mmap", SCRY_CELL_COUNT, get_mmap, 0},
		{NULL, "munmap", SCRY_CELL_COUNT, get_munmap, 0},
		{NULL, "mremap", SCRY_CELL_COUNT, get_mremap, 0},
		{NULL, "madvise", SCRY_CELL_COUNT, get_madvise, 0},
		{NULL, "mprotect", SCRY_CELL_COUNT, get_mprotect, 0},
		{NULL, "futex", SCRY_CELL_COUNT, get_futex, 0},
		{NULL, "failed", SCRY_CELL_COUNT, get_failed, 0},
		{NULL, "object", SCRY_CELL_TEXT, get_served, 0},
		{NULL, "real_cpu_ns", SCRY_CELL_COUNT, get_real_cpu_ns, 0},
		{NULL, "real_cpu_min_ns", SCRY_CELL_COUNT, get_real_cpu_ns_min, 0},
		{NULL, "real_cpu_max_ns", SCRY_CELL_COUNT, get_real_cpu_ns_max, 0},
		{NULL, "real_wall_ns", SCRY_CELL_COUNT, get_real_wall_ns, 0},
		{NULL, "real_wall_min_ns", SCRY_CELL_COUNT, get_real_wall_ns_min, 0},
		{NULL, "real_wall_max_ns", SCRY_CELL_COUNT, get_real_wall_ns_max, 0},
		{NULL, "predicted_cpu_ns", SCRY_CELL_COUNT, get_predicted_cpu, 0},
		{NULL, "real_rss_peak_bytes", SCRY_CELL_COUNT, get_real_rss, 0},
		{NULL, "real_rss_peak_min_bytes", SCRY_CELL_COUNT, get_real_rss_min, 0},
		{NULL, "real_rss_peak_max_bytes", SCRY_CELL_COUNT, get_real_rss_max, 0},
		{NULL, "predicted_rss_peak_bytes", SCRY_CELL_COUNT, get_predicted_rss, 0},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), .view = (void *)r};

	_Static_assert(sizeof(columns) / sizeof(columns[0]) <= SCRY_DOC_COLUMNS_MAX, "it fits");
	scry_doc_table(doc, columns, table.column_count);
	for (uint32_t i = 0; i < r->count; i++) {
		struct line line = {.of = &r->rows[i], .is_data = doc->is_data};

		if (!line.of->runs)
			continue;
		for (; line.kind <= SCRY_REPLAY_KIND_ROWS; line.kind++)
			if (!line.kind || kind_of(&line)->calls)
				scry_table_push_row(&table, &line, doc);
	}
}

#define GET(name, ...) \
	SCRY_GET(name, struct scry_replay_row, const struct scry_replay_report, __VA_ARGS__)
#define CALLS(at) SCRY_AT(struct scry_replay_row, syscalls[at])

GET(get_row_label, text(row->label))

static bool has_syscalls(const void *row, void *report)
{
	const struct scry_replay_row *r = row;

	(void)report;
	return r->runs && r->has_syscalls;
}

/* For people: which system calls. */
static void push_syscalls(const struct scry_replay_report *r, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"system calls", NULL, SCRY_CELL_TEXT, get_row_label, 0},
		{"brk", NULL, SCRY_CELL_COUNT, CALLS(0)},
		{"mmap", NULL, SCRY_CELL_COUNT, CALLS(1)},
		{"munmap", NULL, SCRY_CELL_COUNT, CALLS(2)},
		{"mremap", NULL, SCRY_CELL_COUNT, CALLS(3)},
		{"madvise", NULL, SCRY_CELL_COUNT, CALLS(4)},
		{"mprotect", NULL, SCRY_CELL_COUNT, CALLS(5)},
		{"futex", NULL, SCRY_CELL_COUNT, CALLS(6)},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), SCRY_ROWS(r->rows, r->count),
					 .has = has_syscalls};

	if (scry_table_first(&table))
		scry_table_push(&table, doc);
}
#undef CALLS

static bool has_real(const struct scry_replay_report *r)
{
	return r->count && r->rows[0].has_real;
}

/* Off by so much of the median; in brackets where real runs differ by as much themselves. */
static struct scry_cell error_cell(const struct scry_replay_spread *real, uint64_t predicted,
				   struct scry_buf *buf)
{
	double share = real->median ? ((double)predicted / (double)real->median - 1) * 100 : 0;
	bool is_noise = predicted >= real->least && predicted <= real->most;

	scry_buf_printf(buf, is_noise ? "(%+.1f %%)" : "%+.1f %%", share);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

/* By how much the nearest real run is missed, of their median; 0: it lies among them. */
static double missed(const struct scry_replay_spread *real, uint64_t predicted)
{
	double nearest = predicted < real->least  ? (double)real->least
			 : predicted > real->most ? (double)real->most
						  : (double)predicted;

	return real->median ? ((double)predicted - nearest) / (double)real->median : 0;
}

/* A remark says what the real runs show to be wrong: the first verdict alone would mislead. The
 * first allocator's time was not predicted, nor is the memory of a single one. */
static void push_missed(const struct scry_replay_report *r, bool is_memory, struct scry_doc *doc)
{
	struct scry_buf text = {0};

	if (!is_memory && scry_replay_is_by_clock(r))
		return;
	for (uint32_t i = !is_memory; i < r->count && r->count > 1; i++) {
		const struct scry_replay_row *row = &r->rows[i];
		const struct scry_replay_spread *real =
			is_memory ? &row->real_rss : &row->real_cpu_ns;
		uint64_t predicted = is_memory ? predicted_rss(r, row) : predicted_cpu(r, row);

		if (row->runs && row->has_real && fabs(missed(real, predicted)) > MISSED)
			scry_buf_printf(&text, "%s %+.0f %% under %s", text.len ? "," : "",
					((double)predicted / (double)real->median - 1) * 100,
					row->label);
	}
	if (text.len)
		scry_doc_remark(doc,
				"the replay does not predict this program's %s: what was predicted "
				"is off by%s; go by the real runs",
				is_memory ? "memory" : "time", text.data);
	scry_buf_done(&text);
}

/* The first one's own time is not predicted. */
static bool has_cpu(const struct scry_replay_report *r, const struct scry_replay_row *row)
{
	return row != r->rows && !scry_replay_is_by_clock(r);
}

static struct scry_cell cpu_off(const struct scry_replay_report *r,
				const struct scry_replay_row *row, struct scry_buf *buf)
{
	return has_cpu(r, row) ? error_cell(&row->real_cpu_ns, predicted_cpu(r, row), buf)
			       : text("");
}

GET(get_cpu_us_real, scry_cell_number(row->real_cpu_ns.median / 1000))
GET(get_cpu_half_real, scry_cell_number(half_tenths(&row->real_cpu_ns)))
GET(get_cpu_us_predicted, whole(predicted_cpu(view, row) / 1000, has_cpu(view, row)))
GET(get_cpu_off, cpu_off(view, row, buf))
GET(get_rss_kib_real, scry_cell_number(row->real_rss.median >> 10))
GET(get_rss_half_real, scry_cell_number(half_tenths(&row->real_rss)))
GET(get_rss_kib_predicted, scry_cell_number(predicted_rss(view, row) >> 10))
GET(get_rss_off, error_cell(&row->real_rss, predicted_rss(view, row), buf))
#undef GET

static bool is_real(const void *row, void *report)
{
	(void)report;
	return ((const struct scry_replay_row *)row)->has_real;
}

/* For people: what was predicted, and what was so. */
static void push_real(const struct scry_replay_report *r, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"really run", NULL, SCRY_CELL_TEXT, get_row_label, 0},
		{"CPU us", NULL, SCRY_CELL_COUNT, get_cpu_us_real, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, get_cpu_half_real, 0},
		{"predicted", NULL, SCRY_CELL_COUNT, get_cpu_us_predicted, 0},
		{"off", NULL, SCRY_CELL_TEXT, get_cpu_off, 0},
		{"peak KiB", NULL, SCRY_CELL_COUNT, get_rss_kib_real, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, get_rss_half_real, 0},
		{"predicted", NULL, SCRY_CELL_COUNT, get_rss_kib_predicted, 0},
		{"off", NULL, SCRY_CELL_TEXT, get_rss_off, 0},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), SCRY_ROWS(r->rows, r->count),
					 .view = (void *)r, .has = is_real};

	scry_table_push(&table, doc);
	scry_doc_remark(
		doc,
		"off: in brackets where it lies among the program's own runs; predicted CPU "
		"is what the real runs take under %s and what the replays differ by",
		r->rows[0].label);
}

static struct scry_cell label(const struct scry_replay_report *r, int row)
{
	return text(row < 0 ? NULL : r->rows[row].label);
}

/* Units of the table below: for people, programs have ns and bytes. */
static uint64_t us(const struct scry_doc *doc, uint64_t ns)
{
	return doc->is_data ? ns : (ns + 999) / 1000;
}

static uint64_t kib(const struct scry_doc *doc, uint64_t bytes)
{
	return doc->is_data ? bytes : (bytes + 1023) >> 10;
}

static void push_totals(const struct scry_replay_report *r,
			const struct scry_replay_verdict *verdict,
			const struct scry_replay_verdict *real, struct scry_doc *doc)
{
	const bool is_real = has_real(r);
	const struct scry_pair pairs[] = {
		{"calls", "calls replayed", SCRY_CELL_COUNT, 0, scry_cell_number(r->calls)},
		{"threads", "threads", SCRY_CELL_COUNT, 0, scry_cell_number(r->threads)},
		{"threads_peak", "of these at once, at most", SCRY_CELL_COUNT, 0,
		 scry_cell_number(r->threads_peak)},
		{"crossed", "blocks that another thread took over", SCRY_CELL_COUNT, 0,
		 scry_cell_number(r->crossed)},
		{"live_peak_bytes", "KiB asked for that lived at once, at most", SCRY_CELL_COUNT, 0,
		 scry_cell_number(kib(doc, r->live_peak_bytes))},
		{"live_end_bytes", "of these at the end", SCRY_CELL_COUNT, 0,
		 scry_cell_number(kib(doc, r->live_end_bytes))},
		{"replay_cpu_ns", "us of CPU that the replay itself takes, left out",
		 SCRY_CELL_COUNT, 0, scry_cell_number(us(doc, r->null_cpu_ns))},
		{"program_cpu_ns", "us of CPU that the program took when recorded", SCRY_CELL_COUNT,
		 0, scry_cell_known(us(doc, r->program_cpu_ns), r->program_cpu_ns != 0)},
		{"program_rss_anon_peak_bytes", "KiB of its anonymous memory then, at most",
		 SCRY_CELL_COUNT, 0,
		 scry_cell_known(kib(doc, r->program_rss_peak), r->program_rss_peak != 0)},
		/* for programs; people have a line of its own */
		{"touch", NULL, SCRY_CELL_TEXT, 0, text(r->touch)},
		{"pace", NULL, SCRY_CELL_TEXT, 0, text(r->pace)},
		{"think_ns", NULL, SCRY_CELL_COUNT, 0, scry_cell_number(r->think_ns)},
		{"recorded_ns", NULL, SCRY_CELL_COUNT, 0,
		 scry_cell_known(r->span_ns, r->span_ns != 0)},
		{"winner", NULL, SCRY_CELL_TEXT, 0, label(r, verdict->winner)},
		{"best_time", NULL, SCRY_CELL_TEXT, 0, label(r, verdict->best_time)},
		{"best_memory", NULL, SCRY_CELL_TEXT, 0, label(r, verdict->best_memory)},
		{"verdict", NULL, SCRY_CELL_TEXT, 0, text(verdict->sentence)},
		{"real_winner", NULL, SCRY_CELL_TEXT, 0, label(r, is_real ? real->winner : -1)},
		{"real_best_time", NULL, SCRY_CELL_TEXT, 0,
		 label(r, is_real ? real->best_time : -1)},
		{"real_best_memory", NULL, SCRY_CELL_TEXT, 0,
		 label(r, is_real ? real->best_memory : -1)},
		{"real_verdict", NULL, SCRY_CELL_TEXT, 0, text(is_real ? real->sentence : NULL)},
		{"real_is_by_clock", NULL, SCRY_CELL_BOOL, 0,
		 scry_cell_known(scry_replay_is_by_clock(r), is_real)},
	};

	doc->ops->totals(doc, pairs, sizeof(pairs) / sizeof(pairs[0]) - (doc->is_data ? 0 : 13));
}

/* Replays have only what was asked of malloc: more than the program itself had cannot be right. */
static void push_excess(const struct scry_replay_report *r, struct scry_doc *doc)
{
	const uint64_t had = r->recorded_rss;

	if (!r->recorded || !r->recorded->runs ||
	    r->recorded->rss_peak.median <= had + had / EXCESS + EXCESS_BYTES)
		return;
	scry_doc_remark(doc,
			"the replays' memory is not this program's: %llu KiB at most under %s, and "
			"the program had %llu when it was recorded",
			(unsigned long long)(r->recorded->rss_peak.median >> 10),
			r->recorded->label, (unsigned long long)(had >> 10));
}

void scry_replay_push(const struct scry_replay_report *r, struct scry_doc *doc)
{
	const bool by_real = scry_replay_goes_by_real(r);
	struct scry_replay_verdict verdict, real;
	struct scry_buf sentence = {0};

	scry_replay_judge(r, &verdict);
	scry_replay_judge_real(r, &real);
	if (r->quality)
		scry_data_quality_push(r->quality, doc);
	scry_buf_printf(&sentence, "%s", by_real ? real.sentence : verdict.sentence);
	scry_verdict(doc, &sentence);
	scry_buf_done(&sentence);
	for (uint32_t i = 0; i < r->note_count; i++)
		doc->ops->note(doc, r->notes[i], strlen(r->notes[i]));
	push_totals(r, &verdict, &real, doc);
	push_table(r, doc);
	if (!doc->is_data)
		push_syscalls(r, doc);
	if (has_real(r) && !doc->is_data)
		push_real(r, doc);
	if (has_real(r))
		scry_doc_remark(doc, "%s: %s", by_real ? "replayed" : "really run",
				by_real ? verdict.sentence : real.sentence);
	for (int i = 0; i < 2 && has_real(r); i++)
		push_missed(r, i, doc);
	push_excess(r, doc);
}
