/* See calling.h. */
#include "hook/calling.h"

#include <stdlib.h>
#include <time.h>

#include "agent/agent.h"
#include "base/err.h"
#include "hook/renew.h"
#include "sys/seccomp.h"

#define LOOK_NS 100000000ull
#define THREADS_AT_ONCE 32

static const struct {
	const char *request, *handler;
} guards[] = {{"prctl@*", "scry_agent_prctl"}, {"syscall@*", "scry_agent_syscall"}};
#define GUARDS (sizeof(guards) / sizeof(guards[0]))

int scry_calling_want(struct scry_hooks *h)
{
	int r = 0;

	for (size_t i = 0; i < GUARDS && r == 0; i++) {
		const struct scry_hook_to to = {.kind = SCRY_HOOK_REPLACE,
						.way = SCRY_WAY_ENTRY,
						.handler = guards[i].handler,
						.is_exported = !h->objects.is_static,
						.is_guard = true};

		r = scry_hooks_guard(h, guards[i].request, &to);
	}
	return r;
}

int scry_calling_start(struct scry_inject *inj)
{
	const struct scry_agent_calling own = {
		.pid = (uint32_t)scry_proc_tid_inside(inj->proc->pid, inj->proc->pid)};
	const uint32_t no = 0;
	int r = scry_edit_poke(inj->mem.fd, inj->data + offsetof(struct scry_agent_data, forbidden),
			       &no, sizeof(no));

	inj->control->filtered = 0;
	inj->control->quiet = 0;
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd,
				   scry_inject_symbol(inj, "scry_agent_rows") +
					   offsetof(struct scry_agent_rows, calling),
				   &own, sizeof(own));
	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

static bool look(struct scry_calling *c, pid_t pid)
{
	pid_t *tids = NULL;
	ssize_t n = scry_proc_tasks(pid, &tids);
	bool any = false;

	for (ssize_t i = 0; i < n && i < THREADS_AT_ONCE && !any; i++)
		any = scry_seccomp_has(pid, tids[c->next++ % (uint64_t)n]);
	free(tids);
	return any;
}

bool scry_calling_turn(struct scry_calling *c, struct scry_inject *inj)
{
	uint64_t now = scry_now_ns();

	if (c->is_over || !inj->control || !inj->proc || inj->proc->pid <= 0 || now < c->look_ns)
		return false;
	c->look_ns = now + LOOK_NS;
	/* one that was not entered may have run under a filter all the time */
	c->is_over = __atomic_load_n(&inj->control->filtered, __ATOMIC_RELAXED) ||
		     (inj->data && look(c, inj->proc->pid));
	if (c->is_over)
		__atomic_store_n(&inj->control->quiet, 1, __ATOMIC_SEQ_CST);
	return c->is_over;
}
