/*
 * Infers which thread holds a Mutex, and the name of a Thread.
 *
 * The child's threads hold Mutexes, and each has released one. The word that says which thread
 * holds it is the one that leads to the right thread in all that are held: by its th, by its
 * object, or by the fiber that locked it, which is at one distance before its execution context. A
 * Mutex that no thread holds may still name the last that did, so a second word is needed: 0 in all
 * that are free, and in none that is held.
 */
#include <string.h>

#include "vm/ruby_infer.h"

#define MUTEX_BYTES 64u /* its words are looked for in the first bytes of its struct */
#define TH_BYTES 1024u
#define FIBER_BYTES 1024u
#define LOCKS_MAX 64u
#define HELD_LEAST 8u
#define FREE_LEAST 4u

struct lock {
	uint64_t words[MUTEX_BYTES / 8];
	const struct scry_infer_thread *by; /* NULL: no thread */
};

struct locks {
	struct lock all[LOCKS_MAX];
	size_t count, held;
};

static const struct scry_infer_thread *thread_of(const struct scry_infer *infer, uint64_t value)
{
	for (size_t i = 0; i < infer->thread_count; i++)
		if (infer->threads[i].value == value)
			return &infer->threads[i];
	return NULL;
}

static void read_locks(struct scry_infer *infer, const char *kind, struct locks *ret)
{
	const struct scry_fact *f = NULL;

	while (ret->count < LOCKS_MAX && (f = scry_fact_next(infer->calib, f, kind))) {
		struct lock *lock = &ret->all[ret->count];
		uint64_t at;

		lock->by = f->count > 2 ? thread_of(infer, scry_fact_addr(f, 2)) : NULL;
		if ((f->count > 2 && !lock->by) ||
		    !scry_infer_word(infer, scry_fact_addr(f, 1) + infer->data_offset, &at))
			continue;
		for (size_t i = 0; i < MUTEX_BYTES / 8; i++)
			if (!scry_infer_word(infer, at + 8 * i, &lock->words[i]))
				lock->words[i] = 0; /* behind its end */
		ret->count++;
		ret->held += lock->by != NULL;
	}
}

static bool leads_to(const struct lock *lock, size_t word, enum scry_ruby_owner_kind kind,
		     uint64_t distance)
{
	uint64_t was = lock->words[word];

	return kind == SCRY_RUBY_OWNER_TH	? was == lock->by->th
	       : kind == SCRY_RUBY_OWNER_OBJECT ? was == lock->by->value
						: was && was + distance == lock->by->ec;
}

/* The words that lead to the owner of all that are held. */
static struct scry_pick pick_owner(const struct locks *k, enum scry_ruby_owner_kind kind)
{
	struct scry_pick pick = {.parts = 2};

	for (size_t word = 0; word < MUTEX_BYTES / 8 && k->held; word++) {
		uint64_t distance = 0;
		bool fits = true;

		for (size_t i = 0; i < k->count && fits; i++) {
			const struct lock *lock = &k->all[i];

			if (!lock->by)
				continue;
			if (kind == SCRY_RUBY_OWNER_FIBER && !distance)
				distance = lock->by->ec - lock->words[word];
			fits = distance < FIBER_BYTES && leads_to(lock, word, kind, distance);
		}
		if (fits)
			scry_pick_add(&pick, word << 35 | distance);
	}
	return pick;
}

/* The first word that is 0 in those that are free, and in no other. */
static bool find_locked(const struct locks *k, uint32_t *ret)
{
	for (size_t word = 0; word < MUTEX_BYTES / 8; word++) {
		bool fits = true;

		for (size_t i = 0; i < k->count && fits; i++)
			fits = !k->all[i].by == !k->all[i].words[word];
		if (fits) {
			*ret = (uint32_t)(8 * word);
			return true;
		}
	}
	return false;
}

static void infer_owner(struct scry_infer *infer)
{
	static const enum scry_ruby_owner_kind kinds[] = {SCRY_RUBY_OWNER_FIBER, SCRY_RUBY_OWNER_TH,
							  SCRY_RUBY_OWNER_OBJECT};
	struct scry_ruby_lock_place *place = &infer->child->layout.locks;
	struct locks k = {.count = 0};
	struct scry_pick pick = {0};

	read_locks(infer, "held", &k);
	read_locks(infer, "free", &k);
	place->kind = SCRY_RUBY_OWNER_NONE;
	if (k.held >= HELD_LEAST && k.count - k.held >= FREE_LEAST &&
	    find_locked(&k, &place->locked))
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !place->kind; i++) {
			pick = pick_owner(&k, kinds[i]);
			if (pick.hits != 1)
				continue;
			place->kind = kinds[i];
			place->owner = (uint32_t)(pick.value >> 32);
			place->fiber_ec = (uint32_t)pick.value;
		}
	scry_infer_optional(infer, "owner of a Mutex", &pick,
			    place->kind == SCRY_RUBY_OWNER_FIBER ? "a fiber, in all that are held"
			    : place->kind == SCRY_RUBY_OWNER_OBJECT
				    ? "a Thread, in all that are held"
				    : "a th, in all that are held",
			    "which thread holds a Mutex is not known");
}

/* Has every thread its name there? */
static bool names_fit(struct scry_infer *infer, uint64_t at)
{
	const struct scry_fact *f = NULL;
	size_t count = 0;

	while ((f = scry_fact_next(infer->calib, f, "named"))) {
		const struct scry_infer_thread *t = thread_of(infer, scry_fact_addr(f, 1));
		char name[64];
		uint64_t word;

		scry_fact_text(f, 2, name, sizeof(name));
		if (!t || !scry_infer_word(infer, t->th + at, &word) ||
		    !scry_infer_is_string(infer, word, name))
			return false;
		count++;
	}
	return count >= 4;
}

static void infer_names(struct scry_infer *infer)
{
	struct scry_pick pick = {0};

	for (uint64_t at = 8; at < TH_BYTES; at += 8)
		if (names_fit(infer, at))
			scry_pick_add(&pick, at);
	infer->child->layout.locks.th_name = pick.hits == 1 ? (uint32_t)pick.value : 0;
	scry_infer_optional(infer, "name of a Thread", &pick, "the names of all threads",
			    "names are the kernel's, cut to 15 bytes");
}

int scry_infer_locks(struct scry_infer *infer)
{
	infer->child->layout.locks.data = infer->data_offset;
	infer_owner(infer);
	infer_names(infer);
	return 0;
}
