/*
 * See stream.h. The threads that have a record to give are in a heap by its tick; the first goes on
 * until its tick is above that of the second. One thread alone is a plain loop.
 */
#include "sys/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include "base/err.h"
#include "base/map.h"

#define THREADS_MAX (1u << 20)
#define WORDS_LEAST 64u
#define RUN_MAX 1024u /* records: the instrument looks up now and then */

struct thread {
	struct scry_stream_thread shown;
	uint64_t *words;
	struct scry_stream_record *records; /* [first, found) wait */
	size_t count, room;		    /* words */
	size_t first, found, places;
	uint64_t tick; /* of the last record */
	bool has_ended;
	uint64_t own[];
};

struct turn { /* of the heap */
	uint64_t tick;
	struct thread *thread;
};

struct scry_stream {
	const struct scry_stream_kind *kind;
	void *arg;
	struct scry_map by_id; /* -> pointer */
	struct thread **threads;
	struct turn *heap;
	size_t thread_count, thread_room, heap_count;
	size_t waiting; /* words */
	size_t bytes;
	struct scry_ticks clock;
	uint64_t now, last_tick, last_ns;
	bool is_behind;
};

struct scry_stream *scry_stream_new(const struct scry_stream_kind *kind, void *arg)
{
	struct scry_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->kind = kind;
	s->arg = arg;
	s->last_tick = UINT64_MAX;
	scry_map_init(&s->by_id, THREADS_MAX);
	return s;
}

static bool is_empty(const struct thread *h)
{
	return h->first == h->found;
}

/* Words that are kept of it, from the first record that waits. */
static size_t waiting(const struct thread *h)
{
	return is_empty(h) ? 0 : h->count - (uint32_t)(h->records[h->first].at - h->shown.base);
}

static void free_thread(struct scry_stream *s, struct thread *h)
{
	s->waiting -= waiting(h);
	s->bytes -= 8 * h->room + sizeof(*h->records) * h->places;
	free(h->words);
	free(h->records);
	free(h);
}

void scry_stream_free(struct scry_stream *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->thread_count; i++)
		free_thread(s, s->threads[i]);
	free(s->threads);
	free(s->heap);
	scry_map_done(&s->by_id);
	free(s);
}

static int no_memory(size_t words)
{
	return scry_no_memory("%zu KiB of records", words / 128);
}

/* the clock */

void scry_stream_clock(struct scry_stream *s, const struct scry_ticks_pair *now)
{
	scry_ticks_mark(&s->clock, now);
	s->now = now->tsc;
}

uint64_t scry_stream_look(struct scry_stream *s)
{
	const struct scry_ticks_pair now = scry_ticks_look();

	scry_stream_clock(s, &now);
	return now.tsc;
}

void scry_stream_clock_of(struct scry_stream *s, const struct scry_stream *other)
{
	s->clock = other->clock;
	s->now = other->now;
}

void scry_stream_goes_on(struct scry_stream *s, const struct scry_stream *other)
{
	scry_stream_clock_of(s, other);
	s->last_tick = other->last_tick;
	s->last_ns = other->last_ns;
}

uint64_t scry_stream_now(const struct scry_stream *s)
{
	return s->now;
}

/* The rate is known better and better: what is computed later may be earlier. Ticks are repeated.
 */
uint64_t scry_stream_time(struct scry_stream *s, uint64_t tick)
{
	uint64_t at;

	if (tick == s->last_tick)
		return s->last_ns;
	at = scry_ticks_time(&s->clock, tick);
	s->last_tick = tick;
	if (at > s->last_ns)
		s->last_ns = at;
	return s->last_ns;
}

uint64_t scry_stream_length(const struct scry_stream *s, uint64_t ticks)
{
	return scry_ticks_length(&s->clock, ticks);
}

/* threads and their words */

static int make_place(struct scry_stream *s)
{
	size_t room = s->thread_room ? 2 * s->thread_room : 16;
	struct thread **more;
	struct turn *heap;

	if (s->thread_count < s->thread_room)
		return 0;
	more = realloc(s->threads, room * sizeof(struct thread *));
	if (!more)
		return -ENOMEM;
	s->threads = more;
	heap = realloc(s->heap, room * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	s->heap = heap;
	s->thread_room = room;
	return 0;
}

static struct thread *thread_of(struct scry_stream *s, const struct scry_stream_words *w)
{
	struct thread *h;
	uint64_t at;

	if (scry_map_get(&s->by_id, w->thread, &at))
		return (struct thread *)at;
	if (make_place(s) < 0)
		return NULL;
	h = calloc(1, sizeof(*h) + s->kind->own_bytes);
	if (!h || scry_map_put(&s->by_id, w->thread, (uint64_t)h) < 0) {
		free(h);
		return NULL;
	}
	h->shown = (struct scry_stream_thread){.id = w->thread, .tid = w->tid, .own = h->own};
	s->threads[s->thread_count++] = h;
	if (s->kind->born)
		s->kind->born(s->arg, &h->shown);
	return h;
}

/* What was given makes room, when it is the most. */
static void compact(struct thread *h)
{
	size_t given = h->count - waiting(h);

	if (!h->places || given < h->count - given) /* at first there is nothing to move */
		return;
	memmove(h->words, h->words + given, 8 * (h->count - given));
	h->shown.base += (uint32_t)given;
	h->count -= given;
	h->found -= h->first;
	memmove(h->records, h->records + h->first, h->found * sizeof(*h->records));
	h->first = 0;
}

/* Room for `n` words, and the records that they may be. */
static int make_room(struct scry_stream *s, struct thread *h, size_t n)
{
	size_t room = h->room ? h->room : WORDS_LEAST, places;
	struct scry_stream_record *records;
	uint64_t *words;

	compact(h);
	while (room < h->count + n)
		room *= 2;
	if (room > h->room) {
		words = realloc(h->words, 8 * room);
		if (!words)
			return no_memory(room);
		s->bytes += 8 * (room - h->room);
		h->words = words;
		h->room = room;
	}
	places = h->places ? h->places : WORDS_LEAST / 2;
	while (places < h->found + n / 2)
		places *= 2;
	if (places > h->places) {
		records = realloc(h->records, sizeof(*records) * places);
		if (!records)
			return no_memory(room);
		s->bytes += sizeof(*records) * (places - h->places);
		h->records = records;
		h->places = places;
	}
	return 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Ticks never fall, and none is later than `now`. They begin at `tick`; the last one. */
static uint64_t bend(struct scry_stream_record *records, size_t count, uint32_t at, uint64_t tick,
		     uint64_t now)
{
	for (size_t i = 0; i < count; i++) {
		if (records[i].tick > tick)
			tick = least(records[i].tick, now);
		records[i].tick = tick;
		records[i].at += at;
	}
	return tick;
}

int scry_stream_add(void *stream, const struct scry_stream_words *w)
{
	const uint64_t now = __rdtsc();
	struct scry_stream *s = stream;
	struct thread *h = thread_of(s, w);
	struct scry_stream_scan scan = {.count = w->count};
	size_t before;
	int r;

	if (!h)
		return no_memory(w->count);
	h->has_ended |= w->has_ended;
	if (w->begin_tick > h->tick)
		h->tick = least(w->begin_tick, now);
	if (!w->count)
		return 0;
	before = waiting(h);
	r = make_room(s, h, w->count);
	if (r < 0)
		return r;
	memcpy(h->words + h->count, w->words, 8 * w->count);
	scan.words = h->words + h->count;
	scan.records = h->records + h->found;
	scan.tick = h->tick;
	s->kind->scan(s->arg, &scan);
	h->tick = bend(scan.records, scan.found, h->shown.base + (uint32_t)h->count, h->tick, now);
	if (scan.tick > h->tick) /* said by a record that is none */
		h->tick = least(scan.tick, now);
	h->found += scan.found;
	h->count += w->count;
	s->waiting += waiting(h) - before;
	h->shown.words = h->words;
	h->shown.end = h->words + h->count;
	return 0;
}

/* merging */

static void sift_down(struct scry_stream *s, size_t i)
{
	struct turn turn = s->heap[i];

	for (size_t child; (child = 2 * i + 1) < s->heap_count; i = child) {
		if (child + 1 < s->heap_count && s->heap[child + 1].tick < s->heap[child].tick)
			child++;
		if (turn.tick <= s->heap[child].tick)
			break;
		s->heap[i] = s->heap[child];
	}
	s->heap[i] = turn;
}

static void fill_heap(struct scry_stream *s)
{
	s->heap_count = 0;
	for (size_t i = 0; i < s->thread_count; i++) {
		struct thread *h = s->threads[i];

		if (!is_empty(h))
			s->heap[s->heap_count++] = (struct turn){h->records[h->first].tick, h};
	}
	for (size_t i = s->heap_count / 2; i-- > 0;)
		sift_down(s, i);
}

/* The tick at which another thread than the first comes. */
static uint64_t second_tick(const struct scry_stream *s)
{
	uint64_t tick = UINT64_MAX;

	for (size_t i = 1; i <= 2 && i < s->heap_count; i++)
		tick = s->heap[i].tick < tick ? s->heap[i].tick : tick;
	return tick;
}

/* Gives a run of `h`, up to `limit`. 1: not all of it was taken, or *most is reached. */
static int give_run(struct scry_stream *s, struct thread *h, uint64_t limit, size_t *most)
{
	const struct scry_stream_record *records = h->records + h->first;
	size_t left = h->found - h->first, count = 1, before = waiting(h);
	ssize_t taken;

	left = left < *most ? left : *most;
	while (count < left && count < RUN_MAX && records[count].tick <= limit)
		count++;
	taken = s->kind->give(s->arg, &h->shown, records, count);
	if (taken < 0)
		return (int)taken;
	h->first += (size_t)taken;
	s->waiting -= before - waiting(h);
	*most -= (size_t)taken;
	return (size_t)taken < count || !*most;
}

/* Threads that have ended and have given all. */
static int end_threads(struct scry_stream *s)
{
	int r = 0;

	for (size_t i = 0; i < s->thread_count && r == 0;) {
		struct thread *h = s->threads[i];

		if (!h->has_ended || !is_empty(h)) {
			i++;
			continue;
		}
		if (s->kind->ended)
			r = s->kind->ended(s->arg, &h->shown);
		scry_map_remove(&s->by_id, h->shown.id, NULL);
		free_thread(s, h);
		s->threads[i] = s->threads[--s->thread_count];
	}
	return r;
}

int scry_stream_merge(struct scry_stream *s, uint64_t watermark, size_t most)
{
	int r = most ? 0 : 1;

	fill_heap(s);
	while (s->heap_count && s->heap[0].tick <= watermark && r == 0) {
		struct thread *h = s->heap[0].thread;
		uint64_t second = second_tick(s);

		r = give_run(s, h, second < watermark ? second : watermark, &most);
		if (is_empty(h))
			s->heap[0] = s->heap[--s->heap_count];
		else
			s->heap[0].tick = h->records[h->first].tick;
		if (s->heap_count)
			sift_down(s, 0);
	}
	s->is_behind = s->heap_count && s->heap[0].tick <= watermark;
	if (r == 0)
		r = end_threads(s);
	return r < 0 ? r : 0;
}

bool scry_stream_is_behind(const struct scry_stream *s)
{
	return s->is_behind;
}

int scry_stream_each(struct scry_stream *s,
		     int (*each)(void *arg, struct scry_stream_thread *thread), void *arg)
{
	int r = 0;

	for (size_t i = 0; i < s->thread_count && r == 0; i++)
		r = each(arg, &s->threads[i]->shown);
	return r;
}

size_t scry_stream_waiting(const struct scry_stream *s)
{
	return s->waiting;
}

size_t scry_stream_bytes(const struct scry_stream *s)
{
	return s->bytes;
}
