/*
 * Does a function look at its own return address, as __builtin_return_address(0) does? By its code:
 * whoever puts another address there, to follow the return, changes what such a function computes.
 */
#ifndef SCRY_SYS_OWN_RETURN_H
#define SCRY_SYS_OWN_RETURN_H

#include <stdbool.h>

#include "sys/x86_move.h"

/* True: an instruction names the word that rsp led to at the entry. False: none does where that can
 * be known: rsp and rbp are followed from the entry along jumps forward, not into
 * other parts of the function (".cold"), nor beyond 64 KiB, nor through other registers. */
bool scry_own_return_is_read(const struct scry_x86_code *code);

#endif
