/*
 * Files that belong to scry and lie beside it: beside the program itself, in ../libexec/scry where
 * it is installed, or in the build tree.
 */
#ifndef SCRY_SYS_BESIDE_H
#define SCRY_SYS_BESIDE_H

#include <stddef.h>

/* Where file `name` lies, `folder` its own in the build tree ("replay"): into path[size]. 0;
 * -ENOENT with a sentence. */
int scry_beside(const char *name, const char *folder, char *path, size_t size);

#endif
