/*
 * The sections of a recording by name: which instrument has recorded each (wire/file.h).
 */
#ifndef SCRY_REC_SECTIONS_H
#define SCRY_REC_SECTIONS_H

#include "rec/reader.h"

#define SCRY_SECTION_NAME_MAX 32

struct scry_sections {
	uint32_t count;					      /* at least 1 */
	char names[SCRY_SECTIONS_MAX][SCRY_SECTION_NAME_MAX]; /* of instruments; "": not said */
};

/* 0, or -errno as scry_reader_open. */
int scry_sections_read(int fd, struct scry_sections *ret);

/* The number of that instrument's section, or -1. */
int scry_sections_find(const struct scry_sections *s, const char *name);

/* As scry_reader_open; where several instruments have recorded, that one's section. */
int scry_sections_open(int fd, const char *name, struct scry_reader **ret_reader);

#endif
