/*
 * The agent as bytes inside scry: its symbols, and where its parts lie (src/agent/agent.ld).
 *
 * The parts are linked at one distance from each other and need nothing else: their bytes are the
 * same at any address (checked in `make lint`). No agent file is installed or read.
 */
#ifndef SCRY_HOOK_AGENT_SOURCE_H
#define SCRY_HOOK_AGENT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

struct scry_agent_source { /* offsets from the image's address 0, whole pages */
	uint64_t data_at;  /* behind the code of all parts */
	uint64_t tail_at;  /* from here on zeros: what an idle agent does without */
	uint64_t end;
	uint64_t hash; /* XXH3 of the object file: equal agents have equal hashes */
};

/* Describes the embedded agent. 0, or -ENOEXEC with a sentence (a build fault). */
int scry_agent_source_read(struct scry_agent_source *ret);

enum scry_agent_access { SCRY_AGENT_CODE, SCRY_AGENT_DATA, SCRY_AGENT_WIPED /* data, by a fork */ };
struct scry_agent_range {
	uint64_t at, size; /* at: from the image's address 0; whole pages */
	enum scry_agent_access access;
};
#define SCRY_AGENT_RANGES_MAX 32u

/* What `parts` (enum scry_agent_part) have, ascending; neighbours that are alike are one. Returns
 * how many. */
size_t scry_agent_source_ranges(uint32_t parts, struct scry_agent_range ret[SCRY_AGENT_RANGES_MAX]);

struct scry_agent_content {
	uint64_t at; /* as above */
	const void *bytes;
	uint64_t size;
	enum scry_agent_access access; /* never WIPED */
};
/* The bytes of `parts` that are not zeros, likewise. */
size_t scry_agent_source_contents(uint32_t parts,
				  struct scry_agent_content ret[SCRY_AGENT_RANGES_MAX]);

/* Offset of an exported symbol from the image's address 0; 0: not there (a build fault). */
uint64_t scry_agent_source_symbol(const char *name);

#endif
