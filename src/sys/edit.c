/*
 * Journal, expect, write, verify, undo. Every write is one pwrite on /proc/PID/mem that stays
 * within one page: the kernel copies it in one go, so a SIGKILL leaves either the old bytes or the
 * new ones. The order of the writes is the proof: entry PLANNED before the first changed byte,
 * APPLIED after the last.
 */
#include "sys/edit.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/elf.h"
#include "sys/guard.h"

#define LOOKS_MAX (1u << 26) /* some tenths of a second */

int scry_edit_poke(int mem_fd, uint64_t addr, const void *buf, size_t size)
{
	const char *p = buf;

	while (size) {
		ssize_t n;

		scry_guard_touch(0, addr);
		n = pwrite(mem_fd, p, size, (off_t)addr);
		scry_guard_touched();
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

void scry_undo_add(struct scry_undo_report *to, const struct scry_undo_report *from)
{
	to->entries += from->entries;
	to->restored += from->restored;
	to->foreign += from->foreign;
	to->failed += from->failed;
	to->bytes += from->bytes;
}

static uint64_t entry_address(const struct scry_edit *e, size_t i)
{
	return e->journal + offsetof(struct scry_journal, entries) +
	       i * sizeof(struct scry_journal_entry);
}

static int make_room(struct scry_edit *e, size_t n)
{
	struct scry_journal_entry *more;
	size_t capacity = e->capacity ? e->capacity : 64;

	while (capacity < e->count + n)
		capacity *= 2;
	if (capacity == e->capacity)
		return 0;
	more = realloc(e->entries, capacity * sizeof(*more));
	if (!more)
		return scry_no_memory("the journal");
	e->entries = more;
	e->capacity = capacity;
	return 0;
}

/* One that scry_edit_plan would have made: the journal is the target's to forge. */
static bool is_entry(const struct scry_journal_entry *j)
{
	return j->size && j->size <= SCRY_EDIT_MAX &&
	       j->address / SCRY_PAGE == (j->address + j->size - 1) / SCRY_PAGE;
}

int scry_edit_open(struct scry_edit *e, struct scry_mem *mem, uint64_t journal)
{
	uint64_t count;
	int r = scry_mem_u64(mem, journal, &count);

	*e = (struct scry_edit){.mem = mem, .journal = journal};
	if (r < 0)
		return scry_fail(r, "cannot read the journal of process %d", mem->pid);
	if (count > SCRY_JOURNAL_MAX)
		return scry_fail(-EINVAL, "the journal in process %d is damaged: %llu entries",
				 mem->pid, (unsigned long long)count);
	r = make_room(e, count);
	if (r == 0 && count)
		r = scry_mem_read(mem, entry_address(e, 0), e->entries,
				  count * sizeof(*e->entries));
	if (r < 0)
		return scry_fail(r, "cannot read the journal of process %d", mem->pid);
	for (size_t i = 0; i < count; i++)
		if (!is_entry(&e->entries[i]))
			return scry_fail(-EINVAL, "the journal in process %d is damaged: entry %zu",
					 mem->pid, i);
	e->count = (size_t)count;
	return 0;
}

void scry_edit_close(struct scry_edit *e)
{
	free(e->entries);
	free(e->known);
	*e = (struct scry_edit){0};
}

/* The entries [first, first + n) as we have them, into the target. */
static int write_entries(const struct scry_edit *e, size_t first, size_t n)
{
	int r = n ? scry_edit_poke(e->mem->fd, entry_address(e, first), e->entries + first,
				   n * sizeof(*e->entries))
		  : 0;

	return r < 0 ? scry_fail(r, "cannot write the journal in process %d", e->mem->pid) : 0;
}

static int write_count(struct scry_edit *e, size_t count)
{
	uint64_t word = count;
	int r = scry_edit_poke(e->mem->fd, e->journal, &word, sizeof(word));

	if (r < 0)
		return scry_fail(r, "cannot write the journal in process %d", e->mem->pid);
	e->count = count;
	return 0;
}

/* Are these bytes there? */
static int expect(const struct scry_edit *e, uint64_t addr, const void *bytes, size_t size)
{
	unsigned char now[SCRY_EDIT_MAX];
	int r = scry_mem_read(e->mem, addr, now, size);

	if (r < 0)
		return scry_fail(r, "cannot read %#llx in process %d", (unsigned long long)addr,
				 e->mem->pid);
	if (memcmp(now, bytes, size))
		return scry_fail(-EBUSY,
				 "the bytes at %#llx in process %d are not those of its file: "
				 "another tool has changed them",
				 (unsigned long long)addr, e->mem->pid);
	return 0;
}

int scry_edit_check(const struct scry_edit *e, const struct scry_change *c)
{
	if (!c->size || c->size > SCRY_EDIT_MAX ||
	    c->addr / SCRY_PAGE != (c->addr + c->size - 1) / SCRY_PAGE)
		return scry_fail(-ERANGE,
				 "the %zu bytes at %#llx cross a page: a torn write could run",
				 c->size, (unsigned long long)c->addr);
	if (c->kind == SCRY_EDIT_SLOT && (c->size != 8 || c->addr % 8))
		return scry_fail(-ERANGE, "slot %#llx is not an aligned word",
				 (unsigned long long)c->addr);
	return expect(e, c->addr, c->old, c->size);
}

int scry_edit_plan(struct scry_edit *e, const struct scry_change *changes, size_t n)
{
	int r = 0;

	if (e->count + n > SCRY_JOURNAL_MAX)
		return scry_fail(-ENOSPC, "the journal has room for %zu changes, %zu are asked for",
				 (size_t)SCRY_JOURNAL_MAX - e->count, n);
	r = make_room(e, n);
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct scry_change *c = &changes[i];
		struct scry_journal_entry *entry = &e->entries[e->count + i];

		*entry = (struct scry_journal_entry){.address = c->addr,
						     .size = (uint16_t)c->size,
						     .is_over = c->is_over,
						     .set = e->set,
						     .state = SCRY_EDIT_PLANNED,
						     .kind = (uint16_t)c->kind};
		r = scry_edit_check(e, c);
		memcpy(entry->old, c->old, c->size);
		memcpy(entry->new_, c->new_, c->size);
		if (c->mapping) {
			entry->inode = c->mapping->inode;
			entry->file_offset = c->addr - c->mapping->start + c->mapping->offset;
		}
	}
	if (r == 0)
		r = write_entries(e, e->count, n);
	return r < 0 ? r : write_count(e, e->count + n);
}

static int apply_entry(struct scry_edit *e, struct scry_journal_entry *j)
{
	int r = expect(e, j->address, j->old, j->size);

	if (r < 0)
		return r;
	r = scry_edit_poke(e->mem->fd, j->address, j->new_, j->size);
	if (r == 0)
		r = expect(e, j->address, j->new_, j->size);
	if (r < 0)
		return scry_fail(r, "cannot change %u bytes at %#llx in process %d", j->size,
				 (unsigned long long)j->address, e->mem->pid);
	j->state = SCRY_EDIT_APPLIED;
	e->bytes_changed += j->size;
	return 0;
}

/*
 * Entries of TEXT that follow one another in a page are written together: one copy by the kernel,
 * as for a single one. Between them lies code, which nothing else writes while all are stopped;
 * slots have data between them and go one by one.
 */
struct span {
	uint64_t start, end;
	size_t first, count; /* entries */
	unsigned char bytes[SCRY_PAGE], now[SCRY_PAGE];
};

static bool is_text(const struct scry_journal_entry *j, enum scry_edit_state state)
{
	return j->kind == SCRY_EDIT_TEXT && j->state == state;
}

/* The entries from `first` on, in steps of `step`, that share a page and have `state`; at most n.
 */
static void gather(const struct scry_edit *e, struct span *s, size_t n, int step,
		   enum scry_edit_state state)
{
	const struct scry_journal_entry *j = &e->entries[s->first];
	const uint64_t page = j->address / SCRY_PAGE;

	s->start = j->address;
	s->end = j->address + j->size;
	for (s->count = 1; s->count < n; s->count++) {
		j += step;
		if (!is_text(j, state) || j->address / SCRY_PAGE != page ||
		    (j->address + j->size - 1) / SCRY_PAGE != page)
			break;
		s->start = j->address < s->start ? j->address : s->start;
		s->end = j->address + j->size > s->end ? j->address + j->size : s->end;
	}
}

/* One write, and a look at what is there now: 0, or -errno. */
static int write_span(const struct scry_edit *e, struct span *s)
{
	size_t size = s->end - s->start;
	int r = scry_edit_poke(e->mem->fd, s->start, s->bytes, size);

	if (r == 0)
		r = scry_mem_read(e->mem, s->start, s->now, size);
	return r < 0 ? r : memcmp(s->now, s->bytes, size) ? -EIO : 0;
}

/* From e->entries[s->first] on: how many were applied together, 0: they have to go one by one. */
static size_t apply_span(struct scry_edit *e, struct span *s, size_t n)
{
	gather(e, s, n, 1, SCRY_EDIT_PLANNED);
	if (s->count < 2 || scry_mem_read(e->mem, s->start, s->bytes, s->end - s->start) < 0)
		return 0;
	for (size_t i = s->first; i < s->first + s->count; i++) {
		const struct scry_journal_entry *j = &e->entries[i];
		unsigned char *at = s->bytes + (j->address - s->start);

		if (memcmp(at, j->old, j->size))
			return 0;
		memcpy(at, j->new_, j->size);
	}
	if (write_span(e, s) < 0)
		return 0;
	for (size_t i = s->first; i < s->first + s->count; i++) {
		e->entries[i].state = SCRY_EDIT_APPLIED;
		e->bytes_changed += e->entries[i].size;
	}
	return s->count;
}

int scry_edit_apply(struct scry_edit *e, size_t first, size_t n)
{
	struct span span;
	int r = 0, written;

	for (size_t i = first; i < first + n && r == 0;) {
		size_t done = 0;

		span.first = i;
		if (is_text(&e->entries[i], SCRY_EDIT_PLANNED))
			done = apply_span(e, &span, first + n - i);
		if (!done && e->entries[i].state == SCRY_EDIT_PLANNED)
			r = apply_entry(e, &e->entries[i]);
		i += done ? done : 1;
	}
	written = write_entries(e, first, n);
	return r < 0 ? r : written;
}

int scry_edit_change(struct scry_edit *e, const struct scry_change *change)
{
	int r = scry_edit_plan(e, change, 1);

	return r < 0 ? r : scry_edit_apply(e, e->count - 1, 1);
}

/* The file of the mapping looked at last: changes come in the order of their addresses. */
struct seen {
	uint64_t start;
	struct scry_elf *elf; /* NULL: it cannot be opened */
	uint64_t bias;
	size_t looks;	/* of under() */
	size_t unasked; /* questions to files that were not asked */
	size_t left;	/* entries that are left alone for that */
};

static void look_at(const struct scry_edit *e, const struct scry_maps *maps,
		    const struct scry_map_entry *m, struct seen *seen)
{
	scry_elf_close(seen->elf);
	seen->start = m->start;
	seen->elf = NULL;
	if (scry_elf_open_mapped(e->mem->pid, m, &seen->elf) < 0)
		seen->elf = NULL;
	else if (scry_elf_bias(seen->elf, maps, m, &seen->bias) < 0) {
		scry_elf_close(seen->elf);
		seen->elf = NULL;
	}
}

/* The bytes [start, start + size) as the file mapped there has them, for an entry of `inode`. */
static bool files_bytes(const struct scry_edit *e, const struct scry_maps *maps, uint64_t start,
			size_t size, uint64_t inode, struct seen *seen, unsigned char *ret)
{
	const struct scry_map_entry *m = scry_maps_at(maps, start);

	if (!m || m->inode != inode)
		return false;
	if (seen->start != m->start)
		look_at(e, maps, m, seen);
	return seen->elf && scry_elf_read(seen->elf, start - seen->bias, ret, size) == 0;
}

struct scry_edit_known {
	uint64_t address, base; /* of the entry; of its file, by the mapping */
	bool is_files;		/* its old bytes are those of the file */
};

static uint64_t base_of(const struct scry_map_entry *m)
{
	return m->start - m->offset;
}

static const struct scry_edit_known *known(const struct scry_edit *e, const struct scry_maps *maps,
					   const struct scry_journal_entry *j)
{
	const size_t at = (size_t)(j - e->entries) - e->known_first;
	const struct scry_map_entry *m = scry_maps_at(maps, j->address);
	const struct scry_edit_known *k = at < e->known_count ? &e->known[at] : NULL;

	return k && m && m->inode == j->inode && k->address == j->address && k->base == base_of(m)
		       ? k
		       : NULL;
}

/* Are the old bytes of an entry those of the file that is mapped there? */
static bool is_files_bytes(const struct scry_edit *e, const struct scry_maps *maps,
			   const struct scry_journal_entry *j, struct seen *seen)
{
	const struct scry_edit_known *k = known(e, maps, j);
	const struct scry_map_entry *m = scry_maps_at(maps, j->address);
	unsigned char file[SCRY_EDIT_MAX];

	if (k)
		return k->is_files;
	if (e->is_stopped) {
		seen->unasked += m && m->inode && m->inode == j->inode;
		return false;
	}
	return files_bytes(e, maps, j->address, j->size, j->inode, seen, file) &&
	       !memcmp(file, j->old, j->size);
}

/* What an entry was put over is asked for, too. */
static size_t recall_from(const struct scry_edit *e, size_t first, size_t n)
{
	bool has = false;

	for (size_t i = first; i < first + n && !has; i++)
		has = e->entries[i].is_over;
	return has ? 0 : first;
}

void scry_edit_recall(struct scry_edit *e, const struct scry_maps *maps, size_t first, size_t n)
{
	const size_t from = recall_from(e, first, n), count = first + n - from;
	struct scry_edit_known *rows = calloc(count + 1, sizeof(*rows));
	struct seen seen = {0};

	free(e->known);
	e->known = NULL;
	e->known_count = 0;
	for (size_t i = 0; rows && i < count; i++) {
		const struct scry_journal_entry *j = &e->entries[from + i];
		const struct scry_map_entry *m = scry_maps_at(maps, j->address);

		if (j->kind != SCRY_EDIT_SLOT && j->state != SCRY_EDIT_UNDONE && m)
			rows[i] = (struct scry_edit_known){
				.address = j->address,
				.base = base_of(m),
				.is_files = is_files_bytes(e, maps, j, &seen)};
	}
	scry_elf_close(seen.elf);
	e->known = rows;
	e->known_first = from;
	e->known_count = rows ? count : 0;
}

/*
 * Its object was unloaded: whatever lies there now is not what was changed. But where our own bytes
 * are there yet, the program has moved its code to other pages (huge ones, as some do): they lead
 * to what is about to go.
 */
static bool is_unmapped(const struct scry_edit *e, const struct scry_maps *maps,
			const struct scry_journal_entry *j)
{
	const struct scry_map_entry *m = scry_maps_at(maps, j->address);
	unsigned char now[SCRY_EDIT_MAX];

	if (!j->inode || (m && m->inode == j->inode))
		return false;
	return !m || !m->x || scry_mem_read(e->mem, j->address, now, j->size) < 0 ||
	       memcmp(now, j->new_, j->size);
}

/* It lies in other memory than that of the file in which it was changed. */
static bool has_moved(const struct scry_maps *maps, const struct scry_journal_entry *j)
{
	const struct scry_map_entry *m = scry_maps_at(maps, j->address);

	return j->inode && m && m->inode != j->inode;
}

static bool overlap(const struct scry_journal_entry *a, uint64_t start, uint64_t end)
{
	return a->address < end && start < a->address + a->size;
}

const struct scry_journal_entry *scry_edit_under(const struct scry_edit *e, uint64_t start,
						 uint64_t end)
{
	for (size_t i = e->count; i-- > 0;)
		if (e->entries[i].state != SCRY_EDIT_UNDONE && e->entries[i].set != e->set &&
		    overlap(&e->entries[i], start, end))
			return &e->entries[i];
	return NULL;
}

/* The entry that it was put over; NULL: none that is left. A journal may be forged: so many are
 * looked at, and no more. */
static const struct scry_journal_entry *under(const struct scry_edit *e,
					      const struct scry_journal_entry *j, struct seen *seen)
{
	for (const struct scry_journal_entry *i = j; j->is_over && i-- > e->entries;) {
		if (seen->looks++ > LOOKS_MAX)
			return NULL;
		if (i->state != SCRY_EDIT_UNDONE && i->address == j->address &&
		    i->size == j->size && !memcmp(i->new_, j->old, j->size))
			return i;
	}
	return NULL;
}

/* Do what earlier entries have put there explain its old bytes, down to one that goes back to the
 * file's? */
static bool is_explained(const struct scry_edit *e, const struct scry_maps *maps,
			 const struct scry_journal_entry *j, struct seen *seen)
{
	while ((j = under(e, j, seen)))
		if (is_files_bytes(e, maps, j, seen))
			return true;
	return false;
}

/* Is another one over it, from entry `from` on? */
static bool is_covered(const struct scry_edit *e, const struct scry_journal_entry *j, size_t from)
{
	bool is = false;

	for (size_t i = from; i < e->count && !is; i++)
		is = e->entries[i].is_over && e->entries[i].state != SCRY_EDIT_UNDONE &&
		     overlap(&e->entries[i], j->address, j->address + j->size);
	return is;
}

static bool has_over(const struct scry_edit *e, size_t from)
{
	bool has = false;

	for (size_t i = from; i < e->count && !has; i++)
		has = e->entries[i].is_over && e->entries[i].state != SCRY_EDIT_UNDONE;
	return has;
}

/* Are our bytes there: all, or those behind the first one? Of that the kernel writes the file's
 * when a uprobe goes that was put over a jump of ours. */
static bool is_ours(const struct scry_journal_entry *j, const unsigned char *now)
{
	return !memcmp(now, j->new_, j->size) ||
	       (j->kind != SCRY_EDIT_SLOT && now[0] == j->old[0] &&
		!memcmp(now + 1, j->new_ + 1, (size_t)j->size - 1));
}

static void undo_entry(struct scry_edit *e, const struct scry_maps *maps,
		       struct scry_journal_entry *j, struct seen *seen,
		       struct scry_undo_report *report)
{
	const size_t unasked = seen->unasked;
	unsigned char now[SCRY_EDIT_MAX];

	if (j->state == SCRY_EDIT_UNDONE)
		return;
	report->entries++;
	if (is_unmapped(e, maps, j)) {
		report->restored++;
		j->state = SCRY_EDIT_UNDONE;
		return;
	}
	if (scry_mem_read(e->mem, j->address, now, j->size) < 0) {
		report->failed++;
		return;
	}
	if (memcmp(now, j->old, j->size)) {
		if (!is_ours(j, now) ||
		    (j->kind != SCRY_EDIT_SLOT && !has_moved(maps, j) &&
		     !is_explained(e, maps, j, seen) && !is_files_bytes(e, maps, j, seen))) {
			if (seen->unasked > unasked) {
				report->entries--; /* another undo looks at it */
				seen->left++;
			} else {
				report->foreign++;
			}
			return;
		}
		if (scry_edit_poke(e->mem->fd, j->address, j->old, j->size) < 0 ||
		    scry_mem_read(e->mem, j->address, now, j->size) < 0 ||
		    memcmp(now, j->old, j->size)) {
			report->failed++;
			return;
		}
		report->bytes += j->size;
	}
	report->restored++;
	j->state = SCRY_EDIT_UNDONE;
}

/* The same downwards from e->entries[s->first]: only where all are as we left them. */
static size_t undo_span(struct scry_edit *e, const struct scry_maps *maps, struct span *s, size_t n,
			struct seen *seen, struct scry_undo_report *report)
{
	const uint64_t inode = e->entries[s->first].inode;
	uint64_t bytes = 0;

	gather(e, s, n, -1, SCRY_EDIT_APPLIED);
	if (s->count < 2 || scry_mem_read(e->mem, s->start, s->bytes, s->end - s->start) < 0)
		return 0;
	for (size_t k = 0; k < s->count; k++) {
		const struct scry_journal_entry *j = &e->entries[s->first - k];
		unsigned char *at = s->bytes + (j->address - s->start);

		if (memcmp(at, j->new_, j->size) || j->inode != inode ||
		    !is_files_bytes(e, maps, j, seen))
			return 0;
		memcpy(at, j->old, j->size);
		bytes += j->size;
	}
	if (write_span(e, s) < 0)
		return 0;
	for (size_t k = 0; k < s->count; k++)
		e->entries[s->first - k].state = SCRY_EDIT_UNDONE;
	report->entries += s->count;
	report->restored += s->count;
	report->bytes += bytes;
	return s->count;
}

static int fail_undo(const struct scry_edit *e, const struct scry_undo_report *report)
{
	const size_t count = report->foreign + report->failed;
	const int pid = e->mem->pid;

	if (report->failed)
		return scry_fail(-EBUSY, "%zu of %zu changes in process %d could not be put back",
				 count, report->entries, pid);
	return scry_fail(-EBUSY,
			 "%zu of %zu changes in process %d could not be put back: a uprobe, a "
			 "debugger or another tool has written over %s; fix: take that away, then "
			 "scry undo -p %d",
			 count, report->entries, pid, count == 1 ? "it" : "them", pid);
}

int scry_edit_undo_some(struct scry_edit *e, const struct scry_maps *maps, size_t first, size_t n,
			struct scry_undo_report *ret)
{
	const bool may_be_covered = has_over(e, first + n);
	struct seen seen = {0};
	struct span span;
	int r;

	*ret = (struct scry_undo_report){0};
	for (size_t i = first + n; i > first;) {
		size_t done = 0;

		if (may_be_covered && is_covered(e, &e->entries[i - 1], first + n)) {
			i--;
			continue;
		}
		span.first = i - 1;
		if (is_text(&e->entries[i - 1], SCRY_EDIT_APPLIED))
			done = undo_span(e, maps, &span, i - first, &seen, ret);
		if (!done)
			undo_entry(e, maps, &e->entries[i - 1], &seen, ret);
		i -= done ? done : 1;
	}
	scry_elf_close(seen.elf);
	r = write_entries(e, first, n);
	if (seen.left)
		return -EAGAIN;
	if (ret->foreign || ret->failed)
		return fail_undo(e, ret);
	return r < 0 || first + n < e->count ? r : write_count(e, first);
}

int scry_edit_undo(struct scry_edit *e, const struct scry_maps *maps, struct scry_undo_report *ret)
{
	return scry_edit_undo_some(e, maps, 0, e->count, ret);
}

bool scry_edit_is_unwritten(const struct scry_edit *e, size_t first, size_t n)
{
	unsigned char now[SCRY_EDIT_MAX];

	for (size_t i = first; i < first + n; i++) {
		const struct scry_journal_entry *j = &e->entries[i];

		if (j->state != SCRY_EDIT_UNDONE &&
		    (scry_mem_read(e->mem, j->address, now, j->size) < 0 ||
		     memcmp(now, j->old, j->size)))
			return false;
	}
	return true;
}

int scry_edit_forget(struct scry_edit *e, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < e->count; i++)
		if (e->entries[i].address >= start && e->entries[i].address < end)
			e->entries[i].state = SCRY_EDIT_UNDONE;
	return write_entries(e, 0, e->count);
}

int scry_edit_switch(struct scry_edit *e, size_t entry, bool on)
{
	const struct scry_journal_entry *j = &e->entries[entry];
	uint8_t want = on ? j->new_[0] : j->old[0], now;
	int r;

	assert(j->size == 1 && j->state == SCRY_EDIT_APPLIED);
	r = scry_mem_read(e->mem, j->address, &now, 1);
	if (r < 0 || now == want)
		return r;
	if (now != (on ? j->old[0] : j->new_[0]))
		return -EBUSY;
	return scry_edit_poke(e->mem->fd, j->address, &want, 1);
}

/* What is where an entry was applied. */
enum standing { STANDS_NONE, STANDS_OLD, STANDS_TORN, STANDS_NEW };

/* Torn: others wrote over a part of it, as the kernel does for a uprobe. The rest is ours where it
 * is not what was there before. */
static enum standing standing(const struct scry_edit *e, const struct scry_journal_entry *j)
{
	unsigned char now[SCRY_EDIT_MAX];

	if (scry_mem_read(e->mem, j->address, now, j->size) < 0)
		return STANDS_NONE;
	if (!memcmp(now, j->new_, j->size))
		return STANDS_NEW;
	if (!memcmp(now, j->old, j->size))
		return STANDS_OLD;
	for (size_t i = 0; i < j->size; i++)
		if (now[i] == j->new_[i] && now[i] != j->old[i])
			return STANDS_TORN;
	return STANDS_NONE;
}

bool scry_edit_is_there(const struct scry_edit *e, uint64_t start, uint64_t end, bool *ret_any)
{
	size_t text[STANDS_NEW + 1] = {0}, slots[STANDS_NEW + 1] = {0}, texts = 0, all = 0;

	for (size_t i = 0; i < e->count; i++) {
		const struct scry_journal_entry *j = &e->entries[i];
		const bool is_slot = j->kind == SCRY_EDIT_SLOT;

		if (j->address < start || j->address >= end || j->state != SCRY_EDIT_APPLIED)
			continue;
		all++;
		texts += !is_slot;
		(is_slot ? slots : text)[standing(e, j)]++;
		if (text[STANDS_NEW])
			break; /* one is enough: an object is mapped as a whole */
	}
	*ret_any = all > 0;
	if (!texts)
		return slots[STANDS_NEW] > 0; /* a lazy slot may have been bound */
	return text[STANDS_NEW] || (text[STANDS_TORN] && !text[STANDS_OLD]);
}

int scry_edit_compact(struct scry_edit *e, size_t from)
{
	size_t kept = from;
	int r;

	for (size_t i = from; i < e->count; i++)
		if (e->entries[i].state != SCRY_EDIT_UNDONE)
			e->entries[kept++] = e->entries[i];
	if (kept == e->count)
		return 0;
	/* Ascending, and whole pages at a time: what is not written yet is still further up. */
	r = write_entries(e, from, kept - from);
	return r < 0 ? r : write_count(e, kept);
}

size_t scry_edit_standing(const struct scry_edit *e)
{
	size_t standing = 0;

	for (size_t i = 0; i < e->count; i++)
		standing += e->entries[i].state != SCRY_EDIT_UNDONE;
	return standing;
}
