/* See own.h. */
#include "hook/own.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/err.h"
#include "sys/hurry.h"
#include "sys/living.h"

#define LOCK_NS 500000000ull
#define TRIES_NS 2000000000ull
#define NAP_NS 5000000
#define GRACE_TICKS 10000000000ull /* some seconds, until there is a lease */

static void owner_sentence(const struct scry_proc *proc)
{
	struct scry_mem mem;
	struct scry_maps maps = {0};
	struct scry_agent_header h;
	struct scry_control c = {0};

	if (scry_mem_open(&mem, proc->pid, 0) == 0) {
		if (scry_maps_read(proc->pid, &maps) == 0 && scry_agent_find(&mem, &maps, &h) == 0)
			scry_mem_read(&mem, scry_agent_control(&h, &mem), &c,
				      offsetof(struct scry_control, pad0));
		scry_maps_done(&maps);
		scry_mem_close(&mem);
	}
	if (c.owner_pid)
		scry_fail(-EBUSY,
			  "process %d (%s) is being watched already: by scry %.15s, process %u of "
			  "uid %u; "
			  "fix: end that one first",
			  proc->pid, proc->comm, c.owner_does, c.owner_pid, c.owner_uid);
	else
		scry_fail(-EBUSY,
			  "process %d (%s) is being entered by another scry; fix: try again later",
			  proc->pid, proc->comm);
}

/* Does one whose word counts listen there? */
static bool is_believed(const struct sockaddr_un *un, socklen_t size)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t length = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool answer = fd >= 0 && connect(fd, (const struct sockaddr *)un, size) == 0 &&
		      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
		      (peer.uid == 0 || peer.uid == geteuid());

	if (fd >= 0)
		close(fd);
	return answer;
}

/* A keeper that was killed holds it until its memory is given back, so it is waited for. */
static int bind_soon(int fd, const struct sockaddr_un *un, socklen_t size)
{
	uint64_t deadline_ns = scry_now_ns() + LOCK_NS;

	while (bind(fd, (const struct sockaddr *)un, size) < 0) {
		if (errno != EADDRINUSE)
			return -errno;
		if (!is_believed(un, size))
			return -EACCES;
		if (scry_now_ns() > deadline_ns)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	return listen(fd, SOMAXCONN) < 0 ? -errno : 0;
}

int scry_inject_lock(struct scry_inject *inj, const struct scry_proc *proc)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int n, fd, r;

	*inj = (struct scry_inject){.proc = proc, .lock = -1, .mem.fd = -1};
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return scry_fail(-errno, "cannot make a socket: %s", strerror(errno));
	/* An abstract name: taken atomically, gone with its owner however that dies. */
	n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "scry-owner-%d-%llu", proc->pid,
		     (unsigned long long)proc->start_ticks);
	r = bind_soon(fd, &un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
	if (r == 0)
		inj->lock = fd;
	else
		close(fd);
	if (r == -EBUSY)
		owner_sentence(proc);
	return r == -EBUSY ? r : 0; /* a stranger's is none: the claim decides */
}

void scry_inject_unlock(struct scry_inject *inj)
{
	scry_own_give_up(inj);
	if (inj->lock >= 0)
		close(inj->lock);
	inj->lock = -1;
}

int scry_own_begin(struct scry_own *own, const struct scry_inject *inj,
		   const struct scry_tracee *ours)
{
	const pid_t pid = inj->proc->pid, first = scry_living_thread(pid);
	int r;

	*own = (struct scry_own){0};
	if (ours && ours->tid == first)
		return 0;
	r = scry_tracee_seize_now(&own->first, pid, first);
	if (r == -EPERM && !scry_proc_tracer(pid, first)) /* or that tracer has just let go */
		r = scry_tracee_seize_now(&own->first, pid, first);
	own->is_held = r == 0;
	if (r == -EPERM && scry_proc_tracer(pid, first) == getpid())
		r = 0;
	else if (r == -EPERM && scry_proc_tracer(pid, first))
		r = -EAGAIN;
	if (r == -EAGAIN || r == 0)
		scry_error_clear();
	return r;
}

void scry_own_end(struct scry_own *own)
{
	if (own->is_held) { /* it has to stop for that, and may have to be waited for */
		scry_hurry_lend(own->first.tid, 0);
		scry_tracee_release(&own->first);
		scry_hurry_recall(own->first.tid);
	}
	own->is_held = false;
}

static uint64_t claim_at(const struct scry_inject *inj)
{
	return scry_agent_state_page(&inj->header) + SCRY_OWNER_OFFSET;
}

static uint64_t pid_space(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

/* It is good while the lease is fresh, but for one whom we see to be gone. */
static bool is_taken(const struct scry_inject *inj, const struct scry_owner *o)
{
	const uint64_t control = scry_agent_control(&inj->header, &inj->mem), now = __rdtsc();
	uint64_t lease = 0;

	if (!o->nonce || o->nonce == inj->nonce)
		return false;
	if (o->pid_space == pid_space() && !scry_proc_is_running((pid_t)o->pid, o->start))
		return false;
	scry_mem_u64(&inj->mem, control + offsetof(struct scry_control, lease_tsc), &lease);
	return now < o->until_tsc || now < lease;
}

int scry_own_claim(struct scry_inject *inj)
{
	struct scry_owner o;

	if (scry_mem_read(&inj->mem, claim_at(inj), &o, sizeof(o)) < 0)
		return 0; /* not that far: no other scry can have claimed it */
	if (is_taken(inj, &o)) {
		owner_sentence(inj->proc);
		return -EBUSY;
	}
	while (!inj->nonce)
		if (getrandom(&inj->nonce, sizeof(inj->nonce), 0) < 0)
			return scry_fail(-errno, "no random number: %s", strerror(errno));
	o = (struct scry_owner){.nonce = inj->nonce,
				.until_tsc = __rdtsc() + GRACE_TICKS,
				.pid_space = pid_space(),
				.pid = (uint32_t)getpid(),
				.start = scry_proc_start_ticks(getpid())};
	return scry_edit_poke(inj->mem.fd, claim_at(inj), &o, sizeof(o));
}

int scry_own_take(struct scry_inject *inj, const struct scry_tracee *ours)
{
	const uint64_t deadline_ns = scry_now_ns() + TRIES_NS;
	struct scry_owner o;
	struct scry_own own;
	int r;

	for (;;) {
		/* A scry that is known to be at work is not disturbed, and may be waiting for
		 * `ours`. */
		if (scry_mem_read(&inj->mem, claim_at(inj), &o, sizeof(o)) == 0 &&
		    is_taken(inj, &o)) {
			owner_sentence(inj->proc);
			return -EBUSY;
		}
		r = scry_own_begin(&own, inj, ours);
		if (r == 0)
			r = scry_own_claim(inj);
		scry_own_end(&own);
		if (r != -EAGAIN || scry_now_ns() > deadline_ns)
			break;
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	if (r == -EAGAIN) {
		owner_sentence(inj->proc);
		r = -EBUSY;
	}
	return r;
}

void scry_own_give_up(struct scry_inject *inj)
{
	const struct scry_owner none = {0};
	uint64_t nonce;

	if (inj->nonce && scry_mem_u64(&inj->mem, claim_at(inj), &nonce) == 0 &&
	    nonce == inj->nonce)
		scry_edit_poke(inj->mem.fd, claim_at(inj), &none, sizeof(none));
	inj->nonce = 0;
}

int scry_own_check_agent(const struct scry_inject *inj)
{
	uint64_t nonce;

	if (!inj->nonce || scry_mem_u64(&inj->mem, claim_at(inj), &nonce) < 0)
		return scry_fail(-ENOENT, "the agent is not in process %d any more",
				 inj->proc->pid);
	return scry_own_check(inj);
}

int scry_own_check(const struct scry_inject *inj)
{
	uint64_t nonce;

	if (!inj->nonce || scry_mem_u64(&inj->mem, claim_at(inj), &nonce) < 0 ||
	    nonce == inj->nonce)
		return 0;
	return scry_fail(-EPERM,
			 "another scry has taken process %d over while this one was stopped; fix: "
			 "try again when that one has ended",
			 inj->proc->pid);
}
