/* See task.h. */
#include "sys/task.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static int open_file(pid_t pid, pid_t tid, const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

void scry_task_open(struct scry_task *task, pid_t pid, pid_t tid)
{
	*task = (struct scry_task){
		.pid = pid,
		.tid = tid,
		.syscall_fd = open_file(pid, tid, "syscall"),
		.schedstat_fd = open_file(pid, tid, "schedstat"),
	};
}

/*
 * An event that counts what it runs. Its page's `lock` goes on whenever it is put on a processor
 * with its task (perf_event_update_userpage), which costs the task 0.03 us a switch. Not inherited:
 * with events that are, the kernel swaps what two tasks have instead.
 */
void scry_task_watch(struct scry_task *task)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, task->tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	void *page;

	if (fd < 0)
		return;
	page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		close(fd);
		return;
	}
	task->turns = page;
	task->clock_fd = fd;
}

static uint32_t turn_of(const struct scry_task *task)
{
	return task->turns ? __atomic_load_n(&task->turns->lock, __ATOMIC_ACQUIRE) : 0;
}

void scry_task_unwatch(struct scry_task *task)
{
	if (!task->turns)
		return;
	munmap(task->turns, PAGE);
	close(task->clock_fd);
	task->turns = NULL;
}

void scry_task_close(struct scry_task *task)
{
	scry_task_unwatch(task);
	if (task->syscall_fd >= 0)
		close(task->syscall_fd);
	if (task->schedstat_fd >= 0)
		close(task->schedstat_fd);
	task->syscall_fd = task->schedstat_fd = -1;
}

static bool read_text(int fd, char *buf, size_t size)
{
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, size - 1, 0);

	buf[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* "run_ns wait_ns switches" */
static bool numbers(const char *text, struct scry_task_now *ret)
{
	char *at;

	ret->run_ns = strtoull(text, &at, 10);
	ret->wait_ns = strtoull(at, &at, 10);
	if (*at != ' ')
		return false;
	ret->switches = strtoull(at, &at, 10);
	return true;
}

static bool was_waiting(const struct scry_task_now *before)
{
	return !before->is_running && !before->is_gone && before->nr != -2;
}

bool scry_task_is_still(const struct scry_task *task, const struct scry_task_now *before)
{
	return task->turns && was_waiting(before) && turn_of(task) == before->turn;
}

bool scry_task_rests(const struct scry_task *task, const struct scry_task_now *before)
{
	struct scry_task_now now = {0};
	char text[96];

	return was_waiting(before) && read_text(task->schedstat_fd, text, sizeof(text)) &&
	       numbers(text, &now) && now.switches == before->switches &&
	       now.run_ns == before->run_ns;
}

bool scry_task_is_ready(const struct scry_task_now *before, const struct scry_task_now *now)
{
	return now->is_running && was_waiting(before) && now->switches == before->switches;
}

/* The kernel brings the count of one that runs up to now when it is asked. */
bool scry_task_ran(const struct scry_task *task, uint64_t *ret_ns)
{
	return task->turns && read(task->clock_fd, ret_ns, sizeof(*ret_ns)) == sizeof(*ret_ns);
}

bool scry_task_is_on_processor(const struct scry_task *task)
{
	uint64_t first, second;

	return !scry_task_ran(task, &first) || !scry_task_ran(task, &second) || second > first;
}

bool scry_task_has_switched(const struct scry_task *task, const struct scry_task_now *before)
{
	struct scry_task_now now = {0};
	char text[96];

	return read_text(task->schedstat_fd, text, sizeof(text)) && numbers(text, &now) &&
	       now.switches != before->switches;
}

/* "nr args... sp pc", or "-1 sp pc" */
static void waits(const char *text, struct scry_task_now *ret)
{
	int n = sscanf(text,
		       "%" SCNd64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		       " %" SCNx64 " %" SCNx64 " %" SCNx64,
		       &ret->nr, &ret->args[0], &ret->args[1], &ret->args[2], &ret->args[3],
		       &ret->args[4], &ret->args[5], &ret->sp, &ret->pc);

	if (n < 1)
		ret->nr = -2;
	if (n == 3) {
		ret->sp = ret->args[0];
		ret->pc = ret->args[1];
		ret->args[0] = ret->args[1] = 0;
	}
}

void scry_task_read(const struct scry_task *task, struct scry_task_now *ret)
{
	char text[256];

	*ret = (struct scry_task_now){.nr = -2, .turn = turn_of(task)}; /* before what it does */
	if (!read_text(task->schedstat_fd, text, sizeof(text)) || !numbers(text, ret)) {
		ret->is_gone = true;
		return;
	}
	if (!read_text(task->syscall_fd, text, sizeof(text)))
		return;
	ret->is_running = strncmp(text, "running", 7) == 0;
	if (!ret->is_running)
		waits(text, ret);
}

void scry_task_name(pid_t pid, pid_t tid, char *buf, size_t size)
{
	int fd = open_file(pid, tid, "comm");

	read_text(fd, buf, size);
	buf[strcspn(buf, "\n")] = '\0';
	if (fd >= 0)
		close(fd);
}

#define ROW(name, fd, timeout_arg, kind)                                \
	{                                                               \
		SYS_##name, #name, fd, timeout_arg, SCRY_TIMEOUT_##kind \
	}

static const struct scry_task_syscall rows[] = {
	ROW(read, 0, -1, NONE),
	ROW(write, 0, -1, NONE),
	ROW(readv, 0, -1, NONE),
	ROW(writev, 0, -1, NONE),
	ROW(pread64, 0, -1, NONE),
	ROW(pwrite64, 0, -1, NONE),
	ROW(preadv, 0, -1, NONE),
	ROW(pwritev, 0, -1, NONE),
	ROW(open, -1, -1, NONE),
	ROW(openat, -1, -1, NONE),
	ROW(poll, -1, 2, MS),
	ROW(ppoll, -1, 2, TIMESPEC),
	ROW(select, -1, 4, TIMEVAL),
	ROW(pselect6, -1, 4, TIMESPEC),
	ROW(epoll_wait, 0, 3, MS),
	ROW(epoll_pwait, 0, 3, MS),
	ROW(epoll_pwait2, 0, 3, TIMESPEC),
	ROW(nanosleep, -1, 0, TIMESPEC),
	ROW(clock_nanosleep, -1, 2, NANOSLEEP),
	ROW(futex, -1, 3, FUTEX),
	ROW(accept, 0, -1, NONE),
	ROW(accept4, 0, -1, NONE),
	ROW(connect, 0, -1, NONE),
	ROW(recvfrom, 0, -1, NONE),
	ROW(recvmsg, 0, -1, NONE),
	ROW(sendto, 0, -1, NONE),
	ROW(sendmsg, 0, -1, NONE),
	ROW(wait4, -1, -1, NONE),
	ROW(waitid, -1, -1, NONE),
	ROW(flock, 0, -1, NONE),
	ROW(fcntl, 0, -1, NONE),
	ROW(fsync, 0, -1, NONE),
	ROW(fdatasync, 0, -1, NONE),
	ROW(ioctl, 0, -1, NONE),
	ROW(pause, -1, -1, NONE),
	ROW(rt_sigsuspend, -1, -1, NONE),
	ROW(rt_sigtimedwait, -1, 2, TIMESPEC),
	ROW(splice, 0, -1, NONE),
	ROW(sendfile, 0, -1, NONE),
	ROW(unlink, -1, -1, NONE),
	ROW(rename, -1, -1, NONE),
	ROW(stat, -1, -1, NONE),
	ROW(newfstatat, -1, -1, NONE),
	ROW(statx, -1, -1, NONE),
	ROW(getdents64, 0, -1, NONE),
	ROW(munmap, -1, -1, NONE),
	ROW(mmap, -1, -1, NONE),
	ROW(madvise, -1, -1, NONE),
	ROW(io_getevents, -1, -1, NONE),
	ROW(io_uring_enter, 0, -1, NONE),
	ROW(restart_syscall, -1, -1, NONE),
	ROW(exit, -1, -1, NONE),
};

const struct scry_task_syscall *scry_syscall_find(int64_t nr)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].nr == nr)
			return &rows[i];
	return NULL;
}
