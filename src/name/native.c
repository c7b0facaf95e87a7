/* See native.h. */
#include "name/native.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/debug_file.h"
#include "sys/elf.h"
#include "sys/maps.h"

#define FILES_MAX 128		 /* open at once; others are not looked into */
#define FUNCTIONS_MAX (4u << 20) /* of a file; what has more is named in part */
#define SYMBOL_COMPARED_MAX 64u	 /* of two as long, of the same bytes */

struct function {
	uint64_t value, size;
	const char *name;
	uint32_t length;
};

struct file { /* of the target, with code */
	uint64_t inode, bias;
	uint32_t dev_major, dev_minor;
	struct scry_elf *elf;	    /* NULL: cannot be read */
	struct scry_elf *debug;	    /* its separate symbols, or NULL */
	struct function *functions; /* by value, then names; made at the first question */
	size_t count, room;
	bool is_sorted;
};

struct scry_native {
	struct scry_space space;
	struct file files[FILES_MAX];
	size_t file_count;
	struct scry_maps maps; /* newest snapshot: what a target that is gone had mapped */
	unsigned int shares;   /* beside the first one's */
};

static struct file *file_of(struct scry_native *n, const struct scry_map_entry *m)
{
	struct file *f;

	for (size_t i = 0; i < n->file_count; i++) {
		uint64_t bias;

		f = &n->files[i];
		if (f->inode != m->inode || f->dev_major != m->dev_major ||
		    f->dev_minor != m->dev_minor)
			continue;
		if (f->elf && scry_elf_bias(f->elf, &n->maps, m, &bias) == 0)
			f->bias = bias;
		return f;
	}
	if (n->file_count == FILES_MAX)
		return NULL;
	f = &n->files[n->file_count++];
	*f = (struct file){.inode = m->inode, .dev_major = m->dev_major, .dev_minor = m->dev_minor};
	if (scry_space_code(&n->space, m, &f->elf) < 0 ||
	    scry_elf_bias(f->elf, &n->maps, m, &f->bias) < 0) {
		scry_elf_close(f->elf);
		f->elf = NULL;
	}
	scry_error_clear();
	return f;
}

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

/* A process that has ended has no mappings: the last ones are kept. */
static void look(struct scry_native *n, bool is_any_program)
{
	struct scry_maps maps = {0};

	if ((n->space.pid || n->space.core) && scry_space_maps(&n->space, &maps) == 0 &&
	    maps.count && (is_any_program || is_one_program(&n->maps, &maps))) {
		scry_maps_done(&n->maps);
		n->maps = maps;
	} else {
		scry_maps_done(&maps);
	}
	scry_error_clear();
}

void scry_native_see(struct scry_native *n)
{
	look(n, true);
}

void scry_native_see_on(struct scry_native *n)
{
	look(n, false);
}

bool scry_native_sees(const struct scry_native *n)
{
	return n->maps.count != 0;
}

size_t scry_native_bytes(const struct scry_native *n)
{
	return n->maps.bytes;
}

bool scry_native_is_fork(const struct scry_native *n, const struct scry_native *parent)
{
	return n->maps.count && is_one_program(&parent->maps, &n->maps);
}

struct scry_native *scry_native_of(const struct scry_space *space)
{
	struct scry_native *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->space = *space;
	scry_native_see(n);
	for (size_t i = 0; i < n->maps.count && n->file_count < FILES_MAX / 2; i++)
		if (n->maps.entries[i].x && n->maps.entries[i].inode)
			file_of(n, &n->maps.entries[i]);
	return n;
}

struct scry_native *scry_native_new(pid_t pid)
{
	return scry_native_of(&(struct scry_space){.pid = pid});
}

struct scry_native *scry_native_share(struct scry_native *n)
{
	n->shares++;
	return n;
}

void scry_native_free(struct scry_native *n)
{
	if (!n || n->shares--)
		return;
	for (size_t i = 0; i < n->file_count; i++) {
		free(n->files[i].functions);
		scry_elf_close(n->files[i].debug);
		scry_elf_close(n->files[i].elf);
	}
	scry_maps_done(&n->maps);
	free(n);
}

uint64_t scry_native_address(const struct scry_native *n, const struct scry_native_place *place)
{
	for (size_t i = 0; i < n->maps.count; i++) {
		const struct scry_map_entry *m = &n->maps.entries[i];

		if (m->x && m->inode == place->inode && m->dev_major == place->dev_major &&
		    m->dev_minor == place->dev_minor && place->offset >= m->offset &&
		    place->offset - m->offset < m->end - m->start)
			return m->start + (place->offset - m->offset);
	}
	return 0;
}

static int gather(const struct scry_sym *sym, void *arg)
{
	struct file *f = arg;

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

/* The function that covers link-time address `at`, or NULL. */
static const struct function *function_at(struct file *f, uint64_t at)
{
	size_t low = 0, high;

	if (!f->is_sorted) {
		scry_elf_each_symbol(f->elf, gather, f);
		if (scry_debug_file_elf(f->elf, &f->debug) == 0)
			scry_elf_each_symbol(f->debug, gather, f);
		if (f->count)
			qsort(f->functions, f->count, sizeof(*f->functions), compare_functions);
		f->is_sorted = true;
	}
	for (high = f->count; low < high;) {
		size_t mid = low + (high - low) / 2;

		if (f->functions[mid].value <= at)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return NULL;
	for (low--; low && f->functions[low - 1].value == f->functions[low].value;)
		low--;
	return at - f->functions[low].value < f->functions[low].size ? &f->functions[low] : NULL;
}

/* The return address may be the first byte of the next function: the call is before it. */
void scry_native_name(struct scry_native *n, uint64_t address, struct scry_native_name *ret)
{
	const struct scry_map_entry *m = scry_maps_at(&n->maps, address - 1);
	const struct function *function;
	struct file *f;

	*ret = (struct scry_native_name){.offset = address};
	if (!m || !m->path[0]) {
		ret->module = strdup(m ? "[anon]" : "[unmapped]");
		return;
	}
	ret->module = strdup(m->path);
	ret->offset = ret->object_offset = address - m->start + m->offset;
	f = m->inode || scry_elf_is_vdso(m) ? file_of(n, m) : NULL;
	if (!f || !f->elf)
		return;
	ret->offset = ret->object_offset = address - f->bias;
	function = function_at(f, address - 1 - f->bias);
	if (!function)
		return;
	ret->symbol = function->name;
	ret->offset = address - f->bias - function->value;
}

struct scry_elf *scry_native_file(struct scry_native *n, uint64_t address, uint64_t *ret_address)
{
	const struct scry_map_entry *m = scry_maps_at(&n->maps, address - 1);
	struct file *f = m && (m->inode || scry_elf_is_vdso(m)) ? file_of(n, m) : NULL;

	if (!f || !f->elf)
		return NULL;
	*ret_address = address - f->bias;
	return f->elf;
}
