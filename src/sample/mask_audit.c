/* The watch of `scry syscalls`, into a recording in memory, which is then read. */
#include "sample/mask_audit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "rec/reader.h"
#include "rec/writer.h"
#include "sample/syscalls.h"
#include "wire/event.h"

#define RATE 1000
#define TURN_NS 20000000u
#define SITES_MAX 65536u
#define NOT_A_MASK UINT8_MAX
#define ELSEWHERE (UINT8_MAX - 1)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int watch(pid_t pid, uint64_t ns, const struct scry_mask_audit *a,
		 struct scry_writer *writer)
{
	const struct scry_syscalls_watch_opts opts = {
		.writer = writer, .exact = a->exact, .rate = RATE};
	struct scry_syscalls_watch *w = NULL;
	uint64_t end_ns;
	int r = scry_syscalls_watch_open(&opts, &w);

	if (r == 0)
		r = scry_syscalls_watch_add(w, pid, false);
	if (r == 0)
		r = scry_syscalls_watch_begin(w);
	end_ns = now_ns() + ns;
	while (r == 0 && scry_syscalls_watch_lives(w) && now_ns() < end_ns &&
	       !(a->stops && *a->stops))
		r = scry_syscalls_watch_turn(w, TURN_NS);
	if (r == 0)
		r = scry_syscalls_watch_end(w, "duration");
	scry_syscalls_watch_close(w);
	return r;
}

/* Which of the places a site belongs to, if it asks for a mask at all. */
static uint8_t place_of(const struct scry_mask_audit *a, const struct scry_ev_syscall_site *site)
{
	if (site->number != SYS_rt_sigprocmask || site->abi)
		return NOT_A_MASK;
	for (size_t i = 0; i < a->place_count; i++)
		if (site->address >= a->places[i] &&
		    site->address - a->places[i] < SCRY_MASK_AUDIT_NEAR)
			return (uint8_t)i;
	return ELSEWHERE;
}

/* Is it a call within the object that is spared? */
static bool is_spared(const struct scry_mask_audit *a, const struct scry_reader *reader,
		      const struct scry_ev_syscall_site *site)
{
	const char *module = scry_reader_string(reader, site->module_str, NULL);
	const char *slash = module ? strrchr(module, '/') : NULL;

	return a->spared && module && !strcmp(slash ? slash + 1 : module, a->spared);
}

static void note_change(struct scry_mask_audit *a, const struct scry_reader *reader,
			const struct scry_ev_syscall_site *site)
{
	const char *symbol = scry_reader_string(reader, site->symbol_str, NULL),
		   *module = scry_reader_string(reader, site->module_str, NULL);

	if (!a->changed_by[0])
		snprintf(a->changed_by, sizeof(a->changed_by), "%s+%#llx in %s",
			 symbol ? symbol : "?", (unsigned long long)site->offset,
			 module ? module : "?");
}

struct found {
	uint8_t places[SITES_MAX];
	struct scry_ev_syscall_site sites[SITES_MAX];
};

static void take_sum(struct scry_mask_audit *a, const struct scry_reader *reader,
		     const struct found *found, const struct scry_ev_syscall *sum)
{
	const uint8_t place =
		sum->site && sum->site < SITES_MAX ? found->places[sum->site] : NOT_A_MASK;

	if (place == NOT_A_MASK)
		return;
	if (sum->what == SCRY_VAIN_MASK && sum->asked > sum->vain) {
		const struct scry_ev_syscall_site *site = &found->sites[sum->site];

		if (place == ELSEWHERE && is_spared(a, reader, site)) {
			a->own_changes += sum->asked - sum->vain;
		} else {
			a->changes += sum->asked - sum->vain;
			note_change(a, reader, site);
		}
	}
	if (place == ELSEWHERE)
		a->other_calls += sum->calls;
	else {
		a->calls[place] += sum->calls;
		a->inside += sum->ticks;
	}
}

/* Sites come before what was done there. */
static int read_back(struct scry_mask_audit *a, struct scry_reader *reader, struct found *found)
{
	const struct scry_event *event;
	int r;

	while ((r = scry_reader_next(reader, &event)) == 1) {
		const void *payload = event + 1;

		if (event->type == SCRY_EVENT_SYSCALL_SITE) {
			struct scry_ev_syscall_site site;

			memcpy(&site, payload, sizeof(site));
			if (site.site >= SITES_MAX) {
				a->lost++;
				continue;
			}
			found->sites[site.site] = site;
			found->places[site.site] = place_of(a, &site);
		} else if (event->type == SCRY_EVENT_SYSCALL) {
			struct scry_ev_syscall sum;

			memcpy(&sum, payload, sizeof(sum));
			take_sum(a, reader, found, &sum);
		} else if (event->type == SCRY_EVENT_SYSCALLS) {
			struct scry_ev_syscalls all;

			memcpy(&all, payload, sizeof(all));
			a->ticks = all.ticks;
			a->lost += all.nowhere;
			a->watched_ns = all.watched_ns;
		}
	}
	return r;
}

static int look(struct scry_mask_audit *a, int fd)
{
	struct scry_reader *reader = NULL;
	struct found *found = calloc(1, sizeof(*found));
	int r = found ? scry_reader_open(fd, &reader) : scry_no_memory("looking at the calls");

	if (found)
		memset(found->places, NOT_A_MASK, sizeof(found->places));
	if (r == 0)
		r = read_back(a, reader, found);
	scry_reader_close(reader);
	free(found);
	return r;
}

int scry_mask_audit(pid_t pid, uint64_t ns, struct scry_mask_audit *a)
{
	struct scry_writer *writer = NULL;
	int fd = memfd_create("scry-audit", MFD_CLOEXEC), closed;
	int r = fd < 0 ? scry_fail(-errno, "cannot make a file in memory: %s", strerror(errno)) : 0;

	if (r == 0)
		r = scry_writer_open(fd, 0, &writer);
	if (r == 0)
		r = watch(pid, ns, a, writer);
	closed = scry_writer_close(writer);
	r = r < 0 ? r : closed;
	if (r == 0)
		r = look(a, fd);
	if (fd >= 0)
		close(fd);
	return r;
}
