/*
 * A malloc recording as text. See malloc_text.h.
 */
#include "rec/malloc_text.h"
#include "rec/malloc_part.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "rec/fields.h"
#include "rec/malloc_effect.h"
#include "rec/sections.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct text_out {
	struct scry_reader *reader;
	FILE *out;
	uint64_t began_ns; /* from when on calls were recorded */
	uint64_t time_ns;
	uint64_t calls;
	struct scry_map alive; /* blocks; what a fork child inherited is not among them */
};

const char *scry_malloc_function_name(uint32_t function)
{
	static const char *const names[SCRY_MALLOC_FUNCTIONS] = {
		[SCRY_MALLOC_MALLOC] = "malloc",
		[SCRY_MALLOC_CALLOC] = "calloc",
		[SCRY_MALLOC_POSIX_MEMALIGN] = "posix_memalign",
		[SCRY_MALLOC_ALIGNED_ALLOC] = "aligned_alloc",
		[SCRY_MALLOC_MEMALIGN] = "memalign",
		[SCRY_MALLOC_VALLOC] = "valloc",
		[SCRY_MALLOC_PVALLOC] = "pvalloc",
		[SCRY_MALLOC_NEW] = "operator_new",
		[SCRY_MALLOC_NEW_ARRAY] = "operator_new[]",
		[SCRY_MALLOC_REALLOC] = "realloc",
		[SCRY_MALLOC_REALLOCARRAY] = "reallocarray",
		[SCRY_MALLOC_FREE] = "free",
		[SCRY_MALLOC_DELETE] = "operator_delete",
		[SCRY_MALLOC_DELETE_ARRAY] = "operator_delete[]",
		[SCRY_MALLOC_USABLE_SIZE] = "malloc_usable_size",
		[SCRY_MALLOC_OLDER] = "older",
		[SCRY_MALLOC_TOUCHED] = "touched",
		[SCRY_MALLOC_THREAD_END] = "thread_end",
	};

	return function < SCRY_MALLOC_FUNCTIONS ? names[function] : NULL;
}

/* A word: bytes that would end it, or are not text, as %XX. */
static void put_word(FILE *out, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if (c > ' ' && c < 0x7f && c != '%')
			fputc(c, out);
		else
			fprintf(out, "%%%02X", c);
	}
}

static uint64_t since_start(const struct text_out *t, uint64_t time_ns)
{
	return time_ns > t->began_ns ? time_ns - t->began_ns : 0;
}

/* "caller caller=1 module=/usr/lib/x": fields that are 0 are left out, as is the process. */
static void put_event(const struct text_out *t, const struct scry_event *event)
{
	const struct scry_event_kind *kind = scry_event_kind(event->type);

	fputs(kind->name, t->out);
	for (size_t i = 0; i < kind->field_count; i++) {
		const struct scry_field *field = &kind->fields[i];
		uint64_t value = scry_field_value(field, event);
		const char *bytes;
		size_t len;

		if (!value || !strcmp(field->name, "pid") || field->kind == SCRY_FIELD_RESERVED ||
		    field->kind == SCRY_FIELD_STACK) /* text has no stacks */
			continue;
		fprintf(t->out, " %s=", field->name);
		if (field->kind != SCRY_FIELD_STRING) {
			fprintf(t->out, "%" PRIu64, value);
			continue;
		}
		bytes = scry_reader_string(t->reader, (uint32_t)value, &len);
		if (bytes)
			put_word(t->out, bytes, len);
	}
	if (event->type == SCRY_EVENT_MEMORY)
		fprintf(t->out, " at=%" PRIu64, since_start(t, event->time_ns));
	fputc('\n', t->out);
}

/* A block that ended or began in another process is not known here. */
static int follow_blocks(struct text_out *t, struct scry_ev_malloc *call)
{
	enum scry_malloc_effect effect = scry_malloc_effect_of(call->function, call->flags);
	uint64_t known;

	if (effect >= SCRY_MALLOC_EFFECT_AGAIN && !scry_map_get(&t->alive, call->block, &known)) {
		call->flags |= SCRY_MALLOC_UNKNOWN;
		effect = scry_malloc_effect_of(call->function, call->flags);
	}
	if (effect == SCRY_MALLOC_EFFECT_BEGIN && scry_map_put(&t->alive, call->block, 1))
		return scry_no_memory("the blocks of the recording");
	if (effect == SCRY_MALLOC_EFFECT_END)
		scry_map_remove(&t->alive, call->block, NULL);
	return 0;
}

/* What was given, and what was returned. The flags that this says are returned. */
static uint32_t put_call(const struct text_out *t, const struct scry_ev_malloc *call)
{
	enum scry_malloc_effect effect = scry_malloc_effect_of(call->function, call->flags);
	const char *none = call->flags & SCRY_MALLOC_NULL ? "NULL" : "?";
	uint32_t none_flag =
		call->flags & SCRY_MALLOC_NULL ? SCRY_MALLOC_NULL : SCRY_MALLOC_UNKNOWN;
	bool is_named = effect >= SCRY_MALLOC_EFFECT_AGAIN, is_failed;

	fprintf(t->out, "%u: %s(", call->thread, scry_malloc_function_name(call->function));
	if (call->function == SCRY_MALLOC_THREAD_END) {
		fputc(')', t->out);
		return 0;
	}
	if (call->function < SCRY_MALLOC_REALLOC || call->function == SCRY_MALLOC_OLDER) {
		fprintf(t->out, "%" PRIu64 ") = ", call->size);
		if (effect == SCRY_MALLOC_EFFECT_NONE) {
			fputs("NULL", t->out);
			return SCRY_MALLOC_FAILED;
		}
		fprintf(t->out, "%u", call->block);
		return 0;
	}
	if (is_named)
		fprintf(t->out, "%u", call->block);
	else
		fputs(none, t->out);
	if (call->function > SCRY_MALLOC_REALLOCARRAY) {
		fputc(')', t->out);
		return is_named ? 0 : none_flag;
	}
	fprintf(t->out, ", %" PRIu64 ") = ", call->size);
	is_failed = effect != SCRY_MALLOC_EFFECT_BEGIN && effect != SCRY_MALLOC_EFFECT_AGAIN;
	if (is_failed)
		fputs("NULL", t->out);
	else
		fprintf(t->out, "%u", call->block);
	if (call->flags & SCRY_MALLOC_ENDED && is_failed)
		fputs(" ended", t->out);
	if (call->flags & SCRY_MALLOC_MOVED)
		fputs(" moved", t->out);
	return (is_named ? 0 : none_flag) | (call->flags & SCRY_MALLOC_MOVED) |
	       (!is_failed			  ? 0
		: call->flags & SCRY_MALLOC_ENDED ? SCRY_MALLOC_ENDED
						  : SCRY_MALLOC_FAILED);
}

static int on_call(struct text_out *t, const struct scry_event *event)
{
	struct scry_ev_malloc call;
	uint32_t flags;
	int err;

	memcpy(&call, event + 1, sizeof(call));
	err = follow_blocks(t, &call);
	if (err)
		return err;
	if (!t->calls || since_start(t, event->time_ns) != t->time_ns) {
		t->time_ns = since_start(t, event->time_ns);
		fprintf(t->out, "@%" PRIu64 "\n", t->time_ns);
	}
	flags = put_call(t, &call);
	if (call.size && call.function >= SCRY_MALLOC_FREE && call.function != SCRY_MALLOC_OLDER)
		fprintf(t->out, " size=%" PRIu64, call.size);
	if (call.usable)
		fprintf(t->out, " usable=%" PRIu64, call.usable);
	if (call.align)
		fprintf(t->out, " align=%" PRIu64, call.align);
	if (call.caller)
		fprintf(t->out, " caller=%u", call.caller);
	if (flags != call.flags)
		fprintf(t->out, " flags=%u", call.flags);
	fputc('\n', t->out);
	t->calls++;
	return 0;
}

static bool is_reported(uint16_t type)
{
	return type == SCRY_EVENT_CALLER || type == SCRY_EVENT_THREAD ||
	       type == SCRY_EVENT_MEMORY || type == SCRY_EVENT_ALLOCATOR;
}

/* The process of an event that has one; 0: it has none. */
static uint32_t process_of(const struct scry_event *event)
{
	const struct scry_event_kind *kind = scry_event_kind(event->type);

	if (!is_reported(event->type) && event->type != SCRY_EVENT_MALLOC)
		return 0;
	for (size_t i = 0; i < kind->field_count; i++)
		if (!strcmp(kind->fields[i].name, "pid"))
			return (uint32_t)scry_field_value(&kind->fields[i], event);
	return 0;
}

/* What a recording of this text cannot know otherwise: its own end is whole. */
static void put_lacks(const struct text_out *t, bool has_end, struct scry_buf *lacks)
{
	struct scry_reader_stats stats;

	scry_reader_stats(t->reader, &stats);
	if (scry_reader_is_torn(t->reader))
		scry_buf_printf(lacks, "the recording's end is torn");
	else if (!has_end)
		scry_buf_printf(lacks, "the recording was ended before its totals were written");
	if (stats.errors)
		scry_buf_printf(lacks, "%s%" PRIu64 " of its events are damaged",
				lacks->len ? ", and " : "", stats.errors);
	if (!lacks->len)
		return;
	fputs("lost why=", t->out);
	put_word(t->out, scry_buf_str(lacks), lacks->len);
	fputc('\n', t->out);
}

/* The totals of its process. Where that ran several programs, an end of each has them. */
static bool is_end(const struct scry_malloc_part *part, const struct scry_event *event)
{
	const struct scry_ev_totals *totals = (const void *)(event + 1);

	return event->type == SCRY_EVENT_TOTALS && totals->pid == part->pid && !part->image;
}

static int write_part(struct text_out *t, struct scry_malloc_part *part, struct scry_buf *lacks)
{
	bool has_end = false;
	const struct scry_event *event;
	int got = 0, err = 0;

	fprintf(t->out, "scry-malloc 1 pid %u\n", part->pid);
	while (!err && !ferror(t->out) && (got = scry_reader_next(t->reader, &event)) > 0) {
		has_end |= is_end(part, event);
		if (event->type == SCRY_EVENT_LOST)
			put_event(t, event); /* of whom, no event says */
		if (!scry_malloc_part_has(part, event, process_of(event)))
			continue;
		if (event->type == SCRY_EVENT_MALLOC)
			err = on_call(t, event);
		else if (event->type != SCRY_EVENT_DETACH)
			put_event(t, event);
	}
	if (err || got < 0)
		return err ? err : got;
	put_lacks(t, has_end || part->ended > part->image, lacks);
	return 0;
}

/* It is written before the first call, if at all. */
static int find_began(int fd, uint64_t *ret_ns)
{
	const struct scry_event *event;
	struct scry_reader *r;
	int got = scry_sections_open(fd, "malloc", &r);

	if (got < 0)
		return got;
	*ret_ns = scry_reader_head(r)->mono_ns;
	while ((got = scry_reader_next(r, &event)) > 0 && event->type != SCRY_EVENT_MALLOC)
		if (event->type == SCRY_EVENT_ATTACH) {
			*ret_ns = event->time_ns;
			break;
		}
	scry_reader_close(r);
	return got < 0 ? got : 0;
}

int scry_malloc_text_write(int fd, uint32_t pid, FILE *out, struct scry_malloc_text_sums *ret)
{
	struct scry_malloc_part part = {0};
	struct text_out t = {.out = out};
	int err = scry_malloc_part_choose(fd, pid, &part);

	*ret = (struct scry_malloc_text_sums){0};
	if (err == -ENOENT)
		return scry_fail(-ENOENT, "the recording has no calls of malloc");
	if (!err)
		err = find_began(fd, &t.began_ns);
	if (!err)
		err = scry_sections_open(fd, "malloc", &t.reader);
	if (err)
		return err;
	scry_map_init(&t.alive, 1u << 28);
	err = write_part(&t, &part, &ret->lacks);
	scry_map_done(&t.alive);
	scry_reader_close(t.reader);
	ret->calls = t.calls;
	return err ? err : scry_flush(out, "the text");
}
