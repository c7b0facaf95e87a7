/*
 * Stacks: the callers of a place as one number, a node in the tree of all stacks seen.
 *
 * A stack of fifty frames is the same as that of the object before but for its newest few. So the
 * frames' pcs are remembered with their nodes, from the oldest frame up, and compared first: a load
 * and a compare for each frame. From the first that differs on, nodes are looked up by (parent, pc)
 * and defined where they are new. C frames have no node: their caller stands for them.
 *
 * A pc names a piece of code only while that lives. When code ends that some node is of, all nodes
 * are forgotten; a filter of one bit per hash says which code that may be.
 */
#include "agent/load.h"
#include "agent/objects.h"

#define PROBES 16

static uint32_t bit_of(uint64_t iseq)
{
	return (uint32_t)((iseq >> 3) * 0x9e3779b97f4a7c15ull >> 46) & (SCRY_STACK_FILTER_BITS - 1);
}

void scry_stack_forget_all(void)
{
	struct scry_agent_stacks *s = &scry_agent_tables.stacks;

	if (!s->count)
		return;
	for (uint32_t i = 0; i < SCRY_STACK_NODES; i++)
		s->nodes[i].pc = 0;
	for (uint32_t i = 0; i < SCRY_STACK_CACHES; i++)
		s->caches[i].ec = s->caches[i].count = 0;
	for (uint32_t i = 0; i < SCRY_STACK_FILTER_BITS / 64; i++)
		s->iseqs[i] = 0;
	s->count = 0;
	scry_agent.state_page->last_node =
		SCRY_STACK_LOST; /* its number may mean another stack now */
}

void scry_stack_forget_iseq(uint64_t iseq)
{
	uint32_t bit = bit_of(iseq);

	if (scry_agent_tables.stacks.iseqs[bit / 64] >> bit % 64 & 1)
		scry_stack_forget_all();
}

/* The node for a frame at `pc` called from `parent`; its number is its place in the table, from 1.
 */
static uint32_t node_of(uint32_t parent, uint64_t pc, uint64_t iseq)
{
	struct scry_agent_stacks *s = &scry_agent_tables.stacks;
	uint64_t hash = (pc >> 3 ^ (uint64_t)parent << 44) * 0x9e3779b97f4a7c15ull;
	uint32_t at = (uint32_t)(hash >> 48), bit;

	for (int i = 0; i < PROBES; i++, at = (at + 1) & (SCRY_STACK_NODES - 1)) {
		if (!at) /* 0 is no frame */
			continue;
		if (s->nodes[at].pc == pc && s->nodes[at].parent == parent)
			return at;
		if (s->nodes[at].pc)
			continue;
		if (s->count >= SCRY_STACK_NODES / 4 * 3 || !scry_define_node(at, parent, pc, iseq))
			break;
		s->nodes[at] = (struct scry_agent_node){pc, parent, 0};
		s->count++;
		bit = bit_of(iseq);
		s->iseqs[bit / 64] |= 1ull << bit % 64;
		return at;
	}
	return SCRY_STACK_LOST;
}

static struct scry_agent_stack_cache *cache_of(uint64_t ec)
{
	struct scry_agent_stacks *s = &scry_agent_tables.stacks;
	struct scry_agent_stack_cache *c;

	if (likely(s->caches[s->newest].ec == ec))
		return &s->caches[s->newest];
	for (uint32_t i = 0; i < SCRY_STACK_CACHES; i++) {
		if (s->caches[i].ec != ec)
			continue;
		s->newest = i;
		return &s->caches[i];
	}
	s->newest = (s->newest + 1) % SCRY_STACK_CACHES;
	c = &s->caches[s->newest];
	c->ec = ec;
	c->count = 0;
	return c;
}

/* Nodes from frame number `i` on, the oldest being 0. */
static uint32_t extend(const struct scry_agent_frames *f, struct scry_agent_stack_cache *c,
		       uint64_t at, uint64_t end, uint32_t i)
{
	uint32_t node = i ? c->node[i - 1] : 0;

	for (; at > end && i < SCRY_STACK_DEPTH; at -= f->frame_size, i++) {
		uint64_t pc = load64(at + f->frame_pc), iseq = load64(at + f->frame_iseq);
		uint32_t caller = node;

		if (pc && iseq)
			node = node_of(caller, pc, iseq);
		if (unlikely(node == SCRY_STACK_LOST)) {
			c->count = i;
			return node;
		}
		c->pc[i] = pc;
		c->node[i] = node;
	}
	c->count = i;
	return node;
}

/*
 * How many of the frames, from the oldest at `at` on, are those of the cache; `count` at most. Four
 * at a time without a branch: this is most of what a stack costs.
 */
static uint32_t same_frames(const struct scry_agent_frames *f,
			    const struct scry_agent_stack_cache *c, uint64_t at, uint32_t count)
{
	uint64_t size = f->frame_size, pc = at + f->frame_pc;
	uint32_t i = 0;

	for (; i + 4 <= count; i += 4, pc -= 4 * size)
		if ((load64(pc) ^ c->pc[i]) | (load64(pc - size) ^ c->pc[i + 1]) |
		    (load64(pc - 2 * size) ^ c->pc[i + 2]) | (load64(pc - 3 * size) ^ c->pc[i + 3]))
			break;
	for (; i < count && load64(pc) == c->pc[i]; i++)
		pc -= size;
	return i;
}

/* The node of the frame that called `place`'s frame, 0 when none did. */
static uint32_t callers(const struct scry_agent_frames *f, const struct scry_agent_place *place)
{
	struct scry_agent_stack_cache *c = cache_of(place->ec);
	uint64_t end = load64(place->ec + f->ec_stack) + 8 * load64(place->ec + f->ec_stack_size);
	uint64_t at = end - f->frame_size;
	/* frames older than the place's own */
	uint64_t count = at > place->cfp ? (uint32_t)(at - place->cfp) / f->frame_size : 0;
	uint32_t i;

	if (count > SCRY_STACK_DEPTH)
		count = SCRY_STACK_DEPTH;
	i = same_frames(f, c, at, (uint32_t)(count < c->count ? count : c->count));
	if (i == count)
		return i ? c->node[i - 1] : 0;
	return extend(f, c, at - (uint64_t)i * f->frame_size, place->cfp, i);
}

uint32_t scry_stack_node(const struct scry_agent_frames *f, const struct scry_agent_place *place)
{
	uint32_t node;

	if (!place->pc)
		return 0;
	node = callers(f, place);
	if (likely(node != SCRY_STACK_LOST) || !scry_agent.state_page->lease_ok)
		return node;
	scry_stack_forget_all(); /* the table is full: begin anew */
	return callers(f, place);
}
