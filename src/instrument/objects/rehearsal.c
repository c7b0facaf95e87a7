/*
 * Does to a child what is to be done to a live Ruby: see rehearsal.h.
 *
 * A run goes through all steps in one child and ends at the first that fails. The next run leaves
 * out what that step was about, in a new child, until one comes to its end.
 */
#include "instrument/objects/rehearsal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hook/agent_source.h"
#include "instrument/instruments.h"
#include "instrument/objects/alloc_counts.h"
#include "instrument/objects/source.h"
#include "vm/ruby_cache.h"
#include "watch/ask.h"

#define PAUSE_NS 1000000000ull
#define MEMORY_BYTES (64ull << 20)
#define SAMPLE_EVERY 8u
#define EACH 5u	      /* objects of each kind that a step makes */
#define KEPT 150u     /* times the script keeps some objects */
#define LEFT_OVER 64u /* found in old stack frames, or the script's own: not known, not gone */
#define RUNS_MAX 7

static const char *const ways[SCRY_RUBY_WAYS] = {
	"events", "events with stacks", "sampled events", "sampled events with stacks",
	"hooks",  "hooks with stacks",	"sampled hooks",  "sampled hooks with stacks",
};

struct seen { /* by the agent, and by the VM */
	struct scry_objects_totals agent;
	struct scry_alloc_counts_reported vm;
};

struct stage {
	struct scry_alloc_counts *c; /* the child, and what it answers */
	struct scry_watch_opts opts;
	struct scry_objects_opts objects;
	struct scry_watch w;
	uint32_t way, without;
	bool is_entered;
	uint64_t exact; /* objects that were counted alike */
};

struct step {
	const char *name;
	int (*play)(struct stage *s);
	uint32_t needs; /* left out where the rehearsal goes without it */
};

/* ---- looking ---- */

static int look(struct stage *s, struct seen *ret)
{
	const struct scry_control *c = s->w.inj->control;
	const struct scry_account *a = scry_account_of(c);
	const struct scry_instrument *i = s->w.instrument;
	int r;

	while ((r = i->drain(&s->w)) > 0)
		;
	if (r == 0)
		r = i->drain(&s->w); /* the last one took what was there */
	if (r < 0)
		return scry_fail(r, "its ring is damaged");
	scry_objects_counted(&s->w, &ret->agent);
	ret->vm = s->c->reported;
	if (c->lost || a->vm.bad || a->objects.unseen || ret->agent.damaged || ret->agent.untracked)
		return scry_fail(-EPROTO,
				 "%" PRIu64 " events lost, %" PRIu64 " not as learned, %" PRIu64
				 " not seen, %" PRIu64 " records damaged",
				 c->lost, a->vm.bad, a->objects.unseen, ret->agent.damaged);
	if (ret->agent.replaced && !s->c->ruby->layout.recycles)
		return scry_fail(-EPROTO, "%" PRIu64 " objects ended unseen", ret->agent.replaced);
	return 0;
}

static int differ(const char *what, uint64_t vm, uint64_t agent)
{
	return scry_fail(-EPROTO, "the VM counts %" PRIu64 " %s, the agent %" PRIu64, vm, what,
			 agent);
}

/* Between two looks: the same births, ends and GCs on both sides. */
static int compare(struct stage *s, const struct seen *a, const struct seen *b)
{
	uint64_t made = b->vm.made - a->vm.made, births = b->agent.allocs - a->agent.allocs;
	uint64_t freed = b->vm.freed - a->vm.freed, ends = b->agent.frees - a->agent.frees;
	uint64_t gcs = b->vm.gcs - a->vm.gcs, fulls = b->vm.fulls - a->vm.fulls;
	uint64_t sampled = births * SAMPLE_EVERY;

	if (s->way & SCRY_RUBY_WAY_SAMPLED) {
		if (made > 100 * SAMPLE_EVERY && (sampled < made / 2 || sampled > made * 2))
			return differ("objects made", made, sampled);
	} else if (births != made) {
		return differ("objects made", made, births);
	} else if (ends != freed && !s->c->ruby->layout.recycles) {
		return differ("objects freed", freed, ends);
	}
	/* A hook sees of a GC what frees or makes objects next. */
	if (!(s->way & SCRY_RUBY_WAY_HOOKS) && b->agent.gcs - a->agent.gcs != gcs)
		return differ("GCs", gcs, b->agent.gcs - a->agent.gcs);
	if (!(s->way & SCRY_RUBY_WAY_HOOKS) && b->agent.full_gcs - a->agent.full_gcs != fulls)
		return differ("full GCs", fulls, b->agent.full_gcs - a->agent.full_gcs);
	s->exact += made;
	return 0;
}

/* With nothing on its mind: what an answer makes after it has counted is the same each time, unless
 * the VM's caches were emptied just before. */
static int look_settled(struct stage *s, struct seen *ret)
{
	int r = scry_alloc_counts_ask(s->c, "nothing", 0, NULL);

	return r < 0 ? r : look(s, ret);
}

/* The child does `what`; both sides saw the same of it. *ret (may be NULL): what is there now. */
static int play_exactly(struct stage *s, const char *what, unsigned n, struct seen *ret)
{
	struct seen before, after;
	int r = look_settled(s, &before);

	if (r == 0)
		r = scry_alloc_counts_ask(s->c, what, n, NULL);
	if (r == 0)
		r = look_settled(s, &after);
	if (r == 0)
		r = compare(s, &before, &after);
	if (r == 0 && ret)
		*ret = after;
	return r;
}

/* ---- in and out ---- */

static bool is_armed(const struct stage *s)
{
	return s->w.inj->control->armed == s->w.watch;
}

static int map_agent(struct stage *s)
{
	struct scry_watch *w = &s->w;
	int r;

	*w->inj = (struct scry_inject){.lock = -1, .mem.fd = -1};
	r = scry_inject_lock(w->inj, &w->proc);
	w->inj->max_pause_ns = PAUSE_NS;
	w->inj->purpose = "rehearsal";
	w->inj->parts = SCRY_PART_VM | SCRY_PART_OBJECTS;
	if (r == 0)
		r = scry_inject_enter(w->inj, w->near, NULL);
	if (r < 0)
		return r;
	w->watch = (uint32_t)w->inj->control->armed + 1;
	w->inj->control->lease_end_tsc = INT64_MAX;
	w->inj->control->lease_tsc = INT64_MAX;
	s->is_entered = true;
	return 0;
}

/* As scry_watch_enter: prepared as the options say, the agent mapped, the hook on at the VM's next
 * safepoint, which comes with the next question. */
static int play_enter(struct stage *s)
{
	struct scry_ruby *ruby;
	int r = scry_ruby_like(s->c->child, &ruby);

	if (r == 0)
		r = scry_ruby_bind(ruby, s->c->talk.pid);
	if (r < 0)
		return r;
	r = scry_objects_prepare(&s->w, ruby);
	if (r == 0)
		r = map_agent(s);
	if (r == 0)
		r = s->w.instrument->enter(&s->w);
	for (int i = 0; i < 3 && r == 0 && !is_armed(s); i++)
		r = scry_alloc_counts_ask(s->c, "strings", EACH, NULL);
	if (r == 0 && !is_armed(s))
		r = scry_fail(-EPROTO, "the VM did not come to put the hook on");
	return r < 0 ? r : scry_alloc_counts_ask(s->c, "nothing", 0, NULL);
}

/* Its agent stays where it is: whoever goes first, the child or the mapping. */
static void forget_entered(struct stage *s)
{
	if (s->w.state)
		s->w.instrument->done(&s->w);
	scry_inject_done(s->w.inj);
	*s->w.inj = (struct scry_inject){.lock = -1, .mem.fd = -1};
	s->is_entered = false;
}

static int play_leave(struct stage *s)
{
	struct scry_undo_report undo = {0};
	struct scry_agent_state state;
	uint64_t left = 0;
	int r;

	s->w.instrument->leave(&s->w);
	r = scry_alloc_counts_ask(s->c, "strings", EACH, NULL); /* a safepoint */
	if (r == 0)
		r = scry_inject_state(s->w.inj, &state);
	if (r == 0 && (state.hooked || state.jobs_run != state.jobs_registered))
		r = scry_fail(-EPROTO, "the VM's list still has the hook");
	if (r < 0)
		return r;
	scry_watch_leave(&s->w, &undo, &left);
	if (left || undo.failed || undo.foreign)
		r = scry_fail(-EPROTO, "%" PRIu64 " bytes of scry stay in it", left);
	forget_entered(s);
	/* it goes on */
	for (int i = 0; i < 2 && r == 0; i++)
		r = scry_alloc_counts_ask(s->c, i ? "drop" : "all", EACH, NULL);
	return r;
}

/* ---- what a program does ---- */

static int play_births(struct stage *s)
{
	return play_exactly(s, "all", EACH, NULL);
}

/* The first collections take what was made before too; then it is known what there is. */
static int play_collect(struct stage *s)
{
	int r = scry_alloc_counts_ask(s->c, "collect", 0, NULL);

	if (r == 0)
		r = scry_alloc_counts_ask(s->c, "collect", 0, NULL);
	if (r == 0)
		r = play_exactly(s, "drop", 10 * EACH, NULL);
	if (r == 0)
		r = play_exactly(s, "minor", 0, NULL);
	return r < 0 ? r : play_exactly(s, "collect", 0, NULL);
}

/* Objects that are kept are alive, and then they are not. `between`: what happens to them
 * meanwhile; NULL. */
static int play_kept(struct stage *s, int (*between)(struct stage *))
{
	struct seen first, kept, last;
	uint64_t want = 5ull * KEPT,
		 unidentified = s->way & SCRY_RUBY_WAY_SAMPLED ? want / 2 : LEFT_OVER;
	int r = play_exactly(s, "forget", 0, &first);

	if (r == 0)
		r = play_exactly(s, "kept", KEPT, NULL);
	if (r == 0)
		r = play_exactly(s, "collect", 0, &kept);
	if (r == 0 && kept.agent.estimated_live + unidentified < first.agent.estimated_live + want)
		r = scry_fail(-EPROTO, "of %" PRIu64 " objects that are alive some seem gone",
			      want);
	if (r == 0 && between)
		r = between(s);
	for (int i = 0; i < 2 && r == 0; i++) /* what an old stack frame kept, the second finds */
		r = play_exactly(s, "forget", 0, &last);
	if (r == 0 && last.agent.estimated_live > first.agent.estimated_live + LEFT_OVER)
		r = scry_fail(-EPROTO, "%" PRIu64 " objects that are gone seem alive",
			      last.agent.estimated_live - first.agent.estimated_live);
	return r;
}

static int play_living(struct stage *s)
{
	return play_kept(s, NULL);
}

static int play_threads(struct stage *s)
{
	return play_exactly(s, "threads", EACH, NULL);
}

static int compact(struct stage *s)
{
	struct seen before = {0}, after = {0};
	int r = look(s, &before);

	if (r == 0)
		r = scry_alloc_counts_ask(s->c, "compact", 0, NULL);
	if (r == 0)
		r = look(s, &after);
	if (r == 0 && after.agent.out_of_sight)
		r = scry_fail(-EPROTO, "%" PRIu64 " objects were lost sight of",
			      after.agent.out_of_sight);
	if (r == 0 && after.agent.compactions == before.agent.compactions)
		r = scry_fail(-EPROTO, "it was not seen");
	return r;
}

static int play_compact(struct stage *s)
{
	return play_kept(s, compact);
}

/* Where it is not followed: the watch ends by itself, and the program lives. */
static int play_compact_end(struct stage *s)
{
	int r = scry_alloc_counts_ask(s->c, "compact", 0, NULL);

	if (r == 0)
		r = scry_alloc_counts_ask(s->c, "all", EACH, NULL);
	if (r == 0 && scry_account_of(s->w.inj->control)->objects.ended != SCRY_ENDED_COMPACTION)
		r = scry_fail(-EPROTO, "the watch did not end");
	if (r == 0)
		r = play_leave(s);
	return r < 0 ? r : play_enter(s);
}

/* The child's child drops the hook at its first object, collects and ends. */
static int play_fork(struct stage *s)
{
	struct seen before, after;
	struct scry_calib answer = {0};
	const struct scry_fact *f;
	long status = 0;
	int r = look_settled(s, &before);

	if (r == 0)
		r = scry_alloc_counts_ask(s->c, "fork", EACH, &answer);
	if (r < 0)
		return r;
	f = scry_fact_next(&answer, NULL, "status");
	status = f ? scry_fact_number(f, 1) : -1;
	scry_calib_stop(&answer);
	if (status)
		return scry_fail(-EPROTO, "its fork child was ended by %s %ld",
				 status < 0 ? "signal" : "status", labs(status));
	r = look_settled(s, &after);
	return r < 0 ? r : compare(s, &before, &after);
}

/* One ring is for one ractor: exact where the VM's hooks hold in all of them, or ended before. */
static int play_ractors(struct stage *s)
{
	const struct scry_ruby_layout *l = &s->c->ruby->layout;
	bool ends = l->hooks_break_ractors || (s->way & SCRY_RUBY_WAY_HOOKS) ||
		    (s->without & SCRY_RUBY_WITHOUT_RACTORS);
	struct seen before, after;
	int r = look_settled(s, &before);

	if (r == 0)
		r = scry_alloc_counts_ask(s->c, "ractors", 10 * EACH, NULL);
	if (r == 0) /* what ractors have made, the VM sums up in a GC */
		r = scry_alloc_counts_ask(s->c, "collect", 0, NULL);
	if (r == 0 && ends &&
	    scry_account_of(s->w.inj->control)->objects.ended != SCRY_ENDED_RACTOR)
		r = scry_fail(-EPROTO, "the watch did not end");
	if (r < 0 || ends || !l->hooks_of_all_ractors)
		return r;
	r = look_settled(s, &after);
	return r < 0 ? r : compare(s, &before, &after);
}

/* Entered again, it ends with all on. */
static int play_end(struct stage *s)
{
	int r = play_enter(s);

	if (r == 0)
		r = play_births(s);
	return r < 0 ? r : scry_calib_end(&s->c->talk);
}

static const struct step steps[] = {
	{"entering", play_enter, 0},
	{"objects of every kind", play_births, 0},
	{"collecting", play_collect, 0},
	{"following what lives", play_living, 0},
	{"threads", play_threads, 0},
	{"compaction", play_compact, SCRY_RUBY_WITHOUT_COMPACTION},
	{"fork", play_fork, 0},
	{"a ractor", play_ractors, SCRY_RUBY_WITHOUT_RACTORS},
	{"leaving, and going on", play_leave, 0},
	{"ending while watched", play_end, 0},
};
static const struct step ends_at_compaction = {"ending at a compaction", play_compact_end, 0};

/* ---- a run ---- */

/* Words of the answer "able": what this Ruby has. */
static bool has(const struct scry_calib *able, const char *what)
{
	const struct scry_fact *f = scry_fact_next(able, NULL, "able");

	for (int i = 1; f && i < f->count; i++)
		if (!strcmp(f->words[i], what))
			return true;
	return false;
}

static const struct step *choose(const struct stage *s, const struct scry_calib *able,
				 const struct step *step)
{
	bool is_there = (step->play != play_compact || has(able, "compact")) &&
			(step->play != play_fork || has(able, "fork")) &&
			(step->play != play_ractors || has(able, "ractors"));

	if (!is_there)
		return NULL;
	return step->play == play_compact && (s->without & step->needs) ? &ends_at_compaction
									: step;
}

static int play_all(struct stage *s, const struct step **ret_failed)
{
	struct scry_calib able = {0};
	int r = scry_alloc_counts_ask(s->c, "able", 0, &able);

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && r == 0; i++) {
		const struct step *step = choose(s, &able, &steps[i]);

		r = step ? step->play(s) : 0;
		if (r < 0)
			*ret_failed = step;
	}
	scry_calib_stop(&able);
	return r;
}

static void set_stage(struct stage *s, struct scry_alloc_counts *c, uint32_t way)
{
	*s = (struct stage){.c = c, .way = way};
	s->objects = (struct scry_objects_opts){
		.stacks = way & SCRY_RUBY_WAY_STACKS,
		.sample.every = way & SCRY_RUBY_WAY_SAMPLED ? SAMPLE_EVERY : 0,
		.source = way & SCRY_RUBY_WAY_HOOKS ? SCRY_SOURCE_HOOKS : SCRY_SOURCE_EVENT,
	};
	s->opts = (struct scry_watch_opts){
		.max_pause_ns = PAUSE_NS, .memory = MEMORY_BYTES, .instrument_opts = &s->objects};
	s->w = (struct scry_watch){.opts = &s->opts,
				   .instrument = &scry_instrument_objects,
				   .own = {.lock = -1, .mem.fd = -1},
				   .inj = &s->w.own};
}

enum outcome {
	WENT_WELL,
	WENT_WRONG, /* at *ret_failed, with a sentence, as the next two */
	CRASHED,
	TOOK_LONG,
	COULD_NOT, /* there was no child to begin with */
};

/* What it is bound to. */
static uint64_t stamp_of(const struct scry_ruby *ruby, uint32_t way)
{
	return scry_cache_stamp(&ruby->layout, (way & SCRY_RUBY_WAY_HOOKS) != 0);
}

/* A child that lives and could not be entered says nothing about its Ruby. */
static enum outcome outcome_of(const struct scry_alloc_counts *c, int r, const struct step *failed)
{
	int state = scry_proc_task_state(c->talk.pid, c->talk.pid);

	if (r == 0)
		return WENT_WELL;
	if (scry_now_ns() / 1000000 >= c->talk.end_ms)
		return TOOK_LONG;
	if (state <= 0 || state == 'Z' || state == 'X')
		return failed ? CRASHED : COULD_NOT;
	return !failed || (failed == steps && r != -EPROTO) ? COULD_NOT : WENT_WRONG;
}

static enum outcome run(struct scry_ruby *ruby, const struct scry_proc *proc, uint32_t way,
			const struct step **ret_failed)
{
	struct scry_ruby_rehearsal *known = &ruby->layout.rehearsed[way];
	struct scry_alloc_counts *c = scry_alloc_counts_new(ruby);
	struct stage *s = malloc(sizeof(*s));
	struct scry_agent_source source = {0};
	enum outcome ret = COULD_NOT;
	int r;

	*ret_failed = NULL;
	if (!c || !s) {
		scry_no_memory("rehearsing");
	} else if (scry_alloc_counts_start(c, proc) == 0) {
		set_stage(s, c, way);
		s->without = known->without;
		s->w.proc = c->proc;
		scry_agent_source_read(&source);
		c->child->layout.rehearsed[way] = *known;	     /* goes without it, too ... */
		c->child->layout.rehearsed[way].agent = source.hash; /* ... and asks for no more */
		c->child->layout.rehearsed[way].layout = stamp_of(c->child, way);
		r = play_all(s, ret_failed);
		ret = outcome_of(c, r, *ret_failed);
		known->objects = (uint32_t)s->exact;
		if (s->is_entered || s->w.state)
			forget_entered(s);
	}
	free(s);
	if (c)
		scry_alloc_counts_free(c);
	return ret;
}

/* Takes away what needs a step that failed. The hidden object by which compactions are seen is
 * there in all steps: without it comes first. */
static void take_away(struct scry_ruby_rehearsal *known, uint32_t way, const struct step *failed)
{
	uint32_t what = failed->needs ? failed->needs : SCRY_RUBY_WITHOUT_COMPACTION;
	char why[128], *fix;

	snprintf(why, sizeof(why), "%s", scry_error());
	fix = strstr(why, "; fix:");
	if (fix)
		*fix = '\0';
	/* hooks are no better than events then */
	if ((known->without & what) || (way & SCRY_RUBY_WAY_HOOKS))
		what = SCRY_RUBY_WITHOUT_ALL;
	known->without |= what;
	snprintf(known->why[__builtin_ctz(what)], sizeof(known->why[0]), "%s: %s", failed->name,
		 why);
}

/*
 * Until a child comes to the end of all that is left. One that crashed has shown enough; whatever
 * else went wrong may be the machine's load, and is believed when it happens twice in a row.
 */
static int play_runs(struct scry_ruby *ruby, const struct scry_proc *proc, uint32_t way)
{
	struct scry_ruby_rehearsal *known = &ruby->layout.rehearsed[way];
	const struct step *failed;
	enum outcome outcome, last = WENT_WELL;

	for (int i = 0; i < RUNS_MAX && !(known->without & SCRY_RUBY_WITHOUT_ALL); i++) {
		outcome = run(ruby, proc, way, &failed);
		if (outcome == WENT_WELL)
			return 0;
		if (outcome == COULD_NOT || (outcome == TOOK_LONG && last == TOOK_LONG))
			return -ENOTSUP;
		if (outcome == CRASHED || last != WENT_WELL) {
			take_away(known, way, failed);
			outcome = WENT_WELL;
		}
		last = outcome;
	}
	if (!(known->without & SCRY_RUBY_WITHOUT_ALL)) {
		known->without |= SCRY_RUBY_WITHOUT_ALL;
		snprintf(known->why[2], sizeof(known->why[2]), "%s, once more", failed->name);
	}
	return 0;
}

/* What to do instead. */
static const char *fix_of(uint32_t way)
{
	return way & SCRY_RUBY_WAY_HOOKS     ? "--source event"
	       : way & SCRY_RUBY_WAY_SAMPLED ? "without --sample"
	       : way & SCRY_RUBY_WAY_STACKS  ? "without --stacks"
					     : "scry stacks, which only reads";
}

static int refuse(const struct scry_ruby *ruby, uint32_t way)
{
	const struct scry_ruby_rehearsal *known = &ruby->layout.rehearsed[way];

	return scry_fail(
		-ENOTSUP,
		"objects of process %d are not watched by %s: in a child of the same Ruby (%s) "
		"that went wrong at %s; fix: %s",
		(int)ruby->pid, ways[way], ruby->description, known->why[2], fix_of(way));
}

static int not_tried(const struct scry_ruby *ruby)
{
	char why[512];

	snprintf(why, sizeof(why), "%s", scry_error());
	return scry_fail(
		-ENOTSUP,
		"the changes to process %d cannot be rehearsed on a child of the same Ruby: %s",
		(int)ruby->pid, why);
}

int scry_rehearse(struct scry_ruby *ruby, const struct scry_proc *proc, uint32_t way)
{
	struct scry_ruby_rehearsal *known = &ruby->layout.rehearsed[way];
	uint64_t stamp = stamp_of(ruby, way);
	struct scry_agent_source source;
	int r = scry_agent_source_read(&source);

	if (r == 0 && (known->agent != source.hash || known->layout != stamp)) {
		*known = (struct scry_ruby_rehearsal){0};
		if (!ruby->is_driver)
			return scry_fail(
				-ENOTSUP,
				"process %d embeds Ruby; the changes to it can only be rehearsed "
				"on the ruby command; fix: run scry doctor -p PID once on a ruby "
				"that uses the same library; then try again",
				(int)ruby->pid);
		r = play_runs(ruby, proc, way);
		if (r < 0)
			return not_tried(ruby);
		known->agent = source.hash;
		known->layout = stamp;
		scry_error_clear();
		scry_ruby_keep(ruby);
	}
	if (r == 0 && (known->without & SCRY_RUBY_WITHOUT_ALL))
		r = refuse(ruby, way);
	return r;
}

void scry_rehearse_report(struct scry_ruby *ruby, uint32_t way)
{
	const struct scry_ruby_rehearsal *known = &ruby->layout.rehearsed[way];
	struct scry_ruby_check check = {.ok = !known->without};
	int first = known->without ? 31 - __builtin_clz(known->without) : 0;

	snprintf(check.item, sizeof(check.item), "rehearsal: %.28s", ways[way]);
	snprintf(check.how, sizeof(check.how), "done to a child first");
	snprintf(check.value, sizeof(check.value), "%s%s%s",
		 known->without & SCRY_RUBY_WITHOUT_ALL ? "refused"
		 : known->without			? "ends"
							: "as on stage",
		 known->without & SCRY_RUBY_WITHOUT_COMPACTION ? " at compactions" : "",
		 known->without & SCRY_RUBY_WITHOUT_RACTORS ? " at ractors" : "");
	if (known->without)
		snprintf(check.proof, sizeof(check.proof), "%.90s", known->why[first]);
	else
		snprintf(check.proof, sizeof(check.proof), "%u objects counted as the VM does",
			 known->objects);
	scry_ruby_add_check(ruby, &check);
}
