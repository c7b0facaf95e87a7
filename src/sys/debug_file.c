/* See debug_file.h. */
#include "sys/debug_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

bool scry_debug_file_is_trusted(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       (st.st_uid == 0 || st.st_uid == geteuid());
}

int scry_debug_file_open(struct scry_elf *elf)
{
	const uint8_t *id = NULL;
	size_t size = scry_elf_build_id(elf, &id);
	char path[256];
	int n, fd;

	if (size < 3)
		return -1;
	n = snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%02x/", id[0]);
	for (size_t i = 1; i < size && n < (int)sizeof(path) - 10; i++)
		n += snprintf(path + n, sizeof(path) - (size_t)n, "%02x", id[i]);
	snprintf(path + n, sizeof(path) - (size_t)n, ".debug");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && !scry_debug_file_is_trusted(fd)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

int scry_debug_file_elf(struct scry_elf *elf, struct scry_elf **ret)
{
	const uint8_t *id = NULL, *its = NULL;
	size_t size = scry_elf_build_id(elf, &id);
	struct scry_elf *debug = NULL;
	int fd = scry_debug_file_open(elf);
	char path[32];

	if (fd < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (scry_elf_open_path(path, &debug) == 0 &&
	    (scry_elf_build_id(debug, &its) != size || memcmp(id, its, size))) {
		scry_elf_close(debug);
		debug = NULL;
	}
	close(fd);
	scry_error_clear();
	*ret = debug;
	return debug ? 0 : -ENOENT;
}
