/* See cgroup.h. Files are read as they are named in the kernel's Documentation/admin-guide. */
#include "sys/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNLIMITED (1ull << 60) /* version 1 has a number for none */

/* The number in a file of the group; UINT64_MAX: there is none. */
static uint64_t number_in(const char *group, const char *name)
{
	char path[PATH_MAX + 32], text[32];
	uint64_t value = UINT64_MAX;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	f = fopen(path, "re");
	if (f && fgets(text, sizeof(text), f) && *text >= '0' && *text <= '9')
		value = strtoull(text, NULL, 10);
	if (f)
		fclose(f);
	return value;
}

/* Pages of files, which are given back before any process is ended. */
static uint64_t files_in(const char *group, const char *prefix)
{
	char path[PATH_MAX + 16], line[128], name[64];
	uint64_t value, sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/memory.stat", group);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %lu", name, &value) != 2 ||
		    strncmp(name, prefix, strlen(prefix)))
			continue;
		if (!strcmp(name + strlen(prefix), "inactive_file") ||
		    !strcmp(name + strlen(prefix), "active_file"))
			sum += value;
	}
	if (f)
		fclose(f);
	return sum;
}

static uint64_t left_in(const char *group, int version)
{
	const bool is_new = version == 2;
	uint64_t most = number_in(group, is_new ? "memory.max" : "memory.limit_in_bytes");
	uint64_t used = number_in(group, is_new ? "memory.current" : "memory.usage_in_bytes");
	uint64_t files;

	if (most >= UNLIMITED || used == UINT64_MAX)
		return UINT64_MAX;
	files = files_in(group, is_new ? "" : "total_");
	used -= files < used ? files : used;
	return used < most ? most - used : 0;
}

uint64_t scry_cgroup_left_at(const char *mount, const char *path, int version)
{
	uint64_t least = UINT64_MAX;
	char group[PATH_MAX];
	const size_t top = strlen(mount);

	if (snprintf(group, sizeof(group), "%s%s", mount, path) >= (int)sizeof(group))
		return UINT64_MAX;
	for (;;) {
		uint64_t left = left_in(group, version);
		char *slash = strrchr(group, '/');

		least = left < least ? left : least;
		if (!slash || (size_t)(slash - group) < top)
			return least;
		*slash = '\0';
	}
}

/* Has the list "a,b,c" that word? */
static bool has_word(const char *list, const char *word)
{
	const size_t size = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += size)
		if ((at == list || at[-1] == ',') && (!at[size] || at[size] == ','))
			return true;
	return false;
}

/* Where the hierarchy is mounted, and which group lies there: of us, as we read it. */
static bool find_mount(int version, char *ret_mount, char *ret_root)
{
	char line[2 * PATH_MAX], type[32], options[512];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool is_found = false;

	while (f && !is_found && fgets(line, sizeof(line), f)) {
		const char *rest = strstr(line, " - ");

		if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) != 2 ||
		    sscanf(line, "%*d %*d %*s %4095s %4095s", ret_root, ret_mount) != 2)
			continue;
		is_found = version == 2 ? !strcmp(type, "cgroup2")
					: !strcmp(type, "cgroup") && has_word(options, "memory");
	}
	if (f)
		fclose(f);
	return is_found;
}

/* Of one line of /proc/PID/cgroup, "4:memory:/a/b" or "0::/a/b". */
static uint64_t left_of(char *line)
{
	char mount[PATH_MAX], root[PATH_MAX];
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	int version;

	if (!path)
		return UINT64_MAX;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	version = controllers[1] ? 1 : 2;
	if ((version == 1 && !has_word(controllers + 1, "memory")) || strstr(path, "/..") ||
	    !find_mount(version, mount, root))
		return UINT64_MAX;
	if (strcmp(root, "/") && !strncmp(path, root, strlen(root)))
		path += strlen(root);
	return scry_cgroup_left_at(mount, strcmp(path, "/") ? path : "", version);
}

uint64_t scry_cgroup_memory_left(pid_t pid)
{
	uint64_t least = UINT64_MAX, left;
	char path[64], line[PATH_MAX + 256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		left = left_of(line);
		least = left < least ? left : least;
	}
	if (f)
		fclose(f);
	return least;
}
