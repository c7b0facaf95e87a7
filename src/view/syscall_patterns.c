/*
 * Calls in vain. What holds of a single call is found out where it is made (bpf/syscalls.bpf.c);
 * here is what follows from it, and from the results.
 *
 * Proven: the kernel's state was the same before and after. Observed: what a call found, or asked
 * for. A hint: what is often, but not always, of no use.
 */
#include <stdlib.h>
#include <string.h>

#include "view/syscalls.h"
#include "wire/bpf_syscalls.h"

#define LEAST 100	 /* calls */
#define ONE_DIRECTORY 90 /* percent: it is as good as the only one */
#define LEAST_MUCH 5000
#define LEAST_HINT 1000 /* the same of a hint, which must be half of the calls too */

struct pattern {
	const char *name;
	enum scry_syscall_grade grade;
	const char *did, *cure, *risk;
};

static const struct pattern patterns[] = {
	[SCRY_VAIN_MASK] = {"mask", SCRY_GRADE_PROVEN,
			    "set the signal mask that was already in force",
			    "set the mask only where it changes; of swapcontext and siglongjmp: "
			    "contexts without a mask (_setjmp, Boost.Context)",
			    "code that relies on the mask of a context would no longer have it"},
	[SCRY_VAIN_FLAGS] = {"file-flags", SCRY_GRADE_PROVEN, "set file flags to what they were",
			     "set O_NONBLOCK once: SOCK_NONBLOCK with socket() or accept4()",
			     "none while no other code clears the flag"},
	[SCRY_VAIN_CLOEXEC] = {"cloexec", SCRY_GRADE_PROVEN,
			       "set a close-on-exec flag to what it was",
			       "open with O_CLOEXEC where it is wanted, and do not set it again",
			       "none"},
	[SCRY_VAIN_WAKE] = {"wakes-nobody", SCRY_GRADE_OBSERVED, "woke no thread",
			    "wake only when a thread waits: count waiters beside the word",
			    "a waiter that is not counted sleeps for ever"},
	[SCRY_VAIN_CLOCK] = {"clock", SCRY_GRADE_OBSERVED,
			     "read a clock that needs no system call where the vDSO serves it",
			     "look at /sys/devices/system/clocksource/clocksource0/"
			     "current_clocksource: tsc is served, hpet and acpi_pm are not; a "
			     "static program may have no vDSO",
			     "a tsc that is not stable gives wrong times"},
	[SCRY_VAIN_TRIM] = {"trim", SCRY_GRADE_OBSERVED, "gave memory back to the kernel",
			    "keep it: MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ (glibc), a "
			    "longer dirty_decay_ms (jemalloc)",
			    "the program keeps more memory"},
	[SCRY_VAIN_POLL] = {"polls", SCRY_GRADE_HINT, "did not wait, and found nothing",
			    "let it wait: a time limit other than 0", "none"},
	[SCRY_VAIN_YIELD] = {"yield", SCRY_GRADE_HINT, "only yielded the processor",
			     "wait for what it waits for: a condition variable, a futex", "none"},
	[SCRY_VAIN_BYTE] = {"one-byte", SCRY_GRADE_HINT, "moved a single byte",
			    "put a buffer before it", "bytes reach the other side later"},
	[SCRY_VAIN_TELL] = {"lseek-cur", SCRY_GRADE_HINT,
			    "only asked for the file's position (lseek(fd, 0, SEEK_CUR))",
			    "keep the position", "none while no other code moves it"},
	[SCRY_VAIN_EPOLL] = {"epoll-mod", SCRY_GRADE_HINT, "changed what epoll waits for",
			     "change it only where it differs from before",
			     "EPOLLET and EPOLLONESHOT re-arm by it: then it is needed"},
	[SCRY_VAIN_OPTION] = {"setsockopt", SCRY_GRADE_HINT, "set an option of a socket",
			      "set it once for each socket", "none"},
	[SCRY_VAIN_LOCALTIME] = {"localtime", SCRY_GRADE_OBSERVED, "asked for /etc/localtime",
				 "restart it with TZ=:/etc/localtime in its environment",
				 "a new time zone is seen with the next restart only"},
	[SCRY_VAIN_MAP] = {"map-unmap", SCRY_GRADE_OBSERVED,
			   "gave back the memory that had just been mapped",
			   "keep it: MALLOC_MMAP_THRESHOLD_=64M and MALLOC_TRIM_THRESHOLD_=256M "
			   "(glibc), or a buffer that is used again",
			   "the program keeps more memory"},
};

static const struct pattern again = {"eagain", SCRY_GRADE_OBSERVED, "found nothing to do (EAGAIN)",
				     "wait until it is ready (epoll, poll) before it is tried",
				     "none"};
static const struct pattern absent = {
	"enoent", SCRY_GRADE_OBSERVED, "asked for files that do not exist",
	"ask in fewer places: a shorter search path (Ruby: $LOAD_PATH, bootsnap; Python: "
	"sys.path), LC_ALL=C.UTF-8 for locales",
	"another file of that name may be found first"};
/* Where it is one directory nothing is searched. */
static const struct pattern absent_there = {
	"enoent", SCRY_GRADE_OBSERVED, "asked for files that do not exist",
	"ask only for files that exist, or remember for a while which do not",
	"a file that comes later is seen later"};
static const struct pattern unlock = {
	"mutex-wake", SCRY_GRADE_HINT, "released a mutex of libc, and woke no thread",
	"often harmless: after pthread_cond_wait a mutex counts as contended; whether threads wait "
	"for one, scry locks shows, and for a Ruby's GVL scry gvl",
	"none"};
static const struct pattern stack = {"thread-stack", SCRY_GRADE_OBSERVED,
				     "gave back the stack of a thread that ended",
				     "a pool of threads, instead of one for each task", "none"};

/* Of the first ones, as each is a walk over all paths. */
static void look_for_searches(const struct scry_syscall_view *v, struct scry_syscall_verdict *all,
			      size_t count)
{
	for (size_t i = 0; i < count && i < SCRY_SYSCALL_WITH_PATHS; i++) {
		struct scry_buf paths = {0};

		if (all[i].has_paths &&
		    scry_syscall_put_paths(v, all[i].row, true, &paths) >= ONE_DIRECTORY) {
			all[i].cure = absent_there.cure;
			all[i].risk = absent_there.risk;
		}
		scry_buf_done(&paths);
	}
}

const char *scry_syscall_grade_name(enum scry_syscall_grade grade)
{
	static const char *const names[] = {"proven", "observed", "hint"};

	return names[grade];
}

/* More than half of them; or a tenth, where these are very many. */
static void add(struct scry_syscall_verdict *to, size_t *count, const struct pattern *p,
		const struct scry_syscall_verdict *of)
{
	const bool is_hint = p->grade == SCRY_GRADE_HINT;
	const bool is_much = !is_hint && of->vain >= LEAST_MUCH && of->vain * 10 >= of->of;

	if (of->vain < (is_hint ? LEAST_HINT : LEAST) || (of->vain * 2 < of->of && !is_much))
		return;
	to[*count] = *of;
	to[*count].pattern = p->name;
	to[*count].grade = p->grade;
	to[*count].has_paths = p == &absent;
	to[*count].did = p->did;
	to[*count].cure = p->cure;
	to[*count].risk = p->risk;
	++*count;
}

static const char *symbol_of(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);

	return site ? scry_syscall_text(v, site->symbol_str) : "";
}

/* glibc gives most of a thread's stack back when that ends. */
static bool is_of_a_thread(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	const char *caller = scry_intern_get(&v->texts, row->caller_str, NULL);

	return !strcmp(symbol_of(v, row), "start_thread") ||
	       (caller && !strncmp(caller, "start_thread", strlen("start_thread")));
}

/* Does EAGAIN of it mean that there is nothing to read, or no room? */
static bool is_of_readiness(const char *name)
{
	static const char *const names[] = {"read",    "readv",	   "pread64",  "write",
					    "writev",  "recvfrom", "recvmsg",  "recvmmsg",
					    "sendto",  "sendmsg",  "sendmmsg", "accept",
					    "accept4", "sendfile", "splice"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

static bool is_of_a_path(const char *name)
{
	return strstr(name, "open") || strstr(name, "stat") || strstr(name, "access") ||
	       strstr(name, "readlink") || strstr(name, "exec");
}

/* The library's own locks wake by the word, and know that a thread may wait. */
static bool is_of_a_mutex(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	const char *symbol = symbol_of(v, row);

	return strstr(symbol, "lll_lock_wake") || strstr(symbol, "lll_unlock") ||
	       strstr(symbol, "mutex_unlock");
}

static const struct pattern *pattern_of(const struct scry_syscall_view *v,
					const struct scry_syscall_row *row, uint32_t what)
{
	if (what == SCRY_VAIN_WAKE && is_of_a_mutex(v, row))
		return &unlock;
	if (what == SCRY_VAIN_TRIM && is_of_a_thread(v, row))
		return &stack;
	return &patterns[what];
}

int scry_syscall_verdict_compare(const void *left, const void *right)
{
	const struct scry_syscall_verdict *a = left, *b = right;

	if ((a->grade == SCRY_GRADE_HINT) != (b->grade == SCRY_GRADE_HINT))
		return a->grade == SCRY_GRADE_HINT ? 1 : -1;
	if (a->ticks != b->ticks)
		return a->ticks < b->ticks ? 1 : -1;
	return a->vain < b->vain ? 1 : a->vain > b->vain ? -1 : 0;
}

static size_t judge_row(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
			struct scry_syscall_verdict *to)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
	const char *name = site ? scry_syscall_text(v, site->name_str) : "";
	struct scry_syscall_verdict of = {.row = row};
	size_t count = 0;

	for (uint32_t what = 1; what < sizeof(patterns) / sizeof(patterns[0]); what++) {
		of.vain = row->kinds[what].vain;
		of.of = row->kinds[what].asked;
		of.ticks = row->kinds[what].ticks;
		add(to, &count, pattern_of(v, row, what), &of);
	}
	of.of = row->calls;
	of.vain = row->again;
	of.ticks = row->again_ticks;
	if (is_of_readiness(name))
		add(to, &count, &again, &of);
	of.vain = row->absent;
	of.ticks = row->absent_ticks;
	if (is_of_a_path(name))
		add(to, &count, &absent, &of);
	return count;
}

size_t scry_syscall_judge(const struct scry_syscall_view *v, struct scry_syscall_verdict **ret)
{
	const size_t rows = v->places.keys.count, most = SCRY_SYSCALL_KINDS + 2;
	struct scry_syscall_verdict *all = NULL, *more, some[SCRY_SYSCALL_KINDS + 2];
	size_t count = 0, room = 0;

	_Static_assert(sizeof(patterns) / sizeof(patterns[0]) <= SCRY_SYSCALL_KINDS,
		       "kinds of a row");
	for (size_t i = 0; i < rows; i++) {
		const size_t found = judge_row(v, &v->places.rows[i], some);

		if (count + found > room) {
			room = 2 * (room + most);
			more = reallocarray(all, room, sizeof(*more));
			if (!more)
				break;
			all = more;
		}
		for (size_t k = 0; k < found; k++)
			all[count++] = some[k];
	}
	if (count)
		qsort(all, count, sizeof(*all), scry_syscall_verdict_compare);
	look_for_searches(v, all, count);
	*ret = all;
	return count;
}
