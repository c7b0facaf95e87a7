/* See malloc_places.h. */
#include "view/malloc_places.h"

#include "base/demangle.h"
#include "base/err.h"
#include "base/intern.h"
#include "base/text.h"
#include "view/gem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPED 5 /* one of so many bytes */

int scry_malloc_places_check(const struct scry_view_opts *opts)
{
	if (opts->live || opts->internal || opts->sort == SCRY_VIEW_SORT_AGE)
		return scry_fail(-EINVAL,
				 "--live, --internal and --sort age are for objects of a VM, and "
				 "this is of malloc; fix: --grep, --at end or --sort live");
	if (opts->by == SCRY_VIEW_BY_CLASS || opts->by == SCRY_VIEW_BY_GEM)
		return scry_fail(-EINVAL,
				 "calls of malloc are by line, file or method, or natively "
				 "by caller, module or stack; fix: --by with one of these");
	return 0;
}

const char *scry_malloc_places_noun(const struct scry_malloc_places *p, uint64_t count)
{
	static const char *const nouns[][2] = {
		[SCRY_VIEW_BY_FILE] = {"files", "file"},
		[SCRY_VIEW_BY_METHOD] = {"methods", "method"},
		[SCRY_VIEW_BY_MODULE] = {"modules", "module"},
		[SCRY_VIEW_BY_STACK] = {"stacks", "stack"},
	};
	const size_t by = (size_t)p->by;

	if (by < sizeof(nouns) / sizeof(nouns[0]) && nouns[by][0])
		return nouns[by][count == 1];
	return count == 1 ? "caller" : "callers";
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void put_native(const struct scry_malloc_places *p, const struct scry_ev_caller *n,
		       struct scry_buf *buf)
{
	const char *symbol = scry_reader_string(p->reader, n->symbol_str, NULL);
	const char *module = scry_reader_string(p->reader, n->module_str, NULL);

	if (module && (p->by == SCRY_VIEW_BY_FILE || p->by == SCRY_VIEW_BY_MODULE)) {
		scry_buf_printf(buf, "%s", p->has_base_names ? base_of(module) : module);
		return;
	}
	if (symbol)
		scry_demangle_put(symbol, strlen(symbol), buf);
	if (symbol && p->by != SCRY_VIEW_BY_METHOD)
		scry_buf_printf(buf, "+%#llx", (unsigned long long)n->offset);
	else if (symbol)
		;
	else if (module) /* for addr2line: link-time addresses */
		scry_buf_printf(buf, "%s+%#llx", base_of(module), (unsigned long long)n->offset);
	else if (n->caller)
		scry_buf_printf(buf, "caller %u, not named", n->caller);
	else
		scry_buf_printf(buf, "(caller not known)");
	if (module && symbol)
		scry_buf_printf(buf, " (%s)", base_of(module));
}

/* Natively, by the frame that is not a wrapper. */
static struct scry_ev_caller name_of(const struct scry_malloc_places *p,
				     const struct scry_malloc_caller_sum *c)
{
	struct scry_ev_caller n = c->name;
	const struct scry_ev_stack *f = scry_native_frames_caller(p->stacks, p->reader, n.stack);

	if (f && !(f->flags & SCRY_STACK_UNKNOWN)) {
		n.module_str = f->file_str;
		n.symbol_str = f->method_str;
		n.offset = f->offset;
	}
	if (p->by >= SCRY_VIEW_BY_CALLER)
		n.file_str = n.line = n.method_str = 0;
	return n;
}

void scry_malloc_places_put(const struct scry_malloc_places *p,
			    const struct scry_malloc_caller_sum *c, struct scry_buf *buf)
{
	const char *file = scry_reader_string(p->reader, c->name.file_str, NULL);
	const char *method = scry_reader_string(p->reader, c->name.method_str, NULL);
	const char *path = file && !p->has_whole_paths ? scry_gem_path(file) : file;

	if (!c->name.caller && !file && c->allocated &&
	    c->allocated == p->process->functions[SCRY_MALLOC_OLDER])
		scry_buf_printf(buf, "(older than the recording)");
	else if (p->by == SCRY_VIEW_BY_STACK && c->name.stack)
		scry_native_frames_put(p->stacks, p->reader, c->name.stack, buf);
	else if (!file)
		put_native(p, &c->name, buf);
	else if (p->by == SCRY_VIEW_BY_FILE)
		scry_buf_printf(buf, "%s", path);
	else if (p->by == SCRY_VIEW_BY_METHOD)
		scry_buf_printf(buf, "%s (%s)", method ? method : "?", path);
	else
		scry_buf_printf(buf, "%s:%u %s", path, c->name.line, method ? method : "");
}

/* What makes two callers the same place; as text, for names may come twice. */
static void put_key(const struct scry_malloc_places *p, const struct scry_malloc_caller_sum *c,
		    struct scry_buf *buf)
{
	const struct scry_ev_caller *n = &c->name;
	const char *path =
		scry_reader_string(p->reader, n->file_str ? n->file_str : n->module_str, NULL);

	scry_buf_clear(buf);
	scry_buf_printf(buf, "%d ", n->file_str != 0);
	scry_malloc_places_put(p, c, buf);
	if (path) /* the whole */
		scry_buf_printf(buf, " %s", path);
}

static void add_held(struct scry_malloc_held *sum, const struct scry_malloc_held *held)
{
	sum->blocks += held->blocks;
	sum->bytes += held->bytes;
}

static void add(struct scry_malloc_caller_sum *sum, const struct scry_malloc_caller_sum *c)
{
	struct scry_ev_caller *name = &sum->name;

	sum->allocated += c->allocated;
	sum->bytes += c->bytes;
	sum->ended += c->ended;
	sum->short_lived += c->short_lived;
	sum->temporary += c->temporary;
	for (int i = 0; i < SCRY_MALLOC_SIZE_ROWS; i++)
		sum->size_blocks[i] += c->size_blocks[i];
	add_held(&sum->live, &c->live);
	add_held(&sum->peak, &c->peak);
	add_held(&sum->at, &c->at);
	add_held(&sum->last, &c->last);
	sum->older += c->older;
	for (int i = 0; i < SCRY_MALLOC_MOMENTS; i++)
		sum->moments[i] += c->moments[i];
	if (name->module_str != c->name.module_str)
		name->module_str = 0;
	if (!name->module_str || name->symbol_str != c->name.symbol_str ||
	    name->offset != c->name.offset)
		name->offset = 0;
	if (!name->module_str || name->symbol_str != c->name.symbol_str)
		name->symbol_str = 0;
	if (name->line != c->name.line)
		name->line = 0;
	if (name->method_str != c->name.method_str)
		name->method_str = 0;
}

int scry_malloc_places_merge(const struct scry_malloc_places *places)
{
	struct scry_malloc_process *p = places->process;
	uint32_t *place_of = calloc(p->caller_count + 1ul, sizeof(*place_of));
	struct scry_intern keys;
	struct scry_buf key = {0};
	uint32_t count = 1;
	int err = place_of ? 0 : -ENOMEM;

	scry_intern_init(&keys, SCRY_MALLOC_SUM_CALLERS, UINT32_MAX);
	for (uint32_t i = 1; i < p->caller_count && !err; i++) {
		uint32_t id = 0;

		p->callers[i].name = name_of(places, &p->callers[i]);
		put_key(places, &p->callers[i], &key);
		err = scry_intern_put(&keys, key.data, key.len, &id);
		if (!err && place_of[id])
			add(&p->callers[place_of[id]], &p->callers[i]);
		else if (!err) {
			place_of[id] = count;
			p->callers[count++] = p->callers[i];
		}
	}
	p->caller_count = p->caller_count ? count : 0;
	scry_intern_done(&keys);
	scry_buf_done(&key);
	free(place_of);
	return err ? scry_no_memory("the places") : 0;
}

void scry_malloc_places_wrappers(const struct scry_malloc_places *places, struct scry_buf *buf)
{
	const struct scry_malloc_process *p = places->process;
	const char *name = NULL;
	uint64_t bytes = 0, most = 0;

	for (uint32_t i = 0; i < p->caller_count; i++) {
		const struct scry_malloc_caller_sum *c = &p->callers[i];
		const char *symbol = scry_reader_string(places->reader, c->name.symbol_str, NULL);

		if (c->name.stack || c->name.file_str || !symbol || !scry_native_is_wrapper(symbol))
			continue;
		bytes += c->bytes;
		name = c->bytes >= most ? symbol : name;
		most = c->bytes >= most ? c->bytes : most;
	}
	if (!name || bytes < p->bytes / WRAPPED)
		return;
	scry_buf_printf(buf, "%u %% of the bytes were asked for through ",
			(unsigned int)scry_share(bytes, p->bytes, 100));
	scry_demangle_put(name, strlen(name), buf);
	scry_buf_printf(buf, " and the like, which allocate for others; fix: record with --stack, "
			     "which names these others");
}
