/* The document of a replay. See malloc_replay.h. */
#include "view/malloc_replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "view/data_quality.h"
#include "view/verdict.h"

#define ROWS_MAX 16 /* allocators that the memory beside malloc's is learned of */
#define MISSED 0.1  /* of what is so: a prediction that is off by more is wrong */
#define EXCESS 4    /* a part of the program's memory that replays may have more, and: */
#define EXCESS_BYTES (UINT64_C(1) << 20)

static const char *const kind_names[1 + SCRY_REPLAY_KIND_ROWS] = {
	"all", "malloc", "calloc", "aligned", "realloc", "free", "usable_size",
};

static const struct scry_column columns[] = {
	{"allocator", "allocator", SCRY_CELL_TEXT, NULL, 0},
	{"calls of", "kind", SCRY_CELL_TEXT, NULL, 0},
	{NULL, "runs", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "calls", SCRY_CELL_COUNT, NULL, 0},
	{"CPU us", NULL, SCRY_CELL_COUNT, NULL, 0},
	{"+-%", NULL, SCRY_CELL_TENTHS, NULL, 0},
	{NULL, "cpu_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "cpu_min_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "cpu_max_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "kernel_ns", SCRY_CELL_COUNT, NULL, 0},
	{"ns a call", NULL, SCRY_CELL_TENTHS, NULL, 0},
	{"p50 ns", "call_p50_ns", SCRY_CELL_COUNT, NULL, 0},
	{"p99", "call_p99_ns", SCRY_CELL_COUNT, NULL, 0},
	{"p99.9", "call_p999_ns", SCRY_CELL_COUNT, NULL, 0},
	{"peak KiB", NULL, SCRY_CELL_COUNT, NULL, 0},
	{"+-%", NULL, SCRY_CELL_TENTHS, NULL, 0},
	{NULL, "rss_peak_bytes", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "rss_peak_min_bytes", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "rss_peak_max_bytes", SCRY_CELL_COUNT, NULL, 0},
	{"of live", NULL, SCRY_CELL_TENTHS, NULL, 0},
	{NULL, "peak_to_live_permille", SCRY_CELL_COUNT, NULL, 0},
	{"end KiB", NULL, SCRY_CELL_COUNT, NULL, 0},
	{NULL, "rss_end_bytes", SCRY_CELL_COUNT, NULL, 0},
	{"drained", NULL, SCRY_CELL_COUNT, NULL, 0},
	{NULL, "rss_drained_bytes", SCRY_CELL_COUNT, NULL, 0},
	{"faults", "faults", SCRY_CELL_COUNT, NULL, 0},
	{"syscalls", "syscalls", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "brk", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "mmap", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "munmap", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "mremap", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "madvise", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "mprotect", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "futex", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "failed", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "object", SCRY_CELL_TEXT, NULL, 0},
	{NULL, "real_cpu_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_cpu_min_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_cpu_max_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_wall_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_wall_min_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_wall_max_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "predicted_cpu_ns", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_rss_peak_bytes", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_rss_peak_min_bytes", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "real_rss_peak_max_bytes", SCRY_CELL_COUNT, NULL, 0},
	{NULL, "predicted_rss_peak_bytes", SCRY_CELL_COUNT, NULL, 0},
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
static struct scry_cell resolved(uint64_t number, bool is_whole, bool is_told)
{
	struct scry_cell cell = whole(number, is_whole);

	cell.is_unknown |= !is_told;
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
 * replays, the median of the *other* allocators, so that nobody's own run is in what is told of it.
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

/* `kind` 0: of all calls. */
static void push_row(const struct scry_replay_report *r, const struct scry_replay_row *row,
		     unsigned int kind, struct scry_doc *doc)
{
	const struct scry_replay_kind_row *k = kind ? &row->kinds[kind - 1] : &row->all;
	bool w = !kind, has = k->samples != 0, real = w && row->has_real;
	const bool is_predicted = real && r->rows[0].has_real && r->rows[0].runs;
	const bool sys = w && row->has_syscalls;
	const bool is_told = doc->is_data || row->cpu_ns.median > r->null_spread_ns / 2;
	const struct scry_cell cells[] = {
		text(row->label),
		text(kind_names[kind]),
		scry_cell_number(row->runs),
		scry_cell_number(k->calls),
		whole(row->cpu_ns.median / 1000, w),
		resolved(half_tenths(&row->cpu_ns), w, is_told),
		whole(row->cpu_ns.median, w),
		whole(row->cpu_ns.least, w),
		whole(row->cpu_ns.most, w),
		whole(row->kernel_ns.median, w),
		resolved(scry_share(row->cpu_ns.median, r->calls, 10), w, is_told),
		scry_cell_known(scry_two_digits(k->p50_ns, UINT64_MAX), has),
		scry_cell_known(scry_two_digits(k->p99_ns, UINT64_MAX), has),
		scry_cell_known(scry_two_digits(k->p999_ns, UINT64_MAX), has),
		whole(row->rss_peak.median >> 10, w),
		whole(half_tenths(&row->rss_peak), w),
		whole(row->rss_peak.median, w),
		whole(row->rss_peak.least, w),
		whole(row->rss_peak.most, w),
		whole(scry_share(row->rss_peak.median, r->live_peak_bytes, 10), w),
		whole(scry_share(row->rss_peak.median, r->live_peak_bytes, 1000), w),
		whole(row->rss_end.median >> 10, w),
		whole(row->rss_end.median, w),
		whole(row->rss_drained.median >> 10, w),
		whole(row->rss_drained.median, w),
		whole(row->faults.median, w),
		whole(syscalls(row), sys),
		whole(row->syscalls[0], sys),
		whole(row->syscalls[1], sys),
		whole(row->syscalls[2], sys),
		whole(row->syscalls[3], sys),
		whole(row->syscalls[4], sys),
		whole(row->syscalls[5], sys),
		whole(row->syscalls[6], sys),
		whole(row->failed, w),
		text(row->served),
		whole(row->real_cpu_ns.median, real),
		whole(row->real_cpu_ns.least, real),
		whole(row->real_cpu_ns.most, real),
		whole(row->real_wall_ns.median, real),
		whole(row->real_wall_ns.least, real),
		whole(row->real_wall_ns.most, real),
		whole(predicted_cpu(r, row), is_predicted && !scry_replay_is_by_clock(r)),
		whole(row->real_rss.median, real),
		whole(row->real_rss.least, real),
		whole(row->real_rss.most, real),
		whole(predicted_rss(r, row), is_predicted),
	};

	_Static_assert(sizeof(cells) / sizeof(cells[0]) == sizeof(columns) / sizeof(columns[0]),
		       "a cell for each column");
	doc->ops->row(doc, cells);
}

/* For people: which system calls. */
static void push_syscalls(const struct scry_replay_report *r, struct scry_doc *doc)
{
	static const struct scry_column own[] = {
		{"system calls", NULL, SCRY_CELL_TEXT, NULL, 0},
		{"brk", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"mmap", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"munmap", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"mremap", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"madvise", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"mprotect", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"futex", NULL, SCRY_CELL_COUNT, NULL, 0},
	};
	struct scry_cell cells[1 + SCRY_REPLAY_CALL_ROWS];
	bool is_begun = false;

	for (uint32_t i = 0; i < r->count; i++) {
		const struct scry_replay_row *row = &r->rows[i];

		if (!row->runs || !row->has_syscalls)
			continue;
		if (!is_begun)
			scry_doc_table(doc, own, sizeof(own) / sizeof(own[0]));
		is_begun = true;
		cells[0] = text(row->label);
		for (unsigned int k = 0; k < SCRY_REPLAY_CALL_ROWS; k++)
			cells[1 + k] = scry_cell_number(row->syscalls[k]);
		doc->ops->row(doc, cells);
	}
}

static bool has_real(const struct scry_replay_report *r)
{
	return r->count && r->rows[0].has_real;
}

/* Off by so much of the median; in brackets where real runs differ by as much themselves. */
static struct scry_cell error_cell(char *buffer, size_t size, const struct scry_replay_spread *real,
				   uint64_t predicted)
{
	double share = real->median ? ((double)predicted / (double)real->median - 1) * 100 : 0;
	bool is_noise = predicted >= real->least && predicted <= real->most;

	snprintf(buffer, size, is_noise ? "(%+.1f %%)" : "%+.1f %%", share);
	return text(buffer);
}

/* By how much the nearest real run is missed, of their median; 0: it lies among them. */
static double missed(const struct scry_replay_spread *real, uint64_t predicted)
{
	double nearest = predicted < real->least  ? (double)real->least
			 : predicted > real->most ? (double)real->most
						  : (double)predicted;

	return real->median ? ((double)predicted - nearest) / (double)real->median : 0;
}

/* What the real runs show to be wrong is said: who reads the first verdict alone goes astray. The
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
		scry_doc_remark(
			doc,
			"the replay does not foretell this program's %s: what was predicted "
			"is off by%s; go by the real runs",
			is_memory ? "memory" : "time", text.data);
	scry_buf_done(&text);
}

/* For people: what was predicted, and what was so. */
static void push_real(const struct scry_replay_report *r, struct scry_doc *doc)
{
	static const struct scry_column own[] = {
		{"really run", NULL, SCRY_CELL_TEXT, NULL, 0},
		{"CPU us", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{"predicted", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"off", NULL, SCRY_CELL_TEXT, NULL, 0},
		{"peak KiB", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{"predicted", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"off", NULL, SCRY_CELL_TEXT, NULL, 0},
	};

	scry_doc_table(doc, own, sizeof(own) / sizeof(own[0]));
	for (uint32_t i = 0; i < r->count; i++) {
		const struct scry_replay_row *row = &r->rows[i];
		uint64_t cpu = predicted_cpu(r, row), rss = predicted_rss(r, row);
		const bool is_predicted = i && !scry_replay_is_by_clock(r);
		char cpu_off[32], rss_off[32];
		const struct scry_cell cells[] = {
			text(row->label),
			scry_cell_number(row->real_cpu_ns.median / 1000),
			scry_cell_number(half_tenths(&row->real_cpu_ns)),
			whole(cpu / 1000, is_predicted),
			is_predicted ? error_cell(cpu_off, sizeof(cpu_off), &row->real_cpu_ns, cpu)
				     : text(""),
			scry_cell_number(row->real_rss.median >> 10),
			scry_cell_number(half_tenths(&row->real_rss)),
			scry_cell_number(rss >> 10),
			error_cell(rss_off, sizeof(rss_off), &row->real_rss, rss),
		};

		if (row->has_real)
			doc->ops->row(doc, cells);
	}
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
	scry_doc_table(doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint32_t i = 0; i < r->count; i++) {
		if (!r->rows[i].runs)
			continue;
		push_row(r, &r->rows[i], 0, doc);
		for (unsigned int k = 1; k <= SCRY_REPLAY_KIND_ROWS; k++)
			if (r->rows[i].kinds[k - 1].calls)
				push_row(r, &r->rows[i], k, doc);
	}
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
