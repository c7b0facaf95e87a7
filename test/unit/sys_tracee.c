/*
 * sys/tracee: a thread is let go in the midst of making another, which is let go with it; signals
 * that come while it is stepped are handled; a thread that a call is made in within a restartable
 * sequence begins that anew; in code of 32 bits no call is made.
 */
#include "sys/tracee.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/gadgets.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"

#define OPTIONS (PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE)

enum { GO, RAN, FIRST, SECOND, WORDS };
static volatile int *shared; /* with the child */

static bool becomes(volatile int *word, int value)
{
	for (int tries = 0; *word != value && tries < 5000; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return *word == value;
}

static bool gets_into(pid_t pid, char state)
{
	for (int tries = 0; scry_proc_task_state(pid, pid) != state && tries < 5000; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return scry_proc_task_state(pid, pid) == state;
}

static pid_t child(void (*body)(void))
{
	pid_t pid;

	for (int i = 0; i < WORDS; i++)
		shared[i] = 0;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (!shared[GO])
			;
		body();
		_exit(0);
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void *run(void *unused)
{
	shared[RAN] = 1;
	return unused;
}

static void forks(void)
{
	if (fork() == 0) {
		run(NULL);
		_exit(0);
	}
	wait(NULL);
}

static void vforks(void)
{
	if (vfork() == 0) {
		shared[RAN] = 1;
		_exit(0);
	}
	wait(NULL);
}

static void clones(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, NULL);
	pthread_join(thread, NULL);
}

/* It stands in the event: nobody has taken that. */
static void test_let_go_in_the_midst(void **state)
{
	void (*const ways[])(void) = {forks, vforks, clones};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		pid_t pid = child(ways[i]);
		struct scry_tracee t;

		assert_int_equal(scry_tracee_seize_with(&t, pid, pid, OPTIONS), 0);
		shared[GO] = 1;
		assert_true(gets_into(pid, 't'));
		assert_int_equal(shared[RAN], 0);
		scry_tracee_release(&t);
		assert_true(becomes(&shared[RAN], 1));
		for (int tries = 0; scry_tracee_lingering() && tries < 5000; tries++) {
			scry_tracee_poll_lingering();
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
		assert_int_equal(scry_tracee_lingering(), 0);
		assert_true(gets_into(pid, 'Z'));
		end(pid);
	}
}

static void on_signal(int sig)
{
	shared[sig == SIGUSR1 ? FIRST : SECOND]++;
}

static void takes_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	shared[RAN] = 1;
	for (;;)
		;
}

/* Two that come while a thread is stepped: each is handled, once. */
static void test_signals_while_stepped(void **state)
{
	pid_t pid = child(takes_signals);
	struct scry_tracee t;

	(void)state;
	shared[GO] = 1;
	assert_true(becomes(&shared[RAN], 1));
	assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	assert_int_equal(scry_tracee_stop(&t, scry_now_ns() + 1000000000), 0);
	kill(pid, SIGUSR1);
	kill(pid, SIGUSR2);
	for (int i = 0; i < 4; i++)
		assert_int_equal(scry_tracee_step(&t, 3), 0);
	scry_tracee_release(&t);
	assert_true(becomes(&shared[FIRST], 1));
	assert_true(becomes(&shared[SECOND], 1));
	end(pid);
}

extern const char sequence_begin[], sequence_end[], sequence_abort[];

/* Stays in a restartable sequence, and begins it anew each time that it is interrupted there. */
static void stays_in_sequence(void)
{
	static struct rseq_cs sequence;
	struct rseq *own = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);

	sequence = (struct rseq_cs){.start_ip = (uint64_t)sequence_begin,
				    .post_commit_offset = (uint64_t)(sequence_end - sequence_begin),
				    .abort_ip = (uint64_t)sequence_abort};
	__asm__ volatile(
		"1: movq %[sequence], %[armed]\n"
		".globl sequence_begin, sequence_end, sequence_abort\n"
		"sequence_begin:\n"
		"   movl $1, %[in]\n"
		"2: jmp 2b\n"
		"sequence_end:\n"
		"   ud2\n"
		"   .long 0x53053053\n" /* RSEQ_SIG, glibc's bits/rseq.h */
		"sequence_abort:\n"
		"   incl %[aborts]\n"
		"   jmp 1b\n"
		: [armed] "=m"(own->rseq_cs), [in] "=m"(shared[RAN]), [aborts] "+m"(shared[FIRST])
		: [sequence] "r"(&sequence)
		: "cc", "memory");
}

static void test_in_sequence(void **state)
{
	const uint64_t getpid_[7] = {SYS_getpid};
	struct scry_call how = {.deadline_ns = scry_now_ns() + 20000000000};
	struct user_regs_struct after;
	struct scry_gadgets gadgets;
	struct scry_maps maps;
	struct scry_mem mem;
	struct scry_tracee t;
	int64_t result;
	pid_t pid;

	(void)state;
	if (__rseq_size == 0)
		skip();
	pid = child(stays_in_sequence);
	shared[GO] = 1;
	assert_true(becomes(&shared[RAN], 1));
	assert_int_equal(scry_mem_open(&mem, pid, 1), 0);
	assert_int_equal(scry_maps_read(pid, &maps), 0);
	assert_int_equal(scry_gadgets_find(&mem, &maps, &gadgets), 0);
	how.gadgets = &gadgets;
	how.mem_fd = mem.fd;
	assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	do { /* it is out of it for some instructions each time that it is interrupted */
		assert_int_equal(scry_tracee_stop(&t, scry_now_ns() + 10000000000), 0);
		if (t.regs.rip >= (uint64_t)sequence_begin && t.regs.rip < (uint64_t)sequence_end)
			break;
		scry_tracee_release(&t);
		assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	} while (scry_now_ns() < how.deadline_ns);
	assert_int_equal(scry_tracee_syscall(&t, &how, getpid_, &result), 0);
	assert_int_equal(result, pid);
	assert_int_equal(scry_tracee_finish(&t, &how), 0);
	assert_int_equal(ptrace(PTRACE_GETREGS, pid, 0, &after), 0);
	assert_int_equal(after.rip, (uint64_t)sequence_abort);
	shared[RAN] = 0;
	scry_tracee_release(&t);
	assert_true(becomes(&shared[RAN], 1));
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	end(pid);
}

static void code_of_32_bits(void)
{
	const uint8_t loop[] = {0xeb, 0xfe};
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	struct {
		uint32_t ip;
		uint16_t cs;
	} __attribute__((packed)) far = {(uint32_t)(uintptr_t)code, 0x23};

	memcpy(code, loop, sizeof(loop));
	shared[RAN] = 1;
	__asm__ volatile("ljmpl *%0" ::"m"(far));
}

static void test_code_of_32_bits(void **state)
{
	uint64_t deadline_ns = scry_now_ns() + 60000000000;
	pid_t pid = child(code_of_32_bits);
	struct scry_tracee t;

	(void)state;
	assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	assert_int_equal(scry_tracee_stop(&t, deadline_ns), 0);
	assert_true(scry_tracee_can_call(&t));
	shared[GO] = 1;
	do { /* until it has made the jump */
		scry_tracee_release(&t);
		assert_true(becomes(&shared[RAN], 1));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
		assert_int_equal(scry_tracee_stop(&t, deadline_ns), 0);
	} while (t.regs.cs != 0x23 && scry_now_ns() < deadline_ns);
	assert_int_equal(t.regs.cs, 0x23);
	assert_false(scry_tracee_can_call(&t));
	scry_tracee_release(&t);
	end(pid);
}

static int share(void **state)
{
	(void)state;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_let_go_in_the_midst),
		cmocka_unit_test(test_signals_while_stepped),
		cmocka_unit_test(test_in_sequence),
		cmocka_unit_test(test_code_of_32_bits),
	};

	return cmocka_run_group_tests(tests, share, NULL);
}
