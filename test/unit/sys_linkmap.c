/* sys/linkmap against the dynamic linker's own answers: dl_iterate_phdr and dlinfo in the target.
 */
#include "sys/linkmap.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
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

/* What is open moves to a newer snapshot; what went away stays behind, what came is opened there.
 */
static void test_inherit(void **state)
{
	struct scry_linkmap before, with, after;
	ssize_t was[64];
	struct child c;

	assert_true(child_start(&c, "target_loader", NULL));
	look(&c, &before);
	scry_linkmap_open_all(&before);
	open_plug(&c, "open", &with);
	assert_true(with.count > before.count && with.count < 64);
	scry_linkmap_inherit(&with, &before, was);
	for (size_t i = 0; i < with.count; i++) {
		if (i >= before.count) {
			assert_int_equal(was[i], -1);
			assert_null(with.objects[i].elf);
			continue;
		}
		assert_int_equal(was[i], i);
		assert_null(before.objects[i].elf);
		assert_true(with.objects[i].elf || with.objects[i].is_vdso);
		assert_true(with.objects[i].at_startup);
	}
	scry_linkmap_done(&before);
	assert_int_equal(scry_linkmap_open_all(&with), 0);
	assert_false(with.objects[with.count - 1].at_startup);
	child_ask(&c, "close", "closed");
	look(&c, &after);
	scry_linkmap_inherit(&after, &with, was);
	for (size_t i = 0; i < after.count; i++)
		assert_int_equal(was[i], i);
	assert_non_null(with.objects[with.count - 1].elf);
	scry_linkmap_done(&with);
	assert_int_equal(scry_linkmap_open_all(&after), 0);
	compare(&c, &after);
	scry_linkmap_done(&after);
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
	snprintf(command, sizeof(command), "cp " SCRY_TARGET_DIR "/libwork.so %s", path);
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

/* A program that opens and closes all the time: each answer is one of those it goes through. */
static void test_churn(void **state)
{
	size_t whole = 0, with = 0;
	struct scry_linkmap before, lm;
	struct scry_mem mem;
	struct child c;

	assert_true(child_start(&c, "target_loader", NULL));
	look(&c, &before);
	assert_int_equal(scry_mem_open(&mem, c.pid, 0), 0);
	fprintf(c.to, "churn 3000 " PLUG "\n");
	fflush(c.to);
	for (int i = 0; i < 500; i++) {
		assert_int_equal(scry_linkmap_read(c.pid, &mem, &lm), 0);
		assert_true(lm.count >= before.count || lm.is_cut);
		for (size_t j = 0; j < before.count && !lm.is_cut; j++) /* these never go */
			assert_ptr_equal(scry_linkmap_find(&lm, &before.objects[j]),
					 &lm.objects[j]);
		scry_linkmap_open_all(&lm);
		whole += !lm.is_cut && !lm.is_changing;
		with += lm.count > before.count;
		scry_linkmap_done(&lm);
	}
	assert_string_equal(child_next(&c), "churned");
	assert_true(whole > 0);
	print_message("%zu of 500 lists whole, %zu with what came and went\n", whole, with);
	scry_mem_close(&mem);
	look(&c, &lm);
	assert_int_equal(lm.count, before.count);
	scry_linkmap_done(&lm);
	scry_linkmap_done(&before);
	child_end(&c);
}

/* Between exec and the loader's first steps there is no list yet. */
static void test_too_early(void **state)
{
	struct scry_linkmap lm;
	struct scry_mem mem;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execl(SCRY_TARGET_DIR "/target_loader", "target_loader", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	assert_int_equal(scry_mem_open(&mem, pid, 0), 0);
	assert_int_equal(scry_linkmap_read(pid, &mem, &lm), -EAGAIN);
	assert_non_null(strstr(scry_error(), "fix: try again"));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(scry_linkmap_read(pid, &mem, &lm) < 0);
	scry_mem_close(&mem);
}

/* Our own memory, of which one word is not what it is. */
struct forged {
	uint64_t at, value;
};

static int read_forged(const void *image, uint64_t addr, void *buf, size_t size)
{
	const struct forged *f = image;
	struct scry_mem real;
	int r = scry_mem_open(&real, getpid(), 0);

	if (r == 0)
		r = scry_mem_read(&real, addr, buf, size);
	scry_mem_close(&real);
	for (size_t i = 0; r == 0 && i < 8; i++)
		if (f->at + i >= addr && f->at + i < addr + size)
			((uint8_t *)buf)[f->at + i - addr] = (uint8_t)(f->value >> 8 * i);
	return r;
}

/* Not _r_debug, of which the linker may have made a copy. */
static const struct r_debug *own_debug(void)
{
	for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_DEBUG)
			return (const void *)d->d_un.d_ptr;
	fail_msg("no DT_DEBUG");
	return NULL;
}

/* Chains that lead in a circle, nowhere, or are too long end; what was read is kept and said. */
static void test_hostile(void **state)
{
	const struct r_debug *debug = own_debug();
	struct link_map *first = debug->r_map, *second = first->l_next, *third = second->l_next;
	const struct {
		struct forged word;
		size_t count; /* 0: refused */
	} rows[] = {
		{{(uintptr_t)&second->l_next, (uintptr_t)first}, 2},
		{{(uintptr_t)&second->l_next, (uintptr_t)second}, 2},
		{{(uintptr_t)&second->l_next, 0x10}, 2},
		{{(uintptr_t)&second->l_next, UINT64_MAX - 3}, 2},
		{{(uintptr_t)&third->l_prev, (uintptr_t)first}, 2},
		{{(uintptr_t)&debug->r_map, 0x1234567}, 0},
		{{(uintptr_t)&debug->r_map, 0}, 0},
		{{(uintptr_t)debug, 0}, 0},
		{{(uintptr_t)debug, 2}, SIZE_MAX}, /* then r_next is believed, which is 0 */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scry_mem mem = {.pid = getpid(),
				       .fd = -1,
				       .image = &rows[i].word,
				       .image_read = read_forged};
		struct scry_linkmap lm;
		int r = scry_linkmap_read(getpid(), &mem, &lm);

		assert_int_equal(r, rows[i].count ? 0 : -EFAULT);
		if (r < 0) {
			assert_non_null(strstr(scry_error(), "list of loaded objects"));
			continue;
		}
		assert_int_equal(lm.is_cut, rows[i].count != SIZE_MAX);
		if (lm.is_cut)
			assert_int_equal(lm.count, rows[i].count);
		scry_linkmap_done(&lm);
	}
}

/* Names and addresses that are nonsense make an object without a file. */
static void test_hostile_object(void **state)
{
	struct link_map *third = own_debug()->r_map->l_next->l_next; /* past the vdso */
	const struct forged words[] = {
		{(uintptr_t)&third->l_name, 8},
		{(uintptr_t)&third->l_ld, UINT64_MAX},
		{(uintptr_t)&third->l_addr, 0x123},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct scry_mem mem = {
			.pid = getpid(), .fd = -1, .image = &words[i], .image_read = read_forged};
		struct scry_linkmap lm;

		assert_int_equal(scry_linkmap_read(getpid(), &mem, &lm), 0);
		assert_false(lm.is_cut);
		assert_non_null(lm.objects[2].name);
		if (words[i].value == UINT64_MAX) {
			assert_null(lm.objects[2].mapping);
			assert_int_equal(scry_linkmap_open(&lm, 2), -ENOENT);
		} else if (words[i].value == 0x123) {
			assert_int_equal(scry_linkmap_open(&lm, 2), -ESTALE);
			assert_null(lm.objects[2].elf);
			assert_int_equal(scry_linkmap_open_all(&lm), 1);
		}
		scry_linkmap_done(&lm);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pie),	cmocka_unit_test(test_non_pie),
		cmocka_unit_test(test_musl),	cmocka_unit_test(test_explicit_loader),
		cmocka_unit_test(test_static),	cmocka_unit_test(test_dlopen),
		cmocka_unit_test(test_dlmopen), cmocka_unit_test(test_deleted),
		cmocka_unit_test(test_brk),	cmocka_unit_test(test_inherit),
		cmocka_unit_test(test_hostile), cmocka_unit_test(test_hostile_object),
		cmocka_unit_test(test_churn),	cmocka_unit_test(test_too_early),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
