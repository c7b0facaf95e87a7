/*
 * Pages that the target and scry share: a memfd that the target makes, and that scry takes from it.
 *
 * Invariants, for a target that works against us:
 * - Nothing is looked up twice. The descriptor is taken by pidfd_getfd, which gives the very file
 *   with the rights that the target has on it, and never more (/proc/PID/map_files and /proc/PID/fd
 *   open anew, with ours). Whatever that file is, all that follows is done to this one.
 * - It must be a memfd that can be sealed; scry sets its size, and seals that. So no page of it
 *   goes from under us, and no limit of the target (RLIMIT_FSIZE) has a say.
 * - The descriptor in the target is closed within the same hold. A scry that is killed in between
 *   leaves a word in the agent's header page; whoever enters next, or undoes, finds it by its name.
 */
#ifndef SCRY_HOOK_SHARED_H
#define SCRY_HOOK_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/tracee.h"
#include "wire/control.h"

#define SCRY_SHARED_PATH "/memfd:scry-shared-" /* so /proc calls them, and a number follows */

struct scry_shared {
	uint64_t start, size; /* in the target, whole pages */
	uint64_t place;	      /* MAP_FIXED or MAP_FIXED_NOREPLACE */
	uint64_t header;      /* the agent's header page, which is written to */
};

/* Has this kernel what it takes? */
bool scry_shared_is_possible(void);

/*
 * Maps such pages, all zero, in the stopped thread `t`. *ret_fd (caller closes) is our descriptor.
 * 0, or -errno: with a sentence, or as the target's system calls say it, -EEXIST among them.
 * scry_tracee_finish is the caller's.
 */
int scry_shared_map(const struct scry_shared *want, struct scry_tracee *t,
		    const struct scry_call *how, int *ret_fd);

/* From here on nothing changes the size of this memfd, so that no page goes from under us. False:
 * it has another size or other seals: another process was faster. Before it is mapped. */
bool scry_shared_seal(int fd, uint64_t size);

/* Closes what a scry that was killed in scry_shared_map has left open. 0 or -errno. */
int scry_shared_close_left(uint64_t header, struct scry_tracee *t, const struct scry_call *how);

/*
 * mmap in the stopped thread: `call` is the system call's number and arguments. A program that
 * locks all that it maps (mlockall with MCL_FUTURE) would have all of it brought into memory there
 * and then: such a mapping is made without access, taken out of the lock, and then opened. 0 or
 * -errno.
 */
int scry_shared_mmap(const uint64_t call[7], struct scry_tracee *t, const struct scry_call *how);

#endif
