/*
 * Cells: what a table, a total or a record shows, one by one.
 *
 * Cells are foreign bytes; making them safe to show is the renderer's business.
 */
#ifndef SCRY_VIEW_CELL_H
#define SCRY_VIEW_CELL_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
	SCRY_CELL_LINES,  /* text only, the whole row: lines, each with its end, safe to show */
};

struct scry_doc_frame {
	const char *file, *method; /* NULL: not known */
	size_t file_length, method_length;
	uint32_t line;
	bool is_c, is_native; /* a C function: file and line are its caller's; native: mangled */
	uint64_t offset;      /* is_native: from the symbol (method), else the object (file) */
	const char *label;    /* of a dump: the VM's own name; NULL: not in JSON */
	uint64_t address;     /* of a dump, is_native: the pc; 0: not in JSON */
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
	SCRY_VALUE_OBJECT, /* begins one: up to its end, a KEY is before each value */
	SCRY_VALUE_KEY,	   /* `bytes`, NUL-terminated */
	SCRY_VALUE_OBJECT_END,
};
struct scry_doc_value {
	enum scry_value_kind kind;
	const char *bytes;
	uint64_t number;
};
#define SCRY_VALUE_OF_KEY(key) ((struct scry_doc_value){.kind = SCRY_VALUE_KEY, .bytes = (key)})

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

struct scry_cell scry_cell_text(const char *bytes, size_t length); /* NULL: unknown */
struct scry_cell scry_cell_number(uint64_t number);
struct scry_cell scry_cell_unknown(void);
struct scry_cell scry_cell_few_samples(void); /* unknown, because of that */
struct scry_cell scry_cell_known(uint64_t number, bool is_known);
struct scry_cell scry_cell_string(const char *string);	    /* NULL: unknown */
struct scry_cell scry_cell_buf(const struct scry_buf *buf); /* empty: unknown */
/* A TEXT of milliseconds, "1.5", or of by how much they have changed, "+1.5"; in `buf`, which is
 * empty. */
struct scry_cell scry_cell_ms(double seconds, struct scry_buf *buf);
struct scry_cell scry_cell_ms_change(double seconds, struct scry_buf *buf);
/* A VALUE; `value` is the caller's until the row is printed. */
struct scry_cell scry_cell_double(double number, struct scry_doc_value *value);

#endif
