/* See malloc_part.h. The packed chunks of a part have its number as their producer's ring. */
#include "rec/malloc_part.h"

#include "rec/sections.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>

#define PARTS_MAX 65536u
#define LISTED_MAX 8u

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
			return scry_no_memory("the recording's processes");
		p->rows = grown;
		p->room = room;
	}
	p->rows[p->count] = (struct scry_malloc_part){.pid = chunk->producer_pid,
						      .image = chunk->producer_ring};
	*ret = &p->rows[p->count++];
	return 0;
}

/* All of them. Free `rows`. */
static int read_parts(int fd, struct parts *ret)
{
	const struct scry_chunk *chunk;
	struct scry_malloc_part *part;
	struct scry_reader *r;
	int got = 0, err = scry_sections_open(fd, "malloc", &r);

	if (err)
		return err;
	while (!err && (got = scry_reader_next_chunk(r, &chunk)) > 0) {
		if (chunk->kind != SCRY_CHUNK_MALLOC)
			continue;
		err = part_of(ret, chunk, &part);
		if (part)
			part->calls += chunk->count;
	}
	scry_reader_close(r);
	return err ? err : got;
}

static int compare(const void *a, const void *b)
{
	const struct scry_malloc_part *x = a, *y = b;

	if (x->calls != y->calls)
		return x->calls > y->calls ? -1 : 1;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* "28 (1,200 calls), 31 (90 calls) and 4 more": of each process but `not`, those with most calls
 * first. False: there is none. */
static bool put_list(struct parts *parts, uint32_t not, struct scry_buf *buf)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < parts->count; i++) /* programs that one process ran are one here */
		for (uint32_t k = i + 1; k < parts->count; k++)
			if (parts->rows[k].pid == parts->rows[i].pid) {
				parts->rows[i].calls += parts->rows[k].calls;
				parts->rows[k--] = parts->rows[--parts->count];
			}
	if (parts->count)
		qsort(parts->rows, parts->count, sizeof(*parts->rows), compare);
	for (uint32_t i = 0; i < parts->count; i++) {
		if (parts->rows[i].pid == not || count++ >= LISTED_MAX)
			continue;
		scry_buf_printf(buf, "%s%u (", count > 1 ? ", " : "", parts->rows[i].pid);
		scry_text_count(buf, parts->rows[i].calls);
		scry_buf_printf(buf, " calls)");
	}
	if (count > LISTED_MAX)
		scry_buf_printf(buf, " and %u more", count - LISTED_MAX);
	return count != 0;
}

int scry_malloc_part_choose(int fd, uint32_t pid, struct scry_malloc_part *ret)
{
	const struct scry_malloc_part *most = NULL;
	struct parts parts = {0};
	struct scry_buf list = {0};
	int err = read_parts(fd, &parts);

	for (uint32_t i = 0; i < parts.count; i++)
		if ((!pid || parts.rows[i].pid == pid) &&
		    (!most || parts.rows[i].calls > most->calls))
			most = &parts.rows[i];
	if (most)
		*ret = *most;
	else if (!err && put_list(&parts, 0, &list))
		err = scry_fail(-EINVAL, "process %u has no calls in it; fix: --pid PID, of %s",
				pid, scry_buf_str(&list));
	err = err ? err : most ? 0 : -ENOENT;
	scry_buf_done(&list);
	free(parts.rows);
	return err;
}

int scry_malloc_part_others(int fd, const struct scry_malloc_part *part, struct scry_buf *ret)
{
	struct parts parts = {0};
	int err = read_parts(fd, &parts);

	if (!err)
		put_list(&parts, part->pid, ret);
	free(parts.rows);
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
