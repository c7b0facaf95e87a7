/*
 * How much of the memory below a stopped thread's stack pointer is its own stack?
 *
 * The mapping does not say: a coroutine's stack may be 4 KiB in the midst of a heap, and below it
 * lie other data. So a stack is known by what made it, or not at all:
 *
 *   the first thread's   the kernel's [stack]
 *   a libc's thread      a record in the thread's descriptor of where its block begins, how long it
 *                        is and how much of that is guard, which agrees with the guard that is
 *                        there; found by that agreement, as libcs and versions place it differently
 *
 * A fiber's is not known: guarded mappings of equal size, as Ruby's pool makes them, are also what
 * arenas look like that are cut into smaller stacks. An array on one of these stacks that is itself
 * used as a stack looks like it.
 */
#ifndef SCRY_SYS_STACK_H
#define SCRY_SYS_STACK_H

#include <stdbool.h>
#include <stdint.h>

struct scry_mem;
struct scry_maps;
struct scry_tracee;

/* The descriptor of the pthread on whose stack `at` lies, by glibc's records; 0: none is known. The
 * thread may have ended: the library keeps its stack for another one. */
uint64_t scry_stack_owner(uint64_t at, const struct scry_mem *mem, const struct scry_maps *maps);

/* Bytes from the end of the stack that `t` is on to its stack pointer; 0: it is not known which
 * stack that is. `maps` as read while, or just before, it was stopped. */
uint64_t scry_stack_room(const struct scry_tracee *t, const struct scry_mem *mem,
			 const struct scry_maps *maps);

/*
 * The stack that the kernel or libc gave to `t`, which is on another one: its far end, as long as
 * it was never written to, except by scry, which leaves a mark. Where SCRY_STACK_SPARE bytes of it
 * end, with as many again above that were never used either; 0: that is not known.
 */
#define SCRY_STACK_SPARE 32768u
uint64_t scry_stack_spare(const struct scry_tracee *t, const struct scry_mem *mem,
			  const struct scry_maps *maps);
/* Calls were made there, and the thread is back: nothing else has ever used it. */
void scry_stack_mark(const struct scry_mem *mem, uint64_t end);

/* The stack that a libc has made for the thread whose descriptor (thread register) is at `tp`, or
 * keeps for the next one: [*ret_low, *ret_top), without its guard. False: it is not known of one.
 */
bool scry_stack_of(const struct scry_mem *mem, const struct scry_maps *maps, uint64_t tp,
		   uint64_t *ret_low, uint64_t *ret_top);

#endif
