/* See debug_info.h. */
#include "sys/debug_info.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_trusted(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       (st.st_uid == 0 || st.st_uid == geteuid());
}

static int open_separate(const uint8_t *id, size_t size)
{
	char path[256];
	int n = snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%02x/", id[0]);

	for (size_t i = 1; i < size && n < (int)sizeof(path) - 10; i++)
		n += snprintf(path + n, sizeof(path) - (size_t)n, "%02x", id[i]);
	snprintf(path + n, sizeof(path) - (size_t)n, ".debug");
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Takes `fd`. Has it units? */
static bool begin(struct scry_debug_info *d, int fd)
{
	Dwarf_CU *cu = NULL;

	d->fd = fd;
	d->dwarf = fd >= 0 && is_trusted(fd) ? dwarf_begin(fd, DWARF_C_READ) : NULL;
	if (d->dwarf && dwarf_get_units(d->dwarf, NULL, &cu, NULL, NULL, NULL, NULL) == 0)
		return true;
	if (d->dwarf)
		dwarf_end(d->dwarf);
	if (fd >= 0)
		close(fd);
	d->dwarf = NULL;
	d->fd = -1;
	return false;
}

struct scry_debug_info *scry_debug_info_open(struct scry_elf *elf)
{
	struct scry_debug_info *d = calloc(1, sizeof(*d));
	const uint8_t *id = NULL;
	size_t size = scry_elf_build_id(elf, &id);

	if (!d)
		return NULL;
	if (begin(d, fcntl(scry_elf_fd(elf), F_DUPFD_CLOEXEC, 3)) ||
	    (size > 2 && begin(d, open_separate(id, size))))
		return d;
	free(d);
	return NULL;
}

void scry_debug_info_close(struct scry_debug_info *info)
{
	if (!info)
		return;
	dwarf_end(info->dwarf);
	close(info->fd);
	free(info);
}
