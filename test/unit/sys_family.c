/* sys/family: of a shell that starts others; which execs are given, and which programs are missed.
 */
#include "sys/family.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
	struct scry_family *f;
	pid_t leader;
	int forks, execs, own_execs;
	bool settles; /* each program at once */
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void forked(void *arg, pid_t pid)
{
	struct seen *s = arg;

	assert_int_not_equal(pid, s->leader);
	s->forks++;
}

static void execed(void *arg, pid_t pid)
{
	struct seen *s = arg;

	s->execs++;
	s->own_execs += pid == s->leader;
	if (s->settles)
		scry_family_settled(s->f, pid, now());
}

static void take(struct seen *s)
{
	scry_family_take(s->f, &(struct scry_family_take){forked, execed, s});
}

/* A child that waits for a byte, then runs `script` in its place. */
static pid_t begin(const char *script, int *ret_go)
{
	int go[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		if (read(go[0], &c, 1) == 1)
			execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(1);
	}
	close(go[0]);
	*ret_go = go[1];
	return pid;
}

static void run(struct seen *s, bool follows, const char *script)
{
	const struct timespec later = {.tv_nsec = 1000000};
	int go, r = scry_family_open(follows, &s->f);

	if (r == -EACCES || r == -EPERM || r == -ENOSYS) {
		print_message("skipped: perf events of all processes are not permitted\n");
		skip();
	}
	assert_int_equal(r, 0);
	s->leader = begin(script, &go);
	scry_family_add(s->f, s->leader, now());
	assert_int_equal(write(go, "x", 1), 1);
	close(go);
	assert_int_equal(waitpid(s->leader, NULL, 0), s->leader);
	nanosleep(&later, NULL); /* until ends are given, which wait for what lies before them */
	take(s);
}

#define THREE "/bin/true; /bin/true; exec /bin/true"

static void counts(void **state)
{
	struct seen s = {0};
	bool is_all = false;
	pid_t parent = 0;

	(void)state;
	run(&s, true, THREE);
	assert_int_equal(s.forks, 2);
	assert_int_equal(s.execs, 4); /* the shell's own, and three */
	assert_int_equal(s.own_execs, 2);
	assert_int_equal(scry_family_missed(s.f, &parent, &is_all), 4);
	assert_int_equal(parent, s.leader);
	assert_true(is_all);
	scry_family_close(s.f);
}

static void settled(void **state)
{
	struct seen s = {.settles = true};
	bool is_all;
	pid_t parent;

	(void)state;
	run(&s, true, THREE);
	assert_int_equal(s.execs, 3); /* the last one of the shell was settled with its first */
	assert_int_equal(scry_family_missed(s.f, &parent, &is_all), 0);
	scry_family_close(s.f);
}

static void alone(void **state)
{
	struct seen s = {0};
	bool is_all;
	pid_t parent;

	(void)state;
	run(&s, false, THREE);
	assert_int_equal(s.forks, 0);
	assert_int_equal(s.execs, 2);
	assert_int_equal(scry_family_missed(s.f, &parent, &is_all), 2);
	scry_family_close(s.f);
}

static void wakes(void **state)
{
	struct scry_family *f = NULL;
	struct pollfd p = {.events = POLLIN};
	pid_t pid;
	int go;

	(void)state;
	if (scry_family_open(true, &f) < 0)
		skip(); /* said by the others */
	pid = begin("exit 0", &go);
	p.fd = scry_family_fd(f);
	assert_int_equal(write(go, "x", 1), 1);
	close(go);
	assert_int_equal(poll(&p, 1, -1), 1);
	waitpid(pid, NULL, 0);
	scry_family_close(f);
	scry_family_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts),
		cmocka_unit_test(settled),
		cmocka_unit_test(alone),
		cmocka_unit_test(wakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
