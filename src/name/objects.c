/*
 * From ring words to counters. See objects.h; what a place is: places.h; its caller: stacks.h.
 *
 * Counters are sums of weights: 1 for each object, or with sampling the inverse of its chance to be
 * taken. Doubles hold whole numbers up to 2^53 exactly.
 */
#include "name/objects.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "name/objects_own.h"
#include "vm/ruby_size.h"
#include "wire/file.h"
#include "wire/ruby_ring.h"

#define SLOT_SIZE_FALLBACK 40u
#define MEASURE_BATCH 4096u
#define SLOT_BYTES_SHIFT 48 /* where a word of the ring has the size of a slot */
#define SLOT_BYTES_MASK 0xffffull
#define NEVER UINT32_MAX

struct scry_objects *scry_objects_new(const struct scry_objects_setup *setup)
{
	struct scry_objects *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->setup = *setup;
	o->ruby = setup->ruby;
	scry_places_init(&o->places, o->ruby);
	o->nowhere = scry_places_nowhere(&o->places);
	scry_stacks_init(&o->stacks, SCRY_STACKS_MAX);
	scry_live_init(&o->live, o->ruby ? o->ruby->layout.slot_size : SLOT_SIZE_FALLBACK,
		       setup->limit_bytes);
	scry_live_share(&o->live, setup->live_bytes);
	o->slot_sizes[0] = o->live.slot_size;
	return o;
}

void scry_objects_free(struct scry_objects *o)
{
	if (!o)
		return;
	scry_places_done(&o->places);
	scry_stacks_done(&o->stacks);
	scry_live_done(&o->live);
	free(o->counters);
	free(o->raw);
	free(o);
}

/* The number of slots of so many bytes; 0: not known. */
static uint32_t slot_number(struct scry_objects *o, uint32_t bytes)
{
	uint32_t i = 1;

	if (!bytes)
		return 0;
	while (i <= SCRY_OBJECTS_SLOT_SIZES && o->slot_sizes[i] && o->slot_sizes[i] != bytes)
		i++;
	if (i > SCRY_OBJECTS_SLOT_SIZES)
		return 0;
	o->slot_sizes[i] = bytes;
	return i;
}

/* Where slots differ in size, that of an object must have been emitted with its birth. */
static bool has_slot(const struct scry_objects *o, uint32_t number)
{
	return number || !o->ruby || !o->ruby->layout.slots_differ;
}

/* Objects that one sample stands for. */
static double weight(const struct scry_objects *o, uint32_t slot)
{
	double mean = o->setup.sample_mean, units = 1;
	uint32_t slot_size = o->slot_sizes[slot];

	if (mean <= 1)
		return 1;
	if (o->setup.sample_unit && slot_size > o->setup.sample_unit)
		units = slot_size / o->setup.sample_unit; /* as the agent counts: whole ones */
	return units == 1 ? mean : 1 / (1 - pow(1 - 1 / mean, units));
}

/* The counters of a place, made when it is new. NULL: none, or no memory. */
struct scry_objects_counters *scry_objects_counters_of(struct scry_objects *o, uint32_t place)
{
	if (!place)
		return NULL;
	if (place > o->cap) {
		size_t cap = o->cap ? 2 * o->cap : 1024;
		struct scry_objects_counters *more;

		while (cap < place)
			cap *= 2;
		more = realloc(o->counters, cap * sizeof(*more));
		if (!more)
			return NULL;
		memset(more + o->cap, 0, (cap - o->cap) * sizeof(*more));
		o->counters = more;
		o->cap = cap;
	}
	return &o->counters[place - 1];
}

static uint32_t with_stack(struct scry_objects *o, uint32_t place)
{
	struct scry_objects_pair *pair;

	if (!o->stack || !place)
		return place;
	pair = &o->pairs[(place * 0x9e3779b1u ^ o->stack * 0x85ebca6bu) >> 19];
	if (pair->place != place || pair->stack != o->stack)
		*pair = (struct scry_objects_pair){
			place, o->stack, scry_places_with_stack(&o->places, place, o->stack)};
	return pair->result ? pair->result : o->nowhere;
}

/* `extra`: bytes outside the slot; below 0: not known. */
static void count_end(struct scry_objects *o, const struct scry_live_entry *entry, int64_t extra)
{
	struct scry_objects_counters *c = scry_objects_counters_of(o, entry->place);
	double w = weight(o, entry->slot);

	if (!c)
		return;
	c->freed += w;
	c->freed_samples++;
	c->freed_bytes += w * (o->slot_sizes[entry->slot] + (double)(extra > 0 ? extra : 0));
	if (extra < 0 || !has_slot(o, entry->slot))
		c->freed_unsized += w;
}

/* If `entry` had no class when it was made, and has one, it counts elsewhere from now on. */
static void reveal(struct scry_objects *o, struct scry_live_entry *entry, enum scry_ring_class is)
{
	struct scry_objects_counters *from = scry_objects_counters_of(o, entry->place), *to;
	uint32_t *known, place;
	double w;

	if (is == SCRY_RING_CLASS_NONE || !from)
		return;
	known = &from->revealed[is];
	if (!*known) {
		place = scry_places_revealed(&o->places, entry->place, is == SCRY_RING_CLASS_CORE);
		*known = place ? place : NEVER;
	}
	place = *known;
	if (place == NEVER)
		return;
	to = scry_objects_counters_of(o, place); /* `from` may have moved */
	from = scry_objects_counters_of(o, entry->place);
	if (!to)
		return;
	w = weight(o, entry->slot);
	from->allocated -= w;
	from->samples--;
	to->allocated += w;
	to->samples++;
	entry->place = place;
}

static void count_alloc(struct scry_objects *o, uint64_t address, uint32_t code)
{
	uint32_t place = with_stack(o, code <= SCRY_SITE_SLOTS ? o->slots[code] : 0);
	struct scry_live_region *region = scry_live_region(&o->live, address, 1);
	struct scry_objects_counters *c = scry_objects_counters_of(o, place);
	struct scry_live_entry *entry;
	double w = weight(o, o->slot);

	o->totals.allocs++;
	if (!c) {
		o->totals.damaged++;
		return;
	}
	c->allocated += w;
	c->samples++;
	if (!region) {
		o->totals.untracked++;
		c->unfollowed += w;
		c->freed_samples++;
		return;
	}
	entry = scry_live_entry(&o->live, region, address);
	if (entry->place) {
		o->totals.replaced++;
		count_end(o, entry, -1);
	} else {
		region->count++;
	}
	*entry = (struct scry_live_entry){.place = place,
					  .slot = o->slot,
					  .offset = scry_live_offset(&o->live, address),
					  .birth = o->gcs};
}

static void count_free(struct scry_objects *o, uint64_t address, uint32_t code)
{
	struct scry_live_region *region = scry_live_region(&o->live, address, 0);
	struct scry_live_entry *entry = region ? scry_live_entry(&o->live, region, address) : NULL;
	int64_t extra = (int64_t)o->size;
	enum scry_ring_class is = (code - SCRY_RING_FREED) / SCRY_RING_CLASS;

	if (is >= SCRY_RING_CLASSES) {
		o->totals.damaged++;
		return;
	}
	code -= is * SCRY_RING_CLASS;
	o->size = 0;
	o->totals.frees++;
	if (!entry || !entry->place) {
		o->totals.frees_older++;
		return;
	}
	if (code != SCRY_RING_FREED)
		extra = code == SCRY_RING_FREED_UNKNOWN ? -1
							: (int64_t)code - SCRY_RING_FREED_SIZED;
	reveal(o, entry, is);
	count_end(o, entry, extra);
	entry->place = 0;
	region->count--;
}

static void count_gc(struct scry_objects *o, uint64_t word)
{
	uint32_t gcs = (uint32_t)(word >> 24);

	o->totals.gcs += gcs - o->gcs;
	o->gcs = gcs;
	switch (word & 0xff) {
	case SCRY_RING_GC_FULL_MARKED:
		o->totals.full_gcs += word >> 8 & SCRY_RING_GC_FULLS_MAX;
		o->full_now = o->gcs;
		break;
	case SCRY_RING_GC_SWEPT:
		if (o->full_now)
			o->full_gc = o->full_now;
		o->full_now = 0;
		break;
	default:
		break;
	}
}

/* `moved`: the new address, with the bytes of the slot there. */
static void move(struct scry_objects *o, uint64_t from, uint64_t moved)
{
	uint64_t to = moved & ~(SLOT_BYTES_MASK << SLOT_BYTES_SHIFT);
	struct scry_live_region *region = scry_live_region(&o->live, from, 0), *other;
	struct scry_live_entry *entry = region ? scry_live_entry(&o->live, region, from) : NULL;
	struct scry_live_entry was;

	if (!entry || !entry->place)
		return; /* born before the watch */
	was = *entry;
	entry->place = 0;
	region->count--;
	o->totals.moved++;
	other = scry_live_region(&o->live, to, 1);
	if (!other) {
		o->totals.untracked++;
		scry_objects_counters_of(o, was.place)->unfollowed += weight(o, was.slot);
		scry_objects_counters_of(o, was.place)->freed_samples++;
		return;
	}
	entry = scry_live_entry(&o->live, other, to);
	if (entry->place) {
		o->totals.replaced++;
		count_end(o, entry, -1);
	} else {
		other->count++;
	}
	*entry = was;
	entry->slot = slot_number(o, (uint32_t)(moved >> SLOT_BYTES_SHIFT));
	entry->offset = scry_live_offset(&o->live, to);
}

static void define(struct scry_objects *o, const uint64_t *words, size_t count)
{
	uint32_t code = 0, place = scry_places_define(&o->places, words, count, &code);

	if (!code) {
		o->totals.damaged++;
		return;
	}
	o->totals.defs++;
	o->slots[code] = place ? place : o->nowhere;
}

static void define_node(struct scry_objects *o, const uint64_t *words, size_t count)
{
	struct scry_ring_node node = {0};
	const char *text = (const char *)words + sizeof(node);

	if (count * 8 >= sizeof(node))
		memcpy(&node, words, sizeof(node));
	if (count * 8 < sizeof(node) ||
	    sizeof(node) + node.path_size + node.label_size > count * 8) {
		o->totals.damaged++;
		return;
	}
	scry_stacks_define(&o->stacks, node.node,
			   (struct scry_stack_frame){
				   .parent = node.parent,
				   .path = scry_places_name(&o->places, text, node.path_size),
				   .label = scry_places_name(&o->places, text + node.path_size,
							     node.label_size),
				   .line = node.line,
			   });
}

/* It cannot be known whether it lives. */
static void unfollow_entry(struct scry_objects *o, struct scry_live_region *region,
			   struct scry_live_entry *entry)
{
	struct scry_objects_counters *c = scry_objects_counters_of(o, entry->place);

	if (!c)
		return;
	c->unfollowed += weight(o, entry->slot);
	c->freed_samples++;
	entry->place = 0;
	region->count--;
}

static void unfollow(struct scry_objects *o, uint64_t address)
{
	struct scry_live_region *region = scry_live_region(&o->live, address, 0);
	struct scry_live_entry *entry = region ? scry_live_entry(&o->live, region, address) : NULL;

	if (!entry || !entry->place)
		return; /* born before the watch, or it was not recorded */
	o->totals.unfollowed++;
	unfollow_entry(o, region, entry);
}

/* A record: its escape word at words[0], then `count` words. */
static void take_record(struct scry_objects *o, const uint64_t *words, size_t count)
{
	uint32_t kind = *words >> 20 & 0xfff;

	if (kind == SCRY_RING_DEF) {
		define(o, words + 1, count);
	} else if (kind == SCRY_RING_NODE) {
		define_node(o, words + 1, count);
	} else if (kind == SCRY_RING_STACK) {
		o->stack = scry_stacks_node(&o->stacks, (uint32_t)(*words >> 48));
	} else if (kind == SCRY_RING_SLOT) {
		o->slot = slot_number(o, (uint32_t)(*words >> SLOT_BYTES_SHIFT));
	} else if (kind == SCRY_RING_GC && count == 1) {
		count_gc(o, words[1]);
	} else if (kind == SCRY_RING_SIZE && count == 1) {
		o->size = words[1] < SCRY_SIZE_MAX ? words[1] : 0;
	} else if (kind == SCRY_RING_UNFOLLOWED && count == 1) {
		unfollow(o, words[1]);
	} else if (kind == SCRY_RING_MOVED) {
		o->totals.compactions += *words >> 48 & 1;
		for (size_t i = 1; i + 1 <= count; i += 2)
			move(o, words[i], words[i + 1]);
	} else {
		o->totals.damaged++;
	}
}

void scry_objects_lose_sight(struct scry_objects *o)
{
	struct scry_live_region *region;
	size_t cursor = 0;

	while ((region = scry_live_next(&o->live, &cursor))) {
		for (size_t i = 0; region->count && i < o->live.per_region; i++) {
			if (!scry_objects_counters_of(o, region->at[i].place))
				continue;
			unfollow_entry(o, region, &region->at[i]);
			o->totals.out_of_sight++;
		}
	}
}

/* Length of the record at `i` in words, its head included; 0 when it does not fit: the rest is
 * damaged. */
static size_t record_words(const uint64_t *words, size_t count, size_t i)
{
	size_t n = 1;

	if ((words[i] & SCRY_OBJ_CODE_MASK) == SCRY_RING_ESCAPE)
		n += words[i] >> 32 & 0xffff;
	return n <= count - i ? n : 0;
}

static bool is_freed(uint32_t code)
{
	return code >= SCRY_RING_FREED;
}

void scry_objects_feed(struct scry_objects *o, const uint64_t *words, size_t count)
{
	size_t n;

	for (size_t i = 0; i < count; i += n) {
		uint32_t code = words[i] & SCRY_OBJ_CODE_MASK;

		n = 1;
		if (code == SCRY_RING_ESCAPE) {
			n = record_words(words, count, i);
			if (!n) {
				o->totals.damaged++;
				return;
			}
			take_record(o, &words[i], n - 1);
		} else if (is_freed(code)) {
			count_free(o, words[i] >> 20 << 3, code);
		} else {
			count_alloc(o, words[i] >> 20 << 3, code);
		}
	}
}

/* --- looking at the living ------------------------------------------------------------------ */

struct batch {
	uint64_t address[MEASURE_BATCH];
	struct scry_live_entry *entry[MEASURE_BATCH];
	struct scry_ruby_size size[MEASURE_BATCH];
	size_t count;
};

static void count_living(struct scry_objects *o, const struct scry_live_entry *entry,
			 const struct scry_ruby_size *size)
{
	struct scry_objects_counters *c = scry_objects_counters_of(o, entry->place);
	double w = weight(o, entry->slot);
	double bytes = w * (o->slot_sizes[entry->slot] + (double)size->extra);

	if (!c)
		return;
	c->live_bytes += bytes;
	if (!size->known || !has_slot(o, entry->slot))
		c->live_unsized += w;
	if (!c->oldest || entry->birth + 1ull < c->oldest)
		c->oldest = entry->birth + 1ull;
	if (entry->birth < o->full_gc) {
		c->old_live += w;
		c->old_live_bytes += bytes;
	}
}

static void measure_batch(struct scry_objects *o, struct batch *b, bool is_gone)
{
	if (!b->count)
		return;
	if (is_gone || !o->ruby || scry_ruby_sizes(o->ruby, b->address, b->count, b->size) < 0)
		for (size_t i = 0; i < b->count; i++)
			b->size[i] = (struct scry_ruby_size){.end_class = SCRY_RING_CLASS_NONE};
	for (size_t i = 0; i < b->count; i++) {
		reveal(o, b->entry[i], b->size[i].end_class);
		o->totals.found_free += b->size[i].is_free;
		count_living(o, b->entry[i], &b->size[i]);
	}
	b->count = 0;
}

void scry_objects_measure(struct scry_objects *o, bool is_gone)
{
	struct batch *b = malloc(sizeof(*b));
	struct scry_live_region *region;
	size_t cursor = 0;

	for (size_t i = 0; i < o->cap; i++) {
		struct scry_objects_counters *c = &o->counters[i];

		c->live_bytes = c->live_unsized = c->old_live = c->old_live_bytes = 0;
		c->oldest = 0;
	}
	o->totals.found_free = 0;
	if (!b)
		return;
	b->count = 0;
	while ((region = scry_live_next(&o->live, &cursor))) {
		if (!region->count)
			continue;
		for (size_t i = 0; i < o->live.per_region; i++) {
			if (!region->at[i].place)
				continue;
			b->address[b->count] = scry_live_address(&o->live, region, i);
			b->entry[b->count++] = &region->at[i];
			if (b->count == MEASURE_BATCH)
				measure_batch(o, b, is_gone);
		}
	}
	measure_batch(o, b, is_gone);
	free(b);
}

/* --- writing -------------------------------------------------------------------------------- */

static uint32_t string_event(struct scry_objects *o, struct scry_writer *w, uint32_t name)
{
	size_t size;
	const char *bytes = name ? scry_intern_get(&o->places.names, name, &size) : NULL;
	uint32_t id = 0;

	if (bytes)
		scry_writer_string(w, bytes, size, &id);
	return id;
}

/* A SITE event where the place is new or its line has been settled otherwise. */
static int write_site(struct scry_objects *o, struct scry_writer *w, uint32_t place, uint32_t pid)
{
	struct scry_objects_counters *c = &o->counters[place - 1];
	struct scry_ev_site site = {.pid = pid};
	struct scry_place_key key;

	scry_places_key(&o->places, place, &key);
	site.line = scry_places_line(&o->places, &key);
	if (c->site && c->line == site.line && c->pid == pid)
		return 0;
	if (!c->site)
		c->site = (*o->setup.next_site)++;
	c->line = site.line;
	c->pid = pid;
	site.site = c->site;
	site.file_str = string_event(o, w, key.path);
	site.class_str = string_event(o, w, key.klass);
	site.method_str = string_event(o, w, key.label);
	site.flags = (key.internal ? SCRY_SITE_INTERNAL : 0) |
		     (!key.internal && !key.klass ? SCRY_SITE_UNNAMED : 0);
	site.slot_bytes = o->slot_sizes[0];
	site.stack = scry_stacks_write(&o->stacks, key.stack, &o->places.names, w);
	return scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_SITE}, &site,
				   sizeof(site));
}

static uint64_t whole(double value)
{
	return value > 0 ? (uint64_t)(value + 0.5) : 0;
}

static int write_counters(struct scry_objects *o, struct scry_writer *w, uint32_t place,
			  uint32_t slice)
{
	const struct scry_objects_counters *c = &o->counters[place - 1];
	bool sampled = o->setup.sample_mean > 0;
	bool is_unsized = c->freed_unsized > 0 || c->live_unsized > 0;
	struct scry_ev_objects ev = {
		.site = c->site,
		.slice = slice,
		.allocated = whole(c->allocated),
		.freed = whole(c->freed),
		.live_bytes = whole(c->live_bytes),
		.freed_bytes = whole(c->freed_bytes),
		.bytes = whole(c->live_bytes) + whole(c->freed_bytes),
		.max_age = c->oldest ? o->gcs - (c->oldest - 1) : 0,
		.flags =
			(is_unsized ? SCRY_OBJECTS_SLOTS : 0) | (sampled ? SCRY_OBJECTS_SCALED : 0),
		.samples = sampled ? c->samples : 0,
		.live_samples = sampled ? c->samples - c->freed_samples : 0,
		.old_live = whole(c->old_live),
		.old_live_bytes = whole(c->old_live_bytes),
		.unfollowed = whole(c->unfollowed),
		.unsized = whole(c->freed_unsized) + whole(c->live_unsized) + whole(c->unfollowed),
		.live_unsized = whole(c->live_unsized),
	};

	return scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_OBJECTS}, &ev,
				   sizeof(ev));
}

int scry_objects_write(struct scry_objects *o, struct scry_writer *w, uint32_t pid, uint32_t slice)
{
	int r = 0, e;

	for (uint32_t place = 1; place <= o->cap; place++) {
		/* none of the records that were written before are left, if all were revealed */
		if (!o->counters[place - 1].samples && !o->counters[place - 1].site)
			continue;
		e = write_site(o, w, place, pid);
		r = r ? r : e;
		e = write_counters(o, w, place, slice);
		r = r ? r : e;
	}
	return r;
}

int scry_objects_raw(struct scry_objects *o, const struct scry_objects_run *batch,
		     struct scry_writer *w)
{
	struct scry_objects_run run = *batch;
	uint64_t *out = realloc(o->raw, (batch->count + 1) * 8);
	size_t n, count = 0;
	int r = 0, e;

	if (!out)
		return -ENOMEM;
	o->raw = out;
	for (size_t i = 0; i < batch->count; i += n) {
		uint64_t word = batch->words[i];
		uint32_t code = word & SCRY_OBJ_CODE_MASK, place;

		n = record_words(batch->words, batch->count, i);
		if (!n)
			break;
		scry_objects_feed(o, &batch->words[i], n);
		if (code == SCRY_RING_ESCAPE)
			continue;
		word &= ~(uint64_t)SCRY_OBJ_CODE_MASK;
		if (!is_freed(code)) {
			place = with_stack(o, code <= SCRY_SITE_SLOTS ? o->slots[code] : 0);
			if (!place)
				continue;
			e = o->counters[place - 1].site
				    ? 0
				    : write_site(o, w, place, batch->producer.pid);
			r = r ? r : e;
			if (o->counters[place - 1].site > SCRY_PLACES_MAX) {
				o->totals.damaged++; /* of several processes: the counters have it,
							a packed word has no room */
				continue;
			}
			word |= o->counters[place - 1].site;
		}
		out[count++] = word;
	}
	run.words = out;
	run.count = count;
	e = count ? scry_writer_objects(w, &run) : 0;
	return r ? r : e;
}

static bool is_named(const struct scry_objects *o, uint32_t name, const char *text)
{
	size_t size;
	const char *bytes = name ? scry_intern_get(&o->places.names, name, &size) : NULL;

	return bytes && size == strlen(text) && !memcmp(bytes, text, size);
}

void scry_objects_totals(const struct scry_objects *o, struct scry_objects_totals *ret)
{
	struct scry_place_key key;
	double made = 0, live = 0;

	*ret = o->totals;
	ret->places = o->places.keys.count;
	ret->unnamed = ret->nowhere = ret->ractors = 0;
	for (uint32_t place = 1; place <= o->cap; place++) {
		const struct scry_objects_counters *c = &o->counters[place - 1];

		if (!c->samples)
			continue;
		made += c->allocated;
		live += c->allocated - c->freed - c->unfollowed;
		scry_places_key(&o->places, place, &key);
		if (place == o->nowhere)
			ret->nowhere = whole(c->allocated);
		if (is_named(o, key.klass, "Ractor"))
			ret->ractors += whole(c->allocated);
		if (!key.internal && !key.klass)
			ret->unnamed += whole(c->allocated);
	}
	ret->estimated = whole(made);
	ret->estimated_live = whole(live);
}
