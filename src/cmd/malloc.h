/*
 * `scry malloc VERB`: which file provides which verb.
 */
#ifndef SCRY_CMD_MALLOC_H
#define SCRY_CMD_MALLOC_H

/* Each is called with argv[0] the verb. Returns the exit status. */
int scry_cmd_malloc_record(int argc, char **argv);
int scry_cmd_malloc_export(int argc, char **argv);
int scry_cmd_malloc_import(int argc, char **argv);
int scry_cmd_malloc_replay(int argc, char **argv);
int scry_cmd_malloc_compare(int argc, char **argv);

#endif
