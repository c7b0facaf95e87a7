/*
 * Rubies that exist nowhere: the saved memory of real ones with the fields of their structs moved
 * about by a seeded generator. Learning must find the moved offsets, or refuse; never anything
 * else.
 *
 * Moved are the fields of threads, execution contexts, ractors, the VM, iseqs and their bodies, the
 * line table and its entries, the words of control frames and their stride, and, where no symbol
 * names it, the word that holds the VM. Every pointer to a moved field follows it. Then the same
 * with a decoy: a second word that says what a field says in every struct of its kind. What stays
 * together is what a struct inside a struct is: list nodes, and first line with code location.
 * SCRY_SHUFFLE_SEEDS sets how many are tried of each Ruby.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "fixture.h"

#define SEEDS 60
#define WORDS_MAX 96
#define INSTANCES_MAX 512
#define POINTERS_MAX 8192
#define RING_MAX 32

enum kind { TH, EC, RACTOR, VM, ISEQ, BODY, KINDS };
/* Bytes from the beginning of each struct that are moved about: less than the struct has. */
static const uint32_t window[KINDS] = {128, 128, 448, 48, 40, 176};

struct instance {
	enum kind kind;
	uint64_t base;
};

/* A word in memory that points into a moved struct, not at its beginning. */
struct pointer {
	uint64_t at, value;
	enum kind kind;
	uint64_t base;
};

struct image {
	struct fixture f;
	struct scry_ruby_layout l; /* as it really is */
	struct instance instances[INSTANCES_MAX];
	size_t instance_count;
	struct pointer pointers[POINTERS_MAX];
	size_t pointer_count;
	uint64_t ecs[RING_MAX], ths[RING_MAX], ractors[2], vm;
	size_t th_count;    /* the last one is the second ractor's */
	struct page *pages; /* as saved */
	size_t page_count;
};

struct shuffle {
	uint32_t to[KINDS][WORDS_MAX]; /* new word of each old word */
	uint32_t frame_to[16], frame_size;
	uint32_t line_to;
	uint64_t root;
};

static uint64_t rng;

static uint32_t next_random(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 32) % below;
}

static uint64_t get(const struct image *m, uint64_t at)
{
	const uint8_t *bytes = fixture_at(&m->f, at);
	uint64_t word = 0;

	if (bytes)
		memcpy(&word, bytes, sizeof(word));
	return word;
}

static void put(struct image *m, uint64_t at, uint64_t word)
{
	if (!fixture_at(&m->f, at))
		fixture_add_page(&m->f, at & ~4095ull);
	memcpy(fixture_at(&m->f, at), &word, sizeof(word));
}

/* --- what is there -------------------------------------------------------------------------------
 */

static void add(struct image *m, enum kind kind, uint64_t base)
{
	for (size_t i = 0; i < m->instance_count; i++) {
		if (m->instances[i].base == base)
			return;
	}
	assert_true(m->instance_count < INSTANCES_MAX);
	m->instances[m->instance_count++] = (struct instance){kind, base};
}

static void add_code(struct image *m, uint64_t iseq)
{
	uint64_t body = get(m, iseq + m->l.iseq_body);

	if (iseq == 0 || body == 0)
		return;
	add(m, ISEQ, iseq);
	add(m, BODY, body);
}

static void add_thread(struct image *m, const struct scry_infer_thread *t)
{
	uint64_t cfp = get(m, t->ec + m->l.ec_cfp);
	uint64_t end = get(m, t->ec + m->l.ec_stack) + 8 * get(m, t->ec + m->l.ec_stack_size);

	assert_true(m->th_count < RING_MAX);
	m->ths[m->th_count] = t->th;
	m->ecs[m->th_count++] = t->ec;
	add(m, TH, t->th);
	add(m, EC, t->ec);
	for (; cfp < end; cfp += m->l.frame_size)
		add_code(m, get(m, cfp + m->l.frame_iseq));
}

/* Lists' own links are written anew; a pointer to the beginning means the struct. */
static void find_pointers(struct image *m)
{
	for (size_t p = 0; p < m->f.page_count; p++) {
		for (uint64_t at = 0; at < 4096; at += 8) {
			uint64_t value = get(m, m->f.pages[p].addr + at);

			for (size_t i = 0; value >> 32 && i < m->instance_count; i++) {
				const struct instance *in = &m->instances[i];

				if (value <= in->base || value - in->base >= window[in->kind])
					continue;
				assert_true(m->pointer_count < POINTERS_MAX);
				m->pointers[m->pointer_count++] = (struct pointer){
					m->f.pages[p].addr + at, value, in->kind, in->base};
			}
		}
	}
}

static void load(const char *name, struct image *m)
{
	struct learned learned;

	memset(m, 0, sizeof(*m));
	fixture_load(name, &m->f);
	fixture_drop_facts(&m->f, "size "); /* not moved, and dear */
	if (fixture_learn(&m->f, &learned) != 0)
		fail_msg("%s: %s", name, scry_error());
	m->l = learned.child.layout;
	for (size_t i = 0; i < learned.infer.thread_count; i++)
		add_thread(m, &learned.infer.threads[i]);
	add_thread(m, &learned.infer.main);
	add_thread(m, &learned.infer.other);
	m->ractors[0] = learned.infer.ractor;
	m->ractors[1] = learned.infer.other_ractor;
	m->vm = learned.infer.vm;
	add(m, RACTOR, m->ractors[0]);
	add(m, RACTOR, m->ractors[1]);
	add(m, VM, m->vm);
	for (size_t i = 0; i < learned.infer.piece_count; i++)
		add_code(m, learned.infer.pieces[i].iseq);
	learned_done(&learned);
	find_pointers(m);
	m->page_count = m->f.page_count;
	m->pages = malloc(m->page_count * sizeof(*m->pages));
	assert_non_null(m->pages);
	memcpy(m->pages, m->f.pages, m->page_count * sizeof(*m->pages));
}

static void restore(struct image *m)
{
	memcpy(m->f.pages, m->pages, m->page_count * sizeof(*m->pages));
	m->f.page_count = m->page_count;
}

/* --- where it goes -------------------------------------------------------------------------------
 */

/* Words that stay beside each other: how many begin at word `w` of the struct. */
static uint32_t together(const struct scry_ruby_layout *l, enum kind kind, uint32_t w)
{
	uint32_t at = w * 8;

	if ((kind == TH && at == l->th_node) || (kind == VM && at == l->vm_ractors) ||
	    (kind == RACTOR && (at == l->ractor_threads || at == l->ractor_node)))
		return 2;
	if (kind == BODY && at == l->body_insns_info)
		return 4;
	if (kind == BODY && at == (l->body_first_line & ~7u))
		return (l->body_insns_info - at) / 8;
	return 1;
}

/* A random order of the pieces of a struct; word 0 of an object (its flags) stays. */
static void shuffle_struct(const struct scry_ruby_layout *l, enum kind kind, uint32_t *to)
{
	uint32_t first[WORDS_MAX], length[WORDS_MAX], n = 0, words = window[kind] / 8, at = 0;
	uint32_t fixed = kind == ISEQ;

	for (uint32_t w = 0; w < words; w += length[n - 1]) {
		first[n] = w;
		length[n] = together(l, kind, w);
		if (w + length[n] > words) /* it goes on behind the window: stays */
			words = w;
		else
			n++;
		if (words == w)
			break;
	}
	for (uint32_t i = n - 1; i > fixed; i--) {
		uint32_t j = fixed + next_random(i + 1 - fixed);
		uint32_t f = first[i], len = length[i];

		first[i] = first[j];
		length[i] = length[j];
		first[j] = f;
		length[j] = len;
	}
	for (uint32_t w = 0; w < WORDS_MAX; w++)
		to[w] = w;
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < length[i]; k++)
			to[first[i] + k] = at++;
	}
}

/* The words of the line table change places among themselves, too. */
static void shuffle_lines(const struct scry_ruby_layout *l, uint32_t *to)
{
	uint32_t *words = to + l->body_insns_info / 8;

	for (uint32_t i = 3; i > 0; i--) {
		uint32_t j = next_random(i + 1), t = words[i];

		words[i] = words[j];
		words[j] = t;
	}
}

static void shuffle_frame(const struct scry_ruby_layout *l, struct shuffle *s)
{
	uint32_t words = l->frame_size / 8 + next_random(3), slots[16];

	s->frame_size = words * 8;
	for (uint32_t i = 0; i < words; i++)
		slots[i] = i;
	for (uint32_t i = words - 1; i > 0; i--) {
		uint32_t j = next_random(i + 1), t = slots[i];

		slots[i] = slots[j];
		slots[j] = t;
	}
	memcpy(s->frame_to, slots, sizeof(slots[0]) * words);
}

/* A word of the module's data that is zero, for the VM's address. */
static uint64_t pick_root(struct image *m)
{
	struct scry_ruby child = {.maps = m->f.maps, .elf = m->f.elf};
	uint64_t free_words[256], old = m->f.bias + m->l.vm_root;
	uint32_t n = 0;

	memcpy(child.module, m->f.module, sizeof(child.module));
	if (scry_ruby_symbol(&child, "ruby_current_vm_ptr"))
		return old;
	for (uint64_t at = old - 2048; at < old + 2048 && n < 256; at += 8) {
		if (fixture_at(&m->f, at) && get(m, at) == 0)
			free_words[n++] = at;
	}
	return n ? free_words[next_random(n)] : old;
}

static struct shuffle draw(struct image *m)
{
	struct shuffle s = {0};

	for (int kind = 0; kind < KINDS; kind++)
		shuffle_struct(&m->l, kind, s.to[kind]);
	shuffle_lines(&m->l, s.to[BODY]);
	shuffle_frame(&m->l, &s);
	s.line_to = 4 * next_random(m->l.insns_entry_size / 4);
	s.root = pick_root(m);
	return s;
}

static uint32_t moved(const struct shuffle *s, enum kind kind, uint32_t offset)
{
	if (offset >= window[kind])
		return offset;
	return s->to[kind][offset / 8] * 8 + offset % 8;
}

/* The words of the line table by their places in the body, and not in a struct inside it. */
static void flatten(struct scry_ruby_layout *l)
{
	l->insns_entries += l->body_insns_info;
	l->insns_count += l->body_insns_info;
	l->insns_succ += l->body_insns_info;
	if (l->insns_positions != SCRY_RUBY_NONE)
		l->insns_positions += l->body_insns_info;
	l->body_insns_info = 0;
}

static struct scry_ruby_layout expected(const struct image *m, const struct shuffle *s)
{
	struct scry_ruby_layout l = m->l;

	l.th_ec = moved(s, TH, l.th_ec);
	l.th_ractor = moved(s, TH, l.th_ractor);
	l.th_vm = moved(s, TH, l.th_vm);
	l.th_self = moved(s, TH, l.th_self);
	l.th_node = moved(s, TH, l.th_node);
	if (l.th_nt != SCRY_RUBY_NONE)
		l.th_nt = moved(s, TH, l.th_nt);
	else
		l.th_tid = moved(s, TH, l.th_tid);
	l.ec_stack = moved(s, EC, l.ec_stack);
	l.ec_stack_size = moved(s, EC, l.ec_stack_size);
	l.ec_cfp = moved(s, EC, l.ec_cfp);
	l.ec_thread = moved(s, EC, l.ec_thread);
	l.ractor_threads = moved(s, RACTOR, l.ractor_threads);
	l.ractor_node = moved(s, RACTOR, l.ractor_node);
	l.vm_ractors = moved(s, VM, l.vm_ractors);
	l.iseq_body = moved(s, ISEQ, l.iseq_body);
	l.body_encoded = moved(s, BODY, l.body_encoded);
	l.body_size = moved(s, BODY, l.body_size);
	l.body_path = moved(s, BODY, l.body_path);
	l.body_label = moved(s, BODY, l.body_label);
	l.body_first_line = moved(s, BODY, l.body_first_line);
	flatten(&l);
	l.insns_entries = moved(s, BODY, l.insns_entries);
	l.insns_count = moved(s, BODY, l.insns_count);
	l.insns_succ = moved(s, BODY, l.insns_succ);
	l.insns_positions = moved(s, BODY, l.insns_positions);
	l.insns_entry_line = s->line_to;
	l.frame_size = s->frame_size;
	l.frame_pc = s->frame_to[l.frame_pc / 8] * 8;
	l.frame_sp = s->frame_to[l.frame_sp / 8] * 8;
	l.frame_iseq = s->frame_to[l.frame_iseq / 8] * 8;
	l.frame_self = s->frame_to[l.frame_self / 8] * 8;
	l.frame_ep = s->frame_to[l.frame_ep / 8] * 8;
	l.vm_root = s->root - m->f.bias;
	return l;
}

/* --- moving it -----------------------------------------------------------------------------------
 */

/* Line entries: the line changes places with what stands where it goes. */
static void move_lines(struct image *m, const struct shuffle *s, uint64_t body)
{
	const struct scry_ruby_layout *l = &m->l;
	uint64_t info = body + l->body_insns_info, entries = get(m, info + l->insns_entries);
	uint32_t count = (uint32_t)get(m, info + l->insns_count);

	for (uint32_t i = 0; i < count && s->line_to != l->insns_entry_line; i++) {
		uint64_t at = entries + (uint64_t)i * l->insns_entry_size;
		uint8_t *a, *b, t[4];

		a = fixture_at(&m->f, at + l->insns_entry_line);
		b = fixture_at(&m->f, at + s->line_to);
		if (!a || !b)
			return;
		memcpy(t, a, 4);
		memcpy(a, b, 4);
		memcpy(b, t, 4);
	}
}

static void move_frames(struct image *m, const struct shuffle *s, uint64_t ec)
{
	const struct scry_ruby_layout *l = &m->l;
	uint64_t cfp = get(m, ec + l->ec_cfp);
	uint64_t end = get(m, ec + l->ec_stack) + 8 * get(m, ec + l->ec_stack_size);
	uint64_t n = (end - cfp) / l->frame_size, to = end - n * s->frame_size;
	uint32_t words = l->frame_size / 8;
	uint64_t old[256][16];

	assert_true(n < 256 && words <= 16);
	for (uint64_t i = 0; i < n; i++) {
		for (uint32_t w = 0; w < words; w++)
			old[i][w] = get(m, cfp + i * l->frame_size + w * 8);
	}
	for (uint64_t i = 0; i < n; i++) {
		for (uint32_t w = 0; w < s->frame_size / 8; w++)
			put(m, to + i * s->frame_size + w * 8, 0);
		for (uint32_t w = 0; w < words; w++)
			put(m, to + i * s->frame_size + s->frame_to[w] * 8, old[i][w]);
	}
	put(m, ec + l->ec_cfp, to);
}

static void move_struct(struct image *m, const struct shuffle *s, const struct instance *in)
{
	uint64_t old[WORDS_MAX];
	uint32_t words = window[in->kind] / 8;

	for (uint32_t w = 0; w < words; w++)
		old[w] = get(m, in->base + w * 8);
	for (uint32_t w = 0; w < words; w++)
		put(m, in->base + s->to[in->kind][w] * 8, old[w]);
}

/* A ring through the members, in the order they had. */
static void link_ring(struct image *m, uint64_t head, const uint64_t *nodes, size_t n)
{
	uint64_t last = head;

	for (size_t i = 0; i <= n; i++) {
		uint64_t at = i < n ? nodes[i] : head;

		put(m, last, at);
		put(m, at + 8, last);
		last = at;
	}
}

static void apply(struct image *m, const struct shuffle *s)
{
	struct scry_ruby_layout l = expected(m, s);
	uint64_t nodes[RING_MAX];

	for (size_t i = 0; i < m->instance_count; i++) {
		if (m->instances[i].kind == BODY)
			move_lines(m, s, m->instances[i].base);
	}
	for (size_t i = 0; i < m->pointer_count; i++) {
		const struct pointer *p = &m->pointers[i];

		put(m, p->at, p->base + moved(s, p->kind, (uint32_t)(p->value - p->base)));
	}
	for (size_t i = 0; i < m->th_count; i++)
		move_frames(m, s, m->ecs[i]);
	put(m, m->f.bias + m->l.vm_root, 0);
	put(m, s->root, m->vm);
	for (size_t i = 0; i < m->instance_count; i++)
		move_struct(m, s, &m->instances[i]);
	for (size_t i = 0; i < m->th_count; i++)
		nodes[i] = m->ths[i] + l.th_node;
	link_ring(m, m->ractors[0] + l.ractor_threads, nodes, m->th_count - 1);
	link_ring(m, m->ractors[1] + l.ractor_threads, nodes + m->th_count - 1, 1);
	nodes[0] = m->ractors[0] + l.ractor_node;
	nodes[1] = m->ractors[1] + l.ractor_node;
	link_ring(m, m->vm + l.vm_ractors, nodes, 2);
}

/* --- the test ------------------------------------------------------------------------------------
 */

static const char *const names[] = {
	"frame_size",
	"frame_pc",
	"frame_sp",
	"frame_iseq",
	"frame_self",
	"frame_ep",
	"ec_stack",
	"ec_stack_size",
	"ec_cfp",
	"ec_thread",
	"th_ec",
	"th_ractor",
	"th_vm",
	"th_self",
	"th_node",
	"th_tid",
	"th_nt",
	"ractor_threads",
	"ractor_node",
	"vm_ractors",
	"vm_root",
	"iseq_body",
	"body_encoded",
	"body_size",
	"body_path",
	"body_label",
	"body_first_line",
	"insns_entry_size",
	"insns_entry_line",
	"insns_entries",
	"insns_count",
	"insns_succ",
	"class_ext",
	"class_path",
	"string_ptr",
	"array_ptr",
	"trace_data",
};

/* Fields that a decoy may copy, and their struct. */
static const struct {
	const char *name;
	enum kind kind;
} copied[] = {
	{"th_ec", TH},	     {"th_ractor", TH},	  {"th_vm", TH},	{"th_self", TH},
	{"ec_cfp", EC},	     {"ec_thread", EC},	  {"ec_stack", EC},	{"ec_stack_size", EC},
	{"iseq_body", ISEQ}, {"body_path", BODY}, {"body_label", BODY}, {"body_encoded", BODY},
};

static bool is_field(const struct scry_ruby_layout *l, uint32_t word)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (field_of(l, names[i]) / 8 == word)
			return true;
	}
	return false;
}

/* A second word that says the same in every struct of the kind. Returns its name. */
static const char *add_decoy(struct image *m, const struct scry_ruby_layout *l)
{
	uint32_t which = next_random(sizeof(copied) / sizeof(copied[0])), to;
	uint32_t from = (uint32_t)field_of(l, copied[which].name), tries = 0;
	enum kind kind = copied[which].kind;

	do {
		to = next_random(window[kind] / 8 - 1) + 1;
		if (++tries == 1000)
			return "none: no word is free";
	} while (kind != ISEQ && is_field(l, to));
	for (size_t i = 0; i < m->instance_count; i++) {
		if (m->instances[i].kind == kind)
			put(m, m->instances[i].base + to * 8, get(m, m->instances[i].base + from));
	}
	return copied[which].name;
}

/* The machine code still is the real Ruby's: it must say that such a layout is none. */
static void distrusted(struct learned *learned, bool moved_label)
{
	int err = scry_ruby_cross_check(&learned->child, &learned->target);

	if (moved_label)
		assert_int_equal(err, -ENOTSUP);
	if (err)
		assert_non_null(strstr(scry_error(), "; it is not used"));
	scry_error_clear();
}

/* True when it was learned, as it must then be. */
static bool try_seed(struct image *m, const char *name, uint64_t seed, bool decoy)
{
	const char *copy = "";
	struct scry_ruby_layout want;
	struct learned learned;
	struct shuffle s;
	bool found;
	int wrong = 0;

	rng = 0x9e3779b97f4a7c15ull * (seed + 1);
	restore(m);
	s = draw(m);
	want = expected(m, &s);
	apply(m, &s);
	if (decoy)
		copy = add_decoy(m, &want);
	found = fixture_learn(&m->f, &learned) == 0;
	if (found)
		distrusted(&learned, want.body_label != m->l.body_label);
	flatten(&learned.child.layout);
	/* A word that is 0 in all code: beside another one it stays unknown. */
	if (found && learned.child.layout.insns_positions != SCRY_RUBY_NONE)
		assert_int_equal(learned.child.layout.insns_positions, want.insns_positions);
	for (size_t i = 0; found && i < sizeof(names) / sizeof(names[0]); i++) {
		uint64_t a = field_of(&want, names[i]);
		uint64_t b = field_of(&learned.child.layout, names[i]);

		if (a == b)
			continue;
		print_message("%s, seed %d: %s is at %d, learned as %d\n", name, (int)seed,
			      names[i], (int)a, (int)b);
		wrong++;
	}
	if (getenv("SCRY_SHUFFLE_TALK"))
		print_message("%s, seed %d, decoy '%s': %s\n", name, (int)seed, copy,
			      found ? wrong ? "WRONG" : "right" : scry_error());
	learned_done(&learned);
	assert_int_equal(wrong, 0);
	return found;
}

static void shuffle_all(const char *name)
{
	static struct image m;
	const char *text = getenv("SCRY_SHUFFLE_SEEDS");
	int seeds = text ? atoi(text) : SEEDS, found = 0, decoyed = 0;

	load(name, &m);
	for (int i = 0; i < seeds; i++)
		found += try_seed(&m, name, (uint64_t)i, false);
	for (int i = 0; i < seeds; i++)
		decoyed += try_seed(&m, name, (uint64_t)(seeds + i), true);
	print_message("%s: %d of %d shuffled ones learned, %d refused, 0 wrong; with a decoy %d "
		      "learned, %d refused, 0 wrong\n",
		      name, found, seeds, seeds - found, decoyed, seeds - decoyed);
	assert_true(found * 4 >= seeds * 3); /* a learner that refuses everything is none */
	assert_true(decoyed < seeds);	     /* and nor is one that is never in doubt */
	free(m.pages);
	fixture_done(&m.f);
}

static void test_debian(void **state)
{
	shuffle_all("debian-3.1.2");
}

static void test_33(void **state)
{
	shuffle_all("ruby-3.3.8-static");
}

static void test_34(void **state)
{
	shuffle_all("ruby-3.4.4-static");
}

static void test_40(void **state)
{
	shuffle_all("ruby-4.0.3-shared");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_debian),
		cmocka_unit_test(test_33),
		cmocka_unit_test(test_34),
		cmocka_unit_test(test_40),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
