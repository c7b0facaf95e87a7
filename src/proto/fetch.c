/* See fetch.h. One pointer after the other: whoever is stopped has been waiting for longer. */
#include "proto/fetch.h"

#include <string.h>

#include "wire/call_format.h"

#define VARARGS_MAX 32u

struct fetching {
	const struct scry_fetch_from *from;
	const struct scry_call_plan *plan;
	uint64_t *begin, *at, *end;
	uint16_t parts[SCRY_PLAN_OPS_MAX]; /* words from `begin`, + 1; 0: not read */
};

struct wanted {
	uint64_t address;
	uint64_t limit; /* bytes that are recorded at most */
	bool is_text;	/* it ends at a NUL */
	bool is_cut;	/* there are more than `limit`, if no NUL comes before */
	uint16_t kind, flags;
};

/* Returns the part's place as in `parts`. */
static uint16_t put(struct fetching *f, const struct wanted *w)
{
	uint64_t room = (uint64_t)(f->end - f->at) * 8, limit = w->limit, n = 0, want;
	char bytes[SCRY_CALL_TEXT_MAX + 1];
	struct scry_call_part part = {.address = w->address, .kind = w->kind, .flags = w->flags};
	bool is_cut = w->is_cut;
	uint16_t place = (uint16_t)(f->at - f->begin + 1);
	ssize_t got;

	if (room < sizeof(part) + 8)
		return 0;
	room -= sizeof(part);
	is_cut |= limit > room || limit > SCRY_CALL_TEXT_MAX;
	limit = limit < room ? limit : room;
	limit = limit < SCRY_CALL_TEXT_MAX ? limit : SCRY_CALL_TEXT_MAX;
	want = limit + (w->is_text && is_cut);
	got = want ? f->from->read(f->from->arg, w->address, bytes, want) : 0;
	if (got <= 0)
		return 0;
	n = w->is_text ? strnlen(bytes, (size_t)got) : (uint64_t)got;
	if ((w->is_text && n == (uint64_t)got && (uint64_t)got < want) || n > limit ||
	    (!w->is_text && n == limit && is_cut))
		part.flags |= SCRY_PART_CUT;
	part.bytes = (uint32_t)(n < limit ? n : limit);
	f->at[2 + part.bytes / 8] = 0;
	memcpy(f->at, &part, sizeof(part));
	memcpy(f->at + 2, bytes, part.bytes);
	f->at += 2 + (part.bytes + 7) / 8;
	return place;
}

static void put_words(struct fetching *f, uint16_t kind, const uint64_t *words, uint32_t count)
{
	const struct scry_call_part part = {.bytes = 8 * count, .kind = kind};

	if (!count || (uint64_t)(f->end - f->at) < 2 + count)
		return;
	memcpy(f->at, &part, sizeof(part));
	memcpy(f->at + 2, words, 8ull * count);
	f->at += 2 + count;
}

static uint64_t word_of(const struct fetching *f, uint8_t at, uint8_t op, uint16_t offset)
{
	const struct scry_fetch_from *from = f->from;
	uint64_t word = 0;

	if (at == SCRY_AT_PART) {
		const uint64_t *part;
		struct scry_call_part head;

		if (op >= SCRY_PLAN_OPS_MAX || !f->parts[op])
			return 0;
		part = f->begin + f->parts[op] - 1;
		memcpy(&head, part, sizeof(head));
		if (offset + 8u <= head.bytes)
			memcpy(&word, (const char *)(part + 2) + offset, sizeof(word));
		return word;
	}
	if (at == SCRY_AT_RAX || at == SCRY_AT_RDX)
		return at == SCRY_AT_RAX ? from->rax : from->rdx;
	if (at >= SCRY_AT_SAVED)
		return from->is_entry ? 0 : from->saved[(at - SCRY_AT_SAVED) % SCRY_PLAN_SAVED_MAX];
	if (!from->is_entry)
		return 0;
	if (at >= SCRY_AT_STACK)
		return from->read(from->arg, from->stack + 8ull * (at - SCRY_AT_STACK), &word,
				  sizeof(word)) == sizeof(word)
			       ? word
			       : 0;
	return at < SCRY_AT_REGISTER + SCRY_CALL_ARGS_MAX ? from->registers[at] : 0;
}

static void fetch_one(struct fetching *f, const struct scry_fetch *op, uint32_t number)
{
	struct wanted w = {.address = word_of(f, op->from, op->part, op->offset),
			   .limit = op->max,
			   .is_text = op->length == SCRY_FETCH_NUL || op->length == SCRY_FETCH_BOTH,
			   .is_cut = op->length == SCRY_FETCH_NUL,
			   .flags = (op->flags & SCRY_FETCH_SQL ? SCRY_PART_SQL : 0) |
				    (op->flags & SCRY_FETCH_MYSQL ? SCRY_PART_MYSQL : 0) |
				    (op->flags & SCRY_FETCH_TEXT ? SCRY_PART_TEXT : 0)};
	uint64_t n;

	if (op->length == SCRY_FETCH_COUNT || op->length == SCRY_FETCH_BOTH) {
		n = word_of(f, op->length_from, op->length_part, op->length_offset);
		if (op->flags & SCRY_FETCH_INT)
			n = (uint64_t)(int64_t)(int32_t)n;
		if ((int64_t)n < 0 && op->flags & SCRY_FETCH_RESULT)
			n = 0;
		if ((int64_t)n < 0 && op->flags & SCRY_FETCH_SURE)
			w.is_text = w.is_cut = true;
		else if (n >= 1u << 20 || n * op->scale > op->max)
			w.is_cut = true;
		else
			w.limit = n * op->scale;
	}
	if (w.address)
		f->parts[number] = put(f, &w);
}

static void put_errno(struct fetching *f)
{
	const struct scry_fetch_from *from = f->from;
	uint64_t error = 0;

	if (!from->errno_address || ((uint32_t)from->rax != UINT32_MAX &&
				     (from->rax || !(f->plan->back_words & SCRY_BACK_ERRNO_NULL))))
		return;
	if (from->read(from->arg, from->errno_address, &error, 4) == 4)
		put_words(f, SCRY_PART_ERRNO, &error, 1);
}

static void put_registers(struct fetching *f, uint32_t vectors, uint32_t stack)
{
	const struct scry_fetch_from *from = f->from;
	const struct wanted words = {
		.address = from->stack,
		.limit = 8ull * (stack < SCRY_PLAN_STACK_MAX ? stack : SCRY_PLAN_STACK_MAX),
		.kind = SCRY_PART_STACK};

	put_words(f, SCRY_PART_VECTORS, from->vectors, vectors < 8 ? vectors : 8);
	if (!from->is_entry && f->plan->back_words & SCRY_BACK_RDX)
		put_words(f, SCRY_PART_RDX, &from->rdx, 1);
	if (!from->is_entry && f->plan->back_words & SCRY_BACK_ERRNO)
		put_errno(f);
	if (from->is_entry && stack)
		put(f, &words);
}

static void fetch_format(struct fetching *f, uint32_t number)
{
	const struct scry_call_plan *h = f->plan;
	struct scry_varargs args = {h->named_registers, h->named_vectors, h->named_stack};
	struct scry_call_part part;
	struct scry_conversion c;
	struct scry_format format;
	uint64_t *at = f->begin + f->parts[number] - 1, precision = 0;

	if (!f->parts[number])
		return;
	memcpy(&part, at, sizeof(part));
	part.flags |= SCRY_PART_FORMAT;
	memcpy(at, &part, sizeof(part));
	format = (struct scry_format){.at = (const char *)(at + 2),
				      .end = (const char *)(at + 2) + part.bytes};
	for (uint32_t i = 0; i < VARARGS_MAX && scry_format_next(&format, &c); i++) {
		uint32_t place = scry_varargs_next(&args, c.kind);
		uint64_t word = place < SCRY_AT_SAVED ? word_of(f, (uint8_t)place, 0, 0) : 0;
		struct wanted w = {.address = word,
				   .limit = f->from->string_max,
				   .is_text = true,
				   .is_cut = true,
				   .flags = SCRY_PART_TEXT};

		if (c.kind == SCRY_CONVERT_PRECISION)
			precision = word & 0x7fffffff;
		if (c.kind != SCRY_CONVERT_STRING && c.kind != SCRY_CONVERT_WIDE)
			continue;
		precision = c.is_star ? precision : c.precision;
		if (c.kind == SCRY_CONVERT_WIDE) {
			w.limit = w.limit ? scry_format_wide_bytes(&c, precision, (uint32_t)w.limit)
					  : 0;
			w.is_text = w.is_cut = false;
		} else if (c.is_limited && precision <= w.limit) {
			w.limit = precision;
			w.is_cut = false;
		}
		if (w.address)
			put(f, &w);
	}
	if (args.vectors > h->vectors || args.stack > h->stack)
		put_registers(f, args.vectors, args.stack);
}

size_t scry_plan_fetch(const struct scry_fetch_from *from, const struct scry_call_plan *plan,
		       const struct scry_fetch *ops, uint64_t *ret)
{
	struct fetching f = {.from = from,
			     .plan = plan,
			     .begin = ret,
			     .at = ret,
			     .end = ret + SCRY_CALL_MORE_MAX};
	uint32_t first = from->is_entry ? 0 : plan->entry;
	uint32_t count = from->is_entry ? plan->entry : plan->back;

	put_registers(&f, from->is_entry ? plan->vectors : plan->back_vectors, plan->stack);
	for (uint32_t i = 0; i < count && i < SCRY_PLAN_OPS_MAX; i++) {
		fetch_one(&f, &ops[first + i], i);
		if (ops[first + i].flags & SCRY_FETCH_FORMAT && from->is_entry)
			fetch_format(&f, i);
	}
	return (size_t)(f.at - f.begin);
}

void scry_plan_save(const struct scry_fetch_from *from, const struct scry_call_plan *plan,
		    uint64_t ret[SCRY_PLAN_SAVED_MAX])
{
	const struct fetching f = {.from = from, .plan = plan};

	for (uint32_t i = 0; i < plan->saved_count && i < SCRY_PLAN_SAVED_MAX; i++)
		ret[i] = word_of(&f, plan->saved[i], 0, 0);
}
