/*
 * The mappings of a process: a parsed snapshot of /proc/PID/maps.
 *
 * A snapshot is a copy; the target goes on changing. Names are as the kernel prints them, with
 * " (deleted)" taken off and remembered in a flag.
 */
#ifndef SCRY_SYS_MAPS_H
#define SCRY_SYS_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scry_map_entry {
	uint64_t start, end; /* [start, end) */
	uint64_t offset;     /* in the file, bytes */
	uint64_t inode;	     /* 0: anonymous */
	uint32_t dev_major, dev_minor;
	bool r, w, x, shared, deleted;
	const char *path; /* "" when anonymous; owned by the snapshot */
};

struct scry_maps {
	struct scry_map_entry *entries; /* ascending by start */
	size_t count;
	char *text;   /* backing store of the paths */
	size_t bytes; /* of memory, at least */
};

/* Four times the kernel's own default for vm.max_map_count. */
#define SCRY_MAPS_MAX 262144u

/* Takes a snapshot. 0, or -errno with a sentence: -ESRCH, the process is gone; -E2BIG, it has more
 * than SCRY_MAPS_MAX: of a part, what is missing would be taken for free memory. */
int scry_maps_read(pid_t pid, struct scry_maps *ret);
/* The same from text in the form of /proc/PID/maps, malloc'ed; it is taken over and changed, also
 * on failure. 0, -ENOMEM or -E2BIG with a sentence. */
int scry_maps_parse(char *text, struct scry_maps *ret);
void scry_maps_done(struct scry_maps *maps);

/* Is it memory of the kernel's own that processes share: MAP_ANONYMOUS, memfd_create, SysV? A part
 * of it may be in none of this process's tables, as in a fork child: its file shows what is there,
 * and serves it. */
bool scry_maps_is_shared_memory(const struct scry_map_entry *m);

/* The entry that holds `addr`, or NULL. */
const struct scry_map_entry *scry_maps_at(const struct scry_maps *maps, uint64_t addr);

/* A free, page-aligned gap of `size` bytes as near as possible to `near` and within `reach` bytes
 * of all of [near - reach, near + reach], keeping `margin` bytes away from any other mapping; never
 * below 1 MiB. 0 when there is none. */
uint64_t scry_maps_gap(const struct scry_maps *maps, uint64_t near, uint64_t size, uint64_t reach);

#endif
