/* See processors.h. */
#include "sample/processors.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

#define SWAY_NS 20000000u
#define SWAY_TICKS 20u
#define SWAY_MANY 16u /* processors */

/*
 * Processor time cannot be sampled at random moments, as the kernel has one period for a clock. So
 * the period is such that it is in step with no rhythm: one over the rate, and more by the eighth
 * power of the golden section (2.1 %). Of all numbers its multiples come least near to whole ones:
 * work that repeats with the rate, or with a simple multiple or part of it, is sampled evenly at
 * all its moments.
 */
uint64_t scry_processors_period(uint64_t rate)
{
	return (uint64_t)(1.0212862362522082 * 1e9 / (double)rate);
}

/* The event's descriptor is libbpf's: a second one is ours. */
static int keep(struct scry_processors *p, int fd, int err)
{
	const int own = err || !p || !p->fds ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own >= 0)
		p->fds[p->count++] = own;
	return err;
}

/*
 * One clock a processor, and not one a thread: the kernel sets a thread's timer anew each time that
 * it comes on a processor, which took 12 us on a virtual machine, and a fifth of the requests of a
 * web server whose threads take turns.
 */
int scry_processors_tick(struct scry_bpf *bpf, const char *program, uint64_t period_ns,
			 uint64_t number, struct scry_processors *ret)
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

	if (ret)
		*ret = (struct scry_processors){.fds = calloc((size_t)cpus, sizeof(int)),
						.period_ns = period_ns};
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
			err = keep(ret, fd, scry_bpf_attach_perf(bpf, program, fd, number));
	}
	if (!err)
		return 0;
	scry_bpf_detach_number(bpf, number); /* none, and not two when it is tried once more */
	if (ret)
		scry_processors_done(ret);
	return err;
}

void scry_processors_done(struct scry_processors *p)
{
	for (size_t i = 0; i < p->count; i++)
		close(p->fds[i]);
	free(p->fds);
	*p = (struct scry_processors){0};
}

static uint64_t now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A period begins anew then, so half a tick is lost: of many. Each processor is interrupted: where
 * there are many, more seldom. */
uint64_t scry_processors_rest_ns(const struct scry_processors *p)
{
	const uint64_t least = SWAY_TICKS * p->period_ns;

	return (least > SWAY_NS ? least : SWAY_NS) * (1 + p->count / SWAY_MANY);
}

static void set_periods(struct scry_processors *p, uint64_t least_ns, uint64_t range_ns)
{
	for (size_t i = 0; i < p->count; i++) {
		uint64_t period = least_ns + (range_ns ? (uint64_t)random() % range_ns : 0);

		ioctl(p->fds[i], PERF_EVENT_IOC_PERIOD, &period);
	}
}

void scry_processors_sway(struct scry_processors *p)
{
	const uint64_t now = now_ns();

	if (now - p->swayed_ns < scry_processors_rest_ns(p))
		return;
	p->swayed_ns = now;
	set_periods(p, p->period_ns - p->period_ns / 4, p->period_ns / 2 + 1); /* 3/4 to 5/4 */
}

void scry_processors_pace(struct scry_processors *p, uint64_t period_ns)
{
	p->period_ns = period_ns;
	set_periods(p, period_ns, 0);
}
