/* See malloc_callers.h. Ids are below SCRY_MALLOC_CODES, as codes are. */
#include "name/malloc_callers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/debug_file.h"
#include "sys/elf.h"
#include "sys/maps.h"
#include "wire/event.h"
#include "name/places.h"
#include "wire/malloc_ring.h"

#define FILES_MAX 128 /* open at once; others are not looked into */

struct function {
	uint64_t value, size;
	const char *name;
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

struct place {
	uint64_t address; /* 0: not known */
	uint64_t offset;
	char *module;
	const char *symbol; /* of the file */
	bool is_looked;
	bool is_late; /* it was told before its line was known to be true */
	uint64_t pc, iseq;
	char *path, *label; /* where a VM ran code */
	uint32_t line;
};

struct scry_malloc_callers {
	pid_t pid;
	uint16_t ids[SCRY_MALLOC_CODES];
	struct place places[SCRY_MALLOC_CODES]; /* by id */
	uint32_t count, looked, told;		/* ids; those up to these are done */
	uint64_t unnamed, lines, gone;
	const struct scry_ruby *ruby;
	bool is_proven, has_late;
	struct file files[FILES_MAX];
	size_t file_count;
	struct scry_maps maps; /* newest snapshot: what a target that is gone had mapped */
};

static struct file *file_of(struct scry_malloc_callers *c, const struct scry_map_entry *m)
{
	struct file *f;

	for (size_t i = 0; i < c->file_count; i++) {
		uint64_t bias;

		f = &c->files[i];
		if (f->inode != m->inode || f->dev_major != m->dev_major ||
		    f->dev_minor != m->dev_minor)
			continue;
		if (f->elf && scry_elf_bias(f->elf, &c->maps, m, &bias) == 0)
			f->bias = bias;
		return f;
	}
	if (c->file_count == FILES_MAX)
		return NULL;
	f = &c->files[c->file_count++];
	*f = (struct file){.inode = m->inode, .dev_major = m->dev_major, .dev_minor = m->dev_minor};
	if (scry_elf_open_mapped(c->pid, m, &f->elf) < 0 ||
	    scry_elf_bias(f->elf, &c->maps, m, &f->bias) < 0) {
		scry_elf_close(f->elf);
		f->elf = NULL;
	}
	scry_error_clear();
	return f;
}

/* A process that has ended has no mappings: the last ones are kept. */
static void see_maps(struct scry_malloc_callers *c)
{
	struct scry_maps maps = {0};

	if (c->pid && scry_maps_read(c->pid, &maps) == 0 && maps.count) {
		scry_maps_done(&c->maps);
		c->maps = maps;
	} else {
		scry_maps_done(&maps);
	}
	scry_error_clear();
}

struct scry_malloc_callers *scry_malloc_callers_new(pid_t pid)
{
	struct scry_malloc_callers *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->pid = pid;
	see_maps(c);
	for (size_t i = 0; i < c->maps.count && c->file_count < FILES_MAX / 2; i++)
		if (c->maps.entries[i].x && c->maps.entries[i].inode)
			file_of(c, &c->maps.entries[i]);
	return c;
}

void scry_malloc_callers_free(struct scry_malloc_callers *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->file_count; i++) {
		free(c->files[i].functions);
		scry_elf_close(c->files[i].debug);
		scry_elf_close(c->files[i].elf);
	}
	for (uint32_t id = 1; id <= c->count; id++) {
		free(c->places[id].module);
		free(c->places[id].path);
		free(c->places[id].label);
	}
	scry_maps_done(&c->maps);
	free(c);
}

uint32_t scry_malloc_callers_id(struct scry_malloc_callers *c, uint32_t code)
{
	if (code == 0 || code == SCRY_MALLOC_CALLERS || code >= SCRY_MALLOC_CODES)
		return 0;
	if (!c->ids[code])
		c->ids[code] = (uint16_t)++c->count;
	return c->ids[code];
}

int scry_malloc_callers_define(struct scry_malloc_callers *c, uint64_t code, uint64_t address)
{
	struct place *p;

	if (code == 0 || code >= SCRY_MALLOC_CALLERS || !address)
		return -EINVAL;
	p = &c->places[scry_malloc_callers_id(c, (uint32_t)code)];
	if (p->address && p->address != address)
		return -EINVAL;
	p->address = address;
	return 0;
}

/*
 * As the agent has copied it. The instruction that runs is the one before pc, but for those that
 * allocate while pc still points at them: name/places.c.
 */
static void take_line(struct scry_malloc_callers *c, struct place *p, const uint64_t *words,
		      size_t count)
{
	const char *text = (const char *)words + sizeof(struct scry_ring_def);
	struct scry_ring_def def;

	if (count * 8 < sizeof(def))
		return;
	memcpy(&def, words, sizeof(def));
	if (sizeof(def) + def.path_size + def.label_size > count * 8)
		return;
	p->line = def.line_before;
	if (def.top && c->ruby && scry_places_leaf(c->ruby, def.opcode))
		p->line = def.line_at;
	p->path = def.path_size ? strndup(text, def.path_size) : NULL;
	p->label = strndup(text + def.path_size, def.label_size);
	c->gone += !p->path;
}

int scry_malloc_callers_line(struct scry_malloc_callers *c, uint64_t code, const uint64_t *words,
			     size_t count)
{
	struct place *p;

	if (code < SCRY_MALLOC_LINES || code >= SCRY_MALLOC_CODES || count < 3 || !words[0])
		return -EINVAL;
	p = &c->places[scry_malloc_callers_id(c, (uint32_t)code)];
	if (p->address && (p->address != words[0] || p->pc != words[1] || p->iseq != words[2]))
		return -EINVAL;
	if (p->address)
		return 0;
	p->address = words[0];
	p->pc = words[1];
	p->iseq = words[2];
	c->lines++;
	take_line(c, p, words + 3, count - 3);
	return 0;
}

void scry_malloc_callers_ruby(struct scry_malloc_callers *c, const struct scry_ruby *ruby,
			      bool is_proven)
{
	c->ruby = ruby;
	c->is_proven = is_proven;
	c->has_late |= is_proven;
	for (uint32_t id = 1; id <= c->count && !ruby; id++) {
		free(c->places[id].path);
		free(c->places[id].label);
		c->places[id].path = c->places[id].label = NULL;
	}
}

static int gather(const struct scry_sym *sym, void *arg)
{
	struct file *f = arg;

	if (sym->type != STT_FUNC && sym->type != STT_GNU_IFUNC)
		return 0;
	if (f->count == f->room) {
		size_t room = f->room ? f->room * 2 : 1024;
		struct function *more = realloc(f->functions, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		f->functions = more;
		f->room = room;
	}
	f->functions[f->count++] = (struct function){sym->value, sym->size, sym->name};
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
	if (strlen(x->name) != strlen(y->name))
		return strlen(x->name) < strlen(y->name) ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* The function that covers link-time address `at`, or NULL. */
static const struct function *function_at(struct file *f, uint64_t at)
{
	size_t low = 0, high;

	if (!f->is_sorted) {
		scry_elf_each_symbol(f->elf, gather, f);
		if (scry_debug_file_elf(f->elf, &f->debug) == 0)
			scry_elf_each_symbol(f->debug, gather, f);
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
static void look_up(struct scry_malloc_callers *c, struct place *p)
{
	const struct scry_map_entry *m = scry_maps_at(&c->maps, p->address - 1);
	const struct function *function;
	struct file *f;

	p->offset = p->address;
	if (!m || !m->path[0]) {
		p->module = strdup("[anon]");
		return;
	}
	p->module = strdup(m->path);
	p->offset = p->address - m->start + m->offset;
	f = m->inode ? file_of(c, m) : NULL;
	if (!f || !f->elf)
		return;
	p->offset = p->address - f->bias;
	function = function_at(f, p->address - 1 - f->bias);
	if (!function)
		return;
	p->symbol = function->name;
	p->offset = p->address - f->bias - function->value;
}

void scry_malloc_callers_look(struct scry_malloc_callers *c)
{
	while (c->looked < c->count && c->places[c->looked + 1].is_looked)
		c->looked++;
	if (c->looked == c->count)
		return;
	see_maps(c);
	for (uint32_t id = c->looked + 1; id <= c->count; id++) {
		struct place *p = &c->places[id];

		if (p->is_looked || !p->address)
			continue;
		look_up(c, p);
		p->is_looked = true;
	}
}

static int string_id(struct scry_writer *w, const char *text, uint32_t *ret)
{
	*ret = 0;
	return text ? scry_writer_string(w, text, strlen(text), ret) : 0;
}

static int tell_place(struct scry_malloc_callers *c, struct scry_writer *w, uint32_t id)
{
	struct place *p = &c->places[id];
	bool has_line = p->path && c->is_proven;
	struct scry_ev_caller ev = {.caller = id,
				    .pid = (uint32_t)c->pid,
				    .offset = p->is_looked ? p->offset : p->address,
				    .line = has_line ? p->line : 0};
	int r = string_id(w, p->module, &ev.module_str);

	if (r == 0)
		r = string_id(w, p->symbol, &ev.symbol_str);
	if (r == 0 && has_line)
		r = string_id(w, p->path, &ev.file_str);
	if (r == 0 && has_line)
		r = string_id(w, p->label, &ev.method_str);
	p->is_late = p->path && !has_line;
	return r ? r
		 : scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_CALLER}, &ev,
				       sizeof(ev));
}

int scry_malloc_callers_tell(struct scry_malloc_callers *c, struct scry_writer *w)
{
	uint32_t before = c->told;
	int r = 0;

	scry_malloc_callers_look(c);
	for (uint32_t id = 1; c->has_late && id <= before && r == 0; id++)
		if (c->places[id].is_late)
			r = tell_place(c, w, id);
	c->has_late &= r != 0;
	while (c->told < c->count && r == 0) {
		r = tell_place(c, w, ++c->told);
		c->unnamed += !c->places[c->told].address;
	}
	return r;
}

uint64_t scry_malloc_callers_count(const struct scry_malloc_callers *c)
{
	return c->count;
}

uint64_t scry_malloc_callers_unnamed(const struct scry_malloc_callers *c)
{
	return c->unnamed;
}

uint64_t scry_malloc_callers_lines(const struct scry_malloc_callers *c, uint64_t *ret_gone)
{
	*ret_gone = c->gone;
	return c->lines;
}
