/* sys/slots against the linker (readelf -r), the dynamic linker (dlsym in the target) and memory.
 */
#include "sys/slots.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "child.h"

struct found {
	struct scry_mem mem;
	struct scry_linkmap lm;
	struct scry_functions functions;
	struct scry_slots slots;
};

static void look(pid_t pid, struct found *f, const char *request)
{
	memset(f, 0, sizeof(*f));
	assert_int_equal(scry_mem_open(&f->mem, pid, 0), 0);
	if (scry_linkmap_read(pid, &f->mem, &f->lm) < 0 ||
	    scry_symbols_find(&f->lm, request, &f->functions) < 0 ||
	    scry_slots_find(&f->lm, &f->mem, &f->functions, &f->slots) < 0)
		fail_msg("%s: %s", request, scry_error());
	assert_int_equal(f->slots.unopened, 0);
	assert_int_equal(f->slots.unread, 0);
	for (size_t i = 0; i < f->slots.count; i++) { /* what holds for every slot */
		const struct scry_slot *s = &f->slots.rows[i];
		uint64_t word;

		assert_int_equal(scry_mem_u64(&f->mem, s->address, &word), 0);
		assert_true(word == s->value);
		if (!s->is_lazy && !f->functions.rows[s->function].is_ifunc)
			assert_true(s->value == f->functions.rows[s->function].address);
	}
}

static void done(struct found *f)
{
	scry_slots_done(&f->slots);
	scry_functions_done(&f->functions);
	scry_linkmap_done(&f->lm);
	scry_mem_close(&f->mem);
}

/* The only slot of object `object` for what was asked, or NULL. */
static const struct scry_slot *slot_of(const struct found *f, size_t object)
{
	const struct scry_slot *one = NULL;

	for (size_t i = 0; i < f->slots.count; i++) {
		if (f->slots.rows[i].object != object || f->slots.rows[i].kind == SCRY_SLOT_POINTER)
			continue;
		assert_null(one);
		one = &f->slots.rows[i];
	}
	return one;
}

/* Where readelf says that the main program's slot for `name` is; 0: it has none. */
static uint64_t readelf_slot(const char *target, const char *name, char ret_type[64])
{
	char command[300], line[512], symbol[256];
	uint64_t offset, result = 0;
	FILE *p;

	snprintf(command, sizeof(command), "readelf -rW " SCRY_TARGET_DIR "/%s", target);
	p = popen(command, "r");
	assert_non_null(p);
	while (fgets(line, sizeof(line), p)) {
		char type[64];

		if (sscanf(line, "%" SCNx64 " %*x %63s %*x %255s", &offset, type, symbol) != 3)
			continue;
		symbol[strcspn(symbol, "@")] = '\0';
		if (strcmp(symbol, name) == 0) {
			result = offset;
			strcpy(ret_type, type);
		}
	}
	pclose(p);
	return result;
}

static uint64_t where(struct child *c, const char *name)
{
	char ask[200];

	snprintf(ask, sizeof(ask), "where %s", name);
	return strtoull(child_ask(c, ask, "at "), NULL, 16);
}

/* One way of building: the slot before its first use and after it. */
static void see_way(const char *target, bool is_lazy, enum scry_slot_kind kind, bool is_relro)
{
	const struct scry_slot *s;
	char type[64] = "";
	struct found f;
	struct child c;
	uint64_t at;

	if (!child_start(&c, target, NULL))
		skip();
	at = readelf_slot(target, "work_fold", type);
	look(c.pid, &f, "work_fold@libwork");
	assert_int_equal(f.functions.count, 1);
	assert_true(f.functions.rows[0].address == where(&c, "work_fold"));
	s = slot_of(&f, 0);
	assert_non_null(s);
	assert_true(at && s->address == f.lm.objects[0].bias + at);
	assert_int_equal(s->kind, kind);
	assert_string_equal(type,
			    kind == SCRY_SLOT_JUMP ? "R_X86_64_JUMP_SLOT" : "R_X86_64_GLOB_DAT");
	assert_int_equal(s->is_lazy, is_lazy);
	assert_int_equal(s->is_relro, is_relro);
	assert_true(s->is_sure);
	assert_true(s->definition == f.functions.rows[0].address);
	assert_true(is_lazy == (s->value != s->definition));
	done(&f);

	child_ask(&c, "call 3", "sum ");
	look(c.pid, &f, "work_fold@libwork");
	s = slot_of(&f, 0);
	assert_true(s && !s->is_lazy && s->value == f.functions.rows[0].address);
	done(&f);
	child_end(&c);
}

static void test_lazy(void **state)
{
	see_way("target_caller_lazy", true, SCRY_SLOT_JUMP, false);
}

static void test_now(void **state)
{
	see_way("target_caller_now", false, SCRY_SLOT_JUMP, true);
}

static void test_no_plt(void **state)
{
	see_way("target_caller_noplt", false, SCRY_SLOT_GOT, true);
}

static void test_ibt(void **state)
{
	see_way("target_caller_ibt", true, SCRY_SLOT_JUMP, false);
}

static void test_no_pie(void **state)
{
	see_way("target_caller_nopie", true, SCRY_SLOT_JUMP, false);
}

static void test_relr(void **state)
{
	see_way("target_caller_relr", true, SCRY_SLOT_JUMP, false);
}

static void test_musl(void **state)
{
	see_way("target_caller_musl", false, SCRY_SLOT_JUMP, false);
}

/* strlen of glibc is an IFUNC: asked for by name, its slots show what the resolver chose. */
static void test_ifunc(void **state)
{
	const struct scry_slot *s;
	uint64_t chosen;
	struct found f;
	struct child c;

	assert_true(child_start(&c, "target_caller_now", NULL));
	chosen = where(&c, "strlen"); /* dlsym asks the resolver */
	look(c.pid, &f, "strlen@libc.so.6");
	assert_int_equal(f.functions.count, 1);
	assert_true(f.functions.rows[0].is_ifunc);
	assert_true(f.functions.rows[0].address != chosen);
	s = slot_of(&f, 0);
	assert_true(s && !s->is_lazy && s->value == chosen && s->definition == chosen);
	assert_true(f.slots.implementations[0] == chosen);
	done(&f);
	child_end(&c);

	/* Lazy in the program: what it will reach is known from slots of other objects, if at all.
	 */
	assert_true(child_start(&c, "target_caller_lazy", NULL));
	chosen = where(&c, "strlen");
	look(c.pid, &f, "strlen@libc.so.6");
	s = slot_of(&f, 0);
	assert_true(s && s->is_lazy && s->value != chosen);
	assert_true(s->definition == f.slots.implementations[0]);
	assert_true(s->definition == chosen || s->definition == 0);
	done(&f);
	child_ask(&c, "call 1", "sum ");
	look(c.pid, &f, "strlen@libc.so.6");
	s = slot_of(&f, 0);
	assert_true(s && !s->is_lazy && f.slots.implementations[0] == chosen);
	done(&f);
	child_end(&c);
}

/* A static program reaches its own IFUNCs through IRELATIVE slots. */
static void test_static(void **state)
{
	const char *names[] = {"target_caller_static", "target_caller_static_pie"};

	for (int n = 0; n < 2; n++) {
		size_t irelative = 0;
		struct found f;
		struct child c;

		if (!child_start(&c, names[n], NULL))
			continue;
		look(c.pid, &f, "strlen");
		assert_true(f.functions.count == 1 && f.functions.rows[0].is_ifunc);
		for (size_t i = 0; i < f.slots.count; i++)
			irelative += f.slots.rows[i].kind == SCRY_SLOT_IRELATIVE;
		assert_true(irelative >= 1);
		assert_true(f.slots.implementations[0] != 0);
		assert_int_equal(scry_symbols_find(&f.lm, "0x1@target", &f.functions), -ENOENT);
		done(&f);
		/* The chosen one is a function of the C library. */
		child_end(&c);
	}
}

/* libwork calls its own exported work_mix through its PLT; so does the plug-in, once opened. */
static void test_dlopen(void **state)
{
	const char *asks[] = {"open " SCRY_TARGET_DIR "/libplug.so",
			      "dlmopen " SCRY_TARGET_DIR "/libplug.so"};
	struct found f;
	struct child c;

	assert_true(child_start(&c, "target_loader", NULL));
	child_ask(&c, asks[0], "opened");
	look(c.pid, &f, "work_mix@libwork.so");
	assert_int_equal(f.functions.count, 1);
	assert_int_equal(f.slots.count, 2);
	for (size_t i = 0; i < 2; i++) {
		const struct scry_slot *s = &f.slots.rows[i];
		bool is_plug = scry_linkmap_is_named(&f.lm.objects[s->object], "libplug.so");

		assert_int_equal(s->is_lazy, !is_plug); /* its constructor has used it */
		assert_true(s->is_sure && s->definition == f.functions.rows[0].address);
	}
	done(&f);
	/* Another namespace: its own libwork, and slots that lead there. */
	child_ask(&c, asks[1], "opened");
	look(c.pid, &f, "work_mix@libwork.so");
	assert_int_equal(f.functions.count, 2);
	assert_int_equal(f.slots.count, 4);
	for (size_t i = 0; i < 4; i++) {
		const struct scry_slot *s = &f.slots.rows[i];
		const struct scry_function *fn = &f.functions.rows[s->function];

		assert_int_equal(f.lm.objects[s->object].space, f.lm.objects[fn->object].space);
		assert_true(s->is_sure && s->definition == fn->address);
	}
	done(&f);
	child_end(&c);
}

/* Asked for by one name, reached by slots of another: __libc_malloc is malloc. */
static void test_aliases(void **state)
{
	size_t by_name, by_alias;
	struct found f;
	struct child c;

	assert_true(child_start(&c, "target_caller_now", NULL));
	look(c.pid, &f, "calloc@libc.so.6");
	by_name = f.slots.count;
	done(&f);
	look(c.pid, &f, "__libc_calloc@libc.so.6");
	by_alias = f.slots.count;
	done(&f);
	assert_true(by_name > 0);
	assert_int_equal(by_name, by_alias);
	child_end(&c);
}

/* Everything in everything: no slot is told twice, and each is one of readelf's. */
static void test_all(void **state)
{
	struct found f;
	struct child c;

	assert_true(child_start(&c, "target_caller_lazy", NULL));
	where(&c, "work_fold"); /* now what it calls between two answers is bound */
	look(c.pid, &f, "*");
	assert_true(f.functions.count > 1000);
	assert_true(f.slots.count > 20);
	for (size_t i = 0; i < f.slots.count; i++)
		for (size_t j = 0; j < i; j++)
			assert_true(f.slots.rows[i].address != f.slots.rows[j].address);
	done(&f);
	child_end(&c);
}

static size_t lazy_slots(const struct found *f, bool is_sure)
{
	size_t n = 0;

	for (size_t i = 0; i < f->slots.count; i++)
		n += f->slots.rows[i].is_lazy && f->slots.rows[i].is_sure == is_sure;
	return n;
}

/* Two definitions from the start: the order is known, and the first one has the slot. */
static void test_interposed(void **state)
{
	const struct scry_slot *s;
	struct found f;
	struct child c;
	bool is_started;

	setenv("LD_PRELOAD", SCRY_TARGET_DIR "/libover.so", 1);
	is_started = child_start(&c, "target_caller_lazy", NULL);
	unsetenv("LD_PRELOAD");
	assert_true(is_started);
	look(c.pid, &f, "work_fold@libover.so");
	assert_true(f.functions.rows[0].address == where(&c, "work_fold"));
	s = slot_of(&f, 0);
	assert_true(s && s->is_lazy && s->is_sure && s->definition == f.functions.rows[0].address);
	done(&f);
	look(c.pid, &f, "work_fold@libwork.so");
	assert_null(slot_of(&f, 0));
	done(&f);
	child_ask(&c, "call 1", "sum ");
	look(c.pid, &f, "work_fold@libover.so");
	s = slot_of(&f, 0);
	assert_true(s && !s->is_lazy);
	done(&f);
	look(c.pid, &f, "work_fold");
	assert_int_equal(f.functions.count, 2);
	assert_int_equal(f.slots.elsewhere, 0);
	done(&f);
	child_end(&c);
}

/* Two definitions that were dlopen'ed: which one a lazy slot will get is not known from outside. */
static void test_unsure(void **state)
{
	struct found f;
	struct child c;

	assert_true(child_start(&c, "target_loader", NULL));
	child_ask(&c, "open " SCRY_TARGET_DIR "/libplug.so", "opened");
	look(c.pid, &f, "work_mix");
	assert_int_equal(lazy_slots(&f, true), 1); /* of libwork itself */
	assert_int_equal(lazy_slots(&f, false), 0);
	done(&f);
	child_ask(&c, "open " SCRY_TARGET_DIR "/libover.so", "opened");
	look(c.pid, &f, "work_mix");
	assert_int_equal(f.functions.count, 2);
	assert_int_equal(lazy_slots(&f, true), 0);
	assert_int_equal(lazy_slots(&f, false), 2);
	done(&f);
	child_end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lazy),   cmocka_unit_test(test_now),
		cmocka_unit_test(test_no_plt), cmocka_unit_test(test_ibt),
		cmocka_unit_test(test_no_pie), cmocka_unit_test(test_musl),
		cmocka_unit_test(test_ifunc),  cmocka_unit_test(test_static),
		cmocka_unit_test(test_dlopen), cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_all),    cmocka_unit_test(test_interposed),
		cmocka_unit_test(test_unsure), cmocka_unit_test(test_relr),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
