/* See debug_info.h. */
#include "sys/debug_info.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "sys/debug_file.h"

/* Takes `fd`. Has it units? */
static bool begin(struct scry_debug_info *d, int fd)
{
	Dwarf_CU *cu = NULL;

	d->fd = fd;
	d->dwarf = fd >= 0 && scry_debug_file_is_trusted(fd) ? dwarf_begin(fd, DWARF_C_READ) : NULL;
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

	if (!d)
		return NULL;
	if (begin(d, fcntl(scry_elf_fd(elf), F_DUPFD_CLOEXEC, 3)) ||
	    begin(d, scry_debug_file_open(elf)))
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
