/*
 * See ring.h. The head is read first, with acquire: a segment that was closed before those words
 * were published is then seen closed. A segment is given back only when it was read to its end.
 * The target can write all of it at any time: each word is loaded once.
 */
#include "hook/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "wire/account.h"

int scry_ring_open(struct scry_ring *r, struct scry_inject *inj)
{
	struct scry_control *c = inj->control;
	struct scry_state_page state_page;
	int err = scry_mem_read(&inj->mem, inj->state_page, &state_page, sizeof(state_page));

	if (err)
		return scry_fail(err, "process %d is gone", inj->proc->pid);
	if (state_page.segment >= SCRY_SEGMENTS ||
	    state_page.at / SCRY_SEGMENT_WORDS > SCRY_SEGMENTS)
		return scry_fail(-EIO, "the ring in process %d is damaged; fix: scry undo -p %d",
				 inj->proc->pid, inj->proc->pid);
	*r = (struct scry_ring){
		.control = c,
		.words = inj->ring,
		.tail = state_page.head,
		.segment = state_page.segment,
		.at = (uint32_t)(state_page.at - (uint64_t)state_page.segment * SCRY_SEGMENT_WORDS),
	};
	c->head = c->tail = state_page.head;
	for (uint32_t i = 0; i < SCRY_SEGMENTS; i++) {
		c->segments[i].used = 0;
		c->taken[i] = i == state_page.segment;
	}
	return r->at <= SCRY_SEGMENT_WORDS ? 0 : -EIO;
}

void scry_ring_open_child_buffer(struct scry_ring *r, struct scry_control *control,
				 const uint64_t *words)
{
	*r = (struct scry_ring){.control = control, .words = words};
}

/* The segment being read was closed and read to its end: give it back, go on with the one that
 * follows. */
static int go_on(struct scry_ring *r)
{
	struct scry_control *c = r->control;
	uint32_t next = __atomic_load_n(&c->segments[r->segment].next, __ATOMIC_RELAXED);

	if (next >= SCRY_SEGMENTS || next == r->segment)
		return -EIO;
	c->segments[r->segment].used = 0;
	__atomic_store_n(&c->taken[r->segment], 0, __ATOMIC_RELEASE);
	r->segment = next;
	r->at = 0;
	return 0;
}

ssize_t scry_ring_take(struct scry_ring *r, uint64_t *out, int *ret_fill)
{
	uint64_t head = __atomic_load_n(&r->control->head, __ATOMIC_ACQUIRE);
	uint64_t left = head - r->tail;
	size_t count = 0;

	*ret_fill = 0;
	if (left > SCRY_RING_WORDS)
		return -EIO;
	*ret_fill = (int)(left * 1000 / SCRY_RING_WORDS);
	while (left) {
		uint32_t used =
			__atomic_load_n(&r->control->segments[r->segment].used, __ATOMIC_ACQUIRE);
		uint32_t end = used ? used : SCRY_SEGMENT_WORDS;
		uint64_t n;

		if (end > SCRY_SEGMENT_WORDS || r->at > end)
			return -EIO;
		n = end - r->at < left ? end - r->at : left;
		memcpy(out + count, r->words + (uint64_t)r->segment * SCRY_SEGMENT_WORDS + r->at,
		       8 * n);
		count += n;
		left -= n;
		r->at += (uint32_t)n;
		if (left && !used)
			return -EIO; /* more words than the open segment holds */
		if (used && r->at == used && go_on(r) < 0)
			return -EIO;
	}
	r->tail = head;
	r->control->tail = head;
	return (ssize_t)count;
}

bool scry_ring_waits(struct scry_ring *r, enum scry_look *ret_for)
{
	const struct scry_objects_account *c =
		r->control ? &scry_account_of(r->control)->objects : NULL;

	if (!c || __atomic_load_n(&c->looks_asked, __ATOMIC_ACQUIRE) == c->looks_done)
		return false;
	*ret_for = c->look_for == SCRY_LOOK_JUDGE ? SCRY_LOOK_JUDGE : SCRY_LOOK_LAST;
	r->waits = scry_ticks_look();
	return true;
}

uint64_t scry_ring_let_go(struct scry_ring *r)
{
	struct scry_objects_account *c = &scry_account_of(r->control)->objects;
	const struct scry_ticks_pair now = scry_ticks_look();
	const uint64_t asked_tsc = __atomic_load_n(&c->look_tsc, __ATOMIC_RELAXED);
	uint64_t ns = now.ns - r->waits.ns, before = 0;

	if (r->waits.tsc > asked_tsc) /* it began to wait before it was seen */
		before = scry_ticks_by(&r->waits, &now, r->waits.tsc - asked_tsc);
	__atomic_store_n(&c->looks_done, c->looks_asked, __ATOMIC_RELEASE);
	syscall(SYS_futex, &c->looks_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	return ns + before;
}
