/* See fiber_marks.h. */
#include "name/fiber_marks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"
#include "sys/stack.h"

#define CHUNK (256u << 10)
#define AHEAD 72u /* bytes that a mark needs behind its first word */
#define RUNS 256u
#define FLOAT_TO_SELF 200u /* ucontext_t: from the pointer, at 224, to what it leads to, at 424 */
#define FLOAT_AT 224u
#define SELF_AGAIN 16u	      /* tcbhead_t: tcb, dtv, self */
#define ARENA (64u << 20)     /* glibc's heaps begin at multiples of it */
#define GUARD_MAX (64u << 20) /* what is longer is room that was reserved */
#define BLOCK_PC 56u	      /* from Boost 1.80 on a word further */

struct looker {
	const struct scry_fiber_look *look;
	struct scry_fiber_marks *m;
	const struct scry_map_entry *map; /* that is searched */
	struct scry_page_run runs[RUNS];
	char *chunk; /* CHUNK + AHEAD bytes */
};

static void push(struct scry_fiber_marks *m, struct scry_fiber_list *l, uint64_t address)
{
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 1024;
		uint64_t *more = room <= SCRY_FIBER_MARKS_MAX ? reallocarray(l->at, room, 8) : NULL;

		if (!more) {
			m->lost++;
			return;
		}
		l->at = more;
		l->room = room;
	}
	l->at[l->count++] = address;
}

/* What costs more to judge. */
static void push_few(struct scry_fiber_marks *m, struct scry_fiber_list *l, uint64_t address)
{
	if (l->count < SCRY_FIBER_THREADS_MAX)
		push(m, l, address);
	else
		m->lost++;
}

/* --- areas ------------------------------------------------------------------------------------ */

static void push_area(struct scry_fiber_marks *m, const struct scry_fiber_area *area)
{
	if (area->low >= area->top)
		return;
	if (m->area_count == m->area_room) {
		size_t room = m->area_room ? 2 * m->area_room : 1024;
		struct scry_fiber_area *more =
			room <= SCRY_FIBER_MARKS_MAX
				? reallocarray(m->areas, room, sizeof(*m->areas))
				: NULL;

		if (!more) {
			m->lost++;
			return;
		}
		m->areas = more;
		m->area_room = room;
	}
	m->areas[m->area_count++] = *area;
}

/* Bytes right below `m` that may not be touched. In cores of gdb's own they look as if they could
 * be read. */
static uint64_t guard_below(const struct looker *l, const struct scry_map_entry *m)
{
	const struct scry_map_entry *below = m > l->m->maps->entries ? m - 1 : NULL;
	const bool is_core = l->look->pages->core != NULL;

	return below && below->end == m->start && (!below->r || is_core) && !below->w &&
			       !below->x && !below->inode
		       ? below->end - below->start
		       : 0;
}

static void take_run(struct scry_fiber_marks *m, struct scry_fiber_area *area,
		     const struct scry_page_run *run)
{
	if (run->flags & SCRY_PAGE_GUARD) {
		area->top = run->start;
		push_area(m, area);
		*area = (struct scry_fiber_area){
			.low = run->end,
			.guard_bytes = run->end - run->start +
				       (run->start == area->low ? area->guard_bytes : 0),
		};
		return;
	}
	if (!area->highest)
		area->lowest = run->start;
	area->highest = run->end;
	if (run->flags & SCRY_PAGE_THERE)
		area->there_bytes += run->end - run->start;
	else
		m->swapped_bytes += run->end - run->start;
}

/* The first one that ends above `address`; NULL. */
static struct scry_fiber_area *area_above(const struct scry_fiber_marks *m, uint64_t address)
{
	const size_t low = scry_bisect(m->area_count, i, m->areas[i].top <= address);

	return low < m->area_count ? &m->areas[low] : NULL;
}

struct scry_fiber_area *scry_fiber_area_at(const struct scry_fiber_marks *m, uint64_t address)
{
	struct scry_fiber_area *area = area_above(m, address);

	return area && area->low <= address ? area : NULL;
}

struct scry_fiber_area *scry_fiber_area_with_guard(const struct scry_fiber_marks *m,
						   uint64_t address)
{
	struct scry_fiber_area *area = area_above(m, address);

	return area && area->low - area->guard_bytes <= address ? area : NULL;
}

bool scry_fiber_has_own_area(const struct scry_fiber_area *area)
{
	return area->guard_bytes && area->guard_bytes <= GUARD_MAX && area->low % ARENA;
}

/* --- marks ------------------------------------------------------------------------------------ */

bool scry_fiber_is_control(uint64_t word)
{
	const uint32_t mxcsr = (uint32_t)word, x87 = word >> 32 & 0xffff;

	/* exceptions masked, what is reserved as it has to be; precision and rounding may differ */
	return (mxcsr & 0xffff1f80) == 0x1f80 && (x87 & 0xe0ff) == 0x7f;
}

static bool is_code(const struct scry_maps *maps, uint64_t address)
{
	const struct scry_map_entry *m = address ? scry_maps_at(maps, address) : NULL;

	return m && m->x;
}

static bool is_thread(const struct scry_fiber_look *k, uint64_t word)
{
	const size_t count = k->thread_count;
	size_t at;

	if (!count || word < k->threads[0] || word > k->threads[count - 1])
		return false;
	at = scry_bisect(count, i, k->threads[i] < word);
	return k->threads[at] == word; /* it is none above the last */
}

/* What one word is the mark of. `left`: bytes that were read from it on. */
static void look_at(struct looker *l, uint64_t address, const char *at, size_t left)
{
	struct scry_fiber_marks *m = l->m;
	uint64_t word, other;

	memcpy(&word, at, 8);
	if (!word)
		return;
	if (word - address == FLOAT_TO_SELF) {
		push(m, &m->contexts, address - FLOAT_AT);
	} else if (word == address && left >= SELF_AGAIN + 8) {
		memcpy(&other, at + SELF_AGAIN, 8);
		if (other == address)
			push_few(m, &m->selves, address);
	} else if (scry_fiber_is_control(word)) {
		for (size_t pc = BLOCK_PC; pc <= BLOCK_PC + 8 && left >= pc + 8; pc += 8) {
			memcpy(&other, at + pc, 8);
			if (is_code(m->maps, other)) {
				push(m, &m->blocks, address);
				break;
			}
		}
	} else if (word == SCRY_FIBER_REGISTRY_MAGIC && l->map->inode) {
		push(m, &m->registries, address);
	} else if (is_thread(l->look, word)) {
		push(m, &m->ecs, address - l->look->ec_thread);
	}
}

/* False: the time is over. */
static bool look_through(struct looker *l, uint64_t start, uint64_t end)
{
	while (start < end) {
		size_t own = end - start < CHUNK ? end - start : CHUNK;
		size_t want = end - start < CHUNK + AHEAD ? end - start : CHUNK + AHEAD;
		ssize_t n;

		if (!scry_fiber_may_look(l->look->budget, l->map->end - start))
			return false;
		n = scry_mem_read_some(l->look->mem, start, l->chunk, want);
		if (n < 8) {
			l->m->unread_bytes += own;
			n = 0;
		} else if ((size_t)n < own) {
			l->m->unread_bytes += own - (size_t)n;
		}
		for (size_t i = 0; i + 8 <= (size_t)n && i < own; i += 8)
			look_at(l, start + i, l->chunk + i, (size_t)n - i);
		l->m->read_bytes += (size_t)n < own ? (size_t)n : own;
		start += own;
	}
	return true;
}

/* An area that was not searched to its end is none: there may be guards in it. */
static int look_map(struct looker *l)
{
	const struct scry_map_entry *m = l->map;
	struct scry_fiber_area area = {.low = m->start, .guard_bytes = guard_below(l, m)};

	area.is_thread = strcmp(m->path, "[stack]") == 0;
	for (uint64_t at = m->start; at < m->end;) {
		ssize_t n;

		if (!scry_fiber_may_look(l->look->budget, m->end - at))
			return 0;
		n = scry_pages_runs(l->look->pages, at, m->end, l->runs, RUNS, &at);
		if (n < 0)
			return (int)n;
		for (ssize_t i = 0; i < n; i++) {
			take_run(l->m, &area, &l->runs[i]);
			/* what it never wrote has no context of it, nor a registry in use */
			if ((l->runs[i].flags & (SCRY_PAGE_THERE | SCRY_PAGE_FILES)) ==
				    SCRY_PAGE_THERE &&
			    !look_through(l, l->runs[i].start, l->runs[i].end))
				return 0;
		}
	}
	area.top = m->end;
	if (!m->inode)
		push_area(l->m, &area);
	return 0;
}

static int by_low(const void *left, const void *right)
{
	const struct scry_fiber_area *a = left, *b = right;

	return (a->low > b->low) - (a->low < b->low);
}

/* The areas that are threads' own stacks; what the kernel has merged with one is an area again. */
static void take_threads(const struct scry_fiber_look *look, struct scry_fiber_marks *m)
{
	struct scry_fiber_marks rests = {0};

	for (size_t i = 0; i < m->selves.count; i++) {
		struct scry_fiber_area *area = scry_fiber_area_at(m, m->selves.at[i]), rest;
		uint64_t low, top;

		if (!area || area->is_thread || !scry_fiber_may_judge(look->budget) ||
		    !scry_stack_of(look->mem, look->maps, m->selves.at[i], &low, &top) ||
		    area->low < low) /* it may begin later: a JVM has guards of its own in it */
			continue;
		area->is_thread = true;
		if (area->top <= top)
			continue;
		rest = (struct scry_fiber_area){.low = top, .top = area->top};
		area->top = top;
		push_area(&rests, &rest);
	}
	for (size_t i = 0; i < rests.area_count; i++)
		push_area(m, &rests.areas[i]);
	if (rests.area_count)
		qsort(m->areas, m->area_count, sizeof(*m->areas), by_low);
	m->lost += rests.lost;
	scry_fiber_marks_done(&rests);
}

int scry_fiber_marks_look(const struct scry_fiber_look *look, struct scry_fiber_marks *ret)
{
	struct looker l = {.look = look, .m = ret, .chunk = malloc(CHUNK + AHEAD)};
	int err = 0;

	*ret = (struct scry_fiber_marks){.maps = look->maps};
	if (!l.chunk)
		return scry_no_memory("looking through a process");
	for (size_t i = 0; i < look->maps->count && !err; i++) {
		l.map = &look->maps->entries[i];
		if (l.map->r && l.map->w && !l.map->shared)
			err = look_map(&l);
	}
	free(l.chunk);
	take_threads(look, ret);
	return err ? scry_fail(err, "cannot see which pages are in memory: %s", strerror(-err)) : 0;
}

void scry_fiber_marks_done(struct scry_fiber_marks *m)
{
	free(m->contexts.at);
	free(m->blocks.at);
	free(m->selves.at);
	free(m->ecs.at);
	free(m->registries.at);
	free(m->areas);
	*m = (struct scry_fiber_marks){0};
}
