/*
 * Is this the body of glibc's getcontext, setcontext or swapcontext? Not by its bytes, which each
 * build has others of, but by what it does: it is followed, instruction by instruction, along the
 * way without errors and without a shadow stack, and must store, ask and load what glibc's does, at
 * glibc's offsets, and nothing else. Pure functions over bytes.
 */
#ifndef SCRY_PATCH_UCONTEXT_BODY_H
#define SCRY_PATCH_UCONTEXT_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum scry_ucontext_role { SCRY_UCONTEXT_GET, SCRY_UCONTEXT_SET, SCRY_UCONTEXT_SWAP };

/* NULL: it is. Else what it does otherwise, for people: "it does not save rbx". */
const char *scry_ucontext_body(const uint8_t *code, size_t size, enum scry_ucontext_role role);

/* Is it the body of pthread_sigmask: does it hand on the first and third argument as they are to
 * rt_sigprocmask, its first system call, and call nothing before? */
bool scry_ucontext_is_sigmask(const uint8_t *code, size_t size);

#endif
