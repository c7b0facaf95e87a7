/*
 * Memory that the function is sure to read itself is loaded, so far as it will be: up to a length,
 * or within the pages in which no NUL has been met yet. All other is read by process_vm_readv of
 * ourselves, which fails where a load would trap: as many pointers in one call as do not hang on
 * each other; but what lies in the page of the return address is loaded. No register that a
 * function may use is changed: vector registers are only stored.
 *
 * The record lies in shared memory, which others than we write, with other rights: nothing in it is
 * read again as a pointer, a length or a format. Such a word is read again where it came from.
 */
#include "agent/fetch.h"

#include "agent/alignment.h"
#include "wire/call_format.h"

#define EFAULT_ 14
#define PAGE_MASK 4095u
#define LOWEST 65536u
#define HIGHEST (1ull << 47)
#define ONES 0x0101010101010101ull
#define BATCH_MAX 8u
#define VARARGS_MAX 32u
#define WINDOW_BYTES 64u
#define FORMAT_MAX 256u /* bytes of a format in which strings are looked for */

struct read { /* that waits for its turn */
	struct scry_call_part *part;
	uint64_t address;
	uint32_t limit;	 /* bytes that are recorded at most */
	uint32_t bytes;	 /* that are read */
	uint8_t op;	 /* + 1; 0: none */
	uint8_t kind;	 /* enum scry_part_kind */
	uint8_t is_text; /* it ends at a NUL */
	uint8_t is_cut;	 /* there are more than `limit`, if no NUL comes before */
};

struct work {
	struct scry_fetching *f;
	uint64_t *begin, *at, *end;
	/* Of operations: where what they read lies, how much of it was read; where its part is. */
	uint64_t address[SCRY_PLAN_OPS_MAX];
	uint16_t bytes[SCRY_PLAN_OPS_MAX], parts[SCRY_PLAN_OPS_MAX]; /* parts: words from `begin` */
	uint32_t sure; /* a bit for each: it may be loaded */
	uint32_t count;
	struct read batch[BATCH_MAX];
	uint32_t vectors, stack;
	uint32_t stack_bytes; /* of the words above the return address, that were read */
	/* Read again last. */
	uint32_t window_bytes;
	uint64_t window_at, window[WINDOW_BYTES / 8 + 1]; /* one more is copied, not used */
};
_Static_assert(SCRY_PLAN_OPS_MAX <= 32, "bits");
_Static_assert(SCRY_CALL_TEXT_MAX <= UINT16_MAX, "bytes");

static uint64_t load(const uint8_t *at)
{
	uint64_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	return word;
}

static uint32_t words_of(uint64_t bytes)
{
	return (uint32_t)((bytes + 7) / 8);
}

/* What lies behind them in the last word becomes zeros. */
static void pad(uint8_t *bytes, uint64_t count)
{
	if (count % 8)
		*(uint64_t *)(void *)(bytes + count / 8 * 8) &= (1ull << 8 * (count % 8)) - 1;
}

static uint64_t copy_length(uint8_t *to, const uint8_t *from, uint64_t n)
{
	uint64_t i = 0;

	for (; i + 8 <= n; i += 8)
		*(uint64_t *)(void *)(to + i) = load(from + i);
	if (i < n)
		*(uint64_t *)(void *)(to + i) = 0;
	for (; i < n; i++)
		to[i] = from[i];
	return n;
}

/* Up to the NUL, `max` at most. A load of eight bytes stays in the page of its first one, which is
 * no further than the NUL. */
static uint64_t copy_nul(uint8_t *to, const uint8_t *from, uint64_t max)
{
	uint64_t i = 0, n = 0;

	for (; i + 8 <= max && ((uint64_t)(from + i) & PAGE_MASK) <= PAGE_MASK - 7; i += 8) {
		uint64_t word = load(from + i), nul = (word - ONES) & ~word & ONES << 7;

		if (nul) {
			n = (uint64_t)__builtin_ctzll(nul) / 8;
			*(uint64_t *)(void *)(to + i) = word & ((1ull << 8 * n) - 1);
			return i + n;
		}
		*(uint64_t *)(void *)(to + i) = word;
	}
	for (; i < max && from[i]; i++) {
		if (i % 8 == 0)
			*(uint64_t *)(void *)(to + i) = 0;
		to[i] = from[i];
	}
	return i;
}

static int64_t read_self(const struct work *w, const struct scry_agent_piece *local,
			 const struct scry_agent_piece *remote, uint64_t count)
{
	if (scry_calling_is_over())
		return -1;
	w->f->has_read = 1;
	return scry_calling_read((struct scry_agent_pieces){local, count},
				 (struct scry_agent_pieces){remote, count});
}

/* What could be read of each: bytes. A piece that could not ends its string, not the others. */
static void read_pieces(const struct work *w, struct scry_agent_piece *local,
			struct scry_agent_piece *remote, const uint8_t *owner, uint32_t count,
			uint32_t *ret_got)
{
	uint32_t i = 0;

	while (i < count) {
		int64_t got = read_self(w, local + i, remote + i, count - i);
		uint8_t who;

		if (got < 0 && got != -EFAULT_)
			return;
		for (got = got < 0 ? 0 : got; i < count && (uint64_t)got >= local[i].bytes; i++) {
			ret_got[owner[i]] += (uint32_t)local[i].bytes;
			got -= (int64_t)local[i].bytes;
		}
		if (i == count)
			return;
		who = owner[i];
		ret_got[who] += (uint32_t)got;
		while (i < count && owner[i] == who)
			i++;
	}
}

static void know(struct work *w, uint32_t op, const uint64_t *part, uint64_t address,
		 uint32_t bytes)
{
	w->parts[op] = (uint16_t)(part - w->begin);
	w->address[op] = address;
	w->bytes[op] = (uint16_t)bytes;
}

/* The read bytes become a part at `to`, which lies before them or there. */
static uint64_t *settle(struct work *w, const struct read *r, uint32_t got, uint64_t *to)
{
	uint8_t *from = (uint8_t *)(r->part + 1);
	struct scry_call_part part = *r->part;
	uint32_t n = 0;

	while (r->is_text && n < got && from[n])
		n++;
	if (!r->is_text)
		n = got;
	/* a string whose end could not be read goes on for all that is known */
	if ((r->is_text && n == got && got < r->bytes) ||
	    (n >= r->limit && n == got && r->is_cut) || n > r->limit)
		part.flags |= SCRY_PART_CUT;
	n = n < r->limit ? n : r->limit;
	if (!got)
		return to;
	part.bytes = n;
	for (uint32_t i = 0; i < words_of(n); i++)
		to[2 + i] = ((uint64_t *)(void *)from)[i];
	__builtin_memcpy(to, &part, sizeof(part));
	pad((uint8_t *)(to + 2), n);
	if (r->op)
		know(w, r->op - 1, to, r->address, n);
	if (r->kind == SCRY_PART_STACK)
		w->stack_bytes = n;
	return to + 2 + words_of(n);
}

/* In the page of the return address, which is there, as it is in use: most variables that a caller
 * lends are. */
static int is_near(const struct work *w, uint64_t at, uint64_t end)
{
	return end > at &&
	       ((at ^ (uint64_t)w->f->slot) | ((end - 1) ^ (uint64_t)w->f->slot)) <= PAGE_MASK;
}

static void flush(struct work *w)
{
	struct scry_agent_piece local[2 * BATCH_MAX], remote[2 * BATCH_MAX];
	uint32_t got[BATCH_MAX], pieces = 0;
	uint8_t owner[2 * BATCH_MAX];
	uint64_t *to;

	if (!w->count)
		return;
	for (uint32_t i = 0; i < w->count; i++) {
		uint64_t at = w->batch[i].address, end = at + w->batch[i].bytes;
		uint64_t to_at = (uint64_t)(w->batch[i].part + 1);

		got[i] = 0;
		if (is_near(w, at, end)) {
			got[i] = (uint32_t)copy_length((uint8_t *)to_at, (const uint8_t *)at,
						       end - at);
			continue;
		}
		while (at < end) { /* two pages at most */
			uint64_t stop = (at | PAGE_MASK) + 1;

			stop = stop < end ? stop : end;
			remote[pieces] = (struct scry_agent_piece){at, stop - at};
			local[pieces] = (struct scry_agent_piece){to_at, stop - at};
			owner[pieces++] = (uint8_t)i;
			to_at += stop - at;
			at = stop;
		}
	}
	if (pieces)
		read_pieces(w, local, remote, owner, pieces, got);
	to = (uint64_t *)(void *)w->batch[0].part;
	for (uint32_t i = 0; i < w->count; i++)
		to = settle(w, &w->batch[i], got[i], to);
	w->at = to;
	w->count = 0;
}

static int is_address(uint64_t address)
{
	return address >= LOWEST && address <= HIGHEST - 2 * SCRY_CALL_TEXT_MAX;
}

/* A read, with the rest of the others. `flags` are its part's. */
static void add_read(struct work *w, struct read r, uint16_t flags)
{
	uint64_t room;

	if (!is_address(r.address))
		return;
	if (w->count == BATCH_MAX)
		flush(w);
	room = (uint64_t)(w->end - w->at) * 8;
	if (room < sizeof(*r.part) + 16)
		return;
	room -= sizeof(*r.part) + 8;
	if (r.limit > room) {
		r.limit = (uint32_t)room;
		r.is_cut = 1;
	}
	r.bytes = r.limit + (r.is_text && r.is_cut); /* is the next one the NUL? */
	r.part = (struct scry_call_part *)(void *)w->at;
	*r.part = (struct scry_call_part){.address = r.address, .kind = r.kind, .flags = flags};
	w->at += 2 + words_of(r.bytes);
	w->batch[w->count++] = r;
}

/* `bytes` at an address that was read before, once more, into memory of our own. 0: no more. */
static int read_again(struct work *w, uint64_t address, void *to, uint32_t bytes, int is_sure)
{
	const struct scry_agent_piece local = {(uint64_t)to, bytes}, remote = {address, bytes};

	if (!is_sure && !is_near(w, address, address + bytes))
		return read_self(w, &local, &remote, 1) == (int64_t)bytes;
	copy_length(to, (const uint8_t *)address, bytes);
	return 1;
}

/* The word at `offset` of what was read, `bytes` from `address` on; zeros behind them. */
static uint64_t word_again(struct work *w, uint64_t address, uint32_t bytes, uint32_t offset,
			   int is_sure)
{
	const uint64_t at = address + offset;
	uint32_t rest = offset < bytes ? bytes - offset : 0, n = rest < 8 ? rest : 8;
	uint64_t word = 0;

	if (!n || w->window_at > at || at + n > w->window_at + w->window_bytes) {
		n = rest < WINDOW_BYTES ? rest : WINDOW_BYTES;
		w->window_at = at;
		w->window_bytes = n && read_again(w, at, w->window, n, is_sure) ? n : 0;
		n = n < 8 ? n : 8;
	}
	if (w->window_bytes)
		__builtin_memcpy(&word, (const uint8_t *)w->window + (at - w->window_at), 8);
	return n < 8 ? word & ((1ull << 8 * n) - 1) : word;
}

/* The word at a place; 0: it could not be read. */
static uint64_t word_at_place(struct work *w, uint8_t at, uint8_t op, uint16_t offset)
{
	const struct scry_fetching *f = w->f;

	if (at == SCRY_AT_PART) {
		for (uint32_t i = 0; i < w->count; i++)
			if (w->batch[i].op == op + 1) {
				flush(w);
				break;
			}
		return op < SCRY_PLAN_OPS_MAX && offset + 8u <= words_of(w->bytes[op]) * 8
			       ? word_again(w, w->address[op], w->bytes[op], offset,
					    w->sure >> op & 1)
			       : 0;
	}
	if (at == SCRY_AT_RAX || at == SCRY_AT_RDX)
		return at == SCRY_AT_RAX ? f->rax : f->rdx;
	if (at >= SCRY_AT_SAVED)
		return f->saved ? f->saved[(at - SCRY_AT_SAVED) % SCRY_PLAN_SAVED_MAX] : 0;
	if (!f->registers)
		return 0;
	if (at >= SCRY_AT_STACK) {
		const uint64_t *word = f->slot + 1 + (at - SCRY_AT_STACK);

		if (is_near(w, (uint64_t)word, (uint64_t)(word + 1)))
			return *word;
		flush(w);
		return word_again(w, (uint64_t)(f->slot + 1), w->stack_bytes,
				  8u * (at - SCRY_AT_STACK), 0);
	}
	return at < SCRY_AT_REGISTER + SCRY_CALL_ARGS_MAX ? f->registers[at] : 0;
}

/* Loaded, at once. */
static void fetch_sure(struct work *w, const struct scry_fetch *op, uint8_t number,
		       const struct read *r)
{
	struct scry_call_part *part;
	uint8_t *to;
	uint64_t n, room;

	flush(w);
	if (!is_address(r->address))
		return;
	part = (struct scry_call_part *)(void *)w->at;
	to = (uint8_t *)(part + 1);
	room = (uint64_t)(w->end - w->at) * 8;
	if (room < sizeof(*part) + 8)
		return;
	room -= sizeof(*part);
	*part = (struct scry_call_part){.address = r->address};
	if (r->is_text) {
		n = copy_nul(to, (const uint8_t *)r->address, r->limit < room ? r->limit : room);
		if (n == (r->limit < room ? r->limit : room) && r->is_cut &&
		    ((const uint8_t *)r->address)[n])
			part->flags |= SCRY_PART_CUT;
	} else {
		n = copy_length(to, (const uint8_t *)r->address, r->limit < room ? r->limit : room);
		part->flags |= r->is_cut || n < r->limit ? SCRY_PART_CUT : 0;
	}
	part->bytes = (uint32_t)n;
	part->flags |= (op->flags & SCRY_FETCH_SQL ? SCRY_PART_SQL : 0) |
		       (op->flags & SCRY_FETCH_MYSQL ? SCRY_PART_MYSQL : 0) | SCRY_PART_TEXT;
	know(w, number, w->at, r->address, (uint32_t)n);
	w->sure |= 1u << number;
	w->at += 2 + words_of(n);
}

static void fetch_one(struct work *w, const struct scry_fetch *op, uint8_t number)
{
	struct read r = {.address = word_at_place(w, op->from, op->part, op->offset),
			 .limit = op->max,
			 .op = (uint8_t)(number + 1)};
	uint16_t flags = (op->flags & SCRY_FETCH_SQL ? SCRY_PART_SQL : 0) |
			 (op->flags & SCRY_FETCH_MYSQL ? SCRY_PART_MYSQL : 0) |
			 (op->flags & SCRY_FETCH_TEXT ? SCRY_PART_TEXT : 0);

	r.is_text = op->length == SCRY_FETCH_NUL || op->length == SCRY_FETCH_BOTH;
	r.is_cut = op->length == SCRY_FETCH_NUL;
	if (op->length == SCRY_FETCH_COUNT || op->length == SCRY_FETCH_BOTH) {
		uint64_t n = word_at_place(w, op->length_from, op->length_part, op->length_offset);

		if (op->flags & SCRY_FETCH_INT)
			n = (uint64_t)(int64_t)(int32_t)n;
		if ((int64_t)n < 0 && op->flags & SCRY_FETCH_RESULT)
			n = 0;
		if ((int64_t)n < 0 && op->flags & SCRY_FETCH_SURE)
			r.is_text = r.is_cut = 1;
		else if (n >= (1u << 20) || n * op->scale > op->max)
			r.is_cut = 1;
		else
			r.limit = (uint32_t)n * op->scale;
	}
	if (op->flags & SCRY_FETCH_SURE)
		fetch_sure(w, op, number, &r);
	else if (r.limit)
		add_read(w, r, flags);
}

/* A format's strings; and how many registers and words of the stack it names. */
static __attribute__((noinline)) void fetch_format(struct work *w, uint8_t number)
{
	const struct scry_call_plan *h = w->f->plan;
	struct scry_varargs args = {h->named_registers, h->named_vectors, h->named_stack};
	struct scry_format format;
	struct scry_conversion c;
	uint64_t precision = 0, text[FORMAT_MAX / 8];
	uint32_t bytes;

	flush(w);
	bytes = w->bytes[number] < FORMAT_MAX ? w->bytes[number] : FORMAT_MAX;
	if (!bytes)
		return;
	((struct scry_call_part *)(void *)(w->begin + w->parts[number]))->flags |= SCRY_PART_FORMAT;
	if (!read_again(w, w->address[number], text, bytes, w->sure >> number & 1))
		return;
	format = (struct scry_format){.at = (const char *)text, .end = (const char *)text + bytes};
	for (uint32_t i = 0; i < VARARGS_MAX && scry_format_next(&format, &c); i++) {
		uint32_t at = scry_varargs_next(&args, c.kind);
		uint64_t word = at < SCRY_AT_SAVED ? word_at_place(w, (uint8_t)at, 0, 0) : 0;
		struct read r = {
			.address = word, .limit = w->f->string_max, .is_text = 1, .is_cut = 1};

		if (c.kind == SCRY_CONVERT_PRECISION)
			precision = word & 0x7fffffff;
		if (c.kind != SCRY_CONVERT_STRING && c.kind != SCRY_CONVERT_WIDE)
			continue;
		precision = c.is_star ? precision : c.precision;
		if (c.kind == SCRY_CONVERT_WIDE) {
			r.limit = r.limit ? scry_format_wide_bytes(&c, precision, r.limit) : 0;
			r.is_text = r.is_cut = 0;
		} else if (c.is_limited && precision <= r.limit) {
			r.limit = (uint32_t)precision;
			r.is_cut = 0;
		}
		if (r.limit)
			add_read(w, r, SCRY_PART_TEXT);
	}
	flush(w);
	w->vectors = args.vectors > w->vectors ? args.vectors : w->vectors;
	w->stack = args.stack > w->stack ? args.stack : w->stack;
}

static void store_vectors(uint64_t to[8])
{
	__asm__ volatile("movq %%xmm0, %0\n\tmovq %%xmm1, %1\n\tmovq %%xmm2, %2\n\t"
			 "movq %%xmm3, %3\n\tmovq %%xmm4, %4\n\tmovq %%xmm5, %5\n\t"
			 "movq %%xmm6, %6\n\tmovq %%xmm7, %7"
			 : "=m"(to[0]), "=m"(to[1]), "=m"(to[2]), "=m"(to[3]), "=m"(to[4]),
			   "=m"(to[5]), "=m"(to[6]), "=m"(to[7]));
}

static void put_words(struct work *w, uint16_t kind, const uint64_t *words, uint32_t count)
{
	struct scry_call_part *part = (struct scry_call_part *)(void *)w->at;

	if ((uint64_t)(w->end - w->at) < 2 + count || !count)
		return;
	*part = (struct scry_call_part){
		.address = (uint64_t)words, .bytes = 8 * count, .kind = kind};
	for (uint32_t i = 0; i < count; i++)
		w->at[2 + i] = words[i];
	w->at += 2 + count;
}

/* The C library's function has just written it there, if it has failed. */
static void put_errno(struct work *w)
{
	const struct scry_fetching *f = w->f;
	const int64_t at = f->errno_at;
	uint64_t error, thread;

	if (!at || ((uint32_t)f->rax != UINT32_MAX &&
		    (f->rax || !(f->plan->back_words & SCRY_BACK_ERRNO_NULL))))
		return;
	__asm__ volatile("movq %%fs:0, %0" : "=r"(thread));
	error = *(const volatile uint32_t *)(thread + (uint64_t)at);
	put_words(w, SCRY_PART_ERRNO, &error, 1);
}

static void put_registers(struct work *w)
{
	const struct scry_fetching *f = w->f;
	uint64_t vectors[8];

	if (w->vectors) {
		store_vectors(vectors);
		put_words(w, SCRY_PART_VECTORS, vectors, w->vectors);
	}
	if (!f->registers) {
		if (f->plan->back_words & SCRY_BACK_RDX)
			put_words(w, SCRY_PART_RDX, &f->rdx, 1);
		if (f->plan->back_words & SCRY_BACK_ERRNO)
			put_errno(w);
		return;
	}
	if (w->stack) {
		uint32_t n = w->stack < SCRY_PLAN_STACK_MAX ? w->stack : SCRY_PLAN_STACK_MAX;
		struct read r = {.address = (uint64_t)(f->slot + 1), .limit = 8 * n};

		r.kind = SCRY_PART_STACK;
		flush(w);
		add_read(w, r, 0);
		flush(w);
	}
}

uint32_t scry_fetch(struct scry_fetching *f, uint64_t *at)
{
	struct work w;
	const struct scry_fetch *ops = (const struct scry_fetch *)(const void *)(f->plan + 1);
	uint32_t first = f->registers ? 0 : f->plan->entry;
	uint32_t count = f->registers ? f->plan->entry : f->plan->back;
	const uint64_t flags = scry_alignment_off();

	w.f = f;
	w.begin = w.at = at;
	w.end = at + SCRY_CALL_MORE_MAX;
	w.count = 0;
	w.vectors = f->registers ? f->plan->vectors : f->plan->back_vectors;
	w.stack = f->plan->stack;
	w.stack_bytes = w.window_bytes = w.sure = 0;
	w.window_at = 0;
	put_registers(&w);
	if (count > SCRY_PLAN_OPS_MAX)
		count = SCRY_PLAN_OPS_MAX;
	for (uint32_t i = 0; i < SCRY_PLAN_OPS_MAX; i++)
		w.bytes[i] = 0;
	for (uint32_t i = 0; i < count; i++) {
		fetch_one(&w, &ops[first + i], (uint8_t)i);
		if (ops[first + i].flags & SCRY_FETCH_FORMAT && f->registers) {
			uint32_t vectors = w.vectors, stack = w.stack;

			fetch_format(&w, (uint8_t)i);
			if (w.vectors > vectors || w.stack > stack)
				put_registers(&w);
		}
	}
	flush(&w);
	scry_alignment_back(flags);
	return (uint32_t)(w.at - w.begin);
}

void scry_fetch_save(const struct scry_fetching *f, uint64_t *to)
{
	struct work w;

	w.f = (struct scry_fetching *)(uintptr_t)f;
	w.count = 0;
	w.stack_bytes = w.window_bytes = 0;
	w.window_at = 0;
	for (uint32_t i = 0; i < f->plan->saved_count && i < SCRY_PLAN_SAVED_MAX; i++)
		to[i] = word_at_place(&w, f->plan->saved[i], 0, 0);
}
