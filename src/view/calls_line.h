/*
 * A traced call in words: "mysql_real_query(0x27bc540, \"SELECT 1\", 8) = 0". What its function is
 * called and how it is shown comes from FUNCTION events before it.
 */
#ifndef SCRY_VIEW_CALLS_LINE_H
#define SCRY_VIEW_CALLS_LINE_H

#include "base/buf.h"
#include "base/map.h"
#include "proto/protos.h"
#include "view/calls_value.h"
#include "view/view.h"

struct scry_call_function {
	struct scry_ev_function ev;
	const struct scry_proto *proto; /* that of unknown functions, where it has none */
	bool is_kernel;			/* a system call */
	bool is_main;			/* of the program itself */
	bool is_vfork;
};
struct scry_call_functions { /* of all processes, by process and number */
	struct scry_map by_number;
	struct scry_map programs; /* process -> string of its file */
	struct scry_call_function *rows;
	size_t count, room;
	struct scry_map by_text; /* the string of a prototype -> its set */
	struct scry_protos **sets;
	size_t set_count;
	uint32_t module, caller; /* the first one's; what differs makes them several */
	bool are_several;
};

void scry_call_functions_init(struct scry_call_functions *f);
void scry_call_functions_done(struct scry_call_functions *f);
/* 0 or -ENOMEM with a sentence. A number that is defined again means the new one from then on. */
int scry_call_functions_add(struct scry_call_functions *f, const struct scry_reader *reader,
			    const struct scry_ev_function *ev);
/* Functions that come then may be its own. */
void scry_call_functions_program(struct scry_call_functions *f, const struct scry_ev_process *ev);
/* NULL: not defined. Valid until the next one is added. */
const struct scry_call_function *scry_call_functions_find(const struct scry_call_functions *f,
							  uint32_t pid, uint32_t number);

/* "app->puts", "puts@libc.so.6", or, without the objects, "puts". `f` may be NULL. */
void scry_call_put_name(struct scry_buf *buf, const struct scry_reader *reader,
			const struct scry_call_function *f, bool with_objects);

/* "ENOENT", of a system call, or of a function that sets errno, that failed, and the number that
 * has words (strerror(3)), 0: none; NULL: it did not fail, or the error is not known. */
const char *scry_call_error(const struct scry_call_function *f, const struct scry_call_image *image,
			    int *ret_number);

/* One key for a call of any process. */
static inline uint64_t scry_call_key(uint32_t pid, uint64_t call)
{
	return (uint64_t)pid << 42 ^ call;
}

/* How many arguments are shown of a CALL: of functions that nothing is known of no more than was
 * recorded. */
uint32_t scry_call_args_shown(const struct scry_proto *proto, const struct scry_event *event);

/* Appends "(arg, arg": what is shown before the call has returned, behind its name. `f` may be
 * NULL. out->text. Returns whether an argument was shown. */
bool scry_call_put(const struct scry_call_out *out, const struct scry_event *event,
		   const struct scry_call_function *f);
/* The rest: "arg) = result". `ret` is a RETURN; `need_comma` what scry_call_put has returned. */
void scry_call_put_rest(const struct scry_call_out *out, const struct scry_call_image *image,
			const struct scry_call_function *f, bool need_comma);

/* "2 calls have no time, as their returns are not followed"; nothing for 0. `more`: "" or "more ";
 * `rest` follows. */
void scry_call_remark_alone(struct scry_doc *doc, uint64_t calls, const char *more,
			    const char *rest);

#endif
