/*
 * A user's patch (include/scry/patch.h) and a process: what it imports is found there, the
 * functions that it changes are planned; then it is mapped, written and put on.
 *
 * Life: open (reads only); put_on after scry_inject_enter; close.
 */
#ifndef SCRY_PATCH_APPLY_H
#define SCRY_PATCH_APPLY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "hook/hooks.h"
#include "hook/lasting.h"
#include "patch/object.h"

struct scry_patch_risks {   /* what the user answers for */
	bool no_exceptions; /* none, and no cancellation, passes a replaced function */
	bool no_ipa_ra; /* no caller counts on registers that a replaced function leaves alone */
};

struct scry_patch_file {
	const char *path;
	char name[SCRY_PATCH_NAME]; /* the file's, without .so */
	struct scry_patch_object object;
	struct scry_hooks hooks;
	uint64_t near;				  /* a function that it changes */
	uint64_t row_of[SCRY_OBJECT_ENTRIES_MAX]; /* address of the entry's function; 0 */
};

/* The name that it gets. */
void scry_patch_file_name(const char *path, char ret[SCRY_PATCH_NAME]);

/* Reads the file, looks everything up, plans. 0, or -errno with a sentence. */
int scry_patch_file_open(struct scry_patch_file *f, const char *path, const struct scry_proc *proc,
			 const struct scry_patch_risks *risks);
void scry_patch_file_close(struct scry_patch_file *f);

/* What would be changed, a line each. */
void scry_patch_file_describe(const struct scry_patch_file *f, FILE *out);

/* 0 or -errno with a sentence; what was begun is taken out by scry_lasting_off. */
int scry_patch_file_put_on(struct scry_patch_file *f, struct scry_inject *inj,
			   struct scry_lasting *ret);

#endif
