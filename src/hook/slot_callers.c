/* See slot_callers.h. */
#include "hook/slot_callers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"
#include "hook/renew.h"
#include "sys/filter.h"

static int no_memory(void)
{
	return scry_no_memory("the hooks");
}

int scry_slot_callers_read(struct scry_slot_callers *c, const struct scry_hooks *h)
{
	int r = 0;

	*c = (struct scry_slot_callers){
		.filters = calloc(h->request_count + 1, sizeof(struct scry_filter *))};
	if (!c->filters)
		return no_memory();
	for (size_t q = 0; q < h->request_count && r == 0; q++) {
		if (h->request_to[q].way != SCRY_WAY_CALLS)
			continue;
		r = scry_filter_parse(h->requests[q], &c->filters[c->count]);
		c->count += r == 0;
	}
	return r;
}

void scry_slot_callers_done(struct scry_slot_callers *c)
{
	for (size_t i = 0; i < c->count; i++)
		scry_filter_free(c->filters[i]);
	free(c->filters);
	*c = (struct scry_slot_callers){0};
}

size_t scry_slot_callers_first(const struct scry_slots *slots, uint32_t function)
{
	return scry_bisect(slots->count, i, slots->rows[i].function < function);
}

static const char *path_of(const struct scry_object *o)
{
	return o->mapping ? o->mapping->path : o->name;
}

/* An object's own IFUNC has no name but the function's. */
static const char *name_of(const struct scry_hooks *h, const struct scry_slot *slot)
{
	return *slot->name ? slot->name : h->functions.rows[slot->function].name;
}

/* The one that the caller asks for, by that name. */
static const char *version_of(const struct scry_hooks *h, const struct scry_slot *slot)
{
	return *slot->name ? slot->version : h->functions.rows[slot->function].version;
}

static bool is_asked_for(const struct scry_slot_callers *c, const struct scry_hooks *h,
			 const struct scry_slot *slot)
{
	const struct scry_object *o = &h->objects.objects[slot->object];
	const struct scry_filter_object object = {
		.soname = o->tables.soname, .path = path_of(o), .is_main = o->is_main};

	for (size_t i = 0; i < c->count; i++)
		if (scry_filter_takes(c->filters[i], name_of(h, slot), &object))
			return true;
	return false;
}

static bool is_of(const struct scry_hook *row, const struct scry_hooks *h,
		  const struct scry_slot *slot)
{
	return !strcmp(row->symbol, name_of(h, slot)) &&
	       (!row->caller || !strcmp(row->caller, path_of(&h->objects.objects[slot->object])));
}

bool scry_slot_callers_take(const struct scry_slot_callers *c, const struct scry_hooks *h,
			    const struct scry_hook *row, const struct scry_slot *slot)
{
	return slot->kind != SCRY_SLOT_POINTER && is_of(row, h, slot) && is_asked_for(c, h, slot);
}

/* `row` becomes the one of what this slot is called by and, by_caller, of what calls. */
static int name_row(const struct scry_hooks *h, struct scry_hook *row, const struct scry_slot *slot)
{
	const char *path = path_of(&h->objects.objects[slot->object]);
	char *symbol = strdup(name_of(h, slot)), *version = strdup(version_of(h, slot));
	char *caller = row->to.by_caller ? strdup(path) : NULL;

	if (!symbol || !version || (row->to.by_caller && !caller)) {
		free(symbol);
		free(version);
		free(caller);
		return no_memory();
	}
	free(row->symbol);
	free(row->version);
	free(row->caller);
	row->symbol = symbol;
	row->version = version;
	row->caller = caller;
	return 0;
}

/* A row like row `i` for another name or caller. */
static int add_row(struct scry_hooks *h, size_t i, const struct scry_slot *slot)
{
	struct scry_hook *row;
	int r;

	if (h->count == h->room) {
		size_t room = 2 * h->room;
		struct scry_hook *more = reallocarray(h->rows, room, sizeof(*more));

		if (!more)
			return no_memory();
		h->rows = more;
		h->room = room;
	}
	row = &h->rows[h->count];
	*row = h->rows[i];
	row->symbol = row->version = row->caller = row->aliases = NULL;
	row->module = strdup(h->rows[i].module);
	r = row->module ? name_row(h, row, slot) : no_memory();
	if (r < 0) {
		scry_hook_forget(row);
		return r;
	}
	h->count++;
	return 0;
}

/* Row `i`, which is for all callers, becomes one for each that has a slot: calls of a stub say
 * which code made them, and by which name. */
static int split_row(const struct scry_slot_callers *c, struct scry_hooks *h, size_t i)
{
	const ssize_t function = scry_functions_at(&h->functions, h->rows[i].address);
	const size_t first = h->count;
	bool is_named = false;
	int r = 0;

	if (function < 0)
		return 0;
	for (size_t k = scry_slot_callers_first(&h->slots, (uint32_t)function);
	     k < h->slots.count && h->slots.rows[k].function == (uint32_t)function && r == 0; k++) {
		const struct scry_slot *slot = &h->slots.rows[k];
		const struct scry_hook_to *to = &h->rows[i].to;
		bool is_known = is_named && is_of(&h->rows[i], h, slot);

		for (size_t n = first; n < h->count && !is_known; n++)
			is_known = is_of(&h->rows[n], h, slot);
		if (is_known || slot->kind == SCRY_SLOT_POINTER || !is_asked_for(c, h, slot) ||
		    (to->leaves_out &&
		     to->leaves_out(name_of(h, slot), h->requests[h->rows[i].request])))
			continue;
		r = is_named ? add_row(h, i, slot) : name_row(h, &h->rows[i], slot);
		is_named = true;
	}
	return r;
}

int scry_slot_callers_split(const struct scry_slot_callers *c, struct scry_hooks *h)
{
	const size_t count = h->count;
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		if (h->rows[i].to.way == SCRY_WAY_CALLS && !h->rows[i].caller)
			r = split_row(c, h, i);
	scry_hooks_sort(h);
	return r;
}
