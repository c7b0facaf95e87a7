/*
 * A process and its identity, read from /proc.
 *
 * A pid alone names whoever has it now; (pid, start time) names one process for ever, and a pidfd
 * keeps the kernel's own hold on it. The order in scry_proc_open is the trick: start time, pidfd,
 * start time again; when both times agree, the pidfd belongs to the process whose files we read.
 *
 * Must not stop, trace or change the process; every file of /proc may vanish between two reads.
 */
#include "sys/proc.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/container.h"
#include "sys/living.h"

#define TASKS_MAX 4194304u /* PID_MAX_LIMIT of the kernel */
/* linux/sched.h; proc(5) has the field. A worker of io_uring, or another one, in a process. */
#define PF_KTHREAD 0x200000u
#define PF_WORKERS (0x10u | 0x4000u)
#define LIBC_SIGNALS (3ull << (32 - 1)) /* SIGCANCEL and SIGSETXID */

/* Reads a small file of /proc whole, NUL-terminates it. Length or -errno. */
static ssize_t read_file(const char *path, char *buf, size_t size)
{
	size_t got = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (got < size - 1) {
		ssize_t n = read(fd, buf + got, size - 1 - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int err = errno;

			close(fd);
			return -err;
		}
		if (n == 0)
			break;
		got += (size_t)n;
	}
	close(fd);
	buf[got] = '\0';
	return (ssize_t)got;
}

/*
 * Field `number` (proc(5) counts from 1) of a stat line, for number >= 3. The command in field 2 is
 * in parentheses and may hold anything, also ") R 1 (": so count from the LAST parenthesis.
 */
static const char *stat_field(const char *line, int number)
{
	const char *p = strrchr(line, ')');

	if (!p)
		return NULL;
	for (int i = 2; i < number; i++) {
		p = strchr(p, ' ');
		if (!p)
			return NULL;
		p++;
	}
	return p;
}

static int read_stat(const char *path, int number, uint64_t *ret)
{
	char line[1024];
	const char *field;
	ssize_t n = read_file(path, line, sizeof(line));

	if (n < 0)
		return (int)n;
	field = stat_field(line, number);
	if (!field)
		return -ESRCH;
	*ret = strtoull(field, NULL, 10);
	return 0;
}

int scry_proc_stat(pid_t pid, struct scry_proc_stat *ret)
{
	char path[64], line[1024];
	const char *state, *ppid, *start, *size, *code, *stack;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_file(path, line, sizeof(line)) < 0)
		return -ESRCH;
	state = stat_field(line, 3), ppid = stat_field(line, 4), start = stat_field(line, 22);
	size = stat_field(line, 23), code = stat_field(line, 26), stack = stat_field(line, 28);
	if (!state || !ppid || !start || !size || !code || !stack)
		return -ESRCH;
	*ret = (struct scry_proc_stat){
		.state = *state,
		.ppid = (pid_t)strtol(ppid, NULL, 10),
		.start_ticks = strtoull(start, NULL, 10),
		.has_memory = strtoull(size, NULL, 10) != 0,
		.image = strtoull(code, NULL, 10) ^ strtoull(stack, NULL, 10),
	};
	return 0;
}

pid_t scry_proc_newest(void)
{
	char text[256];
	const char *last;

	if (read_file("/proc/loadavg", text, sizeof(text)) < 0)
		return 0;
	last = strrchr(text, ' ');
	return last ? (pid_t)strtol(last, NULL, 10) : 0;
}

/* The text after "Key:\t" in a status file, or NULL. */
static const char *status_value(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
		if (strncmp(p, key, len) == 0 && p[len] == ':')
			return p + len + 1 + strspn(p + len + 1, " \t");
	}
	return NULL;
}

static long status_number(const char *text, const char *key)
{
	const char *value = status_value(text, key);

	return value ? strtol(value, NULL, 10) : 0;
}

static bool read_link(const char *path, struct scry_proc *proc)
{
	ssize_t n = readlink(path, proc->exe, sizeof(proc->exe) - 1);

	proc->exe[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Where the first thread has ended before the others, only theirs is reported. */
static void read_exe(struct scry_proc *proc)
{
	char path[80];
	pid_t *tids = NULL;
	ssize_t count;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)proc->pid);
	if (read_link(path, proc) || proc->state != 'Z')
		return;
	count = scry_proc_tasks(proc->pid, &tids);
	for (ssize_t i = 0; i < count && !proc->exe[0]; i++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/exe", (int)proc->pid, (int)tids[i]);
		read_link(path, proc);
	}
	free(count < 0 ? NULL : tids);
}

/* Fills all fields that come from /proc/PID/status and exe; *ret_tgid is the process of the task.
 */
static int read_status(struct scry_proc *proc, pid_t *ret_tgid)
{
	char path[64], text[8192];
	const char *value;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)proc->pid);
	n = read_file(path, text, sizeof(text));
	if (n < 0)
		return n == -ENOENT ? -ESRCH : (int)n;

	value = status_value(text, "Name");
	snprintf(proc->comm, sizeof(proc->comm), "%.*s", value ? (int)strcspn(value, "\n") : 0,
		 value ? value : "");
	value = status_value(text, "State");
	proc->state = value ? *value : 'X';
	proc->ppid = (pid_t)status_number(text, "PPid");
	proc->tracer = (pid_t)status_number(text, "TracerPid");
	proc->threads = (int)status_number(text, "Threads");
	proc->seccomp = (int)status_number(text, "Seccomp");
	value = status_value(text, "x86_Thread_features");
	proc->has_shadow_stack = value && memmem(value, strcspn(value, "\n"), "shstk", 5);
	value = status_value(text, "Uid");
	if (value)
		sscanf(value, "%u %u", &proc->uid, &proc->euid);
	value = status_value(text, "Gid");
	if (value)
		sscanf(value, "%u %u", &proc->gid, &proc->egid);
	*ret_tgid = (pid_t)status_number(text, "Tgid");
	read_exe(proc);
	return 0;
}

/* A bit each, signal 1 the lowest; 0: none, or it is gone. */
static uint64_t caught_by(pid_t pid)
{
	char path[64], text[8192];
	const char *caught;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	caught = read_file(path, text, sizeof(text)) < 0 ? NULL : status_value(text, "SigCgt");
	return caught ? strtoull(caught, NULL, 16) : 0;
}

bool scry_proc_catches(pid_t pid, int signal)
{
	return caught_by(pid) >> (signal - 1) & 1;
}

bool scry_proc_has_handlers(pid_t pid)
{
	return (caught_by(pid) & ~LIBC_SIGNALS) != 0;
}

uint64_t scry_proc_locked(pid_t pid)
{
	char path[64], text[8192];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return read_file(path, text, sizeof(text)) < 0
		       ? 0
		       : (uint64_t)status_number(text, "VmLck") << 10;
}

uint64_t scry_proc_start_ticks(pid_t pid)
{
	char path[64];
	uint64_t ticks;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return read_stat(path, 22, &ticks) == 0 ? ticks : 0;
}

pid_t scry_proc_tracer(pid_t pid, pid_t tid)
{
	char path[64], text[256];
	int tracer = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	f = fopen(path, "re");
	while (f && fgets(text, sizeof(text), f))
		sscanf(text, "TracerPid: %d", &tracer);
	if (f)
		fclose(f);
	return tracer;
}

pid_t scry_proc_traced_by(pid_t tracer)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	while (dir && !found && (entry = readdir(dir))) {
		const pid_t pid = (pid_t)atoi(entry->d_name);
		pid_t *tids = NULL;
		const ssize_t n = pid > 0 ? scry_proc_tasks(pid, &tids) : -1;

		for (ssize_t i = 0; i < n && !found; i++)
			found = scry_proc_tracer(pid, tids[i]) == tracer ? pid : 0;
		if (n >= 0)
			free(tids);
	}
	if (dir)
		closedir(dir);
	return found;
}

bool scry_proc_share_memory(pid_t a, pid_t b)
{
	return a > 0 && b > 0 && syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0;
}

pid_t scry_proc_shares_memory(pid_t pid)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0, other, self = scry_living_thread(pid);

	while (dir && !found && (entry = readdir(dir))) {
		other = (pid_t)strtol(entry->d_name, NULL, 10);
		if (other > 0 && other != pid && scry_proc_share_memory(self, other))
			found = other;
	}
	if (dir)
		closedir(dir);
	return found;
}

static uint64_t kib_line(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	return line ? strtoull(line + strlen(key), NULL, 10) : 0;
}

uint64_t scry_proc_anonymous_bytes(pid_t pid)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (read_file(path, text, sizeof(text)) < 0)
		return 0;
	return 1024 * (kib_line(text, "\nRssAnon:") + kib_line(text, "\nVmSwap:"));
}

bool scry_proc_task_is_worker(pid_t pid, pid_t tid)
{
	char path[96];
	uint64_t flags = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	return read_stat(path, 9, &flags) == 0 && flags & PF_WORKERS;
}

bool scry_proc_is_running(pid_t pid, uint64_t start_ticks)
{
	char state = scry_proc_task_state(pid, pid);

	return state && state != 'Z' && state != 'X' && scry_proc_start_ticks(pid) == start_ticks;
}

static int no_such_process(pid_t pid)
{
	if (!*scry_container_fix(SCRY_CONTAINER_PROCESSES))
		return scry_fail(-ESRCH, "no such process: %d", (int)pid);
	return scry_fail(
		-ESRCH, "no such process: %d; a container sees its own only, see scry doctor -p %d",
		(int)pid, (int)pid);
}

int scry_proc_open(struct scry_proc *ret, pid_t pid)
{
	struct scry_proc proc = {.pid = pid, .pidfd = -1};
	pid_t tgid = 0;
	int err;

	if (pid <= 0)
		return scry_fail(-ESRCH, "no such process: %d; a process id is a positive number",
				 (int)pid);
	proc.start_ticks = scry_proc_start_ticks(pid);
	if (proc.start_ticks == 0)
		return no_such_process(pid);
	err = read_status(&proc, &tgid);
	if (err)
		return scry_fail(err, "cannot read the status of process %d: %s", (int)pid,
				 strerror(-err));
	if (tgid != pid)
		return scry_fail(-EINVAL, "%d is a thread of process %d; fix: name the process, %d",
				 (int)pid, (int)tgid, (int)tgid);

	proc.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (proc.pidfd < 0) {
		err = -errno;
		return scry_fail(err, "cannot pin process %d: %s", (int)pid, strerror(-err));
	}
	if (scry_proc_start_ticks(pid) != proc.start_ticks) {
		scry_proc_close(&proc);
		return scry_fail(-ESRCH, "process %d ended while it was opened", (int)pid);
	}
	*ret = proc;
	return 0;
}

void scry_proc_close(struct scry_proc *proc)
{
	if (proc && proc->pidfd >= 0) {
		close(proc->pidfd);
		proc->pidfd = -1;
	}
}

bool scry_proc_is_kernel(pid_t pid)
{
	char path[64];
	uint64_t flags;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return read_stat(path, 9, &flags) == 0 && flags & PF_KTHREAD;
}

int scry_proc_fail_gone(pid_t pid)
{
	struct scry_proc proc = {.pidfd = -1};
	const char *what = NULL;

	if (scry_proc_open(&proc, pid) < 0)
		return scry_fail(-ESRCH, "process %d is gone", (int)pid);
	if (proc.state == 'Z')
		what = "is a zombie: it has ended, and its parent has not waited for it";
	else if (scry_proc_is_kernel(pid))
		what = "is a thread of the kernel";
	scry_proc_close(&proc);
	return what ? scry_fail(-ESRCH, "process %d (%s) %s", (int)pid, proc.comm, what)
		    : scry_fail(-ESRCH, "process %d is gone", (int)pid);
}

int scry_proc_refresh(struct scry_proc *proc)
{
	struct scry_proc now = *proc;
	pid_t tgid = 0;

	if (read_status(&now, &tgid) != 0 || now.state == 'X' ||
	    scry_proc_start_ticks(proc->pid) != proc->start_ticks)
		return scry_fail(-ESRCH, "process %d is gone", (int)proc->pid);
	*proc = now;
	return 0;
}

bool scry_proc_is_alive(const struct scry_proc *proc)
{
	struct pollfd p = {.fd = proc->pidfd, .events = POLLIN};

	if (proc->pidfd < 0)
		return scry_proc_start_ticks(proc->pid) == proc->start_ticks;
	/* A pidfd becomes readable when the process ends, waited for or not. */
	return poll(&p, 1, 0) == 0;
}

static int compare_pids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

ssize_t scry_proc_tasks(pid_t pid, pid_t **ret)
{
	char path[64];
	pid_t *list = NULL;
	size_t count = 0, room = 0;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	while (count < TASKS_MAX && (entry = readdir(dir))) {
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		if (count == room) {
			pid_t *more;

			room = room ? room * 2 : 64;
			more = realloc(list, room * sizeof(*list));
			if (!more) {
				free(list);
				closedir(dir);
				return -ENOMEM;
			}
			list = more;
		}
		list[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
	}
	closedir(dir);
	if (count == 0) {
		free(list);
		return -ESRCH;
	}
	qsort(list, count, sizeof(*list), compare_pids);
	*ret = list;
	return (ssize_t)count;
}

size_t scry_proc_tasks_in(pid_t pid, long nr)
{
	pid_t *tids;
	ssize_t n = scry_proc_tasks(pid, &tids);
	char path[64], text[256], *end;
	size_t in = 0;

	if (n < 0)
		return 0;
	for (ssize_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid, (int)tids[i]);
		if (read_file(path, text, sizeof(text)) > 0)
			in += strtol(text, &end, 10) == nr && end != text; /* or "running" */
	}
	free(tids);
	return in;
}

bool scry_proc_is_named(pid_t pid, const char *prefix)
{
	char path[64], name[16] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (f && !fgets(name, sizeof(name), f))
		name[0] = '\0';
	if (f)
		fclose(f);
	return !strncmp(name, prefix, strlen(prefix));
}

size_t scry_proc_task_count(pid_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	return stat(path, &st) == 0 && st.st_nlink > 2 ? st.st_nlink - 2 : 0;
}

/* The last number of the NSpid line of a task is the one in its own namespace. */
pid_t scry_proc_tid_inside(pid_t pid, pid_t tid)
{
	char path[64], line[256];
	pid_t inner = tid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		char *last;

		if (strncmp(line, "NSpid:", 6) != 0)
			continue;
		last = strrchr(line, '\t');
		inner = last ? (pid_t)strtol(last + 1, NULL, 10) : tid;
		break;
	}
	if (f)
		fclose(f);
	return inner;
}

pid_t scry_proc_of_thread(pid_t tid)
{
	char path[64], text[8192];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	return read_file(path, text, sizeof(text)) < 0 ? 0 : (pid_t)status_number(text, "Tgid");
}

char scry_proc_task_state(pid_t pid, pid_t tid)
{
	char path[64], line[1024];
	const char *field;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	if (read_file(path, line, sizeof(line)) < 0)
		return 0;
	field = stat_field(line, 3);
	return field ? *field : 0;
}

/* struct pidfd_info of linux/pidfd.h, which headers before Linux 6.15 do not have. */
struct end_info {
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t exit_code;
	uint32_t coredump_mask, pad;
};
#define END_INFO_EXIT (1u << 3)
#define END_INFO_GET _IOWR(0xff, 11, struct end_info)

/* Linux 6.15: also when its parent has waited for it. */
static int exit_by_pidfd(int pidfd, uint32_t *ret_status)
{
	struct end_info info = {.mask = END_INFO_EXIT};

	if (pidfd < 0 || ioctl(pidfd, END_INFO_GET, &info) < 0 || !(info.mask & END_INFO_EXIT))
		return -ESRCH;
	*ret_status = (uint32_t)info.exit_code & 0xffff;
	return 0;
}

int scry_proc_exit(const struct scry_proc *proc, uint32_t *ret_status)
{
	struct scry_proc_stat st;
	uint64_t status;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)proc->pid);
	if (scry_proc_stat(proc->pid, &st) < 0 || st.start_ticks != proc->start_ticks ||
	    st.state != 'Z' || read_stat(path, 52, &status) < 0)
		return exit_by_pidfd(proc->pidfd, ret_status);
	*ret_status = (uint32_t)status & 0xffff;
	return 0;
}

uint64_t scry_proc_cpu_ns(pid_t pid)
{
	char path[64];
	uint64_t user, kernel;
	long hz = sysconf(_SC_CLK_TCK);

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (hz <= 0 || read_stat(path, 14, &user) != 0 || read_stat(path, 15, &kernel) != 0)
		return 0;
	return (user + kernel) * (1000000000u / (uint64_t)hz);
}

uint64_t scry_proc_rss(pid_t pid)
{
	char path[64];
	uint64_t pages;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return read_stat(path, 24, &pages) == 0 ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t status_bytes(pid_t pid, const char *key)
{
	char path[64], text[4096];
	long kib;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (read_file(path, text, sizeof(text)) < 0)
		return 0;
	kib = status_number(text, key);
	return kib > 0 ? (uint64_t)kib << 10 : 0;
}

uint64_t scry_proc_mapped(pid_t pid)
{
	return status_bytes(pid, "VmSize");
}

uint64_t scry_proc_writable(pid_t pid)
{
	return status_bytes(pid, "VmData");
}

uint64_t scry_proc_limit(pid_t pid, const char *row)
{
	char path[64], text[4096], *end;
	const char *at;
	uint64_t value;

	snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
	at = read_file(path, text, sizeof(text)) < 0 ? NULL : strstr(text, row);
	if (!at)
		return UINT64_MAX;
	value = strtoull(at + strlen(row), &end, 10);
	return end == at + strlen(row) ? UINT64_MAX : value; /* "unlimited" is not a number */
}

int scry_proc_auxv_read(pid_t pid, struct scry_auxv *entries, size_t count)
{
	Elf64_auxv_t vector[64];
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/auxv", (int)pid);
	n = read_file(path, (char *)vector, sizeof(vector));
	if (n < 0)
		return n == -ENOENT ? -ESRCH : (int)n;
	for (size_t i = 0; i < (size_t)n / sizeof(vector[0]) && vector[i].a_type != AT_NULL; i++)
		for (size_t k = 0; k < count; k++)
			if (vector[i].a_type == entries[k].type)
				entries[k].value = vector[i].a_un.a_val;
	return 0;
}

int scry_proc_auxv(pid_t pid, uint64_t type, uint64_t *ret)
{
	struct scry_auxv entry = {type, 0};
	const int r = scry_proc_auxv_read(pid, &entry, 1);

	if (r < 0 || !entry.value)
		return r < 0 ? r : -ENOENT;
	*ret = entry.value;
	return 0;
}

bool scry_proc_can(int capability)
{
	unsigned long long caps = 0;
	char text[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(text, sizeof(text), f))
		sscanf(text, "CapEff: %llx", &caps);
	if (f)
		fclose(f);
	return caps >> capability & 1;
}
