/*
 * Files that scry writes for a person: private, never over another, owned by the one who asked.
 */
#ifndef SCRY_CMD_OUTPUT_H
#define SCRY_CMD_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/*
 * Creates `path` for writing and reading, mode 0600, following no link. An existing file is
 * refused; with `force` an existing regular file is removed first. Under sudo the file belongs to
 * the caller of sudo. 0 and the fd (close-on-exec), or -errno with a sentence.
 */
int scry_output_open(const char *path, bool force, int *ret_fd);

/* The same as a stream; close with fclose. */
int scry_output_stream(const char *path, bool force, FILE **ret_out);

/* Does the name of this file end so, as ".html"? One that is not given (NULL) does not. */
bool scry_output_is(const char *path, const char *suffix);

/*
 * Where a watch records, and where its report goes: `-o x.scry` keeps the recording and there is no
 * report (*ret_out NULL); `-o x.json`, x.txt, x.folded or x.html renders at once, from a recording
 * in memory; neither (`path` NULL): a report on stdout. 0 or -errno with a sentence.
 */
int scry_output_recording(const char *path, bool force, int *ret_fd, FILE **ret_out);

#endif
