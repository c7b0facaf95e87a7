/*
 * One process that `scry stacks` samples: its Ruby, its samples, its part of the eBPF engine and of
 * the probe of names; and its events in the recording.
 *
 * Life: open, turn each few milliseconds, end (writes what is known of it), close.
 */
#ifndef SCRY_CMD_SAMPLED_H
#define SCRY_CMD_SAMPLED_H

#include "cmd/iseq_probe.h"
#include "cmd/stacks_clock.h"
#include "name/samples.h"
#include "rec/writer.h"
#include "sys/proc.h"

enum scry_sampling_names { SCRY_NAMES_AUTO, SCRY_NAMES_READ, SCRY_NAMES_PROBE };

/* What all processes of a run share; the caller's, who fills it in. */
struct scry_sampling {
	struct scry_writer *writer;
	struct scry_clock *clock; /* NULL: all is read */
	bool only_clock;	  /* nothing is */
	bool native, pause;
	enum scry_sampling_names names;
	struct scry_iseq_probes probes;
	bool is_lenient; /* what native frames or a probe cannot be had for is sampled without */
	uint64_t began_ns, slot_ns; /* began: 0 before the first look */
	uint32_t rate;
	struct scry_samples_native_sums native_sums; /* of those that were ended */
	uint64_t spared, late; /* looks of theirs left out: name/samples_pause */
};

struct scry_sampled {
	struct scry_sampling *run;
	struct scry_proc proc;
	struct scry_ruby *ruby;
	struct scry_samples samples;
	struct scry_iseq_probe probe;
	bool waits_for_probe;	 /* it gets one when it has lived for a while */
	uint64_t began_ns, done; /* done: slots */
	const char *why;	 /* it is over; NULL */
};

/* Takes `ruby` when it succeeds. 0 or -errno with a sentence; -EPERM and -ENOTSUP of the clock or
 * of the probe. */
int scry_sampled_open(struct scry_sampling *run, struct scry_ruby *ruby, struct scry_sampled **ret);
void scry_sampled_close(struct scry_sampled *p); /* NULL is legal */

/* PROCESS and ATTACH events. */
void scry_sampled_write_head(struct scry_sampled *p);

/* What its clock needs. 0; -ESRCH: it is gone, or another program; or -errno. */
int scry_sampled_turn(struct scry_sampled *p);
/* A look, for the slots up to this one. As above. */
int scry_sampled_look(struct scry_sampled *p, uint64_t slot);

/* NAMING, STACK, SAMPLES, SAMPLING, DETACH, TOTALS events. 0 or -errno. */
int scry_sampled_end(struct scry_sampled *p, const char *why);

#endif
