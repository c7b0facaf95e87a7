/* What a dump shows, piece by piece: lines for people, cells for programs. */
#ifndef SCRY_CMD_DUMP_PRINT_H
#define SCRY_CMD_DUMP_PRINT_H

#include "cmd/dump.h"
#include "view/cell.h"

/* For people. A thread is its number and name. */
void scry_dump_put_thread(const struct scry_dump_thread *t, struct scry_buf *buf);
void scry_dump_put_lock(const struct scry_dump *d, const struct scry_dump_thread *t,
			struct scry_buf *buf);
void scry_dump_put_process(const struct scry_dump *d, struct scry_buf *buf);
/* Lines about `t` and the threads that are alike; at most `depth` frames, 0: all. */
void scry_dump_put_threads(const struct scry_dump *d, const struct scry_dump_thread *t,
			   uint64_t depth, struct scry_buf *buf);
void scry_dump_put_place(const struct scry_dump_place *place, uint64_t depth, struct scry_buf *buf);

/* Does a cycle begin with the thread of this index? is_timed: Timeout may end it, or nothing. */
bool scry_dump_is_cycle(const struct scry_dump *d, size_t first, bool is_timed);
void scry_dump_put_cycle(const struct scry_dump *d, size_t first, struct scry_buf *buf);

/* For programs: a VALUE, and VALUES, of at most 3 * d->count. */
#define SCRY_DUMP_LOCK_VALUES 18
struct scry_cell scry_dump_lock_cell(const struct scry_dump *d, const struct scry_dump_thread *t,
				     struct scry_doc_value values[SCRY_DUMP_LOCK_VALUES]);
struct scry_cell scry_dump_cycles_cell(const struct scry_dump *d, bool are_timed,
				       struct scry_doc_value *values);

#endif
