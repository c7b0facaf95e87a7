/* See rseqs.h. */
#include "sys/rseqs.h"

#include <linux/rseq.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <unistd.h>

static bool read_at(int mem_fd, uint64_t addr, void *to, size_t size)
{
	return pread(mem_fd, to, size, (off_t)addr) == (ssize_t)size;
}

uint64_t scry_rseq_resume(pid_t tid, int mem_fd, uint64_t ip)
{
	struct __ptrace_rseq_configuration c = {0};
	struct rseq_cs sequence;
	uint64_t at;

	/* Linux 5.13; no address: none is registered */
	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, sizeof(c), &c) < 0 || !c.rseq_abi_pointer ||
	    !read_at(mem_fd, c.rseq_abi_pointer + offsetof(struct rseq, rseq_cs), &at,
		     sizeof(at)) ||
	    !at || !read_at(mem_fd, at, &sequence, sizeof(sequence)))
		return ip;
	return ip - sequence.start_ip < sequence.post_commit_offset ? sequence.abort_ip : ip;
}
