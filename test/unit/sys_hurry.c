/*
 * sys/hurry: what a loan does to a thread of another process, by the kernel's word, and that it
 * ends: when it is recalled, with the hurry, and when the lending process is stopped or killed.
 */
#include "sys/hurry.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LENT -2 /* the lowest real-time priority; proc(5), priority */
#define NONE 1000

static int own; /* what children begin with */

/* Field 18 of /proc/PID/stat: with what priority the kernel runs it. */
static int priority_of(pid_t pid)
{
	char path[32], line[512];
	int priority = NONE;
	char *p = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f))
		p = strrchr(line, ')');
	for (int field = 2; p && field < 18; field++)
		p = strchr(p + 1, ' ');
	if (p && sscanf(p, "%d", &priority) != 1)
		priority = NONE;
	if (f)
		fclose(f);
	return priority;
}

/* A loan begins and ends when its lender has run, a borrower's end is seen when it has. */
static bool is_soon(pid_t pid, int priority)
{
	for (int tries = 0; tries < 10000; tries++) {
		if (priority_of(pid) == priority)
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

static void comes_to(pid_t pid, int priority)
{
	assert_true(is_soon(pid, priority));
}

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* False, said aloud: the right is missing, or this kernel does not lend. */
static bool begin(struct scry_hurry *h, size_t lenders)
{
	scry_hurry_begin(h, getpid(), lenders, 0);
	if (!h->is_on)
		print_message("skipped: no real-time priority is permitted\n");
	if (h->is_on && !scry_hurry_most()) {
		print_message("skipped: on one processor nothing is lent\n");
		scry_hurry_end(h);
		return false;
	}
	return h->is_on;
}

/* The lenders need a moment until they wait. */
static bool lends(pid_t pid)
{
	for (int tries = 0; tries < 10000; tries++) {
		if (scry_hurry_lend(pid, 100))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

static void loans(void **state)
{
	struct scry_hurry h;
	pid_t one = sleeper(), two = sleeper(), third = sleeper();

	(void)state;
	if (!begin(&h, 2)) {
		end(one), end(two), end(third);
		skip();
	}
	assert_int_equal(priority_of(one), own);
	assert_true(lends(one));
	comes_to(one, LENT);
	if (scry_hurry_most() > 1) {
		assert_true(lends(two));
		comes_to(two, LENT);
	} else {
		assert_false(scry_hurry_lend(two, 100));
		assert_int_equal(priority_of(two), own);
	}
	assert_true(scry_hurry_lend(one, 0)); /* it has it */
	assert_false(scry_hurry_lend(third, 100));
	assert_int_equal(priority_of(third), own);
	scry_hurry_recall(third);
	scry_hurry_recall(one);
	comes_to(one, own);
	assert_true(lends(third));
	comes_to(third, LENT);
	end(two); /* with its loan */
	scry_hurry_recall(two);
	if (scry_hurry_most() > 1)
		assert_true(lends(one));
	scry_hurry_end(&h);
	comes_to(one, own);
	comes_to(third, own);
	scry_hurry_end(&h);
	assert_int_equal(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_OTHER);
	end(one), end(third);
}

static void many_loans(void **state)
{
	struct scry_hurry h;
	pid_t pid = sleeper();

	(void)state;
	for (int i = 0; i < 50; i++) {
		if (!begin(&h, SCRY_LENDERS_MAX + 1)) {
			end(pid);
			skip();
		}
		for (int k = 0; k < 50; k++) {
			assert_true(lends(pid));
			comes_to(pid, LENT);
			scry_hurry_recall(pid);
			comes_to(pid, own); /* else what comes next is that loan's yet */
		}
		scry_hurry_end(&h);
		comes_to(pid, own);
	}
	end(pid);
}

/* A process that lends, and does nothing more; NONE: it may not. */
static pid_t lender(pid_t to)
{
	int ready[2];
	pid_t pid;
	char c = 0;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		struct scry_hurry h;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		if (begin(&h, 1) && lends(to) && is_soon(to, LENT) && write(ready[1], "+", 1) == 1)
			for (;;)
				scry_hurry_lend(to, 0), pause();
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		c = 0;
	close(ready[0]);
	if (!c)
		end(pid);
	return c ? pid : 0;
}

static void killed(void **state)
{
	pid_t to = sleeper(), from = lender(to);

	(void)state;
	if (!from) {
		end(to);
		skip();
	}
	end(from);
	comes_to(to, own);
	from = lender(to);
	assert_int_not_equal(from, 0);
	kill(from, SIGSTOP);
	comes_to(to, own);
	end(from);
	assert_int_equal(priority_of(to), own);
	end(to);
}

#define SPINNERS 8

static pid_t spinner(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			;
	}
	assert_true(pid > 0);
	return pid;
}

/* Lends as much as it can to threads that always run, again and again. */
static pid_t greedy_lender(const pid_t *to)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct scry_hurry h;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!begin(&h, SCRY_LENDERS_MAX))
			_exit(0);
		for (size_t i = 0;; i++) {
			scry_hurry_lend(to[i % SPINNERS], 1);
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		}
	}
	assert_true(pid > 0);
	return pid;
}

/* Is anybody left with a priority that was lent, five seconds later? We run before all of them. */
static bool is_over(pid_t lender, const pid_t *to)
{
	bool is_reaped = false, is_lent = true;

	for (int tries = 0; tries < 500 && (!is_reaped || is_lent); tries++) {
		is_reaped = is_reaped || waitpid(lender, NULL, WNOHANG) == lender;
		is_lent = false;
		for (int i = 0; i < SPINNERS; i++)
			is_lent = is_lent || priority_of(to[i]) < 0;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return is_reaped && !is_lent;
}

/* A killed lender gets a processor to end on, whoever has its priority, and ends its loan there. */
static void killed_beside_borrowers_that_run(void **state)
{
	const struct sched_param first = {.sched_priority = 9}, none = {0};
	pid_t to[SPINNERS], from;
	bool was_lent = false, is_right;

	(void)state;
	for (int i = 0; i < SPINNERS; i++)
		to[i] = spinner();
	from = greedy_lender(to);
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) < 0) {
		end(from);
		for (int i = 0; i < SPINNERS; i++)
			end(to[i]);
		print_message("skipped: no real-time priority is permitted\n");
		skip();
	}
	for (int tries = 0; tries < 3000 && !was_lent; tries++) {
		for (int i = 0; i < SPINNERS; i++)
			was_lent = was_lent || priority_of(to[i]) == LENT;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* as many as it likes */
	kill(from, SIGKILL);
	is_right = is_over(from, to);
	for (int i = 0; i < SPINNERS; i++)
		end(to[i]);
	if (!is_right)
		waitpid(from, NULL, 0);
	sched_setscheduler(0, SCHED_OTHER, &none);
	if (!scry_hurry_most())
		skip();
	assert_true(was_lent);
	assert_true(is_right);
}

/* One that is forgotten ends by itself. */
static void forgotten(void **state)
{
	pid_t to = sleeper(), from = lender(to);

	(void)state;
	if (!from) {
		end(to);
		skip();
	}
	comes_to(to, own);
	end(from);
	end(to);
}

/* What it runs by a loan counts against that limit, and beyond it it is killed. */
static void limited(void **state)
{
	const struct rlimit limit = {50000, 50000};
	pid_t pid = sleeper();
	struct scry_hurry h;

	(void)state;
	assert_int_equal(prlimit(pid, RLIMIT_RTTIME, &limit, NULL), 0);
	scry_hurry_begin(&h, pid, 2, 0);
	assert_false(scry_hurry_lend(pid, 100));
	assert_int_equal(priority_of(pid), own);
	scry_hurry_end(&h);
	end(pid);
}

/* Whoever may not take the reset on fork off again, as who has the priority by RLIMIT_RTPRIO alone,
 * gives the priority back all the same. */
static void given_back(void **state)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct scry_hurry h;

		scry_hurry_begin(&h, getpid(), 2, 0);
		if (!h.is_on || setresuid(65534, 65534, 65534))
			_exit(2);
		scry_hurry_end(&h);
		if ((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_OTHER)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2) {
		print_message("skipped: no real-time priority here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loans),      cmocka_unit_test(many_loans),
		cmocka_unit_test(killed),     cmocka_unit_test(killed_beside_borrowers_that_run),
		cmocka_unit_test(forgotten),  cmocka_unit_test(limited),
		cmocka_unit_test(given_back),
	};

	own = priority_of(getpid());
	return cmocka_run_group_tests_name("sys_hurry", tests, NULL, NULL);
}
