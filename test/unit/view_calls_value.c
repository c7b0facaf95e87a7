/*
 * A call from its registers to its line: what a plan names is fetched from a piece of memory whose
 * rest cannot be read (proto/fetch), and shown by its prototype (view/calls_value).
 */
#include "proto/fetch.h"
#include "proto/plan.h"
#include "proto/protos.h"
#include "view/calls_value.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE 0x700000ull

struct memory {
	char bytes[1024];
	size_t used;
};

static uint64_t add(struct memory *m, const void *bytes, size_t size)
{
	uint64_t at = BASE + m->used;

	assert_true(m->used + size <= sizeof(m->bytes));
	memcpy(m->bytes + m->used, bytes, size);
	m->used += (size + 7) & ~(size_t)7;
	return at;
}

static uint64_t add_text(struct memory *m, const char *text)
{
	return add(m, text, strlen(text) + 1);
}

static ssize_t read_memory(void *arg, uint64_t address, void *to, size_t size)
{
	const struct memory *m = arg;

	if (address < BASE || address >= BASE + m->used)
		return -EFAULT;
	size = size < BASE + m->used - address ? size : (size_t)(BASE + m->used - address);
	memcpy(to, m->bytes + (address - BASE), size);
	return (ssize_t)size;
}

/* What is shown of a call, and of its return with `rax` after `change`. */
static struct scry_buf shown(const char *prototype, struct memory *m,
			     const struct scry_fetch_from *regs, void (*change)(struct memory *m))
{
	const struct scry_plan_opts opts = {.string_max = 16};
	struct {
		struct scry_event head;
		struct scry_ev_call call;
		uint64_t more[SCRY_CALL_MORE_MAX];
	} call = {.head.type = SCRY_EVENT_CALL};
	struct {
		struct scry_event head;
		struct scry_ev_return ret;
		uint64_t more[SCRY_CALL_MORE_MAX];
	} ret = {.head.type = SCRY_EVENT_RETURN};
	const struct scry_call_image entry = {.call = &call.head},
				     whole = {.call = &call.head, .ret = &ret.head};
	struct scry_fetch_from from = *regs;
	struct scry_protos *p = scry_protos_new();
	struct scry_buf text = {0};
	const struct scry_call_out out = {.text = &text};
	const struct scry_proto *proto;
	struct scry_plan plan;
	bool need_comma = false;

	assert_int_equal(scry_protos_read(p, "text", prototype, strlen(prototype)), 0);
	proto = scry_protos_find(p, "f", "");
	assert_non_null(proto);
	scry_plan_make(proto, &opts, &plan);
	from.is_entry = true;
	from.string_max = opts.string_max;
	from.read = read_memory;
	from.arg = m;
	call.call.args = plan.args;
	memcpy(&call.call.arg1, from.registers, sizeof(from.registers));
	call.call.more_bytes =
		8 * (uint32_t)scry_plan_fetch(&from, &plan.head, plan.ops, call.more);
	scry_call_show_args(&entry, proto, 0, proto->right, &need_comma, &out);
	scry_buf_append(&text, " | ", 3);
	scry_plan_save(&from, &plan.head, from.saved);
	if (change)
		change(m);
	from.is_entry = false;
	ret.ret.result = from.rax;
	ret.ret.more_bytes = 8 * (uint32_t)scry_plan_fetch(&from, &plan.head, plan.ops, ret.more);
	if (proto->right < proto->count)
		scry_call_show_args(&whole, proto, proto->right, proto->count, &need_comma, &out);
	scry_buf_append(&text, ") = ", 4);
	scry_call_show_result(&whole, proto, &out);
	scry_protos_free(p);
	return text;
}

static void is_shown(const char *prototype, struct memory *m, const struct scry_fetch_from *regs,
		     void (*change)(struct memory *m), const char *want)
{
	struct scry_buf text = shown(prototype, m, regs, change);

	assert_string_equal(scry_buf_str(&text), want);
	scry_buf_done(&text);
}

static void numbers(void **state)
{
	struct memory m = {0};
	struct scry_fetch_from r = {.registers = {-1ull, 0xffffffff, 7, 8, 0x41, 0x1ff}};
	double two = 2.5;

	memcpy(&r.vectors[0], &two, sizeof(two));
	r.rax = 5;
	is_shown("int f(int, uint, octal, hex(ulong), char, bitvec(ushort));", &m, &r, NULL,
		 "-1, 4294967295, 07, 0x8, 'A', ~<9-15> | ) = 5");
	is_shown("double f(double, hide(int), bool(int), guess(long));", &m, &r, NULL,
		 "2.500000, true, 7 | ) = 2.500000");
	is_shown("bin(long) f(bin(int), bin(uint), bin(uint), bin(ulong));", &m,
		 &(struct scry_fetch_from){.registers = {5, 0, 0xfffffffe, 1ull << 63}, .rax = 1},
		 NULL,
		 "0b101, 0, 0b11111111111111111111111111111110, "
		 "0b1000000000000000000000000000000000000000000000000000000000000000 | ) = 0b1");
	is_shown("enum(A=5) f(enum[long](X=-1), enum(Y=7));", &m, &r, NULL, "X, -1 | ) = A");
}

static void flags(void **state)
{
	struct memory m = {0};

	is_shown("flags(A=1:3, B=2:3, C=4, D=12, E=0) f(flags(NONE=0, X=1, Y=2), "
		 "flags(R=0:3, W=1:3, ALL=0x70, ONE=0x10), flags(P=1), if(arg4:8, octal), "
		 "if(arg4:1, int));",
		 &m, &(struct scry_fetch_from){.registers = {0, 0x171, 0x42, 8, 9}, .rax = 13},
		 NULL, "NONE, W|ALL|0x100, 0x42, 010 | ) = A|C|D");
}

static void wide(void **state)
{
	static const int text[] = {'d', 0xe9, '\t', 0x1f600, 0xd800, 0x202e, 0};
	static const int more[20] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j',
				     'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's', 't'};
	struct memory m = {0};
	const uint64_t at = add(&m, text, sizeof(text));
	const uint64_t long_one = add(&m, more, sizeof(more));
	const struct scry_fetch_from r = {.registers = {at, 2, at, 0xe9, long_one},
					  .rax = UINT64_MAX};

	is_shown("string(int) f(string(array(int, zero)*), int, "
		 "string(array(int, zero(arg2))*), string(int), string(array(int, zero)*));",
		 &m, &r, NULL,
		 "\"d\303\251\\t\360\237\230\200\\154000\\20056\", 2, \"d\303\251\", '\303\251', "
		 "\"abcdefghijklmnop\"... | ) = -1");
}

static void pointers(void **state)
{
	struct memory m = {0};
	const uint64_t name = add_text(&m, "name"), longer = add_text(&m, "sixteen letters+1"),
		       just = add_text(&m, "sixteen letters!");
	const struct {
		uint64_t count, values;
		int numbers[2];
	} pair = {2, name, {3, 4}};
	uint64_t at = add(&m, &pair, sizeof(pair)), list[2] = {1, 0}, first, loop[2];
	struct scry_fetch_from r = {.registers = {name, longer, just, at, 0, 0x10}};

	is_shown("void f(string, string, string, struct(ulong, string, array(int, 2))*, string, "
		 "string);",
		 &m, &r, NULL,
		 "\"name\", \"sixteen letters+\"..., \"sixteen letters!\", { 2, \"name\", [ 3, 4 ] "
		 "}, nil, "
		 "0x10 | ) = <void>");
	is_shown("void f(string(array(char, 2)*), addr, array(char, 3)*, array(int, elt1)*);", &m,
		 &r, NULL, "\"na\", 0x700008, [ 's', 'i', 'x' ], 0x700038 | ) = <void>");
	first = add(&m, list, sizeof(list));
	list[0] = 2;
	list[1] = first;
	r.registers[0] = add(&m, list, sizeof(list));
	loop[0] = 3;
	loop[1] = BASE + m.used;
	r.registers[1] = add(&m, loop, sizeof(loop));
	is_shown("typedef l = struct;\ntypedef l = struct(long, l*);\nvoid f(l*, l*);", &m, &r,
		 NULL, "{ 2, { 1, nil } }, { 3, recurse } | ) = <void>");
}

/* Memory whose pointers all lead to itself, through 24 types: 2^24 of them were shown. */
static void is_bounded(void **state)
{
	struct memory m = {0};
	const struct scry_fetch_from r = {.registers = {BASE}};
	struct scry_buf types = {0}, text;
	const uint64_t self = BASE;

	for (int i = 0; i < 64; i++)
		add(&m, &self, sizeof(self));
	scry_buf_printf(&types, "typedef p0 = int*;\n");
	for (int i = 1; i < 25; i++)
		scry_buf_printf(&types, "typedef p%d = struct(p%d*,p%d*);\n", i, i - 1, i - 1);
	scry_buf_printf(&types, "int f(p24*);");
	text = shown(scry_buf_str(&types), &m, &r, NULL);
	assert_in_range(text.len, 1000, 20000);
	assert_non_null(strstr(scry_buf_str(&text), "}, ... }, ... }"));
	scry_buf_done(&types);
	scry_buf_done(&text);
}

static void write_result(struct memory *m)
{
	memcpy(m->bytes, "results", 8);
}

static void outs(void **state)
{
	struct memory m = {0};
	struct scry_fetch_from r = {.rax = 3};

	r.registers[0] = add_text(&m, "garbage");
	r.registers[1] = add_text(&m, "in");
	is_shown("long f(+string[retval], string);", &m, &r, write_result,
		 " | \"res\", \"in\") = 3");
	is_shown("string0 f(string, string);", &m, &r, NULL, "\"results\", \"in\" | ) = 0x3");
}

/* What a read that failed has left there is nobody's. */
static void failed(void **state)
{
	struct memory m = {0};
	struct scry_fetch_from r = {.registers = {3, add_text(&m, "secret"), 4}, .rax = -1ull};

	is_shown("long f(int, +string[retval], ulong);", &m, &r, NULL, "3 | , 0x700000, 4) = -1");
	is_shown("int f(int, +string(array(char, retval)*), ulong);", &m, &r, NULL,
		 "3 | , 0x700000, 4) = -1");
	r.rax = 3;
	is_shown("long f(int, +string[retval], ulong);", &m, &r, NULL, "3 | , \"sec\", 4) = 3");
}

static void formats(void **state)
{
	struct memory m = {0};
	struct scry_fetch_from r = {0};
	const uint64_t text = add_text(&m, "text"), stack[] = {text, 9};
	double one = 1.5;

	r.registers[0] = add_text(&m, "%s %5.1f %.*s%%");
	r.registers[1] = text;
	r.registers[2] = 2;
	r.registers[3] = text;
	memcpy(&r.vectors[0], &one, sizeof(one));
	is_shown("int f(format);", &m, &r, NULL,
		 "\"%s %5.1f %.*s%%\", \"text\", 1.500000, 2, \"te\" | ) = 0");
	r.registers[0] = add_text(&m, "%d%d%d%d%d%s%d");
	r.stack = add(&m, stack, sizeof(stack));
	is_shown("int f(format);", &m, &r, NULL,
		 "\"%d%d%d%d%d%s%d\", 7340032, 2, 7340032, 0, 0, \"text\", 9 | ) = 0");
	r.registers[0] = add_text(&m, "%1$s");
	is_shown("int f(format);", &m, &r, NULL, "\"%1$s\" | ) = 0");
}

static void structs(void **state)
{
	struct memory m = {0};
	const uint64_t big[] = {1, 2, 3};
	struct scry_fetch_from r = {.rax = 0x200000001, .rdx = 'x'};

	r.stack = add(&m, big, sizeof(big));
	r.registers[0] = 0x400000003;
	is_shown("struct(int, int, char) f(struct(int, int), struct(long, long, long));", &m, &r,
		 NULL, "{ 3, 4 }, { 1, 2, 3 } | ) = { 1, 2, 'x' }");
	r.rax = r.stack;
	is_shown("struct(long, long, long) f(addr, int);", &m, &r, NULL,
		 "nil, 0 | ) = { 1, 2, 3 }");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),  cmocka_unit_test(flags),	  cmocka_unit_test(wide),
		cmocka_unit_test(pointers), cmocka_unit_test(is_bounded), cmocka_unit_test(outs),
		cmocka_unit_test(failed),   cmocka_unit_test(formats),	  cmocka_unit_test(structs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
