/* See serves.h. */
#include "replan/serves.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "sys/linkmap.h"

uint64_t scry_malloc_serves_exe(pid_t pid)
{
	char name[64];
	struct stat st;

	snprintf(name, sizeof(name), "/proc/%d/exe", pid);
	return stat(name, &st) ? 0 : st.st_ino ^ (uint64_t)st.st_dev << 48;
}

static bool has_malloc(struct scry_linkmap *lm, size_t i)
{
	struct scry_dynsym sym;

	return !lm->objects[i].is_vdso && scry_linkmap_open(lm, i) == 0 &&
	       scry_dynamic_find(&lm->objects[i].tables, "malloc", "", &sym) == 0 && sym.value &&
	       sym.type == STT_FUNC;
}

static bool find(struct scry_linkmap *lm, struct scry_malloc_serves *ret)
{
	const size_t end = lm->is_static ? 1 : lm->spaces[0].end;

	for (size_t i = 0; i < end && i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];

		if (!lm->is_static && !has_malloc(lm, i))
			continue;
		snprintf(ret->path, sizeof(ret->path), "%s",
			 o->mapping ? o->mapping->path : o->name);
		ret->is_static = lm->is_static;
		ret->is_glibc = !lm->is_static && o->tables.soname &&
				!strcmp(o->tables.soname, "libc.so.6");
		return true;
	}
	return false;
}

bool scry_malloc_serves(pid_t pid, struct scry_malloc_serves *ret_serves)
{
	struct scry_malloc_serves s = {.exe_inode = scry_malloc_serves_exe(pid)};
	struct scry_linkmap lm;
	struct scry_mem mem;
	bool is_known = false;

	if (s.exe_inode && scry_mem_open(&mem, pid, 0) == 0) {
		if (scry_linkmap_read(pid, &mem, &lm) == 0) {
			is_known = !lm.is_changing && !lm.is_cut && find(&lm, &s) &&
				   scry_malloc_serves_exe(pid) == s.exe_inode;
			scry_linkmap_done(&lm);
		}
		scry_mem_close(&mem);
	}
	scry_error_clear();
	if (is_known)
		*ret_serves = s;
	return is_known;
}
