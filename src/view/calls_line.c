/* See calls_line.h. */
#include "view/calls_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"

#define FUNCTIONS_MAX (1u << 22)
#define SMALL 10000 /* numbers nearer to 0 are no addresses */

void scry_call_functions_init(struct scry_call_functions *f)
{
	*f = (struct scry_call_functions){0};
	scry_map_init(&f->by_number, FUNCTIONS_MAX);
}

void scry_call_functions_done(struct scry_call_functions *f)
{
	scry_map_done(&f->by_number);
	free(f->rows);
	*f = (struct scry_call_functions){0};
}

int scry_call_functions_add(struct scry_call_functions *f, const struct scry_ev_function *ev)
{
	if (f->count == f->room) {
		size_t room = f->room ? 2 * f->room : 64;
		struct scry_ev_function *more = reallocarray(f->rows, room, sizeof(*more));

		if (!more)
			return scry_fail(-ENOMEM, "no memory for %zu functions", room);
		f->rows = more;
		f->room = room;
	}
	if (scry_map_put(&f->by_number, (uint64_t)ev->pid << 32 | ev->function, f->count) < 0)
		return scry_fail(-ENOMEM, "no memory for %zu functions", f->count);
	f->rows[f->count++] = *ev;
	return 0;
}

const struct scry_ev_function *scry_call_functions_find(const struct scry_call_functions *f,
							uint32_t pid, uint32_t number)
{
	uint64_t at;

	return scry_map_get(&f->by_number, (uint64_t)pid << 32 | number, &at) ? &f->rows[at] : NULL;
}

struct scry_call_form scry_call_form(const struct scry_reader *reader,
				     const struct scry_ev_function *f)
{
	struct scry_call_form form = {"xxxxxxx"};
	const char *letters = f ? scry_reader_string(reader, f->form_str, NULL) : NULL;

	for (size_t i = 0; letters && letters[i] && i < 1 + SCRY_CALL_SHOWN_MAX; i++)
		form.letters[i] = letters[i];
	return form;
}

static bool is_small(uint64_t value)
{
	return value + SMALL < 2 * SMALL;
}

void scry_call_put_u64(struct scry_buf *buf, uint64_t value, unsigned int digits)
{
	char text[24], *at = text + sizeof(text);

	for (; value || digits; value /= 10) {
		*--at = (char)('0' + value % 10);
		digits -= digits > 0;
	}
	scry_buf_append(buf, at, (size_t)(text + sizeof(text) - at));
}

void scry_call_put_seconds(struct scry_buf *buf, uint64_t ns)
{
	scry_call_put_u64(buf, ns / 1000000000, 1);
	scry_buf_append(buf, ".", 1);
	scry_call_put_u64(buf, ns % 1000000000 / 1000, 6);
}

static void put_i64(struct scry_buf *buf, int64_t value)
{
	if (value < 0)
		scry_buf_append(buf, "-", 1);
	scry_call_put_u64(buf, value < 0 ? -(uint64_t)value : (uint64_t)value, 1);
}

static void put_hex(struct scry_buf *buf, uint64_t value)
{
	char text[18], *at = text + sizeof(text);

	do
		*--at = "0123456789abcdef"[value & 15];
	while (value >>= 4);
	*--at = 'x';
	*--at = '0';
	scry_buf_append(buf, at, (size_t)(text + sizeof(text) - at));
}

void scry_call_put_value(struct scry_buf *buf, char letter, uint64_t value)
{
	if (letter == 'v')
		scry_buf_append(buf, "<void>", 6);
	else if (letter == 'i')
		put_i64(buf, (int32_t)value);
	else if (letter == 'u')
		scry_call_put_u64(buf, (uint32_t)value, 1);
	else if (letter == 'b')
		scry_call_put_u64(buf, value & 0xff, 1);
	else if (letter == 'l' || (letter == 'x' && is_small(value)))
		put_i64(buf, (int64_t)value);
	else if (letter == 'z')
		scry_call_put_u64(buf, value, 1);
	else if (letter == 'x' || value)
		put_hex(buf, value);
	else
		scry_buf_append(buf, "nil", 3);
}

static const uint64_t *arguments_of(const struct scry_event *event, uint32_t *ret_count)
{
	const struct scry_ev_call *call = (const void *)(event + 1);

	*ret_count = call->args < SCRY_CALL_SHOWN_MAX ? call->args : SCRY_CALL_SHOWN_MAX;
	return &call->arg1;
}

void scry_call_put(struct scry_buf *buf, const struct scry_reader *reader,
		   const struct scry_event *event, const struct scry_ev_function *f)
{
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_call_form form = scry_call_form(reader, f);
	size_t length = 0;
	const char *name = f ? scry_reader_string(reader, f->symbol_str, &length) : NULL;
	uint32_t count;
	const uint64_t *arguments = arguments_of(event, &count);

	scry_text_escape(buf, name ? name : "?", name ? length : 1);
	scry_buf_append(buf, "(", 1);
	if (call->flags & SCRY_CALL_HAS_NO_ARGS)
		scry_buf_append(buf, "...", 3);
	for (uint32_t i = 0; i < count; i++) {
		if (i)
			scry_buf_append(buf, ", ", 2);
		if (call->text_arg != i + 1) {
			scry_call_put_value(buf, form.letters[i + 1], arguments[i]);
			continue;
		}
		scry_text_quote(buf, (const char *)(call + 1), call->text_bytes);
		if (call->flags & SCRY_CALL_IS_CUT)
			scry_buf_append(buf, "...", 3);
	}
}

struct scry_doc_value scry_call_value(char letter, uint64_t value)
{
	switch (letter) {
	case 'v':
		return (struct scry_doc_value){.kind = SCRY_VALUE_NULL};
	case 'i':
		return (struct scry_doc_value){.kind = SCRY_VALUE_SIGNED,
					       .number = (uint64_t)(int64_t)(int32_t)value};
	case 'u':
		return (struct scry_doc_value){.kind = SCRY_VALUE_UNSIGNED,
					       .number = (uint32_t)value};
	case 'b':
		return (struct scry_doc_value){.kind = SCRY_VALUE_UNSIGNED, .number = value & 0xff};
	case 'l':
		return (struct scry_doc_value){.kind = SCRY_VALUE_SIGNED, .number = value};
	case 'z':
		return (struct scry_doc_value){.kind = SCRY_VALUE_UNSIGNED, .number = value};
	default:
		return (struct scry_doc_value){.kind = letter == 'x' && is_small(value)
							       ? SCRY_VALUE_SIGNED
							       : SCRY_VALUE_HEX,
					       .number = value};
	}
}

size_t scry_call_values(const struct scry_reader *reader, const struct scry_event *event,
			const struct scry_ev_function *f, struct scry_doc_value *ret)
{
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_call_form form = scry_call_form(reader, f);
	uint32_t count;
	const uint64_t *arguments = arguments_of(event, &count);

	for (uint32_t i = 0; i < count; i++)
		ret[i] = call->text_arg == i + 1
				 ? (struct scry_doc_value){.kind = SCRY_VALUE_TEXT,
							   .bytes = (const char *)(call + 1),
							   .number = call->text_bytes}
				 : scry_call_value(form.letters[i + 1], arguments[i]);
	return count;
}
