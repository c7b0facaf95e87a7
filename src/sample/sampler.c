/* See sampler.h. */
#include "sample/sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "sys/tracee.h"

/* Of a child: the kernel takes tens of milliseconds to put a probe on and off, in which children
 * that live as long would be missed. */
#define PROBE_AFTER_NS 300000000u

/* --- events ----------------------------------------------------------------------------------- */

static void put(struct scry_sampler *p, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(p->run->writer,
			    &(struct scry_event){.time_ns = scry_now_ns(), .type = type}, payload,
			    size);
}

static uint32_t string(struct scry_sampler *p, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(p->run->writer, text, strlen(text), &id);
	return id;
}

void scry_sampler_write_head(struct scry_sampler *p)
{
	struct scry_ev_process process = {.pid = (uint32_t)p->proc.pid,
					  .uid = p->proc.uid,
					  .start_ticks = p->proc.start_ticks,
					  .exe_str = string(p, p->proc.exe),
					  .runtime_str = string(p, p->ruby->description)};
	struct scry_ev_attach attach = {.pid = (uint32_t)p->proc.pid,
					.threads = (uint32_t)p->proc.threads};

	put(p, SCRY_EVENT_PROCESS, &process, sizeof(process));
	put(p, SCRY_EVENT_ATTACH, &attach, sizeof(attach));
}

static void write_naming(struct scry_sampler *p)
{
	struct scry_iseq_events_sums sums;
	struct scry_ev_naming ev = {.pid = (uint32_t)p->ruby->pid,
				    .reported = p->samples.symbols.reported};

	if (!p->probe.all)
		return;
	scry_iseq_events_end(&p->probe, &sums);
	ev.born = sums.seen;
	ev.lost = sums.lost + sums.unread + sums.births.bad + sums.births.dropped;
	ev.late = sums.births.late;
	ev.nameless = sums.births.nameless;
	ev.agree = sums.births.agree;
	ev.differ = (uint32_t)sums.births.differ;
	ev.gone = sums.births.gone;
	put(p, SCRY_EVENT_NAMING, &ev, sizeof(ev));
}

static void add_native_sums(struct scry_sampler *p)
{
	const struct scry_samples_native_sums s = scry_samples_native_sums(p->samples.native);
	struct scry_samples_native_sums *all = &p->run->native_sums;

	all->whole += s.whole;
	all->cut += s.cut;
	all->apart += s.apart;
	all->none += s.none;
}

static void add_pauses(struct scry_sampler *p, struct scry_ev_totals *totals)
{
	const struct scry_ev_pauses sums = scry_samples_pause_sums(p->samples.pause);

	totals->pause_max_ns = sums.longest_ns;
	totals->pause_total_ns = sums.total_ns;
	p->run->spared += sums.spared;
	p->run->late += sums.late;
}

int scry_sampler_end(struct scry_sampler *p, const char *why)
{
	struct scry_samples *s = &p->samples;
	struct scry_ev_detach detach = {.pid = (uint32_t)p->proc.pid, .verified = 1};
	struct scry_ev_totals totals = {
		.pid = (uint32_t)p->proc.pid,
		.events = s->sums.valid + s->sums.repaired + s->sums.rejected,
		.lost = s->unrecorded + s->sums.lost,
		.watched_ns = scry_now_ns() - p->began_ns,
	};
	int err;

	write_naming(p);
	if (s->native)
		add_native_sums(p);
	if (s->pause)
		add_pauses(p, &totals);
	s->sums.rate = p->run->rate;
	err = scry_samples_write(s);
	detach.reason_str = string(p, why);
	put(p, SCRY_EVENT_DETACH, &detach, sizeof(detach));
	put(p, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
	return err;
}

/* --- life ------------------------------------------------------------------------------------- */

static int open_native(struct scry_sampler *p)
{
	int err = scry_samples_with_native(&p->samples);

	if (!err || !p->run->is_lenient)
		return err;
	scry_log_detail("process %d has no native frames: %s", (int)p->ruby->pid, scry_error());
	scry_error_clear();
	return 0;
}

/*
 * What reads stacks reads names within microseconds, and the program needs not be touched. By eBPF
 * they come some milliseconds later. Where the probe was not asked for and cannot be, memory alone
 * is asked.
 */
static int open_probe(struct scry_sampler *p)
{
	enum scry_sampling_names names = p->run->names;
	int err;

	if (names == SCRY_NAMES_READ || (names == SCRY_NAMES_AUTO && !p->run->clock))
		return 0;
	err = scry_iseq_events_open(&p->probe, &p->run->probes, p->ruby);
	if (err && (names == SCRY_NAMES_AUTO || p->run->is_lenient)) {
		scry_log_detail("names of process %d are read from memory only: %s",
				(int)p->ruby->pid, scry_error());
		scry_error_clear();
		return 0;
	}
	if (p->probe.all)
		p->samples.symbols.births = &p->probe.births;
	return err;
}

int scry_sampler_open(struct scry_sampling *run, struct scry_ruby *ruby, struct scry_sampler **ret)
{
	struct scry_sampler *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return scry_no_memory("sampling");
	p->run = run;
	p->ruby = ruby;
	p->began_ns = scry_now_ns();
	err = scry_samples_init(&p->samples, ruby, run->writer);
	if (err) {
		free(p);
		return scry_no_memory("sampling");
	}
	err = scry_proc_open(&p->proc, ruby->pid);
	if (err)
		p->proc.pid = 0;
	if (!err && run->native)
		err = open_native(p);
	if (!err && run->pause)
		err = scry_samples_with_pause(&p->samples);
	if (!err && run->clock)
		err = scry_clock_add(run->clock, &p->samples);
	p->waits_for_probe = run->is_lenient;
	if (!err && !run->is_lenient)
		err = open_probe(p);
	if (err) {
		p->ruby = NULL;
		scry_sampler_close(p);
		return err;
	}
	*ret = p;
	return 0;
}

void scry_sampler_close(struct scry_sampler *p)
{
	if (!p)
		return;
	if (p->run->clock)
		scry_clock_remove(p->run->clock, &p->samples);
	scry_samples_done(&p->samples);
	scry_iseq_events_close(&p->probe);
	scry_ruby_free(p->ruby);
	if (p->proc.pid)
		scry_proc_close(&p->proc);
	free(p);
}

/* --- while it is sampled ---------------------------------------------------------------------- */

int scry_sampler_turn(struct scry_sampler *p)
{
	int err = p->run->clock ? scry_clock_list(p->run->clock, &p->samples) : 0;

	if (!err && p->waits_for_probe && scry_now_ns() - p->began_ns > PROBE_AFTER_NS) {
		p->waits_for_probe = false;
		err = open_probe(p);
	}
	if (!err)
		scry_iseq_events_tick(&p->probe);
	return err;
}

int scry_sampler_look(struct scry_sampler *p, uint64_t slot)
{
	uint64_t stands = slot + 1 - p->done;
	int err;

	if (slot < p->done)
		return 0;
	if (p->run->pause && !scry_proc_is_alive(&p->proc)) /* its number may be another's by now */
		return -ESRCH;
	err = scry_samples_tick(&p->samples, stands * p->run->slot_ns);
	if (err)
		return err;
	p->samples.sums.missed += stands - 1;
	p->done = slot + 1;
	return 0;
}
