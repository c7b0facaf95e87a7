/* Payloads about hooked functions: see wire/payload.h, which includes this. */
#ifndef SCRY_WIRE_PAYLOAD_FUNCTIONS_H
#define SCRY_WIRE_PAYLOAD_FUNCTIONS_H

#include <stdint.h>

struct scry_ev_count { /* calls of one hooked function */
	uint32_t symbol_str;
	uint32_t module_str;
	uint32_t way_str; /* "entry", "got" */
	uint32_t pid;
	uint64_t calls;
	uint64_t address;
};

struct scry_ev_time { /* calls of one hooked function from entry to return, callees included */
	uint32_t symbol_str, module_str, way_str, pid;
	uint64_t address;
	uint64_t calls;	   /* that were followed, and `missed` */
	uint64_t returned; /* of these */
	uint64_t left;	   /* seen to have been left by exception or longjmp */
	uint64_t missed;   /* calls that could not be followed */
	uint64_t total_ns, max_ns;
	uint64_t p50_ns, p99_ns; /* within an eighth */
};

struct scry_ev_function {  /* a hooked function, before its first ENTRY */
	uint32_t function; /* its number in this process */
	uint32_t pid;
	uint32_t symbol_str, module_str, way_str;
	uint32_t prototype_str; /* of its CALLs: lines of ltrace.conf(5); 0: not known */
	uint64_t address;
	uint32_t caller_str;  /* path of the object whose calls these are; 0: not known */
	uint32_t aliases_str; /* other names whose calls are its too, each with "\n" behind; 0: none
			       */
};

struct scry_ev_entry { /* a hooked function was entered at time_ns by thread tid */
	uint32_t function;
	uint32_t pid;
	uint32_t args; /* how many of these were recorded; the others are 0 */
	uint32_t reserved;
	uint64_t arg1, arg2, arg3, arg4, arg5, arg6; /* the integer argument registers */
};

/*
 * A traced function was entered at time_ns by thread tid. How to show it is the function's
 * prototype. More follows: parts of memory and registers, struct scry_call_part of
 * wire/call_ring.h.
 */
struct scry_ev_call {
	uint32_t function;
	uint32_t pid;
	uint64_t call; /* its number in this process, from 1 */
	uint32_t args; /* how many of these were recorded; the others are 0 */
	uint32_t reserved;
	uint32_t more_bytes; /* that follow; a multiple of 8 */
	uint32_t flags;
	uint64_t arg1, arg2, arg3, arg4, arg5, arg6; /* the integer argument registers */
};
#define SCRY_CALL_HAS_NO_ARGS 4u /* it was not wanted to know them */

struct scry_ev_called { /* of the CALL with that number in this process, which follows */
	uint32_t pid;
	uint32_t stack; /* id of a STACK event: the frame that calls */
	uint64_t call;
};

struct scry_ev_signal { /* delivered to thread tid at time_ns */
	uint32_t pid;
	uint32_t signal;
};

struct scry_ev_return { /* of the CALL with that number in this process; more follows likewise */
	uint32_t function;
	uint32_t pid;
	uint64_t call;
	uint64_t result;      /* rax */
	uint64_t duration_ns; /* from its entry */
	uint32_t how;	      /* enum scry_return_how */
	uint32_t more_bytes;
};
enum scry_return_how {
	SCRY_RETURN_DONE,
	SCRY_RETURN_LEFT, /* by longjmp or an exception, some time before: no result, no duration */
	SCRY_RETURN_ALONE, /* it is not followed: recorded with the call, no result, no duration */
};

struct scry_ev_lock {  /* before its first WAIT */
	uint32_t lock; /* its number in this process, whose programs have numbers of their own */
	uint32_t pid;
	uint32_t is_condition; /* 1: a condition variable; 0: a mutex */
	uint32_t kind_str;     /* "mutex", "recursive mutex", "condition variable", ... */
	uint32_t module_str;   /* the object that it lies in; 0: none, as on the heap */
	uint32_t symbol_str;   /* of the variable; 0: not known */
	uint64_t address;
	uint64_t offset; /* from the symbol, else from the object */
};

/* Thread tid has waited up to time_ns for a mutex that was locked, or for a condition. */
struct scry_ev_wait {
	uint32_t lock;
	uint32_t pid;
	uint32_t stack; /* id of a STACK event: the callers; 0: not known */
	uint32_t owner; /* tid of the thread that had the mutex when the wait began; 0: not known */
	uint32_t function_str;
	uint32_t how; /* enum scry_wait_how */
	uint64_t duration_ns;
};
enum scry_wait_how {
	SCRY_WAIT_DONE,	     /* it has the mutex, or was woken */
	SCRY_WAIT_TIMED_OUT, /* ETIMEDOUT */
	SCRY_WAIT_FAILED,    /* another error */
	SCRY_WAIT_LEFT,	     /* by longjmp, an exception, cancellation: no duration */
	SCRY_WAIT_OPEN,	     /* it waited still when the watch ended */
};

#endif
