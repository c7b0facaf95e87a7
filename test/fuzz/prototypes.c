/*
 * Fuzzer of prototypes (proto/parse.c), of the plans that are made of them, and of what is shown of
 * hostile events by them.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main that makes up inputs
 * from words of the language, from a fixed seed. Whatever a text says: it is read or refused with a
 * sentence, its plans keep to their limits, what is shown is bounded.
 */
#include "fuzz.h"

#include "base/err.h"
#include "proto/plan.h"
#include "proto/protos.h"
#include "view/calls_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MORE_MAX 512u
#define TEXT_MAX 4096u

static void check_plan(const struct scry_proto *proto)
{
	const struct scry_plan_opts opts = {.string_max = 64};
	const struct scry_call_plan *h;
	struct scry_plan plan;

	scry_plan_make(proto, &opts, &plan);
	h = &plan.head;
	must(plan.args <= SCRY_CALL_ARGS_MAX, "too many registers");
	must(h->entry <= SCRY_PLAN_OPS_MAX && h->back <= SCRY_PLAN_OPS_MAX, "too many operations");
	must(h->stack <= SCRY_PLAN_STACK_MAX && h->vectors <= 8, "too many words");
	must(h->saved_count <= SCRY_PLAN_SAVED_MAX, "too much is kept");
	for (uint32_t i = 0; i < h->entry + h->back; i++) {
		const struct scry_fetch *op = &plan.ops[i];
		uint32_t own = i < h->entry ? i : i - h->entry;

		must(op->max <= SCRY_CALL_TEXT_MAX, "too big a part");
		must(op->from != SCRY_AT_PART || op->part < own, "a part that comes later");
		must(op->length_from != SCRY_AT_PART || op->length_part < own, "a later length");
	}
}

#define BASE 0x50000ull

/* One part of memory at BASE, with pointers into itself. */
static void make_part(uint8_t *more, size_t size)
{
	struct scry_call_part part = {
		.address = BASE, .bytes = (uint32_t)(size - sizeof(part)), .flags = more[0]};

	memcpy(more, &part, sizeof(part));
	for (size_t at = sizeof(part); at + 8 <= size; at += 8) {
		uint64_t word;

		memcpy(&word, more + at, 8);
		if (word % 3 == 0)
			word = BASE + word % size;
		memcpy(more + at, &word, 8);
	}
}

/* The same bytes as what follows a call and its return. */
static void show(const struct scry_proto *proto, const uint8_t *data, size_t size, bool is_part)
{
	static _Alignas(8) struct {
		struct scry_event head;
		struct scry_ev_call call;
		uint8_t more[MORE_MAX];
	} call = {.head.type = SCRY_EVENT_CALL};
	static _Alignas(8) struct {
		struct scry_event head;
		struct scry_ev_return ret;
		uint8_t more[MORE_MAX];
	} ret = {.head.type = SCRY_EVENT_RETURN};
	const struct scry_call_image image = {.call = &call.head, .ret = &ret.head};
	struct scry_buf text = {0};
	struct scry_call_values values = {0};
	const struct scry_call_out to_text = {.text = &text}, to_values = {.values = &values};
	bool need_comma = false;

	size = size < MORE_MAX ? size & ~(size_t)7 : MORE_MAX;
	memset(call.more, 0, sizeof(call.more));
	memset(&call.call, 0, sizeof(call.call));
	memcpy(&call.call.arg1, data, size < 48 ? size : 48);
	memcpy(call.more, data, size);
	memcpy(ret.more, data, size);
	call.call.args = 6;
	call.call.more_bytes = ret.ret.more_bytes = (uint32_t)size;
	if (is_part && size > sizeof(struct scry_call_part)) {
		make_part(call.more, size);
		memcpy(ret.more, call.more, size);
		call.call.arg1 = call.call.arg2 = BASE;
		call.call.arg3 = BASE + 8;
	}
	ret.ret.result = call.call.arg1;
	scry_call_show_args(&image, proto, 0, proto->count, &need_comma, &to_text);
	scry_call_show_result(&image, proto, &to_text);
	need_comma = false;
	scry_call_show_args(&image, proto, 0, proto->count, &need_comma, &to_values);
	scry_call_show_result(&image, proto, &to_values);
	must(text.len < 16u << 20, "too much is shown");
	scry_buf_done(&text);
	scry_call_values_done(&values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scry_protos *p = scry_protos_new();
	size_t length = size < TEXT_MAX ? size : TEXT_MAX;
	const struct scry_proto *proto;
	int r;

	must(p != NULL, "no memory");
	scry_error_clear();
	r = scry_protos_read(p, "fuzz", (const char *)data, length);
	must(r == 0 || *scry_error(), "refused without a sentence");
	for (size_t i = 0; (proto = scry_protos_at(p, i)) && i < 64; i++) {
		struct scry_protos *again = scry_protos_new();

		check_plan(proto);
		show(proto, data, size, false);
		show(proto, data, size, true);
		must(scry_protos_find(p, proto->name, "/lib/x.so") || proto->library, "not found");
		must(again && scry_protos_read(again, "again", proto->text, strlen(proto->text)) ==
				      0,
		     "a text that cannot be read again");
		scry_protos_free(again);
	}
	scry_protos_free(p);
	return 0;
}

#ifndef SCRY_LIBFUZZER
#define ROUNDS 20000

int main(void)
{
	static const char *const words[] = {"int",
					    "uint",
					    "long",
					    "ulong",
					    "char",
					    "short",
					    "float",
					    "double",
					    "void",
					    "addr",
					    "string",
					    "+",
					    "*",
					    "struct",
					    "array",
					    "(",
					    ")",
					    ",",
					    ";",
					    "enum",
					    "[",
					    "]",
					    "A=1",
					    "B",
					    "format",
					    "hex",
					    "oct",
					    "hide",
					    "bool",
					    "bitvec",
					    "guess",
					    "arg1",
					    "arg2",
					    "elt1",
					    "retval",
					    "zero",
					    "string3",
					    "typedef t = struct;\n",
					    "typedef t = struct(int, t*);\n",
					    "t",
					    "t*",
					    "4",
					    "f(",
					    "\n",
					    " ",
					    "int f(",
					    ");\n",
					    "sql(",
					    "sure(",
					    "[lib*]\n",
					    "struct(",
					    "array(int, ",
					    "string[",
					    "enum(",
					    ")",
					    ",",
					    "int",
					    "*",
					    ");\n"};
	uint32_t seed = 1;
	char text[512];

	for (int i = 0; i < ROUNDS; i++) {
		size_t n = 0, count = 4 + (seed >> 8) % 40;

		memcpy(text, "int f(", 6);
		n = i % 4 ? 6 : 0;
		for (size_t w = 0; w < count; w++) {
			const char *word;

			seed = seed * 1103515245u + 12345u;
			word = words[(seed >> 16) % (sizeof(words) / sizeof(words[0]))];
			if (n + strlen(word) >= sizeof(text))
				break;
			memcpy(text + n, word, strlen(word));
			n += strlen(word);
		}
		LLVMFuzzerTestOneInput((const uint8_t *)text, n);
	}
	printf("1..1\nok 1 - prototypes: %d inputs\n", ROUNDS);
	return 0;
}
#endif
