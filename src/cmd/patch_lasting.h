/*
 * Patches that last, as commands see them: entering a process for one, taking one out by its name,
 * the list.
 */
#ifndef SCRY_CMD_PATCH_LASTING_H
#define SCRY_CMD_PATCH_LASTING_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/lasting.h"

struct scry_lasting_way {
	const char *purpose;
	uint64_t near;	      /* code that is to be changed; 0: anywhere */
	uint64_t spare_stack; /* of a patch that is there; 0 */
	bool takes_out;	      /* nothing is put in */
	uint64_t max_pause_ns;
};
/* Claims and enters a process; signals that would end scry wait until it has left. 0 or -errno with
 * a sentence: scry_lasting_leave all the same. */
int scry_lasting_enter(struct scry_inject *inj, const struct scry_proc *proc,
		       const struct scry_lasting_way *way);
/* What could not be put in whole is taken out; returns `r`, whose sentence is kept. */
int scry_lasting_give_up(struct scry_lasting *patch, struct scry_inject *inj, int r);
/* Leaves; returns `r`, whose sentence is kept, or what leaving says. scry_inject_done is the
 * caller's. */
int scry_lasting_leave(struct scry_inject *inj, int r);

/* The patch of that name, looked for from outside. 0; -ENOENT, or -errno, with a sentence. */
int scry_lasting_look(const struct scry_proc *proc, const char *name, struct scry_patch_head *ret);
/* May one of that name be applied? 0; -EEXIST with a sentence: it is. */
int scry_lasting_check_free(const struct scry_proc *proc, const char *name);
/* What a scry that died has left changed is put back: before a patch is planned. While another scry
 * is at work nothing is done. 0 or -errno with a sentence. */
int scry_lasting_clean(const struct scry_proc *proc, uint64_t max_pause_ns);

struct scry_taken_out {
	struct scry_undo_report report;
	uint64_t left; /* bytes that stay mapped */
	const char *why;
	uint64_t pause_ns;
};
/* Takes patch `name` out. 0; -ENOENT, -errno with a sentence. `ret` may be NULL. */
int scry_lasting_take_out(const struct scry_proc *proc, const char *name, uint64_t max_pause_ns,
			  struct scry_taken_out *ret);

/* Prints the patches of a process; returns how many there are, or -errno. */
int scry_lasting_print(const struct scry_proc *proc);

/* `scry patch undo NAME -p PID`, argv[0] is "undo". The exit status. */
int scry_cmd_patch_undo(int argc, char **argv);
int scry_cmd_patch_apply(int argc, char **argv);

#endif
