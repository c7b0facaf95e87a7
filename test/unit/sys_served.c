/* Files of a server that never answers: a mount of FUSE that nothing serves. */
#include "sys/served.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/debug_file.h"

#define DEAD 8 /* served.c asks no more while so many do not answer */

static char top[] = "/tmp/scry-served-XXXXXX", links[] = "/tmp/scry-links-XXXXXX";
static char file[64];
static bool has_mount;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int setup(void **state)
{
	char options[96];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	(void)state;
	if (!mkdtemp(top) || !mkdtemp(links))
		return -1;
	snprintf(file, sizeof(file), "%s/lib.so", top);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	has_mount = fuse >= 0 && unshare(CLONE_NEWNS) == 0 &&
		    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		    mount("served", top, "fuse", 0, options) == 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (has_mount)
		umount2(top, MNT_DETACH);
	rmdir(links);
	return rmdir(top);
}

/* A mapping of a file of device 999:`minor`, which no mount has. */
static struct scry_map_entry mapping(uint32_t minor, char *path)
{
	return (struct scry_map_entry){.start = 4096,
				       .end = 8192,
				       .inode = 1,
				       .dev_major = 999,
				       .dev_minor = minor,
				       .path = path};
}

/* Any answer is one, and of our own file systems none is asked. */
static void answers(void **state)
{
	char gone[] = "/no/such/file";
	const struct scry_map_entry m = mapping(1000, gone);

	(void)state;
	assert_true(scry_served_answers(getpid(), &m));
	assert_true(scry_served_path_answers("/proc/self/exe"));
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1); /* it has been collected */
}

/* A link to a file that does not answer lies beside one that does. */
static void beside(void **state)
{
	char good[80], bad[80];
	double begin;

	(void)state;
	if (!has_mount) {
		print_message("no mount of FUSE can be made here\n");
		skip();
	}
	snprintf(good, sizeof(good), "%s/good", links);
	snprintf(bad, sizeof(bad), "%s/bad", links);
	assert_int_equal(symlink("/proc/self/exe", good), 0);
	assert_int_equal(symlink(file, bad), 0);
	assert_true(scry_served_path_answers(good));
	begin = now_s();
	assert_false(scry_served_path_answers(bad));
	assert_true(now_s() - begin < 5);
	unlink(good);
	unlink(bad);
}

/* A stripped program says where its debug information is: in a file that does not answer. */
static void debug_file(void **state)
{
	char name[256], debug[300], program[300];
	struct scry_elf *elf;
	double begin;

	(void)state;
	if (!has_mount) {
		print_message("no mount of FUSE can be made here\n");
		skip();
	}
	assert_int_equal(scry_elf_open_path("/bin/true", &elf), 0);
	if (!scry_elf_debuglink(elf, name, sizeof(name))) {
		print_message("/bin/true names no debug file here\n");
		scry_elf_close(elf);
		skip();
	}
	snprintf(debug, sizeof(debug), "%s/%s", links, name);
	snprintf(program, sizeof(program), "%s/true", links);
	assert_int_equal(symlink(file, debug), 0);
	alarm(30); /* who opens it waits for ever */
	begin = now_s();
	scry_debug_file_lend(elf, program);
	assert_true(now_s() - begin < 5);
	alarm(0);
	unlink(debug);
	scry_elf_close(elf);
}

static void dead(void **state)
{
	struct scry_map_entry maps[100];
	struct scry_served look;
	double begin = now_s(), took;

	(void)state;
	if (!has_mount) {
		print_message("no mount of FUSE can be made here\n");
		skip();
	}
	for (uint32_t i = 0; i < 100; i++)
		maps[i] = mapping(i, file);
	assert_false(scry_served_answers(getpid(), &maps[0]));
	took = now_s() - begin;
	assert_true(took > 0.9 && took < 5);
	begin = now_s();
	assert_false(scry_served_answers(getpid(), &maps[0])); /* it is known */
	assert_true(now_s() - begin < 0.5);
	begin = now_s();
	scry_served_look(getpid(), &(struct scry_maps){.entries = maps, .count = 100}, &look);
	took = now_s() - begin;
	assert_true(took > DEAD - 4 && took < 3 * DEAD); /* not 99 seconds */
	assert_int_equal(look.count, 100);
	assert_string_equal(look.first, file);
	assert_int_equal(scry_served_readable(&look, 0, 10000), 4096);
	scry_served_done(&look);
	begin = now_s();
	assert_false(scry_served_path_answers(file));
	assert_true(now_s() - begin < 0.5);
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1); /* none is left */
}

/* More than there is room for: none of them is read, nor what lies between. */
static void many(void **state)
{
	struct scry_maps maps = {.entries = calloc(5000, sizeof(*maps.entries)), .count = 5000};
	struct scry_served look;

	(void)state;
	if (!has_mount) {
		print_message("no mount of FUSE can be made here\n");
		skip();
	}
	assert_non_null(maps.entries);
	for (uint64_t i = 0; i < maps.count; i++) {
		maps.entries[i] = mapping(0, file);
		maps.entries[i].start = (1 + 2 * i) << 12;
		maps.entries[i].end = (2 + 2 * i) << 12;
	}
	scry_served_look(getpid(), &maps, &look);
	assert_int_equal(look.count, 4096);
	assert_int_equal(scry_served_readable(&look, maps.entries[10].start, 1), 0);
	assert_int_equal(scry_served_readable(&look, maps.entries[4999].start, 1), 0);
	scry_served_done(&look);
	free(maps.entries);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers), cmocka_unit_test(beside), cmocka_unit_test(debug_file),
		cmocka_unit_test(dead),	   cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
