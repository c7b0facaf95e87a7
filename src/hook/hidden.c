#include "hook/hidden.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "hook/inject.h"

#define ASK_BYTES (1ull << 30)

static int read_maps(struct scry_inject *inj)
{
	scry_maps_done(&inj->maps);
	return scry_maps_read(inj->proc->pid, &inj->maps);
}

int scry_hidden_find(struct scry_inject *inj, struct scry_stw *found, uint64_t bytes)
{
	const struct scry_stw_hunt frames = {.bytes = bytes};
	int r = read_maps(inj);

	return r < 0 ? r : scry_stw_look_everywhere(found, &inj->mem, &inj->maps, &frames);
}

static bool is_seen(const struct scry_stw *w, uint64_t at)
{
	for (size_t i = 0; i < w->saved_count; i++)
		if (w->saved[i].at == at)
			return true;
	return false;
}

/* Of the frames that were found while all ran, those that the stopped threads do not account for.
 */
static size_t keep_hidden(struct scry_inject *inj, struct scry_stw *found, const struct scry_stw *w)
{
	size_t kept = 0;

	found->threads = w->threads;
	found->count = w->count;
	scry_stw_forget_dead(found, &inj->mem, &inj->maps);
	for (size_t i = 0; i < found->saved_count; i++)
		kept += !is_seen(w, found->saved[i].at);
	return kept;
}

int scry_hidden_ask(struct scry_inject *inj)
{
	struct scry_stw w, found = {.pid = inj->proc->pid, .deadline_ns = UINT64_MAX};
	int r;

	if (inj->lasts || inj->hides || !scry_proc_has_handlers(inj->proc->pid))
		return 0;
	r = scry_hidden_find(inj, &found, ASK_BYTES);
	if (r == -E2BIG) /* by what was seen */
		r = 0;
	if (r == 0 && found.saved_count) {
		r = scry_inject_stop(inj, &w);
		if (r == 0) {
			inj->hides = keep_hidden(inj, &found, &w) > 0;
			scry_inject_go(inj, &w);
		}
	}
	free(found.saved);
	return r;
}

int scry_hidden_plan(struct scry_inject *inj, const struct scry_stw_hunt *hunt)
{
	const pid_t newest = scry_proc_newest();
	int r;

	inj->hunts = true;
	inj->hunt = *hunt;
	inj->hunt.alone_since = scry_proc_shares_memory(inj->proc->pid) ? 0 : newest;
	r = read_maps(inj);
	if (r < 0 || !inj->hunt.bytes)
		return r;
	if (scry_stw_look_ns(inj->proc->pid, &inj->maps) > inj->max_pause_ns / 2) {
		inj->hunt.bytes = 0;
		inj->is_too_large = true;
	}
	return 0;
}

/* Another process on the same memory. Where none was made since there was none last, no thread is
 * asked while all are stopped. */
static pid_t other_on_memory(const struct scry_inject *inj)
{
	if (inj->hunt.alone_since && scry_proc_newest() == inj->hunt.alone_since)
		return 0;
	return scry_proc_shares_memory(inj->proc->pid);
}

int scry_hidden_look(struct scry_inject *inj, struct scry_stw *w)
{
	pid_t other = other_on_memory(inj);
	int r;

	if (other)
		return scry_fail(-EBUSY,
				 "process %d runs on the memory of process %d (CLONE_VM), and does "
				 "not stop with it; fix: try again when it has ended",
				 other, inj->proc->pid);
	if (!inj->hunt.bytes)
		return 0;
	r = read_maps(inj);
	if (r == 0)
		r = scry_stw_look_everywhere(w, &inj->mem, &inj->maps, &inj->hunt);
	if (r == -EAGAIN && inj->hunt.is_again) /* it is not looked for in the next stop */
		inj->hunt.bytes = 0;
	inj->hunt.is_again = true;
	inj->is_too_large |= r == -E2BIG || !inj->hunt.bytes;
	return r == -E2BIG ? 0 : r;
}
