/*
 * See breaks.h. A slab is SLAB_HEAD bytes, then copies of COPY_BYTES; the counter of each copy
 * holds the address that it is a copy of, which the agent goes by when no keeper is there any more
 * (agent/trap.c).
 */
#include "trace/breaks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "base/err.h"
#include "sys/edit.h"
#include "sys/gadgets.h"
#include "sys/x86_move.h"

#define INSN_MAX 15
#define SLAB_REACH (1ull << 29)
#define SLAB_COPIES 4096u
#define SLAB_ROUND (SCRY_PAGE / 8) /* as many counters are in a page: none without a copy */
#define INT3 0xcc

void scry_breaks_init(struct scry_breaks *b, const struct scry_mem *mem,
		      struct scry_linkmap *objects)
{
	*b = (struct scry_breaks){.mem = mem, .objects = objects};
	scry_map_init(&b->by_address, 2 * SCRY_BREAKS_MAX);
}

void scry_breaks_done(struct scry_breaks *b)
{
	scry_map_done(&b->by_address);
	free(b->rows);
	*b = (struct scry_breaks){0};
}

ssize_t scry_breaks_at(const struct scry_breaks *b, uint64_t address)
{
	uint64_t index;

	return scry_map_get(&b->by_address, address, &index) ? (ssize_t)index : -ENOENT;
}

static const char *first_instruction(const struct scry_breaks *b, uint64_t address,
				     struct scry_x86_code *code, struct scry_x86_window *window,
				     uint8_t bytes[2 * INSN_MAX])
{
	ssize_t n = scry_mem_read_some(b->mem, address, bytes, 2 * INSN_MAX);
	enum scry_x86_refusal refusal;

	if (n <= 0)
		return "its code cannot be read";
	*code = (struct scry_x86_code){
		.bytes = bytes, .address = address, .size = (size_t)n, .avail = (size_t)n};
	refusal = scry_x86_window(code, 1, SCRY_X86_JUMP_OK, window);
	if (refusal != SCRY_X86_OK)
		return scry_x86_why(refusal);
	return NULL;
}

/* NULL: it is code of a loaded object and as in its file. */
static const char *compare_with_file(const struct scry_breaks *b, uint64_t address,
				     const uint8_t *bytes, size_t size)
{
	ssize_t i = scry_linkmap_at(b->objects, address);
	const struct scry_object *o = i < 0 ? NULL : &b->objects->objects[i];
	const struct scry_map_entry *m = scry_maps_at(&b->objects->maps, address);
	uint8_t file[2 * INSN_MAX];

	if (!o || !m || !m->x || m->w || !m->inode || scry_linkmap_open(b->objects, (size_t)i) < 0)
		return "it lies in no code of a loaded object";
	if (scry_elf_read(o->elf, address - o->bias, file, size) < 0 || memcmp(file, bytes, size))
		return "its first bytes are not those of its file: another tool has changed them";
	return NULL;
}

static const char *look(const struct scry_breaks *b, uint64_t address, struct scry_x86_code *code,
			struct scry_x86_window *window, uint8_t bytes[2 * INSN_MAX])
{
	const char *why = first_instruction(b, address, code, window, bytes);

	if (why)
		return why;
	if (scry_gadgets_is_restorer(bytes + window->endbr, code->size - window->endbr))
		return "signal handlers return to it, and so do we from calls in the program";
	return compare_with_file(b, address, bytes, window->endbr + (size_t)window->bytes);
}

const char *scry_breaks_why(const struct scry_breaks *b, uint64_t address)
{
	uint8_t bytes[2 * INSN_MAX];
	struct scry_x86_window window;
	struct scry_x86_code code;

	return look(b, address, &code, &window, bytes);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* For when we are no more. */
static int give_agent(struct scry_breaks *b, int number, uint64_t copies)
{
	struct scry_inject *inj = b->inj;
	const uint64_t trap = inj->data + offsetof(struct scry_agent_data, trap);
	const struct scry_slab *slab = &inj->header.slabs[number];
	const uint64_t row[2] = {slab->code, copies};
	uint64_t count = 0; /* others are of a scry that died: some thread may still need them */
	int r = scry_mem_u64(b->mem, trap + offsetof(struct scry_agent_trap, slab_count), &count);

	if (r < 0 || count >= SCRY_SLABS_MAX)
		return scry_fail(-ENOSPC, "the agent in process %d knows too many slabs",
				 inj->proc->pid);
	r = scry_edit_poke(inj->mem.fd,
			   trap + offsetof(struct scry_agent_trap, slabs) + count * sizeof(row),
			   row, sizeof(row));
	count++;
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, trap + offsetof(struct scry_agent_trap, slab_count),
				   &count, sizeof(count));
	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

/* A slab near `address` with room for one copy, or -errno with a sentence. */
static int slab_near(struct scry_breaks *b, uint64_t address, struct scry_tracee *held, size_t more)
{
	struct scry_inject *inj = b->inj;
	const uint64_t least = more > SLAB_COPIES ? more : SLAB_COPIES,
		       copies = (least + SLAB_ROUND - 1) / SLAB_ROUND * SLAB_ROUND;
	const uint64_t magic = SCRY_SLAB_MAGIC;
	int number, r;

	for (uint64_t i = 0; i < inj->header.slab_count; i++)
		if (b->slabs & 1u << i &&
		    distance(inj->header.slabs[i].code, address) < SLAB_REACH &&
		    b->used[i] < inj->header.slabs[i].counters_size / 8)
			return (int)i;
	number = scry_inject_slab(inj, held, address, SCRY_BREAKS_HEAD + copies * SCRY_BREAKS_SLOT,
				  copies);
	if (number < 0)
		return number;
	r = scry_edit_poke(inj->mem.fd, inj->header.slabs[number].code, &magic, sizeof(magic));
	if (r < 0)
		return scry_fail(r, "cannot write into process %d", inj->proc->pid);
	b->slabs |= 1u << number;
	r = give_agent(b, number, copies);
	return r < 0 ? r : number;
}

/* Writes the copy; *ret_why when it is refused. */
static int write_copy(struct scry_breaks *b, const struct scry_x86_code *code,
		      const struct scry_x86_window *window, int number, struct scry_break *k)
{
	struct scry_slab *slab = &b->inj->header.slabs[number];
	const uint64_t at =
		slab->code + SCRY_BREAKS_HEAD + (uint64_t)b->used[number] * SCRY_BREAKS_SLOT;
	const struct scry_x86_place place = {.address = at, .back = true};
	struct scry_x86_moved moved;
	enum scry_x86_refusal refusal = scry_x86_move(code, window, &place, &moved);
	int r;

	if (refusal == SCRY_X86_OK && moved.bytes > SCRY_BREAKS_COPY)
		refusal = SCRY_X86_ROOM;
	if (refusal != SCRY_X86_OK) {
		k->why = scry_x86_why(refusal);
		return 0;
	}
	r = scry_edit_poke(b->inj->mem.fd, at, moved.code, moved.bytes);
	if (r == 0)
		r = scry_edit_poke(b->inj->mem.fd, at + SCRY_BREAKS_COPY, &k->at, sizeof(k->at));
	if (r < 0)
		return scry_fail(r, "cannot write into process %d", b->inj->proc->pid);
	b->used[number]++;
	slab->used = SCRY_BREAKS_HEAD + (uint64_t)b->used[number] * SCRY_BREAKS_SLOT;
	k->copy = at;
	return 0;
}

static ssize_t append(struct scry_breaks *b, uint64_t address, const struct scry_break *k)
{
	if (b->count == b->room) {
		size_t room = b->room ? 2 * b->room : 256;
		struct scry_break *more = reallocarray(b->rows, room, sizeof(*more));

		if (!more)
			return scry_no_memory("%zu breakpoints", room);
		b->rows = more;
		b->room = room;
	}
	if (b->count == SCRY_BREAKS_MAX || scry_map_put(&b->by_address, address, b->count) < 0 ||
	    scry_map_put(&b->by_address, k->at, b->count) < 0)
		return scry_fail(-ENOSPC, "more than %d breakpoints", SCRY_BREAKS_MAX);
	b->rows[b->count] = *k;
	return (ssize_t)b->count++;
}

ssize_t scry_breaks_add(struct scry_breaks *b, uint64_t address, struct scry_tracee *held,
			size_t more)
{
	struct scry_break k = {.at = address};
	uint8_t bytes[2 * INSN_MAX];
	struct scry_x86_window window;
	struct scry_x86_code code;
	ssize_t there = scry_breaks_at(b, address);
	int number, r;

	if (there >= 0)
		return there;
	k.why = look(b, address, &code, &window, bytes);
	if (!k.why)
		k.at = address + window.endbr;
	there = scry_breaks_at(b, k.at);
	if (there >= 0)
		return there;
	if (!k.why) {
		number = slab_near(b, address, held, more);
		r = number < 0 ? number : write_copy(b, &code, &window, number, &k);
		if (r < 0)
			return r;
	}
	return append(b, address, &k);
}

static struct scry_change change_of(const struct scry_breaks *b, const struct scry_break *k,
				    const uint8_t *old)
{
	static const uint8_t int3 = INT3;

	return (struct scry_change){.addr = k->at,
				    .size = 1,
				    .kind = SCRY_EDIT_TEXT,
				    .old = old,
				    .new_ = &int3,
				    .mapping = scry_maps_at(&b->objects->maps, k->at)};
}

/* Rows [first, end) of which some are to be put on: planned together. */
static int put_on(struct scry_breaks *b, size_t first, size_t end)
{
	size_t n = 0, entry = b->inj->edit.count;
	struct scry_change *changes = calloc(end - first + 1, sizeof(*changes));
	uint8_t *old = calloc(end - first + 1, 1);
	int r = changes && old ? 0 : scry_no_memory("breakpoints");

	for (size_t i = first; i < end && r == 0; i++) {
		struct scry_break *k = &b->rows[i];

		if (!k->copy || k->is_gone || k->is_changed)
			continue;
		r = scry_mem_read(b->mem, k->at, &old[n], 1);
		if (r < 0)
			scry_fail(r, "cannot read process %d", b->inj->proc->pid);
		changes[n] = change_of(b, k, &old[n]);
		n++;
	}
	if (r == 0)
		r = scry_edit_plan(&b->inj->edit, changes, n);
	if (r == 0)
		r = scry_edit_apply(&b->inj->edit, entry, n);
	for (size_t i = first; i < end && n; i++) {
		struct scry_break *k = &b->rows[i];

		if (!k->copy || k->is_gone || k->is_changed || entry >= b->inj->edit.count)
			continue;
		k->entry = entry++;
		k->is_changed = k->is_on =
			b->inj->edit.entries[k->entry].state == SCRY_EDIT_APPLIED;
	}
	free(changes);
	free(old);
	return r;
}

int scry_breaks_on(struct scry_breaks *b, size_t first)
{
	return put_on(b, first, b->count);
}

int scry_breaks_set(struct scry_breaks *b, struct scry_break *k)
{
	size_t i = (size_t)(k - b->rows);
	int r;

	if (k->is_on || !k->copy || k->is_gone)
		return 0;
	if (!k->is_changed)
		return put_on(b, i, i + 1);
	r = scry_edit_switch(&b->inj->edit, k->entry, true);
	k->is_on = r == 0;
	return r;
}

void scry_breaks_lift(struct scry_breaks *b, struct scry_break *k)
{
	if (k->is_on && scry_edit_switch(&b->inj->edit, k->entry, false) != -ESRCH)
		k->is_on = false;
}

void scry_breaks_lift_all(struct scry_breaks *b)
{
	for (size_t i = 0; i < b->count; i++)
		scry_breaks_lift(b, &b->rows[i]);
}

/* The agent takes it for none of ours: something else may be at that address soon. (0 would end its
 * list.) */
static void disown(struct scry_breaks *b, uint64_t copy)
{
	const struct scry_agent_header *h = &b->inj->header;
	const uint64_t nobody = 1;

	for (uint64_t i = 0; i < h->slab_count; i++) {
		uint64_t first = h->slabs[i].code + SCRY_BREAKS_HEAD;

		if (b->slabs & 1u << i && copy >= first &&
		    copy < first + (uint64_t)b->used[i] * SCRY_BREAKS_SLOT)
			scry_edit_poke(b->inj->mem.fd, copy + SCRY_BREAKS_COPY, &nobody,
				       sizeof(nobody));
	}
}

int scry_breaks_forget(struct scry_breaks *b, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < b->count; i++) {
		struct scry_break *k = &b->rows[i];
		uint64_t index;

		if (k->at < start || k->at >= end || k->is_gone)
			continue;
		k->is_gone = true;
		if (k->copy)
			disown(b, k->copy);
		k->is_on = k->is_changed = false;
		k->copy = 0;
		for (uint64_t at = k->at; at + 4 >= k->at; at -= 4) /* asked for before endbr64 */
			if (scry_map_get(&b->by_address, at, &index) && index == i)
				scry_map_remove(&b->by_address, at, NULL);
	}
	return scry_edit_forget(&b->inj->edit, start, end);
}

size_t scry_breaks_clean(const struct scry_breaks *b, const struct scry_mem *mem)
{
	size_t failed = 0;

	for (size_t i = 0; i < b->count; i++) {
		const struct scry_break *k = &b->rows[i];
		uint8_t now = 0;

		if (!k->is_changed)
			continue;
		if (scry_mem_read(mem, k->at, &now, 1) < 0 || now != INT3)
			continue;
		failed += scry_edit_poke(mem->fd, k->at, b->inj->edit.entries[k->entry].old, 1) < 0;
	}
	return failed;
}

/* The original bytes at `address`: ours are seen through. */
static bool original(const struct scry_breaks *b, uint64_t address, uint8_t *ret, size_t size)
{
	if (scry_mem_read(b->mem, address, ret, size) < 0)
		return false;
	for (size_t i = 0; i < size; i++) {
		ssize_t k = ret[i] == INT3 ? scry_breaks_at(b, address + i) : -1;

		if (k >= 0 && b->rows[k].is_changed && b->rows[k].at == address + i)
			ret[i] = b->inj->edit.entries[b->rows[k].entry].old[0];
	}
	return true;
}

/* What `jmp *slot(%rip)` or `call *slot(%rip)` with these last bytes leads to. */
static uint64_t through_slot(const struct scry_breaks *b, const uint8_t *rel, uint64_t next)
{
	uint64_t target = 0;
	int32_t offset;

	memcpy(&offset, rel, 4);
	return scry_mem_u64(b->mem, next + (uint64_t)(int64_t)offset, &target) < 0 ? 0 : target;
}

/* A PLT entry is followed: [endbr64] [bnd] jmp *slot(%rip). */
static uint64_t behind_plt(const struct scry_breaks *b, uint64_t target)
{
	uint8_t code[11];
	size_t at = 0;

	if (!original(b, target, code, sizeof(code)))
		return target;
	if (!memcmp(code, "\xf3\x0f\x1e\xfa", 4))
		at += 4;
	if (code[at] == 0xf2 && at + 7 <= sizeof(code))
		at++;
	if (code[at] != 0xff || code[at + 1] != 0x25)
		return target;
	return through_slot(b, code + at + 2, target + at + 6);
}

uint64_t scry_breaks_callee(const struct scry_breaks *b, uint64_t address)
{
	uint8_t code[6];
	int32_t rel;

	if (!original(b, address - sizeof(code), code, sizeof(code)))
		return 0;
	if (code[0] == 0xff && code[1] == 0x15)
		return through_slot(b, code + 2, address);
	if (code[1] != 0xe8)
		return 0;
	memcpy(&rel, code + 2, 4);
	return behind_plt(b, address + (uint64_t)(int64_t)rel);
}
