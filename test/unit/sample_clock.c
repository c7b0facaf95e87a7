/*
 * sample/clock on a living Ruby (RUBY, or the one of the system) with a native thread of its
 * own that runs all the time: it asks who it is, is told that it is none of the VM's, and is quiet.
 * Where the machine lets us load nothing this is said and skipped.
 */
#include "sample/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "child.h"
#include "sys/proc.h"

#define QUIET_TURNS 20	   /* in which the list of threads is not read anew */
#define QUIET_NS 40000000u /* of the native thread's, in them */
#define TURNS_MAX 4000

static struct child ruby_child;

static ssize_t list_one(void *arg, pid_t **ret)
{
	(void)arg;
	*ret = malloc(sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)[0] = ruby_child.pid;
	return 1;
}

static void turn(struct scry_clock *c, struct scry_samples *s)
{
	scry_clock_wait(c);
	assert_int_equal(scry_clock_list(c, s), 0);
	assert_int_equal(scry_clock_take(c), 0);
}

/* Turns in a row without a new list while the thread ran that long. */
static bool gets_quiet(struct scry_clock *c, struct scry_samples *s)
{
	uint64_t began = 0;
	uint32_t listings = 0;
	int quiet = 0;

	for (int i = 0; i < TURNS_MAX; i++) {
		turn(c, s);
		if (!i || s->listings != listings) {
			listings = s->listings;
			began = scry_proc_cpu_ns(ruby_child.pid);
			quiet = 0;
		}
		if (++quiet > QUIET_TURNS && scry_proc_cpu_ns(ruby_child.pid) - began > QUIET_NS)
			return true;
	}
	return false;
}

static const char *ruby_path(void)
{
	const char *path = getenv("RUBY");

	return path && *path == '/' ? path : "/usr/bin/ruby";
}

static void a_stranger_is_quiet(void **state)
{
	struct scry_clock_opts opts = {.rate = 1000};
	struct scry_ev_sampling sums = {0};
	struct scry_samples samples;
	struct scry_writer *writer;
	struct scry_ruby *ruby;
	struct scry_clock *c;
	int fd, err;

	(void)state;
	if (!child_start(&ruby_child, ruby_path(),
			 SCRY_TEST_DIR "/ruby/sampled_stacks/native_spin.rb"))
		skip();
	if (strcmp(child_next(&ruby_child), "ready") != 0) {
		print_message("skipped: %s\n", ruby_child.line);
		skip();
	}
	if (scry_ruby_open(ruby_child.pid, SCRY_RUBY_BOOTED, &ruby))
		fail_msg("%s", scry_error());
	fd = memfd_create("samples", MFD_CLOEXEC);
	assert_int_equal(scry_writer_open(fd, 0, &writer), 0);
	assert_int_equal(scry_samples_init(&samples, ruby, writer), 0);
	assert_int_equal(scry_clock_open(&opts, &c), 0);
	err = scry_clock_add(c, &samples);
	if (!err)
		err = scry_clock_attach(c, list_one);
	if (err == -EPERM || err == -EACCES || err == -ENOTSUP) {
		print_message("skipped: %s\n", scry_error());
		skip();
	}
	assert_int_equal(err, 0);
	assert_true(gets_quiet(c, &samples));
	scry_clock_end(c, &sums);
	assert_true(sums.kernel_ns > 0); /* it was met by the clock */
	assert_int_equal(sums.lost, 0);
	scry_clock_remove(c, &samples);
	scry_clock_close(c);
	scry_samples_done(&samples);
	scry_writer_close(writer);
	close(fd);
	scry_ruby_free(ruby);
	child_end(&ruby_child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_stranger_is_quiet)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
