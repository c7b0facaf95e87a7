/*
 * `scry patch apply FILE.so`, which a user wrote (include/scry/patch.h), and `scry patch read`,
 * which shows what such a patch logs.
 */
#ifndef SCRY_CMD_PATCH_FILE_H
#define SCRY_CMD_PATCH_FILE_H

/* argv[0] is the file. The exit status. */
int scry_cmd_patch_file(int argc, char **argv);
/* argv[0] is "read". The exit status. */
int scry_cmd_patch_read(int argc, char **argv);

#endif
