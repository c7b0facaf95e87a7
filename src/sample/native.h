/*
 * Native frames of sampled stacks: of a thread that waits, by the two registers that the kernel
 * shows; of one that is held, by all of them; of one that runs, out of the copy that its clock has
 * made (wire/bpf_stacks.h). Merged with Ruby's (name/mixed_merge).
 */
#ifndef SCRY_SAMPLE_NATIVE_H
#define SCRY_SAMPLE_NATIVE_H

#include "base/intern.h"
#include "name/stacks.h"
#include "name/mixed_merge.h"
#include "sys/task.h"
#include "wire/bpf_stacks.h"

struct scry_samples_native;

struct scry_samples_native_sums { /* stacks that were read */
	uint64_t whole;		  /* with all native frames */
	uint64_t cut;		  /* without the oldest */
	uint64_t apart;		  /* they did not fit Ruby's, and were left out */
	uint64_t none;		  /* without any */
};

/* `ruby` and `names`, which gets objects and symbols, are borrowed. 0 or -errno with a sentence:
 * -ENOTSUP where stacks of this Ruby cannot be merged. */
int scry_samples_native_open(const struct scry_ruby *ruby, struct scry_intern *names,
			     struct scry_samples_native **ret);
void scry_samples_native_close(struct scry_samples_native *n); /* NULL is legal */

/* The native frames of the stack that is taken next: of a thread that waits since `now`; of one
 * that is held, with its registers; of one whose record came before; none. */
void scry_samples_native_waits(struct scry_samples_native *n, const struct scry_task_now *now);
void scry_samples_native_held(struct scry_samples_native *n, const struct user_regs_struct *regs);
void scry_samples_native_recorded(struct scry_samples_native *n, uint32_t tid, uint64_t time_ns);
void scry_samples_native_none(struct scry_samples_native *n);

/* Keeps what a SCRY_BPF_NATIVE record leads to, for the thread's next record. 0 or -EPROTO. */
int scry_samples_native_record(struct scry_samples_native *n, const void *record, size_t size);

/* The order of both, newest first: *ret, until the next call; their count. */
size_t scry_samples_mixed_merge(struct scry_samples_native *n, const struct scry_walk *walk,
				const struct scry_woven **ret);
/* Native frame `at` of them. */
struct scry_stack_frame scry_samples_native_frame(struct scry_samples_native *n, uint32_t at);

struct scry_samples_native_sums scry_samples_native_sums(const struct scry_samples_native *n);

#endif
