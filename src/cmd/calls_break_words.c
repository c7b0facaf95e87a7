/* See calls_break_words.h. */
#include "cmd/calls_break_words.h"

#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

#define LOWEST 65536u
#define HIGHEST (1ull << 47)

/* Up to its NUL, or `length`; `max` bytes at most. Words written, 0: there is no string. */
static size_t put_text(const struct scry_mem *mem, const uint64_t *arguments, uint32_t cookie,
		       uint32_t max, uint64_t *ret)
{
	uint32_t text_arg = scry_call_cookie_text_arg(cookie);
	enum scry_call_text text = scry_call_cookie_text(cookie);
	uint64_t from = arguments[text_arg - 1], length = arguments[text_arg], want;
	char bytes[SCRY_CALL_TEXT_MAX + 1];
	bool is_cut;
	size_t n;
	ssize_t got;

	if (from < LOWEST || from > HIGHEST - SCRY_CALL_TEXT_MAX)
		return 0;
	if (text == SCRY_CALL_TEXT_BOTH)
		length = (uint64_t)(int64_t)(int32_t)length;
	if (text == SCRY_CALL_TEXT_NUL || (int64_t)length < 0)
		length = ~0ull;
	want = length <= max ? length : max + 1ull;
	got = want ? scry_mem_read_some(mem, from, bytes, want) : 0;
	if (got < 0)
		return 0;
	n = text == SCRY_CALL_TEXT_LENGTH && length != ~0ull ? (size_t)got
							     : strnlen(bytes, (size_t)got);
	is_cut = n > max || (n == (size_t)got && (uint64_t)got < want);
	n = n > max ? max : n;
	ret[(n + 7) / 8] = 0;
	memcpy(ret + 1, bytes, n);
	ret[0] = n | (is_cut ? SCRY_CALL_TEXT_CUT : 0);
	return 1 + (n + 7) / 8;
}

size_t scry_break_entry(const struct scry_mem *mem, const struct user_regs_struct *regs,
			uint32_t cookie, uint32_t max, uint64_t *ret)
{
	const uint64_t arguments[SCRY_CALL_ARGS_MAX + 1] = {regs->rdi, regs->rsi, regs->rdx,
							    regs->rcx, regs->r8,  regs->r9};
	uint32_t args = scry_call_cookie_args(cookie),
		 hook = cookie & ((1u << SCRY_CALL_HOOK_BITS) - 1);
	size_t n = 2 + args, words = 0;

	memcpy(ret + 2, arguments, args * sizeof(*ret));
	if (max > SCRY_CALL_TEXT_MAX)
		max = SCRY_CALL_TEXT_MAX;
	if (scry_call_cookie_text_arg(cookie))
		words = put_text(mem, arguments, cookie, max, ret + n);
	ret[0] = scry_call_head(regs->rsp, args, hook) | (words ? SCRY_CALL_TEXT : 0);
	return n + words;
}
