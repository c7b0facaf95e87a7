/* See source.h. */
#include "replan/source.h"

#include "rec/sections.h"

#include <errno.h>
#include <string.h>

static int begin(struct scry_malloc_source *s)
{
	struct scry_malloc_recording *r = (struct scry_malloc_recording *)s;
	int err = 0;

	if (r->reader != r->first)
		scry_reader_close(r->reader);
	if (!r->is_read) { /* a pass that was cut short says too little */
		scry_reader_close(r->first);
		r->first = NULL;
	}
	r->reader = NULL;
	if (!r->is_chosen)
		err = scry_malloc_part_choose(r->fd, r->part.pid, &r->part);
	r->is_chosen = true;
	err = err && err != -ENOENT ? err : scry_sections_open(r->fd, "malloc", &r->reader);
	scry_malloc_part_rewind(&r->part);
	if (err || r->is_read)
		return err;
	r->first = r->reader;
	r->other_calls = r->cpu_ns = r->rss_anon_peak = r->rss_anon_most = 0;
	r->look_count = 0;
	r->has_memory = false;
	scry_data_quality_init(&r->quality, r->reader);
	return 0;
}

/* Calls are written late, looks at once: what a look saw is given when the calls before it were. */
static void report_looks(struct scry_malloc_recording *r, uint64_t until_ns)
{
	uint32_t reported = 0;

	for (; reported < r->look_count && r->looks[reported].time_ns <= until_ns; reported++) {
		r->source.rss_anon = r->looks[reported].rss_anon;
		r->source.rss_count++;
	}
	r->look_count -= reported;
	if (reported)
		memmove(r->looks, r->looks + reported, r->look_count * sizeof(r->looks[0]));
}

static void keep_look(struct scry_malloc_recording *r, uint64_t time_ns, uint64_t rss_anon)
{
	if (r->look_count == SCRY_MALLOC_LOOKS) { /* every other goes */
		r->look_count /= 2;
		for (uint32_t i = 0; i < r->look_count; i++)
			r->looks[i] = r->looks[i * 2 + 1];
	}
	r->looks[r->look_count++] = (struct scry_malloc_recording_look){time_ns, rss_anon};
}

static void on_memory(struct scry_malloc_recording *r, uint64_t time_ns,
		      const struct scry_ev_memory *m)
{
	uint64_t cpu_ns = m->user_ns + m->system_ns, other = m->rss_file + m->rss_shmem,
		 most = m->rss_peak > other ? m->rss_peak - other : 0;

	if (!r->has_memory)
		r->cpu_first_ns = cpu_ns;
	r->has_memory = true;
	r->cpu_ns = cpu_ns - r->cpu_first_ns;
	keep_look(r, time_ns, m->rss_anon);
	if (m->rss_anon > r->rss_anon_peak)
		r->rss_anon_peak = m->rss_anon;
	if (r->rss_anon_most < r->rss_anon_peak)
		r->rss_anon_most = r->rss_anon_peak;
	if (r->rss_anon_most < most)
		r->rss_anon_most = most;
}

static void on_allocator(struct scry_malloc_recording *r, const struct scry_ev_allocator *a)
{
	r->allocator_str = a->name_str;
	r->allocator_module_str = a->module_str;
}

/* What the first pass learns. */
static void infer(struct scry_malloc_recording *r, const struct scry_event *event)
{
	const struct scry_ev_thread *thread = (const void *)(event + 1);
	const struct scry_ev_memory *memory = (const void *)(event + 1);
	const struct scry_ev_allocator *allocator = (const void *)(event + 1);

	scry_data_quality_event(&r->quality, event);
	if (event->type == SCRY_EVENT_THREAD) {
		if (scry_malloc_part_has(&r->part, event, thread->pid) &&
		    thread->tid == thread->pid)
			r->source.main_thread = thread->thread;
	} else if (event->type == SCRY_EVENT_MEMORY) {
		if (scry_malloc_part_has(&r->part, event, memory->pid))
			on_memory(r, event->time_ns, memory);
	} else if (event->type == SCRY_EVENT_ALLOCATOR) {
		if (scry_malloc_part_has(&r->part, event, allocator->pid))
			on_allocator(r, allocator);
	}
}

static int next(struct scry_malloc_source *s, const struct scry_ev_malloc **ret_call)
{
	struct scry_malloc_recording *r = (struct scry_malloc_recording *)s;
	const struct scry_event *event;
	int got;

	while ((got = scry_reader_next(r->reader, &event)) > 0) {
		const struct scry_ev_malloc *call = (const void *)(event + 1);

		if (event->type != SCRY_EVENT_MALLOC) {
			if (!r->is_read)
				infer(r, event);
			if (event->type == SCRY_EVENT_DETACH)
				scry_malloc_part_has(&r->part, event, 0);
			continue;
		}
		if (scry_malloc_part_has(&r->part, event, call->pid)) {
			s->time_ns = event->time_ns;
			report_looks(r, s->time_ns);
			*ret_call = call;
			return 1;
		}
		r->other_calls += !r->is_read;
	}
	if (got == 0 && !r->is_read) {
		report_looks(r, UINT64_MAX);
		scry_data_quality_close(&r->quality);
		if (!r->cpu_ns && r->quality.process_count <= 1) /* too short for two looks */
			r->cpu_ns = r->quality.target_cpu_ns;
		r->is_read = true;
		s->cpu_ns = r->cpu_ns;
	}
	return got;
}

void scry_malloc_recording_init(struct scry_malloc_recording *r, int fd, uint32_t pid)
{
	memset(r, 0, sizeof(*r));
	r->source = (struct scry_malloc_source){.rewind = begin, .next = next};
	r->fd = fd;
	r->part.pid = pid;
}

void scry_malloc_recording_done(struct scry_malloc_recording *r)
{
	if (r->reader != r->first)
		scry_reader_close(r->reader);
	scry_reader_close(r->first);
	r->reader = r->first = NULL;
}
