/* See malloc_sizes.h. */
#include "view/malloc_sizes.h"

#include "base/text.h"
#include "view/table.h"

struct size_row {
	unsigned int number; /* of the row: sizes up to 2^number */
	uint64_t blocks, bytes, end_blocks, end_bytes;
	const struct scry_malloc_caller_sum *most;
};

#define GET(name, ...) SCRY_GET(name, struct size_row, const struct scry_malloc_places, __VA_ARGS__)
GET(get_up_to, scry_cell_known(1ull << row->number, row->number < SCRY_MALLOC_SIZE_ROWS - 1))
GET(get_share, scry_cell_number(scry_share(row->most->size_blocks[row->number], row->blocks, 100)))

static struct scry_cell get_most(const void *row_, void *places, struct scry_buf *buf)
{
	const struct size_row *row = row_;

	scry_malloc_places_put(places, row->most, buf);
	return scry_cell_buf(buf);
}

static const struct scry_column columns[] = {
	{"size up to", "up_to_bytes", SCRY_CELL_COUNT, get_up_to, 0},
	{"blocks", "blocks", SCRY_CELL_COUNT, SCRY_AT(struct size_row, blocks)},
	{"bytes", "bytes", SCRY_CELL_COUNT, SCRY_AT(struct size_row, bytes)},
	{"live at end", "end_blocks", SCRY_CELL_COUNT, SCRY_AT(struct size_row, end_blocks)},
	{"bytes", "end_bytes", SCRY_CELL_COUNT, SCRY_AT(struct size_row, end_bytes)},
	{"%", NULL, SCRY_CELL_COUNT, get_share, 0},
	{"of the blocks by", NULL, SCRY_CELL_TEXT, get_most, SCRY_COLUMN_ELASTIC},
};

static const struct scry_malloc_caller_sum *most_of(const struct scry_malloc_process *p,
						    unsigned int size)
{
	const struct scry_malloc_caller_sum *most = &p->callers[0];

	for (uint32_t i = 1; i < p->caller_count; i++)
		if (p->callers[i].size_blocks[size] > most->size_blocks[size])
			most = &p->callers[i];
	return most;
}

void scry_malloc_sizes_push(const struct scry_malloc_places *places, struct scry_doc *doc)
{
	const struct scry_malloc_process *p = places->process;
	struct size_row rows[SCRY_MALLOC_SIZE_ROWS];
	size_t count = 0;

	for (unsigned int i = 0; i < SCRY_MALLOC_SIZE_ROWS; i++)
		if (p->sizes[i].blocks)
			rows[count++] = (struct size_row){i,
							  p->sizes[i].blocks,
							  p->sizes[i].bytes,
							  p->size_live[i].blocks,
							  p->size_live[i].bytes,
							  most_of(p, i)};
	const struct scry_table table = {
		SCRY_COLUMNS(columns),
		SCRY_ROWS(rows, count),
		.view = (void *)places,
	};

	doc->section = "sizes";
	doc->title = "sizes asked for, and the caller with most blocks of each";
	scry_table_push(&table, doc);
}

uint32_t scry_malloc_sizes_values(const struct scry_malloc_caller_sum *caller,
				  struct scry_doc_value ret_values[SCRY_MALLOC_SIZE_VALUES])
{
	struct scry_doc_value *to = ret_values;

	for (unsigned int i = 0; i < SCRY_MALLOC_SIZE_ROWS; i++) {
		if (!caller->size_blocks[i])
			continue;
		*to++ = (struct scry_doc_value){.kind = SCRY_VALUE_BEGIN};
		*to++ = (struct scry_doc_value){.kind = i < SCRY_MALLOC_SIZE_ROWS - 1
								? SCRY_VALUE_UNSIGNED
								: SCRY_VALUE_NULL,
						.number = 1ull << i};
		*to++ = (struct scry_doc_value){.kind = SCRY_VALUE_UNSIGNED,
						.number = caller->size_blocks[i]};
		*to++ = (struct scry_doc_value){.kind = SCRY_VALUE_END};
	}
	return (uint32_t)(to - ret_values);
}
