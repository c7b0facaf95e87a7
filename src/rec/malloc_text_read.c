/*
 * Text as a malloc recording. See malloc_text.h.
 *
 * The text is a stranger's: each number is read in its bounds, each block must live where it is
 * named, and the first line that is not understood ends the reading.
 */
#include "rec/malloc_text.h"

#include "base/err.h"
#include "base/map.h"
#include "rec/fields.h"
#include "rec/malloc_effect.h"
#include "rec/malloc_format.h"
#include "rec/malloc_pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (1u << 19) /* a caller has four names, and %XX is three bytes for one */
_Static_assert(LINE_MAX_BYTES > 4 * 3 * SCRY_EVENT_MAX + 4096, "room for what export writes");
#define TIME_MAX_NS (1ull << 60)

#define CHUNK_CALLS 512
#define CHUNK_NS 400000000ull /* a recorder writes one each half second */

struct text_in {
	struct scry_writer *writer;
	struct scry_malloc_pack *pack;
	struct scry_map blocks; /* number in the text: number given by the packer */
	uint64_t line, calls, base_ns, time_ns;
	uint64_t chunk_ns, chunk_calls; /* its first call, and how many */
	uint32_t pid;
	const char *at; /* in the line */
	char text[LINE_MAX_BYTES], word[LINE_MAX_BYTES];
};

static int refuse(const struct text_in *t, const char *why)
{
	return scry_fail(-EINVAL, "line %llu: %s: '%.60s'", (unsigned long long)t->line, why,
			 t->text);
}

static bool take(struct text_in *t, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(t->at, word, len))
		return false;
	t->at += len;
	return true;
}

static bool take_number(struct text_in *t, uint64_t max, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (*t->at < '0' || *t->at > '9')
		return false;
	for (; *t->at >= '0' && *t->at <= '9'; t->at++) {
		unsigned int digit = (unsigned int)(*t->at - '0');

		if (value > (max - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*ret_value = value;
	return true;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Up to the next blank, %XX undone; into t->word. */
static bool take_word(struct text_in *t, size_t *ret_len)
{
	char *to = t->word;
	size_t len = 0;

	for (; *t->at && *t->at != ' '; t->at++) {
		int high, low;

		if (*t->at != '%') {
			to[len++] = *t->at;
			continue;
		}
		high = hex_digit(t->at[1]);
		low = high < 0 ? -1 : hex_digit(t->at[2]);
		if (low < 0)
			return false;
		to[len++] = (char)(high << 4 | low);
		t->at += 2;
	}
	*ret_len = len;
	return true;
}

static const struct scry_field *field_named(struct text_in *t, const struct scry_event_kind *kind)
{
	for (size_t i = 0; i < kind->field_count; i++) {
		const struct scry_field *field = &kind->fields[i];
		size_t len = strlen(field->name);

		if (field->kind == SCRY_FIELD_RESERVED || field->kind == SCRY_FIELD_STACK)
			continue; /* text has no stacks */
		if (!strncmp(t->at, field->name, len) && t->at[len] == '=') {
			t->at += len + 1;
			return field;
		}
	}
	return NULL;
}

/* One " name=value" of an event into its payload. */
static int read_field(struct text_in *t, const struct scry_event_kind *kind, char *payload)
{
	const struct scry_field *field;
	uint64_t value;
	uint32_t id;
	size_t len;
	int err;

	field = take(t, " ") ? field_named(t, kind) : NULL;
	if (!field || !strcmp(field->name, "pid"))
		return refuse(t, "not a field of it");
	if (field->kind != SCRY_FIELD_STRING) {
		if (!take_number(t, field->size == 4 ? UINT32_MAX : UINT64_MAX, &value))
			return refuse(t, "not a number that fits");
		memcpy(payload + field->offset, &value, field->size); /* little endian */
		return 0;
	}
	if (!take_word(t, &len))
		return refuse(t, "a % without two hexadecimal digits");
	err = scry_writer_string(t->writer, t->word, len, &id);
	memcpy(payload + field->offset, &id, sizeof(id));
	return err;
}

static int write_chunk(struct text_in *t)
{
	t->chunk_calls = 0;
	return scry_malloc_pack_write(t->pack, t->writer);
}

static int read_event(struct text_in *t, uint16_t type)
{
	const struct scry_event_kind *kind = scry_event_kind(type);
	struct scry_event head = {.type = type, .time_ns = t->base_ns + t->time_ns};
	char payload[256] = {0};
	uint64_t time;
	int err = 0;

	_Static_assert(sizeof(struct scry_ev_memory) <= sizeof(payload), "room");
	while (!err && *t->at) {
		if (type != SCRY_EVENT_MEMORY || !take(t, " at="))
			err = read_field(t, kind, payload);
		else if (take_number(t, TIME_MAX_NS, &time))
			head.time_ns = t->base_ns + time;
		else
			err = refuse(t, "not a time");
	}
	for (size_t i = 0; i < kind->field_count; i++)
		if (!strcmp(kind->fields[i].name, "pid"))
			memcpy(payload + kind->fields[i].offset, &t->pid, sizeof(t->pid));
	/* It is between the calls before and after it. */
	if (!err)
		err = write_chunk(t);
	return err ? err : scry_writer_payload(t->writer, &head, payload, kind->payload_size);
}

/* A block, NULL or ?: as flags where it is none. */
static bool take_old(struct text_in *t, struct scry_ev_malloc *call, uint64_t *ret_block)
{
	*ret_block = SCRY_MALLOC_NO_BLOCK;
	if (take(t, "NULL"))
		call->flags |= SCRY_MALLOC_NULL;
	else if (take(t, "?"))
		call->flags |= SCRY_MALLOC_UNKNOWN;
	else
		return take_number(t, SCRY_MALLOC_NO_BLOCK - 1, ret_block);
	return true;
}

static bool take_function(struct text_in *t, struct scry_ev_malloc *call)
{
	for (uint32_t i = 1; i < SCRY_MALLOC_FUNCTIONS; i++) {
		const char *name = scry_malloc_function_name(i);
		size_t len = strlen(name);

		if (!strncmp(t->at, name, len) && t->at[len] == '(') {
			t->at += len + 1;
			call->function = i;
			return true;
		}
	}
	return false;
}

/* Behind "function(": what was given and returned, blocks by the numbers of the text. */
static bool take_blocks(struct text_in *t, struct scry_ev_malloc *call, uint64_t *ret_old,
			uint64_t *ret_new)
{
	bool resizes =
		call->function == SCRY_MALLOC_REALLOC || call->function == SCRY_MALLOC_REALLOCARRAY;
	bool begins = call->function < SCRY_MALLOC_REALLOC || call->function == SCRY_MALLOC_OLDER;

	*ret_old = *ret_new = SCRY_MALLOC_NO_BLOCK;
	if (call->function == SCRY_MALLOC_THREAD_END)
		return take(t, ")");
	if (!begins && !take_old(t, call, ret_old))
		return false;
	if (resizes && !take(t, ", "))
		return false;
	if ((begins || resizes) && !take_number(t, UINT64_MAX, &call->size))
		return false;
	if (!take(t, ")"))
		return false;
	if (!begins && !resizes)
		return true;
	if (!take(t, " = "))
		return false;
	if (!take(t, "NULL"))
		return take_number(t, SCRY_MALLOC_NO_BLOCK - 1, ret_new);
	call->flags |= take(t, " ended") ? SCRY_MALLOC_ENDED : SCRY_MALLOC_FAILED;
	return true;
}

static bool take_keys(struct text_in *t, struct scry_ev_malloc *call)
{
	uint64_t value;

	if (take(t, " moved"))
		call->flags |= SCRY_MALLOC_MOVED;
	while (*t->at) {
		if (take(t, " size=") && take_number(t, UINT64_MAX, &value))
			call->size = value;
		else if (take(t, " usable=") && take_number(t, UINT64_MAX, &value))
			call->usable = value;
		else if (take(t, " align=") && take_number(t, UINT64_MAX, &value))
			call->align = value;
		else if (take(t, " caller=") && take_number(t, UINT32_MAX, &value))
			call->caller = (uint32_t)value;
		else if (take(t, " flags=") && take_number(t, UINT8_MAX, &value))
			call->flags = (uint32_t)value;
		else
			return false;
	}
	return true;
}

/* Within a chunk times are in ticks from its first. Text of a recording has others only where a
 * chunk of that begins; with any times, chunks stay large enough. */
static bool begins_chunk(const struct text_in *t)
{
	uint64_t passed = t->time_ns - t->chunk_ns;

	return t->chunk_calls && passed % SCRY_MALLOC_TICK_NS &&
	       (t->chunk_calls >= CHUNK_CALLS || passed >= CHUNK_NS);
}

static int pack_call(struct text_in *t, const struct scry_ev_malloc *call, uint32_t *ret_block)
{
	int err = begins_chunk(t) ? write_chunk(t) : 0;

	if (err)
		return err;
	if (!t->chunk_calls++)
		t->chunk_ns = t->time_ns;
	return scry_malloc_pack_add(t->pack, t->base_ns + t->time_ns, call, ret_block);
}

static int add_call(struct text_in *t, struct scry_ev_malloc *call, uint64_t old, uint64_t new)
{
	enum scry_malloc_effect effect = scry_malloc_effect_of(call->function, call->flags);
	uint64_t block = SCRY_MALLOC_NO_BLOCK, known;
	uint32_t given;
	int err;

	if (effect == SCRY_MALLOC_EFFECT_BEGIN &&
	    (new == SCRY_MALLOC_NO_BLOCK || scry_map_get(&t->blocks, new, &known)))
		return refuse(t, "returns a block that lives already, or none");
	if (effect >= SCRY_MALLOC_EFFECT_AGAIN && !scry_map_get(&t->blocks, old, &block))
		return refuse(t, "no block of that number lives");
	if (effect == SCRY_MALLOC_EFFECT_AGAIN && old != new)
		return refuse(t, "a block keeps its number; fix: realloc(7, 48) = 7");
	call->block = (uint32_t)block;
	err = pack_call(t, call, &given);
	if (!err && effect == SCRY_MALLOC_EFFECT_BEGIN)
		err = scry_map_put(&t->blocks, new, given);
	if (err)
		return scry_fail(err, "line %llu: not enough memory for its block",
				 (unsigned long long)t->line);
	if (effect == SCRY_MALLOC_EFFECT_END)
		scry_map_remove(&t->blocks, old, NULL);
	t->calls++;
	if (scry_malloc_pack_pending(t->pack) < SCRY_MALLOC_PACK_BYTES)
		return 0;
	return write_chunk(t);
}

static int read_call(struct text_in *t)
{
	struct scry_ev_malloc call = {0};
	uint64_t thread, old, new;

	if (!take_number(t, UINT32_MAX, &thread) || !take(t, ": "))
		return refuse(t, "neither a call nor anything else that is known");
	call.thread = (uint32_t)thread;
	if (!take_function(t, &call))
		return refuse(t, "no such function");
	if (!take_blocks(t, &call, &old, &new))
		return refuse(t, "not how such a call is written");
	if (!take_keys(t, &call))
		return refuse(t, "not a key with a number that fits");
	return add_call(t, &call, old, new);
}

static int read_time(struct text_in *t)
{
	uint64_t time;

	if (!take_number(t, TIME_MAX_NS, &time) || *t->at)
		return refuse(t, "not a time");
	if (time < t->time_ns)
		return refuse(t, "a time before the one before");
	t->time_ns = time;
	return 0;
}

static int read_line(struct text_in *t)
{
	static const uint16_t types[] = {SCRY_EVENT_CALLER, SCRY_EVENT_THREAD, SCRY_EVENT_MEMORY,
					 SCRY_EVENT_ALLOCATOR, SCRY_EVENT_LOST};

	if (!*t->at || *t->at == '#')
		return 0;
	if (take(t, "@"))
		return read_time(t);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const char *name = scry_event_kind(types[i])->name;
		size_t len = strlen(name);

		if (!strncmp(t->at, name, len) && (t->at[len] == ' ' || !t->at[len])) {
			t->at += len;
			return read_event(t, types[i]);
		}
	}
	return read_call(t);
}

/* 1, 0 at the end, or -errno with a sentence. */
static int next_line(struct text_in *t, FILE *in)
{
	size_t len = 0;
	int c = 0;

	t->line++;
	t->at = t->text;
	while (len < sizeof(t->text) - 1 && (c = getc(in)) != EOF && c != '\n') {
		t->text[len++] = (char)c;
		if (c)
			continue;
		return refuse(t, "a byte that is not text");
	}
	if (c == '\n' && len && t->text[len - 1] == '\r')
		len--; /* lines may end as elsewhere */
	t->text[len] = '\0';
	if (c == EOF && ferror(in))
		return scry_fail(-EIO, "cannot read the text: %s", strerror(errno));
	if (c != EOF && c != '\n')
		return refuse(t, "longer than any line of such a text");
	return c == '\n' || len;
}

static int read_head(struct text_in *t, FILE *in)
{
	struct scry_producer producer = {0};
	struct scry_writer_stats stats;
	uint64_t pid;
	int got = next_line(t, in);

	if (got < 0)
		return got;
	if (!got || !take(t, "scry-malloc 1 pid ") || !take_number(t, INT32_MAX, &pid) || !pid ||
	    *t->at)
		return refuse(t, "not the text of a malloc recording; it begins with "
				 "'scry-malloc 1 pid 4711'");
	t->pid = producer.pid = (uint32_t)pid;
	scry_writer_stats(t->writer, &stats);
	t->base_ns = stats.mono_ns;
	return scry_malloc_pack_new(&producer, &t->pack);
}

/* What every recording says of itself. */
static int put_beginning(struct text_in *t)
{
	struct scry_event head = {.type = SCRY_EVENT_SESSION, .time_ns = t->base_ns};
	struct scry_ev_session session = {0};
	struct scry_ev_process process = {.pid = t->pid};
	int err = scry_writer_string(t->writer, "malloc", 6, &session.instrument_str);

	if (!err)
		err = scry_writer_string(t->writer, "scry malloc import", 18, &session.command_str);
	if (!err)
		err = scry_writer_string(t->writer, SCRY_VERSION, strlen(SCRY_VERSION),
					 &session.version_str);
	if (!err)
		err = scry_writer_payload(t->writer, &head, &session, sizeof(session));
	head.type = SCRY_EVENT_PROCESS;
	return err ? err : scry_writer_payload(t->writer, &head, &process, sizeof(process));
}

static int put_end(struct text_in *t)
{
	struct scry_event head = {.type = SCRY_EVENT_TOTALS, .time_ns = t->base_ns + t->time_ns};
	struct scry_ev_totals totals = {
		.events = t->calls, .watched_ns = t->time_ns, .pid = t->pid};
	int err = scry_malloc_pack_write(t->pack, t->writer);

	return err ? err : scry_writer_payload(t->writer, &head, &totals, sizeof(totals));
}

int scry_malloc_text_read(FILE *in, struct scry_writer *w, uint64_t *ret_calls)
{
	struct text_in *t = calloc(1, sizeof(*t));
	int got = 0, err;

	*ret_calls = 0;
	if (!t)
		return scry_no_memory("reading the text");
	t->writer = w;
	scry_map_init(&t->blocks, 1u << 28);
	err = read_head(t, in);
	if (!err)
		err = put_beginning(t);
	while (!err && (got = next_line(t, in)) > 0)
		err = read_line(t);
	if (!err)
		err = got;
	if (!err)
		err = put_end(t);
	scry_map_done(&t->blocks);
	scry_malloc_pack_free(t->pack);
	*ret_calls = t->calls;
	free(t);
	return err;
}
