/* What a thread waits for, in words. See dump.h. */
#include "cmd/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "sys/fd.h"

#define FUTEX_COMMAND 127u
#define FUTEX_WAIT_BITSET 9u
#define FUTEX_CLOCK_REALTIME 256u

static void put_seconds(char *buf, size_t size, const char *what, int64_t ns)
{
	size_t at = strlen(buf);

	snprintf(buf + at, size - at, ", %s %.1f s", what, (double)ns / 1e9);
}

/* A time that is written as {seconds, parts} at `at`. */
static bool read_time(const struct scry_mem *mem, uint64_t at, int64_t unit_ns, int64_t *ret_ns)
{
	int64_t words[2];

	if (!at || scry_mem_read(mem, at, words, sizeof(words)) || words[0] < 0 ||
	    words[0] > 1ll << 32)
		return false;
	*ret_ns = words[0] * 1000000000 + words[1] * unit_ns;
	return true;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Until a moment: of a core it is not known how far away that was. */
static void put_moment(const struct scry_dump *d, clockid_t clock, int64_t ns, char *buf,
		       size_t size)
{
	if (!d->core)
		put_seconds(buf, size, "still", ns - clock_ns(clock));
}

static void put_timeout(const struct scry_dump *d, const struct scry_task_syscall *call,
			const struct scry_task_now *now, char *buf, size_t size)
{
	const struct scry_mem *mem = &d->ruby->mem;
	uint64_t value = call->timeout_arg < 0 ? 0 : now->args[call->timeout_arg];
	uint32_t op = (uint32_t)now->args[1];
	int64_t ns;

	switch (call->timeout) {
	case SCRY_TIMEOUT_NONE:
		return;
	case SCRY_TIMEOUT_MS:
		if ((int32_t)value > 0)
			put_seconds(buf, size, "for at most", (int64_t)(int32_t)value * 1000000);
		return;
	case SCRY_TIMEOUT_TIMESPEC:
	case SCRY_TIMEOUT_TIMEVAL:
		if (read_time(mem, value, call->timeout == SCRY_TIMEOUT_TIMEVAL ? 1000 : 1, &ns))
			put_seconds(buf, size, "for at most", ns);
		return;
	case SCRY_TIMEOUT_NANOSLEEP:
		if (!read_time(mem, value, 1, &ns))
			return;
		if (now->args[1] & 1)
			put_moment(d, (clockid_t)now->args[0], ns, buf, size);
		else
			put_seconds(buf, size, "for", ns);
		return;
	case SCRY_TIMEOUT_FUTEX:
		if (!read_time(mem, value, 1, &ns))
			return;
		if ((op & FUTEX_COMMAND) == FUTEX_WAIT_BITSET)
			put_moment(d, op & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC,
				   ns, buf, size);
		else
			put_seconds(buf, size, "for at most", ns);
		return;
	}
}

/* poll(2) and its like name descriptors in memory: the first of them. */
static int polled_fd(const struct scry_mem *mem, const struct scry_task_now *now)
{
	uint32_t fd;

	if ((now->nr == SYS_poll || now->nr == SYS_ppoll) && now->args[1] == 1 &&
	    scry_mem_u32(mem, now->args[0], &fd) == 0)
		return (int)fd;
	return -1;
}

void scry_dump_wait(const struct scry_dump *d, const struct scry_task_now *now,
		    struct scry_dump_thread *t)
{
	const struct scry_task_syscall *call = scry_syscall_find(now->nr);
	char name[256];
	int fd = -1;

	if (now->is_running || now->nr == -2 || t->state == SCRY_STATE_GVL)
		return;
	if (now->nr == -1) {
		snprintf(t->wait, sizeof(t->wait), "for a page of memory");
		return;
	}
	if (!call) {
		snprintf(t->wait, sizeof(t->wait), "system call %" PRId64, now->nr);
		return;
	}
	if (call->fd_arg >= 0)
		fd = (int)now->args[call->fd_arg];
	else
		fd = polled_fd(&d->ruby->mem, now);
	if (fd >= 0 && d->core)
		snprintf(t->wait, sizeof(t->wait), "%s(%d)", call->name, fd);
	else if (fd >= 0 && scry_fd_name(d->proc.pid, fd, name, sizeof(name)) == 0)
		snprintf(t->wait, sizeof(t->wait), "%s(%d), %s", call->name, fd, name);
	else
		snprintf(t->wait, sizeof(t->wait), "%s", call->name);
	put_timeout(d, call, now, t->wait, sizeof(t->wait));
}
