/*
 * scry-replay FD: see replay.h. FD is a sealed memfd with a struct scry_replay_memory, as made by
 * cmd/malloc_feed. Exit: 0, or 3 when it refused and head->why says why.
 */
#include "replay/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define PAGE 4096u
#define REFUSED 3

struct replay replay;

void replay_futex_wait(uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

void replay_futex_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t replay_thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t replay_process_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static double ticks_a_ms; /* of the TSC */
uint64_t replay_clock_ns;

uint64_t replay_ticks_ns(uint64_t ticks)
{
	return (uint64_t)((double)ticks * 1e6 / ticks_a_ms);
}

uint64_t replay_ns_ticks(uint64_t ns)
{
	return (uint64_t)((double)ns * ticks_a_ms / 1e6);
}

static char *put(char *at, const char *end, const char *text)
{
	while (*text && at < end)
		*at++ = *text++;
	return at;
}

static char *put_number(char *at, const char *end, unsigned int value)
{
	char digits[12], *d = digits + sizeof(digits) - 1;

	*d = 0;
	do
		*--d = (char)('0' + value % 10);
	while (value /= 10);
	return put(at, end, d);
}

bool replay_refuse(const char *format, ...)
{
	static uint32_t is_said;
	char *at = replay.head->why, *end = at + sizeof(replay.head->why) - 1;
	va_list ap;

	if (__atomic_exchange_n(&is_said, 1, __ATOMIC_RELAXED))
		return false;
	va_start(ap, format);
	for (; *format && at < end; format++) {
		if (*format != '%')
			*at++ = *format;
		else if (*++format == 's')
			at = put(at, end, va_arg(ap, const char *));
		else
			at = put_number(at, end, va_arg(ap, unsigned int));
	}
	va_end(ap);
	*at = 0;
	return false;
}

_Noreturn void replay_die(const char *why)
{
	if (replay.head)
		replay_refuse("%s", why);
	_exit(REFUSED);
}

void *replay_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		replay_die("no address space for the replay's tables");
	return p;
}

/* Puts pages into memory now, so that no fault of them occurs while time is taken. */
static void populate(void *from, size_t bytes, int advice)
{
	volatile char *p = from;

	if (!bytes || !madvise(from, bytes, advice))
		return;
	for (size_t at = 0; at < bytes; at += PAGE)
		(void)p[at];
}

static bool map_memory(const char *text)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	const size_t bytes = sizeof(struct scry_replay_memory);
	int fd = atoi(text);
	struct stat st;
	void *p;

	if (fstat(fd, &st) || (uint64_t)st.st_size != bytes ||
	    (fcntl(fd, F_GET_SEALS) & seals) != seals)
		return false;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return false;
	close(fd);
	replay.m = p;
	replay.head = &replay.m->head;
	if (replay.head->magic != SCRY_REPLAY_MAGIC || replay.head->version != SCRY_REPLAY_VERSION)
		return replay_refuse("scry and scry-replay are not of one version");
	if (replay.head->mode >= SCRY_REPLAY_MODES || replay.head->touch > SCRY_TOUCH_RECORDED ||
	    !replay.head->sample_every)
		return replay_refuse("not a mode");
	return !mprotect(replay.m->words, bytes - offsetof(struct scry_replay_memory, words),
			 PROT_READ);
}

/* Of address space, beyond what is mapped now. */
static void limit(uint64_t more)
{
	char text[64] = "";
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	uint64_t now = 0;

	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
		now = strtoull(text, NULL, 10) * PAGE;
	if (fd >= 0)
		close(fd);
	if (setrlimit(RLIMIT_AS, &(struct rlimit){now + more, now + more}))
		replay_die("cannot limit the address space");
}

static void measure_timer(void)
{
	uint64_t least = UINT32_MAX, begin = clock_ns(CLOCK_MONOTONIC), now, ticks = __rdtsc();

	while ((now = clock_ns(CLOCK_MONOTONIC)) - begin < 1000000)
		;
	ticks_a_ms = (double)(__rdtsc() - ticks) * 1e6 / (double)(now - begin);

	replay_clock_ns = UINT64_MAX;
	for (int i = 0; i < 100; i++) {
		uint64_t t = replay_thread_ns();

		t = replay_thread_ns() - t;
		replay_clock_ns = t < replay_clock_ns ? t : replay_clock_ns;
	}
	for (int i = 0; i < 1000; i++) {
		uint64_t t = __rdtsc();

		t = __rdtsc() - t;
		least = t < least ? t : least;
	}
	replay.head->timer_ticks = (uint32_t)least;
}

static bool batch(void)
{
	struct scry_replay_head *head = replay.head;
	uint32_t slots = head->slots, blocks = head->blocks;

	if (blocks > SCRY_REPLAY_BLOCKS || slots > SCRY_REPLAY_SLOTS)
		return replay_refuse("batch %u: more than there is room for", head->batch);
	populate(replay.m->words, (size_t)blocks * sizeof(replay.m->words[0]), MADV_POPULATE_READ);
	if (slots > replay.slots_ready) {
		char *from = (char *)replay.cells + (replay.slots_ready * 8ull & ~(PAGE - 1ull));

		populate(from, (size_t)((char *)(replay.cells + slots) - from),
			 MADV_POPULATE_WRITE);
		replay.slots_ready = slots;
	}
	if (!replay_check())
		return false;
	if (!head->ns_begin && !head->is_building) {
		head->tsc_begin = __rdtsc();
		head->ns_begin = clock_ns(CLOCK_MONOTONIC);
	}
	replay_syscalls_count(!head->is_building);
	replay_batch();
	replay_syscalls_count(false);
	if (head->is_building)
		return true;
	head->tsc_end = __rdtsc();
	head->ns_end = clock_ns(CLOCK_MONOTONIC);
	return true;
}

/* All that live are counted and ended. */
static void drain(void)
{
	for (uint32_t i = 0; i < replay.slots_ready; i++) {
		uint64_t address = replay.cells[i] & REPLAY_ADDRESS;
		void *p = (void *)(uintptr_t)address;

		if (!address)
			continue;
		replay.head->live_blocks++;
		replay.cells[i] = 0;
		if (address == REPLAY_FAILED)
			continue;
		if (replay.head->mode == SCRY_REPLAY_VERIFY)
			verify_end(NULL, i, p);
		replay.calls.free(p);
	}
}

static int serve(void)
{
	struct scry_replay_head *head = replay.head;

	for (;;) {
		uint32_t turn;

		while ((turn = __atomic_load_n(&head->turn, __ATOMIC_ACQUIRE)) == SCRY_TURN_FEEDER)
			replay_futex_wait(&head->turn, turn);
		if (turn == SCRY_TURN_BATCH && !batch())
			return REFUSED;
		if (turn == SCRY_TURN_DRAIN)
			drain();
		__atomic_store_n(&head->turn, SCRY_TURN_FEEDER, __ATOMIC_RELEASE);
		replay_futex_wake(&head->turn);
		if (turn != SCRY_TURN_BATCH && turn != SCRY_TURN_DRAIN)
			return 0;
	}
}

int main(int argc, char **argv)
{
	static const char usage[] = "scry-replay: started by scry malloc replay\n";

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	if (argc != 2 || !map_memory(argv[1])) {
		if (!replay.head && write(STDERR_FILENO, usage, sizeof(usage) - 1) < 0)
			return REFUSED;
		return REFUSED;
	}
	replay_crash_reports();
	if (replay.head->is_null)
		replay.calls = replay_calls_null;
	else if (!replay_calls_find(&replay.calls))
		return REFUSED;
	replay.touch = replay.head->touch;
	replay.cells = replay_map(SCRY_REPLAY_SLOTS * sizeof(*replay.cells));
	replay_check_init();
	replay_threads_init();
	if (replay.head->mode == SCRY_REPLAY_VERIFY)
		replay.sizes = replay_map(SCRY_REPLAY_SLOTS * sizeof(*replay.sizes));
	if (replay.head->mode == SCRY_REPLAY_COUNTED)
		replay_syscalls_init();
	measure_timer();
	limit(replay.head->address_max);
	return serve();
}
