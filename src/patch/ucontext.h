/*
 * The patch 'ucontext': getcontext, setcontext and swapcontext of a running program make no system
 * call any more, as long as its threads all have one signal mask and none changes it.
 *
 * glibc sets the mask at each of these calls (rt_sigprocmask), which is most of what they cost. The
 * new code (patch/ucontext_code.h) saves the mask that all have, and loads no context that has
 * another: there, and from the first change that pthread_sigmask or sigprocmask is asked for on, it
 * goes on to the functions as they were.
 *
 * Life: find (reads only), apply after scry_inject_enter, then counts and start by the head alone;
 * close. Undone as any patch (hook/lasting.h).
 */
#ifndef SCRY_PATCH_UCONTEXT_H
#define SCRY_PATCH_UCONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/hooks.h"
#include "hook/lasting.h"

#define SCRY_UCONTEXT_NAME "ucontext"
#define SCRY_UCONTEXT_SITES 3	  /* getcontext, setcontext, swapcontext */
#define SCRY_UCONTEXT_FUNCTIONS 5 /* these, pthread_sigmask, sigprocmask */

struct scry_ucontext {
	struct scry_hooks hooks;
	const char *module;		      /* that has them: its path */
	uint64_t at[SCRY_UCONTEXT_FUNCTIONS]; /* 0: the last one is another name, or not there */
};

/* Finds the functions, by symbol or, in a stripped static program, by what they do; each must do
 * what glibc's does. 0, or -ENOTSUP with the reason. */
int scry_ucontext_find(struct scry_ucontext *u, const struct scry_proc *proc);
void scry_ucontext_close(struct scry_ucontext *u);

/* The mask of all threads, in a stop. 0; -ENOTSUP with a sentence: they have several; -errno. */
int scry_ucontext_common_mask(struct scry_inject *inj, uint64_t *ret, size_t *ret_threads);

/* Puts it in: it counts, and goes on to the functions as they were. 0 or -errno with a sentence;
 * what was begun is taken out by scry_lasting_off. */
int scry_ucontext_apply(struct scry_ucontext *u, struct scry_inject *inj, uint64_t mask,
			struct scry_lasting *ret);
/* From now on without the system call. 0 or -errno with a sentence. */
int scry_ucontext_start(const struct scry_mem *mem, const struct scry_patch_head *head);

struct scry_ucontext_counts { /* calls of [get, set, swap]; about, where threads share a line */
	uint64_t fast[SCRY_UCONTEXT_SITES], slow[SCRY_UCONTEXT_SITES];
	bool is_measuring, has_changed; /* a mask: all make the system call since then */
};
/* 0, -ESRCH or -EFAULT. */
int scry_ucontext_counts(const struct scry_mem *mem, const struct scry_patch_head *head,
			 struct scry_ucontext_counts *ret);

#endif
