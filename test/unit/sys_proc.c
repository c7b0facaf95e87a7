/* sys/proc against what the process knows of itself by other means: getauxval, getuid, times(2). */
#include "sys/proc.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

static void test_self(void **state)
{
	struct scry_proc p;
	char exe[512];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(n > 0);
	exe[n] = '\0';
	assert_int_equal(scry_proc_open(&p, getpid()), 0);
	assert_int_equal(p.pid, getpid());
	assert_int_equal(p.ppid, getppid());
	assert_int_equal(p.uid, getuid());
	assert_int_equal(p.euid, geteuid());
	assert_int_equal(p.gid, getgid());
	assert_int_equal(p.egid, getegid());
	assert_int_equal(p.threads, 1);
	assert_int_equal(p.state, 'R');
	assert_int_equal(p.seccomp, prctl(PR_GET_SECCOMP));
	assert_string_equal(p.exe, exe);
	assert_true(p.start_ticks > 0);
	assert_true(p.start_ticks == scry_proc_start_ticks(getpid()));
	assert_true(scry_proc_is_alive(&p));
	assert_int_equal(scry_proc_refresh(&p), 0);
	scry_proc_close(&p);
	assert_int_equal(p.pidfd, -1);
}

/* A command name made to look like the end of the stat field must not shift the fields. */
static void test_hostile_name(void **state)
{
	struct scry_proc p;
	uint64_t before = scry_proc_start_ticks(getpid());

	prctl(PR_SET_NAME, "a) Z 1 (b");
	assert_true(scry_proc_start_ticks(getpid()) == before);
	assert_int_equal(scry_proc_task_state(getpid(), getpid()), 'R');
	assert_int_equal(scry_proc_open(&p, getpid()), 0);
	assert_string_equal(p.comm, "a) Z 1 (b");
	scry_proc_close(&p);
	prctl(PR_SET_NAME, "sys_proc");
}

static void test_auxv(void **state)
{
	struct scry_auxv all[] = {{AT_PHDR, 0}, {123456, 4711}, {AT_ENTRY, 0}};
	const unsigned long types[] = {AT_ENTRY, AT_PHDR, AT_BASE, AT_SYSINFO_EHDR, AT_RANDOM};
	uint64_t value;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_int_equal(scry_proc_auxv(getpid(), types[i], &value), 0);
		assert_true(value == getauxval(types[i]));
	}
	assert_int_equal(scry_proc_auxv(getpid(), 0x7777, &value), -ENOENT);
	assert_int_equal(scry_proc_auxv_read(getpid(), all, sizeof(all) / sizeof(all[0])), 0);
	assert_true(all[0].value == getauxval(AT_PHDR));
	assert_true(all[1].value == 4711); /* who is not there stays as it was */
	assert_true(all[2].value == getauxval(AT_ENTRY));
}

static void test_life_and_death(void **state)
{
	struct scry_proc p;
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	assert_int_equal(scry_proc_open(&p, child), 0);
	assert_int_equal(p.ppid, getpid());
	assert_true(scry_proc_is_alive(&p));
	kill(child, SIGKILL);
	for (int i = 0; i < 1000 && scry_proc_is_alive(&p); i++)
		usleep(1000);
	assert_false(scry_proc_is_alive(&p));	  /* a zombie now */
	assert_false(scry_proc_is_kernel(p.pid)); /* though it has no program any more */
	assert_int_equal(scry_proc_task_state(child, child), 'Z');
	waitpid(child, NULL, 0);
	assert_false(scry_proc_is_alive(&p));
	assert_int_equal(scry_proc_refresh(&p), -ESRCH);
	assert_int_equal(scry_proc_task_state(child, child), 0);
	scry_proc_close(&p);
	assert_int_equal(scry_proc_open(&p, child), -ESRCH);
	assert_non_null(strstr(scry_error(), "no such process"));
}

static pid_t thread_tid;
static pthread_barrier_t barrier;

static void *thread_main(void *arg)
{
	thread_tid = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void test_threads(void **state)
{
	struct scry_proc p;
	pthread_t thread;
	pid_t *tasks = NULL;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, thread_main, NULL);
	pthread_barrier_wait(&barrier);

	assert_int_equal(scry_proc_tasks(getpid(), &tasks), 2);
	assert_true(tasks[0] < tasks[1]);
	assert_true((tasks[0] == getpid() && tasks[1] == thread_tid) ||
		    (tasks[1] == getpid() && tasks[0] == thread_tid));
	free(tasks);
	assert_int_equal(scry_proc_open(&p, thread_tid), -EINVAL);
	assert_non_null(strstr(scry_error(), "is a thread of process"));
	assert_int_equal(scry_proc_open(&p, getpid()), 0);
	assert_int_equal(p.threads, 2);
	scry_proc_close(&p);

	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
}

static void test_cpu_time(void **state)
{
	struct timespec t;
	uint64_t own, seen;

	do {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
		own = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	} while (own < 100000000u);
	seen = scry_proc_cpu_ns(getpid());
	assert_true(seen + 30000000u > own && seen < own + 30000000u);
	assert_true(scry_proc_cpu_ns(0x3ffffff) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_self),	cmocka_unit_test(test_hostile_name),
		cmocka_unit_test(test_auxv),	cmocka_unit_test(test_life_and_death),
		cmocka_unit_test(test_threads), cmocka_unit_test(test_cpu_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
