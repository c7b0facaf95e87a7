/* See execs.h. */
#include "sys/execs.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u

int scry_execs_open(struct scry_execs *e, pid_t pid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.comm = 1,
		.comm_exec = 1,
		.watermark = 1,
		.wakeup_watermark = 1,
	};
	int err;

	*e = (struct scry_execs){.fd = -1};
	e->fd = (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (e->fd < 0)
		return -errno;
	e->ring = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
	if (e->ring != MAP_FAILED)
		return 0;
	err = -errno;
	e->ring = NULL;
	scry_execs_close(e);
	return err;
}

void scry_execs_take(struct scry_execs *e)
{
	struct perf_event_mmap_page *head = e->ring;
	const struct perf_event_header *record;
	uint64_t at, end;

	if (!head)
		return;
	end = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE);
	for (at = head->data_tail; at < end; at += record->size) { /* none is less than its head */
		record = (const void *)((const char *)e->ring + PAGE + at % PAGE);
		if (record->type == PERF_RECORD_COMM && record->misc & PERF_RECORD_MISC_COMM_EXEC)
			e->count++;
	}
	__atomic_store_n(&head->data_tail, end, __ATOMIC_RELEASE);
}

void scry_execs_close(struct scry_execs *e)
{
	if (e->ring)
		munmap(e->ring, 2 * PAGE);
	if (e->fd >= 0)
		close(e->fd);
	*e = (struct scry_execs){.fd = -1, .count = e->count};
}
