/*
 * How much memory a process may still take before its control group's limit is reached, and the
 * kernel ends one of the group's processes (cgroups(7), both versions).
 */
#ifndef SCRY_SYS_CGROUP_H
#define SCRY_SYS_CGROUP_H

#include <stdint.h>
#include <sys/types.h>

/* Bytes, of the group and those above it the least; what the kernel can take back at once (pages of
 * files) counts as left. UINT64_MAX: there is no limit, or none that can be seen from here. */
uint64_t scry_cgroup_memory_left(pid_t pid);

/* The same of the group `path` ("/a/b") of a hierarchy that is mounted at `mount`: of version 2, or
 * of the memory controller of version 1. */
uint64_t scry_cgroup_left_at(const char *mount, const char *path, int version);

#endif
