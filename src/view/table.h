/*
 * A table: rows of one kind, and columns that know how to get their cells from a row.
 *
 * What --grep, --filter and --top leave out is decided and counted here, for every view alike, and
 * one remark says it. A row's cells are made when it is printed, those that the form has: a column
 * without a title costs nothing as text, one without a key nothing as JSON.
 */
#ifndef SCRY_VIEW_TABLE_H
#define SCRY_VIEW_TABLE_H

#include "view/doc.h"
#include "view/filter.h"
#include "view/grep.h"

/* The rest of a column that shows an unsigned number of the row as it is. */
#define SCRY_AT(type, member)                                              \
	NULL, (unsigned int)((offsetof(type, member) << 16) /              \
				     (offsetof(type, member) < 1u << 16) | \
			     sizeof(((type *)0)->member) << 8)

/*
 * Defines a `get` of scry_column in one line: an expression of `row` and `view`, and of `buf` for
 * texts that are put together. A file that has many of them gives the two types once:
 *
 *	#define GET(name, ...) SCRY_GET(name, struct row, struct locks, __VA_ARGS__)
 *	GET(get_mean, scry_cell_known(row->sum / row->count, row->count != 0))
 */
#define SCRY_GET(name, row_type, view_type, ...)                                          \
	static struct scry_cell name(const void *row_, void *view_, struct scry_buf *buf) \
	{                                                                                 \
		const row_type *row __attribute__((unused)) = row_;                       \
		view_type *view __attribute__((unused)) = view_;                          \
		return __VA_ARGS__;                                                       \
	}

struct scry_table {
	const struct scry_column *columns;
	size_t column_count;
	const void *rows; /* one behind the other, or with `size` 0 pointers to them */
	size_t count, size;
	void *view; /* for `get` and `has` */
	/* Is it one of this table at all? NULL: all are. */
	bool (*has)(const void *row, void *view);
	const struct scry_grep *grep; /* NULL: all; else rows with a column that matches */
	/* NULL: all; else what --filter gave: rows whose columns match. It does not concern a table
	 * that has no such column, which a remark says. */
	const struct scry_opt_strings *filter;
	uint64_t top;	  /* rows at most; 0: all */
	const char *sort; /* key of a column: biggest first; NULL: as they are */
	/* How the view has sorted them, as for qsort of `rows`: those that it calls equal come in
	 * the order of their texts, ids and addresses, whatever came first. NULL: as they are. */
	int (*order)(const void *left, const void *right);
	const char *noun; /* of the remark, in the plural; NULL: "rows" */
	const void *last; /* below more than one row: a row of what they sum to, or NULL */
};

/* For its initialiser: an array of columns, `n` rows in an array, `n` pointers to rows. */
#define SCRY_COLUMNS(array) .columns = (array), .column_count = sizeof(array) / sizeof((array)[0])
#define SCRY_ROWS(array, n) .rows = (array), .count = (n), .size = sizeof(*(array))
#define SCRY_ROW_POINTERS(array, n) .rows = (array), .count = (n)

/* Do --grep and --filter let it through? The columns with SCRY_COLUMN_GREP, each by itself or all
 * in a line; those that a filter names by their keys. */
bool scry_table_wants(const struct scry_table *table, const void *row);

/* 0, or -EINVAL with a sentence: --filter names a column that these rows have not. */
int scry_table_check_filter(const struct scry_table *table, const char *view);

/* The first row that matches, in that order, but not of `sort`; NULL: there is none. */
const void *scry_table_first(const struct scry_table *table);

/* Columns, rows, and the remark on what is left out. Returns how many rows there were to see. */
uint64_t scry_table_push(const struct scry_table *table, struct scry_doc *doc);

/* The cells of one row more, which is shown whatever is asked for. */
void scry_table_push_row(const struct scry_table *table, const void *row, struct scry_doc *doc);

/* The remark on what is not shown. Of nothing there is none. */
struct scry_left_out {
	const char *noun;    /* in the plural; NULL: "rows" */
	uint64_t by_top;     /* rows */
	uint64_t top_weight; /* that these stand for: of `things`; 0: not said */
	const char *things;  /* what the next ones are, in the plural; NULL: `noun` */
	uint64_t by_grep, by_filter, by_live; /* of `things` */
	const char *of;			      /* these are: " of the later moment"; NULL: nothing */
};
void scry_left_out_push(const struct scry_left_out *left_out, struct scry_doc *doc);

#endif
