/* See written.h. Documentation/admin-guide/mm/pagemap.rst */
#include "sys/written.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys/living.h"
#include "sys/page_scan.h"

#define PAGE 4096u
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)
#define PAGE_FILE (1ull << 61) /* or shared; else it has become the process's own */
#define PAGE_THERE (PAGE_PRESENT | PAGE_SWAPPED)
#define PAGE_FRAME ((1ull << 55) - 1)
#define LOOK_PAGES 2048 /* at once */

/* Does the kernel show the page at `at`, of zeros, as one? */
static bool can_scan(int own, uint64_t at)
{
	struct scry_scan_region region;
	struct scry_scan arg = {.size = sizeof(arg),
				.start = at,
				.end = at + PAGE,
				.vec = (uintptr_t)&region,
				.vec_len = 1,
				.category_anyof_mask = SCRY_SCAN_ZERO,
				.return_mask = SCRY_SCAN_ZERO};

	return ioctl(own, SCRY_SCAN, &arg) == 1;
}

/* By it a page that was only read is there. That one is the kernel's page of zeros; a reader that
 * may not know frames sees them as 0. */
void scry_written_open(struct scry_written *w, pid_t pid, const struct scry_maps *maps)
{
	volatile char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const off_t at = (off_t)((uintptr_t)page / PAGE * sizeof(uint64_t));
	int own = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;
	char path[32];

	*w = (struct scry_written){.maps = maps, .pagemap = -1};
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)scry_living_thread(pid));
	if (own >= 0 && page != MAP_FAILED && page[0] == 0 &&
	    pread(own, &entry, sizeof(entry), at) == sizeof(entry) && entry & PAGE_PRESENT)
		w->pagemap = open(path, O_RDONLY | O_CLOEXEC);
	w->has_scan = w->pagemap >= 0 && can_scan(own, (uintptr_t)page);
	w->zeros = entry & PAGE_FRAME;
	if (page != MAP_FAILED)
		munmap((void *)page, PAGE);
	if (own >= 0)
		close(own);
}

void scry_written_close(struct scry_written *w)
{
	if (w->pagemap >= 0)
		close(w->pagemap);
	w->pagemap = -1;
}

static bool is_written(const struct scry_written *w, uint64_t entry)
{
	return entry & PAGE_SWAPPED ||
	       (entry & PAGE_PRESENT && (!w->zeros || (entry & PAGE_FRAME) != w->zeros));
}

/* The entries of the pages of [at, end), of so many as one look takes. */
static size_t read_pages(const struct scry_written *w, uint64_t at, uint64_t end,
			 uint64_t ret[LOOK_PAGES])
{
	size_t want = (end - 1) / PAGE - at / PAGE + 1;
	ssize_t n;

	want = want < LOOK_PAGES ? want : LOOK_PAGES;
	n = pread(w->pagemap, ret, want * sizeof(*ret), (off_t)(at / PAGE * sizeof(*ret)));
	return n > 0 ? (size_t)n / sizeof(*ret) : 0;
}

bool scry_written_is_memory(const struct scry_map_entry *m)
{
	return strncmp(m->path, "[v", 2) != 0;
}

static bool is_there(const struct scry_written *w, uint64_t entry, bool is_own)
{
	return is_own ? is_written(w, entry) && !(entry & PAGE_FILE) : (entry & PAGE_THERE) != 0;
}

/* As one run: pages that are present and those that are swapped out; at most `max_pages`, 0: all.
 * Count, or -1. */
static int scan(const struct scry_written *w, uint64_t at, uint64_t end, uint64_t max_pages,
		struct scry_scan_region *ret, int room)
{
	const struct scry_map_entry *m = scry_maps_at(w->maps, at);
	const uint64_t unwanted = m && !m->shared ? SCRY_SCAN_FILE | SCRY_SCAN_ZERO : 0;
	struct scry_scan arg = {.size = sizeof(arg),
				.start = at / PAGE * PAGE,
				.end = (end + PAGE - 1) / PAGE * PAGE,
				.vec = (uintptr_t)ret,
				.vec_len = (uint64_t)room,
				.max_pages = max_pages,
				.category_inverted = unwanted,
				.category_mask = unwanted,
				.category_anyof_mask = SCRY_SCAN_PRESENT | SCRY_SCAN_SWAPPED,
				.return_mask = SCRY_SCAN_FILE};

	return ioctl(w->pagemap, SCRY_SCAN, &arg);
}

static bool scan_run(const struct scry_written *w, uint64_t at, uint64_t end, uint64_t max_pages,
		     struct scry_scan_region *ret)
{
	const int n = scan(w, at, end, max_pages, ret, 1);

	if (n == 0)
		ret->start = ret->end = (end + PAGE - 1) / PAGE * PAGE;
	return n >= 0;
}

bool scry_written_run(const struct scry_written *w, uint64_t at, uint64_t end, uint64_t *ret_start,
		      uint64_t *ret_end)
{
	const struct scry_map_entry *m = scry_maps_at(w->maps, at);
	const bool is_own = m && !m->shared;
	struct scry_scan_region region;
	uint64_t pages[LOOK_PAGES];
	size_t n, first = 0, last;

	if (w->has_scan && scan_run(w, at, end, 0, &region)) {
		*ret_start = region.start;
		*ret_end = region.end;
		return true;
	}
	n = w->pagemap < 0 ? 0 : read_pages(w, at, end, pages);
	while (first < n && !is_there(w, pages[first], is_own))
		first++;
	for (last = first; last < n && is_there(w, pages[last], is_own);)
		last++;
	*ret_start = (at / PAGE + first) * PAGE;
	*ret_end = (at / PAGE + last) * PAGE;
	return n > 0;
}

int scry_written_runs(const struct scry_written *w, uint64_t at, uint64_t end,
		      struct scry_scan_region *ret, int room, uint64_t *ret_next)
{
	const int n = w->has_scan ? scan(w, at, end, 0, ret, room) : -1;

	if (n >= 0) {
		*ret_next = n == room ? ret[n - 1].end : end;
		return n;
	}
	if (!scry_written_run(w, at, end, &ret->start, &ret->end))
		return -1;
	*ret_next = ret->end;
	return ret->start < ret->end;
}

uint64_t scry_written_next(const struct scry_written *w, uint64_t at, uint64_t end)
{
	const struct scry_map_entry *m = scry_maps_at(w->maps, at);
	struct scry_scan_region first;
	uint64_t start, run_end;

	if (w->pagemap < 0 || !m || m->shared)
		return at;
	if (w->has_scan && scan_run(w, at, end, 1, &first))
		return first.start > at ? first.start : at;
	if (!scry_written_run(w, at, end, &start, &run_end))
		return at;
	return start > at ? start : at;
}
