/* See stacks_kin.h. */
#include "cmd/stacks_kin.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "sys/tracee.h"

#define SCAN_NS 2000000u     /* between two looks for new processes */
#define SETTLED_NS 20000000u /* between two looks at one that is no Ruby, or boots */
#define YOUNG_NS 1000000000u /* an image whose libraries may not be there yet */
#define LINGER_NS 100000000u /* after the last one ended: a daemon may just be on its way */
#define NUMBERS_MAX 4096     /* looked at in one scan */
#define AGAIN 8		     /* scans: a number is given out before its process is there */
#define MEMBERS_MAX 1024u
#define ORIGINS_MAX 64u

struct member {
	struct scry_proc proc;
	struct scry_ruby *ruby;
	struct scry_samples samples;
	uint64_t began_ns, done; /* slots */
};

struct suspect { /* kin that is no Ruby that can be sampled, yet */
	pid_t pid;
	uint64_t start_ticks, image, image_ns, looked_ns;
	bool is_settled; /* this image is none */
	bool is_guest;	 /* in the memory of another, till it runs a program */
};

struct origin { /* whose fork child is known by where its VM lies */
	struct scry_ruby *ruby;
	uint64_t vm;
};

struct scry_kin {
	struct scry_kin_run *run;
	struct member **members;
	struct suspect *suspects;
	struct origin origins[ORIGINS_MAX];
	size_t member_count, suspect_count, origin_count, refused;
	pid_t newest[AGAIN]; /* at the last scans, the latest first */
	uint64_t scanned_ns, lived_ns;
	pid_t first;
};

/* --- events ----------------------------------------------------------------------------------- */

static void put(struct scry_kin_run *run, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(run->writer,
			    &(struct scry_event){.time_ns = scry_now_ns(), .type = type}, payload,
			    size);
}

static uint32_t string(struct scry_kin_run *run, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(run->writer, text, strlen(text), &id);
	return id;
}

void scry_kin_write_head(struct scry_kin_run *run, const struct scry_proc *proc,
			 const struct scry_ruby *ruby)
{
	struct scry_ev_process process = {.pid = (uint32_t)proc->pid,
					  .uid = proc->uid,
					  .start_ticks = proc->start_ticks,
					  .exe_str = string(run, proc->exe),
					  .runtime_str = string(run, ruby->description)};
	struct scry_ev_attach attach = {.pid = (uint32_t)proc->pid,
					.threads = (uint32_t)proc->threads};

	put(run, SCRY_EVENT_PROCESS, &process, sizeof(process));
	put(run, SCRY_EVENT_ATTACH, &attach, sizeof(attach));
}

int scry_kin_write_end(struct scry_kin_run *run, struct scry_samples *samples, uint64_t began_ns,
		       const char *why)
{
	struct scry_ev_detach detach = {.pid = (uint32_t)samples->ruby->pid, .verified = 1};
	struct scry_ev_totals totals = {
		.pid = (uint32_t)samples->ruby->pid,
		.events = samples->sums.valid + samples->sums.repaired + samples->sums.rejected,
		.lost = samples->unrecorded + samples->sums.lost,
		.watched_ns = scry_now_ns() - began_ns,
	};
	int err;

	samples->sums.rate = run->rate;
	err = scry_samples_write(samples);
	detach.reason_str = string(run, why);
	put(run, SCRY_EVENT_DETACH, &detach, sizeof(detach));
	put(run, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
	return err;
}

/* --- members ---------------------------------------------------------------------------------- */

static uint64_t vm_of(const struct scry_ruby *ruby, const struct scry_mem *mem)
{
	uint64_t vm = 0;

	return scry_mem_u64(mem, ruby->bias + ruby->layout.vm_root, &vm) ? 0 : vm;
}

/* Its fork children will be known by it. */
static void add_origin(struct scry_kin *k, const struct scry_ruby *ruby)
{
	struct origin o = {.vm = vm_of(ruby, &ruby->mem)};

	for (size_t i = 0; i < k->origin_count; i++)
		if (k->origins[i].vm == o.vm && k->origins[i].ruby->bias == ruby->bias)
			return;
	if (o.vm && k->origin_count < ORIGINS_MAX && scry_ruby_like(ruby, &o.ruby) == 0)
		k->origins[k->origin_count++] = o;
}

static void free_member(struct member *m)
{
	scry_samples_done(&m->samples);
	scry_ruby_free(m->ruby);
	if (m->proc.pid)
		scry_proc_close(&m->proc);
	free(m);
}

/* Takes `ruby` over, also when it fails. */
static int add_member(struct scry_kin *k, struct scry_ruby *ruby)
{
	struct member *m = calloc(1, sizeof(*m)), **more;
	int err = 0;

	if (!m) {
		scry_ruby_free(ruby);
		return -ENOMEM;
	}
	m->ruby = ruby;
	more = reallocarray(k->members, k->member_count + 1, sizeof(*more));
	if (!more || k->member_count == MEMBERS_MAX)
		err = -ENOMEM;
	if (more)
		k->members = more;
	if (!err)
		err = scry_proc_open(&m->proc, ruby->pid);
	if (!err)
		err = scry_samples_init(&m->samples, ruby, k->run->writer);
	if (err) {
		free_member(m);
		return err;
	}
	m->began_ns = scry_now_ns();
	m->done = (m->began_ns - k->run->began_ns) / k->run->slot_ns;
	k->members[k->member_count++] = m;
	scry_kin_write_head(k->run, &m->proc, ruby);
	scry_log_detail("process %d is sampled too", (int)ruby->pid);
	add_origin(k, ruby);
	return 0;
}

/* --- suspects --------------------------------------------------------------------------------- */

static void add_suspect(struct scry_kin *k, pid_t pid, uint64_t start_ticks)
{
	struct suspect *more = reallocarray(k->suspects, k->suspect_count + 1, sizeof(*more));

	if (!more)
		return;
	k->suspects = more;
	k->suspects[k->suspect_count++] = (struct suspect){.pid = pid, .start_ticks = start_ticks};
}

void scry_kin_first_ended(struct scry_kin *k, bool lives)
{
	if (lives)
		add_suspect(k, k->first, scry_proc_start_ticks(k->first));
	k->first = 0;
}

static bool is_kin(const struct scry_kin *k, pid_t pid)
{
	bool is = pid == k->first;

	for (size_t i = 0; i < k->member_count && !is; i++)
		is = k->members[i]->proc.pid == pid;
	for (size_t i = 0; i < k->suspect_count && !is; i++)
		is = k->suspects[i].pid == pid;
	return is;
}

/* The one whose fork child it is, by its memory; NULL. */
static const struct origin *origin_of(const struct scry_kin *k, pid_t pid)
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
static bool is_guest(const struct scry_kin *k, pid_t pid)
{
	bool is = k->first && scry_proc_share_memory(k->first, pid);

	for (size_t i = 0; i < k->member_count && !is; i++)
		is = scry_proc_share_memory(k->members[i]->proc.pid, pid);
	return is;
}

/* True: it is a suspect no more: gone, or a member. */
static bool settle(struct scry_kin *k, struct suspect *s, uint64_t now)
{
	struct scry_proc_stat st;
	const struct origin *origin;
	struct scry_ruby *ruby = NULL;
	int err;

	if (s->looked_ns && !s->is_guest && now - s->looked_ns < SETTLED_NS)
		return false;
	s->looked_ns = now;
	if (scry_proc_stat(s->pid, &st) || st.start_ticks != s->start_ticks || st.state == 'Z' ||
	    st.state == 'X')
		return true;
	if (s->is_settled && st.image == s->image)
		return false;
	s->is_settled = false;
	if (s->image != st.image)
		s->image_ns = now;
	s->image = st.image;
	origin = origin_of(k, s->pid);
	s->is_guest = false;
	if (origin) {
		s->is_guest = is_guest(k, s->pid);
		if (s->is_guest)
			return false;
		err = scry_ruby_like(origin->ruby, &ruby);
		if (!err)
			err = scry_ruby_bind(ruby, s->pid);
	} else {
		err = scry_ruby_open(s->pid, SCRY_RUBY_BOOTS, &ruby);
	}
	if (!err) {
		err = add_member(k, ruby);
		ruby = NULL;
	}
	if (err && ruby)
		scry_ruby_free(ruby);
	s->is_settled = err && err != -EAGAIN && !origin && now - s->image_ns > YOUNG_NS;
	if (s->is_settled && err != -ENOENT)
		k->refused++;
	if (s->is_settled)
		scry_log_detail("process %d is not sampled: %s", (int)s->pid, scry_error());
	scry_error_clear();
	return !err;
}

static void look_at_suspects(struct scry_kin *k, uint64_t now)
{
	size_t kept = 0;

	for (size_t i = 0; i < k->suspect_count; i++) {
		struct suspect s = k->suspects[i];

		if (!settle(k, &s, now))
			k->suspects[kept++] = s;
	}
	k->suspect_count = kept;
}

static void look_at_number(struct scry_kin *k, pid_t pid, bool is_new)
{
	struct scry_proc_stat st;

	if (is_kin(k, pid) || scry_proc_stat(pid, &st) || st.state == 'Z' || st.state == 'X')
		return;
	/* A daemon's parents are gone: whoever is its parent now has not forked it. */
	if (is_kin(k, st.ppid) || (is_new && origin_of(k, pid) && !origin_of(k, st.ppid)))
		add_suspect(k, pid, st.start_ticks);
}

/* Those that are there already. */
static void look_at_all(struct scry_kin *k)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]))
			look_at_number(k, (pid_t)strtol(entry->d_name, NULL, 10), false);
	if (dir)
		closedir(dir);
}

void scry_kin_scan(struct scry_kin *k)
{
	uint64_t now = scry_now_ns();
	pid_t newest, from;

	if (now - k->scanned_ns < SCAN_NS)
		return;
	k->scanned_ns = now;
	newest = scry_proc_newest();
	if (!newest)
		return;
	from = newest < k->newest[AGAIN - 1] ? 1 : k->newest[AGAIN - 1] + 1; /* they begin anew */
	if (newest - from > NUMBERS_MAX)
		from = newest - NUMBERS_MAX;
	for (pid_t pid = from; pid <= newest; pid++)
		look_at_number(k, pid, true);
	memmove(k->newest + 1, k->newest, (AGAIN - 1) * sizeof(*k->newest));
	k->newest[0] = newest;
	look_at_suspects(k, now);
	if (k->member_count || k->suspect_count || k->first)
		k->lived_ns = now;
}

/* --- a run ------------------------------------------------------------------------------------ */

int scry_kin_open(struct scry_kin_run *run, const struct scry_ruby *first, struct scry_kin **ret)
{
	struct scry_kin *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->run = run;
	k->first = first->pid;
	k->lived_ns = scry_now_ns();
	for (int i = 0; i < AGAIN; i++)
		k->newest[i] = scry_proc_newest();
	add_origin(k, first);
	look_at_all(k);
	*ret = k;
	return 0;
}

void scry_kin_close(struct scry_kin *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < k->member_count; i++)
		free_member(k->members[i]);
	for (size_t i = 0; i < k->origin_count; i++)
		scry_ruby_free(k->origins[i].ruby);
	free(k->members);
	free(k->suspects);
	free(k);
}

/* It is gone, or another program. */
static int end_member(struct scry_kin *k, struct member *m, uint64_t start_ticks)
{
	bool lives =
		scry_proc_start_ticks(m->proc.pid) == start_ticks && scry_proc_is_alive(&m->proc);
	int err = scry_kin_write_end(k->run, &m->samples, m->began_ns,
				     lives ? "target ran another program" : "target exited");

	if (lives)
		add_suspect(k, m->proc.pid, start_ticks);
	return err;
}

int scry_kin_tick(struct scry_kin *k, uint64_t slot)
{
	size_t kept = 0;
	int failed = 0;

	for (size_t i = 0; i < k->member_count; i++) {
		struct member *m = k->members[i];
		uint64_t stands = slot + 1 - m->done;
		int err = slot < m->done ? 0
					 : scry_samples_tick(&m->samples, stands * k->run->slot_ns);

		if (!err && slot >= m->done) {
			m->samples.sums.missed += stands - 1;
			m->done = slot + 1;
		}
		if (err != -ESRCH) {
			k->members[kept++] = m;
			failed = err ? err : failed;
			continue;
		}
		scry_error_clear();
		err = end_member(k, m, m->proc.start_ticks);
		failed = err ? err : failed;
		free_member(m);
	}
	k->member_count = kept;
	return failed;
}

bool scry_kin_lives(const struct scry_kin *k)
{
	return k->member_count || k->suspect_count || scry_now_ns() - k->lived_ns < LINGER_NS;
}

int scry_kin_end(struct scry_kin *k, const char *why)
{
	int err = 0;

	for (size_t i = 0; i < k->member_count && !err; i++)
		err = scry_kin_write_end(k->run, &k->members[i]->samples, k->members[i]->began_ns,
					 why);
	return err;
}

size_t scry_kin_refused(const struct scry_kin *k)
{
	return k->refused;
}
