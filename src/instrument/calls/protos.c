/* See protos.h. */
#include "instrument/calls/protos.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "instrument/prototypes_conf.h" /* made by meson from prototypes.conf */

int scry_calls_protos_read(const char *const *files, size_t count, struct scry_protos **ret)
{
	struct scry_protos *p = scry_protos_new();
	int r = p ? 0 : scry_fail(-ENOMEM, "no memory for prototypes");

	for (size_t i = 0; i < count && r == 0; i++)
		r = scry_protos_read_file(p, files[i]);
	if (r == 0)
		r = scry_protos_read(p, "prototypes.conf", prototypes_conf,
				     sizeof(prototypes_conf) - 1);
	if (r < 0) {
		scry_protos_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

const struct scry_proto *scry_calls_protos_default(const struct scry_protos *p, size_t *i)
{
	const struct scry_proto *proto;

	while ((proto = scry_protos_at(p, (*i)++)))
		if (proto->library && !proto->is_named_only && strcmp(proto->library, "*") != 0)
			return proto;
	return NULL;
}
