/* See leftovers.h. */
#include "hook/leftovers.h"

#include <errno.h>

#include "base/err.h"

/* Does the journal of an agent that is there say so? Reads only. */
static bool are_there(pid_t pid)
{
	struct scry_agent_header h;
	struct scry_maps maps = {0};
	struct scry_edit edit = {0};
	struct scry_mem mem;
	bool are = false;

	if (scry_mem_open(&mem, pid, 0) < 0)
		return false;
	if (scry_maps_read(pid, &maps) == 0 && scry_agent_find(&mem, &maps, &h) == 0 &&
	    h.stage == SCRY_AGENT_READY && scry_agent_is_whole(&h, &maps) &&
	    scry_edit_open(&edit, &mem, scry_agent_journal(&h)) == 0)
		are = scry_edit_standing(&edit) != 0;
	scry_edit_close(&edit);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	return are;
}

static void count_pauses(struct scry_inject *to, const struct scry_inject *from)
{
	to->pause_max_ns = from->pause_max_ns;
	to->pause_threads = from->pause_threads;
	to->pause_total_ns = from->pause_total_ns;
	to->pause_wall_ns = from->pause_wall_ns;
	to->pause_cpu_ns = from->pause_cpu_ns;
	to->pauses = from->pauses;
}

int scry_leftovers_undo(struct scry_inject *inj)
{
	struct scry_inject own = {.proc = inj->proc,
				  .lock = -1,
				  .mem.fd = -1,
				  .max_pause_ns = inj->max_pause_ns,
				  .purpose = inj->purpose,
				  .only_adopt = true};
	int r = are_there(inj->proc->pid) ? 0 : -ENOENT;

	scry_error_clear();
	if (r == 0) /* it puts back what stands before anything else */
		r = scry_inject_enter(&own, 0, NULL);
	if (own.control)
		own.control->owner_pid = 0;
	count_pauses(inj, &own);
	scry_inject_done(&own);
	return r == -ENOENT || r == -EINPROGRESS ? 0 : r; /* it is gone, or idle, by now */
}
