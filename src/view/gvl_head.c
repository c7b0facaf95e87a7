/*
 * The head of the gvl view: the verdict, what the tables do not show, and the totals. See gvl.h.
 */
#include "view/gvl.h"
#include "view/gvl_check.h"
#include "view/gvl_chance.h"
#include "view/verdict.h"

#include "base/text.h"

#define OPEN_NS 1000000u   /* a wait that has no end is shown from that length on */
#define CONVOY_NS 1000000u /* a convoy is shown from that length on */
#define FEW 25		   /* samples: from there on a share is a fifth more or less */
#define UNKNOWN_PART 10	   /* the report says that so much of the waiting has no line, and more */
#define SLACK_NS 50000000u /* processor time is counted in ticks of 10 ms */

/* Rows are sorted: the first of a known line, if it is more than what is of no known line. */
static const struct scry_gvl_line *worst_row(const struct scry_gvl_lines *l)
{
	return l->count && l->rows[0].what ? &l->rows[0] : NULL;
}

static uint64_t unknown_ns(const struct scry_gvl_lines *l)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (!l->rows[i].what)
			return l->rows[i].lost_ns;
	return 0;
}

static void put_worst_line(struct scry_gvl_view *g, struct scry_buf *b)
{
	const struct scry_gvl_line *worst = worst_row(&g->held);

	if (!worst)
		return;
	scry_buf_printf(b, "; the %s ",
			g->opts->by == SCRY_VIEW_BY_GEM	     ? "gem"
			: g->opts->by == SCRY_VIEW_BY_METHOD ? "method"
							     : "line");
	scry_gvl_put_row(g, worst, b);
	scry_buf_printf(b, ", whichever thread ran it, ");
	scry_text_duration(b, worst->lost_ns);
	if (worst->samples) {
		scry_buf_printf(b, " +- ");
		scry_text_duration(
			b, scry_gvl_error_ns(&g->held, worst, scry_gvl_all_turns(g, &g->held)));
	}
	if (worst->samples < FEW)
		scry_buf_printf(b, " by %u sample%s", worst->samples, scry_text_s(worst->samples));
}

static void note(struct scry_gvl_view *g)
{
	g->doc->ops->note(g->doc, g->buf.data, g->buf.len);
}

static bool is_little(const struct scry_gvl_view *g)
{
	const struct scry_gvl_lock_sum *worst = scry_gvl_worst_lock(g);

	return !worst || scry_share(worst->contended_ns, worst->known_ns, 1000) < 10;
}

/* Right behind the verdict: how much of the waiting has no line. */
static void note_unknown(struct scry_gvl_view *g)
{
	const uint64_t held = unknown_ns(&g->held), waited = unknown_ns(&g->waited);
	struct scry_buf *b = &g->buf;

	if (is_little(g))
		return;
	scry_buf_clear(b);
	if (held && held >= g->held.lost_ns / UNKNOWN_PART) {
		scry_text_percent(b, held, g->held.lost_ns);
		scry_buf_printf(b, " of the time that others waited has no known line that ran "
				   "meanwhile ([unknown]): holders came and went between two "
				   "looks, had no processor, or could not be read");
		note(g);
	}
	scry_buf_clear(b);
	if (waited && waited >= g->waited.lost_ns / UNKNOWN_PART) {
		scry_text_percent(b, waited, g->waited.lost_ns);
		scry_buf_printf(b,
				" of the waiting has no known line at which a thread waited "
				"([unknown])%s",
				g->sum.stacks ? "" : "; fix: --stacks");
		note(g);
	}
}

/* By several threads at a time it may be longer than the watch. */
static void put_waited(const struct scry_gvl_view *g, uint64_t ns, struct scry_buf *b)
{
	const uint64_t watched = scry_gvl_longest_ns(g);

	if (watched && ns / watched >= 2) {
		scry_text_things(b, (ns + watched / 2) / watched, "threads");
		scry_buf_printf(b, " on average, ");
	}
	scry_text_duration(b, ns);
	scry_buf_printf(b, watched && ns / watched >= 2 ? " together" : "");
}

/* Beside the thread that made others wait: where they stood. */
static void note_where(struct scry_gvl_view *g)
{
	const struct scry_gvl_line *most = worst_row(&g->waited);
	struct scry_buf *b = &g->buf;

	if (!most || !most->lost_ns)
		return;
	scry_buf_clear(b);
	scry_buf_printf(b, "they waited most %s ",
			g->opts->by == SCRY_VIEW_BY_GEM ? "in the gem" : "at");
	scry_gvl_put_row(g, most, b);
	scry_buf_printf(b, ": ");
	put_waited(g, most->lost_ns, b);
	if (most->waits) {
		scry_buf_printf(b, ", in ");
		scry_text_things(b, most->waits, "waits");
		scry_buf_printf(b, ", the longest ");
		scry_text_duration(b, most->max_ns);
	} else if (!g->sum.stacks && most->samples < FEW) {
		scry_buf_printf(b, " by %u sample%s", most->samples, scry_text_s(most->samples));
	}
	note(g);
}

/* The longest run of takes before those that had waited. */
static void note_convoy(struct scry_gvl_view *g)
{
	const struct scry_ev_gvl_thread *longest = NULL;
	struct scry_buf *b = &g->buf;

	for (uint32_t i = 0; i < g->thread_count; i++)
		if (g->threads[i].run_max_ns > (longest ? longest->run_max_ns : CONVOY_NS))
			longest = &g->threads[i];
	if (!longest)
		return;
	scry_buf_clear(b);
	scry_buf_printf(b, "the longest convoy: for ");
	scry_text_duration(b, longest->run_max_ns);
	scry_buf_printf(b, " no thread that had waited got the lock, as ");
	if (longest->run_most <= 1) {
		scry_gvl_put_thread(g, longest, b);
		scry_buf_printf(b, " took it before them");
	} else {
		scry_buf_printf(b, "it was taken before them, up to ");
		scry_text_things(b, longest->run_most, "times");
		scry_buf_printf(b, " in one convoy; ");
		scry_gvl_put_thread(g, longest, b);
		scry_buf_printf(b, " began that");
	}
	note(g);
}

/* What the tables of lines and pairs lack of the waiting. */
static void note_rest(struct scry_gvl_view *g, uint64_t waited)
{
	struct scry_buf *b = &g->buf;

	scry_buf_clear(b);
	if (g->sum.handing_ns && g->sum.handing_ns >= waited / 100) {
		scry_text_duration(b, g->sum.handing_ns);
		scry_buf_printf(b, " of the waiting was while the lock was being handed over: no "
				   "thread's and no line's; the shares of lines are of the rest");
		note(g);
	}
	scry_buf_clear(b);
	if (g->sum.unpaired_ns) {
		scry_text_duration(b, g->sum.unpaired_ns);
		scry_buf_printf(b, " of the waiting is in no pair, as there are more pairs of "
				   "threads than are kept; it is in the sums of threads and lines");
		note(g);
	}
	scry_buf_clear(b);
	if (g->sum.unstacked) {
		scry_text_things(b, g->sum.unstacked, "waits");
		scry_buf_printf(b, " without a stack, as there was no room for it while scry had "
				   "no processor: in the sums of threads, and among the lines at "
				   "[unknown]");
		note(g);
	}
	scry_buf_clear(b);
	if (g->sum.unread) {
		scry_text_things(b, g->sum.unread, "waits");
		scry_buf_printf(b, " without a stack, as it was deeper than is taken, or could not "
				   "be read: in the sums of threads, and among the lines at "
				   "[unknown]");
		note(g);
	}
}

/* The longest of the waits that are in no quantile, where that is more than its thread's maximum.
 */
static void note_wait(struct scry_gvl_view *g, bool is_open)
{
	const struct scry_ev_gvl_thread *longest = NULL;
	uint64_t longest_ns = OPEN_NS, more = 0;
	struct scry_buf *b = &g->buf;

	for (uint32_t i = 0; i < g->thread_count; i++) {
		const struct scry_ev_gvl_thread *t = &g->threads[i];
		uint64_t ns = is_open ? t->open_ns : t->older_ns;

		if (ns <= t->max_ns || ns <= OPEN_NS)
			continue;
		more++;
		if (ns <= longest_ns)
			continue;
		longest = t;
		longest_ns = ns;
	}
	if (!longest)
		return;
	scry_buf_clear(b);
	scry_buf_printf(b,
			is_open ? "still waiting at the end: " : "waiting from before the watch: ");
	scry_gvl_put_thread(g, longest, b);
	scry_buf_printf(b, ", for ");
	scry_text_duration(b, longest_ns);
	if (more > 1)
		scry_buf_printf(b, ", and %llu more", (unsigned long long)more - 1);
	scry_buf_printf(b, "; that is in no quantile and no maximum");
	note(g);
}

static uint64_t held_ns(const struct scry_gvl_view *g)
{
	uint64_t held = 0;

	for (uint32_t i = 0; i < g->thread_count; i++)
		held += g->threads[i].held_ns;
	return held;
}

/* To have the lock is not to run: did the process run for much less? */
static bool has_idle_holders(const struct scry_gvl_view *g)
{
	const uint64_t cpu_ns = g->sum.cpu_ns, held = held_ns(g);

	return g->events && cpu_ns != SCRY_GVL_CPU_UNKNOWN && held >= cpu_ns + SLACK_NS &&
	       held / 4 * 3 >= cpu_ns;
}

/* False: it ran for most of that time. */
static bool put_cpu(const struct scry_gvl_view *g, const char *before, struct scry_buf *b)
{
	if (!has_idle_holders(g))
		return false;
	scry_buf_printf(b, "%sthe lock was held for ", before);
	scry_text_duration(b, held_ns(g));
	scry_buf_printf(b, ", but the process ran for ");
	scry_text_duration(b, g->sum.cpu_ns);
	scry_buf_printf(b, " only: its holder waited for a processor, or slept with it");
	return true;
}

/* Before anything is said that this makes wrong. */
static void note_crowded(struct scry_gvl_view *g)
{
	const struct scry_ev_gvl *s = &g->sum;
	struct scry_buf *b = &g->buf;

	if (!s->crowded)
		return;
	scry_buf_clear(b);
	scry_buf_printf(
		b,
		"sums, rows and verdict are too low, and the thread that made others wait most may "
		"be missing: a watch has room for ");
	scry_text_count(b, SCRY_GVL_ROOM);
	scry_buf_printf(b, " threads of a process at a time%s, and from ",
			scry_gvl_has_ractors(g) ? " (31 of each ractor but the first)" : "");
	scry_text_duration(b, s->crowded_after_ns);
	scry_buf_printf(b, " after its beginning ");
	scry_text_things(b, s->crowded, "turns");
	scry_buf_printf(b, " of others were not counted; fix: -p PID and a shorter -d");
	note(g);
}

/* Of their waiting the verdict knows nothing. */
static void note_ractors(struct scry_gvl_view *g)
{
	const uint64_t more = g->sum.ractors;

	if (!more)
		return;
	scry_buf_clear(&g->buf);
	scry_text_count(&g->buf, more);
	scry_buf_printf(
		&g->buf,
		" more ractor%s, each with its own lock: those locks, and how long their threads "
		"waited, are not seen",
		scry_text_s(more));
	if (scry_gvl_has_ractors(g))
		scry_buf_printf(&g->buf,
				"; a watch has room for %u locks beside the first "
				"ractor's at a time",
				SCRY_GVL_RACTORS_ROOM);
	note(g);
}

/* Of several locks that of one says more: most may be idle. */
static void put_share(const struct scry_gvl_view *g, struct scry_buf *b)
{
	const struct scry_gvl_lock_sum *worst = scry_gvl_worst_lock(g);

	scry_buf_printf(b, "threads wanted the GVL ");
	scry_text_percent(b, worst->contended_ns, worst->known_ns);
	scry_buf_printf(b, " of the time");
	if (scry_gvl_has_ractors(g))
		scry_buf_printf(b, " in ractor %u", worst->ractor);
	if (g->process_count > 1)
		scry_buf_printf(b, "%s process %u", scry_gvl_has_ractors(g) ? " of" : " in",
				worst->pid);
	if (g->lock_count > 1) {
		scry_buf_printf(b, " (");
		scry_text_percent(b, g->sum.contended_ns, scry_gvl_known_ns(g));
		scry_buf_printf(b, " on average of %u %s)", g->lock_count,
				scry_gvl_has_ractors(g) ? "ractors" : "processes");
	}
	scry_buf_printf(b, ": ");
}

/* Threads are sorted: the first has made others wait for longest. */
static bool is_blaming(const struct scry_gvl_view *g, const struct scry_ev_gvl_thread *worst)
{
	return worst && worst->lost_ns && !is_little(g) && scry_gvl_known_ns(g);
}

static void judge(struct scry_gvl_view *g, uint64_t waited)
{
	const uint64_t known = scry_gvl_known_ns(g);
	const struct scry_ev_gvl_thread *worst = g->thread_count ? &g->threads[0] : NULL;
	bool are_more = g->sum.crowded; /* several threads had one row, one after the other */
	struct scry_buf *b = &g->buf;

	for (uint32_t i = 0; i < g->thread_count; i++)
		are_more |= scry_gvl_waited_ns(&g->threads[i]) && g->threads[i].threads > 1;
	scry_buf_clear(b);
	if (!g->quality.has_totals)
		scry_buf_printf(b, "as far as the recording goes: ");
	if (g->sum.crowded)
		scry_buf_printf(b, "of the threads for which there was room: ");
	if (!g->events || !known) {
		scry_buf_printf(b, "nothing is known of the GVL");
	} else if (!waited) {
		scry_buf_printf(b, !g->sum.ractors ? "no thread waited for the GVL"
				   : scry_gvl_has_ractors(g)
					   ? "no thread waited for a lock that was watched"
					   : "no thread of the main ractor waited for its lock");
	} else {
		put_share(g, b);
		scry_buf_printf(b, are_more ? "at least " : "");
		scry_text_things(b, g->waiters, "threads");
		scry_buf_printf(b, " waited ");
		scry_text_duration(b, waited);
		scry_buf_printf(b, " together within ");
		scry_text_duration(b, known);
		if (g->events > 1)
			scry_buf_printf(b, " of %u %s", g->events,
					scry_gvl_has_ractors(g)	       ? "ractors together"
					: g->events > g->process_count ? "programs"
								       : "processes");
		if (is_little(g)) {
			scry_buf_printf(b, ", which is little");
		} else if (is_blaming(g, worst)) {
			scry_buf_printf(b, "; ");
			scry_gvl_put_thread(g, worst, b);
			scry_buf_printf(b, " made others wait ");
			scry_text_duration(b, worst->lost_ns);
			put_cpu(g, "; ", b);
			put_worst_line(g, b);
		}
	}
	scry_verdict_note(g->doc, b);
}

static void push_notes(struct scry_gvl_view *g)
{
	const uint64_t waited = scry_gvl_waited_all_ns(g);

	note_crowded(g);
	judge(g, waited);
	scry_gvl_push_check(g, has_idle_holders(g));
	note_ractors(g);
	note_unknown(g);
	note_where(g);
	note_convoy(g);
	note_rest(g, waited);
	note_wait(g, true);
	note_wait(g, false);
	scry_buf_clear(&g->buf);
	if (!is_blaming(g, g->threads) && put_cpu(g, "", &g->buf)) /* else the verdict has it */
		note(g);
	scry_data_quality_notes(&g->quality, g->doc);
}

/* A VM that gives the lock to the next thread lets no other in before that one: from 3.3 on, to
 * 4.0.5. One that does is known by what it did. */
static bool can_overtake(const struct scry_gvl_view *g)
{
	bool can = !g->sum.can_take_back;

	for (uint32_t i = 0; i < g->thread_count && !can; i++)
		can = g->threads[i].taken_back || g->threads[i].overtakes;
	return can;
}

static void push_totals(const struct scry_gvl_view *g)
{
	const struct scry_ev_gvl *s = &g->sum;
	uint64_t held = 0, wanted = 0, granted = 0, waits = 0, yields = 0, back = 0, passes = 0,
		 forced = 0, over = 0, runs = 0, runs_ns = 0, run_max_ns = 0, run_most = 0,
		 looks = 0, contradicted = 0, ran_waiting = 0;

	for (uint32_t i = 0; i < g->thread_count; i++) {
		const struct scry_ev_gvl_thread *e = &g->threads[i];

		held += e->held_ns;
		wanted += e->wanted_ns;
		granted += e->granted_ns;
		waits += e->waits;
		yields += e->yields;
		back += e->taken_back;
		passes += e->passes;
		forced += e->forced;
		over += e->overtakes;
		looks += e->looks;
		contradicted += e->contradicted;
		ran_waiting += scry_gvl_ran_waiting_ns(e);
		runs += e->runs;
		runs_ns += e->runs_ns;
		run_max_ns = e->run_max_ns > run_max_ns ? e->run_max_ns : run_max_ns;
		run_most = e->run_most > run_most ? e->run_most : run_most;
	}
	{
		const struct scry_pair totals[] = {
			{"watched_ns", "seconds were watched", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->watched_ns)},
			{"unknown_ns", "of them before anything was known", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->unknown_ns)},
			{"boot_ns", "before it, until the VM was up", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->boot_ns)},
			{"contended_ns", "in which some thread wanted the GVL", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->contended_ns)},
			{"free_ns", "in which no thread held or wanted it", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->runnable0_ns)},
			{"held_ns", "held by all threads together", SCRY_CELL_TIME, 0,
			 scry_cell_number(held)},
			{"wanted_ns", "waited for it by all together", SCRY_CELL_TIME, 0,
			 scry_cell_number(wanted)},
			{"handing_ns", "of the waiting while the lock changed hands",
			 SCRY_CELL_TIME, 0, scry_cell_number(s->handing_ns)},
			{"unpaired_ns", "of the waiting in no pair", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->unpaired_ns)},
			{"cpu_ns", "of processor time of the process", SCRY_CELL_TIME, 0,
			 scry_cell_known(s->cpu_ns, s->cpu_ns != SCRY_GVL_CPU_UNKNOWN)},
			{"granted_ns", "granted, until the thread ran", SCRY_CELL_TIME, 0,
			 scry_cell_number(granted)},
			{"waits", "waits that ended", SCRY_CELL_COUNT, 0, scry_cell_number(waits)},
			{"unstacked_waits", "of them without a stack", SCRY_CELL_COUNT, 0,
			 scry_cell_number(s->unstacked)},
			{"unread_waits", "of them with a stack too deep, or not readable",
			 SCRY_CELL_COUNT, 0, scry_cell_number(s->unread)},
			{"crowded", "turns of threads that there was no room for", SCRY_CELL_COUNT,
			 0, scry_cell_number(s->crowded)},
			{"yields", "times given and wanted at once", SCRY_CELL_COUNT, 0,
			 scry_cell_number(yields)},
			{"forced", "of them as the VM asked for it", SCRY_CELL_COUNT, 0,
			 scry_cell_known(forced, forced || passes || !yields)},
			{"passes", "of them by Thread.pass", SCRY_CELL_COUNT, 0,
			 scry_cell_known(passes, forced || passes || !yields)},
			{"unclear_yields", "of them it is not known", SCRY_CELL_COUNT, 0,
			 scry_cell_number(yields > forced + passes ? yields - forced - passes : 0)},
			{"overtakes",
			 can_overtake(g)
				 ? "times taken before those that had waited for it"
				 : "times taken before those that had waited, and convoys of "
				   "that: not possible in this Ruby, or not seen",
			 SCRY_CELL_COUNT, 0, scry_cell_known(over, can_overtake(g))},
			{"convoys", "convoys of such takes, with no take by one that had waited",
			 SCRY_CELL_COUNT, 0, scry_cell_known(runs, can_overtake(g))},
			{"convoys_ns", "how long they lasted together", SCRY_CELL_TIME, 0,
			 scry_cell_known(runs_ns, can_overtake(g))},
			{"convoy_max_ns", "the longest of them", SCRY_CELL_TIME, 0,
			 scry_cell_known(run_max_ns, can_overtake(g))},
			{"convoy_max_takes", "takes in one of them, at most", SCRY_CELL_COUNT, 0,
			 scry_cell_known(run_most, can_overtake(g))},
			{"looks", "pairs of looks at threads without the lock", SCRY_CELL_COUNT, 0,
			 scry_cell_number(looks)},
			{"contradicted", "of them between which Ruby code had run", SCRY_CELL_COUNT,
			 0, scry_cell_number(contradicted)},
			{"ran_waiting_ns", "that threads ran while they waited, by the counters",
			 SCRY_CELL_TIME, 0, scry_cell_number(ran_waiting)},
			{"taken_back", "grants that another thread got first", SCRY_CELL_COUNT, 0,
			 scry_cell_number(back)},
		};

		g->doc->ops->totals(g->doc, totals, sizeof(totals) / sizeof(totals[0]));
	}
}

void scry_gvl_push_head(struct scry_gvl_view *g)
{
	push_notes(g);
	push_totals(g);
}
