/*
 * Where a Ruby keeps its lock, learned and rehearsed in a child of the same program.
 *
 * In the child four threads do nothing but give the lock and want it again. Looks at its ractor
 * then show, by their number: a ring that goes through threads at one offset, which is not that of
 * all threads: the queue. A word that is a thread, another one now and then, and none of that ring:
 * the owner. And beside it, before or behind, a mutex that is locked by one of the process's
 * threads now and then, and otherwise free. All three have to be unique, else this Ruby is refused.
 *
 * Looks are torn: the VM goes on while they are taken. So a rule has to hold for most of them.
 *
 * Then the agent counts there what the threads do, with the hooks that a live target gets, and the
 * table has to hold together; the child forks, goes on when scry has left, and ends well.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "hook/agent_source.h"
#include "instrument/gvl/gvl.h"
#include "instrument/gvl_learn_script.h" /* made by meson from learn.rb */
#include "instrument/instruments.h"
#include "vm/ruby_calib.h"
#include "vm/ruby_gvl.h"
#include "watch/ask.h"

#define RACTOR_BYTES 2048u
#define WORDS (RACTOR_BYTES / 8)
#define LOOKS 1500u	  /* that differ: a child without a processor does not run */
#define LOOKS_WAITED 400u /* of them with a thread in the queue */
#define LOOKS_LEAST 100u
#define LOOKS_MORE 50u
#define SAME 16u	/* looks that show nothing new, and the looker makes room for others */
#define CONTEND_MS 600u /* in the first try; each later one has as much more */
#define SLEEP_MS 250u	/* before they do: infer.rb */
#define MUTEX_BYTES 40u /* glibc's pthread_mutex_t: lock, count, owner, users, kind, ... */
#define PAUSE_NS 1000000000ull
#define TAKES_LEAST 20u
#define TRIES 5
#define PASSES 5u /* looks that show the same function of Thread.pass */
#define DEFINITION_BYTES 64u

struct ring {
	uint32_t head, node;
	uint32_t looks;
};

struct stage {
	struct scry_ruby *child;
	struct scry_calib_talk talk;
	struct scry_proc proc;
	struct scry_ruby_thread *threads;
	size_t count;
	uint64_t words[WORDS], before[WORDS];
	struct ring rings[32];
	size_t ring_count;
	uint32_t looks, waited; /* waited: looks with a thread in the ring */
	/* by word of the ractor */
	uint32_t fits[WORDS], in_ring[WORDS], changes[WORDS];
	uint64_t last[WORDS];
	uint32_t mutex_fits[WORDS], mutex_locked[WORDS];
	struct scry_maps maps;
	uint64_t pass; /* the function of Thread.pass, where that was seen last */
	uint32_t pass_at, passes;
	uint32_t contend_ms;
	bool is_hopeless; /* what failed fails again: this Ruby cannot be hooked */
};

/* Does the ring that begins in word `j` go through threads at one offset, back to where it began?
 * Its members, as bits. */
static bool walk(const struct stage *s, size_t j, uint32_t *ret_node, uint64_t *ret_members)
{
	uint64_t head = s->threads[0].ractor + 8 * j, back = head, node = s->words[j], at, links[2];
	uint64_t members = 0;

	for (size_t steps = 0; node != head; steps++) {
		size_t i = scry_ruby_gvl_thread_of(s->threads, s->count, node, &at);

		if (i == s->count || steps > s->count || at == s->child->layout.th_node ||
		    (steps && at != *ret_node) ||
		    scry_mem_read(&s->child->mem, node, links, sizeof(links)) || links[1] != back)
			return false;
		*ret_node = (uint32_t)at;
		members |= 1ull << i;
		back = node;
		node = links[0];
	}
	*ret_members = members;
	return members != 0;
}

static void note_ring(struct stage *s, uint32_t head, uint32_t node)
{
	for (size_t i = 0; i < s->ring_count; i++)
		if (s->rings[i].head == head && s->rings[i].node == node) {
			s->rings[i].looks++;
			return;
		}
	if (s->ring_count < sizeof(s->rings) / sizeof(s->rings[0]))
		s->rings[s->ring_count++] = (struct ring){head, node, 1};
}

/* As glibc has it, bits/struct_mutex.h: free, or locked by a thread of this process. */
static bool is_mutex(const struct stage *s, size_t j, bool *ret_locked)
{
	const uint32_t *m = (const uint32_t *)&s->words[j];
	bool is_ours = m[2] == 0;

	if (j + MUTEX_BYTES / 8 > WORDS || m[0] > 2 || m[1] > 0 || m[3] > 64 || m[4] != 0 ||
	    s->words[j + 3] || s->words[j + 4])
		return false;
	for (size_t i = 0; i < s->count && !is_ours; i++)
		is_ours = m[2] == s->threads[i].inner || m[2] == (uint32_t)s->threads[i].tid;
	*ret_locked = m[0] && m[2];
	return is_ours;
}

static void look_at_word(struct stage *s, size_t j, uint64_t members)
{
	uint64_t at, word = s->words[j];
	size_t i = word ? scry_ruby_gvl_thread_of(s->threads, s->count, word, &at) : s->count;
	bool is_locked = false;

	if (!word || (i < s->count && !at)) {
		s->fits[j]++;
		s->in_ring[j] += word && members >> i & 1;
		s->changes[j] += word && word != s->last[j];
		s->last[j] = word ? word : s->last[j];
	}
	s->mutex_fits[j] += is_mutex(s, j, &is_locked);
	s->mutex_locked[j] += is_locked;
}

static int look(struct stage *s)
{
	uint64_t members = 0, more;
	uint32_t node = 0;
	ssize_t got = scry_mem_read_some(&s->child->mem, s->threads[0].ractor, s->words,
					 sizeof(s->words));

	if (got < 0)
		return (int)got;
	memset((char *)s->words + got, 0, sizeof(s->words) - (size_t)got);
	if (!memcmp(s->words, s->before, sizeof(s->words)))
		return 0;
	memcpy(s->before, s->words, sizeof(s->words));
	for (size_t j = 0; j + 1 < WORDS; j++) {
		if (s->words[j] < 4096 || !walk(s, j, &node, &more))
			continue;
		note_ring(s, 8 * (uint32_t)j, node);
		members |= more;
	}
	s->looks++;
	s->waited += members != 0;
	for (size_t j = 0; j < WORDS; j++)
		look_at_word(s, j, members);
	return 0;
}

/* Both know that `n` of `of` is nearly all. */
static bool is_most(uint32_t n, uint32_t of)
{
	return n >= of - of / 8;
}

static int no(struct scry_ruby_gvl *g, const char *why)
{
	snprintf(g->why, sizeof(g->why), "%s", why);
	return -ENOTSUP;
}

static bool is_owner(const struct stage *s, size_t j)
{
	return is_most(s->fits[j], s->looks) && s->in_ring[j] <= s->waited / 4 &&
	       s->changes[j] >= TAKES_LEAST;
}

static bool is_its_mutex(const struct stage *s, size_t j)
{
	return j < WORDS && is_most(s->mutex_fits[j], s->looks) && s->mutex_locked[j] >= 3;
}

/* Mutex and owner, each beside the other. */
static int judge_owner(const struct stage *s, struct scry_ruby_gvl *g)
{
	size_t found = 0;

	for (size_t j = 0; j < WORDS; j++) {
		if (!is_owner(s, j))
			continue;
		if (is_its_mutex(s, j + 1)) {
			g->owner = 8 * (uint32_t)j;
			g->mutex = g->owner + 8;
			g->hands_over = false;
			found++;
		}
		if (j >= MUTEX_BYTES / 8 && is_its_mutex(s, j - MUTEX_BYTES / 8)) {
			g->owner = 8 * (uint32_t)j;
			g->mutex = g->owner - MUTEX_BYTES;
			g->hands_over = true;
			found++;
		}
	}
	if (!found)
		return no(g, "no word beside a mutex says which thread has the lock");
	return found == 1 ? 0 : no(g, "several words may say which thread has the lock");
}

static int judge(const struct stage *s, struct scry_ruby_gvl *g)
{
	const struct ring *best = NULL;
	size_t rivals = 0;

	for (size_t i = 0; i < s->ring_count; i++)
		if (!best || s->rings[i].looks > best->looks)
			best = &s->rings[i];
	for (size_t i = 0; i < s->ring_count; i++)
		rivals += &s->rings[i] != best && s->rings[i].looks > best->looks / 8;
	if (!best || s->waited < LOOKS_LEAST)
		return no(g, "threads that want the lock were not seen in a queue");
	if (rivals)
		return no(g, "several rings may be the queue of threads that want the lock");
	g->queue = best->head;
	g->node = best->node;
	return judge_owner(s, g);
}

static int ask(struct stage *s, const char *line)
{
	struct scry_calib answer;
	const struct scry_fact *f;
	int r = scry_calib_ask(&s->talk, line, &answer);

	if (r < 0)
		return r;
	f = scry_fact_next(&answer, NULL, "status");
	if (f && scry_fact_number(f, 1) != 0)
		r = scry_fail(-EPROTO, "a fork child ended with status %ld",
			      scry_fact_number(f, 1));
	scry_calib_stop(&answer);
	return r;
}

static int contend(struct stage *s)
{
	char line[32];

	snprintf(line, sizeof(line), "contend %u\n", s->contend_ms);
	return ask(s, line);
}

static void wait_ms(uint64_t ms)
{
	nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000),
				     .tv_nsec = (long)(ms % 1000) * 1000000},
		  NULL);
}

/* The function in C of method entry's definition: the first pointer to code in it. */
static bool read_function(const struct stage *s, uint64_t def, uint64_t *ret, uint32_t *ret_at)
{
	uint64_t words[DEFINITION_BYTES / 8];
	const struct scry_map_entry *code;

	if (scry_mem_read(&s->child->mem, def, words, sizeof(words)))
		return false;
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		code = scry_maps_at(&s->maps, words[i]);
		if (!code || !code->x)
			continue;
		*ret = words[i];
		*ret_at = 8 * i;
		return true;
	}
	return false;
}

/* A thread that wants the lock after Thread.pass is in that. */
static void look_for_pass(struct stage *s)
{
	const struct scry_ruby_layout *l = &s->child->layout;
	uint64_t ec, cfp, ep, me, def, function;
	char name[16];
	uint32_t at;

	for (size_t i = 0; i < s->count && l->frame_me && s->passes < PASSES; i++) {
		if (scry_mem_u64(&s->child->mem, s->threads[i].th + l->th_ec, &ec) ||
		    scry_mem_u64(&s->child->mem, ec + l->ec_cfp, &cfp) ||
		    scry_ruby_c_method(s->child, cfp, name, sizeof(name)) != 4 ||
		    memcmp(name, "pass", 4) ||
		    scry_mem_u64(&s->child->mem, cfp + l->frame_ep, &ep) ||
		    scry_mem_u64(&s->child->mem, ep - l->frame_me, &me) ||
		    scry_mem_u64(&s->child->mem, me + l->me_def, &def) ||
		    !read_function(s, def, &function, &at))
			continue;
		if (function != s->pass || at != s->pass_at)
			s->passes = 0;
		s->pass = function;
		s->pass_at = at;
		s->passes++;
	}
	scry_error_clear();
}

/* Few looks see a mutex locked: where it is not sure yet, more may show it. */
static bool is_enough(const struct stage *s, struct scry_ruby_gvl *g)
{
	return s->looks >= LOOKS && s->waited >= LOOKS_WAITED && s->looks % LOOKS_MORE == 0 &&
	       judge(s, g) == 0;
}

/* While they contend, and for no longer. */
static int infer(struct stage *s, struct scry_ruby_gvl *g)
{
	uint32_t same = 0;
	uint64_t end;
	ssize_t n;
	int r = contend(s);

	if (r < 0)
		return r;
	n = scry_ruby_threads(s->child, &s->threads);
	if (n < 4 || n > 64)
		return scry_fail(-ENOTSUP, "the child's threads are not found");
	s->count = (size_t)n;
	if (scry_maps_read(s->talk.pid, &s->maps) < 0)
		scry_error_clear();
	end = scry_now_ns() + (s->contend_ms + SLEEP_MS) * 1000000ull;
	while (!is_enough(s, g) && scry_now_ns() < end && r == 0) {
		const uint32_t looks = s->looks;

		r = look(s);
		look_for_pass(s);
		same = s->looks == looks ? same + 1 : 0;
		if (same % SAME == SAME - 1) /* it may want this very processor */
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	if (s->passes == PASSES) {
		g->pass = s->pass - s->child->bias;
		g->def_func = s->pass_at;
	}
	return r < 0 ? scry_fail(r, "the child is gone") : judge(s, g);
}

/* ---- the rehearsal ---- */

static int enter(struct stage *s, struct scry_watch *w)
{
	struct scry_ruby *ruby;
	int r = scry_ruby_like(s->child, &ruby);

	if (r == 0)
		r = scry_ruby_bind(ruby, s->talk.pid);
	if (r < 0)
		return r;
	ruby->layout.gvl = s->child->layout.gvl;
	ruby->bias = s->child->bias;
	snprintf(ruby->module, sizeof(ruby->module), "%s", s->child->module);
	r = scry_gvl_prepare(w, ruby);
	if (r == 0)
		r = scry_inject_lock(w->inj, &w->proc);
	w->inj->max_pause_ns = PAUSE_NS;
	w->inj->purpose = "rehearsal";
	w->inj->parts = w->instrument->parts;
	if (r == 0)
		r = scry_inject_enter(w->inj, w->near, NULL);
	if (r < 0)
		return r;
	w->inj->control->lease_end_tsc = w->inj->control->lease_tsc = INT64_MAX;
	w->channel = scry_channel_own(w->inj, w->instrument->channel);
	return w->instrument->enter(w);
}

/* The four give the lock by Thread.pass, and seldom otherwise. */
static bool sees_passes(const struct scry_gvl_table *t)
{
	uint64_t yields = 0, passes = 0;

	for (uint32_t i = 1; i < t->rows && i < SCRY_GVL_THREADS; i++) {
		yields += t->row[i].yields;
		passes += t->row[i].passes;
	}
	return passes && passes >= yields / 2;
}

static int check_counts(struct stage *s, const struct scry_gvl *g)
{
	struct scry_gvl_table *t = calloc(1, sizeof(*t));
	const char *why = NULL;
	uint32_t contenders = 0;
	int r = t ? scry_gvl_read(g, t) : -ENOMEM;

	if (r == 0)
		why = scry_gvl_judge(t);
	for (uint32_t i = 1; r == 0 && !why && i < t->rows && i < SCRY_GVL_THREADS; i++) {
		bool is_known = false;

		for (size_t k = 0; k < s->count; k++)
			is_known |= s->threads[k].th == t->row[i].th;
		if (!is_known)
			why = "what it took for a thread is not one";
		contenders += t->row[i].takes >= TAKES_LEAST && t->row[i].waits >= TAKES_LEAST &&
			      t->row[i].held && t->row[i].yields;
	}
	if (r == 0 && !why && contenders < 4)
		why = "it did not see four threads take the lock in turns";
	if (r == 0 && !sees_passes(t))
		s->child->layout.gvl.pass = 0;
	free(t);
	return r < 0 ? r : why ? scry_fail(-EPROTO, "%s", why) : 0;
}

static int rehearse(struct stage *s)
{
	struct scry_watch_opts opts = {.max_pause_ns = PAUSE_NS};
	struct scry_watch w = {.opts = &opts,
			       .instrument = &scry_instrument_gvl,
			       .proc = s->proc,
			       .own = {.lock = -1, .mem.fd = -1},
			       .inj = &w.own};
	struct scry_undo_report undo = {0};
	uint64_t left = 0;
	int r = enter(s, &w);

	s->is_hopeless = r == -ENOTSUP;
	if (r == 0)
		r = contend(s);
	wait_ms(r == 0 ? s->contend_ms + SLEEP_MS : 0);
	if (r == 0)
		r = ask(s, "fork 0\n");
	if (r == 0)
		r = check_counts(s, w.state);
	if (r == 0) {
		scry_watch_leave(&w, &undo, &left);
		if (left || undo.failed || undo.foreign)
			r = scry_fail(-EPROTO, "%" PRIu64 " bytes of scry stay in it", left);
	}
	for (int i = 0; i < 2 && r == 0; i++)
		r = contend(s);
	if (w.state)
		w.instrument->done(&w);
	scry_inject_done(w.inj);
	return r;
}

/* What the last error says, without whose it was, the child's, and its cure, which is none here. */
static void put_reason(char *ret, size_t size)
{
	const char *text = scry_error(), *begins = strstr(text, "): "), *ends;

	if (!strncmp(text, "process ", 8) && begins)
		text = begins + 3;
	ends = strstr(text, "; fix: ");
	snprintf(ret, size, "%.*s", ends ? (int)(ends - text) : (int)strlen(text), text);
}

static int play(struct scry_ruby *ruby, const struct scry_proc *proc, struct stage *s)
{
	struct scry_agent_source source = {0};
	struct scry_ruby_gvl *g = &ruby->layout.gvl;
	char why[sizeof(g->why)];
	int r = scry_calib_open(proc, gvl_learn_script, &s->talk);

	if (r == 0)
		r = ask(s, "nothing 0\n");
	if (r == 0)
		r = scry_proc_open(&s->proc, s->talk.pid);
	if (r == 0)
		r = scry_calib_ruby(ruby, s->talk.pid, &s->child);
	if (r == 0)
		r = infer(s, g);
	if (r < 0)
		return r;
	s->child->layout.gvl = *g;
	s->child->layout.gvl.is_known = s->child->layout.gvl.is_proven = true;
	r = rehearse(s);
	if (r < 0) {
		put_reason(why, sizeof(why));
		return no(g, why);
	}
	g->pass = s->child->layout.gvl.pass;
	g->is_proven = scry_agent_source_read(&source) == 0;
	g->agent = source.hash;
	return 0;
}

static bool is_good(const struct scry_ruby_gvl *g)
{
	struct scry_agent_source source;

	return g->is_known && g->is_proven && scry_agent_source_read(&source) == 0 &&
	       source.hash == g->agent;
}

int scry_gvl_infer(struct scry_ruby *ruby, const struct scry_proc *proc)
{
	struct scry_ruby_gvl *g = &ruby->layout.gvl;
	struct stage *s;
	bool is_hopeless = false;
	int r = 0;

	if (is_good(g))
		return 0;
	/* What did not come out even may have been the machine's load: a child that has no
	 * processor shows nothing. */
	for (int i = 0; i < TRIES && !g->is_proven && !is_hopeless; i++) {
		*g = (struct scry_ruby_gvl){0};
		s = calloc(1, sizeof(*s));
		if (s) {
			s->talk = (struct scry_calib_talk){.in = -1, .out = -1, .err = -1};
			s->proc.pidfd = -1;
			s->contend_ms = (uint32_t)(i + 1) * CONTEND_MS;
		}
		r = s ? play(ruby, proc, s) : -ENOMEM;
		if (s) {
			is_hopeless = s->is_hopeless;
			scry_calib_close(&s->talk);
			scry_ruby_free(s->child);
			scry_proc_close(&s->proc);
			free(s->threads);
			scry_maps_done(&s->maps);
		}
		free(s);
	}
	g->is_known = r == 0 || g->why[0];
	if (r == 0)
		scry_ruby_keep(ruby);
	if (r < 0 && g->why[0])
		r = scry_fail(-ENOTSUP,
			      "process %d (%s): its GVL cannot be watched: %s; "
			      "fix: scry stacks samples how much of the time threads wait for it",
			      proc->pid, ruby->description, g->why);
	return r;
}
