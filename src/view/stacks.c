/*
 * The stacks view: which lines take the time. Rows are lines, with their own time and with that of
 * what they call; with --stacks, whole stacks.
 *
 * A line that is on a stack several times (recursion) gets its time once. What is shown is the
 * weight that was asked for: all time, time on a processor, or time waiting for the VM's lock.
 */
#include "view/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "base/vector.h"
#include "view/frames.h"
#include "view/grep.h"
#include "view/honesty.h"
#include "view/table.h"
#include "view/verdict.h"
#include "view/view.h"

#define NAMES_MAX (4u << 20)
#define NAMES_BYTES (512u << 20)
#define PLACES_MAX (8u << 20)
#define PROCESSES_SHOWN 32u

struct sample {
	uint32_t stack; /* frame id; 0: no frame is known */
	uint32_t pid, thread, state;
	uint64_t count, wall_ns, cpu_ns;
};

struct place { /* hashed as bytes; a frame without its callers */
	uint32_t file, line, method, flags;
};

struct row {
	uint64_t self_ns, total_ns, samples;
	uint64_t state_ns[SCRY_STATES];
	uint32_t stamp; /* last sample that was added to total */
	uint32_t id;	/* of its place, or frame */
};

struct stacks {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_honesty honesty;
	struct scry_intern names, places;
	struct scry_frames frames;
	struct sample *samples;
	size_t count, room;
	struct scry_ev_sampling sums;
	uint32_t sampled;			       /* processes */
	struct scry_ev_sampling each[PROCESSES_SHOWN]; /* of the first ones */
	struct scry_ev_naming naming;
	bool has_naming;
	struct scry_ev_pauses pauses;
	bool has_pauses;
	struct row *rows;
	size_t row_count;
	uint64_t total_ns;
	uint64_t cpu_unknown_ns; /* of threads that were not seen while they ran */
	struct scry_frame_row scratch;
	struct scry_buf line;
};

static uint64_t weight_of(const struct stacks *v, const struct sample *s)
{
	if (v->opts->times.cpu)
		return s->cpu_ns;
	if (v->opts->times.gvl)
		return s->state == SCRY_STATE_GVL ? s->wall_ns : 0;
	return s->wall_ns;
}

/* Run between looks: it has no sample. */
static bool is_unknown(const struct scry_ev_samples *e)
{
	return e->state == SCRY_STATE_UNKNOWN && !e->count;
}

static int add_sample(struct stacks *v, const struct scry_ev_samples *e)
{
	if (v->opts->pid && v->opts->pid != e->pid)
		return 0;
	v->cpu_unknown_ns += is_unknown(e) ? e->cpu_ns : 0;
	if (scry_vector_reserve(&v->samples, v->count, &v->room))
		return -ENOMEM;
	v->samples[v->count++] = (struct sample){
		.stack = scry_frames_find(&v->frames, e->stack),
		.pid = e->pid,
		.thread = e->thread,
		.state = e->state < SCRY_STATES ? e->state : SCRY_STATE_UNKNOWN,
		.count = e->count,
		.wall_ns = e->wall_ns,
		.cpu_ns = e->cpu_ns,
	};
	return 0;
}

static void add_sums(struct stacks *v, const struct scry_ev_sampling *e)
{
	if (v->opts->pid && v->opts->pid != e->pid)
		return;
	if (v->sampled < PROCESSES_SHOWN)
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

static void add_naming(struct stacks *v, const struct scry_ev_naming *e)
{
	v->has_naming = true;
	v->naming.born += e->born;
	v->naming.lost += e->lost;
	v->naming.late += e->late;
	v->naming.nameless += e->nameless;
	v->naming.told += e->told;
	v->naming.agree += e->agree;
	v->naming.differ += e->differ;
	v->naming.gone += e->gone;
}

static void add_pauses(struct stacks *v, const struct scry_ev_pauses *e)
{
	if (v->opts->pid && v->opts->pid != e->pid)
		return;
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

static int read_all(struct stacks *v)
{
	const struct scry_event *event;
	int got, err = 0;

	while (!err && (got = scry_reader_next(v->reader, &event)) > 0) {
		scry_honesty_event(&v->honesty, event);
		if (event->type == SCRY_EVENT_STACK)
			scry_frames_event(&v->frames, &v->names, v->reader,
					  (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_SAMPLES)
			err = add_sample(v, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_SAMPLING)
			add_sums(v, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_NAMING)
			add_naming(v, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_PAUSES)
			add_pauses(v, (const void *)(event + 1));
	}
	if (err)
		return scry_fail(err, "no memory for the report");
	return got < 0 ? got : 0;
}

/* --- totals ----------------------------------------------------------------------------------- */

static void push_totals(struct stacks *v)
{
	uint64_t state_ns[SCRY_STATES] = {0}, wall_ns = 0, cpu_ns = 0, samples = 0;
	uint64_t slots = v->sums.ticks + v->sums.missed + v->pauses.spared + v->pauses.late;
	uint64_t rate = scry_share(v->sums.ticks, slots, v->sums.rate);

	for (size_t i = 0; i < v->count; i++) {
		state_ns[v->samples[i].state] += v->samples[i].wall_ns;
		wall_ns += v->samples[i].wall_ns;
		cpu_ns += v->samples[i].cpu_ns;
		samples += v->samples[i].count;
	}
	const struct scry_pair pairs[] = {
		{"samples", "samples of threads", SCRY_CELL_COUNT, 0, scry_cell_number(samples)},
		{"valid",
		 v->has_pauses	   ? "exact: read while no thread ran"
		 : v->sums.clocked ? "valid: at a tick of a clock, or two equal collects"
				   : "valid: two equal collects",
		 SCRY_CELL_COUNT, 0, scry_cell_number(v->sums.valid)},
		{"repaired", "repaired: only what two collects had in common", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.repaired)},
		{"rejected", "rejected: nothing was sure", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->sums.rejected)},
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
		{"wall_ns", "s of all threads", SCRY_CELL_TIME, 0, scry_cell_number(wall_ns)},
		{"cpu_ns", "s on a processor, as the kernel counts", SCRY_CELL_TIME, 0,
		 scry_cell_number(cpu_ns)},
		{"cpu_unknown_ns", "s of that unknown: it ran between looks", SCRY_CELL_TIME, 0,
		 scry_cell_number(v->cpu_unknown_ns)},
		{"state_cpu_ns", "s running", SCRY_CELL_TIME, 0,
		 scry_cell_number(state_ns[SCRY_STATE_CPU])},
		{"state_runnable_ns", "s ready, but on no processor", SCRY_CELL_TIME, 0,
		 scry_cell_number(state_ns[SCRY_STATE_RUNNABLE])},
		{"state_gvl_ns", "s waiting for the GVL", SCRY_CELL_TIME, 0,
		 scry_cell_number(state_ns[SCRY_STATE_GVL])},
		{"state_blocked_ns", "s blocked", SCRY_CELL_TIME, 0,
		 scry_cell_number(state_ns[SCRY_STATE_BLOCKED])},
		{"state_sleeping_ns", "s sleeping", SCRY_CELL_TIME, 0,
		 scry_cell_number(state_ns[SCRY_STATE_SLEEPING])},
		{"state_gc_ns", "s collecting garbage", SCRY_CELL_TIME, 0,
		 scry_cell_number(state_ns[SCRY_STATE_GC])},
		{"state_unknown_ns", "s in no known state", SCRY_CELL_TIME, 0,
		 scry_cell_number(state_ns[SCRY_STATE_UNKNOWN])},
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
		{"names_agree", "names told as memory says", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->naming.agree)},
		{"names_differ", "names told otherwise", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->naming.differ)},
		{"frames_told", "frames that memory could not name any more", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->naming.told)},
	};
	const struct scry_pair pauses[] = {
		{"held_looks", "looks for which what ran was held", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->pauses.count)},
		{"held_threads", "threads held at once, at most", SCRY_CELL_COUNT, 0,
		 scry_cell_number(v->pauses.threads)},
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
		{"looks_again", "looks made again: a thread woke meanwhile", SCRY_CELL_COUNT, 0,
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
	v->doc->ops->totals(v->doc, all, count);
}

/* Rows that cannot be trusted; programs have the total. */
static void note_names(struct stacks *v)
{
	struct scry_buf buf = {0};

	if (!v->naming.differ || v->doc->is_data)
		return;
	scry_text_things(&buf, v->naming.differ, "names");
	scry_buf_printf(&buf, " of code that came into being meanwhile were not those that memory "
			      "has: some rows may be named wrong");
	v->doc->ops->note(v->doc, scry_buf_str(&buf), buf.len);
	scry_buf_done(&buf);
}

/* Of several processes: how it went with each. */
static void tell_each(struct stacks *v)
{
	for (uint32_t i = 0; v->sampled > 1 && i < v->sampled && i < PROCESSES_SHOWN; i++) {
		const struct scry_ev_sampling *e = &v->each[i];

		scry_doc_remark(v->doc,
				"process %u: %llu samples, %llu looks, %llu missed; --pid %u shows "
				"it alone",
				e->pid, (unsigned long long)(e->valid + e->repaired + e->rejected),
				(unsigned long long)e->ticks, (unsigned long long)e->missed,
				e->pid);
	}
	if (v->sampled > PROCESSES_SHOWN)
		scry_doc_remark(v->doc, "%u more processes", v->sampled - PROCESSES_SHOWN);
}

/* --- rows ------------------------------------------------------------------------------------- */

static uint32_t place_of(struct stacks *v, uint32_t frame_id)
{
	struct scry_frame frame = scry_frames_get(&v->frames, frame_id);
	struct place place = {frame.file, frame.line, frame.method, frame.flags};
	uint32_t id = 0;

	scry_intern_put(&v->places, (const char *)&place, sizeof(place), &id);
	return id;
}

static struct row *row_at(struct stacks *v, uint32_t id)
{
	if (id >= v->row_count) {
		size_t room = v->row_count ? v->row_count : 1024;
		struct row *more;

		while (room <= id)
			room *= 2;
		more = reallocarray(v->rows, room, sizeof(*more));
		if (!more)
			return NULL;
		memset(more + v->row_count, 0, (room - v->row_count) * sizeof(*more));
		v->rows = more;
		v->row_count = room;
	}
	v->rows[id].id = id;
	return &v->rows[id];
}

/* The sample's time to every place on its stack, once each; its own to the newest. */
static int add_to_places(struct stacks *v, uint32_t stamp, const struct sample *s, uint64_t ns)
{
	for (uint32_t at = s->stack, newest = 1; at; newest = 0) {
		struct row *row = row_at(v, place_of(v, at));

		if (!row)
			return -ENOMEM;
		if (newest) {
			row->self_ns += ns;
			row->samples += s->count;
		}
		if (row->stamp != stamp)
			row->total_ns += ns;
		row->stamp = stamp;
		at = scry_frames_get(&v->frames, at).parent;
	}
	return 0;
}

static int make_rows(struct stacks *v)
{
	for (size_t i = 0; i < v->count; i++) {
		const struct sample *s = &v->samples[i];
		uint64_t ns = weight_of(v, s);
		struct row *row;

		v->total_ns += ns;
		if (!ns)
			continue;
		if (!v->opts->stacks && s->stack) {
			if (add_to_places(v, (uint32_t)i + 1, s, ns))
				return -ENOMEM;
			continue;
		}
		row = row_at(v, v->opts->stacks ? s->stack : 0);
		if (!row)
			return -ENOMEM;
		row->self_ns += ns;
		row->total_ns += ns;
		row->samples += s->count;
		row->state_ns[s->state] += ns;
	}
	return 0;
}

static int by_time(const void *left, const void *right)
{
	const struct row *a = left, *b = right;

	if (a->self_ns != b->self_ns)
		return a->self_ns < b->self_ns ? 1 : -1;
	if (a->total_ns != b->total_ns)
		return a->total_ns < b->total_ns ? 1 : -1;
	return (a->id > b->id) - (a->id < b->id);
}

static struct scry_cell tenths(const struct stacks *v, uint64_t ns)
{
	return scry_cell_number(scry_share(ns, v->total_ns, 1000));
}

static struct place place_at(const struct stacks *v, const struct row *row)
{
	struct scry_frame frame;
	struct place place = {0};
	const char *bytes;

	if (v->opts->stacks) {
		frame = scry_frames_get(&v->frames, row->id);
		return (struct place){frame.file, frame.line, frame.method, frame.flags};
	}
	bytes = scry_intern_get(&v->places, row->id, NULL);
	if (bytes)
		memcpy(&place, bytes, sizeof(place));
	return place;
}

/* The whole stack; one without frames has a nameless one. */
static struct scry_cell frames_cell(struct stacks *v, uint32_t stack)
{
	const struct scry_frame leaf = scry_frames_get(&v->frames, stack);

	return scry_frames_cell(&v->frames, &v->names, &leaf, &v->scratch);
}

static void put_place(const struct stacks *v, const struct place *p, struct scry_buf *buf)
{
	struct scry_cell file = scry_name_text(&v->names, p->file),
			 method = scry_name_text(&v->names, p->method);

	if (p->flags & SCRY_STACK_NATIVE) {
		scry_buf_append(buf, file.bytes, file.bytes ? file.length : 0);
		if (p->method) {
			scry_buf_printf(buf, "  ");
			scry_demangle_put(method.bytes, method.length, buf);
		} else {
			scry_buf_printf(buf, "+0x%x", p->line);
		}
		scry_buf_printf(buf, " (native)");
		return;
	}
	if (!p->method) {
		scry_buf_printf(buf, "(no frame known)");
		return;
	}
	scry_buf_append(buf, file.bytes, file.bytes ? file.length : 0);
	if (p->line)
		scry_buf_printf(buf, ":%u", p->line);
	scry_buf_append(buf, "  ", file.bytes ? 2 : 0);
	scry_buf_append(buf, method.bytes, method.length);
	if (p->flags & SCRY_STACK_C)
		scry_buf_append(buf, " (C)", 4);
}

/* "Object#fib (/srv/app.rb:3)" */
static void put_subject(const struct stacks *v, const struct place *p, struct scry_buf *buf)
{
	struct scry_cell file = scry_name_text(&v->names, p->file),
			 method = scry_name_text(&v->names, p->method);
	const bool is_native = p->flags & SCRY_STACK_NATIVE, is_c = p->flags & SCRY_STACK_C;

	if (!p->method) {
		put_place(v, p, buf);
		return;
	}
	if (is_native)
		scry_demangle_put(method.bytes, method.length, buf);
	else
		scry_buf_append(buf, method.bytes, method.length);
	if (!file.bytes)
		return;
	scry_buf_printf(buf, is_c ? " (C, called at " : " (");
	scry_buf_append(buf, file.bytes, file.length);
	if (p->line && !is_native)
		scry_buf_printf(buf, ":%u", p->line);
	scry_buf_printf(buf, ")");
}

/* The first row that is shown: the largest share. NULL: none is. */
static const struct row *first_row(struct stacks *v, const struct scry_grep *grep)
{
	for (size_t i = 0; i < v->row_count; i++) {
		struct place place;

		if (!v->rows[i].total_ns)
			continue;
		place = place_at(v, &v->rows[i]);
		scry_buf_clear(&v->line);
		put_place(v, &place, &v->line);
		if (scry_grep_matches(grep, scry_buf_str(&v->line)))
			return &v->rows[i];
	}
	return NULL;
}

static void judge(struct stacks *v, const struct scry_grep *grep)
{
	const struct row *row = first_row(v, grep);
	const char *time = v->opts->times.cpu	? "the time on a processor"
			   : v->opts->times.gvl ? "the time that threads waited for the GVL"
						: "the time of all threads";
	struct scry_buf buf = {0};
	struct place place;

	if (!v->count) {
		scry_buf_printf(&buf, "nothing was seen: there are no samples");
	} else if (!v->total_ns) {
		scry_buf_printf(&buf, v->opts->times.gvl ? "no thread was seen waiting for the GVL"
							 : "no thread was seen running");
	} else if (!row) {
		scry_buf_printf(&buf,
				v->opts->grep ? "no row contains '%s'"
					      : "no frame of the samples is known",
				v->opts->grep);
	} else {
		place = place_at(v, row);
		scry_verdict_percent(&buf, row->self_ns, v->total_ns);
		if (!place.method && !(place.flags & SCRY_STACK_NATIVE)) {
			scry_buf_printf(&buf, " of %s has no known frame", time);
		} else {
			scry_buf_printf(&buf,
					v->opts->stacks ? " of %s is one stack, which ends in "
							: " of %s is in ",
					time);
			put_subject(v, &place, &buf);
		}
		if (row->samples) {
			scry_buf_printf(&buf, ", by ");
			scry_text_things(&buf, row->samples, "samples");
		}
	}
	scry_verdict(v->doc, &buf);
	scry_buf_done(&buf);
}

enum {
	C_SELF_PERCENT,
	C_SELF,
	C_TOTAL_PERCENT,
	C_TOTAL,
	C_SAMPLES,
	C_TEXT,
	C_STACK,
	C_FILE,
	C_LINE,
	C_METHOD,
	C_IS_C,
	C_IS_NATIVE,
	C_OFFSET,
	C_STATES,
	COLUMNS = C_STATES + SCRY_STATES
};

static void push_row(struct stacks *v, const struct row *row)
{
	struct place place = place_at(v, row);
	const bool is_native = place.flags & SCRY_STACK_NATIVE;
	struct scry_cell cells[COLUMNS] = {
		[C_SELF_PERCENT] = tenths(v, row->self_ns),
		[C_SELF] = scry_cell_number(row->self_ns),
		[C_TOTAL_PERCENT] = tenths(v, row->total_ns),
		[C_TOTAL] = scry_cell_number(row->total_ns),
		[C_SAMPLES] = scry_cell_number(row->samples),
		[C_TEXT] = scry_cell_text(scry_buf_str(&v->line), v->line.len),
		[C_FILE] = scry_name_text(&v->names, place.file),
		[C_LINE] = scry_cell_known(place.line, place.line && !is_native),
		[C_METHOD] = scry_name_text(&v->names, place.method),
		[C_IS_C] = scry_cell_number((place.flags & SCRY_STACK_C) != 0),
		[C_IS_NATIVE] = scry_cell_number(is_native),
		[C_OFFSET] = scry_cell_known(place.line, is_native),
	};

	cells[C_STACK] = v->opts->stacks ? frames_cell(v, row->id) : scry_cell_unknown();
	for (int i = 0; i < SCRY_STATES; i++)
		cells[C_STATES + i] = scry_cell_number(row->state_ns[i]);
	v->doc->ops->row(v->doc, cells);
}

static void push_rows(struct stacks *v, const struct scry_grep *grep)
{
	uint64_t top = scry_view_top(v->opts, v->doc), shown = 0;
	struct scry_left_out left_out = {0};

	for (size_t i = 0; i < v->row_count; i++) {
		const struct row *row = &v->rows[i];
		struct place place;

		if (!row->total_ns)
			continue;
		place = place_at(v, row);
		scry_buf_clear(&v->line);
		put_place(v, &place, &v->line);
		if (!scry_grep_matches(grep, scry_buf_str(&v->line))) {
			left_out.by_grep++;
		} else if (top && shown == top) {
			left_out.by_top++;
		} else {
			shown++;
			push_row(v, row);
		}
	}
	scry_left_out_push(&left_out, v->doc);
}

static int push(struct stacks *v)
{
	static const struct scry_column lines[COLUMNS] = {
		{"% own", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{"own s", "self_ns", SCRY_CELL_TIME, NULL, 0},
		{"% with callees", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{"s", "total_ns", SCRY_CELL_TIME, NULL, 0},
		{"samples", "samples", SCRY_CELL_COUNT, NULL, 0},
		{"file:line  method", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
		{NULL, NULL, SCRY_CELL_FRAMES, NULL, 0},
		{NULL, "file", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "line", SCRY_CELL_NUMBER, NULL, 0},
		{NULL, "method", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "is_c", SCRY_CELL_BOOL, NULL, 0},
		{NULL, "is_native", SCRY_CELL_BOOL, NULL, 0},
		{NULL, "offset", SCRY_CELL_NUMBER, NULL, 0},
	};
	static const struct scry_column stacks[COLUMNS] = {
		{"%", NULL, SCRY_CELL_TENTHS, NULL, 0},
		{"s", "self_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, NULL, SCRY_CELL_TENTHS, NULL, 0},
		{NULL, NULL, SCRY_CELL_TIME, NULL, 0},
		{"samples", "samples", SCRY_CELL_COUNT, NULL, 0},
		{"newest frame of the stack", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
		{NULL, "frames", SCRY_CELL_FRAMES, NULL, 0},
		{NULL, "file", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "line", SCRY_CELL_NUMBER, NULL, 0},
		{NULL, "method", SCRY_CELL_TEXT, NULL, 0},
		{NULL, "is_c", SCRY_CELL_BOOL, NULL, 0},
		{NULL, "is_native", SCRY_CELL_BOOL, NULL, 0},
		{NULL, "offset", SCRY_CELL_NUMBER, NULL, 0},
		{NULL, "unknown_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "cpu_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "runnable_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "gvl_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "blocked_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "sleeping_ns", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "gc_ns", SCRY_CELL_COUNT, NULL, 0},
	};
	struct scry_grep grep;
	int err = make_rows(v);

	if (err)
		return scry_fail(err, "no memory for the report");
	err = scry_grep_init(&grep, v->opts->grep);
	if (err)
		return err;
	if (v->row_count)
		qsort(v->rows, v->row_count, sizeof(*v->rows), by_time);
	scry_honesty_close(&v->honesty);
	v->honesty.noun = "samples";
	v->honesty.shown = v->sums.valid + v->sums.repaired + v->sums.rejected;
	v->honesty.unknown_cpu_ns = v->opts->times.cpu ? v->cpu_unknown_ns : 0;
	scry_honesty_push(&v->honesty, v->doc);
	judge(v, &grep);
	note_names(v);
	push_totals(v);
	v->doc->weight = "self_ns";
	scry_doc_table(v->doc, v->opts->stacks ? stacks : lines, COLUMNS);
	push_rows(v, &grep);
	tell_each(v);
	scry_grep_done(&grep);
	return 0;
}

int scry_view_stacks(struct scry_reader *reader, const struct scry_view_opts *opts,
		     struct scry_doc *doc)
{
	struct stacks v = {.reader = reader, .opts = opts, .doc = doc};
	int err;

	scry_honesty_init(&v.honesty, reader);
	scry_intern_init(&v.names, NAMES_MAX, NAMES_BYTES);
	scry_intern_init(&v.places, PLACES_MAX, PLACES_MAX * (sizeof(struct place) + 1ul));
	scry_frames_init(&v.frames);
	err = read_all(&v);
	if (!err)
		err = push(&v);
	scry_buf_done(&v.line);
	scry_frames_done(&v.frames);
	scry_intern_done(&v.places);
	scry_intern_done(&v.names);
	free(v.samples);
	free(v.rows);
	free(v.scratch.frames);
	return err;
}
