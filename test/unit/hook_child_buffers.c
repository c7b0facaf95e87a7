/* The pool that programs join by themselves: what they may do to it by its descriptor. */
#include "hook/child_buffers.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* As anybody of the same user opens it. */
static int open_it(const struct scry_pool *p)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), p->fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* A page that went from under the keeper would end it. */
static void its_size_stays(void **state)
{
	struct scry_pool p = {0};
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(scry_pool_make(&p), 0);
	fd = open_it(&p);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 2 * SCRY_CHILD_BUFFERS_BYTES), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, SCRY_CHILD_BUFFERS_BYTES);
	assert_int_equal(scry_pool_control(&p, SCRY_CHILD_BUFFERS - 1)->magic, SCRY_CONTROL_MAGIC);
	close(fd);
	scry_pool_close(&p);
}

/* Who gives a child buffer back gives its memory back, too. */
static void pages_are_given_back(void **state)
{
	struct scry_pool p = {0};
	struct scry_control *c;
	struct stat st;
	blkcnt_t before;

	(void)state;
	assert_int_equal(scry_pool_make(&p), 0);
	c = scry_pool_control(&p, 3);
	fstat(p.fd, &st);
	before = st.st_blocks;
	for (size_t at = SCRY_SHARED_HEAD; at < SCRY_CHILD_BUFFER_BYTES; at += SCRY_PAGE)
		((char *)c)[at] = 1;
	c->head = SCRY_RING_WORDS;
	scry_pool_free(&p, 3);
	fstat(p.fd, &st);
	assert_true(st.st_blocks <= before + 2 * SCRY_SHARED_HEAD / 512);
	scry_pool_close(&p);
}

/* Child buffers are given out while the rings of all fit into half of what is left; set 0, where
 * there are several instruments, is the entered process's. */
static void child_buffers_are_bounded(void **state)
{
	const uint64_t ring = 8ull * SCRY_RING_WORDS;
	static struct scry_child_buffers head;
	struct scry_pool one = {.head = &head,
				.sets = SCRY_CHILD_BUFFERS,
				.most = SCRY_CHILD_BUFFERS},
			 two = one;

	(void)state;
	assert_int_equal(scry_pool_bound(&one, 1, UINT64_MAX), SCRY_CHILD_BUFFERS);
	assert_int_equal(one.most, SCRY_CHILD_BUFFERS);
	assert_int_equal(scry_pool_bound(&one, 1, 8 * ring), 3);
	assert_int_equal(one.most, 3);
	assert_int_equal(scry_pool_bound(&one, 1, ring), 0);
	assert_int_equal(one.most, 0);
	scry_pool_share(&two, 2);
	assert_int_equal(scry_pool_bound(&two, 2, UINT64_MAX), SCRY_CHILD_BUFFERS / 2 - 1);
	assert_int_equal(scry_pool_bound(&two, 2, 16 * ring), 3);
	assert_int_equal(two.most, 4);
	assert_int_equal(two.sets,
			 SCRY_CHILD_BUFFERS / 2); /* where the child buffers of a set lie stays */
	assert_int_equal(scry_pool_bound(&two, 2, 0), 0);
	assert_int_equal(two.most, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_size_stays),
		cmocka_unit_test(pages_are_given_back),
		cmocka_unit_test(child_buffers_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
