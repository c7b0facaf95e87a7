/*
 * The cache of layouts: one small file per Ruby module.
 *
 * A file is a head, the layout as it lies in memory, and the rows for `scry doctor`. It is written
 * beside its place and renamed, so that a reader sees all of it or nothing. Everything is checked
 * again after reading, also what the checksum covers: a checksum says that the bytes are those that
 * were written, not that they make sense.
 */
#include "vm/ruby_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FORMAT 1u
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

static bool makers_hold(const uint8_t *bytes)
{
	struct scry_ruby_makers m;

	if (!is_bool(bytes, offsetof(struct scry_ruby_makers, is_known)) ||
	    !is_bool(bytes, offsetof(struct scry_ruby_makers, is_proven)) ||
	    !is_bool(bytes, offsetof(struct scry_ruby_makers, has_ec)))
		return false;
	memcpy(&m, bytes, sizeof(m));
	return m.count <= SCRY_RUBY_MAKERS_MAX && m.end_argument < 6 && m.end_mask <= 6 &&
	       is_text(m.why, sizeof(m.why));
}

static bool rehearsals_hold(const uint8_t *bytes)
{
	struct scry_ruby_rehearsal r;

	for (size_t way = 0; way < SCRY_RUBY_WAYS; way++) {
		memcpy(&r, bytes + way * sizeof(r), sizeof(r));
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
	       makers_hold(bytes + offsetof(struct scry_ruby_layout, makers)) &&
	       rehearsals_hold(bytes + offsetof(struct scry_ruby_layout, rehearsed)) &&
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

/* --- the directory -------------------------------------------------------------------------------
 */

static bool is_ours(int fd, mode_t type, mode_t closed)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == geteuid() &&
	       (st.st_mode & closed) == 0;
}

/* Opens, and makes if asked, the directory that holds caches. It may be open to others, but not
 * theirs: under sudo the environment may still name the caller's. */
static int open_base(bool make)
{
	const char *home = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
	char path[4096];
	int fd, n;

	if (!home || home[0] != '/') {
		struct passwd *pw = getpwuid(geteuid());

		home = pw ? pw->pw_dir : "";
	}
	if (xdg && xdg[0] == '/')
		n = snprintf(path, sizeof(path), "%s", xdg);
	else
		n = snprintf(path, sizeof(path), "%s/.cache", home);
	if (path[0] != '/' || n >= (int)sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && make && errno == ENOENT && mkdir(path, 0700) == 0)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && !is_ours(fd, S_IFDIR, 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int open_dir(bool make)
{
	const char *off = getenv("SCRY_NO_CACHE");
	int base, fd;

	if (off && *off)
		return -1;
	base = open_base(make);
	if (base < 0)
		return -1;
	if (make)
		mkdirat(base, "scry", 0700);
	fd = openat(base, "scry", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(base);
	if (fd >= 0 && !is_ours(fd, S_IFDIR, 077)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* "layout-DIGEST", in hex. */
static void name_of(const struct scry_cache_key *key, char *buf, size_t size)
{
	int n = snprintf(buf, size, "layout-");

	for (uint32_t i = 0; i < key->id_size && i < SCRY_CACHE_ID_MAX; i++)
		n += snprintf(buf + n, size - (size_t)n, "%02x", key->id[i]);
}

int scry_cache_load(const struct scry_cache_key *key, struct scry_cached *ret)
{
	char name[2 * SCRY_CACHE_ID_MAX + 16];
	uint8_t *bytes = malloc(SCRY_CACHE_FILE_MAX + 1);
	int dir = open_dir(false), fd = -1, err = -ENOENT;
	size_t used = 0;
	ssize_t n = 0;

	name_of(key, name, sizeof(name));
	if (dir >= 0)
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (bytes && fd >= 0 && is_ours(fd, S_IFREG, 077)) {
		while (used <= SCRY_CACHE_FILE_MAX &&
		       (n = read(fd, bytes + used, SCRY_CACHE_FILE_MAX + 1 - used)) > 0)
			used += (size_t)n;
		if (n == 0)
			err = scry_cache_parse(key, bytes, used, ret);
	}
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
	free(bytes);
	return err;
}

static int write_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

int scry_cache_store(const struct scry_cache_key *key, const struct scry_cached *cached)
{
	char name[2 * SCRY_CACHE_ID_MAX + 16], fresh[sizeof(name) + 16];
	int dir = open_dir(true), fd, err;
	size_t size = 0;
	void *bytes;

	if (dir < 0)
		return -ENOENT;
	bytes = scry_cache_format(key, cached, &size);
	name_of(key, name, sizeof(name));
	snprintf(fresh, sizeof(fresh), "%s.%d", name, (int)getpid());
	fd = bytes ? openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
		   : -1;
	err = fd < 0 ? -EIO : write_all(fd, bytes, size);
	if (!err && renameat(dir, fresh, dir, name) != 0)
		err = -errno;
	if (fd >= 0) {
		close(fd);
		if (err)
			unlinkat(dir, fresh, 0);
	}
	close(dir);
	free(bytes);
	return err;
}

void scry_cached_done(struct scry_cached *cached)
{
	free(cached->checks);
	*cached = (struct scry_cached){0};
}
