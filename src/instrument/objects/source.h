/*
 * Where objects come from: the VM's own events, or hooks on the functions that make and free them.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_SOURCE_H
#define SCRY_INSTRUMENT_OBJECTS_SOURCE_H

#include "hook/hooks.h"
#include "vm/ruby.h"
#include "watch/watch.h"
#include "wire/ruby_hooks.h"

enum scry_objects_source { /* in the order of --source's words */
			   SCRY_SOURCE_EVENT,
			   SCRY_SOURCE_HOOKS,
			   SCRY_SOURCE_AUTO, /* hooks where they are proven to see the same, else
						events */
};
#define SCRY_SOURCES "event|hooks|auto"

struct scry_objects_hooks {    /* plan.on 0: events */
	bool is_open, is_late; /* late: planned when what an earlier scry left is put back */
	const struct scry_ruby *ruby;
	struct scry_hooks hooks;
	struct scry_agent_hooks plan;
};

/*
 * Chooses for process `w`, whose Ruby is `ruby`, and plans the hooks: reads only, but for a child
 * in which calls are counted when this Ruby is not known yet. 0, or -ENOTSUP with the reason why
 * hooks were asked for and cannot be had. With AUTO events are the answer then, and -v says why.
 */
int scry_objects_choose(struct scry_watch *w, struct scry_ruby *ruby,
			enum scry_objects_source source, struct scry_objects_hooks *ret);
/* The agent's part of it; once the ring is open and before the watch is on. 0 or -errno. */
int scry_objects_report_source(struct scry_watch *w, const struct scry_objects_hooks *h);
/* Puts the hooks on; nothing for events. 0 or -errno with a sentence. */
int scry_objects_hook(struct scry_watch *w, struct scry_objects_hooks *h);
void scry_objects_source_done(struct scry_objects_hooks *h);

/* Does it run code made at run time, or was it asked to? */
bool scry_objects_has_jit(const struct scry_watch *w, const struct scry_ruby *ruby);
/* Of a live process, which is stopped for a moment: do its Ruby threads have their execution
 * context where h->plan says (of h->ruby)? */
bool scry_objects_keep_ec(struct scry_watch *w, const struct scry_objects_hooks *h);

/* What --dry-run says of it. */
void scry_objects_describe_source(const struct scry_objects_hooks *h, FILE *out);

#endif
