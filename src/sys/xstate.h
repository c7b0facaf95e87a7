/*
 * The vector registers as the kernel writes them into a signal frame
 * (arch/x86/kernel/fpu/signal.c), made of what ptrace gives of them: both are the XSAVE area of the
 * standard format.
 */
#ifndef SCRY_SYS_XSTATE_H
#define SCRY_SYS_XSTATE_H

#include <stddef.h>

/* Dresses the area that PTRACE_GETREGSET gave of NT_X86_XSTATE, at least 576 bytes and 16 of room
 * behind. Returns the bytes in use without the second magic, which is in the four behind them.
 */
size_t scry_xstate_dress(unsigned char *area);

#endif
