/*
 * The one reader of recordings. See reader.h.
 *
 * A chunk is copied into memory before it is checked, so a file that changes under us cannot change
 * what was checked. Events are mended in that copy.
 */
#include "rec/reader.h"

#include "base/err.h"
#include "base/intern.h"
#include "base/map.h"
#include "rec/check.h"
#include "rec/fields.h"
#include "rec/malloc_chunks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRINGS_MAX (4u << 20)
#define STRING_BYTES_MAX (512u << 20)
#define SITES_MAX (1u << 24)
#define STACKS_MAX (1u << 24)
#define HEAD_SIZE_MAX 4096u

struct scry_reader {
	int fd;
	struct scry_file_head head;
	struct scry_reader_stats stats;
	uint64_t next_chunk;				      /* file offset */
	uint32_t section;				      /* whose chunks are read */
	int (*wait)(void *arg, uint64_t offset, bool is_end); /* NULL: the file is whole */
	void *wait_arg;
	bool at_end;
	bool has_chunk;
	struct scry_chunk chunk;
	char *payload;
	size_t payload_cap;
	size_t at; /* in the payload: the next event or word */
	struct scry_intern strings;
	struct scry_map string_ids; /* id in the file -> id in `strings` */
	unsigned char *sites;	    /* a bit per site defined */
	unsigned char *stacks;	    /* the same for stack frames */
	struct scry_malloc_chunks mallocs;
	bool is_unpacked; /* the chunk is one of calls of malloc, and open in `mallocs` */
	_Alignas(8) char scratch[SCRY_EVENT_MAX];
};

/* `len` bytes at `offset`: 1, 0 when the file ends before, or -errno with a sentence. */
static int read_at(const struct scry_reader *r, void *to, size_t len, uint64_t offset)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(r->fd, (char *)to + got, len - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return scry_fail(-errno, "cannot read the recording: %s", strerror(errno));
		if (n == 0)
			return 0;
		got += (size_t)n;
	}
	return 1;
}

static int reader_head(struct scry_reader *r)
{
	int got = read_at(r, &r->head, sizeof(r->head), 0);

	if (got < 0)
		return got;
	if (!got)
		return scry_fail(-EINVAL, "not a scry recording: shorter than its head");
	if (memcmp(r->head.magic, SCRY_FILE_MAGIC, sizeof(r->head.magic)))
		return scry_fail(-EINVAL, "not a scry recording: it does not begin as one");
	if (r->head.version > SCRY_FILE_VERSION)
		return scry_fail(-ENOTSUP,
				 "the recording has format version %u, this scry reads up to %u; "
				 "fix: a newer scry",
				 r->head.version, SCRY_FILE_VERSION);
	if (!r->head.version || r->head.head_size < sizeof(r->head) ||
	    r->head.head_size > HEAD_SIZE_MAX || r->head.head_size > r->stats.file_bytes)
		return scry_fail(-EINVAL, "not a scry recording: its head is damaged");
	r->next_chunk = r->head.head_size;
	return 0;
}

int scry_reader_open(int fd, struct scry_reader **ret_reader)
{
	struct scry_reader *r;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return scry_fail(-errno, "cannot read the recording: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return scry_fail(-ESPIPE, "a recording can only be read from a regular file");
	r = calloc(1, sizeof(*r));
	if (!r)
		return scry_no_memory("the recording's reader");
	r->fd = fd;
	r->stats.file_bytes = (uint64_t)st.st_size;
	scry_intern_init(&r->strings, STRINGS_MAX, STRING_BYTES_MAX);
	scry_map_init(&r->string_ids, STRINGS_MAX);
	r->sites = calloc(SITES_MAX / 8, 1);
	r->stacks = calloc(STACKS_MAX / 8, 1);
	err = r->sites && r->stacks ? reader_head(r) : scry_no_memory("the table of sites");
	if (err) {
		scry_reader_close(r);
		return err;
	}
	*ret_reader = r;
	return 0;
}

void scry_reader_close(struct scry_reader *r)
{
	if (!r)
		return;
	scry_intern_done(&r->strings);
	scry_map_done(&r->string_ids);
	scry_malloc_chunks_done(&r->mallocs);
	free(r->sites);
	free(r->stacks);
	free(r->payload);
	free(r);
}

void scry_reader_section(struct scry_reader *r, uint32_t section)
{
	r->section = section;
}

uint32_t scry_reader_sections(const struct scry_reader *r)
{
	uint64_t at = r->head.head_size;
	struct scry_chunk chunk;
	uint32_t n = 0;

	while (n < SCRY_SECTIONS_MAX && read_at(r, &chunk, sizeof(chunk), at) == 1 &&
	       chunk.magic == SCRY_CHUNK_MAGIC && chunk.bytes <= SCRY_CHUNK_MAX &&
	       chunk.kind >> SCRY_CHUNK_SECTION_AT == n) {
		at += sizeof(chunk) + chunk.bytes;
		n++;
	}
	scry_error_clear();
	return n ? n : 1;
}

void scry_reader_follow(struct scry_reader *r, int (*wait)(void *arg, uint64_t offset, bool is_end),
			void *arg)
{
	r->wait = wait;
	r->wait_arg = arg;
}

/* Is there more to come? Then the file is as long as it is now. */
static bool reader_waits(struct scry_reader *r, bool is_end)
{
	struct stat st;

	if (!r->wait)
		return false;
	if (!r->wait(r->wait_arg, r->next_chunk, is_end))
		r->wait = NULL; /* all is written: what is there is looked at once more */
	if (fstat(r->fd, &st) == 0)
		r->stats.file_bytes = (uint64_t)st.st_size;
	return is_end;
}

/* The recording ends here; what follows the last whole chunk is left out. */
static int reader_end(struct scry_reader *r)
{
	r->at_end = true;
	if (r->stats.file_bytes > r->next_chunk)
		r->stats.left_out = r->stats.file_bytes - r->next_chunk;
	return 0;
}

static bool chunk_fits(const struct scry_reader *r, const struct scry_chunk *chunk)
{
	uint64_t room = r->stats.file_bytes - r->next_chunk - sizeof(*chunk);

	return chunk->magic == SCRY_CHUNK_MAGIC && chunk->bytes % 8 == 0 &&
	       chunk->bytes <= SCRY_CHUNK_MAX && chunk->bytes <= room;
}

static int reader_room(struct scry_reader *r, size_t bytes)
{
	char *grown;

	if (bytes <= r->payload_cap)
		return 0;
	grown = malloc(bytes);
	if (!grown)
		return scry_no_memory("a chunk of %zu bytes", bytes);
	free(r->payload);
	r->payload = grown;
	r->payload_cap = bytes;
	return 0;
}

static void reader_count_chunk(struct scry_reader *r)
{
	uint32_t kind = r->chunk.kind < SCRY_READER_KINDS ? r->chunk.kind : 0;
	struct scry_reader_kind *row = &r->stats.kinds[kind];

	row->chunks++;
	row->bytes += sizeof(r->chunk) + r->chunk.bytes;
	row->events += r->chunk.count;
}

static int reader_next_malloc(struct scry_reader *r, const struct scry_event **ret_event);
static const struct scry_event *reader_next_event(struct scry_reader *r);

/* The chunk at next_chunk is copied whole: 1; 0: there is none; -errno with a sentence. */
static int reader_copy_chunk(struct scry_reader *r, struct scry_chunk *chunk)
{
	int got;

	if (r->stats.file_bytes - r->next_chunk < sizeof(*chunk))
		return 0;
	got = read_at(r, chunk, sizeof(*chunk), r->next_chunk);
	if (got <= 0)
		return got;
	if (!chunk_fits(r, chunk))
		return 0;
	got = reader_room(r, chunk->bytes);
	if (got < 0)
		return got;
	got = read_at(r, r->payload, chunk->bytes, r->next_chunk + sizeof(*chunk));
	if (got <= 0)
		return got;
	return scry_chunk_check(chunk, r->payload) == chunk->check;
}

int scry_reader_next_chunk(struct scry_reader *r, const struct scry_chunk **ret_chunk)
{
	const struct scry_event *passed;
	struct scry_chunk chunk;
	int got;

	/* Which blocks live after a chunk is known once it was read: none is passed over. */
	while (r->has_chunk && r->chunk.kind == SCRY_CHUNK_MALLOC &&
	       (got = reader_next_malloc(r, &passed)))
		if (got < 0)
			return got;
	while (r->has_chunk && r->chunk.kind == SCRY_CHUNK_EVENTS && r->mallocs.count)
		if (!reader_next_event(r)) /* one that ends is freed */
			break;
	do {
		if (r->at_end)
			return 0;
		reader_waits(r, false);
		while ((got = reader_copy_chunk(r, &chunk)) == 0)
			if (!reader_waits(r, true))
				return reader_end(r);
		if (got < 0)
			return got;
		r->next_chunk += sizeof(chunk) + chunk.bytes;
	} while (chunk.kind >> SCRY_CHUNK_SECTION_AT != r->section);
	chunk.kind &= SCRY_CHUNK_KIND_MASK;
	r->chunk = chunk;
	r->has_chunk = true;
	r->is_unpacked = false;
	r->at = 0;
	reader_count_chunk(r);
	*ret_chunk = &r->chunk;
	return 1;
}

static bool site_is_known(const struct scry_reader *r, uint64_t site)
{
	return site < SITES_MAX && r->sites[site / 8] & (1u << site % 8);
}

/* False when the event defines what cannot be: it is then left out. */
static bool reader_define_string(struct scry_reader *r, const struct scry_event *event)
{
	struct scry_ev_string string;
	const char *bytes = (const char *)(event + 1) + sizeof(string);
	uint64_t known;
	uint32_t own;

	memcpy(&string, event + 1, sizeof(string));
	if (!string.id || string.length > event->size - sizeof(*event) - sizeof(string))
		return false;
	if (scry_map_get(&r->string_ids, string.id, &known))
		return false;
	if (scry_intern_put(&r->strings, bytes, string.length, &own))
		return false;
	return scry_map_put(&r->string_ids, string.id, own) == 0;
}

static bool reader_define_site(struct scry_reader *r, const struct scry_event *event)
{
	struct scry_ev_site site;

	memcpy(&site, event + 1, sizeof(site));
	if (!site.site || site.site >= SITES_MAX)
		return false;
	r->sites[site.site / 8] |= (unsigned char)(1u << site.site % 8);
	return true;
}

static bool stack_is_known(const struct scry_reader *r, uint64_t stack)
{
	return stack < STACKS_MAX && r->stacks[stack / 8] & (1u << stack % 8);
}

/*
 * A frame is defined once and after its parent (checked before): whoever follows parents comes to
 * an end.
 */
static bool reader_define_stack(struct scry_reader *r, const struct scry_event *event)
{
	struct scry_ev_stack stack;

	memcpy(&stack, event + 1, sizeof(stack));
	if (!stack.id || stack.id >= STACKS_MAX || stack_is_known(r, stack.id))
		return false;
	r->stacks[stack.id / 8] |= (unsigned char)(1u << stack.id % 8);
	return true;
}

static bool id_is_known(const struct scry_reader *r, enum scry_field_kind kind, uint64_t id)
{
	uint64_t own;

	switch (kind) {
	case SCRY_FIELD_STRING:
		return scry_map_get(&r->string_ids, id, &own);
	case SCRY_FIELD_SITE:
		return site_is_known(r, id);
	case SCRY_FIELD_STACK:
		return stack_is_known(r, id);
	default:
		return true; /* not an id */
	}
}

/* Ids that were not defined become 0. */
static void reader_mend(struct scry_reader *r, const struct scry_event_kind *kind,
			struct scry_event *event)
{
	size_t i;

	for (i = 0; i < kind->field_count; i++) {
		const struct scry_field *field = &kind->fields[i];
		uint64_t id;

		if (field->kind != SCRY_FIELD_STRING && field->kind != SCRY_FIELD_SITE &&
		    field->kind != SCRY_FIELD_STACK)
			continue;
		id = scry_field_value(field, event);
		if (!id || id_is_known(r, field->kind, id))
			continue;
		memset((char *)(event + 1) + field->offset, 0, field->size);
		r->stats.errors++;
	}
}

/* Bytes that are declared to follow a call's fields, and do not, are left out. */
static void reader_mend_more(struct scry_reader *r, const struct scry_event *event,
			     uint32_t *more_bytes, size_t fields)
{
	if (*more_bytes <= event->size - sizeof(*event) - fields)
		return;
	*more_bytes = 0;
	r->stats.errors++;
}

static void reader_end_part(struct scry_reader *r, const struct scry_ev_detach *detach)
{
	if (detach->part)
		scry_malloc_chunks_end(&r->mallocs, detach->pid, detach->part - 1);
}

/* Makes an event of the chunk fit to be yielded; NULL when it must be left out. */
static struct scry_event *reader_check(struct scry_reader *r, struct scry_event *event)
{
	const struct scry_event_kind *kind = scry_event_kind(event->type);

	if (!kind)
		return event; /* of a newer scry: yielded as it is */
	if (event->size - sizeof(*event) < kind->payload_size) {
		memcpy(r->scratch, event, event->size);
		memset(r->scratch + event->size, 0,
		       sizeof(*event) + kind->payload_size - event->size);
		event = (struct scry_event *)r->scratch;
		event->size = (uint16_t)(sizeof(*event) + kind->payload_size);
	}
	if (event->type == SCRY_EVENT_MALLOC)
		return NULL; /* its block would be unknown: it comes in packed chunks only */
	if (event->type == SCRY_EVENT_STRING && !reader_define_string(r, event))
		return NULL;
	if (event->type == SCRY_EVENT_SITE && !reader_define_site(r, event))
		return NULL;
	reader_mend(r, kind, event);
	if (event->type == SCRY_EVENT_CALL)
		reader_mend_more(r, event, &((struct scry_ev_call *)(event + 1))->more_bytes,
				 sizeof(struct scry_ev_call));
	if (event->type == SCRY_EVENT_RETURN)
		reader_mend_more(r, event, &((struct scry_ev_return *)(event + 1))->more_bytes,
				 sizeof(struct scry_ev_return));
	if (event->type == SCRY_EVENT_STACK && !reader_define_stack(r, event))
		return NULL;
	if (event->type == SCRY_EVENT_DETACH)
		reader_end_part(r, (const struct scry_ev_detach *)(event + 1));
	return event;
}

static const struct scry_event *reader_next_event(struct scry_reader *r)
{
	while (r->at < r->chunk.bytes) {
		struct scry_event *event = (struct scry_event *)(r->payload + r->at);
		size_t left = r->chunk.bytes - r->at;

		/* Without a size the next event cannot be found: the rest of the chunk is lost. */
		if (left < sizeof(*event) || event->size < sizeof(*event) || event->size % 8 ||
		    event->size > left || event->size > SCRY_EVENT_MAX) {
			r->stats.errors++;
			r->at = r->chunk.bytes;
			return NULL;
		}
		r->at += event->size;
		event = reader_check(r, event);
		if (event)
			return event;
		r->stats.errors++;
	}
	return NULL;
}

static const struct scry_event *reader_next_word(struct scry_reader *r)
{
	struct scry_event *event = (struct scry_event *)r->scratch;
	struct scry_ev_alloc object = {0}; /* FREE has the same shape */
	uint64_t word;

	if (r->at >= r->chunk.bytes)
		return NULL;
	memcpy(&word, r->payload + r->at, sizeof(word));
	r->at += sizeof(word);
	object.address = word >> SCRY_OBJ_CODE_BITS << 3;
	object.site = word & SCRY_OBJ_CODE_MASK;
	*event = (struct scry_event){
		.time_ns = r->chunk.first_ns,
		.type = object.site ? SCRY_EVENT_ALLOC : SCRY_EVENT_FREE,
		.size = sizeof(*event) + sizeof(object),
	};
	if (object.site && !site_is_known(r, object.site)) {
		object.site = 0;
		r->stats.errors++;
	}
	memcpy(event + 1, &object, sizeof(object));
	return event;
}
_Static_assert(sizeof(struct scry_ev_alloc) == sizeof(struct scry_ev_free), "yielded as one shape");
_Static_assert(SCRY_OBJ_CODE_MASK < SITES_MAX, "a packed code is a legal site");

/* 1, 0 at the chunk's end, -ENOMEM. */
static int reader_next_malloc(struct scry_reader *r, const struct scry_event **ret_event)
{
	struct scry_event *event = (struct scry_event *)r->scratch;
	struct scry_ev_malloc *call = (struct scry_ev_malloc *)(event + 1);
	int got = 0;

	if (!r->is_unpacked) {
		r->is_unpacked = true;
		got = scry_malloc_chunks_open(&r->mallocs, &r->chunk, r->payload);
	}
	if (!got)
		got = scry_malloc_chunks_next(&r->mallocs, &event->time_ns, call);
	if (got == 0 || got == -ENOMEM)
		return got;
	if (got == -E2BIG)
		r->stats.beyond += r->chunk.count;
	else if (got < 0)
		r->stats.errors++;
	if (got < 0)
		return 0;
	event->tid = 0;
	event->type = SCRY_EVENT_MALLOC;
	event->size = sizeof(*event) + sizeof(*call);
	*ret_event = event;
	return got;
}

int scry_reader_next(struct scry_reader *r, const struct scry_event **ret_event)
{
	for (;;) {
		const struct scry_event *event = NULL;
		const struct scry_chunk *chunk;
		int got;

		if (r->has_chunk && r->chunk.kind == SCRY_CHUNK_EVENTS)
			event = reader_next_event(r);
		else if (r->has_chunk && r->chunk.kind == SCRY_CHUNK_OBJECTS)
			event = reader_next_word(r);
		else if (r->has_chunk && r->chunk.kind == SCRY_CHUNK_MALLOC) {
			got = reader_next_malloc(r, &event);
			if (got < 0)
				return got;
		}
		if (event) {
			*ret_event = event;
			return 1;
		}
		got = scry_reader_next_chunk(r, &chunk);
		if (got <= 0)
			return got;
	}
}

const struct scry_chunk *scry_reader_chunk(const struct scry_reader *r)
{
	return r->has_chunk ? &r->chunk : NULL;
}

const struct scry_file_head *scry_reader_head(const struct scry_reader *r)
{
	return &r->head;
}

const char *scry_reader_string(const struct scry_reader *r, uint32_t id, size_t *ret_len)
{
	uint64_t own;

	if (!scry_map_get(&r->string_ids, id, &own))
		return NULL;
	return scry_intern_get(&r->strings, (uint32_t)own, ret_len);
}

bool scry_reader_is_torn(const struct scry_reader *r)
{
	return r->stats.left_out > 0;
}

void scry_reader_stats(const struct scry_reader *r, struct scry_reader_stats *ret_stats)
{
	*ret_stats = r->stats;
	ret_stats->strings = (uint32_t)r->string_ids.count;
}
