/* See malloc_calls.h. */
#include "name/malloc_calls.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

#define SIZE_BITS 48
#define BEGINS                                                                                     \
	(1u << SCRY_MALLOC_MALLOC | 1u << SCRY_MALLOC_CALLOC | 1u << SCRY_MALLOC_POSIX_MEMALIGN |  \
	 1u << SCRY_MALLOC_ALIGNED_ALLOC | 1u << SCRY_MALLOC_MEMALIGN | 1u << SCRY_MALLOC_VALLOC | \
	 1u << SCRY_MALLOC_PVALLOC | 1u << SCRY_MALLOC_NEW | 1u << SCRY_MALLOC_NEW_ARRAY)
#define ENDS (1u << SCRY_MALLOC_FREE | 1u << SCRY_MALLOC_DELETE | 1u << SCRY_MALLOC_DELETE_ARRAY)

static uint64_t address_of(uint64_t word)
{
	return word >> 4 << 20 >> 17; /* 44 bits from bit 4, times 8 */
}

static uint64_t size_of(const struct scry_malloc_record *r)
{
	uint64_t size = r->words[0] >> 48;

	return size == SCRY_MALLOC_SIZE_LONG ? r->words[2] >> 16 : size;
}

static uint64_t usable_of(const struct scry_malloc_record *r, uint64_t size)
{
	uint64_t slack = r->words[1] >> SCRY_MALLOC_TSC_BITS & 0xff;

	return slack == SCRY_MALLOC_SLACK_UNKNOWN ? 0 : size + slack;
}

static int no_room(const struct scry_malloc_calls *c, int err)
{
	return scry_fail(err,
			 "the table of living blocks is full: %zu blocks in %llu MiB; fix: "
			 "--memory with more than twice that",
			 c->addresses.count,
			 (unsigned long long)scry_malloc_addresses_bytes(&c->addresses) >> 20);
}

static int pack(struct scry_malloc_calls *c, const struct scry_ev_malloc *call, uint32_t *ret_block)
{
	int r = scry_malloc_pack_add(c->pack, c->ns, call, ret_block);

	if (r == 0)
		return 0;
	return r == -ENOSPC
		       ? no_room(c, r)
		       : scry_fail(r, "a call of malloc could not be packed: %s", strerror(-r));
}

/*
 * The slot of an address at which a block is about to begin or to go on. A block that still lives
 * there has ended unseen, or its end is late: it ends now.
 */
static int make_room(struct scry_malloc_calls *c, uint64_t address, uint32_t thread,
		     uint64_t **ret_slot)
{
	struct scry_ev_malloc end = {.function = SCRY_MALLOC_FREE, .thread = thread};
	bool is_new;
	int r = scry_malloc_addresses_add(&c->addresses, address, ret_slot, &is_new);

	if (r == 0 && c->addresses.count > SCRY_MALLOC_BLOCK_MAX) {
		scry_malloc_addresses_take(&c->addresses, *ret_slot);
		r = -ENOSPC;
	}
	if (r < 0)
		return no_room(c, r);
	if (is_new)
		return 0;
	c->stats.mended++;
	end.block = scry_malloc_slot_block(*ret_slot);
	return pack(c, &end, NULL);
}

/* A block begins at `address`, 0: it failed. */
static int begin(struct scry_malloc_calls *c, struct scry_ev_malloc *call, uint64_t address)
{
	uint64_t *slot;
	uint32_t block;
	int r;

	call->block = SCRY_MALLOC_NO_BLOCK;
	if (!address) {
		call->flags |= SCRY_MALLOC_FAILED;
		call->usable = 0;
		return pack(c, call, NULL);
	}
	r = make_room(c, address, call->thread, &slot);
	if (r < 0)
		return r;
	r = pack(c, call, &block);
	if (r < 0) {
		scry_malloc_addresses_take(&c->addresses, slot);
		return r;
	}
	scry_malloc_slot_set(slot, block);
	if (c->addresses.count > c->stats.blocks_max)
		c->stats.blocks_max = c->addresses.count;
	return 0;
}

static int begin_other(struct scry_malloc_calls *c, struct scry_ev_malloc *call,
		       const struct scry_malloc_record *r, uint64_t address)
{
	uint64_t align = r->words[2] >> 8 & 0xff;

	call->function = r->words[2] & 0xff;
	if (call->function >= SCRY_MALLOC_FUNCTIONS || !(BEGINS >> call->function & 1) ||
	    align > 62) {
		c->stats.bad++;
		return 0;
	}
	call->size = r->words[2] >> 16;
	call->usable = usable_of(r, call->size);
	call->align = align ? 1ull << align : 0;
	c->stats.calls++;
	return begin(c, call, address);
}

static int end(struct scry_malloc_calls *c, struct scry_ev_malloc *call, uint64_t address)
{
	uint64_t *slot = address ? scry_malloc_addresses_find(&c->addresses, address) : NULL;

	c->stats.calls++;
	call->block = SCRY_MALLOC_NO_BLOCK;
	if (slot) {
		call->block = scry_malloc_slot_block(slot);
		scry_malloc_addresses_take(&c->addresses, slot);
	} else if (address) {
		call->flags |= SCRY_MALLOC_UNKNOWN;
		c->stats.unknown++;
	} else {
		call->flags |= SCRY_MALLOC_NULL;
	}
	return pack(c, call, NULL);
}

static int end_by(struct scry_malloc_calls *c, struct scry_ev_malloc *call,
		  const struct scry_malloc_record *r, uint64_t address)
{
	uint64_t align = r->words[2] >> 8 & 0xff;

	call->function = r->words[2] & 0xff;
	if (call->function >= SCRY_MALLOC_FUNCTIONS || !(ENDS >> call->function & 1) ||
	    align > 62) {
		c->stats.bad++;
		return 0;
	}
	call->size = r->words[2] >> 16;
	call->align = align ? 1ull << align : 0;
	return end(c, call, address);
}

static void realloc_begin(struct scry_malloc_calls *c, const struct scry_ev_malloc *call,
			  const struct scry_malloc_record *r, uint64_t address)
{
	uint64_t *slot = address ? scry_malloc_addresses_find(&c->addresses, address) : NULL;
	struct scry_malloc_reallocating *old = r->realloc;

	c->stats.unreturned += old->is_on;
	*old = (struct scry_malloc_reallocating){
		.is_on = true,
		.function = r->words[0] >> 48 == 1 ? SCRY_MALLOC_REALLOCARRAY : SCRY_MALLOC_REALLOC,
		.block = SCRY_MALLOC_NO_BLOCK,
		.caller = call->caller,
		.address = address,
	};
	if (slot) {
		old->block = scry_malloc_slot_block(slot);
		scry_malloc_addresses_take(&c->addresses, slot);
	} else if (address) {
		old->flags = SCRY_MALLOC_UNKNOWN;
		c->stats.unknown++;
	} else {
		old->flags = SCRY_MALLOC_NULL;
	}
}

/* realloc has returned NULL: its block has ended (0 bytes), or goes on where it was. */
static int realloc_failed(struct scry_malloc_calls *c, struct scry_ev_malloc *call,
			  uint64_t old_address)
{
	uint64_t *slot;
	int r;

	if (call->size == 0 && old_address) {
		call->flags |= SCRY_MALLOC_ENDED;
		return pack(c, call, NULL);
	}
	call->flags |= SCRY_MALLOC_FAILED;
	if (call->block == SCRY_MALLOC_NO_BLOCK)
		return pack(c, call, NULL);
	r = make_room(c, old_address, call->thread, &slot);
	if (r < 0)
		return r;
	scry_malloc_slot_set(slot, call->block);
	return pack(c, call, NULL);
}

static int realloc_end(struct scry_malloc_calls *c, struct scry_ev_malloc *call,
		       const struct scry_malloc_record *r, uint64_t address)
{
	struct scry_malloc_reallocating old = *r->realloc;
	uint64_t *slot;
	int e;

	if (!old.is_on) { /* it began before we looked */
		c->stats.unknown++;
		old = (struct scry_malloc_reallocating){.function = SCRY_MALLOC_REALLOC,
							.flags = SCRY_MALLOC_UNKNOWN,
							.block = SCRY_MALLOC_NO_BLOCK,
							.address = address};
	}
	r->realloc->is_on = false;
	c->stats.calls++;
	call->function = old.function;
	call->flags = old.flags;
	call->block = old.block;
	call->caller = call->caller ? call->caller : old.caller;
	if (!address) {
		call->usable = 0;
		return realloc_failed(c, call, old.address);
	}
	if (old.address && old.address != address)
		call->flags |= SCRY_MALLOC_MOVED;
	if (old.block == SCRY_MALLOC_NO_BLOCK)
		return begin(c, call, address);
	e = make_room(c, address, call->thread, &slot);
	if (e < 0)
		return e;
	scry_malloc_slot_set(slot, old.block);
	return pack(c, call, NULL);
}

/* A living block is asked about: malloc_usable_size, or how much of it is resident. */
static int ask(struct scry_malloc_calls *c, struct scry_ev_malloc *call, uint64_t address)
{
	uint64_t *slot = address ? scry_malloc_addresses_find(&c->addresses, address) : NULL;

	call->block = slot ? scry_malloc_slot_block(slot) : SCRY_MALLOC_NO_BLOCK;
	call->usable = call->size;
	call->size = 0;
	if (call->function == SCRY_MALLOC_TOUCHED)
		return slot ? pack(c, call, NULL) : 0;
	c->stats.calls++;
	if (!slot)
		call->flags |= address ? SCRY_MALLOC_UNKNOWN : SCRY_MALLOC_NULL;
	return pack(c, call, NULL);
}

int scry_malloc_calls_add(struct scry_malloc_calls *c, const struct scry_malloc_record *r)
{
	const uint64_t address = address_of(r->words[0]), size = size_of(r);
	struct scry_ev_malloc call = {
		.thread = r->thread,
		.caller = scry_malloc_callers_id(
			c->callers, (uint32_t)(r->words[1] >> SCRY_MALLOC_CODE_AT), r->stack),
		.size = size,
		.usable = usable_of(r, size),
	};

	c->ns = r->ns > c->ns ? r->ns : c->ns;
	switch ((enum scry_malloc_op)(r->words[0] & 15)) {
	case SCRY_MALLOC_OP_MALLOC:
	case SCRY_MALLOC_OP_CALLOC:
		call.function = (r->words[0] & 15) == SCRY_MALLOC_OP_MALLOC ? SCRY_MALLOC_MALLOC
									    : SCRY_MALLOC_CALLOC;
		c->stats.calls++;
		return begin(c, &call, address);
	case SCRY_MALLOC_OP_ALLOC:
		return begin_other(c, &call, r, address);
	case SCRY_MALLOC_OP_REALLOC_BEGIN:
		realloc_begin(c, &call, r, address);
		return 0;
	case SCRY_MALLOC_OP_REALLOC_END:
		return realloc_end(c, &call, r, address);
	case SCRY_MALLOC_OP_FREE:
		call.function = SCRY_MALLOC_FREE;
		call.size = call.usable = 0;
		return end(c, &call, address);
	case SCRY_MALLOC_OP_FREE_BY:
		call.usable = 0;
		return end_by(c, &call, r, address);
	case SCRY_MALLOC_OP_USABLE:
		call.function = SCRY_MALLOC_USABLE_SIZE;
		return ask(c, &call, address);
	case SCRY_MALLOC_OP_TOUCHED:
		call.function = SCRY_MALLOC_TOUCHED;
		call.size = r->words[2] >> 16;
		return ask(c, &call, address);
	case SCRY_MALLOC_OP_NONE:
	case SCRY_MALLOC_OP_TIME:
	case SCRY_MALLOC_OP_CALLER:
	case SCRY_MALLOC_OP_LINE:
	case SCRY_MALLOC_OP_FORK:
	case SCRY_MALLOC_OP_FORKED:
	case SCRY_MALLOC_OP_STACK:
		break;
	}
	c->stats.bad++;
	return 0;
}

int scry_malloc_calls_older(struct scry_malloc_calls *c, uint64_t address, uint64_t usable)
{
	struct scry_ev_malloc call = {
		.function = SCRY_MALLOC_OLDER, .size = usable, .usable = usable};

	if (!address || address % 8 || address >> 47 ||
	    scry_malloc_addresses_find(&c->addresses, address))
		return 0;
	return begin(c, &call, address);
}

int scry_malloc_calls_thread_end(struct scry_malloc_calls *c, uint32_t thread)
{
	return pack(c,
		    &(struct scry_ev_malloc){.function = SCRY_MALLOC_THREAD_END,
					     .thread = thread,
					     .block = SCRY_MALLOC_NO_BLOCK},
		    NULL);
}
