/*
 * One process that `scry stacks` samples: its Ruby, its samples, its part of the eBPF engine and of
 * the probe of names; and its events in the recording.
 *
 * Life: open, turn each few milliseconds, end (writes what is known of it), close.
 */
#ifndef SCRY_SAMPLE_SAMPLER_H
#define SCRY_SAMPLE_SAMPLER_H

#include "sample/samples.h"
#include "rec/writer.h"
#include "sample/clock.h"
#include "sample/iseq_events.h"
#include "sys/proc.h"

enum scry_sampling_names { SCRY_NAMES_AUTO, SCRY_NAMES_READ, SCRY_NAMES_PROBE };

/* What all processes of a run share; the caller's, which fills it in. */
struct scry_sampling {
	struct scry_writer *writer;
	struct scry_clock *clock; /* NULL: all is read */
	bool only_clock;	  /* nothing is */
	bool native, pause;
	enum scry_sampling_names names;
	struct scry_iseq_events_all probes;
	bool is_lenient; /* what native frames or a probe cannot be had for is sampled without */
	uint64_t began_ns, slot_ns; /* began: 0 before the first look */
	uint32_t rate;
	struct scry_samples_native_sums native_sums; /* of programs that were ended */
	uint64_t spared, late;			     /* looks of theirs left out: sample/pause */
};

struct scry_sampler {
	struct scry_sampling *run;
	struct scry_proc proc;
	struct scry_ruby *ruby;
	struct scry_samples samples;
	struct scry_iseq_events probe;
	bool waits_for_probe;	 /* it gets one when it has lived for a while */
	uint64_t began_ns, done; /* done: slots */
	const char *why;	 /* it is over; NULL */
};

/* Takes `ruby` when it succeeds. 0 or -errno with a sentence; -EPERM and -ENOTSUP of the clock or
 * of the probe. */
int scry_sampler_open(struct scry_sampling *run, struct scry_ruby *ruby, struct scry_sampler **ret);
void scry_sampler_close(struct scry_sampler *p); /* NULL is legal */

/* PROCESS and ATTACH events. */
void scry_sampler_write_head(struct scry_sampler *p);

/* What its clock needs. 0; -ESRCH: it is gone, or another program; or -errno. */
int scry_sampler_turn(struct scry_sampler *p);
/* A look, for the slots up to this one. As above. */
int scry_sampler_look(struct scry_sampler *p, uint64_t slot);

/* NAMING, STACK, SAMPLES, SAMPLING, DETACH, TOTALS events. 0 or -errno. */
int scry_sampler_end(struct scry_sampler *p, const char *why);

#endif
