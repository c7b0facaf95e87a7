/*
 * Where a process may not be entered, the agent's handlers of malloc come in a shared object that
 * the loader preloads (src/preload): it joins a pool of child buffers (wire/child_buffers.h) that
 * the keeper has made, as a fork child does, and says which process it is.
 *
 *   SCRY_PRELOAD=ABI:KEEPER:FD:PID     in the environment, beside LD_PRELOAD: the pool is
 *                                      /proc/KEEPER/fd/FD; PID: the only process that records, 0:
 * all
 *
 * In its child buffer it writes account->malloc.preloaded (a fork child does not), then child_pid;
 * then it waits until the keeper has seen it (owner_pid, a futex), so that a process that ends at
 * once has names, and that a number of another pid namespace is not taken for another process: two
 * seconds at most, and only while the lease is fresh.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_PRELOAD_H
#define SCRY_WIRE_PRELOAD_H

#define SCRY_PRELOAD_ENV "SCRY_PRELOAD"
#define SCRY_PRELOAD_ABI 2
#define SCRY_PRELOAD_POOL "scry-lanes" /* the name of the memfd */
#define SCRY_PRELOAD_KEEPER "scry-keeper"

#endif
