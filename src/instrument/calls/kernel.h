/*
 * `scry calls -S`: system calls (sys/syscalls) among the calls of functions, in one order. To
 * name/calls they are calls of functions SYS_name, on slots that no stack has.
 *
 * Life: open in `prepare`, switch on in `enter`, take before each merge, off in `leave`, close.
 */
#ifndef SCRY_INSTRUMENT_CALLS_KERNEL_H
#define SCRY_INSTRUMENT_CALLS_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "name/calls.h"
#include "proto/protos.h"

struct scry_calls_kernel;
struct scry_watch;

/* As scry_syscalls_open. */
int scry_calls_kernel_open(pid_t pid, bool with_children, struct scry_calls_kernel **ret);
void scry_calls_kernel_close(struct scry_calls_kernel *k); /* NULL is legal */
/* Between open and switch: strings that are arguments are shown, too, up to `string_size` bytes. 0;
 * or -errno with a sentence: they are shown as addresses. */
int scry_calls_kernel_strings(struct scry_calls_kernel *k, const struct scry_protos *protos,
			      bool with_children, uint32_t string_size);
/* 0; or -errno with a sentence: system calls come, their strings are shown as addresses. */
int scry_calls_kernel_switch(struct scry_calls_kernel *k, bool on);

struct scry_calls_kernel_take {
	struct scry_calls *calls;
	/* the number of a function that is new, with the prototype (ltrace.conf(5)) that it has if
	 * no other is known, and how many arguments it takes. -errno */
	int (*number)(void *arg, const char *symbol, const char *prototype, uint32_t *ret_args);
	/* where calls of child `pid` go, asked first when it is born; NULL: nowhere. NULL: there
	 * are no children */
	struct scry_calls *(*of)(void *arg, uint32_t pid);
	void *arg;
	bool has_args, is_last;
};
/* *ret_tsc: what is older may be merged. */
int scry_calls_kernel_take(struct scry_calls_kernel *k, const struct scry_calls_kernel_take *how,
			   uint64_t *ret_tsc);
/* Asks for each child that was born by now, and takes nothing. */
int scry_calls_kernel_look(struct scry_calls_kernel *k, const struct scry_calls_kernel_take *how);
/* What is lost, and what the report says. */
void scry_calls_kernel_note(const struct scry_calls_kernel *k, struct scry_watch *w);

#endif
