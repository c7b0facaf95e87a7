/*
 * Restartable sequences (rseq(2)): code that the kernel begins anew when its thread was interrupted
 * in it. Per-processor allocators have some.
 */
#ifndef SCRY_SYS_RSEQS_H
#define SCRY_SYS_RSEQS_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Thread `tid` is stopped by us at `ip`, is made to run something else, and then comes back: where
 * to? Into a sequence it may not: its abort handler is returned, as the kernel chooses for a signal
 * handler (kernel/rseq.c, rseq_ip_fixup). Else `ip`. `mem_fd` is of its process's memory.
 */
uint64_t scry_rseq_resume(pid_t tid, int mem_fd, uint64_t ip);

#endif
