/*
 * What the processes of a watch of system calls run: names of the places that make calls, and the
 * stacks above them. An instance is what one process runs from one exec or fork to the next
 * (wire/bpf_syscalls.h); fork children share what their parent's instance has until they map more.
 *
 * Names are taken while the instance is there, as nothing is held for it: of one that ends before
 * it was looked at, which is counted, only what is in files that others have too has names. Reads
 * /proc only. One thread.
 */
#ifndef SCRY_SAMPLE_SYSCALL_PROGRAMS_H
#define SCRY_SAMPLE_SYSCALL_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rec/writer.h"
#include "sys/syscall_number.h"
#include "wire/bpf_syscalls.h"

#define SCRY_SYSCALL_PROGRAMS_MAX 256u /* that are looked at, at once */

struct scry_syscall_programs;

/* `still`: does `pid` run that instance now? `writer` gets PROCESS, ATTACH and STACK events. NULL:
 * no memory. */
struct scry_syscall_programs *
scry_syscall_programs_new(struct scry_writer *writer,
			  bool (*still)(void *arg, pid_t pid, uint32_t instance), void *arg);
void scry_syscall_programs_free(struct scry_syscall_programs *p); /* NULL is legal */

/* A new instance, to be looked at now; `parent` (0: none) is the instance whose fork it is. Known
 * ones stay as they are. */
void scry_syscall_programs_add(struct scry_syscall_programs *p, uint32_t instance, pid_t pid,
			       uint32_t parent);
/* Records of it may still come until scry_syscall_programs_settle. */
void scry_syscall_programs_ended(struct scry_syscall_programs *p, uint32_t instance);
/* The process of instance `old` (0: none) runs another one, by exec. */
void scry_syscall_programs_replaced(struct scry_syscall_programs *p, uint32_t old);
/* Lets go of what ended ones had. */
void scry_syscall_programs_settle(struct scry_syscall_programs *p);

/*
 * Names the instruction before the `ip` of a new place. Where the instance was not looked at in
 * time, as the same file is named in another process, which may be ours. `module` is "[not looked
 * at]" where nothing is known; the texts are good until the next call.
 */
struct scry_syscall_place {
	const char *module, *symbol; /* symbol NULL: none */
	uint64_t offset;	     /* from the symbol, else from the object */
};
void scry_syscall_programs_name(struct scry_syscall_programs *p,
				const struct scry_syscalls_place *record,
				struct scry_syscall_place *ret);

/* Which call the instruction before the place of a stack makes, by its code, and by that of its
 * caller where it is in libc's syscall(2). */
struct scry_syscall_number scry_syscall_programs_number(struct scry_syscall_programs *p,
							const struct scry_syscalls_stack *record);

/* The STACK id of the frame that made the call, with its callers, written where new. 0: not known.
 */
uint32_t scry_syscall_programs_stack(struct scry_syscall_programs *p,
				     const struct scry_syscalls_stack *record);

/* PROCESS and ATTACH of all processes, each once: at the end. */
void scry_syscall_programs_report(struct scry_syscall_programs *p);

/* Instances that were counted and never looked at. */
size_t scry_syscall_programs_unseen(const struct scry_syscall_programs *p);

#endif
