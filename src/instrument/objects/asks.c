/* See asks.h. */
#include "instrument/objects/asks.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "base/err.h"
#include "instrument/objects/own.h"
#include "vm/ruby.h"

#define AGAIN_NS 1000000000ull

/* What was entered is gone, by its end or an exec. A fork child may end as soon as it is known
 * whose child buffer it has, before its Ruby is found: then nothing of it can be read. */
static bool is_over(const struct scry_watch *w)
{
	uint64_t magic;

	return scry_mem_u64(&w->inj->mem, w->inj->header.text, &magic) < 0;
}

int scry_objects_ask(struct scry_watch *w, enum scry_asked who,
		     bool (*done)(const struct scry_watch *, uint64_t))
{
	struct scry_objects_watch *o = w->state;
	struct scry_ruby_thread *threads;
	ssize_t n = scry_ruby_threads(o->ruby, &threads);
	struct scry_agent_state agent;
	int asked = 0, r;
	bool finished = false, is_busy = false;

	if (n < 0) {
		w->errors += n != -ESRCH && !is_over(w); /* its memory goes before it ends */
		scry_error_clear();
		return -1;
	}
	for (enum scry_asked pass = SCRY_ASK_RUNNING; pass <= who && !finished; pass++) {
		for (ssize_t i = 0; i < n && !finished; i++) {
			pid_t tid = threads[i].tid;

			if (!tid || (pass == SCRY_ASK_RUNNING &&
				     scry_proc_task_state(w->proc.pid, tid) != 'R'))
				continue;
			threads[i].tid = 0; /* once each: its state is another one each time */
			r = scry_inject_run(w->inj, tid, "scry_agent_register");
			is_busy |= r == -EAGAIN;
			asked += r == 0;
			finished = r == 0 && done(w, 300000);
		}
	}
	free(threads);
	o->asked_cpu_ns = scry_proc_cpu_ns(w->proc.pid);
	if (scry_inject_state(w->inj, &agent) == 0)
		o->table_full = agent.jobs_refused != 0;
	scry_error_clear();
	return asked || is_busy ? asked : -1;
}

int scry_objects_ask_again(struct scry_watch *w, bool (*done)(const struct scry_watch *, uint64_t))
{
	uint64_t until = scry_now_ns() + AGAIN_NS;
	int asked;

	do
		asked = scry_objects_ask(w, SCRY_ASK_ALL, done);
	while (!asked && !done(w, SCRY_ASK_EVERY_NS) && scry_now_ns() < until);
	return asked;
}
