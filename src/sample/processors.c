/* See processors.h. */
#include "sample/processors.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"

#define FIRST_PID_NS 0xeffffffcu /* linux/proc_ns.h, PROC_PID_INIT_INO */

/*
 * Processor time cannot be sampled at random moments, as the kernel has one period for a clock. So
 * the period is such that it is in step with no rhythm: one over the rate, and more by the eighth
 * power of the golden section (2.1 %). Of all numbers its multiples come least near to whole ones:
 * work that repeats with the rate, or with a simple multiple or part of it, is met evenly at all
 * its moments.
 */
uint64_t scry_processors_period(uint64_t rate)
{
	return (uint64_t)(1.0212862362522082 * 1e9 / (double)rate);
}

/*
 * One clock a processor, and not one a thread: the kernel sets a thread's timer anew each time that
 * it comes on a processor, which took 12 us on a virtual machine, and a fifth of the requests of a
 * web server whose threads take turns.
 */
int scry_processors_tick(struct scry_bpf *bpf, const char *program, uint64_t period_ns,
			 uint64_t number)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = period_ns,
		.disabled = 1,
		.exclude_idle = 1,
	};
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	int err = 0;

	for (int cpu = 0; cpu < cpus && !err; cpu++) {
		int fd =
			(int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

		if (fd < 0 && errno == ENODEV) /* it is offline */
			continue;
		if (fd < 0)
			err = scry_fail(-errno, "no clock for processor %d (perf_event_open): %s%s",
					cpu, strerror(errno),
					errno == EMFILE ? "; fix: ulimit -n 65536"
					: errno == EACCES || errno == EPERM
						? "; fix: sudo scry ..., or sysctl "
						  "kernel.perf_event_paranoid=-1"
						: "");
		else
			err = scry_bpf_attach_perf(bpf, program, fd, number);
	}
	if (err) /* none, and not two when it is tried once more */
		scry_bpf_detach_number(bpf, number);
	return err;
}

uint32_t scry_processors_namespace(void)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == FIRST_PID_NS)
		return 0;
	return (uint32_t)st.st_ino;
}
