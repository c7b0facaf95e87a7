/* What threads wait for, and which threads hold it, for people and for programs. See dump_print.h.
 */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "cmd/dump_print.h"

void scry_dump_put_thread(const struct scry_dump_thread *t, struct scry_buf *buf)
{
	if (t->ruby.tid)
		scry_buf_printf(buf, "%d", (int)t->ruby.tid);
	else
		scry_buf_printf(buf, "0x%" PRIx64, t->ruby.th);
	if (t->name[0]) {
		scry_buf_printf(buf, " ");
		scry_text_quote(buf, t->name, strlen(t->name));
	}
}

/* "Thread::Mutex 0x7f12" */
static void put_object(const struct scry_dump_lock *lock, struct scry_buf *buf)
{
	scry_text_escape(buf, lock->class, lock->class_length);
	scry_buf_printf(buf, " 0x%" PRIx64, lock->object);
}

/* Other threads that wait for the same. */
static size_t others(const struct scry_dump *d, const struct scry_dump_lock *lock)
{
	return d->threads[lock->first].lock.waiters - 1;
}

static void put_holder(const struct scry_dump *d, const struct scry_dump_lock *lock,
		       struct scry_buf *buf)
{
	if (lock->why) {
		scry_buf_printf(buf, "; owner unknown: %s", lock->why);
	} else if (lock->is_free) {
		scry_buf_printf(buf, ", which was free at that moment");
	} else {
		scry_buf_printf(buf, ", which %sthread ",
				lock->is_other_fiber ? "a suspended fiber of " : "");
		scry_dump_put_thread(&d->threads[lock->owner], buf);
		scry_buf_printf(buf, "%s holds",
				lock->is_any_fiber ? ", or one of its fibers," : "");
	}
}

void scry_dump_put_lock(const struct scry_dump *d, const struct scry_dump_thread *t,
			struct scry_buf *buf)
{
	const struct scry_dump_lock *lock = &t->lock;
	size_t more = lock->kind == SCRY_DUMP_LOCK_NONE ? 0 : others(d, lock);

	switch (lock->kind) {
	case SCRY_DUMP_LOCK_NONE:
	case SCRY_DUMP_LOCK_SLEEP:
		return;
	case SCRY_DUMP_LOCK_THREAD:
		scry_buf_printf(buf, "    waits for the end of ");
		if (lock->why) {
			scry_buf_printf(buf, "a thread: %s\n", lock->why);
			return;
		}
		scry_buf_printf(buf, "thread ");
		scry_dump_put_thread(&d->threads[lock->owner], buf);
		scry_buf_printf(buf, "\n");
		return;
	case SCRY_DUMP_LOCK_MUTEX:
	case SCRY_DUMP_LOCK_MONITOR:
		scry_buf_printf(buf, "    waits for ");
		put_object(lock, buf);
		put_holder(d, lock, buf);
		break;
	case SCRY_DUMP_LOCK_QUEUE:
		scry_buf_printf(buf, "    waits for an item in ");
		put_object(lock, buf);
		break;
	case SCRY_DUMP_LOCK_ROOM:
		scry_buf_printf(buf, "    waits for room in ");
		put_object(lock, buf);
		break;
	case SCRY_DUMP_LOCK_CONDITION:
		scry_buf_printf(buf, "    waits for a signal to ");
		put_object(lock, buf);
		break;
	}
	if (more)
		scry_buf_printf(buf, "; %zu more thread%s for it", more,
				more == 1 ? " waits" : "s wait");
	scry_buf_printf(buf, "\n");
}

bool scry_dump_is_cycle(const struct scry_dump *d, size_t first, bool is_timed)
{
	const struct scry_dump_lock *lock = &d->threads[first].lock;
	bool is = false;
	size_t at = first;

	if (!lock->is_in_cycle || lock->cycle != first)
		return false;
	do {
		is |= d->threads[at].lock.is_timed;
		at = d->threads[at].lock.owner;
	} while (at != first);
	return is == is_timed;
}

/* "thread 12 "a" waits for Thread::Mutex 0x1, which thread 13 "b" holds, which waits for ..." */
void scry_dump_put_cycle(const struct scry_dump *d, size_t first, struct scry_buf *buf)
{
	size_t at = first;

	scry_buf_printf(buf, scry_dump_is_cycle(d, first, true)
				     ? "a cycle of locks; Timeout may end it: thread "
				     : "deadlock: thread ");
	scry_dump_put_thread(&d->threads[first], buf);
	do {
		const struct scry_dump_lock *lock = &d->threads[at].lock;

		scry_buf_printf(buf, at == first ? " waits for " : ", and that one waits for ");
		if (lock->kind == SCRY_DUMP_LOCK_THREAD) {
			scry_buf_printf(buf, "the end of thread ");
			scry_dump_put_thread(&d->threads[lock->owner], buf);
		} else {
			put_object(lock, buf);
			put_holder(d, lock, buf);
		}
		at = lock->owner;
	} while (at != first);
}

static const char *kind_word(enum scry_dump_lock_kind kind)
{
	static const char *const words[] = {
		[SCRY_DUMP_LOCK_MUTEX] = "mutex",	  [SCRY_DUMP_LOCK_MONITOR] = "monitor",
		[SCRY_DUMP_LOCK_QUEUE] = "queue",	  [SCRY_DUMP_LOCK_ROOM] = "queue_room",
		[SCRY_DUMP_LOCK_CONDITION] = "condition", [SCRY_DUMP_LOCK_THREAD] = "thread",
	};

	return words[kind];
}

static void put(struct scry_cell *cell, struct scry_doc_value value)
{
	((struct scry_doc_value *)cell->values)[cell->number++] = value;
}

static void put_text(struct scry_cell *cell, const char *key, const char *text, size_t length)
{
	put(cell, SCRY_VALUE_OF_KEY(key));
	put(cell, (struct scry_doc_value){text ? SCRY_VALUE_TEXT : SCRY_VALUE_NULL, text, length});
}

static void put_number(struct scry_cell *cell, const char *key, enum scry_value_kind kind,
		       uint64_t number)
{
	put(cell, SCRY_VALUE_OF_KEY(key));
	put(cell, (struct scry_doc_value){.kind = kind, .number = number});
}

struct scry_cell scry_dump_lock_cell(const struct scry_dump *d, const struct scry_dump_thread *t,
				     struct scry_doc_value values[SCRY_DUMP_LOCK_VALUES])
{
	const struct scry_dump_lock *lock = &t->lock;
	const bool has_owner = lock->kind != SCRY_DUMP_LOCK_NONE && lock->owner < d->count &&
			       !d->threads[lock->owner].is_other;
	const struct scry_dump_thread *owner = has_owner ? &d->threads[lock->owner] : NULL;
	const char *kind = kind_word(lock->kind);
	struct scry_cell cell = {.values = values};

	if (lock->kind == SCRY_DUMP_LOCK_NONE)
		return scry_cell_unknown();
	put(&cell, (struct scry_doc_value){.kind = SCRY_VALUE_OBJECT});
	put_text(&cell, "kind", kind, kind ? strlen(kind) : 0);
	put_text(&cell, "class", lock->class, lock->class_length);
	put_number(&cell, "object", SCRY_VALUE_HEX, lock->object);
	put_number(&cell, "owner", owner ? SCRY_VALUE_UNSIGNED : SCRY_VALUE_NULL,
		   owner ? (uint64_t)owner->ruby.tid : 0);
	put_text(&cell, "owner_name", owner ? owner->name : NULL, owner ? strlen(owner->name) : 0);
	put_number(&cell, "is_other_fiber", lock->is_any_fiber ? SCRY_VALUE_NULL : SCRY_VALUE_BOOL,
		   lock->is_other_fiber);
	put_text(&cell, "why_unknown", lock->why, lock->why ? strlen(lock->why) : 0);
	put_number(&cell, "others", SCRY_VALUE_UNSIGNED, others(d, lock));
	put(&cell, (struct scry_doc_value){.kind = SCRY_VALUE_OBJECT_END});
	return cell;
}

/* Lists of thread ids, each waiting for the one behind it and the last for the first. */
struct scry_cell scry_dump_cycles_cell(const struct scry_dump *d, bool are_timed,
				       struct scry_doc_value *values)
{
	struct scry_cell cell = {.values = values};

	for (size_t i = 0; i < d->count; i++) {
		size_t at = i;

		if (!scry_dump_is_cycle(d, i, are_timed))
			continue;
		put(&cell, (struct scry_doc_value){.kind = SCRY_VALUE_BEGIN});
		do {
			put(&cell,
			    (struct scry_doc_value){.kind = SCRY_VALUE_UNSIGNED,
						    .number = (uint64_t)d->threads[at].ruby.tid});
			at = d->threads[at].lock.owner;
		} while (at != i);
		put(&cell, (struct scry_doc_value){.kind = SCRY_VALUE_END});
	}
	return cell;
}
