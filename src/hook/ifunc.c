/* See ifunc.h. */
#include "hook/ifunc.h"

#include "base/err.h"

static bool is_meant(const struct scry_hook *row)
{
	return row->is_ifunc && row->to.way == SCRY_WAY_AUTO && row->to.kind != SCRY_HOOK_REPLACE;
}

static bool is_shared(const struct scry_slots *slots, size_t chosen)
{
	for (size_t i = 0; i < slots->function_count; i++)
		if (i != chosen && slots->implementations[i] == slots->implementations[chosen])
			return true;
	return false;
}

static bool is_row(const struct scry_hooks *h, uint64_t address)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].address == address)
			return true;
	return false;
}

static void choose(struct scry_hooks *h, struct scry_hook *row, const struct scry_functions *all,
		   const struct scry_slots *slots)
{
	ssize_t i = scry_functions_at(all, row->address);
	uint64_t chosen = i < 0 ? 0 : slots->implementations[i];

	if (chosen < row->object_start || chosen >= row->object_end ||
	    is_shared(slots, (size_t)i) || is_row(h, chosen))
		return;
	row->resolver = row->address;
	row->address = chosen;
	row->is_ifunc = false;
}

int scry_ifunc_choose(struct scry_hooks *h)
{
	struct scry_functions all = {0};
	struct scry_slots slots = {0};
	bool any = false;
	int r;

	for (size_t i = 0; i < h->count; i++)
		any |= is_meant(&h->rows[i]);
	if (!any)
		return 0;
	r = scry_symbols_find_ifuncs(&h->objects, &all);
	if (r == 0)
		r = scry_slots_find(&h->objects, &h->mem, &all, &slots);
	for (size_t i = 0; i < h->count && r == 0; i++)
		if (is_meant(&h->rows[i]))
			choose(h, &h->rows[i], &all, &slots);
	scry_hooks_sort(h);
	scry_slots_done(&slots);
	scry_functions_done(&all);
	return r;
}

void scry_ifunc_take_back(struct scry_hooks *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		if (!row->resolver || row->way)
			continue;
		row->address = row->resolver;
		row->resolver = 0;
		row->is_ifunc = true;
	}
	scry_hooks_sort(h);
}
