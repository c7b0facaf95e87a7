/* See native_lines.h. */
#include "name/native_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/err.h"
#include "name/line_readers.h" /* made by meson: SCRY_LINE_READERS */
#include "name/proto_cache.h"
#include "sys/debug_file.h"
#include "sys/debug_info.h"
#include "sys/elf_digest.h"
#include "sys/regular.h"
#include "sys/served.h"

#define OBJECTS_MAX 256u /* with debug information of their own; further ones have no lines */
#define BUILD_MAX 80u
#define DEPTH_MAX 64
#define LINE_DIGITS 10
#define FUNCTIONS_MAX (1u << 22) /* of more none is known by its name */

struct function {
	const char *name; /* owned by the elf */
	uint64_t value;
};

struct object {
	char *path, *build_id;
	struct scry_elf *elf;	    /* NULL: none of that build */
	struct function *functions; /* by name, once one was asked for */
	uint32_t function_count, function_room;
	bool has_functions;
	struct scry_debug_info *info;
	struct scry_proto_cache cache;
	bool has_key;
};

struct scry_native_lines {
	struct object objects[OBJECTS_MAX];
	uint32_t count;
};

struct line {
	const char *file;
	uint64_t number;
};

/* The code below `die` that holds the address, inlined functions and blocks too. */
static bool child_at(Dwarf_Die *die, uint64_t address, Dwarf_Die *ret)
{
	Dwarf_Die at;

	for (int r = dwarf_child(die, &at); r == 0; r = dwarf_siblingof(&at, &at)) {
		int tag = dwarf_tag(&at);

		if ((tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine ||
		     tag == DW_TAG_lexical_block) &&
		    dwarf_haspc(&at, address) > 0) {
			*ret = at;
			return true;
		}
	}
	return false;
}

/* Where the function itself called what was inlined into it, and does so in the end: its symbol is
 * beside the line. False: nothing was inlined there, or it is in a namespace's entry. */
static bool find_inlined(Dwarf_Die *unit, uint64_t address, struct line *ret)
{
	Dwarf_Die at = *unit;
	Dwarf_Attribute file, number;
	Dwarf_Word index;
	Dwarf_Files *files;

	for (int depth = 0; depth < DEPTH_MAX; depth++)
		if (!child_at(&at, address, &at))
			return false;
		else if (dwarf_tag(&at) == DW_TAG_inlined_subroutine)
			break;
	if (dwarf_tag(&at) != DW_TAG_inlined_subroutine ||
	    !dwarf_attr(&at, DW_AT_call_file, &file) || dwarf_formudata(&file, &index) ||
	    !dwarf_attr(&at, DW_AT_call_line, &number) || dwarf_formudata(&number, &ret->number) ||
	    dwarf_getsrcfiles(unit, &files, NULL))
		return false;
	ret->file = dwarf_filesrc(files, index, NULL, NULL);
	return ret->file != NULL;
}

static bool find_line(Dwarf *dwarf, uint64_t address, struct line *ret)
{
	Dwarf_Die unit;
	Dwarf_Line *line;
	int number = 0;

	if (!scry_debug_info_unit(dwarf, address, &unit))
		return false;
	if (find_inlined(&unit, address, ret))
		return true;
	line = dwarf_getsrc_die(&unit, address);
	ret->file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
	if (!ret->file || dwarf_lineno(line, &number) || number < 0)
		return false;
	ret->number = (uint64_t)number;
	return true;
}

/* In the child: the line and its file, as text, for name/proto_cache keeps nothing else. */
static size_t answer(Dwarf *dwarf, void **state, const void *question, void *ret)
{
	struct line line;
	uint64_t address;
	int size;

	(void)state;
	memcpy(&address, question, sizeof(address));
	if (!find_line(dwarf, address, &line) || !line.number || line.number > UINT32_MAX)
		return 0;
	size = snprintf(ret, SCRY_DEBUG_ANSWER_MAX, "%u %s", (uint32_t)line.number, line.file);
	return size < (int)SCRY_DEBUG_ANSWER_MAX ? (size_t)size : 0;
}

/* The line of an answer, its file to `ret_file`; 0: it has none. */
static uint32_t take_answer(const char *text, size_t size, struct scry_buf *ret_file)
{
	uint64_t number = 0;
	size_t at = 0;

	while (at < size && at < LINE_DIGITS && text[at] >= '0' && text[at] <= '9')
		number = number * 10 + (uint64_t)(text[at++] - '0');
	if (at + 1 >= size || text[at] != ' ' || number > UINT32_MAX ||
	    scry_buf_append(ret_file, text + at + 1, size - at - 1))
		return 0;
	return (uint32_t)number;
}

/* Is it that build? */
static bool is_build(struct scry_elf *elf, const char *build_id)
{
	const uint8_t *id = NULL;
	size_t size = scry_elf_build_id(elf, &id);
	char hex[3];

	if (!size || strlen(build_id) != 2 * size)
		return false;
	for (size_t i = 0; i < size; i++) {
		snprintf(hex, sizeof(hex), "%02x", id[i]);
		if (memcmp(hex, build_id + 2 * i, 2) != 0)
			return false;
	}
	return true;
}

/* NULL: what lies there is another build, or cannot be read. */
static struct scry_elf *open_build(const char *path, const char *build_id)
{
	struct scry_elf *elf = NULL;
	int fd = scry_served_path_answers(path) ? scry_regular_open(path) : -1;
	char opened[32];

	if (fd < 0)
		return NULL;
	snprintf(opened, sizeof(opened), "/proc/self/fd/%d", fd);
	if (scry_elf_open_path(opened, &elf) < 0)
		elf = NULL;
	scry_error_clear();
	close(fd);
	if (elf && is_build(elf, build_id))
		return elf;
	scry_elf_close(elf);
	return NULL;
}

static bool make_key(struct object *o, uint8_t ret[SCRY_DIGEST_BYTES])
{
	uint8_t bytes[SCRY_DIGEST_BYTES];
	struct scry_digest d;

	scry_digest_init(&d);
	if (scry_elf_digest(o->elf, bytes) < 0 || scry_debug_info_digest(o->info, &d) < 0)
		return false;
	scry_digest_add(&d, "lines", 5);
	scry_digest_add(&d, bytes, sizeof(bytes));
	scry_digest_end(&d, ret);
	return true;
}

static void open_object(struct object *o)
{
	char debug[sizeof("/usr/lib/debug/.build-id/xx/.debug") + BUILD_MAX];

	o->elf = open_build(o->path, o->build_id);
	if (!o->elf && strlen(o->build_id) <= BUILD_MAX &&
	    strspn(o->build_id, "0123456789abcdef") > 2) {
		snprintf(debug, sizeof(debug), "/usr/lib/debug/.build-id/%.2s/%s.debug",
			 o->build_id, o->build_id + 2);
		o->elf = open_build(debug, o->build_id);
	}
	if (!o->elf)
		return;
	scry_debug_file_lend(o->elf, o->path);
	o->info = scry_debug_info_open(o->elf, answer);
	scry_proto_cache_init(&o->cache, SCRY_LINE_READERS);
	o->has_key = o->info && make_key(o, o->cache.key);
	if (o->has_key)
		scry_proto_cache_load(&o->cache);
}

static struct object *object_of(struct scry_native_lines *lines,
				const struct scry_native_place *place)
{
	struct object *o;

	for (uint32_t i = 0; i < lines->count; i++)
		if (!strcmp(lines->objects[i].path, place->module) &&
		    !strcmp(lines->objects[i].build_id, place->build_id))
			return &lines->objects[i];
	if (lines->count == OBJECTS_MAX)
		return NULL;
	o = &lines->objects[lines->count];
	o->path = strdup(place->module);
	o->build_id = strdup(place->build_id);
	if (!o->path || !o->build_id) {
		free(o->path);
		free(o->build_id);
		*o = (struct object){0};
		return NULL;
	}
	lines->count++;
	open_object(o);
	return o;
}

/* -ENOMEM, -E2BIG. */
static int add_function(const struct scry_sym *sym, void *arg)
{
	struct object *o = arg;
	struct function *more;

	if (sym->type != STT_FUNC && sym->type != STT_GNU_IFUNC && sym->type != STT_NOTYPE)
		return 0;
	if (o->function_count == FUNCTIONS_MAX)
		return -E2BIG;
	if (o->function_count == o->function_room) {
		o->function_room = o->function_room ? 2 * o->function_room : 1024;
		more = reallocarray(o->functions, o->function_room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		o->functions = more;
	}
	o->functions[o->function_count++] = (struct function){sym->name, sym->value};
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct function *)a)->name, ((const struct function *)b)->name);
}

/* Once: a recording asks for thousands. */
static void read_functions(struct object *o)
{
	if (scry_elf_each_symbol(o->elf, add_function, o))
		o->function_count = 0;
	if (o->function_count)
		qsort(o->functions, o->function_count, sizeof(*o->functions), compare_names);
	o->has_functions = true;
}

/* The link-time address of the call; 0: there are several functions of that name, or none. */
static uint64_t address_of(struct object *o, const struct scry_native_place *place)
{
	const struct function wanted = {.name = place->symbol};
	const struct function *found, *end, *at;

	if (!place->symbol)
		return place->offset - 1;
	if (!o->has_functions)
		read_functions(o);
	if (!o->function_count)
		return 0;
	found = bsearch(&wanted, o->functions, o->function_count, sizeof(wanted), compare_names);
	if (!found)
		return 0;
	end = o->functions + o->function_count;
	for (at = found; at < end && !compare_names(at, found); at++)
		if (at->value != found->value)
			return 0;
	for (at = found; at > o->functions && !compare_names(at - 1, found); at--)
		if (at[-1].value != found->value)
			return 0;
	return found->value + place->offset - 1;
}

struct scry_native_lines *scry_native_lines_new(void)
{
	return calloc(1, sizeof(struct scry_native_lines));
}

void scry_native_lines_free(struct scry_native_lines *lines)
{
	if (!lines)
		return;
	for (uint32_t i = 0; i < lines->count; i++) {
		struct object *o = &lines->objects[i];

		if (o->has_key)
			scry_proto_cache_store(&o->cache);
		scry_proto_cache_done(&o->cache);
		scry_debug_info_close(o->info);
		free(o->functions);
		scry_elf_close(o->elf);
		free(o->path);
		free(o->build_id);
	}
	free(lines);
}

uint32_t scry_native_line(struct scry_native_lines *lines, const struct scry_native_place *place,
			  struct scry_buf *ret_file)
{
	static char fresh[SCRY_DEBUG_ANSWER_MAX];
	struct object *o = place->offset ? object_of(lines, place) : NULL;
	uint64_t address = o && o->info ? address_of(o, place) : 0;
	const char *text = fresh;
	size_t size;

	if (!address)
		return 0;
	if (!scry_proto_cache_get(&o->cache, address, &text, &size)) {
		size = scry_debug_info_ask(o->info, &address, sizeof(address), fresh);
		if (!scry_debug_info_has_failed(o->info))
			scry_proto_cache_put(&o->cache, address, fresh, size);
		text = fresh;
	}
	return take_answer(text, size, ret_file);
}
