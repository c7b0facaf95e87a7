/* See malloc_lines.h. */
#include "cmd/malloc_lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "base/err.h"
#include "cmd/makers.h"
#include "cmd/objects_plan.h"
#include "cmd/session.h"
#include "sys/maps.h"

#define THREAD_DEPTH (64u << 10) /* less than a thread's VM stack, more than it uses without one */

static void leave_out(struct scry_malloc_lines *l, const char *why)
{
	snprintf(l->why, sizeof(l->why), "%s", why);
	scry_error_clear();
	scry_ruby_free(l->ruby);
	l->ruby = NULL;
	l->how = SCRY_LINES_OFF;
}

/* The layout of thread-local storage that the agent knows is glibc's. */
static bool is_musl(const struct scry_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (strstr(maps->entries[i].path, "/ld-musl"))
			return true;
	return false;
}

/* From 3.3 on VM stacks of threads are allocated; before they were in the machine stack. */
static uint64_t depth_of(const struct scry_ruby *ruby)
{
	unsigned int major = 0, minor = 0;

	if (sscanf(ruby->description, "ruby %u.%u", &major, &minor) == 2 &&
	    (major > 3 || (major == 3 && minor >= 3)))
		return 0;
	return THREAD_DEPTH;
}

static int find_ec(struct scry_malloc_lines *l)
{
	struct scry_agent_hooks *plan = &l->place.plan;
	int r = scry_ruby_current_ec(l->ruby, &plan->tls_module, &plan->tls_offset);

	if (r < 0 && scry_makers_find(l->ruby, &l->watch->proc) == 0)
		r = scry_ruby_current_ec(l->ruby, &plan->tls_module, &plan->tls_offset);
	return r;
}

void scry_malloc_lines_plan(struct scry_malloc_lines *l, struct scry_watch *w)
{
	struct scry_maps maps = {0};
	size_t entry;
	bool other_libc;
	int r = scry_maps_read(w->proc.pid, &maps);

	*l = (struct scry_malloc_lines){.watch = w};
	if (r == 0)
		r = scry_ruby_find(w->proc.pid, &maps, &entry);
	other_libc = is_musl(&maps);
	scry_maps_done(&maps);
	if (r < 0) {
		scry_error_clear();
		return;
	}
	if (scry_ruby_open(w->proc.pid, !w->held, &l->ruby) < 0)
		leave_out(l, scry_error());
	else if (other_libc)
		leave_out(l, "its libc is not glibc");
	else if (scry_objects_has_jit(w, l->ruby))
		leave_out(l, "it runs code made at run time (a JIT), which does not keep the line "
			     "that it is at");
	else if (find_ec(l) < 0)
		leave_out(l, scry_error());
	if (!l->ruby)
		return;
	l->place.ruby = l->ruby;
	/* a filter may kill who makes a system call that is not usual */
	l->how = w->proc.seccomp ? SCRY_LINES_TOLD : SCRY_LINES_READ;
	l->depth = depth_of(l->ruby);
	scry_objects_fill_frames(&l->ruby->layout, false, false, &l->frames);
	l->is_booting = w->held != NULL;
	w->runtime = l->ruby->description;
}

int scry_malloc_lines_want(const struct scry_malloc_lines *l, struct scry_hooks *hooks)
{
	const struct scry_hook_to to = {.kind = SCRY_HOOK_CALL,
					.way = SCRY_WAY_ENTRY,
					.handler = "scry_agent_called",
					.cookie = SCRY_CALL_NAMES};
	uint64_t down = l->ruby ? scry_ruby_symbol(l->ruby, "ruby_sig_finalize") : 0;
	char request[32];

	if (!down)
		return 0;
	snprintf(request, sizeof(request), "%#llx", (unsigned long long)down);
	return scry_hooks_want(hooks, request, &to);
}

int scry_malloc_lines_tell(struct scry_malloc_lines *l)
{
	struct scry_inject *inj = &l->watch->inj;
	struct scry_agent_ruby plan;
	int r;

	if (l->ruby && !l->watch->held && !scry_objects_keep_ec(l->watch, &l->place))
		leave_out(l, "its threads do not keep their execution context where they should");
	if (!l->ruby)
		return 0;
	scry_objects_fill_plan(l->ruby, &plan);
	r = scry_objects_tell_source(l->watch, &l->place);
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, inj->data + offsetof(struct scry_agent_data, ruby),
				   &plan, sizeof(plan));
	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

/* The agent takes starts out, only this puts them in. */
static int watch_code(void *arg, uint64_t start)
{
	struct scry_inject *inj = &((struct scry_malloc_lines *)arg)->watch->inj;
	const uint64_t starts = inj->data + offsetof(struct scry_agent_data, lines.starts);
	uint32_t hash = scry_malloc_start_hash(start), set = hash % (SCRY_MALLOC_STARTS / 4) * 4;
	uint64_t at = starts + offsetof(struct scry_malloc_starts, at) + 8ull * set;
	uint64_t word_at = starts + 8ull * (hash / 64), word, ways[4];
	int i = 0, r = scry_mem_read(&inj->mem, at, ways, sizeof(ways));

	while (r == 0 && i < 4 && ways[i] && ways[i] != start)
		i++;
	if (r == 0 && i == 4)
		return -ENOSPC;
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, at + 8ull * (unsigned int)i, &start, sizeof(start));
	if (r == 0)
		r = scry_mem_u64(&inj->mem, word_at, &word);
	if (r == 0 && !(word >> hash % 64 & 1)) {
		word |= 1ull << hash % 64;
		r = scry_edit_poke(inj->mem.fd, word_at, &word, sizeof(word));
	}
	return r;
}

/* The layout does not hold: what came so far is native. */
static void give_up(struct scry_malloc_lines *l)
{
	const struct scry_inject *inj = &l->watch->inj;
	const uint32_t off = 0;

	leave_out(l, scry_error());
	scry_edit_poke(inj->mem.fd, inj->data + offsetof(struct scry_agent_data, malloc.with_lines),
		       &off, sizeof(off));
}

void scry_malloc_lines_read(struct scry_malloc_lines *l, struct scry_malloc *calls)
{
	const struct scry_malloc_lines_reader reader = {
		.ruby = l->ruby, .is_proven = !l->is_booting, .watch = watch_code, .arg = l};

	scry_malloc_ruby(calls, &reader);
}

void scry_malloc_lines_turn(struct scry_malloc_lines *l, struct scry_malloc *calls)
{
	int r = l->is_booting ? scry_ruby_validate(l->ruby) : -EAGAIN;

	if (r == -EAGAIN || r == -ESRCH) {
		scry_error_clear();
		return;
	}
	l->is_booting = false;
	if (r < 0)
		give_up(l);
	scry_malloc_lines_read(l, calls);
}

void scry_malloc_lines_note(const struct scry_malloc_lines *l,
			    const struct scry_malloc_stats *calls)
{
	uint64_t full = l->watch->inj.control ? l->watch->inj.control->lines_full : 0;

	if (l->why[0])
		scry_watch_note(l->watch, "callers are native code only, not lines of Ruby: %s",
				l->why);
	if (calls->lines_gone)
		scry_watch_note(l->watch,
				"%llu of %llu callers are lines of Ruby whose code was gone before "
				"it could be read: they are shown as native code",
				(unsigned long long)calls->lines_gone,
				(unsigned long long)calls->lines);
	if (full)
		scry_watch_note(l->watch,
				"%llu calls came from other lines of Ruby than the first %u that "
				"called: they are shown as native code",
				(unsigned long long)full, SCRY_LINES);
}

void scry_malloc_lines_done(struct scry_malloc_lines *l)
{
	scry_ruby_free(l->ruby);
	l->ruby = NULL;
}
