/*
 * SYMBOL[@LIB] and SYMBOL@VERSION to functions.
 *
 * Exported functions of an exact name are found by the hash that the loader uses, each version.
 * Else each object's tables are walked once per request; strcmp ends at the first character mostly.
 */
#include "sys/symbols.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/demangle.h"
#include "base/err.h"
#include "sys/debug_file.h"
#include "sys/filter.h"

#define NAME_MAX_BYTES 512

struct request {
	char name[NAME_MAX_BYTES];
	const char *library; /* NULL: any */
	const char *version; /* NULL: any */
	bool is_glob, is_address, by_part, is_exported, is_for_ifuncs;
	uint64_t address;
	struct scry_filter *filter; /* owned; NULL: one name, glob or address */
};

bool scry_symbols_is_filter(const char *request)
{
	return *request == '+' || *request == '-';
}

static struct scry_filter_object described(const struct scry_object *o)
{
	return (struct scry_filter_object){.soname = o->tables.soname,
					   .path = o->mapping ? o->mapping->path : o->name,
					   .is_main = o->is_main};
}

static bool has_glob(const char *text)
{
	return strpbrk(text, "*?[") != NULL;
}

static int parse(const char *text, struct request *ret)
{
	struct request q = {0};
	const char *at = strchr(text, '@');
	size_t len = at ? (size_t)(at - text) : strlen(text);
	char *end;

	if (scry_symbols_is_filter(text)) {
		int r = scry_filter_parse(text, &q.filter);

		q.is_glob = true;
		*ret = q;
		return r;
	}
	if (len == 0 || len >= sizeof(q.name) || (at && !at[1 + (at[1] == '@')]))
		return scry_fail(-EINVAL,
				 "'%s' names no function; fix: SYMBOL, SYMBOL@LIB or 0xADDRESS@LIB",
				 text);
	memcpy(q.name, text, len);
	q.library = at ? at + 1 + (at[1] == '@') : NULL;
	q.is_glob = has_glob(q.name);
	if (strncmp(q.name, "0x", 2) == 0) {
		errno = 0;
		q.address = strtoull(q.name + 2, &end, 16);
		q.is_address = true;
		if (errno || *end || end == q.name + 2)
			return scry_fail(-EINVAL, "'%s' is not a hexadecimal address", q.name);
	}
	*ret = q;
	return 0;
}

/* Of the library that was asked for? */
static bool is_wanted(const struct request *q, const struct scry_object *o)
{
	const char *path = o->mapping ? o->mapping->path : o->name;
	const struct scry_filter_object object = described(o);

	if (q->filter)
		return scry_filter_concerns(q->filter, &object);
	if (!q->library)
		return true;
	if (has_glob(q->library)) {
		const char *slash = strrchr(path, '/');

		return fnmatch(q->library, slash ? slash + 1 : path, 0) == 0 ||
		       fnmatch(q->library, path, 0) == 0 ||
		       (o->tables.soname && fnmatch(q->library, o->tables.soname, 0) == 0);
	}
	if (q->by_part)
		return strstr(path, q->library) || strstr(o->name, q->library);
	return strcmp(path, q->library) == 0 ||
	       (!strchr(q->library, '/') && scry_linkmap_is_named(o, q->library));
}

static bool is_called(const char *name, const void *request)
{
	const struct request *q = request;

	return q->is_glob ? fnmatch(q->name, name, 0) == 0 : strcmp(q->name, name) == 0;
}

static bool is_named(const struct request *q, const struct scry_object *o, const char *name)
{
	const struct scry_filter_object object = described(o);

	if (q->filter)
		return scry_filter_takes(q->filter, name, &object);
	return scry_demangle_any(name, is_called, q);
}

/* Names of the C library that programs of today do not use, where the function has another one. */
static bool is_older_name(const char *name)
{
	static const char *const older[] = {
		"bcmp",	     "bsd_signal", "cfree",	"euidaccess",  "gsignal",   "imaxabs",
		"imaxdiv",   "index",	   "llseek",	"ntp_adjtime", "rindex",    "siglongjmp",
		"srandom",   "ssignal",	   "strtoimax", "strtoq",      "strtoumax", "strtouq",
		"timelocal", "wcstoimax",  "wcstoq",	"wcstoumax",   "wcstouq",   "wcswcs"};

	for (size_t i = 0; i < sizeof(older) / sizeof(*older); i++)
		if (!strcmp(name, older[i]))
			return true;
	return false;
}

/* Is `other` the name that people know the function by, rather than `name`? close, not __close;
 * fopen, not fopen64; strrchr, not rindex. */
static bool is_more_public(const struct scry_function *other, const struct scry_function *name)
{
	const size_t dashes = strspn(other->name, "_"), name_dashes = strspn(name->name, "_");

	if (other->is_exported != name->is_exported)
		return other->is_exported;
	if (dashes != name_dashes)
		return dashes < name_dashes;
	if (is_older_name(other->name) != is_older_name(name->name))
		return is_older_name(name->name);
	return !strpbrk(other->name, "0123456789") && strpbrk(name->name, "0123456789");
}

static int add(struct scry_functions *f, const struct scry_function *function)
{
	uint64_t index;

	f->hits++;
	if (!f->by_address.limit)
		scry_map_init(&f->by_address, SCRY_FUNCTIONS_MAX);
	if (scry_map_get(&f->by_address, function->address, &index)) {
		struct scry_function *row = &f->rows[index];

		if (is_more_public(function, row)) {
			row->name = function->name;
			row->version = function->version;
			row->is_exported = function->is_exported;
		}
		return 0;
	}
	if (f->count == SCRY_FUNCTIONS_MAX)
		return scry_fail(-ENOSPC, "more than %d functions are asked for; fix: name fewer",
				 SCRY_FUNCTIONS_MAX);
	if (f->count == f->room) {
		size_t room = f->room ? f->room * 2 : 64;
		struct scry_function *more = realloc(f->rows, room * sizeof(*more));

		if (!more)
			return scry_no_memory("%zu functions", room);
		f->rows = more;
		f->room = room;
	}
	if (scry_map_put(&f->by_address, function->address, f->count) < 0)
		return scry_no_memory("%zu functions", f->room);
	f->rows[f->count++] = *function;
	return 0;
}

/* Code, and of this very object: what a broken symbol table says is not believed. */
static bool is_code(const struct scry_linkmap *lm, const struct scry_object *o, uint64_t addr)
{
	const struct scry_map_entry *m = scry_maps_at(&lm->maps, addr);

	return m && m->x && m->inode == o->mapping->inode &&
	       m->dev_major == o->mapping->dev_major && m->dev_minor == o->mapping->dev_minor;
}

static int add_symbol(struct scry_linkmap *lm, const struct request *q, size_t object,
		      const struct scry_function *found, uint8_t type, struct scry_functions *ret)
{
	struct scry_function function = *found;

	if (q->is_for_ifuncs && type != STT_GNU_IFUNC)
		return 0;
	/* Assembler functions without a type: when asked for by name. */
	if (type != STT_FUNC && type != STT_GNU_IFUNC && !(type == STT_NOTYPE && !q->is_glob))
		return 0;
	if (q->version && fnmatch(q->version, function.version, 0) != 0)
		return 0;
	if (!is_named(q, &lm->objects[object], function.name) ||
	    !is_code(lm, &lm->objects[object], function.address))
		return 0;
	function.object = (uint32_t)object;
	function.is_ifunc = type == STT_GNU_IFUNC;
	return add(ret, &function);
}

static struct scry_function exported(const struct scry_linkmap *lm, size_t object,
				     const struct scry_dynsym *dyn)
{
	return (struct scry_function){.address = lm->objects[object].bias + dyn->value,
				      .size = dyn->size,
				      .object = (uint32_t)object,
				      .is_exported = true,
				      .name = dyn->name,
				      .version = dyn->version};
}

/* Names of an object, exported ones first. */
static int each_name(struct scry_linkmap *lm, size_t object, bool is_exported,
		     scry_symbol_each *each, void *arg)
{
	const struct scry_object *o = &lm->objects[object];
	struct scry_function f = {0};
	struct scry_dynsym dyn;
	struct scry_sym sym;
	size_t cursor = 0;
	int r = 0;

	for (size_t i = 1; i < o->tables.symbol_count && r == 0; i++) {
		if (!scry_dynamic_symbol(&o->tables, i, &dyn) || !dyn.is_defined)
			continue;
		f = exported(lm, object, &dyn);
		r = each(&f, dyn.type, arg);
	}
	if (!is_exported)
		scry_debug_file_lend(o->elf, o->mapping ? o->mapping->path : o->name);
	while (r == 0 && !is_exported && scry_elf_symtab_next(o->elf, &cursor, &sym)) {
		f = (struct scry_function){.address = o->bias + sym.value,
					   .size = sym.size,
					   .object = (uint32_t)object,
					   .name = sym.name,
					   .version = ""};
		r = each(&f, sym.type, arg);
	}
	return r;
}

int scry_symbols_each(struct scry_linkmap *lm, size_t object, scry_symbol_each *each, void *arg)
{
	int r = scry_linkmap_open(lm, object);

	return r < 0 ? r : each_name(lm, object, false, each, arg);
}

static int offer_name(const struct scry_function *function, uint8_t type, void *arg)
{
	/* undefined ones of a file's own table have their version in the name */
	if ((type == STT_FUNC || type == STT_GNU_IFUNC) && !strchr(function->name, '@'))
		scry_nearest_offer(arg, function->name);
	return 0;
}

/* The number of objects that are concerned. */
static size_t offer_names(struct scry_linkmap *lm, const struct request *q,
			  struct scry_nearest *near)
{
	size_t objects = 0;

	for (size_t i = 0; i < lm->count; i++) {
		if (!is_wanted(q, &lm->objects[i]) || scry_linkmap_is_repeated(lm, i))
			continue;
		objects++;
		scry_symbols_each(lm, i, offer_name, near);
	}
	return objects;
}

struct scry_nearest_text scry_symbols_ask(struct scry_linkmap *lm, const char *request)
{
	struct scry_nearest near;
	struct request q = {0};

	if (scry_symbols_is_filter(request) || parse(request, &q) < 0 || q.is_glob || q.is_address)
		return (struct scry_nearest_text){0};
	scry_nearest_begin(&near, q.name);
	if (offer_names(lm, &q, &near) == 0) {
		q.by_part = true;
		if (offer_names(lm, &q, &near) == 0) { /* it may be a version */
			q.library = NULL;
			offer_names(lm, &q, &near);
		}
	}
	return scry_nearest_ask(&near);
}

struct finding {
	struct scry_linkmap *lm;
	const struct request *q;
	struct scry_functions *ret;
};

static int take_name(const struct scry_function *function, uint8_t type, void *arg)
{
	struct finding *f = arg;

	return add_symbol(f->lm, f->q, function->object, function, type, f->ret);
}

static int find_hashed(struct scry_linkmap *lm, const struct request *q, size_t object,
		       struct scry_functions *ret)
{
	const struct scry_dynamic *tables = &lm->objects[object].tables;
	struct scry_dynsym dyn;
	size_t cursor = 0;
	int r = 0;

	while (r == 0 && scry_dynamic_named(tables, q->name, &cursor, &dyn)) {
		const struct scry_function f = exported(lm, object, &dyn);

		r = add_symbol(lm, q, object, &f, dyn.type, ret);
	}
	return r;
}

static int find_names(struct scry_linkmap *lm, const struct request *q, size_t object,
		      struct scry_functions *ret)
{
	struct finding f = {.lm = lm, .q = q, .ret = ret};

	if (q->is_exported && !q->is_glob)
		return find_hashed(lm, q, object, ret);
	return each_name(lm, object, q->is_exported, take_name, &f);
}

/* An address: with the name that begins there, if one does. */
static int find_address(struct scry_linkmap *lm, const struct request *q, size_t object,
			struct scry_functions *ret)
{
	const struct scry_object *o = &lm->objects[object];
	uint64_t addr = q->address + (q->library ? o->bias : 0);
	struct scry_function f = {
		.address = addr, .object = (uint32_t)object, .name = "", .version = ""};
	struct scry_sym sym;

	if (!is_code(lm, o, addr) || addr < o->start || addr >= o->end)
		return 0;
	if (scry_elf_symbol_at(o->elf, addr - o->bias, &sym) == 0 && sym.value == addr - o->bias) {
		f.name = sym.name;
		f.size = sym.size;
		f.is_ifunc = sym.type == STT_GNU_IFUNC;
	}
	return add(ret, &f);
}

/* Objects called so, and functions of theirs that were there to be found. */
static int find_in_objects(struct scry_linkmap *lm, const struct request *q,
			   struct scry_functions *ret, size_t *ret_objects)
{
	int r = 0;

	*ret_objects = 0;
	for (size_t i = 0; i < lm->count && r == 0; i++) {
		if (!lm->objects[i].elf || !is_wanted(q, &lm->objects[i]) ||
		    scry_linkmap_is_repeated(lm, i))
			continue;
		++*ret_objects;
		r = q->is_address ? find_address(lm, q, i, ret) : find_names(lm, q, i, ret);
	}
	return r;
}

/* What could not be looked into: it may define it. */
struct unread {
	char text[512];
};
static struct unread unread(const struct scry_linkmap *lm)
{
	struct unread ret = {""};

	for (size_t i = 0; i < lm->count && !ret.text[0]; i++)
		if (lm->objects[i].open_error == -ETIMEDOUT)
			snprintf(ret.text, sizeof(ret.text),
				 "; '%.400s' cannot be read: its server does not answer",
				 lm->objects[i].name);
	return ret;
}

static int no_such(const struct scry_linkmap *lm, const char *filter)
{
	return scry_fail(-ENOENT, "no loaded object of process %d defines a function of '%s'%s",
			 (int)lm->pid, filter + 1, unread(lm).text);
}

static int find(struct scry_linkmap *lm, const char *request, bool is_exported,
		struct scry_functions *ret)
{
	size_t objects, hits = ret->hits;
	struct request q;
	int r = parse(request, &q);

	q.is_exported = is_exported;
	if (r < 0)
		return r;
	scry_linkmap_open_all(lm);
	r = find_in_objects(lm, &q, ret, &objects);
	scry_filter_free(q.filter);
	if (q.filter)
		return r == 0 && ret->hits == hits ? no_such(lm, request) : r;
	if (r == 0 && objects == 0 && !q.is_address) { /* no object is called so: a version */
		q.version = q.library;
		q.library = NULL;
		r = find_in_objects(lm, &q, ret, &objects);
		q.library = q.version;
		q.version = NULL;
		objects = ret->hits > hits;
	}
	if (r == 0 && objects == 0) { /* or an object whose path has it in it */
		q.by_part = true;
		r = find_in_objects(lm, &q, ret, &objects);
	}
	if (r == 0 && objects == 0)
		return scry_fail(-ENOENT,
				 "process %d has loaded no object '%s', nor is that a version of "
				 "'%s'; fix: see /proc/%d/maps",
				 (int)lm->pid, q.library ? q.library : "", q.name, (int)lm->pid);
	if (r == 0 && ret->hits == hits)
		return scry_fail(
			-ENOENT, "no loaded object of process %d defines a function '%s'%s%s%s%s",
			(int)lm->pid, q.name, q.library ? " in " : "", q.library ? q.library : "",
			scry_symbols_ask(lm, request).text, unread(lm).text);
	return r;
}

int scry_symbols_find(struct scry_linkmap *lm, const char *request, struct scry_functions *ret)
{
	return find(lm, request, false, ret);
}

int scry_symbols_find_exported(struct scry_linkmap *lm, const char *request,
			       struct scry_functions *ret)
{
	return find(lm, request, true, ret);
}

int scry_symbols_find_ifuncs(struct scry_linkmap *lm, struct scry_functions *ret)
{
	const struct request q = {.name = "*", .is_glob = true, .is_for_ifuncs = true};
	size_t objects;

	scry_linkmap_open_all(lm);
	return find_in_objects(lm, &q, ret, &objects);
}

/* Names that objects the filter takes have slots for. */
static int collect_called(struct scry_linkmap *lm, const struct scry_filter *filter,
			  struct scry_map *names)
{
	for (size_t i = 0; i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];
		const struct scry_filter_object object = described(o);
		struct scry_dynsym sym;

		if (!o->elf || scry_linkmap_is_repeated(lm, i) ||
		    !scry_filter_concerns(filter, &object))
			continue;
		for (size_t t = 0; t < o->tables.rela_count; t++)
			for (size_t k = 0; k < o->tables.rela[t].count; k++) {
				Elf64_Rela rela = scry_dynamic_rela(&o->tables, t, k);
				uint32_t type = (uint32_t)ELF64_R_TYPE(rela.r_info);

				if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) ||
				    !scry_dynamic_symbol(&o->tables, ELF64_R_SYM(rela.r_info),
							 &sym) ||
				    !scry_filter_takes(filter, sym.name, &object))
					continue;
				if (scry_map_put(names, XXH3_64bits(sym.name, strlen(sym.name)),
						 1) < 0)
					return scry_no_memory("the names of functions");
			}
	}
	return 0;
}

/* The functions of these names, exported by any object. */
static int find_exported(struct scry_linkmap *lm, const struct scry_map *names,
			 struct scry_functions *ret)
{
	int r = 0;

	for (size_t i = 0; i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];
		struct scry_dynsym dyn;
		uint64_t known;

		if (!o->elf || scry_linkmap_is_repeated(lm, i))
			continue;
		for (size_t k = 1; k < o->tables.symbol_count && r == 0; k++) {
			struct scry_function f;

			if (!scry_dynamic_symbol(&o->tables, k, &dyn) || !dyn.is_defined ||
			    (dyn.type != STT_FUNC && dyn.type != STT_GNU_IFUNC) ||
			    !scry_map_get(names, XXH3_64bits(dyn.name, strlen(dyn.name)), &known))
				continue;
			f = exported(lm, i, &dyn);
			f.is_ifunc = dyn.type == STT_GNU_IFUNC;
			if (is_code(lm, o, f.address))
				r = add(ret, &f);
		}
	}
	return r;
}

static bool has_irelative(const struct scry_object *o)
{
	for (size_t t = 0; t < o->tables.rela_count; t++)
		for (size_t k = 0; k < o->tables.rela[t].count; k++) {
			Elf64_Rela rela = scry_dynamic_rela(&o->tables, t, k);

			if (ELF64_R_TYPE(rela.r_info) == R_X86_64_IRELATIVE)
				return true;
		}
	return false;
}

/* IFUNCs that an object calls itself: through slots too, which have no name. */
static int find_own_ifuncs(struct scry_linkmap *lm, struct scry_filter *filter,
			   struct scry_functions *ret)
{
	const struct request q = {
		.name = "*", .is_glob = true, .is_for_ifuncs = true, .filter = filter};
	int r = 0;

	for (size_t i = 0; i < lm->count && r == 0; i++) {
		const struct scry_object *o = &lm->objects[i];

		if (o->elf && !scry_linkmap_is_repeated(lm, i) && is_wanted(&q, o) &&
		    has_irelative(o))
			r = find_names(lm, &q, i, ret);
	}
	return r;
}

int scry_symbols_find_called(struct scry_linkmap *lm, const char *filter,
			     struct scry_functions *ret)
{
	struct scry_map names = {0};
	struct scry_filter *f;
	int r = scry_filter_parse(filter, &f);

	if (r < 0)
		return r;
	scry_linkmap_open_all(lm);
	scry_map_init(&names, SCRY_FUNCTIONS_MAX);
	r = collect_called(lm, f, &names);
	if (r == 0)
		r = find_exported(lm, &names, ret);
	if (r == 0)
		r = find_own_ifuncs(lm, f, ret);
	scry_map_done(&names);
	scry_filter_free(f);
	return r;
}

void scry_functions_done(struct scry_functions *functions)
{
	free(functions->rows);
	scry_map_done(&functions->by_address);
	*functions = (struct scry_functions){0};
}

ssize_t scry_functions_at(const struct scry_functions *functions, uint64_t addr)
{
	uint64_t index;

	return functions->count && scry_map_get(&functions->by_address, addr, &index)
		       ? (ssize_t)index
		       : -ENOENT;
}
