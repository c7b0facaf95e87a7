/*
 * Calls every function of the malloc family, from constructors to the last destructor, in threads
 * that come and go and free each other's blocks; counts its calls and prints them at the very end:
 *
 *   known FUNCTION CALLS BYTES      bytes asked for, of those that succeeded
 *   order FUNCTION BYTES ALIGN RESULT       the entry points, one after the other
 *   right | wrong                   its own answer: no block was changed by others
 *
 * malloc_known run           instead: threads until SIGTERM, "round N" each time
 * malloc_known steady        the same threads all the time
 * malloc_known tell FILE N   one thread, killed when N calls have returned: FILE has their number
 *
 * KNOWN_NO_PVALLOC: this allocator has none (and libc's would not fit).
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define STEPS 5000 /* some three calls each: a thread fills its buffer in scry ten times */
#define BOXES 512
#define CHURN 400

enum what {
	MALLOC,
	CALLOC,
	REALLOC,
	REALLOCARRAY,
	FREE,
	POSIX_MEMALIGN,
	ALIGNED, /* memalign and aligned_alloc are one function in many libraries */
	VALLOC,
	PVALLOC,
	USABLE,
	WHATS
};
static const char *const names[WHATS] = {"malloc",  "calloc",	      "realloc", "reallocarray",
					 "free",    "posix_memalign", "aligned", "valloc",
					 "pvalloc", "usable_size"};
static atomic_ulong calls[WHATS], bytes[WHATS];
static atomic_uint wrong;
static bool in_order;
static volatile sig_atomic_t is_over;

static void say(const char *text)
{
	if (write(1, text, strlen(text)) < 0)
		_exit(9);
}

static void note(enum what what, size_t size, size_t align, bool has_failed)
{
	char line[128];

	calls[what]++;
	if (!has_failed)
		bytes[what] += size;
	if (!in_order)
		return;
	snprintf(line, sizeof(line), "order %s %zu %zu %s\n", names[what],
		 size > (1ull << 48) - 1 ? (size_t)((1ull << 48) - 1) : size, align,
		 has_failed ? "failed" : "ok");
	say(line);
}

/* A block says of itself how long it is and what it holds. */
static void fill(void *p, size_t size)
{
	size_t n = malloc_usable_size(p); /* counted below */

	calls[USABLE]++;
	if (n < size)
		wrong++;
	if (size >= 16) {
		memcpy(p, &size, 8);
		memset((char *)p + 8, (int)(size * 7 & 0xff), size - 8);
	}
}

static void check(const void *p, size_t at_least)
{
	const unsigned char *c = p;
	size_t size;

	memcpy(&size, p, 8);
	if (at_least < 16)
		return;
	for (size_t i = 8; i < at_least; i++)
		wrong += c[i] != (size * 7 & 0xff);
}

static void *k_malloc(size_t size)
{
	void *p = malloc(size);

	note(MALLOC, size, 0, !p);
	return p;
}

static void *k_calloc(size_t n, size_t size)
{
	char *p = calloc(n, size);
	size_t all;

	if (__builtin_mul_overflow(n, size, &all))
		all = SIZE_MAX;
	for (size_t i = 0; p && i < all; i++)
		wrong += p[i] != 0;
	note(CALLOC, all, 0, !p);
	return p;
}

static void *k_realloc(void *old, size_t size)
{
	void *p = realloc(old, size);

	note(REALLOC, size, 0, !p);
	return p;
}

static void *k_reallocarray(void *old, size_t n, size_t size)
{
	void *p = reallocarray(old, n, size);
	size_t all;

	if (__builtin_mul_overflow(n, size, &all))
		all = SIZE_MAX;
	note(REALLOCARRAY, all, 0, !p);
	return p;
}

static void k_free(void *p)
{
	note(FREE, 0, 0, false);
	free(p);
}

/* Everything once, in an order that is printed. */
__attribute__((noinline)) static void entry_points(void)
{
	volatile size_t huge = (size_t)PTRDIFF_MAX, many = SIZE_MAX / 2;
	void *p, *q;

	in_order = true;
	errno = 77;
	p = k_malloc(1001);
	q = k_malloc(0);
	k_free(q);
	k_free(NULL);
	k_free(p);
	p = k_calloc(7, 143);
	p = k_realloc(p, 2003);
	memset(p, 1, 2003);
	p = k_realloc(p, 70001);
	wrong += ((char *)p)[2002] != 1;
	p = k_realloc(p, 10);
	q = k_realloc(NULL, 3001);
	k_free(q);
	p = k_reallocarray(p, 33, 31);
	wrong += errno != 77;
	q = k_reallocarray(p, many, 3);
	wrong += q != NULL || errno != ENOMEM;
	errno = 77;
	k_free(p);
	wrong += errno != 77;
	q = k_malloc(huge);
	wrong += q != NULL || errno != ENOMEM;
	q = k_calloc(many, 5);
	wrong += q != NULL;
	errno = 77;
	wrong += posix_memalign(&p, 256, 4001) != 0 || (uintptr_t)p % 256;
	note(POSIX_MEMALIGN, 4001, 256, false);
	k_free(p);
	p = NULL;
	wrong += posix_memalign(&p, 4, 4003) != EINVAL;
	note(POSIX_MEMALIGN, 4003, 4, true);
	p = aligned_alloc(512, 4096);
	note(ALIGNED, 4096, 512, false);
	wrong += (uintptr_t)p % 512 != 0;
	k_free(p);
	p = memalign(1024, 5001);
	note(ALIGNED, 5001, 1024, false);
	wrong += (uintptr_t)p % 1024 != 0;
	k_free(p);
	p = valloc(6001);
	note(VALLOC, 6001, 0, false);
	wrong += (uintptr_t)p % 4096 != 0;
	k_free(p);
	if (!getenv("KNOWN_NO_PVALLOC")) {
		p = pvalloc(7001);
		note(PVALLOC, 7001, 0, false);
		k_free(p);
	}
	wrong += errno != 77;
	p = k_malloc(8001);
	wrong += malloc_usable_size(p) < 8001;
	note(USABLE, 0, 0, false);
	wrong += malloc_usable_size(NULL) != 0;
	note(USABLE, 0, 0, false);
	k_free(p);
	p = k_malloc(300000); /* large: its resident pages are counted */
	memset(p, 1, 150000);
	k_free(p);
	p = k_malloc(64);
	q = k_realloc(p, 0); /* libraries differ */
	if (q)
		k_free(q);
	in_order = false;
}

/* Blocks that lie here are anybody's. */
static _Atomic(void *) boxes[BOXES];

static unsigned int next(unsigned int *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

static void drop(void *p)
{
	if (!p)
		return;
	check(p, 16);
	k_free(p);
}

static int steps = STEPS, churn = CHURN;

static void *worker(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg * 77 + 1;

	for (int i = 0; i < steps; i++) {
		_Atomic(void *) *box = &boxes[next(&seed) % BOXES];
		size_t size = 16 + next(&seed) % (i % 100 ? 500 : 200000);
		void *p;

		if (i % 8 == 7) { /* whoever made it, here it moves */
			p = atomic_exchange(box, NULL);
			p = k_realloc(p, size);
		} else {
			p = k_malloc(size);
		}
		fill(p, size);
		drop(atomic_exchange(box, p));
	}
	return NULL;
}

static pthread_key_t key;

static void at_thread_exit(void *p)
{
	void *q = k_malloc(900);

	k_free(p);
	k_free(q);
}

static void *short_worker(void *arg)
{
	void *p = k_malloc(700 + (uintptr_t)arg % 64);

	pthread_setspecific(key, k_malloc(800));
	fill(p, 700);
	drop(p);
	return NULL;
}

static void run_threads(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < BOXES; i++)
		drop(atomic_exchange(&boxes[i], NULL));
}

static void run_churn(void)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < (uintptr_t)churn; i += 4) {
		for (uintptr_t k = 0; k < 4; k++)
			pthread_create(&threads[k], NULL, short_worker, (void *)(i + k));
		for (int k = 0; k < 4; k++)
			pthread_join(threads[k], NULL);
	}
}

/* A child's calls are no calls of this process. */
static void run_child(void)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		for (int i = 0; i < 1000; i++)
			free(malloc(100));
		_exit(3);
	}
	waitpid(child, &status, 0);
	wrong += WEXITSTATUS(status) != 3;
}

static void at_exit(void)
{
	k_free(k_malloc(600));
}

static void *kept;

__attribute__((constructor)) static void before_main(void)
{
	kept = k_calloc(5, 100);
	k_free(k_malloc(500));
}

__attribute__((destructor(101))) static void at_the_very_end(void)
{
	char line[128];

	k_free(kept);
	k_free(k_malloc(550));
	for (int i = 0; i < WHATS; i++) {
		snprintf(line, sizeof(line), "known %s %lu %lu\n", names[i], calls[i], bytes[i]);
		say(line);
	}
	say(wrong ? "wrong\n" : "right\n");
}

static void all(void)
{
	entry_points();
	run_threads();
	run_churn();
	run_child();
}

static void on_term(int sig)
{
	(void)sig;
	is_over = 1;
}

static void run(void)
{
	char line[64];

	steps = 2000;
	churn = 40;
	signal(SIGTERM, on_term);
	for (int round = 1; !is_over; round++) {
		run_threads();
		run_churn();
		snprintf(line, sizeof(line), "round %d\n", round);
		say(line);
	}
}

static void *steady_worker(void *arg)
{
	while (!is_over)
		worker(arg);
	return NULL;
}

static void run_steadily(void)
{
	pthread_t threads[4];
	char line[64];

	steps = 2000;
	signal(SIGTERM, on_term);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, steady_worker, (void *)i);
	for (int round = 1; !is_over; round++) {
		usleep(100000);
		snprintf(line, sizeof(line), "round %d\n", round);
		say(line);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

/* Another process kills this one as soon as so many calls have returned. */
static void is_killed_at(volatile uint64_t *done, uint64_t calls_made)
{
	pid_t parent = getpid();

	if (fork() != 0)
		return;
	while (*done < calls_made && getppid() == parent)
		sched_yield();
	if (getppid() == parent)
		kill(parent, SIGKILL);
	_exit(0);
}

/* Each is counted when it has returned: a recording has them all, and perhaps one more. */
static void tell(const char *path, const char *until)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	volatile uint64_t *done;

	if (fd < 0 || ftruncate(fd, 4096) < 0)
		_exit(9);
	done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	is_killed_at(done, strtoul(until, NULL, 0));
	for (;;) {
		void *p = malloc(100);

		++*done;
		free(p);
		++*done;
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	pthread_key_create(&key, at_thread_exit);
	atexit(at_exit);
	if (!strcmp(mode, "run"))
		run();
	else if (!strcmp(mode, "steady"))
		run_steadily();
	else if (!strcmp(mode, "tell") && argc > 3)
		tell(argv[2], argv[3]);
	else
		all();
	return 0;
}
