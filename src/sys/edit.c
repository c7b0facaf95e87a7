/*
 * Journal, expect, write, verify, undo. Every write is one pwrite on /proc/PID/mem that stays
 * within one page: the kernel copies it in one go, so a SIGKILL leaves either the old bytes or the
 * new ones. The order of the writes is the proof: entry PLANNED before the first changed byte,
 * APPLIED after the last.
 */
#include "sys/edit.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/elf.h"

int scry_edit_poke(int mem_fd, uint64_t addr, const void *buf, size_t size)
{
	const char *p = buf;

	while (size) {
		ssize_t n = pwrite(mem_fd, p, size, (off_t)addr);

		if (n == 0)
			return -ESRCH;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EIO ? -EFAULT : -errno;
		p += n;
		addr += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

static uint64_t entry_address(const struct scry_edit *e, size_t i)
{
	return e->journal + offsetof(struct scry_journal, entries) +
	       i * sizeof(struct scry_journal_entry);
}

int scry_edit_open(struct scry_edit *e, struct scry_mem *mem, uint64_t journal)
{
	uint64_t count;
	int r = scry_mem_u64(mem, journal, &count);

	if (r < 0)
		return scry_fail(r, "cannot read the journal of process %d", mem->pid);
	if (count > SCRY_JOURNAL_MAX)
		return scry_fail(-EINVAL, "the journal in process %d is damaged: %llu entries",
				 mem->pid, (unsigned long long)count);
	*e = (struct scry_edit){.mem = mem, .journal = journal, .count = (size_t)count};
	return 0;
}

int scry_edit_entry(const struct scry_edit *e, size_t i, struct scry_journal_entry *ret)
{
	int r = scry_mem_read(e->mem, entry_address(e, i), ret, sizeof(*ret));

	if (r < 0)
		return r;
	return ret->size && ret->size <= SCRY_EDIT_MAX ? 0 : -EINVAL;
}

static int set_state(const struct scry_edit *e, size_t i, uint16_t state)
{
	return scry_edit_poke(e->mem->fd,
			      entry_address(e, i) + offsetof(struct scry_journal_entry, state),
			      &state, sizeof(state));
}

static int check_change(const struct scry_edit *e, const struct scry_change *c)
{
	unsigned char now[SCRY_EDIT_MAX];
	int r;

	if (!c->size || c->size > SCRY_EDIT_MAX ||
	    c->addr / SCRY_PAGE != (c->addr + c->size - 1) / SCRY_PAGE)
		return scry_fail(-ERANGE,
				 "the %zu bytes at %#llx cross a page: a torn write could run",
				 c->size, (unsigned long long)c->addr);
	if (c->kind == SCRY_EDIT_SLOT && (c->size != 8 || c->addr % 8))
		return scry_fail(-ERANGE, "slot %#llx is not an aligned word",
				 (unsigned long long)c->addr);
	r = scry_mem_read(e->mem, c->addr, now, c->size);
	if (r < 0)
		return scry_fail(r, "cannot read %#llx in process %d", (unsigned long long)c->addr,
				 e->mem->pid);
	if (memcmp(now, c->old, c->size))
		return scry_fail(-EBUSY,
				 "the bytes at %#llx in process %d are not those of its file: "
				 "another tool has "
				 "changed them",
				 (unsigned long long)c->addr, e->mem->pid);
	return 0;
}

int scry_edit_change(struct scry_edit *e, const struct scry_change *c)
{
	struct scry_journal_entry entry = {.address = c->addr,
					   .size = (uint32_t)c->size,
					   .state = SCRY_EDIT_PLANNED,
					   .kind = (uint16_t)c->kind};
	unsigned char now[SCRY_EDIT_MAX];
	uint64_t count = e->count + 1;
	int r = check_change(e, c);

	if (r < 0)
		return r;
	if (e->count >= SCRY_JOURNAL_MAX)
		return scry_fail(-ENOSPC, "the journal is full: %zu changes", e->count);
	memcpy(entry.old, c->old, c->size);
	memcpy(entry.new_, c->new_, c->size);
	if (c->mapping) {
		entry.inode = c->mapping->inode;
		entry.file_offset = c->addr - c->mapping->start + c->mapping->offset;
	}
	r = scry_edit_poke(e->mem->fd, entry_address(e, e->count), &entry, sizeof(entry));
	if (r == 0)
		r = scry_edit_poke(e->mem->fd, e->journal, &count, sizeof(count));
	if (r < 0)
		return scry_fail(r, "cannot write the journal in process %d", e->mem->pid);
	e->count++;
	r = scry_edit_poke(e->mem->fd, c->addr, c->new_, c->size);
	if (r == 0)
		r = scry_mem_read(e->mem, c->addr, now, c->size);
	if (r == 0 && memcmp(now, c->new_, c->size))
		r = -EIO;
	if (r < 0)
		return scry_fail(r, "cannot change %zu bytes at %#llx in process %d", c->size,
				 (unsigned long long)c->addr, e->mem->pid);
	e->bytes_changed += c->size;
	return set_state(e, e->count - 1, SCRY_EDIT_APPLIED);
}

/* Are the old bytes of a TEXT entry those of the file that is mapped there? */
static bool is_files_bytes(const struct scry_edit *e, const struct scry_maps *maps,
			   const struct scry_journal_entry *j)
{
	const struct scry_map_entry *m = scry_maps_at(maps, j->address);
	unsigned char file[SCRY_EDIT_MAX];
	struct scry_elf *elf;
	uint64_t bias;
	bool same;

	if (!m || m->inode != j->inode || scry_elf_open_mapped(e->mem->pid, m, &elf) < 0)
		return false;
	same = scry_elf_bias(elf, maps, m, &bias) == 0 &&
	       scry_elf_read(elf, j->address - bias, file, j->size) == 0 &&
	       !memcmp(file, j->old, j->size);
	scry_elf_close(elf);
	return same;
}

static void undo_entry(struct scry_edit *e, const struct scry_maps *maps, size_t i,
		       struct scry_undo_report *report)
{
	struct scry_journal_entry j;
	unsigned char now[SCRY_EDIT_MAX];

	if (scry_edit_entry(e, i, &j) < 0 || j.state == SCRY_EDIT_UNDONE)
		return;
	report->entries++;
	if (scry_mem_read(e->mem, j.address, now, j.size) < 0) {
		report->failed++;
		return;
	}
	if (memcmp(now, j.old, j.size)) {
		if (memcmp(now, j.new_, j.size) ||
		    (j.kind == SCRY_EDIT_TEXT && !is_files_bytes(e, maps, &j))) {
			report->foreign++;
			return;
		}
		if (scry_edit_poke(e->mem->fd, j.address, j.old, j.size) < 0 ||
		    scry_mem_read(e->mem, j.address, now, j.size) < 0 ||
		    memcmp(now, j.old, j.size)) {
			report->failed++;
			return;
		}
		report->bytes += j.size;
	}
	report->restored++;
	set_state(e, i, SCRY_EDIT_UNDONE);
}

int scry_edit_undo(struct scry_edit *e, const struct scry_maps *maps, struct scry_undo_report *ret)
{
	struct scry_undo_report report = {0};
	uint64_t none = 0;

	for (size_t i = e->count; i-- > 0;)
		undo_entry(e, maps, i, &report);
	*ret = report;
	if (report.foreign || report.failed)
		return scry_fail(-EBUSY, "%zu of %zu changes in process %d could not be put back",
				 report.foreign + report.failed, report.entries, e->mem->pid);
	e->count = 0;
	return scry_edit_poke(e->mem->fd, e->journal, &none, sizeof(none));
}

size_t scry_edit_standing(const struct scry_edit *e)
{
	struct scry_journal_entry j;
	size_t standing = 0;

	for (size_t i = 0; i < e->count; i++)
		standing += scry_edit_entry(e, i, &j) == 0 && j.state != SCRY_EDIT_UNDONE;
	return standing;
}
