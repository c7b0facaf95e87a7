/* See functions.h. The names, and where each leads to, are one table. */
#include "instrument/malloc/functions.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/malloc.h"
#include "base/err.h"

struct member {
	const char *symbol, *handler;
	int nothrow; /* enum scry_nothrow, whose sister it is; -1 none */
	bool is_needed;
};

#define H(name) "scry_agent_" #name
#define NOTHROW "RKSt9nothrow_t"
#define ALIGNED "St11align_val_t"

static const struct member members[] = {
	{"malloc", H(malloc), -1, true},
	{"calloc", H(calloc), -1, true},
	{"realloc", H(realloc), -1, true},
	{"free", H(free), -1, true},
	{"cfree", H(free), -1, false},
	{"reallocarray", H(reallocarray), -1, false},
	{"posix_memalign", H(posix_memalign), -1, false},
	{"memalign", H(memalign), -1, false},
	{"aligned_alloc", H(aligned_alloc), -1, false},
	{"valloc", H(valloc), -1, false},
	{"pvalloc", H(pvalloc), -1, false},
	{"malloc_usable_size", H(usable_size), -1, false},
};

static const struct member operators[] = {
	{"_Znwm" NOTHROW, H(new_nothrow), SCRY_NOTHROW_NEW, false},
	{"_Znam" NOTHROW, H(new_array_nothrow), SCRY_NOTHROW_NEW_ARRAY, false},
	{"_Znwm" ALIGNED NOTHROW, H(new_aligned_nothrow), SCRY_NOTHROW_NEW_ALIGNED, false},
	{"_Znam" ALIGNED NOTHROW, H(new_array_aligned_nothrow), SCRY_NOTHROW_NEW_ARRAY_ALIGNED,
	 false},
	{"_Znwm", H(new), -1, false},
	{"_Znam", H(new_array), -1, false},
	{"_Znwm" ALIGNED, H(new_aligned), -1, false},
	{"_Znam" ALIGNED, H(new_array_aligned), -1, false},
	{"_ZdlPv", H(delete), -1, false},
	{"_ZdlPvm", H(delete), -1, false},
	{"_ZdlPv" NOTHROW, H(delete), -1, false},
	{"_ZdlPv" ALIGNED, H(delete), -1, false},
	{"_ZdlPvm" ALIGNED, H(delete), -1, false},
	{"_ZdlPv" ALIGNED NOTHROW, H(delete), -1, false},
	{"_ZdaPv", H(delete_array), -1, false},
	{"_ZdaPvm", H(delete_array), -1, false},
	{"_ZdaPv" NOTHROW, H(delete_array), -1, false},
	{"_ZdaPv" ALIGNED, H(delete_array), -1, false},
	{"_ZdaPvm" ALIGNED, H(delete_array), -1, false},
	{"_ZdaPv" ALIGNED NOTHROW, H(delete_array), -1, false},
};

/* jemalloc's own. Other programs have functions of these names that take other arguments: only
 * where there is JEMALLOC, too. */
#define JEMALLOC "mallctl"
static const struct member extended[] = {
	{"mallocx", H(mallocx), -1, false},  {"rallocx", H(rallocx), -1, false},
	{"xallocx", H(xallocx), -1, false},  {"dallocx", H(dallocx), -1, false},
	{"sdallocx", H(dallocx), -1, false},
};

/* With -f: where a child's part begins. */
static const struct member fork_ = {"fork", H(fork), -1, false};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

struct found {
	size_t object;
	uint64_t address; /* run-time */
};

/* Does object `i` export the function, or, where nothing is exported, have it? */
static bool defines(struct scry_hooks *h, size_t i, const char *name, struct found *ret)
{
	const struct scry_object *o = &h->objects.objects[i];
	struct scry_dynsym dyn = {0};
	struct scry_sym sym = {0};

	if (o->is_vdso || scry_linkmap_open(&h->objects, i) < 0) {
		scry_error_clear();
		return false;
	}
	if (scry_dynamic_find(&o->tables, name, "", &dyn) == 0 && dyn.value && dyn.type == STT_FUNC)
		*ret = (struct found){i, dyn.value + o->bias};
	else if (h->objects.is_static && scry_elf_symbol(o->elf, name, &sym) == 0 &&
		 sym.type == STT_FUNC)
		*ret = (struct found){i, sym.value + o->bias};
	else
		return false;
	return true;
}

/* Where the loader binds a name: its own namespace is the first. */
static bool find(struct scry_hooks *h, const char *name, struct found *ret)
{
	size_t end = h->objects.space_count ? h->objects.spaces[0].end : h->objects.count;

	for (size_t i = 0; i < end && i < h->objects.count; i++)
		if (defines(h, i, name, ret))
			return true;
	return false;
}

static const char *path_of(const struct scry_hooks *h, size_t object)
{
	const struct scry_object *o = &h->objects.objects[object];

	return o->mapping ? o->mapping->path : o->name;
}

static bool is_wanted(const struct scry_hooks *h, uint64_t address)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].address == address)
			return true;
	return false;
}

/* Names of one function: the first counts, as it is not known by which it was called. */
static int want(struct scry_hooks *h, const struct member *m, const struct found *at)
{
	const struct scry_hook_to to = {.kind = SCRY_HOOK_REPLACE,
					.way = SCRY_WAY_AUTO,
					.handler = m->handler,
					.is_exported = !h->objects.is_static};
	char request[640];

	if (is_wanted(h, at->address))
		return 0;
	snprintf(request, sizeof(request), "%s@%s", m->symbol, path_of(h, at->object));
	return scry_hooks_want(h, request, &to);
}

static void name_glibc(struct scry_malloc_functions *f, const struct scry_dynamic *d)
{
	unsigned int newest = 0, minor;

	for (size_t i = 0; i < d->version_names_count; i++)
		if (d->version_names[i] && sscanf(d->version_names[i], "GLIBC_2.%u", &minor) == 1 &&
		    minor > newest)
			newest = minor;
	snprintf(f->name, sizeof(f->name), "glibc 2.%u", newest);
}

static const char *const marks[][2] = {{JEMALLOC, "jemalloc"},
				       {"tc_malloc", "tcmalloc"},
				       {"mi_malloc", "mimalloc"},
				       {"__libc_malloc_impl", "musl"},
				       {"__libc_malloc", "glibc"}};

static void name_it(struct scry_malloc_functions *f, struct scry_hooks *h, size_t object)
{
	const struct scry_object *o = &h->objects.objects[object];
	struct found unused;
	size_t i = 0;

	while (i < COUNT(marks) && !defines(h, object, marks[i][0], &unused))
		i++;
	if (i < COUNT(marks))
		snprintf(f->name, sizeof(f->name), "%s", marks[i][1]);
	else if (o->is_loader || strstr(path_of(h, object), "musl"))
		snprintf(f->name, sizeof(f->name), "musl");
	if (i + 1 == COUNT(marks) && o->tables.soname && !strcmp(o->tables.soname, "libc.so.6")) {
		name_glibc(f, &o->tables);
		f->is_glibc = true;
	}
}

static int want_prefixed(struct scry_malloc_functions *f, struct scry_hooks *h,
			 const struct member *m)
{
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_AUTO, .handler = m->handler};
	char name[64], request[32];
	uint64_t at;
	size_t object;

	snprintf(name, sizeof(name), "%s%s", f->prefix, m->symbol);
	if (!scry_malloc_builtin_function(h, name, &at, &object) || is_wanted(h, at))
		return 0;
	if (!strcmp(m->symbol, "malloc_usable_size"))
		f->usable = at;
	snprintf(request, sizeof(request), "%#llx", (unsigned long long)at);
	return scry_hooks_want(h, request, &to);
}

/* The functions under a prefix. 0: this program has none of that name; 1: hooks are wanted. */
static int want_builtin(struct scry_malloc_functions *f, struct scry_hooks *h)
{
	char name[64];
	uint64_t at;
	size_t object, unused;
	int r = 0;

	snprintf(name, sizeof(name), "%smalloc", f->prefix);
	if (!scry_malloc_builtin_function(h, name, &at, &object))
		return 0;
	snprintf(f->module, sizeof(f->module), "%s", path_of(h, object));
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->start = h->objects.objects[object].start;
	f->end = h->objects.objects[object].end;
	for (size_t i = 0; i < COUNT(members) && r == 0; i++)
		r = want_prefixed(f, h, &members[i]);
	snprintf(name, sizeof(name), "%s" JEMALLOC, f->prefix);
	if (r < 0 || !scry_malloc_builtin_function(h, name, &at, &unused))
		return r < 0 ? r : 1;
	for (size_t i = 0; i < COUNT(extended) && r == 0; i++)
		r = want_prefixed(f, h, &extended[i]);
	return r < 0 ? r : 1;
}

int scry_malloc_functions_want(struct scry_malloc_functions *f, struct scry_hooks *h,
			       const struct scry_malloc_functions_opts *opts)
{
	struct found malloc_at, at;
	int r = 0;

	*f = (struct scry_malloc_functions){.spaces = h->objects.space_count};
	if (opts->prefix)
		snprintf(f->prefix, sizeof(f->prefix), "%s", opts->prefix);
	if (*f->prefix)
		r = want_builtin(f, h);
	if (r > 0)
		return opts->with_fork && find(h, fork_.symbol, &at) ? want(h, &fork_, &at) : 0;
	*f->prefix = 0;
	if (r < 0)
		return r;
	if (!find(h, "malloc", &malloc_at))
		return scry_fail(-ENOTSUP,
				 "process %d (%s) has no malloc that can be found: its program is "
				 "static without symbols, or uses none",
				 h->proc->pid, h->proc->comm);
	snprintf(f->module, sizeof(f->module), "%s", path_of(h, malloc_at.object));
	f->start = h->objects.objects[malloc_at.object].start;
	f->end = h->objects.objects[malloc_at.object].end;
	name_it(f, h, malloc_at.object);
	for (size_t i = 0; i < COUNT(members) && r == 0; i++)
		if (find(h, members[i].symbol, &at))
			r = want(h, &members[i], &at);
	for (size_t i = 0; i < COUNT(operators) && r == 0; i++)
		if (defines(h, malloc_at.object, operators[i].symbol, &at))
			r = want(h, &operators[i], &at);
	for (size_t i = 0; i < COUNT(extended) && r == 0; i++)
		if (defines(h, malloc_at.object, JEMALLOC, &at) &&
		    defines(h, malloc_at.object, extended[i].symbol, &at))
			r = want(h, &extended[i], &at);
	scry_malloc_builtin_find(h, f->module, &f->builtin);
	if (opts->with_fork && r == 0 && find(h, fork_.symbol, &at))
		r = want(h, &fork_, &at);
	if (defines(h, malloc_at.object, "malloc_usable_size", &at))
		f->usable = at.address;
	if (f->is_glibc && defines(h, malloc_at.object, "free", &at))
		f->free_at = at.address;
	return r;
}

static const struct scry_hook *row_of(const struct scry_hooks *h, const char *handler)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].to.handler && !strcmp(h->rows[i].to.handler, handler))
			return &h->rows[i];
	return NULL;
}

int scry_malloc_functions_check(const struct scry_malloc_functions *f, const struct scry_hooks *h)
{
	for (size_t i = 0; i < COUNT(members); i++) {
		const struct scry_hook *row = row_of(h, members[i].handler);

		/* what is not there is not called; in libc's absence, and for malloc itself, too */
		if (!row && i && (*f->prefix || h->objects.is_static))
			continue;
		if (members[i].is_needed && (!row || !row->way))
			return scry_fail(-ENOTSUP, "%s of %s cannot be hooked: %s",
					 members[i].symbol, f->module,
					 row ? row->why : "it does not exist");
	}
	return 0;
}

/* The function itself, past its hook; 0: it is hooked, and not known where it begins now. */
static uint64_t past_hook(const struct scry_hooks *h, uint64_t address, bool is_on)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (row->address == address && row->way == SCRY_WAY_ENTRY)
			return is_on && row->has_stub ? row->copy : 0;
	}
	return address;
}

int scry_malloc_functions_report(const struct scry_malloc_functions *f, const struct scry_hooks *h,
				 struct scry_inject *inj, bool is_on)
{
	struct scry_agent_malloc m = {.text = inj->header.text,
				      .text_end = inj->header.text + inj->header.text_size,
				      .start = f->start,
				      .end = f->end,
				      .free_at = f->free_at,
				      .is_glibc = f->is_glibc};
	int r;

	if (f->usable)
		m.usable = past_hook(h, f->usable, is_on);
	for (size_t i = 0; i < COUNT(operators); i++) {
		const struct scry_hook *row =
			operators[i].nothrow < 0 ? NULL : row_of(h, operators[i].handler);

		if (row)
			m.nothrow[operators[i].nothrow] = past_hook(h, row->address, is_on);
	}
	/* aliases: one function serves both */
	if (!m.nothrow[SCRY_NOTHROW_NEW_ARRAY])
		m.nothrow[SCRY_NOTHROW_NEW_ARRAY] = m.nothrow[SCRY_NOTHROW_NEW];
	if (!m.nothrow[SCRY_NOTHROW_NEW_ARRAY_ALIGNED])
		m.nothrow[SCRY_NOTHROW_NEW_ARRAY_ALIGNED] = m.nothrow[SCRY_NOTHROW_NEW_ALIGNED];
	r = scry_edit_poke(inj->mem.fd, scry_inject_symbol(inj, "scry_agent_malloc_functions"), &m,
			   sizeof(m));
	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

static void name_glibc_file(struct scry_malloc_functions *f, struct scry_elf *elf)
{
	uint64_t at, size;
	const uint8_t *names;
	unsigned int newest = 0, minor;

	if (scry_elf_section(elf, ".dynstr", &at, &size) < 0 ||
	    scry_elf_view(elf, at, &names) < size)
		return;
	for (const char *s = (const char *)names, *end = s + size; s < end; s += strlen(s) + 1)
		if (sscanf(s, "GLIBC_2.%u", &minor) == 1 && minor > newest)
			newest = minor;
	snprintf(f->name, sizeof(f->name), "glibc 2.%u", newest);
}

int scry_malloc_functions_at(struct scry_malloc_functions *f, pid_t pid, uint64_t malloc_at)
{
	const struct scry_map_entry *m;
	struct scry_maps maps;
	struct scry_elf *elf = NULL;
	struct scry_sym sym;
	size_t i = 0;
	int r = scry_maps_read(pid, &maps);

	if (r < 0)
		return r;
	m = scry_maps_at(&maps, malloc_at);
	snprintf(f->module, sizeof(f->module), "%s", m ? m->path : "");
	if (m && scry_elf_open_mapped(pid, m, &elf) == 0) {
		while (i < COUNT(marks) && scry_elf_symbol(elf, marks[i][0], &sym) < 0)
			i++;
		if (i < COUNT(marks))
			snprintf(f->name, sizeof(f->name), "%s", marks[i][1]);
		else if (strstr(m->path, "musl"))
			snprintf(f->name, sizeof(f->name), "musl");
		f->is_glibc = i + 1 == COUNT(marks);
		if (f->is_glibc)
			name_glibc_file(f, elf);
		f->has_operators = scry_elf_symbol(elf, operators[0].symbol, &sym) == 0;
	}
	scry_elf_close(elf);
	scry_maps_done(&maps);
	scry_error_clear();
	return 0;
}
