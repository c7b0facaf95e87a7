/* See heartbeat.h. */
#include "hook/heartbeat.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/err.h"
#include "sys/ticks.h"
#include "sys/tracee.h"

#define TICK_NS 100000000ull
#define LATE_NS 300000000ull /* the keeper comes each 100 ms */
#define NICE (-10)	     /* where it may; it runs some us a tick */

struct scry_heartbeat {
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t wake;
	bool shall_end;
	struct scry_heartbeat_controls *rows;
	size_t count, room;
	/* the thread's */
	uint64_t patience_ns;
	struct scry_ticks ticks;
	uint64_t beat_ns; /* atomic */
	uint64_t gap_ns;  /* the keeper's */
};

static void refresh(struct scry_control *c, uint64_t until, bool is_late)
{
	uint64_t lease = __atomic_load_n(&c->lease_tsc, __ATOMIC_RELAXED);

	if (!lease)
		return;
	if (lease < until)
		__atomic_compare_exchange_n(&c->lease_tsc, &lease, until, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED);
	if (is_late && __atomic_load_n(&c->buffer_waiting, __ATOMIC_RELAXED))
		__atomic_add_fetch(&c->buffer_freed, 1, __ATOMIC_SEQ_CST);
}

/* The end of the lease is counted before the beat is looked at: one that is stopped in between does
 * not claim, when it goes on, that it was there all the time. */
static void tick(struct scry_heartbeat *p)
{
	const struct scry_ticks_pair now = scry_ticks_look();
	uint64_t until = scry_ticks_after(&p->ticks, &now, SCRY_LEASE_NS), beat, age;

	if (!until)
		return;
	beat = __atomic_load_n(&p->beat_ns, __ATOMIC_ACQUIRE);
	age = now.ns > beat ? now.ns - beat : 0;
	if (age > p->patience_ns)
		return;
	for (size_t i = 0; i < p->count; i++)
		for (uint32_t k = 0; k < p->rows[i].count; k++)
			refresh((struct scry_control *)((char *)p->rows[i].first +
							k * p->rows[i].stride),
				until, age > LATE_NS);
}

static void *keep_fresh(void *arg)
{
	struct scry_heartbeat *p = arg;

	setpriority(PRIO_PROCESS, 0, NICE); /* of this thread */
	pthread_mutex_lock(&p->lock);
	while (!p->shall_end) {
		struct timespec next;

		tick(p);
		clock_gettime(CLOCK_MONOTONIC, &next);
		next.tv_nsec += TICK_NS;
		next.tv_sec += next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		pthread_cond_clockwait(&p->wake, &p->lock, CLOCK_MONOTONIC, &next);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int scry_heartbeat_new(uint64_t patience_ns, struct scry_heartbeat **ret)
{
	struct scry_heartbeat *p = calloc(1, sizeof(*p));
	struct scry_ticks_pair now;
	sigset_t all, old;
	int r;

	if (!p)
		return scry_no_memory("a thread");
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	p->patience_ns = patience_ns;
	now = scry_ticks_look();
	scry_ticks_mark(&p->ticks, &now);
	p->beat_ns = now.ns;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&p->thread, NULL, keep_fresh, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		free(p);
		return scry_fail(-r, "cannot start a thread: %s", strerror(r));
	}
	*ret = p;
	return 0;
}

void scry_heartbeat_free(struct scry_heartbeat *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->shall_end = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	free(p->rows);
	free(p);
}

void scry_heartbeat_beat(struct scry_heartbeat *p)
{
	uint64_t now = scry_now_ns();

	if (!p)
		return;
	if (now - p->beat_ns > p->gap_ns)
		p->gap_ns = now - p->beat_ns;
	__atomic_store_n(&p->beat_ns, now, __ATOMIC_RELEASE);
}

uint64_t scry_heartbeat_gap_ns(const struct scry_heartbeat *p)
{
	uint64_t last = p ? scry_now_ns() - p->beat_ns : 0;

	return p && p->gap_ns > last ? p->gap_ns : last;
}

int scry_heartbeat_keep(struct scry_heartbeat *p, const struct scry_heartbeat_controls *controls)
{
	struct scry_heartbeat_controls *more;
	int r = 0;

	if (!p)
		return 0;
	pthread_mutex_lock(&p->lock);
	if (p->count == p->room) {
		more = reallocarray(p->rows, p->room + 16, sizeof(*more));
		if (more) {
			p->rows = more;
			p->room += 16;
		} else {
			r = -ENOMEM;
		}
	}
	if (r == 0)
		p->rows[p->count++] = *controls;
	pthread_mutex_unlock(&p->lock);
	return r;
}

void scry_heartbeat_forget(struct scry_heartbeat *p, const struct scry_control *first)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->count; i++)
		if (p->rows[i].first == first)
			p->rows[i] = p->rows[--p->count];
	pthread_mutex_unlock(&p->lock);
}
