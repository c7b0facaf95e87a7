/*
 * Learns the method entries of C frames and the table of names.
 *
 * The child's threads stand in C methods whose names their backtraces tell. Every word below ep,
 * every place of a definition in it and of an id in that, and every word of the module's data as
 * the table is tried, by the same reader that later names frames; the right ones name every frame.
 * All of it is optional.
 */
#include <stdio.h>
#include <string.h>

#include "vm/ruby_learn.h"

#define BELOW_EP 40u
#define ENTRY_BYTES 48u
#define DEFINITION_BYTES 96u
#define FRAMES 32
#define MODULE_MAX (64ull << 20)

struct c_frame {
	uint64_t cfp, ep;
	char name[64];
};

/* The frames without code, with the names that the backtraces tell. */
static size_t collect(struct scry_learn *learn, struct c_frame *ret)
{
	const struct scry_ruby_layout *l = &learn->child->layout;
	size_t n = 0;

	for (size_t i = 0; i < learn->thread_count; i++) {
		const struct scry_learn_thread *t = &learn->threads[i];
		uint64_t cfp = 0, code;

		scry_learn_word(learn, t->ec + l->ec_cfp, &cfp);
		for (size_t j = 0; j < t->frame_count && n < FRAMES; j++, cfp += l->frame_size) {
			if (!scry_learn_word(learn, cfp + l->frame_iseq, &code) || code ||
			    !scry_learn_word(learn, cfp + l->frame_ep, &ret[n].ep))
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
static bool entries_fit(struct scry_learn *learn, const struct c_frame *frames, size_t n)
{
	struct scry_ruby_layout *l = &learn->child->layout;
	uint64_t me, flags;

	for (size_t i = 0; i < n; i++) {
		if (!scry_learn_word(learn, frames[i].ep - l->frame_me, &me) ||
		    !scry_learn_word(learn, me, &flags) ||
		    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_IMEMO ||
		    (i && (flags & l->iseq_flags_mask) != l->me_flags))
			return false;
		l->me_flags = flags & l->iseq_flags_mask;
	}
	return true;
}

/* Has each name its own id here, and the same one everywhere? */
static bool ids_fit(struct scry_learn *learn, const struct c_frame *frames, size_t n)
{
	const struct scry_ruby_layout *l = &learn->child->layout;
	uint64_t ids[FRAMES], me, def;

	for (size_t i = 0; i < n; i++) {
		if (!scry_learn_word(learn, frames[i].ep - l->frame_me, &me) ||
		    !scry_learn_word(learn, me + l->me_def, &def) ||
		    !scry_learn_word(learn, def + l->def_id, &ids[i]) || !ids[i] || ids[i] >> 36)
			return false;
		for (size_t j = 0; j < i; j++) {
			if ((ids[j] == ids[i]) != (strcmp(frames[j].name, frames[i].name) == 0))
				return false;
		}
	}
	return true;
}

static bool names_fit(struct scry_learn *learn, const struct c_frame *frames, size_t n)
{
	char name[64];

	for (size_t i = 0; i < n; i++) {
		if (scry_ruby_c_method(learn->child, frames[i].cfp, name, sizeof(name)) < 0 ||
		    strcmp(name, frames[i].name) != 0)
			return false;
	}
	return true;
}

/* With the places given: which word of the module's data is the table? */
static void try_roots(struct scry_learn *learn, const struct c_frame *frames, size_t n,
		      struct scry_pick *root)
{
	static const uint32_t datas[] = {0, 24, 32, 40}; /* places of a T_DATA's pointer */
	struct scry_ruby *child = learn->child;
	uint64_t word, flags;

	for (size_t i = 0; i < child->maps.count; i++) {
		const struct scry_map_entry *e = &child->maps.entries[i];

		if (!scry_learn_is_data(child, i) || e->end - e->start > MODULE_MAX)
			continue;
		for (uint64_t at = e->start; at < e->end; at += 8) {
			if (!scry_learn_word(learn, at, &word) ||
			    !scry_learn_word(learn, word, &flags) ||
			    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_ARRAY)
				continue;
			child->layout.ids_root = at - child->bias;
			for (size_t k = 0; k < sizeof(datas) / sizeof(datas[0]); k++) {
				child->layout.ids_data = datas[k];
				if (names_fit(learn, frames, n))
					scry_pick_add(root, (uint64_t)datas[k] << 56 |
								    (at - child->bias));
			}
		}
	}
}

int scry_learn_methods(struct scry_learn *learn)
{
	static const char without[] = "methods written in C cannot be named";
	struct scry_ruby_layout *l = &learn->child->layout;
	struct scry_pick places = {.parts = 3}, root = {0};
	struct c_frame frames[FRAMES];
	size_t n = collect(learn, frames), names = count_names(frames, n);
	char proof[96];

	for (l->frame_me = 8; l->frame_me <= BELOW_EP && names > 3; l->frame_me += 8) {
		if (!entries_fit(learn, frames, n))
			continue;
		for (l->me_def = 8; l->me_def < ENTRY_BYTES; l->me_def += 8) {
			for (l->def_id = 0; l->def_id < DEFINITION_BYTES; l->def_id += 8) {
				uint32_t hits = root.hits;

				if (!ids_fit(learn, frames, n))
					continue;
				try_roots(learn, frames, n, &root);
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
	if (!scry_learn_optional(learn, "method of a C frame", &places, proof, without) ||
	    !scry_learn_optional(learn, "names of ids", &root, proof, without)) {
		l->frame_me = 0;
		l->ids_root = 0;
	}
	/* The entry's kind is the same in every Ruby of this layout. */
	if (l->frame_me)
		entries_fit(learn, frames, n);
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

/* Is the word of the entry at `at` the owner itself, and not a stand-in for an included module? */
static bool owner_fits(struct scry_learn *learn, uint64_t me, const char *owner, uint32_t at)
{
	uint64_t klass, flags;
	char name[64];

	return scry_learn_word(learn, me + at, &klass) && scry_learn_word(learn, klass, &flags) &&
	       (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_ICLASS &&
	       scry_ruby_class_name(learn->child, klass, name, sizeof(name)) == 0 &&
	       strcmp(name, owner) == 0;
}

static bool owners_fit(struct scry_learn *learn, const struct c_frame *frames, size_t n,
		       uint32_t at)
{
	const struct scry_ruby_layout *l = &learn->child->layout;
	size_t known = 0;

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < sizeof(owners) / sizeof(owners[0]); j++) {
			uint64_t me;

			if (strcmp(frames[i].name, owners[j].name) != 0)
				continue;
			if (!scry_learn_word(learn, frames[i].ep - l->frame_me, &me) ||
			    !owner_fits(learn, me, owners[j].owner, at))
				return false;
			known++;
		}
	}
	return known > 3;
}

/* Does the word of the definition at `at` hold the code of each known method, in all threads? */
static bool code_fits(struct scry_learn *learn, uint32_t at, size_t *ret_known)
{
	const struct scry_ruby_layout *l = &learn->child->layout;

	*ret_known = 0;
	for (size_t i = 0; i < learn->thread_count; i++) {
		const struct scry_learn_thread *t = &learn->threads[i];
		uint64_t cfp = 0;

		scry_learn_word(learn, t->ec + l->ec_cfp, &cfp);
		for (size_t j = 0; j < t->frame_count; j++, cfp += l->frame_size) {
			uint64_t ep, me, def, code, word;
			char name[64];

			scry_fact_text(&t->fact[1 + j], 1, name, sizeof(name));
			if (strncmp(name, "scry_rec", 8) != 0)
				continue;
			if (!scry_learn_word(learn, cfp + l->frame_iseq, &code) ||
			    !scry_learn_word(learn, cfp + l->frame_ep, &ep) ||
			    !scry_learn_word(learn, ep - l->frame_me, &me) ||
			    !scry_learn_word(learn, me + l->me_def, &def) ||
			    !scry_learn_word(learn, def + at, &word) || word != code)
				return false;
			++*ret_known;
		}
	}
	return *ret_known > 3;
}

static void learn_method_code(struct scry_learn *learn)
{
	struct scry_pick pick = {0};
	size_t known = 0, frames = 0;
	char proof[96];

	for (uint32_t at = 8; at < DEFINITION_BYTES; at += 8)
		if (code_fits(learn, at, &known)) {
			scry_pick_add(&pick, at);
			frames = known;
		}
	snprintf(proof, sizeof(proof), "%zu frames", frames);
	if (scry_learn_optional(learn, "code of a method", &pick, proof,
				"a frame that is just being pushed may be taken for the one that "
				"was there"))
		learn->child->layout.def_iseq = (uint32_t)pick.value;
}

int scry_learn_owners(struct scry_learn *learn)
{
	struct scry_ruby_layout *l = &learn->child->layout;
	struct scry_pick pick = {0};
	struct c_frame frames[FRAMES];
	size_t n = l->frame_me ? collect(learn, frames) : 0;
	char proof[96];

	for (size_t i = 0; i < learn->word_count; i++)
		if (strcmp(learn->words_name[i], "leave") == 0)
			l->leave_word = learn->words[i] - learn->child->bias;
	for (uint32_t at = 8; at < ENTRY_BYTES && n; at += 8)
		if (owners_fit(learn, frames, n, at))
			scry_pick_add(&pick, at);
	snprintf(proof, sizeof(proof), "%zu C frames, %zu owners", n,
		 sizeof(owners) / sizeof(owners[0]));
	if (scry_learn_optional(learn, "owner of a method", &pick, proof,
				"methods are named without their class"))
		l->me_owner = (uint32_t)pick.value;
	if (l->frame_me)
		learn_method_code(learn);
	return 0;
}
