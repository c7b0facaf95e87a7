/* See protos.h. */
#include "instrument/calls/protos.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "instrument/prototypes_conf.h" /* made by meson from prototypes.conf */

static int is_conf(const struct dirent *entry)
{
	const char *dot = strrchr(entry->d_name, '.');

	return dot && dot != entry->d_name && !strcmp(dot, ".conf");
}

/* Each x.conf of a directory, in the order of their names. */
static int read_directory(struct scry_protos *p, const char *path)
{
	struct dirent **entries;
	int count = scandir(path, &entries, is_conf, alphasort);
	int r = count < 0 ? scry_fail(-errno, "cannot read '%s': %s", path, strerror(errno))
		: count	  ? 0
			  : scry_fail(-ENOENT, "no file of '%s' ends in .conf", path);

	for (int i = 0; i < count; i++) {
		char *file = NULL;

		if (r == 0 && asprintf(&file, "%s/%s", path, entries[i]->d_name) < 0)
			r = scry_no_memory("prototypes");
		if (r == 0)
			r = scry_protos_read_file(p, file);
		free(file);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	return r;
}

/* A file or a directory, or several of them with colons between, as ltrace has it. */
static int read_named(struct scry_protos *p, const char *names)
{
	char *all = strdup(names), *rest = all, *path;
	int r = all ? 0 : scry_no_memory("prototypes");

	while (r == 0 && (path = strsep(&rest, ":"))) {
		struct stat st;

		if (!*path)
			continue;
		r = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? read_directory(p, path)
								: scry_protos_read_file(p, path);
	}
	free(all);
	return r;
}

int scry_calls_protos_read(const char *const *files, size_t count, struct scry_protos **ret)
{
	struct scry_protos *p = scry_protos_new();
	int r = p ? 0 : scry_no_memory("prototypes");

	for (size_t i = 0; i < count && r == 0; i++)
		r = read_named(p, files[i]);
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
