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

#endif
