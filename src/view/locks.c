/*
 * The locks view: for which mutexes threads waited, where, how long; below it the same of condition
 * variables, where waiting is mostly what is wanted. A row is a lock and a stack that waited for
 * it. What waited still when the watch ended counts with the time until then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "base/vector.h"
#include "view/functions.h"
#include "view/table.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/native_frames.h"
#include "view/verdict.h"

#define ROWS_MAX (1u << 20)

struct lock {
	struct scry_ev_lock ev;
	uint64_t threads; /* that waited for it */
	uint64_t waits, total_ns, open, open_max_ns;
	uint64_t owned_ns; /* of total_ns: one thread had it, the one that had it most: */
	uint32_t owner;
};

struct row { /* of a lock, at a place */
	uint32_t lock, stack;
	uint32_t function_str;
	uint64_t waits, total_ns, max_ns, timed_out, failed, left, open;
};

struct locks {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_data_quality quality;
	struct scry_grep grep;
	struct scry_native_frames frames;
	struct lock *locks;
	struct row *rows;
	uint32_t lock_count, lock_room, row_count, row_room;
	struct scry_map by_number; /* pid << 32 | lock -> place + 1 */
	struct scry_map by_place;  /* lock << 32 | stack, then of its function -> row + 1 */
	struct scry_map waiters;   /* lock << 32 | tid */
	struct scry_doc_frame shown[SCRY_NATIVE_DEPTH];
	struct scry_map owners; /* the same -> ns for which others waited for it */
	struct scry_buf buf;
};

static int no_memory(const struct locks *l)
{
	return scry_no_memory("%u locks at %u places", l->lock_count, l->row_count);
}

static int on_lock(struct locks *l, const struct scry_ev_lock *ev)
{
	const uint64_t key = (uint64_t)ev->pid << 32 | ev->lock;

	if (l->lock_count == ROWS_MAX ||
	    scry_vector_reserve(&l->locks, l->lock_count, &l->lock_room) ||
	    scry_map_put(&l->by_number, key, l->lock_count + 1) < 0)
		return no_memory(l);
	l->locks[l->lock_count++] = (struct lock){.ev = *ev};
	return 0;
}

static struct row *row_of(struct locks *l, uint32_t lock, const struct scry_ev_wait *ev)
{
	/* a stack is called from one function, but an unknown one from several */
	const uint32_t place = ev->stack ? ev->stack : UINT32_MAX - (ev->function_str & 0xffff);
	uint64_t *at = scry_map_ref(&l->by_place, (uint64_t)lock << 32 | place);

	if (!at || (!*at && (l->row_count == ROWS_MAX ||
			     scry_vector_reserve(&l->rows, l->row_count, &l->row_room)))) {
		no_memory(l);
		return NULL;
	}
	if (!*at) {
		l->rows[l->row_count++] = (struct row){
			.lock = lock, .stack = ev->stack, .function_str = ev->function_str};
		*at = l->row_count;
	}
	return &l->rows[*at - 1];
}

static void on_thread(struct locks *l, uint32_t lock, uint32_t tid, const struct scry_ev_wait *ev)
{
	uint64_t *seen = scry_map_ref(&l->waiters, (uint64_t)lock << 32 | tid);
	uint64_t *owned =
		ev->owner ? scry_map_ref(&l->owners, (uint64_t)lock << 32 | ev->owner) : NULL;
	struct lock *k = &l->locks[lock];

	if (seen && !*seen) {
		*seen = 1;
		k->threads++;
	}
	if (!owned)
		return;
	*owned += ev->duration_ns;
	if (*owned > k->owned_ns || !k->owner) {
		k->owned_ns = *owned;
		k->owner = ev->owner;
	}
}

static int on_wait(struct locks *l, const struct scry_event *event)
{
	const struct scry_ev_wait *ev = (const void *)(event + 1);
	uint64_t lock;
	struct lock *k;
	struct row *row;

	if ((l->opts->pid && l->opts->pid != ev->pid) ||
	    !scry_map_get(&l->by_number, (uint64_t)ev->pid << 32 | ev->lock, &lock))
		return 0;
	k = &l->locks[--lock];
	row = row_of(l, (uint32_t)lock, ev);
	if (!row)
		return -ENOMEM;
	on_thread(l, (uint32_t)lock, event->tid, ev);
	row->waits++;
	row->total_ns += ev->duration_ns;
	row->max_ns = ev->duration_ns > row->max_ns ? ev->duration_ns : row->max_ns;
	row->timed_out += ev->how == SCRY_WAIT_TIMED_OUT;
	row->failed += ev->how == SCRY_WAIT_FAILED;
	row->left += ev->how == SCRY_WAIT_LEFT;
	k->waits++;
	k->total_ns += ev->duration_ns;
	if (ev->how != SCRY_WAIT_OPEN)
		return 0;
	row->open++;
	k->open++;
	k->open_max_ns = ev->duration_ns > k->open_max_ns ? ev->duration_ns : k->open_max_ns;
	return 0;
}

static int by_total(const void *left, const void *right)
{
	const struct row *a = left, *b = right;
	int order = scry_functions_compare(b->total_ns, a->total_ns);

	return order ? order : scry_functions_compare(b->waits, a->waits);
}

/* "queue_lock", "queue_lock+0x10", "libfoo.so+0x4010", or its address. */
static void put_lock(const struct locks *l, const struct lock *k, struct scry_buf *buf)
{
	struct scry_doc_frame at = {.offset = k->ev.offset};

	at.file = scry_reader_string(l->reader, k->ev.module_str, &at.file_length);
	at.method = scry_reader_string(l->reader, k->ev.symbol_str, &at.method_length);
	if (!at.file) {
		scry_buf_printf(buf, "0x%llx", (unsigned long long)k->ev.address);
		return;
	}
	scry_native_frame_name(&at, buf);
	if (at.method && k->ev.offset)
		scry_buf_printf(buf, "+%#llx", (unsigned long long)k->ev.offset);
}

/* "work+0x12 < main+0x40", the innermost first. */
static void put_place(const struct locks *l, uint32_t stack, uint32_t most, struct scry_buf *buf)
{
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH];
	uint32_t count = scry_native_frames_all(&l->frames, l->reader, stack, frames);

	for (uint32_t i = 0; i < count && i < most; i++) {
		const struct scry_doc_frame *f = &frames[count - 1 - i];

		if (i)
			scry_buf_printf(buf, " < ");
		scry_native_frame_name(f, buf);
		if (f->method && f->offset)
			scry_buf_printf(buf, "+%#llx", (unsigned long long)f->offset);
	}
	if (!count)
		scry_buf_printf(buf, "[unknown]");
}

struct sums {
	uint64_t waits, total_ns, open;
	const struct lock *worst; /* for which most time was waited */
};

static struct sums sum(const struct locks *l, bool conditions)
{
	struct sums s = {0};

	for (uint32_t i = 0; i < l->lock_count; i++) {
		const struct lock *k = &l->locks[i];

		if (k->ev.is_condition != conditions || !k->waits)
			continue;
		s.waits += k->waits;
		s.total_ns += k->total_ns;
		s.open += k->open;
		if (!s.worst || k->total_ns > s.worst->total_ns)
			s.worst = k;
	}
	return s;
}

/* Where its waits took most time: rows are sorted. */
static const struct row *worst_place(const struct locks *l, const struct lock *k)
{
	for (uint32_t i = 0; i < l->row_count; i++)
		if (&l->locks[l->rows[i].lock] == k)
			return &l->rows[i];
	return NULL;
}

static void put_owner(const struct lock *k, struct scry_buf *b)
{
	if (!k->owner)
		return;
	scry_buf_printf(b, ", %llu %% of it begun while thread %u had it",
			(unsigned long long)scry_share(k->owned_ns, k->total_ns, 100), k->owner);
}

/* Less than a hundredth of one thread's time: nothing is to be won. */
static bool is_little(const struct locks *l, const struct sums *mutexes)
{
	return mutexes->total_ns < l->quality.watched_ns / 100;
}

static void put_within(const struct locks *l, uint64_t ns, struct scry_buf *b)
{
	scry_text_duration(b, ns);
	if (!l->quality.watched_ns)
		return;
	scry_buf_printf(b, " together within ");
	scry_text_duration(b, l->quality.watched_ns);
}

/* The sentence that a person can act on. */
static void judge(struct locks *l, const struct sums *mutexes)
{
	const struct lock *k = mutexes->worst;
	const struct row *at = k ? worst_place(l, k) : NULL;
	struct scry_buf *b = &l->buf;

	scry_buf_clear(b);
	if (!l->quality.has_totals) /* it ends before the watch did */
		scry_buf_printf(b, "as far as the recording goes: ");
	if (!at) {
		scry_buf_printf(b, "no thread began to wait for a mutex that another one had");
	} else if (is_little(l, mutexes)) {
		scry_buf_printf(b, "threads hardly waited for mutexes: ");
		put_within(l, mutexes->total_ns, b);
		scry_buf_printf(b, ", most of it for ");
		put_lock(l, k, b);
	} else {
		scry_text_things(b, k->threads, "threads");
		scry_buf_printf(b, " waited ");
		put_within(l, k->total_ns, b);
		scry_buf_printf(b, " for the mutex ");
		put_lock(l, k, b);
		scry_buf_printf(
			b, " (%llu %% of all waiting for mutexes), mostly in ",
			(unsigned long long)scry_share(k->total_ns, mutexes->total_ns, 100));
		put_place(l, at->stack, 1, b);
		put_owner(k, b);
		if (k->open_max_ns > k->total_ns / 2)
			scry_buf_printf(b,
					"; most of that is not over: a deadlock, or a thread that "
					"holds it for long; fix: gdb -batch -ex 'thread apply all "
					"bt' -p %u",
					k->ev.pid);
		else
			scry_buf_printf(b,
					"; fix: hold it for less time, or not in so many threads");
	}
	scry_verdict_note(l->doc, b);
}

/* A deadlock looks so, and so does a watch that ended too early. */
static void note_open(struct locks *l, const struct sums *mutexes)
{
	const struct lock *worst = NULL;

	for (uint32_t i = 0; i < l->lock_count; i++)
		if (l->locks[i].open && !l->locks[i].ev.is_condition &&
		    (!worst || l->locks[i].open_max_ns > worst->open_max_ns))
			worst = &l->locks[i];
	if (!worst)
		return;
	scry_buf_clear(&l->buf);
	scry_text_things(&l->buf, mutexes->open, "threads");
	scry_buf_printf(&l->buf, " waited still for a mutex when the watch ended, longest for ");
	put_lock(l, worst, &l->buf);
	scry_buf_printf(&l->buf, ": ");
	scry_text_duration(&l->buf, worst->open_max_ns);
	l->doc->ops->note(l->doc, l->buf.data, l->buf.len);
}

static void push_totals(const struct locks *l, const struct sums *mutexes,
			const struct sums *conditions)
{
	const char *word = !mutexes->waits ? "quiet" : is_little(l, mutexes) ? "little" : "waits";
	struct scry_cell verdict = scry_cell_text(word, strlen(word));

	verdict.is_blank = true; /* people have the sentence */
	const struct scry_pair pairs[] = {
		{"verdict", NULL, SCRY_CELL_TEXT, 0, verdict},
		{"mutex_waits", "waits for a mutex that another thread had", SCRY_CELL_COUNT, 0,
		 scry_cell_number(mutexes->waits)},
		{"mutex_wait_ns", "s, all of them together", SCRY_CELL_TIME, 0,
		 scry_cell_number(mutexes->total_ns)},
		{"mutex_open", "of them not over when the watch ended", SCRY_CELL_COUNT, 0,
		 scry_cell_number(mutexes->open)},
		{"condition_waits", "waits for a condition", SCRY_CELL_COUNT, 0,
		 scry_cell_number(conditions->waits)},
		{"condition_wait_ns", "s, all of them together", SCRY_CELL_TIME, 0,
		 scry_cell_number(conditions->total_ns)},
		{"condition_open", "of them not over when the watch ended", SCRY_CELL_COUNT, 0,
		 scry_cell_number(conditions->open)},
	};

	l->doc->ops->totals(l->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

#define NUMBER(member) SCRY_AT(struct row, member)
#define GET(name, ...) SCRY_GET(name, struct row, struct locks, __VA_ARGS__)

static const struct lock *lock_of(const struct locks *l, const struct row *row)
{
	return &l->locks[row->lock];
}

static struct scry_cell of_ended(const struct row *row, uint64_t sum)
{
	const uint64_t ended = row->waits - row->left;

	return scry_cell_known(ended ? sum / ended : 0, ended != 0);
}

static struct scry_cell frames_cell(struct locks *l, const struct row *row)
{
	const uint32_t count = scry_native_frames_all(&l->frames, l->reader, row->stack, l->shown);

	return (struct scry_cell){.is_unknown = !count, .frames = l->shown, .number = count};
}

GET(get_pid, scry_cell_number(lock_of(view, row)->ev.pid))
GET(get_mean, of_ended(row, row->total_ns))
GET(get_max, scry_cell_known(row->max_ns, row->waits != row->left))
GET(get_kind, scry_functions_string(view->reader, lock_of(view, row)->ev.kind_str))
GET(get_lock, (put_lock(view, lock_of(view, row), buf), scry_cell_buf(buf)))
GET(get_address, scry_cell_number(lock_of(view, row)->ev.address))
GET(get_module, scry_functions_string(view->reader, lock_of(view, row)->ev.module_str))
GET(get_symbol, scry_functions_string(view->reader, lock_of(view, row)->ev.symbol_str))
GET(get_offset, scry_cell_known(lock_of(view, row)->ev.offset, lock_of(view, row)->ev.module_str))
GET(get_function, scry_functions_string(view->reader, row->function_str))
GET(get_place, (put_place(view, row->stack, UINT32_MAX, buf), scry_cell_buf(buf)))
GET(get_frames, frames_cell(view, row))
GET(get_owner, scry_cell_known(lock_of(view, row)->owner, lock_of(view, row)->owner))
GET(get_owned, scry_cell_known(lock_of(view, row)->owned_ns, lock_of(view, row)->owner))

static bool is_of_conditions(const void *row, void *view)
{
	return lock_of(view, row)->ev.is_condition;
}

static bool is_of_mutexes(const void *row, void *view)
{
	return !is_of_conditions(row, view);
}

static void push_rows(struct locks *l, bool conditions)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, get_pid, 0},
		{"waits", "waits", SCRY_CELL_COUNT, NUMBER(waits)},
		{"total s", "total_ns", SCRY_CELL_TIME, NUMBER(total_ns)},
		{"mean s", "mean_ns", SCRY_CELL_TIME, get_mean, 0},
		{"max s", "max_ns", SCRY_CELL_TIME, get_max, 0},
		{NULL, "timed_out", SCRY_CELL_COUNT, NUMBER(timed_out)},
		{NULL, "failed", SCRY_CELL_COUNT, NUMBER(failed)},
		{NULL, "left", SCRY_CELL_COUNT, NUMBER(left)},
		{"open", "open", SCRY_CELL_COUNT, NUMBER(open)},
		{"kind", "kind", SCRY_CELL_TEXT, get_kind, 0},
		{"lock", "lock", SCRY_CELL_TEXT, get_lock, SCRY_COLUMN_GREP},
		{NULL, "address", SCRY_CELL_HEX, get_address, 0},
		{NULL, "module", SCRY_CELL_TEXT, get_module, 0},
		{NULL, "symbol", SCRY_CELL_SYMBOL, get_symbol, 0},
		{NULL, "offset", SCRY_CELL_HEX, get_offset, 0},
		{NULL, "function", SCRY_CELL_TEXT, get_function, 0},
		{"waited in", NULL, SCRY_CELL_TEXT, get_place, SCRY_COLUMN_GREP},
		{NULL, "frames", SCRY_CELL_FRAMES, get_frames, 0},
		{NULL, "owner_tid", SCRY_CELL_NUMBER, get_owner, 0},
		{NULL, "owned_ns", SCRY_CELL_NUMBER, get_owned, 0},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns),
					 SCRY_ROWS(l->rows, l->row_count),
					 .view = l,
					 .has = conditions ? is_of_conditions : is_of_mutexes,
					 .grep = &l->grep,
					 .filter = &l->opts->filter,
					 .sort = l->opts->sort_key,
					 .order = by_total,
					 .top = scry_view_top(l->opts, l->doc)};

	l->doc->section = conditions ? "conditions" : NULL;
	l->doc->title = conditions ? "waits for conditions" : NULL;
	scry_table_push(&table, l->doc);
}

static void push(struct locks *l)
{
	struct sums mutexes = sum(l, false), conditions = sum(l, true);

	if (l->row_count)
		qsort(l->rows, l->row_count, sizeof(*l->rows), by_total);
	l->quality.noun = "waits";
	l->quality.shown = mutexes.waits + conditions.waits;
	l->doc->ops->quality(l->doc, &l->quality);
	judge(l, &mutexes);
	note_open(l, &mutexes);
	scry_data_quality_notes(&l->quality, l->doc);
	push_totals(l, &mutexes, &conditions);
	if (mutexes.waits || l->doc->is_data)
		push_rows(l, false);
	if (conditions.waits || l->doc->is_data)
		push_rows(l, true);
	l->doc->section = l->doc->title = NULL;
}

static int read_all(struct locks *l)
{
	const struct scry_event *event;
	int got, r = 0;

	scry_data_quality_init(&l->quality, l->reader);
	while ((got = scry_reader_next(l->reader, &event)) > 0 && r == 0) {
		scry_data_quality_event(&l->quality, event);
		if (event->type == SCRY_EVENT_STACK)
			r = scry_native_frames_event(&l->frames, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_LOCK)
			r = on_lock(l, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_WAIT)
			r = on_wait(l, event);
	}
	scry_data_quality_close(&l->quality);
	return r ? r : got;
}

int scry_view_locks(struct scry_reader *reader, const struct scry_view_opts *opts,
		    struct scry_doc *doc)
{
	struct locks l = {.reader = reader, .opts = opts, .doc = doc};
	int r = scry_grep_init(&l.grep, opts->grep);

	if (r < 0)
		return r;
	scry_map_init(&l.by_number, ROWS_MAX);
	scry_map_init(&l.by_place, ROWS_MAX);
	scry_map_init(&l.waiters, ROWS_MAX);
	scry_map_init(&l.owners, ROWS_MAX);
	r = read_all(&l);
	if (r == 0)
		push(&l);
	scry_grep_done(&l.grep);
	scry_native_frames_done(&l.frames);
	scry_map_done(&l.by_number);
	scry_map_done(&l.by_place);
	scry_map_done(&l.waiters);
	scry_map_done(&l.owners);
	scry_buf_done(&l.buf);
	free(l.locks);
	free(l.rows);
	return r;
}
