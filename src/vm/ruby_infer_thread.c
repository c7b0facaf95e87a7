/*
 * Infers threads, execution contexts and control frames.
 *
 * A Thread object, its th and its ec point at each other in a triangle that only the right offsets
 * close for all threads. The frame size is then the one stride at which the known iseqs of the
 * known backtraces lie, beginning at the ec's newest frame, in every thread.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define STRUCT_BYTES 512u /* fields are looked for in the first bytes of th and ec */
#define EC_BYTES SCRY_RUBY_EC_BYTES
#define EC_THREAD_BYTES 144u /* before the machine registers that an ec keeps at its end */
#define FRAMES_CHECKED 30
#define FRAME_METHOD                                                                 \
	0x1111u /* VM_FRAME_MAGIC_METHOD, in the upper half of the frame's flag word \
		 */

static void read_threads(struct scry_infer *infer)
{
	const struct scry_calib *c = infer->calib;
	const struct scry_fact *f = NULL, *end = c->facts + c->fact_count;

	while (infer->thread_count < SCRY_INFER_THREADS && (f = scry_fact_next(c, f, "thread"))) {
		struct scry_infer_thread *t = &infer->threads[infer->thread_count++];

		t->fact = f;
		t->value = scry_fact_addr(f, 1);
		t->tid = (uint32_t)scry_fact_number(f, 2);
		while (f + 1 + t->frame_count < end &&
		       strcmp(f[1 + t->frame_count].words[0], "frame") == 0)
			t->frame_count++;
	}
	f = scry_fact_next(c, NULL, "main");
	if (f) {
		infer->main.value = scry_fact_addr(f, 1);
		infer->main.tid = (uint32_t)scry_fact_number(f, 2);
	}
	f = scry_fact_next(c, NULL, "ractor");
	f = f ? scry_fact_next(c, f, "ractor") : NULL;
	infer->other.value = f ? scry_fact_addr(f, 2) : 0;
}

/* Thread `i`: the known ones, then main, then the other ractor's; NULL behind the last. */
static struct scry_infer_thread *thread_at(struct scry_infer *infer, size_t i)
{
	if (i < infer->thread_count)
		return &infer->threads[i];
	if (i == infer->thread_count)
		return &infer->main;
	return i == infer->thread_count + 1 && infer->other.value ? &infer->other : NULL;
}

/* th = word at `data` in the object, and th's word at `self` is the object, for all. */
static bool self_fits(struct scry_infer *infer, uint64_t data, uint64_t self)
{
	struct scry_infer_thread *t;
	uint64_t back;

	for (size_t i = 0; (t = thread_at(infer, i)); i++) {
		if (!scry_infer_word(infer, t->value + data, &t->th) || t->th == t->value ||
		    !scry_infer_word(infer, t->th + self, &back) || back != t->value)
			return false;
	}
	return true;
}

/* ec = word at `ec` in th, and ec's word at `thread` is th, for all; all different. */
static bool ec_fits(struct scry_infer *infer, uint64_t ec, uint64_t thread)
{
	struct scry_infer_thread *t;
	uint64_t back;

	for (size_t i = 0; (t = thread_at(infer, i)); i++) {
		if (!scry_infer_word(infer, t->th + ec, &t->ec) || t->ec == t->th ||
		    !scry_infer_word(infer, t->ec + thread, &back) || back != t->th)
			return false;
	}
	return true;
}

/* The iseq that frame `j` (newest is 0) of thread `t` runs, 0 when the child did not report it. */
static const struct scry_infer_piece *piece_of(struct scry_infer *infer,
					       const struct scry_infer_thread *t, size_t j)
{
	const struct scry_fact *f = &t->fact[1 + j];
	char label[64], path[64];

	scry_fact_text(f, 1, label, sizeof(label));
	scry_fact_text(f, 3, path, sizeof(path));
	if (strncmp(label, "scry_", 5) != 0)
		return NULL;
	for (size_t i = 0; i < infer->piece_count; i++) {
		if (strcmp(infer->pieces[i].label, label) == 0 &&
		    strcmp(infer->pieces[i].path, path) == 0)
			return &infer->pieces[i];
	}
	return NULL;
}

/* Do the frames at `cfp` with this stride hold the known iseqs at `iseq`, in every thread? */
static bool frames_fit(struct scry_infer *infer, uint64_t cfp_at, uint64_t stride, uint64_t iseq)
{
	for (size_t i = 0; i < infer->thread_count; i++) {
		struct scry_infer_thread *t = &infer->threads[i];
		uint64_t cfp, word, known = 0;

		if (!scry_infer_word(infer, t->ec + cfp_at, &cfp))
			return false;
		for (size_t j = 0; j < t->frame_count && j < FRAMES_CHECKED; j++) {
			const struct scry_infer_piece *p = piece_of(infer, t, j);

			if (!p)
				continue;
			if (!scry_infer_word(infer, cfp + j * stride + iseq, &word) ||
			    word != p->iseq)
				return false;
			known++;
		}
		if (known < 2)
			return false;
	}
	return infer->thread_count >= 4;
}

/*
 * stack < cfp < stack + 8 * size, whole frames lie between cfp and the end in every thread, and
 * there are as many as the thread's backtrace has, plus the same few dummies at the bottom.
 */
static bool stack_fits(struct scry_infer *infer, uint64_t stack_at, uint64_t size_at)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_infer_thread *t;
	uint64_t dummies = 0;

	for (size_t i = 0; (t = thread_at(infer, i)); i++) {
		uint64_t stack, size, cfp, end;

		if (!scry_infer_word(infer, t->ec + stack_at, &stack) ||
		    !scry_infer_word(infer, t->ec + size_at, &size) ||
		    !scry_infer_word(infer, t->ec + l->ec_cfp, &cfp))
			return false;
		end = stack + 8 * size;
		if (stack % 8 || size < 256 || size > 1u << 24 || cfp <= stack || cfp >= end ||
		    (end - cfp) % l->frame_size)
			return false;
		if (i >= infer->thread_count)
			continue;
		if (i == 0)
			dummies = (end - cfp) / l->frame_size - t->frame_count;
		if (dummies > 3 || (end - cfp) / l->frame_size - t->frame_count != dummies)
			return false;
	}
	return true;
}

/* With the ecs set: finds cfp, stride, iseq word, stack and size. Adds what fits to the picks. */
static void try_context(struct scry_infer *infer, struct scry_pick *frame, struct scry_pick *stack)
{
	struct scry_ruby_layout *l = &infer->child->layout;

	for (uint64_t cfp = 0; cfp < EC_BYTES; cfp += 8) {
		for (uint64_t stride = 40; stride <= 128; stride += 8) {
			for (uint64_t iseq = 0; iseq < stride; iseq += 8) {
				if (frames_fit(infer, cfp, stride, iseq))
					scry_pick_add(frame, cfp << 32 | stride << 16 | iseq);
			}
		}
	}
	if (!frame->hits)
		return;
	l->ec_cfp = (uint32_t)(frame->value >> 32);
	l->frame_size = (uint32_t)(frame->value >> 16) & 0xffff;
	l->frame_iseq = (uint32_t)frame->value & 0xffff;
	for (uint64_t s = 0; s < EC_BYTES; s += 8) {
		for (uint64_t n = 0; n < EC_BYTES; n += 8) {
			if (s != n && stack_fits(infer, s, n))
				scry_pick_add(stack, s << 32 | n);
		}
	}
}

/*
 * The root fiber, which contains its thread's ec, points back at the thread just like the ec does,
 * so two triangles may close. The ec is the one that begins with its stack (vm_core.h says "do not
 * move"). The machine registers saved at the ec's end may hold its thread once more: they are left
 * out, as "the first place" would take any copy before the field for it.
 */
static void try_ecs(struct scry_infer *infer, struct scry_pick picks[4])
{
	uint64_t best = ~0ull;

	for (uint64_t ec = 0; ec < STRUCT_BYTES; ec += 8) {
		for (uint64_t thread = 0; thread < EC_THREAD_BYTES; thread += 8) {
			struct scry_pick frame = {.parts = 3}, stack = {.parts = 2};

			if (!ec_fits(infer, ec, thread))
				continue;
			try_context(infer, &frame, &stack);
			if (!frame.hits || !stack.hits || (stack.value >> 32) > best)
				continue;
			if ((stack.value >> 32) < best)
				memset(picks, 0, 4 * sizeof(*picks));
			best = stack.value >> 32;
			scry_pick_add(&picks[0], ec);
			scry_pick_add(&picks[1], thread);
			picks[2] = frame;
			picks[3] = stack;
		}
	}
}

int scry_infer_threads(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick self = {.parts = 2}, picks[4] = {{0}};
	size_t n;
	int err;

	read_threads(infer);
	n = infer->thread_count;
	for (uint64_t data = 8; data < 64; data += 8) {
		for (uint64_t at = 0; at < STRUCT_BYTES; at += 8) {
			if (self_fits(infer, data, at))
				scry_pick_add(&self, data << 32 | at);
		}
	}
	err = scry_infer_item(infer, "thread of its object", &self, "%zu threads", n + 1);
	if (err)
		return err;
	infer->data_offset = (uint32_t)(self.value >> 32);
	l->th_self = (uint32_t)self.value;
	self_fits(infer, infer->data_offset, l->th_self);
	try_ecs(infer, picks);
	err = scry_infer_item(infer, "ec of its thread", &picks[0], "%zu threads", n + 1);
	if (!err)
		err = scry_infer_item(infer, "thread of its ec", &picks[1], "%zu threads", n + 1);
	if (!err)
		err = scry_infer_item(infer, "frames (cfp, size, iseq)", &picks[2],
				      "all known frames of %zu threads", n);
	if (!err)
		err = scry_infer_item(infer, "VM stack and its size", &picks[3], "%zu threads",
				      n + 1);
	if (err)
		return err;
	l->th_ec = (uint32_t)picks[0].value;
	l->ec_thread = (uint32_t)picks[1].value;
	l->ec_cfp = (uint32_t)(picks[2].value >> 32);
	l->frame_size = (uint32_t)(picks[2].value >> 16) & 0xffff;
	l->frame_iseq = (uint32_t)picks[2].value & 0xffff;
	l->ec_stack = (uint32_t)(picks[3].value >> 32);
	l->ec_stack_size = (uint32_t)picks[3].value;
	ec_fits(infer, l->th_ec, l->ec_thread);
	return 0;
}

/* --- the words of a frame ------------------------------------------------------------------------
 */

struct known_frame {
	uint64_t addr, stack, cfp;
	const struct scry_infer_piece *piece;
	uint32_t line;
	bool temporaries; /* three values lie on the stack below the call */
};

enum word { WORD_PC, WORD_SELF, WORD_EP, WORD_SP };

static bool word_is(struct scry_infer *infer, const struct known_frame *k, enum word what,
		    uint64_t word)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_ruby_iseq iseq = {k->piece->iseq, k->piece->body, k->piece->encoded,
				      k->piece->size};
	uint64_t flags, ep;
	uint32_t pos, line;

	switch (what) {
	case WORD_PC:
		return scry_ruby_iseq_position(&iseq, word, &pos) == 0 &&
		       scry_ruby_iseq_line(infer->child, &iseq, pos, &line) == 0 && line == k->line;
	case WORD_SELF:
		return word == scry_fact_addr(scry_fact_next(infer->calib, NULL, "self"), 1);
	case WORD_EP:
		return word > k->stack && word < k->cfp && scry_infer_word(infer, word, &flags) &&
		       (flags & 1) && (flags >> 16 & 0xffff) == FRAME_METHOD;
	case WORD_SP:
		return word < k->cfp && scry_infer_word(infer, k->addr + l->frame_ep, &ep) &&
		       word >= ep + 8 && (!k->temporaries || word == ep + 8 + 3 * 8);
	}
	return false;
}

/* Collects the frames whose code, line and self the child reported. */
static size_t known_frames(struct scry_infer *infer, struct known_frame *ret, size_t room)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	size_t n = 0;

	for (size_t i = 0; i < infer->thread_count; i++) {
		struct scry_infer_thread *t = &infer->threads[i];
		uint64_t cfp = 0, stack = 0;

		scry_infer_word(infer, t->ec + l->ec_cfp, &cfp);
		scry_infer_word(infer, t->ec + l->ec_stack, &stack);
		for (size_t j = 0; j < t->frame_count && j < FRAMES_CHECKED && n < room; j++) {
			const struct scry_infer_piece *p = piece_of(infer, t, j);

			if (!p)
				continue;
			ret[n++] = (struct known_frame){
				.addr = cfp + j * l->frame_size,
				.stack = stack,
				.cfp = cfp,
				.piece = p,
				.line = (uint32_t)scry_fact_number(&t->fact[1 + j], 2),
				.temporaries = strcmp(p->label, "scry_temporaries") == 0,
			};
		}
	}
	return n;
}

static struct scry_pick pick_word(struct scry_infer *infer, const struct known_frame *frames,
				  size_t n, enum word what)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick pick = {0};

	for (uint64_t at = 0; at < l->frame_size; at += 8) {
		bool fits = n > 0;

		for (size_t i = 0; i < n && fits; i++) {
			uint64_t word;

			fits = scry_infer_word(infer, frames[i].addr + at, &word) &&
			       word_is(infer, &frames[i], what, word);
		}
		if (fits)
			scry_pick_add(&pick, at);
	}
	return pick;
}

int scry_infer_frames(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct known_frame frames[128];
	size_t n = known_frames(infer, frames, 128);
	struct scry_pick pc, self, ep, sp;
	int err;

	if (!scry_fact_next(infer->calib, NULL, "self"))
		return scry_fail(-ENOTSUP, "cannot learn frames: the child reported no self");
	pc = pick_word(infer, frames, n, WORD_PC);
	self = pick_word(infer, frames, n, WORD_SELF);
	ep = pick_word(infer, frames, n, WORD_EP);
	l->frame_pc = (uint32_t)pc.value;
	l->frame_self = (uint32_t)self.value;
	l->frame_ep = (uint32_t)ep.value;
	sp = pick_word(infer, frames, n, WORD_SP);
	l->frame_sp = (uint32_t)sp.value;
	err = scry_infer_item(infer, "frame pc", &pc, "line right in %zu of %zu frames", n, n);
	if (!err)
		err = scry_infer_item(infer, "frame self", &self, "%zu frames", n);
	if (!err)
		err = scry_infer_item(infer, "frame ep", &ep, "%zu frames", n);
	if (!err)
		err = scry_infer_item(infer, "frame sp", &sp, "%zu frames", n);
	return err;
}
