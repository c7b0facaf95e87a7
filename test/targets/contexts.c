/* Contexts that look at themselves: each keeps its registers, rounding mode, sums of long doubles
 * and signal mask over swapcontext(), in rings of three, one ring a thread.
 *
 *   contexts THREADS [masks]
 *
 * Prints "pid N". Words from standard input:
 *
 *   fork    a child has a ring of its own, for as long as the program; its "child PID wrong M"
 *   mask    the second context of each ring blocks SIGUSR2 from now on, the others do not
 *   end     all end (as does the end of input)
 *
 * `masks`: they do so from the start. At the end "switches N wrong M": M is 0, or something was not
 * as it is with glibc. Contexts end by their uc_link, from the one that sees the end first to the
 * last. */
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define RING 3
#define STACK 65536
#define THREADS_MAX 64

static atomic_int masks, ends;
static const int modes[RING] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD};

struct ring {
	ucontext_t main, at[RING];
	char *stacks[RING];
	long switches, wrong, ended;
	long double sum[RING];
};

static void pass_on(struct ring *r, int i)
{
	register long a __asm__("rbx") = i * 7 + 1, b __asm__("r12") = i * 11 + 2,
			c __asm__("r13") = i * 13 + 3;

	__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c));
	r->switches++;
	swapcontext(&r->at[i], &r->at[(i + 1) % RING]);
	__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c));
	if (a != i * 7 + 1 || b != i * 11 + 2 || c != i * 13 + 3)
		r->wrong++;
}

static int has_blocked(int signal)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, signal);
}

static void stand(unsigned low, unsigned high, int i)
{
	struct ring *r = (struct ring *)((unsigned long)high << 32 | low);
	volatile long double third = 3.0L, before;
	int is_blocked = 0;
	sigset_t set;

	fesetround(modes[i]);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	for (long n = 0; !ends; n++) {
		before = r->sum[i];
		if (masks && i == 1 && !is_blocked)
			is_blocked = pthread_sigmask(SIG_BLOCK, &set, NULL) == 0;
		r->sum[i] += 1.0L / third;
		pass_on(r, i);
		if (fegetround() != modes[i] || r->sum[i] <= before)
			r->wrong++;
		if ((n & 255) == 0 && has_blocked(SIGUSR2) != is_blocked)
			r->wrong++;
	}
	r->ended++;
}

static void *run(void *arg)
{
	struct ring *r = arg;
	const unsigned long self = (unsigned long)r;

	for (int i = RING - 1; i >= 0; i--) {
		getcontext(&r->at[i]);
		r->stacks[i] = malloc(STACK);
		r->at[i].uc_stack.ss_sp = r->stacks[i];
		r->at[i].uc_stack.ss_size = STACK;
		r->at[i].uc_link = i == RING - 1 ? &r->main : &r->at[i + 1];
		makecontext(&r->at[i], (void (*)(void))stand, 3, (unsigned)self,
			    (unsigned)(self >> 32), i);
	}
	swapcontext(&r->main, &r->at[0]);
	if (!r->ended || fegetround() != FE_TONEAREST)
		r->wrong++;
	return NULL;
}

static void on_term(int sig)
{
	(void)sig;
	ends = 1;
}

/* Its ring, in a thread of its own, ends by SIGTERM. */
static pid_t make_child(void)
{
	static struct ring ring;
	pthread_t thread;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGTERM, on_term);
		pthread_create(&thread, NULL, run, &ring);
		pthread_join(thread, NULL);
		printf("child %d wrong %ld\n", (int)getpid(), ring.wrong);
		fflush(stdout);
		_exit(ring.wrong != 0);
	}
	printf("forked %d\n", (int)pid);
	fflush(stdout);
	return pid;
}

int main(int argc, char **argv)
{
	static struct ring rings[THREADS_MAX];
	pthread_t threads[THREADS_MAX];
	int count = argc > 1 ? atoi(argv[1]) : 1;
	long switches = 0, wrong = 0;
	int status = 0, children_wrong = 0;
	pid_t child = 0;
	char word[32];

	masks = argc > 2 && !strcmp(argv[2], "masks");
	for (int i = 0; i < count && i < THREADS_MAX; i++)
		pthread_create(&threads[i], NULL, run, &rings[i]);
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(word, sizeof(word), stdin) && strcmp(word, "end\n") != 0)
		if (!strcmp(word, "mask\n"))
			masks = 1;
		else if (!strcmp(word, "fork\n") && !child)
			child = make_child();
	if (child > 0) {
		kill(child, SIGTERM);
		waitpid(child, &status, 0);
		children_wrong = status != 0;
	}
	ends = 1;
	for (int i = 0; i < count && i < THREADS_MAX; i++) {
		pthread_join(threads[i], NULL);
		switches += rings[i].switches;
		wrong += rings[i].wrong;
	}
	printf("switches %ld wrong %ld\n", switches, wrong);
	return wrong || children_wrong;
}
