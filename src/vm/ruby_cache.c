/*
 * The cache of layouts: one small file per Ruby module.
 *
 * A file is a head, the layout as it lies in memory, and the rows for `scry doctor`. Everything is
 * checked again after reading, also what the checksum covers: a checksum says that the bytes are
 * those that were written, not that they make sense.
 */
#include "vm/ruby_cache.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/cache.h"

#define FORMAT 2u
static const char magic[8] = "scry-vm";

struct head {
	char magic[8];
	uint64_t check; /* XXH3 of all that follows */
	uint32_t format, head_size, layout_size, row_size, row_count;
	uint32_t id_size;
	uint64_t learners;
	int64_t learned_s;
	uint8_t id[SCRY_CACHE_ID_MAX];
};
_Static_assert(sizeof(struct head) == 120, "no padding: it is compared and written as bytes");

/* Of this run. Written and read by the one thread that opens Rubies. */
#define LEARNED_MAX 8
static struct learned {
	struct scry_cache_key key;
	uint64_t stamp; /* of the layout; 0: the row is free */
} learned[LEARNED_MAX];
static size_t learned_next;

/* Bytes that become a bool must be 0 or 1. Leaves are checked one by one. */
static const size_t bools[] = {
	offsetof(struct scry_ruby_layout, first_line_fixnum),
	offsetof(struct scry_ruby_layout, slots_differ),
	offsetof(struct scry_ruby_layout, gc_stat_compact),
	offsetof(struct scry_ruby_layout, recycles),
	offsetof(struct scry_ruby_layout, hooks_of_all_ractors),
	offsetof(struct scry_ruby_layout, hooks_break_ractors),
	offsetof(struct scry_ruby_layout, trace_pc_advanced),
};

static uint64_t check_of(const void *bytes, size_t size)
{
	size_t from = offsetof(struct head, format);

	return XXH3_64bits((const char *)bytes + from, size - from);
}

void scry_cache_seal(void *bytes, size_t size)
{
	uint64_t check;

	if (size < sizeof(struct head))
		return;
	check = check_of(bytes, size);
	memcpy((char *)bytes + offsetof(struct head, check), &check, sizeof(check));
}

static bool is_bool(const uint8_t *bytes, size_t at)
{
	return bytes[at] <= 1;
}

static bool is_text(const char *text, size_t room)
{
	size_t n = strnlen(text, room);

	for (size_t i = 0; i < n; i++) {
		if (text[i] < ' ' || text[i] > '~')
			return false;
	}
	return n < room;
}

static bool leaves_hold(const uint8_t *layout, size_t at, uint32_t count)
{
	if (count > SCRY_RUBY_LEAF_MAX)
		return false;
	for (size_t i = 0; i < SCRY_RUBY_LEAF_MAX; i++) {
		size_t leaf = at + i * sizeof(struct scry_ruby_leaf);

		if (!is_bool(layout, leaf + offsetof(struct scry_ruby_leaf, pops_nothing)))
			return false;
	}
	return true;
}

/* The evaluator indexes by these, in the target too. */
static bool rules_hold(const uint8_t *bytes)
{
	struct scry_size_rules rules;

	memcpy(&rules, bytes, sizeof(rules));
	if (rules.rule_count > SCRY_SIZE_RULES_MAX || rules.shape_shift > 63)
		return false;
	for (size_t i = 0; i < SCRY_SIZE_TYPES; i++) {
		if (rules.type[i].first + (uint32_t)rules.type[i].count > rules.rule_count)
			return false;
	}
	for (size_t i = 0; i < rules.rule_count; i++) {
		const struct scry_size_rule *rule = &rules.rule[i];

		if (rule->kind > SCRY_SIZE_SHAPE || rule->table >= SCRY_SIZE_TABLES ||
		    rule->width > 8 || rule->relative > 1)
			return false;
	}
	return true;
}

static bool alloc_functions_hold(const uint8_t *bytes)
{
	struct scry_ruby_alloc_functions m;

	if (!is_bool(bytes, offsetof(struct scry_ruby_alloc_functions, is_known)) ||
	    !is_bool(bytes, offsetof(struct scry_ruby_alloc_functions, is_proven)) ||
	    !is_bool(bytes, offsetof(struct scry_ruby_alloc_functions, has_ec)))
		return false;
	memcpy(&m, bytes, sizeof(m));
	return m.count <= SCRY_RUBY_ALLOC_FUNCTIONS_MAX && m.end_argument < 6 && m.end_mask <= 6 &&
	       is_text(m.why, sizeof(m.why));
}

static bool gvl_holds(const uint8_t *bytes)
{
	struct scry_ruby_gvl g;

	for (size_t at = offsetof(struct scry_ruby_gvl, is_known);
	     at <= offsetof(struct scry_ruby_gvl, hands_over); at++)
		if (!is_bool(bytes, at))
			return false;
	memcpy(&g, bytes, sizeof(g));
	return is_text(g.why, sizeof(g.why));
}

uint64_t scry_cache_stamp(const void *layout, bool hooks)
{
	const size_t alloc_functions = offsetof(struct scry_ruby_layout, alloc_functions);
	const size_t sizes = offsetof(struct scry_ruby_layout, sizes);
	const uint8_t *bytes = layout;
	uint64_t parts[3] = {
		XXH3_64bits(bytes, alloc_functions),
		XXH3_64bits(bytes + sizes, sizeof(struct scry_ruby_layout) - sizes),
		hooks ? XXH3_64bits(bytes + alloc_functions,
				    sizeof(struct scry_ruby_alloc_functions))
		      : 0,
	};

	return XXH3_64bits(parts, sizeof(parts));
}

/* A layout that is not the one that was on stage has not been borne by any process. */
static bool rehearsals_hold(const uint8_t *layout)
{
	const uint8_t *bytes = layout + offsetof(struct scry_ruby_layout, rehearsed);
	struct scry_ruby_rehearsal r;

	for (size_t way = 0; way < SCRY_RUBY_WAYS; way++) {
		memcpy(&r, bytes + way * sizeof(r), sizeof(r));
		if (r.agent &&
		    r.layout != scry_cache_stamp(layout, (way & SCRY_RUBY_WAY_HOOKS) != 0))
			return false;
		for (size_t i = 0; i < sizeof(r.why) / sizeof(r.why[0]); i++)
			if (!is_text(r.why[i], sizeof(r.why[i])))
				return false;
	}
	return true;
}

static bool layout_holds(const uint8_t *bytes)
{
	uint32_t leaves, afters;

	for (size_t i = 0; i < sizeof(bools) / sizeof(bools[0]); i++) {
		if (!is_bool(bytes, bools[i]))
			return false;
	}
	memcpy(&leaves, bytes + offsetof(struct scry_ruby_layout, leaf_count), sizeof(leaves));
	memcpy(&afters, bytes + offsetof(struct scry_ruby_layout, after_count), sizeof(afters));
	return rules_hold(bytes + offsetof(struct scry_ruby_layout, sizes)) &&
	       alloc_functions_hold(bytes + offsetof(struct scry_ruby_layout, alloc_functions)) &&
	       gvl_holds(bytes + offsetof(struct scry_ruby_layout, gvl)) &&
	       rehearsals_hold(bytes) &&
	       leaves_hold(bytes, offsetof(struct scry_ruby_layout, leaf), leaves) &&
	       leaves_hold(bytes, offsetof(struct scry_ruby_layout, after), afters);
}

static bool row_holds(const uint8_t *bytes)
{
	struct scry_ruby_check row;

	if (!is_bool(bytes, offsetof(struct scry_ruby_check, ok)))
		return false;
	memcpy(&row, bytes, sizeof(row));
	return is_text(row.item, sizeof(row.item)) && is_text(row.value, sizeof(row.value)) &&
	       is_text(row.how, sizeof(row.how)) && is_text(row.proof, sizeof(row.proof)) &&
	       is_text(row.second, sizeof(row.second));
}

static bool head_holds(const struct scry_cache_key *key, const struct head *head, size_t size)
{
	return memcmp(head->magic, magic, sizeof(magic)) == 0 && head->format == FORMAT &&
	       head->head_size == sizeof(*head) &&
	       head->layout_size == sizeof(struct scry_ruby_layout) &&
	       head->row_size == sizeof(struct scry_ruby_check) &&
	       head->row_count <= SCRY_CACHE_CHECKS_MAX && head->learners == key->learners &&
	       head->id_size == key->id_size && memcmp(head->id, key->id, sizeof(key->id)) == 0 &&
	       size == sizeof(*head) + head->layout_size +
			       (size_t)head->row_count * sizeof(struct scry_ruby_check);
}

int scry_cache_parse(const struct scry_cache_key *key, const void *bytes, size_t size,
		     struct scry_cached *ret)
{
	const uint8_t *layout = (const uint8_t *)bytes + sizeof(struct head);
	const uint8_t *rows = layout + sizeof(struct scry_ruby_layout);
	struct scry_ruby_check *checks;
	struct head head;

	if (size < sizeof(head) || size > SCRY_CACHE_FILE_MAX)
		return -ENOENT;
	memcpy(&head, bytes, sizeof(head));
	if (!head_holds(key, &head, size) || head.check != check_of(bytes, size) ||
	    !layout_holds(layout))
		return -ENOENT;
	for (uint32_t i = 0; i < head.row_count; i++) {
		if (!row_holds(rows + i * sizeof(*checks)))
			return -ENOENT;
	}
	checks = calloc(head.row_count + 1u, sizeof(*checks));
	if (!checks)
		return -ENOENT;
	memcpy(checks, rows, head.row_count * sizeof(*checks));
	memcpy(&ret->layout, layout, sizeof(ret->layout));
	ret->learned_s = head.learned_s;
	ret->checks = checks;
	ret->check_count = head.row_count;
	return 0;
}

void *scry_cache_format(const struct scry_cache_key *key, const struct scry_cached *cached,
			size_t *ret_size)
{
	size_t rows = cached->check_count * sizeof(*cached->checks);
	size_t size = sizeof(struct head) + sizeof(cached->layout) + rows;
	struct head head = {
		.format = FORMAT,
		.head_size = sizeof(head),
		.layout_size = sizeof(cached->layout),
		.row_size = sizeof(*cached->checks),
		.row_count = (uint32_t)cached->check_count,
		.id_size = key->id_size,
		.learners = key->learners,
		.learned_s = cached->learned_s,
	};
	uint8_t *bytes;

	if (cached->check_count > SCRY_CACHE_CHECKS_MAX || size > SCRY_CACHE_FILE_MAX)
		return NULL;
	bytes = malloc(size);
	if (!bytes)
		return NULL;
	memcpy(head.magic, magic, sizeof(magic));
	memcpy(head.id, key->id, sizeof(head.id));
	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), &cached->layout, sizeof(cached->layout));
	if (rows)
		memcpy(bytes + sizeof(head) + sizeof(cached->layout), cached->checks, rows);
	scry_cache_seal(bytes, size);
	*ret_size = size;
	return bytes;
}

static void name_of(const struct scry_cache_key *key, char ret[SCRY_CACHE_NAME_MAX])
{
	const struct scry_cache_id id = {key->id, key->id_size < sizeof(key->id) ? key->id_size
										 : sizeof(key->id)};

	scry_cache_name("layout", &id, ret);
}

int scry_cache_load(const struct scry_cache_key *key, struct scry_cached *ret)
{
	char name[SCRY_CACHE_NAME_MAX];
	int err = -ENOENT;
	size_t size;
	void *bytes;

	name_of(key, name);
	bytes = scry_cache_read_file(name, SCRY_CACHE_FILE_MAX, &size);
	if (bytes)
		err = scry_cache_parse(key, bytes, size, ret);
	free(bytes);
	return err;
}

int scry_cache_store(const struct scry_cache_key *key, const struct scry_cached *cached)
{
	char name[SCRY_CACHE_NAME_MAX];
	size_t size = 0;
	void *bytes = scry_cache_format(key, cached, &size);
	int err = -EIO;

	name_of(key, name);
	if (bytes)
		err = scry_cache_write_file(name, bytes, size);
	free(bytes);
	return err;
}

static struct learned *find_learned(const struct scry_cache_key *key)
{
	for (size_t i = 0; i < LEARNED_MAX; i++)
		if (learned[i].stamp && memcmp(&learned[i].key, key, sizeof(*key)) == 0)
			return &learned[i];
	return NULL;
}

void scry_cache_learned(const struct scry_cache_key *key, const void *layout)
{
	struct learned *l = find_learned(key);

	if (!l)
		l = &learned[learned_next++ % LEARNED_MAX];
	*l = (struct learned){.key = *key, .stamp = scry_cache_stamp(layout, false)};
}

bool scry_cache_is_learned(const struct scry_cache_key *key, const void *layout)
{
	const struct learned *l = find_learned(key);

	return l && l->stamp == scry_cache_stamp(layout, false);
}

void scry_cache_drop(const struct scry_cache_key *key)
{
	struct learned *l = find_learned(key);
	char name[SCRY_CACHE_NAME_MAX];

	if (l)
		*l = (struct learned){0};
	name_of(key, name);
	scry_cache_remove_file(name);
}

void scry_cached_done(struct scry_cached *cached)
{
	free(cached->checks);
	*cached = (struct scry_cached){0};
}
