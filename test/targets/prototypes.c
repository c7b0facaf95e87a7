/*
 * Calls each function of libprototypes once or more, as `prototypes [ROUNDS [MORE]]`,
 * and looks whether what comes back is right and errno is as before. Prints "wrong N"; ends with
 * status 3. 0 rounds: until SIGTERM. After the first round, with MORE
 *
 *   seccomp, syscall   it forbids itself to read memory by process_vm_readv, which would then end
 *                      it; by prctl or by syscall
 *   deep               calls p_stack 512 times, each time 8 bytes further down the stack
 *   threads            8 threads do 100 rounds
 */
#include "prototypes.h"

#include <errno.h>
#include <alloca.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long wrong;
static volatile sig_atomic_t is_over;

static void end(int signal)
{
	(void)signal;
	is_over = 1;
}

static void is(int holds)
{
	if (!holds || errno != 77)
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static void numbers(void)
{
	is(p_integers(-1, 4000000000u, -3, 4, -5, 65535, 'c', 7) == -294901660);
	is(p_floats(1.5f, -2.25, 7) == 6.25);
	is(p_float(0.25f) == 0.5f);
	is(p_many_floats(1, 2, 3, 4, 5, 6, 7, 8, 9.5, 10) == 55.5);
	is(p_stack(1, 2, 3, 4, 5, 6, 7, 8, 9, "ten") == 45 + 't');
	p_void();
	is(p_char('x') == 'x');
	is(p_char('\n') == '\n');
	is(p_char(0) == 0);
	is(p_char(-61) == -61);
	is(p_lenses(8, 255, 1, 2, 0x102, 0xfffffffffffffffeul, 123456789) == 123457311);
	is(p_lenses(0, 0, 1, 0, 0, ~0ul, -5) == -5);
	is(p_enum(0) == 0);
	is(p_enum(2) == 2);
	is(p_enum(77) == 77);
	is(p_color(BLUE) == 3);
	is(p_enum_short(-1) == -1);
	is(p_address((void *)0x1000) == (void *)0x1000);
	is(p_bits((unsigned long[]){5, 4}) == 5);
}

static void texts(void)
{
	static const char *const list[] = {"one", "two", NULL};
	char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	is(!munmap(edge + 4096, 4096));
	memset(edge, 'e', 4096);
	is(p_strings("hello", "tab\there\n\"q\" \1\2\x7f back\\slash") != NULL);
	is(p_strings("0123456789012345678901234567890123456789", NULL) != NULL);
	is(p_strings(NULL, "") != NULL);
	is(p_texts(list) == list[0]);
	is(p_bad(edge + 4090) == 1); /* no NUL before the end of memory */
	edge[4095] = 0;
	is(p_bad(edge + 4090) == 1);
	is(p_bad((char *)16) == 1);
	is(p_bad((char *)0x123456789000) == 1);
	is(p_bad((char *)-4096l) == 1);
	is(p_length("abcdefgh", 3) == 'a' + 3);
	is(p_length("", 9) == 9);
	munmap(edge, 4096);
}

static void formats(void)
{
	char to[8];

	is(p_format("plain\n") == 'p');
	is(p_format("%d %s %5.2f %c %x %lu %p %%\n", -3, "str", 2.5, 'z', 255, 99ul,
		    (void *)0x1234) == '%');
	is(p_format("%s %s %s %d %f %f %d %s", "a", "b", "c", 4, 5.0, 6.0, 7, "eight") == '%');
	is(p_format("%.3s|%*d|%o", "abcdef", 7, 42, 8) == '%');
	is(p_format("%f%f%f%f%f%f%f%f%f%d%d%d%d%d%d", 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0,
		    1, 2, 3, 4, 5, 6) == '%');
	is(p_out_format(to, "%s-%d", "out", 5) == 1 && to[0] == '%');
}

static void structs(void)
{
	const int values[] = {1, 2, 3, 4, 5, 6, 7};
	struct list lists[7], loop[2] = {{1, &loop[1]}, {2, &loop[0]}};
	struct small small = p_structs(3, (struct mixed){"abc", 2.5f}, 4.5);
	struct big big = p_big((struct big){1, 2, 3}, 9);

	is(small.f == 10 && small.a == 'x' && small.b == 'a');
	is(big.a == 10 && big.b == 2 && big.c == 3);
	p_array(values, 3);
	p_array(values, 4);
	p_array(values, 7);
	p_array(NULL, 2);
	for (int i = 0; i < 7; i++)
		lists[i] = (struct list){i, i < 6 ? &lists[i + 1] : NULL};
	p_list(&lists[4]);
	p_list(loop);
	p_list(lists);
	is(p_named(&(struct named){3, values, "three"}) == 3);
}

static void outs(void)
{
	char to[64];
	const char *text;
	int number = 1;

	is(p_out(&number, &text, "in") == 'i' && number == 42 && !strcmp(text, "result"));
	is(p_read(to, 5) == 5 && to[4] == 'e');
	is(p_read(to, 60) == 60);
	is(p_outer(&number, 5) == 5 && number == 5);
	is(p_tail(&number) == 6 && number == 6);
}

static void round_of_calls(void)
{
	errno = 77;
	numbers();
	texts();
	formats();
	structs();
	outs();
}

static __attribute__((noinline)) void deeper(size_t bytes)
{
	volatile char *room = alloca(bytes);

	room[0] = 1;
	is(p_stack(1, 2, 3, 4, 5, 6, 7, 8, 9, "ten") == 45 + 't');
}

static void *one_thread(void *unused)
{
	for (int i = 0; i < 100; i++)
		round_of_calls();
	return unused;
}

static void threads(void)
{
	pthread_t ids[8];

	for (int i = 0; i < 8; i++)
		is(!pthread_create(&ids[i], NULL, one_thread, NULL));
	for (int i = 0; i < 8; i++)
		is(!pthread_join(ids[i], NULL));
}

static void forbid(const char *how)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

	is(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (!strcmp(how, "syscall"))
		is(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
	else
		is(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void more(const char *what)
{
	if (!strcmp(what, "threads"))
		threads();
	else if (strcmp(what, "deep") != 0)
		forbid(what);
	for (size_t i = 1; i <= 512 && !strcmp(what, "deep"); i++)
		deeper(8 * i);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	signal(SIGTERM, end);
	if (!rounds)
		puts("pid");
	fflush(stdout);
	for (int i = 0; (!rounds || i < rounds) && !is_over; i++) {
		round_of_calls();
		if (!i && argc > 2)
			more(argv[2]);
	}
	fprintf(stderr, "wrong %lu\n", wrong);
	return wrong ? 1 : 3;
}
