/*
 * Talk on stderr. See log.h.
 *
 * Each sentence is one write(2), so that front and keeper do not cut each other's lines.
 */
#include "base/log.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_TEXT_MAX 1200 /* holds the sentence of scry_fail and some words */

static int log_level;
static enum scry_log_color log_color;
static bool progress_shown;

void scry_log_setup(int level, enum scry_log_color color)
{
	log_level = level;
	log_color = color;
}

int scry_log_level(void)
{
	return log_level;
}

int scry_log_color_parse(const char *word, enum scry_log_color *ret_color)
{
	static const char *const words[] = {
		[SCRY_LOG_COLOR_AUTO] = "auto",
		[SCRY_LOG_COLOR_ALWAYS] = "always",
		[SCRY_LOG_COLOR_NEVER] = "never",
	};
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strcmp(word, words[i])) {
			*ret_color = (enum scry_log_color)i;
			return 0;
		}
	}
	return scry_fail(-EINVAL, "unknown colour choice '%s'; fix: auto, always or never", word);
}

bool scry_log_has_color(int fd)
{
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	if (log_color != SCRY_LOG_COLOR_AUTO)
		return log_color == SCRY_LOG_COLOR_ALWAYS;
	if ((no_color && no_color[0]) || !term || !strcmp(term, "dumb"))
		return false;
	return isatty(fd) == 1;
}

static void log_write(const char *line, size_t len)
{
	ssize_t done = write(STDERR_FILENO, line, len);

	(void)done; /* there is nothing left to report to */
}

static void log_line(const char *color, const char *fmt, va_list ap)
{
	bool colored = color && scry_log_has_color(STDERR_FILENO);
	struct scry_buf line = {0};
	char text[LOG_TEXT_MAX];

	scry_log_progress_end();
	vsnprintf(text, sizeof(text), fmt, ap);
	scry_buf_printf(&line, "%sscry:%s ", colored ? color : "", colored ? "\033[0m" : "");
	scry_text_escape(&line, text, strlen(text));
	scry_buf_append(&line, "\n", 1);
	log_write(line.data, line.len);
	scry_buf_done(&line);
}

void scry_log_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line("\033[31m", fmt, ap);
	va_end(ap);
}

void scry_log_say(const char *fmt, ...)
{
	va_list ap;

	if (log_level < 0)
		return;
	va_start(ap, fmt);
	log_line(NULL, fmt, ap);
	va_end(ap);
}

void scry_log_detail(const char *fmt, ...)
{
	va_list ap;

	if (log_level < 1)
		return;
	va_start(ap, fmt);
	log_line("\033[2m", fmt, ap);
	va_end(ap);
}

void scry_log_progress(const char *fmt, ...)
{
	struct scry_buf line = {0};
	char text[LOG_TEXT_MAX];
	va_list ap;

	if (log_level < 0 || isatty(STDERR_FILENO) != 1)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	scry_buf_append(&line, "\r\033[K", 4);
	scry_text_escape(&line, text, strlen(text));
	log_write(line.data, line.len);
	scry_buf_done(&line);
	progress_shown = true;
}

void scry_log_progress_end(void)
{
	if (progress_shown)
		log_write("\r\033[K", 4);
	progress_shown = false;
}
