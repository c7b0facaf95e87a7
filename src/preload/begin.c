/*
 * Begins when the first of the malloc functions is called, or with the constructors: finds what
 * each would be without us, joins the keeper's pool (wire/preload.h), and switches the agent on.
 * Whatever fails, calls go to the originals as if we were not there.
 *
 * It runs before libc is set up: no libc function but dlsym, dlerror and dl_iterate_phdr; the
 * environment is read from /proc. What those call of malloc meanwhile goes to libc's own, as names
 * that all libcs have are looked for only and none of them allocates for one that is found.
 *
 * There may be a filter of system calls already: none is made here but those that the loader and
 * the libc of any program make.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "agent/agent.h"
#include "agent/line_tables.h"
#include "agent/malloc.h"
#include "agent/syscall.h"
#include "agent/thread_buffer.h"
#include "agent/walk.h"
#include "wire/malloc_ring.h"
#include "wire/preload.h"

#define TID_AT_GLIBC 720u /* as in hook/threads.c */
#define STATUS_BYTES 4096u
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

static uint8_t state_page_memory[SCRY_PAGE] __attribute__((aligned(SCRY_PAGE)));
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

/* As the libc's own loader opens what it loads. */
static int64_t open_file(const char *path, int flags)
{
	if (__libc_malloc)
		return scry_agent_syscall4(SYS_openat, (uint64_t)(int64_t)AT_FDCWD, (uint64_t)path,
					   (uint64_t)(flags | O_CLOEXEC), 0);
	return scry_agent_syscall4(SYS_open, (uint64_t)path, (uint64_t)(flags | O_CLOEXEC), 0, 0);
}

static int64_t read_file(const char *path, char *to, uint64_t size)
{
	int64_t fd = open_file(path, O_RDONLY), n;

	if (fd < 0)
		return fd;
	n = scry_agent_syscall4(SYS_read, (uint64_t)fd, (uint64_t)to, size, 0);
	scry_agent_syscall4(SYS_close, (uint64_t)fd, 0, 0, 0);
	return n;
}

/* Which thread this is, in its own pid namespace: the last number behind NSpid. It is the first of
 * its process, as no thread has begun another before it has called malloc. 0: /proc does not say.
 */
static uint32_t read_tid(void)
{
	static const char name[] = "\nNSpid:";
	char text[STATUS_BYTES];
	int64_t size = read_file("/proc/thread-self/status", text, sizeof(text)), at = 0;
	uint32_t tid = 0;

	for (uint32_t i = 0; at < size && name[i]; at++)
		i = text[at] == name[i] ? i + 1 : text[at] == name[0];
	for (; at < size && text[at] != '\n'; at++)
		if (text[at] >= '0' && text[at] <= '9')
			tid = (text[at - 1] < '0' || text[at - 1] > '9' ? 0 : tid * 10) +
			      (uint32_t)(text[at] - '0');
	return tid;
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
	int64_t fd = open_file("/proc/self/environ", O_RDONLY);
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

/* A text, then a number; returns the end. */
static char *put(char *at, const char *text, uint64_t value)
{
	char digits[20];
	uint64_t n = 0;

	while (*text)
		*at++ = *text++;
	do
		digits[n++] = (char)('0' + value % 10);
	while (value /= 10);
	while (n)
		*at++ = digits[--n];
	return at;
}

static int is_keeper(uint64_t pid)
{
	static const char want[] = SCRY_PRELOAD_KEEPER "\n";
	char path[64], is[sizeof(want)] = "", *at = put(path, "/proc/", pid);

	for (const char *s = "/comm"; (*at++ = *s); s++)
		;
	if (read_file(path, is, sizeof(is)) != sizeof(want) - 1)
		return 0;
	for (uint32_t i = 0; i < sizeof(want) - 1; i++)
		if (is[i] != want[i])
			return 0;
	return 1;
}

/* The keeper may be gone, and its pid another's: nothing of a process that is not called so is
 * opened, and nothing mapped that does not begin as our pool. */
static struct scry_child_buffers *map_pool(const uint64_t *numbers, uint64_t nonce)
{
	struct scry_child_buffers *child_buffers = NULL, head;
	char path[64];
	int64_t fd;

	if (!is_keeper(numbers[0]))
		return NULL;
	*put(put(path, "/proc/", numbers[0]), "/fd/", numbers[1]) = 0;
	fd = open_file(path, O_RDWR | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	if (scry_agent_syscall4(SYS_read, (uint64_t)fd, (uint64_t)&head, sizeof(head), 0) ==
		    sizeof(head) &&
	    head.nonce == nonce)
		child_buffers = map(fd, SCRY_CHILD_BUFFERS_BYTES, MAP_SHARED | MAP_NORESERVE);
	scry_agent_syscall4(SYS_close, (uint64_t)fd, 0, 0, 0);
	return child_buffers;
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
static int prepare_agent(struct scry_child_buffers *child_buffers, uint32_t tid)
{
	const struct {
		void *at;
		uint64_t size;
	} wiped[] = {
		{state_page_memory, sizeof(state_page_memory)},
		{&scry_agent_rows, sizeof(scry_agent_rows)},
		{&scry_agent_callers, sizeof(scry_agent_callers)},
		{&scry_agent_lines, sizeof(scry_agent_lines)},
		{&scry_agent_walks, sizeof(scry_agent_walks)},
	};
	const int is_glibc = __libc_malloc && (void *)__libc_malloc == original("malloc");
	struct span allocator = {.at = (uint64_t)original("malloc")};
	struct span own = {.at = (uint64_t)scry_preload_begin};
	const uint64_t usable = (uint64_t)original("malloc_usable_size");

	for (uint32_t i = 0; i < sizeof(wiped) / sizeof(wiped[0]); i++)
		if (scry_agent_syscall4(SYS_madvise, (uint64_t)wiped[i].at, wiped[i].size,
					MADV_WIPEONFORK, 0))
			return 0;
	dl_iterate_phdr(find_span, &allocator);
	dl_iterate_phdr(find_span, &own);
	scry_agent_malloc_functions = (struct scry_agent_malloc){
		/* another object's knows nothing of these blocks */
		.usable = usable - allocator.start < allocator.end - allocator.start ? usable : 0,
		.text = own.start,
		.text_end = own.end,
		.start = allocator.start,
		.end = allocator.end,
		.is_glibc = (uint32_t)is_glibc,
	};
	/* glibc's control block is that long, of others the agent looks at one page */
	if (is_glibc && *(const uint32_t *)(thread_pointer() + TID_AT_GLIBC) == tid)
		scry_agent.tracking.tid_offset = TID_AT_GLIBC;
	else
		scry_agent.tracking.first_tid = tid;
	scry_agent_rows.calling.pid = tid;
	scry_agent.tracking.channels[SCRY_CHANNEL_CORE].rows = scry_agent_rows.threads;
	scry_agent.tracking.channels[SCRY_CHANNEL_CORE].time_op = SCRY_MALLOC_OP_TIME;
	scry_agent.tracking.none.state = SCRY_THREAD_BUFFER_CLOSED;
	scry_agent.state_page = (struct scry_state_page *)state_page_memory;
	scry_agent.follow.child_buffers = child_buffers;
	scry_agent.follow.waits = 1;
	scry_agent.follow.sets = SCRY_CHILD_BUFFERS;
	return 1;
}

/* Takes a child buffer as a fork child does, says which process we are, and waits to be seen. */
static int join(int is_alone)
{
	struct scry_control *c;

	if (!scry_child_buffer_claim(scry_agent.state_page, NULL))
		return 0;
	c = scry_agent.control;
	if (is_alone) /* children find no child buffers */
		scry_agent.follow.child_buffers = NULL;
	scry_account_of(c)->malloc.preloaded = (uint64_t)original("malloc");
	__atomic_store_n(&c->child_pid, scry_agent_rows.calling.pid, __ATOMIC_RELEASE);
	scry_thread_buffer_await_keeper();
	__atomic_store_n(&scry_agent.tracking.channels[SCRY_CHANNEL_CORE].is_on, 1,
			 __ATOMIC_RELEASE);
	return 1;
}

static void missing(void)
{
	__builtin_trap(); /* it could not have been called without us */
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
	uint32_t before = 0, tid = 0;
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
	if (read_environment(is) && is[ABI] == SCRY_PRELOAD_ABI)
		tid = read_tid();
	if (tid && (!is[PID] || is[PID] == tid)) {
		struct scry_child_buffers *child_buffers = map_pool(is + KEEPER, is[NONCE]);

		is_ours = child_buffers && prepare_agent(child_buffers, tid);
	}
	is_ours = is_ours && join(is[PID] != 0);
	for (uint64_t i = 0; i < scry_preload_count && is_ours; i++)
		hook(&scry_preload_rows[i], !is[PID]);
	__atomic_store_n(&state, 2, __ATOMIC_RELEASE);
}
