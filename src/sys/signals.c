/*
 * See signals.h. Events of processors, not of threads: those would cost each thread a switch of
 * counters whenever it is scheduled, and a descriptor for each processor.
 */
#include "sys/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sys/tracepoints.h"

#define RING_BYTES (64u << 10)
#define CPUS_MAX 1024
#define WAITING_MAX (1u << 16)
#define RECORD_MAX 128

struct sample { /* PERF_RECORD_SAMPLE, as sample_type says */
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t time;
	uint32_t raw_size;
	struct { /* the tracepoint's; begins at an odd word */
		uint16_t type;
		uint8_t flags, preempt_count;
		int32_t tid;
		int32_t signal, error, code, padding;
		uint64_t handler;
	} __attribute__((packed)) raw;
} __attribute__((packed));

struct task { /* PERF_RECORD_FORK, PERF_RECORD_EXIT: of threads, too */
	struct perf_event_header header;
	uint32_t pid, parent, tid, parent_tid;
	uint64_t time;
};

union record {
	struct perf_event_header header;
	struct sample sample;
	struct task task;
	uint64_t words[RECORD_MAX / 8];
};

struct scry_signals {
	int cpus;
	struct scry_event_ring *rings; /* by processor */
	int *fds;		       /* -1: none */
	struct scry_signal *waiting;   /* not given yet; tsc is still ns */
	size_t count, room;
	struct scry_stamp before;
	uint64_t lost;
	union record record; /* that is looked at */
};

/* The tracepoint's id, where its record is as above. */
static uint64_t find_event(void)
{
	const int tracefs = scry_tracefs_open();
	char text[2048];
	uint64_t id = 0;

	if (tracefs < 0)
		return 0;
	if (scry_tracefs_text(tracefs, "events/signal/signal_deliver/format", text, sizeof(text)) &&
	    strstr(text, "int sig;\toffset:8;\tsize:4;") &&
	    strstr(text, "long sa_handler;\toffset:24;\tsize:8;"))
		id = scry_tracefs_id(tracefs, "signal/signal_deliver");
	close(tracefs);
	return id;
}

static int open_event(struct scry_signals *s, uint64_t id, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = id,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		.watermark = 1,
		.task = 1,
		.wakeup_watermark = RING_BYTES / 2,
	};

	s->fds[cpu] = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (s->fds[cpu] < 0)
		return errno == ENODEV ? 0 : -errno; /* switched off */
	return scry_event_ring_join(&s->rings[cpu], s->fds[cpu], RING_BYTES);
}

int scry_signals_open(struct scry_signals **ret)
{
	const long cpus = sysconf(_SC_NPROCESSORS_CONF);
	const uint64_t id = find_event();
	struct scry_signals *s = id ? calloc(1, sizeof(*s)) : NULL;
	int r = 0;

	if (!s)
		return id ? -ENOMEM : -ENOTSUP;
	s->cpus = cpus < CPUS_MAX ? (int)cpus : CPUS_MAX;
	s->rings = calloc((size_t)s->cpus, sizeof(*s->rings));
	s->fds = malloc((size_t)s->cpus * sizeof(*s->fds));
	s->before = scry_stamp_read(CLOCK_MONOTONIC_RAW);
	for (int i = 0; s->fds && i < s->cpus; i++)
		s->fds[i] = -1;
	if (!s->rings || !s->fds)
		r = -ENOMEM;
	for (int cpu = 0; cpu < s->cpus && r == 0; cpu++)
		r = open_event(s, id, cpu);
	if (r < 0)
		scry_signals_close(s);
	else
		*ret = s;
	return r;
}

void scry_signals_close(struct scry_signals *s)
{
	if (!s)
		return;
	for (int i = 0; s->rings && s->fds && i < s->cpus; i++) {
		scry_event_ring_done(&s->rings[i]);
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	}
	free(s->rings);
	free(s->fds);
	free(s->waiting);
	free(s);
}

static void keep(struct scry_signals *s, const struct scry_signal *one)
{
	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 256;
		struct scry_signal *more =
			room > WAITING_MAX ? NULL
					   : reallocarray(s->waiting, room, sizeof(*s->waiting));

		s->lost += !more;
		if (!more)
			return;
		s->waiting = more;
		s->room = room;
	}
	s->waiting[s->count++] = *one;
}

static int on_record(void *arg)
{
	struct scry_signals *s = arg;
	const struct sample *sample = &s->record.sample;
	const struct task *task = &s->record.task;

	if (s->record.header.type == PERF_RECORD_LOST)
		s->lost += s->record.words[2];
	if (s->record.header.type == PERF_RECORD_FORK && task->pid != task->parent)
		keep(s, &(struct scry_signal){
				.tsc = task->time, .pid = task->pid, .parent = task->parent});
	if (s->record.header.type == PERF_RECORD_EXIT && task->pid == task->tid)
		keep(s, &(struct scry_signal){.tsc = task->time, .pid = task->pid});
	if (s->record.header.type != PERF_RECORD_SAMPLE || sample->raw.signal == SIGKILL ||
	    sample->raw.handler == (uintptr_t)SIG_IGN || sample->raw.signal < 1 ||
	    sample->raw.signal >= _NSIG)
		return 0;
	keep(s, &(struct scry_signal){.tsc = sample->time,
				      .pid = sample->pid,
				      .tid = sample->tid,
				      .number = (uint32_t)sample->raw.signal});
	return 0;
}

static int by_time(const void *left, const void *right)
{
	const struct scry_signal *a = left, *b = right;

	return a->tsc < b->tsc ? -1 : a->tsc > b->tsc;
}

void scry_signals_take(struct scry_signals *s, const struct scry_signals_take *how,
		       uint64_t *ret_tsc)
{
	const uint64_t until = scry_stamp_ns() - SCRY_SIGNALS_LAG_NS;
	struct scry_stamp now;
	size_t n = 0;

	for (int i = 0; i < s->cpus; i++)
		scry_event_ring_read(&s->rings[i], &s->record.header, sizeof(s->record), on_record,
				     s);
	now = scry_stamp_read(CLOCK_MONOTONIC_RAW);
	if (s->count)
		qsort(s->waiting, s->count, sizeof(*s->waiting), by_time);
	for (; n < s->count && s->waiting[n].tsc <= until; n++) {
		struct scry_signal one = s->waiting[n];

		one.tsc = scry_stamp_tsc(&s->before, &now, one.tsc);
		how->give(how->arg, &one);
	}
	s->count -= n;
	if (s->count)
		memmove(s->waiting, s->waiting + n, s->count * sizeof(*s->waiting));
	*ret_tsc = scry_stamp_tsc(&s->before, &now, until);
}

uint64_t scry_signals_lost(const struct scry_signals *s)
{
	return s->lost;
}
