/* See stack.h. */
#include "sys/stack.h"

#include <errno.h>
#include <string.h>

#include "sys/edit.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/tracee.h"
#include "sys/written.h"

#define PAGE 4096u
#define DESCRIPTOR_BYTES 4096u
#define BARE_MAX (1ull << 32)
#define BEHIND_MAX 8192u	   /* from the thread register to the end of its block */
#define MARK 0x6572617073797263ull /* "cryspare" */
#define GUARD_WORD_MIN 2	   /* where a record's third word may lie: glibc, musl */
#define GUARD_WORD_MAX 4

/* In a core that gdb has made a guard looks as if it could be read. */
static bool is_guard(const struct scry_mem *mem, const struct scry_map_entry *m)
{
	return (!m->r || mem->image) && !m->w && !m->x && !m->inode;
}

static bool is_stack(const struct scry_map_entry *m)
{
	return m->r && m->w && !m->x && !m->shared && !m->inode;
}

static bool is_paged(uint64_t n)
{
	return n && n % PAGE == 0;
}

/* A guard that was made by MADV_GUARD_INSTALL is not a mapping: its pages cannot be read, not even
 * by force. */
static bool is_unreadable(const struct scry_mem *mem, uint64_t page)
{
	unsigned char byte;

	return scry_mem_read(mem, page, &byte, sizeof(byte)) == -EFAULT;
}

/* Do the `guard` bytes from `block` on guard the stack in mapping `m`? */
static bool guards(const struct scry_mem *mem, const struct scry_maps *maps,
		   const struct scry_map_entry *m, uint64_t block, uint64_t guard)
{
	const struct scry_map_entry *below = scry_maps_at(maps, block);

	if (below == m)
		return is_unreadable(mem, block) && is_unreadable(mem, block + guard - PAGE);
	return below && is_guard(mem, below) && below->end == block + guard &&
	       m->start == below->end;
}

/* Where a thread's stack ends, below `sp`, by the record of it in the thread's descriptor at `tp`;
 * 0: there is none. *ret_top is where its block does. */
static uint64_t thread_floor(const struct scry_mem *mem, const struct scry_maps *maps, uint64_t tp,
			     uint64_t sp, uint64_t *ret_top)
{
	const struct scry_map_entry *m = scry_maps_at(maps, sp);
	uint64_t words[DESCRIPTOR_BYTES / 8];
	ssize_t n;

	if (!m || !is_stack(m) || tp >= m->end || tp % 8)
		return 0;
	n = scry_mem_read_some(mem, tp, words, sizeof(words));
	for (ssize_t i = 0; i + GUARD_WORD_MAX < n / 8; i++) {
		const uint64_t block = words[i], size = words[i + 1];

		if (!is_paged(block) || !is_paged(size) || block > sp || tp - block >= size)
			continue;
		for (size_t k = GUARD_WORD_MIN; k <= GUARD_WORD_MAX; k++) {
			const uint64_t guard = words[(size_t)i + k];

			if (is_paged(guard) && guard < sp - block &&
			    guards(mem, maps, m, block, guard)) {
				*ret_top = block + size;
				return block + guard;
			}
		}
	}
	return 0;
}

uint64_t scry_stack_room(const struct scry_tracee *t, const struct scry_mem *mem,
			 const struct scry_maps *maps)
{
	const uint64_t sp = t->regs.rsp;
	const struct scry_map_entry *m = scry_maps_at(maps, sp);
	uint64_t floor = 0, top;

	if (!m || !m->r || !m->w || m->shared)
		return 0;
	if (!strcmp(m->path, "[stack]"))
		floor = t->tid == t->pid ? m->start : 0;
	else if (t->regs.fs_base > sp)
		floor = thread_floor(mem, maps, t->regs.fs_base, sp, &top);
	return floor ? sp - floor : 0;
}

/* The same of a thread without a guard, as a JVM's: its descriptor ends where its block does. */
static uint64_t bare_floor(const struct scry_mem *mem, uint64_t tp, uint64_t *ret_top)
{
	uint64_t words[DESCRIPTOR_BYTES / 8];
	ssize_t n = scry_mem_read_some(mem, tp, words, sizeof(words));

	for (ssize_t i = 0; i + 1 < n / 8; i++) {
		const uint64_t block = words[i], size = words[i + 1];

		if (is_paged(block) && is_paged(size) && block < tp && size <= BARE_MAX &&
		    block + size > tp && block + size - tp <= BEHIND_MAX) {
			*ret_top = block + size;
			return block;
		}
	}
	return 0;
}

bool scry_stack_of(const struct scry_mem *mem, const struct scry_maps *maps, uint64_t tp,
		   uint64_t *ret_low, uint64_t *ret_top)
{
	uint64_t top, low = thread_floor(mem, maps, tp, tp, &top);

	if (!low)
		low = bare_floor(mem, tp, &top);
	if (!low)
		return false;
	*ret_low = low;
	*ret_top = top;
	return true;
}

uint64_t scry_stack_owner(uint64_t at, const struct scry_mem *mem, const struct scry_maps *maps)
{
	const struct scry_map_entry *m = scry_maps_at(maps, at);
	uint64_t words[BEHIND_MAX / 8], from, low, top;
	ssize_t n;

	if (!m || !is_stack(m) || m->end - m->start < BEHIND_MAX)
		return 0;
	from = m->end - BEHIND_MAX;
	n = scry_mem_read_some(mem, from, words, sizeof(words)) / 8;
	for (ssize_t i = 0; i + 2 < n; i++) {
		const uint64_t tp = from + 8 * (uint64_t)i;

		/* a thread control block names itself twice */
		if (words[i] == tp && words[i + 2] == tp && at < tp &&
		    scry_stack_of(mem, maps, tp, &low, &top) && low <= at)
			return tp;
	}
	return 0;
}

static const struct scry_map_entry *first_stack(const struct scry_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->entries[i].path, "[stack]"))
			return &maps->entries[i];
	return NULL;
}

/* That of a word which scry has used: nothing else would write it, there. */
static uint64_t mark_of(uint64_t address)
{
	return address * 0x9e3779b97f4a7c15ull ^ MARK;
}

static bool is_marked(const struct scry_mem *mem, uint64_t floor)
{
	uint64_t words[SCRY_STACK_SPARE / 8];
	bool is = scry_mem_read(mem, floor, words, sizeof(words)) == 0;

	for (size_t i = 0; i < SCRY_STACK_SPARE / 8 && is; i++)
		is = words[i] == mark_of(floor + 8 * i);
	return is;
}

void scry_stack_mark(const struct scry_mem *mem, uint64_t end)
{
	const uint64_t floor = end - SCRY_STACK_SPARE;
	uint64_t words[SCRY_STACK_SPARE / 8];

	for (size_t i = 0; i < SCRY_STACK_SPARE / 8; i++)
		words[i] = mark_of(floor + 8 * i);
	scry_edit_poke(mem->fd, floor, words, sizeof(words));
}

uint64_t scry_stack_spare(const struct scry_tracee *t, const struct scry_mem *mem,
			  const struct scry_maps *maps)
{
	const bool is_first = t->tid == t->pid;
	const uint64_t tp = t->regs.fs_base;
	const struct scry_map_entry *m = is_first ? first_stack(maps) : scry_maps_at(maps, tp);
	struct scry_written written;
	uint64_t floor, unused, top, start, end;

	if (!m || !is_stack(m) || tp % 8)
		return 0;
	floor = is_first ? m->start : thread_floor(mem, maps, tp, tp - 8, &top);
	if (!floor || floor > m->end - 2 * SCRY_STACK_SPARE)
		return 0;
	unused = floor + SCRY_STACK_SPARE;
	top = unused + SCRY_STACK_SPARE;
	scry_written_open(&written, t->pid, maps);
	if (!scry_written_run(&written, unused, top, &start, &end) || start < top ||
	    !scry_written_run(&written, floor, unused, &start, &end) ||
	    (start < unused && !is_marked(mem, floor)))
		unused = 0;
	scry_written_close(&written);
	return unused;
}
