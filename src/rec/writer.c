/*
 * The one writer of recordings. See writer.h.
 *
 * State: `size` is the end of the last whole chunk; bytes after it are never counted on. `stopped`
 * is the errno that ended writing, 0 while all is well.
 */
#include "rec/writer.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/intern.h"
#include "rec/check.h"
#include "rec/fields.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define STRINGS_MAX (4u << 20)
#define STRING_BYTES_MAX (512u << 20)
#define STRING_MAX (SCRY_EVENT_MAX - sizeof(struct scry_event) - sizeof(struct scry_ev_string) - 8)
#define TOTALS_KEPT 16

struct totals_event {
	struct scry_event head;
	struct scry_ev_totals totals;
};

struct scry_writer {
	struct scry_writer *first; /* itself; of another section: whose file this is */
	uint32_t section;
	/* of the file: the first one's */
	int fd;
	bool is_regular;     /* may be cut back */
	bool is_packed_full; /* packed chunks are refused, events are not */
	int stopped;
	uint64_t max_size;
	struct scry_writer_stats stats; /* size, error, mono_ns: the first one's */
	struct scry_buf events;
	uint64_t pending; /* events in the buffer, STRING included */
	uint64_t pending_strings;
	uint64_t first_ns, last_ns; /* of the buffer */
	struct scry_intern strings;
	struct totals_event kept[TOTALS_KEPT]; /* came after writing ended */
	size_t kept_count;
	uint32_t stacks;
};

uint32_t scry_writer_stack(struct scry_writer *w)
{
	return ++w->stacks;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* All bytes of both parts, or -errno with an unknown part of them written. */
static int write_whole(int fd, struct iovec parts[2])
{
	int at = 0;

	while (at < 2) {
		ssize_t done;

		if (!parts[at].iov_len) {
			at++;
			continue;
		}
		done = writev(fd, parts + at, 2 - at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		for (; at < 2 && (size_t)done >= parts[at].iov_len; at++)
			done -= (ssize_t)parts[at].iov_len;
		if (at < 2) {
			parts[at].iov_base = (char *)parts[at].iov_base + done;
			parts[at].iov_len -= (size_t)done;
		}
	}
	return 0;
}

/* Writing ended: what is on disk after the last whole chunk goes, so the tail is clean if possible.
 */
static int writer_stop(struct scry_writer *w, int err)
{
	w->first->stopped = w->first->stats.error = err;
	if (w->first->is_regular && ftruncate(w->first->fd, (off_t)w->first->stats.size) == 0)
		lseek(w->first->fd, (off_t)w->first->stats.size, SEEK_SET);
	if (err == -EFBIG && w->first->max_size)
		return scry_fail(err,
				 "the recording reached its largest size of %llu bytes and was "
				 "ended there; fix: a greater --max-size",
				 (unsigned long long)w->first->max_size);
	return scry_fail(err, "cannot write the recording: %s; what was written until now is whole",
			 strerror(-err));
}

/* One chunk, whole or not at all. */
static int writer_chunk(struct scry_writer *w, struct scry_chunk *chunk, const void *payload)
{
	struct iovec parts[2] = {{chunk, sizeof(*chunk)}, {(void *)payload, chunk->bytes}};
	int err;

	chunk->magic = SCRY_CHUNK_MAGIC;
	chunk->kind |= w->section << SCRY_CHUNK_SECTION_AT;
	chunk->check = scry_chunk_check(chunk, payload);
	if (w->first->max_size &&
	    w->first->stats.size + sizeof(*chunk) + chunk->bytes > w->first->max_size)
		return -EFBIG;
	err = write_whole(w->first->fd, parts);
	if (!err)
		w->first->stats.size += sizeof(*chunk) + chunk->bytes;
	return err;
}

int scry_writer_open(int fd, uint64_t max_size, struct scry_writer **ret_writer)
{
	struct scry_file_head head = {
		.magic = SCRY_FILE_MAGIC,
		.version = SCRY_FILE_VERSION,
		.head_size = sizeof(head),
		.wall_ns = clock_ns(CLOCK_REALTIME),
		.mono_ns = clock_ns(CLOCK_MONOTONIC),
	};
	struct iovec parts[2] = {{&head, sizeof(head)}, {NULL, 0}};
	struct scry_writer *w = calloc(1, sizeof(*w));
	struct stat st;
	int err;

	if (!w)
		return scry_no_memory("the recording's writer");
	w->first = w;
	w->fd = fd;
	w->max_size = max_size;
	w->is_regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	scry_intern_init(&w->strings, STRINGS_MAX, STRING_BYTES_MAX);
	err = write_whole(fd, parts);
	if (err) {
		free(w);
		return scry_fail(err, "cannot begin the recording: %s", strerror(-err));
	}
	w->stats.size = sizeof(head);
	w->stats.mono_ns = head.mono_ns;
	*ret_writer = w;
	return 0;
}

int scry_writer_section(struct scry_writer *first, uint32_t section,
			struct scry_writer **ret_writer)
{
	struct scry_writer *w = calloc(1, sizeof(*w));

	assert(first->first == first && section && section < SCRY_SECTIONS_MAX);
	if (!w)
		return scry_no_memory("the recording's writer");
	w->first = first;
	w->section = section;
	scry_intern_init(&w->strings, STRINGS_MAX, STRING_BYTES_MAX);
	*ret_writer = w;
	return 0;
}

static void writer_forget_pending(struct scry_writer *w)
{
	scry_buf_clear(&w->events);
	w->pending = w->pending_strings = 0;
	w->first_ns = w->last_ns = 0;
}

int scry_writer_flush(struct scry_writer *w)
{
	struct scry_chunk chunk = {
		.kind = SCRY_CHUNK_EVENTS,
		.bytes = w->events.len,
		.count = w->pending,
		.first_ns = w->first_ns,
		.last_ns = w->last_ns,
	};
	uint64_t events = w->pending - w->pending_strings;
	int err;

	if (!w->pending)
		return 0;
	err = writer_chunk(w, &chunk, w->events.data);
	writer_forget_pending(w);
	if (!err) {
		w->stats.events += events;
		return 0;
	}
	w->stats.lost += events;
	return writer_stop(w, err);
}

/* After the end of writing: count, and keep the few events that the tail should still have. */
static void writer_lose(struct scry_writer *w, const struct scry_event *head, const void *payload,
			size_t bytes)
{
	struct totals_event *kept = &w->kept[w->kept_count];

	if (head->type == SCRY_EVENT_STRING)
		return;
	if (head->type != SCRY_EVENT_TOTALS || w->kept_count == TOTALS_KEPT) {
		w->stats.lost++;
		return;
	}
	kept->head = *head;
	kept->head.size = sizeof(*kept);
	memcpy(&kept->totals, payload, bytes < sizeof(kept->totals) ? bytes : sizeof(kept->totals));
	w->kept_count++;
}

static void writer_saw_time(struct scry_writer *w, uint64_t time_ns)
{
	if (!time_ns)
		return;
	if (!w->first_ns || time_ns < w->first_ns)
		w->first_ns = time_ns;
	if (time_ns > w->last_ns)
		w->last_ns = time_ns;
}

int scry_writer_payload(struct scry_writer *w, const struct scry_event *head, const void *payload,
			size_t bytes)
{
	size_t padded = (bytes + 7) & ~(size_t)7;
	struct scry_event event = *head;
	char *to;

	assert(sizeof(event) + padded <= SCRY_EVENT_MAX && scry_event_kind(head->type));
	if (w->first->stopped) {
		writer_lose(w, head, payload, bytes);
		return 0;
	}
	event.size = (uint16_t)(sizeof(event) + padded);
	if (scry_buf_reserve(&w->events, event.size)) {
		w->stats.lost += w->pending - w->pending_strings + 1;
		writer_forget_pending(w);
		return writer_stop(w, -ENOMEM);
	}
	to = w->events.data + w->events.len;
	memcpy(to, &event, sizeof(event));
	memcpy(to + sizeof(event), payload, bytes);
	memset(to + sizeof(event) + bytes, 0, padded - bytes);
	w->events.len += event.size;
	w->pending++;
	w->pending_strings += event.type == SCRY_EVENT_STRING;
	writer_saw_time(w, event.time_ns);
	return w->events.len >= SCRY_WRITER_BUFFER ? scry_writer_flush(w) : 0;
}

int scry_writer_event(struct scry_writer *w, const struct scry_event *event)
{
	assert(event->size >= sizeof(*event) && event->size % 8 == 0);
	return scry_writer_payload(w, event, event + 1, event->size - sizeof(*event));
}

static int writer_string_event(struct scry_writer *w, uint32_t id, const char *bytes, size_t len)
{
	struct scry_event head = {.type = SCRY_EVENT_STRING};
	struct scry_ev_string string = {.id = id, .length = (uint32_t)len};
	char payload[SCRY_EVENT_MAX];

	memcpy(payload, &string, sizeof(string));
	memcpy(payload + sizeof(string), bytes, len);
	return scry_writer_payload(w, &head, payload, sizeof(string) + len);
}

int scry_writer_string(struct scry_writer *w, const char *bytes, size_t len, uint32_t *ret_id)
{
	uint32_t known = w->strings.count, id;

	if (len > STRING_MAX)
		len = STRING_MAX;
	if (scry_intern_put(&w->strings, bytes, len, &id)) {
		w->stats.strings_refused++;
		*ret_id = 0;
		return 0;
	}
	*ret_id = id;
	if (id <= known)
		return 0;
	return writer_string_event(w, id, bytes, len);
}

/* As large the file can become: max_size, what the disk has free now, the limit of the process. */
static uint64_t writer_limit(const struct scry_writer *w, int *ret_error)
{
	uint64_t limit = w->first->max_size ? w->first->max_size : UINT64_MAX;
	struct rlimit own;
	struct statvfs disk;

	*ret_error = -EFBIG;
	if (!w->first->is_regular)
		return limit;
	if (getrlimit(RLIMIT_FSIZE, &own) == 0 && own.rlim_cur < limit)
		limit = own.rlim_cur;
	if (fstatvfs(w->first->fd, &disk) == 0 && disk.f_blocks &&
	    disk.f_bavail < limit / disk.f_frsize &&
	    w->first->stats.size + disk.f_bavail * disk.f_frsize < limit) {
		limit = w->first->stats.size + disk.f_bavail * disk.f_frsize;
		*ret_error = -ENOSPC;
	}
	return limit;
}

/* Packed chunks end before the limit, so that sites, counters and totals still find room. */
static uint64_t writer_packed_end(const struct scry_writer *w)
{
	int error;
	uint64_t limit = writer_limit(w, &error), share = limit / 8;

	return limit - (share < SCRY_WRITER_TAIL_MAX ? share : SCRY_WRITER_TAIL_MAX);
}

uint64_t scry_writer_packed_room(const struct scry_writer *w)
{
	uint64_t used = w->first->stats.size + 2 * sizeof(struct scry_chunk) + w->events.len, end;

	if (w->first->stopped || w->first->is_packed_full)
		return 0;
	end = writer_packed_end(w);
	return used < end ? end - used : 0;
}

static int writer_packed_full(struct scry_writer *w, uint64_t lost)
{
	w->stats.lost += lost;
	w->first->is_packed_full = true;
	if (writer_limit(w, &w->first->stats.error) != w->first->max_size)
		return scry_fail(-ENOSPC,
				 "%s no room for more of the recording: single events are left out "
				 "from now on",
				 w->first->stats.error == -ENOSPC ? "the disk has"
								  : "ulimit -f leaves");
	return scry_fail(-EFBIG,
			 "the recording reached its largest size of %llu bytes: single events "
			 "are left out from now on; fix: a greater --max-size",
			 (unsigned long long)w->first->max_size);
}

int scry_writer_packed(struct scry_writer *w, const struct scry_packed_run *run)
{
	struct scry_chunk chunk = {
		.kind = run->kind,
		.producer_pid = run->producer.pid,
		.producer_ring = run->producer.ring,
		.producer_start = run->producer.start_ticks,
		.bytes = run->bytes,
		.count = run->count,
		.first_ns = run->first_ns,
		.last_ns = run->last_ns,
	};
	int err = scry_writer_flush(w);

	assert(run->bytes % 8 == 0 && run->bytes <= SCRY_CHUNK_MAX);
	if (w->first->stopped || w->first->is_packed_full) {
		w->stats.lost += run->count;
		return err;
	}
	if (w->first->stats.size + sizeof(chunk) + run->bytes > writer_packed_end(w))
		return writer_packed_full(w, run->count);
	err = writer_chunk(w, &chunk, run->payload);
	if (err) {
		w->stats.lost += run->count;
		return writer_stop(w, err);
	}
	w->stats.events += run->count;
	return 0;
}

int scry_writer_objects(struct scry_writer *w, const struct scry_objects_run *run)
{
	const size_t most = SCRY_CHUNK_MAX / sizeof(*run->words);
	size_t at, count;
	int err = scry_writer_flush(w);

	for (at = 0; at < run->count; at += count) {
		struct scry_packed_run part = {
			.kind = SCRY_CHUNK_OBJECTS,
			.producer = run->producer,
			.payload = run->words + at,
			.first_ns = run->first_ns,
			.last_ns = run->last_ns,
		};
		int failed;

		count = run->count - at < most ? run->count - at : most;
		part.count = count;
		part.bytes = count * sizeof(*run->words);
		failed = scry_writer_packed(w, &part);
		err = err ? err : failed;
	}
	return err;
}

void scry_writer_stats(const struct scry_writer *w, struct scry_writer_stats *ret_stats)
{
	*ret_stats = w->stats;
	ret_stats->size = w->first->stats.size;
	ret_stats->error = w->first->stats.error;
	ret_stats->mono_ns = w->first->stats.mono_ns;
	ret_stats->is_full = w->first->stopped || w->first->is_packed_full;
}

/* Says in the recording itself how much of what was given to the writer is missing. */
static void writer_add_loss(struct scry_writer *w)
{
	const char *why = w->first->stats.error == -EFBIG
				  ? "not written: its size limit was reached"
			  : w->first->stats.error == -ENOSPC ? "not written: the disk was full"
							     : "not written: an error of the disk";
	struct scry_event head = {.type = SCRY_EVENT_LOST};
	struct scry_ev_lost lost = {.count = w->stats.lost, .why_str = w->strings.count + 1};

	writer_string_event(w, lost.why_str, why, strlen(why));
	scry_writer_payload(w, &head, &lost, sizeof(lost));
}

/* A writer that had to stop leaves totals and losses, if the room left takes them. */
static void writer_last_words(struct scry_writer *w)
{
	const int stopped = w->first->stopped;
	size_t i;

	w->first->stopped = 0;
	writer_add_loss(w);
	for (i = 0; i < w->kept_count; i++)
		scry_writer_event(w, &w->kept[i].head);
	if (scry_writer_flush(w))
		scry_error_clear();  /* the first failure was reported already */
	w->first->stopped = stopped; /* other sections have last words, too */
}

int scry_writer_close(struct scry_writer *w)
{
	int err = 0;

	if (!w)
		return 0;
	if (!w->first->stopped) {
		if (w->stats.lost)
			writer_add_loss(w);
		err = scry_writer_flush(w);
	}
	if (w->first->stopped)
		writer_last_words(w);
	scry_buf_done(&w->events);
	scry_intern_done(&w->strings);
	free(w);
	return err;
}
