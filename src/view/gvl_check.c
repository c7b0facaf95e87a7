/* See gvl_check.h. */
#include "view/gvl_check.h"

#include "base/text.h"

#define FEW_NS 10000000u /* of processor time: so little is met by few ticks, or by none */
#define WAIT_NS 20000u	 /* of processor time, that going to sleep and waking up may take */
#define SLACK_NS 20000000u
#define CONTRADICTIONS_FEW 3u
#define IDLE_NS 50000000u

struct scry_gvl_native scry_gvl_native_of(const struct scry_ev_gvl_thread *t)
{
	const uint64_t cpu = t->cpu_ns ? t->cpu_ns - 1 : 0,
		       most = cpu < t->without_ns ? cpu : t->without_ns,
		       more = cpu > t->held_ns ? cpu - t->held_ns : 0,
		       least = more < most ? more : most, sampled = t->ran_held_ns + t->ran_else_ns;
	struct scry_gvl_native native = {.ns = least, .is_known = t->cpu_ns, .is_least = true};
	double part;

	if (!t->cpu_ns)
		return native;
	if (sampled && sampled + FEW_NS >= cpu / 10 * 9) {
		part = (double)cpu * (double)t->ran_else_ns / (double)sampled;
		native.ns = part > (double)most ? most : (uint64_t)part;
		native.ns = native.ns > least ? native.ns : least;
		native.is_least = false;
	} else {
		/* it did not run for much of the time that it held the lock: then this says
		 * nothing, unless it can be little only */
		native.is_known = cpu >= t->held_ns / 10 * 9 || most - least <= t->without_ns / 10;
	}
	return native;
}

bool scry_gvl_is_native_least(const struct scry_gvl_view *g)
{
	bool has_clock = false, is_known = false;

	for (uint32_t i = 0; i < g->thread_count; i++) {
		has_clock |= g->threads[i].ran_held_ns || g->threads[i].ran_else_ns;
		is_known |= scry_gvl_native_of(&g->threads[i]).is_known;
	}
	return is_known && !has_clock;
}

uint64_t scry_gvl_ran_waiting_ns(const struct scry_ev_gvl_thread *t)
{
	const uint64_t may = t->held_ns + t->without_ns + t->unknown_ns,
		       cpu = t->cpu_ns ? t->cpu_ns - 1 : 0;

	return cpu > may ? cpu - may : 0;
}

uint64_t scry_gvl_ppm(uint64_t part, uint64_t whole)
{
	return whole ? (uint64_t)((double)part * 1e6 / (double)whole + 0.5) : 0;
}

/* ---- notes ---- */

static bool is_contradicted(const struct scry_ev_gvl_thread *t)
{
	return t->contradicted >= CONTRADICTIONS_FEW && t->contradicted >= t->looks / 100;
}

static bool runs_waiting(const struct scry_ev_gvl_thread *t)
{
	const uint64_t ns = scry_gvl_ran_waiting_ns(t), may = SLACK_NS + WAIT_NS * t->waits;

	return ns > may && ns > t->cpu_ns / 20;
}

static void put_more(struct scry_buf *b, uint32_t more)
{
	if (more)
		scry_buf_printf(b, "; so did %u more", more);
}

static void note_contradicted(struct scry_gvl_view *g)
{
	const struct scry_ev_gvl_thread *worst = NULL;
	struct scry_buf *b = &g->buf;
	uint32_t more = 0;

	for (uint32_t i = 0; i < g->thread_count; i++) {
		const struct scry_ev_gvl_thread *t = &g->threads[i];

		if (!is_contradicted(t))
			continue;
		more++;
		if (!worst || scry_gvl_ppm(t->contradicted, t->looks) >
				      scry_gvl_ppm(worst->contradicted, worst->looks))
			worst = t;
	}
	if (!worst)
		return;
	scry_buf_clear(b);
	scry_gvl_put_thread(g, worst, b);
	scry_buf_printf(b, " ran Ruby code between ");
	scry_text_count(b, worst->contradicted);
	scry_buf_printf(b, " of ");
	scry_text_count(b, worst->looks);
	scry_buf_printf(b, " pairs of looks at which it did not have the lock, as scry's "
			   "counters say");
	put_more(b, more - 1);
	scry_buf_printf(b, ": scry misses what this Ruby does with its lock; do not believe held, "
			   "waited and lost of this report; scry stacks --gvl samples the same");
	g->doc->ops->note(g->doc, b->data, b->len);
}

static void note_ran_waiting(struct scry_gvl_view *g)
{
	const struct scry_ev_gvl_thread *worst = NULL;
	struct scry_buf *b = &g->buf;
	uint32_t more = 0;

	for (uint32_t i = 0; i < g->thread_count; i++) {
		const struct scry_ev_gvl_thread *t = &g->threads[i];

		if (!runs_waiting(t))
			continue;
		more++;
		if (!worst || scry_gvl_ran_waiting_ns(t) > scry_gvl_ran_waiting_ns(worst))
			worst = t;
	}
	if (!worst)
		return;
	scry_buf_clear(b);
	scry_gvl_put_thread(g, worst, b);
	scry_buf_printf(b, " ran for ");
	scry_text_duration(b, worst->cpu_ns - 1);
	scry_buf_printf(b, ", as the kernel says, which is ");
	scry_text_duration(b, scry_gvl_ran_waiting_ns(worst));
	scry_buf_printf(b, " more than it held the lock and was without it");
	put_more(b, more - 1);
	scry_buf_printf(b, ": believe the kernel; it waited for at least that much less than the "
			   "table says");
	g->doc->ops->note(g->doc, b->data, b->len);
}

/* How long it held the lock and did not run, at least. */
static uint64_t idle_ns(const struct scry_ev_gvl_thread *t)
{
	const struct scry_gvl_native native = scry_gvl_native_of(t);
	uint64_t ran = t->held_ns;

	if (t->cpu_ns)
		ran = t->cpu_ns - 1 - (native.is_known ? native.ns : 0);
	return t->held_ns > ran ? t->held_ns - ran : 0;
}

static void note_idle(struct scry_gvl_view *g)
{
	const struct scry_ev_gvl_thread *worst = NULL;
	struct scry_buf *b = &g->buf;

	for (uint32_t i = 0; i < g->thread_count; i++)
		if (g->threads[i].lost_ns >= IDLE_NS &&
		    (!worst || idle_ns(&g->threads[i]) > idle_ns(worst)))
			worst = &g->threads[i]; /* and others waited */
	if (!worst || idle_ns(worst) < IDLE_NS || idle_ns(worst) < worst->held_ns / 4)
		return;
	scry_buf_clear(b);
	scry_gvl_put_thread(g, worst, b);
	scry_buf_printf(b, " held the lock for ");
	scry_text_duration(b, worst->held_ns);
	scry_buf_printf(b, ", but ran for only ");
	scry_text_duration(b, worst->held_ns - idle_ns(worst));
	scry_buf_printf(b, " of that: it waited for a processor, or slept while it held the lock");
	g->doc->ops->note(g->doc, b->data, b->len);
}

void scry_gvl_push_check(struct scry_gvl_view *g, bool is_said)
{
	note_contradicted(g);
	note_ran_waiting(g);
	if (!is_said)
		note_idle(g);
}
