/* System calls of known number, each kind from an instruction of its own, whose place it prints.
 *
 *   syscaller NAME=N ...    does them in turn, and ends with status 0
 *   syscaller               does what lines "NAME N" of its input say, till they end
 *
 * Prints "pid N", and for each: "NAME calls N other M from FUNCTION+OFFSET in OBJECT+OFFSET": N
 * calls that are in vain or have failed, and M that are not or have not, all of that instruction.
 * `sleep` and `zeros` say by its own clock how long they took. Ends with status 1, and "wrong",
 * where a call gives what it should not. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 3
#define CHILDREN 3
#define COMER_CALLS 5

extern const char __ehdr_start[];

static long fifth; /* argument of the next calls */

/* A function with one instruction that makes a call. Its label is none of the symbol table. */
#define CALLER(name)                                                                          \
	extern const uintptr_t at_##name;                                                     \
	static __attribute__((noipa)) long call_##name(long number, long a, long b, long c,   \
						       long d)                                \
	{                                                                                     \
		register long fourth __asm__("r10") = d;                                      \
		register long r8 __asm__("r8") = fifth;                                       \
		register long r9 __asm__("r9") = 0;                                           \
		long result;                                                                  \
                                                                                              \
		__asm__ volatile(".Lat_" #name ": syscall"                                    \
				 : "=a"(result)                                               \
				 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(r8), \
				   "r"(r9)                                                    \
				 : "rcx", "r11", "memory");                                   \
		return result;                                                                \
	}                                                                                     \
	__asm__(".pushsection .data.rel.ro,\"aw\"\n at_" #name ": .quad .Lat_" #name          \
		"\n.popsection");

/* A kind: its instruction, and what it does N times; the return value are its calls in vain. */
#define DOES(name)   \
	CALLER(name) \
	static __attribute__((noipa)) long do_##name(long n)

static long other; /* calls of the kind that was done last that are not in vain */

static void wrong(const char *what, long result)
{
	printf("wrong: %s gives %ld\n", what, result);
	fflush(stdout);
	_exit(1);
}

static long must(const char *what, long result, long want)
{
	if (result != want)
		wrong(what, result);
	return 1;
}

DOES(getppid)
{
	for (long i = 0; i < n; i++)
		must("getppid", call_getppid(SYS_getppid, 0, 0, 0, 0), getppid());
	return n;
}

DOES(badfd)
{
	for (long i = 0; i < n; i++)
		must("close", call_badfd(SYS_close, -1, 0, 0, 0), -EBADF);
	return n;
}

DOES(again)
{
	int fds[2];
	char c;

	if (pipe2(fds, O_NONBLOCK) < 0)
		wrong("pipe2", errno);
	for (long i = 0; i < n; i++)
		must("read", call_again(SYS_read, fds[0], (long)&c, 1, 0), -EAGAIN);
	close(fds[0]);
	close(fds[1]);
	return n;
}

/* The others take nearly all of the time that the instruction takes. */
DOES(tries)
{
	static char zeros[1 << 20];
	const int zero = open("/dev/zero", O_RDONLY);
	int fds[2];

	if (zero < 0 || pipe2(fds, O_NONBLOCK) < 0)
		wrong("open", errno);
	other = n / 2;
	for (long i = 0; i < n; i++)
		must("read", call_tries(SYS_read, fds[0], (long)zeros, 1, 0), -EAGAIN);
	for (long i = 0; i < other; i++)
		must("read", call_tries(SYS_read, zero, (long)zeros, sizeof(zeros), 0),
		     sizeof(zeros));
	close(fds[0]);
	close(fds[1]);
	close(zero);
	return n;
}

DOES(absent)
{
	static const char *const paths[] = {"/nowhere/of/scry/often", "/nowhere/of/scry/often",
					    "/nowhere/of/scry/seldom"};

	for (long i = 0; i < n; i++)
		must("openat", call_absent(SYS_openat, AT_FDCWD, (long)paths[i % 3], O_RDONLY, 0),
		     -ENOENT);
	return n;
}

DOES(wake)
{
	static int word;

	for (long i = 0; i < n; i++)
		must("futex", call_wake(SYS_futex, (long)&word, FUTEX_WAKE_PRIVATE, 1, 0), 0);
	return n;
}

/* Somebody waits each time: what it tries till he does is counted apart. */
static int bell;

static void *wait_for_bell(void *arg)
{
	for (long i = 0; i < (long)arg; i++)
		syscall(SYS_futex, &bell, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	return NULL;
}

DOES(wakes)
{
	pthread_t thread;
	long early = 0;

	pthread_create(&thread, NULL, wait_for_bell, (void *)n);
	for (long i = 0; i < n;) {
		if (call_wakes(SYS_futex, (long)&bell, FUTEX_WAKE_PRIVATE, 1, 0) == 1)
			i++;
		else
			early++;
	}
	pthread_join(thread, NULL);
	other = n;
	return early;
}

/* `what` sets one of two values, over and over; or both in turn, so that each is new. */
#define SETS(name, first, second, call)                                \
	DOES(name)                                                     \
	{                                                              \
		static const int differs = (first) != (second);        \
		const int fd = open("/dev/null", O_RDWR);              \
		for (long i = -1; i < n; i++) {                        \
			const long value = i & 1 ? (first) : (second); \
			must(#name, call, 0);                          \
		}                                                      \
		close(fd);                                             \
		other = differs ? n + 1 : 1;                           \
		return differs ? 0 : n;                                \
	}

SETS(setfl, O_NONBLOCK, O_NONBLOCK, call_setfl(SYS_fcntl, fd, F_SETFL, value, 0))
SETS(setfl_new, O_NONBLOCK, O_APPEND, call_setfl_new(SYS_fcntl, fd, F_SETFL, value, 0))
SETS(setfd, FD_CLOEXEC, FD_CLOEXEC, call_setfd(SYS_fcntl, fd, F_SETFD, value, 0))
SETS(setfd_new, FD_CLOEXEC, 0, call_setfd_new(SYS_fcntl, fd, F_SETFD, value, 0))

static long nonblocking(int fd, int value, long (*call)(long, long, long, long, long))
{
	return call(SYS_ioctl, fd, FIONBIO, (long)&value, 0);
}
SETS(fionbio, 1, 1, nonblocking(fd, (int)value, call_fionbio))
SETS(fionbio_new, 1, 0, nonblocking(fd, (int)value, call_fionbio_new))

static long set_mask(long value, long (*call)(long, long, long, long, long))
{
	const uint64_t set = (uint64_t)value << (SIGUSR2 - 1);

	return call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&set, 0, sizeof(set));
}
SETS(mask, 1, 1, set_mask(value, call_mask))
SETS(mask_new, 1, 0, set_mask(value, call_mask_new))

/* Two that are in vain to one that is not. */
DOES(mask_some)
{
	for (long i = 0; i < n / 2 * 3; i++)
		must("mask_some", set_mask(i / 3 % 2 == 0, call_mask_some), 0);
	other = n / 2;
	return n;
}

DOES(byte)
{
	const int fd = open("/dev/null", O_RDWR);

	for (long i = 0; i < n; i++)
		must("write", call_byte(SYS_write, fd, (long)"x", 1, 0), 1);
	close(fd);
	return n;
}

DOES(bytes)
{
	const int fd = open("/dev/null", O_RDWR);

	for (long i = 0; i < n; i++)
		must("write", call_bytes(SYS_write, fd, (long)"xy", 2, 0), 2);
	close(fd);
	other = n;
	return 0;
}

DOES(yield)
{
	for (long i = 0; i < n; i++)
		must("sched_yield", call_yield(SYS_sched_yield, 0, 0, 0, 0), 0);
	return n;
}

DOES(clock)
{
	struct timespec t;

	for (long i = 0; i < n; i++)
		must("clock", call_clock(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0), 0);
	return n;
}

/* The vDSO does not have it. */
DOES(clock_cpu)
{
	struct timespec t;

	for (long i = 0; i < n; i++)
		must("clock",
		     call_clock_cpu(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&t, 0, 0), 0);
	other = n;
	return 0;
}

DOES(poll)
{
	for (long i = 0; i < n; i++)
		must("poll", call_poll(SYS_poll, 0, 0, 0, 0), 0);
	return n;
}

/* N that may not wait, and some that may wait for a microsecond, where the kernel leaves no time.
 */
#define WAITS(name, call)                                                      \
	DOES(name)                                                             \
	{                                                                      \
		other = n / 10;                                                \
		for (long i = 0; i < n + other; i++) {                         \
			struct timespec limit = {.tv_nsec = i < n ? 0 : 1000}; \
			must(#name, call, 0);                                  \
		}                                                              \
		fifth = 0;                                                     \
		return n;                                                      \
	}
WAITS(ppoll, call_ppoll(SYS_ppoll, 0, 0, (long)&limit, 0))
WAITS(select, (fifth = (long)&limit, call_select(SYS_select, 0, 0, 0, 0)))
WAITS(pselect, (fifth = (long)&limit, call_pselect(SYS_pselect6, 0, 0, 0, 0)))

static int empty_epoll(void)
{
	static int fd = -1;

	return fd >= 0 ? fd : (fd = epoll_create1(EPOLL_CLOEXEC));
}

WAITS(pwait, (fifth = 0, call_pwait(SYS_epoll_pwait2, empty_epoll(), (long)&(struct epoll_event){0},
				    1, (long)&limit)))

DOES(tell)
{
	FILE *file = tmpfile();

	for (long i = 0; i < n; i++)
		must("lseek", call_tell(SYS_lseek, fileno(file), 0, SEEK_CUR, 0), 0);
	fclose(file);
	return n;
}

/* Gives back what it has just got: each second one. */
DOES(brk)
{
	const long now = (long)sbrk(0);

	for (long i = 0; i < 2 * n; i++)
		must("brk", call_brk(SYS_brk, i & 1 ? now : now + 4096, 0, 0, 0),
		     i & 1 ? now : now + 4096);
	other = n;
	return n;
}

DOES(dontneed)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (long i = 0; i < n; i++)
		must("madvise", call_dontneed(SYS_madvise, (long)page, 4096, MADV_DONTNEED, 0), 0);
	munmap(page, 4096);
	return n;
}

/* Nothing is given back. */
DOES(refused)
{
	for (long i = 0; i < n; i++)
		must("madvise", call_refused(SYS_madvise, 1, 4096, MADV_DONTNEED, 0), -EINVAL);
	return n;
}

DOES(epoll)
{
	struct epoll_event event = {.events = EPOLLIN};
	const int fd = epoll_create1(0);
	int fds[2];

	if (pipe(fds) < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, fds[0], &event) < 0)
		wrong("epoll_ctl", errno);
	for (long i = 0; i < n; i++)
		must("epoll_ctl",
		     call_epoll(SYS_epoll_ctl, fd, EPOLL_CTL_MOD, fds[0], (long)&event), 0);
	close(fds[0]);
	close(fds[1]);
	close(fd);
	return n;
}

DOES(localtime)
{
	char buf[256];

	for (long i = 0; i < n; i++)
		call_localtime(SYS_newfstatat, AT_FDCWD, (long)"/etc/localtime", (long)buf, 0);
	return n;
}

/* --- times, threads, processes, signals ------------------------------------------------------ */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

DOES(sleep)
{
	const struct timespec t = {0, 5000000};
	uint64_t *took = calloc((size_t)n, sizeof(*took)), total = 0;

	for (long i = 0; i < n; i++) {
		uint64_t began = now_ns();

		must("nanosleep", call_sleep(SYS_nanosleep, (long)&t, 0, 0, 0), 0);
		total += took[i] = now_ns() - began;
	}
	qsort(took, (size_t)n, sizeof(*took), by_size);
	printf("sleep total_ns %llu p50_ns %llu p99_ns %llu max_ns %llu\n",
	       (unsigned long long)total, (unsigned long long)took[(n + 1) / 2 - 1],
	       (unsigned long long)took[(n * 99 + 99) / 100 - 1], (unsigned long long)took[n - 1]);
	free(took);
	return n;
}

static uint64_t spent_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Half of its time or so in a call that takes long: how much, by its own clock
 * of the processor. */
DOES(zeros)
{
	static volatile uint64_t result = 1;
	static char buf[8 << 20];
	const int fd = open("/dev/zero", O_RDONLY);
	uint64_t inside = 0, began = spent_ns(), first = began;

	for (long i = 0; i < n; i++) {
		const uint64_t before = spent_ns();

		must("read", call_zeros(SYS_read, fd, (long)buf, sizeof(buf), 0), sizeof(buf));
		began = spent_ns();
		inside += began - before;
		for (int k = 0; k < 80000; k++)
			result = result * 6364136223846793005u + 1442695040888963407u;
	}
	close(fd);
	printf("zeros share %.4f\n", (double)inside / (double)(spent_ns() - first));
	return n;
}

CALLER(threads)

static void *calls_as_thread(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "caller %ld", *(long *)arg);
	prctl(PR_SET_NAME, name);
	for (long i = 0; i < *(long *)arg; i++)
		call_threads(SYS_getppid, 0, 0, 0, 0);
	return NULL;
}

/* Threads "caller N", "caller 2N", ..., of as many calls each. */
static __attribute__((noipa)) long do_threads(long n)
{
	pthread_t threads[THREADS];
	long counts[THREADS], all = 0;

	for (long i = 0; i < THREADS; i++) {
		all += counts[i] = (i + 1) * n;
		pthread_create(&threads[i], NULL, calls_as_thread, &counts[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return all;
}

CALLER(comers)

static void *comes_and_goes(void *arg)
{
	for (int i = 0; i < COMER_CALLS; i++)
		call_comers(SYS_getppid, 0, 0, 0, 0);
	return arg;
}

/* N threads, one after the other. */
static __attribute__((noipa)) long do_comers(long n)
{
	pthread_t thread;

	for (long i = 0; i < n; i++) {
		pthread_create(&thread, NULL, comes_and_goes, NULL);
		pthread_join(thread, NULL);
	}
	return n * COMER_CALLS;
}

DOES(children)
{
	for (int child = 0; child < CHILDREN; child++) {
		int status = 0;
		pid_t pid = fork();

		if (!pid) {
			for (long i = 0; i < n; i++)
				call_children(SYS_getppid, 0, 0, 0, 0);
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			wrong("waitpid", status);
	}
	return CHILDREN * n;
}

static void on_signal(int signal)
{
	(void)signal;
}

DOES(signals)
{
	signal(SIGUSR1, on_signal);
	for (long i = 0; i < n; i++)
		call_signals(SYS_tgkill, getpid(), gettid(), SIGUSR1, 0);
	return n;
}

/* The way of 32 bits: other numbers. */
extern const uintptr_t at_old;
static __attribute__((noipa)) long call_old(long number)
{
	long result;

	__asm__ volatile(".Lat_old: int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(0L)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}
__asm__(".pushsection .data.rel.ro,\"aw\"\n at_old: .quad .Lat_old\n.popsection");

static __attribute__((noipa)) long do_old(long n)
{
	for (long i = 0; i < n; i++)
		call_old(64); /* getppid */
	return n;
}

/* A filter says that the mask is set, and it is not. It stays, and so others set none after this.
 */
DOES(unset)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = 4, .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		wrong("prctl", errno);
	for (long i = 0; i < n; i++) {
		const uint64_t set = 1ull << (SIGUSR2 - 1);

		must("rt_sigprocmask",
		     call_unset(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof(set)), 0);
	}
	other = n;
	return 0;
}

/* From here on nothing but read, write, sigreturn and exit. It does not come back. */
DOES(strict)
{
	const int fd = open("/dev/null", O_RDWR);

	printf("strict begins\n");
	fflush(stdout);
	if (prctl(PR_SET_SECCOMP, 1) < 0)
		wrong("prctl", errno);
	for (long i = 0; i < n; i++)
		call_strict(SYS_write, fd, (long)"xyz", 3, 0);
	call_strict(SYS_exit, 0, 0, 0, 0);
	return n;
}

/* --- what is asked for ----------------------------------------------------------------------- */

#define KIND(name)                                                                  \
	{                                                                           \
#name, do_##name, "call_" #name, (uintptr_t)call_##name, &at_##name \
	}

static int do_one(const char *name, long n)
{
	static const sigset_t none;
	const struct {
		const char *name;
		long (*run)(long n);
		const char *function;
		uintptr_t begin;
		const uintptr_t *at;
	} kinds[] = {
		KIND(getppid), KIND(badfd),	  KIND(again),	   KIND(absent),   KIND(wake),
		KIND(wakes),   KIND(setfl),	  KIND(setfl_new), KIND(setfd),	   KIND(setfd_new),
		KIND(fionbio), KIND(fionbio_new), KIND(mask),	   KIND(mask_new), KIND(mask_some),
		KIND(byte),    KIND(bytes),	  KIND(yield),	   KIND(clock),	   KIND(clock_cpu),
		KIND(ppoll),   KIND(select),	  KIND(pselect),   KIND(pwait),	   KIND(poll),
		KIND(tell),    KIND(brk),	  KIND(dontneed),  KIND(epoll),	   KIND(localtime),
		KIND(sleep),   KIND(zeros),	  KIND(threads),   KIND(children), KIND(comers),
		KIND(signals), KIND(old),	  KIND(strict),	   KIND(tries),	   KIND(refused),
		KIND(unset),
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		long calls;

		if (strcmp(kinds[i].name, name) != 0)
			continue;
		other = 0;
		sigprocmask(SIG_SETMASK, &none, NULL);
		calls = kinds[i].run(n);
		printf("%s calls %ld other %ld from %s+%lu in %s+%lu\n", name, calls, other,
		       kinds[i].function, (unsigned long)(*kinds[i].at - kinds[i].begin),
		       program_invocation_short_name,
		       (unsigned long)(*kinds[i].at - (uintptr_t)__ehdr_start));
		fflush(stdout);
		return 0;
	}
	printf("wrong: there is no '%s'\n", name);
	return 1;
}

int main(int argc, char **argv)
{
	char line[64], name[32];
	long n;

	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (int i = 1; i < argc; i++)
		if (sscanf(argv[i], "%31[^=]=%ld", name, &n) != 2 || do_one(name, n))
			return 1;
	while (argc == 1 && fgets(line, sizeof(line), stdin))
		if (sscanf(line, "%31s %ld", name, &n) != 2 || do_one(name, n))
			return 1;
	return 0;
}
