/*
 * Infers the method entries of C frames and the table of names.
 *
 * The child's threads are in C methods whose names their backtraces give. Every word below ep,
 * every place of a definition in it and of an id in that, and every word of the module's data as
 * the table is tried, by the same reader that later names frames; the right ones name every frame.
 * All of it is optional.
 */
#include <stdio.h>
#include <string.h>

#include "vm/ruby_infer.h"

#define BELOW_EP 40u
#define ENTRY_BYTES 48u
#define DEFINITION_BYTES 96u
#define FRAMES 32
#define MODULE_MAX (64ull << 20)

struct c_frame {
	uint64_t cfp, ep;
	char name[64];
};

/* The frames without code, with the names that the backtraces give. */
static size_t collect(struct scry_infer *infer, struct c_frame *ret)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	size_t n = 0;

	for (size_t i = 0; i < infer->thread_count; i++) {
		const struct scry_infer_thread *t = &infer->threads[i];
		uint64_t cfp = 0, code;

		scry_infer_word(infer, t->ec + l->ec_cfp, &cfp);
		for (size_t j = 0; j < t->frame_count && n < FRAMES; j++, cfp += l->frame_size) {
			if (!scry_infer_word(infer, cfp + l->frame_iseq, &code) || code ||
			    !scry_infer_word(infer, cfp + l->frame_ep, &ret[n].ep))
				continue;
			ret[n].cfp = cfp;
			scry_fact_text(&t->fact[1 + j], 1, ret[n].name, sizeof(ret[n].name));
			n++;
		}
	}
	return n;
}

static size_t count_names(const struct c_frame *frames, size_t n)
{
	size_t names = 0, before;

	for (size_t i = 0; i < n; i++) {
		for (before = 0; strcmp(frames[before].name, frames[i].name) != 0; before++)
			;
		names += before == i;
	}
	return names;
}

/* Is the word this far below every frame's ep an internal object of one kind? */
static bool entries_fit(struct scry_infer *infer, const struct c_frame *frames, size_t n)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	uint64_t me, flags;

	for (size_t i = 0; i < n; i++) {
		if (!scry_infer_word(infer, frames[i].ep - l->frame_me, &me) ||
		    !scry_infer_word(infer, me, &flags) ||
		    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_IMEMO ||
		    (i && (flags & l->iseq_flags_mask) != l->me_flags))
			return false;
		l->me_flags = flags & l->iseq_flags_mask;
	}
	return true;
}

/* Has each name its own id here, and the same one everywhere? */
static bool ids_fit(struct scry_infer *infer, const struct c_frame *frames, size_t n)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	uint64_t ids[FRAMES], me, def;

	for (size_t i = 0; i < n; i++) {
		if (!scry_infer_word(infer, frames[i].ep - l->frame_me, &me) ||
		    !scry_infer_word(infer, me + l->me_def, &def) ||
		    !scry_infer_word(infer, def + l->def_id, &ids[i]) || !ids[i] || ids[i] >> 36)
			return false;
		for (size_t j = 0; j < i; j++) {
			if ((ids[j] == ids[i]) != (strcmp(frames[j].name, frames[i].name) == 0))
				return false;
		}
	}
	return true;
}

static bool names_fit(struct scry_infer *infer, const struct c_frame *frames, size_t n)
{
	char name[64];

	for (size_t i = 0; i < n; i++) {
		if (scry_ruby_c_method(infer->child, frames[i].cfp, name, sizeof(name)) < 0 ||
		    strcmp(name, frames[i].name) != 0)
			return false;
	}
	return true;
}

/* With the places given: which word of the module's data is the table? */
static void try_roots(struct scry_infer *infer, const struct c_frame *frames, size_t n,
		      struct scry_pick *root)
{
	static const uint32_t datas[] = {0, 24, 32, 40}; /* places of a T_DATA's pointer */
	struct scry_ruby *child = infer->child;
	uint64_t word, flags;

	for (size_t i = 0; i < child->maps.count; i++) {
		const struct scry_map_entry *e = &child->maps.entries[i];

		if (!scry_infer_is_data(child, i) || e->end - e->start > MODULE_MAX)
			continue;
		for (uint64_t at = e->start; at < e->end; at += 8) {
			if (!scry_infer_word(infer, at, &word) ||
			    !scry_infer_word(infer, word, &flags) ||
			    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_ARRAY)
				continue;
			child->layout.ids_root = at - child->bias;
			for (size_t k = 0; k < sizeof(datas) / sizeof(datas[0]); k++) {
				child->layout.ids_data = datas[k];
				if (names_fit(infer, frames, n))
					scry_pick_add(root, (uint64_t)datas[k] << 56 |
								    (at - child->bias));
			}
		}
	}
}

int scry_infer_methods(struct scry_infer *infer)
{
	static const char without[] = "methods written in C cannot be named";
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick places = {.parts = 3}, root = {0};
	struct c_frame frames[FRAMES];
	size_t n = collect(infer, frames), names = count_names(frames, n);
	char proof[96];

	for (l->frame_me = 8; l->frame_me <= BELOW_EP && names > 3; l->frame_me += 8) {
		if (!entries_fit(infer, frames, n))
			continue;
		for (l->me_def = 8; l->me_def < ENTRY_BYTES; l->me_def += 8) {
			for (l->def_id = 0; l->def_id < DEFINITION_BYTES; l->def_id += 8) {
				uint32_t hits = root.hits;

				if (!ids_fit(infer, frames, n))
					continue;
				try_roots(infer, frames, n, &root);
				if (root.hits > hits)
					scry_pick_add(&places, (uint64_t)l->frame_me << 32 |
								       l->me_def << 16 | l->def_id);
			}
		}
	}
	l->frame_me = (uint32_t)(places.value >> 32);
	l->me_def = (uint32_t)(places.value >> 16) & 0xffff;
	l->def_id = (uint32_t)places.value & 0xffff;
	l->ids_root = root.value & ~(0xffull << 56);
	l->ids_data = (uint32_t)(root.value >> 56);
	root.value = l->ids_root;
	snprintf(proof, sizeof(proof), "%zu C frames, %zu names", n, names);
	if (!scry_infer_optional(infer, "method of a C frame", &places, proof, without) ||
	    !scry_infer_optional(infer, "names of ids", &root, proof, without)) {
		l->frame_me = 0;
		l->ids_root = 0;
	}
	/* The entry's kind is the same in every Ruby of this layout. */
	if (l->frame_me)
		entries_fit(infer, frames, n);
	return 0;
}

/* Methods of the child's C frames whose owner is the same in every Ruby. */
static const struct {
	const char *name, *owner;
} owners[] = {
	{"sleep", "Kernel"},
	{"each_byte", "String"},
	{"each_value", "Hash"},
	{"instance_exec", "BasicObject"},
};

/* Is the word of the entry at `at` the owner itself, and not a proxy for an included module? */
static bool owner_fits(struct scry_infer *infer, uint64_t me, const char *owner, uint32_t at)
{
	uint64_t klass, flags;
	char name[64];

	return scry_infer_word(infer, me + at, &klass) && scry_infer_word(infer, klass, &flags) &&
	       (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_ICLASS &&
	       scry_ruby_class_name(infer->child, klass, name, sizeof(name)) == 0 &&
	       strcmp(name, owner) == 0;
}

static bool owners_fit(struct scry_infer *infer, const struct c_frame *frames, size_t n,
		       uint32_t at)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	size_t known = 0;

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < sizeof(owners) / sizeof(owners[0]); j++) {
			uint64_t me;

			if (strcmp(frames[i].name, owners[j].name) != 0)
				continue;
			if (!scry_infer_word(infer, frames[i].ep - l->frame_me, &me) ||
			    !owner_fits(infer, me, owners[j].owner, at))
				return false;
			known++;
		}
	}
	return known > 3;
}

/* Does the word of the definition at `at` hold the code of each known method, in all threads? */
static bool code_fits(struct scry_infer *infer, uint32_t at, size_t *ret_known)
{
	const struct scry_ruby_layout *l = &infer->child->layout;

	*ret_known = 0;
	for (size_t i = 0; i < infer->thread_count; i++) {
		const struct scry_infer_thread *t = &infer->threads[i];
		uint64_t cfp = 0;

		scry_infer_word(infer, t->ec + l->ec_cfp, &cfp);
		for (size_t j = 0; j < t->frame_count; j++, cfp += l->frame_size) {
			uint64_t ep, me, def, code, word;
			char name[64];

			scry_fact_text(&t->fact[1 + j], 1, name, sizeof(name));
			if (strncmp(name, "scry_rec", 8) != 0)
				continue;
			if (!scry_infer_word(infer, cfp + l->frame_iseq, &code) ||
			    !scry_infer_word(infer, cfp + l->frame_ep, &ep) ||
			    !scry_infer_word(infer, ep - l->frame_me, &me) ||
			    !scry_infer_word(infer, me + l->me_def, &def) ||
			    !scry_infer_word(infer, def + at, &word) || word != code)
				return false;
			++*ret_known;
		}
	}
	return *ret_known > 3;
}

static void infer_method_code(struct scry_infer *infer)
{
	struct scry_pick pick = {0};
	size_t known = 0, frames = 0;
	char proof[96];

	for (uint32_t at = 8; at < DEFINITION_BYTES; at += 8)
		if (code_fits(infer, at, &known)) {
			scry_pick_add(&pick, at);
			frames = known;
		}
	snprintf(proof, sizeof(proof), "%zu frames", frames);
	if (scry_infer_optional(infer, "code of a method", &pick, proof,
				"a frame that is just being pushed may be taken for the one that "
				"was there"))
		infer->child->layout.def_iseq = (uint32_t)pick.value;
}

int scry_infer_owners(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick pick = {0};
	struct c_frame frames[FRAMES];
	size_t n = l->frame_me ? collect(infer, frames) : 0;
	char proof[96];

	for (size_t i = 0; i < infer->word_count; i++)
		if (strcmp(infer->words_name[i], "leave") == 0)
			l->leave_word = infer->words[i] - infer->child->bias;
	for (uint32_t at = 8; at < ENTRY_BYTES && n; at += 8)
		if (owners_fit(infer, frames, n, at))
			scry_pick_add(&pick, at);
	snprintf(proof, sizeof(proof), "%zu C frames, %zu owners", n,
		 sizeof(owners) / sizeof(owners[0]));
	if (scry_infer_optional(infer, "owner of a method", &pick, proof,
				"methods are named without their class"))
		l->me_owner = (uint32_t)pick.value;
	if (l->frame_me)
		infer_method_code(infer);
	return 0;
}
