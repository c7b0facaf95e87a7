/*
 * What the gvl view knows of a recording: locks summed, threads, pairs, and what made others wait:
 * by line, method or gem, as the samples of the thread that held the lock say.
 *
 * Life: read, which fills a struct of zeros; sort; push; done in any case.
 */
#ifndef SCRY_VIEW_GVL_H
#define SCRY_VIEW_GVL_H

#include "base/map.h"
#include "view/frames.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/view.h"

#define SCRY_GVL_CPU_UNKNOWN UINT64_MAX
#define SCRY_GVL_SLICE_NS 100000000 /* of the VM: for so long a thread may have it */
#define SCRY_GVL_ROWS_MAX (1u << 20)
#define SCRY_GVL_SUMS_FROM (1u << 31) /* numbers of what is summed of several rows */

struct scry_gvl_line {
	/* A frame: with a line by line, without one by method, a gem's name as its method; of data
	 * by line a whole stack. Where C code of a library ran it has one of that above it. 0: not
	 * known. By thread or holder: the thread's place + 1, 0: no thread's. */
	uint32_t what, samples;
	uint64_t lost_ns;
	uint64_t waits, max_ns; /* where each waiter's stack was taken */
	bool has_others;	/* of its line: what other methods had is in it */
};

struct scry_gvl_lines {
	struct scry_gvl_line *rows;
	struct scry_map by_what; /* -> place + 1 */
	uint64_t lost_ns;	 /* by all rows */
	uint32_t count, room;
};

struct scry_gvl_lock_sum { /* of a ractor: several where the process ran another program (exec) */
	uint32_t pid, ractor, threads;
	bool is_over;
	uint64_t contended_ns, known_ns, unknown_ns, held_ns, waited_ns;
	uint64_t runnable_ns[SCRY_GVL_PLACES];
};

struct scry_gvl_view {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_data_quality quality;
	struct scry_grep grep;
	struct scry_ev_gvl sum;			    /* of all locks; pid: of the last */
	uint32_t events, lock_count, process_count; /* events: more where one runs another program
						     * (exec); processes have several ractors */
	struct scry_gvl_lock_sum *locks;
	size_t lock_room;
	struct scry_map by_ractor; /* its pid below -> place + 1 */
	struct scry_ev_gvl_thread *threads;
	struct scry_ev_gvl_pair *pairs;
	struct scry_frames frames;
	struct scry_intern names;
	struct scry_gvl_lines held, waited; /* holders while others waited; waiters */
	uint32_t thread_count, thread_room, pair_count, pair_room;
	struct scry_map by_number; /* pid << 32 | thread -> place + 1 */
	uint32_t waiters;	   /* rows of threads that waited, before they are summed */
	struct scry_buf buf;
};

struct scry_gvl_each { /* what was there before it was summed */
	struct scry_ev_gvl_thread *threads;
	struct scry_ev_gvl_pair *pairs;
	struct scry_gvl_line *held, *waited;
	uint32_t thread_count, pair_count, held_count, waited_count;
};

/* Reads a recording to its end; by line, method or gem, as `opts` say, else by line. 0 or -errno
 * with a sentence. */
int scry_gvl_view_read(struct scry_gvl_view *g, struct scry_reader *reader,
		       const struct scry_view_opts *opts, struct scry_doc *doc);
void scry_gvl_view_done(struct scry_gvl_view *g);

/* What made others wait most comes first, in each table. */
void scry_gvl_view_sort(struct scry_gvl_view *g);
int scry_gvl_row_compare(const void *left, const void *right);
int scry_gvl_pair_compare(const void *left, const void *right);

/* Sorts, and sums threads of one name that have ended, the pairs in which they are, and by line
 * what was at one line. Free `ret` in any case. 0 or -ENOMEM. */
int scry_gvl_view_sum(struct scry_gvl_view *g, struct scry_gvl_each *ret);
void scry_gvl_view_each_again(struct scry_gvl_view *g, const struct scry_gvl_each *each);
void scry_gvl_each_free(struct scry_gvl_each *each);

static inline uint64_t scry_gvl_waited_ns(const struct scry_ev_gvl_thread *t)
{
	return t->wanted_ns + t->granted_ns;
}

/* Watched, with a known holder: of all locks. */
uint64_t scry_gvl_known_ns(const struct scry_gvl_view *g);

/* The same, of the lock for which it was longest: several are watched at the same time. */
uint64_t scry_gvl_longest_ns(const struct scry_gvl_view *g);

/* Which threads wanted for longest. NULL: there is none. */
const struct scry_gvl_lock_sum *scry_gvl_worst_lock(const struct scry_gvl_view *g);

/* Whose lock a thread's is; 0: it sums threads of several. Are there more than each first one? */
uint32_t scry_gvl_ractor_of(const struct scry_ev_gvl_thread *t);
static inline bool scry_gvl_has_ractors(const struct scry_gvl_view *g)
{
	return g->lock_count > g->process_count;
}

/* By all threads together. */
uint64_t scry_gvl_waited_all_ns(const struct scry_gvl_view *g);

/* NULL: `number` is 0, or none. */
const struct scry_ev_gvl_thread *scry_gvl_thread_at(const struct scry_gvl_view *g, uint32_t pid,
						    uint32_t number);

/* "worker", "worker (4713)", of several processes "worker (4713 of 4711)"; NULL:
 * "[changing hands]". */
void scry_gvl_put_name(const struct scry_gvl_view *g, const struct scry_ev_gvl_thread *t,
		       struct scry_buf *b);
void scry_gvl_put_thread(const struct scry_gvl_view *g, const struct scry_ev_gvl_thread *t,
			 struct scry_buf *b);

/* "app.rb:12 Foo#bar in foo.so"; what a row of lines is. */
void scry_gvl_put_row(const struct scry_gvl_view *g, const struct scry_gvl_line *row,
		      struct scry_buf *b);
/* Its frame of Ruby, with the line of the program. */
struct scry_frame scry_gvl_place_of(const struct scry_gvl_view *g, uint32_t what);

/* The frame of Ruby, and that of the library above it: 0, there is none. */
struct scry_frame scry_gvl_ruby_frame(const struct scry_gvl_view *g, uint32_t what,
				      uint32_t *ret_library);

/* Verdict, notes, totals; then the tables. */
void scry_gvl_push_head(struct scry_gvl_view *g);
void scry_gvl_push_tables(struct scry_gvl_view *g);
/* Only the stacks of holders. */
void scry_gvl_push_stacks(struct scry_gvl_view *g);

#endif
