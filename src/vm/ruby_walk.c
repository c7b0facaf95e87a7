/*
 * Collects control frames. See ruby_walk.h.
 *
 * One look is one system call with pieces in this order: cfp, the frames, the values, and again the
 * frames, the values, the two newest frames, cfp. The kernel copies them one after the other, a
 * third of a microsecond each: two collects, which are compared. Equal ones say that the frames
 * were those, unless calls and returns lay between; where the newest frame is of a C method nothing
 * distinguishes those but a word among the values, and code made by a JIT calls and returns in less
 * time than that takes to be read: there three looks must find the same. How many there are is not
 * known before they are read: a little more than last time is.
 */
#include "vm/ruby_walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vm/ruby_value.h"

#define FRAME_MAX 128u
#define SLACK_FRAMES 8u	  /* more than last time that one read still finds */
#define SLACK_VALUES 256u /* bytes */
#define VALUES_MAX (1u << 20)
#define EC_MAX (SCRY_RUBY_EC_BYTES + 8)
#define AROUND 8u      /* frames older and newer than the newest of last time */
#define EQUAL_C 3      /* looks */
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
};

int scry_walk_init(struct scry_walk *w)
{
	*w = (struct scry_walk){0};
	w->sides[0] = malloc(sizeof(*w->sides[0]));
	w->sides[1] = malloc(sizeof(*w->sides[1]));
	w->frames = calloc(SCRY_WALK_FRAMES_MAX, sizeof(*w->frames));
	w->envs = calloc(SCRY_WALK_KEPT, sizeof(*w->envs));
	w->top = calloc(SCRY_WALK_KEPT, sizeof(*w->top));
	if (w->sides[0] && w->sides[1] && w->frames && w->envs && w->top)
		return 0;
	scry_walk_done(w);
	return -ENOMEM;
}

void scry_walk_done(struct scry_walk *w)
{
	free(w->sides[0]);
	free(w->sides[1]);
	free(w->frames);
	free(w->envs);
	free(w->top);
	*w = (struct scry_walk){0};
}

void scry_walk_watch_gc(struct scry_walk *w, const struct scry_ruby *ruby)
{
	scry_ruby_gc_find(ruby, &w->gc);
	w->gc_heap = scry_ruby_gc_heap(ruby, &w->gc);
}

/* Is what was read in `epoch` still so? */
static bool is_fresh(const struct scry_walk *w, uint64_t epoch)
{
	return epoch && epoch == w->now.count;
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

static uint32_t ec_bytes(const struct scry_ruby_layout *l)
{
	const uint32_t at[] = {l->ec_stack, l->ec_stack_size, l->ec_cfp, l->ec_thread};

	return greatest(at, 4) + 8;
}

/* The stack's bounds, from the first bytes of the ec. */
static enum scry_walk_verdict take_bounds(struct scry_walk *w, const struct scry_ruby *ruby,
					  const struct scry_ruby_thread *t, const uint8_t *ec)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t size = word_at(ec, l->ec_stack_size), cfp = word_at(ec, l->ec_cfp);

	if (word_at(ec, l->ec_thread) != t->th)
		return SCRY_WALK_REJECTED;
	w->stack = word_at(ec, l->ec_stack);
	if (w->stack == 0 || cfp == 0)
		return SCRY_WALK_EMPTY;
	w->end = w->stack + 8 * size;
	if (size > 1u << 26 || w->end < w->stack || !is_cfp(w, l, cfp))
		return SCRY_WALK_REJECTED;
	return SCRY_WALK_VALID;
}

/* Where to begin, when nothing is known of the thread's stack. */
static enum scry_walk_verdict first_hint(struct scry_walk *w, const struct scry_ruby *ruby,
					 const struct scry_ruby_thread *t,
					 struct scry_walk_hint *ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint32_t need = ec_bytes(l);
	enum scry_walk_verdict verdict;
	uint64_t cfp, begin;
	uint8_t ec[EC_MAX];

	if (need > sizeof(ec) || scry_mem_read(&ruby->mem, t->ec, ec, need))
		return SCRY_WALK_REJECTED;
	verdict = take_bounds(w, ruby, t, ec);
	if (verdict != SCRY_WALK_VALID)
		return verdict;
	cfp = word_at(ec, l->ec_cfp);
	begin = cfp - SLACK_FRAMES * (uint64_t)l->frame_size;
	*ret = (struct scry_walk_hint){.ec = t->ec,
				       .stack = w->stack,
				       .end = w->end,
				       .cfp = begin > w->stack ? begin : cfp,
				       .top = w->stack + 8,
				       .newest = cfp};
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

static bool heap_environment(struct scry_walk *w, const struct scry_ruby *ruby, uint64_t ep,
			     uint64_t ret[3])
{
	struct scry_walk_env *kept = &w->envs[(ep >> 3) % SCRY_WALK_KEPT];
	uint64_t heap[3];

	if (kept->ep == ep && is_fresh(w, kept->epoch)) {
		memcpy(ret, kept->words, sizeof(kept->words));
		return true;
	}
	if (scry_mem_read(&ruby->mem, ep - 16, heap, sizeof(heap)))
		return false;
	w->has_read = true;
	for (int i = 0; i < 3; i++)
		ret[i] = heap[2 - i];
	*kept = (struct scry_walk_env){ep, {ret[0], ret[1], ret[2]}, w->now.epoch};
	return true;
}

/*
 * Flags of a frame, and the word where its method's entry is: of a block, where its outermost scope
 * has it. `twin`: the frame at the same place in the collect before, or NULL.
 */
static void look_at_environment(struct scry_walk *w, const struct scry_ruby *ruby,
				const struct scry_walk_side *side, struct scry_walk_frame *f,
				const struct scry_walk_frame *twin)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t ep = f->ep, words[3];

	/* Where entries are not known (0), the flags still distinguish methods written in C from
	 * dummies.
	 */
	for (int i = 0; i < SCOPES_MAX && (l->frame_me == 16 || !l->frame_me); i++) {
		/* An environment that is kept was moved to the heap, and stays as it is. */
		if (!environment(w, l, side, ep, words)) {
			if (twin && twin->iseq == f->iseq && twin->ep == f->ep) {
				f->flags = twin->flags;
				f->entry = twin->entry;
				return;
			}
			if (!heap_environment(w, ruby, ep, words))
				return;
		}
		if (!(words[0] & 1))
			return;
		if (i == 0)
			f->flags = words[0];
		if (!l->frame_me)
			return;
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

/* Are the two newest frames, or the only one, others than before: in their code, or in the place of
 * the call? */
static bool has_moved(const struct scry_ruby_layout *l, const uint8_t *before, const uint8_t *after,
		      bool is_only)
{
	return word_at(before, l->frame_iseq) != word_at(after, l->frame_iseq) ||
	       word_at(before, l->frame_ep) != word_at(after, l->frame_ep) ||
	       (!is_only && word_at(before, l->frame_size + l->frame_pc) !=
				    word_at(after, l->frame_size + l->frame_pc));
}

/* Does the hint make the next look too small for a stack whose newest frame is at `cfp`? Then it is
 * mended. */
static bool is_short(const struct scry_walk *w, const struct scry_ruby_layout *l,
		     struct scry_walk_hint *hint, const struct scry_walk_side *side)
{
	uint64_t most = SCRY_WALK_FRAMES_MAX * (uint64_t)l->frame_size, cfp = side->cfp, newest;

	if (cfp < hint->cfp || (w->end - hint->cfp > most && cfp != hint->cfp)) {
		hint->cfp = cfp; /* deeper than was read, or than fits */
		if (w->end - cfp <= most && cfp - SLACK_FRAMES * (uint64_t)l->frame_size > w->stack)
			hint->cfp = cfp - SLACK_FRAMES * (uint64_t)l->frame_size;
		return true;
	}
	newest = word_at(side->frames, cfp - side->from + l->frame_ep);
	if (newest >= w->stack && newest < cfp && newest + 8 > hint->top &&
	    newest + 8 + SLACK_VALUES <= w->stack + VALUES_MAX && newest + 8 < w->end) {
		hint->top = newest + 8 + SLACK_VALUES;
		if (hint->top > w->end)
			hint->top = w->end;
		return true;
	}
	return false;
}

uint64_t scry_walk_now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One look: both sides. VALID: there are two collects; EMPTY, REJECTED: there is no stack;
 * REPAIRED: it grew faster than it could be read. */
static enum scry_walk_verdict look(struct scry_walk *w, const struct scry_ruby *ruby,
				   const struct scry_ruby_thread *t, struct scry_walk_hint *hint)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t most = SCRY_WALK_FRAMES_MAX * (uint64_t)l->frame_size;
	struct scry_walk_side *a = w->sides[0], *b = w->sides[1];
	uint8_t ec[EC_MAX], gc[SCRY_RUBY_GC_BYTES], newest[2 * AROUND * FRAME_MAX];
	uint64_t around = AROUND * (uint64_t)l->frame_size;

	for (int reads = 0; reads < 4; reads++) {
		uint64_t cfp[2], frames = hint->end - hint->cfp, values = hint->top - hint->stack;
		uint64_t again =
			hint->newest - hint->cfp > around ? hint->newest - around : hint->cfp;
		uint64_t more = hint->end - again < 2 * around ? hint->end - again : 2 * around;
		struct scry_mem_span spans[] = {
			{t->ec + l->ec_cfp, &cfp[0], 8, false},
			{hint->cfp, a->frames, frames < most ? frames : most, false},
			{hint->stack, a->values, values, false},
			{t->th + l->th_ec, &w->ec_now, 8, false},
			{t->ec, ec, ec_bytes(l), false},
			{hint->cfp, b->frames, frames < most ? frames : most, false},
			{hint->stack, b->values, values, false},
			{again, newest, more, false},
			{t->ec + l->ec_cfp, &cfp[1], 8, false},
			{w->gc_heap + w->gc.from, gc, w->gc.size, false},
		};
		enum scry_walk_verdict verdict;
		bool is_only;

		w->collects += 2;
		w->now = (struct scry_ruby_gc_now){0};
		w->time_ns = scry_walk_now_ns();
		scry_mem_gather(&ruby->mem, spans, w->gc_heap ? 10 : 9);
		if (!spans[4].ok)
			return SCRY_WALK_REJECTED;
		verdict = take_bounds(w, ruby, t, ec);
		if (verdict != SCRY_WALK_VALID)
			return verdict;
		if (w->stack != hint->stack || w->end != hint->end) {
			verdict = first_hint(w, ruby, t, hint);
			if (verdict != SCRY_WALK_VALID)
				return verdict;
			continue;
		}
		for (size_t i = 0; i < 9; i++)
			if (!spans[i].ok)
				return SCRY_WALK_REJECTED;
		if (!is_cfp(w, l, cfp[0]) || !is_cfp(w, l, cfp[1]))
			return SCRY_WALK_REJECTED;
		w->is_moved = cfp[0] != word_at(ec, l->ec_cfp) || cfp[0] != cfp[1];
		if (w->gc_heap && spans[9].ok)
			w->now = scry_ruby_gc_say(&w->gc, gc);
		a->from = b->from = hint->cfp;
		a->bottom = b->bottom = hint->stack;
		a->top = b->top = hint->top;
		a->cfp = cfp[0];
		b->cfp = cfp[1];
		if (is_short(w, l, hint, a) || is_short(w, l, hint, b))
			continue;
		is_only = w->end - cfp[1] == l->frame_size;
		w->is_moved |= cfp[1] < again ||
			       cfp[1] + (is_only ? 1 : 2) * l->frame_size > again + more ||
			       has_moved(l, b->frames + (cfp[1] - b->from),
					 newest + (cfp[1] - again), is_only);
		hint->newest = cfp[1];
		return SCRY_WALK_VALID;
	}
	return SCRY_WALK_REPAIRED;
}

static bool is_same(const struct scry_walk_frame *a, const struct scry_walk_frame *b)
{
	return a->iseq == b->iseq && a->ep == b->ep && a->entry == b->entry && (!a->pc == !b->pc);
}

/* How many frames, from the oldest, both collects have alike; the newest of them may be at another
 * place: what is above it was called from there. */
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

/* Are the frames those that were kept, the newest at the same place too? */
static bool is_kept(const struct scry_walk *w, const struct scry_walk_side *side)
{
	for (size_t i = 0; i < w->count && w->count == side->count; i++)
		if (!is_same(&w->frames[i], &side->decoded[i]) ||
		    w->frames[i].pc != side->decoded[i].pc)
			return false;
	return w->count == side->count;
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

static struct scry_walk_leads read_leads(const struct scry_ruby *ruby,
					 const struct scry_walk_frame *f)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t entry[ENTRY_WORDS] = {0}, real;
	struct scry_walk_leads ret = {0};
	struct scry_mem_span spans[2] = {{f->pc - 8, &ret.word, 8, false},
					 {f->entry, entry, sizeof(entry), false}};
	bool is_method = f->iseq && f->pc && SCRY_FRAME_TYPE(f->flags) == SCRY_FRAME_METHOD;

	scry_mem_gather(&ruby->mem, f->iseq ? spans : spans + 1, is_method ? 2 : 1);
	if (f->iseq && !is_method)
		return ret;
	if ((entry[0] & l->iseq_flags_mask) != l->me_flags) {
		real = scry_walk_entry(ruby, f->entry);
		if (!real || scry_mem_read(&ruby->mem, real, entry, sizeof(entry)))
			return ret;
	}
	ret.flags = entry[0];
	if (is_method && l->def_iseq)
		scry_mem_u64(&ruby->mem, entry[l->me_def / 8 % ENTRY_WORDS] + l->def_iseq,
			     &ret.code);
	return ret;
}

/* Is the newest frame one that its environment knows nothing of, or one that has returned? */
static bool is_passing(const struct scry_ruby *ruby, const struct scry_walk_frame *f,
		       const struct scry_walk_leads *leads)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint32_t type = SCRY_FRAME_TYPE(f->flags);
	struct scry_walk_leads now;

	if (!l->frame_me)
		return false;
	if (!(f->flags & 1) || (type == SCRY_FRAME_CFUNC) != !f->iseq)
		return true;
	if (!leads) {
		now = read_leads(ruby, f);
		leads = &now;
	}
	if (f->iseq && l->leave_word && leads->word == ruby->bias + l->leave_word)
		return true;
	if (f->iseq && (type != SCRY_FRAME_METHOD || !l->def_iseq || !f->pc))
		return false;
	return (leads->flags & l->iseq_flags_mask) != l->me_flags ||
	       (f->iseq && leads->code != f->iseq);
}

static void drop_newest(struct scry_walk *w, bool is_there)
{
	w->is_dropped = !is_there;
	if (w->is_dropped)
		memmove(w->frames, w->frames + 1, --w->count * sizeof(*w->frames));
}

static void drop_passing(struct scry_walk *w, const struct scry_ruby *ruby)
{
	const struct scry_walk_frame *f = &w->frames[0];
	struct scry_walk_newest *kept =
		&w->top[(f->pc >> 3 ^ f->entry >> 4 ^ f->iseq >> 3) % SCRY_WALK_KEPT];

	if (w->count < 2)
		return;
	if (!is_fresh(w, kept->epoch) || kept->pc != f->pc || kept->iseq != f->iseq ||
	    kept->entry != f->entry || kept->flags != f->flags)
		*kept = (struct scry_walk_newest){f->pc,	f->iseq,
						  f->entry,	f->flags,
						  w->now.epoch, is_passing(ruby, f, NULL)};
	drop_newest(w, !kept->is_passing);
}

static enum scry_walk_verdict settle(struct scry_walk *w, const struct scry_ruby *ruby,
				     const struct scry_ruby_thread *t, struct scry_walk_hint *hint)
{
	struct scry_walk_side *a = w->sides[0], *b = w->sides[1];
	int equal = 0; /* looks in a row that found the same */
	size_t same = 0;

	while (w->collects < SCRY_WALK_TRIES) {
		enum scry_walk_verdict verdict = look(w, ruby, t, hint);

		if (verdict == SCRY_WALK_REJECTED || verdict == SCRY_WALK_EMPTY)
			return verdict;
		if (verdict != SCRY_WALK_VALID)
			continue;
		decode(w, ruby, a, (w->end - a->cfp) / ruby->layout.frame_size, NULL);
		decode(w, ruby, b, (w->end - b->cfp) / ruby->layout.frame_size, a);
		same = common(a, b);
		if (!same || same != a->count || same != b->count || w->is_moved) {
			equal = 0;
			continue;
		}
		equal = equal && is_kept(w, b) ? equal + 1 : 1;
		keep(w, b, same);
		if (equal == EQUAL_C || w->frames[0].iseq || w->is_still)
			return SCRY_WALK_VALID;
	}
	if (!same)
		return SCRY_WALK_REJECTED;
	keep(w, b, same);
	if (equal < EQUAL_C - 1 && w->count > 1 &&
	    !w->frames[0].iseq) /* of a C method: not surely there */
		memmove(w->frames, w->frames + 1, --w->count * sizeof(*w->frames));
	return SCRY_WALK_REPAIRED;
}

/* Was it of this thread and within its stack when it was kept? */
static bool is_hint(const struct scry_ruby_layout *l, const struct scry_ruby_thread *t,
		    const struct scry_walk_hint *hint)
{
	return hint->ec == t->ec && hint->stack < hint->cfp && hint->cfp < hint->end &&
	       (hint->end - hint->cfp) % l->frame_size == 0 && hint->top >= hint->stack &&
	       hint->top <= hint->end && hint->newest >= hint->cfp && hint->newest < hint->end;
}

enum scry_walk_verdict scry_walk_collect(struct scry_walk *w, const struct scry_ruby *ruby,
					 const struct scry_ruby_thread *t,
					 struct scry_walk_hint *hint)
{
	struct scry_walk_hint own = {0};
	enum scry_walk_verdict verdict = SCRY_WALK_VALID;

	w->count = w->collects = 0;
	w->ec = w->ec_now = t->ec;
	w->now = (struct scry_ruby_gc_now){0};
	w->is_dropped = w->is_cut = false;
	if (t->ec == 0)
		return SCRY_WALK_EMPTY;
	hint = hint ? hint : &own;
	if (!is_hint(&ruby->layout, t, hint))
		verdict = first_hint(w, ruby, t, hint);
	if (verdict != SCRY_WALK_VALID)
		return verdict;
	verdict = settle(w, ruby, t, hint);
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
	w->now = copy->gc;
	w->is_dropped = w->is_cut = w->has_read = false;
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
	if (w->count > 1 && !w->is_still)
		drop_newest(w, !is_passing(ruby, &w->frames[0], &copy->newest));
	w->cfp = copy->cfp + (w->is_dropped ? l->frame_size : 0);
	return SCRY_WALK_VALID;
}

bool scry_walk_is_same_epoch(struct scry_walk *w, const struct scry_ruby *ruby,
			     const struct scry_ruby_gc_now *then, uint64_t since_ns)
{
	uint8_t bytes[SCRY_RUBY_GC_BYTES];

	if (!then->epoch)
		return false;
	if (w->seen_ns <= since_ns) {
		w->seen_ns = scry_walk_now_ns();
		if (scry_mem_read(&ruby->mem, w->gc_heap + w->gc.from, bytes, w->gc.size)) {
			w->seen_ns = 0;
			return false;
		}
		w->seen = scry_ruby_gc_say(&w->gc, bytes);
	}
	return w->seen.count == then->count;
}

void scry_walk_forget(struct scry_walk *w)
{
	memset(w->envs, 0, SCRY_WALK_KEPT * sizeof(*w->envs));
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
