/* See ptrace_stops.h. */
#include "trace/ptrace_stops.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/map.h"
#include "sys/proc.h"

#define OPTIONS                                                                                  \
	(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | \
	 PTRACE_O_TRACEVFORK)
#define THREADS_MAX 65536
#define LEAVE_NS 1000000000ull
#define ORPHAN_NS 20000000ull
#define TICK_US 1000
#define FAIR_TURN 64 /* stops */
#define SEIZE_ROUNDS 64
#define LATE_NS 1000000
#define LATE_MAX_NS 64000000

enum state {
	STATE_RUNS,
	STATE_STARTS, /* was made, and has not stopped for the first time */
	STATE_CHILD,  /* the same, with a memory of its own */
	STATE_HELD,
	STATE_ORPHAN /* is stopped, and its parent has not reported it yet */
};

struct thread {
	struct scry_ptrace_stops *of; /* NULL: an orphan */
	pid_t tid;
	enum state state;
	int signal; /* HELD: that it has not been given yet */
	uint64_t since_ns;
};

struct scry_ptrace_stops {
	pid_t pid;
	const struct scry_ptrace_stops_handlers *handlers;
	void *arg;
	struct scry_ptrace_stops *next;
	bool is_left;		   /* one that goes on is asked to stop again */
	uint64_t late_ns, look_ns; /* see seize_late; late_ns 0: no more */
	struct scry_ptrace_stops_stats stats;
};

static struct {
	struct scry_ptrace_stops *all;
	struct thread *threads;
	size_t count, room, orphans;
	unsigned int taken;
	struct scry_map by_tid; /* -> index */
	bool is_ready, hurries;
} tracer;

static void on_tick(int sig)
{
	(void)sig; /* it only ends a wait */
}

/* A thread that has hit a breakpoint waits for us, so on a busy machine we go first, where we may:
 * as long as any thread is traced. A stop of a traced thread is not news to the rest of the keeper.
 */
static void get_ready(void)
{
	const struct sigaction tick = {.sa_handler = on_tick};
	struct sigaction child;

	if (!tracer.all && sched_getscheduler(0) == SCHED_OTHER)
		tracer.hurries =
			sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK,
					   &(struct sched_param){.sched_priority = 1}) == 0;
	if (tracer.is_ready)
		return;
	sigaction(SIGALRM, &tick, NULL);
	sigaction(SIGCHLD, NULL, &child);
	child.sa_flags |= SA_NOCLDSTOP;
	sigaction(SIGCHLD, &child, NULL);
	scry_map_init(&tracer.by_tid, THREADS_MAX);
	tracer.is_ready = true;
}

static struct thread *thread_of(pid_t tid)
{
	uint64_t index;

	return scry_map_get(&tracer.by_tid, (uint64_t)tid, &index) ? &tracer.threads[index] : NULL;
}

static struct thread *add_thread(struct scry_ptrace_stops *of, pid_t tid, enum state state)
{
	if (tracer.count == tracer.room) {
		size_t room = tracer.room ? 2 * tracer.room : 64;
		struct thread *more = reallocarray(tracer.threads, room, sizeof(*more));

		if (!more)
			return NULL;
		tracer.threads = more;
		tracer.room = room;
	}
	if (scry_map_put(&tracer.by_tid, (uint64_t)tid, tracer.count) < 0)
		return NULL;
	tracer.threads[tracer.count] =
		(struct thread){.of = of, .tid = tid, .state = state, .since_ns = scry_now_ns()};
	tracer.orphans += state == STATE_ORPHAN;
	return &tracer.threads[tracer.count++];
}

static void drop_thread(struct thread *t)
{
	tracer.orphans -= t->state == STATE_ORPHAN;
	scry_map_remove(&tracer.by_tid, (uint64_t)t->tid, NULL);
	*t = tracer.threads[--tracer.count];
	if (t != &tracer.threads[tracer.count])
		scry_map_put(&tracer.by_tid, (uint64_t)t->tid, (uint64_t)(t - tracer.threads));
}

static void go_on(struct thread *t, int signal)
{
	t->state = STATE_RUNS;
	ptrace(PTRACE_CONT, t->tid, 0, signal);
	if (t->of && t->of->is_left)
		ptrace(PTRACE_INTERRUPT, t->tid, 0, 0);
}

/* It lives, and is not ours already, as one is that a seized thread has made. */
static bool is_strange(pid_t pid, pid_t tid)
{
	char state = scry_proc_task_state(pid, tid);

	return state && state != 'Z' && state != 'X' && scry_proc_tracer(pid, tid) != getpid();
}

/* 1: it is ours now; 0: it was, or is gone; or -errno. */
static int seize(struct scry_ptrace_stops *s, pid_t pid, pid_t tid)
{
	struct scry_tracee t;
	int r;

	if (thread_of(tid))
		return 0;
	r = scry_tracee_seize_with(&t, pid, tid, OPTIONS);
	if (r < 0)
		return is_strange(pid, tid) ? r : 0;
	if (add_thread(s, tid, STATE_RUNS))
		return 1;
	scry_tracee_release(&t);
	return scry_fail(-ENOMEM, "process %d has too many threads", s->pid);
}

/* It shares the memory, as in vfork, and hits the breakpoints too; unless it has become another
 * program meanwhile, which nothing reports any more. */
static int seize_child(struct scry_ptrace_stops *s, pid_t child)
{
	struct scry_tracee t = {.pid = child, .tid = child, .seized = true};
	int r = 0;

	if (!thread_of(child) && scry_proc_share_memory(s->pid, child))
		r = seize(s, child, child);
	if (r <= 0 || scry_proc_share_memory(s->pid, child))
		return r;
	drop_thread(thread_of(child));
	scry_tracee_release(&t);
	return 0;
}

static int seize_children(struct scry_ptrace_stops *s, pid_t tid)
{
	int r = 0, fresh = 0, child;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", tid, tid);
	f = fopen(path, "re");
	while (f && r >= 0 && fscanf(f, "%d", &child) == 1) {
		r = seize_child(s, child);
		fresh += r > 0;
	}
	if (f)
		fclose(f);
	return r < 0 ? r : fresh;
}

/* All that are not ours yet; how many, or -errno. */
static int seize_new(struct scry_ptrace_stops *s)
{
	pid_t *tids;
	ssize_t n = scry_proc_tasks(s->pid, &tids);
	int r = 0, fresh = 0;

	for (ssize_t i = 0; i < n && r >= 0; i++) {
		r = seize(s, s->pid, tids[i]);
		fresh += r > 0;
	}
	if (n >= 0)
		free(tids);
	for (size_t i = 0; i < tracer.count && r >= 0; i++) {
		if (tracer.threads[i].of != s)
			continue;
		r = seize_children(s, tracer.threads[i].tid);
		fresh += r > 0 ? r : 0;
	}
	return r < 0 ? r : fresh;
}

/* Threads appear while we look: those of a thread that is seized are seized with it. */
static int seize_all(struct scry_ptrace_stops *s)
{
	int fresh = 1;

	for (int round = 0; fresh > 0 && round < SEIZE_ROUNDS; round++)
		fresh = seize_new(s);
	if (fresh >= 0)
		scry_error_clear();
	return fresh < 0 ? fresh : 0;
}

/* But not those of one that was in the midst of making another when it was seized: they come a
 * little later, and are looked for once more at once, and some times in the first turns. */
static int seize_late(struct scry_ptrace_stops *s)
{
	nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
	s->late_ns = LATE_NS;
	s->look_ns = scry_now_ns() + s->late_ns;
	return seize_all(s);
}

static void look_for_late(void)
{
	uint64_t now = scry_now_ns();

	for (struct scry_ptrace_stops *s = tracer.all; s; s = s->next) {
		if (!s->late_ns || s->is_left || now < s->look_ns)
			continue;
		if (seize_all(s) < 0)
			scry_error_clear();
		s->late_ns = s->late_ns < LATE_MAX_NS ? 4 * s->late_ns : 0;
		s->look_ns = now + s->late_ns;
	}
}

int scry_ptrace_stops_new(pid_t pid, const struct scry_ptrace_stops_handlers *handlers, void *arg,
			  struct scry_tracee *held, struct scry_ptrace_stops **ret)
{
	struct scry_ptrace_stops *s = calloc(1, sizeof(*s));
	struct thread *t;
	int r = 0;

	if (!s)
		return scry_no_memory("tracing process %d", pid);
	get_ready();
	*s = (struct scry_ptrace_stops){
		.pid = pid, .handlers = handlers, .arg = arg, .next = tracer.all};
	tracer.all = s;
	*ret = s;
	if (!held) {
		r = seize_all(s);
		return r < 0 ? r : seize_late(s);
	}
	t = add_thread(s, held->tid, STATE_HELD);
	if (!t)
		return scry_no_memory("tracing process %d", pid);
	if (ptrace(PTRACE_SETOPTIONS, held->tid, 0, OPTIONS) < 0)
		r = scry_fail(-errno, "cannot trace process %d: %s", pid, strerror(errno));
	if (r == 0) { /* it is ours now */
		t->signal = held->signal;
		held->seized = held->stopped = false;
		held->signal = 0;
	}
	return r;
}

void scry_ptrace_stops_go(struct scry_ptrace_stops *s)
{
	for (size_t i = 0; i < tracer.count; i++)
		if (tracer.threads[i].of == s && tracer.threads[i].state == STATE_HELD)
			go_on(&tracer.threads[i], tracer.threads[i].signal);
}

static void let_child_go(struct thread *t)
{
	struct scry_ptrace_stops *s = t->of;
	pid_t tid = t->tid;

	s->stats.children++;
	drop_thread(t);
	s->handlers->forked(s->arg, tid);
	ptrace(PTRACE_DETACH, tid, 0, 0);
}

/* It is stopped for the first time. */
static void start_thread(struct thread *t, enum state what)
{
	if (what == STATE_CHILD) {
		let_child_go(t);
	} else {
		t->of->stats.threads++;
		go_on(t, 0);
	}
}

/* Where the kernel cannot compare, the event says which of the usual ones it is. */
static bool shares_memory(pid_t parent, pid_t child, int event)
{
	long r = syscall(SYS_kcmp, parent, child, KCMP_VM, 0, 0);

	return r < 0 ? event != PTRACE_EVENT_FORK : r == 0;
}

/* Thread `parent` has made one. Has that a memory of its own? It may have been adopted long before
 * its parent reported it: then it runs, or is in a stop of its own, or was released. */
static void born(struct thread *parent, int event)
{
	struct scry_ptrace_stops *s = parent->of;
	unsigned long message = 0;
	struct thread *t;
	enum state what;
	pid_t tid;

	ptrace(PTRACE_GETEVENTMSG, parent->tid, 0, &message);
	tid = (pid_t)message;
	what = shares_memory(parent->tid, tid, event) ? STATE_STARTS : STATE_CHILD;
	go_on(parent, 0);
	if (!tid)
		return;
	t = thread_of(tid);
	if (!t && scry_proc_tracer(tid, tid) == getpid())
		add_thread(s, tid, what);
	if (!t || t->state != STATE_ORPHAN)
		return;
	t->of = s;
	tracer.orphans--;
	t->state = what;
	start_thread(t, what);
}

/* Threads that are stopped, and whose parent was killed before it could report them. */
static void adopt_orphans(void)
{
	uint64_t now = scry_now_ns();

	for (size_t i = tracer.count; tracer.orphans && i-- > 0;) {
		struct thread *t = &tracer.threads[i];
		enum state what = STATE_CHILD;

		if (t->state != STATE_ORPHAN || now < t->since_ns + ORPHAN_NS)
			continue;
		for (struct scry_ptrace_stops *s = tracer.all; s && what == STATE_CHILD;
		     s = s->next) {
			t->of = s;
			if (scry_proc_share_memory(s->pid, t->tid))
				what = STATE_STARTS;
			else
				s->handlers->forked(s->arg, t->tid);
		}
		if (!t->of)
			continue;
		tracer.orphans--;
		t->state = what;
		start_thread(t, what);
	}
}

/* In another process than the one that was entered: a child that has not stopped yet, or one that
 * shares the memory. */
static bool is_elsewhere(const struct thread *t)
{
	return scry_proc_task_state(t->tid, t->tid) && !scry_proc_task_state(t->of->pid, t->tid);
}

/* It runs another program, its other threads are gone or going. One that shared its parent's memory
 * has left that alone; the memory that was the process's own may have others in it still. */
static void exec(struct thread *t)
{
	struct scry_ptrace_stops *s = t->of;
	bool is_all = t->tid == s->pid;

	ptrace(PTRACE_DETACH, t->tid, 0, 0);
	drop_thread(t);
	for (size_t i = tracer.count; is_all && i-- > 0;)
		if (tracer.threads[i].of == s && !is_elsewhere(&tracer.threads[i]))
			drop_thread(&tracer.threads[i]);
	if (is_all) {
		s->late_ns = 0;
		s->handlers->execed(s->arg);
	}
}

int scry_ptrace_stops_word(const struct scry_tracee *t, uint64_t address, uint64_t *ret)
{
	long word;

	errno = 0;
	word = ptrace(PTRACE_PEEKDATA, t->tid, address, 0);
	if (errno)
		return -EFAULT;
	*ret = (uint64_t)word;
	return 0;
}

void scry_ptrace_stops_vectors(const struct scry_tracee *t, uint64_t ret[8])
{
	struct user_fpregs_struct fp = {0};

	ptrace(PTRACE_GETFPREGS, t->tid, 0, &fp);
	for (int i = 0; i < 8; i++) /* 16 bytes each */
		memcpy(&ret[i], &fp.xmm_space[4 * i], sizeof(ret[i]));
}

static void set_ip(pid_t tid, uint64_t ip)
{
	ptrace(PTRACE_POKEUSER, tid, offsetof(struct user, regs.rip), ip);
}

/* int3 makes its SIGTRAP with this code (arch/x86/kernel/traps.c: force_sig); kill has others. */
static bool is_int3(pid_t tid)
{
	siginfo_t info = {0};

	return ptrace(PTRACE_GETSIGINFO, tid, 0, &info) == 0 && info.si_code == SI_KERNEL;
}

/*
 * The stop is not taken by waitpid: as long as none has, the SIGTRAP is still to come, and if we
 * are killed the agent gets it and knows where the thread goes on, moved by us or not. A stop that
 * was taken would let it run on behind the int3, in the middle of an instruction.
 */
static void trapped(struct thread *t)
{
	struct scry_ptrace_stops *s = t->of;
	struct scry_tracee tracee = {.pid = s->pid, .tid = t->tid, .seized = true, .stopped = true};
	uint64_t next = 0, address;
	pid_t tid = t->tid;

	s->stats.stops++;
	if (is_int3(tid) && ptrace(PTRACE_GETREGS, tid, 0, &tracee.regs) == 0) {
		address = tracee.regs.rip - 1;
		next = s->handlers->next(s->arg, address);
	}
	if (next) {
		set_ip(tid, next);
		tracee.regs.rip = next;
		s->handlers->met(s->arg, &tracee, address);
		free(tracee.xstate);
	} else {
		s->stats.own_traps++;
	}
	ptrace(PTRACE_CONT, tid, 0, next ? 0 : SIGTRAP);
}

static void take(pid_t tid, int status)
{
	struct thread *t = thread_of(tid);
	int event = status >> 16, signal = WSTOPSIG(status);

	if (!WIFSTOPPED(status)) {
		if (t)
			drop_thread(t);
	} else if (!t) {
		waitpid(tid, &status, __WALL | WNOHANG); /* it is known now */
		if (!add_thread(NULL, tid, STATE_ORPHAN))
			ptrace(PTRACE_CONT, tid, 0, 0);
	} else if (t->state == STATE_STARTS || t->state == STATE_CHILD) {
		start_thread(t, t->state);
	} else if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK ||
		   event == PTRACE_EVENT_VFORK) {
		born(t, event);
	} else if (event == PTRACE_EVENT_EXEC) {
		exec(t);
	} else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
		ptrace(PTRACE_LISTEN, tid, 0, 0);
	} else if (event == PTRACE_EVENT_STOP) {
		/* Another part of the keeper had asked it to stop, and we have taken it over. */
		ptrace(PTRACE_SETOPTIONS, tid, 0, OPTIONS);
		scry_tracee_mend_signal(tid);
		go_on(t, 0);
	} else if (!event && signal == SIGTRAP) {
		trapped(t);
	} else if (event || signal == (SIGTRAP | 0x80)) {
		go_on(t, 0);
	} else {
		scry_tracee_mend_signal(tid);
		go_on(t, signal);
	}
}

/* Of thread `of`; 0: of any. Stops for a signal are left as they are, see `trapped`: nor is a
 * signal lost if we are killed. */
static pid_t next_status(pid_t of, int flags, int *ret)
{
	siginfo_t info = {0};

	if (waitid(of ? P_PID : P_ALL, (id_t)of, &info,
		   WEXITED | WSTOPPED | WNOWAIT | __WALL | flags) < 0)
		return -1;
	if (!info.si_pid)
		return 0;
	*ret = info.si_status << 8 | 0x7f;
	if ((info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED) && info.si_status < 0x80)
		return info.si_pid;
	return waitpid(info.si_pid, ret, __WALL | WNOHANG);
}

/* The kernel reports the newest threads first: the older ones would wait for as long as those hit
 * breakpoints faster than we serve them. */
static void serve_each(void)
{
	for (size_t i = tracer.count; i-- > 0;) {
		int status;
		pid_t tid = i < tracer.count ? tracer.threads[i].tid : 0;

		if (tid && next_status(tid, WNOHANG, &status) == tid)
			take(tid, status);
	}
}

/* waitid has no time-out: a timer ends it, which goes on ticking as it may come too early. */
static void tick(uint64_t first_us)
{
	const struct itimerval t = {.it_value.tv_usec = (suseconds_t)first_us,
				    .it_interval.tv_usec = first_us ? TICK_US : 0};

	setitimer(ITIMER_REAL, &t, NULL);
}

void scry_ptrace_stops_turn(uint64_t ns)
{
	uint64_t end = scry_now_ns() + ns;

	tick(ns / 1000);
	for (;;) {
		int status;
		pid_t tid = next_status(0, 0, &status);

		if (tid < 0 && errno == ECHILD) /* all have ended */
			nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
		if (tid < 0)
			break;
		if (tid)
			take(tid, status);
		if (++tracer.taken % FAIR_TURN == 0)
			serve_each();
		if (tracer.taken % 16 == 0 && scry_now_ns() >= end)
			break;
	}
	tick(0);
	look_for_late();
	if (tracer.orphans)
		adopt_orphans();
}

/* As take, of a thread that is to be let go. */
static void take_last(pid_t tid, int status)
{
	struct thread *t = thread_of(tid);
	struct scry_ptrace_stops *s = t ? t->of : NULL;
	int event = status >> 16, signal = event ? 0 : WSTOPSIG(status);
	bool is_call = signal == (SIGTRAP | 0x80);
	struct user_regs_struct regs;
	uint64_t next = 0;

	if (!WIFSTOPPED(status) || !s || t->state == STATE_CHILD || event == PTRACE_EVENT_CLONE ||
	    event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
	    event == PTRACE_EVENT_EXEC) {
		take(tid, status);
		return;
	}
	if (event == PTRACE_EVENT_STOP && scry_tracee_has_trap(tid)) {
		ptrace(PTRACE_CONT, tid, 0, 0);
		return;
	}
	if (signal == SIGTRAP && is_int3(tid) && ptrace(PTRACE_GETREGS, tid, 0, &regs) == 0)
		next = s->handlers->next(s->arg, regs.rip - 1);
	if (next)
		set_ip(tid, next);
	else if (event ? WSTOPSIG(status) == SIGTRAP : !is_call)
		scry_tracee_mend_signal(tid);
	drop_thread(t);
	ptrace(PTRACE_DETACH, tid, 0, next || is_call ? 0 : signal);
}

static size_t count_of(const struct scry_ptrace_stops *s)
{
	size_t n = 0;

	for (size_t i = 0; i < tracer.count; i++)
		n += tracer.threads[i].of == s || tracer.threads[i].state == STATE_ORPHAN;
	return n;
}

size_t scry_ptrace_stops_leave(struct scry_ptrace_stops *s)
{
	uint64_t end = scry_now_ns() + LEAVE_NS;
	size_t left;

	s->is_left = true;
	for (size_t i = tracer.count; i-- > 0;) {
		struct thread *t = &tracer.threads[i];

		if (t->of == s && t->state == STATE_HELD) { /* it stops no second time */
			ptrace(PTRACE_DETACH, t->tid, 0, t->signal);
			drop_thread(t);
		} else if (t->of == s) {
			ptrace(PTRACE_INTERRUPT, t->tid, 0, 0);
		}
	}
	while ((left = count_of(s)) && scry_now_ns() < end) {
		int status;
		pid_t tid = next_status(0, WNOHANG, &status);

		if (tid > 0) {
			struct thread *t = thread_of(tid);

			if (!t || t->of == s || t->state == STATE_ORPHAN)
				take_last(tid, status);
			else
				take(tid, status);
		} else if (tid < 0 && errno == ECHILD) {
			break;
		} else {
			adopt_orphans();
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
		}
	}
	for (size_t i = tracer.count; i-- > 0;) {
		struct thread *t = &tracer.threads[i];
		struct scry_tracee tracee = {.pid = s->pid, .tid = t->tid, .seized = true};

		if (t->of != s)
			continue;
		drop_thread(t);
		scry_tracee_release(&tracee);
	}
	return left;
}

/* The process is gone, and others run its code, or a copy, in which there are breakpoints. */
static void leave_survivors(struct scry_ptrace_stops *s)
{
	bool has_any = false;

	for (size_t i = tracer.count; i-- > 0;) {
		struct thread *t = &tracer.threads[i];

		if (t->of != s)
			continue;
		has_any = true;
		if (t->state != STATE_CHILD && is_elsewhere(t))
			s->handlers->forked(s->arg, t->tid);
	}
	if (has_any)
		scry_ptrace_stops_leave(s);
}

void scry_ptrace_stops_free(struct scry_ptrace_stops *s)
{
	if (!s)
		return;
	leave_survivors(s);
	for (struct scry_ptrace_stops **at = &tracer.all; *at; at = &(*at)->next) {
		if (*at == s) {
			*at = s->next;
			break;
		}
	}
	if (!tracer.all && tracer.hurries)
		sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
	free(s);
}

void scry_ptrace_stops_stats(const struct scry_ptrace_stops *s, struct scry_ptrace_stops_stats *ret)
{
	*ret = s->stats;
}
