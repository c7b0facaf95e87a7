/*
 * Recordings made for the golden tests, and the comparison of pages with those in test/golden/.
 * SCRY_GOLDEN_UPDATE=1 rewrites them: read the difference before you keep it.
 */
#ifndef SCRY_TEST_GOLDEN_H
#define SCRY_TEST_GOLDEN_H

#include "base/buf.h"
#include "rec/writer.h"
#include "view/view.h"

#define GOLDEN_START_NS 1000000000000u

struct golden {
	int fd;
	struct scry_writer *w;
};

struct golden_place {
	uint32_t pid;
	const char *file;
	uint32_t line;
	const char *class;
	const char *method;
	uint32_t flags;
	uint64_t allocated, freed;
};

/* A recording in memory: begin, put what it holds, end, which gives its fd. */
struct golden golden_begin(void);
int golden_end(struct golden *rec);

uint32_t golden_str(struct golden *rec, const char *text);
void golden_put(struct golden *rec, uint16_t type, const void *payload, size_t bytes);
void golden_beginning(struct golden *rec, const char *instrument, uint32_t pid);
void golden_totals(struct golden *rec, uint32_t pid, uint64_t events);
void golden_site(struct golden *rec, uint32_t id, const struct golden_place *place);

/* Columns of the terminal that text pages are made for; 0: as wide as they like. */
extern unsigned int golden_width;

/* Opens the renderer that the file's ending asks for. 0 or its error. */
int golden_open(struct scry_doc *doc, const char *file);

/* The page must be what `file` in test/golden/ holds. */
void golden_compare(const char *file, const struct scry_buf *page);

/* Shows the recording in a view, in the form of the file's ending. The page is the caller's. */
void golden_show(int fd, const char *view, const char *file, const struct scry_view_opts *opts,
		 struct scry_buf *ret_page);

/* Shows the recording in a view and compares; the form is that of the file's ending. */
void golden_check(int fd, const char *view, const char *file, const struct scry_view_opts *opts);

/* --sort by each key that the view has: in the table that has it rows fall, what is unknown comes
 * last, and no row is lost; and no amount in its rows lacks a key. How many keys change the
 * page. */
size_t golden_sorts(int fd, const char *view, const struct scry_view_opts *opts);

#endif
