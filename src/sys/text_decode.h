/*
 * Inside of sys/text: transfers as they are kept, where they come from, what was decoded so far.
 *
 * A transfer is one word (text_word.h); positions count from the base. Code is decoded by units:
 * unit 2 i + 1 is range i, unit 2 i the gap before it, the last one the code behind all.
 */
#ifndef SCRY_SYS_TEXT_DECODE_H
#define SCRY_SYS_TEXT_DECODE_H

#include "sys/image.h"
#include "sys/text.h"
#include "sys/text_word.h"

#define SCRY_TEXT_SPAN_MAX (1ull << 29)
#define SCRY_TEXT_BUCKET 256u /* bytes of code */

/* In the order in which they were found, and chained by the bucket of their target. */
struct scry_words {
	uint64_t *rows;	 /* owned */
	uint32_t *next;	 /* owned; in parallel: the next of the bucket, from 1; 0: none */
	uint32_t *heads; /* owned; by bucket */
	size_t count, room;
	size_t chained;
};

/* Where four bytes lie that would lead into the code as a displacement, or, with ABSOLUTE, as an
 * address: by the bucket that they would lead to. All branches of 32 bits are among them. */
#define SCRY_TEXT_ABSOLUTE 0x80000000u
struct scry_guesses {
	uint32_t *rows;	 /* owned; offsets from base */
	uint32_t *first; /* owned; by bucket: index of its first row; one more at the end */
};

/* A lea of something that is not code: maybe of a switch table. */
struct scry_text_lea {
	uint32_t range, source;
	uint64_t address;
};

struct scry_text_leas {
	struct scry_text_lea *rows; /* owned */
	size_t count, room;
};

/* What was found in a unit: [first, end) of the words and leas. */
struct scry_text_unit {
	uint32_t word, word_end, lea, lea_end;
	bool is_decoded;
	bool is_entry;	      /* of a range: unwinding begins as at a function's entry */
	bool is_kind_known;   /* of a range: kind and the parent that leads to it */
	bool is_settled;      /* and that parent is none that is cold itself */
	bool has_jump;	      /* of a range: jmp *r/m, through a word, too */
	bool are_tables_read; /* of a range that is not a cold part: its group's */
	bool is_computed;     /* known then: jumps of its group may lead anywhere in it */
};

struct scry_text_numbers {
	uint32_t *rows; /* owned */
	size_t count, room;
};

struct scry_text_found {
	uint64_t *rows; /* owned */
	size_t count, room;
};

struct scry_text {
	struct scry_image image;
	uint64_t base, end; /* of the executable segments */
	struct scry_text_range *ranges;
	size_t count;
	struct scry_text_unit *units; /* owned; 2 count + 1 */
	struct scry_words words;
	struct scry_guesses guesses;
	struct scry_text_leas leas;
	struct scry_text_numbers group; /* of group_of and its cold parts, the head first */
	uint32_t group_of;		/* or SCRY_TEXT_NO_PARENT: none is known */
	struct scry_text_found found;	/* words that answer the question */
	bool is_fixed;	   /* linked to run at its link-time address: addresses may be immediates */
	bool are_all_read; /* all is decoded, and all tables are read */
	bool has_failed;   /* memory was lacking: what leads where is not known any more */
	struct scry_text_stats stats;
	uint32_t more_refs; /* its holders, besides one */
};

/* Adds a transfer between the base and end; others are counted and dropped. `source`
 * 0: none. 0 or -ENOMEM. */
int scry_text_add(struct scry_text *text, uint64_t source, uint64_t target,
		  enum scry_transfer_kind kind);

/* Chains those that were added since it was last called. */
void scry_text_chain(struct scry_text *text);

/* Adds a number. 0 or -ENOMEM. */
int scry_text_number(struct scry_text_numbers *to, uint32_t number);

/* The range that covers `addr`, or NULL: its kind and parent need not be settled. */
const struct scry_text_range *scry_text_find(const struct scry_text *text, uint64_t addr);

/* Decodes a unit, unless it was: words, leas, flags. 0 or -ENOMEM. */
int scry_text_decode(struct scry_text *text, size_t unit);

/* Finds the guesses. 0 or -ENOMEM. */
int scry_text_guess(struct scry_text *text);

/* Decodes all that may lead directly, or by an address in an instruction, into [from, to): then the
 * words that do are all there. 0 or -ENOMEM. */
int scry_text_reach(struct scry_text *text, uint64_t from, uint64_t to);

/* Visits the words that lead into [from, to), in no order. */
struct scry_word_walk {
	uint64_t from, to; /* offsets from base */
	uint64_t bucket;
	uint32_t next;
};
struct scry_word_walk scry_text_walk(const struct scry_text *text, uint64_t from, uint64_t to);
bool scry_text_step(const struct scry_text *text, struct scry_word_walk *walk, uint64_t *ret);

/* Of a range: its kind and parent are final afterwards. 0 or -ENOMEM. */
int scry_text_settle(struct scry_text *text, size_t range);

/* The range a cold part belongs to; others are their own; SCRY_TEXT_NO_PARENT: it is not known. Of
 * a range that is settled. */
uint32_t scry_text_head(const struct scry_text *text, size_t range);

/* Makes text->group the range `head` and its cold parts. 0 or -ENOMEM. */
int scry_text_find_group(struct scry_text *text, uint32_t head);

/* Is `addr` in the group that was found last? */
bool scry_text_is_in_group(const struct scry_text *text, uint64_t addr);

/* Addresses in data and symbols. 0 or -ENOMEM. */
int scry_text_pointers(struct scry_text *text, struct scry_elf *elf);

/* Reads the switch tables that may lead into range `range`. 0 or -ENOMEM. */
int scry_text_tables(struct scry_text *text, size_t range);

/* Of a range whose tables were read: may a jump lead to any byte of it? */
bool scry_text_is_computed(const struct scry_text *text, size_t range);

/* Decodes and reads all. 0 or -ENOMEM. */
int scry_text_all(struct scry_text *text);

#endif
