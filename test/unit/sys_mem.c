/* sys/mem on a forked copy of this program, whose memory we know because it is ours. */
#include "sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

#define SIZE 0x20000u

static unsigned char *area; /* SIZE bytes, then one PROT_NONE page with bytes in it, then a hole */

/* A child that waits; or, with *ret_go, one that runs sleep(1) in place when that pipe is closed.
 */
static pid_t start(int *ret_go)
{
	int pipes[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(pipes[1]);
		if (ret_go && read(pipes[0], &c, 1) >= 0)
			execl("/bin/sleep", "sleep", "1000", NULL);
		for (;;)
			pause();
	}
	close(pipes[0]);
	if (ret_go)
		*ret_go = pipes[1];
	else
		close(pipes[1]);
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int setup(void **state)
{
	area = mmap(NULL, SIZE + 0x2000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	for (size_t i = 0; i < SIZE + 0x1000; i++)
		area[i] = (unsigned char)(i * 7 + i / 251);
	mprotect(area + SIZE, 0x1000, PROT_NONE);
	munmap(area + SIZE + 0x1000, 0x1000);
	return 0;
}

static void test_read(void **state)
{
	const size_t sizes[] = {1, 8, 4095, 8192, SIZE};
	pid_t pid = start(NULL);
	uint64_t base = (uintptr_t)area, word = 1;
	uint32_t half = 1;
	uint64_t heads[SCRY_MEM_HEADS][2];
	unsigned char *buf = malloc(SIZE * 2);
	struct scry_mem mem;

	assert_int_equal(scry_mem_open(&mem, pid, 0), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(buf, 0, SIZE);
		assert_int_equal(scry_mem_read(&mem, base, buf, sizes[i]), 0);
		assert_memory_equal(buf, area, sizes[i]);
	}
	assert_int_equal(scry_mem_u64(&mem, base + 16, &word), 0);
	assert_memory_equal(&word, area + 16, 8);
	assert_int_equal(scry_mem_u32(&mem, base + 33, &half), 0);
	assert_memory_equal(&half, area + 33, 4);

	/* A page without read permission is read through the fd; the hole after it is not. */
	assert_int_equal(scry_mem_u64(&mem, base + SIZE, &word), 0);
	assert_int_equal((unsigned char)word, (unsigned char)(SIZE * 7 + SIZE / 251));
	assert_int_equal(scry_mem_u64(&mem, base + SIZE + 0x1000 - 4, &word), -EFAULT);
	assert_int_equal(scry_mem_read(&mem, base, buf, SIZE + 0x1001), -EFAULT);
	assert_true(scry_mem_read_some(&mem, base, buf, SIZE + 0x1800) == SIZE + 0x1000);
	assert_true(scry_mem_read_some(&mem, base + SIZE + 0x1000, buf, 8) == -EFAULT);

	/* Heads of pages: the one that may not be read too, not the hole. */
	assert_int_equal(scry_mem_page_heads(&mem, base, SIZE / 0x1000, heads), SIZE / 0x1000);
	for (size_t i = 0; i < SIZE / 0x1000; i++)
		assert_memory_equal(heads[i], area + i * 0x1000, 16);
	assert_int_equal(scry_mem_page_heads(&mem, base + SIZE - 0x1000, 3, heads), 2);
	assert_memory_equal(heads[0], area + SIZE - 0x1000, 16);
	assert_int_equal(scry_mem_page_heads(&mem, base + SIZE + 0x1000, 1, heads), -EFAULT);
	assert_int_equal(scry_mem_page_heads(&mem, base, SCRY_MEM_HEADS + 1, heads), -EFAULT);

	/* Senseless addresses. */
	assert_int_equal(scry_mem_u64(&mem, 0, &word), -EFAULT);
	assert_int_equal(scry_mem_u64(&mem, UINT64_MAX - 3, &word), -EFAULT);
	assert_int_equal(scry_mem_read(&mem, base, buf, 0), 0);
	scry_mem_close(&mem);
	free(buf);
	stop(pid);
}

/* Many pieces: each says for itself whether it came, whatever is wrong with those around it. */
static void test_gather(void **state)
{
	const uint64_t base = (uintptr_t)area;
	struct scry_mem_span spans[1300];
	static unsigned char buf[1300][24];
	pid_t pid = start(NULL);
	struct scry_mem mem;

	assert_int_equal(scry_mem_open(&mem, pid, 0), 0);
	for (size_t i = 0; i < 1300; i++) {
		spans[i] = (struct scry_mem_span){base + i * 48, buf[i], 24, false};
		if (i % 7 == 3)
			spans[i].addr = base + SIZE + 0x1000; /* the hole */
		if (i % 7 == 5)
			spans[i].addr = i; /* no address */
		if (i % 7 == 6)
			spans[i].addr = base + SIZE + 0x1000 - 8; /* half in the hole */
	}
	scry_mem_gather(&mem, spans, 1300);
	for (size_t i = 0; i < 1300; i++) {
		assert_int_equal(spans[i].ok, i % 7 != 3 && i % 7 < 5);
		if (spans[i].ok)
			assert_memory_equal(buf[i], area + i * 48, 24);
	}
	scry_mem_gather(&mem, spans, 0);
	stop(pid);
	scry_mem_gather(&mem, spans, 3);
	assert_false(spans[0].ok || spans[1].ok || spans[2].ok);
	scry_mem_close(&mem);
}

static void test_gone(void **state)
{
	pid_t pid = start(NULL);
	char buf[16384];
	struct scry_mem mem;
	uint64_t word;

	assert_int_equal(scry_mem_open(&mem, pid, 1), 0);
	stop(pid);
	assert_int_equal(scry_mem_u64(&mem, (uintptr_t)area, &word), -ESRCH);
	assert_int_equal(scry_mem_read(&mem, (uintptr_t)area, buf, sizeof(buf)), -ESRCH);
	scry_mem_close(&mem);
	assert_int_equal(scry_mem_open(&mem, pid, 0), -ESRCH);
	assert_non_null(strstr(scry_error(), "gone"));
}

/* After exec the number is alive, the address space is not: nothing may be read, large or small. */
static void test_exec(void **state)
{
	int go = -1;
	pid_t pid = start(&go);
	char buf[16384], path[64], name[64] = "";
	struct scry_mem mem;
	uint64_t word;

	assert_int_equal(scry_mem_open(&mem, pid, 0), 0);
	assert_int_equal(scry_mem_u64(&mem, (uintptr_t)area, &word), 0);
	close(go);
	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	for (int i = 0; i < 2000 && !strstr(name, "sleep"); i++) {
		ssize_t n = readlink(path, name, sizeof(name) - 1);

		name[n > 0 ? n : 0] = '\0';
		usleep(1000);
	}
	assert_int_equal(scry_mem_u64(&mem, (uintptr_t)area, &word), -ESRCH);
	assert_int_equal(scry_mem_read(&mem, (uintptr_t)area, buf, sizeof(buf)), -ESRCH);
	scry_mem_close(&mem);
	stop(pid);
}

static int image_read(const void *image, uint64_t addr, void *buf, size_t size)
{
	if (addr < 0x100000 || addr + size > 0x102000)
		return -EFAULT;
	memcpy(buf, (const char *)image + (addr - 0x100000), size);
	return 0;
}

static void test_image(void **state)
{
	static unsigned char image[0x2000];
	struct scry_mem mem = {.fd = -1, .image = image, .image_read = image_read};
	unsigned char buf[0x3000];
	uint64_t word = 0;

	image[8] = 0x2a;
	assert_int_equal(scry_mem_u64(&mem, 0x100008, &word), 0);
	assert_true(word == 0x2a);
	assert_int_equal(scry_mem_u64(&mem, 0x101ffc, &word), -EFAULT);
	assert_true(scry_mem_read_some(&mem, 0x100800, buf, 0x3000) == 0x1800);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),  cmocka_unit_test(test_gather),
		cmocka_unit_test(test_gone),  cmocka_unit_test(test_exec),
		cmocka_unit_test(test_image),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
