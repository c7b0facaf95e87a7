/*
 * Which way leads to a function: its entry, by a jump of 5 bytes or a short-jump trampoline, else
 * its callers. Part of hooks.h. Reads only; everything is settled here before a byte is changed.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"
#include "hook/hooks.h"
#include "hook/ifunc.h"
#include "hook/lasting.h"
#include "hook/renew.h"
#include "hook/slot_callers.h"
#include "sys/text_share.h"

#define JUMP_BYTES 5

static int no_memory(void)
{
	return scry_no_memory("the hooks");
}

static bool is_in_page(uint64_t at, size_t size)
{
	return at / SCRY_PAGE == (at + size - 1) / SCRY_PAGE;
}

/* The code of object `i`, read once. NULL with a sentence. */
static struct scry_text *text_of(struct scry_hooks *h, size_t i)
{
	if (!h->texts[i] && scry_linkmap_open(&h->objects, i) == 0)
		scry_text_share(h->objects.objects[i].elf, &h->texts[i]);
	return h->texts[i];
}

static bool are_files_bytes(struct scry_hooks *h, size_t object, const struct scry_hook *row)
{
	uint8_t file[JUMP_BYTES];
	uint64_t at = row->address + row->window.endbr;

	return scry_elf_read(h->objects.objects[object].elf, at - h->objects.objects[object].bias,
			     file, sizeof(file)) == 0 &&
	       !memcmp(file, row->code + row->window.endbr, sizeof(file));
}

static const char patched[] = "a patch of scry's is applied to it; fix: scry patch list names it";

static const char watched[] =
	"a watch of scry's has changed its first bytes; fix: end the watch that scry ps names, or "
	"scry undo -p PID if it was killed";

static bool is_slab_of_agent(const struct scry_hooks *h, const struct scry_maps *maps,
			     uint64_t address)
{
	struct scry_agent_header agent;
	bool is = false;

	if (scry_agent_find(&h->mem, maps, &agent) < 0)
		return false;
	for (uint64_t i = 0; i < agent.slab_count && i < SCRY_SLABS_MAX; i++)
		is |= address - agent.slabs[i].code < agent.slabs[i].code_size;
	return is;
}

/* Where its first instruction jumps: into a patch that lasts, or to a stub of a watch? NULL: to
 * neither. */
static const char *changed_by_scry(struct scry_hooks *h, const struct scry_hook *row)
{
	const uint64_t at = row->address + row->window.endbr;
	const uint8_t *code = row->code + row->window.endbr;
	struct scry_patch_head unused;
	struct scry_maps maps = {0};
	const char *why = NULL;
	uint64_t to;
	int32_t rel;

	memcpy(&rel, code + 1, sizeof(rel));
	to = at + JUMP_BYTES + (uint64_t)(int64_t)rel;
	if (code[0] == 0xe9 && scry_maps_read(h->proc->pid, &maps) == 0)
		why = scry_lasting_at(&h->mem, &maps, to, &unused) ? patched
		      : is_slab_of_agent(h, &maps, to)		   ? watched
								   : NULL;
	scry_maps_done(&maps);
	return why;
}

static const char unreadable[] = "its code cannot be read";

static const char go_code[] = "Go code: a function begins anew whenever its goroutine's stack "
			      "grows, and would be counted "
			      "again; fix: Go's own pprof, or perf record -p PID";

/* By the table that Go's own unwinder needs, stripped or not. */
bool scry_hooks_is_go(struct scry_hooks *h, uint64_t address)
{
	static const char *const tables[] = {".gopclntab", ".data.rel.ro.gopclntab"};
	ssize_t object = scry_linkmap_at(&h->objects, address);
	uint64_t at, size;
	bool found = false;

	if (object < 0 || scry_linkmap_open(&h->objects, (size_t)object) < 0)
		return false;
	for (size_t i = 0; i < 2 && !found; i++)
		found = scry_elf_section(h->objects.objects[object].elf, tables[i], &at, &size) ==
			0;
	return found;
}

/* The function's range and bytes into `row`. NULL, or why not. */
static const char *look_at_function(struct scry_hooks *h, struct scry_text *text,
				    struct scry_hook *row, uint64_t bias)
{
	const struct scry_text_range *range = scry_text_at(text, row->address - bias);
	struct scry_x86_code code;
	ssize_t n;

	n = scry_mem_read_some(&h->mem, row->address, row->code, sizeof(row->code));
	if (n <= 0)
		return unreadable;
	if (!range) { /* assembly; its end does not matter to a window of one instruction */
		row->avail = row->size = (size_t)n;
		return NULL;
	}
	if (range->start + bias != row->address)
		return "it does not begin where its unwind table says";
	if (range->kind == SCRY_TEXT_COLD)
		return "it is a part of another function";
	if (range->kind != SCRY_TEXT_FUNCTION)
		return "it is a PLT or vDSO stub";
	scry_text_bytes(text, range, &code);
	row->avail = code.avail < (size_t)n ? code.avail : (size_t)n;
	row->size = code.size < row->avail ? code.size : row->avail;
	return NULL;
}

/* Does code outside enter it by a jump? Such code may keep data below rsp. */
static bool is_jumped_to(struct scry_text *text, uint64_t address)
{
	struct scry_transfer rows[64];
	const struct scry_transfers sites = {rows, 64};
	size_t n = scry_text_sites(text, address, &sites);

	for (size_t i = 0; i < n && i < 64; i++)
		if (rows[i].kind != SCRY_TRANSFER_CALL32)
			return true;
	return n > 64;
}

/* May the entry become a jump? NULL and the window is filled, or why not. */
static const char *entry_refusal(struct scry_hooks *h, struct scry_hook *row)
{
	ssize_t object = scry_linkmap_at(&h->objects, row->address);
	struct scry_text *text = object < 0 ? NULL : text_of(h, (size_t)object);
	struct scry_x86_code code = {.bytes = row->code, .address = row->address};
	const struct scry_transfers none = {0};
	enum scry_x86_refusal refusal;
	uint64_t bias, start;
	const char *why;

	if (row->is_ifunc)
		return "it is chosen by an IFUNC resolver";
	if (!text)
		return unreadable;
	bias = h->objects.objects[object].bias;
	why = look_at_function(h, text, row, bias);
	if (why)
		return why;
	code.size = row->size;
	code.avail = row->avail;
	refusal = scry_x86_window(&code, JUMP_BYTES, SCRY_X86_JUMP_OK, &row->window);
	if (refusal != SCRY_X86_OK) {
		why = changed_by_scry(h, row);
		return why ? why : scry_x86_why(refusal);
	}
	if (!(row->window.has & SCRY_X86_ONE) && !scry_text_at(text, row->address - bias))
		return "no unwind table says where it ends";
	if (!are_files_bytes(h, (size_t)object, row)) {
		why = changed_by_scry(h, row);
		return why ? why
			   : "its first bytes are not those of its file: another tool has changed "
			     "them";
	}
	start = row->address + row->window.endbr;
	if (!is_in_page(start, JUMP_BYTES))
		return "its first bytes cross a page";
	if (scry_text_enters(text, start - bias, start - bias + JUMP_BYTES, &none))
		return "a branch leads into its first bytes";
	if (scry_text_loops(text, row->address - bias, row->window.endbr + row->window.bytes))
		return "its own loop jumps back to its first byte";
	row->spares_red_zone = is_jumped_to(text, row->address - bias);
	return NULL;
}

/* The place of the displacement in the instruction at `source`, which is known to lead to `target`.
 * 0: it is not a rel32. */
static uint64_t displacement_at(const struct scry_mem *mem, uint64_t source, uint64_t target,
				uint8_t ret_old[4])
{
	uint8_t code[12];
	ssize_t n = scry_mem_read_some(mem, source, code, sizeof(code));

	for (ssize_t k = 1; k + 4 <= n; k++) {
		bool is_near = code[k - 1] == 0xe8 || code[k - 1] == 0xe9 ||
			       (k > 1 && code[k - 2] == 0x0f && (code[k - 1] & 0xf0) == 0x80);
		int32_t rel;

		memcpy(&rel, code + k, 4);
		if (!is_near || source + (uint64_t)k + 4 + (uint64_t)(int64_t)rel != target)
			continue;
		memcpy(ret_old, code + k, 4);
		return source + (uint64_t)k;
	}
	return 0;
}

static int add_place(struct scry_hooks *h, struct scry_hook *row,
		     const struct scry_hook_place *place)
{
	if (h->place_count == h->place_room) {
		size_t room = h->place_room ? 2 * h->place_room : 64;
		struct scry_hook_place *more = realloc(h->places, room * sizeof(*more));

		if (!more)
			return no_memory();
		h->places = more;
		h->place_room = room;
	}
	h->places[h->place_count++] = *place;
	row->place_count++;
	return 0;
}

size_t scry_hook_slots(const struct scry_hooks *h, const struct scry_hook *row)
{
	size_t slots = 0;

	for (size_t i = row->first_place; i < row->first_place + row->place_count; i++)
		slots += h->places[i].is_slot;
	return slots;
}

/* Is the code at `at` displaced by a jump at some entry? Then its copy runs in its place. */
static bool is_displaced(const struct scry_hooks *h, uint64_t at)
{
	size_t low = scry_bisect(h->count, i, h->rows[i].address <= at);
	const struct scry_hook *row;

	if (!low)
		return false;
	row = &h->rows[low - 1];
	return row->way == SCRY_WAY_ENTRY &&
	       at < row->address + row->window.endbr + row->window.bytes;
}

/* The direct calls and jumps to `row`. What cannot be aimed elsewhere, as a short jump, counts as
 * unseen. */
static int use_sites(struct scry_hooks *h, struct scry_hook *row)
{
	ssize_t object = scry_linkmap_at(&h->objects, row->address);
	struct scry_text *text = object < 0 ? NULL : text_of(h, (size_t)object);
	uint64_t bias = object < 0 ? 0 : h->objects.objects[object].bias;
	struct scry_transfers sites = {0};
	int r = 0;

	if (!text || row->is_ifunc)
		return 0;
	sites.room = scry_text_sites(text, row->address - bias, NULL);
	sites.rows = calloc(sites.room + 1, sizeof(*sites.rows));
	if (!sites.rows)
		return no_memory();
	scry_text_sites(text, row->address - bias, &sites);
	for (size_t i = 0; i < sites.room && r == 0; i++) {
		uint8_t old[4];
		uint64_t at =
			displacement_at(&h->mem, sites.rows[i].source + bias, row->address, old);
		struct scry_hook_place place = {.at = at};

		if (!at || !is_in_page(at, 4) || is_displaced(h, at)) {
			row->unseen++;
			continue;
		}
		memcpy(&place.old, old, sizeof(old));
		r = add_place(h, row, &place);
		row->way |= SCRY_WAY_SITE;
		row->target = row->address;
	}
	free(sites.rows);
	row->unseen += scry_text_is_pointed(text, row->address - bias);
	return r;
}

static int by_function(const void *a, const void *b)
{
	const struct scry_slot *x = a, *y = b;

	return x->function < y->function ? -1 : x->function > y->function;
}

static int find_slots(struct scry_hooks *h)
{
	int r;

	scry_slots_done(&h->slots);
	h->slots = (struct scry_slots){0};
	r = scry_slots_find(&h->objects, &h->mem, &h->functions, &h->slots);
	if (r == 0 && h->slots.count)
		qsort(h->slots.rows, h->slots.count, sizeof(*h->slots.rows), by_function);
	return r;
}

static bool is_usable(const struct scry_slot *s, const struct scry_hook *row)
{
	return (s->kind == SCRY_SLOT_JUMP || s->kind == SCRY_SLOT_GOT ||
		s->kind == SCRY_SLOT_IRELATIVE) &&
	       s->definition && (!s->is_lazy || s->is_sure) &&
	       (!row->target || s->definition == row->target);
}

static const char address_taken[] =
	"its callers take its address too, and pointers must stay as they are; fix: -x",
		  no_way_left[] = "its entry cannot be changed, and its callers take its address "
				  "too, and pointers must stay as they are",
		  pointer_kept[] = "its callers take its address too, and pointers must stay as "
				   "they are; fix: --via=entry",
		  unsure[] = "it is not known which definition of it the loader will choose";

/* `callers`: whose slots; NULL: all. A pointer that was read from a slot is kept by the program,
 * and would outlive what it led to. */
static int use_slots(struct scry_hooks *h, struct scry_hook *row,
		     const struct scry_slot_callers *callers)
{
	ssize_t function = scry_functions_at(&h->functions, row->address);
	bool is_loaded = false;
	int r = 0;

	if (function < 0)
		return 0;
	for (size_t i = scry_slot_callers_first(&h->slots, (uint32_t)function);
	     i < h->slots.count && h->slots.rows[i].function == (uint32_t)function && r == 0; i++) {
		const struct scry_slot *slot = &h->slots.rows[i];
		const struct scry_hook_place place = {slot->address, slot->value, true};

		if (callers && !scry_slot_callers_take(callers, h, row, slot))
			continue;
		if (!is_usable(slot, row) || slot->is_loaded) {
			if (callers)
				row->why = slot->is_loaded ? address_taken : unsure;
			is_loaded |= slot->is_loaded;
			row->kept += slot->is_loaded;
			row->unseen++;
			continue;
		}
		row->target = slot->definition;
		row->way |= SCRY_WAY_GOT;
		r = add_place(h, row, &place);
	}
	if (is_loaded && !callers && !row->way)
		row->why =
			row->to.way == SCRY_WAY_GOT && !row->is_ifunc ? pointer_kept : no_way_left;
	return r;
}

/* Bytes that a trampoline in `object` must not use: windows and their filler, other pads. */
struct taken {
	struct scry_short_jump_taken *rows;
	size_t count, room;
};

static int take(struct taken *t, uint64_t start, uint64_t end)
{
	if (t->count == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		struct scry_short_jump_taken *more = realloc(t->rows, room * sizeof(*more));

		if (!more)
			return no_memory();
		t->rows = more;
		t->room = room;
	}
	t->rows[t->count++] = (struct scry_short_jump_taken){start, end};
	return 0;
}

static int take_windows(const struct scry_hooks *h, const struct scry_object *object,
			struct taken *t)
{
	int r = 0;

	t->count = 0;
	for (size_t i = 0; i < h->count && r == 0; i++) {
		const struct scry_hook *row = &h->rows[i];
		uint64_t at = row->address + row->window.endbr - object->bias;

		if (row->object_start != object->start || row->way != SCRY_WAY_ENTRY)
			continue;
		if (row->pad || row->window.has & SCRY_X86_FILLER)
			r = take(t, at, at + row->window.bytes);
		if (r == 0 && row->pad)
			r = take(t, row->pad - object->bias, row->pad - object->bias + JUMP_BYTES);
	}
	return r;
}

/* A short-jump trampoline for a row whose entry has no room. */
static int try_short_jump(struct scry_hooks *h, size_t object, struct scry_hook *row,
			  struct taken *t)
{
	const struct scry_object *o = &h->objects.objects[object];
	struct scry_short_jump_request request = {.text = text_of(h, object)};
	struct scry_short_jump short_jump;
	int r;

	if (request.text)
		request.range = scry_text_at(request.text, row->address - o->bias);
	if (!request.range || request.range->start + o->bias != row->address ||
	    request.range->kind != SCRY_TEXT_FUNCTION)
		return 0;
	r = take_windows(h, o, t);
	if (r < 0)
		return r;
	request.taken = t->rows;
	request.count = t->count;
	if (scry_short_jump_plan(&request, &short_jump) != SCRY_X86_OK ||
	    scry_text_loops(request.text, row->address - o->bias,
			    short_jump.window.endbr + short_jump.window.bytes) ||
	    !are_files_bytes(h, object, row) ||
	    !is_in_page(short_jump.entry, SCRY_SHORT_JUMP_BYTES) ||
	    !is_in_page(short_jump.pad, JUMP_BYTES) ||
	    scry_mem_read(&h->mem, short_jump.pad + o->bias, row->pad_old, JUMP_BYTES) < 0)
		return 0;
	row->window = short_jump.window;
	row->spares_red_zone = is_jumped_to(request.text, row->address - o->bias);
	row->pad = short_jump.pad + o->bias;
	row->jump = SCRY_SHORT_JUMP_BYTES;
	row->way = SCRY_WAY_ENTRY;
	row->why = NULL;
	return 0;
}

static int none_reached(const struct scry_hooks *h)
{
	const struct scry_hook *row = &h->rows[0];
	size_t asked = 0;

	for (size_t i = h->count; i-- > 0;) { /* guards were not asked for */
		if (h->rows[i].to.is_guard)
			continue;
		row = &h->rows[i];
		asked++;
	}
	if (asked > 1)
		return scry_fail(-ENOTSUP,
				 "none of %zu functions can be reached; the first, '%s': %s", asked,
				 row->symbol, row->why);
	return scry_fail(-ENOTSUP, "'%s' in '%s' cannot be reached: %s%s", row->symbol, row->module,
			 row->why,
			 row->to.way == SCRY_WAY_ENTRY && row->why != go_code ? "; fix: --via=got"
									      : "");
}

static bool wants(const struct scry_hook *row, uint32_t way)
{
	return row->to.way == SCRY_WAY_AUTO || row->to.way == way;
}

static int plan_entries(struct scry_hooks *h)
{
	struct taken taken = {0};
	int r = 0;

	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		row->why = scry_hooks_is_go(h, row->address) ? go_code
			   : wants(row, SCRY_WAY_ENTRY)	     ? entry_refusal(h, row)
							     : NULL;
		row->jump = JUMP_BYTES;
		if (wants(row, SCRY_WAY_ENTRY) && !row->why)
			row->way = SCRY_WAY_ENTRY;
	}
	for (size_t i = 0; i < h->count && r == 0; i++) {
		struct scry_hook *row = &h->rows[i];
		ssize_t object = scry_linkmap_at(&h->objects, row->address);

		if (!row->way && wants(row, SCRY_WAY_ENTRY) && !row->is_ifunc && object >= 0 &&
		    row->why != go_code)
			r = try_short_jump(h, (size_t)object, row, &taken);
	}
	free(taken.rows);
	return r;
}

/* Is a row for the function of this slot reached by slots? */
static bool is_needed(const struct scry_hooks *h, const struct scry_slot *slot)
{
	const uint64_t address = h->functions.rows[slot->function].address;
	size_t low = scry_bisect(h->count, i, h->rows[i].address < address);

	for (; low < h->count && h->rows[low].address == address; low++)
		if (!h->rows[low].way && h->rows[low].why != go_code)
			return true;
	return false;
}

/* A slot that the caller's code also reads as `&function` must hold what all others see. */
static int look_at_loads(struct scry_hooks *h)
{
	bool *seen = calloc(h->objects.count + 1, sizeof(*seen));
	int r = seen ? 0 : no_memory();

	for (size_t i = 0; i < h->slots.count && r == 0; i++) {
		size_t object = h->slots.rows[i].object;
		struct scry_text *text;

		if (!scry_slot_serves_loads(&h->slots.rows[i]) || seen[object] ||
		    !is_needed(h, &h->slots.rows[i]))
			continue;
		seen[object] = true;
		text = text_of(h, object);
		if (text)
			r = scry_slots_mark_loaded(&h->slots, &h->objects, object, text);
	}
	scry_error_clear();
	free(seen);
	return r;
}

static int plan_caller(struct scry_hooks *h, struct scry_hook *row,
		       const struct scry_slot_callers *callers)
{
	const bool is_by_name = row->to.way == SCRY_WAY_CALLS;
	int r = 0;

	row->first_place = h->place_count;
	if (wants(row, SCRY_WAY_SITE))
		r = use_sites(h, row);
	if (r == 0 && (is_by_name || wants(row, SCRY_WAY_GOT)))
		r = use_slots(h, row, is_by_name ? callers : NULL);
	return r;
}

static int by_address(const void *a, const void *b)
{
	const struct scry_hook *x = a, *y = b;

	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	return (int)x->to.is_guard - (int)y->to.is_guard; /* the one at the entry is the last */
}

void scry_hooks_sort(struct scry_hooks *h)
{
	if (h->count)
		qsort(h->rows, h->count, sizeof(*h->rows), by_address);
}

/* Functions for which none of the named objects has a slot. */
static void drop_uncalled(struct scry_hooks *h)
{
	size_t kept = 0;

	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		if (row->to.way == SCRY_WAY_CALLS && !row->way && !row->unseen) {
			scry_hook_forget(row);
		} else {
			h->rows[kept++] = *row;
		}
	}
	h->count = kept;
}

/* For rows that are not reached by their entry. */
static int plan_callers(struct scry_hooks *h)
{
	struct scry_slot_callers callers = {0};
	bool any = false;
	int r = 0;

	for (size_t i = 0; i < h->count; i++)
		any |= !h->rows[i].way && h->rows[i].why != go_code &&
		       (h->rows[i].to.way == SCRY_WAY_CALLS || wants(&h->rows[i], SCRY_WAY_GOT));
	if (any)
		r = find_slots(h);
	if (r == 0 && any)
		r = look_at_loads(h);
	if (r == 0)
		r = scry_slot_callers_read(&callers, h);
	if (r == 0 && any)
		r = scry_slot_callers_split(&callers, h);
	for (size_t i = 0; i < h->count && r == 0; i++)
		if (!h->rows[i].way && h->rows[i].why != go_code)
			r = plan_caller(h, &h->rows[i], &callers);
	scry_slot_callers_done(&callers);
	drop_uncalled(h);
	return r;
}

/* Of the user's. */
static bool are_all_refused(const struct scry_hooks *h)
{
	size_t count = 0, refused = 0;

	for (size_t i = 0; i < h->count; i++) {
		count += !h->rows[i].to.is_guard;
		refused += !h->rows[i].to.is_guard && !h->rows[i].way;
	}
	return count && refused == count;
}

bool scry_hooks_are_stale(const struct scry_hooks *h)
{
	for (size_t i = 0; i < h->count; i++)
		if (!h->rows[i].way && h->rows[i].why == unreadable)
			return true;
	return false;
}

int scry_hooks_plan(struct scry_hooks *h)
{
	int r;

	scry_hooks_sort(h);
	r = scry_ifunc_choose(h);
	if (r < 0)
		return r;
	h->place_count = h->refused = 0;
	for (size_t i = 0; i < h->count; i++) {
		h->rows[i].way = 0;
		h->rows[i].pad = h->rows[i].target = 0;
		h->rows[i].place_count = h->rows[i].unseen = 0;
	}
	r = plan_entries(h);
	scry_ifunc_take_back(h);
	scry_error_clear();
	if (r == 0)
		r = plan_callers(h);
	for (size_t i = 0; i < h->count && r == 0; i++) {
		struct scry_hook *row = &h->rows[i];

		if (row->way)
			continue;
		h->refused += !row->to.is_guard;
		if (!row->why)
			row->why = row->to.way == SCRY_WAY_SITE
					   ? "no call in its own object leads to it directly"
					   : "it is called through no slot";
	}
	if (r == 0 && are_all_refused(h))
		r = none_reached(h);
	return r;
}
