/*
 * Which calls are to be traced, as command lines name them.
 */
#ifndef SCRY_CMD_CALLS_NAMED_H
#define SCRY_CMD_CALLS_NAMED_H

#include "base/opt.h"
#include "instrument/calls/calls.h"

struct scry_calls_named {
	struct scry_opt_strings functions, libraries, callers; /* -x, -l, -e */
	bool no_default;				       /* nothing else */
	bool clients;					       /* those of known libraries */
};

/* Requests of cli, whose prototypes are read; nothing named: what the program calls through its
 * PLT. 0, or -EINVAL or -ENOMEM with a sentence. */
int scry_calls_named_add(struct scry_calls_cli *cli, const struct scry_calls_named *named);

/* --args auto|full|digest|none; what is kept holds no literals unless it is asked for. */
enum scry_calls_args scry_calls_args_of(int choice, const char *output);
#define SCRY_CALLS_ARGS_CHOICES "auto|full|digest|none"

#endif
