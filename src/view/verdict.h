/*
 * The verdict of a document: one sentence that a reader can act on. It is what the data prove;
 * where they prove nothing, the largest share; where there are none, that nothing was seen.
 *
 * It is pushed once, before the totals. Text begins with it, JSON has it as "verdict" behind the
 * notes; stacks for other programs (folded, flame) have no place for it.
 */
#ifndef SCRY_VIEW_VERDICT_H
#define SCRY_VIEW_VERDICT_H

#include "base/buf.h"
#include "view/doc.h"

void scry_verdict(struct scry_doc *doc, const struct scry_buf *sentence);

/* The same of views whose verdict programs know as a note: for them it is one too. */
void scry_verdict_note(struct scry_doc *doc, const struct scry_buf *sentence);

/* Appends " took most: 1.2 s in 300 calls, the longest 20 ms", and no share: the times of callers
 * hold those of their callees. */
void scry_verdict_took(struct scry_buf *buf, uint64_t total_ns, uint64_t calls, uint64_t max_ns);

/* Appends why no row is shown: "no row matches --filter and --grep". */
void scry_verdict_filtered(struct scry_buf *buf, bool has_grep);

/* Appends "38.2 %"; never 0.0 of something, nor 100.0 of what is not all. */
void scry_verdict_percent(struct scry_buf *buf, uint64_t part, uint64_t whole);

/* Appends "38.2 % of 12,345 objects allocated"; `things` is a plural. */
void scry_verdict_share(struct scry_buf *buf, uint64_t part, uint64_t whole, const char *things);

#endif
