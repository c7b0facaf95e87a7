/*
 * The agent as bytes inside scry: its symbols, its segments, and an image made ready for one
 * address.
 *
 * The agent is a shared object without imports (checked in `make lint`); only RELATIVE relocations
 * are applied. No agent file is installed or read.
 */
#ifndef SCRY_HOOK_AGENT_SOURCE_H
#define SCRY_HOOK_AGENT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

struct scry_agent_source {
	size_t text_size; /* bytes of the executable part, whole pages, from the image's address 0
			   */
	size_t data_at;	  /* where the writable part begins in the image, page aligned */
	size_t data_size; /* in memory, whole pages */
	size_t data_file; /* bytes of it that are not zero at the start */
	uint64_t hash;	  /* XXH3 of the object file: equal agents have equal hashes */
};

/* Describes the embedded agent. 0, or -ENOEXEC with a sentence (a build fault). */
int scry_agent_source_read(struct scry_agent_source *ret);

/* Fills `text` (text_size) and `data` (data_file bytes) for an image at `base`. */
int scry_agent_source_place(const struct scry_agent_source *src, uint64_t base, void *text,
			    void *data);

/* Offset of an exported symbol from the image's address 0; 0: not there (a build fault). */
uint64_t scry_agent_source_symbol(const char *name);

#endif
