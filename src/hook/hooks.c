/*
 * On: slabs and stubs are written first, nothing leads to them yet; the journal gets all changes as
 * PLANNED; then, with everybody stopped, threads that stand inside a window go on in the copy of
 * its instructions, which is right with the old bytes too, and the bytes are written. A SIGKILL
 * between any two of these leaves each thread at a place that does what it would have done.
 */
#include "hook/hooks.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"

#define JUMP_BYTES 5
#define SLAB_HEAD 64 /* magic and literals */
#define SLAB_REACH (1ull << 29)
#define STUB_ALIGN 16
#define ON_TRIES 5

int scry_hooks_open(struct scry_hooks *h, const struct scry_proc *proc)
{
	int r;

	*h = (struct scry_hooks){.proc = proc, .mem.fd = -1};
	r = scry_mem_open(&h->mem, proc->pid, 0);
	if (r == 0)
		r = scry_linkmap_read(proc->pid, &h->mem, &h->objects);
	if (r == 0) {
		h->texts = calloc(h->objects.count + 1, sizeof(*h->texts));
		if (!h->texts)
			r = scry_fail(-ENOMEM, "not enough memory for %zu objects",
				      h->objects.count);
	}
	return r;
}

void scry_hooks_close(struct scry_hooks *h)
{
	for (size_t i = 0; h->texts && i < h->objects.count; i++)
		scry_text_free(h->texts[i]);
	free(h->texts);
	for (size_t i = 0; i < h->count; i++) {
		free(h->rows[i].symbol);
		free(h->rows[i].module);
	}
	for (size_t i = 0; i < h->request_count; i++)
		free(h->requests[i]);
	free(h->rows);
	free(h->requests);
	free(h->request_to);
	free(h->sites);
	scry_slots_done(&h->slots);
	scry_functions_done(&h->functions);
	scry_linkmap_done(&h->objects);
	scry_mem_close(&h->mem);
	*h = (struct scry_hooks){.mem.fd = -1};
}

static int no_memory(void)
{
	return scry_fail(-ENOMEM, "not enough memory for the hooks");
}

static int add_request(struct scry_hooks *h, const char *request, const struct scry_hook_to *to)
{
	size_t n = h->request_count;
	char **requests = realloc(h->requests, (n + 1) * sizeof(*requests));
	struct scry_hook_to *tos;

	if (requests)
		h->requests = requests;
	tos = requests ? realloc(h->request_to, (n + 1) * sizeof(*tos)) : NULL;
	if (!tos)
		return no_memory();
	h->request_to = tos;
	h->request_to[n] = *to;
	h->requests[n] = strdup(request);
	if (!h->requests[n])
		return no_memory();
	h->request_count++;
	return 0;
}

/* The number of a handler's literal, or -ENOSPC. */
static int add_handler(struct scry_hooks *h, const char *name)
{
	size_t i = 0;

	while (i < h->handler_count && strcmp(h->handlers[i], name))
		i++;
	if (i == SCRY_HOOK_HANDLERS_MAX)
		return scry_fail(-ENOSPC, "more than %d handlers", SCRY_HOOK_HANDLERS_MAX);
	h->handlers[i] = name;
	if (i == h->handler_count)
		h->handler_count++;
	return (int)i;
}

static int add_row(struct scry_hooks *h, const struct scry_function *f, uint32_t request)
{
	const struct scry_object *object = &h->objects.objects[f->object];
	const struct scry_hook_to *to = &h->request_to[request];
	int handler = to->handler ? add_handler(h, to->handler) : 0;
	struct scry_hook *row;

	if (handler < 0)
		return handler;
	if (h->count == h->room) {
		size_t room = h->room ? 2 * h->room : 16;
		struct scry_hook *more = realloc(h->rows, room * sizeof(*more));

		if (!more)
			return no_memory();
		h->rows = more;
		h->room = room;
	}
	row = &h->rows[h->count];
	*row = (struct scry_hook){
		.address = f->address,
		.symbol = strdup(f->name),
		.module = strdup(object->mapping ? object->mapping->path : object->name),
		.object_start = object->start,
		.object_end = object->end,
		.to = *to,
		.request = request,
		.handler = (uint32_t)handler,
		.is_ifunc = f->is_ifunc};
	if (!row->symbol || !row->module) {
		free(row->symbol);
		free(row->module);
		return no_memory();
	}
	h->count++;
	return 0;
}

int scry_hooks_want(struct scry_hooks *h, const char *request, const struct scry_hook_to *to)
{
	size_t before = h->functions.count;
	int r = scry_symbols_find(&h->objects, request, &h->functions);

	if (r == 0)
		r = add_request(h, request, to);
	for (size_t i = before; i < h->functions.count && r == 0; i++)
		r = add_row(h, &h->functions.rows[i], (uint32_t)h->request_count - 1);
	return r;
}

/* The code of object `i`, read once. NULL with a sentence. */
static struct scry_text *text_of(struct scry_hooks *h, size_t i)
{
	if (!h->texts[i] && scry_linkmap_open(&h->objects, i) == 0)
		scry_text_read(h->objects.objects[i].elf, &h->texts[i]);
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

/* The function's range and bytes into `row`. NULL, or why not. */
static const char *look_at_function(struct scry_hooks *h, const struct scry_text *text,
				    struct scry_hook *row, uint64_t bias)
{
	const struct scry_text_range *range = scry_text_at(text, row->address - bias);
	struct scry_x86_code code;
	ssize_t n;

	n = scry_mem_read_some(&h->mem, row->address, row->code, sizeof(row->code));
	if (n <= 0)
		return "its code cannot be read";
	if (!range) { /* assembly; its end does not matter to a window of one instruction */
		row->avail = row->size = (size_t)n;
		return NULL;
	}
	if (range->start + bias != row->address)
		return "it does not begin where its unwind table says";
	if (range->kind == SCRY_TEXT_COLD)
		return "it is a part of another function";
	if (range->kind != SCRY_TEXT_FUNCTION)
		return "it is no function but a stub of the linker or the kernel";
	scry_text_bytes(text, range, &code);
	row->avail = code.avail < (size_t)n ? code.avail : (size_t)n;
	row->size = code.size < row->avail ? code.size : row->avail;
	return NULL;
}

/* Does code outside enter it by a jump? Such code may keep data below rsp. */
static bool is_jumped_to(const struct scry_text *text, uint64_t address)
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
		return "its object's code cannot be read";
	bias = h->objects.objects[object].bias;
	why = look_at_function(h, text, row, bias);
	if (why)
		return why;
	code.size = row->size;
	code.avail = row->avail;
	refusal = scry_x86_window(&code, JUMP_BYTES, SCRY_X86_JUMP_OK, &row->window);
	if (refusal != SCRY_X86_OK)
		return scry_x86_why(refusal);
	if (!(row->window.has & SCRY_X86_ONE) && !scry_text_at(text, row->address - bias))
		return "no unwind table tells where it ends";
	if (!are_files_bytes(h, (size_t)object, row))
		return "its first bytes are not those of its file: another tool has changed them";
	start = row->address + row->window.endbr;
	if (start / SCRY_PAGE != (start + JUMP_BYTES - 1) / SCRY_PAGE)
		return "its first bytes cross a page";
	if (scry_text_enters(text, start - bias, start - bias + JUMP_BYTES, &none))
		return "a branch leads into its first bytes";
	if (scry_text_loops(text, row->address - bias, row->window.endbr + row->window.bytes))
		return "a loop of its own leads back to its first byte";
	row->spares_red_zone = is_jumped_to(text, row->address - bias);
	return NULL;
}

/* The place of the displacement in the instruction at `source`, which is known to lead to `target`.
 * 0: it is no rel32. */
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

static int add_site(struct scry_hooks *h, const struct scry_hook_site *site)
{
	if (h->site_count == h->site_room) {
		size_t room = h->site_room ? 2 * h->site_room : 64;
		struct scry_hook_site *more = realloc(h->sites, room * sizeof(*more));

		if (!more)
			return no_memory();
		h->sites = more;
		h->site_room = room;
	}
	h->sites[h->site_count++] = *site;
	return 0;
}

/* The direct calls and jumps to `row`. What cannot be aimed elsewhere counts as unseen. */
static int use_sites(struct scry_hooks *h, struct scry_hook *row)
{
	ssize_t object = scry_linkmap_at(&h->objects, row->address);
	struct scry_text *text = object < 0 ? NULL : text_of(h, (size_t)object);
	uint64_t bias = object < 0 ? 0 : h->objects.objects[object].bias;
	const struct scry_transfers none = {0};
	struct scry_transfers sites = {0};
	int r = 0;

	row->first_site = h->site_count;
	row->site_count = 0;
	if (!text || row->is_ifunc)
		return 0;
	sites.room = scry_text_sites(text, row->address - bias, &none);
	sites.rows = calloc(sites.room + 1, sizeof(*sites.rows));
	if (!sites.rows)
		return no_memory();
	scry_text_sites(text, row->address - bias, &sites);
	for (size_t i = 0; i < sites.room && r == 0; i++) {
		struct scry_hook_site site;

		site.at = displacement_at(&h->mem, sites.rows[i].source + bias, row->address,
					  site.old);
		site.next = site.at + 4;
		if (!site.at || site.at / SCRY_PAGE != (site.at + 3) / SCRY_PAGE) {
			row->unseen++;
			continue;
		}
		r = add_site(h, &site);
		row->site_count += r == 0;
	}
	free(sites.rows);
	row->unseen += scry_text_is_pointed(text, row->address - bias);
	if (row->site_count) {
		row->way |= SCRY_WAY_SITE;
		row->target = row->address;
	}
	return r;
}

static int by_address(const void *a, const void *b)
{
	const struct scry_hook *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static int by_function(const void *a, const void *b)
{
	const struct scry_slot *x = a, *y = b;

	return x->function < y->function ? -1 : x->function > y->function;
}

/* Slots for rows whose entry was refused, or was not wanted. */
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

static bool is_usable(const struct scry_slot *s)
{
	return (s->kind == SCRY_SLOT_JUMP || s->kind == SCRY_SLOT_GOT ||
		s->kind == SCRY_SLOT_IRELATIVE) &&
	       s->definition && (!s->is_lazy || s->is_sure);
}

static void use_slots(struct scry_hooks *h, struct scry_hook *row)
{
	ssize_t function = scry_functions_at(&h->functions, row->address);

	row->slot_count = 0;
	if (function < 0)
		return;
	for (size_t i = 0; i < h->slots.count; i++) {
		if (h->slots.rows[i].function < (uint32_t)function)
			continue;
		if (h->slots.rows[i].function > (uint32_t)function)
			break;
		if (!row->slot_count)
			row->first_slot = i;
		row->slot_count++;
		if (is_usable(&h->slots.rows[i]) && !row->target)
			row->target = h->slots.rows[i].definition;
		else if (!is_usable(&h->slots.rows[i]) ||
			 h->slots.rows[i].definition != row->target)
			row->unseen++;
	}
	if (row->slot_count && row->target)
		row->way |= SCRY_WAY_GOT;
}

static int none_reached(const struct scry_hooks *h)
{
	const struct scry_hook *row = &h->rows[0];

	if (h->count > 1)
		return scry_fail(-ENOTSUP,
				 "none of %zu functions can be reached; the first, '%s': %s",
				 h->count, row->symbol, row->why);
	return scry_fail(-ENOTSUP, "'%s' in '%s' cannot be reached: %s%s", row->symbol, row->module,
			 row->why, row->to.way == SCRY_WAY_ENTRY ? "; fix: --via=got" : "");
}

static bool wants(const struct scry_hook *row, uint32_t way)
{
	return row->to.way == SCRY_WAY_AUTO || row->to.way == way;
}

/* For rows that are not reached by their entry. */
static int plan_callers(struct scry_hooks *h)
{
	bool any = false;
	int r = 0;

	for (size_t i = 0; i < h->count && r == 0; i++)
		if (!h->rows[i].way && wants(&h->rows[i], SCRY_WAY_SITE))
			r = use_sites(h, &h->rows[i]);
	for (size_t i = 0; i < h->count; i++)
		any |= h->rows[i].way != SCRY_WAY_ENTRY && wants(&h->rows[i], SCRY_WAY_GOT);
	scry_error_clear();
	if (r == 0 && any)
		r = find_slots(h);
	for (size_t i = 0; i < h->count && r == 0 && any; i++)
		if (h->rows[i].way != SCRY_WAY_ENTRY && wants(&h->rows[i], SCRY_WAY_GOT))
			use_slots(h, &h->rows[i]);
	return r;
}

int scry_hooks_plan(struct scry_hooks *h)
{
	int r;

	qsort(h->rows, h->count, sizeof(*h->rows), by_address);
	h->site_count = h->refused = 0;
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		row->way = 0;
		row->why = wants(row, SCRY_WAY_ENTRY) ? entry_refusal(h, row) : NULL;
		if (wants(row, SCRY_WAY_ENTRY) && !row->why)
			row->way = SCRY_WAY_ENTRY;
	}
	r = plan_callers(h);
	for (size_t i = 0; i < h->count && r == 0; i++) {
		struct scry_hook *row = &h->rows[i];

		if (row->way)
			continue;
		h->refused++;
		if (!row->why)
			row->why = row->to.way == SCRY_WAY_SITE
					   ? "no call in its own object leads to it directly"
					   : "it is called through no slot";
	}
	if (r == 0 && h->refused == h->count)
		r = none_reached(h);
	return r;
}

/* The stub of `row` at address `at` in slab `slab`. */
static enum scry_x86_refusal emit(const struct scry_hook *row, uint64_t at,
				  const struct scry_slab *slab, struct scry_stub_code *ret)
{
	const struct scry_x86_code code = {.bytes = row->code,
					   .address = row->address,
					   .size = row->size,
					   .avail = row->avail};
	struct scry_stub stub = {.kind = row->to.kind,
				 .is_indirect = row->way & SCRY_WAY_GOT,
				 .spares_red_zone = row->spares_red_zone,
				 .at = at,
				 .gate = slab->gate,
				 .counter = slab->counters + 8ull * row->counter,
				 .literal = slab->code + 8ull * (1 + row->handler),
				 .cookie = row->to.cookie,
				 .function = row->target};

	if (row->way == SCRY_WAY_ENTRY) {
		stub.code = &code;
		stub.window = &row->window;
	}
	return scry_stub_emit(&stub, ret);
}

static uint64_t align_up(uint64_t n)
{
	return (n + STUB_ALIGN - 1) & ~(uint64_t)(STUB_ALIGN - 1);
}

/* Rows of one neighbourhood that have a way and no stub yet: from `*i` on, at most to `*ret_end`.
 * Returns how many bytes their stubs take, 0: there are none. What cannot be moved is refused. */
static uint64_t next_group(struct scry_hooks *h, size_t *i, size_t *ret_end, size_t *ret_count)
{
	struct scry_stub_code code;
	uint64_t bytes = 0, first = 0;
	size_t n;

	*ret_count = 0;
	for (n = *i; n < h->count; n++) {
		struct scry_hook *row = &h->rows[n];
		const uint64_t page = row->address & ~(uint64_t)(SCRY_PAGE - 1);
		const struct scry_slab here = {.code = page, .gate = page, .counters = page};
		enum scry_x86_refusal refusal;

		if (!row->way || row->has_stub)
			continue;
		if (!bytes) {
			*i = n;
			first = row->address;
		} else if (row->address - first > SLAB_REACH) {
			break;
		}
		row->counter = (uint32_t)(*ret_count)++;
		refusal = emit(row, row->address, &here, &code);
		if (refusal == SCRY_X86_OK) {
			bytes += align_up(code.size);
		} else {
			row->way = 0;
			row->why = scry_x86_why(refusal);
			h->refused++;
		}
	}
	*ret_end = n;
	return bytes;
}

/* Writes the stubs of rows [i, end) into a new slab. */
static int write_slab(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held,
		      size_t i, size_t end, uint64_t bytes, size_t counters)
{
	int number = scry_inject_slab(inj, held, h->rows[i].address, SLAB_HEAD + bytes, counters);
	struct scry_slab *slab;
	uint64_t at = SLAB_HEAD;
	uint8_t *code;
	int r = 0;

	if (number < 0)
		return number;
	slab = &inj->header.slabs[number];
	code = malloc(slab->code_size);
	if (!code)
		return no_memory();
	memset(code, 0xcc, slab->code_size);
	memcpy(code, &(uint64_t){SCRY_SLAB_MAGIC}, 8);
	for (size_t k = 0; k < h->handler_count; k++)
		memcpy(code + 8 * (k + 1), &(uint64_t){scry_inject_symbol(inj, h->handlers[k])}, 8);
	for (; i < end; i++) {
		struct scry_hook *row = &h->rows[i];
		struct scry_stub_code stub;

		if (!row->way || row->has_stub)
			continue;
		if (emit(row, slab->code + at, slab, &stub) != SCRY_X86_OK ||
		    at + stub.size > slab->code_size) {
			row->way = 0;
			row->why = "its copy would lie out of reach";
			h->refused++;
			continue;
		}
		memcpy(code + at, stub.bytes, stub.size);
		memcpy(row->copied, stub.copied, sizeof(row->copied));
		row->stub = slab->code + at;
		row->copy = row->stub + stub.copy_at;
		row->slab = (uint32_t)number;
		row->has_stub = true;
		at += align_up(stub.size);
	}
	slab->used = at;
	r = scry_edit_poke(inj->mem.fd, slab->code, code, slab->code_size);
	free(code);
	if (r == 0)
		r = scry_agent_write_header(&inj->header, inj->mem.fd);
	return r < 0 ? scry_fail(r, "cannot write stubs into process %d", inj->proc->pid) : 0;
}

static int write_stubs(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	size_t i = 0, end, count;
	uint64_t bytes;
	int r = 0;

	while (r == 0 && (bytes = next_group(h, &i, &end, &count)) > 0) {
		r = write_slab(h, inj, held, i, end, bytes, count);
		i = end;
	}
	return r;
}

struct changes {
	struct scry_change *at;
	uint8_t (*jumps)[8];
	size_t count, text_count;
};

static void add_entry(struct changes *c, const struct scry_inject *inj, const struct scry_hook *row)
{
	uint64_t at = row->address + row->window.endbr;

	if (!scry_x86_jump(at, row->stub, c->jumps[c->count]))
		return; /* a slab is mapped within reach */
	c->at[c->count] = (struct scry_change){.addr = at,
					       .size = JUMP_BYTES,
					       .kind = SCRY_EDIT_TEXT,
					       .old = row->code + row->window.endbr,
					       .new_ = c->jumps[c->count],
					       .mapping = scry_maps_at(&inj->maps, at)};
	c->count++;
}

static void add_slots(struct changes *c, const struct scry_hooks *h, const struct scry_inject *inj,
		      const struct scry_hook *row)
{
	for (size_t i = row->first_slot; i < row->first_slot + row->slot_count; i++) {
		const struct scry_slot *slot = &h->slots.rows[i];

		if (!is_usable(slot) || slot->definition != row->target)
			continue;
		c->at[c->count++] =
			(struct scry_change){.addr = slot->address,
					     .size = 8,
					     .kind = SCRY_EDIT_SLOT,
					     .old = &slot->value,
					     .new_ = &row->stub,
					     .mapping = scry_maps_at(&inj->maps, slot->address)};
	}
}

static void add_sites(struct changes *c, const struct scry_hooks *h, const struct scry_inject *inj,
		      const struct scry_hook *row)
{
	for (size_t i = row->first_site; i < row->first_site + row->site_count; i++) {
		const struct scry_hook_site *site = &h->sites[i];
		int32_t rel = (int32_t)(row->stub - site->next);

		if (!scry_x86_reaches(site->next, row->stub))
			continue; /* a slab is mapped within reach */
		memcpy(c->jumps[c->count], &rel, 4);
		c->at[c->count] =
			(struct scry_change){.addr = site->at,
					     .size = 4,
					     .kind = SCRY_EDIT_TEXT,
					     .old = site->old,
					     .new_ = c->jumps[c->count],
					     .mapping = scry_maps_at(&inj->maps, site->at)};
		c->count++;
	}
}

/* Text first, then slots. */
static int list_changes(const struct scry_hooks *h, const struct scry_inject *inj,
			struct changes *ret)
{
	size_t room = 1;

	for (size_t i = 0; i < h->count; i++)
		room += 1 + h->rows[i].slot_count + h->rows[i].site_count;
	ret->at = calloc(room, sizeof(*ret->at));
	ret->jumps = calloc(room, sizeof(*ret->jumps));
	if (!ret->at || !ret->jumps)
		return no_memory();
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (row->has_stub && !row->is_gone && row->way == SCRY_WAY_ENTRY)
			add_entry(ret, inj, row);
		else if (row->has_stub && !row->is_gone && row->way & SCRY_WAY_SITE)
			add_sites(ret, h, inj, row);
	}
	ret->text_count = ret->count;
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].has_stub && !h->rows[i].is_gone && h->rows[i].way & SCRY_WAY_GOT)
			add_slots(ret, h, inj, &h->rows[i]);
	return 0;
}

/* The last row whose window begins below ip, or NULL. */
static const struct scry_hook *row_before(const struct scry_hooks *h, uint64_t ip)
{
	size_t low = 0, high = h->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (h->rows[middle].address + h->rows[middle].window.endbr < ip)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &h->rows[low - 1] : NULL;
}

static bool is_in_window(const struct scry_hooks *h, uint64_t ip)
{
	const struct scry_hook *row = row_before(h, ip);

	return row && row->way == SCRY_WAY_ENTRY && row->has_stub &&
	       ip < row->address + row->window.endbr + JUMP_BYTES;
}

/* For scry_world_move: out of a window, into the copy. */
static uint64_t out_of_window(const void *arg, uint64_t ip)
{
	const struct scry_hook *row = row_before(arg, ip);
	struct scry_x86_moved moved;
	int at;

	if (!is_in_window(arg, ip))
		return ip;
	memcpy(moved.at, row->copied, sizeof(moved.at));
	at = scry_x86_to_copy(&row->window, &moved, ip - row->address - row->window.endbr);
	return at < 0 ? ip : row->copy + (uint64_t)at;
}

static bool is_anyone_inside(const struct scry_hooks *h, const struct scry_world *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].stopped && is_in_window(h, w->threads[i].regs.rip))
			return true;
	for (size_t i = 0; i < w->saved_count; i++)
		if (is_in_window(h, w->saved[i].ip))
			return true;
	return false;
}

/* With everybody stopped. -EAGAIN: a thread stands where it cannot be moved from. */
static int apply_text(struct scry_hooks *h, struct scry_inject *inj, size_t count)
{
	struct scry_world w;
	int moved, r = scry_inject_stop(inj, &w);

	if (r < 0)
		return r;
	moved = scry_world_move(&w, inj->mem.fd, out_of_window, h);
	r = moved < 0 ? moved : is_anyone_inside(h, &w) ? -EAGAIN : 0;
	if (r == 0)
		r = scry_edit_apply(&inj->edit, h->first_edit, count);
	scry_inject_go(inj, &w);
	h->moved += moved > 0 ? (size_t)moved : 0;
	return r;
}

/* A program that is being started has one thread, which is held already. */
static int apply_held(struct scry_hooks *h, struct scry_inject *inj, size_t count,
		      const struct scry_tracee *held)
{
	return is_in_window(h, held->regs.rip) ? -EAGAIN
					       : scry_edit_apply(&inj->edit, h->first_edit, count);
}

static int apply(struct scry_hooks *h, struct scry_inject *inj, const struct changes *c,
		 const struct scry_tracee *held)
{
	int r = c->text_count ? -EAGAIN : 0;

	if (r == -EAGAIN && held)
		r = apply_held(h, inj, c->text_count, held);
	for (int i = 0; i < ON_TRIES && r == -EAGAIN && !held; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		r = apply_text(h, inj, c->text_count);
	}
	if (r == -EAGAIN)
		r = scry_fail(-EBUSY,
			      "a thread of process %d stands inside an instruction to be changed; "
			      "fix: try again",
			      inj->proc->pid);
	return r < 0 ? r
		     : scry_edit_apply(&inj->edit, h->first_edit + c->text_count,
				       c->count - c->text_count);
}

int scry_hooks_on(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	struct changes c = {0};
	int r = write_stubs(h, inj, held);

	if (r == 0)
		r = list_changes(h, inj, &c);
	h->first_edit = inj->edit.count;
	if (r == 0)
		r = scry_edit_plan(&inj->edit, c.at, c.count);
	if (r == 0) {
		h->edit_count = c.count;
		h->is_on = true;
		r = apply(h, inj, &c, held);
		if (r < 0)
			scry_hooks_off(h, inj);
	}
	free(c.at);
	free(c.jumps);
	return r;
}

int scry_hooks_off(struct scry_hooks *h, struct scry_inject *inj)
{
	struct scry_undo_report report;
	struct scry_world w;
	int r;

	if (!h->is_on)
		return 0;
	r = scry_inject_stop(inj, &w);
	if (r < 0)
		return r;
	r = scry_edit_undo_some(&inj->edit, &inj->maps, h->first_edit, h->edit_count, &report);
	scry_inject_go(inj, &w);
	h->is_on = r < 0;
	return r;
}

uint64_t scry_hook_calls(const struct scry_hook *hook, const struct scry_inject *inj)
{
	return hook->has_stub && inj->counters[hook->slab]
		       ? __atomic_load_n(&inj->counters[hook->slab][hook->counter],
					 __ATOMIC_RELAXED)
		       : 0;
}

const char *scry_hook_way_name(uint32_t way)
{
	static const char *const names[] = {"none", "entry",	 "site",     "entry+site",
					    "got",  "entry+got", "site+got", "all"};

	return names[way & 7];
}
