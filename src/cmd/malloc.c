/* `scry malloc VERB ...`: what a program asks of malloc, recorded and looked at. */
#include "cmd/malloc.h"

#include <stddef.h>

#include "cmd/cmd.h"

const struct scry_command scry_commands_malloc[] = {
	{"record", scry_cmd_malloc_record, "record every call of malloc functions",
	 "scry malloc record -o app.scry -- ruby app.rb", NULL},
	{"export", scry_cmd_malloc_export, "print a recording as text, one line a call",
	 "scry malloc export app.scry -o app.txt", NULL},
	{"import", scry_cmd_malloc_import, "make a recording of such text",
	 "scry malloc import app.txt -o app.scry", NULL},
	{"replay", scry_cmd_malloc_replay,
	 "make recorded calls again under several allocators: which suits?",
	 "scry malloc replay app.scry --with glibc,jemalloc", NULL},
	{"compare", scry_cmd_malloc_compare,
	 "record, replay, run under each: which suits, and was it predicted?",
	 "scry malloc compare --with glibc,jemalloc -- ruby app.rb", NULL},
	{0},
};
