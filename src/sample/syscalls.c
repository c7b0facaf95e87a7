/* See syscalls.h. */
#include "sample/syscalls.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/map.h"
#include "probe/bpf.h"
#include "sample/processors.h"
#include "sample/syscall_lines.h"
#include "sample/syscall_perf.h"
#include "sample/syscall_programs.h"
#include "sample/syscall_sums.h"
#include "sys/container.h"
#include "sys/descendant_table.h"
#include "sys/proc.h"
#include "sys/task.h"

#define OWN_INSTANCES 65536u /* numbers below are given by us, others by the kernel's side */
#define YOUNG_NS 100000000u
#define YOUNG_WAIT_NS 1000000u
#define TURN_MAX_NS 50000000u
#define PRUNE_NS 1000000000u
#define CLOCKS 1 /* number of these attachments */
#define COST_ROUNDS 40
#define COST_CALLS 250
#define STACKS_A_SECOND 1000u
#define ENDED_MAX 256u /* threads whose sums wait in the kernel */
#define TAKE_NS 1000000000u
#define GONE_AT_ONCE 1024u
#define MUCH_PART 8 /* of the kernel's room: from there on it may be full soon */

SCRY_BPF_OBJECT(syscalls);

struct scry_syscalls_watch {
	struct scry_syscalls_watch_opts opts;
	struct scry_bpf *bpf;		/* NULL with perf */
	struct scry_syscall_perf *perf; /* NULL: eBPF is permitted */
	struct scry_syscall_programs *programs;
	struct scry_syscall_lines *lines;
	struct scry_syscall_sums *sums;
	struct scry_processors processors; /* how their clocks go */
	struct scry_map members;	   /* pid -> instance: those that are counted, and live */
	uint32_t instances;
	uint32_t first_pid;
	bool is_from_exec;
	uint64_t children;	   /* that were there already, and are not watched */
	uint64_t inside, unplaced; /* with perf: ticks in system calls; without a row */
	uint64_t began_ns, cpu_began_ns, youngest_ns, before_ns, pruned_ns, turn_until_ns, took_ns,
		take_rest_ns;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t = {0};

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t scry_syscalls_cost_ns(void)
{
	uint64_t least = UINT64_MAX;

	for (int round = 0; round < COST_ROUNDS; round++) {
		uint64_t began = clock_ns(CLOCK_MONOTONIC), ns;

		for (int i = 0; i < COST_CALLS; i++)
			syscall(SYS_getppid);
		ns = (clock_ns(CLOCK_MONOTONIC) - began) / COST_CALLS;
		least = ns < least ? ns : least;
	}
	return least;
}

/* --- what comes ------------------------------------------------------------------------------ */

static bool still(void *arg, pid_t pid, uint32_t instance)
{
	struct scry_syscalls_watch *w = arg;
	const uint32_t key = (uint32_t)pid;
	struct scry_syscalls_member m;

	if (w->perf)
		return scry_syscall_perf_runs(w->perf, pid, instance);
	return scry_bpf_get(w->bpf, "tree", &key, &m) == 0 && m.instance == instance;
}

static void name_thread(void *arg, struct scry_syscall_thread *t)
{
	char name[sizeof(t->name)];

	scry_task_name((pid_t)t->pid, (pid_t)t->tid, name, sizeof(name));
	if (still(arg, (pid_t)t->pid, t->instance))
		memcpy(t->name, name, sizeof(name));
}

static void add_instance(struct scry_syscalls_watch *w, uint32_t instance, pid_t pid,
			 uint32_t parent)
{
	scry_syscall_programs_add(w->programs, instance, pid, parent);
	scry_syscall_lines_add(w->lines, instance, pid, parent);
}

static void ended(struct scry_syscalls_watch *w, uint32_t instance)
{
	scry_syscall_programs_ended(w->programs, instance);
	scry_syscall_lines_ended(w->lines, instance);
}

/* By exec: all threads of the old instance are gone. */
static void replaced(struct scry_syscalls_watch *w, const struct scry_syscalls_record *r)
{
	scry_syscall_sums_replaced(w->sums, r->other);
	scry_syscall_programs_replaced(w->programs, r->other);
	scry_syscall_lines_ended(w->lines, r->other);
}

/* The places of an instance are reported before its end is, but in another ring. */
static void on_news(struct scry_syscalls_watch *w, const struct scry_syscalls_record *r)
{
	if (r->kind == SCRY_SYSCALLS_ENDED) {
		scry_syscall_sums_ended(w->sums, r);
		if (!r->is_last)
			return;
		ended(w, r->instance);
		scry_map_remove(&w->members, r->pid, NULL);
		return;
	}
	w->youngest_ns = clock_ns(CLOCK_MONOTONIC);
	scry_map_put(&w->members, r->pid, r->instance);
	if (r->kind == SCRY_SYSCALLS_EXECED)
		replaced(w, r);
	add_instance(w, r->instance, (pid_t)r->pid, r->kind == SCRY_SYSCALLS_FORKED ? r->other : 0);
}

static int give_news(void *arg, void *record, size_t size)
{
	const struct scry_syscalls_record *r = record;

	if (size < sizeof(*r))
		return -EPROTO;
	on_news(arg, r);
	return 0;
}

/* A program may report places faster than they are named: others have their turn, too. */
static int is_long(const struct scry_syscalls_watch *w)
{
	return clock_ns(CLOCK_MONOTONIC) > w->turn_until_ns ? -ECANCELED : 0;
}

static int give_place(void *arg, void *record, size_t size)
{
	struct scry_syscalls_watch *w = arg;
	const struct scry_syscalls_record *r = record;
	uint32_t site;

	if (size < sizeof(*r))
		return -EPROTO;
	add_instance(w, r->instance, (pid_t)r->pid, r->other);
	site = r->kind == SCRY_SYSCALLS_PLACE && size >= sizeof(struct scry_syscalls_place)
		       ? scry_syscall_sums_place(w->sums, record)
		       : scry_syscall_sums_site(w->sums, &r->key, r->pid);
	if (!site)
		return is_long(w);
	if (r->kind == SCRY_SYSCALLS_STACK && size >= sizeof(struct scry_syscalls_stack)) {
		scry_syscall_sums_file(w->sums, site,
				       &((const struct scry_syscalls_stack *)record)->file);
		scry_syscall_sums_stack(
			w->sums, site, scry_syscall_programs_stack(w->programs, record), r->weight);
		if (scry_syscall_lines_is_ruby(w->lines, r->instance))
			scry_syscall_sums_ruby(w->sums, site, r->weight);
		scry_syscall_lines_see(w->lines, record);
	} else if (r->kind == SCRY_SYSCALLS_LINES && size >= sizeof(struct scry_syscalls_lines)) {
		scry_syscall_sums_line(w->sums, site, scry_syscall_lines_stack(w->lines, record),
				       r->weight);
	} else if (r->kind == SCRY_SYSCALLS_PATH_ABSENT &&
		   size >= sizeof(struct scry_syscalls_path))
		scry_syscall_sums_path(w->sums, site,
				       ((const struct scry_syscalls_path *)record)->path,
				       r->weight);
	return is_long(w);
}

static void news_of_perf(void *arg, const struct scry_syscalls_record *r)
{
	on_news(arg, r);
}

/* Which call it is, and whether it is one, the code says that made it. */
static void tick_of_perf(void *arg, struct scry_syscall_tick *t)
{
	struct scry_syscalls_watch *w = arg;
	struct scry_syscalls_key *key = &t->stack.head.key;
	struct scry_syscall_number n = {.code = SCRY_SYSCALL_CODE_32};

	if (!t->is_compat) {
		add_instance(w, key->instance, (pid_t)t->stack.head.pid, 0);
		n = scry_syscall_programs_number(w->programs, &t->stack);
	}
	if (!t->is_sure && n.code < SCRY_SYSCALL_CODE_64)
		return;
	key->abi = n.code == SCRY_SYSCALL_CODE_32 ? SCRY_ABI_32 : SCRY_ABI_64;
	key->number = n.is_known ? n.number : SCRY_SYSCALLS_UNKNOWN;
	w->inside++;
	give_place(w, &t->stack, sizeof(t->stack)); /* first: then it is known whose thread it is */
	w->unplaced += !scry_syscall_sums_tick(w->sums, key);
}

/* --- life ------------------------------------------------------------------------------------ */

static int leave_out(struct scry_syscalls_watch *w)
{
	int err = w->opts.exact ? 0 : scry_bpf_leave_out(w->bpf, "syscalls_exit");

	if (!err && !w->opts.exact)
		err = scry_bpf_leave_out(w->bpf, "syscalls_signal");
	if (!err && !w->opts.latency)
		err = scry_bpf_leave_out(w->bpf, "syscalls_enter");
	if (!err)
		err = scry_bpf_map_entries(w->bpf, w->opts.latency ? "sums" : "timed", 1);
	return err;
}

static int load(struct scry_syscalls_watch *w)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const struct scry_syscalls_setup setup = {
		.pid_ns = scry_container_pid_ns(),
		.follows = w->opts.follows,
		.exact = w->opts.exact,
		.latency = w->opts.latency,
		.stack_every_ns =
			(uint32_t)(1000000000u / STACKS_A_SECOND * (uint32_t)(cpus > 0 ? cpus : 1)),
	};
	const uint32_t zero = 0, first = OWN_INSTANCES;
	int err = scry_bpf_open(SCRY_BPF(syscalls), &w->bpf);

	if (!err)
		err = scry_bpf_constant(w->bpf, "scry_setup", &setup, sizeof(setup));
	if (!err)
		err = leave_out(w);
	if (!err)
		err = scry_bpf_load(w->bpf);
	if (!err)
		err = scry_bpf_set(w->bpf, "instances", &zero, &first);
	if (!err) /* first: what there is, is known when places are reported */
		err = scry_bpf_ring(w->bpf, "news", give_news, w);
	if (!err)
		err = scry_bpf_ring(w->bpf, "places", give_place, w);
	if (err) {
		scry_bpf_close(w->bpf);
		w->bpf = NULL;
	}
	return err;
}

/* A note says what eBPF lacks; and, where that does not go either, what perf does. */
static int load_perf(struct scry_syscalls_watch *w)
{
	const struct scry_syscall_perf_opts opts = {
		.period_ns = scry_processors_period(w->opts.rate),
		.follows = w->opts.follows,
		.first_instance = OWN_INSTANCES,
		.news = news_of_perf,
		.tick = tick_of_perf,
		.arg = w,
	};
	int err;

	scry_log_detail("%s", scry_error());
	scry_error_clear();
	err = scry_syscall_perf_open(&opts, &w->perf);
	if (!err)
		scry_log_say("eBPF is not permitted here: sampled by perf events, with a clock for "
			     "each thread");
	return err;
}

int scry_syscalls_watch_open(const struct scry_syscalls_watch_opts *opts,
			     struct scry_syscalls_watch **ret)
{
	struct scry_syscalls_watch *w = calloc(1, sizeof(*w));
	int err = 0;

	if (!w)
		return scry_no_memory("system calls");
	w->opts = *opts;
	w->opts.exact |= opts->latency;
	scry_map_init(&w->members, SCRY_SYSCALLS_TASKS);
	w->programs = scry_syscall_programs_new(opts->writer, still, w);
	if (w->programs)
		w->sums = scry_syscall_sums_new(opts->writer, w->programs);
	if (!w->sums)
		err = scry_no_memory("system calls");
	if (!err)
		err = load(w);
	if ((err == -EPERM || err == -ENOTSUP) && !w->opts.exact)
		err = load_perf(w);
	if (!err && !(w->lines = scry_syscall_lines_new(opts->writer, w->bpf)))
		err = scry_no_memory("system calls");
	if (err)
		scry_syscalls_watch_close(w);
	else
		*ret = w;
	return err;
}

void scry_syscalls_watch_close(struct scry_syscalls_watch *w)
{
	if (!w)
		return;
	scry_syscall_lines_free(w->lines);
	scry_processors_done(&w->processors);
	scry_bpf_close(w->bpf);
	scry_syscall_perf_close(w->perf);
	scry_syscall_sums_free(w->sums);
	scry_syscall_programs_free(w->programs);
	scry_map_done(&w->members);
	free(w);
}

/* Its bit; in a pid namespace of our own the machine's numbers are not known: all. */
static int pass_filter(struct scry_syscalls_watch *w, uint32_t pid)
{
	const size_t size = SCRY_SYSCALLS_PIDS / 8;
	int map = scry_bpf_map_fd(w->bpf, "filter");
	uint64_t *words =
		map < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);

	if (words == MAP_FAILED)
		return -errno;
	if (scry_container_pid_ns())
		memset(words, 0xff, size);
	else
		__atomic_fetch_or(&words[pid / 64], 1ull << (pid % 64), __ATOMIC_RELAXED);
	munmap(words, size);
	return 0;
}

static int report_kernel(struct scry_syscalls_watch *w, uint32_t pid,
			 const struct scry_syscalls_member *m)
{
	int err = w->instances < OWN_INSTANCES ? scry_bpf_set(w->bpf, "tree", &pid, m) : -ENOSPC;

	if (!err)
		err = pass_filter(w, pid);
	return err ? scry_fail(err, "the kernel does not take process %d into its map: %s",
			       (int)pid, strerror(-err))
		   : 0;
}

int scry_syscalls_watch_add(struct scry_syscalls_watch *w, pid_t pid, bool from_exec)
{
	const struct scry_syscalls_member m = {.instance = from_exec ? 0 : ++w->instances};
	const uint32_t key = (uint32_t)pid;
	int err = w->perf ? scry_syscall_perf_add(w->perf, pid, m.instance)
			  : report_kernel(w, key, &m);

	if (err)
		return err;
	w->is_from_exec |= from_exec;
	if (!w->first_pid)
		w->first_pid = key;
	scry_map_put(&w->members, key, m.instance);
	add_instance(w, m.instance, pid, 0);
	return 0;
}

/* --- children that are there already --------------------------------------------------------- */

struct search {
	struct scry_syscalls_watch *w;
	size_t found;
	int err;
};

static bool has(const struct scry_syscalls_watch *w, pid_t pid)
{
	const uint32_t key = (uint32_t)pid;

	return w->perf ? scry_syscall_perf_has(w->perf, pid) : scry_bpf_has(w->bpf, "tree", &key);
}

static void meet(void *arg, pid_t pid)
{
	struct search *s = arg;
	struct scry_proc_stat st;

	if (s->err || has(s->w, pid) || scry_proc_stat(pid, &st) < 0 || !st.has_memory ||
	    !has(s->w, st.ppid))
		return;
	if (s->w->perf) /* one that was born since has its clock */
		s->err = scry_syscall_perf_take(s->w->perf, true);
	if (s->err || has(s->w, pid))
		return;
	s->found++;
	if (s->w->opts.follows)
		s->err = scry_syscalls_watch_add(s->w, pid, false);
	else
		s->w->children++;
}

static int find_children(struct scry_syscalls_watch *w)
{
	struct search s = {.w = w, .found = 1};

	while (s.found && !s.err) { /* a child may have been met before its parent */
		s.found = 0;
		scry_descendant_table_each_process(meet, &s);
		if (!w->opts.follows)
			break; /* they are only counted */
	}
	return s.err;
}

static int attach(struct scry_syscalls_watch *w)
{
	int err = scry_bpf_attach_own(w->bpf, "syscalls_forked");

	if (!err)
		err = scry_bpf_attach_own(w->bpf, "syscalls_execed");
	if (!err)
		err = scry_bpf_attach_own(w->bpf, "syscalls_ended");
	if (!err)
		err = find_children(w);
	if (!err && w->opts.exact)
		err = scry_bpf_attach_own(w->bpf, "syscalls_signal");
	if (!err && w->opts.exact)
		err = scry_bpf_attach_own(w->bpf, "syscalls_exit");
	if (!err && w->opts.latency)
		err = scry_bpf_attach_own(w->bpf, "syscalls_enter");
	if (!err)
		err = scry_processors_tick(w->bpf, "syscalls_tick",
					   scry_processors_period(w->opts.rate), CLOCKS,
					   &w->processors);
	return err;
}

int scry_syscalls_watch_begin(struct scry_syscalls_watch *w)
{
	scry_syscall_lines_turn(w->lines, false); /* what is to be learned, before time runs */
	w->before_ns = w->opts.exact ? scry_syscalls_cost_ns() : 0;
	w->cpu_began_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	w->began_ns = w->youngest_ns = clock_ns(CLOCK_MONOTONIC);
	return w->perf ? find_children(w) : attach(w);
}

/* --- turns ----------------------------------------------------------------------------------- */

/* Threads x places that the kernel has room for. */
static size_t room(const struct scry_syscalls_watch *w)
{
	return w->opts.latency ? SCRY_SYSCALLS_TIMED : SCRY_SYSCALLS_SUMS;
}

static int take(struct scry_syscalls_watch *w, bool all)
{
	const int map = scry_bpf_map_fd(w->bpf, w->opts.latency ? "timed" : "sums");

	size_t seen;

	if (map < 0)
		return map;
	seen = scry_syscall_sums_take(w->sums, map, w->opts.latency, all);
	/* to look at all of them takes time, of which a tenth is enough; not where they fill up */
	w->take_rest_ns =
		(clock_ns(CLOCK_MONOTONIC) - w->took_ns) * (seen > room(w) / MUCH_PART ? 1 : 10);
	return 0;
}

/* Ends may have been lost: a thread that is no longer in the kernel's map has ended. */
static void prune(struct scry_syscalls_watch *w)
{
	struct scry_map_slot slot, gone[GONE_AT_ONCE];
	size_t cursor = 0, count = 0;

	if (clock_ns(CLOCK_MONOTONIC) - w->pruned_ns < PRUNE_NS)
		return;
	while (count < GONE_AT_ONCE && scry_map_next(&w->members, &cursor, &slot)) {
		const uint32_t pid = (uint32_t)slot.key;

		if (!scry_bpf_has(w->bpf, "tree", &pid))
			gone[count++] = slot;
	}
	for (size_t i = 0; i < count; i++) {
		scry_map_remove(&w->members, gone[i].key, NULL);
		ended(w, (uint32_t)gone[i].value);
	}
	if (count < GONE_AT_ONCE) /* else the others with the next turn */
		w->pruned_ns = clock_ns(CLOCK_MONOTONIC);
}

/* When there are many, or some for long; and what they had been at was reported. */
static bool is_time_to_take(struct scry_syscalls_watch *w)
{
	const uint64_t now = clock_ns(CLOCK_MONOTONIC);
	const size_t waiting = scry_syscall_sums_waiting(w->sums);

	if (!waiting || now - w->took_ns < (waiting < ENDED_MAX ? TAKE_NS : w->take_rest_ns))
		return false;
	w->took_ns = now;
	return true;
}

/* No reader is woken for news. */
static int turn_perf(struct scry_syscalls_watch *w, uint64_t limit_ns)
{
	const uint64_t most = w->opts.follows ? YOUNG_WAIT_NS * 2 : limit_ns;
	int err;

	scry_syscall_perf_wait(w->perf, most < limit_ns ? most : limit_ns);
	err = scry_syscall_perf_take(w->perf, false);
	scry_syscall_programs_settle(w->programs);
	scry_syscall_lines_turn(w->lines, true);
	return err;
}

int scry_syscalls_watch_turn(struct scry_syscalls_watch *w, uint64_t limit_ns)
{
	struct pollfd fd = {.events = POLLIN};
	const uint64_t age = clock_ns(CLOCK_MONOTONIC) - w->youngest_ns;
	const uint64_t wait = age < YOUNG_NS && YOUNG_WAIT_NS < limit_ns ? YOUNG_WAIT_NS : limit_ns;
	const struct timespec limit = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
	int got;

	if (w->perf)
		return turn_perf(w, wait);
	fd.fd = scry_bpf_map_fd(w->bpf, "news");
	ppoll(&fd, 1, &limit, NULL);
	scry_processors_sway(&w->processors);
	w->turn_until_ns = clock_ns(CLOCK_MONOTONIC) + TURN_MAX_NS;
	got = scry_bpf_take(w->bpf);
	if (got < 0 && got != -ECANCELED)
		return scry_fail(got, "cannot read what the kernel has counted: %s",
				 strerror(-got));
	if (got >= 0) /* else records of what has ended may still come */
		scry_syscall_programs_settle(w->programs);
	scry_syscall_lines_turn(w->lines, got >= 0);
	prune(w);
	return got >= 0 && is_time_to_take(w) ? take(w, false) : 0;
}

bool scry_syscalls_watch_lives(const struct scry_syscalls_watch *w)
{
	return w->members.count != 0;
}

/* --- the end --------------------------------------------------------------------------------- */

static uint64_t sum(struct scry_syscalls_watch *w, uint32_t what)
{
	return w->perf ? 0 : scry_bpf_sum(w->bpf, "counters", what);
}

static uint32_t flags(const struct scry_syscalls_watch *w)
{
	return (w->opts.exact ? SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_VAIN_TICKS : 0) |
	       (w->opts.latency ? SCRY_SYSCALLS_LATENCY : 0) |
	       (w->opts.follows ? SCRY_SYSCALLS_FOLLOW : 0) | (w->perf ? SCRY_SYSCALLS_PERF : 0) |
	       (w->is_from_exec && !w->members.count ? SCRY_SYSCALLS_WHOLE : 0);
}

static void put(struct scry_syscalls_watch *w, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(
		w->opts.writer,
		&(struct scry_event){.time_ns = clock_ns(CLOCK_MONOTONIC), .type = type}, payload,
		size);
}

static void note_lines(struct scry_syscalls_watch *w)
{
	const char *text = scry_syscall_lines_note(w->lines);
	struct scry_ev_note ev = {0};

	if (!text)
		return;
	scry_writer_string(w->opts.writer, text, strlen(text), &ev.text_str);
	put(w, SCRY_EVENT_NOTE, &ev, sizeof(ev));
}

static void add_perf(const struct scry_syscalls_watch *w, struct scry_ev_syscalls *ev)
{
	const struct scry_syscall_perf_sums sums = scry_syscall_perf_sums(w->perf);

	ev->ticks = sums.ticks;
	ev->inside = w->inside;
	ev->unplaced = w->unplaced;
	ev->lost = sums.lost;
	ev->children += sums.children;
	ev->ran_ns = sums.ran_ns;
}

static void write_end(struct scry_syscalls_watch *w, const char *why, uint64_t watched_ns,
		      uint64_t with_ns)
{
	struct scry_ev_syscalls ev = {
		.flags = flags(w),
		.rate = w->opts.rate,
		.ticks = sum(w, SCRY_SYSCALLS_TICKS),
		.inside = sum(w, SCRY_SYSCALLS_INSIDE),
		.unplaced = sum(w, SCRY_SYSCALLS_UNPLACED),
		.calls = scry_syscall_sums_calls(w->sums) + sum(w, SCRY_SYSCALLS_NOWHERE),
		.nowhere = sum(w, SCRY_SYSCALLS_NOWHERE) + scry_syscall_sums_lost(w->sums),
		.exits = sum(w, SCRY_SYSCALLS_EXITS),
		.killed = sum(w, SCRY_SYSCALLS_KILLED),
		.lost = sum(w, SCRY_SYSCALLS_LOST),
		.strangers = sum(w, SCRY_SYSCALLS_STRANGE),
		.unnamed = scry_syscall_programs_unseen(w->programs),
		.children = w->children + sum(w, SCRY_SYSCALLS_CHILDREN),
		.line_samples = scry_syscall_sums_line_samples(w->sums),
		.watched_ns = watched_ns,
		.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - w->cpu_began_ns,
		.before_ns = w->before_ns,
		.with_ns = with_ns,
	};
	struct scry_ev_detach detach = {.pid = w->first_pid, .verified = 1};
	struct scry_ev_totals totals = {.pid = w->first_pid, .watched_ns = watched_ns};

	if (w->perf)
		add_perf(w, &ev);
	totals.events = w->opts.exact ? ev.calls : ev.inside;
	totals.lost = w->opts.exact ? ev.nowhere : ev.unplaced;
	put(w, SCRY_EVENT_SYSCALLS, &ev, sizeof(ev));
	note_lines(w);
	scry_writer_string(w->opts.writer, why, strlen(why), &detach.reason_str);
	put(w, SCRY_EVENT_DETACH, &detach, sizeof(detach));
	put(w, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
}

static int end_bpf(struct scry_syscalls_watch *w)
{
	int err;

	scry_processors_done(&w->processors);
	scry_bpf_detach(w->bpf);
	err = scry_bpf_take(w->bpf);
	return err < 0 ? err : take(w, true);
}

static int end_perf(struct scry_syscalls_watch *w)
{
	scry_syscall_perf_stop(w->perf);
	return scry_syscall_perf_take(w->perf, true);
}

int scry_syscalls_watch_end(struct scry_syscalls_watch *w, const char *why)
{
	const uint64_t with_ns = w->opts.exact ? scry_syscalls_cost_ns() : 0;
	const uint64_t watched_ns = clock_ns(CLOCK_MONOTONIC) - w->began_ns;
	int err;

	scry_syscall_sums_names(w->sums, name_thread, w); /* of threads that live */
	w->turn_until_ns = UINT64_MAX;			  /* no more come */
	err = w->perf ? end_perf(w) : end_bpf(w);
	scry_syscall_programs_report(w->programs);
	if (!err)
		err = scry_syscall_sums_write(w->sums);
	if (!err)
		write_end(w, why, watched_ns, with_ns);
	return err;
}
