/*
 * Collects control frames. See ruby_walk.h.
 *
 * One collect is one system call with pieces in this order: cfp, the frames, the values, the two
 * newest frames, cfp. The kernel copies them one after the other, so what is the same before and
 * after says that the frames were those, unless calls and returns lay between. Against that the
 * frames are collected again: once more, or twice where the newest frame is of a C method. Nothing
 * tells those apart but a word among the values, which are read a moment later, and code made by a
 * JIT calls and returns ten times in that moment. How many there are is not known before they are
 * read: a little more than last time is.
 */
#include "vm/ruby_walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vm/ruby_value.h"

#define FRAME_MAX 128u
#define SLACK_FRAMES 8u	  /* more than last time that one read still finds */
#define SLACK_VALUES 256u /* bytes */
#define VALUES_MAX (1u << 20)
#define EC_MAX 192u
#define SCOPES_MAX 64  /* blocks within blocks */
#define IMEMO_SHIFT 12 /* FL_USHIFT */
#define ENTRY_WORDS 6u
#define IMEMO_SVAR 2u /* enum imemo_type */

struct scry_walk_side {
	uint8_t frames[SCRY_WALK_FRAMES_MAX * FRAME_MAX];
	uint8_t values[VALUES_MAX];
	struct scry_walk_frame decoded[SCRY_WALK_FRAMES_MAX];
	uint64_t from, cfp;   /* address of frames[0]; of the newest frame */
	uint64_t bottom, top; /* values: [bottom, top) */
	size_t count;
	bool is_moved; /* cfp did while it was collected: there are no newer frames than both */
};

int scry_walk_init(struct scry_walk *w)
{
	*w = (struct scry_walk){0};
	w->sides[0] = malloc(sizeof(*w->sides[0]));
	w->sides[1] = malloc(sizeof(*w->sides[1]));
	w->frames = calloc(SCRY_WALK_FRAMES_MAX, sizeof(*w->frames));
	if (w->sides[0] && w->sides[1] && w->frames)
		return 0;
	scry_walk_done(w);
	return -ENOMEM;
}

void scry_walk_done(struct scry_walk *w)
{
	free(w->sides[0]);
	free(w->sides[1]);
	free(w->frames);
	*w = (struct scry_walk){0};
}

static uint64_t word_at(const uint8_t *bytes, uint64_t at)
{
	uint64_t word;

	memcpy(&word, bytes + at, sizeof(word));
	return word;
}

static uint32_t greatest(const uint32_t *values, size_t count)
{
	uint32_t most = 0;

	for (size_t i = 0; i < count; i++)
		most = values[i] > most ? values[i] : most;
	return most;
}

static bool is_cfp(const struct scry_walk *w, const struct scry_ruby_layout *l, uint64_t cfp)
{
	return cfp > w->stack && cfp < w->end && (w->end - cfp) % l->frame_size == 0;
}

/* The stack's bounds, and its cfp now. */
static enum scry_walk_verdict read_bounds(struct scry_walk *w, const struct scry_ruby *ruby,
					  const struct scry_ruby_thread *t, uint64_t *ret_cfp)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	const uint32_t at[] = {l->ec_stack, l->ec_stack_size, l->ec_cfp, l->ec_thread};
	uint32_t need = greatest(at, 4) + 8;
	uint8_t ec[EC_MAX];
	uint64_t size;

	w->ec = t->ec;
	if (need > sizeof(ec) || scry_mem_read(&ruby->mem, t->ec, ec, need) ||
	    word_at(ec, l->ec_thread) != t->th)
		return SCRY_WALK_REJECTED;
	w->stack = word_at(ec, l->ec_stack);
	size = word_at(ec, l->ec_stack_size);
	*ret_cfp = word_at(ec, l->ec_cfp);
	if (w->stack == 0 || *ret_cfp == 0)
		return SCRY_WALK_EMPTY;
	w->end = w->stack + 8 * size;
	if (size > 1u << 26 || w->end < w->stack || !is_cfp(w, l, *ret_cfp))
		return SCRY_WALK_REJECTED;
	return SCRY_WALK_VALID;
}

/* The three words at ep and below it; false: not among the values that were read. */
static bool environment(const struct scry_walk *w, const struct scry_ruby_layout *l,
			const struct scry_walk_side *side, uint64_t ep, uint64_t ret[3])
{
	uint64_t at = ep - side->bottom;

	if (ep % 8 || ep < side->bottom + 16 || ep + 8 > side->top)
		return false;
	ret[0] = word_at(side->values, at);
	ret[1] = word_at(side->values, at - 8);
	ret[2] = word_at(side->values, at - 16);
	return true;
}

/*
 * Flags of a frame, and the word where its method's entry stands: of a block, where its outermost
 * scope has it. `twin`: the frame at the same place in the collect before, or NULL.
 */
static void look_at_environment(const struct scry_walk *w, const struct scry_ruby *ruby,
				const struct scry_walk_side *side, struct scry_walk_frame *f,
				const struct scry_walk_frame *twin)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t ep = f->ep, words[3], heap[3];

	for (int i = 0; i < SCOPES_MAX && l->frame_me == 16; i++) {
		/* An environment that somebody keeps was moved to the heap, and stays as it is. */
		if (!environment(w, l, side, ep, words)) {
			if (twin && twin->iseq == f->iseq && twin->ep == f->ep) {
				f->flags = twin->flags;
				f->entry = twin->entry;
				return;
			}
			if (scry_mem_read(&ruby->mem, ep - 16, heap, sizeof(heap)))
				return;
			words[0] = heap[2];
			words[1] = heap[1];
			words[2] = heap[0];
		}
		if (!(words[0] & 1))
			return;
		if (i == 0)
			f->flags = words[0];
		if (SCRY_FRAME_IS_LOCAL(words[0])) {
			f->entry = words[2];
			return;
		}
		ep = words[1] & ~3ull;
	}
}

/* Frame `i`, as far from the oldest, in another collect. */
static const struct scry_walk_frame *twin_of(const struct scry_walk_side *side,
					     const struct scry_walk_side *other, size_t i)
{
	size_t from_oldest = side->count - i;

	return other && from_oldest <= other->count ? &other->decoded[other->count - from_oldest]
						    : NULL;
}

/* `count` frames of the side. `before`: the collect before this one, or NULL. */
static void decode(struct scry_walk *w, const struct scry_ruby *ruby, struct scry_walk_side *side,
		   size_t count, const struct scry_walk_side *before)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	const uint8_t *at = side->frames + (side->cfp - side->from);

	side->count = count;
	w->is_cut = side->count > SCRY_WALK_FRAMES_MAX;
	if (w->is_cut)
		side->count = SCRY_WALK_FRAMES_MAX;
	for (size_t i = 0; i < side->count; i++, at += l->frame_size) {
		struct scry_walk_frame *f = &side->decoded[i];

		*f = (struct scry_walk_frame){
			.pc = word_at(at, l->frame_pc),
			.iseq = word_at(at, l->frame_iseq),
			.ep = word_at(at, l->frame_ep),
		};
		look_at_environment(w, ruby, side, f, twin_of(side, before, i));
	}
}

/* Are the two newest frames others than before: in their code, or in the place of the call? */
static bool has_moved(const struct scry_ruby_layout *l, const uint8_t *before, const uint8_t *after)
{
	return word_at(before, l->frame_iseq) != word_at(after, l->frame_iseq) ||
	       word_at(before, l->frame_ep) != word_at(after, l->frame_ep) ||
	       word_at(before, l->frame_size + l->frame_pc) !=
		       word_at(after, l->frame_size + l->frame_pc);
}

/* One collect. 0; -EAGAIN: the stack grew faster than it could be read; -EFAULT. */
static int collect(struct scry_walk *w, const struct scry_ruby *ruby, struct scry_walk_side *side,
		   struct scry_walk_hint *hint)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	size_t most = SCRY_WALK_FRAMES_MAX * (size_t)l->frame_size;

	w->collects++;
	for (int reads = 0; reads < 4; reads++) {
		uint64_t cfp[2], newest;
		uint8_t again[2 * FRAME_MAX];
		struct scry_mem_span spans[5] = {
			{w->ec + l->ec_cfp, &cfp[0], 8, false},
			{hint->cfp, side->frames, w->end - hint->cfp, false},
			{w->stack, side->values, hint->top - w->stack, false},
			{hint->newest, again, 2 * (size_t)l->frame_size, false},
			{w->ec + l->ec_cfp, &cfp[1], 8, false},
		};

		if (spans[1].size > most)
			spans[1].size = most;
		if (hint->newest + spans[3].size > w->end)
			spans[3].addr = w->end - spans[3].size;
		scry_mem_gather(&ruby->mem, spans, 5);
		if (!spans[0].ok || !spans[1].ok || !spans[2].ok || !spans[3].ok || !spans[4].ok ||
		    !is_cfp(w, l, cfp[1]))
			return -EFAULT;
		side->from = hint->cfp;
		side->bottom = w->stack;
		side->top = hint->top;
		side->cfp = cfp[1];
		if (cfp[1] < hint->cfp || (w->end - hint->cfp > most && cfp[1] != hint->cfp)) {
			hint->cfp = cfp[1]; /* deeper than was read, or than fits */
			if (w->end - cfp[1] <= most &&
			    cfp[1] - SLACK_FRAMES * (uint64_t)l->frame_size > w->stack)
				hint->cfp = cfp[1] - SLACK_FRAMES * (uint64_t)l->frame_size;
			continue;
		}
		newest = word_at(side->frames, cfp[1] - side->from + l->frame_ep);
		if (newest >= w->stack && newest < side->cfp && newest + 8 > hint->top &&
		    newest + 8 + SLACK_VALUES <= w->stack + VALUES_MAX && newest + 8 < w->end) {
			hint->top = newest + 8 + SLACK_VALUES;
			if (hint->top > w->end)
				hint->top = w->end;
			continue;
		}
		side->is_moved = cfp[0] != cfp[1] || spans[3].addr != cfp[1] ||
				 has_moved(l, side->frames + (cfp[1] - side->from), again);
		hint->newest = cfp[1];
		if (cfp[0] > cfp[1] && is_cfp(w, l, cfp[0]))
			side->cfp = cfp[0];
		return 0;
	}
	return -EAGAIN;
}

static bool is_same(const struct scry_walk_frame *a, const struct scry_walk_frame *b)
{
	return a->iseq == b->iseq && a->ep == b->ep && a->entry == b->entry && (!a->pc == !b->pc);
}

/* How many frames, from the oldest, both collects have alike; the newest of them may be at another
 * place: what stands above it was called from there. */
static size_t common(const struct scry_walk_side *a, const struct scry_walk_side *b)
{
	size_t same = 0;

	while (same < a->count && same < b->count) {
		const struct scry_walk_frame *x = &a->decoded[a->count - 1 - same];
		const struct scry_walk_frame *y = &b->decoded[b->count - 1 - same];

		if (!is_same(x, y))
			break;
		same++;
		if (x->pc != y->pc)
			break;
	}
	return same;
}

static void keep(struct scry_walk *w, const struct scry_walk_side *side, size_t count)
{
	memcpy(w->frames, side->decoded + side->count - count, count * sizeof(*w->frames));
	w->count = count;
}

uint64_t scry_walk_entry(const struct scry_ruby *ruby, uint64_t entry)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t flags;

	for (int i = 0; i < 2; i++) {
		if (entry < SCRY_RUBY_NIL_MAX || entry % 8 ||
		    scry_mem_u64(&ruby->mem, entry, &flags) ||
		    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_IMEMO)
			return 0;
		if ((flags & l->iseq_flags_mask) == l->me_flags)
			return entry;
		if ((flags >> IMEMO_SHIFT & 15) != IMEMO_SVAR ||
		    scry_mem_u64(&ruby->mem, entry + 8, &entry))
			return 0;
	}
	return 0;
}

/* Is the code of the method of `entry`, whose definition is `def`, that of the frame? What was
 * found to be so is kept: it is asked at each sample. */
static bool is_its_code(struct scry_walk *w, const struct scry_ruby *ruby,
			const struct scry_walk_frame *f, uint64_t def)
{
	struct scry_walk_pair *pair = &w->pairs[(f->entry >> 3) % SCRY_WALK_PAIRS];
	uint64_t code;

	if (pair->entry == f->entry && pair->def == def && pair->iseq == f->iseq)
		return true;
	if (scry_mem_u64(&ruby->mem, def + ruby->layout.def_iseq, &code) || code != f->iseq)
		return false;
	*pair = (struct scry_walk_pair){f->entry, def, f->iseq};
	return true;
}

/* Is the newest frame one that its environment knows nothing of, or one that has returned? */
static bool is_passing(struct scry_walk *w, const struct scry_ruby *ruby,
		       const struct scry_walk_frame *f)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint32_t type = SCRY_FRAME_TYPE(f->flags);
	uint64_t word = 0, entry[ENTRY_WORDS] = {0}, real = f->entry;
	struct scry_mem_span spans[2] = {{f->pc - 8, &word, 8, false},
					 {f->entry, entry, sizeof(entry), false}};

	if (!l->frame_me)
		return false;
	if (!(f->flags & 1) || (type == SCRY_FRAME_CFUNC) != !f->iseq)
		return true;
	scry_mem_gather(&ruby->mem, f->iseq ? spans : spans + 1,
			f->iseq && type == SCRY_FRAME_METHOD ? 2 : 1);
	if (f->iseq && spans[0].ok && l->leave_word && word == ruby->bias + l->leave_word)
		return true;
	if (f->iseq && (type != SCRY_FRAME_METHOD || !l->def_iseq || !f->pc))
		return false;
	if ((entry[0] & l->iseq_flags_mask) != l->me_flags) {
		real = scry_walk_entry(ruby, f->entry);
		if (!real || scry_mem_read(&ruby->mem, real, entry, sizeof(entry)))
			return true;
	}
	return f->iseq && !is_its_code(w, ruby, f, entry[l->me_def / 8 % ENTRY_WORDS]);
}

static void drop_passing(struct scry_walk *w, const struct scry_ruby *ruby)
{
	w->is_dropped = w->count > 1 && is_passing(w, ruby, &w->frames[0]);
	if (w->is_dropped)
		memmove(w->frames, w->frames + 1, --w->count * sizeof(*w->frames));
}

static enum scry_walk_verdict settle(struct scry_walk *w, const struct scry_ruby *ruby,
				     struct scry_walk_hint *hint)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	size_t have = 0, same, equal = 0;
	int into = 0;

	while (w->collects < SCRY_WALK_TRIES) {
		int err = collect(w, ruby, w->sides[into], hint);

		if (err == -EFAULT)
			return SCRY_WALK_REJECTED;
		if (err)
			continue;
		decode(w, ruby, w->sides[into], (w->end - w->sides[into]->cfp) / l->frame_size,
		       have ? w->sides[!into] : NULL);
		have++;
		same = have > 1 ? common(w->sides[0], w->sides[1]) : 0;
		if (same && same == w->sides[into]->count && same == w->sides[!into]->count &&
		    !w->sides[0]->is_moved && !w->sides[1]->is_moved) {
			equal++;
			if (equal > 1 || w->sides[into]->decoded[0].iseq) {
				keep(w, w->sides[into], same);
				return SCRY_WALK_VALID;
			}
		} else {
			equal = 0;
		}
		into = !into;
	}
	same = have > 1 ? common(w->sides[0], w->sides[1]) : 0;
	if (!same)
		return SCRY_WALK_REJECTED;
	keep(w, w->sides[!into], same);
	if (!equal && w->count > 1 && !w->frames[0].iseq) /* of a C method: not surely the same */
		memmove(w->frames, w->frames + 1, --w->count * sizeof(*w->frames));
	return SCRY_WALK_REPAIRED;
}

enum scry_walk_verdict scry_walk_collect(struct scry_walk *w, const struct scry_ruby *ruby,
					 const struct scry_ruby_thread *t,
					 struct scry_walk_hint *hint)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	struct scry_walk_hint own = {0};
	enum scry_walk_verdict verdict;
	uint64_t cfp, begin;

	w->count = w->collects = 0;
	w->is_dropped = w->is_cut = false;
	if (t->ec == 0)
		return SCRY_WALK_EMPTY;
	verdict = read_bounds(w, ruby, t, &cfp);
	if (verdict != SCRY_WALK_VALID)
		return verdict;
	hint = hint ? hint : &own;
	if (hint->ec != t->ec || !is_cfp(w, l, hint->newest) || hint->cfp <= w->stack ||
	    hint->cfp >= w->end || (w->end - hint->cfp) % l->frame_size || hint->top < w->stack ||
	    hint->top > w->end) {
		begin = cfp - SLACK_FRAMES * (uint64_t)l->frame_size;
		*hint = (struct scry_walk_hint){t->ec, begin > w->stack ? begin : cfp, w->stack + 8,
						cfp};
	}
	verdict = settle(w, ruby, hint);
	if (verdict <= SCRY_WALK_REPAIRED)
		drop_passing(w, ruby);
	return verdict;
}

enum scry_walk_verdict scry_walk_take(struct scry_walk *w, const struct scry_ruby *ruby,
				      const struct scry_walk_copy *copy)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	struct scry_walk_side *side = w->sides[0];
	size_t whole, have;

	w->count = 0;
	w->collects = 1;
	w->is_dropped = w->is_cut = false;
	w->ec = copy->ec;
	w->stack = copy->stack;
	w->end = copy->end;
	if (!is_cfp(w, l, copy->cfp) || copy->bottom < w->stack || copy->top < copy->bottom ||
	    copy->top > w->end || copy->top - copy->bottom > VALUES_MAX ||
	    copy->frames_size > sizeof(side->frames))
		return SCRY_WALK_REJECTED;
	memcpy(side->frames, copy->frames, copy->frames_size);
	memcpy(side->values, copy->values, copy->top - copy->bottom);
	side->from = side->cfp = copy->cfp;
	side->bottom = copy->bottom;
	side->top = copy->top;
	whole = (w->end - copy->cfp) / l->frame_size;
	have = copy->frames_size / l->frame_size;
	decode(w, ruby, side, have < whole ? have : whole, NULL);
	w->is_cut = side->count < whole;
	if (!side->count)
		return SCRY_WALK_REJECTED;
	keep(w, side, side->count);
	drop_passing(w, ruby);
	w->cfp = copy->cfp + (w->is_dropped ? l->frame_size : 0);
	return SCRY_WALK_VALID;
}

size_t scry_walk_alive(const struct scry_walk *w, const struct scry_ruby *ruby)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t cfp;
	uint8_t *now = w->sides[1]->frames;
	/* cfp first: a frame that is read later may be newer, but none that had gone before. */
	struct scry_mem_span spans[2] = {{w->ec + l->ec_cfp, &cfp, 8, false},
					 {w->cfp, now, w->count * l->frame_size, false}};

	scry_mem_gather(&ruby->mem, spans, 2);
	if (!spans[0].ok || !spans[1].ok || !is_cfp(w, l, cfp))
		return 0;
	for (size_t i = w->count; i > 0; i--) {
		const uint8_t *at = now + (i - 1) * l->frame_size;

		if (w->cfp + (i - 1) * l->frame_size < cfp ||
		    word_at(at, l->frame_iseq) != w->frames[i - 1].iseq ||
		    word_at(at, l->frame_ep) != w->frames[i - 1].ep)
			return w->count - i;
	}
	return w->count;
}
