/*
 * A set of hooks over those of another one, in a watch of several instruments: where both want one
 * place, the second stub goes on to the first.
 *
 *   alone      entry -> stub -> copy of the displaced instructions -> function
 *   chained    entry -> stub of the second -> stub of the first -> copy -> function
 *
 * Both were planned on the bytes of the file. What is there already the journal says; the second's
 * change expects the first's bytes and is undone before it (sys/edit). So either may leave before
 * the other: whose change is covered stays, and its handler passes through. What both want in ways
 * that do not fit is a row refused, with the reason.
 */
#ifndef SCRY_HOOK_CHAIN_H
#define SCRY_HOOK_CHAIN_H

#include "hook/hooks.h"

/* Before stubs are written: sets `over`, and what is expected, of planned rows without a stub.
 * Reads only. */
void scry_chain(struct scry_hooks *h, const struct scry_inject *inj);

#endif
