/*
 * Files that scry writes for a person: private, never over another, owned by the user who asked.
 */
#ifndef SCRY_CMD_OUTPUT_H
#define SCRY_CMD_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* All zeros is none, but for the fd, which is -1. */
struct scry_output {
	int fd;
	FILE *out;	  /* of a stream */
	const char *path; /* NULL: it is there to stay */
	char *beside;	  /* NULL, or what it is called till it takes the place of `path` */
	bool is_nameless; /* it is not called so yet */
};

/*
 * Creates `path` for writing and reading, mode 0600, following no link. An existing file is
 * refused; with `force` an existing regular file is replaced when the new one is kept. Under sudo
 * the file belongs to the caller of sudo. 0 and the fd (close-on-exec), or -errno with a sentence.
 */
int scry_output_open(struct scry_output *o, const char *path, bool force);

/* The same as a stream; stdout where `path` is NULL. */
int scry_output_stream(struct scry_output *o, const char *path, bool force);

/* Could it be opened? Nothing is left of it. For commands that work long before there is something
 * to write.
 */
int scry_output_try(const char *path, bool force);

/* From here on the file stays, and has its name. 0 or -errno with a sentence. */
int scry_output_keep(struct scry_output *o);

/*
 * Ends it: keeps it when `err` is 0, else it goes, unless it was kept before, and the old file is
 * as it was. stdout stays open. Returns `err`, or -errno with a sentence. Twice is once.
 */
int scry_output_close(struct scry_output *o, int err);

/* Refuses an output (NULL: none) that is the file which is read: -EEXIST with a sentence. */
int scry_output_check(const char *path, int input_fd);

/* Does the name of this file end so, as ".html"? One that is not given (NULL) does not. */
/*
 * Does `path` (NULL is legal) end in one of `known` ("scry json txt"), or in nothing that looks
 * like an ending? 0; -EINVAL with a sentence that lists them. To be asked before anything is done.
 */
#define SCRY_OUTPUT_RECORDS "scry json txt folded html" /* of a watch: recording and forms */
int scry_output_check_ending(const char *path, const char *known);

bool scry_output_is(const char *path, const char *suffix);

/* Is a report written there (x.json, x.txt, x.folded, x.html), and not a recording? */
bool scry_output_renders(const char *path);

/*
 * Where a watch records, and where its report goes: `-o x.scry` keeps the recording and there is no
 * report (o->out NULL); `-o x.json`, x.txt, x.folded or x.html renders at once, from a recording
 * in memory; neither (`path` NULL): a report on stdout. 0 or -errno with a sentence.
 */
int scry_output_recording(struct scry_output *o, const char *path, bool force, int *ret_fd);

#endif
