/*
 * A set of hooks that is on is brought up to the list of loaded objects as it is now: what went
 * away is forgotten, what is new is hooked. hook/loads says when. In the keeper only.
 */
#ifndef SCRY_HOOK_RENEW_H
#define SCRY_HOOK_RENEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/hooks.h"

#define SCRY_KEPT_TEXTS 64

/* The decoded code of files that went and may come back: decoding a large one takes longer than its
 * loader should wait. Zeroed: empty. */
struct scry_kept_texts {
	struct scry_kept_text {
		uint64_t inode;
		uint32_t dev_major, dev_minor;
		uint8_t build_id[20];
		size_t build_id_size;
		struct scry_text *text;
	} rows[SCRY_KEPT_TEXTS];
	size_t next;
};
void scry_kept_texts_done(struct scry_kept_texts *kept);

struct scry_renew_change {
	struct scry_kept_texts *kept;
	size_t loaded, unloaded; /* objects; one that came back counts as both */
};

/*
 * `now` becomes the set's list. The changes in what went away are dropped from the journal, its
 * rows are gone. 0; -EAGAIN: something is listed no more and still mapped with our changes, it is
 * just being unloaded: nothing was done; else -errno with a sentence.
 */
int scry_renew_list(struct scry_hooks *h, struct scry_inject *inj, struct scry_linkmap *now,
		    struct scry_renew_change *change);

struct scry_renew_how {
	/* scry_hooks_on, in the circumstances of the caller */
	int (*put_on)(struct scry_hooks *fresh, struct scry_inject *inj, void *arg);
	void *arg;
	bool is_unused; /* no thread runs the code of what is new */
};

/*
 * Hooks what is in the list and not on: functions, and further slots of functions. 0, or -errno
 * with a sentence: what is new is not on, and may be tried again.
 */
int scry_renew_hooks(struct scry_hooks *h, struct scry_inject *inj,
		     const struct scry_renew_how *how);

/* Of hook/hooks.c. The names that a row owns. */
void scry_hook_forget(struct scry_hook *row);
/* A row for a function of the set's objects. */
int scry_hooks_add(struct scry_hooks *h, const struct scry_function *f, uint32_t request);
/* As scry_hooks_want, of a guard: a function whose entry is taken is left to the hook that has it,
 * and none is not a failure. */
int scry_hooks_guard(struct scry_hooks *h, const char *request, const struct scry_hook_to *to);
/* The functions that a request names, added to the set's. */
int scry_hooks_find(struct scry_hooks *h, const char *request, const struct scry_hook_to *to);
/* The part of scry_hooks_on behind the stubs, which all rows have: for stubs that lie elsewhere
 * (hook/lasting.h). The changes go into the journal of inj->edit. */
int scry_hooks_change(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held);
/* `row` counts on in the stub of `old`, whose code is unmapped, or, if it does not fit, beside it.
 */
int scry_hook_succeed(struct scry_hook *row, const struct scry_hook *old, struct scry_inject *inj);

/* Of hook/plan.c. Is there Go code at `address`? Its stacks have no room to spare. */
bool scry_hooks_is_go(struct scry_hooks *h, uint64_t address);

#endif
