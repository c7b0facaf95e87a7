/*
 * probe/bpf against this process: a program in the kernel counts calls of a function of ours, and
 * our own processor time; and each thing that can be missing is named. Where the machine lets us
 * load nothing this is said and skipped; who has the rights fails here when loading breaks.
 */
#include "probe/bpf.h"

#include <errno.h>
#include <link.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/capability.h>

#include <cmocka.h>

#include "base/err.h"
#include "wire/bpf_check.h"

#define WORD 0x5c121u
#define CALLS 37

SCRY_BPF_OBJECT(check);

struct seen {
	unsigned int records, wrong;
};

static int give(void *arg, void *record, size_t size)
{
	const struct scry_bpf_checked *r = record;
	struct seen *seen = arg;

	seen->records++;
	/* A namespace knows us by other numbers. */
	seen->wrong += size != sizeof(*r) || r->word != WORD || !r->pid_tid;
	return 0;
}

/* Loaded, with its ring; NULL: the kernel does not let us, as was said. */
static struct scry_bpf *load(struct seen *seen)
{
	struct scry_bpf *b = NULL;
	uint64_t word = WORD;
	int err;

	*seen = (struct seen){0};
	assert_int_equal(scry_bpf_open(SCRY_BPF(check), &b), 0);
	assert_int_equal(scry_bpf_constant(b, "scry_check_word", &word, sizeof(word)), 0);
	assert_int_equal(scry_bpf_map_entries(b, "ring", 1u << 17), 0);
	err = scry_bpf_load(b);
	if (err == -EPERM) {
		print_message("skipped: %s\n", scry_error());
		assert_non_null(strstr(scry_error(), "; fix: "));
		scry_bpf_close(b);
		return NULL;
	}
	if (err)
		print_error("%s\n", scry_error());
	assert_int_equal(err, 0);
	assert_int_equal(scry_bpf_ring(b, "ring", give, seen), 0);
	assert_true(scry_bpf_map_fd(b, "ring") >= 0);
	return b;
}

__attribute__((noinline, noclone)) static int called(int n)
{
	__asm__ volatile("" ::: "memory");
	return n + 1;
}

static int find_base(struct dl_phdr_info *info, size_t size, void *base)
{
	*(uintptr_t *)base = info->dlpi_addr; /* the program comes first */
	return 1;
}

static uint64_t offset_of(uintptr_t address)
{
	uintptr_t base = 0;

	dl_iterate_phdr(find_base, &base);
	/* The linker maps a program's text at the offset that it has in the file. */
	return address - base;
}

static void uprobe(void **state)
{
	struct seen seen;
	struct scry_bpf *b = load(&seen);
	struct scry_bpf_uprobe at = {
		.path = "/proc/self/exe", .offset = offset_of((uintptr_t)called), .pid = getpid()};

	if (!b)
		skip();
	assert_int_equal(scry_bpf_attach_uprobe(b, "check_uprobe", &at), 0);
	at.is_return = true;
	assert_int_equal(scry_bpf_attach_uprobe(b, "check_uprobe", &at), 0);
	for (int i = 0; i < CALLS; i++)
		assert_int_equal(called(i), i + 1);
	assert_int_equal(scry_bpf_take(b), 2 * CALLS);
	assert_int_equal(seen.records, 2 * CALLS);
	assert_int_equal(seen.wrong, 0);
	scry_bpf_detach(b);
	called(0);
	assert_int_equal(scry_bpf_take(b), 0);
	assert_int_equal(scry_bpf_sum(b, "lost", 0), 0);
	scry_bpf_close(b);
}

/* A full ring drops, and counts. */
static void full(void **state)
{
	struct seen seen;
	struct scry_bpf *b = load(&seen);
	struct scry_bpf_uprobe at = {
		.path = "/proc/self/exe", .offset = offset_of((uintptr_t)called), .pid = getpid()};
	unsigned int calls = 8000; /* of 24 bytes with their heads, in 128 KiB */

	if (!b)
		skip();
	assert_int_equal(scry_bpf_attach_uprobe(b, "check_uprobe", &at), 0);
	for (unsigned int i = 0; i < calls; i++)
		called(0);
	assert_true(scry_bpf_take(b) > 0);
	assert_true(scry_bpf_sum(b, "lost", 0) > 0);
	assert_int_equal(seen.records + scry_bpf_sum(b, "lost", 0), calls);
	scry_bpf_close(b);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void perf(void **state)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
				       .size = sizeof(attr),
				       .config = PERF_COUNT_SW_CPU_CLOCK,
				       .sample_period = 1000000};
	struct seen seen;
	struct scry_bpf *b = load(&seen);
	uint64_t till;
	int fd;

	if (!b)
		skip();
	fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(scry_bpf_attach_perf(b, "check_perf", fd, 0), 0);
	till = cpu_ns() + 50000000;
	while (cpu_ns() < till)
		called(0);
	scry_bpf_detach(b);
	scry_bpf_take(b);
	/* One in each millisecond of our own time; a virtual machine's clock leaves some out. */
	assert_in_range(seen.records, 10, 100);
	assert_int_equal(seen.wrong, 0);
	scry_bpf_close(b);
}

static void what_is_not_there(void **state)
{
	struct scry_bpf_image garbage = {"garbage", (const unsigned char *)"no object at all",
					 NULL};
	struct seen seen;
	struct scry_bpf *b;
	uint32_t small = 1;

	garbage.end = garbage.begin + 16;
	assert_int_equal(scry_bpf_open(garbage, &b), -ENOEXEC);
	assert_non_null(strstr(scry_error(), "'garbage'"));
	assert_int_equal(scry_bpf_open(SCRY_BPF(check), &b), 0);
	assert_int_equal(scry_bpf_constant(b, "no_such_word", &small, 4), -ENOENT);
	assert_int_equal(scry_bpf_constant(b, "scry_check_word", &small, 4), -EINVAL);
	assert_int_equal(scry_bpf_map_entries(b, "no_map", 1), -ENOENT);
	assert_int_equal(scry_bpf_leave_out(b, "no_program"), -ENOENT);
	assert_int_equal(scry_bpf_leave_out(b, "check_perf"), 0);
	scry_bpf_close(b);
	b = load(&seen);
	if (!b)
		skip();
	assert_int_equal(scry_bpf_attach_perf(b, "no_program", -1, 0), -ENOENT);
	assert_true(scry_bpf_attach_uprobe(
			    b, "check_uprobe",
			    &(struct scry_bpf_uprobe){.path = "/no/such/file", .pid = -1}) < 0);
	assert_non_null(strstr(scry_error(), "/no/such/file"));
	scry_bpf_close(b);
	scry_bpf_close(NULL);
}

/* In a child, as rights do not come back: who has none is told what is missing. */
static void without_rights(void **state)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (syscall(SYS_capset, &head, none) < 0)
			_exit(1);
		if (scry_bpf_check() != -EPERM)
			_exit(2);
		_exit(strstr(scry_error(), "CAP_BPF") && strstr(scry_error(), "; fix: sudo") ? 0
											     : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uprobe),	  cmocka_unit_test(full),
		cmocka_unit_test(perf),		  cmocka_unit_test(what_is_not_there),
		cmocka_unit_test(without_rights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
