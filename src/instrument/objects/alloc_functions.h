/*
 * Which functions of a Ruby make objects, and which one frees them: found out by counting, so that
 * hooks on them can stand for the VM's events.
 *
 * In a calibration child (vm/ruby_calib) calls of *all* functions of the Ruby module are counted,
 * exported or not, while its script makes a known kind of object again and again; the VM's own
 * counters (GC.stat) are the truth:
 *
 *   1. With object events on, the VM leaves its fast path for each object. A function, or a pair,
 *      that is then called as often as objects are made is that slow way.
 *   2. What calls it directly has the fast path in itself: these functions make the objects. Proof:
 *      with events off, for each of some forty kinds of creation, their calls together are the
 *      objects that the VM says were made.
 *   3. What is called as often as objects are freed, in several GCs, frees them. Which of its
 *      arguments is the object, is seen by objects whose addresses the script reported.
 *
 * What does not come out even is not used, and the reason is kept.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_ALLOC_FUNCTIONS_H
#define SCRY_INSTRUMENT_OBJECTS_ALLOC_FUNCTIONS_H

#include "vm/ruby.h"

/*
 * Fills ruby->layout.alloc_functions, unless that is known already (from the cache of layouts,
 * where it is kept), and adds its row for `scry doctor`. Takes about a second and a child. 0, or
 * -errno with a sentence: it could not be tried. Not proven is not an error.
 */
int scry_alloc_functions_find(struct scry_ruby *ruby, const struct scry_proc *proc);

#endif
