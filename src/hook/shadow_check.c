/*
 * Whose returns can be followed. A changed return address is noticed by those that look at it:
 * other unwinders, code that copies or moves stacks, functions that ask for their caller, and
 * functions that return twice or keep their return address elsewhere.
 */
#include <elf.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hook/renew.h"
#include "hook/shadow.h"

struct reason {
	const char *name, *why;
	bool is_plain; /* at its entry it is a function like others: it may be seen there */
};

static const char twice[] = "it returns twice, or keeps its return address for later";
static const char never[] = "it leaves by another way than it came";
static const char asks[] = "it looks at its caller";

static const struct reason functions[] = {
	{"setjmp", twice, true},
	{"_setjmp", twice, true},
	{"__sigsetjmp", twice, true},
	{"sigsetjmp", twice, true},
	{"vfork", twice, true},
	{"__vfork", twice, true},
	{"__libc_vfork", twice, true},
	{"getcontext", twice, true},
	{"__getcontext", twice, true},
	{"swapcontext", twice, true},
	{"__swapcontext", twice, true},
	{"setcontext", never, true},
	{"__setcontext", never, true},
	{"__start_context", never, false},
	{"longjmp", never, true},
	{"_longjmp", never, true},
	{"siglongjmp", never, true},
	{"__libc_longjmp", never, true},
	{"__libc_siglongjmp", never, true},
	{"__longjmp", never, false},
	{"____longjmp_chk", never, true},
	{"__longjmp_chk", never, true},
	{"__cxa_throw", never, true},
	{"__cxa_rethrow", never, true},
	{"__cxa_end_catch", asks, true},
	{"_Unwind_*", asks, false},
	{"uw_*", asks, false},
	{"__frame_state_for", asks, false},
	{"pthread_exit", never, true},
	{"__pthread_exit", never, true},
	{"__pthread_unwind*", never, false},
	{"clone", twice, true},
	{"__clone", twice, true},
	{"clone3", twice, false},
	{"__clone3", twice, false},
	{"__clone_internal", twice, false},
	{"_start", never, false},
	{"_dl_start_user", never, false},
	{"_dl_runtime_resolve*", never, false},
	{"_dl_runtime_profile*", never, false},
	{"_dl_tlsdesc*", asks, false},
	{"__restore_rt", never, false},
	{"restore_rt", never, false},
	{"__x86_return_thunk", never, false},
	{"__x86_indirect_*", never, false},
	{"__morestack*", twice, false},
	{"mcount", asks, false},
	{"__fentry__", asks, false},
	{"_mcount", asks, false},
	{"__cyg_profile_func_*", asks, false},
	{"dlopen", asks, true},
	{"dlmopen", asks, true},
	{"dlsym", asks, true},
	{"dlvsym", asks, true},
	{"___dlopen", asks, true},
	{"___dlsym", asks, true},
	{"___dlvsym", asks, true},
	{"___dlmopen", asks, true},
	{"__libc_dlopen_mode", asks, false},
	{"dl_iterate_phdr", asks, true},
	{"__dl_iterate_phdr", asks, true},
	{"_dl_find_object", asks, false},
	{"_dl_sym", asks, false},
	{"_dl_vsym", asks, false},
	{"_dl_open", asks, false},
	{"backtrace", asks, true},
	{"__backtrace", asks, true},
	{"__stack_chk_fail", never, true},
};

#define UNWINDS "it walks stacks by itself, and would stumble over a followed return"
#define MOVES "it copies stacks, and with them the returns that are being followed"
static const struct reason objects[] = {
	{"libunwind", UNWINDS, false},	{"libjvm", UNWINDS, false},
	{"libcoreclr", UNWINDS, false}, {"libmono", UNWINDS, false},
	{"libnode", UNWINDS, false},	{"libv8", UNWINDS, false},
	{"libluajit", UNWINDS, false},	{"libbacktrace", UNWINDS, false},
	{"_greenlet", MOVES, false},	{"continuation.so", MOVES, false},
	{"libasan", UNWINDS, false},	{"libtsan", UNWINDS, false},
};

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Why an object of this path forbids it, or NULL. */
static const char *object_refusal(const char *path)
{
	for (size_t k = 0; k < sizeof(objects) / sizeof(*objects); k++)
		if (!strncmp(file_name(path), objects[k].name, strlen(objects[k].name)))
			return objects[k].why;
	return NULL;
}

static const char go[] = "Go code";

static int refuse(const struct scry_hooks *h, const char *who, const char *why)
{
	return scry_fail(-ENOTSUP, "returns cannot be followed in process %d (%s): %s: %s; fix: %s",
			 h->proc->pid, h->proc->comm, who, why,
			 !strcmp(who, go) ? "Go's own pprof, or perf record -p PID"
					  : "scry patch count");
}

/* How many functions called so there are, added to `ret`. */
static size_t find(struct scry_hooks *h, const char *name, struct scry_functions *ret)
{
	size_t before = ret->count;

	scry_symbols_find(&h->objects, name, ret);
	scry_error_clear();
	return ret->count - before;
}

static bool is_go(struct scry_hooks *h)
{
	struct scry_functions names = {0};
	uint64_t at, size;
	bool found = find(h, "runtime.gopanic", &names) > 0;

	scry_functions_done(&names);
	for (size_t i = 0; i < h->objects.count && !found; i++)
		found = scry_linkmap_open(&h->objects, i) == 0 &&
			scry_elf_section(h->objects.objects[i].elf, ".gopclntab", &at, &size) == 0;
	scry_error_clear();
	return found;
}

/* An unwinder that is linked into an object has no entry that we know of, unless it says so. */
static const char *foreign_unwinder(struct scry_hooks *h)
{
	static const char *const names[] = {"_Unwind_Find_FDE", "_Unwind_RaiseException"};
	struct scry_functions found = {0};
	const char *who = NULL;

	for (size_t i = 0; i < 2; i++)
		find(h, names[i], &found);
	for (size_t i = 0; i < found.count && !who; i++) {
		const struct scry_object *o = &h->objects.objects[found.rows[i].object];

		if (!strstr(file_name(o->name), "libgcc_s"))
			who = *o->name ? o->name : "the program";
	}
	scry_functions_done(&found);
	return who;
}

static bool has_names(struct scry_hooks *h)
{
	struct scry_sym sym;
	size_t cursor = 0;
	bool found = false;

	if (scry_linkmap_open(&h->objects, 0) < 0)
		return false;
	while (!found && scry_elf_symtab_next(h->objects.objects[0].elf, &cursor, &sym))
		found = sym.type == STT_FUNC;
	return found;
}

/* By its names is known what unwinds a static program: libgcc's code, which is known by uw_*, none,
 * or another unwinder's. */
static const char *static_refusal(struct scry_hooks *h)
{
	static const char *const others[] = {"unw_step", "__unw_step", "_U*x86_64_step"};
	struct scry_functions found = {0};
	size_t strange = 0, fde, own, raise;

	if (!has_names(h))
		return "it is stripped, and what unwinds its stack is not known";
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		strange += find(h, others[i], &found);
	fde = find(h, "_Unwind_Find_FDE", &found);
	own = find(h, "uw_*", &found);
	raise = find(h, "_Unwind_RaiseException", &found);
	scry_functions_done(&found);
	if (strange || fde > 1 || (fde || raise ? !fde || !own : false))
		return "an unwinder other than libgcc's is linked into it";
	return NULL;
}

void scry_shadow_unwinder(struct scry_hooks *h, uint64_t ret[2])
{
	static const char *const parts[] = {"_Unwind_*", "uw_*", "execute_*"};
	struct scry_functions found = {0};

	ret[0] = ret[1] = 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && h->objects.is_static; i++)
		find(h, parts[i], &found);
	for (size_t i = 0; i < found.count; i++) {
		const struct scry_function *f = &found.rows[i];

		if (strstr(f->name, ".cold"))
			continue;
		if (!ret[0] || f->address < ret[0])
			ret[0] = f->address;
		if (f->address + f->size > ret[1])
			ret[1] = f->address + f->size;
	}
	scry_functions_done(&found);
}

int scry_shadow_want(struct scry_hooks *h)
{
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_find_fde"};
	int r = scry_hooks_want(
		h, h->objects.is_static ? "_Unwind_Find_FDE" : "_Unwind_Find_FDE@libgcc_s.so*",
		&to);

	if (r == -ENOENT) { /* nothing unwinds */
		scry_error_clear();
		r = 0;
	}
	return r;
}

int scry_shadow_guard(struct scry_hooks *h)
{
	static const char *const names[] = {"dlsym@*", "dlvsym@*", "dlopen@*", "dlmopen@*"};
	const struct scry_hook_to to = {.kind = SCRY_HOOK_CALL,
					.way = SCRY_WAY_ENTRY,
					.handler = "scry_agent_asked",
					.is_exported = !h->objects.is_static,
					.is_guard = true,
					/* the user's row is refused by its name */
					.is_beside = !h->takes_entries};
	int r = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && r == 0; i++)
		r = scry_hooks_guard(h, names[i], &to);
	return r;
}

const struct scry_hook *scry_shadow_unguarded(const struct scry_hooks *h)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (row->to.is_guard && row->to.kind == SCRY_HOOK_CALL && !row->way &&
		    !row->is_gone)
			return row;
	}
	return NULL;
}

int scry_shadow_check(struct scry_hooks *h)
{
	const char *who;

	if (h->objects.is_static) {
		who = static_refusal(h);
		if (who)
			return refuse(h, "a static program", who);
	}
	for (size_t i = 0; i < h->objects.count; i++) {
		const char *name = h->objects.objects[i].name;
		const char *path =
			h->objects.objects[i].mapping ? h->objects.objects[i].mapping->path : name;

		who = object_refusal(path);
		if (who)
			return refuse(h, path, who);
		if (strstr(file_name(path), "ld-musl"))
			return refuse(h, path, "in a program of musl the unwinder may be anywhere");
	}
	if (!strcmp(h->proc->comm, "node") || !strcmp(h->proc->comm, "java"))
		return refuse(h, h->proc->comm, UNWINDS);
	if (is_go(h))
		return refuse(h, go, "it moves stacks and walks them by itself");
	who = h->objects.is_static ? NULL : foreign_unwinder(h);
	return who ? refuse(h, who, "it has an unwinder of its own") : 0;
}

static bool is_unwinder_hooked(const struct scry_hooks *h, uint64_t at)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (row->to.kind == SCRY_HOOK_REPLACE && !row->to.is_guard && row->way &&
		    !row->is_gone && at >= row->object_start && at < row->object_end)
			return true;
	}
	return false;
}

const char *scry_shadow_newcomer(const struct scry_hooks *h)
{
	struct scry_maps maps = {0};
	const char *why = NULL;

	if (scry_maps_read(h->proc->pid, &maps) < 0)
		return NULL;
	for (size_t i = 0; i < maps.count && !why; i++) {
		const struct scry_map_entry *m = &maps.entries[i];

		if (!m->x || !m->inode)
			continue;
		why = object_refusal(m->path);
		if (!why && strstr(file_name(m->path), "libgcc_s") &&
		    !is_unwinder_hooked(h, m->start))
			why = "an unwinder was loaded, which was not there when the watch began";
	}
	scry_maps_done(&maps);
	return why;
}

static void take_way(struct scry_hooks *h, struct scry_hook *row, const char *why)
{
	if (row->way)
		h->refused++;
	row->way = 0;
	row->why = why;
}

/* Why a function called so is not followed, or NULL. */
static const struct reason *name_refusal(const char *name, bool has_type)
{
	for (size_t k = 0; k < sizeof(functions) / sizeof(*functions); k++) {
		bool is_glob = strpbrk(functions[k].name, "*?[") != NULL;

		if (is_glob ? has_type && fnmatch(functions[k].name, name, 0) == 0
			    : strcmp(functions[k].name, name) == 0)
			return &functions[k];
	}
	return NULL;
}

/* What is not plain by one of its names is not by the others. */
static void refuse_row(struct scry_hooks *h, struct scry_hook *row, const struct reason *why)
{
	if (!h->takes_entries || !why->is_plain) {
		take_way(h, row, why->why);
	} else if (row->way) {
		row->is_alone = true;
		row->why = why->why;
	}
}

struct naming {
	struct scry_hooks *h;
	struct scry_map rows; /* by address */
};

/* A name that begins where a row does: several rows may be of one function. */
static int refuse_if_named(const struct scry_function *function, uint8_t type, void *arg)
{
	bool has_type = type == STT_FUNC || type == STT_GNU_IFUNC;
	struct naming *n = arg;
	uint64_t known;
	const struct reason *why;

	if ((!has_type && type != STT_NOTYPE) || !scry_map_get(&n->rows, function->address, &known))
		return 0;
	why = name_refusal(function->name, has_type);
	for (size_t i = 0; why && i < n->h->count; i++)
		if (n->h->rows[i].to.kind == SCRY_HOOK_CALL && !n->h->rows[i].to.is_guard &&
		    n->h->rows[i].address == function->address)
			refuse_row(n->h, &n->h->rows[i], why);
	return 0;
}

/* All objects' names are searched once, not once for each name of the list. */
static int refuse_all_named(struct scry_hooks *h)
{
	struct naming n = {.h = h};
	int r = 0;

	scry_map_init(&n.rows, h->count + 1);
	for (size_t i = 0; i < h->count && r == 0; i++)
		if (h->rows[i].to.kind == SCRY_HOOK_CALL &&
		    scry_map_put(&n.rows, h->rows[i].address, 1) < 0)
			r = scry_no_memory("%zu functions", h->count);
	for (size_t i = 0; i < h->objects.count && r == 0 && h->count; i++)
		if (!scry_linkmap_is_repeated(&h->objects, i))
			scry_symbols_each(&h->objects, i, refuse_if_named, &n);
	if (r == 0) /* of objects that cannot be read */
		scry_error_clear();
	scry_map_done(&n.rows);
	return r;
}

/* Does it begin as functions do, with its return address on top of the stack? So says an unwind
 * table, or a symbol. */
static bool is_known_function(const struct scry_hooks *h, const struct scry_hook *row)
{
	ssize_t object = scry_linkmap_at(&h->objects, row->address);
	struct scry_text *text = object < 0 ? NULL : h->texts[object];
	const struct scry_text_range *range =
		text ? scry_text_at(text, row->address - h->objects.objects[object].bias) : NULL;

	return *row->symbol || (range && range->kind == SCRY_TEXT_FUNCTION &&
				range->start + h->objects.objects[object].bias == row->address);
}

bool scry_shadow_lacks(const struct scry_hooks *h)
{
	bool lacks = false;

	for (size_t i = 0; i < h->count; i++)
		lacks |= h->rows[i].to.kind == SCRY_HOOK_REPLACE && !h->rows[i].to.is_guard &&
			 h->rows[i].way != SCRY_WAY_ENTRY;
	return lacks;
}

int scry_shadow_refuse(struct scry_hooks *h)
{
	const struct scry_hook *first = NULL;
	size_t left = 0;
	int r = refuse_all_named(h);

	if (r < 0)
		return r;
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		if (row->to.is_guard) {
			if (row->to.kind == SCRY_HOOK_CALL)
				row->to.cookie = row->spares_red_zone ? SCRY_SHADOW_RED_ZONE : 0;
			continue;
		}
		if (row->to.kind == SCRY_HOOK_REPLACE) {
			if (row->way != SCRY_WAY_ENTRY)
				return refuse(h, row->module,
					      row->why ? row->why
						       : "its unwinder cannot be hooked");
			continue;
		}
		if (row->way == SCRY_WAY_ENTRY && !is_known_function(h, row))
			take_way(h, row,
				 "neither unwind table nor symbol says that it is a function");
		left += row->way != 0;
		first = first ? first : row;
	}
	if (!left && first)
		return scry_fail(-ENOTSUP, "the return of '%s' in '%s' cannot be followed: %s",
				 first->symbol, first->module, first->why);
	return 0;
}
