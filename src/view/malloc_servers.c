/* See malloc_servers.h. */
#include "view/malloc_servers.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Signed, in tenths of a percent. */
static struct scry_cell against(char text[32], uint64_t base, uint64_t value)
{
	if (!base)
		return scry_cell_unknown();
	snprintf(text, 32, "%+.1f", ((double)value - (double)base) * 100 / (double)base);
	return scry_cell_string(text);
}

static struct scry_cell half(const struct scry_replay_spread *s)
{
	return scry_cell_known(s->median ? (s->most - s->least) * 500 / s->median : 0,
			       s->median != 0);
}

static void push_row(const struct scry_replay_report *r, const struct scry_replay_row *row,
		     uint64_t work, struct scry_doc *doc)
{
	const struct scry_replay_row *first = &r->rows[0];
	const bool is_first = row == first;
	char cpu[32], memory[32];
	struct scry_cell more_cpu =
				 against(cpu, first->real_cpu_ns.median, row->real_cpu_ns.median),
			 more_memory =
				 against(memory, first->real_rss.median, row->real_rss.median);

	more_cpu.is_blank = more_memory.is_blank = is_first;
	const struct scry_cell cells[] = {
		scry_cell_string(row->label),
		scry_cell_number(row->runs),
		scry_cell_number(row->real_cpu_ns.median / work),
		half(&row->real_cpu_ns),
		more_cpu,
		scry_cell_number(row->real_rss.median >> 10),
		half(&row->real_rss),
		more_memory,
		scry_cell_number(row->real_wall_ns.median),
		scry_cell_number(row->real_cpu_ns.median),
		scry_cell_number(row->real_cpu_ns.least),
		scry_cell_number(row->real_cpu_ns.most),
		scry_cell_number(row->real_rss.median),
		scry_cell_number(row->real_rss.least),
		scry_cell_number(row->real_rss.most),
	};

	doc->ops->row(doc, cells);
}

void scry_servers_push(const struct scry_replay_report *r, uint64_t work, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"allocator", "allocator", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "runs", SCRY_CELL_NUMBER, NULL, 0},
		{"CPU ns a unit", "cpu_unit_ns", SCRY_CELL_COUNT, NULL, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{"vs first %", NULL, SCRY_CELL_TEXT, NULL, 0},
		{"peak KiB", NULL, SCRY_CELL_COUNT, NULL, 0},
		{"+-%", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{"vs first %", NULL, SCRY_CELL_TEXT, NULL, 0},
		{"load s", "load_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "cpu_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "cpu_min_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "cpu_max_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "rss_peak_bytes", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "rss_peak_min_bytes", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "rss_peak_max_bytes", SCRY_CELL_COUNT, NULL, 0},
	};
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
	scry_doc_table(doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint32_t i = 0; i < r->count; i++)
		if (r->rows[i].has_real)
			push_row(r, &r->rows[i], work, doc);
	scry_doc_remark(doc, "CPU: of all processes of the server while the load ran; peak: their "
			     "anonymous memory together, since the start; +-: half the distance "
			     "between the runs with least and most");
}
