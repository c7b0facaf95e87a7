/*
 * Patches for running programs: small shared objects that `scry patch apply FILE.so -p PID` puts
 * into a process, to replace functions of it or of its libraries, or to see their calls. They stay
 * after scry has ended; `scry patch undo NAME -p PID` takes them out.
 *
 *     #include <scry/patch.h>
 *
 *     static int mended(const char *text, size_t size);
 *     SCRY_REPLACE(parse_name, mended)
 *     static int mended(const char *text, size_t size)
 *     {
 *             return size > 64 ? -1 : SCRY_ORIGINAL(parse_name)(text, size);
 *     }
 *
 *     cc -shared -fPIC -O2 -nostartfiles -o mended.so mended.c
 *
 * The object is not loaded by the dynamic loader: scry maps it and binds it. It may call functions
 * that loaded objects export; it may have data of its own. It may not import data (stderr, environ;
 * errno is a call, and so is fine), have thread-local variables, constructors or destructors
 * (-nostartfiles), an executable stack, or text relocations (-fPIC). scry says which it has.
 *
 * scry cannot check the following; you must. A handler runs in the thread that calls the function,
 * with the locks that are held there, on the stack that is there (SCRY_BEFORE takes 3.5 KiB
 * itself), and in a signal handler if the function is called in one. It must end. It may call the
 * function that it handles only by SCRY_ORIGINAL; other calls may lead back to the handler. What it
 * hands to the kernel or keeps elsewhere (timers, epoll) must be gone before the undo, and the
 * libraries that it calls must stay loaded.
 *
 * A function can be changed by one patch at a time. Calls that the compiler has inlined are not
 * seen. SCRY_REPLACE is refused where a caller may know the function too well: in its own object
 * gcc -O2 relies on registers that it leaves alone (-fipa-ra), unless you pass --no-ipa-ra; and in
 * programs whose code unwinders run (C++ exceptions, cancellation with clean-ups), or that import
 * pthread_cancel (libc's own clean-ups give back the locks of its FILEs), because no unwinder knows
 * this object, unless you pass --no-exceptions.
 * longjmp may pass. SCRY_BEFORE has neither limit, SCRY_WRAP the second; but no handler of any kind
 * may be left by an exception, or call what a cancelled thread ends in (write, read, nanosleep ...)
 * where threads are cancelled that have clean-ups: unwinding ends at it.
 */
#ifndef SCRY_PATCH_H
#define SCRY_PATCH_H

#include <stddef.h>
#include <stdint.h>

#define SCRY_PATCH_ABI 1u

enum {
	SCRY_PATCH_REPLACE = 1,
	SCRY_PATCH_BEFORE,
	SCRY_PATCH_COUNTER,
	SCRY_PATCH_LOG,
	SCRY_PATCH_AROUND,
	SCRY_PATCH_AROUND_VOID,
	SCRY_PATCH_WRAP
};

struct scry_patch_entry { /* the section "scry_patch" is an array of these */
	uint32_t abi, kind;
	const char *name; /* SYMBOL or SYMBOL@LIB; of a counter its own */
	void *what;	  /* the handler; the counter; the log */
	void *original;	  /* where the address of the function as it was goes; WRAP: the handler
			     behind its return */
};

#if defined(__has_attribute)
#if __has_attribute(no_reorder)
#define SCRY_PATCH_IN_ORDER __attribute__((no_reorder)) /* gcc; clang keeps the order */
#endif
#endif
#ifndef SCRY_PATCH_IN_ORDER
#define SCRY_PATCH_IN_ORDER
#endif

#define SCRY_PATCH_ENTRY(id, kind, name, what, original)                             \
	__attribute__((used, section("scry_patch"), aligned(8)))                     \
	SCRY_PATCH_IN_ORDER static struct scry_patch_entry scry_patch_entry_##id = { \
		SCRY_PATCH_ABI, kind, name, __extension__(void *)(what),             \
		__extension__(void *)(original)};

/* All calls of `function`, in whichever object defines it, run `handler`, which has been declared
 * with the function's type. */
#define SCRY_REPLACE(function, handler) SCRY_REPLACE_IN(function, "", handler)
/* The same, of one library: "@libssl.so.3". */
#define SCRY_REPLACE_IN(function, at_library, handler) \
	SCRY_PATCH_INSTEAD(function, SCRY_PATCH_REPLACE, at_library, handler)
#define SCRY_PATCH_INSTEAD(function, kind, at_library, handler)                       \
	__attribute__((used)) static __typeof__(&(handler)) scry_original_##function; \
	SCRY_PATCH_ENTRY(function, kind, #function at_library, handler, &scry_original_##function)
/* As SCRY_REPLACE, and all registers but that of the result are as the function would have left
 * them alone, and the control and status words of SSE and x87 as it left them: for functions that
 * are called within their own object. Only for functions whose arguments are all in registers (at
 * most six integers and pointers, eight float and double, no structs by value, no `...`), and whose
 * result is an integer or a pointer, or of the VOID kind nothing. scry cannot check that. It takes
 * 3.5 KiB of the stack. */
#define SCRY_AROUND(function, handler) SCRY_AROUND_IN(function, "", handler)
#define SCRY_AROUND_VOID(function, handler) SCRY_AROUND_VOID_IN(function, "", handler)
#define SCRY_AROUND_IN(function, at_library, handler) \
	SCRY_PATCH_INSTEAD(function, SCRY_PATCH_AROUND, at_library, handler)
#define SCRY_AROUND_VOID_IN(function, at_library, handler) \
	SCRY_PATCH_INSTEAD(function, SCRY_PATCH_AROUND_VOID, at_library, handler)
/* The function as it was, to be called. */
#define SCRY_ORIGINAL(function) (*scry_original_##function)

/* What a call of a function finds, for SCRY_BEFORE; as it was when the function was entered. */
struct scry_patch_call {
	uint64_t arguments[6]; /* rdi, rsi, rdx, rcx, r8, r9: integers and pointers */
	uint64_t rax, r10, r11, rbx, rbp, r12, r13, r14, r15, flags;
};
/* The function's return address; the arguments behind the sixth lie above it. */
static inline uint64_t *scry_patch_call_stack(struct scry_patch_call *call)
{
	return (uint64_t *)((char *)(call + 1) + 128);
}

/* Before each call of `function`, of any type, also one with `...` or that does not return: void
 * handler(struct scry_patch_call *call). All registers are as they were when it is over; what it
 * changes in *call the function sees, but for nothing that lies on the stack. */
#define SCRY_BEFORE(function, handler) SCRY_BEFORE_IN(function, "", handler)
#define SCRY_BEFORE_IN(function, at_library, handler) \
	SCRY_PATCH_ENTRY(function, SCRY_PATCH_BEFORE, #function at_library, handler, 0)

/* What a function leaves, for SCRY_WRAP. */
struct scry_patch_return {
	uint64_t rax, rdx;	 /* its result; what the handler changes there the caller sees */
	double xmm0[2], xmm1[2]; /* to be read: float and double, structs of them */
	uint64_t is_known;	 /* 1: `kept` is this call's; 0: not known any more, all 0 */
};

/*
 * A handler before each call of `function` and one behind its return, of any type that returns:
 * void entered(struct scry_patch_call *call, uint64_t kept[4]), where four words may be kept, which
 * void returned(struct scry_patch_return *ret, uint64_t kept[4]) finds. The second is as the first
 * for the stack and registers. Each takes 3.5 KiB of the stack while it runs, none in between.
 *
 * What is kept has room for 1,024 calls at a time, by where their stacks are: with more, or after
 * calls that were left by longjmp, some are not known (is_known 0). A call differs from another in
 * the same place of a stack (of coroutines that copy theirs) by the registers that a call leaves
 * alone: rbx, rbp, r12 to r15. Where these are the same, too, or the function does not leave them
 * alone, it is not known.
 *
 * The return address lies on the stack changed meanwhile. So it is refused where somebody looks at
 * it (setjmp and its kind, functions whose code is seen to read it, libunwind, Go, Java, greenlet
 * ...), and, as SCRY_REPLACE, where unwinders run; what is loaded later is not looked at. Not seen
 * is a function that ends in a tail call of one that looks at its caller: `return dlsym(RTLD_NEXT,
 * s);` then finds nothing. Take SCRY_BEFORE for it. Backtraces end at a changed address. A call
 * that is left by longjmp has no second handler, nor has one that finds no thunk: there are 1,024,
 * one for each place that calls; `scry patch list` has the number of calls without one, "SYMBOL
 * missed". A function that is called anew by a jump at its own end (a tail call) returns once.
 * Calls that run when the patch is undone have their second handler all the same: until then its
 * memory stays.
 */
#define SCRY_WRAP(function, entered, returned) SCRY_WRAP_IN(function, "", entered, returned)
#define SCRY_WRAP_IN(function, at_library, entered, returned) \
	SCRY_PATCH_ENTRY(function, SCRY_PATCH_WRAP, #function at_library, entered, returned)

/* A word that `scry patch list` shows; add with scry_count. */
#define SCRY_COUNTER(counter)                                 \
	__attribute__((used)) static uint64_t scry_##counter; \
	SCRY_PATCH_ENTRY(counter, SCRY_PATCH_COUNTER, #counter, &scry_##counter, 0)
#define scry_count(counter) __atomic_fetch_add(&scry_##counter, 1, __ATOMIC_RELAXED)

/*
 * A log of the last 1,024 lines, of up to 240 bytes each, which `scry patch read NAME -p PID` shows
 * as they come. The program does not wait for the reader: what is not read in time is overwritten,
 * and its number is missing. Lock-free, async-signal-safe.
 */
#define SCRY_LOG_LINES 1024u
struct scry_log_line {
	uint64_t number; /* from 1, when it is whole; 0 while it is written */
	uint32_t size, reserved;
	char text[240];
};
struct scry_log {
	uint64_t written, reserved[3];
	struct scry_log_line lines[SCRY_LOG_LINES];
};
#define SCRY_LOG(log)                                     \
	__attribute__((used)) static struct scry_log log; \
	SCRY_PATCH_ENTRY(log, SCRY_PATCH_LOG, #log, &log, 0)

static inline void scry_log_write(struct scry_log *log, const char *text, size_t size)
{
	const uint64_t number = __atomic_add_fetch(&log->written, 1, __ATOMIC_RELAXED);
	struct scry_log_line *line = &log->lines[number % SCRY_LOG_LINES];

	__atomic_store_n(&line->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (size > sizeof(line->text))
		size = sizeof(line->text);
	for (size_t i = 0; i < size; i++)
		line->text[i] = text[i];
	line->size = (uint32_t)size;
	__atomic_store_n(&line->number, number, __ATOMIC_RELEASE);
}

#endif
