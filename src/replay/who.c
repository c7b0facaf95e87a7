/*
 * Which functions serve, and what they belong to.
 *
 * The allocator was chosen by LD_PRELOAD, so the ordinary symbols lead to it. That is not believed:
 * malloc, calloc, realloc and free must all lie in the file that was asked for (device and inode).
 * Of the others, one that lies elsewhere would hand out memory that the allocator does not know: it
 * is made of posix_memalign, or of malloc where there is none.
 */
#include "replay/replay.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <ucontext.h>

static struct replay_calls found;

/* Without alignment at all the allocator cannot be asked: the call fails. */
static int no_memalign(void **ret, size_t align, size_t size)
{
	(void)ret;
	(void)align;
	(void)size;
	return ENOMEM;
}
static void *by_posix(size_t align, size_t size)
{
	void *p;

	return found.posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, size)
		       ? NULL
		       : p;
}
static void *page_by_posix(size_t size)
{
	return by_posix(4096, size);
}
static void *pages_by_posix(size_t size)
{
	return by_posix(4096, (size + 4095) & ~(size_t)4095);
}
static void *by_realloc(void *p, size_t count, size_t size)
{
	return found.realloc(p, count * size);
}
static size_t no_usable_size(void *p)
{
	(void)p;
	return 0;
}

struct row {
	const char *symbol;
	size_t offset; /* in struct replay_calls */
	void *instead; /* NULL: must be the allocator's own */
	size_t like;   /* or, with `instead` NULL: offset of the one that replaces it */
};
#define AT(field) offsetof(struct replay_calls, field)
#define MUST SIZE_MAX
/* A replacement comes before what it replaces. */
static const struct row rows[] = {
	{"malloc", AT(malloc), NULL, MUST},
	{"calloc", AT(calloc), NULL, MUST},
	{"realloc", AT(realloc), NULL, MUST},
	{"free", AT(free), NULL, MUST},
	{"posix_memalign", AT(posix_memalign), no_memalign, 0},
	{"aligned_alloc", AT(aligned_alloc), by_posix, 0},
	{"memalign", AT(memalign), by_posix, 0},
	{"valloc", AT(valloc), page_by_posix, 0},
	{"pvalloc", AT(pvalloc), pages_by_posix, 0},
	{"reallocarray", AT(reallocarray), by_realloc, 0},
	{"malloc_usable_size", AT(usable), no_usable_size, 0},
	{"_Znwm", AT(new), NULL, AT(malloc)},
	{"_Znam", AT(new_array), NULL, AT(malloc)},
	{"_ZdlPv", AT(delete), NULL, AT(free)},
	{"_ZdaPv", AT(delete_array), NULL, AT(free)},
};

/* The file that holds an address; "" when none does. */
static const char *file_of(void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

static bool is_same(const char *a, const char *b)
{
	struct stat one, two;

	return !stat(a, &one) && !stat(b, &two) && one.st_dev == two.st_dev &&
	       one.st_ino == two.st_ino;
}

static bool is_libc(const char *path)
{
	const char *name = strrchr(path, '/');

	return !strncmp(name ? name + 1 : path, "libc.so", 7) ||
	       !strncmp(name ? name + 1 : path, "libc-", 5);
}

/* One function: true, and where it leads in `calls`. */
static bool find(const struct row *row, const char *owner, struct replay_calls *calls)
{
	void **slot = (void **)((char *)calls + row->offset);
	void *address = dlsym(RTLD_DEFAULT, row->symbol);
	const char *file = file_of(address);

	if (*file && is_same(file, owner)) {
		*slot = address;
		return true;
	}
	if (row->like == MUST)
		return replay_refuse("'%s' is served by '%s' and malloc by '%s': not one allocator",
				     row->symbol, *file ? file : "nobody", owner);
	*slot = row->instead ? row->instead : *(void **)((char *)calls + row->like);
	return true;
}

bool replay_calls_find(struct replay_calls *ret_calls)
{
	struct scry_replay_head *head = replay.head;
	const char *owner = file_of(dlsym(RTLD_DEFAULT, "malloc"));
	bool is_right;

	strncpy(head->served, owner, sizeof(head->served) - 1);
	head->allocator[sizeof(head->allocator) - 1] = 0;
	is_right = *head->allocator ? is_same(owner, head->allocator) : is_libc(owner);
	if (!is_right)
		return replay_refuse("malloc is served by '%s' and not by '%s'", owner,
				     *head->allocator ? head->allocator : "libc");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!find(&rows[i], owner, &found))
			return false;
	head->has_usable = found.usable != no_usable_size;
	*ret_calls = found;
	return true;
}

/* Ends by the same signal when it returns: the handler is off. */
static void crashed(int number, siginfo_t *info, void *context)
{
	const ucontext_t *at = context;
	const char *file = file_of((void *)at->uc_mcontext.gregs[REG_RIP]);

	(void)number;
	(void)info;
	if (*file)
		replay_refuse("it ran code of '%s'", file);
}

void replay_crash_reports(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	const struct sigaction action = {.sa_sigaction = crashed,
					 .sa_flags = SA_SIGINFO | SA_RESETHAND};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

/*
 * The null allocator gives each thread the same memory again and again, so that what the replay
 * itself does costs the same, touching included, and nothing is looked for. Bigger blocks are
 * touched there round and round (work.c): no page is touched for the first time, as that would be
 * taken off every allocator. It is not anonymous memory, and as many pieces are in use as threads
 * live.
 */
static __thread char *scratch __attribute__((tls_model("local-exec")));
static char *pieces; /* SCRY_REPLAY_STREAMS */
static uint32_t free_pieces[SCRY_REPLAY_STREAMS];
static uint32_t free_count, piece_count;

void replay_null_init(void)
{
	if (replay.head->is_null)
		pieces = replay_map(SCRY_REPLAY_STREAMS * REPLAY_NULL_BYTES);
}

uint32_t replay_null_take(void)
{
	if (free_count)
		return free_pieces[--free_count];
	memset(pieces + piece_count * REPLAY_NULL_BYTES, 1, REPLAY_NULL_BYTES);
	return piece_count++;
}

void replay_null_give(uint32_t piece)
{
	free_pieces[free_count++] = piece;
}

void replay_null_begin(uint32_t piece)
{
	scratch = pieces + piece * REPLAY_NULL_BYTES;
}
static inline void *same(void)
{
	return scratch;
}
static void *null_malloc(size_t size)
{
	(void)size;
	return same();
}
static void *null_calloc(size_t count, size_t size)
{
	(void)count;
	(void)size;
	return same();
}
static void *null_realloc(void *p, size_t size)
{
	(void)p;
	(void)size;
	return same();
}
static void *null_reallocarray(void *p, size_t count, size_t size)
{
	(void)p;
	(void)count;
	(void)size;
	return same();
}
static void null_free(void *p)
{
	(void)p;
}
static int null_posix_memalign(void **ret, size_t align, size_t size)
{
	(void)align;
	(void)size;
	*ret = same();
	return 0;
}
static void *null_aligned(size_t align, size_t size)
{
	(void)align;
	(void)size;
	return same();
}

const struct replay_calls replay_calls_null = {
	.malloc = null_malloc,
	.calloc = null_calloc,
	.realloc = null_realloc,
	.reallocarray = null_reallocarray,
	.free = null_free,
	.posix_memalign = null_posix_memalign,
	.aligned_alloc = null_aligned,
	.memalign = null_aligned,
	.valloc = null_malloc,
	.pvalloc = null_malloc,
	.usable = no_usable_size,
	.new = null_malloc,
	.new_array = null_malloc,
	.delete = null_free,
	.delete_array = null_free,
};
