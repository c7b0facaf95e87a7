/* See pages.h. */
#include "sys/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bisect.h"
#include "base/err.h"
#include "sys/living.h"
#include "sys/page_scan.h"

#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_SWAPPED (1ull << 62)
#define ENTRY_FILE (1ull << 61)
#define ENTRY_GUARD (1ull << 58) /* Linux 6.15 */
#define LOOK_PAGES 2048u	 /* entries, or pages of a core, at once */
#define LOOKS_MAX 64u		 /* of them for one call that finds nothing */

#define SCAN_ROOM 256u

int scry_pages_open(struct scry_pages *p, const struct scry_space *space,
		    const struct scry_mem *mem)
{
	struct scry_scan_region region;
	struct scry_scan arg = {.size = sizeof(arg),
				.end = SCRY_PAGE,
				.vec = (uintptr_t)&region,
				.vec_len = 1,
				.category_anyof_mask = SCRY_SCAN_PRESENT | SCRY_SCAN_GUARD,
				.return_mask = SCRY_SCAN_PRESENT | SCRY_SCAN_GUARD};
	char path[32];

	*p = (struct scry_pages){.core = space->core, .mem = mem, .fd = -1};
	if (p->core)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)scry_living_thread(space->pid));
	p->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (p->fd < 0)
		return scry_fail(-errno, "cannot see which pages of process %d are in memory: %s",
				 (int)space->pid, strerror(errno));
	p->scans_guards = ioctl(p->fd, SCRY_SCAN, &arg) >= 0;
	arg.category_anyof_mask = arg.return_mask = SCRY_SCAN_PRESENT;
	p->has_scan = p->scans_guards || ioctl(p->fd, SCRY_SCAN, &arg) >= 0;
	return 0;
}

void scry_pages_close(struct scry_pages *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

struct runs {
	struct scry_page_run *at;
	size_t count, room;
};

/* False: there is no room for it. */
static bool add(struct runs *r, uint64_t start, uint64_t end, unsigned int flags)
{
	struct scry_page_run *last = r->count ? &r->at[r->count - 1] : NULL;

	if (last && last->end == start && last->flags == flags) {
		last->end = end;
		return true;
	}
	if (r->count == r->room)
		return false;
	r->at[r->count++] = (struct scry_page_run){start, end, flags};
	return true;
}

/* Swapped out, or a guard that an older kernel calls so? */
static unsigned int settle(const struct scry_pages *p, uint64_t page, unsigned int flags)
{
	unsigned char byte;

	if (flags & SCRY_PAGE_GUARD)
		return SCRY_PAGE_GUARD;
	if (flags != SCRY_PAGE_SWAPPED || p->scans_guards)
		return flags;
	return scry_mem_read(p->mem, page, &byte, 1) == -EFAULT ? SCRY_PAGE_GUARD : flags;
}

static unsigned int scanned_flags(uint64_t categories)
{
	if (categories & SCRY_SCAN_GUARD)
		return SCRY_PAGE_GUARD;
	if (categories & SCRY_SCAN_ZERO)
		return 0;
	if (categories & SCRY_SCAN_PRESENT && categories & SCRY_SCAN_FILE)
		return SCRY_PAGE_THERE | SCRY_PAGE_FILES;
	return (categories & SCRY_SCAN_PRESENT ? SCRY_PAGE_THERE : 0) |
	       (categories & SCRY_SCAN_SWAPPED ? SCRY_PAGE_SWAPPED : 0);
}

static int scan(const struct scry_pages *p, uint64_t start, uint64_t end, struct runs *r,
		uint64_t *ret_next)
{
	const uint64_t wanted =
		SCRY_SCAN_PRESENT | SCRY_SCAN_SWAPPED | (p->scans_guards ? SCRY_SCAN_GUARD : 0);
	struct scry_scan_region regions[SCAN_ROOM];
	struct scry_scan arg = {.size = sizeof(arg),
				.start = start,
				.end = end,
				.vec = (uintptr_t)regions,
				.vec_len = SCAN_ROOM,
				.category_anyof_mask = wanted,
				.return_mask = wanted | SCRY_SCAN_ZERO | SCRY_SCAN_FILE};
	int n = ioctl(p->fd, SCRY_SCAN, &arg);

	if (n < 0)
		return -errno;
	*ret_next = arg.walk_end > start && arg.walk_end < end ? arg.walk_end : end;
	for (int i = 0; i < n; i++) {
		unsigned int flags =
			settle(p, regions[i].start, scanned_flags(regions[i].categories));

		if (flags && !add(r, regions[i].start, regions[i].end, flags)) {
			*ret_next = regions[i].start;
			break;
		}
	}
	return 0;
}

static int read_entries(const struct scry_pages *p, uint64_t start, uint64_t end, struct runs *r,
			uint64_t *ret_next)
{
	uint64_t entries[LOOK_PAGES];
	size_t want = (end - start) / SCRY_PAGE;
	ssize_t n;

	want = want < LOOK_PAGES ? want : LOOK_PAGES;
	n = pread(p->fd, entries, want * 8, (off_t)(start / SCRY_PAGE * 8));
	if (n < 8)
		return n < 0 ? -errno : -EFAULT;
	for (size_t i = 0; i < (size_t)n / 8; i++) {
		unsigned int flags = (entries[i] & ENTRY_PRESENT ? SCRY_PAGE_THERE : 0) |
				     (entries[i] & ENTRY_SWAPPED ? SCRY_PAGE_SWAPPED : 0) |
				     (entries[i] & ENTRY_GUARD ? SCRY_PAGE_GUARD : 0);
		uint64_t page = start + i * SCRY_PAGE;

		if (flags == SCRY_PAGE_THERE && entries[i] & ENTRY_FILE)
			flags |= SCRY_PAGE_FILES;
		flags = settle(p, page, flags);
		if (flags && !add(r, page, page + SCRY_PAGE, flags)) {
			*ret_next = page;
			return 0;
		}
	}
	*ret_next = start + (size_t)n / 8 * SCRY_PAGE;
	return 0;
}

static bool is_zero(const char *page)
{
	return page[0] == 0 && memcmp(page, page + 1, SCRY_PAGE - 1) == 0;
}

/* The part of the core that ends behind `at`; NULL: none. */
static const struct scry_core_segment *part_from(const struct scry_core *core, uint64_t at)
{
	const size_t low = scry_bisect(core->segment_count, i, core->segments[i].end <= at);

	return low < core->segment_count ? &core->segments[low] : NULL;
}

/* What the kernel dumped of pages that had no memory are holes of the file. */
static int read_part(const struct scry_core *core, uint64_t start, uint64_t end, struct runs *r,
		     uint64_t *ret_next)
{
	const struct scry_core_segment *part = part_from(core, start);
	char page[SCRY_PAGE];
	uint64_t last;
	off_t data;

	*ret_next = end;
	if (!part || part->start >= end)
		return 0;
	start = start > part->start ? start : part->start;
	last = part->start + part->filed / SCRY_PAGE * SCRY_PAGE;
	if (last > end)
		last = end;
	*ret_next = part->end < end ? part->end : end;
	if (start >= last)
		return 0;
	data = lseek(core->fd, (off_t)(part->offset + (start - part->start)), SEEK_DATA);
	if (data < 0 && errno == ENXIO) /* a hole up to its end */
		return 0;
	if (data > 0)
		start = part->start + ((uint64_t)data - part->offset) / SCRY_PAGE * SCRY_PAGE;
	for (unsigned int i = 0; start < last; start += SCRY_PAGE, i++) {
		uint64_t at = part->offset + (start - part->start);
		bool is_there =
			i < LOOK_PAGES && pread(core->fd, page, SCRY_PAGE, (off_t)at) == SCRY_PAGE;

		if (i == LOOK_PAGES || (is_there && !is_zero(page) &&
					!add(r, start, start + SCRY_PAGE, SCRY_PAGE_THERE))) {
			*ret_next = start;
			return 0;
		}
	}
	return 0;
}

ssize_t scry_pages_runs(const struct scry_pages *p, uint64_t start, uint64_t end,
			struct scry_page_run *ret, size_t room, uint64_t *ret_next)
{
	struct runs r = {.at = ret, .room = room};
	int err = 0;

	start = start / SCRY_PAGE * SCRY_PAGE;
	*ret_next = end;
	for (unsigned int i = 0; i < LOOKS_MAX && start < end && !err && !r.count; i++) {
		if (p->core)
			err = read_part(p->core, start, end, &r, ret_next);
		else if (p->has_scan)
			err = scan(p, start, end, &r, ret_next);
		else
			err = read_entries(p, start, end, &r, ret_next);
		start = *ret_next;
	}
	return err ? err : (ssize_t)r.count;
}

bool scry_pages_lacks(const struct scry_pages *p, uint64_t start, uint64_t end)
{
	const struct scry_core_segment *part =
		p->core && start < end ? part_from(p->core, start) : NULL;
	const struct scry_core_segment *last =
		p->core ? p->core->segments + p->core->segment_count : NULL;

	if (p->core && start < end && (!part || part->start >= end))
		return true;
	for (; part && part < last && part->start < end; part++)
		if (part->flags & PF_W && part->start + part->filed < part->end &&
		    part->start + part->filed < end)
			return true;
	return false;
}
