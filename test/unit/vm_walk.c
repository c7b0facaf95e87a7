/*
 * Walking and naming over the saved memory of Rubies, with no VM alive: frames are those of the
 * backtraces that the child told; and over memory that was damaged, where nothing may crash, hang
 * or be named by what it is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "vm/ruby_gvl.h"
#include "vm/ruby_symbol.h"
#include "vm/ruby_walk.h"

static const char *base_label(const char *label)
{
	const char *at;

	while ((at = strstr(label, " in ")) != NULL)
		label = at + 4;
	return label;
}

/* Walks a thread; returns how many frames agree with what was told of it. */
static size_t walk_one(struct learned *l, const struct scry_learn_thread *t, struct scry_walk *w,
		       struct scry_symbols *s)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	struct scry_ruby_thread thread = {.th = t->th, .ec = t->ec};
	struct scry_walk_hint hint = {0};
	size_t told = 0, compared = 0;

	enum scry_walk_verdict verdict = scry_walk_collect(w, &l->child, &thread, &hint);

	/* A page of values that no learner read was not saved: then it must say so. */
	if (verdict == SCRY_WALK_REJECTED)
		return 0;
	assert_int_equal(verdict, SCRY_WALK_VALID);
	assert_true(w->collects <= 8);
	scry_symbols_turn(s);
	scry_symbols_name(s, &l->child, w, named);
	for (size_t i = 0; i < w->count; i++) {
		const struct scry_symbol *symbol = scry_symbols_get(s, named[i].symbol);
		const struct scry_fact *f;
		char label[128], path[512];

		if (named[i].is_hidden)
			continue;
		assert_true(told < t->frame_count);
		f = &t->fact[1 + told++];
		scry_fact_text(f, 1, label, sizeof(label));
		scry_fact_text(f, 3, path, sizeof(path));
		if (!symbol) /* its pages were not saved, as no learner reads them */
			continue;
		compared++;
		assert_string_equal(base_label(scry_symbols_text(s, symbol->label)), label);
		if (symbol->is_c)
			continue;
		assert_int_equal(named[i].line, scry_fact_number(f, 2));
		assert_string_equal(scry_symbols_text(s, symbol->path), path);
	}
	assert_int_equal(told, t->frame_count);
	return compared;
}

/* The same thread as the kernel's side would copy it: the same frames. Returns how many. */
static size_t take_one(struct learned *l, struct scry_walk *w)
{
	static uint8_t frames[1 << 16], values[1 << 20];
	static struct scry_walk_frame collected[SCRY_WALK_FRAMES_MAX];
	const struct scry_ruby_layout *layout = &l->child.layout;
	size_t count = w->count;
	struct scry_walk_copy copy = {.ec = w->ec,
				      .stack = w->stack,
				      .end = w->end,
				      .cfp = w->end - count * layout->frame_size,
				      .bottom = w->stack,
				      .frames = frames,
				      .values = values,
				      .frames_size = count * layout->frame_size,
				      .newest = {0, layout->me_flags, w->frames[0].iseq}};
	bool is_method =
		layout->frame_me &&
		(!w->frames[0].iseq || SCRY_FRAME_TYPE(w->frames[0].flags) == SCRY_FRAME_METHOD);

	if (!count || w->is_dropped || w->is_cut || w->frames[0].ep < w->stack ||
	    w->frames[0].ep >= w->end)
		return 0;
	copy.top = w->frames[0].ep + 8;
	if (copy.frames_size > sizeof(frames) || copy.top - copy.bottom > sizeof(values) ||
	    scry_mem_read(&l->child.mem, copy.cfp, frames, copy.frames_size) ||
	    scry_mem_read(&l->child.mem, copy.bottom, values, copy.top - copy.bottom))
		return 0;
	memcpy(collected, w->frames, count * sizeof(*collected));
	for (int half = 0; half < 2; half++) {
		assert_int_equal(scry_walk_take(w, &l->child, &copy), SCRY_WALK_VALID);
		assert_int_equal(w->count, count);
		assert_memory_equal(w->frames, collected, count * sizeof(*collected));
		assert_int_equal(scry_walk_alive(w, &l->child), count);
		/* Again with the older half of the values not in the copy. */
		copy.bottom += (copy.top - copy.bottom) / 16 * 8;
		copy.values = values + (copy.bottom - copy.stack);
	}
	/* A frame that was not there then is not alive, nor any that is newer. */
	memset(frames + (count / 2) * layout->frame_size + layout->frame_iseq, 0, 8);
	copy.bottom = copy.stack;
	copy.values = values;
	scry_walk_take(w, &l->child, &copy);
	if (collected[count / 2].iseq && w->count == count)
		assert_int_equal(scry_walk_alive(w, &l->child), count - 1 - count / 2);
	/* A newest frame whose method was not there then is not there yet. */
	copy.newest.flags = 0;
	scry_walk_take(w, &l->child, &copy);
	assert_int_equal(w->is_dropped, is_method && count > 1);
	/* What makes no stack is refused. */
	copy.cfp += 4;
	assert_int_equal(scry_walk_take(w, &l->child, &copy), SCRY_WALK_REJECTED);
	copy.cfp = copy.end;
	assert_int_equal(scry_walk_take(w, &l->child, &copy), SCRY_WALK_REJECTED);
	return count;
}

static const char *const fixtures[] = {"debian-3.1.2", "ruby-3.0.6-shared", "ruby-3.3.8-static",
				       "ruby-4.0.3-shared"};

static void frames_are_those_told(void **state)
{
	for (size_t n = 0; n < sizeof(fixtures) / sizeof(fixtures[0]); n++) {
		struct scry_symbols symbols;
		struct learned learned;
		struct scry_walk walk;
		struct fixture f;
		size_t frames = 0, taken = 0;

		fixture_load(fixtures[n], &f);
		fixture_drop_facts(&f, "size ");
		assert_int_equal(fixture_learn(&f, &learned), 0);
		learned.child.mem = fixture_mem(&f);
		assert_int_equal(scry_walk_init(&walk), 0);
		assert_int_equal(scry_symbols_init(&symbols), 0);
		for (size_t i = 0; i < learned.learn.thread_count; i++) {
			frames += walk_one(&learned, &learned.learn.threads[i], &walk, &symbols);
			taken += take_one(&learned, &walk);
		}
		print_message("%s: %zu frames, %zu of copies\n", fixtures[n], frames, taken);
		assert_true(frames > 40);
		assert_true(taken > 40);
		scry_symbols_done(&symbols);
		scry_walk_done(&walk);
		learned_done(&learned);
		fixture_done(&f);
	}
}

static uint32_t seed = 1;

static uint32_t random_number(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

struct changed {
	uint8_t *at;
	uint64_t was;
};

/* Changes a word near something that is read: the ec, its frames and values, or any page. */
static struct changed damage(const struct fixture *f, const struct learned *l)
{
	struct changed changed = {0};
	const struct scry_learn_thread *t =
		&l->learn.threads[random_number() % l->learn.thread_count];
	uint64_t at = t->ec + random_number() % 256 / 8 * 8, word;
	uint8_t *byte;

	if (random_number() % 2)
		at = f->pages[random_number() % f->page_count].addr +
		     random_number() % 4096 / 8 * 8;
	byte = fixture_at(f, at);
	if (!byte)
		return changed;
	memcpy(&word, byte, sizeof(word));
	changed = (struct changed){byte, word};
	word = random_number() % 3   ? word + random_number() % 64 * 8
	       : random_number() % 2 ? random_number()
				     : word ^ 1ull << random_number() % 64;
	memcpy(byte, &word, sizeof(word));
	return changed;
}

#define CHANGES 24

static void damaged_memory(void **state)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	size_t verdicts[4] = {0}, unnamed = 0;
	struct scry_symbols symbols;
	struct learned learned;
	struct scry_walk walk;
	struct fixture f;
	bool waits[SCRY_LEARN_THREADS];

	fixture_load(fixtures[0], &f);
	fixture_drop_facts(&f, "size ");
	assert_int_equal(fixture_learn(&f, &learned), 0);
	learned.child.mem = fixture_mem(&f);
	assert_int_equal(scry_walk_init(&walk), 0);
	assert_int_equal(scry_symbols_init(&symbols), 0);
	for (int round = 0; round < 4000; round++) {
		struct scry_ruby_thread threads[SCRY_LEARN_THREADS];
		struct changed changed[CHANGES];

		for (int i = 0; i < CHANGES; i++)
			changed[i] = damage(&f, &learned);
		scry_symbols_turn(&symbols);
		for (size_t i = 0; i < learned.learn.thread_count; i++) {
			enum scry_walk_verdict verdict;

			threads[i] = (struct scry_ruby_thread){
				.th = learned.learn.threads[i].th,
				.ec = learned.learn.threads[i].ec,
				.ractor = learned.learn.ractor,
			};
			verdict = scry_walk_collect(&walk, &learned.child, &threads[i], NULL);
			verdicts[verdict]++;
			if (verdict <= SCRY_WALK_REPAIRED)
				unnamed +=
					scry_symbols_name(&symbols, &learned.child, &walk, named);
		}
		scry_ruby_gvl_waiters(&learned.child, threads, learned.learn.thread_count, waits);
		for (int i = CHANGES; i > 0; i--)
			if (changed[i - 1].at)
				memcpy(changed[i - 1].at, &changed[i - 1].was, 8);
	}
	print_message("valid %zu, repaired %zu, rejected %zu, empty %zu; %zu frames unnamed, %llu "
		      "symbols renamed\n",
		      verdicts[0], verdicts[1], verdicts[2], verdicts[3], unnamed,
		      (unsigned long long)symbols.renamed);
	assert_true(verdicts[SCRY_WALK_VALID] > 0 && verdicts[SCRY_WALK_REJECTED] > 0 &&
		    unnamed > 0 && symbols.renamed > 0);
	scry_symbols_done(&symbols);
	scry_walk_done(&walk);
	learned_done(&learned);
	fixture_done(&f);
}

/* Code that was freed, and other code in its place: the name is read anew. */
static void freed_code_lends_no_name(void **state)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	const struct scry_learn_thread *t;
	struct scry_ruby_thread thread;
	struct scry_symbols symbols;
	struct learned learned;
	struct scry_walk walk;
	struct fixture f;
	uint64_t label = 0, other = 0;
	uint32_t before;
	uint8_t *word;

	fixture_load(fixtures[0], &f);
	fixture_drop_facts(&f, "size ");
	assert_int_equal(fixture_learn(&f, &learned), 0);
	learned.child.mem = fixture_mem(&f);
	assert_int_equal(scry_walk_init(&walk), 0);
	assert_int_equal(scry_symbols_init(&symbols), 0);
	t = &learned.learn.threads[0];
	thread = (struct scry_ruby_thread){.th = t->th, .ec = t->ec};
	assert_int_equal(scry_walk_collect(&walk, &learned.child, &thread, NULL), SCRY_WALK_VALID);
	assert_int_equal(scry_symbols_name(&symbols, &learned.child, &walk, named), 0);
	for (size_t i = 0; i < walk.count; i++) {
		const struct scry_symbol *s = scry_symbols_get(&symbols, named[i].symbol);

		if (!s || s->is_c)
			continue;
		if (!label)
			label = i + 1;
		else if (strcmp(scry_symbols_text(&symbols, s->label),
				scry_symbols_text(&symbols,
						  symbols.rows[named[label - 1].symbol - 1].label)))
			other = i + 1;
	}
	assert_true(label && other);
	/* The body at the same place now has another label. */
	before = named[label - 1].symbol;
	word = fixture_at(&f, symbols.rows[before - 1].code.body + learned.child.layout.body_label);
	assert_non_null(word);
	memcpy(word,
	       fixture_at(&f, symbols.rows[named[other - 1].symbol - 1].code.body +
				      learned.child.layout.body_label),
	       8);
	scry_symbols_turn(&symbols);
	assert_int_equal(scry_symbols_name(&symbols, &learned.child, &walk, named), 0);
	assert_int_not_equal(named[label - 1].symbol, before);
	assert_string_equal(
		scry_symbols_text(&symbols, symbols.rows[named[label - 1].symbol - 1].label),
		scry_symbols_text(&symbols, symbols.rows[named[other - 1].symbol - 1].label));
	scry_symbols_done(&symbols);
	scry_walk_done(&walk);
	learned_done(&learned);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_are_those_told),
		cmocka_unit_test(damaged_memory),
		cmocka_unit_test(freed_code_lends_no_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
