/* See mounts.h. Documentation/filesystems/proc.rst, 3.5 */
#include "sys/mounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOUNTS_MAX 16384u

static enum scry_mount_kind kind_of(const char *type)
{
	static const struct {
		const char *name;
		enum scry_mount_kind kind;
	} rows[] = {
		{"tmpfs", SCRY_MOUNT_MEMORY},	  {"ext4", SCRY_MOUNT_DISK},
		{"ext3", SCRY_MOUNT_DISK},	  {"ext2", SCRY_MOUNT_DISK},
		{"xfs", SCRY_MOUNT_DISK},	  {"f2fs", SCRY_MOUNT_DISK},
		{"devtmpfs", SCRY_MOUNT_DEVICES}, {"btrfs", SCRY_MOUNT_KERNEL},
		{"squashfs", SCRY_MOUNT_KERNEL},  {"erofs", SCRY_MOUNT_KERNEL},
		{"bcachefs", SCRY_MOUNT_KERNEL},  {"vfat", SCRY_MOUNT_KERNEL},
		{"iso9660", SCRY_MOUNT_KERNEL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strcmp(rows[i].name, type))
			return rows[i].kind;
	return SCRY_MOUNT_UNKNOWN;
}

/* A line of mountinfo: "ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS... - TYPE ..."; spaces in names
 * are escaped. */
static void take(struct scry_mounts *m, const char *line)
{
	const char *rest = strstr(line, " - ");
	struct scry_mount row;
	struct scry_mount *rows;
	char type[32];

	if (!rest || sscanf(rest, " - %31s", type) != 1 ||
	    sscanf(line, "%*d %*d %u:%u", &row.dev_major, &row.dev_minor) != 2)
		return;
	row.kind = kind_of(type);
	if (row.kind == SCRY_MOUNT_UNKNOWN || m->count == MOUNTS_MAX ||
	    scry_mounts_kind(m, row.dev_major, row.dev_minor) != SCRY_MOUNT_UNKNOWN)
		return;
	rows = realloc(m->rows, (m->count + 1) * sizeof(*rows));
	if (!rows)
		return;
	m->rows = rows;
	m->rows[m->count++] = row;
}

void scry_mounts_read(pid_t pid, struct scry_mounts *ret)
{
	char path[32], *line = NULL;
	size_t room = 0;
	FILE *f;

	*ret = (struct scry_mounts){0};
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &room, f) > 0)
		take(ret, line);
	free(line);
	if (f)
		fclose(f);
}

void scry_mounts_done(struct scry_mounts *m)
{
	free(m->rows);
	*m = (struct scry_mounts){0};
}

enum scry_mount_kind scry_mounts_kind(const struct scry_mounts *m, uint32_t dev_major,
				      uint32_t dev_minor)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->rows[i].dev_major == dev_major && m->rows[i].dev_minor == dev_minor)
			return m->rows[i].kind;
	return SCRY_MOUNT_UNKNOWN;
}
