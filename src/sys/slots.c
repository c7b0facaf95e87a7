/*
 * All slots of all objects, for many functions at once.
 *
 * The order: the names of the wanted functions are collected from their objects (every alias); then
 * each relocation is looked at once. The slot's word is read through a window of memory, as
 * relocations lie side by side, and looked up among the wanted addresses; only when that fails and
 * the relocation carries a wanted name is the definition searched.
 *
 * A lazy slot is known by this: it holds what the file has there plus the object's base, which is
 * what the loader has made of it without binding. That is true of .plt, .plt.sec and every linker,
 * and needs no section names.
 */
#include "sys/slots.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "sys/own_ifunc.h"

#define WINDOW 16384u
#define NOT_ONE UINT64_MAX

struct scan {
	struct scry_linkmap *lm;
	const struct scry_mem *mem;
	const struct scry_functions *functions;
	struct scry_map names; /* hashes of wanted names */
	uint8_t window[WINDOW];
	uint64_t window_at;
	size_t window_size;
	struct scry_slots out;
};

/* The word at `addr`: 0, -EFAULT, -ESRCH. */
static int read_word(struct scan *s, uint64_t addr, uint64_t *ret)
{
	uint64_t at = addr - s->window_at;
	ssize_t n;

	if (addr < s->window_at || at + 8 > s->window_size) {
		s->window_at = addr & ~0xfffull;
		at = addr - s->window_at;
		n = scry_mem_read_some(s->mem, s->window_at, s->window, sizeof(s->window));
		s->window_size = n > 0 ? (size_t)n : 0;
		if (n == -ESRCH)
			return -ESRCH;
		if (at + 8 > s->window_size)
			return -EFAULT;
	}
	memcpy(ret, s->window + at, 8);
	return 0;
}

static int collect_names(struct scan *s)
{
	size_t last = SIZE_MAX;

	scry_map_init(&s->names, SCRY_SLOTS_MAX);
	for (size_t f = 0; f < s->functions->count; f++) {
		const struct scry_object *o = &s->lm->objects[s->functions->rows[f].object];
		struct scry_dynsym sym;

		if (s->functions->rows[f].object == last)
			continue; /* they come object by object */
		last = s->functions->rows[f].object;
		for (size_t i = 1; i < o->tables.symbol_count; i++) {
			if (!scry_dynamic_symbol(&o->tables, i, &sym) || !sym.is_defined ||
			    scry_functions_at(s->functions, o->bias + sym.value) < 0)
				continue;
			if (scry_map_put(&s->names, XXH3_64bits(sym.name, strlen(sym.name)), 1) < 0)
				return scry_no_memory("the names of functions");
		}
	}
	return 0;
}

struct definition {
	uint64_t address;
	bool is_sure;
};

/*
 * Where the loader will find `ref` for object `by`: the first definition in the order of the
 * namespace. Sure when it does not depend on the order, or when both ends came at the start, whose
 * order is known; what dlopen added (RTLD_LOCAL, RTLD_DEEPBIND) has an order that is not known.
 */
static bool find_definition(struct scan *s, size_t by, const struct scry_dynsym *ref,
			    struct definition *ret)
{
	const struct scry_object *from = &s->lm->objects[by];
	const struct scry_link_space *space = &s->lm->spaces[from->space];
	struct definition first = {0};
	bool is_first_startup = false, is_one = true;
	struct scry_dynsym sym;

	if (from->tables.is_symbolic &&
	    scry_dynamic_find(&from->tables, ref->name, ref->version, &sym) == 0) {
		*ret = (struct definition){from->bias + sym.value, true};
		return true;
	}
	for (size_t i = space->first; i < space->end; i++) {
		const struct scry_object *o = &s->lm->objects[i];

		if (!o->elf || scry_dynamic_find(&o->tables, ref->name, ref->version, &sym) < 0)
			continue;
		if (!first.address) {
			first.address = o->bias + sym.value;
			is_first_startup = o->at_startup;
		} else if (first.address != o->bias + sym.value) {
			is_one = false;
		}
	}
	first.is_sure = !s->out.unopened && !s->lm->is_cut &&
			(is_one || (is_first_startup && from->at_startup));
	*ret = first;
	return first.address != 0;
}

static int add_slot(struct scan *s, const struct scry_slot *slot)
{
	struct scry_slots *out = &s->out;

	if (out->count == out->room) {
		size_t room = out->room ? out->room * 2 : 256;
		struct scry_slot *more =
			room > SCRY_SLOTS_MAX ? NULL : realloc(out->rows, room * sizeof(*more));

		if (!more)
			return scry_fail(
				room > SCRY_SLOTS_MAX ? -ENOSPC : -ENOMEM,
				"no room for more than %zu slots; fix: ask for fewer functions",
				out->count);
		out->rows = more;
		out->room = room;
	}
	out->rows[out->count++] = *slot;
	return 0;
}

/* Where what an IFUNC's resolver chose is read off. */
static void note_implementation(struct scan *s, const struct scry_slot *slot)
{
	uint64_t *chosen = &s->out.implementations[slot->function];

	if (!s->functions->rows[slot->function].is_ifunc || slot->is_lazy || !slot->value)
		return;
	*chosen = *chosen && *chosen != slot->value ? NOT_ONE : slot->value;
}

static bool is_wanted_function(const struct scan *s, uint64_t addr, bool is_ifunc, uint32_t *ret)
{
	ssize_t index = scry_functions_at(s->functions, addr);

	if (index < 0 || s->functions->rows[index].is_ifunc != is_ifunc)
		return false;
	*ret = (uint32_t)index;
	return true;
}

/* A slot that does not hold a wanted address, but whose name is one of theirs. */
static int look_by_name(struct scan *s, const struct scry_dynsym *ref, struct scry_slot *slot)
{
	const struct scry_object *o = &s->lm->objects[slot->object];
	const uint8_t *bytes;
	struct definition def;
	uint64_t in_file = 0;

	if (scry_elf_view(o->elf, slot->address - o->bias, &bytes) >= 8)
		memcpy(&in_file, bytes, 8);
	slot->is_lazy = slot->kind == SCRY_SLOT_JUMP && !o->tables.binds_now && in_file &&
			slot->value == o->bias + in_file;
	if (!find_definition(s, slot->object, ref, &def))
		return 0;
	if (!is_wanted_function(s, def.address, true, &slot->function)) {
		if (!is_wanted_function(s, def.address, false, &slot->function))
			return 0; /* another definition of the same name */
		if (!slot->is_lazy) {
			s->out.elsewhere++;
			return 0;
		}
	}
	slot->is_sure = def.is_sure;
	slot->definition = slot->is_lazy ? def.address : slot->value;
	note_implementation(s, slot);
	return add_slot(s, slot);
}

static int look_at(struct scan *s, size_t object, const Elf64_Rela *rela, uint32_t type)
{
	const struct scry_object *o = &s->lm->objects[object];
	struct scry_slot slot = {
		.address = o->bias + rela->r_offset, .object = (uint32_t)object, .is_sure = true};
	struct scry_dynsym ref;
	uint64_t known;
	bool has_name;
	int r;

	if (type == R_X86_64_RELATIVE &&
	    scry_functions_at(s->functions, o->bias + rela->r_addend) < 0)
		return 0; /* most of them: not worth a read */
	r = read_word(s, slot.address, &slot.value);
	if (r < 0) {
		s->out.unread++;
		return r == -ESRCH ? scry_fail(r, "process %d is gone", (int)s->lm->pid) : 0;
	}
	slot.kind = type == R_X86_64_JUMP_SLOT	 ? SCRY_SLOT_JUMP
		    : type == R_X86_64_GLOB_DAT	 ? SCRY_SLOT_GOT
		    : type == R_X86_64_IRELATIVE ? SCRY_SLOT_IRELATIVE
						 : SCRY_SLOT_POINTER;
	slot.definition = slot.value;
	has_name = type != R_X86_64_RELATIVE && type != R_X86_64_IRELATIVE &&
		   scry_dynamic_symbol(&o->tables, ELF64_R_SYM(rela->r_info), &ref);
	slot.name = has_name ? ref.name : "";
	slot.version = has_name ? ref.version : "";
	if (is_wanted_function(s, slot.value, false, &slot.function) ||
	    (type == R_X86_64_IRELATIVE &&
	     is_wanted_function(s, o->bias + rela->r_addend, true, &slot.function))) {
		note_implementation(s, &slot);
		return add_slot(s, &slot);
	}
	if (!has_name || !scry_map_get(&s->names, XXH3_64bits(ref.name, strlen(ref.name)), &known))
		return 0;
	return look_by_name(s, &ref, &slot);
}

static int scan_object(struct scan *s, size_t object)
{
	const struct scry_object *o = &s->lm->objects[object];
	int r = 0;

	for (size_t t = 0; t < o->tables.rela_count; t++) {
		for (size_t i = 0; i < o->tables.rela[t].count && r == 0; i++) {
			Elf64_Rela rela = scry_dynamic_rela(&o->tables, t, i);
			uint32_t type = (uint32_t)ELF64_R_TYPE(rela.r_info);

			s->out.relocations++;
			if (rela.r_offset % 8 == 0 &&
			    (type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT ||
			     type == R_X86_64_64 || type == R_X86_64_RELATIVE ||
			     type == R_X86_64_IRELATIVE))
				r = look_at(s, object, &rela, type);
		}
	}
	return r;
}

/* Of an IFUNC: by its bound slots; where there are none, as our own loader has chosen. */
static uint64_t implementation(struct scan *s, uint32_t function)
{
	uint64_t *chosen = &s->out.implementations[function];

	if (!*chosen)
		*chosen = scry_own_ifunc(s->lm, &s->functions->rows[function]);
	return *chosen;
}

/* What is known only when all have been seen. */
static void finish(struct scan *s)
{
	struct scry_slots *out = &s->out;

	for (size_t i = 0; i < out->function_count; i++) {
		if (!s->functions->rows[i].is_ifunc)
			out->implementations[i] = s->functions->rows[i].address;
		else if (out->implementations[i] == NOT_ONE)
			out->implementations[i] = 0;
	}
	for (size_t i = 0; i < out->count; i++) {
		struct scry_slot *slot = &out->rows[i];
		const struct scry_object *o = &s->lm->objects[slot->object];
		uint64_t start, end;

		if (slot->is_lazy && s->functions->rows[slot->function].is_ifunc)
			slot->definition = implementation(s, slot->function);
		scry_elf_relro(o->elf, &start, &end);
		slot->is_relro = slot->address >= o->bias + start &&
				 slot->address < ((o->bias + end) & ~0xfffull);
	}
}

static int scan_all(struct scan *s)
{
	int r;

	s->out.unopened = scry_linkmap_open_all(s->lm);
	s->out.function_count = s->functions->count;
	s->out.implementations = calloc(s->functions->count + 1, sizeof(uint64_t));
	if (!s->out.implementations)
		return scry_no_memory("%zu functions", s->functions->count);
	r = collect_names(s);
	for (size_t i = 0; i < s->lm->count && r == 0; i++)
		if (s->lm->objects[i].elf && !scry_linkmap_is_repeated(s->lm, i))
			r = scan_object(s, i);
	if (r == 0)
		finish(s);
	return r;
}

int scry_slots_find(struct scry_linkmap *lm, const struct scry_mem *mem,
		    const struct scry_functions *functions, struct scry_slots *ret)
{
	struct scan *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return scry_no_memory("looking for slots");
	s->lm = lm;
	s->mem = mem;
	s->functions = functions;
	r = scan_all(s);
	scry_map_done(&s->names);
	if (r < 0)
		scry_slots_done(&s->out);
	else
		*ret = s->out;
	free(s);
	return r;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static size_t without_repeats(uint64_t *rows, size_t count)
{
	size_t kept = 1;

	for (size_t i = 1; i < count; i++)
		if (rows[i] != rows[i - 1])
			rows[kept++] = rows[i];
	return kept;
}

int scry_slots_mark_loaded(struct scry_slots *slots, const struct scry_linkmap *lm, size_t object,
			   const struct scry_text *text)
{
	uint64_t *at = calloc(slots->count + 1, sizeof(*at)), bias = lm->objects[object].bias;
	bool *loaded = calloc(slots->count + 1, sizeof(*loaded));
	size_t n = 0;
	int r = at && loaded ? 0 : scry_no_memory("slots");

	for (size_t i = 0; i < slots->count && r == 0; i++)
		if (slots->rows[i].object == object && scry_slot_serves_loads(&slots->rows[i]))
			at[n++] = slots->rows[i].address - bias;
	if (n) {
		qsort(at, n, sizeof(*at), by_value);
		n = without_repeats(at, n);
		scry_text_loads(text, at, n, loaded);
	}
	for (size_t i = 0; i < slots->count && n; i++) {
		uint64_t key = slots->rows[i].address - bias;
		const uint64_t *found = bsearch(&key, at, n, sizeof(*at), by_value);

		if (found && slots->rows[i].object == object)
			slots->rows[i].is_loaded = loaded[found - at];
	}
	free(at);
	free(loaded);
	return r;
}

void scry_slots_done(struct scry_slots *slots)
{
	free(slots->rows);
	free(slots->implementations);
	*slots = (struct scry_slots){0};
}

const char *scry_slot_kind_name(enum scry_slot_kind kind)
{
	static const char *const names[] = {"jump slot", "got", "pointer", "irelative"};

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}
