/*
 * What commands share that watch from outside, without a keeper, as nothing is written into the
 * process: the recording, the program of `-- CMD`, the report.
 *
 * Life: the caller fills in what is his; files, start, keep, ... show, close.
 */
#ifndef SCRY_CMD_OUTSIDE_H
#define SCRY_CMD_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/output.h"
#include "cmd/report.h"
#include "rec/writer.h"

struct scry_outside {
	/* the caller's */
	const char *output; /* -o; NULL */
	bool force;
	uint64_t max_size;
	char **command; /* NULL: -p */
	struct scry_report_opts report;
	/* its own; rec_fd and out.fd begin as -1 */
	int rec_fd;
	struct scry_output out; /* of the report; without a stream: the recording is kept */
	struct scry_writer *writer;
	pid_t child; /* 0: none */
	int child_status, gate, fault;
	bool child_ended;
};

#define SCRY_OUTSIDE_INIT                                                                   \
	{                                                                                   \
		.rec_fd = -1, .out.fd = -1, .report = SCRY_REPORT_OPTS_DEFAULT, .gate = -1, \
	}

/* 0 or -errno with a sentence. */
int scry_outside_files(struct scry_outside *o);

/* Events of the recording, now: SESSION, of this instrument; any one; the id of a string; NOTE, a
 * sentence that every report shows. What cannot be written, the writer counts. */
void scry_outside_head(struct scry_outside *o, const char *instrument);
void scry_outside_event(struct scry_outside *o, uint16_t type, const void *payload, size_t size);
uint32_t scry_outside_string(struct scry_outside *o, const char *text);
void scry_outside_note(struct scry_outside *o, const char *text);

/*
 * Starts the command; `gated`: it waits before its exec until scry_outside_let_go, and ends when
 * scry dies before. 0 or -errno with a sentence: it cannot be run, which of a gated one let_go
 * says.
 */
int scry_outside_start(struct scry_outside *o, bool gated);
int scry_outside_let_go(struct scry_outside *o);
/* Has it ended? False where there is none. */
bool scry_outside_has_ended(struct scry_outside *o);

/* Ends the recording, and shows the report where one is wanted. 0 or -errno with a sentence. */
int scry_outside_show(struct scry_outside *o);
/* Frees; the output file stays only where `err` is 0. Returns `err`, or what closing says. */
int scry_outside_close(struct scry_outside *o, int err);

/* Waits for the program: its own status, whatever became of the watch; 125 when that failed. */
int scry_outside_status(struct scry_outside *o, int err);

void scry_outside_rest(uint64_t ns);

#endif
