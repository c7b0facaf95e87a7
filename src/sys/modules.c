/*
 * See modules.h. A mapping is resolved when it is asked for, once a look: to a file that is known
 * and has not changed, a file that is opened, or a copy of memory. Whichever it is must have what
 * memory has.
 */
#include "sys/modules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/bisect.h"
#include "base/err.h"
#include "sys/debug_file.h"
#include "sys/dynamic.h"
#include "sys/elf_memory.h"
#include "sys/regular.h"
#include "sys/served.h"

#define MODULES_MAX 512u	     /* open at once; others are not looked into */
#define SEEN_FIRST 64u		     /* files, opened at once */
#define READ_MAX (64ull << 20)	     /* bytes of a process's memory, for copies of objects */
#define CORE_READ_MAX (256ull << 20) /* a core may have no other files */
#define FUNCTIONS_MAX (4u << 20)     /* of a file; what has more is named in part */
#define SYMBOL_COMPARED_MAX 64u	     /* of two as long, of the same bytes */
#define MAPPINGS_MAX 64u	     /* of one object, from its header on */
#define PATIENCE_NS 4000000ull
#define KEPT 32u		      /* files, for the programs to come */
#define KEPT_FILE_MAX (24u << 20)     /* bytes of one */
#define KEPT_BYTES_MAX (64u << 20)    /* of all */
#define KEPT_FUNCTIONS_MAX (1u << 17) /* of one */

struct function {
	uint64_t value, size;
	const char *name;
	uint32_t length;
};

struct scry_module {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	off_t size; /* of the file, and when it was changed */
	struct timespec changed;
	uint64_t copied_from; /* memory at this header; 0: it is a file */
	uint64_t copied_bias;
	struct scry_elf *elf;	    /* NULL: cannot be read */
	struct function *functions; /* by value, then names; made at the first question */
	size_t count, room;
	struct scry_cfi cfi;
	struct scry_fdes fdes;
	bool is_sorted, is_compiled;
	unsigned int holders; /* besides the first one */
};

struct place { /* of a mapping */
	struct scry_module *module;
	uint64_t bias;
	bool is_known;
};

struct scry_modules {
	struct scry_space space;
	struct scry_maps maps; /* newest look: what a target that is gone had mapped */
	struct scry_mem mem;   /* of the program that the look was at; .pid 0: none */
	struct scry_served served;
	struct place *places; /* for each mapping */
	struct scry_module *modules[MODULES_MAX];
	size_t count;
	struct scry_elf_copies copies;
	uint64_t looked_ns, patience_ns;
	unsigned int shares; /* beside the first one's */
};

static uint64_t now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- what is mapped --------------------------------------------------------------------------- */

/* Code stays where it is until exec, which puts all elsewhere. */
static bool is_one_program(const struct scry_maps *before, const struct scry_maps *now)
{
	const struct scry_map_entry *m, *same;

	for (size_t i = 0; i < before->count; i++) {
		m = &before->entries[i];
		same = m->x && m->inode ? scry_maps_at(now, m->start) : NULL;
		if (same && same->inode == m->inode && same->offset == m->offset)
			return true;
	}
	return !before->count;
}

static void forget(struct scry_modules *t)
{
	scry_maps_done(&t->maps);
	free(t->places);
	t->places = NULL;
	scry_mem_close(&t->mem);
	scry_served_done(&t->served);
	t->mem = (struct scry_mem){.fd = -1};
}

/* A process that has ended has no mappings: the last ones are kept. Its memory is opened before it
 * is looked at: after an exec between the two it reads nothing, and proves nothing wrong. */
static void look(struct scry_modules *t, bool is_any_program)
{
	struct scry_mem mem = {.fd = -1};
	struct scry_maps maps = {0};
	struct place *places = NULL;

	t->looked_ns = now_ns();
	if (!t->space.pid && !t->space.core)
		return;
	if (scry_space_mem(&t->space, &mem) < 0)
		mem = (struct scry_mem){.fd = -1};
	if (scry_space_maps(&t->space, &maps) == 0 && maps.count &&
	    (is_any_program || is_one_program(&t->maps, &maps)))
		places = calloc(maps.count, sizeof(*places));
	if (places) {
		forget(t);
		t->maps = maps;
		t->mem = mem;
		t->places = places;
		if (!t->space.core)
			scry_served_look(t->space.pid, &t->maps, &t->served);
		t->mem.served = t->served.count ? &t->served : NULL;
	} else {
		scry_maps_done(&maps);
		scry_mem_close(&mem);
	}
	scry_error_clear();
}

void scry_modules_see(struct scry_modules *t)
{
	if (!t->space.core || !t->maps.count)
		look(t, true);
}

void scry_modules_see_on(struct scry_modules *t)
{
	if (!t->space.core)
		look(t, false);
}

uint64_t scry_modules_hash(const struct scry_modules *t)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < t->maps.count; i++) {
		const struct scry_map_entry *m = &t->maps.entries[i];

		if (m->x && m->inode)
			hash = (hash ^ m->start ^ m->inode << 32 ^ m->offset) *
			       0x9e3779b97f4a7c15ull;
	}
	return hash;
}

/* Code without a file (a JIT's) is found again and again. */
bool scry_modules_missed(struct scry_modules *t)
{
	uint64_t hash;

	if (now_ns() - t->looked_ns < t->patience_ns)
		return false;
	hash = scry_modules_hash(t);
	scry_modules_see_on(t);
	if (scry_modules_hash(t) != hash)
		t->patience_ns = 0;
	else
		t->patience_ns = t->patience_ns ? 2 * t->patience_ns : PATIENCE_NS;
	return true;
}

const struct scry_maps *scry_modules_maps(const struct scry_modules *t)
{
	return &t->maps;
}

bool scry_modules_is_fork(const struct scry_modules *t, const struct scry_modules *parent)
{
	return t->maps.count && is_one_program(&parent->maps, &t->maps);
}

uint64_t scry_modules_address(const struct scry_modules *t, const struct scry_module_place *place)
{
	for (size_t i = 0; i < t->maps.count; i++) {
		const struct scry_map_entry *m = &t->maps.entries[i];

		if (m->x && m->inode == place->inode && m->dev_major == place->dev_major &&
		    m->dev_minor == place->dev_minor && place->offset >= m->offset &&
		    place->offset - m->offset < m->end - m->start)
			return m->start + (place->offset - m->offset);
	}
	return 0;
}

/* --- which module it is ----------------------------------------------------------------------- */

static bool is_of(const struct scry_map_entry *m, uint64_t inode, uint32_t dev_major,
		  uint32_t dev_minor)
{
	return m->inode == inode && m->dev_major == dev_major && m->dev_minor == dev_minor;
}

/* The file's size and time of change. False: it cannot be looked at, any more. */
static bool stat_mapped(const struct scry_modules *t, const struct scry_map_entry *m,
			struct stat *ret)
{
	char path[4200];

	if (t->space.core || !scry_served_answers(t->space.pid, m))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)t->space.pid,
		 m->start, m->end);
	if (stat(path, ret) == 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)t->space.pid, m->path);
	return !m->deleted && stat(path, ret) == 0 && ret->st_ino == m->inode;
}

static bool has_memory(const struct scry_modules *t)
{
	return t->mem.fd >= 0 || t->mem.image;
}

/* Is it what is mapped at `m`? */
static bool fits(const struct scry_modules *t, const struct scry_module *f,
		 const struct scry_map_entry *m, uint64_t *ret_bias)
{
	return f && f->elf && scry_elf_bias(f->elf, &t->maps, m, ret_bias) == 0 &&
	       (!has_memory(t) || scry_elf_prove(f->elf, &t->mem, *ret_bias) != SCRY_ELF_OTHER);
}

static void free_module(struct scry_module *f)
{
	if (f->holders--)
		return;
	scry_cfi_done(&f->cfi);
	scry_fde_done(&f->fdes);
	free(f->functions);
	scry_elf_close(f->elf);
	free(f);
}

/*
 * Files that were read for a program are given to the next: a user who starts one after the other
 * starts the same libraries. Their names are read and sorted once. Each is asked of memory all the
 * same whether it is what is mapped (fits). In one thread.
 */
static struct kept {
	struct scry_module *module; /* NULL: free */
	struct stat st;
	uint64_t used; /* when last, in questions */
} kept[KEPT];
static uint64_t questions;

static void drop(struct kept *k)
{
	if (k->module)
		free_module(k->module);
	*k = (struct kept){0};
}

static uint64_t kept_bytes(void)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < KEPT; i++)
		sum += kept[i].module ? (uint64_t)kept[i].st.st_size : 0;
	return sum;
}

static struct kept *oldest_kept(void)
{
	struct kept *k = &kept[0];

	for (size_t i = 1; i < KEPT; i++)
		if (!k->module || (kept[i].module && kept[i].used < k->used))
			k = &kept[i];
	return k;
}

static void keep(struct scry_module *f, const struct stat *st)
{
	size_t i = 0;

	if (!f->elf || st->st_size > (off_t)KEPT_FILE_MAX || !scry_regular_may_stay_open(st))
		return;
	while (kept_bytes() + (uint64_t)st->st_size > KEPT_BYTES_MAX)
		drop(oldest_kept());
	while (i < KEPT && kept[i].module)
		i++;
	if (i == KEPT) {
		i = (size_t)(oldest_kept() - kept);
		drop(&kept[i]);
	}
	f->holders++;
	kept[i] = (struct kept){f, *st, ++questions};
}

static struct kept *kept_file(const struct scry_map_entry *m, const struct stat *st)
{
	for (size_t i = 0; i < KEPT; i++) {
		const struct scry_module *f = kept[i].module;

		if (!f || !is_of(m, f->inode, f->dev_major, f->dev_minor) ||
		    !scry_regular_is_same(&kept[i].st, st))
			continue;
		kept[i].used = ++questions;
		if (f->count <= KEPT_FUNCTIONS_MAX)
			return &kept[i];
		drop(&kept[i]);
	}
	return NULL;
}

static struct scry_module *known_file(const struct scry_modules *t, const struct scry_map_entry *m,
				      const struct stat *st)
{
	for (size_t i = t->count; i-- > 0;) { /* the newest first */
		struct scry_module *f = t->modules[i];

		if (!f->copied_from && is_of(m, f->inode, f->dev_major, f->dev_minor) &&
		    (!st || (st->st_size == f->size && st->st_mtim.tv_sec == f->changed.tv_sec &&
			     st->st_mtim.tv_nsec == f->changed.tv_nsec)))
			return f;
	}
	return NULL;
}

static struct scry_module *add(struct scry_modules *t, const struct scry_map_entry *m)
{
	struct scry_module *f = t->count < MODULES_MAX ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return NULL;
	f->inode = m->inode;
	f->dev_major = m->dev_major;
	f->dev_minor = m->dev_minor;
	t->modules[t->count++] = f;
	return f;
}

static struct scry_module *open_file(struct scry_modules *t, const struct scry_map_entry *m)
{
	struct scry_module *f = add(t, m);
	struct stat st;

	if (f && (scry_space_elf(&t->space, m, &f->elf) == 0 ? fstat(scry_elf_fd(f->elf), &st) == 0
							     : stat_mapped(t, m, &st))) {
		f->size = st.st_size;
		f->changed = st.st_mtim;
		if (!t->space.core)
			keep(f, &st);
	}
	return f;
}

/* The file that is mapped at `m`: known to this program, to one before, or opened. */
static struct scry_module *file_of(struct scry_modules *t, const struct scry_map_entry *m)
{
	struct kept *k;
	struct stat st;
	const bool is_there = stat_mapped(t, m, &st);
	struct scry_module *f = known_file(t, m, is_there ? &st : NULL);
	uint64_t bias;

	if (f)
		return f;
	k = is_there && t->count < MODULES_MAX ? kept_file(m, &st) : NULL;
	if (k && !fits(t, k->module, m, &bias)) { /* it was written to */
		drop(k);
		k = NULL;
	}
	if (!k)
		return open_file(t, m);
	k->module->holders++;
	t->modules[t->count++] = k->module;
	return k->module;
}

/* Out of memory, at the mapping of the object's beginning. */
static struct scry_module *copy_memory(struct scry_modules *t, const struct scry_map_entry *m,
				       uint64_t *ret_bias)
{
	const struct scry_map_entry *first = m;
	struct scry_module *f, *again = NULL; /* again: what could not be copied before */
	enum scry_elf_proof proof;

	while (first->offset && first > t->maps.entries && m - first < MAPPINGS_MAX)
		first--;
	if (first->offset || !is_of(first, m->inode, m->dev_major, m->dev_minor) || !has_memory(t))
		return NULL;
	for (size_t i = 0; i < t->count; i++) {
		f = t->modules[i];
		if (f->copied_from != first->start)
			continue;
		if (!f->elf) {
			again = f;
			continue;
		}
		proof = scry_elf_prove(f->elf, &t->mem, f->copied_bias);
		/* What the kernel maps stays the same, also when the process has ended. */
		if (proof == SCRY_ELF_SAME ||
		    (proof == SCRY_ELF_UNKNOWN && scry_elf_is_vdso(first))) {
			*ret_bias = f->copied_bias;
			return f;
		}
	}
	f = again ? again : t->copies.left ? add(t, m) : NULL;
	if (!f)
		return NULL;
	f->copied_from = first->start;
	if (scry_elf_open_memory(&t->copies, first->start, &f->elf, &f->copied_bias) < 0)
		return NULL;
	*ret_bias = f->copied_bias;
	return f;
}

static struct place resolve(struct scry_modules *t, const struct scry_map_entry *m)
{
	struct place p = {.is_known = true};

	if (m->inode)
		p.module = file_of(t, m);
	if (!fits(t, p.module, m, &p.bias))
		p.module = m->x ? copy_memory(t, m, &p.bias) : NULL;
	scry_error_clear();
	return p;
}

static struct scry_module *module_of(struct scry_modules *t, const struct scry_map_entry *m,
				     uint64_t *ret_bias)
{
	struct place *p = &t->places[m - t->maps.entries];

	if (!m->inode && !scry_elf_is_vdso(m))
		return NULL;
	if (!p->is_known)
		*p = resolve(t, m);
	*ret_bias = p->bias;
	return p->module;
}

struct scry_module *scry_modules_at(struct scry_modules *t, uint64_t address, uint64_t *ret_bias)
{
	const struct scry_map_entry *m = scry_maps_at(&t->maps, address);

	return m ? module_of(t, m, ret_bias) : NULL;
}

struct scry_modules *scry_modules_of(const struct scry_space *space)
{
	struct scry_modules *t = calloc(1, sizeof(*t));
	uint64_t bias;

	if (!t)
		return NULL;
	t->space = *space;
	t->mem.fd = -1;
	t->copies = (struct scry_elf_copies){.mem = &t->mem,
					     .left = space->core ? CORE_READ_MAX : READ_MAX};
	scry_modules_see(t);
	for (size_t i = 0; i < t->maps.count; i++) {
		const struct scry_map_entry *m = &t->maps.entries[i];

		if (m->x && (t->count < SEEN_FIRST || scry_elf_is_vdso(m)))
			module_of(t, m, &bias);
	}
	return t;
}

struct scry_modules *scry_modules_new(pid_t pid)
{
	return scry_modules_of(&(struct scry_space){.pid = pid});
}

struct scry_modules *scry_modules_share(struct scry_modules *t)
{
	t->shares++;
	return t;
}

void scry_modules_free(struct scry_modules *t)
{
	if (!t || t->shares--)
		return;
	for (size_t i = 0; i < t->count; i++)
		free_module(t->modules[i]);
	scry_elf_copies_done(&t->copies);
	forget(t);
	free(t);
}

/* --- what is in it ---------------------------------------------------------------------------- */

struct scry_elf *scry_module_elf(const struct scry_module *f)
{
	return f->elf;
}

static void compile(struct scry_module *f)
{
	struct scry_image image = {0};

	if (f->is_compiled)
		return;
	f->is_compiled = true;
	if (scry_image_open(f->elf, &image) == 0 && scry_cfi_compile(f->elf, &image, &f->cfi) == 0)
		scry_fde_read(f->elf, &image, &f->fdes);
	scry_error_clear();
	scry_image_close(&image);
}

const struct scry_cfi *scry_module_cfi(struct scry_module *f)
{
	compile(f);
	return &f->cfi;
}

const struct scry_fdes *scry_module_fdes(struct scry_module *f)
{
	compile(f);
	return &f->fdes;
}

static int gather(const struct scry_sym *sym, void *arg)
{
	struct scry_module *f = arg;

	if (sym->type != STT_FUNC && sym->type != STT_GNU_IFUNC)
		return 0;
	if (f->count == FUNCTIONS_MAX)
		return -ENOSPC;
	if (f->count == f->room) {
		size_t room = f->room ? f->room * 2 : 1024;
		struct function *more = realloc(f->functions, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		f->functions = more;
		f->room = room;
	}
	f->functions[f->count++] =
		(struct function){sym->value, sym->size, sym->name, (uint32_t)strlen(sym->name)};
	return 0;
}

/* What the loader goes by, where there are no section headers. */
static void gather_dynamic(struct scry_module *f)
{
	struct scry_dynamic d = {0};
	struct scry_dynsym s;
	int r = scry_dynamic_open(f->elf, &d);

	for (size_t i = 1; r == 0 && i < d.symbol_count; i++)
		if (scry_dynamic_symbol(&d, i, &s) && s.is_defined && *s.name)
			r = gather(&(struct scry_sym){.value = s.value,
						      .size = s.size,
						      .type = s.type,
						      .name = s.name},
				   f);
	scry_dynamic_done(&d);
}

/* Of two names for the same bytes the shorter one is meant, mostly: malloc, not __libc_malloc. */
static int compare_functions(const void *a, const void *b)
{
	const struct function *x = a, *y = b;

	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	if (x->length != y->length)
		return x->length < y->length ? -1 : 1;
	return strncmp(x->name, y->name, SYMBOL_COMPARED_MAX);
}

/* The function that covers link-time address `at`, or NULL. `path`: for its debug file. */
static const struct function *function_at(struct scry_module *f, const char *path, uint64_t at)
{
	size_t low;

	if (!f->is_sorted) {
		scry_debug_file_lend(f->elf, path);
		scry_elf_each_symbol(f->elf, gather, f);
		if (!f->count)
			gather_dynamic(f);
		if (f->count)
			qsort(f->functions, f->count, sizeof(*f->functions), compare_functions);
		f->is_sorted = true;
	}
	low = scry_bisect(f->count, i, f->functions[i].value <= at);
	if (!low)
		return NULL;
	for (low--; low && f->functions[low - 1].value == f->functions[low].value;)
		low--;
	return at - f->functions[low].value < f->functions[low].size ? &f->functions[low] : NULL;
}

/* The return address may be the first byte of the next function: the call is before it. */
void scry_modules_name(struct scry_modules *t, uint64_t address, struct scry_code_name *ret)
{
	const struct scry_map_entry *m = scry_maps_at(&t->maps, address - 1);
	const struct function *function;
	struct scry_module *f;
	uint64_t bias;

	*ret = (struct scry_code_name){.offset = address};
	if (!m || !m->path[0]) {
		ret->module = strdup(m ? "[anon]" : "[unmapped]");
		return;
	}
	ret->module = strdup(m->path);
	ret->offset = ret->object_offset = address - m->start + m->offset;
	f = module_of(t, m, &bias);
	if (!f)
		return;
	ret->offset = ret->object_offset = address - bias;
	function = function_at(f, m->path, address - 1 - bias);
	if (!function)
		return;
	ret->symbol = function->name;
	ret->offset = address - bias - function->value;
}

struct scry_elf *scry_modules_elf(struct scry_modules *t, uint64_t address, uint64_t *ret_address)
{
	uint64_t bias;
	struct scry_module *f = scry_modules_at(t, address - 1, &bias);

	if (!f)
		return NULL;
	*ret_address = address - bias;
	return f->elf;
}
