/* See debug_file.h. */
#include "sys/debug_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

#define ROOT "/usr/lib/debug"

static bool is_trusted(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	       (st.st_uid == 0 || st.st_uid == geteuid());
}

static bool try_file(struct scry_elf *elf, const char *path)
{
	const uint8_t *id, *its;
	size_t size = scry_elf_build_id(elf, &id);
	struct scry_elf *debug;

	if (!is_trusted(path) || scry_elf_open_path(path, &debug) < 0)
		return false;
	if (is_trusted(path) && scry_elf_build_id(debug, &its) == size && !memcmp(id, its, size) &&
	    scry_elf_lend(elf, debug))
		return true;
	scry_elf_close(debug);
	return false;
}

static void path_by_id(const uint8_t *id, size_t size, char *ret, size_t room)
{
	int n = snprintf(ret, room, ROOT "/.build-id/%02x/", id[0]);

	for (size_t i = 1; i < size && n < (int)room - 10; i++)
		n += snprintf(ret + n, room - (size_t)n, "%02x", id[i]);
	snprintf(ret + n, room - (size_t)n, ".debug");
}

void scry_debug_file_lend(struct scry_elf *elf, const char *path)
{
	static const char *const places[] = {"%.*s/%s", "%.*s/.debug/%s", ROOT "%.*s/%s"};
	const char *slash = strrchr(path, '/');
	char name[NAME_MAX + 1], full[PATH_MAX];
	const uint8_t *id;
	size_t size = scry_elf_build_id(elf, &id);
	bool found;

	if (!scry_elf_wants_symbols(elf) || size < 2)
		return;
	path_by_id(id, size, full, sizeof(full));
	found = try_file(elf, full);
	if (!found && slash && scry_elf_debuglink(elf, name, sizeof(name)))
		for (size_t i = 0; i < sizeof(places) / sizeof(*places) && !found; i++) {
			snprintf(full, sizeof(full), places[i], (int)(slash - path), path, name);
			found = try_file(elf, full);
		}
	scry_error_clear();
}
