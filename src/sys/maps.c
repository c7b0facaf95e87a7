/*
 * A parsed copy of /proc/PID/maps.
 *
 * The file is read whole into one buffer; the paths of the entries point into it, so a snapshot is
 * two allocations. One trick: the kernel hands out the text page by page, and each page is
 * consistent in itself, but mappings may change in between; entries that would overlap their
 * predecessor are dropped, so that the list is ascending whatever happens. When the address space
 * ends in between, by exit or exec, the kernel hands out no more pages, which looks like the list's
 * end: such a list is refused, as what it lacks would be taken for free or unnamed memory.
 */
#include "sys/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bisect.h"
#include "base/err.h"
#include "sys/proc.h"

#define TEXT_MAX (64u << 20)
#define PAGE 4096u
#define LOWEST (1ull << 20)
#define HIGHEST (1ull << 47)

static const char deleted_mark[] = " (deleted)";

/* Does the address space live that `fd` was opened on? Then all that was read of it is whole. */
static bool is_alive(int fd)
{
	char byte;

	return pread(fd, &byte, 1, 0) == 1;
}

/* Reads the whole file. 0 or -errno; *ret_text is malloc'ed and NUL-terminated. */
static int read_text(const char *path, char **ret_text)
{
	char *text = NULL;
	size_t room = 0, used = 0;
	int fd, err = 0;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n;

		if (room - used < 8192) {
			char *more;

			room = room ? room * 2 : 65536;
			more = room > TEXT_MAX ? NULL : realloc(text, room);
			if (!more) {
				err = room > TEXT_MAX ? -E2BIG : -ENOMEM;
				break;
			}
			text = more;
		}
		n = read(fd, text + used, room - used - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err = -errno;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	if (err == 0 && (used == 0 || !is_alive(fd)))
		err = -ESRCH; /* a zombie has an empty list */
	close(fd);
	if (err) {
		free(text);
		return err;
	}
	text[used] = '\0';
	*ret_text = text;
	return 0;
}

/* The kernel prints a newline in a path as \012 and nothing else is escaped. In place. */
static void unescape(char *path)
{
	char *in = path, *out = path;

	while (*in) {
		if (strncmp(in, "\\012", 4) == 0) {
			*out++ = '\n';
			in += 4;
		} else {
			*out++ = *in++;
		}
	}
	*out = '\0';
}

static int digit_of(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* The number at *at, up to `end`, which is passed over; the line's end is as good as a space. */
static bool take_number(char **at, int base, char end, uint64_t *ret)
{
	const uint64_t most = UINT64_MAX / (unsigned int)base - 1;
	const char *first = *at;
	uint64_t value = 0;
	char *p = *at;

	for (; digit_of(*p) < base && value <= most; p++)
		value = value * (unsigned int)base + (unsigned int)digit_of(*p);
	if (p == first || (*p != end && !(end == ' ' && !*p)))
		return false;
	*at = *p ? p + 1 : p;
	*ret = value;
	return true;
}

/* One line, already NUL-terminated. False when it is not a mapping. By hand, as sscanf is slow, and
 * the mappings of a child that is entered are read some twenty times. */
static bool parse_line(char *line, struct scry_map_entry *ret)
{
	struct scry_map_entry e = {.path = ""};
	uint64_t dev_major, dev_minor;
	const char *perms;
	size_t len;

	if (!take_number(&line, 16, '-', &e.start) || !take_number(&line, 16, ' ', &e.end))
		return false;
	perms = line;
	if (e.end <= e.start || strcspn(line, " ") != 4 || line[4] != ' ')
		return false;
	line += 5;
	if (!take_number(&line, 16, ' ', &e.offset) || !take_number(&line, 16, ':', &dev_major) ||
	    !take_number(&line, 16, ' ', &dev_minor) || !take_number(&line, 10, ' ', &e.inode))
		return false;
	e.dev_major = (uint32_t)dev_major;
	e.dev_minor = (uint32_t)dev_minor;
	e.r = perms[0] == 'r';
	e.w = perms[1] == 'w';
	e.x = perms[2] == 'x';
	e.shared = perms[3] == 's';

	line += strspn(line, " ");
	len = strlen(line);
	if (len > sizeof(deleted_mark) - 1 &&
	    strcmp(line + len - (sizeof(deleted_mark) - 1), deleted_mark) == 0) {
		line[len - (sizeof(deleted_mark) - 1)] = '\0';
		e.deleted = true;
	}
	unescape(line);
	e.path = line;
	*ret = e;
	return true;
}

/* The process's list; that of any thread which lives, where the first one has ended before the
 * others. */
static int read_any_text(pid_t pid, char **ret_text)
{
	char path[64];
	pid_t *tids;
	ssize_t n;
	int err;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	err = read_text(path, ret_text);
	if (err != -ESRCH)
		return err;
	n = scry_proc_tasks(pid, &tids);
	for (ssize_t i = 0; i < n && err == -ESRCH; i++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/maps", (int)pid, (int)tids[i]);
		err = read_text(path, ret_text);
	}
	if (n >= 0)
		free(tids);
	return err;
}

int scry_maps_parse(char *text, struct scry_maps *ret)
{
	struct scry_maps maps = {.text = text};
	size_t lines = 0;
	char *next;

	for (const char *p = maps.text; (p = strchr(p, '\n')); p++)
		lines++;
	if (lines > SCRY_MAPS_MAX) {
		free(maps.text);
		return scry_fail(-E2BIG,
				 "%zu mappings are more than the %u that scry looks through", lines,
				 SCRY_MAPS_MAX);
	}
	maps.bytes = strlen(text) + lines * sizeof(*maps.entries);
	maps.entries = calloc(lines ? lines : 1, sizeof(*maps.entries));
	if (!maps.entries) {
		free(maps.text);
		return scry_no_memory("%zu mappings", lines);
	}
	for (char *line = maps.text; *line && maps.count < lines; line = next) {
		struct scry_map_entry *e = &maps.entries[maps.count];
		char *end = strchr(line, '\n');

		if (!end)
			break;
		*end = '\0';
		next = end + 1;
		if (!parse_line(line, e))
			continue;
		if (maps.count && e->start < e[-1].end)
			continue;
		maps.count++;
	}
	*ret = maps;
	return 0;
}

int scry_maps_read(pid_t pid, struct scry_maps *ret)
{
	char *text = NULL;
	int err = read_any_text(pid, &text);

	if (err == -ENOENT || err == -ESRCH)
		return scry_fail(-ESRCH, "process %d is gone", (int)pid);
	if (err == -E2BIG)
		return scry_fail(err,
				 "the list of the mappings of process %d is longer than the %u MiB "
				 "that scry reads",
				 (int)pid, TEXT_MAX >> 20);
	if (err)
		return scry_fail(err, "cannot read the mappings of process %d: %s", (int)pid,
				 strerror(-err));
	return scry_maps_parse(text, ret);
}

void scry_maps_done(struct scry_maps *maps)
{
	if (!maps)
		return;
	free(maps->entries);
	free(maps->text);
	memset(maps, 0, sizeof(*maps));
}

/* Index of the first entry that ends above `addr`; count when none does. */
static size_t first_above(const struct scry_maps *maps, uint64_t addr)
{
	return scry_bisect(maps->count, i, maps->entries[i].end <= addr);
}

bool scry_maps_is_shared_memory(const struct scry_map_entry *m)
{
	static const char *const files[] = {"/dev/zero", "/memfd:", "/SYSV", "/anon_hugepage"};

	for (size_t i = 0; m->shared && i < sizeof(files) / sizeof(files[0]); i++)
		if (!strncmp(m->path, files[i], strlen(files[i])))
			return true;
	return false;
}

const struct scry_map_entry *scry_maps_at(const struct scry_maps *maps, uint64_t addr)
{
	size_t i = first_above(maps, addr);

	if (i == maps->count || maps->entries[i].start > addr)
		return NULL;
	return &maps->entries[i];
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

uint64_t scry_maps_gap(const struct scry_maps *maps, uint64_t near, uint64_t size, uint64_t reach)
{
	/* A margin on both sides keeps us off the guard gaps of growing stacks and lets the heap
	 * grow. */
	const uint64_t margin = 16 * PAGE;
	uint64_t low = near > reach + LOWEST ? near - reach : LOWEST;
	uint64_t high = near < HIGHEST - reach ? near + reach : HIGHEST;
	uint64_t best = 0, best_far = UINT64_MAX;

	size = (size + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	low = (low + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	if (size == 0)
		return 0;
	for (size_t i = 0; i <= maps->count; i++) {
		uint64_t from = i ? maps->entries[i - 1].end + margin : LOWEST;
		uint64_t to = i < maps->count ? maps->entries[i].start : HIGHEST;
		uint64_t at, far;

		to = to > margin ? to - margin : 0;
		from = from > low ? from : low;
		to = to < high ? to : high;
		if (from >= to || to - from < size)
			continue;
		/* The nearest place in [from, to - size]. */
		at = (near & ~(uint64_t)(PAGE - 1));
		if (at > to - size)
			at = (to - size) & ~(uint64_t)(PAGE - 1);
		if (at < from)
			at = from;
		far = distance(at, near) > distance(at + size, near) ? distance(at, near)
								     : distance(at + size, near);
		if (far <= reach && far < best_far) {
			best = at;
			best_far = far;
		}
	}
	return best;
}
