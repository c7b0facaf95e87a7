/*
 * IFUNCs by what they chose. A function that a resolver has chosen is an ordinary one: hooked at
 * its entry, calls through pointers and dlsym are seen too, which slots do not show. Part of the
 * plan of hook/hooks.h; reads only.
 */
#ifndef SCRY_HOOK_IFUNC_H
#define SCRY_HOOK_IFUNC_H

#include "hook/hooks.h"

/* Rows of IFUNCs that any way may lead to become rows of what was chosen, where that is known from
 * the slots of loaded objects, one, and no other IFUNC's choice too (memcpy is often memmove, and
 * calls could not be told apart). 0 or -errno with a sentence. Rows are in order of address again.
 */
int scry_ifunc_choose(struct scry_hooks *h);

/* Those among them that cannot be entered are IFUNCs again, for their slots. */
void scry_ifunc_take_back(struct scry_hooks *h);

#endif
