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
static size_t walk_one(struct learned *l, const struct scry_infer_thread *t, struct scry_walk *w,
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

/* A saved Ruby, learned, and what names its stacks. */
static void begin(const char *name, struct fixture *f, struct learned *learned,
		  struct scry_walk *walk, struct scry_symbols *symbols)
{
	fixture_load(name, f);
	fixture_drop_facts(f, "size ");
	assert_int_equal(fixture_learn(f, learned), 0);
	learned->child.mem = fixture_mem(f);
	assert_int_equal(scry_walk_init(walk), 0);
	assert_int_equal(scry_symbols_init(symbols), 0);
}

static void end(struct fixture *f, struct learned *learned, struct scry_walk *walk,
		struct scry_symbols *symbols)
{
	scry_symbols_done(symbols);
	scry_walk_done(walk);
	learned_done(learned);
	fixture_done(f);
}

static void frames_are_those_told(void **state)
{
	for (const char *const *name = fixture_names(); *name; name++) {
		struct scry_symbols symbols;
		struct learned learned;
		struct scry_walk walk;
		struct fixture f;
		size_t frames = 0, taken = 0;

		begin(*name, &f, &learned, &walk, &symbols);
		for (size_t i = 0; i < learned.infer.thread_count; i++) {
			frames += walk_one(&learned, &learned.infer.threads[i], &walk, &symbols);
			taken += take_one(&learned, &walk);
		}
		print_message("%s: %zu frames, %zu of copies\n", *name, frames, taken);
		assert_true(frames > 40);
		assert_true(taken > 40);
		end(&f, &learned, &walk, &symbols);
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

/* Changes a word near something that is read: the ec, the thread, the ractor, all with their links,
 * the frames; or any page. */
static struct changed damage(const struct fixture *f, const struct learned *l)
{
	struct changed changed = {0};
	const struct scry_infer_thread *t =
		&l->infer.threads[random_number() % l->infer.thread_count];
	uint64_t at = f->pages[random_number() % f->page_count].addr, word, size = 4096;
	const uint64_t near[] = {t->ec, t->th, l->infer.ractor};
	uint32_t where = random_number() % 8;
	uint8_t *byte = fixture_at(f, t->ec + l->child.layout.ec_cfp);

	if (where < 3) {
		at = near[where];
		size = where ? 1024 : 256;
	} else if (where == 3 && byte) {
		memcpy(&at, byte, sizeof(at));
		size = 1024;
	}
	at += random_number() % size / 8 * 8;
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
#define READS_MAX 5000 /* of one walk, list or question: nothing goes on for ever */

struct counted { /* memory, and how often it was read */
	const struct fixture *f;
	struct scry_mem mem;
	size_t reads, most;
};

static int counted_read(const void *image, uint64_t addr, void *buf, size_t size)
{
	struct counted *c = *(struct counted *const *)image;

	c->reads++;
	return c->mem.image_read(c->mem.image, addr, buf, size);
}

static void count(struct counted *c)
{
	assert_true(c->reads <= READS_MAX);
	c->most = c->reads > c->most ? c->reads : c->most;
	c->reads = 0;
}

struct damaged {
	struct learned learned;
	struct counted counted;
	struct scry_symbols symbols;
	struct scry_walk walk;
	size_t verdicts[4], unnamed, listed, heaps;
};

/* All that reads a live Ruby over and over, once. */
static void read_all(struct damaged *d)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	const struct learned *l = &d->learned;
	struct scry_ruby_thread threads[SCRY_INFER_THREADS], *list = NULL;
	bool waits[SCRY_INFER_THREADS];
	ssize_t n;

	scry_symbols_turn(&d->symbols);
	for (size_t i = 0; i < l->infer.thread_count; i++) {
		enum scry_walk_verdict verdict;

		threads[i] = (struct scry_ruby_thread){
			.th = l->infer.threads[i].th,
			.ec = l->infer.threads[i].ec,
			.ractor = l->infer.ractor,
		};
		verdict = scry_walk_collect(&d->walk, &l->child, &threads[i], NULL);
		count(&d->counted);
		d->verdicts[verdict]++;
		if (verdict <= SCRY_WALK_REPAIRED)
			d->unnamed += scry_symbols_name(&d->symbols, &l->child, &d->walk, named);
		count(&d->counted);
	}
	scry_ruby_gvl_waiters(&l->child, threads, l->infer.thread_count, waits);
	count(&d->counted);
	n = scry_ruby_threads(&l->child, &list);
	count(&d->counted);
	assert_true(n < 1000);
	d->listed += n > 0;
	free(list);
	scry_walk_watch_gc(&d->walk, &l->child);
	count(&d->counted);
	d->heaps += d->walk.gc_heap != 0;
}

static size_t damage_one(const char *name, int rounds, struct damaged *d)
{
	struct counted *counted = &d->counted;
	struct fixture f;
	size_t all;

	*d = (struct damaged){0};
	fixture_load(name, &f);
	fixture_drop_facts(&f, "size ");
	assert_int_equal(fixture_learn(&f, &d->learned), 0);
	d->counted = (struct counted){.f = &f, .mem = fixture_mem(&f)};
	d->learned.child.mem =
		(struct scry_mem){.fd = -1, .image = &counted, .image_read = counted_read};
	assert_int_equal(scry_walk_init(&d->walk), 0);
	assert_int_equal(scry_symbols_init(&d->symbols), 0);
	read_all(d); /* whole */
	assert_true(d->listed == 1);
	for (int round = 0; round < rounds; round++) {
		struct changed changed[CHANGES];

		for (int i = 0; i < CHANGES; i++)
			changed[i] = damage(&f, &d->learned);
		read_all(d);
		for (int i = CHANGES; i > 0; i--)
			if (changed[i - 1].at)
				memcpy(changed[i - 1].at, &changed[i - 1].was, 8);
	}
	all = (size_t)(rounds + 1) * d->learned.infer.thread_count;
	assert_int_equal(d->verdicts[0] + d->verdicts[1] + d->verdicts[2] + d->verdicts[3], all);
	print_message("%s: valid %zu, repaired %zu, rejected %zu, empty %zu; %zu frames unnamed, "
		      "%llu symbols renamed; %zu lists and %zu heaps found; %zu reads at most\n",
		      name, d->verdicts[0], d->verdicts[1], d->verdicts[2], d->verdicts[3],
		      d->unnamed, (unsigned long long)d->symbols.renamed, d->listed, d->heaps,
		      d->counted.most);
	assert_true(d->verdicts[SCRY_WALK_VALID] > 0 && d->verdicts[SCRY_WALK_REJECTED] > 0 &&
		    d->unnamed > 0);
	scry_symbols_done(&d->symbols);
	scry_walk_done(&d->walk);
	learned_done(&d->learned);
	fixture_done(&f);
	return all;
}

static void damaged_memory(void **state)
{
	const int rounds = getenv("SCRY_SOAK") ? 40000 : 300;
	static struct damaged d;
	size_t all = 0;

	for (const char *const *name = fixture_names(); *name; name++)
		all += damage_one(*name, rounds, &d);
	print_message("%zu walks of damaged threads\n", all);
}

/* Code that was freed, and other code in its place: the name is read anew. */
static void freed_code_lends_no_name(void **state)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	const struct scry_infer_thread *t;
	struct scry_ruby_thread thread;
	struct scry_symbols symbols;
	struct learned learned;
	struct scry_walk walk;
	struct fixture f;
	uint64_t label = 0, other = 0;
	uint32_t before;
	uint8_t *word;

	begin(fixture_names()[0], &f, &learned, &walk, &symbols);
	t = &learned.infer.threads[0];
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
	end(&f, &learned, &walk, &symbols);
}

/* Changes what lies behind each method entry of the walk, which is another object. How many. */
static size_t change_neighbours(struct fixture *f, const struct learned *learned,
				const struct scry_walk *walk)
{
	const struct scry_ruby_layout *l = &learned->child.layout;
	uint32_t last = l->me_owner > l->me_def ? l->me_owner : l->me_def;
	size_t changed = 0;

	for (size_t i = 0; i < walk->count; i++) {
		uint64_t entry = walk->frames[i].entry;
		uint8_t *behind = NULL;

		if (entry && scry_walk_entry(&learned->child, entry) == entry)
			behind = fixture_at(f, entry + last + 8);
		if (!behind)
			continue;
		*behind ^= 0xff;
		changed++;
	}
	return changed;
}

/* Other objects that come and go beside a method entry take no name. */
static void neighbours_are_none_of_it(void **state)
{
	static struct scry_named_frame first[SCRY_WALK_FRAMES_MAX], then[SCRY_WALK_FRAMES_MAX];

	for (const char *const *name = fixture_names(); *name; name++) {
		struct scry_ruby_thread thread;
		struct scry_symbols symbols;
		struct learned learned;
		struct scry_walk walk;
		struct fixture f;
		size_t changed = 0;

		begin(*name, &f, &learned, &walk, &symbols);
		for (size_t i = 0; i < learned.infer.thread_count; i++) {
			const struct scry_infer_thread *t = &learned.infer.threads[i];

			thread = (struct scry_ruby_thread){.th = t->th, .ec = t->ec};
			if (scry_walk_collect(&walk, &learned.child, &thread, NULL) !=
			    SCRY_WALK_VALID)
				continue;
			scry_symbols_turn(&symbols);
			assert_int_equal(scry_symbols_name(&symbols, &learned.child, &walk, first),
					 0);
			changed += change_neighbours(&f, &learned, &walk);
			scry_symbols_turn(&symbols);
			assert_int_equal(scry_symbols_name(&symbols, &learned.child, &walk, then),
					 0);
			for (size_t k = 0; k < walk.count; k++)
				assert_int_equal(then[k].symbol, first[k].symbol);
		}
		assert_true(changed > 4);
		assert_int_equal(symbols.renamed, 0);
		print_message("%s: %zu neighbours\n", *name, changed);
		end(&f, &learned, &walk, &symbols);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neighbours_are_none_of_it),
		cmocka_unit_test(frames_are_those_told),
		cmocka_unit_test(damaged_memory),
		cmocka_unit_test(freed_code_lends_no_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
