/* Which allocator suits, or that it is not known. See malloc_replay.h. */
#include "view/malloc_replay.h"

#include "view/data_quality.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_SHARE 0.03
#define LEAST_RUNS 3
#define PAIRS 0.9
/* Where threads hand blocks over, memory is also what waits between them, and differs from run to
 * run of the program, though replays of one recording agree: bench/malloc-replay.md. */
#define LEAST_MEMORY_CROSSED 0.25
#define LEAST_END 0.25
#define LEAST_END_BYTES (1 << 20)
#define NULL_SHARE 0.1	       /* of what the replay itself takes: less is not told apart from it */
#define CROSSED 8	       /* one of so many calls: a block is taken over */
#define LEAST_CPU_NS 10000000u /* where none takes that, times say nothing */
#define LEAST_PART 10	       /* of the program's memory: replays of less say nothing of it */
#define LEAST_MEMORY \
	(256u << 10)	   /* bytes: the kernel counts them so coarsely, and looks are rare */
#define CLOCK_SHARE 0.01   /* runs that differ by less take the same time, with: */
#define CLOCK_NS 10000000u /* that one begins late, or ends late, on a busy machine */
#define CLOCK_LEAST_NS 100000000ull /* all that is shorter takes equally long by that measure */
#define CLOCK_TIMES 3		    /* work that differs by so much more does not show in it */
#define POOR 1000
#define LOST 1000 /* one of so many calls: more missing ones, and nothing is certain */

struct change {		     /* against the first */
	double time, memory; /* shares: -0.2 is a fifth less; 0: the same within the noise */
};

/*
 * The share of pairs of runs, one of each, in which `to` has less (Mann and Whitney's U over its
 * greatest). On a machine with other work on it some run is an outlier: were all runs of the one to
 * lie beyond all of the other, that one run would hide what the others agree in.
 */
static double less(const struct scry_replay_spread *from, const struct scry_replay_spread *to)
{
	uint64_t halves = 0;

	for (uint32_t i = 0; i < to->count; i++)
		for (uint32_t k = 0; k < from->count; k++)
			halves += to->sorted[i] < from->sorted[k]    ? 2
				  : to->sorted[i] == from->sorted[k] ? 1
								     : 0;
	return (double)halves / 2 / to->count / from->count;
}

struct least {
	double share, units; /* less is not shown */
	double floor;	     /* a share of less than this is not measured */
};

/* The change of a median, 0 when it may be noise. */
static double change(const struct scry_replay_spread *from, const struct scry_replay_spread *to,
		     struct least least)
{
	double base = (double)from->median > least.floor ? (double)from->median : least.floor,
	       by = (double)to->median - (double)from->median, share;

	if (base <= 0 || !from->count || !to->count || fabs(by) < least.units)
		return 0;
	share = by / base;
	if (fabs(share) < least.share || (share < 0 ? less(from, to) : less(to, from)) < PAIRS)
		return 0;
	return share;
}

static bool is_crossed(const struct scry_replay_report *r)
{
	return r->threads_peak > 1 && r->crossed && r->crossed >= r->calls / CROSSED;
}

/* Of the calls alone, or of all that the program does: a share of one is not one of the other. */
static const char *time_of(const struct scry_replay_report *r)
{
	return r->is_real ? "program time" : "allocator time";
}

static const char *where(const struct scry_replay_report *r)
{
	return r->is_real ? "in these runs" : "on this trace";
}

static bool can_compare_time(const struct scry_replay_report *r, const struct scry_replay_row *a,
			     const struct scry_replay_row *b)
{
	return !r->is_by_clock &&
	       (a->cpu_ns.median >= LEAST_CPU_NS || b->cpu_ns.median >= LEAST_CPU_NS);
}

/* What was not asked of malloc, or was so before the recording, is in no replay. */
static bool can_compare_memory(const struct scry_replay_report *r)
{
	return r->rows[0].rss_peak.median >= r->program_rss_peak / LEAST_PART;
}

static struct change compare(const struct scry_replay_report *r, const struct scry_replay_row *from,
			     const struct scry_replay_row *to)
{
	const struct least time = {LEAST_SHARE, (double)r->null_spread_ns / 2,
				   (double)r->null_cpu_ns * NULL_SHARE},
			   memory = {is_crossed(r) ? LEAST_MEMORY_CROSSED : LEAST_SHARE,
				     LEAST_MEMORY, 0};

	return (struct change){
		can_compare_time(r, from, to) ? change(&from->cpu_ns, &to->cpu_ns, time) : 0,
		can_compare_memory(r) ? change(&from->rss_peak, &to->rss_peak, memory) : 0};
}

static const char *why_no_time(const struct scry_replay_report *r)
{
	return r->is_by_clock ? "each run takes equally long, whatever it gets done: go by the "
				"allocator time of the replays"
			      : "too little of it";
}

/* Why the quantity that a sentence does not give counts for nothing. */
static void put_same(char *text, size_t size, const struct scry_replay_report *r, int winner,
		     bool is_memory)
{
	const struct scry_replay_row *from = &r->rows[0], *to = &r->rows[winner];
	bool is_compared = is_memory ? can_compare_memory(r) : can_compare_time(r, from, to);
	const struct least least = {LEAST_SHARE, LEAST_MEMORY, 0};
	double share = is_memory ? change(&from->rss_peak, &to->rss_peak, least) : 0;

	if (!is_compared)
		snprintf(text, size, "%s is not compared: %s", is_memory ? "memory" : time_of(r),
			 is_memory ? "too little of it" : why_no_time(r));
	else if (share)
		snprintf(text, size,
			 "%.0f %% %s memory: less than such replays can show, %.0f %%, as threads "
			 "hand blocks over",
			 fabs(share) * 100, share < 0 ? "less" : "more",
			 LEAST_MEMORY_CROSSED * 100);
	else
		snprintf(text, size, "%s is the same within the noise",
			 is_memory ? "memory" : time_of(r));
}

/* What is left when all is done, where the peak does not say it: "; 83 % more memory at the end".
 */
static void put_end(char *text, size_t size, const struct scry_replay_report *r, int winner)
{
	const struct scry_replay_row *from = &r->rows[0], *to = &r->rows[winner];
	double share = r->is_real ? 0
				  : change(&from->rss_end, &to->rss_end,
					   (struct least){LEAST_END, LEAST_END_BYTES, 0});

	*text = 0;
	if (share && can_compare_memory(r) &&
	    fabs(share - compare(r, from, to).memory) >= LEAST_END)
		snprintf(text, size, "; %.0f %% %s memory at the end", fabs(share) * 100,
			 share < 0 ? "less" : "more");
}

/* "18 % less memory, 4 % less allocator time than glibc", or the one, and why not the other. */
static void put_both(char *text, size_t size, const struct scry_replay_report *r, int winner)
{
	const struct change c = compare(r, &r->rows[0], &r->rows[winner]);
	double first = c.memory ? c.memory : c.time, second = c.memory ? c.time : 0;
	const char *name = c.memory ? "memory" : time_of(r),
		   *other = c.memory ? time_of(r) : "memory";
	char more[64] = "", why[192], not_compared[200] = "";

	if (second)
		snprintf(more, sizeof(more), ", %.0f %% %s %s", fabs(second) * 100,
			 second < 0 ? "less" : "more", other);
	if (!second) {
		put_same(why, sizeof(why), r, winner, !c.memory);
		snprintf(not_compared, sizeof(not_compared), " (%s)", why);
	}
	snprintf(text, size, "%.0f %% %s %s%s than %s%s", fabs(first) * 100,
		 first < 0 ? "less" : "more", name, more, r->rows[0].label, not_compared);
}

/* What the time saved is of the program's. */
static void put_program(char *text, size_t size, const struct scry_replay_report *r, int winner)
{
	double saved = (double)r->rows[0].cpu_ns.median - (double)r->rows[winner].cpu_ns.median;

	*text = 0;
	if (r->program_cpu_ns && compare(r, &r->rows[0], &r->rows[winner]).time < 0)
		snprintf(text, size, " (about %.1f %% of the program's CPU time)",
			 saved / (double)r->program_cpu_ns * 100);
}

/* Blocks whose end is missing live on in each replay, and those without a beginning were never. */
static bool is_lossy(const struct scry_replay_report *r)
{
	return r->quality && (r->quality->has_lost_more || r->quality->lost > r->calls / LOST);
}

static int compare_values(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void scry_replay_spread(struct scry_replay_spread *s)
{
	qsort(s->sorted, s->count, sizeof(s->sorted[0]), compare_values);
	s->median = (s->sorted[s->count / 2] + s->sorted[(s->count - 1) / 2]) / 2;
	s->least = s->sorted[0];
	s->most = s->sorted[s->count - 1];
}

bool scry_replay_is_poor(const struct scry_replay_row *row, uint64_t calls)
{
	return row->failed > calls / POOR;
}

static bool is_tried(const struct scry_replay_report *r, const struct scry_replay_row *row)
{
	return row->runs >= LEAST_RUNS && !scry_replay_is_poor(row, r->calls);
}

/* Better in one, and not worse in the other: by how much, 0 not. */
static double gain(struct change c)
{
	return c.time > 0 || c.memory > 0 ? 0 : -c.time - c.memory;
}

/* Others that are as good as the winner. */
static void put_ties(char *text, size_t size, const struct scry_replay_report *r, int winner)
{
	size_t used = 0;

	*text = 0;
	for (uint32_t i = 1; i < r->count; i++) {
		struct change c = compare(r, &r->rows[winner], &r->rows[i]);

		if ((int)i == winner || !is_tried(r, &r->rows[i]) || c.time || c.memory ||
		    used >= size)
			continue;
		used += (size_t)snprintf(text + used, size - used,
					 "; %s is as good, within the noise", r->rows[i].label);
	}
}

/* The best by one quantity alone, -1 none; of allocators that are as good, the one that costs least
 * of the other. */
static int best_by(const struct scry_replay_report *r, bool by_memory)
{
	int best = -1;

	for (uint32_t i = 1; i < r->count; i++) {
		struct change c = compare(r, &r->rows[0], &r->rows[i]), against;
		double own = by_memory ? c.memory : c.time;

		if (!is_tried(r, &r->rows[i]) || own >= 0)
			continue;
		if (best >= 0) {
			against = compare(r, &r->rows[best], &r->rows[i]);
			own = by_memory ? against.memory : against.time;
			if (own > 0 ||
			    (own == 0 && (by_memory ? against.time : against.memory) >= 0))
				continue;
		}
		best = (int)i;
	}
	return best;
}

static bool is_worse_in_all(const struct scry_replay_report *r)
{
	uint32_t worse = 0, tried = 0;

	for (uint32_t i = 1; i < r->count; i++) {
		struct change c = compare(r, &r->rows[0], &r->rows[i]);

		tried += is_tried(r, &r->rows[i]);
		worse += is_tried(r, &r->rows[i]) && c.time >= 0 && c.memory >= 0 &&
			 c.time + c.memory > 0;
	}
	return tried && worse == tried;
}

static bool can_compare_some_time(const struct scry_replay_report *r)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (is_tried(r, &r->rows[i]) && can_compare_time(r, &r->rows[i], &r->rows[i]))
			return true;
	return false;
}

/* Each is better in one and worse in the other. */
static void say_trade(const struct scry_replay_report *r, struct scry_replay_verdict *v)
{
	const struct scry_replay_row *first = &r->rows[0];
	char time[128] = "", memory[128] = "";
	struct change c;

	if (v->best_time >= 0) {
		c = compare(r, first, &r->rows[v->best_time]);
		snprintf(time, sizeof(time), "%s: %.0f %% less %s for %.0f %% more memory",
			 r->rows[v->best_time].label, -c.time * 100, time_of(r), c.memory * 100);
	}
	if (v->best_memory >= 0) {
		c = compare(r, first, &r->rows[v->best_memory]);
		snprintf(memory, sizeof(memory), "%s: %.0f %% less memory for %.0f %% more %s",
			 r->rows[v->best_memory].label, -c.memory * 100, c.time * 100, time_of(r));
	}
	snprintf(v->sentence, sizeof(v->sentence),
		 "no clear winner; %s%s%s than %s %s; the differences are outside the noise", time,
		 *time && *memory ? "; " : "", memory, first->label, where(r));
}

/* Where nothing is better, others may still be worse. */
static void put_worse(char *text, size_t size, const struct scry_replay_report *r)
{
	size_t used = 0;

	*text = 0;
	for (uint32_t i = 1; i < r->count && used < size; i++) {
		const struct change c = compare(r, &r->rows[0], &r->rows[i]);

		if (is_tried(r, &r->rows[i]) && c.time > 0)
			used += (size_t)snprintf(text + used, size - used,
						 "; %s takes %.0f %% more %s", r->rows[i].label,
						 c.time * 100, time_of(r));
		if (is_tried(r, &r->rows[i]) && c.memory > 0 && used < size)
			used += (size_t)snprintf(text + used, size - used,
						 "; %s takes %.0f %% more memory", r->rows[i].label,
						 c.memory * 100);
	}
}

static void say_none(const struct scry_replay_report *r, struct scry_replay_verdict *v)
{
	const char *first = r->rows[0].label;
	char worse[256], not_compared[192] = "";

	if (!can_compare_memory(r))
		snprintf(not_compared, sizeof(not_compared),
			 "; memory is not compared: too little of it");
	else if (!can_compare_some_time(r))
		snprintf(not_compared, sizeof(not_compared), "; %s is not compared: %s", time_of(r),
			 why_no_time(r));

	if (v->best_time >= 0 || v->best_memory >= 0) {
		say_trade(r, v);
	} else if (is_worse_in_all(r)) {
		v->winner = 0;
		snprintf(
			v->sentence, sizeof(v->sentence),
			"%s: all others take more %s%s%s %s; the difference is outside the noise%s",
			first, can_compare_some_time(r) ? time_of(r) : "",
			can_compare_some_time(r) && can_compare_memory(r) ? " or more " : "",
			can_compare_memory(r) ? "memory" : "", where(r), not_compared);
	} else {
		put_worse(worse, sizeof(worse), r);
		snprintf(v->sentence, sizeof(v->sentence),
			 "cannot tell: nothing is better than %s in %s or memory %s by more than "
			 "the noise%s%s%s",
			 first, time_of(r), where(r),
			 is_crossed(r) ? " (25 % of memory, where threads hand blocks over)" : "",
			 worse, not_compared);
	}
}

/* Nothing of the program is in what was recorded, or next to nothing. */
static bool is_little(const struct scry_replay_report *r, char *text, size_t size)
{
	if (can_compare_some_time(r) || can_compare_memory(r))
		return false;
	snprintf(text, size,
		 "cannot tell: too little was recorded: no allocator takes %u ms of CPU time for "
		 "its calls, and under %s they have %llu KiB of the %llu that the program had "
		 "(less than a tenth); fix: record more of it, from its start",
		 LEAST_CPU_NS / 1000000, r->rows[0].label,
		 (unsigned long long)(r->rows[0].rss_peak.median >> 10),
		 (unsigned long long)(r->program_rss_peak >> 10));
	return true;
}

/* The first is what the others are compared with. */
static void say_no_base(const struct scry_replay_report *r, struct scry_replay_verdict *v)
{
	const struct scry_replay_row *base = &r->rows[0];

	if (r->count > 1 && (!base->runs || scry_replay_is_poor(base, r->calls)))
		snprintf(v->sentence, sizeof(v->sentence),
			 "cannot tell: %s, with which the others are compared, %s; fix: name "
			 "another one first in --with",
			 base->label, base->runs ? "gave no memory" : "could not be tried");
	else
		snprintf(v->sentence, sizeof(v->sentence),
			 "cannot tell: %s; fix: --with A,B and --runs 3 or more",
			 r->count < 2 ? "one allocator alone compares with nothing"
				      : "too few runs");
}

void scry_replay_judge(const struct scry_replay_report *r, struct scry_replay_verdict *ret_verdict)
{
	struct scry_replay_verdict *v = ret_verdict;
	char both[384], program[80], end[64], ties[200];
	double best = 0;

	v->winner = v->best_time = v->best_memory = -1;
	if (is_lossy(r)) {
		snprintf(v->sentence, sizeof(v->sentence),
			 "cannot tell: %s%llu calls were lost when this was recorded, and replays "
			 "are of the other %llu; fix: record it again",
			 r->quality->has_lost_more ? "at least " : "",
			 (unsigned long long)r->quality->lost, (unsigned long long)r->calls);
		return;
	}
	if (r->count < 2 || !is_tried(r, &r->rows[0])) {
		say_no_base(r, v);
		return;
	}
	if (is_little(r, v->sentence, sizeof(v->sentence)))
		return;
	v->best_time = best_by(r, false);
	v->best_memory = best_by(r, true);
	for (uint32_t i = 1; i < r->count; i++) {
		double g =
			is_tried(r, &r->rows[i]) ? gain(compare(r, &r->rows[0], &r->rows[i])) : 0;

		if (g <= best)
			continue;
		best = g;
		v->winner = (int)i;
	}
	if (v->winner < 0) {
		say_none(r, v);
		return;
	}
	put_both(both, sizeof(both), r, v->winner);
	put_program(program, sizeof(program), r, v->winner);
	put_end(end, sizeof(end), r, v->winner);
	put_ties(ties, sizeof(ties), r, v->winner);
	snprintf(v->sentence, sizeof(v->sentence),
		 "%s: %s %s%s; the difference is outside the noise%s%s", r->rows[v->winner].label,
		 both, where(r), program, end, ties);
}

static uint64_t apart(const struct scry_replay_spread *a, const struct scry_replay_spread *b)
{
	return a->median > b->median ? a->median - b->median : b->median - a->median;
}

bool scry_replay_is_by_clock(const struct scry_replay_report *r)
{
	const struct scry_replay_row *first = &r->rows[0];
	const uint64_t threads = r->threads_peak > 1 ? r->threads_peak : 1;
	uint64_t least = UINT64_MAX, most = 0, differs = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->count && first->has_real; i++) {
		const struct scry_replay_row *row = &r->rows[i];
		const uint64_t wall = row->real_wall_ns.least,
			       replays = apart(&row->cpu_ns, &first->cpu_ns),
			       runs = apart(&row->real_cpu_ns, &first->real_cpu_ns);

		if (!row->has_real || row->runs < LEAST_RUNS)
			continue;
		count++;
		least = wall < least ? wall : least;
		most = wall > most ? wall : most;
		differs = replays > differs ? replays : differs;
		differs = runs > differs ? runs : differs;
	}
	return count > 1 && least >= CLOCK_LEAST_NS &&
	       (double)(most - least) < (double)least * CLOCK_SHARE + CLOCK_NS &&
	       (double)differs > (double)first->real_cpu_ns.median * LEAST_SHARE &&
	       differs > (most - least) * CLOCK_TIMES * threads;
}

bool scry_replay_goes_by_real(const struct scry_replay_report *r)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->count && r->rows[0].has_real; i++)
		count += r->rows[i].has_real && r->rows[i].runs;
	return count > 1 && !scry_replay_is_by_clock(r);
}

void scry_replay_judge_real(const struct scry_replay_report *r,
			    struct scry_replay_verdict *ret_verdict)
{
	struct scry_replay_row rows[SCRY_REPLAY_ROWS_MAX];
	struct scry_replay_report real = *r;

	real.rows = rows;
	real.is_real = true;
	real.is_by_clock = scry_replay_is_by_clock(r);
	/* the times are the program's own */
	real.null_cpu_ns = real.null_spread_ns = real.program_cpu_ns = 0;
	real.program_rss_peak = 0;
	real.crossed = 0;    /* and so is what its memory differs by */
	real.quality = NULL; /* nothing was recorded of them */
	if (real.count > SCRY_REPLAY_ROWS_MAX)
		real.count = SCRY_REPLAY_ROWS_MAX;
	for (uint32_t i = 0; i < real.count; i++) {
		rows[i] = r->rows[i];
		rows[i].cpu_ns = rows[i].real_cpu_ns;
		rows[i].rss_peak = rows[i].real_rss;
		rows[i].failed = 0; /* in replays */
		if (!rows[i].has_real)
			rows[i].runs = 0;
	}
	scry_replay_judge(&real, ret_verdict);
}
