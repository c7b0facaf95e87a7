/*
 * Begins when the first of the family's functions is called, or with the constructors: finds what
 * each would be without us, joins the keeper's pool (wire/preload.h), and switches the agent on.
 * Whatever fails, calls go to the originals as if we were not there.
 *
 * It runs before libc is set up: no libc function but dlsym, dlerror and dl_iterate_phdr; the
 * environment is read from /proc. What those call of malloc meanwhile goes to libc's own, as names
 * that all libcs have are looked for only and none of them allocates for one that is found.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/agent.h"
#include "agent/syscall.h"
#include "agent/track.h"
#include "wire/malloc_ring.h"
#include "wire/preload.h"

#define TID_AT_GLIBC 720u /* as in hook/threads.c: the agent tries it in each thread */
#define ENV_BYTES (1u << 20)
enum { ABI, KEEPER, FD, PID, NONCE, NUMBERS }; /* SCRY_PRELOAD_ENV */

struct row {
	const char *name;
	void *handler, *original, *way;
};
extern struct row scry_preload_rows[] __attribute__((visibility("hidden")));
extern const uint64_t scry_preload_count __attribute__((visibility("hidden")));
extern void *__libc_malloc(size_t) __attribute__((weak));

void scry_preload_begin(void) __attribute__((visibility("hidden")));

static uint8_t gate_page[SCRY_PAGE] __attribute__((aligned(SCRY_PAGE)));
static uint32_t state; /* 0, 1 beginning, 2 */
static uint64_t beginner;

static void *map(int64_t fd, uint64_t size, int flags)
{
	const uint64_t arguments[6] = {0, size, PROT_READ | PROT_WRITE, (uint64_t)flags,
				       (uint64_t)fd};
	int64_t r = scry_agent_syscall6(SYS_mmap, arguments);

	return r < 0 && r > -4096 ? NULL : (void *)r;
}

static uint64_t thread_pointer(void)
{
	uint64_t fs;

	__asm__ volatile("mov %%fs:0, %0" : "=r"(fs));
	return fs;
}

/* Of "...\0NAME=1:2:...\0...": the numbers. */
static int read_numbers(const char *text, const char *end, uint64_t *ret)
{
	static const char name[] = "\0" SCRY_PRELOAD_ENV "=";
	const uint32_t length = sizeof(name) - 1;
	uint32_t n = 0;

	for (; text + length < end; text++) {
		uint32_t i = 0;

		while (i < length && text[i] == name[i])
			i++;
		if (i == length)
			break;
	}
	for (text += length; text < end && n < NUMBERS; text++)
		if (*text >= '0' && *text <= '9')
			ret[n] = ret[n] * 10 + (uint64_t)(*text - '0');
		else if (n++, *text != ':')
			break;
	return n == NUMBERS;
}

/* What the front has put into the environment; 0: nothing. */
static int read_environment(uint64_t *ret)
{
	int64_t fd = scry_agent_syscall4(SYS_open, (uint64_t) "/proc/self/environ",
					 O_RDONLY | O_CLOEXEC, 0, 0);
	char *text = fd < 0 ? NULL : map(-1, ENV_BYTES, MAP_PRIVATE | MAP_ANONYMOUS);
	int64_t size = 1, got; /* text[0]: the NUL before the first */
	int is_there = 0;

	while (text && size < ENV_BYTES - 1 &&
	       (got = scry_agent_syscall4(SYS_read, (uint64_t)fd, (uint64_t)(text + size),
					  ENV_BYTES - 1 - (uint64_t)size, 0)) > 0)
		size += got;
	if (text) {
		is_there = read_numbers(text, text + size + 1, ret);
		scry_agent_syscall4(SYS_munmap, (uint64_t)text, ENV_BYTES, 0, 0);
	}
	if (fd >= 0)
		scry_agent_syscall4(SYS_close, (uint64_t)fd, 0, 0, 0);
	return is_there;
}

/* "/proc/KEEPER/fd/FD" */
static void name_pool(char *at, const uint64_t *numbers)
{
	static const char *const parts[2] = {"/proc/", "/fd/"};

	for (int i = 0; i < 2; i++) {
		char digits[20];
		uint64_t n = 0, value = numbers[i];

		for (const char *s = parts[i]; *s; s++)
			*at++ = *s;
		do
			digits[n++] = (char)('0' + value % 10);
		while (value /= 10);
		while (n)
			*at++ = digits[--n];
	}
	*at = 0;
}

/* The keeper may be gone, and its pid another's: nothing else is opened, and nothing shorter
 * mapped. */
static struct scry_lanes *map_pool(const uint64_t *numbers, uint64_t nonce)
{
	static const char want[] = "/memfd:" SCRY_PRELOAD_POOL;
	char path[64], is[sizeof(want)] = "";
	struct scry_lanes *lanes = NULL;
	struct stat st;
	int64_t fd;

	name_pool(path, numbers);
	scry_agent_syscall4(SYS_readlink, (uint64_t)path, (uint64_t)is, sizeof(want) - 1, 0);
	for (uint32_t i = 0; i < sizeof(want); i++)
		if (is[i] != want[i])
			return NULL;
	fd = scry_agent_syscall4(SYS_open, (uint64_t)path, O_RDWR | O_CLOEXEC, 0, 0);
	if (fd < 0)
		return NULL;
	if (!scry_agent_syscall4(SYS_fstat, (uint64_t)fd, (uint64_t)&st, 0, 0) &&
	    (uint64_t)st.st_size == SCRY_LANES_BYTES)
		lanes = map(fd, SCRY_LANES_BYTES, MAP_SHARED | MAP_NORESERVE);
	scry_agent_syscall4(SYS_close, (uint64_t)fd, 0, 0, 0);
	if (lanes && lanes->nonce != nonce) {
		scry_agent_syscall4(SYS_munmap, (uint64_t)lanes, SCRY_LANES_BYTES, 0, 0);
		lanes = NULL;
	}
	return lanes;
}

struct span { /* of the object that holds `at` */
	uint64_t at, start, end;
};

static int find_span(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct span *s = arg;
	uint64_t start = UINT64_MAX, end = 0;

	for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uint64_t from = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		start = from < start ? from : start;
		end = from + p->p_memsz > end ? from + p->p_memsz : end;
	}
	if (s->at < start || s->at >= end)
		return 0;
	s->start = start;
	s->end = end;
	return 1;
}

static void *original(const char *name)
{
	for (uint64_t i = 0; i < scry_preload_count; i++) {
		const struct row *r = &scry_preload_rows[i];
		const char *a = name, *b = r->name;

		while (*a && *a == *b)
			a++, b++;
		if (*a == *b)
			return r->original;
	}
	return NULL;
}

/* 0: not on this machine (a kernel without MADV_WIPEONFORK): a child could not be told apart. */
static int prepare_agent(struct scry_lanes *lanes)
{
	void *const tables = &scry_agent.sampled;
	const uint64_t size = sizeof(scry_agent) - offsetof(struct scry_agent_data, sampled);
	const int is_glibc = __libc_malloc && (void *)__libc_malloc == original("malloc");
	struct span allocator = {.at = (uint64_t)original("malloc")};
	struct span own = {.at = (uint64_t)scry_preload_begin};
	const uint64_t usable = (uint64_t)original("malloc_usable_size");

	if (scry_agent_syscall4(SYS_madvise, (uint64_t)gate_page, SCRY_PAGE, MADV_WIPEONFORK, 0) ||
	    scry_agent_syscall4(SYS_madvise, (uint64_t)tables, size, MADV_WIPEONFORK, 0))
		return 0;
	dl_iterate_phdr(find_span, &allocator);
	dl_iterate_phdr(find_span, &own);
	scry_agent.malloc = (struct scry_agent_malloc){
		/* another object's knows nothing of these blocks */
		.usable = usable - allocator.start < allocator.end - allocator.start ? usable : 0,
		.text = own.start,
		.text_end = own.end,
		.start = allocator.start,
		.end = allocator.end,
		.is_glibc = (uint32_t)is_glibc,
	};
	scry_agent.tracking.tid_offset = __libc_malloc ? TID_AT_GLIBC : 0;
	scry_agent.tracking.time_op = SCRY_MALLOC_OP_TIME;
	scry_agent.tracking.none.state = SCRY_TRACK_CLOSED;
	scry_agent.gate = (struct scry_gate *)gate_page;
	scry_agent.follow.lanes = lanes;
	scry_agent.follow.waits = 1;
	return 1;
}

/* Takes a lane as a fork child does, says who we are, and waits to be seen. */
static int join(int is_alone)
{
	struct scry_gate *g = scry_agent.gate;
	struct scry_control *c;

	g->spare = 1; /* as agent/track.c does for a child */
	if (!scry_lane_claim(g))
		return 0;
	c = scry_agent.control;
	if (is_alone) /* children find no lanes */
		scry_agent.follow.lanes = NULL;
	c->lane_malloc = (uint64_t)original("malloc");
	__atomic_store_n(&c->lane_pid, (uint64_t)scry_agent_syscall4(SYS_getpid, 0, 0, 0, 0),
			 __ATOMIC_RELEASE);
	scry_track_await_keeper();
	__atomic_store_n(&scry_agent.tracking.is_on, 1, __ATOMIC_RELEASE);
	return 1;
}

static void missing(void)
{
	__builtin_trap(); /* nobody could have called it without us */
}

static void set_original(struct row *r, void *found)
{
	if (found)
		r->original = found;
	r->way = r->original ? r->original : (void *)missing;
}

static void hook(struct row *r, int with_fork)
{
	const int is_fork = r->name[0] == 'f' && r->name[1] == 'o';

	if (r->original && (with_fork || !is_fork))
		__atomic_store_n(&r->way, r->handler, __ATOMIC_RELEASE);
}

void scry_preload_begin(void)
{
	uint64_t is[NUMBERS] = {0};
	uint32_t before = 0;
	int is_ours = 0;

	if (!__atomic_compare_exchange_n(&state, &before, 1, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE)) {
		while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 1 &&
		       beginner != thread_pointer())
			__builtin_ia32_pause();
		return;
	}
	beginner = thread_pointer();
	for (uint64_t i = 0; i < scry_preload_count; i++)
		set_original(&scry_preload_rows[i], NULL);
	for (uint64_t i = 0; i < scry_preload_count; i++)
		set_original(&scry_preload_rows[i], dlsym(RTLD_NEXT, scry_preload_rows[i].name));
	if (read_environment(is) && is[ABI] == SCRY_PRELOAD_ABI &&
	    (!is[PID] || is[PID] == (uint64_t)scry_agent_syscall4(SYS_getpid, 0, 0, 0, 0))) {
		struct scry_lanes *lanes = map_pool(is + KEEPER, is[NONCE]);

		is_ours = lanes && prepare_agent(lanes);
	}
	is_ours = is_ours && join(is[PID] != 0);
	for (uint64_t i = 0; i < scry_preload_count && is_ours; i++)
		hook(&scry_preload_rows[i], !is[PID]);
	__atomic_store_n(&state, 2, __ATOMIC_RELEASE);
}
