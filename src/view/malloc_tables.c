/* What is below the callers. See malloc_tables.h. */
#include "view/malloc_tables.h"

#include "rec/malloc_text.h"
#include "view/functions.h"
#include "view/malloc_sizes.h"
#include "view/table.h"

struct count { /* of a function, or of a step */
	uint64_t count, of;
};

static bool is_some(const void *row, void *view __attribute__((unused)))
{
	return ((const struct count *)row)->count != 0;
}

#define GET_COUNT(name, ...) SCRY_GET(name, struct count, const struct scry_malloc_sum, __VA_ARGS__)
#define COUNT SCRY_AT(struct count, count)

GET_COUNT(get_function, scry_cell_string(scry_malloc_function_name((uint32_t)row->of)))
GET_COUNT(get_bound, scry_cell_known(row->of, row->of != UINT64_MAX))
GET_COUNT(get_us, scry_cell_known(row->of * 1000, row->of != UINT64_MAX))

static void push_functions(const struct scry_malloc_process *p, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"calls", "calls", SCRY_CELL_COUNT, COUNT},
		{"function", "function", SCRY_CELL_TEXT, get_function, 0},
	};
	struct count rows[SCRY_MALLOC_USABLE_SIZE + 1] = {0};

	for (uint32_t i = SCRY_MALLOC_MALLOC; i <= SCRY_MALLOC_USABLE_SIZE; i++)
		rows[i] = (struct count){p->functions[i], i};
	doc->section = "functions";
	doc->title = "calls of each function";
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns),
					     SCRY_ROWS(rows, SCRY_MALLOC_USABLE_SIZE + 1),
					     .has = is_some},
			doc);
}

/* Steps that each go to `factor` times where the one before ends; the last one has no end. */
static void make_steps(const uint64_t *counts, size_t count, struct count *ret_steps,
		       uint64_t factor)
{
	uint64_t bound = 1;

	for (size_t i = 0; i < count; i++, bound *= factor)
		ret_steps[i] = (struct count){counts[i], i + 1 < count ? bound : UINT64_MAX};
}

static void push_lives(const struct scry_malloc_process *p, struct scry_doc *doc)
{
	static const struct scry_column calls[] = {
		{"calls up to", "up_to_calls", SCRY_CELL_COUNT, get_bound, 0},
		{"blocks", "blocks", SCRY_CELL_COUNT, COUNT},
	};
	static const struct scry_column times[] = {
		{"s up to", "up_to_ns", SCRY_CELL_TIME, get_us, 0},
		{"blocks", "blocks", SCRY_CELL_COUNT, COUNT},
	};
	struct count steps[SCRY_MALLOC_LIFE_ROWS];

	make_steps(p->lives, SCRY_MALLOC_LIFE_ROWS, steps, 4);
	doc->section = "lives_calls";
	doc->title = "lives of the blocks that ended, in calls of the process";
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(calls),
					     SCRY_ROWS(steps, SCRY_MALLOC_LIFE_ROWS),
					     .has = is_some},
			doc);
	make_steps(p->times, SCRY_MALLOC_TIME_ROWS, steps, 10);
	doc->section = "lives_time";
	doc->title = "the same in time; clocks are read each 64 calls or 100 us";
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(times),
					     SCRY_ROWS(steps, SCRY_MALLOC_TIME_ROWS),
					     .has = is_some},
			doc);
}

static uint64_t since(const struct scry_malloc_sum *sum, uint64_t ns)
{
	return ns > sum->began_ns ? ns - sum->began_ns : 0;
}

#define MOMENT(member) SCRY_AT(struct scry_malloc_moment, member)
#define PROCESS(member) SCRY_AT(struct scry_malloc_process, member)
SCRY_GET(get_time, struct scry_malloc_moment, const struct scry_malloc_sum,
	 scry_cell_number(since(view, row->time_ns)))
SCRY_GET(get_rss, struct scry_malloc_moment, const struct scry_malloc_sum,
	 scry_cell_known(row->rss, row->rss != 0))
SCRY_GET(get_rss_peak, struct scry_malloc_process, const struct scry_malloc_sum,
	 scry_cell_known(row->rss_peak, row->rss_peak != 0))
SCRY_GET(get_exe, struct scry_malloc_process, const struct scry_malloc_sum,
	 scry_functions_string(view->reader, row->exe_str))

/* People get every second point, which is the one to end with. */
static void push_curve(const struct scry_malloc_sum *sum, const struct scry_malloc_process *p,
		       struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"s", "time_ns", SCRY_CELL_TIME, get_time, 0},
		{"calls", "calls", SCRY_CELL_COUNT, MOMENT(calls)},
		{"live bytes", "live_bytes", SCRY_CELL_COUNT, MOMENT(live.bytes)},
		{"live blocks", "live_blocks", SCRY_CELL_COUNT, MOMENT(live.blocks)},
		{"resident bytes", "rss_bytes", SCRY_CELL_COUNT, get_rss, 0},
	};
	const uint32_t step = doc->is_data ? 1 : 2;

	doc->section = "curve";
	doc->title = "through the recording";
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns), .rows = &p->points[step - 1],
					     .count = p->point_count / step,
					     .size = step * sizeof(p->points[0]),
					     .view = (void *)sum},
			doc);
}

static void push_processes(const struct scry_malloc_sum *sum, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"pid", "pid", SCRY_CELL_NUMBER, PROCESS(pid)},
		{"calls", "calls", SCRY_CELL_COUNT, PROCESS(calls)},
		{"peak bytes", "peak_bytes", SCRY_CELL_COUNT, PROCESS(peak.bytes)},
		{"bytes at end", "end_bytes", SCRY_CELL_COUNT, PROCESS(live.bytes)},
		{"resident peak", "rss_peak_bytes", SCRY_CELL_COUNT, get_rss_peak, 0},
		{"program", "exe", SCRY_CELL_TEXT, get_exe, 0},
	};

	doc->section = "processes";
	doc->title = "processes; --pid shows another one above";
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns),
					     SCRY_ROW_POINTERS(sum->processes, sum->count),
					     .view = (void *)sum},
			doc);
}

void scry_malloc_tables_push(const struct scry_malloc_sum *sum,
			     const struct scry_malloc_places *places, struct scry_doc *doc)
{
	const struct scry_malloc_process *p = places->process;

	push_functions(p, doc);
	push_curve(sum, p, doc);
	scry_malloc_sizes_push(places, doc);
	if (p->lived || doc->is_data)
		push_lives(p, doc);
	if (sum->count > 1)
		push_processes(sum, doc);
}
