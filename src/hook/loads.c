/*
 * How the loader is led to us, what waits for what, and when all is looked at again; what is done
 * then is hook/renew. The other end is agent/loads.c; the words between are in wire/control.h.
 */
#include "hook/loads.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "hook/hold.h"
#include "hook/renew.h"
#include "sys/loader.h"
#include "sys/ticks.h"

#define AGAIN_NS 2000000ull   /* a list that changes, a library that is being unloaded */
#define SETTLE_NS 20000000ull /* by then a slot that was being bound is bound */
#define PATIENCE_NS 10000000000ull
#define END_TRIES 50
#define LISTEN_NS 100000000
#define BEAT_NS 5000000
#define STUB_ROOM 16

struct scry_loads {
	struct scry_control *control;
	uint32_t done;	    /* tickets answered */
	uint32_t given_up;  /* as seen last */
	bool is_sure;	    /* all that was loaded since the last look has waited for us */
	bool is_due;	    /* what is there has not been looked at to the end */
	bool is_unbound;    /* slots of what was loaded last are to be looked at */
	bool is_early;	    /* it waits before relocation: slots are looked at again later */
	unsigned int tries; /* that failed, since */
	uint64_t failing_ns;
	uint64_t again_ns, settle_ns;
	int fd;
	pthread_t listener;
	bool is_listening;
	atomic_bool shall_end;
	struct scry_kept_texts kept;
	struct scry_loads_stats stats;
	void (*around_stops)(void *arg, bool is_over); /* NULL: nothing asks for it */
	void *around_stops_arg;
};

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* A poll cannot wait for a word: this thread does. And it shows the threads that wait that we live,
 * while something large is planned. */
static void *listen_to(void *arg)
{
	struct scry_loads *l = arg;
	struct scry_control *c = l->control;
	uint32_t known = __atomic_load_n(&c->load_seq, __ATOMIC_ACQUIRE);

	while (!atomic_load(&l->shall_end)) {
		uint32_t seq = __atomic_load_n(&c->load_seq, __ATOMIC_ACQUIRE);
		bool is_open = seq != __atomic_load_n(&c->load_done, __ATOMIC_ACQUIRE);
		const struct timespec nap = {.tv_nsec = is_open ? BEAT_NS : LISTEN_NS};

		if (seq != known && write(l->fd, &(uint64_t){1}, 8) == 8) {
			known = seq;
			continue;
		}
		if (is_open)
			__atomic_fetch_add(&c->load_beat, 1, __ATOMIC_RELAXED);
		futex(&c->load_seq, FUTEX_WAIT, seq, &nap);
	}
	return NULL;
}

static int listen_on(struct scry_loads *l)
{
	sigset_t all, old;
	int r;

	l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->fd < 0)
		return scry_fail(-errno, "cannot make an eventfd: %s", strerror(errno));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&l->listener, NULL, listen_to, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	l->is_listening = r == 0;
	return r ? scry_fail(-r, "cannot start a thread: %s", strerror(r)) : 0;
}

static void listen_no_more(struct scry_loads *l)
{
	atomic_store(&l->shall_end, true);
	if (l->is_listening) {
		futex(&l->control->load_seq, FUTEX_WAKE, 1, NULL);
		pthread_join(l->listener, NULL);
	}
	l->is_listening = false;
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

/* Ticks of the TSC in SCRY_LOADS_WAIT_NS, from 2 ms of it: a bound, not a clock. */
static uint64_t wait_ticks(void)
{
	const struct scry_ticks_pair began = scry_ticks_look();
	struct scry_ticks_pair ended;

	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	ended = scry_ticks_look();
	return (uint64_t)((double)(ended.tsc - began.tsc) * SCRY_LOADS_WAIT_NS /
			  (double)(ended.ns - began.ns));
}

/* glibc: one word of the loader's own. */
static int lead_slot(struct scry_hooks *h, struct scry_inject *inj,
		     const struct scry_loader *loader)
{
	uint64_t thunk = scry_inject_symbol(inj, "scry_agent_load_slot");
	const struct scry_change change = {
		.addr = loader->catch_slot,
		.size = 8,
		.kind = SCRY_EDIT_SLOT,
		.old = &loader->catch_value,
		.new_ = &thunk,
		.mapping = scry_maps_at(&h->objects.maps, loader->catch_slot)};
	int r = scry_edit_poke(inj->mem.fd, scry_inject_symbol(inj, "scry_agent_load_original"),
			       &loader->catch_value, 8);

	return r < 0 ? r : scry_edit_change(&inj->edit, &change);
}

/* musl: the entry of r_brk, `ret` and filler, becomes a jump; no thread is in the filler. */
static int lead_brk(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	const struct scry_hook_room room = {h->objects.brk, STUB_ROOM, 0};
	uint8_t old[16], jump[16], code[6] = {0xff, 0x25}; /* jmp *literal(%rip) */
	uint64_t stub;
	int32_t rel;
	struct scry_change change = {.addr = h->objects.brk,
				     .size = 5,
				     .kind = SCRY_EDIT_TEXT,
				     .old = old,
				     .new_ = jump};
	ssize_t n = scry_linkmap_brk_code(&h->objects, &h->mem, old);
	struct scry_slab *slab;
	struct scry_stw w;
	int number, r;

	if (n < 5)
		return scry_fail(
			-ENOTSUP,
			"the loader of process %d is not one that scry knows: libraries that "
			"it loads from now on are not seen",
			inj->proc->pid);
	number = scry_hooks_slab(h, inj, held, &room);
	if (number < 0)
		return number;
	slab = &inj->header.slabs[number];
	stub = slab->code + slab->used;
	rel = (int32_t)(slab->code + 8 - (stub + sizeof(code))); /* the first: SCRY_LOADS_HANDLER */
	memcpy(code + 2, &rel, sizeof(rel));
	r = scry_edit_poke(inj->mem.fd, stub, code, sizeof(code));
	slab->used += STUB_ROOM;
	if (r == 0)
		r = scry_agent_write_header(&inj->header, inj->mem.fd);
	scry_x86_jump(change.addr, stub, jump);
	change.mapping = scry_maps_at(&h->objects.maps, change.addr);
	if (r == 0 && !held) /* else its one thread does not run */
		r = scry_hold_all(inj, &w);
	if (r < 0)
		return r;
	r = scry_edit_change(&inj->edit, &change);
	if (!held)
		scry_inject_go(inj, &w);
	return r;
}

static int lead(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	struct scry_loader loader;
	int r = scry_loader_find(&h->objects, &h->mem, &loader);

	if (r == -ENOENT && h->objects.is_static)
		return r;
	scry_error_clear();
	h->loads->is_early = r == 0 && !loader.catch_slot && loader.init;
	r = r == 0 && loader.catch_slot ? lead_slot(h, inj, &loader) : lead_brk(h, inj, held);
	h->edit_count = inj->edit.count - h->first_edit;
	return r;
}

static int set_loads(struct scry_inject *inj, uint32_t on)
{
	return scry_edit_poke(inj->mem.fd,
			      inj->state_page + offsetof(struct scry_state_page, loads), &on,
			      sizeof(on));
}

static void answer(struct scry_loads *l, uint32_t seq)
{
	__atomic_store_n(&l->control->load_busy, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->control->load_done, seq, __ATOMIC_SEQ_CST);
	futex(&l->control->load_done, FUTEX_WAKE, INT32_MAX, NULL);
	l->done = seq;
}

int scry_loads_follow(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	struct scry_loads *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return scry_no_memory("following loaded objects");
	*l = (struct scry_loads){.control = inj->control, .fd = -1, .is_due = true};
	h->loads = l;
	if (!h->is_on) {
		h->first_edit = inj->edit.count;
		for (size_t i = 0; i < h->count; i++)
			h->rows[i].is_gone = true; /* planned anew */
	}
	l->control->load_wait_tsc = wait_ticks();
	answer(l, l->control->load_seq);
	l->given_up = l->control->load_given_up = l->done;
	l->control->load_late = 0;
	r = listen_on(l);
	if (r == 0)
		r = lead(h, inj, held);
	if (r == 0)
		r = set_loads(inj, 1);
	h->is_on |= r == 0;
	if (r < 0) {
		listen_no_more(l);
		free(l);
		h->loads = NULL;
	}
	return r;
}

void scry_loads_around_stops(struct scry_hooks *h, void (*call)(void *arg, bool is_over), void *arg)
{
	if (!h->loads)
		return;
	h->loads->around_stops = call;
	h->loads->around_stops_arg = arg;
}

static void report_stop(const struct scry_loads *l, bool is_over)
{
	if (l->around_stops)
		l->around_stops(l->around_stops_arg, is_over);
}

bool scry_loads_is_settled(const struct scry_hooks *h)
{
	return !h->loads || !h->loads->is_due;
}

bool scry_loads_has_seen_all(const struct scry_hooks *h)
{
	const struct scry_loads *l = h->loads;

	return !l ||
	       (!l->tries && __atomic_load_n(&l->control->load_seq, __ATOMIC_SEQ_CST) == l->done);
}

int scry_loads_fd(const struct scry_hooks *h)
{
	return h->loads ? h->loads->fd : -1;
}

void scry_loads_stats(const struct scry_hooks *h, struct scry_loads_stats *ret)
{
	*ret = h->loads ? h->loads->stats : (struct scry_loads_stats){0};
}

/* Does the thread that waited still wait? */
static bool has_nobody_left(struct scry_loads *l)
{
	uint32_t given_up = __atomic_load_n(&l->control->load_given_up, __ATOMIC_SEQ_CST);
	bool is_held = given_up == l->given_up;

	l->given_up = given_up;
	return is_held;
}

/* While we write no thread gives up waiting; one that has given up before is seen. */
static int put_on(struct scry_hooks *fresh, struct scry_inject *inj, void *arg)
{
	struct scry_loads *l = arg;
	int r;

	report_stop(l, false);
	__atomic_store_n(&l->control->load_busy, 1, __ATOMIC_SEQ_CST);
	fresh->is_unused = fresh->is_unused && has_nobody_left(l);
	r = scry_hooks_on(fresh, inj, NULL);
	__atomic_store_n(&l->control->load_busy, 0, __ATOMIC_SEQ_CST);
	report_stop(l, true); /* before the thread that waits goes on and starts others */
	return r;
}

/* -EAGAIN: not now; -EINPROGRESS: the loader is at work. */
static int look(struct scry_hooks *h, struct scry_inject *inj, bool is_unused)
{
	struct scry_loads *l = h->loads;
	const struct scry_renew_how how = {put_on, l, is_unused};
	struct scry_renew_change change = {.kept = &l->kept};
	struct scry_linkmap now;
	int r = scry_linkmap_read(inj->proc->pid, &h->mem, &now);

	if (r < 0)
		return r;
	r = now.is_cut	      ? -EAGAIN
	    : now.is_changing ? -EINPROGRESS
			      : scry_renew_list(h, inj, &now, &change);
	scry_linkmap_done(&now);
	if (r < 0)
		return r;
	l->stats.loaded += change.loaded;
	l->stats.unloaded += change.unloaded;
	l->is_due |= change.loaded > 0;
	r = l->is_due ? scry_renew_hooks(h, inj, &how) : 0;
	l->is_due = r < 0;
	if (r == 0 && change.loaded)
		l->settle_ns = scry_now_ns() + SETTLE_NS;
	l->is_unbound = r == 0 && change.loaded && l->is_early;
	return r;
}

/* The row that a slot was pointed at. */
static const struct scry_hook *row_of_stub(const struct scry_hooks *h, uint64_t stub)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].has_stub && h->rows[i].stub == stub)
			return &h->rows[i];
	return NULL;
}

/* A slot that a thread was binding when it was changed has been overwritten with the function. */
static int find_bound(const struct scry_hooks *h, struct scry_inject *inj, bool write)
{
	int bound = 0;

	for (size_t i = h->first_edit; i < h->first_edit + h->edit_count; i++) {
		const struct scry_journal_entry *j = &inj->edit.entries[i];
		const struct scry_hook *row;
		uint64_t now, stub;

		if (j->kind != SCRY_EDIT_SLOT || j->state != SCRY_EDIT_APPLIED ||
		    scry_mem_u64(&h->mem, j->address, &now) < 0)
			continue;
		memcpy(&stub, j->new_, 8);
		row = now == stub ? NULL : row_of_stub(h, stub);
		if (!row || now != row->target)
			continue;
		bound++;
		if (write)
			scry_edit_poke(inj->mem.fd, j->address, &stub, 8);
	}
	return bound;
}

static int settle(struct scry_hooks *h, struct scry_inject *inj)
{
	struct scry_stw w;
	int r;

	if (!find_bound(h, inj, false))
		return 0;
	report_stop(h->loads, false);
	r = scry_inject_stop(inj, &w);
	if (r == 0) {
		find_bound(h, inj, true);
		scry_inject_go(inj, &w);
	}
	report_stop(h->loads, true);
	return r;
}

/* Is the thread about to run the destructors of a listed object? */
static bool is_unload(const struct scry_hooks *h, uint64_t arg)
{
	for (size_t i = 0; arg && i < h->objects.count; i++)
		if (h->objects.objects[i].link_map == arg)
			return true;
	return false;
}

static void note_reason(struct scry_loads *l, int r)
{
	snprintf(l->stats.why, sizeof(l->stats.why), "%s",
		 *scry_error() ? scry_error() : strerror(-r));
	scry_error_clear();
}

/* What came of a look: when is the next one? One in which threads would not stop has held the
 * others up: they run at least as long before they are stopped again. */
static int judge(struct scry_loads *l, uint64_t began_ns, int r)
{
	const bool is_full = r == -ENOSPC || r == -ENOMEM;
	const uint64_t now = scry_now_ns();

	l->is_sure = r == 0;
	l->again_ns = UINT64_MAX;
	if (r == 0) {
		l->tries = 0;
		l->is_due = l->is_unbound;
		if (l->is_unbound)
			l->again_ns = now + SETTLE_NS;
		return 0;
	}
	if (r == -ESRCH)
		return r;
	if (!l->tries++)
		l->failing_ns = began_ns;
	note_reason(l, r);
	if (now - l->failing_ns < PATIENCE_NS && !is_full) {
		l->again_ns = now + AGAIN_NS * l->tries + (now - began_ns);
		return 0;
	}
	l->stats.failed++;
	l->tries = 0;
	l->is_due = false;
	return 0;
}

static int look_now(struct scry_hooks *h, struct scry_inject *inj, bool is_parked)
{
	struct scry_loads *l = h->loads;
	const uint64_t arg = l->control->load_arg, began_ns = scry_now_ns();
	bool is_held;
	int r;

	if (!is_parked)
		return judge(l, began_ns, look(h, inj, false));
	is_held = has_nobody_left(l);
	if (is_held && is_unload(h, arg)) {
		l->again_ns = scry_now_ns() + AGAIN_NS;
		return 0;
	}
	r = look(h, inj, is_held && l->is_sure);
	if (r == -EINPROGRESS && is_held) { /* it comes again when it has relocated (musl) */
		l->again_ns = scry_now_ns() + AGAIN_NS;
		return 0;
	}
	return judge(l, began_ns, r);
}

int scry_loads_turn(struct scry_hooks *h, struct scry_inject *inj)
{
	struct scry_loads *l = h->loads;
	uint64_t began, count;
	uint32_t seq;
	int r = 0;

	if (!l)
		return 0;
	began = scry_now_ns();
	seq = __atomic_load_n(&l->control->load_seq, __ATOMIC_SEQ_CST);
	if (read(l->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return scry_fail(-errno, "cannot read an eventfd: %s", strerror(errno));
	if (seq != l->done || began >= l->again_ns)
		r = look_now(h, inj, seq != l->done);
	if (seq != l->done) {
		uint64_t ns = scry_now_ns() - began;

		l->stats.asked += seq - l->done;
		answer(l, seq);
		l->stats.answer_max_ns = ns > l->stats.answer_max_ns ? ns : l->stats.answer_max_ns;
	}
	if (r == 0 && l->settle_ns && scry_now_ns() >= l->settle_ns) {
		l->settle_ns = 0;
		r = settle(h, inj);
	}
	l->stats.late = l->control->load_late;
	return r;
}

void scry_loads_end(struct scry_hooks *h, struct scry_inject *inj)
{
	struct scry_loads *l = h->loads;
	struct scry_renew_change change;
	struct scry_linkmap now;
	int r = -EAGAIN;

	if (!l || !l->is_listening)
		return;
	set_loads(inj, 0);
	listen_no_more(l);
	answer(l, __atomic_load_n(&l->control->load_seq, __ATOMIC_SEQ_CST));
	for (unsigned int i = 0; i < END_TRIES && r == -EAGAIN; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
		r = scry_linkmap_read(inj->proc->pid, &h->mem, &now);
		if (r < 0)
			break;
		change = (struct scry_renew_change){.kept = &l->kept};
		r = now.is_cut || now.is_changing ? -EAGAIN
						  : scry_renew_list(h, inj, &now, &change);
		scry_linkmap_done(&now);
	}
	settle(h, inj);
	l->stats.late = l->control->load_late;
	scry_error_clear();
}

void scry_loads_free(struct scry_hooks *h)
{
	struct scry_loads *l = h->loads;

	if (!l)
		return;
	listen_no_more(l);
	scry_kept_texts_done(&l->kept);
	free(l);
	h->loads = NULL;
}
