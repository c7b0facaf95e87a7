/* See malloc_memory.h. The files are of one process: read after its end they give nothing. */
#include "name/malloc_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

#define PAGE 4096u
/* what /proc/PID/pagemap says of a page */
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SHARED (1ull << 61) /* or of a file */
#define PAGE_ALONE (1ull << 56)	 /* mapped once */

static int open_file(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

void scry_malloc_memory_done(struct scry_malloc_memory *m)
{
	if (m->status >= 0)
		close(m->status);
	if (m->stat >= 0)
		close(m->stat);
	if (m->pagemap >= 0)
		close(m->pagemap);
	m->status = m->stat = m->pagemap = -1;
	if (m->mem.fd >= 0)
		scry_mem_close(&m->mem);
	m->mem.fd = -1;
}

static int read_all(int fd, char *buf, size_t room)
{
	ssize_t n = pread(fd, buf, room - 1, 0);

	if (n <= 0)
		return -ESRCH;
	buf[n] = 0;
	return 0;
}

/* Bytes of a line "\nName:   123 kB"; false: there is none, as in a zombie. */
static bool line_bytes(const char *text, const char *name, uint64_t *ret)
{
	const char *line = strstr(text, name);

	if (line)
		*ret = strtoull(line + strlen(name), NULL, 10) << 10;
	return line != NULL;
}

/* proc(5): the fields behind the name, which may hold anything: state is the third. */
static int read_stat(const char *text, struct scry_ev_memory *ret, uint64_t *ret_child_faults)
{
	const char *at = strrchr(text, ')');
	uint64_t fields[21] = {0}; /* by their number in proc(5) */
	uint64_t tick = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);

	if (!at || strlen(at) < 4)
		return -ESRCH;
	at += 3;
	for (int i = 4; i <= 20; i++) {
		char *end;

		fields[i] = (uint64_t)strtoll(at, &end, 10);
		at = end;
	}
	ret->faults = fields[10];
	*ret_child_faults = fields[11]; /* of children that were waited for */
	ret->major_faults = fields[12];
	ret->user_ns = fields[14] * tick;
	ret->system_ns = fields[15] * tick;
	ret->threads = (uint32_t)fields[20];
	return 0;
}

int scry_malloc_memory_times(struct scry_malloc_memory *m, struct scry_ev_memory *ret)
{
	char text[4096];
	uint64_t child_faults;

	if (read_all(m->stat, text, sizeof(text)) < 0 || read_stat(text, ret, &child_faults) < 0)
		return -ESRCH;
	if (m->has_base)
		m->had_children |= child_faults != m->child_faults;
	m->child_faults = child_faults;
	m->has_base = true;
	return 0;
}

void scry_malloc_memory_init(struct scry_malloc_memory *m, pid_t pid, uint64_t own_start,
			     uint64_t own_end, bool is_glibc)
{
	struct scry_ev_memory first;

	*m = (struct scry_malloc_memory){.pid = pid,
					 .status = open_file(pid, "status"),
					 .stat = open_file(pid, "stat"),
					 .pagemap = open_file(own_end ? pid : 0, "pagemap"),
					 .own_start = own_start,
					 .own_end = own_end,
					 .is_glibc = is_glibc,
					 .mem = {.fd = -1}};
	scry_malloc_memory_times(m, &first); /* children that it had before */
}

/* An anonymous page that was only read is the kernel's page of zeros, which no process is charged
 * for; those that a fork left to two of them are charged to both and left in: they look like it. */
static void read_own(const struct scry_malloc_memory *m, uint64_t *ret_anon, uint64_t *ret_shared)
{
	uint64_t pages[4096];

	*ret_anon = *ret_shared = 0;
	for (uint64_t at = m->own_start; at < m->own_end; at += PAGE * (sizeof(pages) / 8)) {
		size_t want = (m->own_end - at) / PAGE * 8;
		ssize_t n = pread(m->pagemap, pages, want < sizeof(pages) ? want : sizeof(pages),
				  (off_t)(at / PAGE * 8));

		for (ssize_t i = 0; i < n / 8; i++) {
			if (!(pages[i] & PAGE_PRESENT))
				continue;
			*ret_shared += pages[i] & PAGE_SHARED ? PAGE : 0;
			*ret_anon += !(pages[i] & PAGE_SHARED) && pages[i] & PAGE_ALONE ? PAGE : 0;
		}
	}
}

static void leave_out_own(struct scry_malloc_memory *m, struct scry_ev_memory *ev)
{
	uint64_t anon, shared;

	read_own(m, &anon, &shared);
	if (anon + shared > m->own_peak)
		m->own_peak = anon + shared;
	ev->rss_anon -= anon < ev->rss_anon ? anon : ev->rss_anon;
	ev->rss_shmem -= shared < ev->rss_shmem ? shared : ev->rss_shmem;
}

/* Looked for at the first, second, fourth, ... look: before its first call malloc has nothing, and
 * bins that change do not look like bins. */
static void find_held(struct scry_malloc_memory *m)
{
	struct scry_maps maps = {0};

	m->looks++;
	if (m->looks & (m->looks - 1))
		return;
	if (m->mem.fd < 0 && scry_mem_open(&m->mem, m->pid, 0) < 0)
		m->mem.fd = -1;
	if (m->mem.fd >= 0 && scry_maps_read(m->pid, &maps) == 0)
		scry_glibc_held_find(&m->mem, &maps, &m->held);
	scry_maps_done(&maps);
	scry_error_clear();
}

static void read_held(struct scry_malloc_memory *m, struct scry_ev_memory *ev)
{
	struct scry_glibc_holding is;

	if (m->is_glibc && !m->held.main_arena)
		find_held(m);
	if (!m->held.main_arena || scry_glibc_held_read(&m->mem, &m->held, &is) < 0)
		return;
	ev->held = is.bytes;
	ev->arenas = is.arenas;
	ev->arenas_held = is.thread_bytes;
}

int scry_malloc_memory_read(struct scry_malloc_memory *m, struct scry_ev_memory *ret)
{
	struct scry_ev_memory ev = {.pid = (uint32_t)m->pid};
	char text[4096];

	if (read_all(m->status, text, sizeof(text)) < 0 ||
	    !line_bytes(text, "\nRssAnon:", &ev.rss_anon) ||
	    !line_bytes(text, "\nRssFile:", &ev.rss_file) ||
	    !line_bytes(text, "\nRssShmem:", &ev.rss_shmem))
		return -ESRCH;
	line_bytes(text, "\nVmHWM:", &ev.rss_peak);
	leave_out_own(m, &ev);
	read_held(m, &ev);
	if (scry_malloc_memory_times(m, &ev) < 0)
		return -ESRCH;
	*ret = ev;
	return 0;
}

int scry_malloc_memory_write(struct scry_malloc_memory *m, struct scry_writer *w, uint64_t now_ns,
			     bool now)
{
	struct scry_ev_memory ev;
	bool is_young = !m->first_ns || now_ns - m->first_ns < SCRY_MALLOC_YOUNG_NS;

	if (!now && m->last_ns &&
	    now_ns - m->last_ns < (is_young ? SCRY_MALLOC_MEMORY_SOON_NS : SCRY_MALLOC_MEMORY_NS))
		return 0;
	if (scry_malloc_memory_read(m, &ev) < 0)
		return 0;
	m->last_ns = now_ns;
	m->first_ns = m->first_ns ? m->first_ns : now_ns;
	return scry_writer_payload(
		w, &(struct scry_event){.time_ns = now_ns, .type = SCRY_EVENT_MEMORY}, &ev,
		sizeof(ev));
}
