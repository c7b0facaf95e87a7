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

#define LEAST 100	/* calls */
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
	[SCRY_VAIN_FLAGS] = {"file-flags", SCRY_GRADE_PROVEN,
			     "set file flags that were already set",
			     "set O_NONBLOCK once: SOCK_NONBLOCK with socket() or accept4()",
			     "none while nobody else clears the flag"},
	[SCRY_VAIN_CLOEXEC] = {"cloexec", SCRY_GRADE_PROVEN,
			       "set a close-on-exec flag that was already set",
			       "open with O_CLOEXEC, and do not set it again", "none"},
	[SCRY_VAIN_WAKE] = {"wakes-nobody", SCRY_GRADE_OBSERVED, "woke nobody",
			    "wake only when somebody waits: count waiters beside the word",
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
			    "only asked where the file stands (lseek(fd, 0, SEEK_CUR))",
			    "keep the position", "none while nobody else moves it"},
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
	"enoent", SCRY_GRADE_OBSERVED, "asked for files that are not there",
	"shorten the search path, or put first where most is found (Ruby: $LOAD_PATH, bootsnap; "
	"Python: sys.path)",
	"another file of that name may be found first"};
static const struct pattern unlock = {
	"contended-mutex", SCRY_GRADE_OBSERVED,
	"let go of a mutex for whose waiters it found nobody asleep",
	"threads contend for this mutex: scry locks shows for which, and where", "none"};

const char *scry_syscall_grade_name(enum scry_syscall_grade grade)
{
	static const char *const names[] = {"proven", "observed", "hint"};

	return names[grade];
}

static void add(struct scry_syscall_verdict *to, size_t *count, const struct pattern *p,
		const struct scry_syscall_verdict *of)
{
	const bool is_hint = p->grade == SCRY_GRADE_HINT;

	if (of->vain < (is_hint ? LEAST_HINT : LEAST) || of->vain * 2 < of->of)
		return;
	to[*count] = *of;
	to[*count].pattern = p->name;
	to[*count].grade = p->grade;
	to[*count].did = p->did;
	to[*count].cure = p->cure;
	to[*count].risk = p->risk;
	++*count;
}

/* The library's own locks wake by the word, and know that somebody may wait. */
static bool is_of_a_mutex(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
	size_t length;
	const char *symbol = site ? scry_reader_string(v->reader, site->symbol_str, &length) : NULL;

	return symbol && (strstr(symbol, "lll_lock_wake") || strstr(symbol, "lll_unlock") ||
			  strstr(symbol, "mutex_unlock"));
}

static int by_weight(const void *left, const void *right)
{
	const struct scry_syscall_verdict *a = left, *b = right;

	if ((a->grade == SCRY_GRADE_HINT) != (b->grade == SCRY_GRADE_HINT))
		return a->grade == SCRY_GRADE_HINT ? 1 : -1;
	if (a->row->ticks != b->row->ticks)
		return a->row->ticks < b->row->ticks ? 1 : -1;
	return a->vain < b->vain ? 1 : a->vain > b->vain ? -1 : 0;
}

size_t scry_syscall_judge(const struct scry_syscall_view *v, struct scry_syscall_verdict **ret)
{
	const size_t rows = v->places.keys.count;
	struct scry_syscall_verdict *all = calloc(3 * rows + 1, sizeof(*all));
	size_t count = 0;

	for (size_t i = 0; all && i < rows; i++) {
		const struct scry_syscall_row *row = &v->places.rows[i];
		struct scry_syscall_verdict of = {.row = row, .vain = row->vain, .of = row->asked};

		if (row->what == SCRY_VAIN_WAKE && is_of_a_mutex(v, row))
			add(all, &count, &unlock, &of);
		else if (row->what && row->what < sizeof(patterns) / sizeof(patterns[0]))
			add(all, &count, &patterns[row->what], &of);
		of.of = row->calls;
		of.vain = row->again;
		add(all, &count, &again, &of);
		of.vain = row->absent;
		add(all, &count, &absent, &of);
	}
	if (count)
		qsort(all, count, sizeof(*all), by_weight);
	*ret = all;
	return count;
}
