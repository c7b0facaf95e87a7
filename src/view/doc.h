/*
 * A document: what a view says, in the order in which it says it.
 *
 * A view pushes data quality, a verdict, notes, totals, a table's columns, its rows, remarks; a
 * renderer (a row of scry_doc_ops) prints rows at once. So a document of gigabytes needs no memory,
 * and N views and M renderers need no N x M. Order: data quality (twice where two recordings are
 * compared), verdict and notes, totals, then each table: columns, rows, remarks. A stream: records,
 * data quality.
 */
#ifndef SCRY_VIEW_DOC_H
#define SCRY_VIEW_DOC_H

#include "view/cell.h"

#include <stdio.h>

#define SCRY_DOC_COLUMNS_MAX 48

/* A column is one row: what people and programs call it, and where its cells come from. */
struct scry_column {
	const char *title; /* NULL: not in text */
	const char *key;   /* snake_case, unit at the end; NULL: not in JSON */
	enum scry_cell_kind kind;
	/* The cell of a row. `view` is that of the table; `buf` is empty, and the cell's own until
	 * the row is printed. NULL: the unsigned number in the row (SCRY_AT). */
	struct scry_cell (*get)(const void *row, void *view, struct scry_buf *buf);
	unsigned int how; /* SCRY_COLUMN_..., and where that number is */
};
#define SCRY_COLUMN_ELASTIC 1u	  /* TEXT is cut where the page is too wide: its beginning goes */
#define SCRY_COLUMN_CUT_AT_END 2u /* the same, and its end goes */
#define SCRY_COLUMN_FILTER 8u	  /* --filter takes it for the column before it, too */
#define SCRY_COLUMN_GREP 4u	  /* --grep looks at it, also where it is not shown */

struct scry_pair { /* a named value: a total, or a field of a record */
	const char *key;
	const char *unit; /* text: put behind the value; may be NULL */
	enum scry_cell_kind kind;
	unsigned int bare_width; /* records: shown without its key, this wide; 0: key=value */
	struct scry_cell cell;
};

struct scry_data_quality;
struct scry_doc;

struct scry_doc_ops {
	void (*quality)(struct scry_doc *doc, const struct scry_data_quality *quality);
	void (*note)(struct scry_doc *doc, const char *bytes, size_t length);
	void (*verdict)(struct scry_doc *doc, const char *bytes, size_t length);
	void (*totals)(struct scry_doc *doc, const struct scry_pair *pairs, size_t count);
	void (*table)(struct scry_doc *doc);
	void (*row)(struct scry_doc *doc, const struct scry_cell *cells);
	void (*remark)(struct scry_doc *doc, const char *text);
	void (*record)(struct scry_doc *doc, const struct scry_pair *pairs, size_t count);
	/* Of a stream for people: bytes that are safe to show, at once. NULL: is_data. */
	void (*text)(struct scry_doc *doc, const char *bytes, size_t length);
	int (*end)(struct scry_doc *doc);
	void (*abandon)(struct scry_doc *doc); /* frees, prints no more */
};

struct scry_doc {
	const struct scry_doc_ops *ops;
	FILE *out;
	FILE *talk;		   /* where a text stream's data quality goes; may be NULL */
	const char *view;	   /* "objects" */
	unsigned int schema;	   /* version of the view's JSON */
	bool is_stream, is_folded; /* folded: nothing but a table of stacks is wanted */
	bool is_cost;		   /* the next notes are bookkeeping: text has them at its end */
	bool is_data;		   /* read by programs: give all rows, ungrouped */
	unsigned int width; /* columns of the terminal; 0: a page may be as wide as it likes */
	const char *weight; /* folded: key of the column that is counted */
	const struct scry_column *columns; /* of the table that is open */
	const char *section;		   /* JSON: key of the next table; NULL: "rows" */
	const char *title;		   /* a line above the next table, for people; NULL: none */
	size_t column_count;
	void *renderer; /* the renderer's own state */
};

/* Renderers: 0 or -ENOMEM with a sentence. view, schema, is_stream, out and talk are set before. */
int scry_out_text_open(struct scry_doc *doc);
int scry_out_json_open(struct scry_doc *doc);
int scry_out_folded_open(struct scry_doc *doc); /* for tables with a column "stack" */
int scry_out_speedscope_open(struct scry_doc *doc);
int scry_out_flame_open(struct scry_doc *doc); /* the same: an HTML page */

/* A frame of a stack in JSON: what FRAMES is an array of. */
struct scry_json;
void scry_out_json_frame(struct scry_json *json, const struct scry_doc_frame *frame);

/* Begins a table; `columns` must live until its last row, their texts until the end. */
void scry_doc_table(struct scry_doc *doc, const struct scry_column *columns, size_t count);

/* A sentence under the table, for people only. */
void scry_doc_remark(struct scry_doc *doc, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* For renderers, behind a line of a stream: writes a buffer that is half full, so that it is not
 * done in the midst of a line. */
void scry_doc_pass_on(struct scry_doc *doc);

/* Finishes, flushes and frees the renderer. 0 or -errno with a sentence when writing failed. */
int scry_doc_end(struct scry_doc *doc);

/* Instead of scry_doc_end, when the view failed: what was printed stays as it is, cut. */
void scry_doc_abandon(struct scry_doc *doc);

#endif
