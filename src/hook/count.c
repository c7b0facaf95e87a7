/*
 * The stub, in the r-x stub area of the agent, 64 bytes each:
 *
 *   endbr64
 *   pushfq                     flags as found; nothing lives below rsp at a function's entry
 *   cmpq $0, gate(%rip)        0 in a fork child
 *   je   1f
 *   lock incq counter(%rip)
 * 1: popfq
 *   ENTRY: the window's no-op, then jmp back to entry + window
 *   GOT:   jmp *2f(%rip) ; 2: .quad function
 *
 * Written before any place points at it. Entry windows are plain no-ops, so nothing has to be
 * moved.
 */
#include "hook/count.h"

#include <Zydis/Zydis.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "sys/elf.h"

#define STUB_BYTES 64

/* Length of the no-op at `code`, endbr64 in front kept apart in *ret_skip; 0: it begins with
 * something else. */
static uint8_t nop_window(const uint8_t *code, size_t size, uint8_t *ret_skip)
{
	ZydisDecoder d;
	ZydisDecodedInstruction insn;
	size_t at = 0;

	ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	*ret_skip = 0;
	while (at < size &&
	       ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&d, NULL, code + at, size - at, &insn))) {
		if (at == 0 && insn.mnemonic == ZYDIS_MNEMONIC_ENDBR64) {
			*ret_skip = insn.length;
			at += insn.length;
			continue;
		}
		if (insn.mnemonic != ZYDIS_MNEMONIC_NOP)
			break;
		return insn.length >= 5 ? insn.length : 0;
	}
	return 0;
}

struct search {
	const struct scry_proc *proc;
	struct scry_maps maps;
	struct scry_mem mem;
	char name[128];
	const char *library; /* part of the path, or NULL */
};

/* First mapping of each file, in address order: fn gets the opened object. Returns fn's first
 * non-zero. */
static int each_object(struct search *s,
		       int (*fn)(struct search *, struct scry_elf *, const struct scry_map_entry *,
				 uint64_t bias, void *),
		       void *arg)
{
	for (size_t i = 0; i < s->maps.count; i++) {
		const struct scry_map_entry *m = &s->maps.entries[i];
		struct scry_elf *elf;
		uint64_t bias;
		int r = 0;

		if (!m->inode || m->offset || !m->r ||
		    (i && s->maps.entries[i - 1].inode == m->inode))
			continue;
		if (scry_elf_open_mapped(s->proc->pid, m, &elf) < 0)
			continue;
		if (scry_elf_bias(elf, &s->maps, m, &bias) == 0)
			r = fn(s, elf, m, bias, arg);
		scry_elf_close(elf);
		if (r)
			return r;
	}
	scry_error_clear();
	return 0;
}

static int find_function(struct search *s, struct scry_elf *elf, const struct scry_map_entry *m,
			 uint64_t bias, void *arg)
{
	struct scry_count_hook *hook = arg;
	struct scry_sym sym;

	if (s->library && !strstr(m->path, s->library))
		return 0;
	if (scry_elf_symbol(elf, s->name, &sym) < 0 || sym.type != STT_FUNC)
		return 0;
	hook->address = sym.value + bias;
	snprintf(hook->module, sizeof(hook->module), "%s", m->path);
	return 1;
}

static int find_slot(struct search *s, struct scry_elf *elf, const struct scry_map_entry *m,
		     uint64_t bias, void *arg)
{
	struct scry_count_hook *hook = arg;
	uint64_t slot, value;

	(void)m;
	if (scry_elf_got_slot(elf, s->name, &slot) < 0 || hook->slot_count == SCRY_COUNT_SLOTS_MAX)
		return 0;
	/* A lazy slot that was never used holds its own PLT address: that object's calls stay
	 * unseen. */
	if (scry_mem_u64(&s->mem, slot + bias, &value) == 0 && value == hook->address)
		hook->slots[hook->slot_count++] = slot + bias;
	return 0;
}

static int choose_way(struct search *s, enum scry_hook_way way, struct scry_count_hook *hook)
{
	uint8_t code[32], skip = 0, window = 0;
	ssize_t n = scry_mem_read_some(&s->mem, hook->address, code, sizeof(code));

	if (n > 0)
		window = nop_window(code, (size_t)n, &skip);
	if (window && way != SCRY_WAY_GOT) {
		hook->way = SCRY_WAY_ENTRY;
		hook->address += skip;
		hook->window = window > SCRY_EDIT_MAX ? SCRY_EDIT_MAX : window;
		memcpy(hook->old, code + skip, hook->window);
		return 0;
	}
	if (way == SCRY_WAY_ENTRY)
		return scry_fail(
			-ENOTSUP,
			"'%s' does not begin with a no-op of 5 bytes or more: its entry cannot be "
			"changed yet; fix: --via=got",
			s->name);
	each_object(s, find_slot, hook);
	if (!hook->slot_count)
		return scry_fail(-ENOTSUP,
				 "'%s' in '%s' is called through no GOT slot that is bound, and "
				 "does not begin "
				 "with a no-op: it cannot be counted yet",
				 s->name, hook->module);
	hook->way = SCRY_WAY_GOT;
	return 0;
}

int scry_count_plan(const struct scry_proc *proc, const char *spec, enum scry_hook_way way,
		    struct scry_count_hook *ret)
{
	struct scry_count_hook hook = {0};
	struct search s = {.proc = proc, .mem.fd = -1};
	const char *at = strchr(spec, '@');
	int r;

	snprintf(s.name, sizeof(s.name), "%.*s", at ? (int)(at - spec) : 120, spec);
	s.library = at ? at + 1 : NULL;
	snprintf(hook.symbol, sizeof(hook.symbol), "%s", s.name);
	r = scry_mem_open(&s.mem, proc->pid, 0);
	if (r == 0)
		r = scry_maps_read(proc->pid, &s.maps);
	if (r == 0)
		r = each_object(&s, find_function, &hook) == 1
			    ? choose_way(&s, way, &hook)
			    : scry_fail(
				      -ENOENT,
				      "no loaded object of process %d defines a function '%s'%s%s",
				      proc->pid, s.name, at ? " in " : "", at ? at + 1 : "");
	scry_maps_done(&s.maps);
	scry_mem_close(&s.mem);
	if (r == 0)
		*ret = hook;
	return r;
}

static size_t put(uint8_t *code, size_t at, const void *bytes, size_t size)
{
	memcpy(code + at, bytes, size);
	return at + size;
}

static size_t put_rel32(uint8_t *code, size_t at, uint64_t next, uint64_t target)
{
	int32_t rel = (int32_t)(target - next);

	return put(code, at, &rel, 4);
}

static size_t emit_stub(const struct scry_inject *inj, const struct scry_count_hook *h,
			uint8_t *code)
{
	uint64_t counter =
		inj->header.shared + offsetof(struct scry_control, counters) + 8ull * h->counter;
	size_t at = 0;

	at = put(code, at, "\xf3\x0f\x1e\xfa\x9c", 5); /* endbr64; pushfq */
	at = put(code, at, "\x48\x83\x3d", 3);	       /* cmpq $0, gate.open(%rip) */
	at = put_rel32(code, at, h->stub + at + 5, inj->gate + offsetof(struct scry_gate, open));
	at = put(code, at, "\x00\x74\x08", 3);	   /* je +8 */
	at = put(code, at, "\xf0\x48\xff\x05", 4); /* lock incq counter(%rip) */
	at = put_rel32(code, at, h->stub + at + 4, counter);
	at = put(code, at, "\x9d", 1); /* popfq */
	if (h->way == SCRY_WAY_ENTRY) {
		at = put(code, at, "\xe9", 1);
		at = put_rel32(code, at, h->stub + at + 4, h->address + h->window);
	} else {
		at = put(code, at, "\xff\x25\x00\x00\x00\x00", 6);
		at = put(code, at, &h->address, 8);
	}
	return at;
}

static bool in_reach(uint64_t from, uint64_t to)
{
	int64_t d = (int64_t)(to - from);

	return d > -0x7fff0000ll && d < 0x7fff0000ll;
}

static int write_stubs(struct scry_inject *inj, struct scry_count_hook *hooks, size_t count)
{
	uint64_t used = inj->header.stub_used;
	int r;

	if (used + count * STUB_BYTES > inj->header.stubs_size || count > SCRY_COUNTERS)
		return scry_fail(-ENOSPC,
				 "no room for %zu more stubs in process %d; fix: scry undo -p %d",
				 count, inj->proc->pid, inj->proc->pid);
	for (size_t i = 0; i < count; i++) {
		uint8_t code[STUB_BYTES];

		hooks[i].counter = (uint32_t)i;
		hooks[i].stub = inj->header.stubs + used + i * STUB_BYTES;
		inj->control->counters[i] = 0;
		if (hooks[i].way == SCRY_WAY_ENTRY && !in_reach(hooks[i].address, hooks[i].stub))
			return scry_fail(-ERANGE, "'%s' lies more than 2 GiB from the agent",
					 hooks[i].symbol);
		memset(code, 0xcc, sizeof(code));
		emit_stub(inj, &hooks[i], code);
		r = scry_edit_poke(inj->mem.fd, hooks[i].stub, code, sizeof(code));
		if (r < 0)
			return scry_fail(r, "cannot write a stub into process %d", inj->proc->pid);
	}
	inj->header.stub_used = used + count * STUB_BYTES;
	return scry_agent_write_header(&inj->header, inj->mem.fd);
}

static int change_entry(struct scry_inject *inj, const struct scry_count_hook *h)
{
	uint8_t jump[SCRY_EDIT_MAX];
	struct scry_change change = {.addr = h->address,
				     .size = 5,
				     .kind = SCRY_EDIT_TEXT,
				     .old = h->old,
				     .new_ = jump,
				     .mapping = scry_maps_at(&inj->maps, h->address)};

	jump[0] = 0xe9;
	put_rel32(jump, 1, h->address + 5, h->stub);
	return scry_edit_change(&inj->edit, &change);
}

static int change_slots(struct scry_inject *inj, const struct scry_count_hook *h)
{
	int r = 0;

	for (uint32_t i = 0; i < h->slot_count && r == 0; i++) {
		struct scry_change change = {.addr = h->slots[i],
					     .size = 8,
					     .kind = SCRY_EDIT_SLOT,
					     .old = &h->address,
					     .new_ = &h->stub,
					     .mapping = scry_maps_at(&inj->maps, h->slots[i])};

		r = scry_edit_change(&inj->edit, &change);
	}
	return r;
}

static bool is_anyone_inside(const struct scry_world *w, const struct scry_count_hook *hooks,
			     size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (hooks[i].way == SCRY_WAY_ENTRY &&
		    scry_world_inside(w, hooks[i].address + 1, hooks[i].address + 5))
			return true;
	return false;
}

int scry_count_apply(struct scry_inject *inj, struct scry_count_hook *hooks, size_t count)
{
	struct scry_world w;
	uint32_t held;
	int r = write_stubs(inj, hooks, count);

	if (r < 0)
		return r;
	r = scry_world_stop(&w, inj->proc->pid, inj->max_pause_ns);
	if (r < 0)
		return r;
	if (is_anyone_inside(&w, hooks, count))
		r = scry_fail(-EBUSY,
			      "a thread stands inside a window to be changed; fix: try again");
	for (size_t i = 0; i < count && r == 0; i++)
		r = hooks[i].way == SCRY_WAY_ENTRY ? change_entry(inj, &hooks[i])
						   : change_slots(inj, &hooks[i]);
	held = (uint32_t)w.count;
	scry_world_release(&w);
	scry_inject_count_pause(inj, w.pause_ns, held);
	return r;
}
