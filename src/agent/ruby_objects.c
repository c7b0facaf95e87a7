/*
 * The handlers of the VM's events: an object was made, was freed; a GC began, had marked, had
 * swept.
 *
 * Two handlers, of which one is on the VM's list. `scry_agent_event` records every object from
 * birth to end. `scry_agent_sampled` is put on for births and GCs only, which is what makes it
 * cheap; the end of the few objects it took is seen when a GC has marked, or when their
 * slots are used again (sample.c).
 *
 * A handler may not allocate or wait, and calls nothing of the VM but its own removal,
 * `rb_gc_stat` and `rb_gc_count`, which return a number, and `rb_objspace_marked_object_p` or
 * `rb_gc_pointer_to_heap_p`, which look at a bit.
 */
#include "agent/load.h"
#include "agent/objects.h"

#define FRAMES_MAX 4096 /* C frames above the first Ruby frame */

/* The first Ruby frame above a C frame; pc 0 when there is none before the stack ends. */
static void find_caller(const struct scry_agent_frames *f, const uint8_t *ec, const uint8_t *cfp,
			struct scry_agent_place *place)
{
	uint64_t end = word_at(ec, f->ec_stack) + 8 * word_at(ec, f->ec_stack_size);

	place->top = 0;
	place->depth = 0xffff;
	for (int i = 0; i < FRAMES_MAX; i++) {
		cfp += f->frame_size;
		if ((uint64_t)cfp + f->frame_size > end)
			break;
		place->pc = word_at(cfp, f->frame_pc);
		place->iseq = word_at(cfp, f->frame_iseq);
		place->cfp = (uint64_t)cfp;
		if (place->pc && place->iseq)
			return;
	}
	place->pc = place->iseq = 0;
}

void scry_find_place(const struct scry_agent_frames *f, const uint8_t *ec, const uint8_t *cfp,
		     struct scry_agent_place *place)
{
	uint64_t depth;

	place->ec = (uint64_t)ec;
	place->cfp = (uint64_t)cfp;
	place->pc = word_at(cfp, f->frame_pc);
	place->iseq = word_at(cfp, f->frame_iseq);
	if (unlikely(!place->pc || !place->iseq)) {
		find_caller(f, ec, cfp, place);
		return;
	}
	depth = (word_at(cfp, f->frame_sp) - word_at(cfp, f->frame_ep)) >> 3;
	place->depth = depth < 0xffff ? (uint32_t)depth : 0xffff;
	place->top = 1;
	place->pc -= f->pc_advanced;
}

/* Follows no pointer when the event's argument is not as learned. */
static void place_of_event(const struct scry_agent_frames *f, const uint8_t *trace_arg,
			   struct scry_agent_place *place)
{
	const uint8_t *ec = (const uint8_t *)word_at(trace_arg, f->trace_ec);
	const uint8_t *cfp = (const uint8_t *)word_at(trace_arg, f->trace_cfp);

	if (unlikely(word_at(ec, f->ec_cfp) != (uint64_t)cfp)) {
		scry_account_of(scry_agent.control)->vm.bad++;
		*place = (struct scry_agent_place){.depth = 0xffff};
		return;
	}
	scry_find_place(f, ec, cfp, place);
}

SCRY_INTO_CALLERS uint32_t scry_slot_size(uint64_t object)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t page = r->page_mask ? load64((object & r->page_mask) + r->page_header) : 0;

	return is_pointer(page) ? *(const volatile uint16_t *)(page + r->page_slot_size) : 0;
}

int scry_record_birth(struct scry_state_page *g, const struct scry_agent_place *place,
		      uint64_t object)
{
	uint32_t code, node = 0, slot = scry_slot_size(object);
	uint64_t page = object >> 16;

	if (g->frames.with_stacks) {
		node = scry_stack_node(&g->frames, place);
		if (unlikely(node == SCRY_STACK_LOST))
			return 0;
	}
	code = scry_site_code(place, (const uint64_t *)object);
	if (unlikely(!code) || unlikely(!scry_ring_reserve(g, 3)))
		return 0;
	if (node != g->last_node) {
		scry_ring_put(g, SCRY_RING_ESCAPE_WORD(SCRY_RING_STACK, 0) | (uint64_t)node << 48);
		g->last_node = node;
	}
	if (slot != g->last_slot) {
		scry_ring_put(g, SCRY_RING_ESCAPE_WORD(SCRY_RING_SLOT, 0) | (uint64_t)slot << 48);
		g->last_slot = slot;
	}
	scry_ring_put(g, object >> 3 << 20 | code);
	scry_ring_publish(g);
	if (g->frames.with_pages &&
	    scry_agent_tables.pages.recent[page % SCRY_PAGES_RECENT] != page)
		scry_pages_add(page);
	return 1;
}

static int record_alloc(struct scry_state_page *g, const uint8_t *trace_arg, uint64_t object)
{
	struct scry_agent_place place;

	place_of_event(&g->frames, trace_arg, &place);
	return scry_record_birth(g, &place, object);
}

void scry_forget(uint64_t object, uint64_t flags)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint32_t type = flags & SCRY_TYPE_MASK;

	if (unlikely(type == SCRY_TYPE_CLASS || type == SCRY_TYPE_MODULE)) {
		scry_site_forget_class(object);
	} else if (unlikely(type == SCRY_TYPE_IMEMO) &&
		   (flags & r->iseq_flags_mask) == r->iseq_flags_value) {
		scry_site_forget_iseq(object);
		scry_stack_forget_iseq(object);
	}
}

static inline int load_in_place(void *ctx, uint64_t address, uint32_t width, uint64_t *ret)
{
	(void)ctx;
	if (width == 8)
		*ret = load64(address);
	else if (width == 4)
		*ret = load32(address);
	else if (width == 2)
		*ret = *(const volatile uint16_t *)address;
	else
		*ret = *(const volatile uint8_t *)address;
	return 0;
}

/* Most objects have all in their slot, which their flags say. */
static int is_plain(uint64_t flags)
{
	const struct scry_agent_plain *plain = &scry_agent_vm.ruby.plain[flags & SCRY_TYPE_MASK];

	return (flags & plain->mask) == plain->value;
}

int64_t scry_extra(uint64_t object, uint64_t flags)
{
	return is_plain(flags) ? 0
			       : scry_size_extra(&scry_agent_vm.ruby.sizes, load_in_place, 0,
						 object, flags);
}

enum scry_ring_class scry_class_of(uint64_t object, uint64_t flags)
{
	uint64_t klass = load64(object + 8);
	uint64_t core = scry_agent_vm.ruby.core_class[flags & SCRY_TYPE_MASK];

	if (unlikely(!klass))
		return SCRY_RING_CLASS_NONE;
	return core && load64(core) == klass ? SCRY_RING_CLASS_CORE : SCRY_RING_CLASS_OTHER;
}

int scry_record_end(struct scry_state_page *g, uint64_t object, int64_t extra,
		    enum scry_ring_class is)
{
	uint64_t code = SCRY_RING_FREED;

	if (!scry_ring_reserve(g, 3))
		return 0;
	if (extra > SCRY_RING_SIZED_MAX) {
		scry_ring_put(g, SCRY_RING_ESCAPE_WORD(SCRY_RING_SIZE, 1));
		scry_ring_put(g, (uint64_t)extra);
	} else if (extra) {
		code = extra < 0 ? SCRY_RING_FREED_UNKNOWN
				 : SCRY_RING_FREED_SIZED + (uint64_t)extra;
	}
	scry_ring_put(g, object >> 3 << 20 | (code + is * SCRY_RING_CLASS));
	scry_ring_publish(g);
	return 1;
}

static void record_free(struct scry_state_page *g, uint64_t object)
{
	uint64_t flags = load64(object);

	scry_forget(object, flags);
	scry_record_end(g, object, scry_extra(object, flags), scry_class_of(object, flags));
}

/* Objects that moved are not followed here, and what is known by an address is wrong from now on:
 * the handler takes the hook off when it is done with this event. */
static void end_at_compaction(struct scry_state_page *g)
{
	uint64_t (*stat)(uint64_t) = (void *)scry_agent_vm.ruby.gc_stat;

	if (likely(!scry_agent_objects.compact_count) ||
	    stat(scry_agent_objects.compact_count) == scry_agent_objects.compactions)
		return;
	scry_account_of(scry_agent.control)->objects.ended = SCRY_ENDED_COMPACTION;
	g->wanted = 0;
}

uint64_t scry_gc_count(void)
{
	uint64_t (*count)(void) = (void *)scry_agent_vm.ruby.gc_count;

	return count ? count() : 0;
}

/* A GC has begun. Those that other ractors have begun meanwhile showed no event. */
static void count_gc(struct scry_state_page *g)
{
	uint64_t count = scry_agent_vm.hooks.on ? 0 : scry_gc_count();

	g->gcs += count > g->vm_gcs ? count - g->vm_gcs : 1;
	if (count)
		g->vm_gcs = count;
}

void scry_record_gc(struct scry_state_page *g, uint32_t event)
{
	uint64_t (*stat)(uint64_t) = (void *)scry_agent_vm.ruby.gc_stat;
	uint32_t what = SCRY_RING_GC_SWEPT;
	uint64_t fulls = 0;

	if (event == SCRY_RUBY_GC_START) {
		count_gc(g);
		what = SCRY_RING_GC_START;
	} else if (event == SCRY_RUBY_GC_END_MARK) {
		uint64_t full = scry_agent_objects.major_gc_count
					? stat(scry_agent_objects.major_gc_count)
					: 0;

		fulls = (full - g->full_gcs) & SCRY_RING_GC_FULLS_MAX;
		what = fulls ? SCRY_RING_GC_FULL_MARKED : SCRY_RING_GC_MARKED;
		g->full_gcs = full;
	} else if (unlikely(event != SCRY_RUBY_GC_END_SWEEP)) {
		scry_account_of(scry_agent.control)
			->vm.bad++; /* none that was asked for: the argument is another */
		return;
	}
	g->sweeping = what != SCRY_RING_GC_START && what != SCRY_RING_GC_SWEPT;
	end_at_compaction(g);
	if (!scry_ring_reserve(g, 2))
		return;
	scry_ring_put(g, SCRY_RING_ESCAPE_WORD(SCRY_RING_GC, 1));
	scry_ring_put(g, g->gcs << 24 | fulls << 8 | what);
	scry_ring_publish(g);
}

static int may_be_sampled(uint64_t object)
{
	uint32_t bit = scry_sample_bit(object);

	/* not before it is known that a watch is on: an idle agent does not have it */
	return load64((uint64_t)&scry_agent_tables.sampled.filter[bit / 64]) >> bit % 64 & 1;
}

int scry_begin(struct scry_state_page *g)
{
	if (unlikely(g->handling)) { /* a signal handler that allocates, or a second ractor */
		scry_agent.control->busy++;
		return 0;
	}
	g->handling = 1;
	__asm__ volatile("" ::: "memory");
	if (unlikely(g->wanted != g->taken) && g->wanted) {
		if (scry_child_buffer_is_owned(g) && !g->taken) /* by another instrument's event */
			scry_objects_compacted(g);
		else
			scry_take_up(g);
	}
	if (likely(g->wanted) && likely(g->wanted == g->taken))
		return 1;
	/* a fork child, whose process state page is zero */
	if (!g->open && scry_agent.state.hooked &&
	    scry_child_buffer_claim(g, scry_objects_compacted))
		return 1;
	scry_hook_off(g); /* off, a child that is not followed, or the wrong handler */
	g->handling = 0;
	return 0;
}

void scry_end(struct scry_state_page *g)
{
	__asm__ volatile("" ::: "memory");
	g->handling = 0;
}

SCRY_EXPORT void scry_agent_event(uint64_t data, const uint8_t *trace_arg)
{
	struct scry_state_page *g = scry_agent.state_page;
	uint32_t event = load32((uint64_t)trace_arg + g->frames.trace_event);
	uint64_t object;

	(void)data;
	if (!scry_begin(g))
		return;
	object = word_at(trace_arg, g->frames.trace_data);
	if (event == SCRY_RUBY_NEWOBJ)
		record_alloc(g, trace_arg, object);
	else if (event == SCRY_RUBY_FREEOBJ)
		record_free(g, object);
	else
		scry_record_gc(g, event);
	if (unlikely(!g->wanted)) /* it was the last one: see define.c */
		scry_hook_off(g);
	scry_end(g);
}

int64_t scry_sample_step(const struct scry_state_page *g, uint64_t object)
{
	uint32_t slot = g->by_bytes ? scry_slot_size(object) : 0;

	return slot > scry_agent_objects.sampling.unit ? slot / scry_agent_objects.sampling.unit
						       : 1;
}

static void end_samples(struct scry_state_page *g, uint32_t event)
{
	struct scry_sampled dead;
	uint32_t cursor = 0;

	if (event == SCRY_RUBY_GC_END_MARK)
		scry_sample_measure();
	while (scry_sample_next_dead(g, event, &cursor, &dead))
		scry_record_end(g, dead.object, dead.extra, dead.end_class);
}

/*
 * Code and classes end unseen here. What was defined up to the end of a mark may be among the
 * objects that it left out. What is defined later is of living ones, which this sweep passes over
 * and which only the sweep after the next mark could take.
 */
static void forget_the_dead(void)
{
	scry_site_forget_all();
	scry_stack_forget_all();
}

SCRY_EXPORT void scry_agent_sampled(uint64_t data, const uint8_t *trace_arg)
{
	struct scry_state_page *g = scry_agent.state_page;
	uint32_t event = load32((uint64_t)trace_arg + g->frames.trace_event);
	uint64_t object;

	(void)data;
	if (likely(event == SCRY_RUBY_NEWOBJ) && likely(g->wanted)) {
		object = word_at(trace_arg, g->frames.trace_data);
		g->until_sample -= scry_sample_step(g, object);
		if (likely(g->until_sample > 0) && likely(!may_be_sampled(object)) &&
		    !scry_comes_ractor(load64(object), load64(object + 8)))
			return;
	}
	if (!scry_begin(g))
		return;
	if (event != SCRY_RUBY_NEWOBJ) {
		scry_record_gc(g, event);
		end_samples(g, event);
		if (event == SCRY_RUBY_GC_END_MARK)
			forget_the_dead();
	} else {
		object = word_at(trace_arg, g->frames.trace_data);
		scry_sample_reused(g, object);
		if (g->until_sample <= 0) {
			g->until_sample =
				scry_sample_gap(g); /* the rest of its units counts for no site */
			if (record_alloc(g, trace_arg, object))
				scry_sample_track(g, object);
		}
		scry_end_before_ractor(g, load64(object), load64(object + 8));
	}
	if (unlikely(!g->wanted))
		scry_hook_off(g);
	scry_end(g);
}
