/* See group.h. */
#include "watch/group.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/maps.h"

#define PURPOSE_MAX 15 /* of the control page */

/* What holds for all instruments of a session. One keeper, one session. */
static struct {
	const struct scry_session *session;
	struct scry_instrument all;
	char names[64];
} group;

/* Bits of sections. */
static uint32_t wanting(pid_t pid, const struct scry_maps *maps)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < group.session->section_count; i++) {
		const struct scry_instrument *in = group.session->sections[i].instrument;

		if (!in->wants || in->wants(pid, maps))
			bits |= 1u << i;
	}
	return bits;
}

static bool wants_all(pid_t pid, const struct scry_maps *maps)
{
	return wanting(pid, maps) == (1u << group.session->section_count) - 1;
}

/* With -f, as each would alone. */
static bool wants_any(pid_t pid, const struct scry_maps *maps)
{
	return wanting(pid, maps) != 0;
}

static void combine(struct scry_session *s)
{
	bool can_follow = true;
	size_t n = 0;

	group.session = s;
	group.all = (struct scry_instrument){.follows_exec = !s->opts->follow};
	for (uint32_t i = 0; i < s->section_count; i++) {
		const struct scry_instrument *in = s->sections[i].instrument;

		n += (size_t)snprintf(group.names + n, sizeof(group.names) - n, "%s%s",
				      i ? "," : "", in->name);
		n = n < sizeof(group.names) ? n : sizeof(group.names) - 1;
		if (s->opts->follow)
			group.all.follows_exec |= in->follows_exec;
		else
			group.all.follows_exec &= in->follows_exec;
		group.all.waits |= in->waits;
		can_follow &= in->adopt != NULL;
		if (in->wants) {
			group.all.wants = s->opts->follow ? wants_any : wants_all;
			group.all.wanted = in->wanted;
			group.all.unseen = in->unseen;
		}
	}
	if (can_follow) /* that it is there is all that is asked */
		group.all.adopt = s->sections[0].instrument->adopt;
	group.all.name = n <= PURPOSE_MAX ? group.names : "record";
	s->instrument = &group.all;
}

int scry_group_open(struct scry_session *s)
{
	const struct scry_watch_opts *opts = s->opts;
	int r = 0;

	s->section_count = (uint32_t)opts->also_count + 1;
	for (uint32_t i = 0; i < s->section_count && r == 0; i++) {
		struct scry_section *section = &s->sections[i];

		section->opts = *opts;
		section->instrument = i ? opts->also[i - 1].instrument : s->instrument;
		section->writer = s->writer;
		scry_map_init(&section->images, 1u << 20);
		if (!i)
			continue;
		section->opts.instrument_opts = opts->also[i - 1].opts;
		r = scry_writer_section(s->writer, i, &section->writer);
	}
	if (s->section_count > 1)
		combine(s);
	return r;
}

/* Of each section; where there are several, so that a reader finds them at the beginning. */
static void write_session(struct scry_session *s, uint32_t section)
{
	struct scry_watch speaker = {.session = s, .writer = s->sections[section].writer};
	struct scry_ev_session ev = {0};
	struct utsname un;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	uname(&un);
	ev.instrument_str = scry_watch_string(&speaker, s->sections[section].instrument->name);
	ev.command_str = scry_watch_string(&speaker, s->opts->command_line);
	ev.version_str = scry_watch_string(&speaker, SCRY_VERSION);
	ev.host_str = scry_watch_string(&speaker, un.nodename);
	ev.wall_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	scry_watch_event(&speaker, SCRY_EVENT_SESSION, &ev, sizeof(ev));
	if (s->section_count > 1)
		scry_writer_flush(speaker.writer);
}

void scry_group_begin(struct scry_session *s)
{
	for (uint32_t i = 0; i < s->section_count; i++)
		write_session(s, i);
}

void scry_group_close(struct scry_session *s)
{
	for (uint32_t i = 1; i < s->section_count; i++)
		if (scry_writer_close(s->sections[i].writer) < 0)
			scry_send_news(s, SCRY_NEWS_SAY, 0, scry_error());
}

struct scry_watch *scry_group_at(struct scry_watch *first, size_t i)
{
	return !i ? first : i <= first->other_count ? first->others[i - 1] : NULL;
}

struct scry_watch *scry_group_first(struct scry_watch *w)
{
	return w->first ? w->first : w;
}

size_t scry_group_count(const struct scry_watch *first)
{
	return first->other_count + 1;
}

bool scry_group_goes_on(struct scry_watch *w)
{
	struct scry_watch *first = scry_group_first(w), *other;
	bool goes_on = false;

	for (size_t i = 0; (other = scry_group_at(first, i)); i++)
		goes_on |= other != w && !other->is_over;
	return goes_on;
}

static void set_section(struct scry_watch *w, uint32_t section)
{
	const struct scry_section *s = &w->session->sections[section];

	w->opts = &s->opts;
	w->instrument = s->instrument;
	w->writer = s->writer;
	w->section = section;
}

static void share_process(struct scry_watch *w)
{
	w->proc = w->first->proc;
	w->proc.pidfd = fcntl(w->first->proc.pidfd, F_DUPFD_CLOEXEC, 0);
}

static struct scry_watch *add(struct scry_watch *first, uint32_t section)
{
	struct scry_watch *w = scry_watch_new(first->session);

	if (!w)
		return NULL;
	set_section(w, section);
	w->first = first;
	w->inj = first->inj;
	w->is_caught = first->is_caught;
	first->others[first->other_count++] = w;
	return w;
}

/* Each process that is named by -p is asked for: one that cannot watch it says so. */
static uint32_t wanting_process(const struct scry_watch *w)
{
	uint32_t bits = (1u << w->session->section_count) - 1;
	struct scry_maps maps;

	if (!w->opts->follow || scry_watch_is_asked_for(w) ||
	    scry_maps_read(w->proc.pid, &maps) < 0)
		return bits;
	bits = wanting(w->proc.pid, &maps);
	scry_maps_done(&maps);
	return bits;
}

int scry_group_form(struct scry_watch *first)
{
	struct scry_session *s = first->session;
	const uint32_t bits = s->section_count > 1 ? wanting_process(first) : 1;
	bool is_first = true;

	for (uint32_t i = 0; i < s->section_count; i++) {
		struct scry_watch *w;

		if (!(bits >> i & 1))
			continue;
		if (is_first) {
			set_section(first, i);
			is_first = false;
			continue;
		}
		w = add(first, i);
		if (!w)
			return -ENOMEM;
		share_process(w);
	}
	return is_first ? scry_fail(-ENOENT, "process %d runs what no instrument wants",
				    first->proc.pid)
			: 0;
}

int scry_group_prepare(struct scry_watch *first)
{
	struct scry_watch *w;
	int r = 0;

	for (size_t i = 0; (w = scry_group_at(first, i)) && r == 0; i++) {
		w->held = first->held;
		r = w->instrument->prepare(w);
		if (!first->near)
			first->near = w->near;
		first->inj->parts |= w->instrument->parts;
	}
	return r;
}

static struct scry_channel channel_in(const struct scry_watch *w, const struct scry_pool *pool,
				      uint32_t child_buffer)
{
	struct scry_control *c = scry_pool_control(pool, child_buffer);

	return (struct scry_channel){.number = w->instrument->channel,
				     .address = pool->address + SCRY_PAGE +
						child_buffer * (uint64_t)SCRY_CHILD_BUFFER_BYTES,
				     .control = c,
				     .ring = (uint64_t *)c + SCRY_SHARED_HEAD / 8};
}

/* What a fork child is to know: how far from its child buffer the others' lie. Whose handlers use
 * the ring of the state page (objects) is the first one. */
static void say_distance(const struct scry_watch *w, struct scry_pool *pool, uint32_t number)
{
	const uint64_t bytes = scry_pool_child_buffer(pool, 0, number) * SCRY_CHILD_BUFFER_BYTES;

	if (w->instrument->has_table)
		pool->table_at = bytes;
	else
		pool->channel_at[w->instrument->channel] = bytes;
}

/* A child buffer for each but the first. Where children are followed they have such, too; else
 * no process knows of the pool. */
int scry_group_get_pages(struct scry_watch *first)
{
	struct scry_pool *pool = first->pool.head ? &first->pool : &first->pages;
	struct scry_watch *w;
	int r = 0;

	if (!first->other_count)
		return 0;
	first->inj->is_shared = true;
	if (!pool->head)
		r = scry_pool_open(pool, first->inj, first->held);
	if (r == 0)
		scry_pool_share(pool, (uint32_t)scry_group_count(first));
	for (uint32_t i = 1; r == 0 && (w = scry_group_at(first, i)); i++) {
		w->channel = channel_in(w, pool, scry_pool_child_buffer(pool, 0, i));
		w->watch = first->watch;
		say_distance(w, pool, i);
	}
	return r;
}

int scry_group_adopt(struct scry_watch *w)
{
	struct scry_watch *root = w->root, *one;
	int r = 0;

	set_section(w, root->section);
	w->channel = scry_channel_own(w->inj, w->instrument->channel);
	for (uint32_t i = 1; r == 0 && i < scry_group_count(root); i++) {
		one = add(w, scry_group_at(root, i)->section);
		if (!one)
			return -ENOMEM;
		one->root = scry_group_at(root, i);
		one->child_buffer = scry_pool_child_buffer(&root->pool, w->child_buffer, i);
		one->watch = w->watch;
		one->began_ns = w->began_ns;
		one->channel = channel_in(one, &root->pool, one->child_buffer);
	}
	for (size_t i = 0; r == 0 && (one = scry_group_at(w, i)); i++) {
		one->is_put_in = true;
		r = one->instrument->adopt(one);
	}
	return r;
}

void scry_group_identified(struct scry_watch *w)
{
	struct scry_watch *one;

	for (size_t i = 0; (one = scry_group_at(w, i)); i++) {
		if (one != w)
			share_process(one);
		one->instrument->identified(one);
	}
}

/* In the section of `w`: what others of its process change of what it measures. */
static void note_beside(struct scry_watch *w, const struct scry_watch *other)
{
	for (uint32_t i = 0; i < SCRY_MEASURES; i++)
		if (w->instrument->measures >> i & 1 && other->instrument->beside[i])
			scry_watch_note(w, "%s", other->instrument->beside[i]);
}

static void note_all_beside(struct scry_watch *first)
{
	struct scry_watch *w, *other;

	for (size_t i = 0; (w = scry_group_at(first, i)); i++)
		for (size_t k = 0; (other = scry_group_at(first, k)); k++)
			if (k != i)
				note_beside(w, other);
}

int scry_group_enter(struct scry_watch *first)
{
	struct scry_watch *w;
	int r = 0;

	for (size_t i = 0; r == 0 && (w = scry_group_at(first, i)); i++) {
		w->began_ns = scry_now_ns();
		w->cpu_began_ns = first->cpu_began_ns;
		scry_group_drain_others(w);
		w->is_put_in = true;
		scry_group_turn_to(w);
		r = w->instrument->enter(w);
	}
	if (r == 0)
		note_all_beside(first);
	return r;
}

void scry_group_turn_to(struct scry_watch *w)
{
	w->inj->edit.set = (uint8_t)w->section;
}

void scry_group_drain_others(struct scry_watch *w)
{
	struct scry_watch *first = scry_group_first(w), *other;

	if (!first->other_count)
		return;
	scry_session_lease(w->session, SCRY_LEASE_NS);
	for (size_t i = 0; (other = scry_group_at(first, i)); i++) {
		if (other == w || !other->is_put_in || other->is_over)
			continue;
		scry_group_turn_to(other);
		if (other->instrument->drain(other) < 0) /* its next turn says so again */
			scry_error_clear();
	}
	scry_group_turn_to(w);
}

void scry_group_leave_one(struct scry_watch *w)
{
	scry_group_turn_to(w);
	w->instrument->leave(w);
	w->is_put_in = false;
}

void scry_group_leave(struct scry_watch *first)
{
	for (size_t i = scry_group_count(first); i-- > 0;) {
		struct scry_watch *w = scry_group_at(first, i);

		if (w->is_put_in)
			scry_group_leave_one(w);
	}
}
