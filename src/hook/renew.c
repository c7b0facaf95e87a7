/*
 * The list is compared, then what is new is a set of hooks of its own, planned and put on like any
 * other, and merged into the set. A function that comes back takes over the stub of the one that
 * went, and so its counter: no thread can be in the stub of code that is unmapped.
 */
#include "hook/renew.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"

static bool is_same_file(const struct scry_kept_text *k, const struct scry_object *o)
{
	const uint8_t *id;
	size_t size = o->elf ? scry_elf_build_id(o->elf, &id) : 0;

	return k->text && o->mapping && k->inode == o->mapping->inode &&
	       k->dev_major == o->mapping->dev_major && k->dev_minor == o->mapping->dev_minor &&
	       size && size == k->build_id_size && !memcmp(k->build_id, id, size);
}

/* The code of object `i`, which is gone, is kept: decoding a large one takes longer than we may. */
static void keep_text(struct scry_hooks *h, size_t i, struct scry_kept_texts *kept)
{
	struct scry_kept_text *k = &kept->rows[kept->next];
	const struct scry_object *o = &h->objects.objects[i];
	const uint8_t *id;
	size_t size = o->elf ? scry_elf_build_id(o->elf, &id) : 0;

	if (!h->texts[i] || !o->mapping || !size || size > sizeof(k->build_id))
		return;
	scry_text_free(k->text);
	*k = (struct scry_kept_text){.inode = o->mapping->inode,
				     .dev_major = o->mapping->dev_major,
				     .dev_minor = o->mapping->dev_minor,
				     .build_id_size = size,
				     .text = h->texts[i]};
	memcpy(k->build_id, id, size);
	h->texts[i] = NULL;
	kept->next = (kept->next + 1) % SCRY_KEPT_TEXTS;
}

static struct scry_text *take_text(struct scry_kept_texts *kept, struct scry_linkmap *lm, size_t i)
{
	struct scry_text *text;

	if (scry_linkmap_open(lm, i) < 0)
		return NULL;
	for (size_t k = 0; k < SCRY_KEPT_TEXTS; k++) {
		if (!is_same_file(&kept->rows[k], &lm->objects[i]))
			continue;
		text = kept->rows[k].text;
		kept->rows[k] = (struct scry_kept_text){0};
		return text;
	}
	return NULL;
}

void scry_kept_texts_done(struct scry_kept_texts *kept)
{
	for (size_t i = 0; i < SCRY_KEPT_TEXTS; i++)
		scry_text_free(kept->rows[i].text);
	*kept = (struct scry_kept_texts){0};
}

/* What went away, or came back at the same place: its changes went with it. */
static int forget(struct scry_hooks *h, struct scry_inject *inj, size_t i)
{
	const struct scry_object *o = &h->objects.objects[i];
	int r = scry_edit_forget(&inj->edit, o->start, o->end);

	for (size_t k = 0; k < h->count; k++)
		if (h->rows[k].object_start == o->start && !h->rows[k].is_gone)
			h->rows[k].is_gone = true;
	return r;
}

/*
 * Compares the list with `now`. ret_gone[i]: the old object i is no more. -EAGAIN: something is
 * listed no more and still mapped, it is being unloaded.
 */
static int compare(const struct scry_hooks *h, const struct scry_inject *inj,
		   const struct scry_linkmap *now, bool *ret_gone)
{
	for (size_t i = 0; i < h->objects.count; i++) {
		const struct scry_object *o = &h->objects.objects[i];
		bool is_listed = scry_linkmap_find(now, o), any, is_there;

		if (!o->mapping || scry_linkmap_is_repeated(&h->objects, i))
			continue;
		is_there = scry_edit_is_there(&inj->edit, o->start, o->end, &any);
		if (!is_listed && any && is_there)
			return -EAGAIN;
		ret_gone[i] = !is_listed || (any && !is_there);
	}
	return 0;
}

int scry_renew_list(struct scry_hooks *h, struct scry_inject *inj, struct scry_linkmap *now,
		    struct scry_renew_change *change)
{
	bool *gone = calloc(h->objects.count + 1, sizeof(*gone));
	ssize_t *was = calloc(now->count + 1, sizeof(*was));
	struct scry_text **texts = calloc(now->count + 1, sizeof(struct scry_text *));
	int r = gone && was && texts ? compare(h, inj, now, gone) : -ENOMEM;

	if (r < 0)
		goto out;
	for (size_t i = 0; i < h->objects.count && r == 0; i++) {
		if (!gone[i])
			continue;
		r = forget(h, inj, i);
		change->unloaded++;
		if (!scry_linkmap_find(now, &h->objects.objects[i]))
			keep_text(h, i, change->kept);
	}
	if (r == 0 && change->unloaded)
		r = scry_edit_compact(&inj->edit, h->first_edit);
	h->edit_count = inj->edit.count - h->first_edit;
	if (r < 0)
		goto out;
	scry_linkmap_inherit(now, &h->objects, was);
	for (size_t i = 0; i < now->count; i++) {
		change->loaded += was[i] < 0 || gone[was[i]];
		if (was[i] >= 0) {
			texts[i] = h->texts[was[i]];
			h->texts[was[i]] = NULL;
		} else {
			texts[i] = take_text(change->kept, now, i);
		}
	}
	for (size_t i = 0; i < h->objects.count; i++)
		scry_text_free(h->texts[i]);
	free(h->texts);
	h->texts = texts;
	texts = NULL;
	scry_linkmap_done(&h->objects);
	h->objects = *now;
	*now = (struct scry_linkmap){0};
out:
	free(gone);
	free(was);
	free(texts);
	return r;
}

static bool is_same_caller(const struct scry_hook *row, const char *caller)
{
	return !caller || (row->caller && !strcmp(row->caller, caller));
}

/* Of a function that is reached by slots of its name, that name's; else the function's. */
static bool is_same(const struct scry_hook *row, const struct scry_hook *like)
{
	return is_same_caller(row, like->caller) &&
	       (like->to.way != SCRY_WAY_CALLS || row->to.way != SCRY_WAY_CALLS ||
		!strcmp(row->symbol, like->symbol));
}

/* Of the first `count` rows, which are sorted; `like` NULL: whoever calls. */
static ssize_t find_row(const struct scry_hooks *h, size_t count, uint64_t address,
			const struct scry_hook *like)
{
	size_t low = scry_bisect(count, i, h->rows[i].address < address);

	while (low < count && h->rows[low].address == address &&
	       (h->rows[low].is_gone || h->rows[low].to.is_guard ||
		(like && !is_same(&h->rows[low], like))))
		low++;
	return low < count && h->rows[low].address == address ? (ssize_t)low : -ENOENT;
}

/* Guards are there once; what is loaded later goes by the same libc. */
static bool has_guard(const struct scry_hooks *h, size_t request)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].request == request && h->rows[i].to.is_guard && !h->rows[i].is_gone)
			return true;
	return false;
}

/* Is what this IFUNC has chosen hooked? */
static bool is_chosen(const struct scry_hooks *h, const struct scry_function *f)
{
	for (size_t i = 0; i < h->count && f->is_ifunc; i++)
		if (h->rows[i].resolver == f->address && !h->rows[i].is_gone)
			return true;
	return false;
}

/* Rows for functions that are not hooked, and for slots of functions that are reached by slots. */
static int add_fresh(struct scry_hooks *fresh, struct scry_hooks *h)
{
	size_t before = 0, hits;
	int r = 0;

	for (size_t q = 0; q < h->request_count && r == 0; q++) {
		struct scry_hook_to *to = &h->request_to[q];

		if (to->is_guard && has_guard(h, q))
			continue;
		hits = fresh->functions.hits;
		r = scry_hooks_find(fresh, h->requests[q], to);
		if (r == -ENOENT)
			r = 0;
		to->is_found |= fresh->functions.hits > hits;
		for (; before < fresh->functions.count && r == 0; before++) {
			const struct scry_function *f = &fresh->functions.rows[before];
			const size_t count = fresh->count;
			ssize_t live = find_row(h, h->count, f->address, NULL);
			bool by_slots = live >= 0 && h->rows[live].way != SCRY_WAY_ENTRY &&
					(h->rows[live].to.way == SCRY_WAY_AUTO ||
					 h->rows[live].to.way == SCRY_WAY_GOT ||
					 h->rows[live].to.way == SCRY_WAY_CALLS);

			if ((live >= 0 && !by_slots) || is_chosen(h, f))
				continue;
			r = scry_hooks_add(fresh, f, (uint32_t)q);
			if (fresh->count > count && by_slots && to->way != SCRY_WAY_CALLS)
				fresh->rows[fresh->count - 1].to.way = SCRY_WAY_GOT;
		}
	}
	scry_error_clear();
	return r;
}

/* Slots that are led to us already have nothing new. Those of an IFUNC look new all the same: what
 * they hold counts as what it has chosen. */
static void drop_known(struct scry_hooks *fresh, const struct scry_hooks *h)
{
	size_t kept = 0;

	for (size_t i = 0; i < fresh->count; i++) {
		struct scry_hook *row = &fresh->rows[i];
		const ssize_t live = find_row(h, h->count, row->address, row);

		if (live >= 0 && h->rows[live].has_stub && row->way &&
		    row->target == h->rows[live].stub)
			scry_hook_forget(row);
		else
			fresh->rows[kept++] = *row;
	}
	fresh->count = kept;
}

static struct scry_hook *find_gone(struct scry_hooks *h, const struct scry_hook *row)
{
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *old = &h->rows[i];

		if (old->is_gone && old->symbol && old->request == row->request &&
		    (!old->caller || is_same_caller(row, old->caller)) &&
		    !strcmp(old->symbol, row->symbol) && !strcmp(old->version, row->version) &&
		    !strcmp(old->module, row->module))
			return old;
	}
	return NULL;
}

static void drop_succeeded(struct scry_hooks *h)
{
	size_t kept = 0;

	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].symbol)
			h->rows[kept++] = h->rows[i];
	h->count = kept;
}

/* The rows of what is new take over from those of what went. */
static int succeed(struct scry_hooks *fresh, struct scry_hooks *h, struct scry_inject *inj)
{
	int r = 0;

	for (size_t i = 0; i < fresh->count && r == 0; i++) {
		struct scry_hook *row = &fresh->rows[i], *old;
		ssize_t live = find_row(h, h->count, row->address, row);

		if (live >=
		    0) { /* more slots of it; they went where the others did, or it is another */
			old = &h->rows[live];
			if (old->has_stub && row->target != old->target)
				row->way = 0;
			row->has_stub = old->has_stub;
			row->stub = old->stub;
			continue;
		}
		old = find_gone(h, row);
		if (!old)
			continue;
		r = scry_hook_succeed(row, old, inj);
		scry_hook_forget(old);
	}
	drop_succeeded(h);
	return r;
}

static int make_room(struct scry_hooks *h, size_t rows, size_t places)
{
	struct scry_hook *more = realloc(h->rows, (h->count + rows + 1) * sizeof(*more));
	struct scry_hook_place *more_places;

	if (more) {
		h->rows = more;
		h->room = h->count + rows + 1;
	}
	more_places = realloc(h->places, (h->place_count + places + 1) * sizeof(*more_places));
	if (more_places) {
		h->places = more_places;
		h->place_room = h->place_count + places + 1;
	}
	return more && more_places ? 0 : scry_no_memory("the hooks");
}

/* The places of rows that went are dropped, so that it does not grow with each dlopen. */
static void pack_places(struct scry_hooks *h)
{
	struct scry_hook_place *packed = calloc(h->place_room + 1, sizeof(*packed));
	size_t n = 0;

	for (size_t i = 0; packed && i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		if (row->place_count)
			memcpy(packed + n, h->places + row->first_place,
			       row->place_count * sizeof(*packed));
		row->first_place = n;
		n += row->place_count;
	}
	if (!packed)
		return;
	free(h->places);
	h->places = packed;
	h->place_count = n;
}

/* A row of a function that is in the set: only its slots are new, unless it had no way. */
static void merge_into(struct scry_hook *live, struct scry_hook *row)
{
	struct scry_hook_to to = live->to;

	if (live->way || !row->way) {
		scry_hook_forget(row);
		return;
	}
	scry_hook_forget(live);
	row->calls_before += live->calls_before;
	*live = *row;
	live->to = to;
}

/* There is room. What could not be put on counts as gone, so that the next try takes over from it.
 */
static void merge(struct scry_hooks *h, struct scry_hooks *fresh, bool is_on)
{
	size_t sorted = h->count;

	if (fresh->place_count)
		memcpy(h->places + h->place_count, fresh->places,
		       fresh->place_count * sizeof(*fresh->places));
	for (size_t i = 0; i < fresh->count; i++) {
		struct scry_hook *row = &fresh->rows[i];
		ssize_t live = find_row(h, sorted, row->address, row);

		row->first_place += h->place_count;
		row->is_gone = !is_on;
		if (live >= 0 && !is_on)
			row->way = 0;
		if (live >= 0)
			merge_into(&h->rows[live], row);
		else
			h->rows[h->count++] = *row;
	}
	fresh->count = 0;
	h->place_count += fresh->place_count;
	scry_hooks_sort(h);
	pack_places(h);
	h->refused = 0;
	for (size_t i = 0; i < h->count; i++)
		h->refused += !h->rows[i].way && !h->rows[i].is_gone && !h->rows[i].to.is_guard;
	h->moved += fresh->moved;
}

int scry_renew_hooks(struct scry_hooks *h, struct scry_inject *inj,
		     const struct scry_renew_how *how)
{
	struct scry_hooks fresh = {.proc = h->proc,
				   .mem = h->mem,
				   .objects = h->objects,
				   .texts = h->texts,
				   .requests = h->requests,
				   .request_to = h->request_to,
				   .request_count = h->request_count,
				   .handler_count = h->handler_count,
				   .slabs = h->slabs,
				   .waits = true,
				   .is_unused = how->is_unused,
				   .is_strict = true};
	int r;

	memcpy(fresh.handlers, h->handlers, sizeof(fresh.handlers));
	r = add_fresh(&fresh, h);
	/* their literals' places are given away, whatever comes of these */
	memcpy(h->handlers, fresh.handlers, sizeof(h->handlers));
	h->handler_count = fresh.handler_count;
	if (r == 0)
		r = scry_hooks_plan(&fresh);
	if (r == -ENOTSUP) { /* none of them: rows say why */
		scry_error_clear();
		r = 0;
	}
	if (r == 0)
		drop_known(&fresh, h);
	if (r == 0 && h->renewed)
		r = h->renewed(&fresh, h->renewed_arg);
	if (r == 0)
		r = make_room(h, fresh.count, fresh.place_count);
	if (r < 0 || !fresh.count)
		goto out;
	r = succeed(&fresh, h, inj);
	if (r == 0) {
		scry_maps_done(&inj->maps);
		r = scry_maps_read(inj->proc->pid, &inj->maps);
	}
	if (r == 0)
		r = how->put_on(&fresh, inj, how->arg);
	h->slabs = fresh.slabs;
	merge(h, &fresh, r == 0);
	h->edit_count = inj->edit.count - h->first_edit;
out:
	h->objects = fresh.objects; /* opened meanwhile */
	for (size_t i = 0; i < fresh.count; i++) {
		scry_hook_forget(&fresh.rows[i]);
	}
	free(fresh.rows);
	free(fresh.places);
	scry_slots_done(&fresh.slots);
	scry_functions_done(&h->functions);
	h->functions = fresh.functions;
	return r;
}
