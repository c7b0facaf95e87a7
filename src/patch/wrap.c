/* See wrap.h. */
#include "patch/wrap.h"

#include <string.h>

#include "scry/patch.h"

#define PAGE 4096u
#define THUNKS_BYTES (SCRY_WRAP_THUNKS * SCRY_WRAP_THUNK_BYTES)

extern const uint8_t scry_wrap_return[], scry_wrap_return_words[], scry_wrap_return_end[];

static size_t distance(const uint8_t *from, const uint8_t *to)
{
	return (size_t)((uintptr_t)to - (uintptr_t)from);
}

static bool is_any(const struct scry_patch_object *o)
{
	bool is = false;

	for (size_t i = 0; i < o->entry_count; i++)
		is |= o->entries[i].kind == SCRY_PATCH_WRAP;
	return is;
}

static uint64_t pages(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

uint64_t scry_wrap_text_bytes(const struct scry_patch_object *o)
{
	return is_any(o) ? pages(THUNKS_BYTES + distance(scry_wrap_return, scry_wrap_return_end))
			 : 0;
}

uint64_t scry_wrap_data_bytes(const struct scry_patch_object *o)
{
	return is_any(o) ? pages(sizeof(struct scry_wrap_table)) : 0;
}

static void put_thunk(uint32_t i, uint8_t *at)
{
	const int32_t jump = (int32_t)(THUNKS_BYTES - i * SCRY_WRAP_THUNK_BYTES - 10);

	at[0] = 0x68; /* push $i */
	memcpy(at + 1, &i, 4);
	at[5] = 0xe9; /* jmp */
	memcpy(at + 6, &jump, 4);
	memset(at + 10, 0xcc, SCRY_WRAP_THUNK_BYTES - 10);
}

void scry_wrap_lay_thunks(const struct scry_patch_object *o, uint64_t object,
			  const struct scry_wrap_place *place, const struct scry_wrap_state *state,
			  uint8_t *code)
{
	uint64_t words[3 + SCRY_WRAP_FUNCTIONS] = {state->mask, state->bytes, place->table};

	for (uint32_t i = 0; i < SCRY_WRAP_THUNKS; i++)
		put_thunk(i, code + (size_t)i * SCRY_WRAP_THUNK_BYTES);
	for (size_t i = 0; i < o->entry_count; i++)
		if (o->entries[i].kind == SCRY_PATCH_WRAP)
			words[3 + i] = object + o->entries[i].original;
	memcpy(code + THUNKS_BYTES, scry_wrap_return,
	       distance(scry_wrap_return, scry_wrap_return_end));
	memcpy(code + THUNKS_BYTES + distance(scry_wrap_return, scry_wrap_return_words), words,
	       sizeof(words));
}

void scry_wrap_words(uint32_t number, uint64_t handler, const struct scry_wrap_place *place,
		     const struct scry_wrap_state *state, uint64_t ret[SCRY_WRAP_WORDS])
{
	const uint64_t missed = place->table + offsetof(struct scry_wrap_table, missed);
	const uint64_t words[SCRY_WRAP_WORDS] = {handler,
						 state->mask,
						 state->bytes,
						 place->table,
						 place->text,
						 (uint64_t)number << 56,
						 missed + 8ull * number};

	memcpy(ret, words, sizeof(words));
}

_Static_assert(SCRY_WRAP_FUNCTIONS == SCRY_OBJECT_ENTRIES_MAX, "a number for each");
_Static_assert(sizeof(struct scry_wrap_call) == 64, "patch/wrap.S");
_Static_assert(sizeof(struct scry_patch_return) == 56, "patch/wrap.S");
_Static_assert(sizeof(struct scry_patch_call) == 128, "patch/wrap.S");
