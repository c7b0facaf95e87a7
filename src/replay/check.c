/*
 * Is a batch one that may be replayed? Goes through it as one thread that plays all streams, each
 * as far as it gets, and keeps for each slot which stream has it. What it accepts cannot race, hang
 * or end a block twice, whatever the order in which real threads get on: each slot passes from one
 * stream to the next only by a tag, and the streams could go to their ends. See wire/replay.h for
 * the rules.
 *
 * Time is bounded: every block of words is visited once, and waiters are searched only by a stream
 * that publishes on their slot, at most 2^16 times a batch.
 */
#include "replay/replay.h"

#define NO_STREAM 0xffffu

struct slot {
	uint64_t size;	 /* of the block that lives */
	uint32_t batch;	 /* in which the rest was last true */
	uint16_t owner;	 /* stream that had it last in this batch; NO_STREAM: free for all */
	uint16_t tag;	 /* by which the living block is published; 0 none */
	uint16_t last;	 /* greatest tag published in this batch */
	uint16_t stale;	 /* tag that it had from before */
	uint16_t waiter; /* stream + 1, the first one that waits for a tag of it */
	uint16_t lives;
};

enum state { ABSENT, READY, RUNS, WAITS_TAG, WAITS_ENDED, WAITS_EPOCH, DONE, ENDED };

/* All tables are shared mappings: anonymous memory is the allocator's alone. */
static struct stream_state {
	uint32_t block, word; /* where it is */
	uint16_t wait_tag;
	uint16_t next; /* stream + 1: behind it in a list of waiters or of streams that can go on */
	uint8_t state;
	uint8_t is_alive; /* it has a thread, since the beginning */
} * streams;		  /* SCRY_REPLAY_STREAMS */

static struct epoch {
	uint32_t marks, need; /* of streams; need 0: not asked for yet */
	uint32_t waiters;     /* stream + 1 */
} * epochs;		      /* SCRY_REPLAY_EPOCHS */

static uint8_t *met; /* SCRY_REPLAY_BLOCKS: blocks of words, in this batch */
static uint32_t batch;
static uint32_t ready;	   /* stream + 1, those that can go on */
static uint32_t for_ended; /* stream + 1, those that wait for threads to end */
static uint32_t ended;	   /* threads, since the beginning */
static uint64_t live;	   /* bytes */

static void push(uint32_t *list, uint32_t stream, enum state state)
{
	streams[stream].state = (uint8_t)state;
	streams[stream].next = (uint16_t)*list;
	*list = stream + 1;
}

static struct slot *slot_of(uint32_t number)
{
	struct slot *s = &replay.slots[number];

	if (s->batch != batch) {
		s->batch = batch;
		s->owner = NO_STREAM;
		s->last = 0;
		s->stale = s->lives ? s->tag : 0;
		s->tag = 0; /* what lives from before needs no tag */
		s->waiter = 0;
	}
	return s;
}

static bool bad(uint32_t stream, const char *what)
{
	return replay_refuse("batch %u, thread %u, word %u of block %u: %s", batch, stream,
			     streams[stream].word, streams[stream].block, what);
}

/* The stream has the slot from now on. 1; 0: it waits; -1 refused. */
static int take(uint32_t stream, struct slot *s, uint32_t tag)
{
	if (tag) {
		if (!s->lives || s->tag != tag) {
			streams[stream].wait_tag = (uint16_t)tag;
			streams[stream].state = WAITS_TAG;
			streams[stream].next = s->waiter;
			s->waiter = (uint16_t)(stream + 1);
			return 0;
		}
	} else if (s->tag) {
		bad(stream, "it does not wait for the block's tag");
		return -1;
	} else if (s->owner != stream && s->owner != NO_STREAM) {
		bad(stream, "another thread has its slot");
		return -1;
	}
	if (!s->lives) {
		bad(stream, "its slot holds no block");
		return -1;
	}
	s->owner = (uint16_t)stream;
	s->tag = 0;
	return 1;
}

/* The block has `size` bytes and is published by `tag`, if it is not 0. */
static bool give(uint32_t stream, struct slot *s, uint64_t size, uint32_t tag)
{
	uint16_t *link = &s->waiter;

	live += size - (s->lives ? s->size : 0);
	s->size = size;
	s->lives = 1;
	s->tag = (uint16_t)tag;
	if (live > replay.head->live_max)
		return bad(stream, "more bytes live at once than the limit allows; fix: --memory");
	if (!tag)
		return true;
	if (tag <= s->last || tag == s->stale)
		return bad(stream, "a tag is used twice");
	s->last = (uint16_t)tag;
	while (*link) {
		uint32_t waiter = *link - 1u;

		if (streams[waiter].wait_tag == tag) {
			*link = streams[waiter].next;
			push(&ready, waiter, READY);
			return true;
		}
		link = &streams[waiter].next;
	}
	return true;
}

static bool begin(uint32_t stream, struct slot *s, uint64_t size, uint32_t tag)
{
	if (s->lives)
		return bad(stream, "its slot holds a block already");
	if (s->owner != stream && s->owner != NO_STREAM)
		return bad(stream, "the slot is another thread's");
	s->owner = (uint16_t)stream;
	return give(stream, s, size, tag);
}

static bool spawn(uint32_t stream, uint32_t which)
{
	if (!which || which >= replay.streams || streams[which].is_alive)
		return bad(stream, "it begins a thread that is there");
	if (streams[which].state != ABSENT)
		return bad(stream, "it begins a thread again that has ended in this batch");
	streams[which].is_alive = 1;
	if (replay.first[which] == SCRY_REPLAY_NONE)
		streams[which].state = DONE;
	else
		push(&ready, which, READY);
	return true;
}

static void stop(uint32_t stream)
{
	uint32_t list = for_ended;

	ended++;
	streams[stream].is_alive = 0;
	streams[stream].state = ENDED;
	for_ended = 0;
	while (list) {
		uint32_t waiter = list - 1;

		list = streams[waiter].next;
		push(&ready, waiter, READY);
	}
}

static void wake(struct epoch *e)
{
	uint32_t list = e->waiters;

	if (!e->need || e->marks < e->need)
		return;
	e->waiters = 0;
	while (list) {
		uint32_t waiter = list - 1;

		list = streams[waiter].next;
		push(&ready, waiter, READY);
	}
}

/* All streams that ask for an epoch must ask for the same, so that none is looked at in vain. 1, 0,
 * -1 */
static int gate(uint32_t stream, struct epoch *e, uint32_t need)
{
	if (!need || (e->need && e->need != need))
		return bad(stream, "it asks for other marks than another thread does") - 1;
	e->need = need;
	if (e->marks >= need)
		return 1;
	push(&e->waiters, stream, WAITS_EPOCH);
	return 0;
}

/* A block of words is entered for the first time. */
static bool enter(uint32_t stream, uint32_t block)
{
	if (block >= replay.head->blocks || met[block])
		return bad(stream, "it does not lead to a block of words, or to another thread's");
	met[block] = 1;
	streams[stream].block = block;
	streams[stream].word = 0;
	return true;
}

/* A call. 1 done, 0 waits, -1 refused. */
static int call(uint32_t stream, const uint64_t *w, uint32_t op, bool is_long)
{
	uint32_t number = SCRY_REPLAY_SLOT(w[0]), tag = SCRY_REPLAY_TAG(w[0]);
	uint64_t size = is_long ? SCRY_REPLAY_SIZE(w[1]) : SCRY_REPLAY_SHORT(w[0]);
	bool is_aligned = op >= SCRY_REPLAY_POSIX_MEMALIGN && op <= SCRY_REPLAY_PVALLOC;
	struct slot *s;
	int r;

	if (number >= replay.head->slots)
		return bad(stream, "there is no such slot") - 1;
	if (is_aligned && (!is_long || SCRY_REPLAY_X(w[1]) > SCRY_REPLAY_ALIGN_MAX))
		return bad(stream, "an alignment is missing or too big") - 1;
	s = slot_of(number);
	if (op <= SCRY_REPLAY_PVALLOC)
		return begin(stream, s, size, tag) ? 1 : -1;
	if (is_long != (op <= SCRY_REPLAY_USABLE))
		return bad(stream, "a word is missing or too many") - 1;
	r = take(stream, s, tag);
	if (r <= 0)
		return r;
	if (op == SCRY_REPLAY_USABLE)
		return give(stream, s, s->size, SCRY_REPLAY_TAG(w[1])) ? 1 : -1;
	if (op <= SCRY_REPLAY_REALLOCARRAY)
		return give(stream, s, size, SCRY_REPLAY_TAG(w[1])) ? 1 : -1;
	live -= s->size;
	s->lives = 0;
	return 1;
}

/* One word of a stream. 1 goes on, 0 it waits or is at its end, -1 refused. */
static int step(uint32_t stream)
{
	const uint64_t *w = &replay.m->words[streams[stream].block][streams[stream].word];
	uint32_t op = w[0] & 31, room = SCRY_REPLAY_BLOCK - streams[stream].word;
	bool is_long = w[0] & SCRY_REPLAY_LONG;
	struct epoch *e;
	int r;

	if (op >= SCRY_REPLAY_OPS || (is_long && op < SCRY_REPLAY_MALLOC))
		return bad(stream, "no such operation") - 1;
	switch (op) {
	case SCRY_REPLAY_END:
		streams[stream].state = DONE;
		return 0;
	case SCRY_REPLAY_STOP:
		stop(stream);
		return 0;
	case SCRY_REPLAY_LINK:
		return enter(stream, SCRY_REPLAY_SLOT(w[0])) ? 1 : -1;
	case SCRY_REPLAY_JOIN:
	case SCRY_REPLAY_SPAWN:
		if ((uint32_t)(w[0] >> 32) > ended) {
			push(&for_ended, stream, WAITS_ENDED);
			return 0;
		}
		r = op == SCRY_REPLAY_JOIN || spawn(stream, SCRY_REPLAY_SLOT(w[0])) ? 1 : -1;
		break;
	case SCRY_REPLAY_AT:
		r = w[0] >> 6 <= SCRY_REPLAY_US_MAX ? 1 : bad(stream, "not a time") - 1;
		break;
	case SCRY_REPLAY_THINK:
		r = w[0] >> 6 <= SCRY_REPLAY_THINK_MAX ? 1 : bad(stream, "not a time") - 1;
		break;
	case SCRY_REPLAY_MARK:
	case SCRY_REPLAY_GATE:
		if (SCRY_REPLAY_SLOT(w[0]) >= SCRY_REPLAY_EPOCHS)
			return bad(stream, "there is no such epoch") - 1;
		e = &epochs[SCRY_REPLAY_SLOT(w[0])];
		r = 1;
		if (op == SCRY_REPLAY_GATE) {
			r = gate(stream, e, (uint32_t)(w[0] >> 32));
			if (!r)
				return 0;
			break;
		}
		e->marks++;
		wake(e);
		break;
	default:
		if (room < 2u + is_long)
			return bad(stream, "a block of words has no end") - 1;
		r = call(stream, w, op, is_long);
	}
	if (r > 0 && room < 2)
		return bad(stream, "a block of words has no end") - 1;
	if (r > 0)
		streams[stream].word += 1 + is_long;
	return r;
}

static bool play(void)
{
	while (ready) {
		uint32_t stream = ready - 1;
		int r;

		ready = streams[stream].next;
		if (streams[stream].state == READY && streams[stream].block == SCRY_REPLAY_NONE &&
		    !enter(stream, replay.first[stream]))
			return false;
		streams[stream].state = RUNS;
		do
			r = step(stream);
		while (r > 0);
		if (r < 0)
			return false;
	}
	return true;
}

bool replay_check(void)
{
	const struct scry_replay_head *head = replay.head;

	if (head->streams < 1 || head->streams > SCRY_REPLAY_STREAMS ||
	    head->streams < replay.streams || head->blocks > SCRY_REPLAY_BLOCKS ||
	    head->slots > SCRY_REPLAY_SLOTS)
		return replay_refuse("batch %u: more than there is room for", head->batch);
	if (head->batch != ++batch)
		return replay_refuse("batch %u comes after batch %u", head->batch, batch - 1);
	replay.streams = head->streams;
	__builtin_memset(met, 0, SCRY_REPLAY_BLOCKS);
	__builtin_memset(epochs, 0, SCRY_REPLAY_EPOCHS * sizeof(*epochs));
	ready = for_ended = 0;
	if (batch == 1)
		streams[0].is_alive = 1; /* the main thread */
	for (uint32_t i = 0; i < replay.streams; i++) {
		replay.first[i] = replay.m->streams[i];
		streams[i].block = SCRY_REPLAY_NONE;
		streams[i].word = 0;
		streams[i].state = streams[i].is_alive ? DONE : ABSENT;
		if (streams[i].is_alive && replay.first[i] != SCRY_REPLAY_NONE)
			push(&ready, i, READY);
	}
	if (!play())
		return false;
	for (uint32_t i = 0; i < replay.streams; i++) {
		if (streams[i].state == WAITS_TAG || streams[i].state == WAITS_ENDED ||
		    streams[i].state == WAITS_EPOCH)
			return bad(i, "it would wait for ever");
		if (streams[i].state == ABSENT && replay.first[i] != SCRY_REPLAY_NONE)
			return bad(i, "no thread begins this one");
	}
	return true;
}

void replay_check_init(void)
{
	replay.slots = replay_map(SCRY_REPLAY_SLOTS * sizeof(*replay.slots));
	streams = replay_map(SCRY_REPLAY_STREAMS * sizeof(*streams));
	epochs = replay_map(SCRY_REPLAY_EPOCHS * sizeof(*epochs));
	met = replay_map(SCRY_REPLAY_BLOCKS);
}
