/* Threads that use libc (and, where there is one, libcrypto) in every way that a hook could
 * disturb, and compare each answer with the first.
 *
 *   churn [-s] [ROUNDS]     ROUNDS 0 (the default): until SIGTERM; -s: it starts programs, too
 *
 * One thread each: memory and strings; files and numbers; setjmp and signals raised; fork and wait;
 * threads that come and go; dlopen and dlclose; digests, ciphers and signatures. A timer sends
 * 1,000 signals a second to whoever runs; the handler formats and compares, too. "round N" lines;
 * the last line is "rounds N wrong N handled N". Exit 0: each answer was right. */
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_ulong rounds_done, wrong, handled;
static volatile sig_atomic_t stop;
static unsigned long rounds;
static bool starts_programs;

/* A digest of everything that a piece of work has seen. */
static void mix(uint64_t *sum, const void *data, size_t size)
{
	const unsigned char *p = data;

	while (size--)
		*sum = (*sum ^ *p++) * 0x100000001b3ull;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static uint64_t memory_and_strings(void)
{
	char *list[100], text[64], *rest;
	uint64_t sum = 1;

	for (int i = 0; i < 100; i++) {
		list[i] = malloc(16 + (size_t)i * 40);
		snprintf(list[i], 16, "%d", i * 7919 % 1009);
		memset(list[i] + 16, i, (size_t)i * 40);
		list[i] = realloc(list[i], 32 + (size_t)i * 50);
	}
	qsort(list, 100, sizeof(*list), by_text);
	for (int i = 0; i < 100; i++)
		mix(&sum, list[i], strlen(list[i]));
	for (int i = 0; i < 100; i++)
		free(list[i]);
	strcpy(text, "one,two,,three");
	for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
		mix(&sum, word, strlen(word));
	rest = memmem("haystack needle", 15, "needle", 6);
	sum += rest ? strspn(rest, "ned") : 99;
	rest = strdup("a string to be searched");
	sum += (uint64_t)(strchr(rest, 'g') - rest) + (uint64_t)(strstr(rest, "search") - rest);
	sum += strcasecmp(rest, "A STRING TO BE SEARCHED") == 0;
	memmove(rest + 2, rest, 10);
	mix(&sum, rest, strlen(rest));
	free(rest);
	rest = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(rest, 7, 8192);
	mix(&sum, rest, 100);
	munmap(rest, 8192);
	return sum;
}

static uint64_t files_and_numbers(void)
{
	struct tm tm = {0};
	time_t when = 1234567890;
	char line[100];
	uint64_t sum = 2;
	double d = 0;
	int n = 0;
	FILE *f = tmpfile();

	if (!f)
		return 0;
	for (int i = 0; i < 20; i++)
		fprintf(f, "%d %.10g %s\n", i, sqrt(i) * exp(i / 10.0), i % 2 ? "odd" : "even");
	rewind(f);
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "%d %lf", &n, &d);
		mix(&sum, line, strlen(line));
		mix(&sum, &d, sizeof(d));
	}
	fclose(f);
	gmtime_r(&when, &tm);
	strftime(line, sizeof(line), "%Y-%m-%d %H:%M:%S %j", &tm);
	mix(&sum, line, strlen(line));
	d = strtod("-1.25e-3", NULL) + (double)strtol("0x7f", NULL, 0) + pow(2, 0.5) + sin(1);
	mix(&sum, &d, sizeof(d));
	errno = 0;
	sum += close(-1) < 0 && errno == EBADF;
	return sum;
}

static __thread sigjmp_buf env;
static __thread volatile sig_atomic_t raised_count;

static void on_raise(int sig)
{
	raised_count++;
	siglongjmp(env, sig);
}

__attribute__((noinline)) static void deeper(jmp_buf *to, int n)
{
	char room[200];

	memset(room, n, sizeof(room));
	if (!n)
		longjmp(*to, room[100] + 5);
	if (n > 0)
		deeper(to, n - 1);
	memset(room, 0, sizeof(room));
}

static uint64_t jumps_and_signals(void)
{
	volatile uint64_t sum = 3;
	jmp_buf own;
	volatile int r = setjmp(own);

	if (!r)
		deeper(&own, 10);
	sum += (uint64_t)r;
	for (volatile int i = 0; i < 5; i++) {
		r = sigsetjmp(env, 1);
		if (!r)
			raise(SIGUSR1);
		sum = sum * 7 + (uint64_t)r;
	}
	return sum;
}

static uint64_t forks(void)
{
	char *const arguments[] = {"true", NULL};
	uint64_t sum = 4;
	int status = 0, ends[2];
	char got[8] = "";
	pid_t pid;

	if (pipe(ends) < 0)
		return 0;
	pid = fork();
	if (pid == 0) {
		uint64_t answer = memory_and_strings();

		if (write(ends[1], &answer, 8) != 8)
			_exit(1);
		_exit(42);
	}
	close(ends[1]);
	while (read(ends[0], got, 8) < 0 && errno == EINTR)
		;
	close(ends[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	sum += WIFEXITED(status) ? (uint64_t)WEXITSTATUS(status) : 1000;
	mix(&sum, got, 8);
	if (starts_programs && posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, NULL) == 0) {
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		sum += status ? 100 : 0;
	}
	return sum;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void make_key(void)
{
	pthread_key_create(&key, free);
}

static void *guest(void *arg)
{
	static uint64_t shared;
	char *own = malloc(100);

	pthread_once(&once, make_key);
	pthread_setspecific(key, own);
	snprintf(own, 100, "%p", arg);
	pthread_mutex_lock(&mutex);
	shared++;
	pthread_mutex_unlock(&mutex);
	return (void *)(uintptr_t)(strlen(own) + memory_and_strings());
}

static uint64_t threads_that_come_and_go(void)
{
	pthread_t threads[4];
	uint64_t sum = 5;
	void *r;

	for (uintptr_t i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, guest, (void *)(i + 1)))
			return 0;
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &r);
		sum = sum * 3 + (uint64_t)(uintptr_t)r;
	}
	return sum;
}

static uint64_t libraries(void)
{
	void *lib = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL),
	     *z = dlopen("libz.so.1", RTLD_NOW);
	unsigned long (*crc)(unsigned long, const void *, unsigned int) = NULL;
	uint64_t sum = 6;

	if (z)
		*(void **)&crc = dlsym(z, "crc32");
	sum += crc ? crc(0, "some bytes", 10) : 0;
	if (z)
		dlclose(z);
	if (lib)
		dlclose(lib);
	sum += dlsym(RTLD_DEFAULT, "no such name") != NULL;
	return sum;
}

/* By name, so that no header is needed to build. */
static uint64_t cryptography(void)
{
	static void *lib;
	static unsigned char *(*sha256)(const void *, size_t, unsigned char *);
	static int (*pbkdf2)(const char *, int, const void *, int, int, const void *, int, void *);
	static const void *(*md)(void), *(*aes)(void);
	static void *(*ctx_new)(void);
	static void (*ctx_free)(void *);
	static int (*init)(void *, const void *, void *, const void *, const void *);
	static int (*update)(void *, void *, int *, const void *, int);
	unsigned char out[600], text[512] = "known text";
	uint64_t sum = 7;
	int n = 0;
	void *ctx;

	if (!lib && (lib = dlopen("libcrypto.so.3", RTLD_NOW))) {
		*(void **)&pbkdf2 = dlsym(lib, "PKCS5_PBKDF2_HMAC");
		*(void **)&md = dlsym(lib, "EVP_sha512");
		*(void **)&aes = dlsym(lib, "EVP_aes_256_gcm");
		*(void **)&ctx_new = dlsym(lib, "EVP_CIPHER_CTX_new");
		*(void **)&ctx_free = dlsym(lib, "EVP_CIPHER_CTX_free");
		*(void **)&init = dlsym(lib, "EVP_EncryptInit_ex");
		*(void **)&update = dlsym(lib, "EVP_EncryptUpdate");
		*(void **)&sha256 = dlsym(lib, "SHA256");
	}
	if (!sha256)
		return sum;
	mix(&sum, sha256("abc", 3, out), 32);
	if (memcmp(out, "\xba\x78\x16\xbf\x8f\x01\xcf\xea", 8))
		return 0;
	pbkdf2("secret", 6, "salt", 4, 20, md(), 64, out);
	mix(&sum, out, 64);
	ctx = ctx_new();
	init(ctx, aes(), NULL, "0123456789abcdef0123456789abcdef", "nonce nonce!");
	update(ctx, out, &n, text, sizeof(text));
	mix(&sum, out, (size_t)n);
	ctx_free(ctx);
	return sum;
}

static uint64_t (*const works[])(void) = {
	memory_and_strings,	  files_and_numbers, jumps_and_signals, forks,
	threads_that_come_and_go, libraries,	     cryptography};
#define WORKS (sizeof(works) / sizeof(works[0]))

static void *repeat(void *arg)
{
	uint64_t (*work)(void) = works[(uintptr_t)arg], want = work();

	wrong += want == 0;
	for (unsigned long n = 0; rounds ? n < rounds : !stop; n++) {
		if (work() != want) {
			wrong++;
			fprintf(stderr, "wrong: work %d\n", (int)(uintptr_t)arg);
		}
		rounds_done++;
	}
	return NULL;
}

static void on_alarm(int sig)
{
	char text[32];
	int saved = errno;

	snprintf(text, sizeof(text), "%d-%s", sig, "handled");
	wrong += strcmp(text, "14-handled") != 0;
	handled++;
	errno = saved;
}

static void on_term(int sig)
{
	stop = 1;
}

static void set_handlers(void)
{
	struct sigaction action = {.sa_handler = on_term, .sa_flags = SA_RESTART};
	const struct itimerspec every = {.it_interval.tv_nsec = 1000000,
					 .it_value.tv_nsec = 1000000};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	timer_t timer;

	sigaction(SIGTERM, &action, NULL);
	action.sa_handler = on_alarm;
	sigaction(SIGALRM, &action, NULL);
	action.sa_handler = on_raise;
	sigaction(SIGUSR1, &action, NULL);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
		timer_settime(timer, 0, &every, NULL);
}

int main(int argc, char **argv)
{
	pthread_t threads[WORKS];
	unsigned long last = 0;

	if (argc > 1 && !strcmp(argv[1], "-s")) {
		starts_programs = true;
		argc--, argv++;
	}
	rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	set_handlers();
	for (uintptr_t i = 0; i < WORKS; i++)
		if (pthread_create(&threads[i], NULL, repeat, (void *)i))
			return 2;
	while (rounds ? rounds_done < rounds * WORKS : !stop) {
		usleep(100000);
		if (rounds_done != last)
			printf("round %lu\n", last = rounds_done);
	}
	for (size_t i = 0; i < WORKS; i++)
		pthread_join(threads[i], NULL);
	printf("rounds %lu wrong %lu handled %lu\n", rounds_done, wrong, handled);
	return wrong != 0;
}
