/*
 * See hooked_children.h. A copy of the agent has its nonce, and the journal says what is changed in
 * that process.
 */
#include "watch/hooked_children.h"

#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "hook/agent_map.h"
#include "sys/edit.h"
#include "sys/descendant_table.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"
#include "watch/session.h"

struct search {
	const struct scry_watch *w;
	const struct scry_agent_header *of;
	uint64_t since_ticks;
	struct scry_hooked_children found;
};

/* As /proc/PID/stat has it, of a moment of CLOCK_MONOTONIC; one less, as both are rounded. */
static uint64_t ticks_of(uint64_t ns)
{
	const uint64_t rate = (uint64_t)sysconf(_SC_CLK_TCK);
	struct timespec boot = {0}, now = {0};
	uint64_t boot_ns, now_ns, ticks;

	clock_gettime(CLOCK_BOOTTIME, &boot);
	clock_gettime(CLOCK_MONOTONIC, &now);
	boot_ns = (uint64_t)boot.tv_sec * 1000000000u + (uint64_t)boot.tv_nsec;
	now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	if (ns > now_ns || now_ns - ns > boot_ns)
		return 0;
	ticks = (boot_ns - (now_ns - ns)) / (1000000000u / rate);
	return ticks ? ticks - 1 : 0;
}

/* How many changes are in a copy of that agent. */
static size_t standing(const struct scry_mem *mem, const struct scry_maps *maps,
		       const struct scry_agent_header *of)
{
	struct scry_agent_header h;
	struct scry_edit edit;
	size_t count = 0;

	if (scry_agent_find(mem, maps, &h) < 0 || h.nonce != of->nonce)
		return 0;
	if (scry_edit_open(&edit, (struct scry_mem *)mem, scry_agent_journal(&h)) == 0)
		count = scry_edit_standing(&edit);
	scry_edit_close(&edit);
	return count;
}

/* It is still to be left by this very session. A rehearsal has none. */
static bool is_watched(const struct scry_session *s, pid_t pid)
{
	bool is = false;

	for (size_t i = 0; s && i < s->count && !is; i++)
		is = s->watches[i]->proc.pid == pid && !s->watches[i]->is_over;
	return is;
}

static void look(void *arg, pid_t pid)
{
	struct search *s = arg;
	struct scry_maps maps;
	struct scry_mem mem;

	if (pid == s->w->proc.pid || is_watched(s->w->session, pid) ||
	    scry_proc_start_ticks(pid) < s->since_ticks)
		return;
	if (scry_maps_read(pid, &maps) < 0)
		return;
	if (scry_mem_open(&mem, pid, 0) == 0) {
		if (standing(&mem, &maps, s->of)) {
			s->found.count++;
			s->found.first = pid;
		}
		scry_mem_close(&mem);
	}
	scry_maps_done(&maps);
}

struct scry_hooked_children scry_hooked_children_find(const struct scry_watch *w,
						      const struct scry_agent_header *of)
{
	struct search s = {.w = w, .of = of, .since_ticks = ticks_of(w->began_ns)};

	if (w->root) /* its siblings are reported when the watch of their parent is left */
		return s.found;
	scry_descendant_table_each_process(look, &s);
	scry_error_clear();
	return s.found;
}
