/* See malloc_progress.h. What is left is what the runs so far took, on average. */
#include "cmd/malloc_progress.h"

#include <time.h>

#include "base/log.h"

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void scry_malloc_progress_begin(struct scry_malloc_progress *p, uint64_t all)
{
	*p = (struct scry_malloc_progress){.all = all, .begun_ns = now_ns()};
}

void scry_malloc_progress_run(struct scry_malloc_progress *p, const char *label)
{
	uint64_t took = now_ns() - p->begun_ns, left;

	if (!p->all)
		return;
	if (p->begun < p->all)
		p->begun++;
	if (p->begun == 1) {
		scry_log_progress("run 1 of %llu, %s", (unsigned long long)p->all, label);
		return;
	}
	left = took / (p->begun - 1) * (p->all - p->begun + 1);
	scry_log_progress("run %llu of %llu, %s, about %llu s left", (unsigned long long)p->begun,
			  (unsigned long long)p->all, label,
			  (unsigned long long)((left + 999999999u) / 1000000000u));
}

void scry_malloc_progress_end(struct scry_malloc_progress *p)
{
	p->all = 0;
	scry_log_progress_end();
}
