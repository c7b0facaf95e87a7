/* See proto_cache.h. A file is a head, and rows as they lie in memory: a function each, its text
 * behind it. */
#include "name/proto_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/cache.h"

#define FORMAT 1u
static const char magic[8] = "scry-pr";

struct head {
	char magic[8];
	uint64_t check; /* XXH3 of all that follows */
	uint32_t format, count;
	uint64_t reader;
	uint8_t key[SCRY_DIGEST_BYTES];
};
_Static_assert(sizeof(struct head) == 64, "no padding: it is written as bytes");

struct row {
	uint64_t address;
	uint32_t size, reserved; /* of the text; 0 */
};
_Static_assert(sizeof(struct row) == 16, "no padding: it is written as bytes");

void scry_proto_cache_init(struct scry_proto_cache *cache, uint64_t reader)
{
	*cache = (struct scry_proto_cache){.reader = reader};
	scry_map_init(&cache->places, SCRY_PROTO_CACHE_MAX / sizeof(struct row));
}

static uint64_t check_of(const void *bytes, size_t size)
{
	size_t from = offsetof(struct head, format);

	return XXH3_64bits((const char *)bytes + from, size - from);
}

void scry_proto_cache_seal(void *bytes, size_t size)
{
	uint64_t check;

	if (size < sizeof(struct head))
		return;
	check = check_of(bytes, size);
	memcpy((char *)bytes + offsetof(struct head, check), &check, sizeof(check));
}

/* The row at *at, which is moved behind it. False: there is none, or it does not fit. */
static bool next(const char *rows, size_t size, size_t *at, struct row *ret)
{
	if (size - *at < sizeof(*ret))
		return false;
	memcpy(ret, rows + *at, sizeof(*ret));
	if (ret->reserved || ret->size > size - *at - sizeof(*ret))
		return false;
	*at += sizeof(*ret) + ret->size;
	return true;
}

static bool is_text(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (text[i] < ' ' || text[i] > '~')
			return false;
	return true;
}

/* All rows of `bytes`, which ends where the last of them does, into the cache. */
static bool take_rows(struct scry_proto_cache *cache, const char *bytes, size_t size,
		      uint32_t count)
{
	struct row row;
	size_t at = 0;

	for (uint32_t i = 0; i < count; i++) {
		size_t from = at;

		if (!next(bytes, size, &at, &row) || !is_text(bytes + at - row.size, row.size) ||
		    scry_map_put(&cache->places, row.address, from) < 0)
			return false;
	}
	return at == size && scry_buf_append(&cache->rows, bytes, size) == 0;
}

int scry_proto_cache_parse(struct scry_proto_cache *cache, const void *bytes, size_t size)
{
	const char *rows = (const char *)bytes + sizeof(struct head);
	struct head head;

	if (size < sizeof(head) || size > SCRY_PROTO_CACHE_MAX)
		return -ENOENT;
	memcpy(&head, bytes, sizeof(head));
	if (memcmp(head.magic, magic, sizeof(magic)) != 0 || head.format != FORMAT ||
	    head.reader != cache->reader || memcmp(head.key, cache->key, sizeof(head.key)) != 0 ||
	    head.check != check_of(bytes, size))
		return -ENOENT;
	if (!take_rows(cache, rows, size - sizeof(head), head.count)) {
		scry_map_done(&cache->places);
		return -ENOENT;
	}
	cache->count = head.count;
	return 0;
}

int scry_proto_cache_format(const struct scry_proto_cache *cache, struct scry_buf *ret)
{
	struct head head = {.format = FORMAT, .count = cache->count, .reader = cache->reader};

	memcpy(head.magic, magic, sizeof(magic));
	memcpy(head.key, cache->key, sizeof(head.key));
	if (scry_buf_append(ret, &head, sizeof(head)) < 0 ||
	    scry_buf_append(ret, cache->rows.data, cache->rows.len) < 0)
		return -ENOMEM;
	scry_proto_cache_seal(ret->data, ret->len);
	return 0;
}

static void name_of(const struct scry_proto_cache *cache, char ret[SCRY_CACHE_NAME_MAX])
{
	const struct scry_cache_id id = {cache->key, sizeof(cache->key)};

	scry_cache_name("prototypes", &id, ret);
}

void scry_proto_cache_load(struct scry_proto_cache *cache)
{
	char name[SCRY_CACHE_NAME_MAX];
	size_t size;
	void *bytes;

	name_of(cache, name);
	bytes = scry_cache_read_file(name, SCRY_PROTO_CACHE_MAX, &size);
	if (bytes)
		scry_proto_cache_parse(cache, bytes, size);
	free(bytes);
}

void scry_proto_cache_store(const struct scry_proto_cache *cache)
{
	char name[SCRY_CACHE_NAME_MAX];
	struct scry_buf bytes = {0};

	name_of(cache, name);
	if (cache->is_changed && scry_proto_cache_format(cache, &bytes) == 0)
		scry_cache_write_file(name, bytes.data, bytes.len);
	scry_buf_done(&bytes);
}

void scry_proto_cache_done(struct scry_proto_cache *cache)
{
	scry_buf_done(&cache->rows);
	scry_map_done(&cache->places);
	*cache = (struct scry_proto_cache){0};
}

bool scry_proto_cache_get(const struct scry_proto_cache *cache, uint64_t address, const char **ret,
			  size_t *ret_size)
{
	struct row row;
	uint64_t at;

	if (!scry_map_get(&cache->places, address, &at))
		return false;
	memcpy(&row, cache->rows.data + at, sizeof(row));
	*ret = cache->rows.data + at + sizeof(row);
	*ret_size = row.size;
	return true;
}

void scry_proto_cache_put(struct scry_proto_cache *cache, uint64_t address, const char *text,
			  size_t size)
{
	const struct row row = {.address = address, .size = (uint32_t)size};

	if (!is_text(text, size) ||
	    sizeof(struct head) + cache->rows.len + sizeof(row) + size > SCRY_PROTO_CACHE_MAX ||
	    scry_buf_reserve(&cache->rows, sizeof(row) + size) < 0 ||
	    scry_map_put(&cache->places, address, cache->rows.len) < 0)
		return;
	scry_buf_append(&cache->rows, &row, sizeof(row));
	scry_buf_append(&cache->rows, text, size);
	cache->count++;
	cache->is_changed = true;
}
