/* See calls.h. */
#include "name/calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "name/sql.h"

#define SIGNALS (1ull << 32) /* beside a thread's number: its signals */

struct open_call {
	uint64_t call, tsc;
	uint32_t function;
	uint32_t below; /* index + 1 of the call that ended in a tail call to it; or next free */
	uint32_t part_words;
	uint64_t *parts; /* of its return, emitted before it; owned */
};

struct scry_calls {
	struct scry_calls_opts opts;
	bool is_met[1u << SCRY_CALL_HOOK_BITS];
	uint32_t function_count;
	struct scry_stream *stream;
	struct scry_map open;	      /* slot -> index + 1 of its newest call */
	struct scry_map called, ruby; /* slot -> stack of the entry that comes */
	struct open_call *calls;
	uint32_t call_count, call_room, free_call;
	uint64_t last_call;
	struct scry_buf text;
	struct scry_calls_stats stats;
};

static const struct scry_stream_kind kind;

int scry_calls_new(const struct scry_calls_opts *opts, struct scry_calls **ret)
{
	struct scry_calls *c = calloc(1, sizeof(*c));

	if (!c)
		return scry_no_memory("calls");
	c->stream = scry_stream_new(&kind, c);
	if (!c->stream) {
		free(c);
		return scry_no_memory("calls");
	}
	c->opts = *opts;
	c->last_call = opts->first_call;
	scry_map_init(&c->open, SCRY_CALLS_OPEN_MAX);
	scry_map_init(&c->called, SCRY_CALLS_OPEN_MAX);
	scry_map_init(&c->ruby, SCRY_CALLS_OPEN_MAX);
	*ret = c;
	return 0;
}

void scry_calls_free(struct scry_calls *c)
{
	if (!c)
		return;
	scry_map_done(&c->open);
	scry_map_done(&c->called);
	scry_map_done(&c->ruby);
	scry_buf_done(&c->text);
	scry_stream_free(c->stream);
	for (uint32_t i = 0; i < c->call_count; i++)
		free(c->calls[i].parts);
	free(c->calls);
	free(c);
}

int scry_calls_function(struct scry_calls *c)
{
	if (c->function_count == 1u << SCRY_CALL_HOOK_BITS)
		return scry_fail(-E2BIG, "more than %u functions", c->function_count);
	c->function_count++;
	return 0;
}

int scry_calls_functions_upto(struct scry_calls *c, uint32_t number)
{
	int r = 0;

	while (c->function_count <= number && r == 0)
		r = scry_calls_function(c);
	return r;
}

void scry_calls_stacks(struct scry_calls *c, struct scry_native_stacks *stacks,
		       struct scry_ruby_stacks *ruby)
{
	c->opts.stacks = stacks;
	c->opts.ruby = ruby;
}

struct scry_stream *scry_calls_stream(struct scry_calls *c)
{
	return c->stream;
}

static int no_memory(void)
{
	return scry_no_memory("calls");
}

/* Words of the record at `words`, of `count` that are there; 0: it makes no sense. */
static size_t record_words(const struct scry_calls *c, const uint64_t *words, size_t count)
{
	uint32_t args = scry_call_args(words[0]);
	bool is_return = args == SCRY_CALL_RETURN, has_more = words[0] & SCRY_CALL_MORE;
	size_t n = is_return ? 2 : 2 + args;

	if (count <= n)
		return count == n && !is_return && !has_more &&
				       scry_call_hook(words[0]) < c->function_count
			       ? n
			       : 0;
	if (is_return && !has_more)
		return n + 1;
	if (scry_call_hook(words[0]) >= c->function_count)
		return 0;
	if (has_more && words[n] > SCRY_CALL_MORE_MAX)
		return 0;
	n += has_more ? 1 + words[n] : 0;
	return n <= count ? n : 0;
}

/* Records that are known by their first word alone: their size, or 0: it is none, or not whole. */
static size_t special_words(const uint64_t *words, size_t count)
{
	size_t n = words[0] == SCRY_CALL_TIME	  ? 2
		   : words[0] == SCRY_CALL_CALLED ? SCRY_CALL_CALLED_WORDS
		   : words[0] == SCRY_CALL_RUBY	  ? SCRY_CALL_RUBY_WORDS
		   : words[0] == SCRY_CALL_SIGNAL ? SCRY_CALL_SIGNAL_WORDS
						  : 0;

	if (words[0] == SCRY_CALL_STACK && count >= SCRY_CALL_STACK_HEAD &&
	    words[3] <= SCRY_CALL_STACK_FRAMES)
		n = SCRY_CALL_STACK_HEAD + words[3];
	if (words[0] == SCRY_CALL_RUBY_LINE && count >= SCRY_CALL_RUBY_LINE_HEAD &&
	    words[2] >= SCRY_CALL_RUBY_LINE_HEAD)
		n = words[2];
	if (words[0] == SCRY_CALL_RUBY_STACK && count >= SCRY_CALL_RUBY_STACK_HEAD &&
	    words[4] <= SCRY_CALL_RUBY_FRAMES + 1)
		n = SCRY_CALL_RUBY_STACK_HEAD + words[4];
	return n <= count ? n : 0;
}

static bool is_definition(uint64_t word)
{
	return word >= SCRY_CALL_STACK && word <= SCRY_CALL_RUBY_STACK;
}

/* What is emitted once, before the first record that needs it. */
static void define(struct scry_calls *c, const uint64_t *words, size_t count)
{
	int r = -EINVAL;

	if (words[0] == SCRY_CALL_STACK && c->opts.stacks)
		r = scry_native_stacks_define(c->opts.stacks, words[2],
					      words + SCRY_CALL_STACK_HEAD, words[3]);
	if (words[0] == SCRY_CALL_RUBY_LINE && c->opts.ruby)
		r = scry_ruby_stacks_line(c->opts.ruby, words, count);
	if (words[0] == SCRY_CALL_RUBY_STACK && c->opts.ruby)
		r = scry_ruby_stacks_define(c->opts.ruby, words, count);
	c->stats.bad += r == -EINVAL;
}

static size_t size_of(const struct scry_calls *c, const uint64_t *words, size_t count)
{
	return words[0] <= SCRY_CALL_SIGNAL ? special_words(words, count)
					    : record_words(c, words, count);
}

static void scan(void *arg, struct scry_stream_scan *scan)
{
	struct scry_calls *c = arg;
	struct scry_stream_record *to = scan->records;

	for (size_t i = 0, size; i < scan->count; i += size) {
		const uint64_t *words = scan->words + i;

		size = scan->count - i < 2 ? 0 : size_of(c, words, scan->count - i);
		if (!size) {
			c->stats.bad++;
			break;
		}
		if (is_definition(words[0]))
			define(c, words, size);
		else if (words[0] == SCRY_CALL_TIME)
			scan->tick = words[1];
		else
			*to++ = (struct scry_stream_record){words[1], (uint32_t)i, (uint32_t)size};
	}
	scan->found = (size_t)(to - scan->records);
}

int scry_calls_words(struct scry_calls *c, uint32_t tid, const uint64_t *words, size_t count)
{
	return scry_stream_add(c->stream,
			       &(struct scry_stream_words){.thread = SCRY_STREAM_BESIDE(tid),
							   .tid = tid,
							   .has_ended = true,
							   .words = words,
							   .count = count});
}

int scry_calls_signal(struct scry_calls *c, uint32_t tid, uint64_t tsc, uint32_t number)
{
	const uint64_t words[SCRY_CALL_SIGNAL_WORDS] = {SCRY_CALL_SIGNAL, tsc, number};

	return scry_stream_add(
		c->stream, &(struct scry_stream_words){.thread = SCRY_STREAM_BESIDE(SIGNALS | tid),
						       .tid = tid,
						       .has_ended = true,
						       .words = words,
						       .count = SCRY_CALL_SIGNAL_WORDS});
}

int scry_calls_insert(struct scry_calls *c, const struct scry_calls_event *event)
{
	const uint32_t args = event->is_return ? SCRY_CALL_RETURN : event->count;
	uint64_t words[2 + SCRY_CALL_ARGS_MAX + 1 + SCRY_CALL_MORE_MAX];
	size_t n = event->is_return ? 2 : 2 + event->count; /* of a return: its parts come first */
	int r = 0;

	words[0] = scry_call_head(event->slot, args, event->function);
	words[1] = event->tsc;
	memcpy(words + 2, event->values, (n - 2) * sizeof(*words));
	if (event->part_words) {
		words[0] |= SCRY_CALL_MORE;
		words[n++] = event->part_words;
		memcpy(words + n, event->parts, event->part_words * sizeof(*words));
		n += event->part_words;
	}
	if (event->part_words || !event->is_return)
		r = scry_calls_words(c, event->tid, words, n);
	if (r < 0 || !event->is_return)
		return r;
	words[0] &= ~(uint64_t)SCRY_CALL_MORE;
	words[2] = event->values[0];
	return scry_calls_words(c, event->tid, words, 3);
}

/* Index + 1, or 0: no memory. */
static uint32_t new_call(struct scry_calls *c)
{
	uint32_t i = c->free_call;

	if (i) {
		c->free_call = c->calls[i - 1].below;
		return i;
	}
	if (c->call_count == c->call_room) {
		uint32_t room = c->call_room ? 2 * c->call_room : 256;
		struct open_call *more = reallocarray(c->calls, room, sizeof(*more));

		if (!more)
			return 0;
		c->calls = more;
		c->call_room = room;
	}
	return ++c->call_count;
}

struct emitted { /* a record */
	uint64_t tsc;
	const uint64_t *words;
	uint32_t tid;
};

struct ending {
	uint64_t tsc, result;
	uint32_t tid;
	enum scry_return_how how;
};

/* One part, as it is kept: digests hold statements without their literals, and no other text. */
static void put_part(struct scry_calls *c, struct scry_call_part part, const char *bytes)
{
	size_t at = c->text.len;

	if (c->opts.args == SCRY_CALLS_NONE)
		return;
	if (c->opts.args == SCRY_CALLS_FULL || !(part.flags & (SCRY_PART_TEXT | SCRY_PART_SQL))) {
		scry_buf_append(&c->text, &part, sizeof(part));
		scry_buf_append(&c->text, bytes, part.bytes);
	} else {
		part.flags = (uint16_t)((part.flags & ~SCRY_PART_FORMAT) | SCRY_PART_DIGEST);
		scry_buf_append(&c->text, &part, sizeof(part));
		if (part.flags & SCRY_PART_SQL)
			scry_sql_digest(bytes, part.bytes, part.flags & SCRY_PART_MYSQL, &c->text);
		else
			scry_buf_append(&c->text, "?", 1);
		part.bytes = (uint32_t)(c->text.len - at - sizeof(part));
		if (!c->text.failed)
			memcpy(c->text.data + at, &part, sizeof(part));
	}
	scry_buf_zeros(&c->text, -c->text.len % 8);
}

/* Of hostile words. */
static void put_parts(struct scry_calls *c, const uint64_t *words, size_t count)
{
	while (count >= 2) {
		struct scry_call_part part;
		size_t n;

		memcpy(&part, words, sizeof(part));
		n = 2 + (part.bytes + 7ull) / 8;
		if (n > count || part.flags & SCRY_PART_DIGEST) {
			c->stats.bad++;
			return;
		}
		put_part(c, part, (const char *)(words + 2));
		words += n;
		count -= n;
	}
	c->stats.bad += count;
}

/* What lies in `text`: room for the payload, and parts. Without parts it may be empty. */
static int write_text(struct scry_calls *c, const struct scry_event *head, const void *payload,
		      size_t size)
{
	if (c->text.failed)
		return no_memory();
	if (c->text.len <= size)
		return scry_writer_payload(c->opts.writer, head, payload, size);
	memcpy(c->text.data, payload, size);
	return scry_writer_payload(c->opts.writer, head, c->text.data, c->text.len);
}

/* The calls on a slot, the innermost first. */
static int end_calls(struct scry_calls *c, uint64_t slot, const struct ending *end)
{
	uint64_t top = 0;
	int r = 0;

	if (!scry_map_remove(&c->open, slot, &top))
		c->stats.strange += end->how == SCRY_RETURN_DONE && !c->opts.is_child;
	while (top) {
		struct open_call *o = &c->calls[top - 1];
		const struct scry_event head = {.time_ns = scry_stream_time(c->stream, end->tsc),
						.tid = end->tid,
						.type = SCRY_EVENT_RETURN};
		struct scry_ev_return ev = {.function = c->opts.first_function + o->function,
					    .pid = c->opts.pid,
					    .call = o->call,
					    .how = end->how};
		uint64_t below = o->below;
		int e;

		scry_buf_clear(&c->text);
		if (end->how == SCRY_RETURN_DONE) {
			ev.result = end->result;
			ev.duration_ns = end->tsc > o->tsc
						 ? scry_stream_length(c->stream, end->tsc - o->tsc)
						 : 0;
			if (o->part_words) {
				scry_buf_append(&c->text, &ev, sizeof(ev));
				put_parts(c, o->parts, o->part_words);
			}
		}
		free(o->parts);
		o->parts = NULL;
		c->stats.left += end->how == SCRY_RETURN_LEFT;
		o->below = c->free_call;
		c->free_call = (uint32_t)top;
		top = below;
		c->stats.open--;
		ev.more_bytes = c->text.len ? (uint32_t)(c->text.len - sizeof(ev)) : 0;
		e = write_text(c, &head, &ev, sizeof(ev));
		r = r ? r : e;
	}
	return r;
}

static int write_call(struct scry_calls *c, const struct emitted *rec, uint64_t call)
{
	const uint64_t *words = rec->words;
	const struct scry_event head = {.time_ns = scry_stream_time(c->stream, rec->tsc),
					.tid = rec->tid,
					.type = SCRY_EVENT_CALL};
	struct scry_ev_call ev = {.function = c->opts.first_function + scry_call_hook(words[0]),
				  .pid = c->opts.pid,
				  .call = call,
				  .args = scry_call_args(words[0])};

	if (c->opts.args == SCRY_CALLS_NONE)
		ev.flags |= SCRY_CALL_HAS_NO_ARGS;
	memcpy(&ev.arg1, words + 2, ev.args * sizeof(*words));
	scry_buf_clear(&c->text);
	if (words[0] & SCRY_CALL_MORE) {
		scry_buf_append(&c->text, &ev, sizeof(ev));
		put_parts(c, words + 3 + ev.args, words[2 + ev.args]);
		ev.more_bytes = (uint32_t)(c->text.len - sizeof(ev));
	}
	if (!c->text.len) /* what is left out at the end is 0 */
		return scry_writer_payload(c->opts.writer, &head, &ev,
					   offsetof(struct scry_ev_call, arg1) +
						   ev.args * sizeof(*words));
	return write_text(c, &head, &ev, sizeof(ev));
}

/* A call whose return is not followed, and that. */
static int write_alone(struct scry_calls *c, const struct emitted *rec, uint64_t call)
{
	const struct scry_event head = {.time_ns = scry_stream_time(c->stream, rec->tsc),
					.tid = rec->tid,
					.type = SCRY_EVENT_RETURN};
	const struct scry_ev_return ev = {.function = c->opts.first_function +
						      scry_call_hook(rec->words[0]),
					  .pid = c->opts.pid,
					  .call = call,
					  .how = SCRY_RETURN_ALONE};
	int r = write_call(c, rec, call);

	c->stats.alone++;
	return r ? r : scry_writer_payload(c->opts.writer, &head, &ev, sizeof(ev));
}

/* What makes the call that is emitted next. */
static int write_called(struct scry_calls *c, const struct emitted *rec, uint64_t call)
{
	const struct scry_event head = {.time_ns = scry_stream_time(c->stream, rec->tsc),
					.tid = rec->tid,
					.type = SCRY_EVENT_CALLED};
	struct scry_ev_called ev = {.pid = c->opts.pid, .call = call};
	uint64_t slot = scry_call_slot(rec->words[0]), number;
	int r = 0;

	if (c->opts.stacks && scry_map_remove(&c->called, slot, &number))
		ev.stack = scry_native_stacks_write(c->opts.stacks, number, c->opts.writer);
	if (ev.stack)
		r = scry_writer_payload(c->opts.writer, &head, &ev, sizeof(ev));
	ev.stack = 0;
	if (c->opts.ruby && scry_map_remove(&c->ruby, slot, &number))
		ev.stack = scry_ruby_stacks_write(c->opts.ruby, number, c->opts.writer);
	if (ev.stack && r == 0)
		r = scry_writer_payload(c->opts.writer, &head, &ev, sizeof(ev));
	return r;
}

static int begin_call(struct scry_calls *c, const struct emitted *rec)
{
	uint64_t head = rec->words[0], slot = scry_call_slot(head), below = 0;
	const struct ending left = {.tsc = rec->tsc, .tid = rec->tid, .how = SCRY_RETURN_LEFT};
	uint32_t i;
	int r = 0;

	if (scry_map_get(&c->open, slot, &below) && !(head & (SCRY_CALL_TAIL | SCRY_CALL_ALONE))) {
		r = end_calls(c, slot, &left);
		below = 0;
	}
	if (r == 0 && c->opts.meet && !c->is_met[scry_call_hook(head)])
		r = c->opts.meet(c->opts.meet_arg, scry_call_hook(head));
	c->is_met[scry_call_hook(head)] = true;
	c->stats.calls++;
	c->stats.fetched += (head & SCRY_CALL_MORE) != 0;
	c->last_call++;
	if (head & SCRY_CALL_ALONE) {
		r = r ? r : write_called(c, rec, c->last_call);
		return r ? r : write_alone(c, rec, c->last_call);
	}
	i = new_call(c);
	if (i && scry_map_put(&c->open, slot, i) == 0) {
		c->calls[i - 1] = (struct open_call){.call = c->last_call,
						     .tsc = rec->tsc,
						     .function = scry_call_hook(head),
						     .below = (uint32_t)below};
		c->stats.open++;
	} else if (i) { /* too many: its return will be strange */
		c->calls[i - 1].below = c->free_call;
		c->free_call = i;
	}
	r = r ? r : write_called(c, rec, c->last_call);
	return r ? r : write_call(c, rec, c->last_call);
}

/* Parts of a call's return come before it. Those of a call that is not known are left out. */
static int keep_parts(struct scry_calls *c, const struct emitted *rec)
{
	const uint64_t *words = rec->words;
	uint32_t function = scry_call_hook(words[0]);
	uint64_t i = 0;

	scry_map_get(&c->open, scry_call_slot(words[0]), &i);
	while (i && c->calls[i - 1].function != function)
		i = c->calls[i - 1].below;
	if (!i || !words[2])
		return 0;
	free(c->calls[i - 1].parts);
	c->calls[i - 1].part_words = (uint32_t)words[2];
	c->calls[i - 1].parts = malloc(words[2] * sizeof(*words));
	if (!c->calls[i - 1].parts)
		return no_memory();
	memcpy(c->calls[i - 1].parts, words + 3, words[2] * sizeof(*words));
	return 0;
}

static int write_signal(struct scry_calls *c, const struct emitted *rec)
{
	const struct scry_event head = {.time_ns = scry_stream_time(c->stream, rec->tsc),
					.tid = rec->tid,
					.type = SCRY_EVENT_SIGNAL};
	const struct scry_ev_signal ev = {.pid = c->opts.pid, .signal = (uint32_t)rec->words[2]};

	return scry_writer_payload(c->opts.writer, &head, &ev, sizeof(ev));
}

static bool is_wanted(const struct scry_calls *c, uint32_t tid)
{
	const struct scry_calls_tids *only = c->opts.tids;
	uint32_t i = 0;

	while (only && i < only->count && only->tids[i] != tid)
		i++;
	return !only || !only->count || i < only->count;
}

static int write_record(struct scry_calls *c, const struct emitted *rec)
{
	const uint64_t *words = rec->words;
	const struct ending done = {
		.tsc = rec->tsc, .tid = rec->tid, .result = words[2], .how = SCRY_RETURN_DONE};

	if (!is_wanted(c, rec->tid))
		return 0;
	if (words[0] == SCRY_CALL_SIGNAL)
		return write_signal(c, rec);
	if (words[0] == SCRY_CALL_CALLED) {
		scry_map_put(&c->called, words[3], words[2]);
		return 0;
	}
	if (words[0] == SCRY_CALL_RUBY) {
		scry_map_put(&c->ruby, words[3], words[2]);
		return 0;
	}
	if (scry_call_args(words[0]) == SCRY_CALL_RETURN && words[0] & SCRY_CALL_MORE)
		return keep_parts(c, rec);
	if (scry_call_args(words[0]) == SCRY_CALL_RETURN)
		return end_calls(c, scry_call_slot(words[0]), &done);
	return begin_call(c, rec);
}

/* One that cannot be written is counted by the writer, or ends the watch: the rest goes on. */
static ssize_t give(void *arg, struct scry_stream_thread *thread,
		    const struct scry_stream_record *records, size_t count)
{
	struct scry_calls *c = arg;
	int r = 0;

	for (size_t i = 0; i < count; i++) {
		const struct emitted rec = {.tsc = records[i].tick,
					    .words = scry_stream_words_of(thread, &records[i]),
					    .tid = thread->tid};
		int e = write_record(c, &rec);

		r = r ? r : e;
	}
	return r < 0 ? r : (ssize_t)count;
}

static const struct scry_stream_kind kind = {
	.scan = scan,
	.give = give,
};

int scry_calls_merge_some(struct scry_calls *c, uint64_t watermark, size_t most)
{
	return scry_stream_merge(c->stream, watermark, most);
}

int scry_calls_merge(struct scry_calls *c, uint64_t watermark)
{
	return scry_calls_merge_some(c, watermark, SIZE_MAX);
}

void scry_calls_stats(const struct scry_calls *c, struct scry_calls_stats *ret)
{
	*ret = c->stats;
}
