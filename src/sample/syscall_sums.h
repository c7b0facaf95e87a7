/*
 * What was counted: the sums of bpf/syscalls.bpf.c as they are taken out of the kernel, by site and
 * thread, with the stacks and paths that were seen; in the end as events.
 *
 * Limits: sums of more than a million threads and sites, and threads beyond 65,536, are one row per
 * site, as of a thread 0; of sites beyond a million the calls are counted as lost.
 */
#ifndef SCRY_SAMPLE_SYSCALL_SUMS_H
#define SCRY_SAMPLE_SYSCALL_SUMS_H

#include "rec/writer.h"
#include "sample/syscall_programs.h"

struct scry_syscall_sums;

/* Both are borrowed. NULL: no memory. */
struct scry_syscall_sums *scry_syscall_sums_new(struct scry_writer *writer,
						struct scry_syscall_programs *programs);
void scry_syscall_sums_free(struct scry_syscall_sums *s); /* NULL is legal */

/* The number of a place's site, written as SYSCALL_SITE when it is new: its instance is there now.
 * Of a key alone it is named without a file. pid 0: not known. 0: no memory. */
uint32_t scry_syscall_sums_place(struct scry_syscall_sums *s,
				 const struct scry_syscalls_place *record);
uint32_t scry_syscall_sums_site(struct scry_syscall_sums *s, const struct scry_syscalls_key *key,
				uint32_t pid);
/* A call at a known site was made in this file: in another one than at first it has no name. */
void scry_syscall_sums_file(struct scry_syscall_sums *s, uint32_t site,
			    const struct scry_syscalls_file *file);

/*
 * A sample that stands for `weight` calls there, or ticks: it came by this STACK; of a Ruby's, by
 * this line, which comes after it where it was asked for. 0: not known. A path that was asked for.
 */
void scry_syscall_sums_stack(struct scry_syscall_sums *s, uint32_t site, uint32_t stack,
			     uint64_t weight);
void scry_syscall_sums_ruby(struct scry_syscall_sums *s, uint32_t site, uint64_t weight);
void scry_syscall_sums_line(struct scry_syscall_sums *s, uint32_t site, uint32_t stack,
			    uint64_t weight);
uint64_t scry_syscall_sums_line_samples(const struct scry_syscall_sums *s); /* of Rubies */
void scry_syscall_sums_path(struct scry_syscall_sums *s, uint32_t site, const char *path,
			    uint64_t weight);

/* A thread has ended: SCRY_SYSCALLS_ENDED. Its sums can be taken from the kernel. How many wait. */
void scry_syscall_sums_ended(struct scry_syscall_sums *s, const struct scry_syscalls_record *r);
/* All threads of this instance have. */
void scry_syscall_sums_replaced(struct scry_syscall_sums *s, uint32_t instance);
size_t scry_syscall_sums_waiting(const struct scry_syscall_sums *s);

/* Asks for the names of threads that live, as far as is known. */
struct scry_syscall_thread {
	uint32_t tid, instance, pid;
	char name[16]; /* "": not known */
	bool has_ended;
};
typedef void scry_syscall_sums_name(void *arg, struct scry_syscall_thread *thread);
void scry_syscall_sums_names(struct scry_syscall_sums *s, scry_syscall_sums_name *name, void *arg);

/* One tick, in a call of the thread of `key`. False: there was no room. */
bool scry_syscall_sums_tick(struct scry_syscall_sums *s, const struct scry_syscalls_key *key);

/* Takes the sums of threads that have ended out of the kernel's map; or of all. `is_timed`: it is
 * `timed`, not `sums`. How many slots of it were in use. */
size_t scry_syscall_sums_take(struct scry_syscall_sums *s, int map, bool is_timed, bool all);
/* How many calls those have that were taken. */
uint64_t scry_syscall_sums_calls(const struct scry_syscall_sums *s);
uint64_t scry_syscall_sums_lost(const struct scry_syscall_sums *s); /* of them: beyond the limits */

/* SYSCALL, SYSCALL_TIME, SYSCALL_STACK, SYSCALL_LINE and SYSCALL_PATH events. 0 or -errno. */
int scry_syscall_sums_write(struct scry_syscall_sums *s);

#endif
