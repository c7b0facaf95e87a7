/*
 * The commands: one row each, called by main with argv[0] the command's own name.
 *
 * The value that `run` returns is the exit code: 0 complete, 1 failure, 2 usage, 3 not permitted, 4
 * target not supported, 5 target gone. When it is not 0, main prints scry_error() once, if there is
 * one.
 */
#ifndef SCRY_CMD_CMD_H
#define SCRY_CMD_CMD_H

#include "watch/signals.h"

struct scry_command {
	const char *name;		   /* NULL: the end of a table */
	int (*run)(int argc, char **argv); /* NULL: a group */
	const char *summary;		   /* one line, lower case, no full stop */
	const char *example;		   /* the last line of its --help */
	const struct scry_command *group;  /* `scry malloc record`: the words after it */
};

extern const struct scry_command scry_commands[];
extern const struct scry_command scry_commands_malloc[];
extern const struct scry_command scry_commands_patch[];

int scry_cmd_objects(int argc, char **argv);
int scry_cmd_stacks(int argc, char **argv);
int scry_cmd_dump(int argc, char **argv);
int scry_cmd_fibers(int argc, char **argv);
int scry_cmd_calls(int argc, char **argv);
int scry_cmd_locks(int argc, char **argv);
int scry_cmd_gvl(int argc, char **argv);
int scry_cmd_syscalls(int argc, char **argv);
int scry_cmd_patch_list(int argc, char **argv);
int scry_cmd_undo(int argc, char **argv);
int scry_cmd_ps(int argc, char **argv);
int scry_cmd_doctor(int argc, char **argv);
int scry_cmd_record(int argc, char **argv);
int scry_cmd_report(int argc, char **argv);
int scry_cmd_diff(int argc, char **argv);
int scry_cmd_info(int argc, char **argv);
int scry_cmd_completion(int argc, char **argv);

#endif
