/*
 * Collects control frames. See ruby_walk.h.
 *
 * One collect is one system call with three pieces in this order: the ec, the frames, the ec. The
 * kernel copies them one after the other, so a cfp that is the same before and after says that the
 * frames were those, unless a call and a return lay between. Against that the frames are collected
 * again.
 */
#include "vm/ruby_walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_MAX 128u
#define SLACK 8u /* frames more than last time that one read still finds */
#define EC_MAX 192u

int scry_walk_init(struct scry_walk *w)
{
	*w = (struct scry_walk){.room = SCRY_WALK_FRAMES_MAX * (size_t)FRAME_MAX};
	w->bytes[0] = malloc(w->room);
	w->bytes[1] = malloc(w->room);
	w->frames = calloc(SCRY_WALK_FRAMES_MAX, sizeof(*w->frames));
	w->older = calloc(SCRY_WALK_FRAMES_MAX, sizeof(*w->older));
	if (w->bytes[0] && w->bytes[1] && w->frames && w->older)
		return 0;
	scry_walk_done(w);
	return -ENOMEM;
}

void scry_walk_done(struct scry_walk *w)
{
	free(w->bytes[0]);
	free(w->bytes[1]);
	free(w->frames);
	free(w->older);
	*w = (struct scry_walk){0};
}

static uint64_t word_at(const uint8_t *bytes, uint32_t at)
{
	uint64_t word;

	memcpy(&word, bytes + at, sizeof(word));
	return word;
}

/* Is cfp the newest of whole frames that end at `end`? */
static bool is_cfp(const struct scry_ruby_layout *l, uint64_t stack, uint64_t cfp, uint64_t end)
{
	return cfp > stack && cfp < end && (end - cfp) % l->frame_size == 0;
}

/* The stack's bounds and cfp; false: not a thread's ec, or nothing on it. */
static bool read_bounds(struct scry_walk *w, const struct scry_ruby *ruby,
			const struct scry_ruby_thread *t, uint64_t *ret_stack)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint8_t ec[EC_MAX];
	uint32_t need = l->ec_stack;
	uint64_t size;

	if (l->ec_stack_size > need)
		need = l->ec_stack_size;
	if (l->ec_cfp > need)
		need = l->ec_cfp;
	if (l->ec_thread > need)
		need = l->ec_thread;
	need += 8;
	if (need > sizeof(ec) || scry_mem_read(&ruby->mem, t->ec, ec, need) ||
	    word_at(ec, l->ec_thread) != t->th)
		return false;
	*ret_stack = word_at(ec, l->ec_stack);
	size = word_at(ec, l->ec_stack_size);
	w->cfps[0] = word_at(ec, l->ec_cfp);
	w->ec = t->ec;
	w->end = *ret_stack + 8 * size;
	return *ret_stack && size <= 1u << 26 && is_cfp(l, *ret_stack, w->cfps[0], w->end);
}

/*
 * One collect into bytes[into], the frames from cfps[into] on lie at its end. 0; -EAGAIN: cfp moved
 * meanwhile; -EFAULT.
 */
static int collect(struct scry_walk *w, const struct scry_ruby *ruby, uint64_t stack, int into)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t cfp[2], from = w->guess;
	size_t most = SCRY_WALK_FRAMES_MAX * (size_t)l->frame_size;

	w->collects++;
	for (int reads = 0; reads < 3; reads++) {
		struct scry_mem_span spans[3] = {
			{w->ec + l->ec_cfp, &cfp[0], 8, false},
			{from, w->bytes[into], w->end - from, false},
			{w->ec + l->ec_cfp, &cfp[1], 8, false},
		};

		if (w->end - from > most)
			spans[1].size = most;
		scry_mem_gather(&ruby->mem, spans, 3);
		if (!spans[0].ok || !spans[1].ok || !spans[2].ok)
			return -EFAULT;
		if (!is_cfp(l, stack, cfp[1], w->end))
			return -EFAULT;
		w->is_cut = w->end - cfp[1] > most;
		if (cfp[1] >= from && cfp[1] < from + spans[1].size &&
		    (!w->is_cut || cfp[1] == from)) {
			w->guess = from;
			w->cfps[into] = cfp[1];
			return cfp[0] == cfp[1] ? 0 : -EAGAIN;
		}
		/* Deeper than was read, or than fits: from there. */
		from = w->is_cut ? cfp[1] : cfp[1] - SLACK * (uint64_t)l->frame_size;
		if (from <= stack)
			from = cfp[1];
	}
	return -EAGAIN;
}

/* Frame `i`, counted from the newest of collect `which`. */
static const uint8_t *frame_of(const struct scry_walk *w, const struct scry_ruby_layout *l,
			       int which, size_t i)
{
	return w->bytes[which] + (w->cfps[which] - w->guess) + i * l->frame_size;
}

static struct scry_walk_frame decode(const struct scry_ruby_layout *l, const uint8_t *frame)
{
	return (struct scry_walk_frame){
		.pc = word_at(frame, l->frame_pc),
		.iseq = word_at(frame, l->frame_iseq),
		.ep = word_at(frame, l->frame_ep),
		.self = word_at(frame, l->frame_self),
	};
}

/* Same code, same environment, and the same place in it? */
static bool is_same(const struct scry_walk_frame *a, const struct scry_walk_frame *b, bool place)
{
	return a->iseq == b->iseq && a->ep == b->ep && (!a->pc == !b->pc) &&
	       (!place || a->pc == b->pc);
}

static size_t count_of(const struct scry_walk *w, const struct scry_ruby_layout *l, int which)
{
	size_t count = (w->end - w->cfps[which]) / l->frame_size;

	return count < SCRY_WALK_FRAMES_MAX ? count : SCRY_WALK_FRAMES_MAX;
}

/* How many frames, from the oldest, both collects have alike; the newest of them may be at another
 * place. */
static size_t common(const struct scry_walk *w, const struct scry_ruby_layout *l)
{
	size_t n[2] = {count_of(w, l, 0), count_of(w, l, 1)}, same = 0;

	while (same < n[0] && same < n[1]) {
		struct scry_walk_frame a = decode(l, frame_of(w, l, 0, n[0] - 1 - same));
		struct scry_walk_frame b = decode(l, frame_of(w, l, 1, n[1] - 1 - same));

		if (!is_same(&a, &b, false))
			break;
		same++;
		if (a.pc != b.pc) /* what stands above it was called from another place */
			break;
	}
	return same;
}

/* Keeps the oldest `count` frames of collect `which`. */
static void keep(struct scry_walk *w, const struct scry_ruby_layout *l, int which, size_t count)
{
	size_t all = count_of(w, l, which);

	for (size_t i = 0; i < count; i++)
		w->frames[i] = decode(l, frame_of(w, l, which, all - count + i));
	w->count = count;
	w->is_newest = count == all;
	w->cfp = w->cfps[which] + (all - count) * (uint64_t)l->frame_size;
}

enum scry_walk_verdict scry_walk_collect(struct scry_walk *w, const struct scry_ruby *ruby,
					 const struct scry_ruby_thread *t, unsigned int tries)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t stack, begin;
	size_t have = 0, same;
	int into = 0;

	w->count = 0;
	w->collects = 0;
	if (t->ec == 0)
		return SCRY_WALK_EMPTY;
	if (!read_bounds(w, ruby, t, &stack))
		return SCRY_WALK_REJECTED;
	begin = w->cfps[0] - SLACK * (uint64_t)l->frame_size;
	w->guess = begin > stack ? begin : w->cfps[0];
	while (w->collects < tries) {
		uint64_t guess = w->guess;
		int err = collect(w, ruby, stack, into);

		if (err == -EFAULT)
			return SCRY_WALK_REJECTED;
		if (w->guess != guess) /* they begin at different places now */
			have = 0;
		if (err) {
			have = 0;
			continue;
		}
		have++;
		if (have > 1 && w->cfps[0] == w->cfps[1]) {
			same = common(w, l);
			if (same == count_of(w, l, into)) {
				keep(w, l, into, same);
				return SCRY_WALK_VALID;
			}
		}
		into = !into;
	}
	if (have < 2)
		return SCRY_WALK_REJECTED;
	same = common(w, l);
	if (!same)
		return SCRY_WALK_REJECTED;
	keep(w, l, !into, same);
	return SCRY_WALK_REPAIRED;
}
