/*
 * A traced call in words: "mysql_real_query(0x27bc540, \"SELECT 1\", 8) = 0". What its function is
 * called and how it is shown comes from FUNCTION events before it.
 */
#ifndef SCRY_VIEW_CALLS_LINE_H
#define SCRY_VIEW_CALLS_LINE_H

#include "base/buf.h"
#include "base/map.h"
#include "view/doc.h"
#include "view/view.h"

#define SCRY_CALL_SHOWN_MAX 6u

struct scry_call_functions { /* of all processes, by process and number */
	struct scry_map by_number;
	struct scry_ev_function *rows;
	size_t count, room;
};

void scry_call_functions_init(struct scry_call_functions *f);
void scry_call_functions_done(struct scry_call_functions *f);
/* 0 or -ENOMEM with a sentence. A number that is defined again means the new one from then on. */
int scry_call_functions_add(struct scry_call_functions *f, const struct scry_ev_function *ev);
/* NULL: not defined. Valid until the next one is added. */
const struct scry_ev_function *scry_call_functions_find(const struct scry_call_functions *f,
							uint32_t pid, uint32_t number);

/* One key for a call of any process. */
static inline uint64_t scry_call_key(uint32_t pid, uint64_t call)
{
	return (uint64_t)pid << 42 ^ call;
}

/* The function's form; a short or odd one is completed by `x`. */
struct scry_call_form {
	char letters[1 + SCRY_CALL_SHOWN_MAX + 1];
};
struct scry_call_form scry_call_form(const struct scry_reader *reader,
				     const struct scry_ev_function *f);

/* Appends "name(arg, arg". `event` is a CALL; `f` may be NULL. */
void scry_call_put(struct scry_buf *buf, const struct scry_reader *reader,
		   const struct scry_event *event, const struct scry_ev_function *f);
/* Appends numbers: a line has many, and printf would take longer than all the rest. `digits`: at
 * least so many, zeros before. */
void scry_call_put_u64(struct scry_buf *buf, uint64_t value, unsigned int digits);
/* "1.000600", in seconds from nanoseconds. */
void scry_call_put_seconds(struct scry_buf *buf, uint64_t ns);
/* Appends a value by its form's letter. */
void scry_call_put_value(struct scry_buf *buf, char letter, uint64_t value);

/* For JSON: the arguments of a CALL, at most SCRY_CALL_SHOWN_MAX; texts point into `event`. Returns
 * how many. */
size_t scry_call_values(const struct scry_reader *reader, const struct scry_event *event,
			const struct scry_ev_function *f, struct scry_doc_value *ret);
struct scry_doc_value scry_call_value(char letter, uint64_t value);

#endif
