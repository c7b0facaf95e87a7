/* The head of the syscalls view: the sentence that a person can act on, what is missing, totals. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "view/functions.h"
#include "view/syscalls.h"
#include "view/verdict.h"
#include "wire/bpf_syscalls.h"

#define SITES_SAID 5 /* places that are not counted, by name */
#define MANY 1000
#define MANY_PLACES 20 /* of which the first has no more than its part: none is to be named */
#define TICK_SECOND_NS 1021286236u /* between two ticks, times their rate: sample/processors */
#define FEW 20			   /* samples: a share of fewer says nothing */
#define OWN_MOST 50   /* of a thousand: what counting may take before shares are said to be of it */
#define LEAST_VAIN 10 /* of a thousand: calls in vain that take less do not come first */
#define LITTLE 50     /* of a thousand: less of the time in system calls is nothing to win */

/* The place with most samples, however rows are sorted. */
static const struct scry_syscall_row *largest(const struct scry_syscall_view *v)
{
	const struct scry_syscall_row *most = NULL;

	for (uint32_t i = 0; i < v->places.keys.count; i++) {
		const struct scry_syscall_row *row = &v->places.rows[i];

		if (!most || row->ticks > most->ticks ||
		    (row->ticks == most->ticks && row->calls > most->calls))
			most = row;
	}
	return most;
}

/* " +- 3": two standard deviations of a share that was sampled, where there is that much. */
static void put_error(struct scry_buf *b, uint64_t part, uint64_t whole, int digits)
{
	const double p = whole ? (double)(part ? part : 1) / (double)whole : 0;
	const double error = p < 1 ? 200 * sqrt(p * (1 - p) / (double)whole) : 0;

	if (error >= (digits ? 0.05 : 0.5))
		scry_buf_printf(b, " +- %.*f", digits, error);
}

static void put_share(struct scry_buf *b, uint64_t part, uint64_t whole)
{
	scry_buf_printf(b, "%llu %%", (unsigned long long)scry_share(part, whole, 100));
	put_error(b, part, whole, 0);
}

/* Ticks that there would be if no thread ran for less than one; 0: that is not known. */
static uint64_t due_ticks(const struct scry_ev_syscalls *s)
{
	const uint64_t due = scry_share(s->ran_ns, TICK_SECOND_NS, s->rate);

	return due > s->ticks + FEW && s->ticks * 10 < due * 9 ? due : 0;
}

/* Of --pid the recording has the samples in its calls, not all of its time. */
static const char *whose_time(const struct scry_syscall_view *v)
{
	return v->opts->pid ? "the processor time of all that was watched" : "its processor time";
}

static void put_largest(struct scry_syscall_view *v, struct scry_buf *b)
{
	const struct scry_syscall_row *row = largest(v);
	const uint64_t all = scry_share(v->inside, v->sums.ticks, 1000);
	const struct scry_ev_syscall_site *site = row ? scry_syscall_site_of(v, row) : NULL;

	if (!v->has_sums) {
		scry_buf_printf(b,
				"the recording has no counts: scry ended before its watch did, or "
				"had no room for them");
		return;
	}
	if (!v->sums.ticks) {
		scry_buf_printf(b,
				"no tick of the clock met it on a processor: it waited, or ran for "
				"less than one");
		if (v->sums.rate)
			scry_buf_printf(b, " (%u a second)", v->sums.rate);
		if (!scry_syscall_is_exact(v))
			scry_buf_printf(b, "; fix: --exact counts calls, also those that wait");
		return;
	}
	if (v->sums.ticks < FEW) {
		scry_buf_printf(b,
				"too few samples of it (%llu) to say how much of its time is spent "
				"in system calls; fix: a longer watch, or more of them with --rate",
				(unsigned long long)v->sums.ticks);
		return;
	}
	scry_buf_printf(b, "%llu.%llu %%", (unsigned long long)(all / 10),
			(unsigned long long)(all % 10));
	put_error(b, v->inside, v->sums.ticks, 1);
	scry_buf_printf(b, " of %s", whose_time(v));
	if (due_ticks(&v->sums))
		scry_buf_printf(
			b, ", as far as it was sampled (%llu %% of it),",
			(unsigned long long)scry_share(v->sums.ticks, due_ticks(&v->sums), 100));
	scry_buf_printf(b, " is spent in system calls");
	if (v->opts->pid)
		scry_buf_printf(b, " of process %llu", (unsigned long long)v->opts->pid);
	if (all < LITTLE) {
		scry_buf_printf(b, ": little is to be won there");
		return;
	}
	if (!site)
		return;
	if (row->ticks * MANY_PLACES < v->inside) {
		scry_buf_printf(b, ", from many places, of which none has much of it");
		return;
	}
	scry_buf_printf(b, ", most in %s from ", scry_syscall_text(v, site->name_str));
	scry_syscall_put_place(v, site, b);
	scry_buf_printf(b, " (");
	put_share(b, row->ticks, v->sums.ticks);
	scry_buf_printf(b, ")");
	if (row->line_str) {
		scry_buf_printf(b, ", by ");
		scry_syscall_put_line(v, row, b);
	} else if (row->caller_str) {
		scry_buf_printf(b, ", called by ");
		scry_syscall_put_caller(v, row, b);
	}
}

/* The sentence that a person can act on. */
static void judge(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts,
		  size_t count)
{
	const bool is_known = v->sums.ticks >= FEW && scry_syscall_has_vain_ticks(v);
	struct scry_buf b = {0};

	if (count && verdicts[0].grade != SCRY_GRADE_HINT &&
	    (!is_known || scry_share(verdicts[0].ticks, v->sums.ticks, 1000) >= LEAST_VAIN)) {
		const struct scry_syscall_verdict *d = &verdicts[0];
		const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, d->row);

		scry_syscall_put_verdict(d, &b);
		scry_buf_printf(&b, ": %s from ", scry_syscall_text(v, site->name_str));
		scry_syscall_put_place(v, site, &b);
		if (is_known) {
			scry_buf_printf(&b, ", ");
			put_share(&b, d->ticks, v->sums.ticks);
			scry_buf_printf(&b, " of %s", whose_time(v));
		}
		scry_buf_printf(&b, "; fix: %s", d->cure);
	} else {
		put_largest(v, &b);
	}
	if (!v->doc->is_data)
		scry_syscall_shorten(&b);
	scry_verdict_note(v->doc, &b);
	scry_buf_done(&b);
}

static void note(struct scry_syscall_view *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void note(struct scry_syscall_view *v, const char *fmt, ...)
{
	char text[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	v->doc->ops->note(v->doc, text, strlen(text));
}

/* Are there many calls of which --latency would know more? */
static bool may_prove_more(const struct scry_syscall_view *v)
{
	for (uint32_t i = 0; i < v->places.keys.count; i++) {
		const struct scry_syscall_row *row = &v->places.rows[i];
		const char *name = scry_syscall_text(v, scry_syscall_site_of(v, row)->name_str);

		if (row->calls >= MANY && (!strcmp(name, "fcntl") || !strcmp(name, "ioctl")))
			return true;
	}
	return false;
}

/* Counted calls that are only counted. */
static uint64_t calls_of_32_bits(const struct scry_syscall_view *v)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < v->places.keys.count; i++)
		if (scry_syscall_site_of(v, &v->places.rows[i])->abi == SCRY_ABI_32)
			sum += v->places.rows[i].calls;
	return sum;
}

/* Of a thousand: what counting has taken of the program's time, at least. */
static uint64_t own_share(const struct scry_syscall_view *v)
{
	const struct scry_ev_syscalls *s = &v->sums;
	const uint64_t more = s->with_ns > s->before_ns ? s->with_ns - s->before_ns : 0;

	return s->rate && s->ticks >= FEW
		       ? scry_share(s->calls * more, s->ticks * (1000000000u / s->rate), 1000)
		       : 0;
}

/* Samples of calls of which it is not known which they are. */
static uint64_t unknown_ticks(const struct scry_syscall_view *v)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < v->places.keys.count; i++)
		if (scry_syscall_site_of(v, &v->places.rows[i])->number == SCRY_SYSCALLS_UNKNOWN)
			sum += v->places.rows[i].ticks;
	return sum;
}

/* Clocks of threads do not tick for a thread that runs for less than a tick at a time; nor is there
 * room for all. */
static void note_perf(struct scry_syscall_view *v)
{
	const struct scry_ev_syscalls *s = &v->sums;
	const uint64_t unknown = unknown_ticks(v);
	const uint64_t due = due_ticks(s);

	if (s->lost)
		note(v, "%llu samples, or ends of threads, were not reported, for want of room",
		     (unsigned long long)s->lost);
	if (due)
		note(v,
		     "of the processor time %llu %% is in no sample, as that of threads and "
		     "processes that run for less than a tick (%u us)",
		     (unsigned long long)scry_share(due - s->ticks, due, 100),
		     (unsigned int)(TICK_SECOND_NS / 1000 / s->rate));
	if (unknown)
		note(v,
		     "which call it is, is read from the code without eBPF, and is not known of "
		     "%llu %% of the samples in system calls",
		     (unsigned long long)scry_share(unknown, v->inside, 100));
}

/* What is not counted, and what shares are of. */
static void note_sites(struct scry_syscall_view *v)
{
	const struct scry_syscall_row **rows = scry_syscall_sorted(v, &v->places);
	uint32_t not_counted = 0;

	for (uint32_t i = 0; rows && i < v->places.keys.count; i++) {
		const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, rows[i]);
		struct scry_buf place = {0};

		if (!rows[i]->why_str || ++not_counted > SITES_SAID)
			continue;
		scry_syscall_put_place(v, site, &place);
		if (!v->doc->is_data)
			scry_syscall_shorten(&place);
		note(v, "%s from %s is not counted: %s", scry_syscall_text(v, site->name_str),
		     scry_buf_str(&place), scry_syscall_text(v, rows[i]->why_str));
		scry_buf_done(&place);
	}
	free(rows);
	if (not_counted > SITES_SAID)
		note(v, "%u more places are not counted either; --json says why",
		     not_counted - SITES_SAID);
	note(v,
	     "counted in the process, at %u of the %u place%s that took processor time in a second "
	     "of sampling before, of which the shares are; other places, children, and results of "
	     "calls: --exact",
	     v->places.keys.count - not_counted, v->places.keys.count,
	     v->places.keys.count == 1 ? "" : "s");
}

/* What is missing, where something is. */
static void note_missing(struct scry_syscall_view *v)
{
	const struct scry_ev_syscalls *s = &v->sums;

	if (s->nowhere)
		note(v,
		     "%llu of %llu calls are in no row, as there were more threads and places "
		     "than %u; fix: a shorter watch, or fewer processes",
		     (unsigned long long)s->nowhere, (unsigned long long)s->calls,
		     scry_syscall_is_timed(v) ? SCRY_SYSCALLS_TIMED : SCRY_SYSCALLS_SUMS);
	if (s->unplaced)
		note(v, "%llu of %llu samples in system calls are in no row",
		     (unsigned long long)s->unplaced, (unsigned long long)s->inside);
	if (s->unnamed)
		note(v,
		     "%llu process%s ended, or became another program, before scry could see what "
		     "they had "
		     "mapped: their callers are missing, and the names of places that no other "
		     "process has mapped",
		     (unsigned long long)s->unnamed, s->unnamed == 1 ? "" : "es");
	if (v->lines_seen && v->lineless * 20 > v->lines_seen)
		note(v, "lines of Ruby are known for %llu %% of the calls of Rubies",
		     (unsigned long long)scry_share(v->lines_seen - v->lineless, v->lines_seen,
						    100));
	if (v->opts->by == SCRY_VIEW_BY_LINE && !v->lines_seen)
		note(v, "no call of a Ruby's was sampled, so there are no lines; fix: --by site");
	if (v->opts->by == SCRY_VIEW_BY_LINE && v->lines_seen && !v->doc->is_data)
		note(v,
		     "each place's sums are shared out among its lines by %llu samples of "
		     "stacks",
		     (unsigned long long)s->line_samples);
	if (s->children && !(s->flags & (SCRY_SYSCALLS_FOLLOW | SCRY_SYSCALLS_AT_SITES)))
		note(v, "%llu child process%s not watched; fix: -f",
		     (unsigned long long)s->children, s->children == 1 ? " was" : "es were");
	if (s->strangers)
		note(v, "%llu child processes were not watched, as there were too many at once",
		     (unsigned long long)s->strangers);
	if (s->flags & SCRY_SYSCALLS_PERF)
		note_perf(v);
	else if (s->lost)
		note(v,
		     "%llu places, stacks or ends of threads were not reported, for want of room",
		     (unsigned long long)s->lost);
	if (own_share(v) > OWN_MOST)
		note(v,
		     "counting took at least %llu %% of the processor time, which all shares "
		     "include; without --exact they are the program's own",
		     (unsigned long long)(own_share(v) / 10));
	if (scry_syscall_is_exact(v) && s->with_ns && s->with_ns <= s->before_ns)
		note(v,
		     "the cost of counting for other processes is not known: the machine's speed "
		     "changed (getppid of scry: %llu ns, before %llu)",
		     (unsigned long long)s->with_ns, (unsigned long long)s->before_ns);
	v->doc->is_cost = true;
	if (scry_syscall_is_exact(v) && s->with_ns > s->before_ns)
		note(v,
		     "while it was counted each system call of every process of this machine took "
		     "some %llu ns more (getppid of scry: %llu ns, before %llu)",
		     (unsigned long long)(s->with_ns - s->before_ns),
		     (unsigned long long)s->with_ns, (unsigned long long)s->before_ns);
	v->doc->is_cost = false;
	if (scry_syscall_is_at_sites(v))
		note_sites(v);
	else if (calls_of_32_bits(v))
		note(v,
		     "%llu calls have numbers of 32-bit programs; whether they were in vain is not "
		     "examined",
		     (unsigned long long)calls_of_32_bits(v));
	if (scry_syscall_is_exact(v) && !scry_syscall_is_at_sites(v) && !scry_syscall_is_timed(v) &&
	    may_prove_more(v))
		note(v, "whether fcntl and ioctl set what was set already is known with --latency "
			"only, which sees calls begin");
	if (!scry_syscall_is_exact(v) && v->has_sums && !v->doc->is_data)
		note(v,
		     "sampled%s: shares of processor time; --exact%s counts calls, also those "
		     "that wait, and proves which are in vain",
		     s->flags & SCRY_SYSCALLS_PERF ? " by perf events" : "",
		     s->flags & SCRY_SYSCALLS_PERF ? " (with eBPF: sudo scry ...)" : "");
}

static void push_totals(struct scry_syscall_view *v)
{
	const struct scry_ev_syscalls *s = &v->sums;
	const struct scry_doc_value share = scry_syscall_share(v->inside, s->ticks);
	const bool is_one = v->opts->pid != 0;
	struct scry_cell calls = scry_cell_known(v->calls, scry_syscall_is_exact(v));
	struct scry_cell ticks = scry_cell_number(s->ticks), inside = scry_cell_number(v->inside);
	struct scry_cell pid = scry_cell_known(v->opts->pid, is_one);
	const char *mode = scry_syscall_is_at_sites(v) ? "site"
			   : scry_syscall_is_timed(v)  ? "latency"
			   : scry_syscall_is_exact(v)  ? "exact"
						       : "sampled";
	struct scry_cell how = scry_cell_text(mode, strlen(mode));
	struct scry_cell engine = scry_cell_text("ebpf", 4);
	struct scry_cell exits = scry_cell_known(
		s->exits, !is_one && !(s->flags & (SCRY_SYSCALLS_PERF | SCRY_SYSCALLS_AT_SITES)));
	struct scry_cell killed =
		scry_cell_known(s->killed, !is_one && !scry_syscall_is_at_sites(v));
	struct scry_cell before = scry_cell_known(s->before_ns, !scry_syscall_is_at_sites(v));
	struct scry_cell with = scry_cell_known(s->with_ns, !scry_syscall_is_at_sites(v));
	struct scry_cell ran = scry_cell_known(s->ran_ns, s->ran_ns != 0);

	how.is_blank = true;
	if (s->flags & SCRY_SYSCALLS_PERF)
		engine = scry_cell_text("perf", 4);
	killed.is_blank = before.is_blank = with.is_blank = true;
	pid.is_blank = engine.is_blank = exits.is_blank = ran.is_blank = true;
	calls.is_blank = !scry_syscall_is_exact(v);
	const struct scry_pair pairs[] = {
		{"mode", NULL, SCRY_CELL_TEXT, 0, how},
		{"engine", NULL, SCRY_CELL_TEXT, 0, engine},
		{"pid", NULL, SCRY_CELL_NUMBER, 0, pid},
		{"calls", is_one ? "system calls of this process" : "system calls", SCRY_CELL_COUNT,
		 0, calls},
		{"samples",
		 is_one ? "samples of the processor time of all that was watched"
			: "samples of its processor time",
		 SCRY_CELL_COUNT, 0, ticks},
		{"samples_in_calls",
		 is_one ? "of them in system calls of this process" : "of them in system calls",
		 SCRY_CELL_COUNT, 0, inside},
		{"share",
		 NULL,
		 SCRY_CELL_VALUE,
		 0,
		 {.values = &share, .number = 1, .is_blank = true}},
		{"watched_ns",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->watched_ns, .is_blank = true}},
		{"ran_ns", NULL, SCRY_CELL_NUMBER, 0, ran},
		{"exits", NULL, SCRY_CELL_NUMBER, 0, exits},
		{"killed_in_calls", NULL, SCRY_CELL_NUMBER, 0, killed},
		{"calls_in_no_row",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->nowhere, .is_blank = true}},
		{"samples_in_no_row",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->unplaced, .is_blank = true}},
		{"images_not_looked_at",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->unnamed, .is_blank = true}},
		{"processes_not_watched",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->strangers, .is_blank = true}},
		{"records_lost", NULL, SCRY_CELL_NUMBER, 0, {.number = s->lost, .is_blank = true}},
		{"getppid_before_ns", NULL, SCRY_CELL_NUMBER, 0, before},
		{"getppid_with_ns", NULL, SCRY_CELL_NUMBER, 0, with},
	};

	v->doc->ops->totals(v->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

void scry_syscall_push_head(struct scry_syscall_view *v,
			    const struct scry_syscall_verdict *verdicts, size_t count)
{
	v->doc->ops->quality(v->doc, &v->quality);
	judge(v, verdicts, count);
	note_missing(v);
	scry_data_quality_notes(&v->quality, v->doc);
	push_totals(v);
}
