/* See malloc_lives.h. */
#include "view/malloc_lives.h"

#include "rec/malloc_text.h"

#include <string.h>

void scry_malloc_functions_push(const struct scry_malloc_process *p, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"calls", "calls", SCRY_CELL_COUNT, NULL, 0},
		{"function", "function", SCRY_CELL_TEXT, NULL, 0},
	};

	doc->section = "functions";
	doc->title = "calls of each function";
	scry_doc_table(doc, columns, 2);
	for (uint32_t i = SCRY_MALLOC_MALLOC; i <= SCRY_MALLOC_USABLE_SIZE; i++) {
		const char *name = scry_malloc_function_name(i);
		const struct scry_cell cells[] = {
			scry_cell_number(p->functions[i]),
			scry_cell_text(name, strlen(name)),
		};

		if (p->functions[i])
			doc->ops->row(doc, cells);
	}
}

void scry_malloc_lives_push(const struct scry_malloc_process *p, struct scry_doc *doc)
{
	static const struct scry_column calls[] = {
		{"calls up to", "up_to_calls", SCRY_CELL_COUNT, NULL, 0},
		{"blocks", "blocks", SCRY_CELL_COUNT, NULL, 0},
	};
	static const struct scry_column times[] = {
		{"s up to", "up_to_ns", SCRY_CELL_TIME, NULL, 0},
		{"blocks", "blocks", SCRY_CELL_COUNT, NULL, 0},
	};
	uint64_t bound = 1;

	doc->section = "lives_calls";
	doc->title = "lives of the blocks that ended, in calls of the process";
	scry_doc_table(doc, calls, 2);
	for (int i = 0; i < SCRY_MALLOC_LIFE_ROWS; i++, bound *= 4) {
		const struct scry_cell cells[] = {
			scry_cell_known(bound, i < SCRY_MALLOC_LIFE_ROWS - 1),
			scry_cell_number(p->lives[i]),
		};

		if (p->lives[i])
			doc->ops->row(doc, cells);
	}
	doc->section = "lives_time";
	doc->title = "the same in time; clocks are read each 64 calls or 100 us";
	scry_doc_table(doc, times, 2);
	bound = 1000;
	for (int i = 0; i < SCRY_MALLOC_TIME_ROWS; i++, bound *= 10) {
		const struct scry_cell cells[] = {
			scry_cell_known(bound, i < SCRY_MALLOC_TIME_ROWS - 1),
			scry_cell_number(p->times[i]),
		};

		if (p->times[i])
			doc->ops->row(doc, cells);
	}
}
