/* See enter_check.h. */
#include "hook/enter_check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/maps.h"
#include "sys/seccomp.h"
#include "sys/task.h"

#define ALONE_TRIES 20 /* a vfork is over soon */
#define ALONE_NAP_NS 5000000

/* AT_SECURE says that the program gained rights at exec: it must not be steered from outside. */
static bool is_secure(const struct scry_proc *proc)
{
	uint64_t secure = 0;

	return scry_proc_auxv(proc->pid, 23, &secure) == 0 && secure;
}

/* All its memory lies below 4 GiB, its stack too. What the kernel shows of it has other sizes. */
static bool is_32_bit(pid_t pid)
{
	struct scry_maps maps = {0};
	bool is = scry_maps_read(pid, &maps) == 0 && maps.count &&
		  maps.entries[maps.count - 1].end <= 1ull << 32;

	scry_maps_done(&maps);
	scry_error_clear();
	return is;
}

int scry_inject_check(const struct scry_proc *p)
{
	const char *why = NULL, *fix = "";

	if ((p->state == 'Z' || p->state == 'X') && p->threads <= 1)
		return scry_fail(-ESRCH, "process %d (%s) has ended", p->pid, p->comm);
	if (p->state == 'Z')
		why = "goes on without its first thread, and such a process is not entered";
	else if (p->pid == getpid())
		why = "is scry itself";
	else if (scry_proc_is_kernel(p->pid))
		why = "is a thread of the kernel";
	else if (p->tracer)
		return scry_fail(
			-EPERM,
			"cannot enter process %d (%s): process %d traces it already; fix: end that "
			"tracer",
			p->pid, p->comm, p->tracer);
	else if (p->state == 'T' || p->state == 't')
		why = "is stopped by a signal", fix = "; fix: continue it first (kill -CONT)";
	else if (scry_seccomp_any(p->pid))
		why = "runs under seccomp, which may kill it for a system call that scry makes in "
		      "it";
	else if (p->has_shadow_stack)
		why = "has shadow stacks (CET), and a call that scry makes in it would end it",
		fix = "; fix: start it without GLIBC_TUNABLES=glibc.cpu.x86_shstk=on";
	else if (scry_proc_share_memory(p->pid, p->ppid))
		why = "has its parent's memory as long as it has not run a program (vfork)",
		fix = "; fix: try again";
	else if (is_32_bit(p->pid))
		why = "is a 32-bit program, and scry enters x86_64 ones only";
	else if (is_secure(p))
		why = "gained rights at its start (setuid, setgid or file capabilities)";
	if (why)
		return scry_fail(-ENOTSUP, "cannot enter process %d (%s): it %s%s", p->pid, p->comm,
				 why, fix);
	return 0;
}

int scry_inject_check_undo(const struct scry_proc *p)
{
	struct scry_proc living = *p;

	if (p->state == 'Z' && p->threads > 1) /* sys/living */
		living.state = 'S';
	return scry_inject_check(&living);
}

static bool waits_for_vfork(pid_t pid, pid_t tid)
{
	struct scry_task task;
	struct scry_task_now now;

	scry_task_open(&task, pid, tid);
	scry_task_read(&task, &now);
	scry_task_close(&task);
	return now.nr == SYS_vfork || now.nr == SYS_clone || now.nr == SYS_clone3;
}

/* Does a thread wait for the child of its vfork? Then it does not stop, which is reported
 * elsewhere. */
static bool is_in_vfork(pid_t pid)
{
	bool is_waiting = false;
	pid_t *tids;
	ssize_t n = scry_proc_tasks(pid, &tids);

	for (ssize_t i = 0; i < n && !is_waiting; i++)
		is_waiting =
			scry_proc_task_state(pid, tids[i]) == 'D' && waits_for_vfork(pid, tids[i]);
	if (n > 0)
		free(tids);
	return is_waiting;
}

int scry_inject_check_alone(const struct scry_proc *p)
{
	pid_t other = scry_proc_shares_memory(p->pid), first = other;

	for (int i = 0; other && other == first; i++) {
		if (is_in_vfork(p->pid))
			return 0;
		if (i == ALONE_TRIES)
			return scry_fail(
				-ENOTSUP,
				"cannot enter process %d (%s): process %d has the same memory "
				"(clone with CLONE_VM), and is not one of its threads: what it "
				"runs cannot be stopped with them",
				p->pid, p->comm, other);
		nanosleep(&(struct timespec){.tv_nsec = ALONE_NAP_NS}, NULL);
		other = scry_proc_shares_memory(p->pid);
	}
	return 0;
}
