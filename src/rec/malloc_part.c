/* See malloc_part.h. The packed chunks of a part have its number as their producer's ring. */
#include "rec/malloc_part.h"

#include "rec/reader.h"
#include "base/err.h"

#include <errno.h>
#include <stdlib.h>

#define PARTS_MAX 65536u

struct parts {
	struct scry_malloc_part *rows;
	uint32_t count, room;
};

static int part_of(struct parts *p, const struct scry_chunk *chunk, struct scry_malloc_part **ret)
{
	*ret = NULL;
	for (uint32_t i = p->count; i-- > 0;)
		if (p->rows[i].pid == chunk->producer_pid &&
		    p->rows[i].image == chunk->producer_ring) {
			*ret = &p->rows[i];
			return 0;
		}
	if (p->count == PARTS_MAX)
		return 0;
	if (p->count == p->room) {
		uint32_t room = p->room ? p->room * 2 : 16;
		void *grown = realloc(p->rows, room * sizeof(*p->rows));

		if (!grown)
			return scry_fail(-ENOMEM, "no memory for the recording's processes");
		p->rows = grown;
		p->room = room;
	}
	p->rows[p->count] = (struct scry_malloc_part){.pid = chunk->producer_pid,
						      .image = chunk->producer_ring};
	*ret = &p->rows[p->count++];
	return 0;
}

int scry_malloc_part_choose(int fd, uint32_t pid, struct scry_malloc_part *ret)
{
	const struct scry_malloc_part *most = NULL;
	const struct scry_chunk *chunk;
	struct scry_malloc_part *part;
	struct parts parts = {0};
	struct scry_reader *r;
	int got = 0, err = scry_reader_open(fd, &r);

	if (err)
		return err;
	while (!err && (got = scry_reader_next_chunk(r, &chunk)) > 0) {
		if (chunk->kind != SCRY_CHUNK_MALLOC || (pid && chunk->producer_pid != pid))
			continue;
		err = part_of(&parts, chunk, &part);
		if (part)
			part->calls += chunk->count;
	}
	for (uint32_t i = 0; i < parts.count; i++)
		if (!most || parts.rows[i].calls > most->calls)
			most = &parts.rows[i];
	if (most)
		*ret = *most;
	err = err ? err : got < 0 ? got : most ? 0 : -ENOENT;
	free(parts.rows);
	scry_reader_close(r);
	return err;
}

void scry_malloc_part_rewind(struct scry_malloc_part *part)
{
	part->ended = 0;
}

bool scry_malloc_part_has(struct scry_malloc_part *part, const struct scry_event *event,
			  uint32_t pid)
{
	const struct scry_ev_detach *detach = (const void *)(event + 1);

	if (event->type == SCRY_EVENT_DETACH)
		part->ended += detach->pid == part->pid;
	return pid == part->pid && part->ended == part->image;
}
