/*
 * Talk: everything scry says on stderr while it works. stdout is data and never written here.
 *
 * Levels: errors always; ordinary sentences unless -q; details with -v. Progress is one line that
 * rewrites itself, shown only when stderr is a terminal and not with -q; any other sentence wipes
 * it first. Strings of the target may be printed: control bytes are shown escaped, newlines too.
 */
#ifndef SCRY_BASE_LOG_H
#define SCRY_BASE_LOG_H

#include <stdbool.h>

enum scry_log_color {
	SCRY_LOG_COLOR_AUTO, /* when the stream is a terminal, NO_COLOR is unset and TERM is not
				dumb */
	SCRY_LOG_COLOR_ALWAYS,
	SCRY_LOG_COLOR_NEVER,
};

/* Sets the level: -1 quiet, 0 ordinary, 1 verbose; and the colour choice. Before threads start. */
void scry_log_setup(int level, enum scry_log_color color);

/* The level, for callers that pass it on to the keeper. */
int scry_log_level(void);

/* Reads "auto", "always" or "never" into *ret_color. 0 or -EINVAL with a sentence. */
int scry_log_color_parse(const char *word, enum scry_log_color *ret_color);

/* True when output to file descriptor `fd` may carry colours. */
bool scry_log_has_color(int fd);

/* "scry: " and the sentence; shown even with -q. */
void scry_log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A sentence the user should see unless quiet. */
void scry_log_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A detail, shown with -v. */
void scry_log_detail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Replaces the progress line; nothing off a terminal. */
void scry_log_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Wipes the progress line. */
void scry_log_progress_end(void);

#endif
