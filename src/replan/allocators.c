/* See allocators.h. */
#include "replan/allocators.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

struct known {
	const char *name;
	const char *files[3]; /* tried in this order; none: libc's own */
	const char *package;
	const char *variables[3]; /* what it reads; one that ends with _ begins so */
	const char *example;
};

static const struct known all_known[] = {
	{"glibc", {NULL}, NULL, {"MALLOC_", "GLIBC_TUNABLES"}, "MALLOC_ARENA_MAX=2"},
	{"libc", {NULL}, NULL, {"MALLOC_", "GLIBC_TUNABLES"}, "MALLOC_ARENA_MAX=2"},
	{"jemalloc",
	 {"libjemalloc.so.2", "libjemalloc.so"},
	 "libjemalloc2",
	 {"MALLOC_CONF"},
	 "MALLOC_CONF=narenas\\:2"},
	{"tcmalloc",
	 {"libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so"},
	 "libtcmalloc-minimal4",
	 {"TCMALLOC_"},
	 "TCMALLOC_RELEASE_RATE=10"},
	{"mimalloc",
	 {"libmimalloc.so.2.0", "libmimalloc.so.3", "libmimalloc.so"},
	 "libmimalloc2.0",
	 {"MIMALLOC_"},
	 "MIMALLOC_PAGE_RESET=1"},
};

static const char *const folders[] = {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
				      "/usr/lib", "/lib"};

static char *own(struct scry_malloc_allocators *list, char *text)
{
	if (text)
		list->owned[list->owned_count++] = text;
	return text;
}

static const struct known *known_find(const char *name)
{
	for (size_t i = 0; i < sizeof(all_known) / sizeof(all_known[0]); i++)
		if (!strcmp(all_known[i].name, name))
			return &all_known[i];
	return NULL;
}

/* Is `entry`, NAME=VALUE, this variable, or does it begin so? */
static bool is_variable(const char *entry, const char *variable)
{
	size_t n = strlen(variable);

	return !strncmp(entry, variable, n) && (variable[n - 1] == '_' || entry[n] == '=');
}

static bool is_read_by_one(const char *entry)
{
	for (size_t i = 0; i < sizeof(all_known) / sizeof(all_known[0]); i++)
		for (size_t v = 0; v < 3 && all_known[i].variables[v]; v++)
			if (is_variable(entry, all_known[i].variables[v]))
				return true;
	return is_variable(entry, "LD_PRELOAD");
}

void scry_malloc_allocators_unset(void)
{
	char **to = environ;

	for (char **from = environ; *from; from++)
		if (!is_read_by_one(*from))
			*to++ = *from;
	*to = NULL;
}

/* The file of a known allocator; NULL: not installed. */
static char *file_find(const struct known *k)
{
	char *path;

	for (size_t i = 0; i < 3 && k->files[i]; i++)
		for (size_t j = 0; j < sizeof(folders) / sizeof(folders[0]); j++) {
			if (asprintf(&path, "%s/%s", folders[j], k->files[i]) < 0)
				return NULL;
			if (!access(path, R_OK))
				return path;
			free(path);
		}
	return NULL;
}

/* Cuts `text` at the first `separator` that has no backslash before it, and takes such backslashes
 * out. What follows, or NULL. */
static char *cut(char *text, char separator)
{
	char *to = text, *rest = NULL;

	for (; *text && !rest; text++) {
		if (*text == '\\' && text[1] == separator)
			*to++ = *++text;
		else if (*text == separator)
			rest = text + 1;
		else
			*to++ = *text;
	}
	*to = '\0';
	return rest;
}

static int take_env(struct scry_malloc_allocator *a, char *rest)
{
	while (rest) {
		char *word = rest;

		rest = cut(word, ':');
		if (!strchr(word, '=') || *word == '=')
			return scry_fail(-EINVAL,
					 "'%s': '%s' is not NAME=VALUE; fix: "
					 "glibc:MALLOC_ARENA_MAX=2",
					 a->label, word);
		if (a->env_count == SCRY_MALLOC_ENV_MAX)
			return scry_fail(-EINVAL, "'%s' has more than %d variables", a->label,
					 SCRY_MALLOC_ENV_MAX);
		a->env[a->env_count++] = word;
	}
	return 0;
}

/* A variable that is not read changes nothing, and the comparison would be with itself. */
static int check_env(const struct scry_malloc_allocator *a, const struct known *k)
{
	for (unsigned int i = 0; k && i < a->env_count; i++) {
		bool is_read = false;

		for (size_t v = 0; v < 3 && k->variables[v]; v++) {
			size_t len = strlen(k->variables[v]);
			char next =
				strncmp(a->env[i], k->variables[v], len) ? '\0' : a->env[i][len];

			is_read |= next == '=' || (next && k->variables[v][len - 1] == '_');
		}
		if (!is_read)
			return scry_fail(-EINVAL, "'%s': %s reads no variable '%.*s'; fix: %s:%s",
					 a->label, k->name, (int)strcspn(a->env[i], "="), a->env[i],
					 k->name, k->example);
	}
	return 0;
}

static int missing(struct scry_malloc_allocators *list, const struct known *k, const char *label)
{
	snprintf(list->missing[list->missing_count++], sizeof(list->missing[0]),
		 "%s is not installed and was left out; fix: apt-get install %s, or give its path",
		 label, k->package);
	return 0;
}

static int take_spec(struct scry_malloc_allocators *list, const char *word)
{
	struct scry_malloc_allocator a = {0};
	const struct known *k;
	char *spec, *rest, *path;
	int err;

	if (list->count + list->missing_count == SCRY_MALLOC_ALLOCATORS_MAX)
		return scry_fail(-EINVAL, "more than %d allocators", SCRY_MALLOC_ALLOCATORS_MAX);
	a.label = own(list, strdup(word));
	spec = own(list, strdup(word));
	if (!a.label || !spec)
		return scry_no_memory("");
	rest = cut(spec, ':');
	err = take_env(&a, rest);
	k = known_find(spec);
	err = err ? err : check_env(&a, k);
	if (err || (k && !k->files[0])) {
		if (!err)
			list->rows[list->count++] = a;
		return err;
	}
	if (!k && !strchr(spec, '/'))
		return scry_fail(-EINVAL,
				 "no allocator '%s' is known; fix: glibc, jemalloc, tcmalloc, "
				 "mimalloc, or the path of a library",
				 spec);
	path = own(list, k ? file_find(k) : realpath(spec, NULL));
	if (!path && k)
		return missing(list, k, a.label);
	if (!path)
		return scry_fail(-ENOENT, "cannot use '%s': %s", spec, strerror(errno));
	if (strpbrk(path, ": ")) /* LD_PRELOAD's separators */
		return scry_fail(-EINVAL, "'%s': a path with colons or blanks cannot be preloaded",
				 path);
	a.path = path;
	list->rows[list->count++] = a;
	return 0;
}

int scry_malloc_allocators_parse(const struct scry_opt_strings *words,
				 struct scry_malloc_allocators *list)
{
	int err = 0;

	memset(list, 0, sizeof(*list));
	for (size_t i = 0; i < words->count && !err; i++) {
		char *copy = strdup(words->values[i]), *spec = copy;

		if (!copy)
			return scry_no_memory("");
		while (spec && !err) {
			char *next = cut(spec, ',');

			err = take_spec(list, spec);
			spec = next;
		}
		free(copy);
	}
	return err;
}

void scry_malloc_allocators_done(struct scry_malloc_allocators *list)
{
	for (uint32_t i = 0; i < list->owned_count; i++)
		free(list->owned[i]);
	memset(list, 0, sizeof(*list));
}
