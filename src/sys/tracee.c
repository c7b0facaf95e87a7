/*
 * Holding one thread, and self-healing calls in it. The trick is the frame (see tracee.h):
 *
 *   rsp as found        |
 *   rsp - 128           | red zone, untouched; or the end of a stack of ours (how->stack)
 *   64-byte aligned     | xsave area with both magics, as the kernel writes it
 *   F + 8               | ucontext: registers as found, syscall restart already applied; siginfo
 *   F (F % 16 == 8)     | return address: restorer (mov $15, %rax; syscall)
 *
 * ONE SETREGS starts a call: rip = code, rsp = F, orig_rax = -1. Whatever happens to us from then
 * on, the code returns into the restorer and the kernel puts everything back.
 */
#include "sys/tracee.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/container.h"
#include "sys/edit.h"
#include "sys/proc.h"
#include "sys/rseqs.h"
#include "sys/seccomp.h"
#include "sys/xstate.h"

#define ERESTARTSYS 512 /* include/linux/errno.h: never seen by user space except by a tracer */
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
#define NR_RT_SIGRETURN 15
#define NR_RESTART_SYSCALL 219

/* linux/ptrace.h, from 6.4 on; struct ptrace_sud_config */
#define GET_SYSCALL_USER_DISPATCH_CONFIG 0x4211
#define SUD_CONFIG_BYTES 32

#define STEP_NS 1000000000ull /* an instruction, on a busy machine */
#define TRAP_NS 100000000ull
#define OTHERS_NS 500000000ull
#define SPINS 20
#define XSTATE_MAX 16384
#define ADDRESSES_END ((1ull << 47) - 4096) /* asm/page_64.h, TASK_SIZE_MAX */

struct signal_frame { /* arch/x86/include/asm/sigframe.h, struct rt_sigframe on x86_64 */
	uint64_t return_address;
	uint64_t uc_flags, uc_link;
	uint64_t ss_sp;
	uint32_t ss_flags, ss_pad;
	uint64_t ss_size;
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
	uint64_t di, si, bp, bx, dx, ax, cx, sp, ip, flags;
	uint16_t cs, gs, fs, ss;
	uint64_t err, trapno, oldmask, cr2;
	uint64_t fpstate;
	uint64_t reserved[8];
	uint64_t sigmask;
	unsigned char siginfo[128];
};
_Static_assert(offsetof(struct signal_frame, sigmask) == 304,
	       "kernel ABI: 8 + sizeof(ucontext) - 8");

uint64_t scry_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int seize_error(pid_t pid, pid_t tid, int err)
{
	pid_t tracer = scry_proc_tracer(pid, tid);
	struct scry_proc p;
	int r;

	if (err == -ESRCH)
		return scry_fail(err, "process %d is gone", pid);
	r = scry_proc_open(&p, pid);
	if (r < 0)
		return r;
	if (tracer)
		scry_fail(-EPERM,
			  "cannot enter process %d (%s): process %d traces its thread %d already; "
			  "fix: end that tracer",
			  pid, p.comm, tracer, tid);
	else
		scry_fail(
			-EPERM,
			"cannot enter process %d (%s, uid %u): not permitted; you are uid %u; fix: "
			"run scry as root (sudo scry ...)%s",
			pid, p.comm, p.uid, geteuid(), scry_container_fix(SCRY_CONTAINER_PTRACE));
	scry_proc_close(&p);
	return -EPERM;
}

/*
 * Threads that were asked to stop and have not done so yet (vfork, D state), or that were killed
 * while they stood. They will stop, or end, some day, and must then find a tracer that lets them
 * go: scry_tracee_poll_lingering. If we end, the kernel does it.
 */
static struct scry_tracee *lingering;
static size_t lingering_count, lingering_room;

/* A thread that lingers is ours already. */
static bool take_over(struct scry_tracee *t, pid_t tid)
{
	for (size_t i = 0; i < lingering_count; i++) {
		if (lingering[i].tid != tid)
			continue;
		*t = lingering[i];
		lingering[i] = lingering[--lingering_count];
		return true;
	}
	return false;
}

int scry_tracee_seize(struct scry_tracee *t, pid_t pid, pid_t tid)
{
	return scry_tracee_seize_with(t, pid, tid, 0);
}

/* Another scry that asks whether this process is owned (hook/own) holds a thread for a moment. */
static bool is_anothers(pid_t pid, pid_t tid)
{
	pid_t tracer = scry_proc_tracer(pid, tid);

	return tracer && tracer != getpid() && scry_proc_is_named(tracer, "scry");
}

static int seize_until(struct scry_tracee *t, pid_t pid, pid_t tid, unsigned long options,
		       uint64_t deadline_ns)
{
	/* Without SYSGOOD a syscall stop looks like a SIGTRAP, which must never be delivered. */
	options |= PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC;

	if (take_over(t, tid))
		return 0;
	*t = (struct scry_tracee){.pid = pid, .tid = tid};
	while (ptrace(PTRACE_SEIZE, tid, 0, options) < 0) {
		int err = errno;

		if (err == EPERM && scry_now_ns() < deadline_ns && is_anothers(pid, tid)) {
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
			continue;
		}
		return err == ESRCH && tid != pid ? -ESRCH : seize_error(pid, tid, -err);
	}
	t->seized = true;
	/* The number was read some time ago. From here on it is the thread's that we hold: if that
	 * is none of this process, the one that was meant has ended. */
	if (tgkill(pid, tid, 0) < 0 && errno == ESRCH) {
		scry_tracee_release(t);
		return tid == pid ? scry_fail(-ESRCH, "process %d is gone", pid) : -ESRCH;
	}
	return 0;
}

int scry_tracee_seize_with(struct scry_tracee *t, pid_t pid, pid_t tid, unsigned long options)
{
	return seize_until(t, pid, tid, options, scry_now_ns() + OTHERS_NS);
}

int scry_tracee_seize_now(struct scry_tracee *t, pid_t pid, pid_t tid)
{
	return seize_until(t, pid, tid, 0, 0);
}

void scry_tracee_options(struct scry_tracee *t, unsigned long options)
{
	ptrace(PTRACE_SETOPTIONS, t->tid, 0, options | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC);
}

/* The child that was asked for: if it ends while it is held, no other process hears of it. */
static struct {
	pid_t pid;
	bool has_ended;
	int status;
} asked;

/* One status of the thread, waited for until the deadline by polling: waitpid has no time-out. */
static int next_status(struct scry_tracee *t, uint64_t deadline_ns, int *ret_status)
{
	for (unsigned spins = 0;; spins++) {
		pid_t r = waitpid(t->tid, ret_status, __WALL | WNOHANG);

		if (r == t->tid)
			break;
		if (r < 0 && errno != EINTR)
			return -ESRCH;
		if (scry_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		/* With a real-time priority we would keep it from the processor that it needs. */
		if (spins > SPINS)
			nanosleep(&(struct timespec){.tv_nsec = spins > 4 * SPINS ? 100000 : 10000},
				  NULL);
	}
	if (WIFEXITED(*ret_status) || WIFSIGNALED(*ret_status)) {
		t->seized = t->stopped = false;
		if (t->tid == t->pid && t->pid == asked.pid) {
			asked.has_ended = true;
			asked.status = *ret_status;
		}
		return -ESRCH;
	}
	t->stopped = true;
	return 0;
}

/*
 * A syscall that only the kernel's restart block can continue. IN: it was interrupted, the kernel
 * is about to turn it into restart_syscall. BEFORE: that has happened (by us or by the kernel), and
 * the thread is in front of the instruction. A sigreturn in either state would drop the block.
 */
enum restart { RESTART_NONE, RESTART_IN, RESTART_BEFORE };

static enum restart restart_of(const struct scry_tracee *t)
{
	const struct user_regs_struct *r = &t->regs;

	if ((int64_t)r->orig_rax >= 0 && (int64_t)r->rax == -ERESTART_RESTARTBLOCK)
		return RESTART_IN;
	if (r->rax == NR_RESTART_SYSCALL &&
	    (ptrace(PTRACE_PEEKTEXT, t->tid, r->rip, 0) & 0xffff) == 0x050f) /* syscall */
		return RESTART_BEFORE;
	return RESTART_NONE;
}

bool scry_tracee_has_restart(const struct scry_tracee *t)
{
	return t->restart != RESTART_NONE;
}

/* By GETREGS and SETREGS: of a thread in code of 32 bits the register set NT_PRSTATUS has the
 * layout of such a program, which would be taken for the other, without cs. */
static int read_registers(struct scry_tracee *t)
{
	if (ptrace(PTRACE_GETREGS, t->tid, NULL, &t->regs) < 0)
		return -errno;
	t->restart = restart_of(t);
	return 0;
}

int scry_tracee_move(struct scry_tracee *t, uint64_t ip)
{
	struct user_regs_struct regs = t->regs;

	regs.rip = ip;
	if (ptrace(PTRACE_SETREGS, t->tid, NULL, &regs) < 0)
		return scry_fail(-errno, "cannot move thread %d of process %d: %s", t->tid, t->pid,
				 strerror(errno));
	t->regs.rip = ip;
	t->was_set = true;
	return 1;
}

int scry_tracee_step(struct scry_tracee *t, unsigned int count)
{
	int status, r, signal = t->signal;
	bool has_come = false;

	t->signal = 0;
	for (unsigned int i = 0; i < count && !has_come; i++) {
		if (ptrace(PTRACE_SINGLESTEP, t->tid, 0, signal) < 0)
			return -errno;
		t->stopped = false;
		r = next_status(t, scry_now_ns() + STEP_NS, &status);
		if (r < 0)
			return r;
		signal = 0;
		if (WSTOPSIG(status) == SIGTRAP)
			continue;
		/* One that stopped the whole process is given once more when the thread goes on. */
		t->signal = WSTOPSIG(status);
		has_come = status >> 16 == 0;
	}
	return read_registers(t);
}

int scry_tracee_interrupt(struct scry_tracee *t)
{
	if (ptrace(PTRACE_INTERRUPT, t->tid, 0, 0) < 0)
		return -errno;
	return 0;
}

bool scry_tracee_has_trap(pid_t tid)
{
	struct __ptrace_peeksiginfo_args args = {.nr = 1};
	siginfo_t info;

	for (; ptrace(PTRACE_PEEKSIGINFO, tid, &args, &info) == 1; args.off++)
		if (info.si_signo == SIGTRAP && info.si_code == SI_KERNEL)
			return true;
	return false;
}

static bool is_birth(int event)
{
	return event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
	       event == PTRACE_EVENT_CLONE;
}

/* What the stopped thread has made is held from its first instruction on, by us alone. */
static void release_newborn(const struct scry_tracee *t)
{
	unsigned long message = 0;
	struct scry_tracee child = {.seized = true};

	if (ptrace(PTRACE_GETEVENTMSG, t->tid, 0, &message) < 0 || !message)
		return;
	child.tid = (pid_t)message;
	child.pid = scry_proc_task_state(t->pid, child.tid) ? t->pid : child.tid;
	scry_tracee_release(&child);
}

int scry_tracee_wait_stop(struct scry_tracee *t, uint64_t deadline_ns)
{
	uint64_t trap_ns = TRAP_NS;
	int status, r;

	for (;;) {
		r = next_status(t, deadline_ns, &status);
		if (r < 0)
			return r;
		if (status >> 16 == PTRACE_EVENT_STOP && !scry_tracee_has_trap(t->tid))
			break;
		if (status >> 16 == PTRACE_EVENT_STOP) { /* where it is, it must not stay */
			t->stopped = false;
			deadline_ns += trap_ns; /* it has to run three times instead of once */
			trap_ns = 0;
			if (ptrace(PTRACE_CONT, t->tid, 0, 0) < 0)
				return -errno;
			continue;
		}
		/* A signal came first: deliver it. Other events just go on. Any trap clears a
		 * pending interrupt (kernel/signal.c, ptrace_stop): it is asked for again. */
		r = status >> 16 ? 0 : WSTOPSIG(status);
		if (r == (SIGTRAP | 0x80))
			r = 0;
		if (is_birth(status >> 16))
			release_newborn(t);
		t->stopped = false;
		scry_tracee_interrupt(t);
		if (ptrace(PTRACE_CONT, t->tid, 0, r) < 0)
			return -errno;
	}
	t->group_stopped = WSTOPSIG(status) != SIGTRAP;
	t->stopped_at_ns = scry_now_ns();
	return read_registers(t);
}

int scry_tracee_run(struct scry_tracee *t, uint64_t until_ns)
{
	int r = ptrace(PTRACE_CONT, t->tid, 0, t->signal) < 0 ? -errno : 0;

	t->stopped = t->was_set = false;
	t->signal = 0;
	if (r == 0)
		r = scry_tracee_wait_stop(t, until_ns);
	return r == -ETIMEDOUT ? 0 : r;
}

int scry_tracee_stop(struct scry_tracee *t, uint64_t deadline_ns)
{
	int r = scry_tracee_interrupt(t);

	return r < 0 ? r : scry_tracee_wait_stop(t, deadline_ns);
}

/* It has no status, and its end was not reported. A thread that has made an exec is ours under
 * another number, that of the process's first. */
static bool is_still_ours(struct scry_tracee *t)
{
	if (!t->seized)
		return false;
	if (scry_proc_tracer(t->pid, t->tid) == getpid())
		return true;
	t->tid = t->pid;
	return scry_proc_tracer(t->pid, t->pid) == getpid();
}

bool scry_tracee_await(pid_t tid, uint64_t deadline_ns)
{
	struct scry_tracee t;

	for (size_t i = 0; i < lingering_count; i++) {
		if (lingering[i].tid != tid)
			continue;
		t = lingering[i]; /* whom it has made may come to linger too */
		if (!t.stopped && scry_tracee_wait_stop(&t, deadline_ns) < 0)
			return false; /* what has ended is seen in the next turn */
		lingering[i] = t;
		return true;
	}
	return false;
}

void scry_tracee_poll_lingering(void)
{
	for (size_t i = lingering_count; i-- > 0;) {
		struct scry_tracee t = lingering[i]; /* whom it has made may come to linger too */
		int err = t.stopped ? 0 : scry_tracee_wait_stop(&t, 0);
		bool is_killed = false; /* and about to say so */

		if (err == -ETIMEDOUT || (err == -ESRCH && !t.stopped && is_still_ours(&t))) {
			lingering[i] = t;
			continue;
		}
		if (!err)
			scry_tracee_mend(&t);
		if (t.stopped)
			is_killed = ptrace(PTRACE_DETACH, t.tid, 0, 0) < 0 && errno == ESRCH;
		t.stopped = false;
		lingering[i] = is_killed ? t : lingering[--lingering_count];
	}
}

size_t scry_tracee_lingering(void)
{
	return lingering_count;
}

static void linger(const struct scry_tracee *t)
{
	if (lingering_count == lingering_room) {
		size_t room = lingering_room ? 2 * lingering_room : 64;
		struct scry_tracee *more = reallocarray(lingering, room, sizeof(*more));

		if (!more)
			return;
		lingering = more;
		lingering_room = room;
	}
	lingering[lingering_count] = *t;
	lingering[lingering_count].stopped = false;
	lingering[lingering_count++].xstate = NULL;
}

void scry_tracee_release(struct scry_tracee *t)
{
	scry_tracee_release_until(t, scry_now_ns() + SCRY_TRACEE_RELEASE_NS);
}

void scry_tracee_release_until(struct scry_tracee *t, uint64_t deadline_ns)
{
	if (t->seized && !t->stopped && scry_tracee_interrupt(t) == 0) {
		int err = scry_tracee_wait_stop(t, deadline_ns);

		if (err == -ETIMEDOUT)
			linger(t);
		else if (!err)
			scry_tracee_mend(t);
	}
	if (t->seized && t->stopped) {
		/* It was killed: its end is reported to us first, and to no other process before we
		 * have asked.
		 */
		if (ptrace(PTRACE_DETACH, t->tid, 0, t->signal) < 0 && errno == ESRCH)
			linger(t);
		if (t->stopped_at_ns)
			t->held_ns = scry_now_ns() - t->stopped_at_ns;
	}
	free(t->xstate);
	t->xstate = NULL;
	t->seized = t->stopped = t->has_frame = false;
}

bool scry_tracee_has_ended(pid_t pid, int *ret_status)
{
	struct scry_tracee first = {.pid = pid, .tid = pid, .seized = true};
	siginfo_t info = {0};

	if (pid != asked.pid) {
		asked.pid = pid;
		asked.has_ended = false;
	}
	if (asked.has_ended) {
		*ret_status = asked.status;
		return true;
	}
	/* Of a child that is traced stops are reported too, whatever is asked for. No thread is
	 * held now: it is one that another thread has become by exec. */
	if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != pid)
		return false;
	if (info.si_code == CLD_TRAPPED) {
		scry_tracee_release(&first);
		return false;
	}
	return waitpid(pid, ret_status, WNOHANG) == pid;
}

bool scry_tracee_is_dispatched(const struct scry_tracee *t)
{
	uint64_t config[4] = {0}; /* struct ptrace_sud_config: mode first */

	return ptrace(GET_SYSCALL_USER_DISPATCH_CONFIG, t->tid, SUD_CONFIG_BYTES, config) == 0 &&
	       config[0];
}

bool scry_tracee_can_call(const struct scry_tracee *t)
{
	return !t->group_stopped && t->regs.fs_base && t->regs.cs == 0x33 && /* 64-bit code */
	       !scry_seccomp_has(t->pid, t->tid) && !scry_proc_task_is_worker(t->pid, t->tid) &&
	       !scry_tracee_is_dispatched(t);
}

/* Where the thread goes on: an interrupted syscall is made again, as the kernel itself would do it.
 */
static void resume_point(const struct scry_tracee *t, uint64_t *ret_ip, uint64_t *ret_ax)
{
	int64_t ax = (int64_t)t->regs.rax;

	*ret_ip = t->regs.rip;
	*ret_ax = t->regs.rax;
	if ((int64_t)t->regs.orig_rax < 0)
		return;
	if (ax == -ERESTARTSYS || ax == -ERESTARTNOINTR || ax == -ERESTARTNOHAND ||
	    scry_tracee_is_cut(t)) {
		*ret_ip -= 2;
		*ret_ax = t->regs.orig_rax;
	} else if (ax == -ERESTART_RESTARTBLOCK) {
		*ret_ax = (uint64_t)-EINTR; /* only if we die; see scry_tracee_finish */
	}
}

static int read_xstate(struct scry_tracee *t)
{
	struct iovec iov;

	free(t->xstate);
	t->xstate = calloc(1, XSTATE_MAX + 16);
	if (!t->xstate)
		return -ENOMEM;
	iov = (struct iovec){.iov_base = t->xstate, .iov_len = XSTATE_MAX};
	if (ptrace(PTRACE_GETREGSET, t->tid, NT_X86_XSTATE, &iov) < 0)
		return -errno;
	t->xstate_size = iov.iov_len;
	return t->xstate_size >= 576 ? 0 : -ENOTSUP;
}

static void fill_frame(const struct scry_tracee *t, struct signal_frame *f, uint64_t restorer)
{
	const struct user_regs_struct *r = &t->regs;

	*f = (struct signal_frame){
		.return_address = restorer,
		.uc_flags = 7,	    /* FP_XSTATE, SIGCONTEXT_SS, STRICT_RESTORE_SS */
		.ss_flags = 0x7777, /* invalid on purpose: the alternate stack is left alone */
		.r8 = r->r8,
		.r9 = r->r9,
		.r10 = r->r10,
		.r11 = r->r11,
		.r12 = r->r12,
		.r13 = r->r13,
		.r14 = r->r14,
		.r15 = r->r15,
		.di = r->rdi,
		.si = r->rsi,
		.bp = r->rbp,
		.bx = r->rbx,
		.dx = r->rdx,
		.cx = r->rcx,
		.sp = r->rsp,
		.flags = r->eflags,
		.cs = (uint16_t)r->cs,
		.ss = (uint16_t)r->ss,
	};
	resume_point(t, &f->ip, &f->ax);
}

/* From now on it is on a stack of ours: said there before it does. */
static int borrow(struct scry_tracee *t, const struct scry_call *how)
{
	const uint64_t word = how->stack - sizeof(uint64_t), tid = (uint64_t)t->tid;
	int r = scry_edit_poke(how->mem_fd, word, &tid, sizeof(tid));

	if (r == 0)
		t->lent = word;
	return r;
}

/* The kernel takes a frame only if the largest area that it could have made would lie within the
 * addresses of a program, however much of it is in use. Without randomisation a stack begins there.
 */
static uint64_t below_top(uint64_t end, size_t xstate_size)
{
	return end > ADDRESSES_END - xstate_size ? ADDRESSES_END - xstate_size : end;
}

static int write_frame(struct scry_tracee *t, const struct scry_call *how)
{
	const uint64_t end = how->stack ? how->stack - 64 : t->regs.rsp - 128;
	unsigned char *buf, area[XSTATE_MAX + 16];
	uint64_t xstate_at, frame_at, mask = 0;
	size_t size, xsize;
	struct signal_frame f;
	int r = read_xstate(t);

	if (r < 0)
		return scry_fail(r, "cannot read the vector registers of thread %d", t->tid);
	if (ptrace(PTRACE_GETSIGMASK, t->tid, 8, &mask) < 0)
		return -errno;
	memcpy(area, t->xstate, sizeof(area));
	xsize = scry_xstate_dress(area);
	xstate_at = (below_top(end, t->xstate_size) - xsize - 4) & ~63ull;
	frame_at = ((xstate_at - sizeof(f)) & ~15ull) - 8;
	fill_frame(t, &f, how->gadgets->restorer);
	f.ip = scry_rseq_resume(t->tid, how->mem_fd, f.ip);
	f.fpstate = xstate_at;
	f.sigmask = t->sigmask = mask;
	size = xstate_at + xsize + 4 - frame_at;
	buf = calloc(1, size);
	if (!buf)
		return -ENOMEM;
	memcpy(buf, &f, sizeof(f));
	memcpy(buf + (xstate_at - frame_at), area, xsize + 4);
	r = how->stack ? borrow(t, how) : 0;
	if (r == 0)
		r = scry_edit_poke(how->mem_fd, frame_at, buf, size);
	free(buf);
	if (r < 0)
		return r;
	t->frame = frame_at;
	t->has_frame = true;
	return 0;
}

static int set_registers(struct scry_tracee *t, struct user_regs_struct *regs)
{
	return ptrace(PTRACE_SETREGS, t->tid, NULL, regs) < 0 ? -errno : 0;
}

/* Goes on to the next syscall entry or exit. Signals that come are delivered at once. */
static int next_syscall_stop(struct scry_tracee *t, const struct scry_call *how,
			     struct __ptrace_syscall_info *ret)
{
	int signal = 0, status, r;

	for (;;) {
		t->stopped = false;
		if (ptrace(PTRACE_SYSCALL, t->tid, 0, signal) < 0)
			return -errno;
		r = next_status(t, how->deadline_ns + t->ran_ns, &status);
		if (r < 0)
			return r;
		if (ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, sizeof(*ret), ret) < 0)
			return -errno;
		if (ret->op == PTRACE_SYSCALL_INFO_ENTRY || ret->op == PTRACE_SYSCALL_INFO_EXIT)
			return 0;
		signal = status >> 16 ? 0 : WSTOPSIG(status);
	}
}

/* All signals wait while our call runs: a timer at a high rate would else let it get nowhere. Only
 * when the frame, which has the thread's own mask, is what it goes on to: so it comes back if we
 * die.
 */
static int set_sigmask(const struct scry_tracee *t, uint64_t mask)
{
	return ptrace(PTRACE_SETSIGMASK, t->tid, sizeof(mask), &mask) < 0 ? -errno : 0;
}

static int start(struct scry_tracee *t, const struct scry_call *how, uint64_t ip,
		 const uint64_t nr_and_args[7])
{
	struct user_regs_struct regs;
	int r;

	if (!t->has_frame) {
		r = write_frame(t, how);
		if (r < 0)
			return r;
	}
	regs = t->regs;
	regs.rip = ip;
	regs.rsp = t->frame;
	regs.orig_rax = (uint64_t)-1;
	regs.eflags &= ~0x400ull; /* direction flag clear, as the ABI wants it */
	if (nr_and_args) {
		regs.rax = nr_and_args[0];
		regs.rdi = nr_and_args[1];
		regs.rsi = nr_and_args[2];
		regs.rdx = nr_and_args[3];
		regs.r10 = nr_and_args[4];
		regs.r8 = nr_and_args[5];
		regs.r9 = nr_and_args[6];
	}
	t->restarted = t->was_set = true;
	r = set_registers(t, &regs);
	return r < 0 ? r : set_sigmask(t, ~0ull);
}

int scry_tracee_syscall(struct scry_tracee *t, const struct scry_call *how,
			const uint64_t nr_and_args[7], int64_t *ret)
{
	struct __ptrace_syscall_info info;
	int r = start(t, how, how->gadgets->syscall_ret, nr_and_args);

	if (r < 0)
		return r;
	do {
		r = next_syscall_stop(t, how, &info);
		if (r < 0)
			return r;
	} while (info.op != PTRACE_SYSCALL_INFO_EXIT || info.stack_pointer != t->frame ||
		 info.instruction_pointer != how->gadgets->syscall_ret + 2);
	*ret = info.exit.rval;
	return 0;
}

/* Is the thread at the entry of the rt_sigreturn that ends our frame? */
static bool at_our_sigreturn(const struct scry_tracee *t, const struct __ptrace_syscall_info *info)
{
	return info->op == PTRACE_SYSCALL_INFO_ENTRY && info->entry.nr == NR_RT_SIGRETURN &&
	       info->stack_pointer == t->frame + 8;
}

static int give_back(struct scry_tracee *t, const struct scry_call *how)
{
	const uint64_t nobody = 0, word = t->lent;

	t->lent = 0;
	return scry_edit_poke(how->mem_fd, word, &nobody, sizeof(nobody));
}

/*
 * The thread is about to make our rt_sigreturn. A syscall with a restart block is continued by one
 * SETREGS instead: the sigreturn is skipped (orig_rax -1) and restart_syscall is made from the
 * original place.
 */
static int leave_frame(struct scry_tracee *t, const struct scry_call *how)
{
	const struct signal_frame none = {0};
	struct user_regs_struct regs = t->regs;
	struct __ptrace_syscall_info info;
	struct iovec iov = {.iov_base = t->xstate, .iov_len = t->xstate_size};
	int r;

	if (t->restart != RESTART_NONE) {
		ptrace(PTRACE_SETREGSET, t->tid, NT_X86_XSTATE, &iov);
		if (t->restart == RESTART_IN)
			regs.rip -= 2;
		regs.rax = NR_RESTART_SYSCALL;
		regs.orig_rax = (uint64_t)-1;
		r = set_sigmask(t, t->sigmask);
		if (r == 0)
			r = set_registers(t, &regs);
		if (r < 0)
			return r;
	} else {
		r = next_syscall_stop(t, how, &info); /* the exit of sigreturn */
		if (r < 0)
			return r;
	}
	/* Its registers are the thread's again: whoever looks for addresses finds no old ones. */
	scry_edit_poke(how->mem_fd, t->frame, &none, sizeof(none));
	t->has_frame = false;
	t->restarted = false;
	return t->lent ? give_back(t, how) : 0;
}

static int run_to_sigreturn(struct scry_tracee *t, const struct scry_call *how)
{
	struct __ptrace_syscall_info info;
	int r;

	do {
		r = next_syscall_stop(t, how, &info);
		if (r < 0)
			return r;
	} while (!at_our_sigreturn(t, &info));
	return leave_frame(t, how);
}

int scry_tracee_function(struct scry_tracee *t, const struct scry_call *how, uint64_t address)
{
	int r = start(t, how, address, NULL);

	return r < 0 ? r : run_to_sigreturn(t, how);
}

int scry_tracee_finish(struct scry_tracee *t, const struct scry_call *how)
{
	return t->restarted ? run_to_sigreturn(t, how) : 0;
}
