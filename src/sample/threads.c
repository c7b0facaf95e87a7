/*
 * See threads.h.
 *
 * A name is a frozen String: it has changed when the word that means it has, and the words of all
 * threads are one read. A thread without one has its task's name, a file of /proc: that is read
 * again after 20 ms, then each time after twice as long, up to a second.
 */
#include "sample/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vm/ruby_locks.h"
#include "vm/ruby_value.h"

#define NAMES_NS 20000000u
#define TASK_NAME_MAX_NS 1000000000u
#define WORDS 64u /* read at once */

/* Writes a THREAD event if its name or its task is not as it was written last. A name that cannot
 * be read any more stays as it was. */
static void emit_thread(struct scry_samples *s, struct scry_samples_thread *t)
{
	struct scry_ev_thread ev = {
		.thread = t->number, .pid = (uint32_t)s->ruby->pid, .tid = (uint32_t)t->tid};
	char name[256];

	if (!scry_ruby_thread_name(s->ruby, &t->ruby, name, sizeof(name)))
		scry_task_name(s->ruby->pid, t->ruby.tid, name, sizeof(name));
	if (name[0])
		scry_writer_string(s->writer, name, strlen(name), &ev.name_str);
	else
		ev.name_str = t->name_str;
	if (t->is_named && ev.name_str == t->name_str && ev.tid == t->named_tid)
		return;
	t->is_named = true;
	t->name_str = ev.name_str;
	t->named_tid = ev.tid;
	scry_writer_payload(s->writer, &(struct scry_event){.type = SCRY_EVENT_THREAD}, &ev,
			    sizeof(ev));
}

/* --- the list --------------------------------------------------------------------------------- */

/* Ruby 3.3 and later give a thread its task when it begins, and take it back at its end: until
 * then, and from then on, it has none. With another one it is another thread, at the same place. */
static struct scry_samples_thread *find_thread(struct scry_samples *s,
					       const struct scry_ruby_thread *ruby)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct scry_samples_thread *t = &s->threads[i];

		if (t->ruby.th == ruby->th && (!ruby->tid || !t->tid || t->tid == ruby->tid))
			return &s->threads[i];
	}
	return NULL;
}

static int make_room(struct scry_samples *s)
{
	size_t room = s->room ? 2 * s->room : 16;
	struct scry_samples_thread *threads = reallocarray(s->threads, room, sizeof(*threads));
	struct scry_ruby_thread *list;
	bool *waits;

	if (!threads)
		return -ENOMEM;
	s->threads = threads;
	list = reallocarray(s->list, room, sizeof(*list));
	if (!list)
		return -ENOMEM;
	s->list = list;
	waits = reallocarray(s->waits, room, sizeof(*waits));
	if (!waits)
		return -ENOMEM;
	s->waits = waits;
	s->room = room;
	return 0;
}

static void open_task(struct scry_samples *s, struct scry_samples_thread *t)
{
	t->tid = t->ruby.tid ? t->ruby.tid : t->tid;
	scry_task_open(&t->task, s->ruby->pid, t->ruby.tid);
	if (!s->pause &&
	    t->ruby.tid) /* held, the hold says which threads have run; 0 would be scry itself */
		scry_task_watch(&t->task);
	scry_task_read(&t->task, &t->now);
}

static int add_thread(struct scry_samples *s, const struct scry_ruby_thread *ruby)
{
	struct scry_samples_thread *t;

	if (s->count == s->room && make_room(s))
		return -ENOMEM;
	t = &s->threads[s->count++];
	*t = (struct scry_samples_thread){.ruby = *ruby, .number = ++s->numbers, .is_here = true};
	open_task(s, t);
	emit_thread(s, t);
	return scry_samples_cpu_hit(&s->cpu, ruby->tid, &t->now);
}

/* It is still in the list; its task may be another. */
static void keep_thread(struct scry_samples *s, struct scry_samples_thread *t, pid_t tid)
{
	t->is_here = true;
	if (t->ruby.tid == tid)
		return;
	if (t->ruby.tid)
		scry_samples_cpu_leave(&s->cpu, t->number, t->ruby.tid);
	scry_task_close(&t->task);
	t->ruby.tid = tid;
	t->has_last = t->is_given = false;
	t->owed_ns = 0;
	open_task(s, t);
	scry_samples_cpu_task(&s->cpu, t->number, tid, &t->now);
	emit_thread(s, t);
}

int scry_samples_list_threads(struct scry_samples *s, bool anew)
{
	struct scry_ruby_thread *list = NULL;
	size_t kept = 0;
	ssize_t n;
	int err = 0;

	if (!anew && scry_ruby_threads_stand(s->ruby, s->listed, s->listed_count)) {
		s->listed_ns = scry_now_ns();
		return 0;
	}
	n = scry_ruby_threads(s->ruby, &list);
	if (n < 0)
		return n == -ENOTSUP || n == -EAGAIN ? 0 : (int)n;
	for (size_t i = 0; i < s->count; i++)
		s->threads[i].is_here = false;
	for (ssize_t i = 0; i < n && !err; i++) {
		struct scry_samples_thread *t = find_thread(s, &list[i]);

		if (t)
			keep_thread(s, t, list[i].tid);
		else
			err = add_thread(s, &list[i]);
	}
	for (size_t i = 0; i < s->count; i++) {
		if (s->threads[i].is_here) {
			s->threads[kept++] = s->threads[i];
			continue;
		}
		scry_samples_cpu_leave(&s->cpu, s->threads[i].number, s->threads[i].ruby.tid);
		scry_task_close(&s->threads[i].task);
	}
	s->count = kept;
	s->cpu.has_begun = true;
	s->listed_ns = scry_now_ns();
	s->listings++;
	free(s->listed);
	s->listed = list;
	s->listed_count = (size_t)n;
	return err;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Whether its task's name is to be read again. */
static bool is_due(struct scry_samples_thread *t, uint64_t now_ns)
{
	if (now_ns < t->name_due_ns)
		return false;
	t->name_ns = t->name_ns ? 2 * t->name_ns : NAMES_NS;
	if (t->name_ns > TASK_NAME_MAX_NS)
		t->name_ns = TASK_NAME_MAX_NS;
	t->name_due_ns = now_ns + t->name_ns;
	return true;
}

static void look_at(struct scry_samples *s, struct scry_samples_thread *t, uint64_t now_ns,
		    uint64_t word)
{
	bool has_name = word >= SCRY_RUBY_NIL_MAX;

	if (has_name ? word == t->name : !is_due(t, now_ns))
		return;
	t->name = has_name ? word : 0;
	emit_thread(s, t);
}

void scry_samples_names(struct scry_samples *s, uint64_t now_ns)
{
	const uint32_t at = s->ruby->layout.locks.th_name;

	if (now_ns - s->named_ns < NAMES_NS)
		return;
	s->named_ns = now_ns;
	for (size_t from = 0; from < s->count; from += WORDS) {
		size_t count = s->count - from < WORDS ? s->count - from : WORDS;
		struct scry_mem_span spans[WORDS];
		uint64_t words[WORDS] = {0};

		for (size_t i = 0; i < count; i++)
			spans[i] = (struct scry_mem_span){s->threads[from + i].ruby.th + at,
							  &words[i], 8, false};
		if (at)
			scry_mem_gather(&s->ruby->mem, spans, count);
		for (size_t i = 0; i < count; i++)
			look_at(s, &s->threads[from + i], now_ns, at && spans[i].ok ? words[i] : 0);
	}
}
