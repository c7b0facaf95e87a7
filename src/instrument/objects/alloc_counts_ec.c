/*
 * Where threads keep their execution context: the word of the Ruby module's thread-local storage
 * that holds it in every thread of the child. See alloc_counts.h.
 */
#include "instrument/objects/alloc_counts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define BLOCK_BYTES 4096u /* of thread-local storage that are looked at */

struct thread {
	uint64_t ec;
	uint64_t words[BLOCK_BYTES / 8]; /* of the module's block; 0 beyond fs */
};

static void read_block(const struct scry_alloc_counts *c, uint64_t fs, uint64_t module,
		       struct thread *ret)
{
	uint64_t block, size = BLOCK_BYTES;

	if (scry_ruby_tls_block(&c->child->mem, fs, module, &block) < 0)
		return;
	if (block < fs && fs - block < size)
		size = fs - block;
	scry_mem_read_some(&c->child->mem, block, ret->words, size & ~7ull);
}

/* The storage of each Ruby thread, all standing still. How many, or -errno. */
static ssize_t read_threads(struct scry_alloc_counts *c, uint64_t module, struct thread *ret,
			    size_t room)
{
	struct scry_ruby_thread *ruby;
	struct scry_stw w;
	ssize_t n = scry_ruby_threads(c->child, &ruby), found = 0;
	int r = n < 0 ? (int)n : scry_inject_stop(&c->inj, &w);

	for (size_t i = 0; r == 0 && i < w.count; i++)
		for (ssize_t k = 0; k < n && (size_t)found < room; k++)
			if (ruby[k].tid == w.threads[i].tid && ruby[k].ec && w.threads[i].stopped) {
				ret[found].ec = ruby[k].ec;
				read_block(c, w.threads[i].regs.fs_base, module, &ret[found++]);
			}
	if (r == 0)
		scry_inject_go(&c->inj, &w);
	if (n >= 0)
		free(ruby);
	return r < 0 ? r : found;
}

int scry_alloc_counts_find_ec(struct scry_alloc_counts *c)
{
	struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;
	struct thread *threads = calloc(4, sizeof(*threads));
	uint64_t module;
	size_t found = 0;
	ssize_t n = -ENOMEM;

	if (threads && scry_alloc_counts_ask(c, "thread", 1, NULL) == 0 &&
	    scry_ruby_tls_module(c->child, &module) == 0)
		n = read_threads(c, module, threads, 4);
	for (uint32_t at = 0; n > 1 && at < BLOCK_BYTES; at += 8) {
		ssize_t k = 0;

		while (k < n && threads[k].words[at / 8] == threads[k].ec)
			k++;
		if (k < n)
			continue;
		m->ec_offset = at;
		found++;
	}
	free(threads);
	m->has_ec = found == 1;
	scry_error_clear();
	return 0;
}
