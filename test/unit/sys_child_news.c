/* sys/child_news: news that come before a poll end it, and once. */
#include "sys/child_news.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int fd;

static int is_there(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0);
}

static void it_is_not_slept_over(void **state)
{
	pid_t child;

	(void)state;
	assert_int_equal(is_there(), 0);
	child = fork();
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child); /* the signal is over by now */
	assert_int_equal(is_there(), 1);
	assert_int_equal(is_there(), 1);
	scry_child_news_take(fd);
	assert_int_equal(is_there(), 0);
	scry_child_news_take(fd); /* for nothing: it does not wait */
}

static void many_are_one(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++)
		raise(SIGCHLD);
	scry_child_news_take(fd);
	assert_int_equal(is_there(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_not_slept_over),
					   cmocka_unit_test(many_are_one)};

	fd = scry_child_news_open();
	return fd < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
