/* See malloc_servers.h. */
#include "view/malloc_servers.h"

#include <string.h>

#include "base/text.h"
#include "view/table.h"

struct servers {
	const struct scry_replay_report *report;
	uint64_t work; /* units of it in a load */
};

/* Signed, in tenths of a percent. */
static struct scry_cell against(uint64_t base, uint64_t value, struct scry_buf *buf)
{
	if (!base)
		return scry_cell_unknown();
	scry_buf_printf(buf, "%+.1f", ((double)value - (double)base) * 100 / (double)base);
	return scry_cell_buf(buf);
}

static struct scry_cell half(const struct scry_replay_spread *s)
{
	return scry_cell_known(s->median ? (s->most - s->least) * 500 / s->median : 0,
			       s->median != 0);
}

/* The first is what the others are compared with. */
static struct scry_cell more_cell(const struct servers *s, const struct scry_replay_row *row,
				  bool is_memory, struct scry_buf *buf)
{
	const struct scry_replay_row *first = s->report->rows;

	if (row == first)
		return (struct scry_cell){.is_blank = true};
	return is_memory ? against(first->real_rss.median, row->real_rss.median, buf)
			 : against(first->real_cpu_ns.median, row->real_cpu_ns.median, buf);
}

#define GET(name, ...) SCRY_GET(name, struct scry_replay_row, const struct servers, __VA_ARGS__)
#define NUMBER(member) SCRY_AT(struct scry_replay_row, member)

GET(get_label, scry_cell_string(row->label))
GET(get_unit, scry_cell_number(row->real_cpu_ns.median / view->work))
GET(get_cpu_half, half(&row->real_cpu_ns))
GET(get_more_cpu, more_cell(view, row, false, buf))
GET(get_peak_kib, scry_cell_number(row->real_rss.median >> 10))
GET(get_peak_half, half(&row->real_rss))
GET(get_more_memory, more_cell(view, row, true, buf))

static bool has_real(const void *row, void *servers)
{
	(void)servers;
	return ((const struct scry_replay_row *)row)->has_real;
}

static void push_table(const struct servers *s, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"allocator", "allocator", SCRY_CELL_TEXT, get_label, 0},
		{NULL, "runs", SCRY_CELL_NUMBER, NUMBER(runs)},
		{"CPU ns a unit", "cpu_unit_ns", SCRY_CELL_COUNT, get_unit, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, get_cpu_half, 0},
		{"vs first %", NULL, SCRY_CELL_TEXT, get_more_cpu, 0},
		{"peak KiB", NULL, SCRY_CELL_COUNT, get_peak_kib, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, get_peak_half, 0},
		{"vs first %", NULL, SCRY_CELL_TEXT, get_more_memory, 0},
		{"load s", "load_ns", SCRY_CELL_TIME, NUMBER(real_wall_ns.median)},
		{NULL, "cpu_ns", SCRY_CELL_COUNT, NUMBER(real_cpu_ns.median)},
		{NULL, "cpu_min_ns", SCRY_CELL_COUNT, NUMBER(real_cpu_ns.least)},
		{NULL, "cpu_max_ns", SCRY_CELL_COUNT, NUMBER(real_cpu_ns.most)},
		{NULL, "rss_peak_bytes", SCRY_CELL_COUNT, NUMBER(real_rss.median)},
		{NULL, "rss_peak_min_bytes", SCRY_CELL_COUNT, NUMBER(real_rss.least)},
		{NULL, "rss_peak_max_bytes", SCRY_CELL_COUNT, NUMBER(real_rss.most)},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns),
					 SCRY_ROWS(s->report->rows, s->report->count),
					 .view = (void *)s, .has = has_real};

	scry_table_push(&table, doc);
}
#undef NUMBER
#undef GET

void scry_servers_push(const struct scry_replay_report *r, uint64_t work, struct scry_doc *doc)
{
	const struct servers servers = {r, work};
	struct scry_replay_verdict verdict;
	struct scry_replay_row rows[SCRY_REPLAY_ROWS_MAX];
	struct scry_replay_report judged = *r;
	struct scry_cell units = scry_cell_number(work);

	units.is_blank = work == 1;
	const struct scry_pair totals[] = {
		{"work", "units of work in a load", SCRY_CELL_COUNT, 0, units},
	};

	/* The load is the same work, however long it takes: a client that sets the pace does not
	 * make processor time meaningless, as it would be of a program that ends by the clock. */
	judged.rows = rows;
	for (uint32_t i = 0; i < r->count; i++) {
		rows[i] = r->rows[i];
		rows[i].real_wall_ns = (struct scry_replay_spread){0};
	}
	scry_replay_judge_real(&judged, &verdict);
	doc->ops->verdict(doc, verdict.sentence, strlen(verdict.sentence));
	for (uint32_t i = 0; i < r->note_count; i++)
		doc->ops->note(doc, r->notes[i], strlen(r->notes[i]));
	doc->ops->totals(doc, totals, 1);
	push_table(&servers, doc);
	scry_doc_remark(doc, "CPU: of all processes of the server while the load ran; peak: their "
			     "anonymous memory together, since the start; +-: half the distance "
			     "between the runs with least and most");
}
