/*
 * One watched process: in, counted, out, written. See session.h for the order.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>
#include <unistd.h>

#include "base/err.h"
#include "hook/agent_map.h"
#include "hook/enter_check.h"
#include "hook/leftovers.h"
#include "hook/own.h"
#include "base/text.h"
#include "watch/group.h"
#include "watch/hooked_children.h"
#include "watch/preload.h"
#include "watch/programs.h"
#include "watch/session.h"

#define CPU_TICKS_TRUSTED_NS 200000000ull
#define CONCLUDE_NS 3000000000ull  /* watch.h: so long one takes */
#define LEARNING_NS 20000000000ull /* to learn and rehearse a Ruby that is not known yet */

void scry_send_news(const struct scry_session *s, enum scry_news kind, int value, const char *text)
{
	struct scry_news_head head = {.kind = kind, .value = value, .size = (uint32_t)strlen(text)};
	struct iovec parts[] = {{&head, sizeof(head)}, {(void *)(uintptr_t)text, head.size}};
	const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	/* in one: the front waits for the rest of what has begun */
	sendmsg(s->fd, &message, MSG_NOSIGNAL);
}

static uint32_t watch_string(const struct scry_watch *w, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(w->writer, text, strlen(text), &id);
	return id;
}

static void watch_event(const struct scry_watch *w, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(w->writer, &(struct scry_event){.time_ns = scry_now_ns(), .type = type},
			    payload, size);
}

void scry_watch_note_of(struct scry_watch *w, bool is_cost, const char *fmt, ...)
{
	struct scry_ev_note note = {.is_cost = is_cost};
	char text[512];
	va_list ap;
	int n = 0;

	if (w->proc.pid && w->session->entered > 1) /* which one */
		n = snprintf(text, sizeof(text), "process %d: ", w->proc.pid);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	note.text_str = watch_string(w, text);
	watch_event(w, SCRY_EVENT_NOTE, &note, sizeof(note));
}

void scry_watch_buffers(struct scry_watch *w, uint64_t waits)
{
	scry_watch_lost(w, w->channel.control->foreign,
			"made by threads whose thread pointer is not the C library's");
	if (waits)
		scry_watch_note(w,
				"threads waited %llu time%s until their calls were taken, as they "
				"made them faster than scry takes them: the program took longer "
				"than the overhead says",
				(unsigned long long)waits, scry_text_s(waits));
}

/* No processor meets more than one event a nanosecond. */
static bool can_be_lost(const struct scry_watch *w, uint64_t count)
{
	const long cpus = sysconf(_SC_NPROCESSORS_CONF);

	return count / (uint64_t)(cpus > 0 ? cpus : 1) <= scry_now_ns() - w->began_ns;
}

void scry_watch_lost(struct scry_watch *w, uint64_t count, const char *why)
{
	struct scry_ev_lost lost = {.count = count};
	char text[128];

	if (!count)
		return;
	/* it is the target's word: what others have lost is not to drown in it */
	if (!can_be_lost(w, count)) {
		snprintf(text, sizeof(text), "process %d says that it lost more than can have been",
			 w->proc.pid);
		scry_watch_lost_some(w, text);
		return;
	}
	w->lost += count;
	lost.why_str = watch_string(w, why);
	watch_event(w, SCRY_EVENT_LOST, &lost, sizeof(lost));
}

void scry_watch_lost_some(struct scry_watch *w, const char *why)
{
	const struct scry_ev_lost lost = {.why_str = watch_string(w, why)};

	watch_event(w, SCRY_EVENT_LOST, &lost, sizeof(lost));
}

struct scry_watch *scry_watch_new(struct scry_session *s)
{
	struct scry_watch *w = s->count < SCRY_WATCHES_MAX ? calloc(1, sizeof(*w)) : NULL;

	if (!w) {
		scry_fail(-ENOMEM, "no room to watch more than %d processes at once",
			  SCRY_WATCHES_MAX);
		return NULL;
	}
	w->opts = &s->sections[0].opts;
	w->instrument = s->sections[0].instrument;
	w->writer = s->writer;
	w->session = s;
	w->proc.pidfd = -1;
	w->execs.fd = -1;
	w->own = (struct scry_inject){.lock = -1, .mem.fd = -1};
	w->inj = &w->own;
	s->watches[s->count++] = w;
	return w;
}

void scry_watch_free(struct scry_watch *w)
{
	struct scry_session *s = w->session;

	while (w->other_count)
		scry_watch_free(w->others[w->other_count - 1]);
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i] == w)
			s->watches[i] = s->watches[--s->count];
	if (w->first)
		w->first->other_count--; /* the newest one goes first */
	if (w->state)
		w->instrument->done(w);
	if (w->pool.head)
		scry_heartbeat_forget(s->heartbeat, scry_pool_control(&w->pool, 0));
	if (w->channel.control && !w->root) /* a child's lies in that pool */
		scry_heartbeat_forget(s->heartbeat, w->channel.control);
	scry_pool_close(&w->pool);
	scry_pool_close(&w->pages);
	scry_execs_close(&w->execs);
	scry_inject_done(&w->own);
	scry_proc_close(&w->proc);
	free(w);
}

static void audit(const struct scry_watch *w, const char *what, const struct scry_undo_report *undo)
{
	syslog(LOG_NOTICE,
	       "%s: uid %u %s process %d (%s): %llu bytes changed, longest pause %llu us, undo %s",
	       what, getuid(), w->instrument->name, w->proc.pid, scry_text_shown(w->proc.comm).text,
	       (unsigned long long)w->inj->edit.bytes_changed,
	       (unsigned long long)w->inj->pause_max_ns / 1000,
	       !undo			       ? "pending"
	       : undo->failed || undo->foreign ? "INCOMPLETE"
					       : "verified");
}

/* Is the address space still the one that was entered? After an exec nothing of ours is left in it.
 */
bool scry_watch_has_execed(struct scry_watch *w)
{
	uint64_t magic;

	return scry_mem_u64(&w->inj->mem, w->inj->header.text, &magic) < 0 ||
	       magic != SCRY_AGENT_MAGIC;
}

void scry_watch_lease(struct scry_watch *w)
{
	const struct scry_session *s = w->session;

	if (w->pool.head)
		scry_pool_lease(&w->pool, s->lease_tsc, s->lease_end_tsc);
	if (!w->channel.control || w->root)
		return;
	w->channel.control->lease_end_tsc = s->lease_end_tsc;
	__atomic_store_n(&w->channel.control->lease_tsc, s->lease_tsc, __ATOMIC_RELEASE);
}

void scry_watch_conclude(struct scry_watch *w)
{
	if (!w->instrument->conclude)
		return;
	scry_session_lease(w->session, CONCLUDE_NS); /* else what comes of it is lost */
	w->instrument->conclude(w);
}

int scry_watch_keep_fresh(struct scry_watch *w)
{
	const struct scry_heartbeat_controls own = {w->channel.control, 0, 1};
	int r = own.first ? scry_heartbeat_keep(w->session->heartbeat, &own) : 0;

	if (r < 0 || !w->pool.head)
		return r;
	return scry_heartbeat_keep(w->session->heartbeat,
				   &(struct scry_heartbeat_controls){scry_pool_control(&w->pool, 0),
								     SCRY_CHILD_BUFFER_BYTES,
								     SCRY_CHILD_BUFFERS});
}

void scry_watch_introduce(struct scry_watch *w)
{
	struct scry_section *section = &w->session->sections[w->section];
	const struct scry_agent_header *h = &w->inj->header;
	struct scry_ev_process p = {.pid = (uint32_t)w->proc.pid,
				    .uid = w->proc.uid,
				    .start_ticks = w->proc.start_ticks};
	struct scry_ev_attach at = {.pid = (uint32_t)w->proc.pid,
				    .threads = (uint32_t)w->proc.threads,
				    .agent_address = h->text,
				    .agent_bytes = scry_agent_bytes(h),
				    .bytes_changed = w->inj->edit.bytes_changed};

	if (section->own == SCRY_OWN_MAX)
		return;
	p.exe_str = watch_string(w, w->proc.exe);
	p.runtime_str = w->runtime ? watch_string(w, w->runtime) : 0;
	watch_event(w, SCRY_EVENT_PROCESS, &p, sizeof(p));
	watch_event(w, SCRY_EVENT_ATTACH, &at, sizeof(at));
	w->is_own = true;
	section->own++;
	audit(w, "attach", NULL);
}

/* From here on fork children find child buffers. Without a pool the process is watched all the
 * same. */
static void open_pool(struct scry_watch *w)
{
	struct scry_watch *one;

	if (!w->opts->follow)
		return;
	for (size_t i = 0; (one = scry_group_at(w, i)); i++)
		if (!one->instrument->adopt)
			return;
	if (scry_pool_open(&w->pool, w->inj, w->held) < 0) {
		scry_watch_note(w, "fork children of process %d are not watched: %s", w->proc.pid,
				scry_error());
		scry_error_clear();
	}
}

/* Each instrument has a ring, and so has each child: what they may fill is bounded by the control
 * group's limit, beyond which the kernel ends one of its processes. */
static int bound_rings(struct scry_watch *w)
{
	const uint32_t instruments = (uint32_t)scry_group_count(w);
	uint64_t left;
	uint32_t most;
	int r;

	if (instruments == 1 && !w->pool.head) /* that was asked for before it was entered */
		return 0;
	r = scry_agent_room(w->proc.pid, instruments, &left);
	if (r < 0 || !w->pool.head)
		return r;
	most = scry_pool_bound(&w->pool, instruments, left);
	if (most < SCRY_CHILD_BUFFERS / instruments - (instruments > 1))
		scry_watch_note(w,
				"of the fork children of process %d no more than %u are watched at "
				"a time, as the rings of more could fill the memory that its "
				"control group has left; fix: a higher memory.max, or fewer "
				"instruments",
				w->proc.pid, most);
	return 0;
}

/* Pages, leases, and what is counted from now on. */
static int make_ready(struct scry_watch *w)
{
	struct scry_watch *one;
	int r;

	w->watch = (uint32_t)w->inj->control->armed + 1;
	w->channel = scry_channel_own(w->inj, w->instrument->channel);
	open_pool(w);
	r = scry_group_get_pages(w);
	if (r == 0)
		r = bound_rings(w);
	if (r < 0)
		return r;
	scry_session_lease(w->session, SCRY_LEASE_NS);
	for (size_t i = 0; r == 0 && (one = scry_group_at(w, i)); i++)
		r = scry_watch_keep_fresh(one);
	if (r < 0)
		return r;
	if (w->pool.head)
		scry_pool_follow(&w->pool, w->watch);
	w->cpu_began_ns = scry_proc_cpu_ns(w->proc.pid);
	for (size_t i = 0; (one = scry_group_at(w, i)); i++)
		one->image = scry_watch_part(one, (uint32_t)w->proc.pid);
	/* An event of perf costs its first thread 0.7 us at each switch: not in a live process. */
	if (w->opts->follow || w->opts->command)
		scry_execs_open(&w->execs, w->proc.pid);
	return 0;
}

static int put_in(struct scry_watch *w)
{
	struct scry_watch *one;
	char text[256];
	int r;

	r = scry_inject_enter(w->inj, w->near, w->held);
	if (r == 0)
		r = make_ready(w);
	if (r < 0)
		return r;
	r = scry_group_enter(w);
	w->inj->is_entered = r == 0;
	if (r < 0 && scry_watch_has_execed(w)) {
		w->target_gone = true;
		r = scry_fail(
			-ESRCH,
			"process %d ran another program (exec) or ended while scry entered it",
			w->proc.pid);
	}
	for (size_t i = 0; (one = scry_group_at(w, i)); i++)
		scry_watch_introduce(one);
	snprintf(
		text, sizeof(text),
		"process %d: agent %s at %#llx, %llu KiB, near %#llx; longest pause so far %.2f ms",
		w->proc.pid, w->inj->adopted ? "adopted" : "mapped",
		(unsigned long long)w->inj->header.text,
		(unsigned long long)scry_agent_bytes(&w->inj->header) / 1024,
		(unsigned long long)w->near, (double)w->inj->pause_max_ns / 1e6);
	scry_send_news(w->session, SCRY_NEWS_DETAIL, 0, text);
	return r;
}

/* Whatever instrument changed it: a copy of changed code is in a fork child for life. */
static void note_hooked_children(struct scry_watch *w, const struct scry_agent_header *of)
{
	const struct scry_hooked_children hooked_children = scry_hooked_children_find(w, of);
	char text[160];

	if (!hooked_children.count)
		return;
	snprintf(text, sizeof(text),
		 w->target_gone ? "%zu fork child%s of process %d keep%s changed code, without "
				  "effect; fix: scry undo -p %d (scry ps lists all)"
				: "%zu fork child%s of process %d keep%s changed code, without "
				  "effect; fix: scry undo -f -p %d",
		 hooked_children.count, hooked_children.count == 1 ? "" : "ren", w->proc.pid,
		 hooked_children.count == 1 ? "s" : "",
		 w->target_gone ? hooked_children.first : w->proc.pid);
	scry_watch_note(w, "%s", text);
	scry_send_news(w->session, SCRY_NEWS_SAY, 0, text);
}

void scry_watch_leave(struct scry_watch *w, struct scry_undo_report *undo, uint64_t *ret_left)
{
	struct scry_agent_header header;
	struct scry_watch *one;
	int r;

	if (w->pool.head)
		scry_pool_follow(&w->pool, 0);
	w->is_put_in |= !w->other_count; /* a child, and a rehearsal, which enter otherwise */
	if (!scry_preload_has(w) && scry_own_check(w->inj) < 0) { /* nothing there is ours */
		scry_send_news(w->session, SCRY_NEWS_SAY, 0, scry_error());
		scry_error_clear();
		*ret_left = 0;
		return;
	}
	scry_group_leave(w);
	if (scry_preload_has(w)) { /* nothing was changed; its lease is over */
		*ret_left = 0;
		return;
	}
	/* before an agent that stays gives its ring's memory back */
	for (size_t i = 0; (one = scry_group_at(w, i)); i++)
		if (!one->is_written)
			one->instrument->drain(one);
	header = w->inj->header;
	r = scry_inject_leave(w->inj, undo, ret_left);
	if (r == -ESRCH) { /* it ended meanwhile: nothing is left */
		w->target_gone = true;
		*ret_left = 0;
	} else if (r < 0) {
		scry_send_news(w->session, SCRY_NEWS_SAY, 0, scry_error());
	}
	scry_error_clear();
	note_hooked_children(w, &header);
}

/* What stays in the process, for the reader. */
static void describe_left(const struct scry_watch *w, uint64_t left, char *ret, size_t size)
{
	size_t standing = w->inj->edit.mem ? scry_edit_standing(&w->inj->edit) : 0;
	const unsigned long long kib = left / 1024;
	const int pid = w->proc.pid;

	if (w->inj->header.stage == SCRY_AGENT_IDLE)
		snprintf(ret, size,
			 "%llu KiB of the agent stay mapped in process %d, without effect, as Ruby "
			 "still has its address; fix: scry undo -p %d once one of its threads has "
			 "run Ruby code, or --wait",
			 kib, pid, pid);
	else if (standing)
		snprintf(ret, size,
			 "%llu KiB of the agent and %zu change%s that lead%s to it stay in process "
			 "%d, without effect; fix: scry undo -p %d",
			 kib, standing, standing == 1 ? "" : "s", standing == 1 ? "s" : "", pid,
			 pid);
	else if (w->inj->left_why)
		snprintf(ret, size,
			 "%llu KiB of the agent stay mapped in process %d, without effect, as %s; "
			 "fix: scry undo -p %d, later",
			 kib, pid, w->inj->left_why, pid);
	else
		snprintf(ret, size,
			 "%llu KiB of the agent stay mapped in process %d, without effect, as a "
			 "thread may still need them; fix: scry undo -p %d when its threads have "
			 "run",
			 kib, pid, pid);
}

/* What scry took of the process's processor time: no more than all of it. What calls cost bench/
 * says, and on this machine it may be less. */
static uint64_t overhead_ns(const struct scry_watch *w, uint64_t cpu_ns, uint64_t watched_ns)
{
	uint64_t all = w->cost_ns + scry_inject_lost_ns(w->inj, cpu_ns, watched_ns);

	return all < cpu_ns ? all : cpu_ns;
}

static void write_end(struct scry_watch *w, const char *why, const struct scry_undo_report *undo,
		      uint64_t left)
{
	struct scry_ev_pause pause = {.duration_ns = w->inj->pause_max_ns,
				      .threads = w->inj->pause_threads};
	struct scry_ev_detach d = {.pid = (uint32_t)w->proc.pid,
				   .verified = w->target_gone || !(undo->failed || undo->foreign),
				   .bytes_restored = undo->bytes,
				   .bytes_left = left,
				   .part = w->image + 1};
	struct scry_ev_totals t = w->totals;
	uint64_t cpu = scry_proc_cpu_ns(w->proc.pid);
	uint32_t status;

	if (w->proc.pid) { /* else: many, summed */
		pause.why_str = watch_string(w, "entering and leaving");
		watch_event(w, SCRY_EVENT_PAUSE, &pause, sizeof(pause));
		if (w->start_ns) {
			pause = (struct scry_ev_pause){.duration_ns = w->start_ns};
			pause.why_str = watch_string(w, "before its first instruction");
			watch_event(w, SCRY_EVENT_PAUSE, &pause, sizeof(pause));
		}
		d.reason_str = watch_string(w, why);
		watch_event(w, SCRY_EVENT_DETACH, &d, sizeof(d));
	}
	t.pid = (uint32_t)w->proc.pid;
	if (w->target_gone && scry_proc_exit(&w->proc, &status) == 0)
		t.exit = SCRY_EXIT_KNOWN | status;
	t.events = w->events;
	t.lost = w->lost;
	t.errors = w->errors;
	t.frees_older = w->frees_older;
	t.pause_max_ns = w->inj->pause_max_ns;
	t.pause_total_ns = w->inj->pause_total_ns;
	t.watched_ns = w->ended_ns - w->began_ns;
	t.target_cpu_ns = cpu > w->cpu_began_ns ? cpu - w->cpu_began_ns : 0;
	if (t.target_cpu_ns < CPU_TICKS_TRUSTED_NS)
		t.target_cpu_ns = 0; /* unknown: it is counted in ticks of 10 ms */
	t.overhead_cpu_ns = overhead_ns(w, t.target_cpu_ns, t.watched_ns);
	watch_event(w, SCRY_EVENT_TOTALS, &t, sizeof(t));
}

/* Entering failed half-way: what was put in is taken out again. The sentence of why stays. */
static void back_out(struct scry_watch *w)
{
	struct scry_undo_report undo = {0};
	struct scry_watch *one;
	char why[1024], text[256];
	uint64_t left = 0;

	snprintf(why, sizeof(why), "%s", scry_error());
	if (!w->target_gone)
		scry_watch_leave(w, &undo, &left);
	audit(w, "detach", &undo);
	if (left) {
		describe_left(w, left, text, sizeof(text));
		scry_send_news(w->session, SCRY_NEWS_SAY, 0, text);
	}
	for (size_t i = 0; (one = scry_group_at(w, i)); i++) {
		one->ended_ns = scry_now_ns();
		if (one->is_own) /* whom the recording names, its totals end */
			write_end(one, "it could not be entered", &undo, left);
	}
	scry_fail(-EIO, "%s", why);
}

int scry_watch_enter(struct scry_watch *w)
{
	/* The lock first: what another scry does at this moment looks like a foreign tracer. */
	int r = scry_inject_lock(w->inj, &w->proc);

	w->inj->max_pause_ns = w->opts->max_pause_ns;
	w->inj->purpose = w->session->instrument->name;
	if (r == 0)
		r = scry_proc_refresh(&w->proc);
	if (r == 0 && w->held) {
		w->proc.tracer = 0; /* it is us */
		w->proc.state = 'R';
	}
	if (r == 0)
		r = scry_inject_check(&w->proc);
	if (r == 0 && !w->held)
		r = scry_inject_check_alone(&w->proc);
	if (r == 0 && w->session->count > 1)
		scry_session_lease(w->session, LEARNING_NS); /* the others go on meanwhile */
	if (r == 0 && !w->held) /* an image that has just begun has none */
		r = scry_leftovers_undo(w->inj);
	if (r == 0)
		r = scry_group_form(w);
	if (r == 0)
		r = scry_group_prepare(w);
	if (r == 0)
		r = put_in(w);
	if (r < 0 && w->inj->control)
		back_out(w);
	for (size_t i = 1; scry_group_at(w, i); i++)
		scry_group_at(w, i)->held = NULL;
	if (r == 0) {
		w->session->entered++;
		scry_programs_watched(w);
	}
	return r;
}

static int sum_up(struct scry_watch *w)
{
	struct scry_section *s = &w->session->sections[w->section];

	if (!s->others) {
		s->others = calloc(1, sizeof(*s->others));
		if (!s->others)
			return scry_no_memory("the sum of processes");
		s->others->opts = &s->opts;
		s->others->instrument = s->instrument;
		s->others->writer = s->writer;
		s->others->section = w->section;
		s->others->session = w->session;
		s->others->inj = &s->others->own;
		s->others->proc.pidfd = -1;
		s->others->target_gone = true;
	}
	s->others_count++;
	s->others->inj->pause_total_ns += w->inj->pause_total_ns;
	s->others->inj->pause_cpu_ns += w->inj->pause_cpu_ns;
	s->others->inj->pause_wall_ns += w->inj->pause_wall_ns;
	if (w->inj->pause_max_ns > s->others->inj->pause_max_ns)
		s->others->inj->pause_max_ns = w->inj->pause_max_ns;
	return s->instrument->merge(s->others, w);
}

/* Of a child of which all instruments are over. */
static void give_child_buffer_back(struct scry_watch *w)
{
	if (!w->root || scry_group_goes_on(w))
		return;
	w->root->in_child_buffer[w->child_buffer] = NULL;
	w->root->child_buffers_taken--;
	if (w->target_gone)
		scry_pool_free(&w->root->pool, w->child_buffer);
	w->inj->control = NULL;
}

bool scry_watch_must_wait(const struct scry_watch *w)
{
	const struct scry_watch *first = w->first ? w->first : w, *one = first;
	bool must = false;

	for (size_t i = 0; i <= first->other_count && !must; i++) {
		one = i ? first->others[i - 1] : first;
		must = !one->is_over && one->instrument->must_wait &&
		       one->instrument->must_wait(one);
	}
	return must;
}

void scry_watch_seccomp(struct scry_watch *w)
{
	char text[96];

	if (!scry_calling_turn(&w->calling, w->inj))
		return;
	snprintf(text, sizeof(text),
		 "process %d put itself under seccomp, or under Syscall User Dispatch",
		 w->proc.pid);
	scry_send_news(w->session, SCRY_NEWS_DETAIL, 0, text);
	scry_watch_note(w, "the program has put itself under seccomp, or dispatches its own system "
			   "calls (Syscall User Dispatch): since then scry makes "
			   "no system call in it. A thread that finds no room for a record "
			   "loses it; new stacks and lines, and memory that functions are not "
			   "known to read, are not shown");
}

/* It is over, or about to be: what is still done there is not its. */
static void begin_end(struct scry_watch *w, const char *why)
{
	char text[256];

	w->calling.look_ns = 0;
	scry_watch_seccomp(w);
	w->is_over = true;
	w->ended_ns = scry_now_ns();
	snprintf(text, sizeof(text), "process %d ended: %s", w->proc.pid, why);
	scry_send_news(w->session, SCRY_NEWS_DETAIL, 0, text);
}

struct ending {
	const char *why;
	struct scry_undo_report undo;
	uint64_t left;
};

/* It is left: what it has counted is written. */
static int write_down(struct scry_watch *w, const struct ending *end)
{
	char text[256];
	int r;

	scry_group_turn_to(w);
	w->is_written = true;
	w->instrument->drain(w);
	if (!w->is_own)
		return sum_up(w);
	audit(w, "detach", &end->undo);
	r = w->instrument->finish(w);
	if (w->target_gone && !w->root && !w->opts->command)
		scry_watch_note(w, "the watch ended%s: %s",
				w->opts->duration_ns ? " before its time" : "", end->why);
	if (w->inj && w->inj->hides && w->inj->is_too_large)
		scry_watch_note(
			w,
			"signal handlers of process %d seem to switch stacks, and it has more "
			"memory than can be searched within --max-pause: only the stacks of its "
			"threads were searched for code that was interrupted within the changed "
			"instructions; a longer --max-pause searches all",
			w->proc.pid);
	if (end->left) {
		describe_left(w, end->left, text, sizeof(text));
		scry_watch_note(w, "%s", text);
	}
	write_end(w, end->why, &end->undo, end->left);
	return r;
}

int scry_watch_drain(struct scry_watch *w)
{
	struct scry_writer_stats before, after;
	int r;

	scry_writer_stats(w->writer, &before);
	r = w->instrument->drain(w);
	scry_writer_stats(w->writer, &after);
	if (r >= 0 || (after.error == before.error && after.is_full == before.is_full))
		return r;
	scry_error_clear();
	return 0;
}

int scry_watch_end(struct scry_watch *w, const char *why)
{
	struct scry_watch *first = scry_group_first(w), *one;
	struct scry_watch *live[SCRY_SECTIONS_MAX];
	struct ending end = {.why = why};
	size_t count = 0;
	int r = 0, e;

	if (w->is_over)
		return 0;
	if (!w->proc.pid) /* found nowhere: nothing to leave */
		w->target_gone = true;
	for (size_t i = 0; (one = scry_group_at(first, i)); i++) {
		one->target_gone = w->target_gone;
		if (one->is_over)
			continue;
		begin_end(one, why);
		live[count++] = one;
	}
	if (w->proc.pid && !w->target_gone)
		scry_spawns_drop(&w->session->spawns, w->proc.pid);
	if (!w->target_gone)
		scry_watch_leave(first, &end.undo, &end.left);
	w->target_gone = first->target_gone;
	w->session->gone += w->target_gone && w->proc.pid;
	w->session->left += !w->target_gone;
	for (size_t i = 0; i < count; i++) {
		live[i]->target_gone = first->target_gone;
		e = write_down(live[i], &end);
		r = r ? r : e;
	}
	give_child_buffer_back(first);
	return r;
}

int scry_watch_end_alone(struct scry_watch *w, const char *why)
{
	const struct ending end = {.why = why};

	if (w->is_over || w->target_gone || !scry_group_goes_on(w))
		return scry_watch_end(w, why);
	begin_end(w, why);
	scry_group_leave_one(w);
	scry_watch_note(w, "other instruments went on: what they share with it was put back when "
			   "they had ended, and their sections say so");
	return write_down(w, &end);
}

static int end_section(struct scry_section *s)
{
	struct scry_watch *o = s->others;
	int r = 0;

	if (o) {
		r = s->instrument->finish(o);
		write_end(o, "ended", &(struct scry_undo_report){0}, 0);
		scry_watch_note(
			o,
			"%zu more process%s, short-lived or without a row for want of room, %s "
			"counted in one sum: which programs they ran is not known",
			s->others_count, s->others_count == 1 ? "" : "es",
			s->others_count == 1 ? "is" : "are");
		if (o->state)
			s->instrument->done(o);
		free(o);
		s->others = NULL;
	}
	return r;
}

int scry_session_end(struct scry_session *s)
{
	int r = 0, e;

	for (uint32_t i = 0; i < s->section_count; i++) {
		e = end_section(&s->sections[i]);
		r = r ? r : e;
	}
	return r;
}
