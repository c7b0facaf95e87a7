/* See chain.h. */
#include "hook/chain.h"

#include <string.h>

#define JUMP_BYTES 5
#define JUMP 0xe9
#define CALL_OR_JUMP_REL 4 /* bytes of a displacement */

static const char in_the_way[] = "another instrument of this watch has changed its first bytes in "
				 "another way";
static const char places_differ[] = "another instrument of this watch has changed some of the ways "
				    "that lead to it";

static uint64_t jump_target(const struct scry_journal_entry *j)
{
	int32_t rel;

	memcpy(&rel, j->new_ + 1, sizeof(rel));
	return j->address + JUMP_BYTES + (uint64_t)(int64_t)rel;
}

static bool is_jump(const struct scry_journal_entry *j, uint64_t at)
{
	return j && j->address == at && j->size == JUMP_BYTES && j->new_[0] == JUMP &&
	       j->state == SCRY_EDIT_APPLIED;
}

static void put_over(struct scry_hook *row, const struct scry_journal_entry *j)
{
	row->over = jump_target(j);
	memcpy(row->over_old, j->new_, sizeof(row->over_old));
}

static void refuse(struct scry_hooks *h, struct scry_hook *row, const char *why)
{
	row->way = 0;
	row->why = why;
	h->refused++;
}

/* A long jump at the entry, or a short one that leads to a long one in filler. */
static void chain_entry(struct scry_hooks *h, struct scry_hook *row, const struct scry_edit *e)
{
	const uint64_t at = row->address + row->window.endbr;
	const struct scry_journal_entry *j = scry_edit_under(e, at, at + row->jump);
	uint64_t pad;

	if (!j && row->pad && scry_edit_under(e, row->pad, row->pad + JUMP_BYTES)) {
		refuse(h, row, in_the_way);
	} else if (is_jump(j, at) && row->jump == JUMP_BYTES) {
		put_over(row, j);
	} else if (j && j->address == at && j->size == SCRY_SHORT_JUMP_BYTES && row->pad) {
		pad = at + SCRY_SHORT_JUMP_BYTES + (uint64_t)(int64_t)(int8_t)j->new_[1];
		j = scry_edit_under(e, pad, pad + JUMP_BYTES);
		if (!is_jump(j, pad)) {
			refuse(h, row, in_the_way);
			return;
		}
		row->pad = pad;
		put_over(row, j);
	} else if (j) {
		refuse(h, row, in_the_way);
	}
}

/* Where a slot or a displacement leads that is changed: 0: it is not, or not as a whole. */
static uint64_t leads_to(const struct scry_journal_entry *j, const struct scry_hook_place *place)
{
	int32_t rel;
	uint64_t to;

	if (j->address != place->at || j->size != (place->is_slot ? 8 : CALL_OR_JUMP_REL) ||
	    j->state != SCRY_EDIT_APPLIED)
		return 0;
	memcpy(&to, j->new_, sizeof(to));
	memcpy(&rel, j->new_, sizeof(rel));
	return place->is_slot ? to : place->at + CALL_OR_JUMP_REL + (uint64_t)(int64_t)rel;
}

/* All of its places, or none: its stub goes on to one address. */
static void chain_places(struct scry_hooks *h, struct scry_hook *row, const struct scry_edit *e)
{
	uint64_t over = 0;
	size_t chained = 0;

	for (size_t i = row->first_place; i < row->first_place + row->place_count; i++) {
		struct scry_hook_place *place = &h->places[i];
		const uint64_t end = place->at + (place->is_slot ? 8 : CALL_OR_JUMP_REL);
		const struct scry_journal_entry *j = scry_edit_under(e, place->at, end);
		const uint64_t to = j ? leads_to(j, place) : 0;

		if (j && (!to || (over && to != over))) {
			refuse(h, row, places_differ);
			return;
		}
		if (!j)
			continue;
		over = to;
		chained++;
		place->old = 0;
		memcpy(&place->old, j->new_, j->size);
	}
	if (chained && chained < row->place_count) {
		refuse(h, row, places_differ);
		return;
	}
	row->over = over;
	row->target = over ? over : row->target;
}

void scry_chain(struct scry_hooks *h, const struct scry_inject *inj)
{
	if (!scry_edit_under(&inj->edit, 0, UINT64_MAX)) /* no other set */
		return;
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		if (!row->way || row->has_stub)
			continue;
		if (row->way == SCRY_WAY_ENTRY)
			chain_entry(h, row, &inj->edit);
		else
			chain_places(h, row, &inj->edit);
	}
}
