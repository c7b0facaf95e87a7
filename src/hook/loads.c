/*
 * What is new is a set of hooks of its own, planned and put on like any other, and then merged into
 * the set that is followed. A function that comes back takes over the stub of the one that went,
 * and so its counter: no thread can be in the stub of code that is unmapped.
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
#include <x86intrin.h>

#include "base/err.h"
#include "sys/loader.h"

#define AGAIN_NS 2000000ull   /* a list that changes, a library that is being unloaded */
#define SETTLE_NS 20000000ull /* by then a slot that was being bound is bound */
#define TRIES_MAX 50
#define LISTEN_NS 100000000
#define BEAT_NS 5000000
#define KEPT_MAX 64
#define STUB_ROOM 64

/* The decoded code of a file that may come back. */
struct kept {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint8_t build_id[20];
	size_t build_id_size;
	struct scry_text *text;
};

struct scry_loads {
	struct scry_control *control;
	uint32_t done;	   /* tickets answered */
	uint32_t given_up; /* as seen last */
	bool is_sure;	   /* all that was loaded since the last look has waited for us */
	bool is_due;	   /* what is there has not been looked at to the end */
	unsigned int tries;
	uint64_t again_ns, settle_ns;
	int fd;
	pthread_t listener;
	bool is_listening;
	atomic_bool shall_end;
	struct kept kept[KEPT_MAX];
	size_t kept_next;
	struct scry_loads_stats stats;
};

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* A poll cannot wait for a word: this thread does. And it tells those who wait that we live, while
 * something large is planned. */
static void *listen_to(void *arg)
{
	struct scry_loads *l = arg;
	struct scry_control *c = l->control;
	uint32_t told = __atomic_load_n(&c->load_seq, __ATOMIC_ACQUIRE);

	while (!atomic_load(&l->shall_end)) {
		uint32_t seq = __atomic_load_n(&c->load_seq, __ATOMIC_ACQUIRE);
		bool is_open = seq != __atomic_load_n(&c->load_done, __ATOMIC_ACQUIRE);
		const struct timespec nap = {.tv_nsec = is_open ? BEAT_NS : LISTEN_NS};

		if (seq != told && write(l->fd, &(uint64_t){1}, 8) == 8) {
			told = seq;
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
	uint64_t ns = scry_now_ns(), tsc = __rdtsc();

	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	tsc = __rdtsc() - tsc;
	ns = scry_now_ns() - ns;
	return (uint64_t)((double)tsc * SCRY_LOADS_WAIT_NS / (double)ns);
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

/* musl: the entry of r_brk, `ret` and filler, becomes a jump; nobody stands in the filler. */
static int lead_brk(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	const struct scry_hook_room room = {h->objects.brk, STUB_ROOM, 0};
	struct scry_stub stub = {.kind = SCRY_HOOK_REPLACE};
	struct scry_stub_code code;
	uint8_t old[16], jump[16];
	struct scry_change change = {.addr = h->objects.brk,
				     .size = 5,
				     .kind = SCRY_EDIT_TEXT,
				     .old = old,
				     .new_ = jump};
	ssize_t n = scry_linkmap_brk_code(&h->objects, &h->mem, old);
	struct scry_slab *slab;
	struct scry_world w;
	int number, r;

	if (n < 5)
		return scry_fail(-ENOTSUP,
				 "the loader of process %d is none that is known: libraries that "
				 "it loads from now on are not seen",
				 inj->proc->pid);
	number = scry_hooks_slab(h, inj, held, &room);
	if (number < 0)
		return number;
	slab = &inj->header.slabs[number];
	stub.at = slab->code + slab->used;
	stub.literal = slab->code + 8; /* SCRY_LOADS_HANDLER is the first */
	scry_stub_emit(&stub, &code);
	r = scry_edit_poke(inj->mem.fd, stub.at, code.bytes, code.size);
	slab->used += STUB_ROOM;
	if (r == 0)
		r = scry_agent_write_header(&inj->header, inj->mem.fd);
	scry_x86_jump(change.addr, stub.at, jump);
	change.mapping = scry_maps_at(&h->objects.maps, change.addr);
	if (r == 0)
		r = scry_inject_stop(inj, &w);
	if (r < 0)
		return r;
	r = scry_edit_change(&inj->edit, &change);
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
	r = r == 0 && loader.catch_slot ? lead_slot(h, inj, &loader) : lead_brk(h, inj, held);
	h->edit_count = inj->edit.count - h->first_edit;
	return r;
}

static int set_loads(struct scry_inject *inj, uint32_t on)
{
	return scry_edit_poke(inj->mem.fd, inj->gate + offsetof(struct scry_gate, loads), &on,
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
		return scry_fail(-ENOMEM, "not enough memory to follow loaded objects");
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

bool scry_loads_is_settled(const struct scry_hooks *h)
{
	return !h->loads || !h->loads->is_due;
}

int scry_loads_fd(const struct scry_hooks *h)
{
	return h->loads ? h->loads->fd : -1;
}

void scry_loads_stats(const struct scry_hooks *h, struct scry_loads_stats *ret)
{
	*ret = h->loads ? h->loads->stats : (struct scry_loads_stats){0};
}

static bool is_same_file(const struct kept *k, const struct scry_object *o)
{
	const uint8_t *id;
	size_t size = o->elf ? scry_elf_build_id(o->elf, &id) : 0;

	return k->text && o->mapping && k->inode == o->mapping->inode &&
	       k->dev_major == o->mapping->dev_major && k->dev_minor == o->mapping->dev_minor &&
	       size && size == k->build_id_size && !memcmp(k->build_id, id, size);
}

/* The code of object `i`, which is gone, is kept: decoding a large one takes longer than we may. */
static void keep_text(struct scry_hooks *h, size_t i)
{
	struct kept *k = &h->loads->kept[h->loads->kept_next];
	const struct scry_object *o = &h->objects.objects[i];
	const uint8_t *id;
	size_t size = o->elf ? scry_elf_build_id(o->elf, &id) : 0;

	if (!h->texts[i] || !o->mapping || !size || size > sizeof(k->build_id))
		return;
	scry_text_free(k->text);
	*k = (struct kept){.inode = o->mapping->inode,
			   .dev_major = o->mapping->dev_major,
			   .dev_minor = o->mapping->dev_minor,
			   .build_id_size = size,
			   .text = h->texts[i]};
	memcpy(k->build_id, id, size);
	h->texts[i] = NULL;
	h->loads->kept_next = (h->loads->kept_next + 1) % KEPT_MAX;
}

static struct scry_text *take_text(struct scry_loads *l, struct scry_linkmap *lm, size_t i)
{
	struct scry_text *text;

	if (scry_linkmap_open(lm, i) < 0)
		return NULL;
	for (size_t k = 0; k < KEPT_MAX; k++) {
		if (!is_same_file(&l->kept[k], &lm->objects[i]))
			continue;
		text = l->kept[k].text;
		l->kept[k] = (struct kept){0};
		return text;
	}
	return NULL;
}

/* What went away, or came back at the same place: its changes went with it. */
static int forget(struct scry_hooks *h, struct scry_inject *inj, size_t i)
{
	const struct scry_object *o = &h->objects.objects[i];
	int r = scry_edit_forget(&inj->edit, o->start, o->end);

	for (size_t k = 0; k < h->count; k++)
		if (h->rows[k].object_start == o->start && !h->rows[k].is_gone)
			h->rows[k].is_gone = true;
	h->loads->stats.unloaded++;
	return r;
}

/*
 * Compares the list with `now`. ret_gone[i]: the old object i is no more. -EAGAIN: something is
 * listed no more and still mapped, it is being unloaded.
 */
static int compare(const struct scry_hooks *h, const struct scry_inject *inj,
		   const struct scry_linkmap *now, bool *ret_gone)
{
	for (size_t i = 0; i < h->objects.count; i++) {
		const struct scry_object *o = &h->objects.objects[i];
		bool is_listed = scry_linkmap_find(now, o), any, is_there;

		if (!o->mapping || scry_linkmap_is_repeated(&h->objects, i))
			continue;
		is_there = scry_edit_is_there(&inj->edit, o->start, o->end, &any);
		if (!is_listed && any && is_there)
			return -EAGAIN;
		ret_gone[i] = !is_listed || (any && !is_there);
	}
	return 0;
}

/* `now` becomes the set's list. *ret_fresh: how many objects are in it that were not. */
static int take_over(struct scry_hooks *h, struct scry_inject *inj, struct scry_linkmap *now,
		     size_t *ret_fresh)
{
	bool *gone = calloc(h->objects.count + 1, sizeof(*gone));
	ssize_t *was = calloc(now->count + 1, sizeof(*was));
	struct scry_text **texts = calloc(now->count + 1, sizeof(struct scry_text *));
	size_t forgotten = 0;
	int r = gone && was && texts ? compare(h, inj, now, gone) : -ENOMEM;

	if (r < 0)
		goto out;
	for (size_t i = 0; i < h->objects.count && r == 0; i++) {
		if (!gone[i])
			continue;
		r = forget(h, inj, i);
		forgotten++;
		if (!scry_linkmap_find(now, &h->objects.objects[i]))
			keep_text(h, i);
	}
	if (r == 0 && forgotten)
		r = scry_edit_compact(&inj->edit, h->first_edit);
	h->edit_count = inj->edit.count - h->first_edit;
	if (r < 0)
		goto out;
	scry_linkmap_inherit(now, &h->objects, was);
	*ret_fresh = 0;
	for (size_t i = 0; i < now->count; i++) {
		bool is_new = was[i] < 0 || gone[was[i]];

		*ret_fresh += is_new;
		if (was[i] >= 0) {
			texts[i] = h->texts[was[i]];
			h->texts[was[i]] = NULL;
		} else {
			texts[i] = take_text(h->loads, now, i);
		}
	}
	for (size_t i = 0; i < h->objects.count; i++)
		scry_text_free(h->texts[i]);
	free(h->texts);
	h->texts = texts;
	texts = NULL;
	scry_linkmap_done(&h->objects);
	h->objects = *now;
	*now = (struct scry_linkmap){0};
out:
	free(gone);
	free(was);
	free(texts);
	return r;
}

/* Of the first `count` rows, which are sorted. */
static ssize_t find_row(const struct scry_hooks *h, size_t count, uint64_t address)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (h->rows[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	while (low < count && h->rows[low].address == address && h->rows[low].is_gone)
		low++;
	return low < count && h->rows[low].address == address ? (ssize_t)low : -ENOENT;
}

/* Rows for functions that are not hooked, and for slots of those that are reached by slots. */
static int add_fresh(struct scry_hooks *fresh, struct scry_hooks *h)
{
	size_t before = 0;
	int r = 0;

	for (size_t q = 0; q < h->request_count && r == 0; q++) {
		r = scry_symbols_find(&fresh->objects, h->requests[q], &fresh->functions);
		if (r == -ENOENT)
			r = 0;
		for (; before < fresh->functions.count && r == 0; before++) {
			const struct scry_function *f = &fresh->functions.rows[before];
			ssize_t live = find_row(h, h->count, f->address);
			bool by_slots = live >= 0 && h->rows[live].way != SCRY_WAY_ENTRY &&
					(h->rows[live].to.way == SCRY_WAY_AUTO ||
					 h->rows[live].to.way == SCRY_WAY_GOT);

			if (live >= 0 && !by_slots)
				continue;
			r = scry_hooks_add(fresh, f, (uint32_t)q);
			if (r == 0 && by_slots)
				fresh->rows[fresh->count - 1].to.way = SCRY_WAY_GOT;
		}
	}
	scry_error_clear();
	return r;
}

static struct scry_hook *find_gone(struct scry_hooks *h, const struct scry_hook *row)
{
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *old = &h->rows[i];

		if (old->is_gone && old->symbol && old->request == row->request &&
		    !strcmp(old->symbol, row->symbol) && !strcmp(old->module, row->module))
			return old;
	}
	return NULL;
}

static void drop_succeeded(struct scry_hooks *h)
{
	size_t kept = 0;

	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].symbol)
			h->rows[kept++] = h->rows[i];
	h->count = kept;
}

/* The rows of what is new take over from those of what went. */
static int succeed(struct scry_hooks *fresh, struct scry_hooks *h, struct scry_inject *inj)
{
	int r = 0;

	for (size_t i = 0; i < fresh->count && r == 0; i++) {
		struct scry_hook *row = &fresh->rows[i], *old;
		ssize_t live = find_row(h, h->count, row->address);

		if (live >=
		    0) { /* more slots of it; they went where the others did, or it is another */
			old = &h->rows[live];
			if (old->has_stub && row->target != old->target)
				row->way = 0;
			row->has_stub = old->has_stub;
			row->stub = old->stub;
			continue;
		}
		old = find_gone(h, row);
		if (!old)
			continue;
		r = scry_hook_succeed(row, old, inj);
		free(old->symbol);
		free(old->module);
		old->symbol = old->module = NULL;
	}
	drop_succeeded(h);
	return r;
}

static int by_address(const void *a, const void *b)
{
	const struct scry_hook *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static int make_room(struct scry_hooks *h, size_t rows, size_t places)
{
	struct scry_hook *more = realloc(h->rows, (h->count + rows + 1) * sizeof(*more));
	struct scry_hook_place *more_places;

	if (more) {
		h->rows = more;
		h->room = h->count + rows + 1;
	}
	more_places = realloc(h->places, (h->place_count + places + 1) * sizeof(*more_places));
	if (more_places) {
		h->places = more_places;
		h->place_room = h->place_count + places + 1;
	}
	return more && more_places ? 0 : scry_fail(-ENOMEM, "not enough memory for the hooks");
}

/* The places of rows that went are dropped, so that it does not grow with each dlopen. */
static void pack_places(struct scry_hooks *h)
{
	struct scry_hook_place *packed = calloc(h->place_room + 1, sizeof(*packed));
	size_t n = 0;

	for (size_t i = 0; packed && i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		if (row->place_count)
			memcpy(packed + n, h->places + row->first_place,
			       row->place_count * sizeof(*packed));
		row->first_place = n;
		n += row->place_count;
	}
	if (!packed)
		return;
	free(h->places);
	h->places = packed;
	h->place_count = n;
}

/* A row of a function that is in the set: only its slots are new, unless it had no way. */
static void merge_into(struct scry_hook *live, struct scry_hook *row)
{
	struct scry_hook_to to = live->to;

	if (live->way || !row->way) {
		free(row->symbol);
		free(row->module);
		return;
	}
	free(live->symbol);
	free(live->module);
	*live = *row;
	live->to = to;
}

/* There is room. What could not be put on counts as gone, so that the next try takes over from it.
 */
static void merge(struct scry_hooks *h, struct scry_hooks *fresh, bool is_on)
{
	size_t sorted = h->count;

	if (fresh->place_count)
		memcpy(h->places + h->place_count, fresh->places,
		       fresh->place_count * sizeof(*fresh->places));
	for (size_t i = 0; i < fresh->count; i++) {
		struct scry_hook *row = &fresh->rows[i];
		ssize_t live = find_row(h, sorted, row->address);

		row->first_place += h->place_count;
		row->is_gone = !is_on;
		if (live >= 0 && !is_on)
			row->way = 0;
		if (live >= 0)
			merge_into(&h->rows[live], row);
		else
			h->rows[h->count++] = *row;
	}
	fresh->count = 0;
	h->place_count += fresh->place_count;
	qsort(h->rows, h->count, sizeof(*h->rows), by_address);
	pack_places(h);
	h->refused = 0;
	for (size_t i = 0; i < h->count; i++)
		h->refused += !h->rows[i].way && !h->rows[i].is_gone;
	h->moved += fresh->moved;
}

/* Does who waited still wait? */
static bool has_nobody_left(struct scry_loads *l)
{
	uint32_t given_up = __atomic_load_n(&l->control->load_given_up, __ATOMIC_SEQ_CST);
	bool is_held = given_up == l->given_up;

	l->given_up = given_up;
	return is_held;
}

/* While we write nobody gives up waiting; who has given up before is seen. */
static int put_on(struct scry_hooks *fresh, struct scry_loads *l, struct scry_inject *inj)
{
	int r;

	__atomic_store_n(&l->control->load_busy, 1, __ATOMIC_SEQ_CST);
	fresh->is_unused = fresh->is_unused && has_nobody_left(l);
	r = scry_hooks_on(fresh, inj, NULL);
	__atomic_store_n(&l->control->load_busy, 0, __ATOMIC_SEQ_CST);
	return r;
}

/* Looks at the new objects of the list, plans, and puts on. */
static int hook_fresh(struct scry_hooks *h, struct scry_inject *inj, bool is_unused)
{
	struct scry_hooks fresh = {.proc = h->proc,
				   .mem = h->mem,
				   .objects = h->objects,
				   .texts = h->texts,
				   .requests = h->requests,
				   .request_to = h->request_to,
				   .request_count = h->request_count,
				   .handler_count = h->handler_count,
				   .waits = true,
				   .is_unused = is_unused,
				   .is_strict = true};
	int r;

	memcpy(fresh.handlers, h->handlers, sizeof(fresh.handlers));
	r = add_fresh(&fresh, h);
	if (r == 0)
		r = scry_hooks_plan(&fresh);
	if (r == -ENOTSUP) { /* none of them: rows say why */
		scry_error_clear();
		r = 0;
	}
	if (r == 0)
		r = make_room(h, fresh.count, fresh.place_count);
	if (r < 0 || !fresh.count)
		goto out;
	r = succeed(&fresh, h, inj);
	if (r == 0) {
		scry_maps_done(&inj->maps);
		r = scry_maps_read(inj->proc->pid, &inj->maps);
	}
	if (r == 0)
		r = put_on(&fresh, h->loads, inj);
	merge(h, &fresh, r == 0);
	h->edit_count = inj->edit.count - h->first_edit;
out:
	h->objects = fresh.objects; /* opened meanwhile */
	for (size_t i = 0; i < fresh.count; i++) {
		free(fresh.rows[i].symbol);
		free(fresh.rows[i].module);
	}
	free(fresh.rows);
	free(fresh.places);
	scry_slots_done(&fresh.slots);
	scry_functions_done(&h->functions);
	h->functions = fresh.functions;
	return r;
}

/* -EAGAIN: not now; -EINPROGRESS: the loader is at work. */
static int look(struct scry_hooks *h, struct scry_inject *inj, bool is_unused)
{
	struct scry_loads *l = h->loads;
	struct scry_linkmap now;
	size_t fresh = 0;
	int r = scry_linkmap_read(inj->proc->pid, &h->mem, &now);

	if (r < 0)
		return r;
	r = now.is_cut ? -EAGAIN : now.is_changing ? -EINPROGRESS : take_over(h, inj, &now, &fresh);
	scry_linkmap_done(&now);
	if (r < 0)
		return r;
	l->stats.loaded += fresh;
	l->is_due |= fresh > 0;
	r = l->is_due ? hook_fresh(h, inj, is_unused) : 0;
	l->is_due = r < 0;
	if (r == 0 && fresh)
		l->settle_ns = scry_now_ns() + SETTLE_NS;
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
	struct scry_world w;
	int r;

	if (!find_bound(h, inj, false))
		return 0;
	r = scry_inject_stop(inj, &w);
	if (r < 0)
		return r;
	find_bound(h, inj, true);
	scry_inject_go(inj, &w);
	return 0;
}

/* Is the thread about to run the destructors of a listed object? */
static bool is_unload(const struct scry_hooks *h, uint64_t arg)
{
	for (size_t i = 0; arg && i < h->objects.count; i++)
		if (h->objects.objects[i].link_map == arg)
			return true;
	return false;
}

static void note_failure(struct scry_loads *l, int r)
{
	l->stats.failed++;
	snprintf(l->stats.why, sizeof(l->stats.why), "%s",
		 *scry_error() ? scry_error() : strerror(-r));
	scry_error_clear();
}

/* What came of a look: when is the next one? */
static int judge(struct scry_loads *l, int r)
{
	l->is_sure = r == 0;
	l->again_ns = UINT64_MAX;
	if (r == 0) {
		l->tries = 0;
		return 0;
	}
	if (r == -ESRCH)
		return r;
	if (++l->tries < TRIES_MAX) {
		scry_error_clear();
		l->again_ns = scry_now_ns() + AGAIN_NS * l->tries;
		return 0;
	}
	note_failure(l, r);
	l->tries = 0;
	l->is_due = false;
	return 0;
}

static int look_now(struct scry_hooks *h, struct scry_inject *inj, bool is_parked)
{
	struct scry_loads *l = h->loads;
	uint64_t arg = l->control->load_arg;
	bool is_held;
	int r;

	if (!is_parked)
		return judge(l, look(h, inj, false));
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
	return judge(l, r);
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
	struct scry_linkmap now;
	size_t fresh;
	int r = -EAGAIN;

	if (!l || !l->is_listening)
		return;
	set_loads(inj, 0);
	listen_no_more(l);
	answer(l, __atomic_load_n(&l->control->load_seq, __ATOMIC_SEQ_CST));
	for (unsigned int i = 0; i < TRIES_MAX && r == -EAGAIN; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
		r = scry_linkmap_read(inj->proc->pid, &h->mem, &now);
		if (r < 0)
			break;
		r = now.is_cut || now.is_changing ? -EAGAIN : take_over(h, inj, &now, &fresh);
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
	for (size_t i = 0; i < KEPT_MAX; i++)
		scry_text_free(l->kept[i].text);
	free(l);
	h->loads = NULL;
}
