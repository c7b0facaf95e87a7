/*
 * One ring for each processor, into which the two tracepoints of all threads write. What is read is
 * put in order of time; what is newer than the beginning of the reading waits, as of a thread that
 * has changed processors its end might have been read and its beginning not.
 *
 * tracefs need not be mounted: it is opened by itself (fsmount(2)), where we may.
 */
#include "sys/syscalls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/err.h"
#include "sys/container.h"

#define PAGE 4096u
#define RING_BYTES (1u << 20)
#define LAG_NS 100000u /* until one that is being written is there */
#define CPUS_MAX 1024
#define READINGS 5
#define RECORD_MAX 256

struct ring {
	struct perf_event_mmap_page *head;
	int fd; /* whose it is */
};

struct reading {
	uint64_t tsc, ns;
};

struct scry_syscalls {
	pid_t pid;
	bool with_children;
	int tracefs;
	uint64_t enter, leave; /* ids */
	struct ring *rings;    /* by processor */
	int cpus;
	int *fds;
	size_t fd_count;
	struct scry_syscall *calls; /* not given yet; tsc is still ns */
	size_t count, room;
	struct reading before; /* of the clocks */
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

static uint64_t raw_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Of several, the one with the least time in between. */
static struct reading read_clocks(void)
{
	struct reading best = {0};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < READINGS; i++) {
		uint64_t first = __rdtsc(), ns = raw_ns(), last = __rdtsc();

		if (last - first < least) {
			least = last - first;
			best = (struct reading){first + (last - first) / 2, ns};
		}
	}
	return best;
}

/* Between two readings. */
static uint64_t tsc_of(const struct reading *a, const struct reading *b, uint64_t ns)
{
	double rate = b->ns > a->ns ? (double)(b->tsc - a->tsc) / (double)(b->ns - a->ns) : 1;

	return a->tsc + (uint64_t)(int64_t)((double)(int64_t)(ns - a->ns) * rate);
}

static int open_tracefs(void)
{
	static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
	int fd = -1, fs;

	for (size_t i = 0; i < 2 && fd < 0; i++) {
		fd = open(places[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && faccessat(fd, "events/raw_syscalls", R_OK, 0) < 0) {
			close(fd);
			fd = -1;
		}
	}
	if (fd >= 0)
		return fd;
	fs = fsopen("tracefs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -1;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
	return fd;
}

/* Text of a file there, or NULL. */
static const char *read_text(const struct scry_syscalls *s, const char *path, char *ret,
			     size_t room)
{
	int fd = openat(s->tracefs, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, room - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return NULL;
	ret[n] = '\0';
	return ret;
}

static uint64_t id_of(const struct scry_syscalls *s, const char *event)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "events/raw_syscalls/%s/id", event);
	return read_text(s, path, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
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
	struct ring *ring = &s->rings[cpu];
	int fd = (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 && errno == EINVAL && !s->with_children) { /* before Linux 5.13 */
		attr.inherit_thread = 0;
		fd = (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	s->fds[s->fd_count++] = fd;
	if (ring->head)
		return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring->fd) < 0 ? -errno : 0;
	ring->head = mmap(NULL, PAGE + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring->head == MAP_FAILED) {
		ring->head = NULL;
		return -errno;
	}
	ring->fd = fd;
	return 0;
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
		return scry_fail(r, "no memory for the system calls of process %d", (int)s->pid);
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
		return scry_fail(-ENOMEM, "no memory for system calls");
	s->pid = pid;
	s->with_children = with_children;
	s->cpus = cpus < CPUS_MAX ? (int)cpus : CPUS_MAX;
	s->rings = calloc((size_t)s->cpus, sizeof(*s->rings));
	s->tracefs = open_tracefs();
	s->before = read_clocks();
	r = s->rings ? 0 : -ENOMEM;
	if (r == 0) {
		s->enter = s->tracefs < 0 ? 0 : id_of(s, "sys_enter");
		s->leave = s->tracefs < 0 ? 0 : id_of(s, "sys_exit");
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
		if (s->rings[i].head)
			munmap(s->rings[i].head, PAGE + RING_BYTES);
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
			return scry_fail(-ENOMEM, "no memory for %zu system calls", room);
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

/* The record at `tail`, wrapped or not. */
static void copy_record(const struct ring *ring, uint64_t tail, void *ret, size_t size)
{
	const char *data = (const char *)ring->head + PAGE;
	size_t at = tail % RING_BYTES, first = RING_BYTES - at < size ? RING_BYTES - at : size;

	memcpy(ret, data + at, first);
	memcpy((char *)ret + first, data, size - first);
}

struct fork { /* PERF_RECORD_FORK */
	struct perf_event_header header;
	uint32_t pid, parent, tid, parent_tid;
	uint64_t time;
};

static int read_ring(struct scry_syscalls *s, const struct scry_syscalls_take *how,
		     const struct ring *ring)
{
	uint64_t head = __atomic_load_n(&ring->head->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = ring->head->data_tail;
	int r = 0;

	while (tail < head && r == 0) {
		union {
			struct perf_event_header header;
			struct sample sample;
			struct fork fork;
			uint64_t words[RECORD_MAX / 8];
		} record = {0};

		copy_record(ring, tail, &record.header, sizeof(record.header));
		if (record.header.size < sizeof(record.header))
			break;
		copy_record(ring, tail, &record,
			    record.header.size < RECORD_MAX ? record.header.size : RECORD_MAX);
		if (record.header.type == PERF_RECORD_LOST)
			s->lost += record.words[2];
		else if (record.header.type == PERF_RECORD_FORK && how->born &&
			 record.fork.pid != record.fork.parent)
			how->born(how->arg, record.fork.pid);
		else if (record.header.type == PERF_RECORD_SAMPLE &&
			 (s->with_children || record.sample.pid == (uint32_t)s->pid))
			r = keep(s, &record.sample);
		tail += record.header.size;
	}
	__atomic_store_n(&ring->head->data_tail, tail, __ATOMIC_RELEASE);
	return r;
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
	int r = 0;

	for (int i = 0; i < s->cpus && r == 0; i++)
		if (s->rings[i].head)
			r = read_ring(s, how, &s->rings[i]);
	return r;
}

int scry_syscalls_take(struct scry_syscalls *s, const struct scry_syscalls_take *how,
		       uint64_t *ret_tsc)
{
	uint64_t until = raw_ns() - LAG_NS;
	struct reading now;
	size_t n = 0;
	int r = scry_syscalls_look(s, how), e;

	now = read_clocks();
	if (s->count)
		qsort(s->calls, s->count, sizeof(*s->calls), by_time);
	for (; n < s->count && (how->is_last || s->calls[n].tsc <= until); n++) {
		struct scry_syscall call = s->calls[n];

		call.tsc = tsc_of(&s->before, &now, call.tsc);
		e = how->give(how->arg, &call);
		r = r ? r : e;
	}
	s->count -= n;
	if (s->count)
		memmove(s->calls, s->calls + n, s->count * sizeof(*s->calls));
	*ret_tsc = tsc_of(&s->before, &now, until);
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
		text = read_text(s, path, buf, sizeof(buf));
	}
	if (text)
		read_form(text, ret);
	for (size_t i = 0; name && i < sizeof(addresses) / sizeof(*addresses); i++)
		if (!strcmp(name, addresses[i]))
			ret[0] = 'x';
}
