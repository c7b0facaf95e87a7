/* Prints what threads wait for, and who keeps them waiting. See dump.h. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "cmd/dump.h"

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

/* Of the cycle of `first`: may the wait of one of its threads end by itself? */
static bool is_timed(const struct scry_dump *d, size_t first)
{
	bool is = false;
	size_t at = first;

	do {
		is |= d->threads[at].lock.is_timed;
		at = d->threads[at].lock.owner;
	} while (at != first);
	return is;
}

/* "thread 12 "a" waits for Thread::Mutex 0x1, which thread 13 "b" holds, which waits for ..." */
void scry_dump_put_cycles(const struct scry_dump *d, struct scry_buf *buf)
{
	for (size_t i = 0; i < d->count && d->cycles; i++) {
		size_t at = i;

		if (!d->threads[i].lock.is_in_cycle || d->threads[i].lock.cycle != i)
			continue;
		scry_buf_printf(buf, is_timed(d, i)
					     ? "a cycle of locks; Timeout may end it: thread "
					     : "deadlock: thread ");
		scry_dump_put_thread(&d->threads[i], buf);
		do {
			const struct scry_dump_lock *lock = &d->threads[at].lock;

			scry_buf_printf(buf, at == i ? " waits for " : ", and that one waits for ");
			if (lock->kind == SCRY_DUMP_LOCK_THREAD) {
				scry_buf_printf(buf, "the end of thread ");
				scry_dump_put_thread(&d->threads[lock->owner], buf);
			} else {
				put_object(lock, buf);
				put_holder(d, lock, buf);
			}
			at = lock->owner;
		} while (at != i);
		scry_buf_printf(buf, "\n");
	}
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

/* null, or what scry_dump_put_lock says. */
void scry_dump_json_lock(struct scry_json *j, const struct scry_dump *d,
			 const struct scry_dump_thread *t)
{
	const struct scry_dump_lock *lock = &t->lock;
	const bool has_owner = lock->kind != SCRY_DUMP_LOCK_NONE && lock->owner < d->count &&
			       !d->threads[lock->owner].is_other;
	char address[24], class[64];

	scry_json_key(j, "waits_for");
	if (lock->kind == SCRY_DUMP_LOCK_NONE) {
		scry_json_text(j, NULL);
		return;
	}
	snprintf(address, sizeof(address), "0x%" PRIx64, lock->object);
	snprintf(class, sizeof(class), "%.*s", (int)lock->class_length, lock->class);
	scry_json_object_begin(j);
	scry_json_key(j, "kind");
	scry_json_text(j, kind_word(lock->kind));
	scry_json_key(j, "class");
	scry_json_text(j, class);
	scry_json_key(j, "object");
	scry_json_text(j, address);
	scry_json_key(j, "owner");
	if (has_owner)
		scry_json_u64(j, (uint64_t)d->threads[lock->owner].ruby.tid);
	else
		scry_json_text(j, NULL);
	scry_json_key(j, "owner_name");
	scry_json_text(j, has_owner ? d->threads[lock->owner].name : NULL);
	scry_json_key(j, "is_other_fiber");
	if (lock->is_any_fiber)
		scry_json_text(j, NULL);
	else
		scry_json_bool(j, lock->is_other_fiber);
	scry_json_key(j, "why_unknown");
	scry_json_text(j, lock->why);
	scry_json_key(j, "others");
	scry_json_u64(j, others(d, lock));
	scry_json_object_end(j);
}

/* Lists of thread ids, each waiting for the one behind it and the last for the first. */
static void json_cycles(struct scry_json *j, const struct scry_dump *d, bool are_timed)
{
	scry_json_array_begin(j);
	for (size_t i = 0; i < d->count; i++) {
		size_t at = i;

		if (!d->threads[i].lock.is_in_cycle || d->threads[i].lock.cycle != i ||
		    is_timed(d, i) != are_timed)
			continue;
		scry_json_array_begin(j);
		do {
			scry_json_u64(j, (uint64_t)d->threads[at].ruby.tid);
			at = d->threads[at].lock.owner;
		} while (at != i);
		scry_json_array_end(j);
	}
	scry_json_array_end(j);
}

void scry_dump_json_cycles(struct scry_json *j, const struct scry_dump *d)
{
	scry_json_key(j, "deadlocks");
	json_cycles(j, d, false);
	scry_json_key(j, "timed_cycles");
	json_cycles(j, d, true);
}
