/* Which thread holds what. See ruby_locks.h. */
#include "vm/ruby_locks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vm/ruby_value.h"

#define MONITOR_WORDS 4u

static const char unreadable[] = "its memory cannot be read";

static bool is_data(const struct scry_ruby *ruby, uint64_t value)
{
	uint64_t flags;

	return value >= SCRY_RUBY_NIL_MAX && value % 8 == 0 &&
	       !scry_mem_u64(&ruby->mem, value, &flags) &&
	       (flags & SCRY_RUBY_TYPE_MASK) == SCRY_RUBY_T_DATA;
}

/* A word that two threads have, as only a forged list has, means the first. */
static int put_first(struct scry_map *map, uint64_t key, size_t at)
{
	uint64_t *value = scry_map_ref(map, key);

	if (!value)
		return -ENOMEM;
	if (!*value)
		*value = at + 1;
	return 0;
}

static size_t find(const struct scry_map *map, uint64_t key, size_t count)
{
	uint64_t value;

	return scry_map_get(map, key, &value) ? (size_t)value - 1 : count;
}

int scry_ruby_thread_index_init(const struct scry_ruby *ruby,
				const struct scry_ruby_thread *threads, size_t count,
				struct scry_ruby_thread_index *ret)
{
	struct scry_mem_span *spans = calloc(count + 1, sizeof(*spans));
	uint64_t *selfs = calloc(count + 1, sizeof(*selfs));
	int err = spans && selfs ? 0 : -ENOMEM;

	*ret = (struct scry_ruby_thread_index){.threads = threads, .count = count};
	scry_map_init(&ret->by_th, count);
	scry_map_init(&ret->by_self, count);
	for (size_t i = 0; i < count && !err; i++) {
		spans[i] = (struct scry_mem_span){threads[i].th + ruby->layout.th_self, &selfs[i],
						  8, false};
		err = put_first(&ret->by_th, threads[i].th, i);
	}
	if (!err)
		scry_mem_gather(&ruby->mem, spans, count);
	for (size_t i = 0; i < count && !err; i++)
		if (spans[i].ok)
			err = put_first(&ret->by_self, selfs[i], i);
	free(spans);
	free(selfs);
	return err;
}

void scry_ruby_thread_index_done(struct scry_ruby_thread_index *index)
{
	scry_map_done(&index->by_th);
	scry_map_done(&index->by_self);
}

size_t scry_ruby_thread_with_self(const struct scry_ruby_thread_index *index, uint64_t self)
{
	return find(&index->by_self, self, index->count);
}

/* The thread that the word means; `count`: none. Of a fiber, its execution context says. */
static size_t thread_of(const struct scry_ruby *ruby, const struct scry_ruby_thread_index *index,
			uint64_t word)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t th = word;

	if (l->locks.kind == SCRY_RUBY_OWNER_OBJECT)
		return scry_ruby_thread_with_self(index, word);
	if (l->locks.kind == SCRY_RUBY_OWNER_FIBER &&
	    scry_mem_u64(&ruby->mem, word + l->locks.fiber_ec + l->ec_thread, &th))
		return index->count;
	return find(&index->by_th, th, index->count);
}

void scry_ruby_mutex_owner(const struct scry_ruby *ruby, const struct scry_ruby_thread_index *index,
			   uint64_t mutex, struct scry_ruby_owner *ret)
{
	const struct scry_ruby_lock_place *l = &ruby->layout.locks;
	uint64_t at, locked, owner;

	*ret = (struct scry_ruby_owner){.thread = index->count};
	if (l->kind == SCRY_RUBY_OWNER_NONE) {
		ret->why = "this Ruby's Mutex was not learned (scry doctor -p)";
		return;
	}
	if (!is_data(ruby, mutex) || scry_mem_u64(&ruby->mem, mutex + l->data, &at) ||
	    scry_mem_u64(&ruby->mem, at + l->locked, &locked) ||
	    scry_mem_u64(&ruby->mem, at + l->owner, &owner)) {
		ret->why = unreadable;
		return;
	}
	if (!locked) {
		ret->is_free = true;
		return;
	}
	ret->thread = thread_of(ruby, index, owner);
	if (ret->thread == index->count)
		ret->why = "its owner word does not mean a living thread";
	else if (l->kind == SCRY_RUBY_OWNER_FIBER)
		ret->is_other_fiber = owner + l->fiber_ec != index->threads[ret->thread].ec;
	else
		ret->is_any_fiber = true;
}

static bool is_mutex(const struct scry_ruby *ruby, uint64_t value)
{
	uint64_t class;
	char name[32];

	if (!is_data(ruby, value) || scry_mem_u64(&ruby->mem, value + SCRY_RUBY_CLASS, &class) ||
	    scry_ruby_class_name(ruby, class, name, sizeof(name)))
		return false;
	return !strcmp(name, "Thread::Mutex") || !strcmp(name, "Mutex");
}

int scry_ruby_monitor_mutex(const struct scry_ruby *ruby, uint64_t monitor, uint64_t *ret)
{
	const uint32_t data = ruby->layout.locks.data;
	uint64_t words[MONITOR_WORDS], at, found = 0;

	if (!is_data(ruby, monitor) || !data || scry_mem_u64(&ruby->mem, monitor + data, &at))
		return -ENOENT;
	/* its struct, or what follows its head in its slot */
	for (int is_embedded = 0; is_embedded < 2 && !found; is_embedded++) {
		if (is_embedded)
			at = monitor + data;
		if (scry_mem_read(&ruby->mem, at, words, sizeof(words)))
			continue;
		for (size_t i = 0; i < MONITOR_WORDS; i++) {
			if (!is_mutex(ruby, words[i]))
				continue;
			if (found)
				return -ENOENT;
			found = words[i];
		}
	}
	if (!found)
		return -ENOENT;
	*ret = found;
	return 0;
}

size_t scry_ruby_thread_name(const struct scry_ruby *ruby, const struct scry_ruby_thread *t,
			     char *buf, size_t size)
{
	uint64_t name;
	ssize_t length;

	buf[0] = '\0';
	if (!ruby->layout.locks.th_name ||
	    scry_mem_u64(&ruby->mem, t->th + ruby->layout.locks.th_name, &name))
		return 0;
	length = scry_ruby_string(ruby, name, buf, size);
	return length > 0 ? (size_t)length : 0;
}
