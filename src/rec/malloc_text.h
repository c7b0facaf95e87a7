/*
 * A malloc recording as text, one line a call, and such text as a recording.
 *
 *   scry-malloc 1 pid 4711
 *   thread thread=1 tid=4711 name=main
 *   caller caller=1 module=/usr/lib/libapp.so symbol=parse offset=28
 *   @1000240                                  ns since the recording began
 *   1: malloc(24) = 7 usable=24 caller=1      thread: function(bytes) = block
 *   1: realloc(7, 48) = 7 moved usable=56
 *   1: free(7)
 *
 * doc/FORMAT.md has the grammar. Text is of one process. Calls, threads and their order come back
 * as they were; times are kept to 100 us or 64 calls, as in any recording.
 */
#ifndef SCRY_REC_MALLOC_TEXT_H
#define SCRY_REC_MALLOC_TEXT_H

#include "base/buf.h"
#include "rec/reader.h"
#include "rec/writer.h"

#include <stdio.h>

/* "malloc", "operator_new", ...; NULL: no such function. */
const char *scry_malloc_function_name(uint32_t function);

struct scry_malloc_text_sums {
	uint64_t calls;
	struct scry_buf lacks; /* why the recording is not whole, for people; "" it is */
};

/*
 * Writes the part of recording `fd` that has most calls (rec/malloc_part.h), of process `pid` or of
 * all when it is 0; what others did is left out. A recording that is not whole is written as one
 * that lost calls. 0 or -errno with a sentence; *ret is to be given back in both cases.
 */
int scry_malloc_text_write(int fd, uint32_t pid, FILE *out, struct scry_malloc_text_sums *ret);

/*
 * Reads text to its end into a recording that was just opened. 0; -EINVAL with a sentence that
 * names the line: what came before it is in the recording; else -errno. *ret_calls: calls read.
 */
int scry_malloc_text_read(FILE *in, struct scry_writer *w, uint64_t *ret_calls);

#endif
