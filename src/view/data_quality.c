/*
 * The data quality of a recording. See data_quality.h.
 */
#include "view/data_quality.h"

#include "base/text.h"

#include <inttypes.h>
#include <string.h>

void scry_data_quality_init(struct scry_data_quality *h, const struct scry_reader *reader)
{
	*h = (struct scry_data_quality){.reader = reader};
}

static void on_session(struct scry_data_quality *h, const void *payload)
{
	const struct scry_ev_session *session = payload;

	const char *name = scry_reader_string(h->reader, session->instrument_str, NULL);

	h->instrument_str = session->instrument_str;
	h->has_one_totals = name && !strcmp(name, "syscalls");
}

static void on_process(struct scry_data_quality *h, const void *payload)
{
	const struct scry_ev_process *process = payload;
	uint32_t i;

	for (i = 0; i < h->seen_count; i++)
		if (h->seen[i].pid == process->pid &&
		    h->seen[i].start_ticks == process->start_ticks)
			break;
	h->exec_count += i < h->seen_count;
	if (i == h->seen_count && i < SCRY_DATA_QUALITY_SEEN)
		h->seen[h->seen_count++] = (struct scry_data_quality_seen){
			.pid = process->pid, .start_ticks = process->start_ticks};
	if (h->process_count < SCRY_DATA_QUALITY_PROCESSES)
		h->processes[h->process_count] = (struct scry_data_quality_process){
			.pid = process->pid,
			.exe_str = process->exe_str,
			.runtime_str = process->runtime_str,
			.start_ticks = process->start_ticks,
		};
	h->process_count++;
}

bool scry_data_quality_has_process(const struct scry_data_quality *h, uint32_t pid)
{
	for (uint32_t i = 0; i < h->seen_count; i++)
		if (h->seen[i].pid == pid)
			return true;
	return false;
}

/* Behind "process N: ", if it begins so. */
static const char *without_process(const char *text)
{
	unsigned int pid;
	int n = 0;

	return text && sscanf(text, "process %u: %n", &pid, &n) == 1 && n ? text + n : text;
}

/* Of many children the same is often to be said. */
static void on_note(struct scry_data_quality *h, const void *payload)
{
	const struct scry_ev_note *note = payload;
	const char *text = scry_reader_string(h->reader, note->text_str, NULL);
	const char *what = without_process(text);
	uint32_t i;

	for (i = 0; i < h->note_count && i < SCRY_DATA_QUALITY_NOTES; i++) {
		const char *other = scry_reader_string(h->reader, h->notes[i].text_str, NULL);

		if (h->notes[i].text_str == note->text_str)
			return;
		if (text && other && what != text && without_process(other) != other &&
		    !strcmp(what, without_process(other))) {
			h->notes[i].others++;
			return;
		}
	}
	if (i < SCRY_DATA_QUALITY_NOTES)
		h->notes[i] = (struct scry_data_quality_note){.text_str = note->text_str,
							      .is_cost = note->is_cost == 1};
	h->note_count++;
}

/* What a recording says may be anything: a sum that is too large stays the largest there is. */
static void add(uint64_t *to, uint64_t n)
{
	if (__builtin_add_overflow(*to, n, to))
		*to = UINT64_MAX;
}

static void on_lost(struct scry_data_quality *h, const void *payload)
{
	const struct scry_ev_lost *lost = payload;
	uint32_t i;

	if (lost->processes & SCRY_LOST_PERHAPS)
		h->perhaps += lost->processes & ~SCRY_LOST_PERHAPS;
	else
		h->missing += lost->processes;
	if (lost->processes) /* a note says why */
		return;
	add(&h->lost_events, lost->count);
	h->has_lost_more |= !lost->count;
	for (i = 0; i < h->cause_count; i++)
		if (h->causes[i].why_str == lost->why_str)
			break;
	if (i == SCRY_DATA_QUALITY_CAUSES)
		return;
	h->cause_count += i == h->cause_count;
	h->causes[i].why_str = lost->why_str;
	add(&h->causes[i].count, lost->count);
}

static void saw_pause(struct scry_data_quality *h, uint64_t ns)
{
	h->has_pause = true;
	if (ns > h->pause_max_ns)
		h->pause_max_ns = ns;
}

static void on_pause(struct scry_data_quality *h, const void *payload)
{
	const struct scry_ev_pause *pause = payload;

	if (pause->threads)
		saw_pause(h, pause->duration_ns);
	else if (pause->duration_ns > h->start_ns)
		h->start_ns = pause->duration_ns;
}

static void on_totals(struct scry_data_quality *h, const void *payload)
{
	const struct scry_ev_totals *totals = payload;

	h->has_totals = true;
	h->totals_count += totals->pid != 0;
	add(&h->events, totals->events);
	add(&h->lost, totals->lost);
	add(&h->errors, totals->errors);
	h->target_cpu_ns += totals->target_cpu_ns;
	h->overhead_cpu_ns += totals->overhead_cpu_ns;
	h->frees_older += totals->frees_older;
	h->gcs += totals->gcs;
	h->full_gcs += totals->full_gcs;
	if (totals->forced_gc_ns > h->forced_gc_ns)
		h->forced_gc_ns = totals->forced_gc_ns;
	add(&h->uncollected, totals->uncollected);
	h->compactions += totals->compactions;
	h->moved += totals->moved;
	if (totals->sample_every > h->sample_every)
		h->sample_every = totals->sample_every;
	if (totals->sample_bytes > h->sample_bytes)
		h->sample_bytes = totals->sample_bytes;
	if (totals->watched_ns > h->watched_ns)
		h->watched_ns = totals->watched_ns;
	saw_pause(h, totals->pause_max_ns);
}

static void on_slice(struct scry_data_quality *h, const void *payload)
{
	const struct scry_ev_slice *slice = payload;

	if (slice->slice > h->last_slice)
		h->last_slice = slice->slice;
	if (!h->first_slice_ns || slice->begin_ns < h->first_slice_ns)
		h->first_slice_ns = slice->begin_ns;
}

void scry_data_quality_event(struct scry_data_quality *h, const struct scry_event *event)
{
	static void (*const rows[])(struct scry_data_quality *, const void *) = {
		[SCRY_EVENT_SESSION] = on_session, [SCRY_EVENT_PROCESS] = on_process,
		[SCRY_EVENT_NOTE] = on_note,	   [SCRY_EVENT_LOST] = on_lost,
		[SCRY_EVENT_PAUSE] = on_pause,	   [SCRY_EVENT_TOTALS] = on_totals,
		[SCRY_EVENT_SLICE] = on_slice,
	};

	if (event->type == SCRY_EVENT_ATTACH && (!h->first_ns || event->time_ns < h->first_ns))
		h->first_ns = event->time_ns;
	if (event->type == SCRY_EVENT_DETACH && event->time_ns > h->last_ns)
		h->last_ns = event->time_ns;
	if (event->type < sizeof(rows) / sizeof(rows[0]) && rows[event->type])
		rows[event->type](h, event + 1);
}

void scry_data_quality_close(struct scry_data_quality *h)
{
	struct scry_reader_stats stats;

	scry_reader_stats(h->reader, &stats);
	if (h->process_count > 1 && h->last_ns > h->first_ns + h->watched_ns)
		h->watched_ns = h->last_ns - h->first_ns; /* one after the other */
	if (h->lost_events > h->lost)
		h->lost = h->lost_events;
	if (h->has_totals && !h->has_one_totals && h->totals_count < h->process_count) {
		h->unended = h->process_count - h->totals_count;
		h->watched_ns = 0;
		h->has_totals = false;
		h->has_lost_more = true;
	}
	h->read_errors = stats.errors;
	h->read_beyond = stats.beyond;
	h->errors += stats.errors;
	h->left_out = stats.left_out;
}

bool scry_data_quality_overhead(const struct scry_data_quality *h, double *ret_percent)
{
	if (!h->has_totals || !h->target_cpu_ns)
		return false;
	*ret_percent = 100.0 * (double)h->overhead_cpu_ns / (double)h->target_cpu_ns;
	return true;
}

/* "ruby 3.1.2p20 (2022-04-12 ...)" is shown as "ruby 3.1.2". */
static void put_runtime(const struct scry_data_quality *h, uint32_t id, struct scry_buf *buf)
{
	size_t len, word;
	const char *text = scry_reader_string(h->reader, id, &len);

	if (!text || !len)
		return;
	word = strcspn(text, " ");
	if (text[word] == ' ')
		word += 1 + strspn(text + word + 1, "0123456789.");
	scry_buf_append(buf, " ", 1);
	scry_text_escape(buf, text, word < len ? word : len);
}

static void put_processes(const struct scry_data_quality *h, struct scry_buf *buf)
{
	uint32_t listed = h->process_count < SCRY_DATA_QUALITY_PROCESSES
				  ? h->process_count
				  : SCRY_DATA_QUALITY_PROCESSES;
	uint32_t count = h->process_count - h->exec_count + h->nameless_count, i = 0, first;

	if (count == 1)
		scry_buf_printf(buf, " pid %u", h->processes[0].pid);
	else
		scry_buf_printf(buf, " %u processes", count);
	if (h->exec_count)
		scry_buf_printf(buf, " (%u program%s)", h->process_count,
				scry_text_s(h->process_count));
	while (i < listed && !h->processes[i].runtime_str)
		i++;
	if (i == listed)
		return;
	first = h->processes[i].runtime_str;
	put_runtime(h, first, buf);
	while (i < listed && (!h->processes[i].runtime_str || h->processes[i].runtime_str == first))
		i++;
	if (i < listed)
		scry_buf_printf(buf, " and others");
}

static void put_counted(struct scry_buf *buf, uint64_t count, const char *noun)
{
	scry_buf_append(buf, ", ", 2);
	scry_text_count(buf, count);
	scry_buf_printf(buf, " %s", noun);
}

static void put_lost(const struct scry_data_quality *h, struct scry_buf *buf)
{
	if (h->lost || (h->has_totals && !h->has_lost_more))
		put_counted(buf, h->lost, h->has_lost_more ? "lost at least" : "lost");
	else
		scry_buf_printf(buf, ", losses unknown");
}

static void put_processes_missing(const struct scry_data_quality *h, struct scry_buf *buf)
{
	if (h->missing)
		put_counted(buf, h->missing,
			    h->missing == 1 ? "process missing" : "processes missing");
	if (h->perhaps)
		put_counted(buf, h->perhaps,
			    h->missing	      ? "more perhaps"
			    : h->perhaps == 1 ? "process perhaps missing"
					      : "processes perhaps missing");
}

static void put_errors(const struct scry_data_quality *h, struct scry_buf *buf)
{
	if (!h->has_own_errors)
		put_counted(buf, h->errors, h->errors == 1 ? "error" : "errors");
	else if (h->errors)
		put_counted(buf, h->errors, h->errors == 1 ? "error of scry" : "errors of scry");
}

/* The command that shows a view, where that has another name. */
static const char *command_of(const char *view)
{
	static const char *const names[][2] = {
		{"calls-hist", "calls"},  {"calls-sums", "calls"}, {"calls-tree", "calls"},
		{"count", "patch count"}, {"time", "patch time"},  {"log", "patch log"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(view, names[i][0]))
			return names[i][1];
	return view;
}

/* What was watched, by what command, and how. */
static void put_watch(const struct scry_data_quality *h, const char *view, struct scry_buf *buf)
{
	scry_buf_printf(buf, "scry %s:", command_of(view));
	if (h->label) {
		scry_buf_append(buf, " ", 1);
		scry_text_escape(buf, h->label, strlen(h->label));
		scry_buf_append(buf, ":", 1);
	}
	put_processes(h, buf);
	if (h->watched_ns) {
		scry_buf_append(buf, ", ", 2);
		scry_text_duration(buf, h->watched_ns);
	}
	if (h->noun)
		scry_buf_append(buf, ", ", 2), scry_text_things(buf, h->shown, h->noun);
	if (h->sample_every > 1) {
		scry_buf_printf(buf, ", sampled 1 in ");
		scry_text_count(buf, h->sample_every);
	} else if (h->sample_bytes) {
		scry_buf_printf(buf, ", sampled 1 each ");
		scry_text_size(buf, h->sample_bytes);
	}
}

/* What watching it took; `is_whole`: also what is 0. */
static void put_cost(const struct scry_data_quality *h, bool is_whole, struct scry_buf *buf)
{
	double percent;

	if (h->unknown_cpu_ns) {
		scry_buf_append(buf, ", ", 2);
		scry_text_duration(buf, h->unknown_cpu_ns);
		scry_buf_printf(buf, " of processor time unknown");
	}
	if (h->gcs && !h->is_moment) {
		put_counted(buf, h->gcs, h->gcs == 1 ? "GC" : "GCs");
		scry_buf_append(buf, " (", 2);
		scry_text_count(buf, h->full_gcs);
		scry_buf_printf(buf, " full)");
	}
	if (h->has_pause && (h->pause_max_ns || is_whole)) {
		scry_buf_printf(buf, ", longest pause ");
		scry_text_duration(buf, h->pause_max_ns);
	}
	if (h->forced_gc_ns) {
		scry_buf_printf(buf, ", forced GC ");
		scry_text_duration(buf, h->forced_gc_ns);
	}
	if (h->start_ns) {
		scry_buf_printf(buf, ", held ");
		scry_text_duration(buf, h->start_ns);
		scry_buf_printf(buf, " before its first instruction");
	}
	if (scry_data_quality_overhead(h, &percent))
		scry_buf_printf(buf, ", overhead ~%.*f %%", percent < 9.95 ? 1 : 0, percent);
}

void scry_data_quality_line(const struct scry_data_quality *h, const char *view,
			    struct scry_buf *buf)
{
	put_watch(h, view, buf);
	put_lost(h, buf);
	put_processes_missing(h, buf);
	put_errors(h, buf);
	put_cost(h, true, buf);
}

void scry_data_quality_watched(const struct scry_data_quality *h, const char *view,
			       struct scry_buf *buf)
{
	put_watch(h, view, buf);
	put_cost(h, false, buf);
}

void scry_data_quality_losses(const struct scry_data_quality *h, struct scry_buf *buf)
{
	struct scry_buf found = {0};

	if (h->lost) {
		scry_buf_printf(&found, h->has_lost_more ? ", at least " : ", ");
		scry_text_things(&found, h->lost, "events");
		scry_buf_printf(&found, " lost");
	} else if (h->has_lost_more || !h->has_totals) {
		put_lost(h, &found);
	}
	put_processes_missing(h, &found);
	if (h->errors)
		put_errors(h, &found);
	if (found.len) {
		scry_buf_printf(buf, "incomplete: ");
		if (h->label) {
			scry_text_escape(buf, h->label, strlen(h->label));
			scry_buf_printf(buf, ": ");
		}
		scry_buf_append(buf, found.data + 2, found.len - 2);
	}
	scry_buf_done(&found);
}

/* Where two recordings are compared: of which one a note says it. */
static void say(const struct scry_data_quality *h, struct scry_doc *doc, const char *text,
		size_t len)
{
	struct scry_buf buf = {0};

	if (h->label) {
		scry_buf_printf(&buf, "%s: ", h->label);
		scry_buf_append(&buf, text, len);
	}
	doc->ops->note(doc, buf.len ? buf.data : text, buf.len ? buf.len : len);
	scry_buf_done(&buf);
}

static void note_printed(const struct scry_data_quality *h, struct scry_doc *doc,
			 struct scry_buf *buf)
{
	say(h, doc, scry_buf_str(buf), buf->len);
	scry_buf_clear(buf);
}

static void push_losses(const struct scry_data_quality *h, struct scry_doc *doc,
			struct scry_buf *buf)
{
	uint32_t i;

	for (i = 0; i < h->cause_count; i++) {
		const char *why = scry_reader_string(h->reader, h->causes[i].why_str, NULL);

		if (h->causes[i].count)
			scry_text_things(buf, h->causes[i].count, "events");
		else
			scry_buf_printf(buf, "an unknown number of events");
		scry_buf_printf(buf, " lost: %s", why ? why : "for an unknown reason");
		note_printed(h, doc, buf);
	}
}

static void push_ways(const struct scry_data_quality *h, struct scry_doc *doc, struct scry_buf *buf)
{
	if (h->sample_every > 1 || h->sample_bytes) {
		scry_buf_printf(buf, "counts and bytes are scaled up from samples; with 95 %% "
				     "confidence the true count lies within the +- that is shown");
		note_printed(h, doc, buf);
	}
	if (h->compactions) {
		scry_text_things(buf, h->compactions, "compactions");
		scry_buf_printf(buf, " of the heap: ");
		scry_text_things(buf, h->moved, "objects");
		scry_buf_printf(buf, " %s moved and followed to the new place%s",
				scry_text_were(h->moved), scry_text_s(h->moved));
		note_printed(h, doc, buf);
	}
}

void scry_data_quality_push(const struct scry_data_quality *h, struct scry_doc *doc)
{
	doc->ops->quality(doc, h);
	scry_data_quality_notes(h, doc);
}

void scry_data_quality_notes(const struct scry_data_quality *h, struct scry_doc *doc)
{
	struct scry_buf buf = {0};
	uint32_t i;

	for (i = 0; i < h->note_count && i < SCRY_DATA_QUALITY_NOTES; i++) {
		size_t len = 0;

		doc->is_cost = h->notes[i].is_cost;
		const char *text = scry_reader_string(h->reader, h->notes[i].text_str, &len);
		const char *what = without_process(text);

		if (text && h->notes[i].others) {
			scry_buf_printf(&buf, "%.*s and %u other%s: %s", (int)(what - text) - 2,
					text, h->notes[i].others, scry_text_s(h->notes[i].others),
					what);
			note_printed(h, doc, &buf);
			continue;
		}
		say(h, doc, text ? text : "(a note that cannot be read)", text ? len : 28);
	}
	doc->is_cost = false;
	if (h->note_count > SCRY_DATA_QUALITY_NOTES) {
		scry_buf_printf(&buf, "%u more notes are not shown; --view events shows them",
				h->note_count - SCRY_DATA_QUALITY_NOTES);
		note_printed(h, doc, &buf);
	}
	push_losses(h, doc, &buf);
	push_ways(h, doc, &buf);
	if (h->unsure) {
		scry_text_things(&buf, h->unsure, "calls");
		scry_buf_printf(&buf,
				" %s not shown: what --where compares was not recorded, or is of "
				"another type",
				scry_text_were(h->unsure));
		say(h, doc, scry_buf_str(&buf), buf.len);
		scry_buf_clear(&buf);
	}
	if (h->left_out) {
		scry_text_count(&buf, h->left_out);
		scry_buf_printf(&buf, " bytes at the end of the recording are torn and left out");
		note_printed(h, doc, &buf);
	}
	if (h->unended) {
		scry_buf_printf(&buf,
				"%u of %u programs have no totals: scry was ended before it could "
				"write them, so losses and cost are not known, and what these "
				"programs had counted may be missing",
				h->unended, h->process_count);
		note_printed(h, doc, &buf);
	} else if (!h->has_totals) {
		scry_buf_printf(&buf, "the recording has no totals: scry was ended before it could "
				      "write them, so losses and cost are not known");
		note_printed(h, doc, &buf);
	}
	if (h->read_beyond) {
		scry_text_count(&buf, h->read_beyond);
		scry_buf_printf(&buf,
				" calls of malloc were left out while this was read: more than "
				"4,096 processes lived at once, or their blocks need more "
				"than 8 GiB");
		note_printed(h, doc, &buf);
	}
	if (h->read_errors) {
		scry_text_count(&buf, h->read_errors);
		scry_buf_printf(&buf, " events of the recording are damaged and were mended or "
				      "left out");
		note_printed(h, doc, &buf);
	}
	scry_buf_done(&buf);
}
