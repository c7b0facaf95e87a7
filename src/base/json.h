/*
 * A streaming JSON writer: documents may be gigabytes, memory is this struct.
 *
 * Values are written in order; commas and nesting are the writer's business. Inside an object each
 * value is preceded by scry_json_key. Misuse (a value without a key, an end without a begin, more
 * than SCRY_JSON_DEPTH levels) is a bug of the caller and asserted. Strings are bytes: what is not
 * valid UTF-8 becomes U+FFFD, one for each maximal bad part, as the Unicode standard advises;
 * characters that are tricky to show (base/text.h) are escaped, as JSON is looked at on terminals
 * too. Write errors are remembered by the stream; scry_json_done returns them.
 */
#ifndef SCRY_BASE_JSON_H
#define SCRY_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SCRY_JSON_DEPTH 128

struct scry_json {
	FILE *out;
	unsigned int depth;
	bool has_items;			 /* of the open container */
	bool after_key;			 /* a key was written, its value is due */
	bool break_next;		 /* a line break before the next item */
	char closer[SCRY_JSON_DEPTH];	 /* '}' or ']' of each open container */
	bool had_items[SCRY_JSON_DEPTH]; /* of the containers around */
};

/* Begins a document on `out`, which stays the caller's. */
void scry_json_init(struct scry_json *json, FILE *out);

/* Ends the document with a newline and flushes. 0, or -errno with a sentence when writing failed.
 */
int scry_json_done(struct scry_json *json);

void scry_json_object_begin(struct scry_json *json);
void scry_json_object_end(struct scry_json *json);
void scry_json_array_begin(struct scry_json *json);
void scry_json_array_end(struct scry_json *json);

/* The name of the next value; `key` is a literal of ours, plain ASCII. */
void scry_json_key(struct scry_json *json, const char *key);

/* A string of `len` bytes of anything. */
void scry_json_string(struct scry_json *json, const char *bytes, size_t len);
/* A NUL-terminated string; NULL writes null. */
void scry_json_text(struct scry_json *json, const char *text);
void scry_json_u64(struct scry_json *json, uint64_t value);
void scry_json_i64(struct scry_json *json, int64_t value);
/* Shortest digits that read back the same; not-a-number and infinities become null. */
void scry_json_double(struct scry_json *json, double value);
void scry_json_bool(struct scry_json *json, bool value);
void scry_json_null(struct scry_json *json);

/* Puts a line break before the next item or end: one row a line keeps big documents greppable. */
void scry_json_break(struct scry_json *json);

#endif
