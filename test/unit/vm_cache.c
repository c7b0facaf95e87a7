/*
 * The cache of layouts: what is written is read back; what is damaged, of another build or scry, of
 * another owner, open to others or a link is no entry. And with a live ruby: an entry is used only
 * when the target says that it holds.
 */
#include "vm/ruby_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

static char base[] = "/tmp/scry_cache.XXXXXX";
static const struct scry_cache_key key = {.id = {0xab, 0xcd}, .id_size = 20, .learners = 0x1234};

static char *path_of(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	return path;
}

/* The one file of the cache. */
static char *entry_path(void)
{
	static char path[512];
	FILE *f = popen("ls $XDG_CACHE_HOME/scry/layout-*", "re");

	assert_non_null(f);
	assert_non_null(fgets(path, sizeof(path), f));
	pclose(f);
	path[strcspn(path, "\n")] = '\0';
	return path;
}

static struct scry_cached sample(void)
{
	struct scry_cached c = {.learned_s = 1700000000, .check_count = 2};

	c.checks = calloc(2, sizeof(*c.checks));
	c.layout.frame_size = 56;
	c.layout.first_line_fixnum = true;
	c.layout.leaf_count = 1;
	c.layout.leaf[0].word = 0x1000;
	c.checks[0] =
		(struct scry_ruby_check){"frame size", "56", "child", "17 frames", "DWARF", true};
	c.checks[1] = (struct scry_ruby_check){"else", "no", "child", "because", "", false};
	return c;
}

static void store_sample(void)
{
	struct scry_cached c = sample();

	assert_int_equal(scry_cache_store(&key, &c), 0);
	scry_cached_done(&c);
}

/* -ENOENT, or 0 with the sample's content. */
static int load(const struct scry_cache_key *k)
{
	struct scry_cached c, want = sample();
	int err = scry_cache_load(k, &c);

	if (err == 0) {
		assert_memory_equal(&c.layout, &want.layout, sizeof(c.layout));
		assert_int_equal(c.check_count, 2);
		assert_memory_equal(c.checks, want.checks, 2 * sizeof(*c.checks));
		assert_int_equal(c.learned_s, want.learned_s);
		scry_cached_done(&c);
	} else {
		assert_int_equal(err, -ENOENT);
	}
	scry_cached_done(&want);
	return err;
}

static int setup(void **state)
{
	(void)!system("rm -rf $XDG_CACHE_HOME/scry");
	return 0;
}

static void test_round(void **state)
{
	struct scry_cache_key other = key;
	struct stat st;

	assert_int_equal(load(&key), -ENOENT);
	assert_int_not_equal(access(path_of("scry"), F_OK), 0); /* a look makes nothing */
	store_sample();
	assert_int_equal(load(&key), 0);
	assert_int_equal(stat(path_of("scry"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(entry_path(), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	store_sample(); /* again, over the old one */
	assert_int_equal(load(&key), 0);

	other.learners++;
	assert_int_equal(load(&other), -ENOENT);
	other = key;
	other.id[1]++;
	assert_int_equal(load(&other), -ENOENT);
	/* The right name with another build's content. */
	char from[512], to[520];
	snprintf(from, sizeof(from), "%s", entry_path());
	assert_int_equal(scry_cache_store(&other, &(struct scry_cached){.learned_s = 1}), 0);
	snprintf(to, sizeof(to), "%s/scry/layout-abce000000000000000000000000000000000000", base);
	assert_int_equal(rename(to, from), 0);
	assert_int_equal(load(&key), -ENOENT);

	setenv("SCRY_NO_CACHE", "1", 1);
	assert_int_equal(load(&key), -ENOENT);
	assert_int_equal(scry_cache_store(&key, &(struct scry_cached){0}), -ENOENT);
	unsetenv("SCRY_NO_CACHE");
}

/* Each byte bent, with and without a checksum that holds; each length. */
/* Of this run is what was learned in it, as it was then, until it is dropped. */
static void test_learned(void **state)
{
	struct scry_cached c = sample();
	struct scry_cache_key other = key;

	store_sample();
	assert_false(scry_cache_is_learned(&key, &c.layout));
	scry_cache_learned(&key, &c.layout);
	assert_true(scry_cache_is_learned(&key, &c.layout));
	c.layout.rehearsed[0].agent = 1; /* no part of the layout that was learned */
	assert_true(scry_cache_is_learned(&key, &c.layout));
	other.id[0] ^= 1;
	assert_false(scry_cache_is_learned(&other, &c.layout));
	c.layout.frame_size ^= 8;
	assert_false(scry_cache_is_learned(&key, &c.layout));
	c.layout.frame_size ^= 8;
	scry_cache_drop(&key);
	assert_false(scry_cache_is_learned(&key, &c.layout));
	assert_int_equal(load(&key), -ENOENT);
	/* The newest of a few are known. */
	for (unsigned int i = 0; i < 20; i++) {
		other.id[0] = (uint8_t)i;
		scry_cache_learned(&other, &c.layout);
		assert_true(scry_cache_is_learned(&other, &c.layout));
	}
	other.id[0] = 0;
	assert_false(scry_cache_is_learned(&other, &c.layout));
	scry_cached_done(&c);
}

static void test_damage(void **state)
{
	struct scry_cached c = sample(), got;
	size_t size = 0, used = 0;
	uint8_t *bytes = scry_cache_format(&key, &c, &size), *copy = malloc(size + 1);

	assert_non_null(bytes);
	assert_int_equal(scry_cache_parse(&key, bytes, size, &got), 0);
	scry_cached_done(&got);
	for (size_t i = 0; i < size; i++) {
		memcpy(copy, bytes, size);
		copy[i] ^= 0x55;
		assert_int_equal(scry_cache_parse(&key, copy, size, &got), -ENOENT);
		scry_cache_seal(copy, size);
		if (scry_cache_parse(&key, copy, size, &got) == 0) {
			used++;
			scry_cached_done(&got);
		}
		assert_int_equal(scry_cache_parse(&key, bytes, i, &got), -ENOENT);
	}
	assert_true(used > 0 && used < size); /* the layout's own numbers are the validator's */
	memcpy(copy, bytes, size);
	assert_int_equal(scry_cache_parse(&key, copy, size + 1, &got), -ENOENT);
	free(bytes);
	free(copy);
	scry_cached_done(&c);
}

static void test_owner_and_mode(void **state)
{
	char file[512], moved[520];

	store_sample();
	snprintf(file, sizeof(file), "%s", entry_path());
	snprintf(moved, sizeof(moved), "%s.else", file);
	chmod(file, 0644);
	assert_int_equal(load(&key), -ENOENT);
	chmod(file, 0600);
	assert_int_equal(load(&key), 0);
	chmod(path_of("scry"), 0750);
	assert_int_equal(load(&key), -ENOENT);
	chmod(path_of("scry"), 0700);

	assert_int_equal(rename(file, moved), 0);
	assert_int_equal(symlink(moved, file), 0);
	assert_int_equal(load(&key), -ENOENT);
	unlink(file);
	assert_int_equal(mkfifo(file, 0600), 0); /* opening it must not wait */
	assert_int_equal(load(&key), -ENOENT);
	unlink(file);
	assert_int_equal(rename(moved, file), 0);
	assert_int_equal(load(&key), 0);

	assert_int_equal(rename(path_of("scry"), strcat(strcpy(moved, base), "/else")), 0);
	assert_int_equal(symlink("else", path_of("scry")), 0);
	assert_int_equal(load(&key), -ENOENT);
	unlink(path_of("scry"));
	assert_int_equal(rename(moved, path_of("scry")), 0);
	assert_int_equal(load(&key), 0);

	if (geteuid() != 0) {
		print_message("skipped: not root: files of another owner\n");
		return;
	}
	assert_int_equal(chown(file, 1, 1), 0);
	assert_int_equal(load(&key), -ENOENT);
	assert_int_equal(chown(file, 0, 0), 0);
	assert_int_equal(chown(path_of("scry"), 1, 1), 0);
	assert_int_equal(load(&key), -ENOENT);
	assert_int_equal(chown(path_of("scry"), 0, 0), 0);
	assert_int_equal(chown(base, 1, 1), 0); /* as under sudo with the caller's HOME */
	assert_int_equal(load(&key), -ENOENT);
	struct scry_cached c = sample();
	assert_int_equal(scry_cache_store(&key, &c), -ENOENT);
	scry_cached_done(&c);
	assert_int_equal(chown(base, 0, 0), 0);
	assert_int_equal(load(&key), 0);
}

static const char *layout_is(const struct scry_ruby *r)
{
	assert_string_equal(r->checks[0].item, "layout");
	assert_true(r->checks[0].ok);
	return r->checks[0].value;
}

static void open_and_expect(pid_t pid, const char *from)
{
	struct scry_ruby *r = NULL;

	if (scry_ruby_open(pid, SCRY_RUBY_BOOTED, &r) != 0)
		fail_msg("%s", scry_error());
	assert_string_equal(layout_is(r), from);
	assert_true(r->booted && r->check_count > 30);
	scry_ruby_free(r);
}

/* Makes the entry in the cache wrong by one word at one place, its checksum right. */
static void bend_entry(size_t field)
{
	uint8_t bytes[SCRY_CACHE_FILE_MAX];
	size_t at = 120 + field;
	ssize_t size;
	int fd = open(entry_path(), O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	size = read(fd, bytes, sizeof(bytes));
	assert_true(size > (ssize_t)at);
	bytes[at] = (uint8_t)(bytes[at] + 8);
	scry_cache_seal(bytes, (size_t)size);
	assert_int_equal(pwrite(fd, bytes, (size_t)size, 0), size);
	close(fd);
}

/* A ruby, or a program that is one by another name, that runs. */
static pid_t start(const char *program)
{
	int p[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(p[1], 1);
		execl(program, program, "-e", "def a; $stdout.syswrite('x'); sleep; end; a", NULL);
		_exit(127);
	}
	close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	close(p[0]);
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#define NEED_RUBY()                                                   \
	do {                                                          \
		if (access("/usr/bin/ruby", X_OK) != 0) {             \
			print_message("skipped: no /usr/bin/ruby\n"); \
			skip();                                       \
		}                                                     \
	} while (0)

/* Learned once, then from the cache; a wrong entry is noticed, learned anew and replaced. */
static void test_live(void **state)
{
	static const size_t fields[] = {
		offsetof(struct scry_ruby_layout, frame_size),
		offsetof(struct scry_ruby_layout, ec_cfp),
		offsetof(struct scry_ruby_layout, body_label),
		offsetof(struct scry_ruby_layout, vm_root),
		offsetof(struct scry_ruby_layout, ractor_threads),
		offsetof(struct scry_ruby_layout, class_ext),
	};
	pid_t pid;

	NEED_RUBY();
	pid = start("/usr/bin/ruby");
	open_and_expect(pid, "learned now");
	open_and_expect(pid, "from the cache");
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		bend_entry(fields[i]);
		open_and_expect(pid, "learned now");
		open_and_expect(pid, "from the cache");
	}
	setenv("SCRY_NO_CACHE", "1", 1);
	open_and_expect(pid, "learned now");
	unsetenv("SCRY_NO_CACHE");
	stop(pid);
}

/* A program that is not the ruby command is never run: only what was learned from another helps. */
static void test_embedded(void **state)
{
	char path[64], command[256];
	struct scry_ruby *r = NULL;
	pid_t host, ruby;

	NEED_RUBY();
	snprintf(path, sizeof(path), "%s/host", base);
	snprintf(command, sizeof(command), "cp \"$(readlink -f /usr/bin/ruby)\" %s", path);
	assert_int_equal(system(command), 0);
	host = start(path);
	assert_int_equal(scry_ruby_open(host, SCRY_RUBY_BOOTED, &r), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "embeds Ruby"));
	ruby = start("/usr/bin/ruby");
	open_and_expect(ruby, "learned now");
	open_and_expect(host, "from the cache");
	bend_entry(offsetof(struct scry_ruby_layout, frame_size));
	assert_int_equal(scry_ruby_open(host, SCRY_RUBY_BOOTED, &r), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "embeds Ruby"));
	stop(host);
	stop(ruby);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_round, setup),
		cmocka_unit_test_setup(test_learned, setup),
		cmocka_unit_test_setup(test_damage, setup),
		cmocka_unit_test_setup(test_owner_and_mode, setup),
		cmocka_unit_test_setup(test_live, setup),
		cmocka_unit_test_setup(test_embedded, setup),
	};
	int failed;

	if (!mkdtemp(base))
		return 1;
	setenv("XDG_CACHE_HOME", base, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)!system("rm -rf $XDG_CACHE_HOME");
	return failed;
}
