/*
 * The calibration child: the target's own ruby, run with a script of known shape (ruby_calib.rb).
 *
 * It runs as the target's user, locked in (sys/jail), with nothing of the target's environment but
 * LD_LIBRARY_PATH and RUBY_GC_LIBRARY, with small limits and no open files but three pipes. It ends
 * when it has been read, with scry, after 5 s of a processor, or after 20 s in any case. It prints
 * facts and then sits still, to be read by sys/mem.
 */
#ifndef SCRY_VM_RUBY_CALIB_H
#define SCRY_VM_RUBY_CALIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/jail.h"
#include "sys/proc.h"

#define SCRY_FACT_WORDS 12

/* One line of the child: words[0] is the kind. */
struct scry_fact {
	const char *words[SCRY_FACT_WORDS];
	int count;
	size_t next; /* index of the next fact of this kind, 0: none */
};

#define SCRY_FACT_KINDS 64

struct scry_calib {
	pid_t pid;
	struct scry_jail jail;
	char *text;
	struct scry_fact *facts;
	size_t fact_count;
	size_t first[SCRY_FACT_KINDS]; /* index of the first fact of each kind */
	size_t kind_count;
};

/* Starts the child for `target` and waits until it sits still. 0 or -errno with a sentence;
 * -ENOEXEC: the script is in a newer language than this Ruby's, whose complaint the sentence is.
 * target->pid 0: there is no process; the file target->exe is run, which must be root's or ours. */
int scry_calib_start(const struct scry_proc *target, struct scry_calib *ret);
/* Does process `pid` name a garbage collector that its Ruby loads? Then objects and pages may lie
 * as they do in no other process of the same program. */
bool scry_calib_has_collector(pid_t pid);
/* Does child `b` run the library that target `a` runs? One of its name may have been put there
 * since: the bytes that are loaded decide (sys/elf_digest). 0, or -ENOTSUP with a sentence. */
struct scry_ruby;
int scry_ruby_is_same_module(const struct scry_ruby *a, const struct scry_ruby *b);
/* The Ruby of child `pid`: the same file as `like`'s, at its own place. Freed by scry_ruby_free. 0
 * or -ENOTSUP with a sentence. */
int scry_calib_ruby(const struct scry_ruby *like, pid_t pid, struct scry_ruby **ret);
/* Kills and reaps the child, frees the facts. */
void scry_calib_stop(struct scry_calib *calib);

/* A child that runs a script of the caller's (with the same rights, for at most 20 s) and answers
 * its lines: each answer is facts, the last one "ready". Zeroed but for the descriptors: closed. */
struct scry_calib_talk {
	pid_t pid;
	struct scry_jail jail;
	int in, out, err;
	uint64_t end_ms;
};
/* `script` lives as long as the call. 0 or -errno with a sentence. */
int scry_calib_open(const struct scry_proc *target, const char *script,
		    struct scry_calib_talk *ret);
/* Sends `line`, which ends with a newline, and waits for the answer and until the child sits still.
 * 0 or -errno with a sentence; the answer ends with scry_calib_stop. */
int scry_calib_ask(struct scry_calib_talk *talk, const char *line, struct scry_calib *ret);
/* There are no more questions: waits until it has ended by itself. 0, or -errno with a sentence:
 * not in time, or not well. */
int scry_calib_end(struct scry_calib_talk *talk);
/* Kills and reaps it. */
void scry_calib_close(struct scry_calib_talk *talk);

/* Splits `text` (taken over, changed) into facts. 0, -EPROTO when the last fact is not "ready",
 * -ENOMEM. */
int scry_calib_parse(struct scry_calib *calib, char *text);

/* The next fact of `kind` after `last` (NULL: the first), NULL at the end. */
const struct scry_fact *scry_fact_next(const struct scry_calib *calib, const struct scry_fact *last,
				       const char *kind);
/* Word `i` as an address (hex), a number (decimal) or a text (hex-coded; length returned); 0 when
 * missing. */
uint64_t scry_fact_addr(const struct scry_fact *fact, int i);
long scry_fact_number(const struct scry_fact *fact, int i);
size_t scry_fact_text(const struct scry_fact *fact, int i, char *buf, size_t size);

#endif
