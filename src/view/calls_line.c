/* See calls_line.h. */
#include "view/calls_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"

#define FUNCTIONS_MAX (1u << 22)
#define PROGRAMS_MAX (1u << 20)
#define ERROR_MAX 4095 /* of the kernel's results */

void scry_call_functions_init(struct scry_call_functions *f)
{
	*f = (struct scry_call_functions){0};
	scry_map_init(&f->by_number, FUNCTIONS_MAX);
	scry_map_init(&f->by_text, FUNCTIONS_MAX);
	scry_map_init(&f->programs, PROGRAMS_MAX);
}

void scry_call_functions_done(struct scry_call_functions *f)
{
	scry_map_done(&f->by_number);
	scry_map_done(&f->by_text);
	scry_map_done(&f->programs);
	for (size_t i = 0; i < f->set_count; i++)
		scry_protos_free(f->sets[i]);
	free(f->sets);
	free(f->rows);
	*f = (struct scry_call_functions){0};
}

/* The last prototype of a text; that of unknown functions where there is none. NULL: no memory. */
static const struct scry_proto *proto_of(struct scry_call_functions *f,
					 const struct scry_reader *reader, uint32_t text_str)
{
	size_t length = 0, n = 0;
	const char *text = scry_reader_string(reader, text_str, &length);
	struct scry_protos **sets;
	uint64_t *set = text ? scry_map_ref(&f->by_text, text_str) : NULL;

	if (!text)
		return &scry_proto_unknown;
	if (set && !*set) {
		sets = reallocarray(f->sets, f->set_count + 1, sizeof(struct scry_protos *));
		if (!sets)
			return NULL;
		f->sets = sets;
		sets[f->set_count] = scry_protos_new();
		if (!sets[f->set_count])
			return NULL;
		if (scry_protos_read(sets[f->set_count], "a prototype", text, length) == -EINVAL)
			scry_error_clear(); /* of another scry */
		*set = ++f->set_count;
	}
	if (!set)
		return NULL;
	while (scry_protos_at(f->sets[*set - 1], n))
		n++;
	return n ? scry_protos_at(f->sets[*set - 1], n - 1) : &scry_proto_unknown;
}

void scry_call_functions_program(struct scry_call_functions *f, const struct scry_ev_process *ev)
{
	scry_map_put(&f->programs, ev->pid, ev->exe_str); /* no memory: functions have their file */
}

int scry_call_functions_add(struct scry_call_functions *f, const struct scry_reader *reader,
			    const struct scry_ev_function *ev)
{
	const struct scry_proto *proto = proto_of(f, reader, ev->prototype_str);
	struct scry_call_function one;
	const char *module, *symbol;
	uint64_t program;

	if (f->count == f->room) {
		size_t room = f->room ? 2 * f->room : 64;
		struct scry_call_function *more = reallocarray(f->rows, room, sizeof(*more));

		if (!more)
			return scry_no_memory("%zu functions", room);
		f->rows = more;
		f->room = room;
	}
	if (!proto ||
	    scry_map_put(&f->by_number, (uint64_t)ev->pid << 32 | ev->function, f->count) < 0)
		return scry_no_memory("%zu functions", f->count);
	one = (struct scry_call_function){.ev = *ev, .proto = proto};
	module = scry_reader_string(reader, ev->module_str, NULL);
	one.is_kernel = module && !strcmp(module, "kernel");
	symbol = scry_reader_string(reader, ev->symbol_str, NULL);
	one.is_vfork = symbol && (!strcmp(symbol, "vfork") || !strcmp(symbol, "__vfork"));
	one.is_main = scry_map_get(&f->programs, ev->pid, &program) && program == ev->module_str;
	if (!one.is_kernel) {
		f->are_several |= f->module && (f->caller != ev->caller_str ||
						(!f->caller && f->module != ev->module_str));
		f->module = ev->module_str;
		f->caller = ev->caller_str;
	}
	f->rows[f->count++] = one;
	return 0;
}

const struct scry_call_function *scry_call_functions_find(const struct scry_call_functions *f,
							  uint32_t pid, uint32_t number)
{
	uint64_t at;

	return scry_map_get(&f->by_number, (uint64_t)pid << 32 | number, &at) ? &f->rows[at] : NULL;
}

uint32_t scry_call_args_shown(const struct scry_proto *proto, const struct scry_event *event)
{
	const struct scry_ev_call *call = (const void *)(event + 1);

	if (call->flags & SCRY_CALL_HAS_NO_ARGS)
		return 0;
	return proto == &scry_proto_unknown && call->args < proto->count ? call->args
									 : proto->count;
}

static void put_object(struct scry_buf *buf, const char *path)
{
	const char *slash = strrchr(path, '/');

	slash = slash ? slash + 1 : path;
	scry_text_escape(buf, slash, strlen(slash));
}

void scry_call_put_name(struct scry_buf *buf, const struct scry_reader *reader,
			const struct scry_call_function *f, bool with_objects)
{
	size_t length = 0;
	const char *name = f ? scry_reader_string(reader, f->ev.symbol_str, &length) : NULL;
	const char *caller = f ? scry_reader_string(reader, f->ev.caller_str, NULL) : NULL;
	const char *module = f ? scry_reader_string(reader, f->ev.module_str, NULL) : NULL;

	if (with_objects && caller) {
		put_object(buf, caller);
		scry_buf_append(buf, "->", 2);
	}
	scry_demangle_show_bare(name ? name : "?", name ? length : 1, buf);
	if (!with_objects || caller || !module || f->is_kernel || f->is_main)
		return;
	scry_buf_append(buf, "@", 1);
	put_object(buf, module);
}

bool scry_call_put(const struct scry_call_out *out, const struct scry_event *event,
		   const struct scry_call_function *f)
{
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_proto *proto = f ? f->proto : &scry_proto_unknown;
	const struct scry_call_image image = {.call = event};
	uint32_t to = scry_call_args_shown(proto, event);
	bool need_comma = false;

	scry_buf_append(out->text, "(", 1);
	if (call->flags & SCRY_CALL_HAS_NO_ARGS)
		scry_buf_append(out->text, "...", 3);
	else
		scry_call_show_args(&image, proto, 0, proto->right < to ? proto->right : to,
				    &need_comma, out);
	return need_comma;
}

/* By errno, of a function whose prototype says that it sets it. */
static uint64_t errno_of(const struct scry_call_function *f, const struct scry_call_image *image)
{
	const struct scry_ev_return *ret = (const void *)(image->ret + 1);
	const struct scry_type *t = f->proto->result;
	uint64_t error = 0;
	bool is_failed = t->kind == SCRY_TYPE_POINTER ? !ret->result
			 : t->size == 4		      ? (uint32_t)ret->result == UINT32_MAX
						      : ret->result == UINT64_MAX;

	return t->marks & SCRY_MARK_ERRNO && is_failed && scry_call_errno(image, &error) ? error
											 : 0;
}

const char *scry_call_error(const struct scry_call_function *f, const struct scry_call_image *image,
			    int *ret_number)
{
	static const char *const restarts[] = {"ERESTARTSYS", "ERESTARTNOINTR", "ERESTARTNOHAND",
					       NULL, "ERESTART_RESTARTBLOCK"}; /* from 512 on */
	const struct scry_ev_return *ret = image->ret ? (const void *)(image->ret + 1) : NULL;
	uint64_t error;

	*ret_number = 0;
	if (!f || !ret || ret->how != SCRY_RETURN_DONE)
		return NULL;
	error = f->is_kernel ? -ret->result : errno_of(f, image);
	if (!error || error > ERROR_MAX)
		return NULL;
	if (error >= 512 && error - 512 < sizeof(restarts) / sizeof(restarts[0]))
		return restarts[error - 512];
	*ret_number = strerrorname_np((int)error) ? (int)error : 0;
	return strerrorname_np((int)error);
}

void scry_call_put_rest(const struct scry_call_out *out, const struct scry_call_image *image,
			const struct scry_call_function *f, bool need_comma)
{
	const struct scry_proto *proto = f ? f->proto : &scry_proto_unknown;
	const struct scry_ev_return *ret = (const void *)(image->ret + 1);
	struct scry_buf *buf = out->text;
	const char *error;
	int number;
	uint32_t to = scry_call_args_shown(proto, image->call);

	if (proto->right < to)
		scry_call_show_args(image, proto, proto->right, to, &need_comma, out);
	scry_buf_append(buf, ") = ", 4);
	if (ret->how == SCRY_RETURN_LEFT)
		scry_buf_append(buf, "? <left>", 8);
	else if (ret->how != SCRY_RETURN_DONE)
		scry_buf_append(buf, "? <no return>", 13);
	else
		scry_call_show_result(image, proto, out);
	error = scry_call_error(f, image, &number);
	if (error)
		scry_buf_printf(buf, " %s", error);
	if (number)
		scry_buf_printf(buf, " (%s)", strerrordesc_np(number));
}

void scry_call_remark_alone(struct scry_doc *doc, uint64_t calls, const char *more,
			    const char *rest)
{
	if (calls)
		scry_doc_remark(doc, "%llu %s%s no time, as %s not followed%s",
				(unsigned long long)calls, more,
				calls == 1 ? "call has" : "calls have",
				calls == 1 ? "its return is" : "their returns are", rest);
}
