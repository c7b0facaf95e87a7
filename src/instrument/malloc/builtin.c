/* See builtin.h. */
#include "instrument/malloc/builtin.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "sys/regular.h"

#define RODATA_MAX (64u << 20) /* bytes of a file that are searched */

static const char *const prefixes[] = {"je_", "_rjem_",	   "rjem_",	"_rjem_je_", "mi_",
				       "tc_", "jemalloc_", "tcmalloc_", "scalloc_",  NULL};
static const char said[] = "<jemalloc>: "; /* before each of its messages */

struct search {
	struct scry_malloc_builtin *ret;
	const char *module;
};

static int look(const struct scry_sym *sym, void *arg)
{
	struct search *s = arg;
	size_t n = strlen(sym->name);

	if (sym->type != STT_FUNC || n < 6 || strcmp(sym->name + n - 6, "malloc"))
		return 0;
	for (size_t i = 0; prefixes[i]; i++) {
		if (strlen(prefixes[i]) != n - 6 || strncmp(sym->name, prefixes[i], n - 6))
			continue;
		snprintf(s->ret->prefix, sizeof(s->ret->prefix), "%s", prefixes[i]);
		snprintf(s->ret->module, sizeof(s->ret->module), "%s", s->module);
		return 1;
	}
	return 0;
}

/* Files in which there is none, for the programs to come. A note says so: the times of a file's
 * changes are proof enough. */
#define KNOWN 64u
static struct stat known[KNOWN];
static size_t known_next;

static bool is_known(const struct stat *st)
{
	for (size_t i = 0; i < KNOWN; i++)
		if (scry_regular_is_same(&known[i], st))
			return true;
	return false;
}

static bool says(struct scry_elf *elf)
{
	const uint8_t *bytes;
	uint64_t at, size;
	size_t have;

	if (scry_elf_section(elf, ".rodata", &at, &size) < 0)
		return false;
	have = scry_elf_view(elf, at, &bytes);
	size = size < have ? size : have;
	return memmem(bytes, size < RODATA_MAX ? size : RODATA_MAX, said, sizeof(said) - 1);
}

static const char *path_of(const struct scry_hooks *h, size_t i)
{
	const struct scry_object *o = &h->objects.objects[i];

	return o->mapping ? o->mapping->path : o->name;
}

void scry_malloc_builtin_find(struct scry_hooks *h, const char *serving,
			      struct scry_malloc_builtin *ret)
{
	*ret = (struct scry_malloc_builtin){0};
	for (size_t i = 0; i < h->objects.count && !*ret->module; i++) {
		const struct scry_object *o = &h->objects.objects[i];
		struct search s = {ret, path_of(h, i)};
		struct stat st;

		if (o->is_vdso || o->is_loader || !strcmp(s.module, serving) ||
		    scry_linkmap_open(&h->objects, i) < 0)
			continue;
		if (fstat(scry_elf_fd(o->elf), &st) < 0 || is_known(&st))
			continue;
		scry_elf_each_symbol(o->elf, look, &s);
		if (!*ret->module && says(o->elf))
			snprintf(ret->module, sizeof(ret->module), "%s", s.module);
		if (!*ret->module)
			known[known_next++ % KNOWN] = st;
	}
	scry_error_clear();
}

bool scry_malloc_builtin_function(struct scry_hooks *h, const char *name, uint64_t *ret,
				  size_t *ret_object)
{
	struct scry_sym sym;

	for (size_t i = 0; i < h->objects.count; i++) {
		const struct scry_object *o = &h->objects.objects[i];

		if (o->is_vdso || scry_linkmap_open(&h->objects, i) < 0 ||
		    scry_elf_symbol(o->elf, name, &sym) < 0 || sym.type != STT_FUNC)
			continue;
		scry_error_clear();
		*ret = sym.value + o->bias;
		*ret_object = i;
		return true;
	}
	scry_error_clear();
	return false;
}
