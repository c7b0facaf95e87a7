/*
 * sys/spawn: what befalls a program in its start: a signal that comes while its image stands still,
 * its end between two of our looks, one that nobody handles; many of them later.
 */
#include "sys/spawn.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/brk_signal.h"
#include "sys/proc.h"
#include "sys/served.h"

long __real_ptrace(enum __ptrace_request request, pid_t pid, void *address, void *data);
long __wrap_ptrace(enum __ptrace_request request, pid_t pid, void *address, void *data);

static bool kills;   /* who stands in a system call, before we look at it */
static size_t looks; /* at who stands in one */

long __wrap_ptrace(enum __ptrace_request request, pid_t pid, void *address, void *data)
{
	looks += request == PTRACE_GET_SYSCALL_INFO;
	if ((request == PTRACE_GET_SYSCALL_INFO || request == PTRACE_GETREGSET) && kills) {
		siginfo_t info;

		kill(pid, SIGKILL);
		waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | __WALL);
	}
	return __real_ptrace(request, pid, address, data);
}

uint64_t __wrap_scry_now_ns(void);
int __real_scry_brk_signal_open(pid_t tid, uint64_t address);
int __wrap_scry_brk_signal_open(pid_t tid, uint64_t address);
size_t __real_scry_proc_task_count(pid_t pid);
size_t __wrap_scry_proc_task_count(pid_t pid);
bool __real_scry_served_answers(pid_t pid, const struct scry_map_entry *m);
bool __wrap_scry_served_answers(pid_t pid, const struct scry_map_entry *m);

static uint64_t now = 1; /* of sys/spawn: time stands still unless a test moves it */
static enum { RIGHT, DEAF, AT_LOADER } signals;
static size_t opened; /* breakpoints */
static bool has_threads, is_loader_dead;

uint64_t __wrap_scry_now_ns(void)
{
	return now;
}

/* DEAF: one that never sends. AT_LOADER: it sends where the loader begins, not where it was asked
 * to. */
int __wrap_scry_brk_signal_open(pid_t tid, uint64_t address)
{
	struct user_regs_struct regs;

	opened++;
	if (signals == DEAF)
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (signals == AT_LOADER && ptrace(PTRACE_GETREGS, tid, 0, &regs) == 0)
		address = regs.rip;
	return __real_scry_brk_signal_open(tid, address);
}

size_t __wrap_scry_proc_task_count(pid_t pid)
{
	return has_threads ? 2 : __real_scry_proc_task_count(pid);
}

bool __wrap_scry_served_answers(pid_t pid, const struct scry_map_entry *m)
{
	return !(is_loader_dead && strstr(m->path, "/ld-linux")) &&
	       __real_scry_served_answers(pid, m);
}

static const char *program = "sleep";

static pid_t start(struct scry_spawns *s)
{
	int go[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		if (read(go[0], &byte, 1) == 0)
			execlp(program, "sleep", "100", (char *)NULL);
		_exit(127);
	}
	close(go[0]);
	assert_int_equal(scry_spawns_add(s, pid), 0);
	close(go[1]);
	return pid;
}

static struct scry_tracee *image_of(struct scry_spawns *s)
{
	struct scry_tracee *t = NULL;

	for (int tries = 0; !t && s->count && tries < 100000; tries++) {
		t = scry_spawns_step(s);
		if (!t)
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	return t;
}

static void test_signal_while_held(void **state)
{
	struct scry_spawns s = {0};
	pid_t pid = start(&s);
	struct scry_tracee *t = image_of(&s);
	siginfo_t info = {0};

	(void)state;
	assert_non_null(t);
	kill(pid, SIGUSR1);
	assert_int_equal(scry_tracee_step(t, 5), 0);
	assert_int_equal(t->signal, SIGUSR1);
	scry_spawns_go_on(&s, t);
	for (int tries = 0; !info.si_pid && tries < 5000; tries++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL);
	}
	kill(pid, SIGKILL);
	assert_int_equal(info.si_pid, pid);
	assert_int_equal(info.si_status, SIGUSR1);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

/* Can a breakpoint send its signal here? */
static bool has_signal(void)
{
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	fd = scry_brk_signal_open(pid, (uintptr_t)has_signal);
	if (fd > 0)
		scry_brk_signal_close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return fd > 0;
}

static bool lacks_signal(void)
{
	if (has_signal())
		return false;
	fputs("# no breakpoint of perf: who starts is stopped at each call\n", stderr);
	return true;
}

static void end(struct scry_spawns *s, struct scry_tracee *t)
{
	pid_t pid = t->pid;

	scry_spawns_let_go(s, t);
	assert_int_equal(s->count, 0);
	kill(pid, SIGKILL);
	scry_spawns_done(s);
	waitpid(pid, NULL, 0);
}

/* Its loader makes some fifty calls, and is not stopped at them. */
static void test_stops_are_few(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;
	pid_t pid;

	(void)state;
	if (lacks_signal())
		skip();
	looks = 0;
	pid = start(&s);
	t = image_of(&s);
	assert_non_null(t);
	assert_int_equal(t->pid, pid);
	assert_in_range(looks, 0, 8);
	scry_spawns_let_go(&s, t);
	kill(pid, SIGKILL);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

static volatile int passed;

__attribute__((noinline)) static void pass_by(void)
{
	passed++;
}

/* However often it is passed, two signals are sent. */
static void test_two_signals(void **state)
{
	pid_t pid;
	int fd, status, count = 0;

	(void)state;
	if (lacks_signal())
		skip();
	pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (int i = 0; i < 10; i++)
			pass_by();
		_exit(passed);
	}
	waitpid(pid, &status, 0);
	fd = scry_brk_signal_open(pid, (uintptr_t)pass_by);
	assert_true(fd > 0);
	for (; WIFSTOPPED(status); waitpid(pid, &status, 0)) {
		count += WSTOPSIG(status) == SIGURG;
		ptrace(PTRACE_CONT, pid, 0, 0);
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 10);
	assert_int_equal(count, 2);
	scry_brk_signal_close(fd);
}

/* A signal that never comes: when its time is over the program is stopped, and said to be late. */
static void test_signal_never_comes(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;
	pid_t pid;

	(void)state;
	signals = DEAF;
	opened = 0;
	pid = start(&s);
	while (!opened || scry_proc_task_state(pid, pid) != 'S') /* it sleeps */
		assert_null(scry_spawns_step(&s));
	assert_true(scry_spawns_is_starting(&s));
	now += 1000000000;
	t = image_of(&s);
	signals = RIGHT;
	assert_non_null(t);
	assert_true(scry_spawn_is_late(t));
	assert_false(scry_spawns_is_starting(&s));
	end(&s, t);
}

/* Another place: it is swallowed, and the moment found by system calls. */
static void test_signal_elsewhere(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;

	(void)state;
	if (lacks_signal())
		skip();
	signals = AT_LOADER;
	looks = 0;
	start(&s);
	t = image_of(&s);
	signals = RIGHT;
	assert_non_null(t);
	assert_false(scry_spawn_is_late(t));
	assert_true(looks > 8);
	end(&s, t);
}

/* Who has threads where the loader says that it is done is not in his start. */
static void test_threads_at_signal(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;

	(void)state;
	if (lacks_signal())
		skip();
	start(&s);
	has_threads = true;
	t = image_of(&s);
	has_threads = false;
	assert_non_null(t);
	assert_true(scry_spawn_is_late(t));
	end(&s, t);
}

/* A loader whose server does not answer is not asked for. */
static void test_loader_of_a_dead_server(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;

	(void)state;
	opened = 0;
	is_loader_dead = true;
	start(&s);
	t = image_of(&s);
	is_loader_dead = false;
	assert_non_null(t);
	assert_int_equal(opened, 0);
	end(&s, t);
}

/* A copy of sleep whose RELRO is one byte long. */
static void write_small_relro(char *path)
{
	static unsigned char bytes[1 << 20];
	Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;
	Elf64_Phdr *p;
	int fd = open("/usr/bin/sleep", O_RDONLY | O_CLOEXEC);
	ssize_t size = read(fd, bytes, sizeof(bytes));

	close(fd);
	assert_in_range(size, sizeof(*header), sizeof(bytes) - 1);
	p = (Elf64_Phdr *)(bytes + header->e_phoff);
	for (int i = 0; i < header->e_phnum; i++)
		if (p[i].p_type == PT_GNU_RELRO)
			p[i].p_filesz = p[i].p_memsz = 1;
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, (size_t)size), size);
	fchmod(fd, 0755);
	close(fd);
}

/* The loader protects whole pages: who has none is not waited for. */
static void test_small_relro(void **state)
{
	char path[] = "/tmp/scry-relro-XXXXXX";
	struct scry_spawns s = {0};
	struct scry_tracee *t;

	(void)state;
	write_small_relro(path);
	program = path;
	start(&s);
	t = image_of(&s);
	program = "sleep";
	unlink(path);
	assert_non_null(t);
	assert_false(scry_spawn_is_late(t));
	end(&s, t);
}

/* Who starts with the signal blocked, or gets it from others, is found all the same. */
static void test_signal_of_others(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;
	sigset_t urgent, old;
	pid_t pid;

	(void)state;
	sigemptyset(&urgent);
	sigaddset(&urgent, SIGURG);
	sigprocmask(SIG_BLOCK, &urgent, &old);
	pid = start(&s);
	sigprocmask(SIG_SETMASK, &old, NULL);
	kill(pid, SIGURG);
	t = image_of(&s);
	assert_non_null(t);
	scry_spawns_let_go(&s, t);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);

	t = NULL;
	pid = start(&s);
	while (s.count && !(t = scry_spawns_step(&s)))
		kill(pid, SIGURG);
	assert_non_null(t);
	scry_spawns_let_go(&s, t);
	kill(pid, SIGKILL);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

static void be_killed_in_a_stop(void)
{
	struct scry_spawns s = {0};
	pid_t pid = start(&s);

	kills = true;
	assert_null(image_of(&s));
	kills = false;
	assert_int_equal(s.count, 0);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

/* Where its loader says that it is done; with the signal blocked, at a system call. */
static void test_killed_in_a_stop(void **state)
{
	sigset_t urgent, old;

	(void)state;
	be_killed_in_a_stop();
	sigemptyset(&urgent);
	sigaddset(&urgent, SIGURG);
	sigprocmask(SIG_BLOCK, &urgent, &old);
	be_killed_in_a_stop();
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static volatile int *shared; /* ready, waits that were cut short */

static void waits_for_events(void)
{
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	for (shared[0] = 1;;)
		shared[1] += epoll_wait(fd, &event, 1, -1) < 0;
}

/* A wait knows nothing of a signal that nobody handles. */
static void test_waits_are_whole(void **state)
{
	struct scry_spawns s = {0};
	pid_t pid;

	(void)state;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		waits_for_events();
	}
	while (!shared[0] || scry_proc_task_state(pid, pid) != 'S')
		;
	assert_int_equal(scry_spawns_add(&s, pid), 0);
	for (int i = 0; i < 20; i++) {
		kill(pid, SIGWINCH);
		for (int tries = 0; scry_proc_task_state(pid, pid) != 'S' && tries < 5000;
		     tries++) {
			assert_null(scry_spawns_step(&s));
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
	}
	assert_int_equal(shared[1], 0);
	scry_spawns_done(&s);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void send(struct scry_spawns *s, pid_t pid, int signal, int times)
{
	for (int i = 0; i < times; i++) {
		kill(pid, signal);
		for (int tries = 0; scry_proc_task_state(pid, pid) != 'S' && tries < 5000;
		     tries++) {
			assert_null(scry_spawns_step(s));
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
	}
}

/* Who is kept is stopped for so many signals and no more. */
static void test_signals_of_who_is_kept(void **state)
{
	struct scry_spawns s = {0};
	pid_t pid = start(&s);
	struct scry_tracee *t = image_of(&s);

	(void)state;
	assert_non_null(t);
	scry_spawns_keep(&s, t);
	while (scry_proc_task_state(pid, pid) != 'S') /* it sleeps */
		assert_null(scry_spawns_step(&s));
	send(&s, pid, SIGCHLD, 100);
	send(&s, pid, SIGWINCH, 32);
	assert_true(scry_spawns_has(&s, pid));
	assert_int_equal(scry_proc_traced_by(getpid()), pid);
	send(&s, pid, SIGWINCH, 1);
	assert_false(scry_spawns_has(&s, pid));
	assert_int_equal(scry_proc_traced_by(getpid()), 0);
	send(&s, pid, SIGWINCH, 1);
	assert_int_equal(scry_proc_task_state(pid, pid), 'S');
	scry_spawns_done(&s);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signal_while_held),
		cmocka_unit_test(test_stops_are_few),
		cmocka_unit_test(test_two_signals),
		cmocka_unit_test(test_signal_never_comes),
		cmocka_unit_test(test_signal_elsewhere),
		cmocka_unit_test(test_threads_at_signal),
		cmocka_unit_test(test_loader_of_a_dead_server),
		cmocka_unit_test(test_small_relro),
		cmocka_unit_test(test_signal_of_others),
		cmocka_unit_test(test_killed_in_a_stop),
		cmocka_unit_test(test_waits_are_whole),
		cmocka_unit_test(test_signals_of_who_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
