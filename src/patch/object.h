/*
 * A user's patch (include/scry/patch.h): a shared object, read from a file, which is judged, laid
 * out and relocated here, without any process. What it needs of one is asked for by name.
 *
 * The file is not trusted to make sense: all is bounded by its size, and what is not understood is
 * refused with a sentence. What its code does is its author's.
 *
 * Life: read; then, where it shall lie is known, bind; free.
 */
#ifndef SCRY_PATCH_OBJECT_H
#define SCRY_PATCH_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRY_OBJECT_BYTES_MAX (16u << 20)
#define SCRY_OBJECT_ENTRIES_MAX 64

struct scry_object_entry { /* of struct scry_patch_entry */
	uint32_t kind;
	char name[128];
	uint64_t what, original; /* offsets in the image */
};

struct scry_patch_object {
	uint8_t *image; /* from the first byte of the first segment on; text, constants, data */
	uint64_t text_size, constants_size, data_size; /* whole pages, one after the other */
	uint64_t code_start, code_end;		       /* in the image: what may be run */
	struct scry_object_entry entries[SCRY_OBJECT_ENTRIES_MAX];
	size_t entry_count;
	/* of the file */
	uint8_t *file;
	size_t file_size;
	uint64_t dynamic[40];	       /* by tag, 0: not there */
	uint64_t patch_at, patch_size; /* of the section "scry_patch" */
};

struct scry_object_import {
	const char *name;
	const char *library, *version; /* "" where the object does not say */
	bool is_weak;
};
/* The run-time address of a function, 0 with is_weak only. 0, or -errno with a sentence. */
typedef int scry_object_find(void *arg, const struct scry_object_import *import, uint64_t *ret);

/* Takes over `file`, malloc'ed. 0, or -ENOTSUP, -ENOMEM with a sentence that begins with `name`. */
int scry_patch_object_read(uint8_t *file, size_t size, const char *name,
			   struct scry_patch_object *ret);

/* Relocates the image for `address`, where its first byte will lie, and fills in the entries. 0 or
 * as above. Once. */
int scry_patch_object_bind(struct scry_patch_object *o, uint64_t address, const char *name,
			   scry_object_find *find, void *arg);

void scry_patch_object_free(struct scry_patch_object *o);

#endif
