/* See malloc_callers.h. Ids are below SCRY_MALLOC_CODES, as codes are. */
#include "name/malloc_callers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/elf.h"
#include "sys/maps.h"
#include "wire/event.h"
#include "name/places.h"
#include "vm/ruby_iseq.h"
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
	struct function *functions; /* by value, then names; made at the first question */
	size_t count, room;
	bool is_sorted;
};

struct place {
	uint64_t address; /* 0: not known */
	uint64_t offset;
	char *module;
	const char *symbol; /* of the file */
	bool is_looked, is_read; /* the address; the line */
	bool is_late;		 /* it was told before its line was known to be true */
	uint64_t pc, iseq;	 /* iseq 0: not a line */
	char *path, *label;
	uint32_t line;
};

struct scry_malloc_callers {
	pid_t pid;
	uint16_t ids[SCRY_MALLOC_CODES];
	struct place places[SCRY_MALLOC_CODES]; /* by id */
	uint32_t count, looked, told;		  /* ids; those up to these are done */
	uint64_t unnamed, lines, gone;
	bool has_late;
	struct scry_malloc_lines_reader reader;
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

struct scry_malloc_callers *scry_malloc_callers_copy(const struct scry_malloc_callers *c, pid_t pid)
{
	struct scry_malloc_callers *copy = scry_malloc_callers_new(pid);

	if (!copy)
		return NULL;
	memcpy(copy->ids, c->ids, sizeof(copy->ids));
	copy->count = c->count;
	for (uint32_t id = 1; id <= c->count; id++) {
		const struct place *p = &c->places[id];

		copy->places[id] = (struct place){.address = p->address,
						  .is_read = true,
						  .path = p->path ? strdup(p->path) : NULL,
						  .label = p->label ? strdup(p->label) : NULL,
						  .line = p->line};
	}
	return copy;
}

void scry_malloc_callers_free(struct scry_malloc_callers *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->file_count; i++) {
		free(c->files[i].functions);
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

static void forget_line(struct place *p)
{
	free(p->path);
	free(p->label);
	p->path = p->label = NULL;
}

/* As the agent has copied it, when it could. */
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
	p->is_read = true;
	p->line = def.line_before;
	if (def.top && c->reader.ruby && scry_places_leaf(c->reader.ruby, def.opcode))
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

void scry_malloc_callers_ruby(struct scry_malloc_callers *c,
			      const struct scry_malloc_lines_reader *reader)
{
	c->reader = *reader;
	c->has_late |= reader->is_proven;
	for (uint32_t id = 1; id <= c->count && !reader->ruby; id++)
		forget_line(&c->places[id]);
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

/*
 * The instruction that runs is the one before pc, but for those that allocate while pc still points
 * at them: name/places.c.
 */
static int line_of(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq, uint64_t pc,
		   uint32_t *ret)
{
	uint64_t at = pc & ~SCRY_MALLOC_LINE_TOP, word;
	uint32_t position;
	int r = scry_ruby_iseq_position(iseq, at, &position);

	if (r < 0)
		return r;
	if (pc & SCRY_MALLOC_LINE_TOP && at < iseq->encoded + 8ull * iseq->size &&
	    scry_mem_u64(&ruby->mem, at, &word) == 0 && scry_places_leaf(ruby, word))
		position = (uint32_t)((at - iseq->encoded) / 8);
	return scry_ruby_iseq_line(ruby, iseq, position, ret);
}

/* One look at code of another process; 0 when there was code. */
static int read_code(const struct scry_ruby *ruby, struct place *p, struct scry_ruby_iseq *ret)
{
	char path[4096], label[1024];
	uint32_t line;
	int r = scry_ruby_iseq_read(ruby, p->iseq, ret);

	if (r == 0)
		r = line_of(ruby, ret, p->pc, &line);
	if (r < 0 || scry_ruby_iseq_path(ruby, ret, path, sizeof(path)) < 0 ||
	    scry_ruby_iseq_label(ruby, ret, label, sizeof(label)) < 0)
		return -ENOENT;
	p->path = strdup(path);
	p->label = strdup(label);
	p->line = line;
	return p->path && p->label ? 0 : -ENOMEM;
}

static bool is_still(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq)
{
	struct scry_ruby_iseq now;

	return scry_ruby_iseq_read(ruby, iseq->iseq, &now) == 0 && now.body == iseq->body &&
	       now.encoded == iseq->encoded && now.size == iseq->size;
}

/*
 * Its code lives, or it did when this was read: then its end will be seen, or it has ended before
 * `watch`, and what was read may have been half of it.
 */
static void read_line(struct scry_malloc_callers *c, struct place *p)
{
	const struct scry_malloc_lines_reader *reader = &c->reader;
	struct scry_ruby_iseq iseq;

	p->is_read = true;
	if (!reader->ruby) {
		c->gone++;
		return;
	}
	if (read_code(reader->ruby, p, &iseq) == 0 &&
	    reader->watch(reader->arg, iseq.encoded) == 0 && is_still(reader->ruby, &iseq))
		return;
	forget_line(p);
	c->gone++;
	scry_error_clear();
}

static bool is_done(const struct place *p)
{
	return p->is_looked && (!p->iseq || p->is_read);
}

void scry_malloc_callers_look(struct scry_malloc_callers *c)
{
	bool has_maps = false;

	while (c->looked < c->count && is_done(&c->places[c->looked + 1]))
		c->looked++;
	for (uint32_t id = c->looked + 1; id <= c->count; id++) {
		struct place *p = &c->places[id];

		if (p->iseq && !p->is_read)
			read_line(c, p);
	}
	for (uint32_t id = c->looked + 1; id <= c->count; id++) {
		struct place *p = &c->places[id];

		if (p->is_looked || !p->address)
			continue;
		if (!has_maps)
			see_maps(c);
		has_maps = true;
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
	bool has_line = p->path && (c->reader.is_proven || !p->iseq);
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
