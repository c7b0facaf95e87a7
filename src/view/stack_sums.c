/* How well sampling went. See stack_sums.h. */
#include "view/stack_sums.h"

#include <string.h>

#include "base/text.h"

void scry_stack_sums_sampling(struct scry_stack_sums *v, const struct scry_ev_sampling *e)
{
	if (v->sampled < SCRY_STACK_PROCESSES_SHOWN)
		v->each[v->sampled] = *e;
	v->sampled++;
	v->sums.rate = e->rate;
	v->sums.ticks += e->ticks;
	v->sums.missed += e->missed;
	v->sums.valid += e->valid;
	v->sums.repaired += e->repaired;
	v->sums.rejected += e->rejected;
	v->sums.unchanged += e->unchanged;
	v->sums.dropped += e->dropped;
	v->sums.collects += e->collects;
	v->sums.sampler_ns += e->sampler_ns;
	v->sums.busy_ns += e->busy_ns;
	v->sums.clocked += e->clocked;
	v->sums.lost += e->lost;
	v->sums.kernel_ns += e->kernel_ns;
}

void scry_stack_sums_naming(struct scry_stack_sums *v, const struct scry_ev_naming *e)
{
	v->has_naming = true;
	v->naming.born += e->born;
	v->naming.lost += e->lost;
	v->naming.late += e->late;
	v->naming.nameless += e->nameless;
	v->naming.reported += e->reported;
	v->naming.agree += e->agree;
	v->naming.differ += e->differ;
	v->naming.gone += e->gone;
}

void scry_stack_sums_pauses(struct scry_stack_sums *v, const struct scry_ev_pauses *e)
{
	v->has_pauses = true;
	v->pauses.threads = v->pauses.threads > e->threads ? v->pauses.threads : e->threads;
	v->pauses.count += e->count;
	v->pauses.total_ns += e->total_ns;
	if (e->median_ns > v->pauses.median_ns) /* of several processes, the greatest */
		v->pauses.median_ns = e->median_ns;
	if (e->longest_ns > v->pauses.longest_ns)
		v->pauses.longest_ns = e->longest_ns;
	v->pauses.spared += e->spared;
	v->pauses.late += e->late;
	v->pauses.again += e->again;
}

void scry_stack_sums_push(const struct scry_stack_sums *v, const struct scry_stack_times *t,
			  struct scry_doc *doc)
{
	uint64_t slots = v->sums.ticks + v->sums.missed + v->pauses.spared + v->pauses.late;
	uint64_t rate = scry_share(v->sums.ticks, slots, v->sums.rate);
	const struct scry_pair pairs[] = {
		{"samples", "samples of threads", SCRY_CELL_COUNT, 0, scry_cell_number(t->samples)},
		{"valid",
		 v->has_pauses ? "samples exact: read while no thread ran"
		 : v->sums.clocked
			 ? "samples valid: taken at a tick of a clock, or equal when read twice"
			 : "samples valid: equal when read twice",
		 SCRY_CELL_COUNT, 0, scry_cell_number(v->sums.valid)},
		{"repaired", "samples repaired: what both readings had in common was kept",
		 SCRY_CELL_COUNT, 0, scry_cell_number(v->sums.repaired)},
		{"rejected", "samples rejected: the two readings had nothing in common",
		 SCRY_CELL_COUNT, 0, scry_cell_number(v->sums.rejected)},
		{"dropped", "newest frames on their way in or out, left out", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.dropped)},
		{"ticks", "looks at all threads", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.ticks)},
		{"missed", "looks missed: scry was late", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.missed)},
		{"rate_asked", "looks a second asked for", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.rate)},
		{"rate_achieved", "looks a second achieved", SCRY_CELL_COUNT, 0,
		 scry_cell_number(rate)},
		{"sampler_cpu_ns", "s of processor time that scry used", SCRY_CELL_TIME, 0,
		 scry_cell_number(v->sums.sampler_ns)},
		{"wall_ns", "s of all threads", SCRY_CELL_TIME, 0, scry_cell_number(t->wall_ns)},
		{"cpu_ns", "s on a processor, as the kernel counts", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->cpu_ns)},
		{"idle_threads",
		 t->idle_threads == 1 ? "thread idle: it waited in one place"
				      : "threads idle: they waited in one place",
		 SCRY_CELL_COUNT, 0, scry_cell_number(t->idle_threads)},
		{"idle_ns", "s of idle threads", SCRY_CELL_TIME, 0, scry_cell_number(t->idle_ns)},
		{"cpu_unknown_ns", "s of that unknown: it ran between looks", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->cpu_unknown_ns)},
		{"state_cpu_ns", "s running", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->state_ns[SCRY_STATE_CPU])},
		{"state_runnable_ns", "s ready, but on no processor", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->state_ns[SCRY_STATE_RUNNABLE])},
		{"state_gvl_ns", "s waiting for the GVL", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->state_ns[SCRY_STATE_GVL])},
		{"state_blocked_ns", "s blocked", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->state_ns[SCRY_STATE_BLOCKED])},
		{"state_sleeping_ns", "s sleeping", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->state_ns[SCRY_STATE_SLEEPING])},
		{"state_gc_ns", "s collecting garbage", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->state_ns[SCRY_STATE_GC])},
		{"state_unknown_ns", "s in no known state", SCRY_CELL_TIME, 0,
		 scry_cell_number(t->state_ns[SCRY_STATE_UNKNOWN])},
		{"clocked", "samples by eBPF", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.clocked)},
		{"clock_lost", "samples by eBPF lost: no room", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.lost)},
		{"kernel_ns", "s taken by the sampling itself, in the kernel", SCRY_CELL_TIME, 0,
		 scry_cell_number(v->sums.kernel_ns)},
	};
	const struct scry_pair naming[] = {
		{"code_born", "pieces of code came into being", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->naming.born)},
		{"code_lost", "of them, not reported: no room, or not readable", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->naming.lost)},
		{"code_nameless", "loaded from binary form, and gone before they were named",
		 SCRY_CELL_COUNT, 0, scry_cell_number(v->naming.nameless)},
		{"names_agree", "names that agree with what memory says", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->naming.agree)},
		{"names_differ", "names that differ from what memory says", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->naming.differ)},
		{"frames_reported", "frames that could no longer be named from memory",
		 SCRY_CELL_COUNT, 0, scry_cell_number(v->naming.reported)},
	};
	const struct scry_pair pauses[] = {
		{"held_looks", "looks for which what ran was held", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->pauses.count)},
		{"held_threads",
		 v->pauses.threads == 1 ? "thread held at once, at most"
					: "threads held at once, at most",
		 SCRY_CELL_COUNT, 0, scry_cell_number(v->pauses.threads)},
		{"held_median_ns", "s held for a look: the median", SCRY_CELL_TIME, 0,
		 scry_cell_number(v->pauses.median_ns)},
		{"held_longest_ns", "s held for a look: the longest", SCRY_CELL_TIME, 0,
		 scry_cell_number(v->pauses.longest_ns)},
		{"held_ns", "s held in all", SCRY_CELL_TIME, 0,
		 scry_cell_number(v->pauses.total_ns)},
		{"looks_spared", "looks left out so that it was held for less", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->pauses.spared)},
		{"looks_late", "looks left out: a thread would not stop", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->pauses.late)},
		{"looks_again", "looks made again: a thread woke up", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->pauses.again)},
	};
	size_t count = sizeof(pairs) / sizeof(pairs[0]);
	size_t clocked = 3, more = sizeof(naming) / sizeof(naming[0]);
	size_t held = sizeof(pauses) / sizeof(pauses[0]);
	struct scry_pair all[sizeof(pairs) / sizeof(pairs[0]) + sizeof(naming) / sizeof(naming[0]) +
			     sizeof(pauses) / sizeof(pauses[0])];

	count -= v->sums.clocked ? 0 : clocked;
	memcpy(all, pairs, count * sizeof(*all));
	if (v->has_pauses) {
		memcpy(all + count, pauses, sizeof(pauses));
		count += held;
	}
	if (v->has_naming) {
		memcpy(all + count, naming, sizeof(naming));
		count += more;
	}
	doc->ops->totals(doc, all, count);
}

void scry_stack_sums_note(const struct scry_stack_sums *v, struct scry_doc *doc)
{
	struct scry_buf buf = {0};

	if (!v->naming.differ || doc->is_data)
		return;
	scry_text_things(&buf, v->naming.differ, "names");
	scry_buf_printf(&buf,
			" of code that was compiled during the watch differ from the names in "
			"memory: some rows may have wrong names");
	doc->ops->note(doc, scry_buf_str(&buf), buf.len);
	scry_buf_done(&buf);
}

void scry_stack_sums_each(const struct scry_stack_sums *v, struct scry_doc *doc)
{
	for (uint32_t i = 0; v->sampled > 1 && i < v->sampled && i < SCRY_STACK_PROCESSES_SHOWN;
	     i++) {
		const struct scry_ev_sampling *e = &v->each[i];

		scry_doc_remark(doc,
				"process %u: %llu samples, %llu looks, %llu missed; --pid %u shows "
				"it alone",
				e->pid, (unsigned long long)(e->valid + e->repaired + e->rejected),
				(unsigned long long)e->ticks, (unsigned long long)e->missed,
				e->pid);
	}
	if (v->sampled > SCRY_STACK_PROCESSES_SHOWN)
		scry_doc_remark(doc, "%u more process%s", v->sampled - SCRY_STACK_PROCESSES_SHOWN,
				v->sampled - SCRY_STACK_PROCESSES_SHOWN == 1 ? "" : "es");
}
