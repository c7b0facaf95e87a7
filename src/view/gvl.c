/*
 * The gvl view: how much of the time threads wanted the VM's lock, who held it meanwhile, and each
 * thread's share: held, waiting (wanted, and granted until it ran), without it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/text.h"
#include "view/frames.h"
#include "view/functions.h"
#include "view/grep.h"
#include "view/honesty.h"

#define ROWS_MAX (1u << 20)
#define UNKNOWN UINT64_MAX
#define OPEN_NS 1000000u   /* a wait that has no end is told from that length on */
#define SLACK_NS 50000000u /* processor time is counted in ticks of 10 ms */
#define NAMES_BYTES_MAX (256u << 20)

struct line { /* in text the line where it ran, in data its stack */
	uint32_t stack, samples;
	uint64_t lost_ns;
};

struct gvl {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_honesty honesty;
	struct scry_grep grep;
	struct scry_ev_gvl sum; /* of all locks; pid: of the last */
	uint32_t locks;
	struct scry_ev_gvl_thread *threads;
	struct scry_ev_gvl_pair *pairs;
	struct line *lines;
	struct scry_frames frames;
	struct scry_intern names;
	struct scry_map by_line; /* frame -> place + 1 */
	uint64_t lost_ns;	 /* by all lines */
	uint32_t thread_count, thread_room, pair_count, pair_room, line_count, line_room;
	struct scry_map by_number; /* pid << 32 | thread -> place + 1 */
	struct scry_buf buf;
};

static int grow(void **table, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 64;
	void *grown = *table;

	if (count < *room)
		return 0;
	if (count < ROWS_MAX)
		grown = reallocarray(*table, more, size);
	if (count >= ROWS_MAX || !grown)
		return scry_fail(-ENOMEM, "no memory for %u threads or pairs", count);
	*table = grown;
	*room = more;
	return 0;
}

static void on_lock(struct gvl *g, const struct scry_ev_gvl *ev)
{
	struct scry_ev_gvl *s = &g->sum;

	g->locks++;
	s->pid = ev->pid;
	s->can_take_back |= ev->can_take_back;
	s->watched_ns += ev->watched_ns;
	s->unknown_ns += ev->unknown_ns;
	s->contended_ns += ev->contended_ns;
	s->ends += ev->ends;
	s->runnable0_ns += ev->runnable0_ns;
	s->runnable1_ns += ev->runnable1_ns;
	s->runnable2_ns += ev->runnable2_ns;
	s->runnable3_ns += ev->runnable3_ns;
	s->runnable4_ns += ev->runnable4_ns;
	s->runnable5_ns += ev->runnable5_ns;
	s->runnable6_ns += ev->runnable6_ns;
	s->runnable7_ns += ev->runnable7_ns;
	s->handing_ns += ev->handing_ns;
	s->unpaired_ns += ev->unpaired_ns;
	s->cpu_ns =
		ev->cpu_ns == UNKNOWN || s->cpu_ns == UNKNOWN ? UNKNOWN : s->cpu_ns + ev->cpu_ns;
}

static int on_thread(struct gvl *g, const struct scry_ev_gvl_thread *ev)
{
	const uint64_t key = (uint64_t)ev->pid << 32 | ev->thread;

	if (grow((void **)&g->threads, g->thread_count, &g->thread_room, sizeof(*g->threads)) < 0 ||
	    scry_map_put(&g->by_number, key, g->thread_count + 1) < 0)
		return -ENOMEM;
	g->threads[g->thread_count++] = *ev;
	return 0;
}

static const struct scry_ev_gvl_thread *thread_at(const struct gvl *g, uint32_t pid,
						  uint32_t number)
{
	uint64_t at;

	return number && scry_map_get(&g->by_number, (uint64_t)pid << 32 | number, &at)
		       ? &g->threads[at - 1]
		       : NULL;
}

static int on_pair(struct gvl *g, const struct scry_ev_gvl_pair *ev)
{
	if (grow((void **)&g->pairs, g->pair_count, &g->pair_room, sizeof(*g->pairs)) < 0)
		return -ENOMEM;
	g->pairs[g->pair_count++] = *ev;
	return 0;
}

/* For people: the newest frame, whoever called it. */
static uint32_t place_of(struct gvl *g, uint32_t stack)
{
	struct scry_frame frame = scry_frames_get(&g->frames, stack);

	if (!stack || g->doc->is_data || g->doc->is_folded)
		return stack;
	frame.parent = 0;
	return scry_frames_put(&g->frames, &frame);
}

static int on_line(struct gvl *g, const struct scry_ev_gvl_line *ev)
{
	const uint32_t place = place_of(g, scry_frames_find(&g->frames, ev->stack));
	uint64_t *at = scry_map_ref(&g->by_line, place + 1ull);

	if (!at ||
	    (!*at && grow((void **)&g->lines, g->line_count, &g->line_room, sizeof(*g->lines)) < 0))
		return scry_fail(-ENOMEM, "no memory for %u lines", g->line_count);
	if (!*at) {
		g->lines[g->line_count++] = (struct line){.stack = place};
		*at = g->line_count;
	}
	g->lines[*at - 1].samples += ev->samples;
	g->lines[*at - 1].lost_ns += ev->lost_ns;
	g->lost_ns += ev->lost_ns;
	return 0;
}

static int read_all(struct gvl *g)
{
	const struct scry_event *event;
	int got, r = 0;

	scry_honesty_init(&g->honesty, g->reader);
	while ((got = scry_reader_next(g->reader, &event)) > 0 && r == 0) {
		const uint32_t *pid = (const void *)(event + 1); /* of the four, the first */

		scry_honesty_event(&g->honesty, event);
		if (event->type == SCRY_EVENT_STACK)
			scry_frames_event(&g->frames, &g->names, g->reader,
					  (const void *)(event + 1));
		if (event->type < SCRY_EVENT_GVL || event->type > SCRY_EVENT_GVL_LINE ||
		    (g->opts->pid && g->opts->pid != *pid))
			continue;
		if (event->type == SCRY_EVENT_GVL)
			on_lock(g, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_GVL_THREAD)
			r = on_thread(g, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_GVL_PAIR)
			r = on_pair(g, (const void *)(event + 1));
		else
			r = on_line(g, (const void *)(event + 1));
	}
	scry_honesty_close(&g->honesty);
	return r ? r : got;
}

static uint64_t waited_ns(const struct scry_ev_gvl_thread *t)
{
	return t->wanted_ns + t->granted_ns;
}

static int by_lost(const void *left, const void *right)
{
	const struct scry_ev_gvl_thread *a = left, *b = right;
	int order = scry_functions_compare(b->lost_ns, a->lost_ns);

	order = order ? order : scry_functions_compare(b->held_ns, a->held_ns);
	order = order ? order : scry_functions_compare(waited_ns(b), waited_ns(a));
	order = order ? order : scry_functions_compare(a->pid, b->pid);
	return order ? order : scry_functions_compare(a->thread, b->thread);
}

static int pair_by_lost(const void *left, const void *right)
{
	const struct scry_ev_gvl_pair *a = left, *b = right;
	int order = scry_functions_compare(b->lost_ns, a->lost_ns);

	order = order ? order : scry_functions_compare(a->waiter, b->waiter);
	return order ? order : scry_functions_compare(a->holder, b->holder);
}

static int line_by_lost(const void *left, const void *right)
{
	const struct line *a = left, *b = right;
	int order = scry_functions_compare(b->lost_ns, a->lost_ns);

	return order ? order : scry_functions_compare(a->stack, b->stack);
}

/* Threads that kept others waiting come first. */
static void sort(struct gvl *g)
{
	if (g->pair_count)
		qsort(g->pairs, g->pair_count, sizeof(*g->pairs), pair_by_lost);
	if (g->line_count)
		qsort(g->lines, g->line_count, sizeof(*g->lines), line_by_lost);
	if (!g->thread_count)
		return;
	qsort(g->threads, g->thread_count, sizeof(*g->threads), by_lost);
	for (uint32_t i = 0; i < g->thread_count; i++)
		scry_map_put(&g->by_number,
			     (uint64_t)g->threads[i].pid << 32 | g->threads[i].thread, i + 1);
}

static void put_name(const struct gvl *g, const struct scry_ev_gvl_thread *t, struct scry_buf *b)
{
	size_t size = 0;
	const char *name = scry_reader_string(g->reader, t->name_str, &size);

	if (size)
		scry_buf_printf(b, "%.*s", (int)size, name ? name : "");
	else
		scry_buf_printf(b, "[thread %u]", t->thread);
	if (t->threads > 1)
		scry_buf_printf(b, " and %u before it", t->threads - 1);
}

/* "worker (4711)" */
static void put_thread(const struct gvl *g, const struct scry_ev_gvl_thread *t, struct scry_buf *b)
{
	if (!t) {
		scry_buf_printf(b, "[changing hands]");
		return;
	}
	put_name(g, t, b);
	if (t->tid)
		scry_buf_printf(b, " (%u)", t->tid);
}

static void put_line(struct gvl *g, uint32_t stack, struct scry_buf *b)
{
	const struct scry_frame frame = scry_frames_get(&g->frames, stack);
	const struct scry_cell file = scry_name_text(&g->names, frame.file),
			       method = scry_name_text(&g->names, frame.method);

	if (!stack) {
		scry_buf_printf(b, "[unknown]");
		return;
	}
	scry_buf_printf(b, "%.*s:%u", (int)file.length, file.bytes ? file.bytes : "", frame.line);
	if (method.length)
		scry_buf_printf(b, " %.*s", (int)method.length, method.bytes);
}

static void put_worst_line(struct gvl *g, struct scry_buf *b)
{
	const struct line *worst = g->line_count ? &g->lines[0] : NULL;

	if (worst && !worst->stack && g->line_count > 1)
		worst++;
	if (!worst || !worst->stack)
		return;
	scry_buf_printf(b, "; the line ");
	put_line(g, worst->stack, b);
	scry_buf_printf(b, ", whoever ran it, ");
	scry_text_duration(b, worst->lost_ns);
}

static void note(struct gvl *g)
{
	g->doc->ops->note(g->doc, g->buf.data, g->buf.len);
}

/* What the tables of lines and pairs lack of the waiting. */
static void tell_rest(struct gvl *g, uint64_t waited)
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
}

/* The longest of the waits that are in no quantile, where that is more than its thread's maximum.
 */
static void tell_wait(struct gvl *g, bool is_open)
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
	put_thread(g, longest, b);
	scry_buf_printf(b, ", for ");
	scry_text_duration(b, longest_ns);
	if (more > 1)
		scry_buf_printf(b, ", and %llu more", (unsigned long long)more - 1);
	scry_buf_printf(b, "; that is in no quantile and no maximum");
	note(g);
}

/* To have the lock is not to run. */
static void tell_cpu(struct gvl *g)
{
	const uint64_t cpu_ns = g->sum.cpu_ns;
	struct scry_buf *b = &g->buf;
	uint64_t held = 0;

	for (uint32_t i = 0; i < g->thread_count; i++)
		held += g->threads[i].held_ns;
	if (!g->locks || cpu_ns == UNKNOWN || held < cpu_ns + SLACK_NS || held / 4 * 3 < cpu_ns)
		return;
	scry_buf_clear(b);
	scry_buf_printf(b, "the lock was held for ");
	scry_text_duration(b, held);
	scry_buf_printf(b, ", but the process ran for ");
	scry_text_duration(b, cpu_ns);
	scry_buf_printf(b, " only: who held it waited for a processor, or slept with it");
	note(g);
}

static void judge(struct gvl *g, uint64_t waited)
{
	const uint64_t known = g->sum.watched_ns - g->sum.unknown_ns;
	const struct scry_ev_gvl_thread *worst = g->thread_count ? &g->threads[0] : NULL;
	uint64_t waiters = 0;
	struct scry_buf *b = &g->buf;

	for (uint32_t i = 0; i < g->thread_count; i++)
		waiters += waited_ns(&g->threads[i]) != 0;
	scry_buf_clear(b);
	if (!g->honesty.has_totals)
		scry_buf_printf(b, "as far as the recording goes: ");
	if (!g->locks || !known) {
		scry_buf_printf(b, "nothing is known of the GVL");
	} else if (!waited) {
		scry_buf_printf(b, "no thread waited for the GVL");
	} else {
		uint64_t tenths = scry_share(g->sum.contended_ns, known, 1000);

		scry_buf_printf(b, "threads wanted the GVL %llu.%llu %% of the time: ",
				(unsigned long long)tenths / 10, (unsigned long long)tenths % 10);
		scry_text_things(b, waiters, "threads");
		scry_buf_printf(b, " waited ");
		scry_text_duration(b, waited);
		scry_buf_printf(b, " together within ");
		scry_text_duration(b, known);
		if (g->locks > 1)
			scry_buf_printf(b, " of %u processes", g->locks);
		if (tenths < 10) {
			scry_buf_printf(b, ", which is little");
		} else if (worst->lost_ns) {
			scry_buf_printf(b, "; ");
			put_thread(g, worst, b);
			scry_buf_printf(b, " made others wait ");
			scry_text_duration(b, worst->lost_ns);
			put_worst_line(g, b);
		}
	}
	note(g);
}

static void push_notes(struct gvl *g)
{
	uint64_t waited = 0;

	for (uint32_t i = 0; i < g->thread_count; i++)
		waited += waited_ns(&g->threads[i]);
	judge(g, waited);
	tell_rest(g, waited);
	tell_wait(g, true);
	tell_wait(g, false);
	tell_cpu(g);
	scry_honesty_notes(&g->honesty, g->doc);
}

static void push_totals(const struct gvl *g)
{
	const struct scry_ev_gvl *s = &g->sum;
	uint64_t held = 0, wanted = 0, granted = 0, waits = 0, yields = 0, back = 0;

	for (uint32_t i = 0; i < g->thread_count; i++) {
		const struct scry_ev_gvl_thread *e = &g->threads[i];

		held += e->held_ns;
		wanted += e->wanted_ns;
		granted += e->granted_ns;
		waits += e->waits;
		yields += e->yields;
		back += e->taken_back;
	}
	{
		const struct scry_pair totals[] = {
			{"watched_ns", "seconds were watched", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->watched_ns)},
			{"unknown_ns", "of them before anything was known", SCRY_CELL_TIME, 0,
			 scry_cell_known(s->unknown_ns, g->doc->is_data || s->unknown_ns)},
			{"contended_ns", "in which some thread wanted the GVL", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->contended_ns)},
			{"free_ns", "in which nobody held or wanted it", SCRY_CELL_TIME, 0,
			 scry_cell_number(s->runnable0_ns)},
			{"held_ns", "held by all threads together", SCRY_CELL_TIME, 0,
			 scry_cell_number(held)},
			{"wanted_ns", "waited for it by all together", SCRY_CELL_TIME, 0,
			 scry_cell_number(wanted)},
			{"handing_ns", "of the waiting while the lock changed hands",
			 SCRY_CELL_TIME, 0,
			 scry_cell_known(s->handing_ns, g->doc->is_data || s->handing_ns)},
			{"unpaired_ns", "of the waiting in no pair", SCRY_CELL_TIME, 0,
			 scry_cell_known(s->unpaired_ns, g->doc->is_data || s->unpaired_ns)},
			{"cpu_ns", "of processor time of the process", SCRY_CELL_TIME, 0,
			 scry_cell_known(s->cpu_ns, s->cpu_ns != UNKNOWN)},
			{"granted_ns", "granted, until the thread ran", SCRY_CELL_TIME, 0,
			 scry_cell_number(granted)},
			{"waits", "waits that ended", SCRY_CELL_COUNT, 0, scry_cell_number(waits)},
			{"yields", "times given and wanted at once", SCRY_CELL_COUNT, 0,
			 scry_cell_number(yields)},
			{"taken_back", "grants that another thread got first", SCRY_CELL_COUNT, 0,
			 scry_cell_number(back)},
		};

		g->doc->ops->totals(g->doc, totals, sizeof(totals) / sizeof(totals[0]));
	}
}

static uint64_t top_of(const struct gvl *g)
{
	return g->opts->top != SCRY_VIEW_TOP_DEFAULT ? g->opts->top
	       : g->doc->is_data		     ? 0
						     : SCRY_VIEW_TOP_ROWS;
}

static void tell_hidden(struct gvl *g, uint64_t hidden)
{
	if (hidden)
		scry_doc_remark(g->doc, "%llu more %s not shown; --top 0 without --grep shows all",
				(unsigned long long)hidden, hidden == 1 ? "row is" : "rows are");
}

static void push_thread(struct gvl *g, const struct scry_ev_gvl_thread *t)
{
	const bool has_waits = t->waits != 0;
	struct scry_cell cells[] = {
		scry_cell_number(t->pid),
		scry_cell_number(t->thread),
		scry_cell_known(t->tid, t->tid != 0),
		scry_cell_number(t->lost_ns),
		scry_cell_number(t->held_ns),
		scry_cell_number(waited_ns(t)),
		scry_cell_number(t->wanted_ns),
		scry_cell_number(t->granted_ns),
		scry_cell_number(t->without_ns),
		scry_cell_number(t->unknown_ns),
		scry_cell_number(t->takes),
		scry_cell_number(t->waits),
		scry_cell_known(t->p50_ns, has_waits),
		scry_cell_known(t->p90_ns, has_waits),
		scry_cell_known(t->p99_ns, has_waits),
		scry_cell_known(t->max_ns, has_waits),
		scry_cell_number(t->older_ns),
		scry_cell_number(t->open_ns),
		scry_cell_number(t->yields),
		scry_cell_number(t->taken_back),
		scry_cell_number(t->threads),
		scry_cell_number(t->has_ended),
		scry_cell_text(scry_buf_str(&g->buf), g->buf.len),
		scry_functions_string(g->reader, t->name_str),
	};

	g->doc->ops->row(g->doc, cells);
}

static void push_threads(struct gvl *g)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, false},
		{NULL, "thread", SCRY_CELL_NUMBER, false},
		{"tid", "tid", SCRY_CELL_NUMBER, false},
		{"others lost s", "lost_ns", SCRY_CELL_TIME, false},
		{"held s", "held_ns", SCRY_CELL_TIME, false},
		{"waited s", NULL, SCRY_CELL_TIME, false},
		{NULL, "wanted_ns", SCRY_CELL_TIME, false},
		{NULL, "granted_ns", SCRY_CELL_TIME, false},
		{"without s", "without_ns", SCRY_CELL_TIME, false},
		{NULL, "unknown_ns", SCRY_CELL_TIME, false},
		{NULL, "takes", SCRY_CELL_COUNT, false},
		{"waits", "waits", SCRY_CELL_COUNT, false},
		{"p50 s", "wait_p50_ns", SCRY_CELL_TIME, false},
		{NULL, "wait_p90_ns", SCRY_CELL_TIME, false},
		{"p99 s", "wait_p99_ns", SCRY_CELL_TIME, false},
		{"max s", "wait_max_ns", SCRY_CELL_TIME, false},
		{NULL, "older_wait_ns", SCRY_CELL_TIME, false},
		{NULL, "open_wait_ns", SCRY_CELL_TIME, false},
		{"yields", "yields", SCRY_CELL_COUNT, false},
		{NULL, "taken_back", SCRY_CELL_COUNT, false},
		{NULL, "threads", SCRY_CELL_COUNT, false},
		{NULL, "has_ended", SCRY_CELL_BOOL, false},
		{"name", NULL, SCRY_CELL_TEXT, false},
		{NULL, "name", SCRY_CELL_TEXT, false},
	};
	uint64_t top = top_of(g), shown = 0, hidden = 0;

	g->doc->section = "threads";
	g->doc->title = NULL;
	scry_doc_table(g->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint32_t i = 0; i < g->thread_count; i++) {
		scry_buf_clear(&g->buf);
		put_thread(g, &g->threads[i], &g->buf);
		if ((top && shown == top) || !scry_grep_matches(&g->grep, scry_buf_str(&g->buf))) {
			hidden++;
			continue;
		}
		scry_buf_clear(&g->buf);
		put_name(g, &g->threads[i], &g->buf);
		push_thread(g, &g->threads[i]);
		shown++;
	}
	tell_hidden(g, hidden);
}

static void push_pairs(struct gvl *g)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, false},
		{"lost s", "lost_ns", SCRY_CELL_TIME, false},
		{NULL, "waiter", SCRY_CELL_NUMBER, false},
		{NULL, "holder", SCRY_CELL_NUMBER, false},
		{"waited", NULL, SCRY_CELL_TEXT, false},
		{"while it was held by", NULL, SCRY_CELL_TEXT, false},
	};
	uint64_t top = top_of(g), shown = 0, hidden = 0;
	struct scry_buf holder = {0};

	g->doc->section = "pairs";
	g->doc->title = "who waited for whom";
	scry_doc_table(g->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint32_t i = 0; i < g->pair_count; i++) {
		const struct scry_ev_gvl_pair *p = &g->pairs[i];

		scry_buf_clear(&g->buf);
		scry_buf_clear(&holder);
		put_thread(g, thread_at(g, p->pid, p->waiter), &g->buf);
		put_thread(g, thread_at(g, p->pid, p->holder), &holder);
		if ((top && shown == top) ||
		    (!scry_grep_matches(&g->grep, scry_buf_str(&g->buf)) &&
		     !scry_grep_matches(&g->grep, scry_buf_str(&holder)))) {
			hidden++;
			continue;
		}
		{
			const struct scry_cell cells[] = {
				scry_cell_number(p->pid),
				scry_cell_number(p->lost_ns),
				scry_cell_number(p->waiter),
				scry_cell_known(p->holder, p->holder != 0),
				scry_cell_text(scry_buf_str(&g->buf), g->buf.len),
				scry_cell_text(scry_buf_str(&holder), holder.len),
			};

			g->doc->ops->row(g->doc, cells);
		}
		shown++;
	}
	tell_hidden(g, hidden);
	scry_buf_done(&holder);
	g->doc->section = g->doc->title = NULL;
}

/* Waits that are short beside the millisecond between two samples are chance: the square root of
 * their number says how much. */
static void push_lines(struct gvl *g)
{
	static const struct scry_column columns[] = {
		{"others lost s", "lost_ns", SCRY_CELL_TIME, false},
		{"%", NULL, SCRY_CELL_TENTHS, false},
		{NULL, "share_pct", SCRY_CELL_NUMBER, false},
		{"samples", "samples", SCRY_CELL_COUNT, false},
		{"while one held the GVL in", NULL, SCRY_CELL_TEXT, false},
		{NULL, "stack", SCRY_CELL_FRAMES, false}, /* its callers */
		{NULL, "file", SCRY_CELL_TEXT, false},
		{NULL, "line", SCRY_CELL_NUMBER, false},
		{NULL, "method", SCRY_CELL_TEXT, false},
		{NULL, "is_c", SCRY_CELL_BOOL, false},
		{NULL, "is_native", SCRY_CELL_BOOL, false},
		{NULL, "offset", SCRY_CELL_NUMBER, false},
	};
	uint64_t top = top_of(g), shown = 0, hidden = 0;
	struct scry_frame_row scratch = {0};

	g->doc->weight = "lost_ns";
	g->doc->section = NULL;
	g->doc->title = "lines that made others wait";
	scry_doc_table(g->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint32_t i = 0; i < g->line_count; i++) {
		const struct line *l = &g->lines[i];
		const struct scry_frame frame = scry_frames_get(&g->frames, l->stack);

		scry_buf_clear(&g->buf);
		put_line(g, l->stack, &g->buf);
		if ((top && shown == top) || !scry_grep_matches(&g->grep, scry_buf_str(&g->buf))) {
			hidden++;
			continue;
		}
		{
			const struct scry_cell cells[] = {
				scry_cell_number(l->lost_ns),
				scry_cell_number(scry_share(l->lost_ns, g->lost_ns, 1000)),
				scry_cell_number(scry_share(l->lost_ns, g->lost_ns, 100)),
				scry_cell_number(l->samples),
				scry_cell_text(scry_buf_str(&g->buf), g->buf.len),
				scry_frames_cell(&g->frames, &g->names, frame.parent, &scratch),
				scry_name_text(&g->names, frame.file),
				scry_cell_known(frame.line, frame.line != 0),
				scry_name_text(&g->names, frame.method),
				scry_cell_number((frame.flags & SCRY_STACK_C) != 0),
				scry_cell_number((frame.flags & SCRY_STACK_NATIVE) != 0),
				scry_cell_known(0, false),
			};

			g->doc->ops->row(g->doc, cells);
		}
		shown++;
	}
	tell_hidden(g, hidden);
	free(scratch.frames);
	g->doc->title = NULL;
}

static void push_runnable(struct gvl *g)
{
	static const struct scry_column columns[] = {
		{"threads", "threads", SCRY_CELL_NUMBER, false},
		{"seconds", "time_ns", SCRY_CELL_TIME, false},
		{"%", NULL, SCRY_CELL_TENTHS, false},
	};
	const struct scry_ev_gvl *s = &g->sum;
	const uint64_t known = s->watched_ns - s->unknown_ns;
	const uint64_t times[] = {s->runnable0_ns, s->runnable1_ns, s->runnable2_ns,
				  s->runnable3_ns, s->runnable4_ns, s->runnable5_ns,
				  s->runnable6_ns, s->runnable7_ns};

	g->doc->section = "runnable";
	g->doc->title = "time with so many threads that held or wanted the GVL (7: or more)";
	scry_doc_table(g->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint64_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		const uint64_t ns = times[i];
		const struct scry_cell cells[] = {scry_cell_number(i), scry_cell_number(ns),
						  scry_cell_number(scry_share(ns, known, 1000))};

		if (ns || g->doc->is_data)
			g->doc->ops->row(g->doc, cells);
	}
	g->doc->section = g->doc->title = NULL;
}

static void push(struct gvl *g)
{
	sort(g);
	if (g->doc->is_folded) {
		push_lines(g);
		return;
	}
	g->honesty.noun = "critical sections";
	g->honesty.shown = g->sum.ends;
	g->doc->ops->honesty(g->doc, &g->honesty);
	push_notes(g);
	push_totals(g);
	if (g->line_count || g->doc->is_data)
		push_lines(g);
	if (g->thread_count || g->doc->is_data)
		push_threads(g);
	if (g->pair_count || g->doc->is_data)
		push_pairs(g);
	if (g->locks || g->doc->is_data)
		push_runnable(g);
}

int scry_view_gvl(struct scry_reader *reader, const struct scry_view_opts *opts,
		  struct scry_doc *doc)
{
	struct gvl g = {.reader = reader, .opts = opts, .doc = doc};
	int r = scry_grep_init(&g.grep, opts->grep);

	if (r < 0)
		return r;
	scry_map_init(&g.by_number, ROWS_MAX);
	scry_map_init(&g.by_line, ROWS_MAX);
	scry_frames_init(&g.frames);
	scry_frames_begin(&g.frames);
	scry_intern_init(&g.names, ROWS_MAX, NAMES_BYTES_MAX);
	r = read_all(&g);
	if (r == 0)
		push(&g);
	scry_grep_done(&g.grep);
	scry_map_done(&g.by_number);
	scry_map_done(&g.by_line);
	scry_frames_done(&g.frames);
	scry_intern_done(&g.names);
	free(g.lines);
	scry_buf_done(&g.buf);
	free(g.threads);
	free(g.pairs);
	return r;
}
