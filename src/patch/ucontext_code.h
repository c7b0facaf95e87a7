/*
 * getcontext, setcontext and swapcontext without the system call: the code of patch 'ucontext', as
 * bytes that run at any address, with their data UCONTEXT_TEXT bytes behind their first one.
 *
 * The layout of ucontext_t is glibc's (sysdeps/unix/sysv/linux/x86_64/ucontext_i.sym); which thread
 * saved a context does not matter to the one that loads it. What these do not keep is the x87
 * status word, whose exception flags are then those of the thread, and stay. Each goes on to the
 * function as it was (its copy) where the system call may be needed: as long as `measuring`, when a
 * mask has changed, and for a context whose mask is another, whose floating-point state lies
 * elsewhere, as that of a signal frame, or in which an exception of the x87 unit traps.
 */
#ifndef SCRY_PATCH_UCONTEXT_CODE_H
#define SCRY_PATCH_UCONTEXT_CODE_H

#define UCONTEXT_TEXT 4096 /* bytes of code, and of data */
/* copies of displaced instructions, from `scry_ucontext_copies` on */
#define UCONTEXT_COPY 336
#define UCONTEXT_COPIES 5
/* data: bytes; words */
#define UCONTEXT_MEASURING 0
#define UCONTEXT_CHANGED 1 /* a mask was changed: the system call is made from then on */
#define UCONTEXT_MASK 8	   /* of all threads */
/* lines of six words: calls of get, set and swap, each without the system call and with it */
#define UCONTEXT_LINES 2048
#define UCONTEXT_LINE_COUNT 32
#define UCONTEXT_LINE 64

#ifndef __ASSEMBLER__
#include <stdint.h>

extern const uint8_t scry_ucontext_code[], scry_ucontext_code_end[];
extern const uint8_t scry_ucontext_get[], scry_ucontext_set[], scry_ucontext_swap[];
extern const uint8_t scry_ucontext_mask[];   /* for pthread_sigmask */
extern const uint8_t scry_ucontext_mask2[];  /* for sigprocmask */
extern const uint8_t scry_ucontext_copies[]; /* in this order */
#endif

#endif
