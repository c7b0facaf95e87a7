/* See descendants.h. */
#include "sample/descendants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "sample/processors.h"
#include "sys/descendant_table.h"
#include "sys/tracee.h"

#define SCAN_NS 2000000u     /* between two looks for new processes */
#define SETTLED_NS 20000000u /* between two looks at one that is not a Ruby, or boots */
#define YOUNG_NS 1000000000u /* an image whose libraries may not be there yet */
#define LINGER_NS 100000000u /* after the last one ended: a daemon may just be on its way */
#define MEMBERS_MAX 1024u
#define ORIGINS_MAX 64u

struct candidate {	       /* a relative's own: it is not a Ruby that can be sampled, yet */
	uint64_t unidentified; /* samples that came of it */
	bool is_settled;       /* this image is none */
	bool is_fork;	       /* a Ruby's child, which has run no program */
};

struct origin { /* whose fork child is known by where its VM lies */
	struct scry_ruby *ruby;
	uint64_t vm;
};

struct scry_descendants {
	struct scry_sampling *run;
	bool follows;
	struct scry_sampler **members;		  /* the first one stays, also when it is over */
	struct scry_descendant_table descendants; /* candidates */
	struct origin origins[ORIGINS_MAX];
	size_t member_count, origin_count;
	struct scry_descendants_sums sums;
	uint64_t begin_ticks; /* when scry began: a process that is older was not forked since */
	uint64_t scanned_ns, lived_ns;
};

/* --- members ---------------------------------------------------------------------------------- */

static uint64_t vm_of(const struct scry_ruby *ruby, const struct scry_mem *mem)
{
	uint64_t vm = 0;

	return scry_mem_u64(mem, ruby->bias + ruby->layout.vm_root, &vm) ? 0 : vm;
}

/* Its fork children will be known by it. */
static void add_origin(struct scry_descendants *k, const struct scry_ruby *ruby)
{
	struct origin o = {.vm = vm_of(ruby, &ruby->mem)};

	for (size_t i = 0; i < k->origin_count; i++)
		if (k->origins[i].vm == o.vm && k->origins[i].ruby->bias == ruby->bias)
			return;
	if (o.vm && k->origin_count < ORIGINS_MAX && scry_ruby_like(ruby, &o.ruby) == 0)
		k->origins[k->origin_count++] = o;
}

static int keep_member(struct scry_descendants *k, struct scry_sampler *m)
{
	struct scry_sampler **more =
		reallocarray(k->members, k->member_count + 1, sizeof(struct scry_sampler *));

	if (more)
		k->members = more;
	if (!more || k->member_count == MEMBERS_MAX)
		return scry_fail(-ENOMEM, "more than %u processes", MEMBERS_MAX);
	m->done = k->run->began_ns ? (m->began_ns - k->run->began_ns) / k->run->slot_ns : 0;
	k->members[k->member_count++] = m;
	scry_sampler_write_head(m);
	if (k->follows)
		add_origin(k, m->ruby);
	return 0;
}

/* Takes `ruby` over, also when it fails. */
static int add_member(struct scry_descendants *k, struct scry_ruby *ruby)
{
	struct scry_sampler *m = NULL;
	int err = scry_sampler_open(k->run, ruby, &m);

	if (err) {
		scry_ruby_free(ruby);
		return err;
	}
	err = keep_member(k, m);
	if (!err) {
		err = scry_sampler_turn(m); /* its threads are informed before their next tick */
		if (err == -ESRCH)
			err = 0; /* it has ended: that is found out as always */
		k->member_count -= err != 0;
	}
	if (err)
		scry_sampler_close(m);
	else
		scry_log_detail("process %d is sampled too", (int)ruby->pid);
	return err;
}

/* --- candidates ---------------------------------------------------------------------------------
 */

static bool is_member(void *arg, pid_t pid)
{
	const struct scry_descendants *k = arg;
	bool is = false;

	for (size_t i = 0; i < k->member_count && !is; i++)
		is = k->members[i]->proc.pid == pid && !k->members[i]->why;
	return is;
}

/* The one whose fork child it is, by its memory; NULL. */
static const struct origin *origin_of(const struct scry_descendants *k, pid_t pid)
{
	struct scry_mem mem = {.fd = -1};
	const struct origin *ret = NULL;

	if (scry_mem_open(&mem, pid, 0)) {
		scry_error_clear();
		return NULL;
	}
	for (size_t i = 0; i < k->origin_count && !ret; i++)
		if (vm_of(k->origins[i].ruby, &mem) == k->origins[i].vm)
			ret = &k->origins[i];
	scry_mem_close(&mem);
	return ret;
}

/* Its address space is still another's: a vfork whose exec is to come. */
static bool is_guest(const struct scry_descendants *k, pid_t pid)
{
	bool is = false;

	for (size_t i = 0; i < k->member_count && !is; i++)
		is = !k->members[i]->why && scry_proc_share_memory(k->members[i]->proc.pid, pid);
	return is;
}

static void report_unseen(struct scry_descendants *k, pid_t pid, uint64_t unidentified)
{
	k->sums.unseen++;
	if (k->run->clock)
		k->sums.unseen_ns += unidentified * scry_processors_period(k->run->rate);
	scry_log_detail("process %d, forked by one that is sampled, ended before it could be",
			(int)pid);
}

static void gone(void *arg, struct scry_relative *row)
{
	const struct candidate *s = row->own;

	if (s->is_fork)
		report_unseen(arg, row->pid, s->unidentified);
}

static void execed(void *arg, struct scry_relative *row)
{
	struct candidate *s = row->own;

	(void)arg;
	s->is_fork = s->is_settled = false; /* it runs a program of its own */
}

/* The Ruby of a candidate. 0; -EAGAIN: it may become one; or -errno with a sentence. */
static int open_candidate(struct scry_descendants *k, const struct scry_relative *row,
			  bool *ret_is_guest, struct scry_ruby **ret)
{
	const struct origin *origin = origin_of(k, row->pid);
	int err;

	if (!origin)
		return scry_ruby_open(row->pid, SCRY_RUBY_BOOTS, ret);
	*ret_is_guest = is_guest(k, row->pid);
	if (*ret_is_guest)
		return -EAGAIN;
	((struct candidate *)row->own)->is_fork = true;
	err = scry_ruby_like(origin->ruby, ret);
	if (err)
		return err;
	err = scry_ruby_bind(*ret, row->pid);
	if (err)
		scry_ruby_free(*ret);
	return err ? -EAGAIN : 0; /* it ends, or changes its program */
}

static void look(void *arg, struct scry_relative *row, uint64_t now)
{
	struct scry_descendants *k = arg;
	struct candidate *s = row->own;
	struct scry_ruby *ruby = NULL;
	bool is_guest = false; /* in the memory of another, till it runs a program */
	int err = open_candidate(k, row, &is_guest, &ruby);

	if (!err)
		err = add_member(k, ruby);
	if (!err) /* what it gave before cannot be read any more */
		k->members[k->member_count - 1]->samples.unrecorded += s->unidentified;
	row->is_taken = !err;
	s->is_settled = err && err != -EAGAIN && !s->is_fork && now - row->since_ns > YOUNG_NS;
	row->look_ns = is_guest	       ? 0
		       : s->is_settled ? SCRY_DESCENDANT_TABLE_KNOWN
				       : now + SETTLED_NS;
	if (s->is_settled && err != -ENOENT)
		k->sums.refused++;
	if (s->is_settled)
		scry_log_detail("process %d is not sampled: %s", (int)row->pid, scry_error());
	scry_error_clear();
}

/* A daemon's parents are gone: whoever is its parent now has not forked it. */
static bool is_orphan(void *arg, pid_t pid, const struct scry_proc_stat *st)
{
	const struct scry_descendants *k = arg;

	return st->start_ticks >= k->begin_ticks && origin_of(k, pid) && !origin_of(k, st->ppid);
}

static const struct scry_descendant_table_kind kind = {
	.is_member = is_member,
	.is_unidentified = is_orphan,
	.execed = execed,
	.look = look,
	.gone = gone,
	.own_bytes = sizeof(struct candidate),
};

static void scan(struct scry_descendants *k)
{
	uint64_t now = scry_now_ns();

	if (now - k->scanned_ns < SCAN_NS)
		return;
	k->scanned_ns = now;
	if (!k->run->clock)
		scry_descendant_table_scan(&k->descendants);
	scry_descendant_table_turn(&k->descendants, now);
}

/* --- what the kernel says --------------------------------------------------------------------- */

static void forked(void *arg, pid_t pid, bool is_ruby)
{
	struct scry_descendants *k = arg;
	struct scry_relative *row;

	if (is_member(k, pid))
		return;
	row = scry_descendant_table_add(&k->descendants, pid);
	if (!row && is_ruby) /* it has ended */
		report_unseen(k, pid, 0);
	if (!row)
		return;
	((struct candidate *)row->own)->is_fork |= is_ruby && !row->execs;
	scry_descendant_table_look(&k->descendants, row, scry_now_ns());
}

static bool unidentified(void *arg, pid_t pid, bool is_ruby)
{
	struct scry_descendants *k = arg;
	const struct scry_relative *row = scry_descendant_table_find(&k->descendants, pid);
	struct candidate *s = row ? row->own : NULL;

	if (s && is_ruby)
		s->unidentified++;
	return s && s->is_settled;
}

void scry_descendants_clock_opts(struct scry_descendants *k, struct scry_clock_opts *opts)
{
	opts->follows = k->follows;
	opts->forked = forked;
	opts->unidentified = unidentified;
	opts->arg = k;
}

/* --- a run ------------------------------------------------------------------------------------ */

int scry_descendants_open(struct scry_sampling *run, bool follows, struct scry_descendants **ret)
{
	struct scry_descendants *k = calloc(1, sizeof(*k));

	if (!k)
		return scry_no_memory("sampling");
	k->run = run;
	k->follows = follows;
	k->begin_ticks = scry_proc_start_ticks(getpid());
	scry_descendant_table_init(&k->descendants, &kind, k);
	scry_descendant_table_begin(&k->descendants);
	*ret = k;
	return 0;
}

void scry_descendants_close(struct scry_descendants *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < k->member_count; i++)
		scry_sampler_close(k->members[i]);
	for (size_t i = 0; i < k->origin_count; i++)
		scry_ruby_free(k->origins[i].ruby);
	free(k->members);
	scry_descendant_table_done(&k->descendants);
	free(k);
}

int scry_descendants_begin(struct scry_descendants *k, struct scry_sampler *first, pid_t root)
{
	int err = keep_member(k, first);

	if (err)
		scry_sampler_close(first);
	k->lived_ns = scry_now_ns();
	if (err || !k->follows)
		return err;
	if (root != first->proc.pid)
		scry_descendant_table_add(&k->descendants, root);
	scry_descendant_table_scan(&k->descendants);
	return 0;
}

int scry_descendants_add(struct scry_descendants *k, pid_t pid)
{
	struct scry_ruby *ruby = NULL;
	int err;

	if (is_member(k, pid)) /* a child of another's, which was found meanwhile */
		return 0;
	err = scry_ruby_open(pid, SCRY_RUBY_BOOTED, &ruby);
	if (!err)
		err = add_member(k, ruby);
	if (!err && k->follows)
		scry_descendant_table_scan(&k->descendants);
	return err;
}

int scry_descendants_find(struct scry_descendants *k, pid_t root, struct scry_ruby **ret)
{
	int err = -EAGAIN;

	scry_descendant_table_add(&k->descendants, root);
	if (k->follows)
		scry_descendant_table_scan(&k->descendants);
	for (size_t i = 0; i < k->descendants.count;) {
		const struct scry_relative *row = k->descendants.rows[i];

		if (!scry_proc_is_running(row->pid, row->start_ticks)) {
			scry_descendant_table_forget(&k->descendants, row->pid);
			continue;
		}
		if (err == -EAGAIN)
			err = scry_ruby_open(row->pid, SCRY_RUBY_BOOTS, ret);
		if (err == -ENOENT || err == -ESRCH)
			err = -EAGAIN;
		if (!err) {
			scry_descendant_table_forget(&k->descendants, row->pid);
			return 0;
		}
		i++;
	}
	return err == -EAGAIN && !k->descendants.count ? -ESRCH : err;
}

static ssize_t list_all(void *arg, pid_t **ret)
{
	struct scry_descendants *k = arg;
	pid_t *pids;
	size_t n = 0;

	if (k->follows)
		scry_descendant_table_scan(&k->descendants);
	pids = calloc(k->member_count + k->descendants.count + 1, sizeof(*pids));
	if (!pids)
		return scry_no_memory("the processes");
	for (size_t i = 0; i < k->member_count; i++)
		pids[n++] = k->members[i]->proc.pid;
	for (size_t i = 0; i < k->descendants.count; i++)
		pids[n++] = k->descendants.rows[i]->pid;
	*ret = pids;
	return (ssize_t)n;
}

int scry_descendants_attach(struct scry_descendants *k)
{
	return scry_clock_attach(k->run->clock, list_all);
}

void scry_descendants_detach(struct scry_descendants *k)
{
	for (size_t i = 0; i < k->member_count; i++)
		scry_clock_remove(k->run->clock, &k->members[i]->samples);
}

/* It is gone, or another program. Its memory goes a moment before itself. */
static int end_member(struct scry_descendants *k, struct scry_sampler *m)
{
	struct scry_proc_stat st = {0};
	bool lives = scry_proc_is_alive(&m->proc) && scry_proc_stat(m->proc.pid, &st) == 0 &&
		     st.has_memory; /* on its way into another program it has no image yet */

	m->why = lives ? "target ran another program" : "target exited";
	if (lives && k->follows)
		scry_descendant_table_add(&k->descendants, m->proc.pid);
	k->sums.is_other_program |= lives && !k->follows;
	scry_error_clear();
	return m == k->members[0] /* at the end, with the sums of all */ ? 0
									 : scry_sampler_end(m,
											    m->why);
}

/* One that ended has reported more since the clock was read: once it is closed that is not counted.
 */
static int take_late(struct scry_descendants *k)
{
	return k->run->clock ? scry_clock_take(k->run->clock) : 0;
}

/* Does `turn` with each that is not over. What has ended leaves, but for the first. */
static int each_member(struct scry_descendants *k,
		       int (*turn)(struct scry_sampler *m, uint64_t slot), uint64_t slot)
{
	size_t kept = 0;
	int failed = 0;

	for (size_t i = 0; i < k->member_count; i++) {
		struct scry_sampler *m = k->members[i];
		int err = m->why ? 0 : turn(m, slot);

		if (err == -ESRCH) {
			int late = take_late(k);

			err = end_member(k, m);
			err = err ? err : late;
		}
		failed = err ? err : failed;
		if (m->why && i > 0)
			scry_sampler_close(m);
		else
			k->members[kept++] = m;
	}
	k->member_count = kept;
	return failed;
}

static int turn_one(struct scry_sampler *m, uint64_t slot)
{
	(void)slot;
	return scry_sampler_turn(m);
}

static bool is_any(const struct scry_descendants *k)
{
	return k->descendants.count || k->member_count > 1 || !k->members[0]->why;
}

int scry_descendants_turn(struct scry_descendants *k)
{
	int err = each_member(k, turn_one, 0);

	if (!err && k->run->clock)
		err = scry_clock_take(k->run->clock);
	if (k->follows)
		scan(k);
	if (is_any(k))
		k->lived_ns = scry_now_ns();
	return err;
}

int scry_descendants_look(struct scry_descendants *k, uint64_t slot)
{
	return each_member(k, scry_sampler_look, slot);
}

bool scry_descendants_lives(const struct scry_descendants *k)
{
	return is_any(k) || (k->follows && scry_now_ns() - k->lived_ns < LINGER_NS);
}

int scry_descendants_end(struct scry_descendants *k, const char *why,
			 const struct scry_ev_sampling *sums)
{
	int err = 0;

	for (size_t i = k->member_count; i-- > 0 && !err;) {
		struct scry_sampler *m = k->members[i];

		if (i == 0) {
			m->samples.sums.sampler_ns = sums->sampler_ns;
			m->samples.sums.lost += sums->lost;
			m->samples.sums.kernel_ns = sums->kernel_ns;
		}
		k->sums.looks += m->samples.sums.ticks;
		k->sums.late += m->samples.sums.missed;
		err = scry_sampler_end(m, m->why ? m->why : why);
	}
	return err;
}

struct scry_descendants_sums scry_descendants_sums(const struct scry_descendants *k)
{
	return k->sums;
}
