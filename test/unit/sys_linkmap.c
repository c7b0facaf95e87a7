/* sys/linkmap against the dynamic linker's own answers: dl_iterate_phdr and dlinfo in the target.
 */
#include "sys/linkmap.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "child.h"

#define PLUG SCRY_TARGET_DIR "/libplug.so"

static void look(struct child *c, struct scry_linkmap *lm)
{
	struct scry_mem mem;

	assert_int_equal(scry_mem_open(&mem, c->pid, 0), 0);
	if (scry_linkmap_read(c->pid, &mem, lm) < 0)
		fail_msg("%s", scry_error());
	scry_mem_close(&mem);
	assert_false(lm->is_cut);
	assert_false(lm->is_changing);
}

/* Every object that dl_iterate_phdr shows, in its order, and no other in that namespace. */
static void compare(struct child *c, const struct scry_linkmap *lm)
{
	size_t i = 0;

	child_ask(c, "objects", "object ");
	do {
		unsigned long long base;
		char name[4096] = "";

		assert_true(sscanf(c->line, "object 0x%llx %4095[^\n]", &base, name) >= 1);
		assert_true(i < lm->spaces[0].end);
		assert_true(lm->objects[i].bias == base);
		if (*name)
			assert_string_equal(lm->objects[i].name, name);
		i++;
	} while (strcmp(child_next(c), "end") != 0);
	assert_int_equal(i, lm->spaces[0].end);
}

static const struct scry_object *by_name(const struct scry_linkmap *lm, const char *name)
{
	for (size_t i = 0; i < lm->count; i++)
		if (scry_linkmap_is_named(&lm->objects[i], name))
			return &lm->objects[i];
	return NULL;
}

static void see_all(const char *name)
{
	struct scry_linkmap lm;
	struct child c;

	if (!child_start(&c, name, NULL))
		skip();
	look(&c, &lm);
	assert_false(lm.is_static);
	assert_int_equal(lm.space_count, 1);
	compare(&c, &lm);
	assert_true(lm.objects[0].is_main);
	assert_int_equal(scry_linkmap_open_all(&lm), 0);
	for (size_t i = 0; i < lm.count; i++) {
		const struct scry_object *o = &lm.objects[i];

		assert_true(o->at_startup == !o->is_vdso || o->is_vdso);
		if (o->is_vdso) {
			assert_null(o->mapping);
			assert_int_equal(scry_linkmap_open(&lm, i), -ENOENT);
			continue;
		}
		assert_non_null(o->mapping);
		assert_non_null(o->elf);
		assert_true(o->start <= o->dynamic && o->dynamic < o->end);
		assert_int_equal(scry_linkmap_at(&lm, o->dynamic), i);
	}
	assert_true(by_name(&lm, "libwork.so") || by_name(&lm, "libwork_musl.so"));
	scry_linkmap_done(&lm);
	child_end(&c);
}

static void test_pie(void **state)
{
	see_all("target_caller_lazy");
}

static void test_non_pie(void **state)
{
	see_all("target_caller_nopie");
}

static void test_musl(void **state)
{
	see_all("target_caller_musl");
}

/* The loader started by hand: AT_PHDR is the loader's own. */
static void test_explicit_loader(void **state)
{
	const char *loaders[][2] = {{"/lib64/ld-linux-x86-64.so.2", "target_caller_lazy"},
				    {"/lib/ld-musl-x86_64.so.1", "target_caller_musl"}};

	for (int i = 0; i < 2; i++) {
		char path[4096];
		struct scry_linkmap lm;
		struct child c;

		snprintf(path, sizeof(path), SCRY_TARGET_DIR "/%s", loaders[i][1]);
		if (access(path, X_OK) != 0 || !child_start(&c, loaders[i][0], path)) {
			print_message("skipped: no %s\n", path);
			continue;
		}
		look(&c, &lm);
		assert_false(lm.is_static);
		compare(&c, &lm);
		scry_linkmap_done(&lm);
		child_end(&c);
	}
}

static void test_static(void **state)
{
	const char *names[] = {"target_caller_static", "target_caller_static_pie"};

	for (int i = 0; i < 2; i++) {
		unsigned long long base;
		struct scry_linkmap lm;
		struct child c;

		if (!child_start(&c, names[i], NULL))
			continue;
		look(&c, &lm);
		assert_true(lm.is_static);
		assert_int_equal(lm.count, 1);
		assert_int_equal(lm.version, 0);
		child_ask(&c, "objects", "object 0x");
		assert_int_equal(sscanf(c.line, "object 0x%llx", &base), 1);
		while (strcmp(child_next(&c), "end") != 0)
			;
		assert_true(lm.objects[0].bias == base);
		assert_true(lm.objects[0].is_main && lm.objects[0].mapping);
		assert_non_null(strstr(lm.objects[0].name, names[i]));
		assert_int_equal(scry_linkmap_open(&lm, 0), 0);
		scry_linkmap_done(&lm);
		child_end(&c);
	}
}

/* `open` or `dlmopen`, and the snapshot after it; returns the object that appeared. */
static const struct scry_object *open_plug(struct child *c, const char *how,
					   struct scry_linkmap *lm)
{
	unsigned long long base, dynamic;
	char ask[4096];

	snprintf(ask, sizeof(ask), "%s " PLUG, how);
	assert_int_equal(sscanf(child_ask(c, ask, "opened"), " 0x%llx 0x%llx", &base, &dynamic), 2);
	look(c, lm);
	for (size_t i = 0; i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];

		if (o->bias == base && o->dynamic == dynamic) {
			assert_non_null(strstr(o->name, "libplug.so"));
			return o;
		}
	}
	fail_msg("what was opened is not in the list");
	return NULL;
}

static void test_dlopen(void **state)
{
	struct scry_linkmap before, now, after;
	const struct scry_object *plug;
	struct child c;
	size_t new = 0;

	assert_true(child_start(&c, "target_loader", NULL));
	look(&c, &before);
	plug = open_plug(&c, "open", &now);
	compare(&c, &now);
	scry_linkmap_open_all(&now);
	for (size_t i = 0; i < now.count; i++) {
		bool is_new = !scry_linkmap_find(&before, &now.objects[i]);

		new += is_new;
		assert_true(now.objects[i].is_vdso || now.objects[i].at_startup == !is_new);
	}
	assert_int_equal(new, 2); /* the plug-in and libwork, which it needs */
	assert_null(scry_linkmap_find(&before, plug));
	for (size_t i = 0; i < before.count; i++)
		assert_ptr_equal(scry_linkmap_find(&now, &before.objects[i]), &now.objects[i]);
	child_ask(&c, "close", "closed");
	look(&c, &after);
	assert_null(scry_linkmap_find(&after, plug));
	assert_int_equal(after.count, before.count);
	scry_linkmap_done(&before);
	scry_linkmap_done(&now);
	scry_linkmap_done(&after);
	child_end(&c);
}

static void test_dlmopen(void **state)
{
	struct scry_linkmap one, two, three;
	const struct scry_object *plug, *again;
	size_t libcs = 0;
	struct child c;

	assert_true(child_start(&c, "target_loader", NULL));
	open_plug(&c, "open", &one);
	assert_int_equal(one.space_count, 1);
	plug = open_plug(&c, "dlmopen", &two);
	assert_int_equal(two.space_count, 2);
	assert_int_equal(plug->space, 1);
	assert_int_equal(two.spaces[0].end, one.count);
	assert_true(two.version >= 2);
	compare(&c, &two);
	assert_null(scry_linkmap_find(&one, plug));
	scry_linkmap_open_all(&two);
	for (size_t i = 0; i < two.count; i++) {
		libcs += scry_linkmap_is_named(&two.objects[i], "libc.so.6");
		/* The loader is one for all namespaces. */
		assert_true(!scry_linkmap_is_repeated(&two, i) || two.objects[i].is_loader);
		if (i >= two.spaces[1].first && !two.objects[i].is_vdso)
			assert_true(two.objects[i].at_startup);
	}
	assert_int_equal(libcs, 2);
	again = open_plug(&c, "dlmopen", &three);
	assert_int_equal(again->space, 2);
	assert_non_null(scry_linkmap_find(&three, plug));
	child_ask(&c, "close", "closed");
	scry_linkmap_done(&three);
	look(&c, &three);
	assert_int_equal(three.count, two.count);
	scry_linkmap_done(&one);
	scry_linkmap_done(&two);
	scry_linkmap_done(&three);
	child_end(&c);
}

/* A file that is gone is opened all the same. */
static void test_deleted(void **state)
{
	char path[] = "/tmp/scry_plug.XXXXXX", ask[100], command[300];
	struct scry_linkmap lm;
	struct child c;
	bool seen = false;

	assert_true(mkstemp(path) >= 0);
	snprintf(command, sizeof(command), "cp " PLUG " %s", path);
	assert_int_equal(system(command), 0);
	assert_true(child_start(&c, "target_loader", NULL));
	snprintf(ask, sizeof(ask), "open %s", path);
	child_ask(&c, ask, "opened");
	unlink(path);
	look(&c, &lm);
	if (geteuid() != 0)
		print_message("skipped: opening a deleted file needs root\n");
	for (size_t i = 0; i < lm.count; i++) {
		if (strcmp(lm.objects[i].name, path) != 0)
			continue;
		seen = true;
		assert_true(lm.objects[i].mapping->deleted);
		if (geteuid() == 0)
			assert_int_equal(scry_linkmap_open(&lm, i), 0);
	}
	assert_true(seen);
	scry_linkmap_done(&lm);
	child_end(&c);
}

static void test_brk(void **state)
{
	uint8_t code[16];
	struct scry_linkmap lm;
	struct scry_mem mem;
	struct scry_sym sym;
	struct child c;
	ssize_t room;

	assert_true(child_start(&c, "target_loader", NULL));
	look(&c, &lm);
	assert_int_equal(scry_mem_open(&mem, c.pid, 0), 0);
	room = scry_linkmap_brk_code(&lm, &mem, code);
	assert_true(room >= 1 && room <= 16);
	assert_true(code[0] == 0xc3 || memcmp(code, "\xf3\x0f\x1e\xfa\xc3", 5) == 0);
	for (size_t i = 0; i < lm.count; i++) {
		if (!lm.objects[i].is_loader)
			continue;
		assert_int_equal(scry_linkmap_open(&lm, i), 0);
		/* glibc 2.35 and later export it no more, but leave it in .symtab. */
		if (scry_elf_symbol(lm.objects[i].elf, "_dl_debug_state", &sym) == 0)
			assert_true(lm.brk == lm.objects[i].bias + sym.value);
	}
	scry_mem_close(&mem);
	scry_linkmap_done(&lm);
	child_end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pie),	cmocka_unit_test(test_non_pie),
		cmocka_unit_test(test_musl),	cmocka_unit_test(test_explicit_loader),
		cmocka_unit_test(test_static),	cmocka_unit_test(test_dlopen),
		cmocka_unit_test(test_dlmopen), cmocka_unit_test(test_deleted),
		cmocka_unit_test(test_brk),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
