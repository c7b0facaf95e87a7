/* See kernel.h. */
#include "instrument/calls/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/map.h"
#include "instrument/calls/strings.h"
#include "sys/syscalls.h"
#include "watch/watch.h"

#define NUMBERS_KNOWN 512u /* each has a row; so have OTHERS_MAX more */
#define OTHERS_MAX 512u
#define ROWS_MAX (NUMBERS_KNOWN + OTHERS_MAX)
#define THREADS_MAX (1u << 16)
#define NO_NUMBER UINT32_MAX /* of the end of rt_sigreturn */
#define SLOTS (1ull << 46)   /* from here on: no thread has stacks there */

struct scry_calls_kernel {
	uint32_t pid;
	struct scry_syscalls *syscalls;
	struct scry_calls_strings *strings;	  /* NULL: none */
	const struct scry_calls_kernel_take *how; /* of the take that runs */
	struct {
		uint32_t function; /* + 1; 0: not met */
		uint32_t args;
		char symbol[40], form[8];
	} rows[ROWS_MAX];	/* of calls; those of `others` come last */
	struct scry_map others; /* number -> row, of those that no kernel has */
	struct scry_map open;	/* thread -> number + 1 of the call it is in */
	struct scry_map seen;	/* threads that have made a call since we look */
	uint64_t answered;	/* calls that ended and had not begun */
	uint64_t strange;	/* calls with other numbers than there is room for */
};

int scry_calls_kernel_open(pid_t pid, bool with_children, struct scry_calls_kernel **ret)
{
	struct scry_calls_kernel *k = calloc(1, sizeof(*k));
	int r = k ? scry_syscalls_open(pid, with_children, &k->syscalls) : scry_no_memory("-S");

	if (r < 0) {
		free(k);
		return r;
	}
	k->pid = (uint32_t)pid;
	scry_map_init(&k->others, OTHERS_MAX);
	scry_map_init(&k->open, THREADS_MAX);
	scry_map_init(&k->seen, THREADS_MAX);
	*ret = k;
	return 0;
}

void scry_calls_kernel_close(struct scry_calls_kernel *k)
{
	if (!k)
		return;
	scry_syscalls_close(k->syscalls);
	scry_calls_strings_close(k->strings);
	scry_map_done(&k->others);
	scry_map_done(&k->open);
	scry_map_done(&k->seen);
	free(k);
}

int scry_calls_kernel_switch(struct scry_calls_kernel *k, bool on)
{
	int r = 0;

	if (!on) {
		scry_calls_strings_perf(k->strings, false);
		scry_syscalls_switch(k->syscalls, false);
		return scry_calls_strings_switch(k->strings, false);
	}
	r = scry_calls_strings_switch(k->strings, true);
	if (r < 0) {
		scry_calls_strings_close(k->strings);
		k->strings = NULL;
	}
	scry_syscalls_switch(k->syscalls, true);
	scry_calls_strings_perf(k->strings, true);
	return r;
}

int scry_calls_kernel_strings(struct scry_calls_kernel *k, const struct scry_protos *protos,
			      bool with_children, uint32_t string_size)
{
	const struct scry_calls_strings_opts opts = {.protos = protos,
						     .pid = (pid_t)k->pid,
						     .with_children = with_children,
						     .string_size = string_size};

	return string_size ? scry_calls_strings_open(&opts, &k->strings) : 0;
}

/* "long SYS_write(int, addr, ulong);" */
static void write_prototype(const char *symbol, const char *form, char *ret, size_t room)
{
	static const char letters[] = "lxiuzp";
	static const char *const types[] = {"long", "guess(long)", "int", "uint", "ulong", "addr"};
	int n = 0;

	for (size_t i = 0; form[i]; i++) {
		const char *letter = strchr(letters, form[i]);

		n += snprintf(ret + n, room - (size_t)n, "%s%s", i > 1 ? ", " : "",
			      types[letter ? letter - letters : 1]);
		if (i == 0)
			n += snprintf(ret + n, room - (size_t)n, " %s(", symbol);
	}
	snprintf(ret + n, room - (size_t)n, ");\n");
}

/* ROWS_MAX: there is no room. */
static uint32_t row_of(struct scry_calls_kernel *k, uint32_t number)
{
	uint64_t row;

	if (number < NUMBERS_KNOWN)
		return number;
	if (scry_map_get(&k->others, number, &row))
		return (uint32_t)row;
	row = NUMBERS_KNOWN + k->others.count;
	return scry_map_put(&k->others, number, row) == 0 ? (uint32_t)row : ROWS_MAX;
}

static int meet(struct scry_calls_kernel *k, uint32_t number, uint32_t row)
{
	const char *name = scry_syscall_name(number);
	char *symbol = k->rows[row].symbol, *form = k->rows[row].form;
	char prototype[256];
	int n;

	if (name)
		snprintf(symbol, sizeof(k->rows[row].symbol), "SYS_%s", name);
	else
		snprintf(symbol, sizeof(k->rows[row].symbol), "SYS_%d", (int)number);
	scry_syscall_form(k->syscalls, number, form);
	write_prototype(symbol, form, prototype, sizeof(prototype));
	n = k->how->number(k->how->arg, symbol, prototype, &k->rows[row].args);
	if (k->rows[row].args > SCRY_SYSCALL_ARGS)
		k->rows[row].args = SCRY_SYSCALL_ARGS;
	if (n >= 0)
		k->rows[row].function = (uint32_t)n + 1;
	return n < 0 ? n : 0;
}

static bool is_seen(struct scry_calls_kernel *k, uint32_t tid)
{
	uint64_t one;

	return scry_map_get(&k->seen, tid, &one);
}

static void see(struct scry_calls_kernel *k, uint32_t tid)
{
	if (scry_map_put(&k->seen, tid, 1) == 0)
		return;
	scry_map_done(&k->seen); /* most of them have ended */
	scry_map_init(&k->seen, THREADS_MAX);
}

/* A new thread's first look at us is the end of the call that made it. */
static bool is_birth(const struct scry_syscall *call)
{
	return !call->args[0] && (call->number == SYS_clone || call->number == SYS_clone3 ||
				  call->number == SYS_fork || call->number == SYS_vfork);
}

/* Of a call that begins: its function, and that its arguments are no more than that has. 1: it is
 * counted. */
static int begin(struct scry_calls_kernel *k, struct scry_calls *calls,
		 struct scry_calls_event *event, uint32_t number)
{
	uint32_t row = row_of(k, number);
	int r = 0;

	if (row == ROWS_MAX) {
		k->strange++;
		return 1;
	}
	if (!k->rows[row].function)
		r = meet(k, number, row);
	if (r < 0)
		return r;
	event->function = k->rows[row].function - 1;
	if (event->count > k->rows[row].args)
		event->count = k->rows[row].args;
	if (!event->count)
		event->part_words = 0;
	return scry_calls_functions_upto(calls, event->function);
}

/* One that the kernel has answered without making it, as a filter (seccomp) may have it do: only
 * its end is seen. Its arguments are not known. */
static int give_answered(struct scry_calls_kernel *k, struct scry_calls *calls,
			 const struct scry_calls_event *end, uint32_t number)
{
	struct scry_calls_event event = {.tsc = end->tsc, .slot = end->slot, .tid = end->tid};
	int r = begin(k, calls, &event, number);

	if (r == 0)
		r = scry_calls_insert(calls, &event);
	k->answered += r == 0;
	return r;
}

static int give_end(struct scry_calls_kernel *k, struct scry_calls *calls,
		    struct scry_calls_event *event, const struct scry_syscall *call)
{
	uint64_t open = 0;
	int r = 0;

	if (!scry_map_remove(&k->open, call->tid, &open)) {
		/* one that was there before us is not emitted */
		if (call->number == NO_NUMBER || !is_seen(k, call->tid) || is_birth(call))
			return 0;
		r = give_answered(k, calls, event, call->number);
		event->part_words = 0;
	} else if (open != call->number + 1ull) {
		return 0;
	}
	if (r)
		return r < 0 ? r : 0;
	event->is_return = true;
	event->function = k->rows[row_of(k, call->number)].function - 1;
	if (!k->how->has_args)
		event->part_words = 0;
	event->values[0] = call->args[0];
	return scry_calls_insert(calls, event);
}

static int give(void *arg, const struct scry_syscall *call)
{
	struct scry_calls_kernel *k = arg;
	struct scry_calls_event event = {
		.tsc = call->tsc, .slot = SLOTS + 8ull * call->tid, .tid = call->tid};
	struct scry_calls *calls = call->pid == k->pid ? k->how->calls
				   : k->how->of	       ? k->how->of(k->how->arg, call->pid)
						       : NULL;
	uint64_t parts[SCRY_CALL_MORE_MAX];
	int r;

	event.parts = parts;
	event.part_words = scry_calls_strings_of(k->strings, call, parts);
	if (!calls)
		return 0;
	if (call->is_exit) {
		r = give_end(k, calls, &event, call);
		see(k, call->tid);
		return r;
	}
	event.count = k->how->has_args ? SCRY_SYSCALL_ARGS : 0;
	r = begin(k, calls, &event, call->number);
	if (r)
		return r < 0 ? r : 0;
	memcpy(event.values, call->args, sizeof(call->args));
	scry_map_put(&k->open, call->tid, call->number + 1ull);
	return scry_calls_insert(calls, &event);
}

static void born(void *arg, uint32_t pid)
{
	const struct scry_calls_kernel *k = arg;

	if (k->how->of)
		k->how->of(k->how->arg, pid);
}

int scry_calls_kernel_look(struct scry_calls_kernel *k, const struct scry_calls_kernel_take *how)
{
	const struct scry_syscalls_take take = {.give = give, .born = born, .arg = k};

	k->how = how;
	return scry_syscalls_look(k->syscalls, &take);
}

int scry_calls_kernel_take(struct scry_calls_kernel *k, const struct scry_calls_kernel_take *how,
			   uint64_t *ret_tsc)
{
	const struct scry_syscalls_take take = {
		.give = give, .born = born, .arg = k, .is_last = how->is_last};
	int r;

	k->how = how;
	scry_calls_strings_take(k->strings, scry_syscalls_lost(k->syscalls));
	r = scry_syscalls_take(k->syscalls, &take, ret_tsc);
	if (how->is_last)
		*ret_tsc = UINT64_MAX;
	return r;
}

void scry_calls_kernel_note(const struct scry_calls_kernel *k, struct scry_watch *w)
{
	const uint64_t lost = scry_syscalls_lost(k->syscalls);

	scry_watch_lost(w, lost, "system calls that found no room");
	scry_watch_lost(w, k->strange,
			"system calls with more unknown numbers than there is room for");
	if (scry_calls_strings_ended(k->strings))
		scry_watch_note(w,
				"strings of system calls are shown as addresses from some moment "
				"on, as more came than there was room for, or they did not match "
				"the calls");
	if (k->answered)
		scry_watch_note(w,
				"%llu system call%s answered without being made, as a seccomp "
				"filter or a tracer does%s: %s arguments are not known",
				(unsigned long long)k->answered,
				k->answered == 1 ? " was" : "s were",
				lost ? ", or the record of the beginning was lost" : "",
				k->answered == 1 ? "its" : "their");
}
