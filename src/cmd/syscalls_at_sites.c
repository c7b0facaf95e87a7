/* See syscalls_at_sites.h. The sample is a recording of its own, in memory. */
#include "cmd/syscalls_at_sites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "cmd/output.h"
#include "cmd/run.h"
#include "hook/enter_check.h"
#include "instrument/instruments.h"
#include "instrument/sites.h"
#include "rec/reader.h"
#include "sample/syscalls.h"
#include "watch/front.h"
#include "watch/signals.h"

#define SAMPLE_NS 1000000000ull
#define TURN_NS 20000000u
#define PLACES_MAX 65536u /* that are read of a sample */

struct found {
	int fd;
	struct scry_reader *reader; /* has the strings */
	size_t room;
	struct scry_sites_opts sites;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int watch(struct scry_syscalls_watch *w, pid_t pid)
{
	int err = scry_syscalls_watch_add(w, pid, false);
	uint64_t end_ns;

	if (!err)
		err = scry_syscalls_watch_begin(w);
	end_ns = now_ns() + SAMPLE_NS;
	while (!err && now_ns() < end_ns && scry_syscalls_watch_lives(w) && !scry_front_interrupts)
		err = scry_syscalls_watch_turn(w, TURN_NS);
	if (!err && !scry_syscalls_watch_lives(w))
		err = scry_proc_fail_gone(pid);
	if (!err && scry_front_interrupts)
		err = scry_fail(-EINTR, "interrupted before anything was counted");
	return err ? err : scry_syscalls_watch_end(w, "sampled");
}

static int sample(struct found *f, pid_t pid, uint32_t rate)
{
	struct scry_syscalls_watch_opts opts = {.rate = rate};
	struct scry_syscalls_watch *w = NULL;
	int err, closed;

	f->fd = memfd_create("scry-sample", MFD_CLOEXEC);
	if (f->fd < 0)
		return scry_fail(-errno, "cannot make the sample: %s", strerror(errno));
	err = scry_writer_open(f->fd, 0, &opts.writer);
	if (!err)
		err = scry_syscalls_watch_open(&opts, &w);
	if (!err)
		err = watch(w, pid);
	scry_syscalls_watch_close(w);
	closed = scry_writer_close(opts.writer);
	return err ? err : closed;
}

/* The row of a site's number; NULL: none, or no memory. Defined twice, the last one holds. */
static struct scry_sampled_site *row_of(struct found *f, uint32_t site, bool is_new)
{
	const size_t room = f->room ? 2 * f->room : 64;
	struct scry_sampled_site *more;

	for (size_t i = 0; i < f->sites.count; i++)
		if (f->sites.rows[i].at.site == site)
			return &f->sites.rows[i];
	if (!is_new)
		return NULL;
	if (f->sites.count == f->room) {
		more = room > PLACES_MAX ? NULL : reallocarray(f->sites.rows, room, sizeof(*more));
		if (!more)
			return NULL;
		f->sites.rows = more;
		f->room = room;
	}
	more = &f->sites.rows[f->sites.count++];
	*more = (struct scry_sampled_site){.ticks = 0};
	return more;
}

static int on_event(struct found *f, const struct scry_event *event)
{
	const struct scry_ev_syscall_site *at = (const void *)(event + 1);
	const struct scry_ev_syscall *ev = (const void *)(event + 1);
	struct scry_sampled_site *row;

	if (event->type == SCRY_EVENT_SYSCALLS)
		f->sites.sample = *(const struct scry_ev_syscalls *)(event + 1);
	if (event->type == SCRY_EVENT_SYSCALL_SITE) {
		row = row_of(f, at->site, true);
		if (!row)
			return scry_no_memory("places of system calls");
		row->at = *at;
		row->name = scry_reader_string(f->reader, at->name_str, NULL);
		row->module = scry_reader_string(f->reader, at->module_str, NULL);
		row->symbol = scry_reader_string(f->reader, at->symbol_str, NULL);
	}
	row = event->type == SCRY_EVENT_SYSCALL ? row_of(f, ev->site, false) : NULL;
	if (row)
		row->ticks += ev->ticks;
	return 0;
}

static int by_ticks(const void *left, const void *right)
{
	const struct scry_sampled_site *a = left, *b = right;

	return a->ticks != b->ticks ? (a->ticks < b->ticks ? 1 : -1)
				    : (int)(a->at.site > b->at.site) - (a->at.site < b->at.site);
}

/* The places with samples, most first. */
static int read_sample(struct found *f, pid_t pid)
{
	struct scry_sites_opts *s = &f->sites;
	const struct scry_event *event;
	int got = 0, err = scry_reader_open(f->fd, &f->reader);

	while (!err && (got = scry_reader_next(f->reader, &event)) > 0)
		err = on_event(f, event);
	if (err || got < 0)
		return err ? err : got;
	if (s->count)
		qsort(s->rows, s->count, sizeof(*s->rows), by_ticks);
	while (s->count && !s->rows[s->count - 1].ticks)
		s->count--;
	if (!s->count)
		return scry_fail(-ENOENT,
				 "no system call of process %d took processor time within a "
				 "second, so there is no place to count at; fix: --exact, which "
				 "counts all",
				 (int)pid);
	if (s->count > SCRY_SITES_MAX) {
		s->left_out = s->count - SCRY_SITES_MAX;
		s->count = SCRY_SITES_MAX;
	}
	return 0;
}

/* What would be refused in a second is refused now. */
static int check(const struct scry_watch_opts *opts, pid_t pid)
{
	struct scry_proc proc;
	int err = opts->output ? scry_output_try(opts->output, opts->force) : 0;

	if (err)
		return err;
	err = scry_proc_open(&proc, pid);

	if (!err) {
		err = scry_inject_check(&proc);
		if (!err)
			err = scry_inject_check_alone(&proc);
		scry_proc_close(&proc);
	}
	return err;
}

int scry_syscalls_at_sites(const struct scry_watch_opts *opts, uint32_t rate,
			   const struct scry_report_opts *report)
{
	const pid_t pid = (pid_t)opts->pids.values[0];
	struct found f = {.fd = -1};
	struct scry_watch_opts sites = *opts;
	int status, err = check(opts, pid);

	scry_front_catch_signals();
	if (!err) {
		scry_log_say("looking for a second where it makes system calls");
		err = sample(&f, pid, rate);
	}
	if (!err)
		err = read_sample(&f, pid);
	sites.instrument_opts = &f.sites;
	status = err ? scry_front_status(err) : scry_run(&sites, &scry_instrument_sites, report);
	scry_reader_close(f.reader);
	free(f.sites.rows);
	if (f.fd >= 0)
		close(f.fd);
	return status;
}
