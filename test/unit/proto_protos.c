/*
 * Prototypes: what a text says, where its arguments are, what is fetched of them.
 */
#include "proto/plan.h"
#include "proto/protos.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"

static struct scry_protos *read_text(const char *text)
{
	struct scry_protos *p = scry_protos_new();

	assert_non_null(p);
	assert_int_equal(scry_protos_read(p, "text", text, strlen(text)), 0);
	return p;
}

static const struct scry_proto *only(const struct scry_protos *p, const char *name)
{
	const struct scry_proto *proto = scry_protos_find(p, name, "/lib/libx.so.1");

	assert_non_null(proto);
	return proto;
}

static void types(void **state)
{
	struct scry_protos *p =
		read_text("; comment\n\n# another\n"
			  "typedef pair = struct(char, long, array(short, 3));\n"
			  "  function int f ( int ,pair*, +string[arg1], format ) ; rest\n"
			  "hex(ulong) g(void);\n"
			  "octal h(octal, oct(ushort), string3, string0, int);\n"
			  "enum[short](A, B=0x10, C) e(enum(X=-1,Y));\n"
			  "file k(addr, void, int)\n"
			  "typedef off_t64 = ullong;\n"
			  "llong seek(int, off_t64);\n");
	const struct scry_proto *f = only(p, "f"), *h = only(p, "h"), *e = only(p, "e");
	const struct scry_type *pair = f->args[1]->inner;

	assert_int_equal(f->count, 4);
	assert_int_equal(f->right, 2);
	assert_int_equal(f->format, 4);
	assert_int_equal(f->args[0]->kind, SCRY_TYPE_INT);
	assert_int_equal(pair->kind, SCRY_TYPE_STRUCT);
	assert_int_equal(pair->size, 24);
	assert_int_equal(pair->align, 8);
	assert_int_equal(pair->offsets[1], 8);
	assert_int_equal(pair->offsets[2], 16);
	assert_int_equal(f->args[2]->lens, SCRY_LENS_STRING);
	assert_int_equal(f->args[2]->inner->length.kind, SCRY_LENGTH_ARG);
	assert_int_equal(f->args[2]->inner->length.value, 0);
	assert_true(f->args[2]->inner->length.is_zero);
	assert_string_equal(f->text, "typedef pair = struct(char, long, array(short, 3));\n"
				     "function int f ( int ,pair*, +string[arg1], format ) ;\n");
	assert_int_equal(only(p, "g")->count, 0);
	assert_int_equal(only(p, "g")->result->lens, SCRY_LENS_HEX);
	assert_int_equal(h->result->lens, SCRY_LENS_OCTAL);
	assert_int_equal(h->args[1]->kind, SCRY_TYPE_USHORT);
	assert_int_equal(h->args[2]->inner->length.value, 2);
	assert_int_equal(h->args[3]->inner->length.kind, SCRY_LENGTH_RESULT);
	assert_int_equal(e->result->kind, SCRY_TYPE_SHORT);
	assert_int_equal(e->result->count, 3);
	assert_int_equal(e->result->names[2].value, 0x11);
	assert_string_equal(e->args[0]->names[1].name, "Y");
	assert_int_equal(e->args[0]->names[1].value, 0);
	assert_int_equal(only(p, "k")->args[1]->lens, SCRY_LENS_HIDE);
	assert_int_equal(only(p, "seek")->result->kind, SCRY_TYPE_LONG);
	assert_int_equal(only(p, "seek")->args[1]->kind, SCRY_TYPE_ULONG);
	scry_protos_free(p);
}

/* A struct that points to itself; sections; the first of a name wins. */
static void sets(void **state)
{
	struct scry_protos *p = read_text("typedef l = struct;\n"
					  "typedef other = struct(int);\n"
					  "typedef l = struct(int, l*);\n"
					  "void f(l*);\n"
					  "[liba.so*]\nint a(sql(string));\nint both(int);\n"
					  "[libb.so* named]\nint both(long);\nint both(char);\n");
	const struct scry_proto *f = only(p, "f");

	assert_ptr_equal(f->args[0]->inner->fields[1]->inner, f->args[0]->inner);
	assert_string_equal(f->text,
			    "typedef l = struct;\ntypedef l = struct(int, l*);\nvoid f(l*);\n");
	assert_null(scry_protos_find(p, "a", "/x/libb.so.1"));
	assert_int_equal(scry_protos_find(p, "a", "/x/liba.so.1")->args[0]->marks,
			 SCRY_MARK_SURE | SCRY_MARK_SQL);
	assert_int_equal(scry_protos_find(p, "both", "liba.so")->args[0]->kind, SCRY_TYPE_INT);
	assert_int_equal(scry_protos_find(p, "both", "libb.so")->args[0]->kind, SCRY_TYPE_LONG);
	assert_true(scry_protos_find(p, "both", "libb.so")->is_named_only);
	scry_protos_free(p);
}

static void refused(void **state)
{
	static const char *const lines[] = {
		"int f(integer);",
		"int f(int",
		"int f(int long);",
		"int f();\nint (int);",
		"typedef x int;",
		"typedef x = struct;\ntypedef x = int;",
		"struct(struct) f();",
		"array(int, 3) f();",
		"int f(array(int));",
		"int f(array(int, arg));",
		"int f(enum(A B));",
		"int f(string[);",
		"int f(format, format);",
		"int f(hex int);",
		"typedef x = struct;\nint f(x);",
		"int f(array(void, 2)*);",
		"[lib",
		"[lib other]",
		"import \"/etc/passwd\";",
		"int f(array(struct(array(long, 2147483647)), 2147483647));",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct scry_protos *p = scry_protos_new();

		scry_error_clear();
		assert_int_equal(scry_protos_read(p, "text", lines[i], strlen(lines[i])), -EINVAL);
		assert_memory_equal(scry_error(), "text:", 5);
		scry_protos_free(p);
	}
}

static int nested(unsigned int levels)
{
	struct scry_protos *p = scry_protos_new();
	struct scry_buf text = {0};
	int r;

	scry_buf_printf(&text, "int f(");
	for (unsigned int i = 0; i < levels; i++)
		scry_buf_printf(&text, "struct(int, ");
	scry_buf_printf(&text, "long");
	for (unsigned int i = 0; i < levels; i++)
		scry_buf_printf(&text, ")");
	scry_buf_printf(&text, ");");
	r = scry_protos_read(p, "text", text.data, text.len);
	scry_buf_done(&text);
	scry_protos_free(p);
	return r;
}

static void deep(void **state)
{
	assert_int_equal(nested(12), 0);
	assert_int_equal(nested(60), 0);
	assert_int_equal(nested(100), -EINVAL);
}

static int read_as_file(struct scry_protos *p, const char *text)
{
	char path[] = "/tmp/proto-XXXXXX";
	int r, fd = mkstemp(path);

	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	r = scry_protos_read_file(p, path);
	unlink(path);
	return r;
}

/* A file that defines a name twice is mistaken; one may replace what another has defined. */
static void defined_twice(void **state)
{
	struct scry_protos *p = scry_protos_new();

	assert_int_equal(read_as_file(p, "typedef a = int;\nint f(a);\n"), 0);
	assert_int_equal(read_as_file(p, "typedef a = long;\nint g(a);\n"), 0);
	assert_int_equal(scry_protos_find(p, "f", "libx.so")->args[0]->kind, SCRY_TYPE_INT);
	assert_int_equal(scry_protos_find(p, "g", "libx.so")->args[0]->kind, SCRY_TYPE_LONG);
	assert_int_equal(read_as_file(p, "typedef b = struct;\ntypedef b = struct(int, b*);\n"), 0);
	scry_error_clear();
	assert_int_equal(read_as_file(p, "typedef c = int;\ntypedef c = struct(int, int);\n"),
			 -EINVAL);
	assert_non_null(strstr(scry_error(), ":2: a typedef of that name is in this file already"));
	assert_int_equal(read_as_file(p, "typedef d = struct;\ntypedef d = struct(int);\n"
					 "typedef d = struct(long);\n"),
			 -EINVAL);
	scry_protos_free(p);
}

static void is_at(const struct scry_place *place, int first, int second)
{
	assert_int_equal(place->at[0], first);
	assert_int_equal(place->at[1], second);
}

/* As gcc places them. */
static void places(void **state)
{
	struct scry_protos *p = read_text(
		"struct(long,long,long) f(float, struct(int,int), struct(double,char), "
		"struct(long,long,long), int, int, int, int, struct(float,float,float), char);\n"
		"struct(double, int) "
		"g(double,double,double,double,double,double,double,double,double);\n");
	struct scry_type_places at;

	scry_places_find(only(p, "f"), &at);
	assert_true(at.result.is_memory); /* rdi is taken */
	is_at(&at.args[0], SCRY_AT_VECTOR, SCRY_AT_NOWHERE);
	is_at(&at.args[1], SCRY_AT_REGISTER + 1, SCRY_AT_NOWHERE);
	is_at(&at.args[2], SCRY_AT_VECTOR + 1, SCRY_AT_REGISTER + 2);
	assert_true(at.args[3].is_memory);
	assert_int_equal(at.args[3].at[0], SCRY_AT_STACK);
	is_at(&at.args[6], SCRY_AT_REGISTER + 5, SCRY_AT_NOWHERE);
	is_at(&at.args[7], SCRY_AT_STACK + 3, SCRY_AT_NOWHERE);
	is_at(&at.args[8], SCRY_AT_VECTOR + 2, SCRY_AT_VECTOR + 3);
	is_at(&at.args[9], SCRY_AT_STACK + 4, SCRY_AT_NOWHERE);
	scry_places_find(only(p, "g"), &at);
	is_at(&at.result, SCRY_AT_VECTOR, SCRY_AT_RAX);
	is_at(&at.args[8], SCRY_AT_STACK, SCRY_AT_NOWHERE);
	scry_protos_free(p);
}

static struct scry_plan plan_of(const struct scry_protos *p, const char *name, bool is_sure_only)
{
	const struct scry_plan_opts opts = {.string_max = 64, .is_sure_only = is_sure_only};
	struct scry_plan plan;

	scry_plan_make(only(p, name), &opts, &plan);
	return plan;
}

static void plans(void **state)
{
	struct scry_protos *p =
		read_text("int plain(int, addr, long);\n"
			  "int query(addr, mysql(string(array(char, arg3)*)), ulong);\n"
			  "long readn(int, +string[retval], ulong);\n"
			  "int list(struct(int, string*)*);\n"
			  "typedef l = struct;\ntypedef l = struct(l*, l*);\nvoid tree(l*);\n");
	struct scry_plan plan = plan_of(p, "plain", false);

	assert_int_equal(plan.args, 3);
	assert_false(plan.is_needed);
	plan = plan_of(p, "query", true);
	assert_int_equal(plan.head.entry, 1);
	assert_false(plan.is_unsure);
	assert_int_equal(plan.ops[0].from, SCRY_AT_REGISTER + 1);
	assert_int_equal(plan.ops[0].length, SCRY_FETCH_COUNT);
	assert_int_equal(plan.ops[0].length_from, SCRY_AT_REGISTER + 2);
	assert_int_equal(plan.ops[0].max, 64);
	plan = plan_of(p, "readn", false);
	assert_int_equal(plan.head.entry, 0);
	assert_int_equal(plan.head.back, 1);
	assert_int_equal(plan.head.saved_count, 1);
	assert_int_equal(plan.head.saved[0], SCRY_AT_REGISTER + 1);
	assert_int_equal(plan.ops[0].from, SCRY_AT_SAVED);
	assert_int_equal(plan.ops[0].length_from, SCRY_AT_RAX);
	assert_false(plan_of(p, "readn", true).is_needed);
	plan = plan_of(p, "list", false);
	assert_int_equal(plan.head.entry, 3);
	assert_int_equal(plan.ops[1].from, SCRY_AT_PART);
	assert_int_equal(plan.ops[1].part, 0);
	assert_int_equal(plan.ops[1].offset, 8);
	assert_int_equal(plan.ops[2].part, 1);
	plan = plan_of(p, "tree", false);
	assert_int_equal(plan.head.entry, SCRY_PLAN_OPS_MAX);
	assert_true(plan.left_out > 0);
	scry_protos_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types), cmocka_unit_test(sets),	  cmocka_unit_test(refused),
		cmocka_unit_test(deep),	 cmocka_unit_test(defined_twice), cmocka_unit_test(places),
		cmocka_unit_test(plans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
