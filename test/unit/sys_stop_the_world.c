/*
 * sys/stop_the_world: where threads go on after signals. A child stands in a handler on an
 * alternate stack, which has interrupted a handler with a large frame, which has interrupted main:
 * both places are to be found, and moved. Waits know nothing of a stop.
 */
#include "sys/stop_the_world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/edit.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"

/* A thread stands at world_N_wait; moved to world_N_on, it goes on. */
void world_main(volatile int *here);
void world_first(volatile int *here);
void world_second(volatile int *here);
extern char world_main_wait[], world_first_wait[], world_second_wait[];
extern char world_main_on[], world_first_on[], world_second_on[];
#define STANDS(name)                                                                            \
	__asm__(".text\n" #name ": movl $1, (%rdi)\n" #name "_wait: jmp " #name "_wait\n" #name \
		"_on: movl $2, (%rdi)\nret\n")
STANDS(world_main);
STANDS(world_first);
STANDS(world_second);

static volatile int *stands; /* shared with the child: 1 waits, 2 went on */

#define ROOM (1u << 20)
static volatile uint64_t *room_at; /* shared too */

/* Below its frame lie pages that nobody has written to: of some a byte was read, most are not even
 * there. */
static void on_first(int sig)
{
	volatile char *room = __builtin_alloca(ROOM);

	*room_at = (uint64_t)(uintptr_t)room;
	room[0] = (char)sig;
	room[600000] = (char)sig;
	for (size_t i = 200000; i < 400000; i += 4096)
		(void)room[i];
	world_first(&stands[1]);
}

static void on_second(int sig)
{
	(void)sig;
	world_second(&stands[2]);
}

static void child(void)
{
	static char stack[65536];
	const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_handler = on_first};

	sigaltstack(&alternate, NULL);
	sigaction(SIGUSR1, &action, NULL);
	action = (struct sigaction){.sa_handler = on_second, .sa_flags = SA_ONSTACK};
	sigaction(SIGUSR2, &action, NULL);
	world_main(&stands[0]);
	_exit(42);
}

static void wait_for(int i, int value)
{
	for (int tries = 0; stands[i] != value && tries < 5000; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_int_equal(stands[i], value);
}

static pid_t start(void)
{
	pid_t pid;

	stands[0] = stands[1] = stands[2] = 0;
	pid = fork();
	if (pid == 0)
		child();
	wait_for(0, 1);
	kill(pid, SIGUSR1);
	wait_for(1, 1);
	kill(pid, SIGUSR2);
	wait_for(2, 1);
	return pid;
}

static uint64_t address(const char *place)
{
	return (uint64_t)(uintptr_t)place;
}

/* Each to its "on". */
static uint64_t onwards(const void *arg, uint64_t ip)
{
	(void)arg;
	return ip == address(world_main_wait)	  ? address(world_main_on)
	       : ip == address(world_first_wait)  ? address(world_first_on)
	       : ip == address(world_second_wait) ? address(world_second_on)
						  : ip;
}

static size_t pages_there(pid_t pid)
{
	uint64_t entries[ROOM / 4096] = {0};
	size_t count = 0;
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, entries, sizeof(entries), (off_t)(*room_at / 4096 * 8)),
			 sizeof(entries));
	close(fd);
	for (size_t i = 0; i < ROOM / 4096; i++)
		count += entries[i] >> 63;
	return count;
}

static void frames_on_two_stacks(void **unused)
{
	size_t there;
	struct scry_maps maps = {0};
	struct scry_stw w;
	struct scry_mem mem;
	pid_t pid = start();
	int status;

	(void)unused;
	assert_int_equal(scry_mem_open(&mem, pid, 1), 0);
	assert_int_equal(scry_maps_read(pid, &maps), 0);
	assert_int_equal(scry_stw_stop(&w, pid, 1000000000), 0);
	there = pages_there(pid);
	assert_true(there < ROOM / 4096);
	assert_int_equal(scry_stw_look(&w, &mem, &maps), 0);
	assert_true(pages_there(pid) <= there + 64); /* a chunk beyond each written one */
	assert_int_equal(w.saved_count, 2);
	assert_int_equal(w.saved[0].ip, address(world_first_wait));
	assert_int_equal(w.saved[1].ip, address(world_main_wait));
	assert_true(scry_stw_inside(&w, address(world_second_wait), address(world_second_on)));
	assert_true(scry_stw_inside(&w, address(world_main_wait), address(world_main_on)));
	assert_false(scry_stw_inside(&w, address(world_main_on), address(world_main_on) + 1));
	assert_int_equal(scry_stw_move(&w, mem.fd, onwards, NULL), 3);
	scry_stw_release(&w);
	wait_for(2, 2);
	wait_for(1, 2);
	wait_for(0, 2);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
}

#define STALE 0x7e57000012345678ull
#define IP_TO_HOLE \
	64 /* from where the instruction pointer lies in a frame to words that nobody fills */

static bool is_stale(const void *arg, uint64_t word)
{
	(void)arg;
	return word == STALE;
}

static uint64_t doubt_about(struct scry_stw *w, const struct scry_mem *mem,
			    const struct scry_maps *maps, uint64_t at)
{
	const struct scry_stw_hunt hunt = {
		.is_one = is_stale, .low = STALE - 16, .high = STALE + 16, .bytes = 1ull << 30};
	const uint64_t word = STALE;
	uint64_t before;

	assert_int_equal(scry_mem_read(mem, at, &before, sizeof(before)), 0);
	assert_int_equal(scry_edit_poke(mem->fd, at, &word, sizeof(word)), 0);
	assert_int_equal(scry_stw_look_everywhere(w, mem, maps, &hunt), 0);
	assert_int_equal(scry_edit_poke(mem->fd, at, &before, sizeof(before)), 0);
	return scry_stw_doubt(w);
}

/* A word that an earlier frame left in a hole of a frame is nobody's; in a frame that is not whole,
 * or anywhere else, it may be a context's. */
static void holes_of_frames(void **unused)
{
	const uint32_t broken = 0;
	struct scry_maps maps = {0};
	struct scry_stw w;
	struct scry_mem mem;
	pid_t pid = start();
	uint64_t hole, state;

	(void)unused;
	assert_int_equal(scry_mem_open(&mem, pid, 1), 0);
	assert_int_equal(scry_maps_read(pid, &maps), 0);
	assert_int_equal(scry_stw_stop(&w, pid, 4000000000), 0);
	assert_int_equal(scry_stw_look(&w, &mem, &maps), 0);
	assert_int_equal(w.saved_count, 2);
	hole = w.saved[1].at + IP_TO_HOLE;
	assert_int_equal(doubt_about(&w, &mem, &maps, hole), 0);
	assert_int_equal(doubt_about(&w, &mem, &maps, hole - 16), hole - 16);
	assert_int_equal(doubt_about(&w, &mem, &maps, *room_at & ~7ull), *room_at & ~7ull);
	assert_int_equal(scry_mem_read(&mem, hole - 8, &state, sizeof(state)), 0);
	assert_int_equal(scry_edit_poke(mem.fd, state + 464, &broken, sizeof(broken)), 0);
	w.saved_count = 0;
	assert_int_equal(doubt_about(&w, &mem, &maps, hole), hole);
	scry_stw_release(&w);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
}

static int share(void **unused)
{
	(void)unused;
	stands = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	room_at = (volatile uint64_t *)stands + 8;
	return stands == MAP_FAILED ? -1 : 0;
}

#define MANY 300

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Of a program that is killed while it stands each thread tells its end to us first: it can end
 * however many they are. */
static void killed_with_many_threads(void **state)
{
	const struct timespec moment = {0, 1000000};
	struct scry_stw w;
	int ready[2], status;
	char byte;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < MANY; i++)
			if (pthread_create(&thread, NULL, wait_for_ever, NULL))
				_exit(1);
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		wait_for_ever(NULL);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(scry_stw_stop(&w, pid, 10000000000ull), 0);
	assert_true(w.count > MANY);
	kill(pid, SIGKILL);
	scry_stw_release(&w);
	for (int i = 0; i < 10000 && scry_tracee_lingering(); i++, nanosleep(&moment, NULL))
		scry_tracee_poll_lingering();
	assert_int_equal(scry_tracee_lingering(), 0);
	for (int i = 0; i < 10000 && scry_proc_task_state(pid, pid) != 0; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			break;
		nanosleep(&moment, NULL);
	}
	assert_int_equal(scry_proc_task_state(pid, pid), 0);
	close(ready[0]);
	close(ready[1]);
}

ssize_t __real_scry_proc_tasks(pid_t pid, pid_t **ret);
ssize_t __wrap_scry_proc_tasks(pid_t pid, pid_t **ret);
static int misses; /* so many lists lack a thread that lives */
ssize_t __wrap_scry_proc_tasks(pid_t pid, pid_t **ret)
{
	ssize_t count = __real_scry_proc_tasks(pid, ret);

	return count > 1 && misses-- > 0 ? count - 1 : count;
}

/* The kernel's list may pass over a thread that lives while others end. */
static void none_is_missed(void **state)
{
	struct scry_stw w;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < 4; i++)
			pthread_create(&thread, NULL, wait_for_ever, NULL);
		wait_for_ever(NULL);
	}
	for (int tries = 0; scry_proc_task_count(pid) < 5 && tries < 5000; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	misses = 2;
	assert_int_equal(scry_stw_stop(&w, pid, 10000000000ull), 0);
	assert_int_equal(w.count, 5);
	scry_stw_release(&w);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void keep_vforking(void)
{
	for (;;) {
		pid_t pid = vfork();

		if (pid == 0) {
			stands[0]++;
			nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

/* A thread that does not stop for long is waited for while the others run, and held when it comes:
 * for some microseconds now and then it could be. */
static void in_vfork_nearly_always(void **state)
{
	struct scry_stw w;
	pthread_t thread;
	pid_t pid;
	int seen, r;

	(void)state;
	stands[0] = 0;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pthread_create(&thread, NULL, wait_for_ever, NULL);
		keep_vforking();
	}
	wait_for(0, 1);
	for (int i = 0, tries = 0; i < 8; i++) {
		while ((r = scry_stw_stop(&w, pid, 20000000)) == -EBUSY && tries < 8)
			tries++; /* where others have the processors, it may be missed */
		assert_int_equal(r, 0);
		assert_int_equal(w.count, 2);
		seen = stands[0];
		scry_stw_release(&w);
		wait_for(0, seen + 1); /* it goes on */
	}
	kill(pid, SIGKILL);
	for (int i = 0; i < 10000 && waitpid(pid, NULL, WNOHANG) != pid; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_int_equal(scry_proc_task_state(pid, pid), 0);
}

static void waits_for_events(void)
{
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	for (stands[0] = 1;;)
		stands[epoll_wait(fd, &event, 1, -1) < 0 && errno == EINTR ? 1 : 2]++;
}

static bool sleeps(pid_t pid)
{
	for (int tries = 0; scry_proc_task_state(pid, pid) != 'S' && tries < 5000; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return scry_proc_task_state(pid, pid) == 'S';
}

static void call_in(struct scry_stw *w, const struct scry_mem *mem, const struct scry_maps *maps)
{
	const uint64_t getppid_call[7] = {SYS_getppid};
	struct scry_gadgets gadgets;
	struct scry_call how = {.gadgets = &gadgets, .mem_fd = mem->fd};
	struct scry_tracee *t = scry_stw_caller(w, mem, maps, &how.stack);
	int64_t got = 0;

	assert_non_null(t);
	how.deadline_ns = scry_now_ns() + 1000000000;
	assert_int_equal(scry_gadgets_find(mem, maps, &gadgets), 0);
	assert_int_equal(scry_tracee_syscall(t, &how, getppid_call, &got), 0);
	assert_int_equal(scry_tracee_finish(t, &how), 0);
	assert_int_equal(got, getpid());
}

/* epoll_wait knows nothing of the stop, nor of a call that was made in its thread meanwhile. */
static void waits_are_whole(void **unused)
{
	struct scry_maps maps = {0};
	struct scry_stw w;
	struct scry_mem mem;
	pid_t pid;

	(void)unused;
	stands[0] = stands[1] = stands[2] = 0;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		waits_for_events();
	}
	wait_for(0, 1);
	assert_int_equal(scry_mem_open(&mem, pid, 1), 0);
	assert_int_equal(scry_maps_read(pid, &maps), 0);
	for (int i = 0; i < 30; i++) {
		assert_true(sleeps(pid));
		assert_int_equal(stands[1], 0);
		assert_int_equal(scry_stw_stop(&w, pid, 1000000000), 0);
		if (i == 19)
			call_in(&w, &mem, &maps);
		scry_stw_release(&w);
	}
	assert_int_equal(stands[2], 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
}

/* A thread may set its stack pointer to anything: that ends nobody's stack. */
static void pointer_of_nothing(void **unused)
{
	struct scry_tracee thread = {.pid = getpid(), .tid = getpid(), .stopped = true};
	struct scry_saved_ip saved = {.at = (uintptr_t)stands};
	struct scry_stw w = {.threads = &thread, .count = 1, .saved = &saved};
	struct scry_maps maps;
	struct scry_mem mem;

	(void)unused;
	assert_int_equal(scry_mem_open(&mem, getpid(), 0), 0);
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	for (uint64_t sp = 0; sp <= 256; sp += 8) {
		thread.regs.rsp = sp;
		w.saved_count = 1;
		scry_stw_forget_dead(&w, &mem, &maps);
		assert_int_equal(w.saved_count, 1);
	}
	scry_maps_done(&maps);
	scry_mem_close(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pointer_of_nothing),
					   cmocka_unit_test(frames_on_two_stacks),
					   cmocka_unit_test(holes_of_frames),
					   cmocka_unit_test(killed_with_many_threads),
					   cmocka_unit_test(in_vfork_nearly_always),
					   cmocka_unit_test(none_is_missed),
					   cmocka_unit_test(waits_are_whole)};

	return cmocka_run_group_tests(tests, share, NULL);
}
