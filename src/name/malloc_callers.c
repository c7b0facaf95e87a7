/* See malloc_callers.h. */
#include "name/malloc_callers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "wire/event.h"
#include "sys/modules.h"
#include "name/native_stacks.h"
#include "name/places.h"
#include "wire/malloc_ring.h"

#define PLACES_MAX (1u << 19)
#define OBJECTS_MAX 65536u

struct place {
	uint64_t address; /* 0: not known */
	uint64_t offset;
	char *module;
	const char *symbol; /* of the file */
	bool is_looked;
	bool is_late; /* it was emitted before its line was known to be true */
	uint64_t pc, iseq;
	char *path, *label; /* where a VM ran code */
	uint32_t line;
	uint32_t line_id; /* with a stack: the id of its line alone; 0: it has none */
	uint64_t stack;	  /* number; 0: none */
};

struct scry_malloc_callers {
	pid_t pid;
	uint32_t ids[SCRY_MALLOC_CODES];
	struct scry_map stack_ids;	 /* stack << 20 | code -> id */
	struct place *places;		 /* by id, from 1 */
	uint32_t room;			 /* of them */
	uint32_t count, looked, emitted; /* ids; those up to these are done */
	uint64_t unnamed, lines, gone;
	const struct scry_ruby *ruby;
	bool is_proven, has_late;
	struct scry_modules *native;
	bool is_parents;	 /* native is */
	uint64_t objects_hash;	 /* of objects whose builds were emitted */
	struct scry_map objects; /* strings of their paths */
	struct scry_native_stacks *stacks;
};

/* With names from `native`, which becomes its own. */
static struct scry_malloc_callers *callers_of(pid_t pid, struct scry_modules *native)
{
	struct scry_malloc_callers *c = calloc(1, sizeof(*c));

	if (!c) {
		scry_modules_free(native);
		return NULL;
	}
	c->pid = pid;
	scry_map_init(&c->stack_ids, PLACES_MAX);
	scry_map_init(&c->objects, OBJECTS_MAX);
	c->native = native;
	c->stacks = c->native ? scry_native_stacks_new(c->native) : NULL;
	if (!c->stacks) {
		scry_malloc_callers_free(c);
		return NULL;
	}
	return c;
}

struct scry_malloc_callers *scry_malloc_callers_new(pid_t pid, bool is_closed)
{
	return callers_of(
		pid, scry_modules_of(&(struct scry_space){.pid = pid, .no_memory = is_closed}));
}

struct scry_malloc_callers *scry_malloc_callers_fork(const struct scry_malloc_callers *parent,
						     pid_t pid, bool is_closed)
{
	struct scry_malloc_callers *c = scry_malloc_callers_new(pid, is_closed);

	if (!c || scry_modules_is_fork(c->native, parent->native))
		return c;
	scry_malloc_callers_free(c);
	c = callers_of(pid, scry_modules_share(parent->native));
	if (c)
		c->is_parents = true;
	return c;
}

struct scry_modules *scry_malloc_callers_modules(const struct scry_malloc_callers *c)
{
	return c->native;
}

void scry_malloc_callers_free(struct scry_malloc_callers *c)
{
	if (!c)
		return;
	scry_native_stacks_free(c->stacks);
	scry_modules_free(c->native);
	scry_map_done(&c->stack_ids);
	scry_map_done(&c->objects);
	for (uint32_t id = 1; id <= c->count; id++) {
		free(c->places[id].module);
		free(c->places[id].path);
		free(c->places[id].label);
	}
	free(c->places);
	free(c);
}

/* A new place's id; 0: there is no room. */
static uint32_t add_place(struct scry_malloc_callers *c)
{
	if (c->count + 1 >= c->room) {
		uint32_t room = c->room ? 2 * c->room : 1024;
		struct place *more =
			room > PLACES_MAX ? NULL : reallocarray(c->places, room, sizeof(*more));

		if (!more)
			return 0;
		c->places = more;
		c->room = room;
	}
	c->places[++c->count] = (struct place){0};
	return c->count;
}

static uint32_t id_of(struct scry_malloc_callers *c, uint32_t code)
{
	if (code == 0 || code == SCRY_MALLOC_CALLERS || code >= SCRY_MALLOC_CODES)
		return 0;
	if (!c->ids[code])
		c->ids[code] = add_place(c);
	return c->ids[code];
}

/* Its own address is the innermost one of the stack. */
uint32_t scry_malloc_callers_id(struct scry_malloc_callers *c, uint32_t code, uint64_t stack)
{
	const uint64_t key = stack << 20 | code;
	uint64_t known;
	uint32_t line, id;

	if (!stack || code >= SCRY_MALLOC_CODES)
		return id_of(c, code);
	if (scry_map_get(&c->stack_ids, key, &known))
		return (uint32_t)known;
	line = id_of(c, code);
	id = add_place(c);
	if (!id || scry_map_put(&c->stack_ids, key, id) < 0)
		return line;
	c->places[id].address = scry_native_stacks_address(c->stacks, stack);
	c->places[id].stack = stack;
	c->places[id].line_id = line;
	return id;
}

int scry_malloc_callers_stack(struct scry_malloc_callers *c, uint64_t number,
			      const uint64_t *addresses, size_t count)
{
	return scry_native_stacks_define(c->stacks, number, addresses, count);
}

int scry_malloc_callers_define(struct scry_malloc_callers *c, uint64_t code, uint64_t address)
{
	struct place *p;
	uint32_t id;

	if (code == 0 || code >= SCRY_MALLOC_CALLERS || !address)
		return -EINVAL;
	id = id_of(c, (uint32_t)code);
	if (!id)
		return 0;
	p = &c->places[id];
	if (p->address && p->address != address)
		return -EINVAL;
	p->address = address;
	return 0;
}

/* As the agent has copied it. */
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
	p->line = scry_places_calling_line(c->ruby, &def);
	p->path = def.path_size ? strndup(text, def.path_size) : NULL;
	p->label = strndup(text + def.path_size, def.label_size);
	c->gone += !p->path;
}

int scry_malloc_callers_line(struct scry_malloc_callers *c, uint64_t code, const uint64_t *words,
			     size_t count)
{
	struct place *p;
	uint32_t id;

	if (code < SCRY_MALLOC_LINES || code >= SCRY_MALLOC_CODES || count < 3 || !words[0])
		return -EINVAL;
	id = id_of(c, (uint32_t)code);
	if (!id)
		return 0;
	p = &c->places[id];
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

void scry_malloc_callers_look(struct scry_malloc_callers *c)
{
	while (c->looked < c->count && c->places[c->looked + 1].is_looked)
		c->looked++;
	if (c->looked == c->count && !scry_native_stacks_is_new(c->stacks))
		return;
	if (!c->is_parents)
		scry_modules_see_on(c->native);
	scry_native_stacks_look(c->stacks);
	for (uint32_t id = c->looked + 1; id <= c->count; id++) {
		struct place *p = &c->places[id];
		struct scry_code_name name;

		if (p->is_looked || !p->address)
			continue;
		scry_modules_name(c->native, p->address, &name);
		p->module = name.module;
		p->symbol = name.symbol;
		p->offset = name.offset;
		p->is_looked = true;
	}
}

static int string_id(struct scry_writer *w, const char *text, uint32_t *ret)
{
	*ret = 0;
	return text ? scry_writer_string(w, text, strlen(text), ret) : 0;
}

static int emit_place(struct scry_malloc_callers *c, struct scry_writer *w, uint32_t id)
{
	struct place *p = &c->places[id];
	const struct place *at = p->line_id ? &c->places[p->line_id] : p; /* the line */
	bool has_line = at->path && c->is_proven;
	struct scry_ev_caller ev = {.caller = id,
				    .pid = (uint32_t)c->pid,
				    .offset = p->is_looked ? p->offset : p->address,
				    .line = has_line ? at->line : 0,
				    .stack = scry_native_stacks_write(c->stacks, p->stack, w)};
	int r = string_id(w, p->module, &ev.module_str);

	if (r == 0)
		r = string_id(w, p->symbol, &ev.symbol_str);
	if (r == 0 && has_line)
		r = string_id(w, at->path, &ev.file_str);
	if (r == 0 && has_line)
		r = string_id(w, at->label, &ev.method_str);
	p->is_late = at->path && !has_line;
	return r ? r
		 : scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_CALLER}, &ev,
				       sizeof(ev));
}

static int emit_object(struct scry_malloc_callers *c, struct scry_writer *w,
		       const struct scry_map_entry *m)
{
	struct scry_ev_object_file ev = {.pid = (uint32_t)c->pid};
	struct scry_buf hex = {0};
	const uint8_t *id = NULL;
	uint64_t bias, known;
	int r = string_id(w, m->path, &ev.module_str);
	struct scry_module *module;
	size_t size;

	if (r || scry_map_get(&c->objects, ev.module_str, &known))
		return r;
	module = scry_modules_at(c->native, m->start, &bias);
	size = module ? scry_elf_build_id(scry_module_elf(module), &id) : 0;
	scry_map_put(&c->objects, ev.module_str, 1);
	for (size_t i = 0; i < size; i++)
		scry_buf_printf(&hex, "%02x", id[i]);
	if (size)
		r = string_id(w, scry_buf_str(&hex), &ev.build_str);
	scry_buf_done(&hex);
	return r || !size
		       ? r
		       : scry_writer_payload(w,
					     &(struct scry_event){.type = SCRY_EVENT_OBJECT_FILE},
					     &ev, sizeof(ev));
}

/* Which builds the places are in. What a fork child has of its parent has that. */
static int emit_objects(struct scry_malloc_callers *c, struct scry_writer *w)
{
	const struct scry_maps *maps = scry_modules_maps(c->native);
	uint64_t hash = scry_modules_hash(c->native);
	int r = 0;

	if (c->is_parents || hash == c->objects_hash)
		return 0;
	for (size_t i = 0; i < maps->count && r == 0; i++)
		if (maps->entries[i].x && maps->entries[i].path[0] == '/')
			r = emit_object(c, w, &maps->entries[i]);
	c->objects_hash = hash;
	return r;
}

int scry_malloc_callers_report(struct scry_malloc_callers *c, struct scry_writer *w)
{
	uint32_t before = c->emitted;
	int r;

	scry_malloc_callers_look(c);
	r = emit_objects(c, w);
	for (uint32_t id = 1; c->has_late && id <= before && r == 0; id++)
		if (c->places[id].is_late)
			r = emit_place(c, w, id);
	c->has_late &= r != 0;
	while (c->emitted < c->count && r == 0) {
		r = emit_place(c, w, ++c->emitted);
		c->unnamed += !c->places[c->emitted].address;
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
