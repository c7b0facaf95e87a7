/*
 * The fork children of a process, and which have a patch: a patch that is put in or taken out
 * later changes one process only.
 */
#ifndef SCRY_CMD_PATCH_CHILDREN_H
#define SCRY_CMD_PATCH_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SCRY_PATCH_CHILDREN_MAX 4096u

struct scry_patch_children {
	size_t count; /* pids: descendants of which this is true */
	pid_t pids[SCRY_PATCH_CHILDREN_MAX];
};

/* Descendants that run the same program as `pid`, by fork without an exec, and in which patch
 * `name` is applied (`has`), or is not. Those that may not be looked at are left out. */
void scry_patch_children_find(pid_t pid, const char *name, bool has,
			      struct scry_patch_children *ret);

/* The first pids of it, as words of a sentence, and how many more. */
void scry_patch_children_words(const struct scry_patch_children *c, char *ret, size_t size);

#endif
