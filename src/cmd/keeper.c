/*
 * The keeper: forked before anything is entered, in its own session, deaf to the terminal. It holds
 * the pidfd, the mem fd and the ring; when the front's socket closes it ends the recording and
 * undoes.
 *
 * Life: follow (a program being started) or open (a live one) -> prepare -> lock -> enter -> loop
 * -> leave
 * -> finish. Whatever fails after `enter` goes through `leave`: every path out ends in undo.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/err.h"
#include "cmd/watch.h"
#include "sys/spawn.h"
#include "vm/ruby.h"

#define LEASE_NS 1000000000ull	    /* handlers record this long after the last refresh */
#define LEASE_END_NS 60000000000ull /* then they take themselves off */
#define LEASE_EVERY_NS 100000000ull
#define TURN_MS 5
#define CPU_TICKS_TRUSTED_NS 200000000ull

static struct {
	int fd;
	uint64_t tsc0, ns0;
} keeper;

static void tell(enum scry_news kind, int value, const char *text)
{
	struct scry_news_head head = {.kind = kind, .value = value, .size = (uint32_t)strlen(text)};

	if (send(keeper.fd, &head, sizeof(head), MSG_NOSIGNAL) == sizeof(head) && head.size)
		send(keeper.fd, text, head.size, MSG_NOSIGNAL);
}

void scry_watch_note(struct scry_watch *w, const char *fmt, ...)
{
	struct scry_ev_note note = {0};
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(text))
		n = sizeof(text) - 1;
	scry_writer_string(w->writer, text, (size_t)n, &note.text_str);
	scry_writer_payload(w->writer,
			    &(struct scry_event){.time_ns = scry_now_ns(), .type = SCRY_EVENT_NOTE},
			    &note, sizeof(note));
}

void scry_watch_lost(struct scry_watch *w, uint64_t count, const char *why)
{
	struct scry_ev_lost lost = {.count = count};

	if (!count)
		return;
	w->lost += count;
	scry_writer_string(w->writer, why, strlen(why), &lost.why_str);
	scry_writer_payload(w->writer,
			    &(struct scry_event){.time_ns = scry_now_ns(), .type = SCRY_EVENT_LOST},
			    &lost, sizeof(lost));
}

static uint32_t str(struct scry_watch *w, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(w->writer, text, strlen(text), &id);
	return id;
}

static void event(struct scry_watch *w, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(w->writer, &(struct scry_event){.time_ns = scry_now_ns(), .type = type},
			    payload, size);
}

static void write_session(struct scry_watch *w)
{
	struct scry_ev_session s = {0};
	struct utsname un;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	uname(&un);
	s.instrument_str = str(w, w->instrument->name);
	s.command_str = str(w, w->opts->command_line);
	s.version_str = str(w, SCRY_VERSION);
	s.host_str = str(w, un.nodename);
	s.wall_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	event(w, SCRY_EVENT_SESSION, &s, sizeof(s));
}

/* Nanoseconds of TSC ticks, from a pair taken at the keeper's birth; at least 5 ms lie between by
 * now. */
static uint64_t tsc_after(uint64_t ns)
{
	uint64_t dt = scry_now_ns() - keeper.ns0, now = __rdtsc();

	if (dt < 5000000) {
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		dt = scry_now_ns() - keeper.ns0;
		now = __rdtsc();
	}
	return now + (uint64_t)((double)ns * ((double)(now - keeper.tsc0) / (double)dt));
}

static void refresh_lease(struct scry_watch *w)
{
	w->inj.control->lease_end_tsc = tsc_after(LEASE_END_NS);
	__atomic_store_n(&w->inj.control->lease_tsc, tsc_after(LEASE_NS), __ATOMIC_RELEASE);
}

static void audit(const struct scry_watch *w, const char *what, const struct scry_undo_report *undo)
{
	syslog(LOG_NOTICE,
	       "%s: uid %u %s process %d (%s): %llu bytes changed, longest pause %llu us, undo %s",
	       what, getuid(), w->instrument->name, w->proc.pid, w->proc.comm,
	       (unsigned long long)w->inj.edit.bytes_changed,
	       (unsigned long long)w->inj.pause_max_ns / 1000,
	       !undo			       ? "pending"
	       : undo->failed || undo->foreign ? "INCOMPLETE"
					       : "verified");
}

static void write_process(struct scry_watch *w)
{
	struct scry_ev_process p = {.pid = (uint32_t)w->proc.pid,
				    .uid = w->proc.uid,
				    .start_ticks = w->proc.start_ticks};

	p.exe_str = str(w, w->proc.exe);
	p.runtime_str = w->runtime ? str(w, w->runtime) : 0;
	event(w, SCRY_EVENT_PROCESS, &p, sizeof(p));
}

/* Is the address space still the one that was entered? After an exec nothing of ours is left in it.
 */
static bool has_execed(struct scry_watch *w)
{
	uint64_t magic;

	return scry_mem_u64(&w->inj.mem, w->inj.header.text, &magic) < 0 ||
	       magic != SCRY_AGENT_MAGIC;
}

/* In: lock, map, write, hook. */
static int enter(struct scry_watch *w)
{
	struct scry_ev_attach at = {.pid = (uint32_t)w->proc.pid};
	char text[256];
	int r;

	w->inj.max_pause_ns = w->opts->max_pause_ns;
	w->inj.purpose = w->instrument->name;
	r = scry_inject_enter(&w->inj, w->near, w->held);
	if (r < 0)
		return r;
	w->watch = (uint32_t)w->inj.control->armed + 1;
	refresh_lease(w);
	w->cpu_began_ns = scry_proc_cpu_ns(w->proc.pid);
	w->began_ns = scry_now_ns();
	write_process(w);
	r = w->instrument->enter(w);
	if (r < 0 && has_execed(w)) {
		w->target_gone = true;
		r = scry_fail(
			-ESRCH,
			"process %d ran another program (exec) or ended while scry entered it",
			w->proc.pid);
	}
	at.threads = (uint32_t)w->proc.threads;
	at.agent_address = w->inj.header.text;
	at.agent_bytes =
		w->inj.header.text_size + w->inj.header.private_size + w->inj.header.shared_size;
	at.bytes_changed = w->inj.edit.bytes_changed;
	event(w, SCRY_EVENT_ATTACH, &at, sizeof(at));
	audit(w, "attach", NULL);
	snprintf(text, sizeof(text),
		 "agent %s at %#llx, %llu KiB, near %#llx; longest pause so far %.2f ms",
		 w->inj.adopted ? "adopted" : "mapped", (unsigned long long)w->inj.header.text,
		 (unsigned long long)at.agent_bytes / 1024, (unsigned long long)w->near,
		 (double)w->inj.pause_max_ns / 1e6);
	tell(SCRY_NEWS_DETAIL, 0, text);
	return r;
}

/* Orders of the front and the end of things. Returns NULL to go on, or the reason to stop. */
static const char *wait_turn(struct scry_watch *w, int timeout_ms)
{
	struct pollfd fds[2] = {{.fd = keeper.fd, .events = POLLIN},
				{.fd = w->proc.pidfd, .events = POLLIN}};
	char order;
	ssize_t n;

	if (poll(fds, w->proc.pidfd >= 0 ? 2 : 1, timeout_ms) < 0 && errno != EINTR)
		return "poll failed";
	if (fds[0].revents) {
		n = recv(keeper.fd, &order, 1, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return "the front went away";
		if (n == 1 && order == SCRY_ORDER_STOP)
			return "interrupt";
	}
	if (w->proc.pidfd >= 0 && fds[1].revents) {
		w->target_gone = true;
		return "the target ended";
	}
	return NULL;
}

/* Said once, when it happens: the watch goes on, its recording does not. */
static void report_short_recording(struct scry_watch *w)
{
	struct scry_writer_stats stats;
	char text[256];

	scry_writer_stats(w->writer, &stats);
	if (!stats.lost || w->is_short)
		return;
	w->is_short = true;
	snprintf(text, sizeof(text),
		 "the recording ends at %llu bytes: %s; what is there is whole, the watch goes on "
		 "to its end",
		 (unsigned long long)stats.size,
		 w->opts->max_size ? "--max-size, or the disk is full"
				   : "the disk is full, or a limit is reached");
	tell(SCRY_NEWS_SAY, 0, text);
}

static const char *watch(struct scry_watch *w)
{
	uint64_t end = w->opts->duration_ns ? w->began_ns + w->opts->duration_ns : UINT64_MAX;
	uint64_t next_lease = 0;
	const char *why = NULL;
	int fill = 0;

	while (!why) {
		uint64_t now = scry_now_ns();

		if (now >= next_lease) {
			next_lease = now + LEASE_EVERY_NS;
			refresh_lease(w);
			scry_writer_flush(w->writer);
			report_short_recording(w);
			if (has_execed(w)) {
				w->target_gone = true;
				why = scry_proc_is_alive(&w->proc)
					      ? "the process ran another program (exec), which is "
						"not followed"
					      : "the target ended";
				break;
			}
		}
		if (now >= end)
			why = "duration";
		else
			why = wait_turn(w, fill > 100 ? 0 : fill > 20 ? 1 : TURN_MS);
		scry_tracee_poll_lingering();
		fill = w->instrument->drain(w);
		if (fill < 0 && !why)
			why = "the ring is damaged";
		if (w->enough && !why)
			why = w->enough;
	}
	return why;
}

static void write_end(struct scry_watch *w, const char *why, const struct scry_undo_report *undo,
		      uint64_t left)
{
	struct scry_ev_pause pause = {.duration_ns = w->inj.pause_max_ns,
				      .threads = w->inj.pause_threads};
	struct scry_ev_detach d = {.pid = (uint32_t)w->proc.pid,
				   .verified = w->target_gone || !(undo->failed || undo->foreign),
				   .bytes_restored = undo->bytes,
				   .bytes_left = left};
	struct scry_ev_totals t = w->totals;
	uint64_t cpu = scry_proc_cpu_ns(w->proc.pid);

	pause.why_str = str(w, "entering and leaving");
	event(w, SCRY_EVENT_PAUSE, &pause, sizeof(pause));
	d.reason_str = str(w, why);
	event(w, SCRY_EVENT_DETACH, &d, sizeof(d));
	t.pid = (uint32_t)w->proc.pid;
	t.events = w->events;
	t.lost = w->lost;
	t.errors = w->errors;
	t.frees_older = w->frees_older;
	t.pause_max_ns = w->inj.pause_max_ns;
	t.pause_total_ns = w->inj.pause_total_ns;
	t.watched_ns = w->ended_ns - w->began_ns;
	t.target_cpu_ns = cpu > w->cpu_began_ns ? cpu - w->cpu_began_ns : 0;
	if (t.target_cpu_ns < CPU_TICKS_TRUSTED_NS)
		t.target_cpu_ns = 0; /* unknown: it is counted in ticks of 10 ms */
	t.overhead_cpu_ns = w->events * w->event_cost_ns_x10 / 10 + w->inj.pause_total_ns;
	event(w, SCRY_EVENT_TOTALS, &t, sizeof(t));
}

/* From entered to left. Also the way out when entering failed half-way. */
static int run_entered(struct scry_watch *w, int entered)
{
	struct scry_undo_report undo = {0};
	const char *why = "entering failed";
	char text[256];
	uint64_t left = 0;
	int r = entered;

	if (entered == 0) {
		tell(SCRY_NEWS_ENTERED, 0, "");
		why = watch(w);
	}
	w->ended_ns = scry_now_ns();
	snprintf(text, sizeof(text), "ended: %s", why);
	tell(SCRY_NEWS_DETAIL, 0, text);
	if (w->inj.control && !w->target_gone) {
		w->instrument->leave(w);
		w->instrument->drain(
			w); /* before an agent that stays gives its ring's memory back */
		if (scry_inject_leave(&w->inj, &undo, &left) < 0)
			tell(SCRY_NEWS_SAY, 0, scry_error());
	}
	if (w->inj.control)
		audit(w, "detach", &undo);
	if (left && entered < 0) {
		snprintf(text, sizeof(text),
			 "%llu KiB of scry stay mapped in process %d, without effect; fix: "
			 "scry undo -p %d",
			 (unsigned long long)left / 1024, w->proc.pid, w->proc.pid);
		tell(SCRY_NEWS_SAY, 0, text);
	}
	if (entered == 0) {
		w->instrument->drain(w);
		r = w->instrument->finish(w);
		if (w->target_gone && !w->opts->command)
			scry_watch_note(w, "the watch ended before its time: %s", why);
		if (left)
			scry_watch_note(w,
					"%llu KiB of scry stay mapped in process %d, without "
					"effect; scry undo "
					"-p %d takes them out",
					(unsigned long long)left / 1024, w->proc.pid, w->proc.pid);
		write_end(w, why, &undo, left);
	}
	return r;
}

/* Until a relocated image stands still that the instrument wants. 0; -ENOENT: the program ended
 * without one. */
static int follow_start(struct scry_watch *w, struct scry_spawn *spawn)
{
	const char *why = NULL;

	for (;;) {
		enum scry_spawn_news news = scry_spawn_step(spawn);
		struct scry_maps maps;
		size_t entry;
		bool wanted = true;

		if (news == SCRY_SPAWN_EXITED)
			return scry_fail(-ENOENT, "the program ended and no Ruby was seen in it; "
						  "fix: name ruby itself, "
						  "the program's children are not watched");
		if (news == SCRY_SPAWN_NOTHING) {
			why = wait_turn(w, spawn->starting ? 0 : 1);
			if (why && strcmp(why, "the target ended"))
				return scry_fail(-EINTR,
						 "stopped before the program was entered: %s", why);
			continue;
		}
		if (w->instrument->needs_ruby) {
			if (scry_maps_read(w->proc.pid, &maps) < 0)
				return -ESRCH;
			wanted = scry_ruby_find(w->proc.pid, &maps, &entry) == 0;
			scry_maps_done(&maps);
		}
		if (wanted)
			return 0;
		scry_spawn_go_on(spawn);
	}
}

static int run_started(struct scry_watch *w, pid_t child)
{
	struct scry_spawn spawn;
	int r = scry_proc_open(&w->proc, child);

	if (r == 0)
		r = scry_inject_lock(&w->inj, &w->proc);
	if (r == 0)
		r = scry_spawn_open(&spawn, child);
	if (r < 0)
		return r;
	tell(SCRY_NEWS_GO, 0, "");
	r = follow_start(w, &spawn);
	if (r == 0) {
		scry_proc_refresh(&w->proc);
		w->proc.tracer = 0; /* it is us */
		w->proc.state = 'R';
		w->held = &spawn.t;
		r = scry_inject_check(&w->proc);
	}
	if (r == 0)
		r = w->instrument->prepare(w);
	if (r == 0)
		r = enter(w);
	scry_spawn_close(&spawn);
	if (spawn.t.held_ns >
	    w->inj.pause_max_ns) { /* held before it began: a wait, no cost of its time */
		w->inj.pause_max_ns = spawn.t.held_ns;
		w->inj.pause_threads = 1;
	}
	w->held = NULL;
	return w->inj.control ? run_entered(w, r) : r;
}

static int run_live(struct scry_watch *w)
{
	int r = scry_proc_open(&w->proc, (pid_t)w->opts->pid);

	/* The lock first: what another scry does at this moment looks like a foreign tracer. */
	if (r == 0)
		r = scry_inject_lock(&w->inj, &w->proc);
	if (r == 0)
		r = scry_proc_refresh(&w->proc);
	if (r == 0)
		r = scry_inject_check(&w->proc);
	if (r == 0)
		r = w->instrument->prepare(w);
	if (r == 0)
		r = enter(w);
	return w->inj.control ? run_entered(w, r) : r;
}

/* The front says which process to start with: 0 for -p. */
static pid_t read_child(void)
{
	int32_t pid = 0;

	return recv(keeper.fd, &pid, sizeof(pid), MSG_WAITALL) == sizeof(pid) ? pid : -1;
}

static void become_keeper(int fd)
{
	static const int deaf[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGPIPE,
				   SIGTSTP, SIGTTOU, SIGTTIN, SIGXFSZ};

	setsid();
	for (size_t i = 0; i < sizeof(deaf) / sizeof(deaf[0]); i++)
		signal(deaf[i], SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	prctl(PR_SET_NAME, "scry-keeper");
	openlog("scry", LOG_PID, LOG_DAEMON);
	keeper.fd = fd;
	keeper.tsc0 = __rdtsc();
	keeper.ns0 = scry_now_ns();
}

void scry_keeper_run(const struct scry_watch_opts *opts, const struct scry_instrument *instrument,
		     int fd, int rec_fd)
{
	struct scry_watch w = {.opts = opts,
			       .instrument = instrument,
			       .proc.pidfd = -1,
			       .inj = {.lock = -1, .mem.fd = -1}};
	pid_t child;
	int r;

	become_keeper(fd);
	child = read_child();
	r = child < 0 ? -EINTR : scry_writer_open(rec_fd, opts->max_size, &w.writer);
	if (r == 0) {
		write_session(&w);
		r = child > 0 ? run_started(&w, child) : run_live(&w);
	}
	if (w.state)
		instrument->done(&w);
	if (r < 0)
		tell(SCRY_NEWS_FAILED, r, *scry_error() ? scry_error() : strerror(-r));
	if (w.writer) {
		report_short_recording(&w);
		if (scry_writer_close(w.writer) < 0)
			tell(SCRY_NEWS_SAY, 0, scry_error());
	}
	if (r == 0 && w.is_short && !opts->max_size)
		tell(SCRY_NEWS_SHORT, 0, "");
	scry_inject_done(&w.inj);
	scry_proc_close(&w.proc);
	if (r == 0)
		tell(SCRY_NEWS_DONE, 0, "");
	_exit(r < 0 ? 1 : 0);
}
