/*
 * Finding what a compaction moved where the VM does not show its heap pages (Ruby 3.4 on).
 *
 * Pages in which objects were made while watching are noted, 64 KiB each: one compare per object.
 * A slot that was left says so in three words: flags T_MOVED and nothing else, an undefined value,
 * and the new address (gc.c, gc_move). The pages are read by process_vm_readv from the process
 * itself, not by loads: one that the VM has given back meanwhile is a failed read and not a fault.
 * That is done inside a compaction only.
 */
#include "agent/load.h"
#include "agent/objects.h"

#define T_MOVED 0x1eu
#define SPECIAL_MAX 0x100u /* below: no pointer to an object */

static uint64_t read_self(uint64_t address, void *to, uint64_t size)
{
	const struct scry_agent_piece from = {address, size}, at = {(uint64_t)to, size};
	int64_t n = scry_calling_read((struct scry_agent_pieces){&at, 1},
				      (struct scry_agent_pieces){&from, 1});

	return n > 0 ? (uint64_t)n : 0;
}

static uint64_t moved_to(const uint64_t words[3])
{
	return words[0] == T_MOVED && words[1] < SPECIAL_MAX && is_pointer(words[2]) ? words[2] : 0;
}

void scry_pages_forget_all(void)
{
	struct scry_agent_pages *p = &scry_agent_tables.pages;

	if (!p->count)
		return;
	for (uint32_t i = 0; i < SCRY_PAGES; i++)
		p->set[i] = 0;
	for (uint32_t i = 0; i < SCRY_PAGES_RECENT; i++)
		p->recent[i] = 0;
	p->count = p->is_full = 0;
}

void scry_pages_add(uint64_t page)
{
	struct scry_agent_pages *p = &scry_agent_tables.pages;
	uint32_t at = (uint32_t)(page * 0x9e3779b97f4a7c15ull >> 40) & (SCRY_PAGES - 1);

	p->recent[page & (SCRY_PAGES_RECENT - 1)] = page;
	while (p->set[at] && p->set[at] != page)
		at = (at + 1) & (SCRY_PAGES - 1);
	if (p->set[at])
		return;
	if (p->count >= SCRY_PAGES / 4 * 3) {
		p->is_full = 1;
		return;
	}
	p->set[at] = page;
	p->count++;
}

int scry_pages_walk(void (*moved)(void *, uint64_t from, uint64_t to), void *context)
{
	struct scry_agent_pages *p = &scry_agent_tables.pages;

	for (uint32_t i = 0; i < SCRY_PAGES && p->count; i++) {
		uint64_t base = p->set[i] << 16, n;

		if (!base)
			continue;
		n = read_self(base, p->words, sizeof(p->words)) / 8;
		for (uint64_t at = 0; at + 2 < n; at++) {
			uint64_t to = moved_to(&p->words[at]);

			if (to)
				moved(context, base + 8 * at, to);
		}
	}
	return !p->is_full;
}

uint64_t scry_pages_moved(uint64_t object)
{
	uint64_t words[3];

	return read_self(object, words, sizeof(words)) == sizeof(words) ? moved_to(words) : 0;
}
