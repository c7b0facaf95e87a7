/* See own_ifunc.h. */
#include "sys/own_ifunc.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/maps.h"

#define TUNABLES "GLIBC_TUNABLES="
#define ENVIRON_MAX (4u << 20) /* the target says how long it is */

/* True also where it cannot be read, or is longer than any program's. */
static bool has_tunables(pid_t pid)
{
	static const char begins[] = TUNABLES;
	size_t at = 0, left = ENVIRON_MAX;
	char path[64];
	int c = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	while (at != strlen(begins) && left && (c = getc(f)) != EOF) {
		left--;
		at = !c ? 0 : at < strlen(begins) && c == begins[at] ? at + 1 : SIZE_MAX / 2;
	}
	fclose(f);
	return at == strlen(begins) || !left;
}

static bool is_same_file(const struct scry_map_entry *a, const struct scry_map_entry *b)
{
	return a->inode && a->inode == b->inode && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor;
}

/* Where the process has what lies at `own` of ours; 0: nowhere. The kernel's code is all the same.
 */
static uint64_t counterpart(const struct scry_linkmap *lm, const struct scry_map_entry *m,
			    uint64_t own)
{
	for (size_t i = 0; i < lm->maps.count; i++) {
		const struct scry_map_entry *to = &lm->maps.entries[i];

		if (scry_elf_is_vdso(m) && scry_elf_is_vdso(to) &&
		    to->end - to->start == m->end - m->start)
			return to->start + (own - m->start);
		if (to->x && is_same_file(to, m) && to->offset == m->offset &&
		    own - m->start < to->end - to->start)
			return to->start + (own - m->start);
	}
	return 0;
}

uint64_t scry_own_ifunc(const struct scry_linkmap *lm, const struct scry_function *function)
{
	const struct scry_object *o = &lm->objects[function->object];
	const struct scry_map_entry *libc, *m;
	struct scry_maps own;
	uint64_t at, r = 0;

	if (!o->mapping || getenv("GLIBC_TUNABLES") || has_tunables(lm->pid))
		return 0;
	at = (uint64_t)(*function->version ? dlvsym(RTLD_DEFAULT, function->name, function->version)
					   : dlsym(RTLD_DEFAULT, function->name));
	if (!at || scry_maps_read(getpid(), &own) < 0) {
		scry_error_clear();
		return 0;
	}
	libc = scry_maps_at(&own, (uint64_t)&gnu_get_libc_version);
	m = scry_maps_at(&own, at);
	if (libc && m && is_same_file(libc, o->mapping) &&
	    (is_same_file(libc, m) || scry_elf_is_vdso(m)))
		r = counterpart(lm, m, at);
	scry_maps_done(&own);
	return r;
}
