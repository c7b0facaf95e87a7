/*
 * What runs of a server under several allocators say: a verdict and a table.
 */
#ifndef SCRY_VIEW_MALLOC_SERVERS_H
#define SCRY_VIEW_MALLOC_SERVERS_H

#include "view/malloc_replay.h"

/* Of `report` are used: rows (label, runs, has_real, real_cpu_ns, real_wall_ns, which is that of
 * the load, real_rss), count, notes, note_count. `work`: units that the load is. Pushes the
 * document: schema scry.malloc-servers/1. */
void scry_servers_push(const struct scry_replay_report *report, uint64_t work,
		       struct scry_doc *doc);

#endif
