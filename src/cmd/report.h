/*
 * From a recording to a report: what `scry report` does, and every live command at its end.
 */
#ifndef SCRY_CMD_REPORT_H
#define SCRY_CMD_REPORT_H

#include "view/view.h"

#include <stdbool.h>
#include <stdio.h>

struct scry_report_opts {
	const char *view;    /* NULL: the one of the instrument that recorded */
	const char *section; /* of what several have recorded; NULL: all of them, in text */
	bool json, folded;
	bool flame;	 /* a flame graph, as an HTML page: of samples */
	bool speedscope; /* the same for the viewer of that name */
	bool by_given;	 /* rows.by was asked for, and is not what views have without */
	struct scry_view_opts rows;
};

#define SCRY_REPORT_OPTS_DEFAULT               \
	{                                      \
		.rows = SCRY_VIEW_OPTS_DEFAULT \
	}

/* Option rows shared by `report` and the live commands. `o`: struct scry_report_opts *. */
#define SCRY_REPORT_OPT_ROWS(o)                                                                \
	SCRY_VIEW_OPT_ROWS(&(o)->rows),                                                        \
		{0,                                                                            \
		 "folded",                                                                     \
		 SCRY_OPT_FLAG,                                                                \
		 &(o)->folded,                                                                 \
		 NULL,                                                                         \
		 "print one line per stack, for flame graph tools; implies --stacks",          \
		 NULL},                                                                        \
	{                                                                                      \
		0, "json", SCRY_OPT_FLAG, &(o)->json, NULL, "print JSON instead of text", NULL \
	}

/* --by of all views, for the choices of a row (enum scry_view_by); it begins as -1, so that one
 * that is given is seen: by_settle, after parsing. */
#define SCRY_REPORT_BY_CHOICES \
	"line|class|file|method|gem|caller|module|stack|syscall|thread|site|holder|process"
void scry_report_by_settle(struct scry_report_opts *opts);

/* Of --section: instruments whose recordings have one, for completion. */
#define SCRY_REPORT_SECTION_CHOICES "objects|malloc|calls|locks|gvl|count|log|time|stacks|syscalls"

/*
 * After parsing, and before a watch: what the options cannot mean. `path` is where the report or
 * the recording goes (NULL: stdout): x.json, x.folded and x.html choose the form. 0, or -EINVAL
 * with a sentence.
 */
int scry_report_opts_check(struct scry_report_opts *opts, const char *path);
/* The same of a live command, where `path` may keep the recording, which has no form. */
int scry_report_check_kept(const struct scry_report_opts *opts, const char *path);

/* Chooses and opens the renderer; `doc` is set as for it, but for the width. As the renderers. */
int scry_report_open(struct scry_doc *doc, const struct scry_report_opts *opts);

/* `scry report` and `scry info`: the recording at `path` to `to` (NULL: stdout), replaced with
 * `force`. Exit status, with a sentence. */
int scry_report_file(const char *path, const struct scry_report_opts *opts, const char *to,
		     bool force);

/* Opens a recording for reading. 0 and the fd (close-on-exec), or -errno with a sentence. */
int scry_recording_open(const char *path, int *ret_fd);

/*
 * Reads the recording `fd` (a regular file or memfd, from its beginning whatever the offset) and
 * prints it to `out`; the data quality of a text stream goes to stderr. 0 or -errno with a
 * sentence.
 */
int scry_report_fd(int fd, const struct scry_report_opts *opts, FILE *out);

/* The same of a recording that is still being written; its view must be given. `wait` is that of
 * scry_reader_follow. */
struct scry_report_live {
	int (*wait)(void *arg, uint64_t offset, bool is_end);
	void *arg;
};
int scry_report_live(int fd, const struct scry_report_opts *opts, FILE *out,
		     const struct scry_report_live *live);

#endif
