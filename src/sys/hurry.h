/*
 * While threads of a program stand still nobody shall keep us from letting them go: on a machine
 * with more work than processors that would be most of a pause. Without the right to a real-time
 * priority it takes what it takes.
 */
#ifndef SCRY_SYS_HURRY_H
#define SCRY_SYS_HURRY_H

#include <stdbool.h>

struct scry_hurry {
	int policy; /* ours, to be had back */
	bool is_on;
};

void scry_hurry_begin(struct scry_hurry *h);
/* Legal when it never began, and twice. */
void scry_hurry_end(struct scry_hurry *h);

#endif
