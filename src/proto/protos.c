/* See protos.h. */
#include "proto/protos.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/parse.h"

#define BLOCK 16384u
#define PROTOS_MAX 200000u
#define IMPORTS_MAX 16u
#define LINE_MAX_BYTES 65536u

static const struct scry_type guess = {
	.kind = SCRY_TYPE_LONG, .lens = SCRY_LENS_GUESS, .size = 8, .align = 8};
const struct scry_proto scry_proto_unknown = {
	.name = "?",
	.result = &guess,
	.args = {&guess, &guess, &guess, &guess},
	.count = 4,
	.right = 4,
	.text = "guess(long) f(guess(long), guess(long), guess(long), guess(long));\n",
};

struct scry_protos *scry_protos_new(void)
{
	struct scry_protos *p = calloc(1, sizeof(*p));

	if (p)
		scry_map_init(&p->by_name, PROTOS_MAX);
	return p;
}

void scry_protos_free(struct scry_protos *p)
{
	if (!p)
		return;
	while (p->blocks) {
		struct scry_arena_block *b = p->blocks;

		p->blocks = b->next;
		free(b);
	}
	for (uint32_t i = 0; i < p->typedef_count; i++)
		free(p->typedefs[i].uses);
	free(p->typedefs);
	free(p->protos);
	free(p->next);
	scry_map_done(&p->by_name);
	free(p);
}

void *scry_protos_alloc(struct scry_protos *p, size_t size)
{
	struct scry_arena_block *b = p->blocks;
	char *at;

	size = (size + 15) & ~(size_t)15;
	if (!b || b->room - b->used < size) {
		size_t room = size > BLOCK ? size : BLOCK;

		b = calloc(1, sizeof(*b) + room);
		if (!b) {
			scry_no_memory("prototypes");
			return NULL;
		}
		b->room = room;
		b->next = p->blocks;
		p->blocks = b;
	}
	at = (char *)(b + 1) + b->used;
	b->used += size;
	return at;
}

const char *scry_protos_copy(struct scry_protos *p, const char *bytes, size_t length)
{
	char *copy = scry_protos_alloc(p, length + 1);

	if (copy)
		memcpy(copy, bytes, length);
	return copy;
}

static uint64_t hash(const char *name)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
	return h;
}

int scry_protos_add(struct scry_protos *p, struct scry_proto *proto)
{
	uint64_t *first;

	if (p->count == PROTOS_MAX)
		return scry_fail(-E2BIG, "more than %u prototypes", PROTOS_MAX);
	if (p->count == p->room) {
		size_t room = p->room ? 2 * p->room : 64;
		struct scry_proto **more =
			reallocarray(p->protos, room, sizeof(struct scry_proto *));
		uint32_t *next;

		if (!more)
			return scry_no_memory("prototypes");
		p->protos = more;
		next = reallocarray(p->next, room, sizeof(*next));
		if (!next)
			return scry_no_memory("prototypes");
		p->next = next;
		p->room = room;
	}
	first = scry_map_ref(&p->by_name, hash(proto->name));
	if (!first)
		return scry_no_memory("prototypes");
	p->next[p->count] = (uint32_t)*first;
	p->protos[p->count++] = proto;
	*first = p->count;
	return 0;
}

int scry_protos_add_typedef(struct scry_protos *p, const struct scry_typedef *t)
{
	if (p->typedef_count == SCRY_PROTO_TYPEDEFS_MAX)
		return scry_fail(-E2BIG, "more than %u typedefs", SCRY_PROTO_TYPEDEFS_MAX);
	if (p->typedef_count == p->typedef_room) {
		uint32_t room = p->typedef_room ? 2 * p->typedef_room : 32;
		struct scry_typedef *more = reallocarray(p->typedefs, room, sizeof(*more));

		if (!more)
			return scry_no_memory("typedefs");
		p->typedefs = more;
		p->typedef_room = room;
	}
	p->typedefs[p->typedef_count++] = *t;
	return 0;
}

uint32_t scry_protos_forward(const struct scry_protos *p, const char *name)
{
	for (uint32_t i = p->typedef_count; i-- > 0;)
		if (!strcmp(p->typedefs[i].name, name))
			return p->typedefs[i].type->is_forward ? i + 1 : 0;
	return 0;
}

bool scry_protos_is_defined_twice(const struct scry_protos *p, const char *name)
{
	for (uint32_t i = p->typedef_count; p->is_file && i-- > p->file_typedef;)
		if (!strcmp(p->typedefs[i].name, name))
			return !p->typedefs[i].completed && !p->typedefs[i].type->is_forward;
	return false;
}

static bool is_for(const struct scry_proto *proto, const char *path)
{
	const char *slash = strrchr(path, '/');

	return !proto->library || fnmatch(proto->library, slash ? slash + 1 : path, 0) == 0;
}

const struct scry_proto *scry_protos_find(const struct scry_protos *p, const char *name,
					  const char *path)
{
	const struct scry_proto *found = NULL;
	uint64_t i = 0;

	if (!scry_map_get(&p->by_name, hash(name), &i))
		return NULL;
	for (; i; i = p->next[i - 1]) /* the newest first */
		if (!strcmp(p->protos[i - 1]->name, name) && is_for(p->protos[i - 1], path))
			found = p->protos[i - 1];
	return found;
}

const struct scry_proto *scry_protos_at(const struct scry_protos *p, size_t i)
{
	return i < p->count ? p->protos[i] : NULL;
}

struct reading {
	struct scry_protos *protos;
	const char *imports[IMPORTS_MAX]; /* strings of the set */
	uint32_t import_count, imported;
};

static int add_import(struct reading *rd, const char *name)
{
	for (uint32_t i = 0; i < rd->import_count; i++)
		if (!strcmp(rd->imports[i], name))
			return 0;
	if (rd->import_count == IMPORTS_MAX)
		return scry_fail(-E2BIG, "more than %u files are imported", IMPORTS_MAX);
	rd->imports[rd->import_count++] = name;
	return 0;
}

static int read_import(struct reading *rd, const char *beside);

static int read_lines(struct reading *rd, const char *origin, const char *beside,
		      const struct scry_buf *text)
{
	const char *at = scry_buf_str(text), *end = at + text->len;
	char *line = malloc(LINE_MAX_BYTES);
	int r = line ? 0 : scry_no_memory("a line");

	rd->protos->library = NULL;
	rd->protos->is_named_only = false;
	for (unsigned int number = 1; at < end && r == 0; number++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((stop ? stop : end) - at);
		const char *why = NULL, *import = NULL;

		if (length >= LINE_MAX_BYTES) {
			r = scry_fail(-EINVAL, "%s:%u: more than %u bytes in a line", origin,
				      number, LINE_MAX_BYTES);
			break;
		}
		memcpy(line, at, length);
		line[length] = '\0';
		at += length + 1;
		r = scry_protos_line(rd->protos, line, &why, &import);
		if (r == -EINVAL)
			scry_fail(r, "%s:%u: %s", origin, number, why);
		if (r == 0 && import && !beside)
			r = scry_fail(-EINVAL, "%s:%u: nothing can be imported here", origin,
				      number);
		if (r == 0 && import)
			r = add_import(rd, import);
		if (r == 0 && import && rd->imported < rd->import_count)
			r = read_import(rd, beside);
	}
	free(line);
	return r;
}

static int read_all(const char *path, struct scry_buf *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int r = fd < 0 ? -errno : 0;

	while (r == 0) {
		ssize_t n;

		r = scry_buf_reserve(ret, 65536);
		n = r < 0 ? -1 : read(fd, ret->data + ret->len, 65535);
		if (n <= 0) {
			r = r < 0 ? r : n < 0 ? -errno : 1;
			break;
		}
		ret->len += (size_t)n;
		ret->data[ret->len] = '\0';
		if (ret->len > SCRY_PROTOS_TEXT_MAX)
			r = -EFBIG;
	}
	if (fd >= 0)
		close(fd);
	return r < 0 ? scry_fail(r, "cannot read prototypes from '%s': %s", path, strerror(-r)) : 0;
}

static int read_path(struct reading *rd, const char *path)
{
	struct scry_buf text = {0};
	int r = read_all(path, &text);

	if (r == 0)
		r = read_lines(rd, path, path, &text);
	scry_buf_done(&text);
	return r;
}

/* "libc.so-types" is the file libc.so-types.conf in the directory of `beside`. Its own imports come
 * after it: as many levels as there are imports, each file once. */
static int read_import(struct reading *rd, const char *beside)
{
	const char *slash = strrchr(beside, '/');
	char path[4096];
	int n = snprintf(path, sizeof(path), "%.*s%s.conf", slash ? (int)(slash + 1 - beside) : 0,
			 beside, rd->imports[rd->imported++]);

	if (n < 0 || (size_t)n >= sizeof(path))
		return scry_fail(-EINVAL, "too long a name of an import in '%s'", beside);
	return read_path(rd, path);
}

int scry_protos_read_file(struct scry_protos *p, const char *path)
{
	struct reading rd = {.protos = p};
	int r;

	p->is_file = true;
	p->file_typedef = p->typedef_count;
	r = read_path(&rd, path);
	p->is_file = false;
	return r;
}

int scry_protos_read(struct scry_protos *p, const char *origin, const char *text, size_t length)
{
	struct reading rd = {.protos = p};
	const struct scry_buf all = {.data = (char *)(uintptr_t)text, .len = length};

	if (length > SCRY_PROTOS_TEXT_MAX)
		return scry_fail(-E2BIG, "%s: more than %u bytes", origin, SCRY_PROTOS_TEXT_MAX);
	return read_lines(&rd, origin, NULL, &all);
}
