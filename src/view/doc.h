/*
 * A document: what a view says, in the order in which it says it.
 *
 * A view pushes honesty, a verdict, notes, totals, a table's columns, its rows, remarks; a renderer
 * (a row of scry_doc_ops) prints rows at once. So a document of gigabytes needs no memory, and N
 * views and M renderers need no N x M. Order: honesty (twice where two recordings are compared),
 * verdict and notes, totals, then each table: columns, rows, remarks. A stream: records, honesty.
 * Cells are foreign bytes; making them safe to show is the renderer's business.
 */
#ifndef SCRY_VIEW_DOC_H
#define SCRY_VIEW_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SCRY_DOC_COLUMNS_MAX 48

enum scry_cell_kind {
	SCRY_CELL_TEXT,	  /* left */
	SCRY_CELL_SYMBOL, /* left, demangled; mangled in JSON, with a key "demangled" behind it */
	SCRY_CELL_COUNT,  /* right, 1,234,567 */
	SCRY_CELL_NUMBER, /* right, 1234567: pids, lines, ids */
	SCRY_CELL_HEX,	  /* right, 0x7f...; a string in JSON */
	SCRY_CELL_TIME,	  /* right, ns shown as seconds with six decimals; ns in JSON */
	SCRY_CELL_DELTA,  /* right, the number as int64_t: +1,234,567; signed in JSON */
	SCRY_CELL_TENTHS, /* right, 12.3; not in JSON */
	SCRY_CELL_BOOL,	  /* JSON only */
	SCRY_CELL_FRAMES, /* JSON and folded only: a stack, outermost first */
	SCRY_CELL_VALUE,  /* JSON only: a value of any kind */
	SCRY_CELL_VALUES, /* JSON only: an array of them */
};

struct scry_column { /* elastic: TEXT is cut where the page is too wide, at its beginning or end */
	const char *title; /* NULL: not in text */
	const char *key;   /* snake_case, unit at the end; NULL: not in JSON */
	enum scry_cell_kind kind;
	enum { SCRY_COLUMN_RIGID, SCRY_COLUMN_ELASTIC, SCRY_COLUMN_CUT_AT_END } elastic;
};

struct scry_doc_frame {
	const char *file, *method; /* NULL: not known */
	size_t file_length, method_length;
	uint32_t line;
	bool is_c, is_native; /* a C function: file and line are its caller's; native: mangled */
	uint64_t offset;      /* is_native: from the symbol (method), else the object (file) */
};

enum scry_value_kind {
	SCRY_VALUE_NULL,
	SCRY_VALUE_TEXT, /* `bytes`, `number` of them */
	SCRY_VALUE_SIGNED,
	SCRY_VALUE_UNSIGNED,
	SCRY_VALUE_HEX,
	SCRY_VALUE_BOOL,
	SCRY_VALUE_DOUBLE, /* `number` holds its bits */
	SCRY_VALUE_BEGIN,  /* of a list: values up to its END are its own */
	SCRY_VALUE_END,
};
struct scry_doc_value {
	enum scry_value_kind kind;
	const char *bytes;
	uint64_t number;
};

struct scry_cell {
	bool is_unknown;   /* "-", or `bytes` where they say why; null in JSON */
	bool is_blank;	   /* text: nothing at all, of a total not even its line */
	char mark;	   /* text: behind the number; a blank keeps a marked column straight */
	const char *bytes; /* TEXT */
	size_t length;
	uint64_t number;		     /* all others */
	const struct scry_doc_frame *frames; /* FRAMES: `number` of them */
	const struct scry_doc_value *values; /* VALUE, VALUES: the same, with those in lists */
};

struct scry_pair { /* a named value: a total, or a field of a record */
	const char *key;
	const char *unit; /* text: put behind the value; may be NULL */
	enum scry_cell_kind kind;
	unsigned int bare_width; /* records: shown without its key, this wide; 0: key=value */
	struct scry_cell cell;
};

struct scry_honesty;
struct scry_doc;

struct scry_doc_ops {
	void (*honesty)(struct scry_doc *doc, const struct scry_honesty *honesty);
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
	FILE *talk;		   /* where a text stream's honesty goes; may be NULL */
	const char *view;	   /* "objects" */
	unsigned int schema;	   /* version of the view's JSON */
	bool is_stream, is_folded; /* folded: nothing but a table of stacks is wanted */
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
int scry_out_flame_open(struct scry_doc *doc);	/* the same, and "is_c": an HTML page */

/* Begins a table; `columns` must live until its last row, their texts until the end. */
void scry_doc_table(struct scry_doc *doc, const struct scry_column *columns, size_t count);

/* A sentence under the table, for people only. */
void scry_doc_remark(struct scry_doc *doc, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* For renderers, behind a line of a stream: writes a buffer that is half full, lest it is done in
 * the midst of a line. */
void scry_doc_pass_on(struct scry_doc *doc);

/* Finishes, flushes and frees the renderer. 0 or -errno with a sentence when writing failed. */
int scry_doc_end(struct scry_doc *doc);

/* Instead of scry_doc_end, when the view failed: what was printed stays as it is, cut. */
void scry_doc_abandon(struct scry_doc *doc);

struct scry_cell scry_cell_text(const char *bytes, size_t length); /* NULL: unknown */
struct scry_cell scry_cell_number(uint64_t number);
struct scry_cell scry_cell_unknown(void);
struct scry_cell scry_cell_few_samples(void); /* unknown, because of that */
struct scry_cell scry_cell_known(uint64_t number, bool is_known);

#endif
