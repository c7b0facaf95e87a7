/* See kernel.h. */
#include "instrument/calls/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "instrument/calls/strings.h"
#include "sys/syscalls.h"

#define NUMBERS_MAX 512
#define THREADS_MAX (1u << 16)
#define SLOTS (1ull << 46) /* from here on: nobody has stacks there */

struct scry_calls_kernel {
	uint32_t pid;
	struct scry_syscalls *syscalls;
	struct scry_calls_strings *strings;	  /* NULL: none */
	const struct scry_calls_kernel_take *how; /* of the take that runs */
	struct {
		uint32_t function; /* + 1; 0: not met */
		uint32_t args;
		char symbol[40], form[8];
	} numbers[NUMBERS_MAX];
	struct scry_map open; /* thread -> number + 1 of the call it is in */
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
	scry_map_init(&k->open, THREADS_MAX);
	*ret = k;
	return 0;
}

void scry_calls_kernel_close(struct scry_calls_kernel *k)
{
	if (!k)
		return;
	scry_syscalls_close(k->syscalls);
	scry_calls_strings_close(k->strings);
	scry_map_done(&k->open);
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

bool scry_calls_kernel_strings_ended(const struct scry_calls_kernel *k)
{
	return scry_calls_strings_ended(k->strings);
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

static int meet(struct scry_calls_kernel *k, uint32_t number)
{
	const char *name = scry_syscall_name(number);
	char *symbol = k->numbers[number].symbol, *form = k->numbers[number].form;
	char prototype[256];
	int n;

	if (name)
		snprintf(symbol, sizeof(k->numbers[number].symbol), "SYS_%s", name);
	else
		snprintf(symbol, sizeof(k->numbers[number].symbol), "SYS_%u", number);
	scry_syscall_form(k->syscalls, number, form);
	write_prototype(symbol, form, prototype, sizeof(prototype));
	n = k->how->number(k->how->arg, symbol, prototype, &k->numbers[number].args);
	if (k->numbers[number].args > SCRY_SYSCALL_ARGS)
		k->numbers[number].args = SCRY_SYSCALL_ARGS;
	if (n >= 0)
		k->numbers[number].function = (uint32_t)n + 1;
	return n < 0 ? n : 0;
}

static int give(void *arg, const struct scry_syscall *call)
{
	struct scry_calls_kernel *k = arg;
	struct scry_calls_event event = {
		.tsc = call->tsc, .slot = SLOTS + 8ull * call->tid, .tid = call->tid};
	struct scry_calls *calls = call->pid == k->pid ? k->how->calls
				   : k->how->of	       ? k->how->of(k->how->arg, call->pid)
						       : NULL;
	uint64_t open = 0, parts[SCRY_CALL_MORE_MAX];
	int r = 0;

	event.parts = parts;
	event.part_words = scry_calls_strings_of(k->strings, call, parts);
	if (!calls || call->number >= NUMBERS_MAX)
		return 0;
	if (call->is_exit) { /* one that was there before us is not emitted */
		if (!scry_map_remove(&k->open, call->tid, &open) || open != call->number + 1ull)
			return 0;
		event.is_return = true;
		event.function = k->numbers[call->number].function - 1;
		if (!k->how->has_args)
			event.part_words = 0;
		event.values[0] = call->args[0];
		return scry_calls_insert(calls, &event);
	}
	if (!k->numbers[call->number].function)
		r = meet(k, call->number);
	if (r < 0)
		return r;
	event.function = k->numbers[call->number].function - 1;
	event.count = k->how->has_args ? k->numbers[call->number].args : 0;
	if (!event.count)
		event.part_words = 0;
	memcpy(event.values, call->args, sizeof(call->args));
	scry_map_put(&k->open, call->tid, call->number + 1ull);
	r = scry_calls_functions_upto(calls, event.function);
	return r < 0 ? r : scry_calls_insert(calls, &event);
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

uint64_t scry_calls_kernel_lost(const struct scry_calls_kernel *k)
{
	return scry_syscalls_lost(k->syscalls);
}
