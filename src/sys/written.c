/* See written.h. Documentation/admin-guide/mm/pagemap.rst */
#include "sys/written.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys/living.h"

#define PAGE 4096u
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)
#define PAGE_FILE (1ull << 61) /* or shared; else it has become the process's own */
#define PAGE_THERE (PAGE_PRESENT | PAGE_SWAPPED)
#define PAGE_FRAME ((1ull << 55) - 1)
#define LOOK_PAGES 2048 /* at once */

/* By it a page that was only read is there. That one is the kernel's page of zeros; who may not
 * know frames sees them as 0. */
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

uint64_t scry_written_next(const struct scry_written *w, uint64_t at, uint64_t end)
{
	const struct scry_map_entry *m = scry_maps_at(w->maps, at);
	uint64_t pages[LOOK_PAGES];
	size_t n, i = 0;

	if (w->pagemap < 0 || !m || m->shared)
		return at;
	n = read_pages(w, at, end, pages);
	while (i < n && (!is_written(w, pages[i]) || pages[i] & PAGE_FILE))
		i++;
	return i ? (at / PAGE + i) * PAGE : at;
}

bool scry_written_is_memory(const struct scry_map_entry *m)
{
	return strncmp(m->path, "[v", 2) != 0;
}

static bool is_there(const struct scry_written *w, uint64_t entry, bool is_own)
{
	return is_own ? is_written(w, entry) && !(entry & PAGE_FILE) : (entry & PAGE_THERE) != 0;
}

bool scry_written_run(const struct scry_written *w, uint64_t at, uint64_t end, uint64_t *ret_start,
		      uint64_t *ret_end)
{
	const struct scry_map_entry *m = scry_maps_at(w->maps, at);
	const bool is_own = m && !m->shared;
	uint64_t pages[LOOK_PAGES];
	size_t n = w->pagemap < 0 ? 0 : read_pages(w, at, end, pages), first = 0, last;

	while (first < n && !is_there(w, pages[first], is_own))
		first++;
	for (last = first; last < n && is_there(w, pages[last], is_own);)
		last++;
	*ret_start = (at / PAGE + first) * PAGE;
	*ret_end = (at / PAGE + last) * PAGE;
	return n > 0;
}
