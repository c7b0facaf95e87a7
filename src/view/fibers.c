/* See fibers.h. */
#include "view/fibers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/intern.h"
#include "base/map.h"
#include "base/text.h"
#include "view/native_frames.h"
#include "view/table.h"
#include "view/verdict.h"
#include "view/view.h"

#define PLACES_MAX (1u << 20)
#define PLACES_SHOWN 3u

static const char *const state_words[] = {
	[SCRY_VIEW_FIBER_SUSPENDED] = "suspended", [SCRY_VIEW_FIBER_NEW] = "new",
	[SCRY_VIEW_FIBER_RUNNING] = "running",	   [SCRY_VIEW_FIBER_CHANGED] = "running",
	[SCRY_VIEW_FIBER_ENDED] = "ended",	   [SCRY_VIEW_FIBER_UNKNOWN] = "unknown",
};

/* --- places ----------------------------------------------------------------------------------- */

/* Functions of the libraries that switch: a fiber that waits in them waits for its caller. */
static bool is_switch(const struct scry_doc_frame *f)
{
	static const char *const begins[] = {
		"scry_fiber_",
		"scry_preempt_",
		"pth_",
		"__pth_",
		"_ZN5boost7context",
		"_ZNO5boost7context",
		"_ZNK5boost7context",
		"_ZN5boost6fibers",
		"_ZNK5boost6fibers",
		"_ZN5boost10coroutines",  /* Boost.Coroutine */
		"_ZN5boost11coroutines2", /* Boost.Coroutine2 */
		"_ZN5boost4asio6detail",  /* Asio's coroutines by spawn */
		"zend_fiber_",		  /* PHP */
		"swapcontext",
		"coroutine_",
		"co_switch",
	};
	static const char *const objects[] = {"libboost_fiber.", "libboost_context.",
					      "libboost_coroutine.", "libpth.", "libscryfiber."};
	const char *file = f->file ? strrchr(f->file, '/') : NULL;

	for (size_t i = 0; file && i < sizeof(objects) / sizeof(objects[0]); i++)
		if (strncmp(file + 1, objects[i], strlen(objects[i])) == 0)
			return true;
	for (size_t i = 0; f->method && i < sizeof(begins) / sizeof(begins[0]); i++)
		if (strncmp(f->method, begins[i], strlen(begins[i])) == 0)
			return true;
	return false;
}

const struct scry_doc_frame *scry_fibers_place(const struct scry_fibers_group *g)
{
	for (size_t i = g->frame_count; i-- > 0;)
		if (!g->frames[i].is_native && !g->frames[i].is_c)
			return &g->frames[i];
	for (size_t i = g->frame_count; i-- > 0;)
		if (!is_switch(&g->frames[i]))
			return &g->frames[i];
	return g->frame_count ? &g->frames[g->frame_count - 1] : NULL;
}

static const char *file_name(const struct scry_doc_frame *f)
{
	const char *slash = f->file ? strrchr(f->file, '/') : NULL;

	return slash ? slash + 1 : f->file ? f->file : "";
}

/* "http_read", "Server#read server.rb:12", "libfoo.so+0x12" */
static void put_frame(const struct scry_doc_frame *f, struct scry_buf *buf)
{
	if (f->is_native) {
		scry_native_frame_name(f, buf);
		return;
	}
	scry_buf_printf(buf, "%s", f->method && f->method[0] ? f->method : "[unknown]");
	if (f->line && !f->is_c)
		scry_buf_printf(buf, " %s:%u", file_name(f), f->line);
}

static void put_place(const struct scry_fibers_group *g, struct scry_buf *buf)
{
	const struct scry_doc_frame *f = scry_fibers_place(g);

	if (f)
		put_frame(f, buf);
	else if (g->is_left_out)
		scry_buf_printf(buf, "[left out]");
	else
		scry_buf_printf(buf, strcmp(g->kind, "unknown") == 0 &&
						     g->state == SCRY_VIEW_FIBER_UNKNOWN
					     ? "[switch unknown]"
					     : "[not known]");
}

/* A recursion, whatever the places of its calls. */
static bool is_same(const struct scry_doc_frame *a, const struct scry_doc_frame *b)
{
	return a->method && b->method && a->is_native == b->is_native && a->line == b->line &&
	       strcmp(a->method, b->method) == 0;
}

static bool has_frame(const struct scry_fibers_group *g, bool is_native)
{
	for (size_t i = 0; i < g->frame_count; i++)
		if (g->frames[i].is_native == is_native)
			return true;
	return false;
}

/* Are there callers of the frames that are shown? A Ruby's may lack the native ones only: then it
 * has none, and where it has them they go on beyond the oldest of Ruby's. */
static bool lacks_callers(const struct scry_fibers_group *g)
{
	return g->is_cut && g->frame_count &&
	       (!has_frame(g, false) || (has_frame(g, true) && !g->frames[0].is_native));
}

/* "main > serve (3 times) > http_read", the outermost first. */
static void put_stack(const struct scry_fibers_group *g, struct scry_buf *buf)
{
	const bool is_ruby = has_frame(g, false);
	size_t shown = 0;

	if (lacks_callers(g))
		scry_buf_printf(buf, "... > ");

	for (size_t i = 0, next; i < g->frame_count; i = next) {
		for (next = i + 1; next < g->frame_count; next++)
			if (!is_same(&g->frames[i], &g->frames[next]))
				break;
		if (is_ruby && g->frames[i].is_native) /* the VM's own: JSON has them */
			continue;
		if (shown++)
			scry_buf_printf(buf, " > ");
		put_frame(&g->frames[i], buf);
		if (next - i > 1)
			scry_buf_printf(buf, " (%zu times)", next - i);
	}
}

/* --- the verdict ------------------------------------------------------------------------------ */

static void push_note(struct scry_doc *doc, struct scry_buf *buf)
{
	doc->ops->note(doc, scry_buf_str(buf), buf->len);
	scry_buf_clear(buf);
}

static void put_part(struct scry_buf *buf, uint64_t count, const char *what, const char **comma)
{
	if (!count)
		return;
	scry_buf_printf(buf, "%s", *comma);
	scry_text_count(buf, count);
	scry_buf_printf(buf, " %s", what);
	*comma = ", ";
}

static void push_verdict(struct scry_doc *doc, struct scry_buf *buf)
{
	scry_verdict_note(doc, buf);
	scry_buf_clear(buf);
}

/* A count of fibers is what people take from the first line. */
static void put_incomplete(const struct scry_fibers_report *r, struct scry_buf *buf)
{
	if (r->is_late)
		scry_buf_printf(buf, "; incomplete: --max-time was over");
	if (r->lost)
		scry_buf_printf(buf, "%s a table was full", r->is_late ? "," : "; incomplete:");
}

static void judge(const struct scry_fibers_report *r, struct scry_doc *doc, struct scry_buf *buf)
{
	const uint64_t *found = r->found;
	const char *comma = ": ";

	scry_buf_printf(buf, "%s %lld (%s): ", r->core ? "core of process" : "process",
			(long long)r->pid, r->comm);
	if (!r->total) {
		scry_buf_printf(buf, "no fibers; ");
		scry_text_things(buf, r->threads, "threads");
		put_incomplete(r, buf);
		push_verdict(doc, buf);
		return;
	}
	scry_text_things(buf, r->total, "fibers");
	put_part(buf, found[SCRY_VIEW_FIBER_SUSPENDED], "suspended", &comma);
	put_part(buf, found[SCRY_VIEW_FIBER_RUNNING], "running", &comma);
	put_part(buf, found[SCRY_VIEW_FIBER_CHANGED], "changed while read", &comma);
	put_part(buf, found[SCRY_VIEW_FIBER_NEW], "not begun", &comma);
	put_part(buf, found[SCRY_VIEW_FIBER_ENDED], "ended", &comma);
	put_part(buf, found[SCRY_VIEW_FIBER_UNKNOWN], "in an unknown state", &comma);
	if (r->mapped_bytes) {
		scry_buf_printf(buf, "; stacks: ");
		scry_text_size(buf, r->mapped_bytes);
		scry_buf_printf(buf, " mapped, ");
		scry_text_size(buf, r->there_bytes);
		scry_buf_printf(buf, r->core ? " in the core" : " in memory");
	}
	put_incomplete(r, buf);
	push_verdict(doc, buf);
}

struct place {
	uint64_t count;
	size_t group;
};

static int by_count(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	return a->group > b->group ? 1 : -1;
}

/* Suspended ones by the place alone, whoever has called it. Their count. */
static size_t gather_places(const struct scry_fibers_report *r, struct place *ret)
{
	struct scry_intern names;
	struct scry_buf buf = {0};
	size_t count = 0;

	scry_intern_init(&names, PLACES_MAX, 64u << 20);
	for (size_t i = 0; i < r->group_count; i++) {
		uint32_t id = 0;

		if (r->groups[i].state != SCRY_VIEW_FIBER_SUSPENDED || !r->groups[i].frame_count)
			continue;
		scry_buf_clear(&buf);
		put_place(&r->groups[i], &buf);
		if (scry_intern_put(&names, scry_buf_str(&buf), buf.len, &id))
			continue;
		if (id > count)
			ret[count++] = (struct place){0, i};
		ret[id - 1].count += r->groups[i].count;
	}
	scry_intern_done(&names);
	scry_buf_done(&buf);
	return count;
}

/* "12,000 of 12,010 wait in http_read, 10 in accept_one" */
static int push_places(const struct scry_fibers_report *r, struct scry_doc *doc,
		       struct scry_buf *buf)
{
	struct place *places = calloc(r->group_count + 1, sizeof(*places));
	size_t count;

	if (!places)
		return scry_no_memory("%zu groups of fibers", r->group_count);
	count = gather_places(r, places);
	if (count)
		qsort(places, count, sizeof(*places), by_count);
	for (size_t i = 0; i < count && i < PLACES_SHOWN; i++) {
		scry_buf_printf(buf, i ? ", " : "");
		scry_text_count(buf, places[i].count);
		if (!i) {
			scry_buf_printf(buf, " of ");
			scry_text_count(buf, r->total);
			scry_buf_printf(buf, places[i].count == 1 ? " waits" : " wait");
		}
		scry_buf_printf(buf, " in ");
		put_place(&r->groups[places[i].group], buf);
	}
	if (count > PLACES_SHOWN) {
		scry_buf_printf(buf, ", the others in ");
		scry_text_things(buf, count - PLACES_SHOWN, "more places");
	}
	if (count)
		push_note(doc, buf);
	free(places);
	return 0;
}

static void put_who(const struct scry_fibers_row *n, struct scry_buf *buf)
{
	if (n->name)
		scry_text_quote(buf, n->name, strlen(n->name));
	else
		scry_buf_printf(buf, "one at 0x%llx", (unsigned long long)n->low);
}

static void push_nearest_vm(const struct scry_fibers_report *r, struct scry_doc *doc,
			    struct scry_buf *buf)
{
	if (!r->vm_size_bytes)
		return;
	scry_buf_printf(buf, "nearest to a SystemStackError: ");
	put_who(&r->nearest_vm, buf);
	scry_buf_printf(buf, ", which has ");
	scry_text_size(buf, r->vm_left_bytes);
	scry_buf_printf(buf, " of the ");
	scry_text_size(buf, r->vm_size_bytes);
	scry_buf_printf(buf, " of its Ruby stack left, in ");
	put_place(&r->groups[r->nearest_vm.group], buf);
	push_note(doc, buf);
}

static bool is_ruby(const struct scry_fibers_report *r, const struct scry_fibers_row *n)
{
	return strcmp(r->groups[n->group].kind, "ruby") == 0;
}

static void push_nearest(const struct scry_fibers_report *r, struct scry_doc *doc,
			 struct scry_buf *buf)
{
	const struct scry_fibers_row *n = &r->nearest;

	if (!r->has_nearest)
		return;
	scry_buf_printf(buf, "nearest to the end of its %sstack: ", is_ruby(r, n) ? "native " : "");
	put_who(n, buf);
	scry_buf_printf(buf, ", which has used ");
	scry_text_size(buf, n->used_bytes);
	scry_buf_printf(buf, " and has ");
	scry_text_size(buf, n->left_bytes);
	scry_buf_printf(buf, " left, in ");
	put_place(&r->groups[n->group], buf);
	if (n->knows_guard && !n->has_guard)
		scry_buf_printf(buf, "; there is no guard below it");
	push_note(doc, buf);
}

/* --- what is missing, or not sure ------------------------------------------------------------- */

/* The verb that `rest` begins with, of one thing. */
static const char *verb_of_one(const char *rest, size_t *ret_length)
{
	static const char *const verbs[][2] = {
		{"have ", "has "}, {"were ", "was "}, {"are ", "is "}};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strncmp(rest, verbs[i][0], strlen(verbs[i][0])) == 0) {
			*ret_length = strlen(verbs[i][0]);
			return verbs[i][1];
		}
	*ret_length = 0;
	return "";
}

static void push_count(struct scry_doc *doc, struct scry_buf *buf, uint64_t count,
		       const char *things, const char *rest)
{
	size_t skip = 0;
	const char *verb = count == 1 ? verb_of_one(rest, &skip) : "";

	if (!count)
		return;
	scry_text_things(buf, count, things);
	scry_buf_printf(buf, " %s%s", verb, rest + skip);
	push_note(doc, buf);
}

static void push_bytes(struct scry_doc *doc, struct scry_buf *buf, uint64_t bytes, const char *rest)
{
	if (!bytes)
		return;
	scry_text_size(buf, bytes);
	scry_buf_printf(buf, " %s", rest);
	push_note(doc, buf);
}

static uint64_t unguarded(const struct scry_fibers_report *r)
{
	uint64_t count = 0;

	for (size_t i = 0; i < r->group_count; i++)
		count += r->groups[i].unguarded;
	return count;
}

/* Stacks whose ends are known, and of which a core lacks what would say how deep they were. */
static uint64_t use_unknown(const struct scry_fibers_report *r)
{
	uint64_t count = 0;

	for (size_t i = 0; i < r->group_count; i++)
		count += r->groups[i].sized - r->groups[i].used_count;
	return count;
}

static uint64_t left_out(const struct scry_fibers_report *r)
{
	uint64_t count = 0;

	for (size_t i = 0; i < r->group_count; i++)
		count += r->groups[i].is_left_out;
	return count;
}

/* Are there suspended ones of which no note is kept whether they run? */
static bool has_doubtful(const struct scry_fibers_report *r)
{
	for (size_t i = 0; i < r->group_count; i++)
		if (r->groups[i].state == SCRY_VIEW_FIBER_SUSPENDED && !r->groups[i].keeps_note)
			return true;
	return false;
}

static void push_doubts(const struct scry_fibers_report *r, struct scry_doc *doc,
			struct scry_buf *buf)
{
	push_count(doc, buf, r->unjudged, "finds",
		   "were not examined, as --max-time was over: fibers are missing; fix: a longer "
		   "--max-time");
	push_bytes(
		doc, buf, r->unsearched_bytes,
		"of its mappings were not searched, as half of --max-time was over: fibers may be "
		"missing; fix: a longer --max-time");
	push_count(doc, buf, left_out(r), "groups",
		   "are shown without their stacks: there was no room for so many frames");
	if (has_doubtful(r))
		push_count(doc, buf, r->threads_running, "threads",
			   "ran while scry read: it is not known where, so as many fibers of kind "
			   "ucontext and boost that are shown as suspended may be running");
	if (!r->core && r->found[SCRY_VIEW_FIBER_CHANGED]) {
		scry_text_things(buf, r->found[SCRY_VIEW_FIBER_CHANGED], "fibers");
		scry_buf_printf(buf,
				" ran while scry read; to see all of one moment, stop the process: "
				"kill -STOP %lld, and kill -CONT %lld afterwards",
				(long long)r->pid, (long long)r->pid);
		push_note(doc, buf);
	}
	push_count(doc, buf, unguarded(r), "fibers",
		   "have no guard below the stack: an overflow silently overwrites other memory");
	push_count(doc, buf, use_unknown(r), "stacks",
		   r->core ? "are missing from the core, or cut: how much of them was used is not "
			     "known"
			   : "could not be measured: how much of them was used is not known");
	push_count(doc, buf, r->several, "stacks",
		   "have several saved contexts that fit: which one is theirs is not known");
	push_count(doc, buf, r->unled, "stacks",
		   "have saved contexts to which no pointer leads, as stacks that were freed have; "
		   "not counted");
	push_count(
		doc, buf, r->unled_midway, "threads",
		"were stopped outside of system calls: as many of these stacks may be fibers that "
		"they have just left");
	push_count(doc, buf, r->freed, "stacks",
		   "with saved contexts were given back to malloc, and are not counted");
	push_count(
		doc, buf, r->unchecked, "fibers",
		"have stacks from malloc that may have been freed: a thread ran while scry read, "
		"or the heap could not be read");
	push_count(
		doc, buf, r->unmanned, "threads",
		"of its Ruby wait without a thread of the system's (M:N): their stacks, and fibers "
		"that they are in, are not listed");
	push_count(doc, buf, r->unreadable, "places",
		   r->core ? "for fibers of libscryfiber are not in the core: gdb's own cores end "
			     "at the first guard; fix: one of the kernel's"
			   : "for fibers of libscryfiber went away while they were read");
	push_count(doc, buf, r->bad, "entries",
		   "of a table of fibers made no sense, and were left out");
	push_count(doc, buf, r->lost, "finds", "were left out because there was no room");
	push_count(doc, buf, r->unlisted, "fibers", "are counted, but not listed one by one");
	push_bytes(doc, buf, r->swapped_bytes, "of memory that is swapped out was not searched");
	push_bytes(doc, buf, r->unread_bytes, "of memory went away while it was searched");
	for (size_t i = 0; i < r->note_count; i++)
		doc->ops->note(doc, r->notes[i], strlen(r->notes[i]));
}

/* --- tables ----------------------------------------------------------------------------------- */

/* People have the sentence, and these with -v only. */
static struct scry_cell data(uint64_t number)
{
	struct scry_cell cell = scry_cell_number(number);

	cell.is_blank = scry_log_level() <= 0;
	return cell;
}

/* The pool of a Ruby does not say which. */
static const char *spares_are(const struct scry_fibers_report *r)
{
	for (size_t i = 0; i < r->group_count; i++)
		if (strcmp(r->groups[i].kind, "ruby") == 0)
			return "stacks are kept for new fibers, or have fibers whose thread has "
			       "ended";
	return "stacks are kept for new fibers, or were left behind by a fork";
}

static void push_totals(const struct scry_fibers_report *r, struct scry_doc *doc)
{
	const uint64_t *found = r->found;
	struct scry_cell core = scry_cell_text(r->core, r->core ? strlen(r->core) : 0);
	struct scry_cell comm = scry_cell_text(r->comm, strlen(r->comm));

	struct scry_cell complete = scry_cell_number(!r->is_late && !r->lost);

	core.is_blank = comm.is_blank = complete.is_blank = true;
	const struct scry_pair pairs[] = {
		{"pid", "is the process", SCRY_CELL_NUMBER, 0, data((uint64_t)r->pid)},
		{"comm", NULL, SCRY_CELL_TEXT, 0, comm},
		{"core", NULL, SCRY_CELL_TEXT, 0, core},
		{"fibers", "fibers", SCRY_CELL_COUNT, 0, data(r->total)},
		{"suspended", "of them are suspended", SCRY_CELL_COUNT, 0,
		 data(found[SCRY_VIEW_FIBER_SUSPENDED])},
		{"running", "run", SCRY_CELL_COUNT, 0, data(found[SCRY_VIEW_FIBER_RUNNING])},
		{"changed", "changed while they were read", SCRY_CELL_COUNT, 0,
		 data(found[SCRY_VIEW_FIBER_CHANGED])},
		{"new", "are new", SCRY_CELL_COUNT, 0, data(found[SCRY_VIEW_FIBER_NEW])},
		{"ended", "have ended", SCRY_CELL_COUNT, 0, data(found[SCRY_VIEW_FIBER_ENDED])},
		{"unknown", "are in a state that is not known", SCRY_CELL_COUNT, 0,
		 data(found[SCRY_VIEW_FIBER_UNKNOWN])},
		{"mapped_bytes", "bytes of their stacks", SCRY_CELL_COUNT, 0,
		 data(r->mapped_bytes)},
		{"used_bytes", "bytes of these were ever used", SCRY_CELL_COUNT, 0,
		 data(r->used_bytes)},
		{"use_unknown", "stacks whose use is not known", SCRY_CELL_COUNT, 0,
		 data(use_unknown(r))},
		{"resident_bytes", "bytes of these are in memory", SCRY_CELL_COUNT, 0,
		 data(r->there_bytes)},
		{"unguarded", "have no guard below their stack", SCRY_CELL_COUNT, 0,
		 data(unguarded(r))},
		{"threads", "threads, whose own stacks are not listed", SCRY_CELL_COUNT, 0,
		 r->total ? scry_cell_number(r->threads) : data(r->threads)},
		{"threads_running", "threads ran when scry read them", SCRY_CELL_COUNT, 0,
		 data(r->threads_running)},
		{"threads_on_fibers", "threads that wait on a fiber's stack", SCRY_CELL_COUNT, 0,
		 scry_cell_number(r->on_fibers)},
		{"thread_stacks", "stacks are threads' own, or kept for threads", SCRY_CELL_COUNT,
		 0, data(r->thread_stacks)},
		{"spare_stacks", spares_are(r), SCRY_CELL_COUNT, 0,
		 scry_cell_number(r->spare_stacks)},
		{"spare_bytes", "bytes of memory in these", SCRY_CELL_COUNT, 0,
		 scry_cell_number(r->spare_bytes)},
		{"unmanned_threads", "threads of a Ruby wait without a native thread",
		 SCRY_CELL_COUNT, 0, data(r->unmanned)},
		{"stale_marks", "marks in memory belong to no suspended context", SCRY_CELL_COUNT,
		 0, data(r->stale)},
		{"ambiguous", "stacks fit several saved contexts", SCRY_CELL_COUNT, 0,
		 data(r->several)},
		{"unreferenced", "stacks are referenced from nowhere", SCRY_CELL_COUNT, 0,
		 data(r->unled)},
		{"freed", "stacks with contexts were given back to malloc", SCRY_CELL_COUNT, 0,
		 data(r->freed)},
		{"unchecked", "stacks of malloc may have been given back", SCRY_CELL_COUNT, 0,
		 data(r->unchecked)},
		{"senseless", "entries of a table of fibers make no sense", SCRY_CELL_COUNT, 0,
		 data(r->bad)},
		{"unreadable", "places of such a table could not be read", SCRY_CELL_COUNT, 0,
		 data(r->unreadable)},
		{"lost", "finds were left out for want of room", SCRY_CELL_COUNT, 0, data(r->lost)},
		{"unjudged", "finds were not judged within --max-time", SCRY_CELL_COUNT, 0,
		 data(r->unjudged)},
		{"unsearched_bytes", "bytes of mappings were not searched within --max-time",
		 SCRY_CELL_COUNT, 0, data(r->unsearched_bytes)},
		{"is_complete", NULL, SCRY_CELL_BOOL, 0, complete},
		{"stacks_left_out", "groups have no stack here for want of room", SCRY_CELL_COUNT,
		 0, data(left_out(r))},
		{"unlisted", "fibers are counted, but not listed", SCRY_CELL_COUNT, 0,
		 data(r->unlisted)},
		{"read_bytes", "bytes of memory were searched", SCRY_CELL_COUNT, 0,
		 data(r->read_bytes)},
		{"swapped_bytes", "bytes are swapped out, and were not searched", SCRY_CELL_COUNT,
		 0, data(r->swapped_bytes)},
		{"unread_bytes", "bytes went away while they were searched", SCRY_CELL_COUNT, 0,
		 data(r->unread_bytes)},
		{"took_ns", "s, all of it together", SCRY_CELL_TIME, 0, data(r->took_ns)},
	};

	doc->ops->totals(doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

static const char *state_of(const struct scry_fibers_group *g, struct scry_buf *buf)
{
	scry_buf_printf(buf, "%s",
			g->state == SCRY_VIEW_FIBER_CHANGED ? "changed while read"
							    : state_words[g->state]);
	if (g->word && strcmp(g->word, state_words[g->state]) != 0)
		scry_buf_printf(buf, ", %s", g->word);
	return scry_buf_str(buf);
}

static struct scry_cell kib(uint64_t bytes, bool is_known)
{
	return scry_cell_known((bytes + 1023) >> 10, is_known);
}

/* By a page or more: less than that is the colour of a stack's top. */
static bool do_differ(const struct scry_fibers_group *g)
{
	return g->sized && g->size_max - g->size_min >= 4096;
}

static struct scry_cell size_cell(const struct scry_fibers_group *g)
{
	struct scry_cell size = kib(g->size_max, g->sized != 0);

	if (do_differ(g))
		size.mark = '*';
	return size;
}

static struct scry_cell place_cell(const struct scry_fibers_group *g, struct scry_buf *buf)
{
	put_place(g, buf);
	return scry_cell_string(scry_buf_str(buf));
}

static bool is_somewhere(const struct scry_fibers_group *g)
{
	return g->frame_count || g->state != SCRY_VIEW_FIBER_RUNNING;
}

#define GROUP(member) SCRY_AT(struct scry_fibers_group, member)
#define GET_GROUP(name, ...) SCRY_GET(name, struct scry_fibers_group, void, __VA_ARGS__)

GET_GROUP(get_kind, scry_cell_string(row->kind))
GET_GROUP(get_state_shown, scry_cell_string(state_of(row, buf)))
GET_GROUP(get_state, scry_cell_string(state_words[row->state]))
GET_GROUP(get_word, scry_cell_string(row->word))
GET_GROUP(get_has_changed, scry_cell_number(row->state == SCRY_VIEW_FIBER_CHANGED))
GET_GROUP(get_size, size_cell(row))
GET_GROUP(get_size_min, scry_cell_known(row->size_min, row->sized != 0))
GET_GROUP(get_size_max, scry_cell_known(row->size_max, row->sized != 0))
GET_GROUP(get_used_kib, kib(row->used_max, row->used_count != 0))
GET_GROUP(get_used_max, scry_cell_known(row->used_max, row->used_count != 0))
GET_GROUP(get_used, scry_cell_known(row->used_sum, row->used_count != 0))
GET_GROUP(get_there_kib, kib(row->there_sum, row->sized != 0))
GET_GROUP(get_there, scry_cell_known(row->there_sum, row->sized != 0))
GET_GROUP(get_place, is_somewhere(row) ? place_cell(row, buf) : scry_cell_unknown())
GET_GROUP(get_stack,
	  (put_stack(row, buf), scry_cell_string(row->frame_count ? scry_buf_str(buf) : NULL)))
GET_GROUP(get_frames, (struct scry_cell){.is_unknown = !row->frame_count,
					 .frames = row->frames,
					 .number = row->frame_count})
GET_GROUP(get_is_cut, scry_cell_number(row->is_cut || row->is_left_out))

static const struct scry_column group_columns[] = {
	{"fibers", "count", SCRY_CELL_COUNT, GROUP(count)},
	{"kind", "kind", SCRY_CELL_TEXT, get_kind, 0},
	{"state", NULL, SCRY_CELL_TEXT, get_state_shown, 0},
	{NULL, "state", SCRY_CELL_TEXT, get_state, 0},
	{NULL, "word", SCRY_CELL_TEXT, get_word, 0},
	{NULL, "has_changed", SCRY_CELL_BOOL, get_has_changed, 0},
	{"stack KiB", NULL, SCRY_CELL_COUNT, get_size, 0},
	{NULL, "sized", SCRY_CELL_COUNT, GROUP(sized)},
	{NULL, "size_min_bytes", SCRY_CELL_COUNT, get_size_min, 0},
	{NULL, "size_max_bytes", SCRY_CELL_COUNT, get_size_max, 0},
	{"used at most", NULL, SCRY_CELL_COUNT, get_used_kib, 0},
	{NULL, "used_max_bytes", SCRY_CELL_COUNT, get_used_max, 0},
	{NULL, "used_bytes", SCRY_CELL_COUNT, get_used, 0},
	{"in memory", NULL, SCRY_CELL_COUNT, get_there_kib, 0},
	{NULL, "resident_bytes", SCRY_CELL_COUNT, get_there, 0},
	{NULL, "unguarded", SCRY_CELL_COUNT, GROUP(unguarded)},
	{NULL, "guard_unknown", SCRY_CELL_COUNT, GROUP(guard_unknown)},
	{"in", "place", SCRY_CELL_TEXT, get_place, SCRY_COLUMN_CUT_AT_END},
	{"stack", NULL, SCRY_CELL_TEXT, get_stack, SCRY_COLUMN_ELASTIC},
	{NULL, "frames", SCRY_CELL_FRAMES, get_frames, 0},
	{NULL, "is_cut", SCRY_CELL_BOOL, get_is_cut, 0},
};

static int compare_groups(const void *left, const void *right)
{
	const struct scry_fibers_group *a = *(const struct scry_fibers_group *const *)left,
				       *b = *(const struct scry_fibers_group *const *)right;

	if (a->count != b->count)
		return a->count < b->count ? 1 : -1;
	return (a->used_max < b->used_max) - (a->used_max > b->used_max);
}

static int push_groups(const struct scry_fibers_report *r, struct scry_doc *doc)
{
	const struct scry_view_opts opts = {.top = r->top};
	const uint64_t top = scry_view_top(&opts, doc);
	const struct scry_fibers_group **groups = calloc(r->group_count + 1, sizeof(*groups));
	bool differ = false;

	if (!groups)
		return scry_no_memory("%zu groups of fibers", r->group_count);
	for (size_t i = 0; i < r->group_count; i++)
		groups[i] = &r->groups[i];
	qsort(groups, r->group_count, sizeof(*groups), compare_groups);
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(group_columns),
					     SCRY_ROW_POINTERS(groups, r->group_count),
					     .order = compare_groups, .top = top, .noun = "groups"},
			doc);
	for (size_t i = 0; i < r->group_count && !(top && i == top); i++)
		differ |= do_differ(groups[i]);
	if (differ)
		scry_doc_remark(doc, "* the largest; they differ in size");
	free(groups);
	return 0;
}

#define ROW(member) SCRY_AT(struct scry_fibers_row, member)
#define GET_ROW(name, ...) \
	SCRY_GET(name, struct scry_fibers_row, const struct scry_fibers_report, __VA_ARGS__)

GET_ROW(get_low, scry_cell_known(row->low, row->low != 0))
GET_ROW(get_row_kind, scry_cell_string(view->groups[row->group].kind))
GET_ROW(get_row_state, scry_cell_string(state_words[view->groups[row->group].state]))
GET_ROW(get_row_word, scry_cell_string(view->groups[row->group].word))
GET_ROW(get_name, scry_cell_string(row->name))
GET_ROW(get_tid, scry_cell_known((uint64_t)row->tid, row->tid != 0))
GET_ROW(get_row_size, kib(row->top - row->low, row->low != 0))
GET_ROW(get_row_used_kib, kib(row->used_bytes, row->has_used))
GET_ROW(get_left_kib, kib(row->left_bytes, row->has_used))
GET_ROW(get_row_used, scry_cell_known(row->used_bytes, row->has_used))
GET_ROW(get_left, scry_cell_known(row->left_bytes, row->has_used))
GET_ROW(get_row_there, scry_cell_known(row->there_bytes, row->low != 0))
GET_ROW(get_guard_kib, kib(row->guard_bytes, row->knows_guard))
GET_ROW(get_guard, scry_cell_known(row->guard_bytes, row->knows_guard))
GET_ROW(get_row_place, place_cell(&view->groups[row->group], buf))

static const struct scry_column row_columns[] = {
	{"stack at", "low", SCRY_CELL_HEX, get_low, 0},
	{NULL, "top", SCRY_CELL_HEX, ROW(top)},
	{"kind", "kind", SCRY_CELL_TEXT, get_row_kind, 0},
	{"state", "state", SCRY_CELL_TEXT, get_row_state, 0},
	{NULL, "word", SCRY_CELL_TEXT, get_row_word, 0},
	{"name", "name", SCRY_CELL_TEXT, get_name, SCRY_COLUMN_CUT_AT_END},
	{"thread", "tid", SCRY_CELL_NUMBER, get_tid, 0},
	{"KiB", NULL, SCRY_CELL_COUNT, get_row_size, 0},
	{"used", NULL, SCRY_CELL_COUNT, get_row_used_kib, 0},
	{"left", NULL, SCRY_CELL_COUNT, get_left_kib, 0},
	{NULL, "used_bytes", SCRY_CELL_COUNT, get_row_used, 0},
	{NULL, "left_bytes", SCRY_CELL_COUNT, get_left, 0},
	{NULL, "resident_bytes", SCRY_CELL_COUNT, get_row_there, 0},
	{"guard", NULL, SCRY_CELL_COUNT, get_guard_kib, 0},
	{NULL, "guard_bytes", SCRY_CELL_COUNT, get_guard, 0},
	{"in", "place", SCRY_CELL_TEXT, get_row_place, SCRY_COLUMN_CUT_AT_END},
};

/* There may be a million: each is made when its turn comes. */
static void push_each(const struct scry_fibers_report *r, struct scry_doc *doc)
{
	const struct scry_table table = {SCRY_COLUMNS(row_columns), .view = (void *)r};

	scry_doc_table(doc, table.columns, table.column_count);
	for (size_t i = 0; i < r->count; i++) {
		const struct scry_fibers_row row = r->row(r->arg, i);

		scry_table_push_row(&table, &row, doc);
	}
}

static void push_bookkeeping(const struct scry_fibers_report *r, struct scry_doc *doc)
{
	struct scry_buf buf = {0};

	scry_text_size(&buf, r->read_bytes);
	scry_buf_printf(&buf, " of memory searched in ");
	scry_text_duration(&buf, r->took_ns);
	scry_buf_printf(&buf, r->core ? "" : ", no thread was stopped");
	scry_doc_remark(doc, "%s", scry_buf_str(&buf));
	scry_buf_done(&buf);
}

int scry_fibers_push(const struct scry_fibers_report *r, struct scry_doc *doc)
{
	struct scry_buf buf = {0};
	int err;

	judge(r, doc, &buf);
	if (r->lack)
		doc->ops->note(doc, r->lack, strlen(r->lack));
	err = push_places(r, doc, &buf);
	push_nearest(r, doc, &buf);
	push_nearest_vm(r, doc, &buf);
	push_doubts(r, doc, &buf);
	scry_buf_done(&buf);
	if (err)
		return err;
	push_totals(r, doc);
	if (r->group_count || doc->is_data)
		err = push_groups(r, doc);
	if (!err && r->is_all && (r->count || doc->is_data)) {
		doc->section = "fibers";
		doc->title = "each of them";
		push_each(r, doc);
	}
	if (!err)
		push_bookkeeping(r, doc);
	return err;
}
