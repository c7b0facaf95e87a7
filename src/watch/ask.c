/* See ask.h. */
#include "watch/ask.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "watch/session.h"

#define VAIN_NS 1000000000ull
#define VAIN_SHARE 10 /* of the time that passes */

static void put_news(const struct scry_watch *w, enum scry_news kind, const char *fmt, va_list args)
{
	char text[2048];

	if (!w->session)
		return;
	vsnprintf(text, sizeof(text), fmt, args);
	scry_send_news(w->session, kind, 0, text);
}

void scry_watch_say(const struct scry_watch *w, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	put_news(w, SCRY_NEWS_SAY, fmt, args);
	va_end(args);
}

void scry_watch_detail(const struct scry_watch *w, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	put_news(w, SCRY_NEWS_DETAIL, fmt, args);
	va_end(args);
}

void scry_watch_event(struct scry_watch *w, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(w->writer, &(struct scry_event){.time_ns = scry_now_ns(), .type = type},
			    payload, size);
}

uint32_t scry_watch_string(struct scry_watch *w, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(w->writer, text, strlen(text), &id);
	return id;
}

uint64_t scry_watch_recorded(const struct scry_watch *w)
{
	struct stat st;

	return fstat(w->session->rec_fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

uint32_t scry_watch_part(struct scry_watch *w, uint32_t pid)
{
	uint32_t n = scry_watch_next_part(w, pid);

	scry_map_put(&w->session->sections[w->section].images, pid, n + 1ull);
	return n;
}

uint32_t scry_watch_next_part(const struct scry_watch *w, uint32_t pid)
{
	uint64_t n = 0;

	if (w->session)
		scry_map_get(&w->session->sections[w->section].images, pid, &n);
	return (uint32_t)n;
}

void scry_watch_came_late(struct scry_watch *w)
{
	if (w->session)
		w->session->late++;
}

bool scry_watch_is_late(const struct scry_watch *w)
{
	const bool is_new = w->image || w->proc.start_ticks >= scry_proc_start_ticks(getpid());

	return w->is_caught || (!w->held && !scry_watch_is_asked_for(w) && is_new);
}

bool scry_watch_is_asked_for(const struct scry_watch *w)
{
	for (size_t i = 0; i < w->opts->pids.count; i++)
		if (w->opts->pids.values[i] == (uint64_t)w->proc.pid)
			return true;
	return false;
}

uint64_t scry_watch_gap_ns(const struct scry_watch *w)
{
	return scry_heartbeat_gap_ns(w->session->heartbeat);
}

const struct scry_pool *scry_watch_pool(const struct scry_watch *w)
{
	const struct scry_watch *first = w->first ? w->first : w;

	return first->pool.head ? &first->pool : NULL;
}

struct scry_watch *scry_watch_beside(const struct scry_watch *w, size_t i)
{
	const struct scry_session *s = w->session;

	for (size_t k = 0; s && k < s->count; k++)
		if (s->watches[k]->instrument == w->instrument && i-- == 0)
			return s->watches[k];
	return NULL;
}

void scry_watch_end_other(struct scry_watch *other, const char *why)
{
	other->target_gone = true;
	scry_watch_end(other, why);
}

uint64_t scry_watch_patience_ns(const struct scry_watch *w)
{
	struct scry_session *s = w->session;
	uint64_t now = scry_now_ns(), over;

	if (!s)
		return VAIN_NS;
	over = (now - s->vain_at_ns) / VAIN_SHARE;
	s->vain_ns = s->vain_ns > over ? s->vain_ns - over : 0;
	s->vain_at_ns = now;
	return s->vain_ns < VAIN_NS ? VAIN_NS - s->vain_ns : 0;
}

void scry_watch_waited_in_vain(const struct scry_watch *w, uint64_t ns)
{
	if (w->session)
		w->session->vain_ns += ns;
}

void scry_watch_take_up_child_buffers(const struct scry_watch *w)
{
	scry_follow_child_buffers(w->session);
}

void scry_watch_let_others_on(const struct scry_watch *w)
{
	if (w->session)
		scry_spawns_pass(&w->session->spawns);
}

void scry_watch_untrace(struct scry_watch *w)
{
	scry_spawns_pause(&w->session->spawns, w->proc.pid);
}

/* An exec that was not seen is found as that of any other. */
void scry_watch_trace_again(struct scry_watch *w)
{
	if (scry_spawns_resume(&w->session->spawns, w->proc.pid) && scry_watch_has_execed(w))
		scry_spawns_drop(&w->session->spawns, w->proc.pid);
}
