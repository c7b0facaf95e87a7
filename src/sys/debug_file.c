/* See debug_file.h. */
#include "sys/debug_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/regular.h"
#include "sys/served.h"

#define ROOT "/usr/lib/debug"

bool scry_debug_file_is_trusted(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       (st.st_uid == 0 || st.st_uid == geteuid());
}

static int open_trusted(const char *path)
{
	int fd = scry_served_path_answers(path) ? scry_regular_open(path) : -1;

	if (fd >= 0 && !scry_debug_file_is_trusted(fd)) {
		close(fd);
		fd = -1;
	}
	return fd < 0 ? -1 : fd;
}

int scry_debug_file_open(struct scry_elf *elf)
{
	const uint8_t *id = NULL;
	size_t size = scry_elf_build_id(elf, &id);
	char path[256];
	int n;

	if (size < 3)
		return -1;
	n = snprintf(path, sizeof(path), ROOT "/.build-id/%02x/", id[0]);
	for (size_t i = 1; i < size && n < (int)sizeof(path) - 10; i++)
		n += snprintf(path + n, sizeof(path) - (size_t)n, "%02x", id[i]);
	snprintf(path + n, sizeof(path) - (size_t)n, ".debug");
	return open_trusted(path);
}

/* The file behind `fd`, -1 for none, which is closed, if it is the binary's: NULL: it is not. */
static struct scry_elf *its_own(struct scry_elf *elf, int fd)
{
	const uint8_t *id = NULL, *its = NULL;
	size_t size = scry_elf_build_id(elf, &id);
	struct scry_elf *debug = NULL;
	char path[32];

	if (fd < 0)
		return NULL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (scry_elf_open_path(path, &debug) < 0)
		debug = NULL;
	else if (scry_elf_build_id(debug, &its) != size || memcmp(id, its, size) != 0) {
		scry_elf_close(debug);
		debug = NULL;
	}
	close(fd);
	scry_error_clear();
	return debug;
}

static bool lend(struct scry_elf *elf, int fd)
{
	struct scry_elf *debug = its_own(elf, fd);

	if (!debug || scry_elf_lend(elf, debug))
		return debug != NULL;
	scry_elf_close(debug);
	return false;
}

void scry_debug_file_lend(struct scry_elf *elf, const char *path)
{
	static const char *const places[] = {"%.*s/%s", "%.*s/.debug/%s", ROOT "%.*s/%s"};
	const char *slash = strrchr(path, '/');
	char name[NAME_MAX + 1], full[PATH_MAX];
	const uint8_t *id;
	bool found;

	if (!scry_elf_wants_symbols(elf) || scry_elf_build_id(elf, &id) < 3)
		return;
	found = lend(elf, scry_debug_file_open(elf));
	if (found || !slash || !scry_elf_debuglink(elf, name, sizeof(name)))
		return;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places) && !found; i++) {
		snprintf(full, sizeof(full), places[i], (int)(slash - path), path, name);
		found = lend(elf, open_trusted(full));
	}
}
