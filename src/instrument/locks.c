/*
 * `scry locks -p PID | -- CMD`: threads that wait for mutexes and condition variables of glibc:
 * for which, where, how long.
 *
 * The functions that may wait are followed as `scry calls` does it (wire/shadow.h), with one
 * difference: a mutex that is free when it is asked for is passed by at the entry
 * (scry_agent_locked), without a record and without a changed return. What is left is joined here,
 * entry and return by the slot on the stack, and written as one WAIT event.
 *
 * A mutex that another thread takes between our look and the function's own is not seen: its waits
 * are missing. Others than glibc's are refused: their first word means something else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "agent/agent.h"
#include "base/err.h"
#include "base/map.h"
#include "base/text.h"
#include "hook/call_plans.h"
#include "hook/calling.h"
#include "hook/loads.h"
#include "hook/shadow.h"
#include "hook/threads.h"
#include "hook/thread_buffers.h"
#include "hook/unwind.h"
#include "instrument/functions.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"
#include "name/native_stacks.h"
#include "sys/stream.h"
#include "watch/ask.h"
#include "watch/loading.h"
#include "wire/call_ring.h"

#define WAIT_NS 150 /* what it adds to a wait, with its stack; bench/locks.md */
#define LAST_TURNS 50
#define LOCK_BITS 20 /* above them the number of the program that the pid runs */
#define LOCKS_MAX ((1u << LOCK_BITS) - 1)
#define SEARCHES_MAX 1024 /* of symbols, some 0.1 ms each; others are named by their object */
#define NESTED_MAX 8	  /* waits of one thread: in signal handlers */
#define ETIMEDOUT_ 110
#define EOWNERDEAD_ 130 /* it has the mutex */

_Static_assert(offsetof(struct scry_agent_data, tracking.tid_offset) == 184, "agent/shadow.S");

/* What may wait, and the registers that say for what. A mutex may be free: then it does not. */
static const struct waiting {
	const char *name;
	uint32_t args;
	bool is_condition;
} waitings[] = {
	{"pthread_mutex_lock", 1, false},      {"pthread_mutex_timedlock", 1, false},
	{"pthread_mutex_clocklock", 1, false}, {"pthread_cond_wait", 2, true},
	{"pthread_cond_timedwait", 2, true},   {"pthread_cond_clockwait", 2, true},
};
#define WAITINGS (sizeof(waitings) / sizeof(waitings[0]))

/* The mutex as it was at the entry: struct __pthread_mutex_s of glibc, bits/struct_mutex.h. */
struct mutex {
	uint32_t lock, count, owner, users, kind, spins;
};
#define KIND_TYPES 3u
#define KIND_ROBUST 16u
#define KIND_INHERITS 32u
#define KIND_CEILING 64u
#define KIND_SHARED 128u

struct wait { /* that has begun */
	uint64_t slot, tick;
	uint64_t stack; /* number of scry_native_stacks; 0: none */
	uint32_t function, lock, owner;
};

struct thread {
	uint64_t called_slot, called; /* the stack of the entry that comes on that slot */
	uint32_t count;
	struct wait waits[NESTED_MAX];
};

struct locks {
	struct scry_watch *watch;
	struct scry_hooks hooks;
	size_t first; /* request that is ours */
	struct scry_patch_functions functions;
	struct scry_call_plans plans;
	const struct scry_shadow_stats *stats; /* one, the sum */
	struct scry_thread_buffers *buffers;
	struct scry_stream *stream;
	struct scry_unwinding unwinding;
	struct scry_modules *native;
	struct scry_native_stacks *stacks;
	struct scry_map numbers; /* address -> lock */
	uint32_t searches;
	struct scry_loading_look look;
	uint64_t bad, strange, crowded;
	size_t sleepers; /* threads that slept in a futex before */
	bool is_left;
};

static const struct waiting *waiting_of(const char *symbol)
{
	for (size_t i = 0; i < WAITINGS; i++)
		if (!strcmp(waitings[i].name, symbol))
			return &waitings[i];
	return NULL;
}

/* Of a mutex these words are recorded, too; the function reads them itself. */
static int add_plan(struct locks *l, const struct waiting *waiting)
{
	const struct scry_call_plan plan = {.entry = 1};
	const struct scry_fetch mutex = {.flags = SCRY_FETCH_SURE,
					 .length = SCRY_FETCH_FIXED,
					 .from = SCRY_AT_REGISTER,
					 .max = sizeof(struct mutex)};

	return scry_call_plans_add(&l->plans, waiting->is_condition ? NULL : &plan, &mutex);
}

/* What the stubs give to the agent. */
static int number_all(struct locks *l, struct scry_hooks *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];
		const struct waiting *waiting = waiting_of(row->symbol);
		uint32_t known = l->functions.count;
		int n, r = 0;

		if (row->to.kind != SCRY_HOOK_CALL || !row->way || !waiting)
			continue;
		n = scry_patch_number(&l->functions, row, SCRY_SHADOW_HOOKS_MAX);
		if (n >= 0 && (uint32_t)n == known)
			r = add_plan(l, waiting);
		if (n < 0 || r < 0)
			return n < 0 ? n : r;
		row->to.cookie =
			scry_call_cookie((uint32_t)n, waiting->args, !waiting->is_condition) |
			(row->spares_red_zone ? SCRY_SHADOW_RED_ZONE : 0);
	}
	return 0;
}

/* Libraries were loaded. */
static int renewed(struct scry_hooks *fresh, void *arg)
{
	struct locks *l = arg;
	int r = scry_loading_refuse(l->watch, fresh);

	if (r == 0)
		r = number_all(l, fresh);
	if (r == 0)
		r = scry_call_plans_write(&l->plans, l->watch->inj);
	return r ? r : scry_shadow_renew(l->watch->inj, &l->hooks, fresh);
}

/* A static program shows which libc it has by the names of what its mutexes wait with. */
static int check_libc(struct scry_hooks *h)
{
	struct scry_functions found = {0};
	bool is_glibc = true;

	if (h->objects.is_static)
		is_glibc = scry_symbols_find(&h->objects, "__lll_lock_wait", &found) == 0;
	scry_functions_done(&found);
	for (size_t i = 0; i < h->objects.count; i++)
		is_glibc &= !strstr(h->objects.objects[i].name, "ld-musl");
	return is_glibc ? 0
			: scry_fail(-ENOTSUP,
				    "process %d (%s): only mutexes of glibc are known, and it has "
				    "%s; fix: scry patch count 'pthread_*' says how often",
				    h->proc->pid, h->proc->comm,
				    h->objects.is_static ? "others, or none" : "musl's");
}

static int want_function(struct scry_hooks *h, const struct waiting *waiting, const char *library)
{
	const struct scry_hook_to to = {.kind = SCRY_HOOK_CALL,
					.handler = waiting->is_condition ? "scry_agent_timed"
									 : "scry_agent_locked"};
	char request[64];
	int r;

	snprintf(request, sizeof(request), "%s%s", waiting->name, library);
	r = scry_hooks_want(h, request, &to);
	if (r == -ENOENT) { /* it was not linked in, or this glibc has none yet */
		scry_error_clear();
		r = 0;
	}
	return r;
}

static int want(struct scry_hooks *h, void *arg)
{
	static const char *const shared[] = {"@libc.so.6", "@libpthread.so.0", NULL};
	static const char *const alone[] = {"", NULL};
	const char *const *library = h->objects.is_static ? alone : shared;
	struct locks *l = arg;
	int r = 0;

	if (!h->objects.is_static)
		r = check_libc(h);
	if (r == 0)
		r = scry_shadow_check(h); /* a stripped one has no names to know it by */
	if (r == 0 && h->objects.is_static)
		r = check_libc(h);
	h->waits = !h->objects.is_static;
	h->renewed = renewed;
	h->renewed_arg = l;
	if (r == 0)
		r = scry_shadow_want(h);
	l->first = h->request_count;
	for (; *library; library++)
		for (size_t i = 0; i < WAITINGS && r == 0; i++)
			r = want_function(h, &waitings[i], *library);
	return r ? r : scry_calling_want(h);
}

/* Words of the record at `words`, of `count` that are there; 0: it makes no sense. */
static size_t record_words(const struct locks *l, const uint64_t *words, size_t count)
{
	uint32_t args = scry_call_args(words[0]);
	size_t n = 2 + args;

	if (words[0] == SCRY_CALL_TIME)
		return 2;
	if (words[0] == SCRY_CALL_CALLED)
		return count >= SCRY_CALL_CALLED_WORDS ? SCRY_CALL_CALLED_WORDS : 0;
	if (words[0] == SCRY_CALL_STACK)
		return count >= SCRY_CALL_STACK_HEAD && words[3] <= SCRY_CALL_STACK_FRAMES &&
				       count >= SCRY_CALL_STACK_HEAD + words[3]
			       ? SCRY_CALL_STACK_HEAD + words[3]
			       : 0;
	if (words[0] <= SCRY_CALL_RUBY)
		return 0;
	if (args == SCRY_CALL_RETURN)
		return words[0] & SCRY_CALL_MORE || count < 3 ? 0 : 3;
	if (!args || scry_call_hook(words[0]) >= l->functions.count || count < n)
		return 0;
	if (!(words[0] & SCRY_CALL_MORE))
		return n;
	if (count == n || words[n] > SCRY_CALL_MORE_MAX || count < n + 1 + words[n])
		return 0;
	return n + 1 + words[n];
}

static void scan(void *arg, struct scry_stream_scan *scan)
{
	struct locks *l = arg;

	for (size_t i = 0, size; i < scan->count; i += size) {
		const uint64_t *words = scan->words + i;

		size = scan->count - i < 2 ? 0 : record_words(l, words, scan->count - i);
		if (!size) {
			l->bad++;
			return;
		}
		if (words[0] == SCRY_CALL_STACK)
			l->bad += scry_native_stacks_define(l->stacks, words[2],
							    words + SCRY_CALL_STACK_HEAD,
							    words[3]) == -EINVAL;
		else if (words[0] == SCRY_CALL_TIME)
			scan->tick = words[1];
		else
			scan->records[scan->found++] =
				(struct scry_stream_record){words[1], (uint32_t)i, (uint32_t)size};
	}
}

struct symbol { /* that covers an address */
	uint64_t address;
	struct scry_sym sym;
};

static int covers(const struct scry_sym *sym, void *arg)
{
	struct symbol *s = arg;

	if (sym->type != STT_OBJECT || s->address - sym->value >= sym->size)
		return 0;
	s->sym = *sym;
	return 1;
}

/* Does it lie in a segment of the object? .bss has no file to be known by. */
static bool is_within(const struct scry_object *o, uint64_t address)
{
	const Elf64_Phdr *p;

	for (size_t i = 0; (p = scry_elf_segment(o->elf, i)); i++)
		if (p->p_type == PT_LOAD && address - o->bias - p->p_vaddr < p->p_memsz)
			return true;
	return false;
}

static void put_string(struct scry_writer *w, const char *text, uint32_t *ret)
{
	if (text && scry_writer_string(w, text, strlen(text), ret) < 0)
		*ret = 0;
}

/* The variable that it is or lies in, where it is one of an object's. */
static void name_lock(struct locks *l, struct scry_ev_lock *ev)
{
	struct scry_writer *w = l->watch->writer;
	struct scry_linkmap *lm = &l->hooks.objects;

	for (size_t i = 0; i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];
		struct symbol s = {.address = ev->address - o->bias};

		if (scry_linkmap_open(lm, i) < 0 || !is_within(o, ev->address))
			continue;
		put_string(w, o->mapping ? o->mapping->path : o->name, &ev->module_str);
		ev->offset = s.address;
		if (l->searches++ < SEARCHES_MAX && scry_elf_each_symbol(o->elf, covers, &s) == 1) {
			put_string(w, s.sym.name, &ev->symbol_str);
			ev->offset = s.address - s.sym.value;
		}
		break;
	}
	scry_error_clear();
}

/* "robust recursive mutex", as it was made. */
static void put_kind(const struct locks *l, const struct mutex *m, struct scry_ev_lock *ev)
{
	static const char *const types[] = {"", "recursive ", "error-checking ", "adaptive "};
	/* glibc sets that bit of each robust one, too */
	const bool is_shared = m->kind & KIND_SHARED && !(m->kind & KIND_ROBUST);
	char text[96];

	snprintf(text, sizeof(text), "%s%s%s%s%smutex", is_shared ? "shared " : "",
		 m->kind & KIND_ROBUST ? "robust " : "",
		 m->kind & KIND_INHERITS ? "priority-inheriting " : "",
		 m->kind & KIND_CEILING ? "priority-ceiling " : "", types[m->kind & KIND_TYPES]);
	put_string(l->watch->writer, ev->is_condition ? "condition variable" : text, &ev->kind_str);
}

/* Its number, written when it is new; 0: there are too many, or it cannot be written. */
static uint32_t lock_of(struct locks *l, uint64_t address, bool is_condition, const struct mutex *m)
{
	uint64_t *number = scry_map_ref(&l->numbers, address);
	struct scry_ev_lock ev = {.pid = (uint32_t)l->watch->proc.pid,
				  .is_condition = is_condition,
				  .address = address};

	if (!number || *number)
		return number ? (uint32_t)*number : 0;
	ev.lock = (l->watch->image & 255) << LOCK_BITS | (uint32_t)l->numbers.count;
	*number = ev.lock;
	name_lock(l, &ev);
	put_kind(l, m, &ev);
	return scry_writer_payload(l->watch->writer, &(struct scry_event){.type = SCRY_EVENT_LOCK},
				   &ev, sizeof(ev)) == 0
		       ? ev.lock
		       : 0;
}

struct ending {
	uint64_t tick;
	enum scry_wait_how how;
};

/* The wait is over, and is the thread's no more. */
static int end_wait(struct locks *l, const struct scry_stream_thread *thread, uint32_t at,
		    const struct ending *end)
{
	struct thread *own = thread->own;
	const struct wait one = own->waits[at];
	const struct scry_event head = {.time_ns = scry_stream_time(l->stream, end->tick),
					.tid = thread->tid,
					.type = SCRY_EVENT_WAIT};
	struct scry_ev_wait ev = {.lock = one.lock,
				  .pid = (uint32_t)l->watch->proc.pid,
				  .owner = one.owner,
				  .how = end->how};

	own->count--;
	memmove(own->waits + at, own->waits + at + 1, (own->count - at) * sizeof(one));
	if (!one.lock) {
		l->crowded++;
		return 0;
	}
	if (end->how != SCRY_WAIT_LEFT && end->tick > one.tick)
		ev.duration_ns = scry_stream_length(l->stream, end->tick - one.tick);
	ev.stack = scry_native_stacks_write(l->stacks, one.stack, l->watch->writer);
	put_string(l->watch->writer, l->functions.list[one.function].symbol, &ev.function_str);
	l->watch->events++;
	return scry_writer_payload(l->watch->writer, &head, &ev, sizeof(ev));
}

static enum scry_wait_how how_of(uint64_t rax)
{
	switch ((uint32_t)rax) {
	case 0:
	case EOWNERDEAD_:
		return SCRY_WAIT_DONE;
	case ETIMEDOUT_:
		return SCRY_WAIT_TIMED_OUT;
	default:
		return SCRY_WAIT_FAILED;
	}
}

static int begin_wait(struct locks *l, const struct scry_stream_thread *thread,
		      const struct scry_stream_record *rec)
{
	const uint64_t *words = scry_stream_words_of(thread, rec);
	const uint32_t args = scry_call_args(words[0]), function = scry_call_hook(words[0]);
	const bool is_condition = waiting_of(l->functions.list[function].symbol)->is_condition;
	const size_t at = 2 + args + 1 + sizeof(struct scry_call_part) / sizeof(*words);
	struct thread *own = thread->own;
	struct mutex m = {0};
	struct wait *one;
	int r = 0;

	if (words[0] & SCRY_CALL_MORE && rec->count >= at + sizeof(m) / sizeof(*words))
		memcpy(&m, words + at, sizeof(m));
	if (own->count == NESTED_MAX)
		r = end_wait(l, thread, 0, &(struct ending){rec->tick, SCRY_WAIT_LEFT});
	one = &own->waits[own->count++];
	*one = (struct wait){.slot = scry_call_slot(words[0]),
			     .tick = rec->tick,
			     .function = function,
			     .owner = m.owner,
			     .lock = lock_of(l, words[2], is_condition, &m)};
	if (own->called_slot == one->slot)
		one->stack = own->called;
	own->called_slot = 0;
	return r;
}

/* An entry on a slot where a wait is: by a tail call it is the same wait, as of an old version of
 * pthread_cond_wait that calls the new one; else that one was left. */
static int take(struct locks *l, const struct scry_stream_thread *thread,
		const struct scry_stream_record *rec)
{
	const uint64_t *words = scry_stream_words_of(thread, rec);
	const uint64_t slot = scry_call_slot(words[0]);
	const bool is_return = scry_call_args(words[0]) == SCRY_CALL_RETURN;
	struct thread *own = thread->own;
	struct ending end = {rec->tick, SCRY_WAIT_LEFT};
	uint32_t i = own->count;
	int r = 0;

	if (words[0] == SCRY_CALL_CALLED) {
		own->called = words[2];
		own->called_slot = words[3];
		return 0;
	}
	while (i && own->waits[i - 1].slot != slot)
		i--;
	if (i && !is_return && words[0] & SCRY_CALL_TAIL)
		return 0;
	if (is_return)
		end.how = how_of(words[2]);
	if (i)
		r = end_wait(l, thread, i - 1, &end);
	else if (is_return)
		l->strange++;
	if (!is_return && r == 0)
		r = begin_wait(l, thread, rec);
	return r;
}

/* All are reported, whatever becomes of one. */
static ssize_t give(void *arg, struct scry_stream_thread *thread,
		    const struct scry_stream_record *records, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count; i++) {
		int e = take(arg, thread, &records[i]);

		r = r ? r : e;
	}
	return r < 0 ? r : (ssize_t)count;
}

/* A thread that is cancelled or ends while it waits has left; what was not seen to end goes on. */
static int close_waits(void *arg, struct scry_stream_thread *thread)
{
	struct locks *l = arg;
	const struct thread *own = thread->own;
	const struct ending end = {scry_stream_now(l->stream), l->is_left || l->watch->target_gone
								       ? SCRY_WAIT_OPEN
								       : SCRY_WAIT_LEFT};
	int r = 0;

	while (own->count && r == 0)
		r = end_wait(l, thread, own->count - 1, &end);
	return r;
}

static const struct scry_stream_kind kind = {
	.scan = scan, .give = give, .ended = close_waits, .own_bytes = sizeof(struct thread)};

static int prepare(struct scry_watch *w)
{
	struct locks *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	w->state = l;
	l->watch = w;
	w->image = scry_watch_next_part(w, (uint32_t)w->proc.pid);
	if (!w->held) /* before any thread is woken to be held */
		l->sleepers = scry_proc_tasks_in(w->proc.pid, SYS_futex);
	scry_map_init(&l->numbers, LOCKS_MAX);
	l->stream = scry_stream_new(&kind, l);
	l->native = scry_modules_new(w->proc.pid);
	l->stacks = l->native ? scry_native_stacks_new(l->native) : NULL;
	r = l->stream && l->stacks ? scry_loading_plan(w, &l->hooks, want, l) : -ENOMEM;
	if (r == 0)
		r = scry_shadow_refuse(&l->hooks);
	if (r == 0)
		r = number_all(l, &l->hooks);
	w->near = l->hooks.objects.brk;
	for (size_t i = l->hooks.count; i-- > 0;)
		if (l->hooks.rows[i].to.kind == SCRY_HOOK_CALL)
			w->near = l->hooks.rows[i].address;
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct locks *l = w->state;

	scry_patch_describe(&l->hooks, out);
	fprintf(out, "  change      the return addresses of these functions, while they wait\n");
}

static int start_recording(struct scry_watch *w, struct locks *l)
{
	const uint64_t *depth = w->opts->instrument_opts;
	int r = scry_threads_start(w->inj, &w->channel, w->held, SCRY_CALL_TIME);

	if (r == 0)
		r = scry_thread_buffers_new(w->channel.control, w->channel.ring, w->proc.pid, false,
					    &l->buffers);
	if (r == 0)
		scry_thread_buffers_ask(l->buffers, scry_threads_tid, w->inj);
	if (r == 0)
		r = scry_shadow_start(w->inj, w->held, &l->hooks, &l->stats);
	if (r == 0)
		r = scry_shadow_record(w->inj, 0);
	l->unwinding.user = SCRY_USER_CALLS;
	l->unwinding.modules = l->native;
	if (r == 0 && *depth)
		r = scry_unwind_start(&l->unwinding, w->inj, w->held, (uint32_t)*depth);
	if (r == 0)
		r = scry_call_plans_write(&l->plans, w->inj);
	return r == 0 ? scry_threads_record(w->inj, &w->channel, true) : r;
}

/* Whose waits are not seen, as they began before. */
static void note_sleepers(struct scry_watch *w)
{
	const size_t n = ((struct locks *)w->state)->sleepers;

	if (n)
		scry_watch_note(w,
				"%zu thread%s slept in a lock, a condition variable or another "
				"futex before scry came: what %s for is not seen, and they may "
				"be idle or deadlocked; fix: gdb -p %d -batch -ex 'thread apply "
				"all bt', or scry dump of a Ruby",
				n, scry_text_s(n), n == 1 ? "it waits" : "they wait", w->proc.pid);
}

static int enter(struct scry_watch *w)
{
	struct locks *l = w->state;
	int r = start_recording(w, l);

	if (r < 0)
		return r;
	scry_stream_look(l->stream);
	note_sleepers(w);
	if (scry_watch_is_late(w))
		scry_watch_came_late(w);
	r = scry_loading_put_on(w, &l->hooks);
	if (r == 0)
		r = scry_shadow_follow(w->inj);
	if (r == 0)
		scry_patch_report_refused(w, &l->hooks, "watched");
	return r;
}

static void turn(struct scry_watch *w)
{
	struct locks *l = w->state;

	if (scry_loads_turn(&l->hooks, w->inj) < 0 ||
	    scry_shadow_go_on(w->inj, &l->hooks) < 0) /* gone: the keeper sees it by itself */
		scry_error_clear();
	if (!w->target_gone && !l->is_left)
		scry_loading_look(w, &l->hooks, &l->look);
}

static int drain(struct scry_watch *w)
{
	struct locks *l = w->state;
	struct scry_thread_buffers_taken taken = {0};
	int r;

	if (!l->buffers)
		return 0;
	if (l->is_left || w->target_gone)
		scry_thread_buffers_end(l->buffers);
	else
		scry_unwind_turn(&l->unwinding);
	r = scry_thread_buffers_take(l->buffers, scry_stream_add, l->stream, &taken);
	if (scry_native_stacks_is_new(l->stacks)) {
		scry_modules_see(l->native);
		scry_native_stacks_look(l->stacks);
	}
	scry_stream_look(l->stream);
	if (r == 0)
		r = scry_stream_merge(l->stream, taken.watermark, SIZE_MAX);
	return r < 0 ? r : taken.fill;
}

/* No new waits; those that have no room go on; then returns lead home again, also of threads that
 * sleep. */
static void leave(struct scry_watch *w)
{
	struct locks *l = w->state;

	w->wake_fd = 0;
	if (!l->buffers)
		return;
	scry_shadow_pause(w->inj);
	for (int i = 0; i < LAST_TURNS && drain(w) >= 100; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	scry_threads_record(w->inj, &w->channel, false);
	scry_loads_end(&l->hooks, w->inj);
	if (l->stats)
		scry_shadow_leave(w->inj); /* not now: leaving tries again */
	scry_error_clear();
	l->is_left = true;
}

static int finish(struct scry_watch *w)
{
	struct locks *l = w->state;
	struct scry_thread_buffers_stats buffers;
	char lacks[512];
	int r, e;

	if (!l->buffers)
		return 0;
	l->is_left = true;
	r = drain(w);
	e = scry_stream_each(l->stream, close_waits, l);
	scry_thread_buffers_stats(l->buffers, &buffers);
	w->cost_ns = w->events * WAIT_NS;
	w->errors += buffers.bad + l->bad + l->strange;
	scry_watch_lost(w, w->channel.control->lost,
			"entries and returns that found no room, or no keeper that took them");
	scry_watch_lost(w, w->channel.control->busy,
			"entries and returns in signal handlers that interrupted scry's own");
	scry_watch_lost(w, l->stats ? l->stats->missed : 0,
			"waits whose return could not be followed");
	scry_watch_lost(w, l->crowded, "waits for more locks than there is room for");
	scry_watch_buffers(w, buffers.waits);
	if (scry_unwind_lacks(&l->unwinding, lacks, sizeof(lacks)))
		scry_watch_note(w, "%s", lacks);
	scry_loading_report(w, &l->hooks);
	return r < 0 ? r : e;
}

static void done(struct scry_watch *w)
{
	struct locks *l = w->state;

	if (l) {
		scry_thread_buffers_free(l->buffers);
		scry_unwind_done(&l->unwinding);
		scry_hooks_close(&l->hooks);
		scry_patch_functions_done(&l->functions);
		scry_call_plans_done(&l->plans);
		scry_native_stacks_free(l->stacks);
		scry_modules_free(l->native);
		scry_stream_free(l->stream);
		scry_map_done(&l->numbers);
	}
	free(l);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_locks = {
	.name = "locks",
	.summary = "waits for mutexes and condition variables",
	.parts = SCRY_PART_CALLS,
	.channel = SCRY_CHANNEL_CALLS,
	.follows_exec = true,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.turn = turn,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};
