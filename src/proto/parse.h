/*
 * The set's insides, shared by proto/protos.c (the set) and proto/parse.c (a line of text).
 */
#ifndef SCRY_PROTO_PARSE_H
#define SCRY_PROTO_PARSE_H

#include "base/map.h"
#include "proto/protos.h"

#define SCRY_PROTO_TYPEDEFS_MAX 4096u

struct scry_arena_block {
	struct scry_arena_block *next;
	size_t used, room;
};

struct scry_typedef {
	const char *name;
	struct scry_type *type;
	const char *text;   /* its line */
	uint32_t *uses;	    /* typedefs in it, from 0 */
	uint32_t use_count; /* of them */
	uint32_t completes; /* the forward that it defines, + 1; 0: none */
	uint32_t completed; /* by this one, + 1; 0: not */
};

struct scry_protos {
	struct scry_arena_block *blocks;
	struct scry_typedef *typedefs;
	uint32_t typedef_count, typedef_room;
	struct scry_proto **protos;
	uint32_t *next; /* of the same hash of the name, + 1 */
	size_t count, room;
	struct scry_map by_name; /* hash -> the first of them, + 1 */
	const char *library;	 /* of the section that is being read; NULL: any */
	bool is_named_only;
	bool is_file;	       /* what is read is a person's file */
	uint32_t file_typedef; /* its first typedef */
};

/* Zeroed bytes that live as long as the set; NULL with a sentence: no memory. */
void *scry_protos_alloc(struct scry_protos *p, size_t size);
const char *scry_protos_copy(struct scry_protos *p, const char *bytes, size_t length);
/* Appended; 0 or -ENOMEM, -E2BIG with a sentence. */
int scry_protos_add(struct scry_protos *p, struct scry_proto *proto);
int scry_protos_add_typedef(struct scry_protos *p, const struct scry_typedef *t);

/*
 * One line, NUL-terminated. 0; -EINVAL: *ret_why says what makes no sense; -ENOMEM. An import is
 * reported in *ret_import, a string of the set, else NULL.
 */
int scry_protos_line(struct scry_protos *p, const char *line, const char **ret_why,
		     const char **ret_import);

/* The typedef of that name, + 1, if it only declares a struct; else 0. */
uint32_t scry_protos_forward(const struct scry_protos *p, const char *name);
/* A file may replace what one before it has defined, but its own only where that declares. What is
 * reported in a recording comes from several files, and may hold both. */
bool scry_protos_is_defined_twice(const struct scry_protos *p, const char *name);

#endif
