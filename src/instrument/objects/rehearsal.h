/*
 * The rehearsal: what is to be done to a live Ruby to watch its objects is done to a child of the
 * same program first, by the same code (the instrument of instrument/objects/objects), with the
 * same agent and the same layout. A Ruby that was never seen before may crash, hang or count
 * otherwise: then it is the child that does so.
 *
 * The child is the one in which calls are counted (alloc_counts.h, alloc_functions.rb). It makes
 * objects of every kind, collects, compacts, has threads, forks, has a ractor, is left, goes on, is
 * entered again, and ends. After each step what the agent has seen must be what the VM itself has
 * counted. A step that fails takes away what needs it: compaction and ractors end a watch then; any
 * other refuses this way of watching. What came out is kept with the layout.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_REHEARSAL_H
#define SCRY_INSTRUMENT_OBJECTS_REHEARSAL_H

#include "instrument/objects/objects.h"
#include "vm/ruby.h"

/*
 * Fills ruby->layout.rehearsed[way], unless it is known; some 0.3 s of a processor, and more
 * children than one where something goes wrong. 0; -ENOTSUP with a sentence: this way may not be
 * gone, or it cannot be known.
 */
int scry_rehearse(struct scry_ruby *ruby, const struct scry_proc *proc, uint32_t way);
/* The row for `scry doctor`: what it found. */
void scry_rehearse_report(struct scry_ruby *ruby, uint32_t way);

#endif
