/*
 * Records of perf events (perf_event_open(2)) in the order of time: a ring for each processor, into
 * which all events of that processor write, in this form:
 *
 *   words of CLOCK_MONOTONIC: the time is the last word of a record, but of a PERF_RECORD_SAMPLE
 *   it is the word at `sample_time` (sample_id_all, use_clockid)
 *
 * What one thread did on two processors is in two rings. So what is read is sorted, and the newest
 * waits for the next time, as an older one may still come from a ring that was read before.
 */
#ifndef SCRY_SAMPLE_PERF_RINGS_H
#define SCRY_SAMPLE_PERF_RINGS_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRY_PERF_RECORD_MAX 8192u /* bytes */

struct scry_perf_rings;

/* `sample_time`: bytes from a sample's beginning. NULL: no memory. */
struct scry_perf_rings *scry_perf_rings_new(int cpus, size_t sample_time);
void scry_perf_rings_free(struct scry_perf_rings *p); /* NULL is legal */

/* When a ring is so full, the thread that waits is woken: of an event's attributes. */
uint32_t scry_perf_rings_watermark(void);
/* An event of processor `cpu` writes into its ring from now on. `fd` stays the caller's, which
 * keeps the first one of each processor open. 0; -EPERM: no memory may be locked; -errno. */
int scry_perf_rings_join(struct scry_perf_rings *p, int fd, int cpu);

/* Waits till there is much to read, at most so long. */
void scry_perf_rings_wait(const struct scry_perf_rings *p, uint64_t limit_ns);
/* Reads all that is there. 0 or -ENOMEM. */
int scry_perf_rings_read(struct scry_perf_rings *p);
/* Gives what was read, and is not newer than `until_ns`. `give` may read on. */
typedef void scry_perf_rings_give_one(void *arg, const struct perf_event_header *record);
void scry_perf_rings_give(struct scry_perf_rings *p, uint64_t until_ns,
			  scry_perf_rings_give_one *give, void *arg);
/* Is there one, that was read and not given yet, of which `is` is true? */
bool scry_perf_rings_has(const struct scry_perf_rings *p,
			 bool (*is)(const struct perf_event_header *record, uint64_t arg),
			 uint64_t arg);
/* Records for which there was no room. */
uint64_t scry_perf_rings_lost(const struct scry_perf_rings *p);

#endif
