/*
 * See family.h. Of each processor two rings: one of execs, which wakes its reader, and a larger one
 * of forks and ends, which does not, as there are far more. Execs are those of the tracepoint
 * sched_process_exec; where tracefs cannot be read, new names that come of an exec (comm_exec), and
 * then forks and ends, which come with these, wake too. Records of both rings are put in order by
 * their times. An exec is given at once, an end only when all execs before it must be there.
 */
#include "sys/family.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/map.h"
#include "sys/tracepoints.h"

#define EXEC_BYTES (32u << 10)
#define TASK_BYTES (128u << 10)
#define CPUS_MAX 1024
#define MEMBERS_MAX (1u << 16)
#define NEWS_MAX (1u << 16) /* that are in the rings at once */
#define RECORD_MAX 128
#define LAG_NS 200000u /* until a record that is being written is there */

struct sample_id { /* behind each record, as sample_type says */
	uint32_t pid, tid;
	uint64_t time;
};

struct task { /* PERF_RECORD_FORK, PERF_RECORD_EXIT: of threads, too */
	struct perf_event_header header;
	uint32_t pid, parent, tid, parent_tid;
	uint64_t time;
};

union record {
	struct perf_event_header header;
	struct task task;
	char bytes[RECORD_MAX];
	uint64_t words[RECORD_MAX / 8];
};

enum news_kind { FORK, EXEC, END };

struct news {
	uint64_t ns;
	uint32_t pid, parent; /* parent: of FORK */
	enum news_kind kind;
};

struct member {
	uint32_t parent;   /* 0: not known */
	bool is_pending;   /* what it runs was not looked at */
	uint64_t born_ns;  /* forked, or noticed: what lies before does not concern it */
	uint64_t exec_ns;  /* when that began */
	uint64_t known_ns; /* what it ran then is settled */
};

struct scry_family {
	bool follows;
	int cpus;
	struct scry_event_ring *execs, *tasks; /* by processor */
	int *exec_fds, *task_fds;	       /* -1: none */
	int poll_fd;			       /* of all `exec_fds` */
	struct scry_map members;	       /* pid -> struct member */
	struct news *news;
	size_t count, room;
	uint64_t lost, missed;
	uint32_t parent;
	bool is_other;
	union record record; /* that is looked at */
};

static int open_event(int cpu, bool is_exec, uint64_t tracepoint)
{
	struct perf_event_attr attr = {
		.type = tracepoint ? PERF_TYPE_TRACEPOINT : PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = tracepoint ? tracepoint : PERF_COUNT_SW_DUMMY,
		.sample_period = tracepoint != 0,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.sample_id_all = 1,
		.exclude_kernel = !tracepoint,
		.exclude_hv = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.comm = is_exec && !tracepoint,
		.comm_exec = is_exec && !tracepoint,
		.task = !is_exec,
		.watermark = 1,
		.wakeup_watermark = is_exec ? 1 : TASK_BYTES / 2,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* 0 also where the processor is switched off. */
static int join(int fd, struct scry_event_ring *ring, size_t bytes, int *ret_fd)
{
	if (fd < 0)
		return fd == -ENODEV ? 0 : fd;
	*ret_fd = fd;
	return scry_event_ring_join(ring, fd, bytes);
}

static int join_poll(const struct scry_family *f, int fd)
{
	struct epoll_event want = {.events = EPOLLIN};

	return fd < 0 || epoll_ctl(f->poll_fd, EPOLL_CTL_ADD, fd, &want) == 0 ? 0 : -errno;
}

static int open_cpu(struct scry_family *f, int cpu, uint64_t tracepoint)
{
	int fd, r = join(open_event(cpu, false, 0), &f->tasks[cpu], TASK_BYTES, &f->task_fds[cpu]);

	if (r < 0)
		return r;
	fd = tracepoint ? open_event(cpu, true, tracepoint) : -EACCES;
	if (fd < 0)
		fd = open_event(cpu, true, 0);
	r = join(fd, &f->execs[cpu], EXEC_BYTES, &f->exec_fds[cpu]);
	return r < 0 ? r : join_poll(f, f->exec_fds[cpu]);
}

/* 0: not to be had. */
static uint64_t find_tracepoint(void)
{
	const int tracefs = scry_tracefs_open();
	uint64_t id = tracefs < 0 ? 0 : scry_tracefs_id(tracefs, "sched/sched_process_exec");

	if (tracefs >= 0)
		close(tracefs);
	return id;
}

static struct scry_family *new_one(void)
{
	const long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct scry_family *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	scry_map_init(&f->members, MEMBERS_MAX);
	f->cpus = cpus < CPUS_MAX ? (int)cpus : CPUS_MAX;
	f->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	f->execs = calloc((size_t)f->cpus, sizeof(*f->execs));
	f->tasks = calloc((size_t)f->cpus, sizeof(*f->tasks));
	f->exec_fds = malloc((size_t)f->cpus * sizeof(*f->exec_fds));
	f->task_fds = malloc((size_t)f->cpus * sizeof(*f->task_fds));
	if (f->execs && f->tasks && f->exec_fds && f->task_fds) {
		for (int i = 0; i < f->cpus; i++)
			f->exec_fds[i] = f->task_fds[i] = -1;
		return f;
	}
	f->cpus = 0;
	scry_family_close(f);
	return NULL;
}

int scry_family_open(bool follows, struct scry_family **ret)
{
	const uint64_t tracepoint = find_tracepoint();
	struct scry_family *f = new_one();
	int r = f ? 0 : -ENOMEM;

	for (int cpu = 0; r == 0 && cpu < f->cpus; cpu++)
		r = open_cpu(f, cpu, tracepoint);
	if (r < 0) {
		scry_family_close(f);
		return r;
	}
	f->follows = follows;
	*ret = f;
	return 0;
}

static void free_members(struct scry_family *f)
{
	struct scry_map_slot slot;
	size_t cursor = 0;

	while (scry_map_next(&f->members, &cursor, &slot))
		free((struct member *)(uintptr_t)slot.value);
	scry_map_done(&f->members);
}

void scry_family_close(struct scry_family *f)
{
	if (!f)
		return;
	for (int i = 0; i < f->cpus; i++) {
		scry_event_ring_done(&f->execs[i]);
		scry_event_ring_done(&f->tasks[i]);
		if (f->exec_fds[i] >= 0)
			close(f->exec_fds[i]);
		if (f->task_fds[i] >= 0)
			close(f->task_fds[i]);
	}
	if (f->poll_fd >= 0)
		close(f->poll_fd);
	free_members(f);
	free(f->execs);
	free(f->tasks);
	free(f->exec_fds);
	free(f->task_fds);
	free(f->news);
	free(f);
}

/* members */

static struct member *member(const struct scry_family *f, uint32_t pid)
{
	uint64_t value;

	return scry_map_get(&f->members, pid, &value) ? (struct member *)(uintptr_t)value : NULL;
}

static void forget(struct scry_family *f, uint32_t pid)
{
	uint64_t value;

	if (scry_map_remove(&f->members, pid, &value))
		free((struct member *)(uintptr_t)value);
}

static struct member *add(struct scry_family *f, uint32_t pid)
{
	struct member *m = calloc(1, sizeof(*m));

	if (m && scry_map_put(&f->members, pid, (uintptr_t)m) == 0)
		return m;
	free(m);
	f->lost++;
	return NULL;
}

void scry_family_add(struct scry_family *f, pid_t pid, uint64_t ns)
{
	struct member *m = f && pid > 0 && !member(f, (uint32_t)pid) ? add(f, (uint32_t)pid) : NULL;

	if (m)
		m->born_ns = ns;
}

static void miss(struct scry_family *f, uint32_t pid, struct member *m)
{
	const uint32_t parent = m->parent ? m->parent : pid;

	if (!m->is_pending)
		return;
	m->is_pending = false;
	f->is_other |= f->missed && parent != f->parent;
	f->parent = f->missed ? f->parent : parent;
	f->missed++;
}

void scry_family_settled(struct scry_family *f, pid_t pid, uint64_t ns)
{
	struct member *m = f ? member(f, (uint32_t)pid) : NULL;

	if (!m)
		return;
	m->known_ns = ns > m->known_ns ? ns : m->known_ns;
	m->is_pending &= m->exec_ns > m->known_ns;
}

/* news */

static void keep(struct scry_family *f, const struct news *one)
{
	if (f->count == f->room) {
		size_t room = f->room ? 2 * f->room : 256;
		struct news *more =
			room > NEWS_MAX ? NULL : reallocarray(f->news, room, sizeof(*f->news));

		f->lost += !more;
		if (!more)
			return;
		f->news = more;
		f->room = room;
	}
	f->news[f->count++] = *one;
}

static int on_exec(void *arg)
{
	struct scry_family *f = arg;
	const struct perf_event_header *head = &f->record.header;
	struct sample_id id;

	if (head->type == PERF_RECORD_LOST)
		f->lost += f->record.words[2];
	if (head->size < sizeof(*head) + sizeof(id) || head->size > sizeof(f->record))
		return 0;
	memcpy(&id, f->record.bytes + head->size - sizeof(id), sizeof(id));
	if (head->type == PERF_RECORD_SAMPLE ||
	    (head->type == PERF_RECORD_COMM && head->misc & PERF_RECORD_MISC_COMM_EXEC))
		keep(f, &(struct news){.ns = id.time, .pid = id.pid, .kind = EXEC});
	return 0;
}

static int on_task(void *arg)
{
	struct scry_family *f = arg;
	const struct task *task = &f->record.task;
	const uint32_t type = f->record.header.type;

	if (type == PERF_RECORD_LOST)
		f->lost += f->record.words[2];
	else if (type == PERF_RECORD_FORK && task->pid != task->parent)
		keep(f, &(struct news){.ns = task->time,
				       .pid = task->pid,
				       .parent = task->parent,
				       .kind = FORK});
	else if (type == PERF_RECORD_EXIT && task->pid == task->tid)
		keep(f, &(struct news){.ns = task->time, .pid = task->pid, .kind = END});
	return 0;
}

/* Its number may have been another process's. */
static void on_fork(struct scry_family *f, const struct news *n, const struct scry_family_take *how)
{
	struct member *m = member(f, n->pid);

	if (m && n->ns <= m->born_ns) { /* of itself: noticed before this news */
		if (f->follows && member(f, n->parent)) {
			m->parent = n->parent;
			m->born_ns = n->ns;
		}
		return;
	}
	if (m) { /* that of one of which the end was lost */
		miss(f, n->pid, m);
		forget(f, n->pid);
	}
	if (!f->follows || !member(f, n->parent))
		return;
	m = add(f, n->pid);
	if (!m)
		return;
	m->parent = n->parent;
	m->born_ns = n->ns;
	if (how->forked)
		how->forked(how->arg, (pid_t)n->pid);
}

/*
 * The first thread ends, too, when another one runs a program: the process is a member still, and
 * the news of the end may come behind that of the exec.
 */
static void give(struct scry_family *f, const struct news *n, const struct scry_family_take *how)
{
	struct member *m = n->kind == FORK ? NULL : member(f, n->pid);

	if (n->kind == FORK)
		on_fork(f, n, how);
	if (!m || n->ns < m->born_ns || (n->kind == END && n->ns < m->exec_ns))
		return;
	miss(f, n->pid, m);
	if (n->kind == END) {
		if (kill((pid_t)n->pid, 0) < 0 && errno == ESRCH)
			forget(f, n->pid);
		return;
	}
	m->exec_ns = n->ns;
	m->is_pending = n->ns > m->known_ns;
	if (m->is_pending)
		how->execed(how->arg, (pid_t)n->pid);
}

static int by_time(const void *left, const void *right)
{
	const struct news *a = left, *b = right;

	return a->ns < b->ns ? -1 : a->ns > b->ns;
}

/* Execs first: the fork that lies before one is there by then. */
void scry_family_take(struct scry_family *f, const struct scry_family_take *how)
{
	struct timespec now;
	uint64_t until;
	size_t left = 0;

	if (!f)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	until = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - LAG_NS;
	for (int i = 0; i < f->cpus; i++)
		scry_event_ring_read(&f->execs[i], &f->record.header, sizeof(f->record), on_exec,
				     f);
	for (int i = 0; i < f->cpus; i++)
		scry_event_ring_read(&f->tasks[i], &f->record.header, sizeof(f->record), on_task,
				     f);
	if (f->count)
		qsort(f->news, f->count, sizeof(*f->news), by_time);
	for (size_t i = 0; i < f->count; i++)
		if (f->news[i].kind == END && f->news[i].ns > until)
			f->news[left++] = f->news[i];
		else
			give(f, &f->news[i], how);
	f->count = left;
}

uint64_t scry_family_missed(const struct scry_family *f, pid_t *ret_parent, bool *ret_is_all)
{
	if (!f)
		return 0;
	*ret_parent = (pid_t)f->parent;
	*ret_is_all = !f->is_other;
	return f->missed;
}

uint64_t scry_family_lost(const struct scry_family *f)
{
	return f ? f->lost : 0;
}

int scry_family_fd(const struct scry_family *f)
{
	return f ? f->poll_fd : -1;
}
