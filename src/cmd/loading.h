/*
 * What instruments have in common whose functions may be defined by libraries that are loaded
 * later: patch count and calls.
 */
#ifndef SCRY_CMD_LOADING_H
#define SCRY_CMD_LOADING_H

#include "cmd/watch.h"
#include "hook/hooks.h"

/* Is there, or was there ever, a function that the request names? */
bool scry_loading_is_met(const struct scry_hooks *h, size_t request);

/* In `enter`, hooks are on: libraries that are loaded from now on are hooked too, and what had
 * changed since it was planned is put on. 0, or -errno with a sentence: they are not. */
int scry_loading_follow(struct scry_watch *w, struct scry_hooks *h);

/* In `finish`: libraries that came too early, or could not be hooked. */
void scry_loading_tell(struct scry_watch *w, const struct scry_hooks *h);

#endif
