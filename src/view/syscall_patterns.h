/* What calls at a place did in vain, and its cure. */
#ifndef SCRY_VIEW_SYSCALL_PATTERNS_H
#define SCRY_VIEW_SYSCALL_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scry_syscall_view;
struct scry_syscall_row;

enum scry_syscall_grade { SCRY_GRADE_PROVEN, SCRY_GRADE_OBSERVED, SCRY_GRADE_HINT };

struct scry_syscall_verdict { /* of a row of places */
	const struct scry_syscall_row *row;
	const char *pattern; /* "mask", "eagain", ...: for programs */
	enum scry_syscall_grade grade;
	bool has_paths; /* it is about the paths that calls asked for in vain */
	uint64_t vain, of;
	uint64_t ticks;	 /* in those in vain alone; where the recording has them */
	const char *did; /* "set the signal mask that was already in force" */
	const char *cure, *risk;
};

/* The worst first, to be freed; how many. */
size_t scry_syscall_judge(const struct scry_syscall_view *v, struct scry_syscall_verdict **ret);
int scry_syscall_verdict_compare(const void *left, const void *right); /* that order */
const char *scry_syscall_grade_name(enum scry_syscall_grade grade);

#endif
