/*
 * GC compaction: where living objects went.
 *
 * The VM has no event for it. What it has is a callback of typed data objects, by which a C
 * extension updates its references while the old slots still say where their objects are. So while
 * a watch is on there is one hidden data object (no class: no Ruby code can see it), whose
 * callback walks the heap's pages and reports every slot that was left. The object's type lies in
 * memory of the VM's own allocator that the object owns, so when the agent goes it leaves ordinary
 * garbage, with no pointer to us.
 *
 * Pages are walked by rb_objspace_each_objects_without_setup, which is there up to Ruby 3.3; for
 * later ones see pages.c. If not all moves can be emitted, the keeper learns that.
 */
#include "agent/load.h"
#include "agent/objects.h"

#define T_MOVED 0x1eu
#define BATCH 126u		  /* pairs in a record */
#define DEFAULT_FREE (~0ull)	  /* RUBY_DEFAULT_FREE: xfree the data */
#define RECORD_FIRST (1ull << 48) /* of a compaction */

/*
 * rb_data_type_t, ruby/internal/core/rtypeddata.h. Its first five words have been the same since
 * 2.7. What follows (reserved words, a parent, flags) must be 0, and its length has changed: the VM
 * finds 0 wherever it looks.
 */
#define REST_WORDS 59u
struct data_type {
	const char *name;
	void (*mark)(void *);
	uint64_t free;
	uint64_t (*size)(const void *);
	void (*compact)(void *);
	uint64_t rest[REST_WORDS];
};
struct anchor {
	struct data_type type;
	char name[8];
};

struct batch {
	uint32_t count; /* words */
	uint32_t is_full;
	uint64_t words[2 * BATCH];
};

static void flush(struct batch *b)
{
	struct scry_state_page *g = scry_agent.state_page;

	if (!b->count)
		return;
	if (!scry_ring_reserve(g, b->count + 1)) {
		b->is_full = 1;
	} else {
		scry_ring_put(g, SCRY_RING_ESCAPE_WORD(SCRY_RING_MOVED, b->count));
		for (uint32_t i = 0; i < b->count; i++)
			scry_ring_put(g, b->words[i]);
		scry_ring_publish(g);
	}
	b->count = 0;
}

static void moved(void *context, uint64_t from, uint64_t to)
{
	struct batch *b = context;

	if (scry_agent_objects.sampling.on) { /* what was taken at `to` has made room: it is dead */
		scry_sample_reused(scry_agent.state_page, to);
		if (!scry_sample_moved(scry_agent.state_page, from, to))
			return;
	} else if (!scry_agent_vm.ruby.each_objects) {
		scry_pages_add(to >> 16); /* from there it may move on */
	}
	if (b->count == 2 * BATCH)
		flush(b);
	b->words[b->count++] = from;
	b->words[b->count++] = to | (uint64_t)scry_slot_size(to) << 48;
}

/* Slots of one heap page, or of a run of them. */
static int walk(void *begin, void *end, uint64_t stride, void *context)
{
	uint64_t (*location)(uint64_t) = (void *)scry_agent_vm.ruby.gc_location;

	for (uint64_t at = (uint64_t)begin; at + stride <= (uint64_t)end; at += stride)
		if ((load64(at) & SCRY_TYPE_MASK) == T_MOVED)
			moved(context, at, location(at));
	return 0;
}

/* 0: not every move was found. */
static int find_moves(struct batch *b)
{
	int (*each)(int (*)(void *, void *, uint64_t, void *), void *) =
		(void *)scry_agent_vm.ruby.each_objects;
	int is_whole = 1;

	if (each)
		each(walk, b);
	else if (scry_agent_objects.sampling.on)
		scry_sample_walk(moved, b);
	else
		is_whole = scry_pages_walk(moved, b);
	flush(b);
	return is_whole && !b->is_full;
}

/* The VM looks for objects in old stack frames too: ours must not keep any alive. */
static void wipe(struct batch *b)
{
	for (uint32_t i = 0; i < 2 * BATCH; i++)
		((volatile uint64_t *)b->words)[i] = 0;
}

static void say(uint64_t what)
{
	struct scry_state_page *g = scry_agent.state_page;

	if (!scry_ring_reserve(g, 1))
		return;
	scry_ring_put(g, SCRY_RING_ESCAPE_WORD(SCRY_RING_MOVED, 0) | what);
	scry_ring_publish(g);
}

static void compacted(void *unused)
{
	struct scry_state_page *g = scry_agent.state_page;
	struct batch b;

	(void)unused;
	g->last_born = 0; /* its slot may be used again without an end */
	if (!g->wanted || g->handling)
		return;
	g->handling = 1;
	__asm__ volatile("" ::: "memory");
	b.count = b.is_full = 0;
	/* sites and stacks are known by the addresses of code and classes, which have moved too */
	scry_site_forget_all();
	scry_stack_forget_all();
	say(RECORD_FIRST);
	if (!find_moves(&b))
		scry_account_of(scry_agent.control)
			->objects.blind++; /* the keeper looks at this counter too */
	wipe(&b);
	__asm__ volatile("" ::: "memory");
	g->handling = 0;
}

/*
 * The root comes first, as registering it allocates: the VM does not look for references in our
 * memory, and an object that nothing refers to may be collected there.
 */
void scry_data_object(struct scry_data_object *d, uint64_t (*size)(const void *),
		      void (*compact)(void *))
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	void *(*allocate)(uint64_t) = (void *)r->xmalloc;
	uint64_t (*wrap)(uint64_t, void *, const void *) = (void *)r->data_wrap;
	void (*root)(uint64_t *) = (void *)r->gc_register;
	uint64_t *words;
	struct anchor *a;

	if (d->data || !r->xmalloc || !r->data_wrap || !r->gc_register || !r->gc_unregister)
		return;
	a = allocate(sizeof(*a));
	words = (uint64_t *)a;
	for (uint32_t i = 0; i < sizeof(*a) / 8; i++)
		words[i] = 0;
	a->type.free = DEFAULT_FREE;
	a->type.size = size;
	a->type.compact = compact;
	for (int i = 0; i < 4; i++)
		a->name[i] = "scry"[i];
	a->type.name = a->name;
	d->object = 0;
	root(&d->object);
	d->data = (uint64_t)a;
	d->object = wrap(0, a, &a->type);
}

void scry_data_object_off(struct scry_data_object *d)
{
	void (*unroot)(uint64_t *) = (void *)scry_agent_vm.ruby.gc_unregister;
	struct anchor *a = (struct anchor *)d->data;

	if (!a)
		return;
	/* while a VM is taken down its data objects go first, and what they own with them */
	if ((load64(d->object) & SCRY_TYPE_MASK) == SCRY_TYPE_DATA) {
		a->type.compact = 0;
		a->type.size = 0;
	}
	unroot(&d->object);
	d->object = d->data = 0;
}

void scry_compaction_on(void)
{
	if (scry_agent_vm.ruby.gc_location && !scry_agent_vm.ruby.ends_at_compaction)
		scry_data_object(&scry_agent_objects.anchor, scry_asked_for_size, compacted);
}

void scry_compaction_off(void)
{
	scry_data_object_off(&scry_agent_objects.anchor);
}
