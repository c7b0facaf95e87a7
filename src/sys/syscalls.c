/*
 * One ring for each processor, into which the two tracepoints of all threads write. What is read is
 * put in order of time; what is newer than the beginning of the reading waits, as of a thread that
 * has changed processors its end might have been read and its beginning not.
 */
#include "sys/syscalls.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/container.h"
#include "sys/tracepoints.h"

#define RING_BYTES (1u << 20)
#define LAG_NS 100000u /* until one that is being written is there */
#define CPUS_MAX 1024
#define RECORD_MAX 256

struct scry_syscalls {
	pid_t pid;
	bool with_children;
	int tracefs;
	uint64_t enter, leave;	       /* ids */
	struct scry_event_ring *rings; /* by processor */
	int cpus;
	int *fds;
	size_t fd_count;
	struct scry_syscall *calls; /* not given yet; tsc is still ns */
	size_t count, room;
	struct scry_stamp before;
	uint64_t lost;
};

static const char *const names[] = {
#define SCRY_SYSCALL(name, number) [number] = #name,
#include "sys/syscall_names.def"
#undef SCRY_SYSCALL
};

const char *scry_syscall_name(uint32_t number)
{
	return number < sizeof(names) / sizeof(*names) ? names[number] : NULL;
}

static int not_permitted(int error)
{
	return scry_fail(error == EACCES ? -EACCES : -EPERM,
			 "system calls cannot be traced: perf_event_open: %s; fix: run scry as "
			 "root, or sysctl kernel.perf_event_paranoid=-1 with a readable "
			 "/sys/kernel/tracing; or leave out -S%s",
			 strerror(error), scry_container_fix(SCRY_CONTAINER_BPF));
}

static int open_event(struct scry_syscalls *s, uint64_t id, pid_t tid, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = id,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
		.disabled = 1,
		.inherit = 1,
		.remove_on_exec = s->with_children,
		.inherit_thread = !s->with_children,
		.task = s->with_children && id == s->enter,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		.watermark = 1,
		.wakeup_watermark = RING_BYTES / 2,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 && errno == EINVAL && !s->with_children) { /* before Linux 5.13 */
		attr.inherit_thread = 0;
		fd = (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	s->fds[s->fd_count++] = fd;
	return scry_event_ring_join(&s->rings[cpu], fd, RING_BYTES);
}

static int open_thread(struct scry_syscalls *s, pid_t tid)
{
	int *more = reallocarray(s->fds, s->fd_count + 2u * (unsigned int)s->cpus, sizeof(*more));
	int r = more ? 0 : -ENOMEM;

	if (more)
		s->fds = more;
	for (int cpu = 0; cpu < s->cpus && r == 0; cpu++) {
		r = open_event(s, s->enter, tid, cpu);
		if (r == 0)
			r = open_event(s, s->leave, tid, cpu);
		if (r == -ENODEV) /* switched off */
			r = 0;
	}
	return r == -ESRCH ? 0 : r;
}

static int open_threads(struct scry_syscalls *s)
{
	struct dirent *d;
	char path[64];
	DIR *dir;
	int r = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)s->pid);
	dir = opendir(path);
	if (!dir)
		return scry_fail(-ESRCH, "process %d is gone", (int)s->pid);
	while (r == 0 && (d = readdir(dir)))
		if (atoi(d->d_name))
			r = open_thread(s, (pid_t)atoi(d->d_name));
	closedir(dir);
	if (r == -EMFILE)
		return scry_fail(-ENOTSUP,
				 "system calls of process %d cannot be traced: its threads times "
				 "%d processors are more than the files that may be open; fix: "
				 "ulimit -n, or leave out -S",
				 (int)s->pid, s->cpus);
	if (r == -ENOMEM)
		return scry_no_memory("the system calls of process %d", (int)s->pid);
	if (r == -EINVAL && s->with_children)
		return scry_fail(-ENOTSUP, "system calls of children need Linux 5.13; fix: leave "
					   "out -f, or -S");
	return r < 0 ? not_permitted(-r) : 0;
}

int scry_syscalls_open(pid_t pid, bool with_children, struct scry_syscalls **ret)
{
	struct scry_syscalls *s = calloc(1, sizeof(*s));
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	int r;

	if (!s)
		return scry_no_memory("system calls");
	s->pid = pid;
	s->with_children = with_children;
	s->cpus = cpus < CPUS_MAX ? (int)cpus : CPUS_MAX;
	s->rings = calloc((size_t)s->cpus, sizeof(*s->rings));
	s->tracefs = scry_tracefs_open();
	s->before = scry_stamp_read(CLOCK_MONOTONIC_RAW);
	r = s->rings ? 0 : -ENOMEM;
	if (r == 0) {
		s->enter =
			s->tracefs < 0 ? 0 : scry_tracefs_id(s->tracefs, "raw_syscalls/sys_enter");
		s->leave =
			s->tracefs < 0 ? 0 : scry_tracefs_id(s->tracefs, "raw_syscalls/sys_exit");
		r = s->enter && s->leave
			    ? open_threads(s)
			    : scry_fail(-ENOTSUP,
					"system calls cannot be traced: the tracepoints "
					"raw_syscalls cannot be read; fix: run scry as root, on a "
					"kernel with CONFIG_FTRACE_SYSCALLS; or leave out -S");
	}
	if (r < 0)
		scry_syscalls_close(s);
	else
		*ret = s;
	return r;
}

void scry_syscalls_close(struct scry_syscalls *s)
{
	if (!s)
		return;
	for (int i = 0; s->rings && i < s->cpus; i++)
		scry_event_ring_done(&s->rings[i]);
	for (size_t i = 0; i < s->fd_count; i++)
		close(s->fds[i]);
	if (s->tracefs >= 0)
		close(s->tracefs);
	free(s->rings);
	free(s->fds);
	free(s->calls);
	free(s);
}

void scry_syscalls_switch(struct scry_syscalls *s, bool on)
{
	for (size_t i = 0; i < s->fd_count; i++)
		ioctl(s->fds[i], on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
}

struct sample { /* PERF_RECORD_SAMPLE, as sample_type says */
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t time;
	uint32_t raw_size;
	struct { /* the tracepoint's; begins at an odd word */
		uint16_t type;
		uint8_t flags, preempt_count;
		int32_t pid;
		int64_t number;
		uint64_t args[SCRY_SYSCALL_ARGS];
	} __attribute__((packed)) raw;
} __attribute__((packed));

static int keep(struct scry_syscalls *s, const struct sample *sample)
{
	struct scry_syscall *call;

	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 4096;
		struct scry_syscall *more = reallocarray(s->calls, room, sizeof(*more));

		s->lost += !more;
		if (!more)
			return scry_no_memory("%zu system calls", room);
		s->calls = more;
		s->room = room;
	}
	call = &s->calls[s->count++];
	*call = (struct scry_syscall){.tsc = sample->time,
				      .pid = sample->pid,
				      .tid = sample->tid,
				      .number = (uint32_t)sample->raw.number,
				      .is_exit = sample->raw.type == s->leave};
	memcpy(call->args, sample->raw.args, call->is_exit ? sizeof(uint64_t) : sizeof(call->args));
	return 0;
}

struct fork { /* PERF_RECORD_FORK */
	struct perf_event_header header;
	uint32_t pid, parent, tid, parent_tid;
	uint64_t time;
};

union record {
	struct perf_event_header header;
	struct sample sample;
	struct fork fork;
	uint64_t words[RECORD_MAX / 8];
};

struct read { /* of the rings */
	struct scry_syscalls *syscalls;
	const struct scry_syscalls_take *how;
	union record record;
};

static int on_record(void *arg)
{
	struct read *read = arg;
	const union record *record = &read->record;
	struct scry_syscalls *s = read->syscalls;

	if (record->header.type == PERF_RECORD_LOST)
		s->lost += record->words[2];
	else if (record->header.type == PERF_RECORD_FORK && read->how->born &&
		 record->fork.pid != record->fork.parent)
		read->how->born(read->how->arg, record->fork.pid);
	else if (record->header.type == PERF_RECORD_SAMPLE &&
		 (s->with_children || record->sample.pid == (uint32_t)s->pid))
		return keep(s, &record->sample);
	return 0;
}

static int by_time(const void *left, const void *right)
{
	const struct scry_syscall *a = left, *b = right;

	if (a->tsc != b->tsc)
		return a->tsc < b->tsc ? -1 : 1;
	return a->is_exit - b->is_exit;
}

int scry_syscalls_look(struct scry_syscalls *s, const struct scry_syscalls_take *how)
{
	struct read read = {.syscalls = s, .how = how};
	int r = 0;

	for (int i = 0; i < s->cpus && r == 0; i++)
		r = scry_event_ring_read(&s->rings[i], &read.record.header, sizeof(read.record),
					 on_record, &read);
	return r;
}

int scry_syscalls_take(struct scry_syscalls *s, const struct scry_syscalls_take *how,
		       uint64_t *ret_tsc)
{
	uint64_t until = scry_stamp_ns() - LAG_NS;
	struct scry_stamp now;
	size_t n = 0;
	int r = scry_syscalls_look(s, how), e;

	now = scry_stamp_read(CLOCK_MONOTONIC_RAW);
	if (s->count)
		qsort(s->calls, s->count, sizeof(*s->calls), by_time);
	for (; n < s->count && (how->is_last || s->calls[n].tsc <= until); n++) {
		struct scry_syscall call = s->calls[n];

		call.tsc = scry_stamp_tsc(&s->before, &now, call.tsc);
		e = how->give(how->arg, &call);
		r = r ? r : e;
	}
	s->count -= n;
	if (s->count)
		memmove(s->calls, s->calls + n, s->count * sizeof(*s->calls));
	*ret_tsc = scry_stamp_tsc(&s->before, &now, until);
	return r;
}

uint64_t scry_syscalls_lost(const struct scry_syscalls *s)
{
	return s->lost;
}

static bool has(const char *text, size_t size, const char *word)
{
	return memmem(text, size, word, strlen(word)) != NULL;
}

/* By its C type, and, as many addresses are numbers, by its name, which ends at `end`. */
static char letter_of(const char *type, size_t size, const char *name, const char *end)
{
	static const struct {
		const char *word;
		char letter;
	} letters[] = {
		{"*", 'p'},	  {"size_t", 'z'}, {"unsigned long", 'z'}, {"unsigned int", 'u'},
		{"umode_t", 'u'}, {"u32", 'u'},	   {"u64", 'z'},	   {"off_t", 'l'},
		{"long", 'l'},	  {"int", 'i'},	   {"pid_t", 'i'}};

	if (has(name, (size_t)(end - name), "addr") || has(name, (size_t)(end - name), "brk") ||
	    (end - name == 5 && !memcmp(name, "start", 5)))
		return 'p';
	if (has(name, (size_t)(end - name), "fd") && !has(type, size, "*")) /* AT_FDCWD */
		return 'i';
	for (size_t i = 0; i < sizeof(letters) / sizeof(*letters); i++)
		if (has(type, size, letters[i].word))
			return letters[i].letter;
	return 'x';
}

/* "field:TYPE NAME;" after the line of __syscall_nr, one a line. */
static void read_form(const char *text, char ret[8])
{
	const char *at = strstr(text, "__syscall_nr;");
	size_t n = 1;

	while (at && n < 7 && (at = strstr(at, "field:"))) {
		const char *end = strchr(at, ';'), *name = end;

		if (!end)
			break;
		while (name > at && name[-1] != ' ' && name[-1] != '*')
			name--;
		ret[n++] = letter_of(at + 6, (size_t)(name - at) - 6, name, end);
		at = end;
	}
	ret[n] = '\0';
}

void scry_syscall_form(const struct scry_syscalls *s, uint32_t number, char ret[8])
{
	static const char *const addresses[] = {"mmap", "mremap", "brk", "shmat"};
	const char *name = scry_syscall_name(number), *text = NULL;
	char path[128], buf[4096];

	memcpy(ret, "lxxxxxx", 8);
	for (int i = 0; i < 2 && name && !text; i++) { /* "newstat" for stat */
		snprintf(path, sizeof(path), "events/syscalls/sys_enter_%s%s/format",
			 i ? "new" : "", name);
		text = scry_tracefs_text(s->tracefs, path, buf, sizeof(buf));
	}
	if (text)
		read_form(text, ret);
	for (size_t i = 0; name && i < sizeof(addresses) / sizeof(*addresses); i++)
		if (!strcmp(name, addresses[i]))
			ret[0] = 'x';
}
