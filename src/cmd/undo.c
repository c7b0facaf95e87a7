/*
 * `scry undo -p PID`: takes out what a scry that died left in a process. `scry patch list -p PID`:
 * shows it.
 *
 * Trusts nothing in the target: an agent is known by its header page, a change is undone only where
 * our bytes are and the old ones are the file's. A process whose owner lives is left to its owner.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/patch_lasting.h"
#include "cmd/undo.h"
#include "hook/enter_check.h"
#include "hook/inject.h"
#include "watch/signals.h"

#define DESCENDANTS_MAX 4096

struct undo_opts {
	uint64_t pid;
	uint64_t max_pause_ns;
	bool follow, wait, help;
	bool is_again; /* that it stays was said */
};

#define UNDO_ROWS 5 /* with -f and --wait, which undo has and list has not */
#define LIST_ROWS 3
#define LOOK_NS 100000000
#define TRY_EVERY 20 /* looks, where only a try shows it */

static int parse(struct undo_opts *o, int argc, char **argv, const char *usage, size_t count)
{
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &o->pid, "PID", "the process", NULL},
		{0, "max-pause", SCRY_OPT_DURATION, &o->max_pause_ns, "TIME",
		 "give up when its threads do not stop within this (default 50ms)", NULL},
		{'h', "help", SCRY_OPT_FLAG, &o->help, NULL, "this help", NULL},
		{'f', "follow", SCRY_OPT_FLAG, &o->follow, NULL, "its child processes too", NULL},
		{0, "wait", SCRY_OPT_FLAG, &o->wait, NULL,
		 "wait until what has to stay for now can be taken out", NULL},
	};
	int rest, r;

	o->max_pause_ns = 50000000;
	r = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &rest);
	if (r == 0 && o->help) {
		printf("usage: %s\n\n", usage);
		scry_opt_help(rows, count, stdout);
		return 1;
	}
	if (r == 0 && (!o->pid || o->pid > 4194304 || rest < argc))
		r = scry_fail(-EINVAL, "say which process: -p PID; usage: %s", usage);
	return r;
}

static int report_failure(int r)
{
	if (!*scry_error())
		scry_fail(r, "%s", strerror(-r));
	return r == -EPERM || r == -EACCES ? 3
	       : r == -ESRCH		   ? 5
	       : r == -ENOTSUP		   ? 4
	       : r == -EINVAL		   ? 2
					   : 1;
}

/* Nothing found: is there really nothing? Says so; exit status 0. */
static int nothing(const struct scry_proc *proc)
{
	printf("process %d (%s): no agent of scry is in it, nothing to undo\n", proc->pid,
	       scry_text_shown(proc->comm).text);
	return 0;
}

/* Whatever another build's agent has there is not what is looked for, and waited for in vain. */
static bool has_let_go(const struct scry_mem *mem, const struct scry_agent_header *h)
{
	const uint64_t at = h->image + scry_agent_source_symbol("scry_agent") +
			    offsetof(struct scry_agent_data, state);
	struct scry_agent_state state;

	return scry_mem_read(mem, at, &state, sizeof(state)) < 0 ||
	       (!state.hooked && state.jobs_registered == state.jobs_run);
}

/* *ret_lets_go: nothing that is seen from outside speaks against taking it out. */
static bool has_agent(const struct scry_proc *proc, bool *ret_lets_go, int *ret_error)
{
	struct scry_agent_header h = {0};
	struct scry_maps maps = {0};
	struct scry_mem mem;
	int r = scry_mem_open(&mem, proc->pid, 0);

	if (r == -ESRCH)
		r = scry_proc_fail_gone(proc->pid);
	*ret_error = r;
	if (r < 0)
		return false;
	r = scry_maps_read(proc->pid, &maps);
	*ret_error = r;
	if (r == 0)
		r = scry_agent_find(&mem, &maps, &h);
	*ret_lets_go = r == 0 && h.stage == SCRY_AGENT_IDLE && has_let_go(&mem, &h);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	return r == 0;
}

/* A scry that died a moment ago may have sent a thread to map the agent's first page, and on a busy
 * machine it comes to it only now: so it is looked for once more. */
static bool has_agent_soon(const struct scry_proc *proc, int *ret_error)
{
	bool unused;

	if (has_agent(proc, &unused, ret_error) || *ret_error < 0)
		return *ret_error == 0;
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	return has_agent(proc, &unused, ret_error);
}

static void wait_for(const struct scry_inject *inj, int tries)
{
	for (int i = 0; i < tries && !has_let_go(&inj->mem, &inj->header); i++)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/*
 * Objects were watched by hooks: they are put back already, so nothing calls the agent any more.
 * What it holds in the VM it lets go in a job, for which the threads are asked; the agent knows
 * which is not one of Ruby's.
 */
static void ask_threads(struct scry_inject *inj, const struct scry_proc *proc)
{
	struct scry_agent_hooks hooks = {0};
	pid_t *tasks = NULL;
	ssize_t n = 0;

	if (scry_mem_read(&inj->mem,
			  scry_inject_symbol(inj, "scry_agent_vm") +
				  offsetof(struct scry_agent_vm, hooks),
			  &hooks, sizeof(hooks)) == 0 &&
	    hooks.on)
		n = scry_proc_tasks(proc->pid, &tasks);
	for (ssize_t i = 0; i < n && !has_let_go(&inj->mem, &inj->header); i++)
		if (scry_inject_run(inj, tasks[i], "scry_agent_register") == 0)
			wait_for(inj, 1);
	free(tasks);
	scry_error_clear();
}

static int stays(const struct scry_inject *inj)
{
	const struct scry_agent_header *h = &inj->header;

	if (h->stage == SCRY_AGENT_IDLE)
		printf("%llu KiB of the agent stay mapped, without effect, as Ruby still has its "
		       "address; once one of its threads has run Ruby code scry undo -p %d unmaps "
		       "them\n",
		       (unsigned long long)scry_agent_bytes(h) / 1024, inj->proc->pid);
	else if (inj->left_why)
		printf("%llu KiB of the agent stay mapped, without effect, as %s; fix: scry undo "
		       "-p %d again, later\n",
		       (unsigned long long)scry_agent_bytes(h) / 1024, inj->left_why,
		       inj->proc->pid);
	else
		printf("%llu KiB of the agent stay mapped, without effect, as a thread may still "
		       "need them; fix: scry undo -p %d again when its threads have run\n",
		       (unsigned long long)scry_agent_bytes(h) / 1024, inj->proc->pid);
	return 0;
}

static int undo(struct scry_inject *inj, const struct scry_proc *proc)
{
	struct scry_undo_report report;
	uint64_t left;
	int r;

	scry_inject_want(inj, 0);
	ask_threads(inj, proc);
	wait_for(inj, 100); /* a busy VM lets go at its next event, or when the job runs */
	r = scry_inject_leave(inj, &report, &left);
	printf("process %d (%s): %zu change%s undone: %llu bytes put back and verified", proc->pid,
	       scry_text_shown(proc->comm).text, inj->older.entries + report.entries,
	       scry_text_s(inj->older.entries + report.entries),
	       (unsigned long long)(inj->older.bytes + report.bytes));
	printf("; ");
	if (left)
		stays(inj);
	else
		printf("the agent is unmapped\n");
	return r;
}

static int undo_held(const struct undo_opts *o, pid_t pid)
{
	struct scry_proc proc;
	struct scry_inject inj = {.lock = -1, .mem.fd = -1};
	int r = scry_proc_open(&proc, pid);

	if (r < 0)
		return r;
	if (!has_agent_soon(&proc, &r) && r == 0) {
		r = nothing(&proc);
		scry_proc_close(&proc);
		return r;
	}
	if (r == 0)
		r = scry_inject_lock(&inj, &proc);
	if (r == 0)
		r = scry_proc_refresh(&proc);
	if (r == 0)
		r = scry_inject_check_undo(&proc);
	if (r == 0) {
		inj.max_pause_ns = o->max_pause_ns;
		inj.only_adopt = true;
		scry_error_clear();
		r = scry_inject_enter(&inj, 0, NULL);
	}
	if (r == -ENOENT && inj.removed_part) {
		printf("process %d (%s): what a scry had left mapped is unmapped; nothing was "
		       "changed\n",
		       proc.pid, scry_text_shown(proc.comm).text);
		r = 0;
	} else if (r == -ENOENT && !*scry_error()) { /* its keeper was faster */
		r = nothing(&proc);
	} else if (r == -EINPROGRESS && o->is_again) {
		r = 0;
	} else if (r == -EINPROGRESS) {
		printf("process %d (%s): no changes are in place; ", proc.pid,
		       scry_text_shown(proc.comm).text);
		r = stays(&inj);
	} else if (r == 0) {
		r = undo(&inj, &proc);
	}
	scry_inject_done(&inj);
	scry_proc_close(&proc);
	return r;
}

static int undo_one(const struct undo_opts *o, pid_t pid)
{
	sigset_t was;
	int r;

	scry_signals_hold(false, &was);
	r = undo_held(o, pid);
	sigprocmask(SIG_SETMASK, &was, NULL);
	return r;
}

int scry_undo_await(pid_t pid, uint64_t max_pause_ns)
{
	const struct undo_opts o = {.max_pause_ns = max_pause_ns, .is_again = true};
	const uint64_t start = scry_proc_start_ticks(pid);
	bool lets_go = true, is_there = true;
	int r = 0;

	for (uint32_t i = 1; is_there && r == 0; i++) {
		struct scry_proc proc;

		if (scry_proc_open(&proc, pid) < 0) {
			scry_log_say("process %d has ended, and what stayed in it with it",
				     (int)pid);
			break;
		}
		is_there = proc.start_ticks == start && has_agent(&proc, &lets_go, &r);
		scry_proc_close(&proc);
		if (is_there && r == 0 && i == 2)
			scry_log_say(
				"waiting until process %d releases scry's code, for which one of "
				"its threads must run (a request wakes a server); ^C ends the wait",
				(int)pid);
		if (is_there && r == 0 && (lets_go || i % TRY_EVERY == 0))
			r = undo_one(&o, pid);
		else if (is_there && nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL) < 0)
			r = -EINTR;
	}
	if (r == -ESRCH)
		r = 0;
	if (r == 0)
		scry_error_clear();
	return r;
}

/* What is meant to stay. */
static void name_patches(pid_t pid)
{
	struct scry_patch_head head;
	struct scry_maps maps = {0};
	struct scry_mem mem = {.fd = -1};
	uint64_t at = 0;

	if (scry_mem_open(&mem, pid, 0) == 0 && scry_maps_read(pid, &maps) == 0)
		while (scry_lasting_next(&mem, &maps, &at, &head) == 0)
			printf("process %d has %spatch '%s', which stays; fix: scry patch undo %s "
			       "-p %d\n",
			       (int)pid, head.stage == SCRY_PATCH_ON ? "" : "what is left of ",
			       scry_text_shown(head.name).text, scry_text_shown(head.name).text,
			       (int)pid);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	scry_error_clear();
}

static int undo_and_wait(const struct undo_opts *o, pid_t pid)
{
	int r = undo_one(o, pid);

	if (r == 0)
		name_patches(pid);

	if (fflush(stdout) && r == 0)
		return scry_fail(-errno, "cannot write to standard output: %s", strerror(errno));
	return r == 0 && o->wait ? scry_undo_await(pid, o->max_pause_ns) : r;
}

size_t scry_undo_descendants(pid_t pid, pid_t *list, size_t max)
{
	struct scry_proc_stat st;
	size_t count = 1, before = 0;
	struct dirent *d;

	list[0] = pid;
	while (before != count &&
	       count < max) { /* a child may have a lower number than its parent */
		DIR *dir = opendir("/proc");

		before = count;
		while (dir && count < max && (d = readdir(dir))) {
			pid_t p = (pid_t)atoi(d->d_name);
			bool is_child = false, is_known = false;

			if (p <= 0 || scry_proc_stat(p, &st) < 0)
				continue;
			for (size_t i = 0; i < count; i++) {
				is_child |= list[i] == st.ppid;
				is_known |= list[i] == p;
			}
			if (is_child && !is_known)
				list[count++] = p;
		}
		if (dir)
			closedir(dir);
	}
	return count;
}

/* Those that hold an agent. One that ended meanwhile needs nothing. */
static int undo_children(const struct undo_opts *o)
{
	static pid_t list[DESCENDANTS_MAX];
	size_t count = scry_undo_descendants((pid_t)o->pid, list, DESCENDANTS_MAX);
	bool unused;
	int r = 0, e;

	for (size_t i = 1; i < count; i++) {
		struct scry_proc proc;

		if (scry_proc_open(&proc, list[i]) < 0)
			continue;
		e = has_agent(&proc, &unused, &e) ? undo_and_wait(o, list[i]) : 0;
		scry_proc_close(&proc);
		r = e == -ESRCH || r ? r : e;
	}
	return r;
}

int scry_cmd_undo(int argc, char **argv)
{
	struct undo_opts o = {0};
	int r = parse(&o, argc, argv, "scry undo -p PID [-f] [--wait]", UNDO_ROWS), e = 0;

	if (r == 1)
		return 0;
	if (r == 0)
		r = undo_and_wait(&o, (pid_t)o.pid);
	if (r == 0 && o.follow)
		e = undo_children(&o);
	if (r == 0 && e == 0)
		scry_error_clear();
	return r < 0 ? report_failure(r) : e < 0 ? report_failure(e) : 0;
}

static void print_entry(size_t i, const struct scry_journal_entry *j)
{
	static const char *const states[] = {"none", "planned", "applied", "undone"};

	printf("%4zu  %#14llx  %2u  %-5s  %-7s ", i, (unsigned long long)j->address, j->size,
	       j->kind == SCRY_EDIT_SLOT ? "slot" : "text", j->state < 4 ? states[j->state] : "?");
	for (uint32_t b = 0; b < j->size; b++)
		printf(" %02x", j->old[b]);
	printf(" ->");
	for (uint32_t b = 0; b < j->size; b++)
		printf(" %02x", j->new_[b]);
	printf("\n");
}

int scry_cmd_patch_list(int argc, char **argv)
{
	struct undo_opts o = {0};
	struct scry_proc proc;
	struct scry_mem mem = {.fd = -1};
	struct scry_maps maps = {0};
	struct scry_agent_header h;
	struct scry_edit edit = {0};
	int patches = 0, r = parse(&o, argc, argv, "scry patch list -p PID", LIST_ROWS);

	if (r == 1)
		return 0;
	if (r == 0)
		r = scry_proc_open(&proc, (pid_t)o.pid);
	if (r < 0)
		return report_failure(r);
	r = scry_mem_open(&mem, proc.pid, 0);
	if (r == -ESRCH)
		r = scry_proc_fail_gone(proc.pid);
	if (r == 0)
		r = scry_maps_read(proc.pid, &maps);
	if (r == 0)
		patches = scry_lasting_print(&proc);
	if (r == 0 && scry_agent_find(&mem, &maps, &h) < 0) {
		if (!patches)
			nothing(&proc);
	} else if (r == 0) {
		if (h.stage != SCRY_AGENT_IDLE) /* that has no journal: nothing is left */
			r = scry_edit_open(&edit, &mem, scry_agent_journal(&h));
		printf("process %d (%s): agent at %#llx, %zu change%s\n", proc.pid,
		       scry_text_shown(proc.comm).text, (unsigned long long)h.text,
		       r == 0 ? edit.count : 0, scry_text_s(r == 0 ? edit.count : 0));
		for (size_t i = 0; r == 0 && i < edit.count; i++)
			print_entry(i, &edit.entries[i]);
		scry_edit_close(&edit);
	}
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	scry_proc_close(&proc);
	if (r == 0)
		r = scry_flush(stdout, "the list");
	return r < 0 ? report_failure(r) : 0;
}
