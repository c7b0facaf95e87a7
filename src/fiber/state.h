/* Words of a fiber and of its scheduler that switch.S knows: for C and for the assembler. */
#ifndef SCRY_FIBER_STATE_H
#define SCRY_FIBER_STATE_H

/* Of struct scry_fiber: */
#define SCRY_FIBER_SP 0
#define SCRY_FIBER_SCHED 8
#define SCRY_FIBER_STATE 16
#define SCRY_FIBER_CXA 32
/* Of struct scry_fiber_sched: */
#define SCRY_SCHED_CXA 0
#define SCRY_SCHED_BUSY 8

/*
 * The state's low byte; with it what a switch has to keep, and, from SCRY_TAG_SHIFT on, the number
 * of the scheduler. So two fibers between which transfer may switch have the same word.
 */
#define SCRY_STATE_IDLE 1 /* or running */
#define SCRY_STATE_READY 2
#define SCRY_STATE_WAITING 3
#define SCRY_STATE_RESUMING 4
#define SCRY_STATE_ENDED 5
#define SCRY_STATE_FREE 6
#define SCRY_STATE_MASK 0xff
#define SCRY_KEEP_FP 0x100
#define SCRY_KEEP_CXA 0x200
#define SCRY_KEEP_NOTIFIED 0x400 /* a sanitizer wants to be notified */
#define SCRY_TAG_SHIFT 16

#endif
