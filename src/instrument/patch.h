/*
 * What count, time and log have in common: options, and what is reported of hooks.
 */
#ifndef SCRY_INSTRUMENT_PATCH_H
#define SCRY_INSTRUMENT_PATCH_H

#include <stdio.h>

#include "hook/hooks.h"
#include "watch/watch.h"

struct scry_patch_opts { /* the instrument's options */
	char **specs;	 /* of argv */
	int spec_count;
	int via;	 /* word of --via */
	uint64_t args;	 /* of --args */
	bool of_callers; /* specs are filters that say which code calls what (sys/symbols), and
			    these calls alone are seen */
};

/* What --via says. */
uint32_t scry_patch_way(const struct scry_patch_opts *opts);

/* For --dry-run: what would be changed, a line for each function. */
void scry_patch_describe(const struct scry_hooks *h, FILE *out);

/* What is not `done` ("counted"), and why: a sentence for one or two, a number and the first one
 * for more. */
void scry_patch_report_refused(struct scry_watch *w, const struct scry_hooks *h, const char *done);

/* Functions whose row has the calls by other names too: a sentence that names them, or the number
 * and the first one. */
void scry_patch_report_aliases(struct scry_watch *w, struct scry_hooks *h);

/* Of which some calls are not `done`, as they go through slots that must stay as they are: a
 * sentence, and the recording is not complete. How many such functions there are. */
size_t scry_patch_report_kept(struct scry_watch *w, const struct scry_hooks *h, const char *done);

/* A glob asked for it, and it was not called: it gets no row. */
bool scry_patch_is_silent(const struct scry_hooks *h, const struct scry_hook *row, uint64_t calls);
void scry_patch_report_silent(struct scry_watch *w, size_t silent);

/* Ids of a row's strings in the recording. */
struct scry_patch_names {
	uint32_t symbol, module, way;
};
struct scry_patch_names scry_patch_names(struct scry_watch *w, const struct scry_hook *row);

#endif
