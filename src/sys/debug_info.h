/*
 * Debug information of an object, where there is any that may be read.
 *
 * From the file itself or from /usr/lib/debug/.build-id, by libdw, and only from files of root or
 * the caller. A parser of debug information is a large thing to show foreign bytes: it runs in a
 * child process, which is asked questions. What crashes there, or goes round for ever, is that
 * child: there are no answers then, and the watch goes on.
 */
#ifndef SCRY_SYS_DEBUG_INFO_H
#define SCRY_SYS_DEBUG_INFO_H

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "sys/elf.h"

#define SCRY_DEBUG_QUESTION_MAX 512u /* bytes */
#define SCRY_DEBUG_ANSWER_MAX 16384u

struct scry_debug_info;

/* In the child: writes at most SCRY_DEBUG_ANSWER_MAX bytes; returns how many, 0: it does not know.
 * `*state` is its own, NULL at first. */
typedef size_t scry_debug_answer(Dwarf *dwarf, void **state, const void *question, void *ret);

/* For `answer`: the unit whose code has the link-time `address`, also where no table says so. */
bool scry_debug_info_unit(Dwarf *dwarf, uint64_t address, Dwarf_Die *ret);

/* NULL: there is none. `answer` runs in a child, which is made at the first question. */
struct scry_debug_info *scry_debug_info_open(struct scry_elf *elf, scry_debug_answer *answer);
void scry_debug_info_close(struct scry_debug_info *info); /* NULL is legal */

/* Waits 5 s at most, 10 in all of processor time for all questions. The answer's bytes, into `ret`
 * of SCRY_DEBUG_ANSWER_MAX; 0: there is none. */
size_t scry_debug_info_ask(struct scry_debug_info *info, const void *question, size_t size,
			   void *ret);

/* Adds which files it is read from, and as of when. 0 or -errno, no sentence. */
int scry_debug_info_digest(const struct scry_debug_info *info, struct scry_digest *to);

/* Has the child ended before it was asked to, or could none be made? */
bool scry_debug_info_has_failed(const struct scry_debug_info *info);

#endif
