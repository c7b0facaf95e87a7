/*
 * The rows of `scry doctor`, for its document.
 */
#ifndef SCRY_CMD_DOCTOR_H
#define SCRY_CMD_DOCTOR_H

#include <stdbool.h>

#include "vm/ruby.h"

/* A row; `ok` or a problem, with what mends it. */
void scry_doctor_line(const char *item, bool ok, const char *text, const char *fix);
/* There is another way where it does not work: why it does not. */
void scry_doctor_optional(const char *item, bool ok, const char *text);

/* Which engine `scry stacks` takes, and what gives it the names of code, on this machine, or for
 * this Ruby; NULL: none. Nothing is attached. */
void scry_doctor_engines(const struct scry_ruby *ruby);

/* Reads the stacks of all threads now: do they make sense? */
void scry_doctor_stacks(const struct scry_ruby *ruby);

#endif
