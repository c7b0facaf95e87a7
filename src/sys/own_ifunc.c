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

/* True also where it cannot be read. */
static bool has_tunables(pid_t pid)
{
	char path[64], *text = NULL;
	bool has = false;
	size_t room = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	while (!has && getdelim(&text, &room, '\0', f) > 0)
		has = !strncmp(text, TUNABLES, strlen(TUNABLES));
	free(text);
	fclose(f);
	return has;
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
		if (to->x && is_same_file(to, m) && to->offset == m->offset)
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
