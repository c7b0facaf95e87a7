/*
 * Inside of sys/text: transfers as they are kept, and their two sources, code and tables.
 *
 * A transfer is one word: target, source, kind; positions count from the base. Words that
 * are sorted are sorted by target.
 */
#ifndef SCRY_SYS_TEXT_DECODE_H
#define SCRY_SYS_TEXT_DECODE_H

#include "sys/image.h"
#include "sys/text.h"

#define SCRY_TEXT_SPAN_MAX (1ull << 29)

struct scry_words {
	uint64_t *rows; /* owned */
	size_t count, room;
};

/* A lea of something that is not code, in a function that jumps indirectly: maybe a table. */
struct scry_text_lea {
	uint32_t range, source;
	uint64_t address;
};

struct scry_text {
	struct scry_image image;
	uint64_t base, end; /* of the executable segments */
	struct scry_text_range *ranges;
	size_t count;
	struct scry_words words;
	struct scry_text_lea *leas; /* while opening */
	size_t lea_count, lea_room;
	bool is_fixed; /* linked to run at its link-time address: addresses may be immediates */
	struct scry_text_stats stats;
	uint32_t more_refs; /* who has it, besides one */
};

static inline uint64_t scry_word_target(uint64_t word)
{
	return word >> 32;
}

static inline uint64_t scry_word_source(uint64_t word)
{
	return (uint32_t)word >> 3;
}

static inline enum scry_transfer_kind scry_word_kind(uint64_t word)
{
	return word & 7;
}

/* Adds a transfer between the base and end; others are counted and dropped. `source`
 * 0: none. 0 or -ENOMEM. */
int scry_text_add(struct scry_text *text, uint64_t source, uint64_t target,
		  enum scry_transfer_kind kind);

/* Sorts the words by target; equal ones keep their order. 0 or -ENOMEM. */
int scry_text_sort(struct scry_text *text);

/* First word whose target is `target` or more (an offset from base). */
size_t scry_text_lower(const struct scry_text *text, uint64_t target);

/* Decodes all ranges and the gaps between them: words, leas, flags. 0 or -ENOMEM. */
int scry_text_decode(struct scry_text *text);

/* Addresses in data and symbols. 0 or -ENOMEM. */
int scry_text_pointers(struct scry_text *text, struct scry_elf *elf);

/* Switch tables behind the leas: after the cold parts are known. 0 or -ENOMEM. */
int scry_text_tables(struct scry_text *text);

#endif
