/*
 * On: slabs and stubs are written first, nothing leads to them yet; the journal gets all changes as
 * PLANNED; then, with all threads stopped, those that are inside a window go on in the copy of its
 * instructions, which is right with the old bytes too, and the bytes are written. A SIGKILL between
 * any two of these leaves each thread at a place that does what it would have done.
 */
#include "hook/hooks.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/bisect.h"
#include "base/err.h"
#include "hook/chain.h"
#include "hook/hidden.h"
#include "hook/hold.h"
#include "hook/loads.h"
#include "hook/renew.h"

#define JUMP_BYTES 5
#define SLAB_HEAD 256 /* magic and literals */
#define SLAB_REACH (1ull << 29)
#define STUB_ALIGN 16
#define ON_TRIES 5
#define LIST_TRIES 25
#define UNUSED_BATCH 32
#define PIECE 64	   /* changes made before the next look at the clock */
#define SPARE_BYTES 16384u /* for functions of objects loaded later */
#define SPARE_COUNTERS 512u
#define HUNT_BYTES_A_NS 2u /* of a pause, of memory that is looked at: more than that takes */

/* A list that is being changed is waited for, but not for ever; nor when we ourselves hold the
 * program that changes it, in its start. */
static int read_objects(struct scry_hooks *h)
{
	bool is_held = scry_proc_tracer(h->proc->pid, h->proc->pid) == getpid();
	int r = scry_linkmap_read(h->proc->pid, &h->mem, &h->objects);

	for (int i = 0;
	     i < LIST_TRIES && r == 0 && !is_held && (h->objects.is_changing || h->objects.is_cut);
	     i++) {
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		scry_linkmap_done(&h->objects);
		r = scry_linkmap_read(h->proc->pid, &h->mem, &h->objects);
	}
	return r;
}

int scry_hooks_open(struct scry_hooks *h, const struct scry_proc *proc)
{
	int r;

	*h = (struct scry_hooks){.proc = proc, .mem.fd = -1};
	r = scry_mem_open(&h->mem, proc->pid, 0);
	if (r == 0)
		r = read_objects(h);
	if (r == 0) {
		h->texts = calloc(h->objects.count + 1, sizeof(*h->texts));
		if (!h->texts)
			r = scry_no_memory("%zu objects", h->objects.count);
	}
	h->handlers[h->handler_count++] = SCRY_LOADS_HANDLER; /* its literal is in each slab */
	return r;
}

void scry_hooks_close(struct scry_hooks *h)
{
	scry_loads_free(h);
	for (size_t i = 0; h->texts && i < h->objects.count; i++)
		scry_text_free(h->texts[i]);
	free(h->texts);
	for (size_t i = 0; i < h->count; i++) {
		scry_hook_forget(&h->rows[i]);
	}
	for (size_t i = 0; i < h->request_count; i++)
		free(h->requests[i]);
	free(h->rows);
	free(h->requests);
	free(h->request_to);
	free(h->places);
	scry_slots_done(&h->slots);
	scry_functions_done(&h->functions);
	scry_linkmap_done(&h->objects);
	scry_mem_close(&h->mem);
	*h = (struct scry_hooks){.mem.fd = -1};
}

static int no_memory(void)
{
	return scry_no_memory("the hooks");
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

void scry_hook_forget(struct scry_hook *row)
{
	free(row->symbol);
	free(row->version);
	free(row->module);
	free(row->caller);
	free(row->aliases);
	row->symbol = row->version = row->module = row->caller = row->aliases = NULL;
}

int scry_hooks_add(struct scry_hooks *h, const struct scry_function *f, uint32_t request)
{
	const struct scry_object *object = &h->objects.objects[f->object];
	const struct scry_hook_to *to = &h->request_to[request];
	int handler = to->handler ? add_handler(h, to->handler) : 0;
	struct scry_hook *row;

	if (handler < 0)
		return handler;
	if (to->leaves_out && to->leaves_out(f->name, h->requests[request]))
		return 0;
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
		.version = strdup(f->version),
		.module = strdup(object->mapping ? object->mapping->path : object->name),
		.object_start = object->start,
		.object_end = object->end,
		.to = *to,
		.request = request,
		.handler = (uint32_t)handler,
		.is_ifunc = f->is_ifunc};
	if (!row->symbol || !row->version || !row->module) {
		scry_hook_forget(row);
		return no_memory();
	}
	h->count++;
	return 0;
}

int scry_hooks_find(struct scry_hooks *h, const char *request, const struct scry_hook_to *to)
{
	if (to->way == SCRY_WAY_CALLS)
		return scry_symbols_find_called(&h->objects, request, &h->functions);
	return to->is_exported ? scry_symbols_find_exported(&h->objects, request, &h->functions)
			       : scry_symbols_find(&h->objects, request, &h->functions);
}

int scry_hooks_want(struct scry_hooks *h, const char *request, const struct scry_hook_to *to)
{
	size_t before = h->functions.count, hits = h->functions.hits;
	int r = scry_hooks_find(h, request, to);

	if (r == -ENOENT && h->waits && (strchr(request, '@') || scry_symbols_is_filter(request))) {
		scry_error_clear();
		r = 0;
	}
	if (r == 0)
		r = add_request(h, request, to);
	if (r == 0)
		h->request_to[h->request_count - 1].is_found = h->functions.hits > hits;
	for (size_t i = before; i < h->functions.count && r == 0; i++)
		r = scry_hooks_add(h, &h->functions.rows[i], (uint32_t)h->request_count - 1);
	return r;
}

/* Is a function's entry a guard's already, or the user's? His slots and ours do not meet. */
static bool is_taken(const struct scry_hooks *h, uint64_t address, bool is_beside)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].address == address &&
		    (h->rows[i].to.is_guard || (!is_beside && h->rows[i].to.way != SCRY_WAY_CALLS &&
						h->rows[i].to.way != SCRY_WAY_GOT)))
			return true;
	return false;
}

int scry_hooks_guard(struct scry_hooks *h, const char *request, const struct scry_hook_to *to)
{
	struct scry_functions found = {0};
	int r = to->is_exported ? scry_symbols_find_exported(&h->objects, request, &found)
				: scry_symbols_find(&h->objects, request, &found);

	if (r == -ENOENT) {
		scry_error_clear();
		r = 0;
	}
	if (r == 0)
		r = add_request(h, request, to);
	for (size_t i = 0; i < found.count && r == 0; i++)
		if (!is_taken(h, found.rows[i].address, to->is_beside))
			r = scry_hooks_add(h, &found.rows[i], (uint32_t)h->request_count - 1);
	scry_functions_done(&found);
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
				 .frees_rax = row->frees_rax,
				 .at = at,
				 .state_page = slab->state_page,
				 .counter = slab->counters + 8ull * row->counter,
				 .literal = slab->code + 8ull * (1 + row->handler),
				 .cookie = row->to.cookie,
				 .function = row->target};

	if (row->way == SCRY_WAY_ENTRY && row->over) {
		stub.function = row->over;
	} else if (row->way == SCRY_WAY_ENTRY) {
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
		const struct scry_slab here = {.code = page, .state_page = page, .counters = page};
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

/* Magic and literals: handlers may be more than when the slab was new. */
static int write_head(const struct scry_hooks *h, const struct scry_inject *inj,
		      const struct scry_slab *slab)
{
	uint64_t head[SLAB_HEAD / 8] = {SCRY_SLAB_MAGIC};
	int r;

	for (size_t k = 0; k < h->handler_count; k++)
		head[k + 1] = scry_inject_symbol(inj, h->handlers[k]);
	r = scry_edit_poke(inj->mem.fd, slab->code, head, sizeof(head));
	return r < 0 ? scry_fail(r, "cannot write stubs into process %d", inj->proc->pid) : 0;
}

/* And no instruction in the rest. */
static int init_slab(const struct scry_hooks *h, const struct scry_inject *inj,
		     struct scry_slab *slab)
{
	uint8_t *code = malloc(slab->code_size);
	int r;

	if (!code)
		return no_memory();
	memset(code, 0xcc, slab->code_size);
	memcpy(code, &(uint64_t){SCRY_SLAB_MAGIC}, 8);
	r = scry_edit_poke(inj->mem.fd, slab->code, code, slab->code_size);
	free(code);
	slab->used = SLAB_HEAD;
	return r < 0 ? scry_fail(r, "cannot write stubs into process %d", inj->proc->pid)
		     : write_head(h, inj, slab);
}

int scry_hooks_slab(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held,
		    const struct scry_hook_room *room)
{
	bool spare = h->waits || h->loads;
	int number, r;

	for (uint64_t i = 0; i < inj->header.slab_count; i++) {
		const struct scry_slab *slab = &inj->header.slabs[i];
		uint64_t gap =
			slab->code > room->near ? slab->code - room->near : room->near - slab->code;

		if (h->slabs & 1u << i && gap < SLAB_REACH &&
		    slab->code_size - slab->used >= room->bytes &&
		    slab->counters_size / 8 - inj->counted[i] >= room->counters) {
			r = write_head(h, inj, slab);
			return r < 0 ? r : (int)i;
		}
	}
	number = scry_inject_slab(inj, held, room->near,
				  SLAB_HEAD + room->bytes + (spare ? SPARE_BYTES : 0),
				  room->counters + (spare ? SPARE_COUNTERS : 0));
	if (number < 0)
		return number;
	h->slabs |= 1u << number;
	r = init_slab(h, inj, &inj->header.slabs[number]);
	return r < 0 ? r : number;
}

static void note_stub(struct scry_hook *row, uint64_t at, const struct scry_stub_code *stub)
{
	memcpy(row->copied, stub->copied, sizeof(row->copied));
	row->stub = at;
	row->copy = row->over ? row->over : at + stub->copy_at;
	row->stub_size = align_up(stub->size);
	row->has_stub = true;
}

/* Writes the stubs of rows [i, end) into a slab. */
static int write_slab(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held,
		      size_t i, size_t end, uint64_t bytes, size_t counters)
{
	const struct scry_hook_room room = {h->rows[i].address, bytes, counters};
	int r, number = scry_hooks_slab(h, inj, held, &room);
	struct scry_slab *slab;
	uint64_t at = 0;
	uint8_t *code;

	if (number < 0)
		return number;
	slab = &inj->header.slabs[number];
	code = malloc(slab->code_size);
	if (!code)
		return no_memory();
	memset(code, 0xcc, slab->code_size);
	for (; i < end; i++) {
		struct scry_hook *row = &h->rows[i];
		struct scry_stub_code stub;

		if (!row->way || row->has_stub)
			continue;
		row->counter += (uint32_t)inj->counted[number];
		if (emit(row, slab->code + slab->used + at, slab, &stub) != SCRY_X86_OK ||
		    slab->used + at + stub.size > slab->code_size) {
			row->way = 0;
			row->why = "its copy would lie out of reach";
			h->refused++;
			continue;
		}
		memcpy(code + at, stub.bytes, stub.size);
		note_stub(row, slab->code + slab->used + at, &stub);
		row->slab = (uint32_t)number;
		at += align_up(stub.size);
	}
	if (at > slab->code_size - slab->used) /* the last one's filler */
		at = slab->code_size - slab->used;
	r = scry_edit_poke(inj->mem.fd, slab->code + slab->used, code, at);
	free(code);
	slab->used += at;
	inj->counted[number] += counters;
	if (r == 0)
		r = scry_agent_write_header(&inj->header, inj->mem.fd);
	return r < 0 ? scry_fail(r, "cannot write stubs into process %d", inj->proc->pid) : 0;
}

int scry_hook_succeed(struct scry_hook *row, const struct scry_hook *old, struct scry_inject *inj)
{
	const struct scry_slab *slab = &inj->header.slabs[old->slab];
	struct scry_stub_code stub;
	int r;

	row->calls_before = old->calls_before;
	if (!old->has_stub)
		return 0;
	row->counter = old->counter;
	if (!row->way || emit(row, old->stub, slab, &stub) != SCRY_X86_OK ||
	    stub.size > old->stub_size) {
		row->calls_before = scry_hook_calls(old, inj);
		return 0;
	}
	r = scry_edit_poke(inj->mem.fd, old->stub, stub.bytes, stub.size);
	if (r < 0)
		return scry_fail(r, "cannot write stubs into process %d", inj->proc->pid);
	note_stub(row, old->stub, &stub);
	row->stub_size = old->stub_size;
	row->slab = old->slab;
	return 0;
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

/* Its file is the one it was planned for: by the list that the plan was made from. What is mapped
 * now may be another, or nothing for a moment. */
static void add_text(struct changes *c, const struct scry_hooks *h, uint64_t at, const void *old,
		     size_t size)
{
	c->at[c->count] = (struct scry_change){.addr = at,
					       .size = size,
					       .kind = SCRY_EDIT_TEXT,
					       .old = old,
					       .new_ = c->jumps[c->count],
					       .mapping = scry_maps_at(&h->objects.maps, at)};
	c->count++;
}

/* A slab is mapped within reach of all its rows: these do not fail. */
static void add_entry(struct changes *c, const struct scry_hooks *h, const struct scry_hook *row)
{
	uint64_t at = row->address + row->window.endbr;

	if (row->over) { /* the jump that is there leads elsewhere */
		scry_x86_jump(row->pad ? row->pad : at, row->stub, c->jumps[c->count]);
		add_text(c, h, row->pad ? row->pad : at, row->over_old, JUMP_BYTES);
		c->at[c->count - 1].is_over = true;
		c->at[c->count - 1].kind = row->pad ? SCRY_EDIT_PAD : SCRY_EDIT_TEXT;
		return;
	}
	if (row->pad) { /* first: no thread runs it yet */
		scry_x86_jump(row->pad, row->stub, c->jumps[c->count]);
		add_text(c, h, row->pad, row->pad_old, JUMP_BYTES);
		c->at[c->count - 1].kind = SCRY_EDIT_PAD;
		c->jumps[c->count][0] = 0xeb;
		c->jumps[c->count][1] = (uint8_t)(row->pad - (at + SCRY_SHORT_JUMP_BYTES));
	} else {
		scry_x86_jump(at, row->stub, c->jumps[c->count]);
	}
	add_text(c, h, at, row->code + row->window.endbr, row->jump);
}

static void add_places(struct changes *c, const struct scry_hooks *h, const struct scry_hook *row,
		       bool slots)
{
	for (size_t i = row->first_place; i < row->first_place + row->place_count; i++) {
		const struct scry_hook_place *place = &h->places[i];
		int32_t rel = (int32_t)(row->stub - (place->at + 4));

		if (place->is_slot != slots)
			continue;
		memcpy(c->jumps[c->count], &rel, 4);
		add_text(c, h, place->at, &place->old, slots ? 8 : 4);
		c->at[c->count - 1].is_over = row->over != 0;
		if (slots) {
			c->at[c->count - 1].kind = SCRY_EDIT_SLOT;
			c->at[c->count - 1].new_ = &row->stub;
		}
	}
}

/* Text first, then slots. */
static int list_changes(const struct scry_hooks *h, struct changes *ret)
{
	size_t room = 1;

	for (size_t i = 0; i < h->count; i++)
		room += 2 + h->rows[i].place_count;
	ret->at = calloc(room, sizeof(*ret->at));
	ret->jumps = calloc(room, sizeof(*ret->jumps));
	if (!ret->at || !ret->jumps)
		return no_memory();
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (row->has_stub && !row->is_gone && row->way == SCRY_WAY_ENTRY)
			add_entry(ret, h, row);
		else if (row->has_stub && !row->is_gone)
			add_places(ret, h, row, false);
	}
	ret->text_count = ret->count;
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].has_stub && !h->rows[i].is_gone && h->rows[i].way != SCRY_WAY_ENTRY)
			add_places(ret, h, &h->rows[i], true);
	if (h->is_strict)
		ret->text_count = ret->count;
	return 0;
}

/* The last row whose window begins below ip, or NULL. */
static const struct scry_hook *row_before(const struct scry_hooks *h, uint64_t ip)
{
	const size_t low =
		scry_bisect(h->count, i, h->rows[i].address + h->rows[i].window.endbr < ip);

	return low ? &h->rows[low - 1] : NULL;
}

static bool is_in_window(const struct scry_hooks *h, uint64_t ip)
{
	const struct scry_hook *row = row_before(h, ip);

	return row && row->way == SCRY_WAY_ENTRY && row->has_stub && !row->over &&
	       ip < row->address + row->window.endbr + row->jump;
}

/* For scry_stw_move: out of a window, into the copy. */
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

static bool is_anyone_inside(const struct scry_hooks *h, const struct scry_stw *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].stopped && is_in_window(h, w->threads[i].regs.rip))
			return true;
	for (size_t i = 0; i < w->saved_count; i++)
		if (is_in_window(h, w->saved[i].ip))
			return true;
	return false;
}

/* A pad and the entry that leads to it stay together. */
static size_t next_piece(const struct scry_inject *inj, size_t first, size_t left, size_t most)
{
	size_t n = left < most ? left : most;

	return n < left && inj->edit.entries[first + n - 1].kind == SCRY_EDIT_PAD ? n + 1 : n;
}

/* As a context that was interrupted holds it: of an instruction in a window, not its first. */
static bool is_interrupted(const void *arg, uint64_t word)
{
	return is_in_window(arg, word) && out_of_window(arg, word) != word;
}

/* Before a stop for changes: what it looks for beside the stacks of the threads. */
static int plan_hunt(const struct scry_hooks *h, struct scry_inject *inj)
{
	const struct scry_hook *last = h->count ? &h->rows[h->count - 1] : NULL;
	struct scry_stw_hunt hunt = {.is_one = is_interrupted, .arg = h};

	if (last) {
		hunt.low = h->rows[0].address;
		hunt.high = last->address + last->window.endbr + last->jump;
		hunt.bytes = inj->max_pause_ns * HUNT_BYTES_A_NS;
	}
	return scry_hidden_plan(inj, &hunt);
}

static int stop_to_change(const struct scry_hooks *h, struct scry_inject *inj, struct scry_stw *w)
{
	int r = inj->lasts || inj->hides ? plan_hunt(h, inj) : 0;

	if (r == 0)
		r = scry_hold_all(inj, w);
	inj->hunts = false;
	return r;
}

/* With all threads stopped, as many as there is time for, which is reported. -EAGAIN: a thread is
 * where it cannot be moved from, or may come back there (h->doubt_at). */
static int apply_text(struct scry_hooks *h, struct scry_inject *inj, size_t first, size_t *count)
{
	size_t done = 0, n;
	struct scry_stw w;
	int moved, r = stop_to_change(h, inj, &w);

	if (r < 0)
		return r;
	h->doubt_at = scry_stw_doubt(&w);
	moved = h->doubt_at ? 0 : scry_stw_move(&w, inj->mem.fd, out_of_window, h);
	r = moved < 0 ? moved : h->doubt_at || is_anyone_inside(h, &w) ? -EAGAIN : 0;
	while (r == 0 && done < *count && !(done && scry_stw_is_late(&w))) {
		n = next_piece(inj, first + done, *count - done, PIECE);
		r = scry_edit_apply(&inj->edit, first + done, n);
		done += n;
	}
	scry_inject_go(inj, &w);
	h->moved += moved > 0 ? (size_t)moved : 0;
	*count = done;
	return r;
}

/* A program that is being started has one thread, which is held already. */
static int apply_held(struct scry_hooks *h, struct scry_inject *inj, size_t first, size_t count,
		      const struct scry_tracee *held)
{
	return is_in_window(h, held->regs.rip) ? -EAGAIN
					       : scry_edit_apply(&inj->edit, first, count);
}

/* A thread waits for us, but only while the lease lasts: if we were stopped for longer, no more. */
static int apply_unused(struct scry_hooks *h, struct scry_inject *inj, size_t count)
{
	int r = 0;

	for (size_t done = 0, n; done < count && r == 0; done += n) {
		n = count - done < UNUSED_BATCH ? count - done : UNUSED_BATCH;
		if (__rdtsc() > inj->control->lease_tsc)
			return scry_fail(-EAGAIN, "scry was held up while it changed process %d",
					 inj->proc->pid);
		r = scry_edit_apply(&inj->edit, h->first_edit + done, n);
	}
	return r;
}

static int fail_inside(const struct scry_hooks *h, const struct scry_inject *inj)
{
	if (!h->doubt_at)
		return scry_fail(-EBUSY,
				 "a thread of process %d is inside an instruction to be "
				 "changed; fix: try again",
				 inj->proc->pid);
	return scry_fail(-EBUSY,
			 "memory of process %d at %#llx holds an address within the first "
			 "instructions of a function to be changed, as a context does that was "
			 "interrupted there and is resumed later; fix: try again when it has been",
			 inj->proc->pid, (unsigned long long)h->doubt_at);
}

static int apply(struct scry_hooks *h, struct scry_inject *inj, const struct changes *c,
		 const struct scry_tracee *held)
{
	int tries = held ? 1 : ON_TRIES, r = 0;

	if (h->is_unused)
		return apply_unused(h, inj, c->count);
	if (!held && c->text_count)
		r = scry_hidden_ask(inj);
	for (size_t done = 0; done < c->text_count && r == 0;) {
		size_t first = h->first_edit + done;
		size_t n = next_piece(inj, first, c->text_count - done, SCRY_INJECT_BATCH);

		r = held ? apply_held(h, inj, first, n, held) : apply_text(h, inj, first, &n);
		if (r == -EAGAIN && --tries) {
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
			r = 0;
		} else {
			done += n;
		}
	}
	if (r == -EAGAIN)
		r = fail_inside(h, inj);
	return r < 0 ? r
		     : scry_edit_apply(&inj->edit, h->first_edit + c->text_count,
				       c->count - c->text_count);
}

/* After a failure, whose sentence is kept. */
static int take_back(struct scry_hooks *h, struct scry_inject *inj, int failure)
{
	char why[512];

	snprintf(why, sizeof(why), "%s", scry_error());
	scry_hooks_off(h, inj);
	return scry_fail(failure, "%s", why);
}

int scry_hooks_change(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	struct changes c = {0};
	int r = list_changes(h, &c);

	h->first_edit = inj->edit.count;
	if (r == 0)
		r = scry_edit_plan(&inj->edit, c.at, c.count);
	if (r == 0) {
		h->edit_count = c.count;
		h->is_on = true;
		r = apply(h, inj, &c, held);
		if (r < 0)
			r = take_back(h, inj, r);
	}
	free(c.at);
	free(c.jumps);
	return r;
}

int scry_hooks_on(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held)
{
	int r;

	scry_chain(h, inj);
	r = write_stubs(h, inj, held);
	return r < 0 ? r : scry_hooks_change(h, inj, held);
}

int scry_hooks_off(struct scry_hooks *h, struct scry_inject *inj)
{
	struct scry_undo_report report;
	int r;

	if (!h->is_on)
		return 0;
	scry_loads_end(h, inj);
	r = scry_inject_undo(inj, h->first_edit, h->edit_count, &report);
	h->is_on = r < 0;
	return r;
}

uint64_t scry_hook_calls(const struct scry_hook *hook, const struct scry_inject *inj)
{
	uint64_t calls = hook->calls_before;

	if (hook->has_stub && inj->counters[hook->slab])
		calls += __atomic_load_n(&inj->counters[hook->slab][hook->counter],
					 __ATOMIC_RELAXED);
	return calls;
}

const char *scry_hook_way_name(uint32_t way)
{
	static const char *const names[] = {"none", "entry",	 "site",     "entry+site",
					    "got",  "entry+got", "site+got", "all"};

	return names[way & 7];
}
