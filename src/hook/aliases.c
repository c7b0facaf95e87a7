/* See aliases.h. */
#include "hook/aliases.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"

struct search {
	struct scry_hooks *h;
	struct scry_map rows; /* address -> index */
	bool *is_exported;    /* by row: its symbol is */
	bool *concerns;	      /* by object: has rows */
};

static int no_memory(void)
{
	return scry_no_memory("the names of functions");
}

/* An IFUNC's names are at its resolver. */
static uint64_t address_of(const struct scry_hook *row)
{
	return row->resolver ? row->resolver : row->address;
}

static bool is_meant(const struct scry_hook *row)
{
	return row->way && *row->symbol && !row->aliases && !row->to.is_guard &&
	       row->to.way != SCRY_WAY_CALLS;
}

/* Of lines: is it one? ret_count: how many there are. */
static bool is_in(const char *lines, const char *name, size_t *ret_count)
{
	const size_t length = strlen(name);
	bool is = false;

	*ret_count = 0;
	for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
		is |= (size_t)(end - lines) == length && !memcmp(lines, name, length);
		++*ret_count;
	}
	return is;
}

/* As people read them: a name with more underscores in front, and one that reads the same, are
 * another spelling. */
static bool is_spelling(const char *name, const char *symbol)
{
	const struct scry_shown is = scry_demangle_shown(name), of = scry_demangle_shown(symbol);
	const size_t length = strlen(symbol);

	return !strcmp(is.text, of.text) || strspn(is.text, "_") > strspn(of.text, "_") ||
	       (!strncmp(name, symbol, length) && name[length] == '.');
}

static int add(struct scry_hook *row, const char *name)
{
	const size_t used = strlen(row->aliases);
	size_t count;
	char *more;

	if (!*name || strchr(name, '\n') || is_in(row->aliases, name, &count) ||
	    count > SCRY_ALIASES_MAX || is_spelling(name, row->symbol))
		return 0;
	if (count == SCRY_ALIASES_MAX)
		name = "...";
	more = realloc(row->aliases, used + strlen(name) + 2);
	if (!more)
		return no_memory();
	row->aliases = more;
	strcpy(stpcpy(more + used, name), "\n");
	return 0;
}

static int take(const struct scry_function *function, uint8_t type, void *arg)
{
	struct search *s = arg;
	struct scry_hook *row;
	uint64_t i;

	if ((type != STT_FUNC && type != STT_GNU_IFUNC) ||
	    !scry_map_get(&s->rows, function->address, &i))
		return 0;
	row = &s->h->rows[i];
	if (function->is_exported)
		s->is_exported[i] |= !strcmp(function->name, row->symbol);
	else if (s->is_exported[i])
		return 0;
	return add(row, function->name);
}

static int take_exported(struct search *s, size_t object)
{
	const struct scry_object *o = &s->h->objects.objects[object];
	struct scry_dynsym sym;
	int r = 0;

	for (size_t i = 1; i < o->tables.symbol_count && r == 0; i++) {
		struct scry_function f = {.is_exported = true};

		if (!scry_dynamic_symbol(&o->tables, i, &sym) || !sym.is_defined)
			continue;
		f.address = o->bias + sym.value;
		f.name = sym.name;
		r = take(&f, sym.type, s);
	}
	return r;
}

/* Do local names of the object matter? */
static bool has_local(const struct search *s, size_t object)
{
	const struct scry_hooks *h = s->h;
	uint64_t k;

	for (size_t i = 0; i < h->count; i++)
		if (scry_map_get(&s->rows, address_of(&h->rows[i]), &k) && k == i &&
		    !s->is_exported[i] &&
		    scry_linkmap_at(&h->objects, h->rows[i].address) == (ssize_t)object)
			return true;
	return false;
}

static int begin(struct search *s)
{
	struct scry_hooks *h = s->h;

	s->is_exported = calloc(h->count + 1, sizeof(bool));
	s->concerns = calloc(h->objects.count + 1, sizeof(bool));
	if (!s->is_exported || !s->concerns)
		return no_memory();
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];
		const ssize_t object = scry_linkmap_at(&h->objects, row->address);

		if (!is_meant(row) || object < 0)
			continue;
		row->aliases = strdup("");
		if (!row->aliases || scry_map_put(&s->rows, address_of(row), i) < 0)
			return no_memory();
		s->concerns[object] = true;
	}
	return 0;
}

int scry_aliases_find(struct scry_hooks *h)
{
	struct search s = {.h = h};
	int r;

	scry_map_init(&s.rows, SCRY_FUNCTIONS_MAX);
	r = begin(&s);
	for (size_t i = 0; i < h->objects.count && r == 0; i++) {
		if (!s.concerns[i] || scry_linkmap_open(&h->objects, i) < 0)
			continue;
		r = take_exported(&s, i);
		if (r == 0 && has_local(&s, i))
			r = scry_symbols_each(&h->objects, i, take, &s);
	}
	if (r == 0)
		scry_error_clear();
	scry_map_done(&s.rows);
	free(s.is_exported);
	free(s.concerns);
	return r;
}
