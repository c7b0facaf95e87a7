/*
 * The dynamic loader's list, read from outside.
 *
 * From AT_PHDR to the program headers in memory, PT_DYNAMIC, DT_DEBUG, r_debug, link_map. A loader
 * that was started itself (ld.so ./prog) is what AT_PHDR shows; it has no DT_DEBUG, but exports
 * where its r_debug is.
 *
 * Must not trust the chain: addresses are read through scry_mem only, a link seen twice ends it,
 * and its length is limited. The trick against a list that changes meanwhile: l_prev of each object
 * must be the one we came from, else all is read again.
 */
#include "sys/linkmap.h"

#include <Zydis/Zydis.h>
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "sys/proc.h"

#define PHDRS_MAX 64u
#define DYNAMIC_MAX 1024u
#define TRIES 4
#define PAGE 4096u

/* struct r_debug of both C libraries; r_next only when version >= 2. */
struct debug {
	int32_t version, pad;
	uint64_t map, brk;
	int32_t state, pad2;
	uint64_t ldbase, next;
};
_Static_assert(offsetof(struct debug, map) == offsetof(struct r_debug, r_map) &&
		       offsetof(struct debug, ldbase) == offsetof(struct r_debug, r_ldbase) &&
		       offsetof(struct debug, next) == sizeof(struct r_debug),
	       "the ABI's struct r_debug");

/* The public part of struct link_map. */
struct link {
	uint64_t addr, name, ld, next, prev;
};
_Static_assert(sizeof(struct link) == sizeof(struct link_map), "the ABI's struct link_map");

/* What the kernel says of the program it started. */
struct program {
	uint64_t headers, loader, vdso; /* where they lie; loader, vdso: 0, there is none */
	uint64_t bias, dynamic, dynamic_size;
	bool has_interp;
};

struct reading {
	struct scry_linkmap *lm;
	const struct scry_mem *mem;
	struct scry_map seen; /* addresses of link_maps */
	struct scry_buf names;
	size_t room;
};

/* The mapping there, for what the headers do not say: most say all. */
static const struct scry_map_entry *mapping_at(struct scry_linkmap *lm, uint64_t at)
{
	if (!lm->maps.count && scry_maps_read(lm->pid, &lm->maps) < 0)
		return NULL;
	return scry_maps_at(&lm->maps, at);
}

/* Bias of the program by its file, for headers that do not say where they lie. */
static uint64_t bias_by_file(struct scry_linkmap *lm, uint64_t headers)
{
	const struct scry_map_entry *m = mapping_at(lm, headers);
	struct scry_elf *elf;
	uint64_t bias = 0;

	if (m && scry_elf_open_mapped(lm->pid, m, &elf) == 0) {
		if (scry_elf_bias(elf, &lm->maps, m, &bias) < 0)
			bias = 0;
		scry_elf_close(elf);
	}
	scry_error_clear();
	return bias;
}

static int read_program(struct reading *r, struct program *ret)
{
	struct scry_auxv said[] = {{AT_PHDR, 0}, {AT_PHNUM, 0}, {AT_BASE, 0}, {AT_SYSINFO_EHDR, 0}};
	Elf64_Phdr headers[PHDRS_MAX];
	int err = scry_proc_auxv_read(r->lm->pid, said, sizeof(said) / sizeof(said[0]));
	struct program p = {
		.headers = said[0].value, .loader = said[2].value, .vdso = said[3].value};
	const uint64_t at = p.headers, count = said[1].value;
	bool has_bias = false;

	if (err == 0 && (!at || !count))
		err = -ENOENT;
	if (err == 0)
		err = count > PHDRS_MAX
			      ? -ENOEXEC
			      : scry_mem_read(r->mem, at, headers, count * sizeof(*headers));
	if (err < 0)
		return scry_fail(err, "cannot read the program headers of process %d: %s",
				 (int)r->lm->pid, strerror(-err));
	for (uint64_t i = 0; i < count; i++) {
		if (headers[i].p_type == PT_PHDR) {
			p.bias = at - headers[i].p_vaddr;
			has_bias = true;
		} else if (headers[i].p_type == PT_INTERP) {
			p.has_interp = true;
		} else if (headers[i].p_type == PT_DYNAMIC) {
			p.dynamic = headers[i].p_vaddr;
			p.dynamic_size = headers[i].p_memsz;
		}
	}
	if (!has_bias)
		p.bias = bias_by_file(r->lm, at);
	if (p.dynamic)
		p.dynamic += p.bias;
	*ret = p;
	return 0;
}

/* Value of DT_DEBUG, 0: none or not filled in yet. */
static uint64_t dt_debug(const struct reading *r, const struct program *p)
{
	Elf64_Dyn entries[DYNAMIC_MAX];
	size_t size = p->dynamic_size < sizeof(entries) ? p->dynamic_size : sizeof(entries);
	ssize_t n = p->dynamic ? scry_mem_read_some(r->mem, p->dynamic, entries, size) : 0;

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*entries); i++) {
		if (entries[i].d_tag == DT_NULL)
			break;
		if (entries[i].d_tag == DT_DEBUG)
			return entries[i].d_un.d_ptr;
	}
	return 0;
}

/* r_debug of a loader that was started itself, or of a static program that can dlopen: by its
 * symbol. */
static uint64_t debug_by_symbol(struct reading *r, const struct program *p)
{
	const struct scry_map_entry *m = mapping_at(r->lm, p->headers);
	struct scry_elf *elf;
	struct scry_sym sym;
	uint64_t at = 0, bias;

	if (!m || scry_elf_open_mapped(r->lm->pid, m, &elf) < 0)
		goto out;
	if (scry_elf_bias(elf, &r->lm->maps, m, &bias) == 0) {
		if (scry_elf_symbol(elf, "_r_debug", &sym) == 0) /* glibc */
			at = bias + sym.value;
		else if (scry_elf_symbol(elf, "_dl_debug_addr", &sym) == 0) /* musl: a pointer */
			scry_mem_u64(r->mem, bias + sym.value, &at);
	}
	scry_elf_close(elf);
out:
	scry_error_clear();
	return at;
}

static int read_debug(const struct reading *r, uint64_t at, struct debug *ret)
{
	struct debug d = {0};
	int err = scry_mem_read(r->mem, at, &d, offsetof(struct debug, next));

	if (err == 0 && d.version >= 2)
		err = scry_mem_u64(r->mem, at + offsetof(struct debug, next), &d.next);
	if (err == 0)
		*ret = d;
	return err;
}

/* The name at `addr`, as an offset into names: pointers are made when the buffer no longer moves.
 */
static int read_name(struct reading *r, uint64_t addr, size_t *ret)
{
	char text[4096];
	ssize_t n = addr ? scry_mem_read_some(r->mem, addr, text, sizeof(text)) : 0;
	size_t len = n > 0 ? strnlen(text, (size_t)n) : 0;

	*ret = r->names.len;
	if (scry_buf_append(&r->names, text, len) < 0 || scry_buf_zeros(&r->names, 1) < 0)
		return -ENOMEM;
	return 0;
}

static int add_object(struct reading *r, const struct scry_object *object)
{
	struct scry_linkmap *lm = r->lm;

	if (lm->count == r->room) {
		size_t room = r->room ? r->room * 2 : 64;
		struct scry_object *more = realloc(lm->objects, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		lm->objects = more;
		r->room = room;
	}
	lm->objects[lm->count++] = *object;
	return 0;
}

/* One namespace's chain. 0; -EAGAIN: it was changed under our hands or is not a chain; -ENOMEM. */
static int read_chain(struct reading *r, uint64_t at, uint32_t space)
{
	uint64_t from = 0, once;

	while (at) {
		struct scry_object object = {
			.space = space, .r_debug = r->lm->spaces[space].r_debug, .link_map = at};
		struct link link;
		size_t name;

		if (r->lm->count == SCRY_LINKMAP_OBJECTS_MAX || scry_map_get(&r->seen, at, &once) ||
		    scry_mem_read(r->mem, at, &link, sizeof(link)) < 0 || link.prev != from)
			return -EAGAIN;
		if (scry_map_put(&r->seen, at, 1) < 0 || read_name(r, link.name, &name) < 0)
			return -ENOMEM;
		object.bias = link.addr;
		object.dynamic = link.ld;
		object.name = (const char *)(uintptr_t)name; /* an offset still: see settle */
		if (add_object(r, &object) < 0)
			return -ENOMEM;
		from = at;
		at = link.next;
	}
	return 0;
}

static int read_spaces(struct reading *r, uint64_t at)
{
	struct scry_linkmap *lm = r->lm;

	lm->count = lm->space_count = 0;
	lm->is_changing = false;
	r->names.len = 0;
	scry_map_done(&r->seen);
	while (at) {
		struct scry_link_space *space = &lm->spaces[lm->space_count];
		struct debug d;
		uint64_t once;
		int err;

		if (lm->space_count == SCRY_LINKMAP_SPACES_MAX ||
		    scry_map_get(&r->seen, at, &once) || read_debug(r, at, &d) < 0 || d.version < 1)
			return -EAGAIN;
		if (scry_map_put(&r->seen, at, 1) < 0)
			return -ENOMEM;
		*space = (struct scry_link_space){
			.r_debug = at, .state = (uint32_t)d.state, .first = lm->count};
		if (lm->space_count == 0) {
			lm->version = (uint32_t)d.version;
			lm->brk = d.brk;
		}
		lm->is_changing |= d.state != RT_CONSISTENT;
		err = read_chain(r, d.map, (uint32_t)lm->space_count++);
		space->end = lm->count;
		if (err < 0)
			return err;
		at = d.next;
	}
	return 0;
}

/* Reads until two ends meet. 0 with a list, perhaps cut; -EFAULT: not a single object. */
static int read_list(struct reading *r, uint64_t at)
{
	int err = -EAGAIN;

	for (int i = 0; i < TRIES && err == -EAGAIN; i++)
		err = read_spaces(r, at);
	if (err == -ENOMEM)
		return err;
	r->lm->is_cut = err < 0;
	return r->lm->count ? 0 : -EFAULT;
}

static bool is_of_file(const struct scry_map_entry *a, const struct scry_map_entry *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

/* [first, end) of what is loaded, by the headers that lie in memory at `at`: those of the object
 * with this bias. False: there are none, or another one's. */
static bool read_span(const struct scry_mem *mem, uint64_t at, uint64_t bias, uint64_t ret[2])
{
	Elf64_Phdr headers[PHDRS_MAX];
	Elf64_Ehdr e;
	uint64_t first = UINT64_MAX, end = 0;
	bool is_its_own = false;

	if (scry_mem_read(mem, at, &e, sizeof(e)) < 0 || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
	    e.e_phentsize != sizeof(*headers) || e.e_phnum > PHDRS_MAX || e.e_phoff > PAGE ||
	    scry_mem_read(mem, at + e.e_phoff, headers, e.e_phnum * sizeof(*headers)) < 0)
		return false;
	for (size_t i = 0; i < e.e_phnum; i++) {
		const Elf64_Phdr *p = &headers[i];

		if (p->p_type != PT_LOAD)
			continue;
		is_its_own |= p->p_offset < PAGE && first == UINT64_MAX &&
			      bias + p->p_vaddr - p->p_offset == at;
		first = p->p_vaddr < first ? p->p_vaddr : first;
		end = p->p_vaddr + p->p_filesz > end ? p->p_vaddr + p->p_filesz : end;
	}
	ret[0] = bias + first;
	ret[1] = bias + end;
	return is_its_own && ret[0] < ret[1];
}

/*
 * The file's mapping at `addr`, and the range of mappings that are this object's: by its headers.
 * Any of its segments may begin in the first page of its file, and the same file may be mapped
 * beside it. Where headers are not in memory, neighbours of ascending offset.
 */
static void find_mapping(const struct reading *r, uint64_t addr, struct scry_object *object)
{
	const struct scry_maps *maps = &r->lm->maps;
	const struct scry_map_entry *m = scry_maps_at(maps, addr), *low, *high;
	uint64_t span[2];

	if (!m || !m->inode)
		return;
	object->mapping = m;
	for (low = m; low >= maps->entries && m - low < PHDRS_MAX; low--) {
		if (!is_of_file(low, m) || low->offset ||
		    !read_span(r->mem, low->start, object->bias, span) || addr >= span[1])
			continue;
		object->start = low->start;
		for (high = low; high < maps->entries + maps->count && high->start < span[1];
		     high++)
			object->end = is_of_file(high, m) ? high->end : object->end;
		return;
	}
	for (low = m; low > maps->entries && is_of_file(low - 1, m) &&
		      low[-1].offset <= low->offset && low->offset;)
		low--;
	for (high = m; high + 1 < maps->entries + maps->count && is_of_file(high + 1, m) &&
		       high[1].offset && high[1].offset >= high->offset;)
		high++;
	object->start = low->start;
	object->end = high->end;
}

static void settle(struct reading *r, const struct program *p)
{
	struct scry_linkmap *lm = r->lm;

	lm->names = r->names.data;
	r->names.data = NULL;
	for (size_t i = 0; i < lm->count; i++) {
		struct scry_object *o = &lm->objects[i];
		const struct scry_map_entry *m = scry_maps_at(&lm->maps, o->dynamic);

		o->name = lm->names + (uintptr_t)o->name;
		o->is_main = i == 0;
		o->is_vdso = p->vdso && m && !m->inode && m->start <= p->vdso && p->vdso < m->end;
		find_mapping(r, o->dynamic ? o->dynamic : o->is_main ? p->headers : 0, o);
		o->is_loader = p->loader && o->start && o->start == p->loader;
		if (!*o->name)
			o->name = o->mapping ? o->mapping->path : o->is_vdso ? m->path : "";
	}
}

/* No list: the program itself is all. */
static int read_static(struct reading *r, const struct program *p)
{
	struct scry_object object = {.bias = p->bias, .dynamic = p->dynamic};
	struct scry_linkmap *lm = r->lm;

	lm->count = 0;
	lm->version = 0;
	lm->brk = 0;
	lm->is_cut = lm->is_changing = false;
	lm->spaces[0] = (struct scry_link_space){.end = 1};
	lm->space_count = 1;
	return add_object(r, &object); /* its name is at offset 0: see read_all */
}

/*
 * A loader that was started itself: its headers are not a program's, its symbol leads to the list.
 * Or a static program: its C library has a list too once it has called dlopen, else it is alone
 * there.
 */
static int read_without_loader(struct reading *r, const struct program *p, uint64_t at)
{
	struct scry_linkmap *lm = r->lm;
	struct debug d;
	int err;

	if (!at)
		at = debug_by_symbol(r, p);
	lm->is_static = true;
	if (!at || read_debug(r, at, &d) < 0 || d.version < 1 || !d.map)
		return read_static(r, p);
	err = read_list(r, at);
	if (err < 0)
		return err;
	lm->is_static = lm->objects[0].bias == p->bias;
	return lm->is_static && lm->count <= 2 ? read_static(r, p) : 0; /* itself and the vdso */
}

static int read_all(struct reading *r)
{
	struct scry_linkmap *lm = r->lm;
	struct program p = {0};
	uint64_t at;
	int err = read_program(r, &p);

	if (err < 0)
		return err;
	at = dt_debug(r, &p);
	if (!at && p.has_interp)
		return scry_fail(
			-EAGAIN,
			"the loader of process %d has not made its list yet: the program is "
			"in its start; fix: try again",
			(int)lm->pid);
	err = p.has_interp ? read_list(r, at) : read_without_loader(r, &p, at);
	if (err == 0 && !r->names.len)
		err = scry_buf_zeros(&r->names, 1);
	if (err < 0)
		return scry_fail(err, "cannot read the list of loaded objects of process %d: %s",
				 (int)lm->pid, strerror(-err));
	/* Of a static program the list does not say where its dynamic segment is. */
	if (lm->is_static && !lm->objects[0].dynamic)
		lm->objects[0].dynamic = p.dynamic;
	scry_maps_done(&lm->maps); /* newer than the list, so that every object of it is there */
	err = scry_maps_read(lm->pid, &lm->maps);
	if (err == 0)
		settle(r, &p);
	return err;
}

int scry_linkmap_read(pid_t pid, const struct scry_mem *mem, struct scry_linkmap *ret)
{
	struct scry_linkmap lm = {.pid = pid};
	struct reading r = {.lm = &lm, .mem = mem};
	int err;

	scry_map_init(&r.seen, SCRY_LINKMAP_OBJECTS_MAX + SCRY_LINKMAP_SPACES_MAX + 1);
	err = read_all(&r);
	scry_map_done(&r.seen);
	scry_buf_done(&r.names);
	if (err < 0)
		scry_linkmap_done(&lm);
	else
		*ret = lm;
	return err;
}

void scry_linkmap_done(struct scry_linkmap *lm)
{
	for (size_t i = 0; i < lm->count; i++) {
		scry_dynamic_done(&lm->objects[i].tables);
		scry_elf_close(lm->objects[i].elf);
	}
	free(lm->objects);
	free(lm->names);
	scry_maps_done(&lm->maps);
	*lm = (struct scry_linkmap){0};
}

/* Is what is mapped there what the list says? Not when it changed between the two readings. */
static int check_place(const struct scry_linkmap *lm, const struct scry_object *o)
{
	uint64_t bias, addr, size;
	int r = scry_elf_bias(o->elf, &lm->maps, o->mapping, &bias);

	if (r < 0)
		return r;
	if (bias != o->bias ||
	    (scry_elf_dynamic(o->elf, &addr, &size) && o->dynamic != bias + addr))
		return scry_fail(
			-ESTALE,
			"'%s' does not lie where the loader of process %d says; fix: try again",
			o->mapping->path, (int)lm->pid);
	return 0;
}

int scry_linkmap_open(struct scry_linkmap *lm, size_t i)
{
	struct scry_object *o = &lm->objects[i];

	if (o->elf)
		return 0;
	if (o->open_error || !o->mapping)
		return scry_fail(o->open_error ? o->open_error : -ENOENT,
				 "the file of loaded object '%s' of process %d cannot be read",
				 o->name, (int)lm->pid);
	o->open_error = scry_elf_open_mapped(lm->pid, o->mapping, &o->elf);
	if (o->open_error == 0)
		o->open_error = check_place(lm, o);
	if (o->open_error == 0)
		o->open_error = scry_dynamic_open(o->elf, &o->tables);
	if (o->open_error < 0) {
		scry_elf_close(o->elf);
		o->elf = NULL;
	}
	return o->open_error;
}

const struct scry_object *scry_linkmap_find(const struct scry_linkmap *lm,
					    const struct scry_object *object)
{
	for (size_t i = 0; i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];

		if (o->bias != object->bias || o->dynamic != object->dynamic ||
		    o->r_debug != object->r_debug || !o->mapping != !object->mapping)
			continue;
		if (!o->mapping || is_of_file(o->mapping, object->mapping))
			return o;
	}
	return NULL;
}

void scry_linkmap_inherit(struct scry_linkmap *to, struct scry_linkmap *from, ssize_t *ret_was)
{
	for (size_t i = 0; i < to->count; i++) {
		struct scry_object *o = &to->objects[i];
		const struct scry_object *old = scry_linkmap_find(from, o);
		struct scry_object *was = old ? &from->objects[old - from->objects] : NULL;

		ret_was[i] = was ? was - from->objects : -1;
		if (!was)
			continue;
		o->at_startup = was->at_startup;
		if (!was->elf)
			continue;
		o->elf = was->elf;
		o->tables = was->tables;
		was->elf = NULL;
		was->tables = (struct scry_dynamic){0};
	}
	to->is_opened = from->is_opened && to->space_count <= from->space_count;
}

ssize_t scry_linkmap_at(const struct scry_linkmap *lm, uint64_t addr)
{
	for (size_t i = 0; i < lm->count; i++)
		if (addr >= lm->objects[i].start && addr < lm->objects[i].end)
			return (ssize_t)i;
	return -ENOENT;
}

bool scry_linkmap_is_repeated(const struct scry_linkmap *lm, size_t object)
{
	const struct scry_object *o = &lm->objects[object];

	for (size_t i = 0; i < object; i++)
		if (lm->objects[i].bias == o->bias && lm->objects[i].dynamic == o->dynamic)
			return true;
	return false;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool scry_linkmap_is_named(const struct scry_object *o, const char *text)
{
	text = last_part(text);
	return (o->tables.soname && strcmp(o->tables.soname, text) == 0) ||
	       strcmp(last_part(o->name), text) == 0 ||
	       (o->mapping && strcmp(last_part(o->mapping->path), text) == 0);
}

static bool is_needed(const struct scry_object *by, const struct scry_object *object)
{
	for (size_t i = 0; i < by->tables.needed_count; i++) {
		const char *name = scry_dynamic_string(&by->tables, by->tables.needed[i]);

		if (name && scry_linkmap_is_named(object, name))
			return true;
	}
	return false;
}

/*
 * Objects are listed as they come: first those that the first one needs and theirs, in search
 * order, then what was dlopen'ed. So all up to the last that is needed came at the start.
 */
static void mark_startup(struct scry_linkmap *lm, const struct scry_link_space *space)
{
	size_t end = space->first + 1;

	for (size_t i = space->first; i < end && i < space->end; i++) {
		for (size_t j = space->end; j-- > end;)
			if (is_needed(&lm->objects[i], &lm->objects[j]))
				end = j + 1;
	}
	for (size_t i = space->first; i < end && i < space->end; i++)
		lm->objects[i].at_startup = true;
}

size_t scry_linkmap_open_all(struct scry_linkmap *lm)
{
	size_t missing = 0;

	for (size_t i = 0; i < lm->count; i++)
		if (scry_linkmap_open(lm, i) < 0 && !lm->objects[i].is_vdso)
			missing++;
	scry_error_clear();
	for (size_t i = 0; i < lm->space_count && !lm->is_opened; i++)
		mark_startup(lm, &lm->spaces[i]);
	lm->is_opened = true;
	return missing;
}

ssize_t scry_linkmap_brk_code(const struct scry_linkmap *lm, const struct scry_mem *mem,
			      uint8_t ret_code[16])
{
	ZydisDecodedInstruction insn;
	ZydisDecoder d;
	bool returned = false;
	size_t at = 0;
	int err = lm->brk ? scry_mem_read(mem, lm->brk, ret_code, 16) : -ENOENT;

	if (err < 0)
		return err;
	ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	while (at < 16 && ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&d, NULL, ret_code + at,
								     16 - at, &insn))) {
		bool is_filler = insn.mnemonic == ZYDIS_MNEMONIC_NOP ||
				 insn.mnemonic == ZYDIS_MNEMONIC_ENDBR64;

		if (returned ? insn.mnemonic != ZYDIS_MNEMONIC_NOP
			     : !is_filler && insn.mnemonic != ZYDIS_MNEMONIC_RET)
			break;
		returned |= insn.mnemonic == ZYDIS_MNEMONIC_RET;
		at += insn.length;
	}
	return returned ? (ssize_t)at : 0;
}

static bool may_unwind(struct scry_elf *elf)
{
	uint64_t at, size;

	return scry_elf_section(elf, ".gcc_except_table", &at, &size) == 0 ||
	       scry_elf_section(elf, ".text", &at, &size) < 0;
}

bool scry_linkmap_may_unwind(struct scry_linkmap *lm)
{
	bool may = false;

	for (size_t i = 0; i < lm->count && !may; i++)
		may = !scry_linkmap_is_named(&lm->objects[i], "libc.so.6") &&
		      !lm->objects[i].is_loader && scry_linkmap_open(lm, i) == 0 &&
		      may_unwind(lm->objects[i].elf);
	scry_error_clear();
	return may;
}
