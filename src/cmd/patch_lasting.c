/* See patch_lasting.h. */
#include "cmd/patch_lasting.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/patch_children.h"
#include "hook/enter_check.h"
#include "hook/leftovers.h"
#include "watch/signals.h"
#include "patch/ucontext.h"

#define OLDER_NS 2000000000ull /* for patches that were out already: a process may forge many */

#define PRINT_MAX 64 /* patches that are listed */

static sigset_t held_back; /* the mask of before */

int scry_lasting_enter(struct scry_inject *inj, const struct scry_proc *proc,
		       const struct scry_lasting_way *way)
{
	int r;

	scry_signals_hold(true, &held_back);
	r = scry_inject_lock(inj, proc);
	inj->purpose = way->purpose;
	inj->max_pause_ns = way->max_pause_ns;
	inj->spare_stack = way->spare_stack;
	inj->is_entered = way->takes_out;
	return r < 0 ? r : scry_inject_enter(inj, way->near, NULL);
}

int scry_lasting_leave(struct scry_inject *inj, int r)
{
	struct scry_undo_report report;
	uint64_t left = 0;
	char kept[512];
	int gone;

	snprintf(kept, sizeof(kept), "%s", scry_error());
	gone = inj->control ? scry_inject_leave(inj, &report, &left) : 0;
	sigprocmask(SIG_SETMASK, &held_back, NULL);
	if (r < 0)
		return scry_fail(r, "%s", kept);
	if (gone < 0)
		return gone;
	if (inj->is_too_large)
		scry_log_say("process %d has more memory than can be searched within "
			     "--max-pause: only the stacks of its threads were searched for code "
			     "that was interrupted within the changed instructions; a longer "
			     "--max-pause searches all",
			     inj->proc->pid);
	if (left)
		scry_log_say(
			"%llu KiB of scry's agent stay mapped, without effect, as %s; fix: scry "
			"undo -p %d later",
			(unsigned long long)left / 1024,
			inj->left_why ? inj->left_why
				      : "no thread came to a place where it can unmap them",
			inj->proc->pid);
	scry_error_clear();
	return 0;
}

int scry_lasting_give_up(struct scry_lasting *patch, struct scry_inject *inj, int r)
{
	struct scry_undo_report report;
	const char *why = NULL;
	char kept[512];
	char reason[512];
	uint64_t left = 0;

	if (!patch->head.journal) /* nothing was mapped */
		return r;
	snprintf(kept, sizeof(kept), "%s", scry_error());
	if (scry_lasting_off(patch, inj, &report, &left, &why) < 0) {
		snprintf(reason, sizeof(reason), "%s", scry_error());
		return scry_fail(r, "%s; and taking it out again failed: %s", kept, reason);
	}
	if (!left)
		return scry_fail(r, "%s", kept);
	return scry_fail(
		r,
		"%s; %llu KiB of the patch stay mapped, without effect, as %s; fix: scry patch "
		"undo %s -p %d later",
		kept, (unsigned long long)left / 1024, why, scry_text_shown(patch->head.name).text,
		inj->proc->pid);
}

int scry_lasting_look(const struct scry_proc *proc, const char *name, struct scry_patch_head *ret)
{
	struct scry_maps maps = {0};
	struct scry_mem mem = {.fd = -1};
	int r = scry_mem_open(&mem, proc->pid, 0);

	if (r == 0)
		r = scry_maps_read(proc->pid, &maps);
	if (r == 0 && scry_lasting_find(&mem, &maps, name, ret) < 0)
		r = scry_fail(-ENOENT,
			      "process %d (%s) has no patch '%s'; fix: scry patch list -p %d lists "
			      "its patches",
			      proc->pid, proc->comm, name, proc->pid);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	return r;
}

int scry_lasting_check_free(const struct scry_proc *proc, const char *name)
{
	struct scry_patch_head head;
	int r = scry_lasting_look(proc, name, &head);

	if (r == 0 && head.stage != SCRY_PATCH_OUT)
		return scry_fail(
			-EEXIST,
			"process %d (%s) has a patch '%s' already; fix: scry patch list -p "
			"%d shows it, scry patch undo %s -p %d removes it",
			proc->pid, proc->comm, name, proc->pid, name, proc->pid);
	if (r == -ENOENT)
		r = 0;
	if (r == 0)
		scry_error_clear();
	return r;
}

int scry_lasting_clean(const struct scry_proc *proc, uint64_t max_pause_ns)
{
	struct scry_inject inj = {.lock = -1, .mem.fd = -1};
	sigset_t was;
	int r;

	scry_signals_hold(true, &was);
	r = scry_inject_lock(&inj, proc);
	inj.purpose = "patch apply";
	inj.max_pause_ns = max_pause_ns;
	if (r == 0)
		r = scry_leftovers_undo(&inj);
	scry_inject_done(&inj);
	sigprocmask(SIG_SETMASK, &was, NULL);
	if (r == -EBUSY) { /* the plan says what is in its way */
		scry_error_clear();
		r = 0;
	}
	return r;
}

/* Others of that name, which were taken out before and had to stay mapped, are tried again. */
static void take_out_older(struct scry_inject *inj, const char *name)
{
	const uint64_t until_ns = scry_now_ns() + OLDER_NS;
	struct scry_patch_head head;
	uint64_t at = 0;

	scry_maps_done(&inj->maps);
	while (scry_now_ns() < until_ns && scry_maps_read(inj->proc->pid, &inj->maps) == 0 &&
	       scry_lasting_next(&inj->mem, &inj->maps, &at, &head) == 0) {
		struct scry_lasting patch = {0};
		struct scry_undo_report report;
		const char *why = NULL;
		uint64_t left;

		scry_maps_done(&inj->maps);
		if (head.stage != SCRY_PATCH_OUT || strcmp(head.name, name) != 0)
			continue;
		if (scry_lasting_open(&patch, inj, &head) == 0)
			scry_lasting_off(&patch, inj, &report, &left, &why);
		scry_lasting_close(&patch);
		scry_maps_done(&inj->maps);
	}
	scry_maps_done(&inj->maps);
	scry_error_clear();
}

int scry_lasting_take_out(const struct scry_proc *proc, const char *name, uint64_t max_pause_ns,
			  struct scry_taken_out *ret)
{
	struct scry_inject inj = {.lock = -1, .mem.fd = -1};
	struct scry_lasting patch = {0};
	struct scry_patch_head head;
	struct scry_taken_out out = {0};
	struct scry_lasting_way way = {
		.purpose = "patch undo", .takes_out = true, .max_pause_ns = max_pause_ns};
	int r = scry_lasting_look(proc, name, &head); /* before any thread is held */

	if (r < 0)
		return r;
	if (head.stage != SCRY_PATCH_MAPPING) /* by it a process is entered all whose threads */
		way.spare_stack = head.stack; /* are on stacks of coroutines */
	r = scry_lasting_enter(&inj, proc, &way);
	if (r == 0)
		r = scry_lasting_look(proc, name, &head);
	if (r == 0)
		r = scry_lasting_open(&patch, &inj, &head);
	if (r == 0)
		r = scry_lasting_off(&patch, &inj, &out.report, &out.left, &out.why);
	scry_lasting_close(&patch);
	if (r == 0)
		take_out_older(&inj, name);
	r = scry_lasting_leave(&inj, r);
	out.pause_ns = inj.pause_max_ns;
	scry_inject_done(&inj);
	if (ret)
		*ret = out;
	return r;
}

static void print_ucontext(const struct scry_mem *mem, const struct scry_patch_head *head)
{
	static const char *const names[] = {"getcontext", "setcontext", "swapcontext"};
	struct scry_ucontext_counts counts;

	if (scry_ucontext_counts(mem, head, &counts) < 0)
		return;
	for (size_t i = 0; i < SCRY_UCONTEXT_SITES; i++)
		printf("  %-12s ~%llu calls without the system call, %llu with it\n", names[i],
		       (unsigned long long)counts.fast[i], (unsigned long long)counts.slow[i]);
	if (counts.has_changed)
		printf("  the program has changed a signal mask: all make the system call again; "
		       "fix: undo, and apply again\n");
	else if (counts.is_measuring)
		printf("  it is measured, or scry was ended while it was: all make the system "
		       "call\n");
}

static void print_counters(const struct scry_mem *mem, const struct scry_patch_head *head)
{
	uint64_t value;

	for (uint64_t i = 0; i < head->counter_count; i++)
		if (scry_mem_u64(mem, head->counters[i].at, &value) == 0)
			printf("  %-12s %llu%s\n", scry_text_shown(head->counters[i].name).text,
			       (unsigned long long)value,
			       head->counters[i].is_log ? " lines logged" : "");
}

/* Where a library was unloaded its changes are gone with it, also when it came back. */
static void print_standing(struct scry_mem *mem, const struct scry_patch_head *head)
{
	struct scry_edit edit;
	size_t standing = 0;
	uint8_t now[SCRY_EDIT_MAX];

	if (head->stage == SCRY_PATCH_ON && scry_edit_open(&edit, mem, head->journal) == 0) {
		for (size_t i = 0; i < edit.count; i++)
			standing += scry_mem_read(mem, edit.entries[i].address, now,
						  edit.entries[i].size) == 0 &&
				    !memcmp(now, edit.entries[i].new_, edit.entries[i].size);
		if (standing < edit.count)
			printf("  only %zu of %zu changes are in place: it was not put in "
			       "completely, or a library was unloaded\n",
			       standing, edit.count);
		scry_edit_close(&edit);
	}
	scry_error_clear();
}

static void print_patch(const struct scry_proc *proc, struct scry_mem *mem,
			const struct scry_patch_head *head)
{
	static const char *const stages[] = {"", "not complete, without effect", "applied",
					     "taken out, still mapped"};
	const time_t since = (time_t)(head->since_ns / 1000000000u);
	struct tm tm;
	char when[32];

	localtime_r(&since, &tm);
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	printf("process %d (%s): patch '%s' %s at %s by uid %u%s, %llu KiB at %#llx\n", proc->pid,
	       scry_text_shown(proc->comm).text, scry_text_shown(head->name).text,
	       stages[head->stage], when, head->uid,
	       head->start == proc->start_ticks ? "" : ", inherited",
	       (unsigned long long)head->size / 1024, (unsigned long long)head->text);
	if (head->version > SCRY_PATCH_VERSION)
		printf("  made by a newer scry\n");
	print_standing(mem, head);
	if (head->kind == SCRY_PATCH_UCONTEXT)
		print_ucontext(mem, head);
	print_counters(mem, head);
}

int scry_lasting_print(const struct scry_proc *proc)
{
	struct scry_mem mem = {.fd = -1};
	struct scry_maps maps = {0};
	struct scry_patch_head head;
	uint64_t at = 0;
	int count = 0, r = scry_mem_open(&mem, proc->pid, 0);

	if (r == 0)
		r = scry_maps_read(proc->pid, &maps);
	while (r == 0 && scry_lasting_next(&mem, &maps, &at, &head) == 0) {
		if (count < PRINT_MAX)
			print_patch(proc, &mem, &head);
		count++;
	}
	if (count > PRINT_MAX)
		printf("process %d (%s): %d more patches, or what looks like patches, are not "
		       "shown\n",
		       proc->pid, scry_text_shown(proc->comm).text, count - PRINT_MAX);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	return r < 0 ? r : count;
}

static int undo(const struct scry_proc *proc, const char *name, uint64_t max_pause_ns)
{
	struct scry_taken_out out;
	int r = scry_inject_check_undo(proc);

	if (r == 0)
		r = scry_inject_check_alone(proc);
	if (r == 0)
		r = scry_lasting_take_out(proc, name, max_pause_ns, &out);
	if (r < 0)
		return r;
	printf("process %d (%s): patch '%s' is out: %zu change%s, %llu bytes put back and "
	       "verified; its threads were stopped for %.1f ms at most; ",
	       proc->pid, scry_text_shown(proc->comm).text, scry_text_shown(name).text,
	       out.report.entries, scry_text_s(out.report.entries),
	       (unsigned long long)out.report.bytes, (double)out.pause_ns / 1e6);
	if (out.left)
		printf("%llu KiB of it stay mapped, without effect, as %s; fix: scry patch undo %s "
		       "-p %d again later\n",
		       (unsigned long long)out.left / 1024, out.why, scry_text_shown(name).text,
		       proc->pid);
	else
		printf("its memory is unmapped\n");
	return scry_flush(stdout, "the report");
}

static int undo_child(pid_t pid, const char *name, uint64_t max_pause_ns)
{
	struct scry_proc proc;
	int r = scry_proc_open(&proc, pid);

	if (r == 0) {
		r = undo(&proc, name, max_pause_ns);
		scry_proc_close(&proc);
	}
	return r == -ESRCH ? 0 : r; /* it needs nothing any more */
}

/* Children that have the patch: each is undone with `follow`, else they are named. One that fails
 * does not keep the others. How many there are, or -errno. */
static int undo_children(pid_t pid, const char *name, uint64_t max_pause_ns, bool follow)
{
	static struct scry_patch_children have;
	char pids[128];
	int r = 0;

	scry_patch_children_find(pid, name, true, &have);
	for (size_t i = 0; i < have.count && follow; i++) {
		int e = undo_child(have.pids[i], name, max_pause_ns);

		if (e < 0)
			scry_log_error("%s", scry_error());
		r = r < 0 ? r : e;
	}
	if (follow || !have.count)
		return r < 0 ? r : (int)have.count;
	scry_patch_children_words(&have, pids, sizeof(pids));
	printf("%zu child process%s of it still %s the patch: %s; fix: scry patch undo %s -p PID "
	       "for each, or -f\n",
	       have.count, have.count == 1 ? "" : "es", have.count == 1 ? "has" : "have", pids,
	       scry_text_shown(name).text);
	return scry_flush(stdout, "the report");
}

int scry_cmd_patch_undo(int argc, char **argv)
{
	const char *name = argv[1];
	uint64_t pid = 0, max_pause_ns = 50000000;
	bool help = false, follow = false;
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &pid, "PID", "the process", NULL},
		{'f', "follow", SCRY_OPT_FLAG, &follow, NULL,
		 "its child processes that have the patch, too", NULL},
		{0, "max-pause", SCRY_OPT_DURATION, &max_pause_ns, "TIME",
		 "give up when its threads do not stop within this (default 50ms)", NULL},
		{'h', "help", SCRY_OPT_FLAG, &help, NULL, "this help", NULL},
	};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	struct scry_proc proc;
	int rest, r;

	r = scry_opt_parse(rows, count, (struct scry_opt_args){argc - 1, argv + 1}, &rest);
	if (r == 0 && help) {
		printf("usage: scry patch undo NAME -p PID [-f]\n\n");
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (r == 0 && (!pid || rest < argc - 1))
		r = scry_fail(-EINVAL,
			      "say which process: -p PID; usage: scry patch undo NAME -p PID [-f]");
	if (r < 0)
		return SCRY_EXIT_USAGE;
	r = scry_proc_open(&proc, (pid_t)pid);
	if (r < 0)
		return scry_front_status(r);
	r = undo(&proc, name, max_pause_ns);
	if (r == 0)
		r = undo_children(proc.pid, name, max_pause_ns, follow);
	else if (r == -ENOENT && follow) { /* it was undone in the parent before */
		r = undo_children(proc.pid, name, max_pause_ns, true);
		if (r == 0)
			r = undo(&proc, name, max_pause_ns);
	}
	r = r > 0 ? 0 : r;
	scry_proc_close(&proc);
	return scry_front_status(r);
}
