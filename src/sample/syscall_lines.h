/*
 * Lines of Ruby that make system calls: what of a watch's instances is a Ruby, where its threads
 * have their frames, and what a record of them means.
 *
 * A thread is not looked for: the kernel's side finds the execution context of the one that makes
 * the call by its thread register. How far from it that word lies is found by looking for the
 * context that the VM has for a thread below its register; that it is that thread's own, the
 * kernel's side asks each time. A Ruby for which that cannot be had, or whose layout is not known,
 * has no lines; why, `note` says.
 *
 * Reads only. One thread. A layout that is not known yet is learned here: that takes some
 * tenths of a second, once (vm/ruby_calib), in which nothing is named.
 */
#ifndef SCRY_SAMPLE_SYSCALL_LINES_H
#define SCRY_SAMPLE_SYSCALL_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "probe/bpf.h"
#include "rec/writer.h"
#include "wire/bpf_syscalls_lines.h"

struct scry_syscall_lines;

/* `bpf` gets its maps `lines` and `rubies` filled; NULL: there is none, and no Ruby has lines. Both
 * are borrowed. NULL: no memory. */
struct scry_syscall_lines *scry_syscall_lines_new(struct scry_writer *writer, struct scry_bpf *bpf);
void scry_syscall_lines_free(struct scry_syscall_lines *l); /* NULL is legal */

/* A new instance; `parent` as in syscall_programs.h. One that has ended. */
void scry_syscall_lines_add(struct scry_syscall_lines *l, uint32_t instance, pid_t pid,
			    uint32_t parent);
void scry_syscall_lines_ended(struct scry_syscall_lines *l, uint32_t instance);
/* Asks of processes that are not known yet whether they are Rubies; `settles`: lets go of what has
 * ended, as no more records of it come. */
void scry_syscall_lines_turn(struct scry_syscall_lines *l, bool settles);

/* A thread of this instance was seen, by a native stack. */
void scry_syscall_lines_see(struct scry_syscall_lines *l, const struct scry_syscalls_stack *record);
/* The STACK id of the newest line of a record, with its callers. 0: not known. */
uint32_t scry_syscall_lines_stack(struct scry_syscall_lines *l,
				  const struct scry_syscalls_lines *record);

/* Is this instance's a Ruby? */
bool scry_syscall_lines_is_ruby(const struct scry_syscall_lines *l, uint32_t instance);
/* Why a Ruby has no lines, the last such one; NULL. */
const char *scry_syscall_lines_note(const struct scry_syscall_lines *l);

#endif
