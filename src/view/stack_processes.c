/* Processes of samples. See stack_processes.h. */
#include "view/stack_processes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/vector.h"
#include "view/table.h"

#define PROCESSES_MAX (1u << 20)

void scry_stack_processes_init(struct scry_stack_processes *k)
{
	*k = (struct scry_stack_processes){.count = 0};
	scry_map_init(&k->ids, PROCESSES_MAX);
}

void scry_stack_processes_done(struct scry_stack_processes *k)
{
	scry_map_done(&k->ids);
	free(k->rows);
}

int scry_stack_processes_add(struct scry_stack_processes *k, uint32_t pid, uint64_t ns,
			     uint64_t samples)
{
	uint64_t *id = scry_map_ref(&k->ids, pid);

	if (!id || (!*id && scry_vector_reserve(&k->rows, k->count, &k->room)))
		return -ENOMEM;
	if (!*id) {
		k->rows[k->count] = (struct scry_stack_process){.pid = pid};
		*id = ++k->count;
	}
	k->rows[*id - 1].ns += ns;
	k->rows[*id - 1].samples += samples;
	return 0;
}

static int by_time(const void *left, const void *right)
{
	const struct scry_stack_process *a = left, *b = right;

	if (a->ns != b->ns)
		return a->ns < b->ns ? 1 : -1;
	return (a->pid > b->pid) - (a->pid < b->pid);
}

#define GET(name, ...) SCRY_GET(name, struct scry_stack_process, const uint64_t, __VA_ARGS__)
GET(get_tenths, scry_cell_number(scry_share(row->ns, *view, 1000)))
#undef GET

void scry_stack_processes_push(struct scry_stack_processes *k, uint64_t total_ns,
			       struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"%", NULL, SCRY_CELL_TENTHS, get_tenths, 0},
		{"s", "total_ns", SCRY_CELL_TIME, SCRY_AT(struct scry_stack_process, ns)},
		{"samples", "samples", SCRY_CELL_COUNT,
		 SCRY_AT(struct scry_stack_process, samples)},
		{"process", "pid", SCRY_CELL_NUMBER, SCRY_AT(struct scry_stack_process, pid)},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), SCRY_ROWS(k->rows, k->count),
					 .view = &total_ns};

	if (k->count < 2)
		return;
	qsort(k->rows, k->count, sizeof(*k->rows), by_time);
	doc->section = "processes";
	scry_table_push(&table, doc);
	doc->section = NULL;
}
