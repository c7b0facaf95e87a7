/* See ruby_gvl.h. */
#include "vm/ruby_gvl.h"

#include <errno.h>
#include <string.h>

#define OWNER_BYTES 2048u  /* of a ractor that are searched */
#define THREAD_BYTES 1024u /* a node lies in these first ones of a thread's struct */

size_t scry_ruby_gvl_thread_of(const struct scry_ruby_thread *threads, size_t count, uint64_t node,
			       uint64_t *ret_at)
{
	size_t best = count;

	*ret_at = THREAD_BYTES;
	for (size_t i = 0; i < count; i++) {
		uint64_t at = node - threads[i].th;

		if (at >= *ret_at)
			continue;
		*ret_at = at;
		best = i;
	}
	return best;
}

/* Walks the ring whose head is at `head`; its members are marked when it closes. */
static void walk(const struct scry_ruby *ruby, const struct scry_ruby_thread *threads, size_t count,
		 uint64_t head, uint64_t next, bool *ret_waits)
{
	uint64_t offset = 0, back = head, at, node = next, links[2];

	for (int pass = 0; pass < 2; pass++) {
		for (size_t steps = 0; node != head; steps++) {
			size_t i = scry_ruby_gvl_thread_of(threads, count, node, &at);

			if (i == count || at == ruby->layout.th_node || steps > count ||
			    (steps && at != offset))
				return;
			offset = at;
			if (pass) {
				ret_waits[i] = true;
				if (scry_mem_u64(&ruby->mem, node, &node))
					return;
				continue;
			}
			if (scry_mem_read(&ruby->mem, node, links, sizeof(links)) ||
			    links[1] != back)
				return;
			back = node;
			node = links[0];
		}
		node = next;
	}
}

int scry_ruby_gvl_waiters(const struct scry_ruby *ruby, const struct scry_ruby_thread *threads,
			  size_t count, bool *ret_waits)
{
	uint64_t words[OWNER_BYTES / 8], done = 0, at;

	memset(ret_waits, 0, count * sizeof(*ret_waits));
	for (size_t i = 0; i < count; i++) {
		ssize_t got;

		if (threads[i].ractor == done) /* they come one after the other */
			continue;
		done = threads[i].ractor;
		got = scry_mem_read_some(&ruby->mem, done, words, sizeof(words));
		if (got < 0)
			return (int)got;
		for (size_t j = 0; j + 1 < (size_t)got / 8; j++)
			if (words[j] != done + 8 * j &&
			    scry_ruby_gvl_thread_of(threads, count, words[j], &at) != count &&
			    scry_ruby_gvl_thread_of(threads, count, words[j + 1], &at) != count)
				walk(ruby, threads, count, done + 8 * j, words[j], ret_waits);
	}
	return 0;
}

bool scry_ruby_gvl_is_holder(const struct scry_ruby *ruby, const struct scry_ruby_thread *threads,
			     size_t count, size_t which)
{
	uint64_t words[OWNER_BYTES / 8], ec = 0;
	ssize_t got = scry_mem_read_some(&ruby->mem, threads[which].ractor, words, sizeof(words));

	for (size_t j = 0; got > 0 && j < (size_t)got / 8; j++)
		for (size_t i = 0; i < count; i++) {
			if (!words[j] || words[j] != threads[i].ec)
				continue;
			if (ec && ec != words[j])
				return false;
			ec = words[j];
		}
	return ec && ec == threads[which].ec;
}
