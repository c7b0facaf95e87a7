/* Text put together where malloc and stdio may not be called. What does not fit is cut. */
#ifndef SCRY_FIBER_REPORT_H
#define SCRY_FIBER_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct scry_report {
	size_t size;
	char text[4096];
};

static inline void scry_report_text(struct scry_report *report, const char *text)
{
	size_t room = sizeof(report->text) - report->size, size = strlen(text);

	size = size < room ? size : room;
	memcpy(report->text + report->size, text, size);
	report->size += size;
}

static inline void scry_report_number(struct scry_report *report, uint64_t value, unsigned base)
{
	char digits[32];
	size_t at = sizeof(digits);

	digits[--at] = '\0';
	do {
		digits[--at] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value != 0);
	if (base == 16) {
		digits[--at] = 'x';
		digits[--at] = '0';
	}
	scry_report_text(report, digits + at);
}

#endif
