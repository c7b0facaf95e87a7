/*
 * Sizes of living objects.
 *
 * Objects that lie near each other are read together, then judged by the same evaluator as in the
 * agent. What it wants from elsewhere (a byte of an st_table, a capacity of a shape) is one small
 * read, through a cache of words: shapes are few and shared by many objects.
 */
#include "vm/ruby_size.h"
#include "vm/ruby_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define WINDOW 65536u
#define HEAD 128u /* rules look at the first words of an object */
#define WORDS 1024u
#define NOT_READ (~0ull)

struct measure {
	const struct scry_ruby *ruby;
	struct scry_size_rules rules;
	uint64_t base; /* of bytes */
	size_t size;
	uint64_t page; /* whose slots are slot_size long; NOT_READ: none yet */
	uint32_t slot_size;
	uint64_t core[SCRY_SIZE_TYPES]; /* the usual class of each type; 0: not known */
	struct {
		uint64_t address, word;
	} words[WORDS];
	uint8_t bytes[WINDOW];
};

/* An object and its place in the caller's array. */
struct entry {
	uint64_t address;
	size_t at;
};

void scry_ruby_size_rules(const struct scry_ruby *ruby, struct scry_size_rules *ret)
{
	*ret = ruby->layout.sizes;
	if (ret->shape_root)
		ret->shape_root += ruby->bias;
	for (uint32_t i = 0; i < ret->rule_count; i++) {
		if (ret->rule[i].relative)
			ret->rule[i].word += ruby->bias;
	}
}

int scry_ruby_size_load(void *ctx, uint64_t address, uint32_t width, uint64_t *ret)
{
	const struct scry_ruby *ruby = ctx;

	*ret = 0;
	return scry_mem_read(&ruby->mem, address, ret, width);
}

uint32_t scry_ruby_slot_size(const struct scry_ruby *ruby, uint64_t address)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t page;
	uint16_t size;

	if (!l->page_mask ||
	    scry_mem_u64(&ruby->mem, (address & l->page_mask) + l->page_header, &page) ||
	    scry_mem_read(&ruby->mem, page + l->page_slot_size, &size, sizeof(size)) || size < 16 ||
	    size % 8)
		return l->slot_size;
	return size;
}

/* A scry_load_fn: what was read together, else a word through the cache. */
static inline int load_near(void *ctx, uint64_t address, uint32_t width, uint64_t *ret)
{
	struct measure *m = ctx;
	uint64_t offset = address - m->base, word = address & ~7ull;
	size_t at = (size_t)(word * 0x9e3779b97f4a7c15ull >> 54) % WORDS;

	*ret = 0;
	if (offset < m->size && m->size - offset >= width) {
		memcpy(ret, m->bytes + offset, width);
		return 0;
	}
	if (m->words[at].address != word) {
		if (scry_mem_u64(&m->ruby->mem, word, &m->words[at].word)) {
			m->words[at].address = 0;
			return -EFAULT;
		}
		m->words[at].address = word;
	}
	memcpy(ret, (const char *)&m->words[at].word + address % 8, width);
	return 0;
}

static enum scry_ring_class class_of(struct measure *m, uint64_t address, uint32_t type)
{
	uint64_t klass;

	if (load_near(m, address + SCRY_RUBY_CLASS, 8, &klass) || !klass)
		return SCRY_RING_CLASS_NONE;
	return klass == m->core[type] ? SCRY_RING_CLASS_CORE : SCRY_RING_CLASS_OTHER;
}

static void measure_one(struct measure *m, uint64_t address, struct scry_ruby_size *ret)
{
	uint64_t flags, page = address & m->ruby->layout.page_mask;
	int64_t extra;

	if (page != m->page) {
		m->page = page;
		m->slot_size = scry_ruby_slot_size(m->ruby, address);
	}
	memcpy(&flags, m->bytes + (address - m->base), sizeof(flags));
	*ret = (struct scry_ruby_size){.slot = m->slot_size,
				       .type = flags % SCRY_SIZE_TYPES,
				       .is_free = flags % SCRY_SIZE_TYPES == 0,
				       .end_class = SCRY_RING_CLASS_NONE};
	if (ret->is_free)
		return;
	ret->end_class = class_of(m, address, ret->type);
	extra = scry_size_extra(&m->rules, load_near, m, address, flags);
	ret->known = extra >= 0 && extra < SCRY_SIZE_MAX;
	ret->extra = ret->known ? (uint64_t)extra : 0;
}

static int by_address(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static void read_core(struct measure *m)
{
	for (uint32_t type = 0; type < SCRY_SIZE_TYPES; type++) {
		uint64_t at = scry_ruby_core_class(m->ruby, type);

		if (!at || scry_mem_u64(&m->ruby->mem, at, &m->core[type]))
			m->core[type] = 0;
	}
}

static struct entry *sorted(const uint64_t *address, size_t count)
{
	struct entry *entries = malloc((count + 1) * sizeof(*entries));
	bool in_order = true;

	for (size_t i = 0; entries && i < count; i++) {
		entries[i] = (struct entry){address[i], i};
		in_order = in_order && (i == 0 || address[i - 1] <= address[i]);
	}
	if (entries && !in_order)
		qsort(entries, count, sizeof(*entries), by_address);
	return entries;
}

/* Reads from the first entry on as many as lie in its window. How many bytes come, or -errno. */
static ssize_t read_window(struct measure *m, const struct entry *entries, size_t count)
{
	uint64_t start = entries[0].address, end = (start | (WINDOW - 1)) + 1, last = start;

	for (size_t i = 0; i < count && entries[i].address < end; i++)
		last = entries[i].address;
	if (last + HEAD < end)
		end = last + HEAD;
	m->base = start;
	m->size = 0;
	return scry_mem_read_some(&m->ruby->mem, start, m->bytes, (size_t)(end - start));
}

int scry_ruby_sizes(const struct scry_ruby *ruby, const uint64_t *address, size_t count,
		    struct scry_ruby_size *ret)
{
	struct measure *m = calloc(1, sizeof(*m));
	struct entry *entries = sorted(address, count);
	size_t i = 0;
	int err = 0;

	if (!ruby->elf) { /* not bound yet: whose memory is to be read is not known */
		err = -ESRCH;
		goto out;
	}
	if (!m || !entries) {
		err = scry_no_memory("measuring %zu objects", count);
		goto out;
	}
	m->ruby = ruby;
	m->page = NOT_READ;
	scry_ruby_size_rules(ruby, &m->rules);
	read_core(m);
	while (i < count && !err) {
		ssize_t n = read_window(m, entries + i, count - i);
		size_t before = i;

		if (n == -ESRCH)
			err = -ESRCH;
		m->size = n > 0 ? (size_t)n : 0;
		for (; i < count && entries[i].address - m->base + 8 <= m->size; i++)
			measure_one(m, entries[i].address, &ret[entries[i].at]);
		if (i == before) { /* its page was given back */
			ret[entries[i].at] = (struct scry_ruby_size){
				.slot = ruby->layout.slot_size, .end_class = SCRY_RING_CLASS_NONE};
			i++;
		}
	}
out:
	free(entries);
	free(m);
	return err;
}
