/*
 * What the syscalls view knows of a recording: rows by place, by call or by thread, and what of
 * them was in vain.
 */
#ifndef SCRY_VIEW_SYSCALLS_H
#define SCRY_VIEW_SYSCALLS_H

#include "base/intern.h"
#include "base/map.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/native_frames.h"
#include "view/syscall_patterns.h"
#include "view/view.h"

#define SCRY_SYSCALL_KINDS 16
#define SCRY_SYSCALL_PATHS 3	    /* that a verdict lists */
#define SCRY_SYSCALL_WITH_PATHS 100 /* verdicts that have them */

struct scry_syscall_step { /* of times */
	uint64_t from_ns, to_ns, calls;
};

struct scry_syscall_row {
	/* what it is of; site: first row that it sums up, place + 1; `why`: not counted */
	uint32_t site, pid, tid, thread_str, why_str;
	uint64_t calls, errors, again, absent, ticks;
	uint64_t again_ticks, absent_ticks; /* of `ticks`, as those of `kinds` */
	uint64_t timed, total_ns, max_ns;
	struct {
		uint64_t asked, vain, ticks;
	} kinds[SCRY_SYSCALL_KINDS]; /* by enum scry_syscalls_vain */
	uint32_t error;
	uint32_t verdict;		 /* the first of its, + 1; 0: none */
	struct scry_syscall_step *steps; /* by from_ns */
	size_t step_count;
	uint32_t caller_str;  /* of `texts`: what called most; 0 */
	uint32_t stack;	      /* one of these */
	uint64_t caller_seen; /* of samples */
	uint64_t callers_seen;
	uint32_t line_str; /* of `texts`: the line of Ruby that called most; 0: none is known */
	uint32_t line;	   /* its STACK */
	uint64_t line_seen, lineless,
		lines_seen; /* samples of this line; of Rubies without one; of Rubies */
};

struct scry_syscall_table {
	struct scry_intern keys;
	struct scry_syscall_row *rows;
	size_t room;
};

struct scry_syscall_view {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_data_quality quality;
	const struct scry_grep *grep;
	struct scry_native_frames frames;
	struct scry_ev_syscalls sums;
	bool has_sums;
	uint64_t calls, inside; /* of all, or of --pid: in rows and in none */
	struct scry_ev_syscall_site *sites;
	struct scry_syscall_row *site_sums; /* by place in `sites` */
	size_t site_count, site_room;
	struct scry_map by_site; /* number -> place + 1 */
	struct scry_intern texts;
	struct scry_map callers;    /* row << 32 | text -> count */
	struct scry_map lines;	    /* the same; text 0: not known */
	struct scry_map site_lines; /* the same by place in `sites` */
	struct scry_map paths;	    /* row << 32 | string -> count */
	uint64_t lines_seen, lineless;
	struct scry_syscall_table places, shown; /* `shown` where rows are not places */
	struct scry_syscall_verdict *verdicts;	 /* of the rows of `places` */
	/* of the row that is printed: */
	struct scry_doc_frame call_frames[SCRY_NATIVE_DEPTH], line_frames[SCRY_NATIVE_DEPTH];
	struct scry_doc_value shares[2];
};

/* Reads a recording to its end. `v` is zeros, and is freed by done in any case. 0 or -errno with a
 * sentence. */
int scry_syscall_read(struct scry_syscall_view *v, struct scry_reader *reader,
		      const struct scry_view_opts *opts, struct scry_doc *doc);
void scry_syscall_done(struct scry_syscall_view *v);

/* "libc.so.6 swapcontext+0x8b". */
void scry_syscall_put_place(const struct scry_syscall_view *v,
			    const struct scry_ev_syscall_site *site, struct scry_buf *buf);

/* For people: symbols that are too long for a page lose their middle. */
void scry_syscall_shorten(struct scry_buf *buf);

/* The site of a row. */
const struct scry_ev_syscall_site *scry_syscall_site_of(const struct scry_syscall_view *v,
							const struct scry_syscall_row *row);

static inline bool scry_syscall_is_exact(const struct scry_syscall_view *v)
{
	return v->sums.flags & SCRY_SYSCALLS_EXACT;
}
static inline bool scry_syscall_is_at_sites(const struct scry_syscall_view *v)
{
	return v->sums.flags & SCRY_SYSCALLS_AT_SITES;
}
static inline bool scry_syscall_has_vain_ticks(const struct scry_syscall_view *v)
{
	return v->sums.flags & SCRY_SYSCALLS_VAIN_TICKS;
}
static inline bool scry_syscall_is_timed(const struct scry_syscall_view *v)
{
	return v->sums.flags & SCRY_SYSCALLS_LATENCY;
}

/* "write"; "2,752,057 of 2,752,057 calls set ..."; "main+0x4 < ...", with how much of the samples
 * that is where it is not nearly all. */
const char *scry_syscall_text(const struct scry_syscall_view *v, uint32_t string);
void scry_syscall_put_verdict(const struct scry_syscall_verdict *verdict, struct scry_buf *buf);
void scry_syscall_put_caller(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
			     struct scry_buf *buf);
/* A part of 1 as a value of JSON; null of nothing. */
struct scry_doc_value scry_syscall_share(uint64_t part, uint64_t whole);
struct scry_cell scry_syscall_share_cell(uint64_t part, uint64_t whole,
					 struct scry_doc_value *value);
struct scry_cell scry_syscall_tenths(uint64_t part, uint64_t whole); /* 12.3 % */
/* Samples at the place, also of programs that are not Rubies. */
uint64_t scry_syscall_line_whole(const struct scry_syscall_row *row);

/* Its rows, the heaviest first, to be freed; NULL: no memory. */
const struct scry_syscall_row **scry_syscall_sorted(const struct scry_syscall_view *v,
						    const struct scry_syscall_table *t);

/* "60 % app.rb:12 Foo#bar"; "[no line]" where that is the largest part. */
void scry_syscall_put_line(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
			   struct scry_buf *buf);

/* Head: verdict, notes, totals. Tables: rows; calls in vain and their cures. 0 or -ENOMEM. */
void scry_syscall_push_head(struct scry_syscall_view *v,
			    const struct scry_syscall_verdict *verdicts, size_t count);
int scry_syscall_push_rows(struct scry_syscall_view *v);
void scry_syscall_push_verdicts(struct scry_syscall_view *v,
				size_t count); /* those that --grep leaves are moved to the front */

/* Where calls of this row asked for files in vain, by a sample of them, most first: "/a 45 %, /b
 * 30 %"; nothing where none are known. `directories`: or the paths themselves. How many percent the
 * first has. */
uint64_t scry_syscall_put_paths(const struct scry_syscall_view *v,
				const struct scry_syscall_row *row, bool directories,
				struct scry_buf *buf);

#endif
