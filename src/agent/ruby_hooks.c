/*
 * Objects by hooks on the VM's own functions: every function that makes objects, and the one that
 * frees them, lead here (agent/thunk.S). Which ones they are is found out by counting
 * (instrument/objects/alloc_functions.c). No event of the VM is on.
 *
 * A birth is recorded when the VM's function has returned, an end before it runs: where the VM's
 * own events are. Both pass through while no watch is on, as for events: the VM's lock lets one
 * thread at a time make or free objects, and fork children find a process state page of zeros.
 *
 * There is no event of a GC. What is seen is the VM's count of GCs when an object is made or freed:
 * when it has changed, a GC has begun; the first object that is freed then says that it has marked,
 * and the beginning of the next one that it has swept.
 */
#include "agent/ec.h"
#include "agent/load.h"
#include "agent/objects.h"

#define SEEN_CHECK_EVERY 256
#define SEEN_ASK_EVERY 4096

uint64_t scry_agent_birth(uint64_t object);
void scry_agent_call(const uint64_t *arguments, uint64_t cookie);

static void find_place(const struct scry_state_page *g, struct scry_agent_place *place)
{
	uint64_t ec = scry_current_ec();
	uint64_t cfp = ec ? word_at((const uint8_t *)ec, g->frames.ec_cfp) : 0;

	*place = (struct scry_agent_place){.depth = 0xffff};
	if (likely(cfp))
		scry_find_place(&g->frames, (const uint8_t *)ec, (const uint8_t *)cfp, place);
}

/* rb_gc_count: plain loads, in a thread that has an execution context. */
static uint64_t gc_count(const struct scry_state_page *g)
{
	uint64_t (*count)(void) = (void *)scry_agent_vm.hooks.gc_count;

	if (g->vm_gcs_at)
		return load64(g->vm_gcs_at);
	return count ? count() : 0;
}

void scry_hooks_take_up(struct scry_state_page *g)
{
	const struct scry_agent_hooks *h = &scry_agent_vm.hooks;
	uint64_t vm = load64(scry_agent_vm.ruby.vm_word), objspace = 0;

	if (h->vm_objspace && is_pointer(vm))
		objspace = load64(vm + h->vm_objspace);
	g->vm_gcs_at = is_pointer(objspace) && h->objspace_count ? objspace + h->objspace_count : 0;
	g->vm_gcs = gc_count(g);
	g->vm_made_at = is_pointer(objspace) && h->objspace_made ? objspace + h->objspace_made : 0;
	g->seen = 0;
	g->last_born = 0; /* of an earlier watch, since which its slot may have been used again */
	scry_account_of(scry_agent.control)->objects.unseen = 0;
}

/* All before it have marked and swept, those too that freed nothing and were not seen. */
static __attribute__((noinline)) void gc_began(struct scry_state_page *g, uint64_t count)
{
	uint64_t unseen = count - g->vm_gcs - 1;

	g->gcs += unseen;
	g->vm_gcs = count;
	if (!g->sweeping || unseen)
		scry_record_gc(g, SCRY_RUBY_GC_END_MARK);
	scry_record_gc(g, SCRY_RUBY_GC_END_SWEEP);
	scry_record_gc(g, SCRY_RUBY_GC_START);
}

static void see_gc(struct scry_state_page *g)
{
	uint64_t count = gc_count(g);

	if (unlikely(count != g->vm_gcs))
		gc_began(g, count);
}

/* `start` marks all and sweeps all before it returns, if the program lets it: nothing else says
 * that it has swept. */
void scry_hooks_collect(struct scry_state_page *g, void (*start)(void))
{
	uint64_t before = gc_count(g);

	start();
	if (gc_count(g) == before || !scry_begin(g))
		return;
	see_gc(g);
	if (!g->sweeping) /* it freed nothing */
		scry_record_gc(g, SCRY_RUBY_GC_END_MARK);
	scry_record_gc(g, SCRY_RUBY_GC_END_SWEEP);
	scry_end(g);
}

/* By a word, or by the VM's own answer, which is a sum over its heaps. 0: not known. */
static uint64_t vm_made(const struct scry_state_page *g)
{
	uint64_t (*stat)(uint64_t) = (void *)scry_agent_vm.ruby.gc_stat;

	if (g->vm_made_at)
		return load64(g->vm_made_at);
	return scry_agent_objects.made_count ? stat(scry_agent_objects.made_count) : 0;
}

/* The VM counts what it makes: so do we, and compare now and then. The newest is in both counts. */
static void check_seen(struct scry_state_page *g)
{
	uint64_t every = g->vm_made_at ? SEEN_CHECK_EVERY : SEEN_ASK_EVERY;

	if (!g->seen++)
		g->vm_made = vm_made(g) - 1;
	if (unlikely(!(g->seen % every)) && g->vm_made + 1)
		scry_account_of(scry_agent.control)->objects.unseen =
			vm_made(g) - g->vm_made - g->seen;
}

static void record_sample(struct scry_state_page *g, const struct scry_agent_place *place,
			  uint64_t object)
{
	g->until_sample = scry_sample_gap(g); /* the rest of its units counts for no site */
	if (scry_record_birth(g, place, object))
		scry_sample_track(g, object);
}

/* For the host, which finds out what these functions do (instrument/objects/alloc_functions.c). */
static struct scry_agent_probe *probe(void)
{
	_Static_assert(sizeof(struct scry_agent_probe) <= sizeof(scry_agent_tables.sampled.scratch),
		       "it lies there");
	return (void *)scry_agent_tables.sampled.scratch;
}

static __attribute__((noinline)) void probe_birth(uint64_t object)
{
	struct scry_agent_probe *p = probe();

	if (p->births < SCRY_PROBE_ISEQ_EVENTS)
		p->returned[p->births] = object;
	p->births++;
}

static __attribute__((noinline)) void probe_end(const uint64_t *arguments)
{
	struct scry_agent_probe *p = probe();

	for (int i = 0; p->ends < SCRY_PROBE_ENDS && i < 6; i++)
		p->given[p->ends][i] = arguments[i];
	p->ends++;
}

static int is_object(uint64_t object)
{
	return is_pointer(object) && load64(object) & SCRY_TYPE_MASK;
}

static __attribute__((noinline)) void record(struct scry_state_page *g, uint64_t object)
{
	struct scry_agent_place place;

	if (scry_agent_vm.hooks.is_over || !scry_begin(g)) {
		if (unlikely(scry_agent_vm.hooks.probe) && is_object(object))
			probe_birth(object);
		return;
	}
	g->last_born = object;		    /* a watch taken up just now has forgotten it */
	if (unlikely(!is_object(object))) { /* the function is not what it was taken for */
		scry_account_of(scry_agent.control)->vm.bad++;
		scry_end(g);
		return;
	}
	see_gc(g);
	if (!scry_agent_objects.sampling.on)
		check_seen(g);
	find_place(g, &place);
	if (!scry_agent_objects.sampling.on)
		scry_record_birth(g, &place, object);
	else if (g->until_sample <= 0)
		record_sample(g, &place, object);
	scry_end_before_ractor(g, load64(object), load64(object + 8));
	if (unlikely(!g->wanted))
		scry_hook_off(g);
	scry_end(g);
}

uint64_t scry_agent_birth(uint64_t object)
{
	struct scry_state_page *g = scry_agent.state_page;

	g->births--;
	if (object == g->last_born) /* an outer function hands on what an inner one has made */
		return object;
	g->last_born = object;
	if (scry_agent_objects.sampling.on) {
		g->until_sample -= scry_sample_step(g, object);
		if (likely(g->until_sample > 0) &&
		    !scry_comes_ractor(load64(object), load64(object + 8)))
			return object;
	}
	record(g, object);
	return object;
}

/* An object, and not what the sweep passes over: a free slot, a zombie, one that has moved. */
static int is_whole(uint64_t flags)
{
	uint32_t type = flags & SCRY_TYPE_MASK;

	return type && type != SCRY_TYPE_ZOMBIE && type != SCRY_TYPE_MOVED;
}

static int may_be_sampled(uint64_t object)
{
	uint32_t bit = scry_sample_bit(object);

	return scry_agent_tables.sampled.filter[bit / 64] >> bit % 64 & 1;
}

/* Is something known by its address? */
static int is_known(uint64_t flags)
{
	uint32_t type = flags & SCRY_TYPE_MASK;

	return type == SCRY_TYPE_CLASS || type == SCRY_TYPE_MODULE || type == SCRY_TYPE_IMEMO;
}

static void end_object(struct scry_state_page *g, uint64_t object, uint64_t flags)
{
	if (object == g->last_born)
		g->last_born = 0;
	if (scry_agent_objects.sampling.on && likely(!may_be_sampled(object)) && !is_known(flags))
		return;
	scry_forget(object, flags);
	if (!scry_agent_objects.sampling.on || scry_sample_ended(g, object))
		scry_record_end(g, object, scry_extra(object, flags), scry_class_of(object, flags));
}

static void end_slots(struct scry_state_page *g, uint64_t at, uint64_t mask)
{
	for (; mask; mask >>= 1, at += scry_agent_vm.hooks.end_stride) {
		uint64_t flags = mask & 1 ? load64(at) : 0;

		if (is_whole(flags))
			end_object(g, at, flags);
	}
}

static __attribute__((noinline)) void count_slots(uint64_t at, uint64_t mask)
{
	for (; mask; mask >>= 1, at += scry_agent_vm.hooks.end_stride)
		probe()->ends += mask & 1 && is_whole(load64(at));
}

static void end(const uint64_t *arguments)
{
	const struct scry_agent_hooks *h = &scry_agent_vm.hooks;
	struct scry_state_page *g = scry_agent.state_page;
	uint64_t at, mask;

	if (unlikely(h->probe == SCRY_PROBE_ARGUMENTS)) {
		probe_end(arguments);
		return;
	}
	at = arguments[h->end_argument];
	mask = h->end_mask == SCRY_NO_MASK ? 1 : arguments[h->end_mask];
	if (unlikely(h->probe))
		count_slots(at, mask);
	if (h->is_over || !scry_begin(g)) {
		g->last_born = 0;
		return;
	}
	see_gc(g);
	if (unlikely(!g->sweeping))
		scry_record_gc(g, SCRY_RUBY_GC_END_MARK);
	end_slots(g, at, mask);
	if (unlikely(!g->wanted))
		scry_hook_off(g);
	scry_end(g);
}

/*
 * When a VM is taken down it drops its event hooks first, then sweeps once more and ends what is
 * left. Hooks stop there, too: that is not the program's work.
 */
static void is_over(struct scry_agent_hooks *h)
{
	struct scry_state_page *g = scry_agent.state_page;

	if (!h->probe && !h->is_over && scry_begin(g)) {
		see_gc(g);
		/* It ended nothing: an object was made since, for which slots were swept, or none,
		 * so the program asked for it and all are swept. */
		if (!g->sweeping) {
			scry_record_gc(g, SCRY_RUBY_GC_END_MARK);
			scry_record_gc(g, SCRY_RUBY_GC_END_SWEEP);
		}
		scry_end(g);
	}
	h->is_over = 1;
}

void scry_agent_call(const uint64_t *arguments, uint64_t cookie)
{
	if (likely(cookie == SCRY_CALL_END))
		end(arguments);
	else
		is_over(&scry_agent_vm.hooks);
}
