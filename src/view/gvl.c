/*
 * The gvl view: how much of the time threads wanted the VM's lock, which thread held it meanwhile,
 * and each thread's share: held, waiting (wanted, and granted until it ran), without it.
 */
#include "view/gvl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "base/vector.h"
#include "view/functions.h"
#include "view/gem.h"

#define NAMES_BYTES_MAX (256u << 20)

static int grow(void **table, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 64;
	void *grown = *table;

	if (count < *room)
		return 0;
	if (count < SCRY_GVL_ROWS_MAX)
		grown = reallocarray(*table, more, size);
	if (count >= SCRY_GVL_ROWS_MAX || !grown)
		return scry_no_memory("%u threads or pairs", count);
	*table = grown;
	*room = more;
	return 0;
}

/* The earliest of all processes. */
static void add_crowded(struct scry_ev_gvl *s, const struct scry_ev_gvl *ev)
{
	if (ev->crowded && (!s->crowded || ev->crowded_after_ns < s->crowded_after_ns))
		s->crowded_after_ns = ev->crowded_after_ns;
	s->crowded += ev->crowded;
}

static uint64_t known_ns(const struct scry_ev_gvl *s)
{
	return s->watched_ns > s->unknown_ns ? s->watched_ns - s->unknown_ns : 0;
}

uint64_t scry_gvl_known_ns(const struct scry_gvl_view *g)
{
	return known_ns(&g->sum);
}

static uint64_t ractor_key(uint32_t pid, uint32_t ractor)
{
	return (uint64_t)ractor << 32 | pid;
}

static struct scry_gvl_lock_sum *lock_of(const struct scry_gvl_view *g, uint32_t pid,
					 uint32_t thread)
{
	uint64_t at;

	return scry_map_get(&g->by_ractor, ractor_key(pid, thread / SCRY_GVL_RACTOR + 1), &at)
		       ? &g->locks[at - 1]
		       : NULL;
}

static int add_lock(struct scry_gvl_view *g, const struct scry_ev_gvl *ev)
{
	const uint32_t ractor = ev->ractor ? (uint32_t)ev->ractor : 1;
	const uint64_t ns[SCRY_GVL_PLACES] = {ev->runnable0_ns, ev->runnable1_ns, ev->runnable2_ns,
					      ev->runnable3_ns, ev->runnable4_ns, ev->runnable5_ns,
					      ev->runnable6_ns, ev->runnable7_ns};
	uint64_t *at = scry_map_ref(&g->by_ractor, ractor_key(ev->pid, ractor));
	struct scry_gvl_lock_sum *lock;

	if (!at || scry_vector_reserve(&g->locks, g->lock_count, &g->lock_room))
		return scry_no_memory("%u locks", g->lock_count);
	if (!*at) {
		g->locks[g->lock_count++] =
			(struct scry_gvl_lock_sum){.pid = ev->pid, .ractor = ractor};
		g->process_count += ractor == 1;
		*at = g->lock_count;
	}
	lock = &g->locks[*at - 1];
	lock->contended_ns += ev->contended_ns;
	lock->known_ns += known_ns(ev);
	lock->unknown_ns += ev->unknown_ns;
	lock->is_over = ev->is_over != 0;
	for (uint32_t i = 0; i < SCRY_GVL_PLACES; i++)
		lock->runnable_ns[i] += ns[i];
	return 0;
}

uint64_t scry_gvl_longest_ns(const struct scry_gvl_view *g)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < g->lock_count; i++)
		if (g->locks[i].known_ns > longest)
			longest = g->locks[i].known_ns;
	return longest;
}

const struct scry_gvl_lock_sum *scry_gvl_worst_lock(const struct scry_gvl_view *g)
{
	const struct scry_gvl_lock_sum *worst = g->locks;

	for (uint32_t i = 1; i < g->lock_count; i++)
		if (g->locks[i].contended_ns > worst->contended_ns)
			worst = &g->locks[i];
	return worst;
}

static int on_lock(struct scry_gvl_view *g, const struct scry_ev_gvl *ev)
{
	struct scry_ev_gvl *s = &g->sum;

	g->events++;
	s->pid = ev->pid;
	s->can_take_back |= ev->can_take_back;
	s->watched_ns += ev->watched_ns;
	s->unknown_ns += ev->unknown_ns;
	s->boot_ns += ev->boot_ns;
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
	s->stacks |= ev->stacks;
	s->unstacked += ev->unstacked;
	s->unread += ev->unread;
	s->ractors += ev->ractors;
	add_crowded(s, ev);
	s->cpu_ns = ev->cpu_ns == SCRY_GVL_CPU_UNKNOWN || s->cpu_ns == SCRY_GVL_CPU_UNKNOWN
			    ? SCRY_GVL_CPU_UNKNOWN
			    : s->cpu_ns + ev->cpu_ns;
	return add_lock(g, ev);
}

static int on_thread(struct scry_gvl_view *g, const struct scry_ev_gvl_thread *ev)
{
	const uint64_t key = (uint64_t)ev->pid << 32 | ev->thread;
	struct scry_gvl_lock_sum *lock = lock_of(g, ev->pid, ev->thread);

	if (lock) {
		lock->threads += ev->threads > 1 ? ev->threads : 1;
		lock->held_ns += ev->held_ns;
		lock->waited_ns += scry_gvl_waited_ns(ev);
	}
	if (grow((void **)&g->threads, g->thread_count, &g->thread_room, sizeof(*g->threads)) < 0 ||
	    scry_map_put(&g->by_number, key, g->thread_count + 1) < 0)
		return -ENOMEM;
	g->threads[g->thread_count++] = *ev;
	return 0;
}

const struct scry_ev_gvl_thread *scry_gvl_thread_at(const struct scry_gvl_view *g, uint32_t pid,
						    uint32_t number)
{
	uint64_t at;

	return number && scry_map_get(&g->by_number, (uint64_t)pid << 32 | number, &at)
		       ? &g->threads[at - 1]
		       : NULL;
}

static int on_pair(struct scry_gvl_view *g, const struct scry_ev_gvl_pair *ev)
{
	if (grow((void **)&g->pairs, g->pair_count, &g->pair_room, sizeof(*g->pairs)) < 0)
		return -ENOMEM;
	g->pairs[g->pair_count++] = *ev;
	return 0;
}

/* ---- what made others wait ---- */

struct scry_frame scry_gvl_ruby_frame(const struct scry_gvl_view *g, uint32_t what,
				      uint32_t *ret_library)
{
	struct scry_frame frame = scry_frames_get(&g->frames, what);

	*ret_library = 0;
	if (!(frame.flags & SCRY_STACK_NATIVE))
		return frame;
	*ret_library = what;
	return scry_frames_get(&g->frames, frame.parent);
}

static bool is_rubys_own(const struct scry_gvl_view *g, const struct scry_frame *frame)
{
	const char *path = scry_intern_get(&g->names, frame->file, NULL);

	return path && !strncmp(path, "<internal:", 10);
}

/* A library's own gem, as it may be called from anywhere; else that of the line. */
static uint32_t gem_of(struct scry_gvl_view *g, const struct scry_frame *frame, uint32_t library)
{
	const uint32_t file = library ? scry_frames_get(&g->frames, library).file : frame->file;
	const char *path = scry_intern_get(&g->names, file, NULL);
	struct scry_frame row = {0};
	size_t length = 0;
	const char *gem = path ? scry_gem_name(path, &length) : NULL;

	if (!gem || scry_intern_put(&g->names, gem, length, &row.method) < 0)
		return 0;
	return scry_frames_put(&g->frames, &row);
}

/* From 3.3 on much of Ruby's own is written in Ruby. As a method in C it has its caller's line.
 * False: it has its own. */
static bool move_to_caller(const struct scry_gvl_view *g, struct scry_frame *frame)
{
	struct scry_frame own = *frame;

	while (own.parent && is_rubys_own(g, &own))
		own = scry_frames_get(&g->frames, own.parent);
	if (is_rubys_own(g, &own) || !is_rubys_own(g, frame))
		return false;
	frame->file = own.file;
	frame->line = own.line;
	return true;
}

/* What a stack counts for: for people its newest frames, whoever called them. */
static uint32_t row_of(struct scry_gvl_view *g, uint32_t stack)
{
	uint32_t library;
	struct scry_frame frame = scry_gvl_ruby_frame(g, stack, &library), above;
	bool is_moved = false;

	if (!stack)
		return 0;
	if (g->opts->by == SCRY_VIEW_BY_GEM || g->opts->by == SCRY_VIEW_BY_METHOD ||
	    !(g->doc->is_data || g->doc->is_folded))
		is_moved = move_to_caller(g, &frame);
	if (g->opts->by == SCRY_VIEW_BY_GEM)
		return gem_of(g, &frame, library);
	if (g->opts->by != SCRY_VIEW_BY_METHOD && (g->doc->is_data || g->doc->is_folded))
		return stack;
	frame.parent = 0;
	if (g->opts->by == SCRY_VIEW_BY_METHOD) {
		frame.line = 0;
		if (is_moved || frame.flags & SCRY_STACK_C) /* it has its caller's */
			frame.file = 0;
	}
	stack = scry_frames_put(&g->frames, &frame);
	if (!library)
		return stack;
	above = scry_frames_get(&g->frames, library);
	above.parent = stack;
	return scry_frames_put(&g->frames, &above);
}

/* `row`: a stack of the recording, and what counts for it. */
static int add_line(struct scry_gvl_view *g, struct scry_gvl_lines *l,
		    const struct scry_gvl_line *row)
{
	const uint32_t what = row_of(g, scry_frames_find(&g->frames, row->what));
	uint64_t *at = scry_map_ref(&l->by_what, what + 1ull);
	struct scry_gvl_line *sum;

	if (!at || (!*at && grow((void **)&l->rows, l->count, &l->room, sizeof(*l->rows)) < 0))
		return scry_no_memory("%u lines", l->count);
	if (!*at) {
		l->rows[l->count++] = (struct scry_gvl_line){.what = what};
		*at = l->count;
	}
	sum = &l->rows[*at - 1];
	sum->samples += row->samples;
	sum->lost_ns += row->lost_ns;
	sum->waits += row->waits;
	sum->max_ns = row->max_ns > sum->max_ns ? row->max_ns : sum->max_ns;
	l->lost_ns += row->lost_ns;
	return 0;
}

static int on_line(struct scry_gvl_view *g, const struct scry_ev_gvl_line *ev)
{
	const struct scry_gvl_line row = {
		.what = ev->stack, .samples = ev->samples, .lost_ns = ev->lost_ns};

	return add_line(g, &g->held, &row);
}

static int on_wait_line(struct scry_gvl_view *g, const struct scry_ev_gvl_wait_line *ev)
{
	const struct scry_gvl_line row = {.what = ev->stack,
					  .samples = ev->samples,
					  .lost_ns = ev->lost_ns,
					  .waits = ev->waits,
					  .max_ns = ev->max_ns};

	return add_line(g, &g->waited, &row);
}

static bool is_ours(const struct scry_gvl_view *g, const struct scry_event *event)
{
	const uint32_t *pid = (const void *)(event + 1); /* of each of these, the first */

	return ((event->type >= SCRY_EVENT_GVL && event->type <= SCRY_EVENT_GVL_LINE) ||
		event->type == SCRY_EVENT_GVL_WAIT_LINE) &&
	       (!g->opts->pid || g->opts->pid == *pid);
}

static int read_all(struct scry_gvl_view *g)
{
	const struct scry_event *event;
	int got, r = 0;

	scry_data_quality_init(&g->quality, g->reader);
	while ((got = scry_reader_next(g->reader, &event)) > 0 && r == 0) {
		scry_data_quality_event(&g->quality, event);
		if (event->type == SCRY_EVENT_STACK)
			scry_frames_event(&g->frames, &g->names, g->reader,
					  (const void *)(event + 1));
		if (!is_ours(g, event))
			continue;
		if (event->type == SCRY_EVENT_GVL)
			r = on_lock(g, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_GVL_THREAD)
			r = on_thread(g, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_GVL_PAIR)
			r = on_pair(g, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_GVL_LINE)
			r = on_line(g, (const void *)(event + 1));
		else
			r = on_wait_line(g, (const void *)(event + 1));
	}
	scry_data_quality_close(&g->quality);
	return r ? r : got;
}

uint64_t scry_gvl_waited_all_ns(const struct scry_gvl_view *g)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < g->thread_count; i++)
		all += scry_gvl_waited_ns(&g->threads[i]);
	return all;
}

/* ---- in order ---- */

static int by_lost(const void *left, const void *right)
{
	const struct scry_ev_gvl_thread *a = left, *b = right;
	int order = scry_functions_compare(b->lost_ns, a->lost_ns);

	order = order ? order : scry_functions_compare(b->held_ns, a->held_ns);
	order = order ? order
		      : scry_functions_compare(scry_gvl_waited_ns(b), scry_gvl_waited_ns(a));
	order = order ? order : scry_functions_compare(a->pid, b->pid);
	return order ? order : scry_functions_compare(a->thread, b->thread);
}

int scry_gvl_pair_compare(const void *left, const void *right)
{
	const struct scry_ev_gvl_pair *a = left, *b = right;

	return scry_functions_compare(b->lost_ns, a->lost_ns);
}

int scry_gvl_row_compare(const void *left, const void *right)
{
	const struct scry_gvl_line *a = left, *b = right;

	return scry_functions_compare(b->lost_ns, a->lost_ns);
}

/* Threads that kept others waiting come first. */
void scry_gvl_view_sort(struct scry_gvl_view *g)
{
	if (g->pair_count)
		qsort(g->pairs, g->pair_count, sizeof(*g->pairs), scry_gvl_pair_compare);
	if (g->held.count)
		qsort(g->held.rows, g->held.count, sizeof(*g->held.rows), scry_gvl_row_compare);
	if (g->waited.count)
		qsort(g->waited.rows, g->waited.count, sizeof(*g->waited.rows),
		      scry_gvl_row_compare);
	if (!g->thread_count)
		return;
	qsort(g->threads, g->thread_count, sizeof(*g->threads), by_lost);
	for (uint32_t i = 0; i < g->thread_count; i++)
		scry_map_put(&g->by_number,
			     (uint64_t)g->threads[i].pid << 32 | g->threads[i].thread, i + 1);
}

/* ---- in words ---- */

void scry_gvl_put_name(const struct scry_gvl_view *g, const struct scry_ev_gvl_thread *t,
		       struct scry_buf *b)
{
	size_t size = 0;
	const char *name = scry_reader_string(g->reader, t->name_str, &size);
	const uint32_t number = t->thread % SCRY_GVL_RACTOR;
	const bool is_sum = t->thread >= SCRY_GVL_SUMS_FROM,
		   is_group = is_sum || number >= SCRY_GVL_ENDED_FROM;

	if (size)
		scry_buf_printf(b, "%.*s", (int)size, name ? name : "");
	else if (is_group)
		scry_buf_printf(b, "[no name known]");
	else
		scry_buf_printf(b, "[thread %u]", number);
	if (is_group) {
		scry_buf_printf(b, " (");
		scry_text_things(b, t->threads > 1 ? t->threads : 1, "threads");
		scry_buf_printf(b, t->has_ended ? " that ended)" : " that came and went)");
	} else if (t->threads > 1) {
		scry_buf_printf(b, " and %u before it", t->threads - 1);
	}
}

void scry_gvl_put_thread(const struct scry_gvl_view *g, const struct scry_ev_gvl_thread *t,
			 struct scry_buf *b)
{
	if (!t) {
		scry_buf_printf(b, "[changing hands]");
		return;
	}
	scry_gvl_put_name(g, t, b);
	if (t->tid && (g->process_count < 2 || t->tid == t->pid))
		scry_buf_printf(b, " (%u)", t->tid);
	else if (t->tid)
		scry_buf_printf(b, " (%u of %u)", t->tid, t->pid);
	else if (g->process_count > 1)
		scry_buf_printf(b, " (of %u)", t->pid);
	if (scry_gvl_has_ractors(g) && scry_gvl_ractor_of(t) > 1)
		scry_buf_printf(b, " of ractor %u", scry_gvl_ractor_of(t));
}

uint32_t scry_gvl_ractor_of(const struct scry_ev_gvl_thread *t)
{
	return t->thread < SCRY_GVL_SUMS_FROM ? t->thread / SCRY_GVL_RACTOR + 1 : 0;
}

static const char *base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path ? path : "";
}

struct scry_frame scry_gvl_place_of(const struct scry_gvl_view *g, uint32_t what)
{
	uint32_t library;
	struct scry_frame frame = scry_gvl_ruby_frame(g, what, &library);

	move_to_caller(g, &frame); /* of data it is a whole stack */
	return frame;
}

void scry_gvl_put_row(const struct scry_gvl_view *g, const struct scry_gvl_line *row,
		      struct scry_buf *b)
{
	const uint32_t what = row->what;
	const struct scry_frame frame = scry_gvl_place_of(g, what);
	uint32_t library;
	struct scry_cell file, method;

	if (!what) {
		scry_buf_printf(b, "[unknown]");
		return;
	}
	scry_gvl_ruby_frame(g, what, &library);
	file = scry_name_text(&g->names, frame.file);
	method = scry_name_text(&g->names, frame.method);
	if (file.length && g->doc->is_data)
		scry_buf_append(b, file.bytes, file.length);
	else if (file.length)
		scry_gem_put_path(file.bytes, b);
	if (frame.line)
		scry_buf_printf(b, ":%u", frame.line);
	if (method.length)
		scry_buf_printf(b, "%s%.*s", file.length ? " " : "", (int)method.length,
				method.bytes);
	if (library)
		scry_buf_printf(b, " in %s",
				base_name(scry_intern_get(&g->names,
							  scry_frames_get(&g->frames, library).file,
							  NULL)));
	if (row->has_others)
		scry_buf_printf(b, " and others there");
}

/* ---- the view ---- */

int scry_gvl_view_read(struct scry_gvl_view *g, struct scry_reader *reader,
		       const struct scry_view_opts *opts, struct scry_doc *doc)
{
	g->reader = reader;
	g->opts = opts;
	g->doc = doc;
	scry_map_init(&g->by_number, SCRY_GVL_ROWS_MAX);
	scry_map_init(&g->by_ractor, SCRY_GVL_ROWS_MAX);
	scry_map_init(&g->held.by_what, SCRY_GVL_ROWS_MAX);
	scry_map_init(&g->waited.by_what, SCRY_GVL_ROWS_MAX);
	scry_frames_init(&g->frames);
	scry_frames_begin(&g->frames);
	scry_intern_init(&g->names, SCRY_GVL_ROWS_MAX, NAMES_BYTES_MAX);
	return read_all(g);
}

void scry_gvl_view_done(struct scry_gvl_view *g)
{
	scry_map_done(&g->by_number);
	scry_map_done(&g->by_ractor);
	free(g->locks);
	scry_map_done(&g->held.by_what);
	scry_map_done(&g->waited.by_what);
	scry_frames_done(&g->frames);
	scry_intern_done(&g->names);
	scry_buf_done(&g->buf);
	free(g->held.rows);
	free(g->waited.rows);
	free(g->threads);
	free(g->pairs);
}

/* The verdict is of what people see; data has each thread. */
static int push(struct scry_gvl_view *g)
{
	struct scry_gvl_each each = {0};
	int r;

	for (uint32_t i = 0; i < g->thread_count; i++)
		g->waiters += scry_gvl_waited_ns(&g->threads[i]) != 0;
	r = scry_gvl_view_sum(g, &each);
	if (r == 0 && g->doc->is_folded) {
		scry_gvl_push_stacks(g);
	} else if (r == 0) {
		g->quality.noun = "critical sections";
		g->quality.shown = g->sum.ends;
		g->doc->ops->quality(g->doc, &g->quality);
		scry_gvl_push_head(g);
		if (g->doc->is_data)
			scry_gvl_view_each_again(g, &each);
		scry_gvl_push_tables(g);
	}
	scry_gvl_each_free(&each);
	return r;
}

int scry_view_gvl(struct scry_reader *reader, const struct scry_view_opts *opts,
		  struct scry_doc *doc)
{
	struct scry_gvl_view g = {0};
	int r = scry_grep_init(&g.grep, opts->grep);

	if (r < 0)
		return r;
	r = scry_gvl_view_read(&g, reader, opts, doc);
	if (r == 0)
		r = push(&g);
	scry_grep_done(&g.grep);
	scry_gvl_view_done(&g);
	return r;
}
