/*
 * Objects by hooks on the VM's own functions: what the agent knows. Freestanding.
 */
#ifndef SCRY_WIRE_RUBY_HOOKS_H
#define SCRY_WIRE_RUBY_HOOKS_H

#include <stdint.h>

/* What hooked functions returned and were given, when `probe` asks for that and no watch is on; in
 * the agent's scratch memory. */
enum { SCRY_PROBE_OFF, SCRY_PROBE_ARGUMENTS, SCRY_PROBE_COUNT };
#define SCRY_NO_MASK 6u
#define SCRY_PROBE_ISEQ_EVENTS 8192u
#define SCRY_PROBE_ENDS 4000u
struct scry_agent_probe {
	uint64_t births, ends; /* objects, or with ARGUMENTS calls; the first are kept */
	uint64_t returned[SCRY_PROBE_ISEQ_EVENTS];
	uint64_t given[SCRY_PROBE_ENDS][6];
};

/* cookies of CALL hooks */
enum { SCRY_CALL_END, SCRY_CALL_FINALIZE };

/*
 * Objects by hooks on the VM's own functions, no event: the agent's entries are in agent/thunk.S.
 * Host writes, before the first hook is on.
 */
struct scry_agent_hooks {
	uint16_t on, probe;
	/* Of the function that frees, arguments from 0: the object; or, with a mask that is another
	 * argument, the first of up to 64 slots in a row, those of set bits are freed. */
	uint16_t end_argument, end_mask;
	uint16_t is_over; /* agent writes: the VM is taken down */
	uint16_t reserved[3];
	/* the word of thread-local storage that holds the execution context: the module's number
	 * and the offset in its block; module 0: offset from fs */
	uint64_t tls_module;
	int64_t tls_offset;
	uint32_t vm_objspace;	 /* vm -> struct of the heap ... */
	uint32_t objspace_count; /* ... there: GCs begun; 0: not known */
	uint32_t objspace_made;	 /* objects ever made; 0: not known */
	uint32_t end_stride;	 /* bytes from slot to slot */
	uint64_t gc_count; /* where objspace_count is not known: a function that returns it, or 0 */
};

#endif
