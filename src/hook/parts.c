/* See parts.h. */
#include "hook/parts.h"

#include <string.h>

#include "base/err.h"
#include "sys/edit.h"

int scry_parts_write(struct scry_inject *inj, uint32_t parts)
{
	const uint32_t missing = scry_parts_missing(inj, parts);
	struct scry_agent_content is[SCRY_AGENT_RANGES_MAX];
	size_t n = scry_agent_source_contents(missing, is);
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = scry_edit_poke(inj->mem.fd, inj->header.image + is[i].at, is[i].bytes,
				   is[i].size);
	if (r < 0)
		return scry_fail(r, "cannot write the agent into process %d: %s", inj->proc->pid,
				 strerror(-r));
	inj->header.parts |= missing;
	return 0;
}

int scry_parts_need(struct scry_inject *inj, struct scry_tracee *held, uint32_t parts)
{
	int r = 0;

	parts = scry_parts_missing(inj, parts);
	if (parts)
		r = scry_inject_open(inj, held, parts);
	if (parts && r == 0)
		r = scry_parts_write(inj, parts);
	if (parts && r == 0)
		r = scry_agent_write_header(&inj->header, inj->mem.fd);
	return r;
}
