/*
 * Sampling: which objects are taken, and what became of them.
 *
 * The gaps between samples are drawn from a table that the host has filled with the quantiles of
 * the geometric distribution, so that each object has the same chance whatever the program's
 * rhythm. The slots of the objects taken are kept in a small hash table, before it a filter of one
 * bit per hash: the one load that every object costs. An object made in a slot that is in the
 * table says that the one taken there is dead; the others are looked at when a GC has marked, or,
 * where the VM does not say what is marked, has swept. Their content is gone then: so all are sized
 * when it has marked, from when on those that it will sweep do not change.
 */
#include "agent/load.h"
#include "agent/objects.h"

#define EMPTY 0ull
#define REMOVED 1ull
#define REMOVED_MAX 2048u /* entries; each has left a bit in the filter */

static uint32_t slot_of(uint64_t object)
{
	return (uint32_t)((object >> 3) * 0x9e3779b97f4a7c15ull >> 40) & (SCRY_TRACKED - 1);
}

static void set_filter(uint64_t object)
{
	uint32_t bit = scry_sample_bit(object);

	scry_agent_tables.sampled.filter[bit / 64] |= 1ull << bit % 64;
}

static void set_entry(uint32_t at, struct scry_sampled entry)
{
	scry_agent_tables.sampled.entries[at] = entry;
	scry_agent_tables.sampled.living[at / 64] |= 1ull << at % 64;
}

static void remove_entry(struct scry_state_page *g, uint32_t at)
{
	scry_agent_tables.sampled.entries[at].object = REMOVED;
	scry_agent_tables.sampled.living[at / 64] &= ~(1ull << at % 64);
	g->tracked--;
}

/* The first entry from `at` on that is an object; SCRY_TRACKED: none. */
static uint32_t next_entry(uint32_t at)
{
	for (; at < SCRY_TRACKED; at = (at / 64 + 1) * 64) {
		uint64_t bits = scry_agent_tables.sampled.living[at / 64] >> at % 64;

		if (bits)
			return at + (uint32_t)__builtin_ctzll(bits);
	}
	return SCRY_TRACKED;
}

int64_t scry_sample_gap(struct scry_state_page *g)
{
	g->random ^= g->random << 13;
	g->random ^= g->random >> 7;
	g->random ^= g->random << 17;
	return scry_agent_objects.sampling.gaps[g->random >> 32 & (SCRY_SAMPLE_GAPS - 1)];
}

static void fill_filter(void)
{
	for (uint32_t i = 0; i < SCRY_SAMPLE_FILTER_BITS / 64; i++)
		scry_agent_tables.sampled.filter[i] = 0;
	for (uint32_t i = next_entry(0); i < SCRY_TRACKED; i = next_entry(i + 1))
		set_filter(scry_agent_tables.sampled.entries[i].object);
}

void scry_sample_forget_all(struct scry_state_page *g)
{
	for (uint32_t i = 0; i < SCRY_TRACKED; i++)
		scry_agent_tables.sampled.entries[i].object = EMPTY;
	for (uint32_t i = 0; i < SCRY_TRACKED / 64; i++)
		scry_agent_tables.sampled.living[i] = 0;
	fill_filter();
	g->tracked = 0;
	scry_agent_tables.sampled.used = 0;
	if (!g->random)
		g->random = 0x2545f4914f6cdd1dull ^ scry_agent.control->lease_tsc;
	g->until_sample = scry_sample_gap(g);
}

/* Removed entries, and the bits that they left in the filter, go: what is alive is put in anew. */
static void clean(struct scry_state_page *g)
{
	uint32_t kept = 0;

	for (uint32_t i = next_entry(0); i < SCRY_TRACKED; i = next_entry(i + 1))
		scry_agent_tables.sampled.scratch[kept++] = scry_agent_tables.sampled.entries[i];
	for (uint32_t i = 0; i < SCRY_TRACKED; i++)
		scry_agent_tables.sampled.entries[i].object = EMPTY;
	for (uint32_t i = 0; i < SCRY_TRACKED / 64; i++)
		scry_agent_tables.sampled.living[i] = 0;
	for (uint32_t i = 0; i < kept; i++) {
		uint32_t at = slot_of(scry_agent_tables.sampled.scratch[i].object);

		while (scry_agent_tables.sampled.entries[at].object)
			at = (at + 1) & (SCRY_TRACKED - 1);
		set_entry(at, scry_agent_tables.sampled.scratch[i]);
	}
	scry_agent_tables.sampled.used = g->tracked = kept;
	fill_filter();
}

/* The keeper takes it out of the living. Without room for that it is lost sight of with all. */
static void unfollow(struct scry_state_page *g, uint64_t object)
{
	if (!scry_ring_reserve(g, 2)) {
		scry_account_of(scry_agent.control)->objects.blind++;
		return;
	}
	scry_ring_put(g, SCRY_RING_ESCAPE_WORD(SCRY_RING_UNFOLLOWED, 1));
	scry_ring_put(g, object);
	scry_ring_publish(g);
}

void scry_sample_track(struct scry_state_page *g, uint64_t object)
{
	uint32_t at = slot_of(object);

	if (scry_agent_tables.sampled.used >= SCRY_TRACKED / 4 * 3) {
		if (g->tracked >= SCRY_TRACKED / 2) {
			scry_account_of(scry_agent.control)->objects.untracked++;
			unfollow(g, object);
			return;
		}
		clean(g);
	}
	while (scry_agent_tables.sampled.entries[at].object > REMOVED)
		at = (at + 1) & (SCRY_TRACKED - 1);
	if (scry_agent_tables.sampled.entries[at].object == EMPTY)
		scry_agent_tables.sampled.used++;
	set_entry(at, (struct scry_sampled){.object = object,
					    .extra = SCRY_EXTRA_UNKNOWN,
					    .end_class = SCRY_RING_CLASS_NONE});
	g->tracked++;
	set_filter(object);
}

/* The entry of `object`; SCRY_TRACKED: none. */
static uint32_t find(uint64_t object)
{
	uint32_t at = slot_of(object);

	while (scry_agent_tables.sampled.entries[at].object &&
	       scry_agent_tables.sampled.entries[at].object != object)
		at = (at + 1) & (SCRY_TRACKED - 1);
	return scry_agent_tables.sampled.entries[at].object == object ? at : SCRY_TRACKED;
}

/*
 * rb_objspace_marked_object_p (gc.c: "only for GC_END_MARK timing") looks into the object's heap
 * page. That page is there: an entry is of a slot that was in use after the last mark, and those
 * that are not marked now are removed. After a sweep the page may be gone: that is asked first.
 */
static int is_dead(uint32_t event, uint64_t object)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	int (*is_marked)(uint64_t) = (void *)r->is_marked;
	_Bool (*in_heap)(uint64_t) = (void *)r->in_heap;

	if (is_marked)
		return event == SCRY_RUBY_GC_END_MARK && !is_marked(object);
	if (in_heap && event == SCRY_RUBY_GC_END_SWEEP)
		return !in_heap(object) || !(load64(object) & SCRY_TYPE_MASK);
	return 0;
}

/* Whether the size of such an object is behind a pointer in it. */
static int is_behind_pointer(const struct scry_size_rules *rules, uint64_t flags)
{
	const struct scry_size_type *type = &rules->type[flags % SCRY_SIZE_TYPES];
	const struct scry_size_rule *rule = &rules->rule[type->first], *end = rule + type->count;

	for (; rule != end; rule++)
		if ((flags & rule->mask) == rule->value && rule->kind == SCRY_SIZE_TABLE &&
		    rule->via != SCRY_SIZE_DIRECT)
			return 1;
	return 0;
}

/*
 * Among those sized here are living ones, of which some are just being made: a pointer in them may
 * be what an earlier object left there. So what is behind it is not looked at. No object that the
 * sweep takes changes any more, and slots stay in their pages till then.
 */
static void measure_any(const struct scry_agent_ruby *r, struct scry_sampled *entry)
{
	_Bool (*in_heap)(uint64_t) = (void *)r->in_heap;
	uint64_t flags;

	entry->extra = SCRY_EXTRA_UNKNOWN;
	entry->end_class = SCRY_RING_CLASS_NONE;
	if (!in_heap(entry->object))
		return;
	flags = load64(entry->object);
	if (!is_behind_pointer(&r->sizes, flags))
		entry->extra = scry_extra(entry->object, flags);
	entry->end_class = scry_class_of(entry->object, flags);
}

void scry_sample_measure(void)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;

	if (r->is_marked || !r->in_heap)
		return; /* they are sized when they are seen to be dead */
	for (uint32_t at = next_entry(0); at < SCRY_TRACKED; at = next_entry(at + 1))
		measure_any(r, &scry_agent_tables.sampled.entries[at]);
}

int scry_sample_next_dead(struct scry_state_page *g, uint32_t event, uint32_t *cursor,
			  struct scry_sampled *ret)
{
	uint32_t at;

	while ((at = next_entry(*cursor)) < SCRY_TRACKED) {
		struct scry_sampled entry = scry_agent_tables.sampled.entries[at];

		*cursor = at + 1;
		if (!is_dead(event, entry.object))
			continue;
		remove_entry(g, at);
		if (event == SCRY_RUBY_GC_END_MARK) {
			uint64_t flags = load64(entry.object);

			entry.extra = scry_extra(entry.object, flags);
			entry.end_class = scry_class_of(entry.object, flags);
		}
		*ret = entry;
		return 1;
	}
	if (scry_agent_tables.sampled.used - g->tracked > REMOVED_MAX)
		clean(g);
	return 0;
}

int scry_sample_moved(struct scry_state_page *g, uint64_t from, uint64_t to)
{
	uint32_t at = find(from);

	if (at == SCRY_TRACKED)
		return 0;
	remove_entry(g, at);
	scry_sample_track(g, to);
	return 1;
}

/*
 * Where the VM does not say what is marked, a sample that did not move may have died in this very
 * GC, and another object, of the same class, is in its slot: nothing tells them apart.
 */
static void unfollow_unmoved(struct scry_state_page *g, uint64_t object)
{
	if (!scry_agent_vm.ruby.is_marked && !is_dead(SCRY_RUBY_GC_END_SWEEP, object) &&
	    scry_sample_ended(g, object))
		unfollow(g, object);
}

void scry_sample_walk(void (*moved)(void *, uint64_t from, uint64_t to), void *context)
{
	uint64_t *list = scry_agent_tables.pages.set; /* of no other use while sampling */
	uint32_t count = 0;

	for (uint32_t i = next_entry(0); i < SCRY_TRACKED; i = next_entry(i + 1))
		list[count++] = scry_agent_tables.sampled.entries[i].object;
	for (uint32_t i = 0; i < count; i++)
		if (!scry_pages_moved(list[i]))
			unfollow_unmoved(scry_agent.state_page, list[i]);
	while (count--) {
		uint64_t to = scry_pages_moved(list[count]);

		if (to)
			moved(context, list[count], to);
		list[count] = 0;
	}
}

int scry_sample_ended(struct scry_state_page *g, uint64_t object)
{
	uint32_t at = find(object);

	if (at == SCRY_TRACKED)
		return 0;
	remove_entry(g, at);
	if (scry_agent_tables.sampled.used - g->tracked > REMOVED_MAX)
		clean(g);
	return 1;
}

void scry_sample_reused(struct scry_state_page *g, uint64_t object)
{
	uint32_t at = find(object);

	if (at == SCRY_TRACKED)
		return;
	if (scry_record_end(g, object, scry_agent_tables.sampled.entries[at].extra,
			    scry_agent_tables.sampled.entries[at].end_class))
		remove_entry(g, at); /* else the next one made there says it again */
}
