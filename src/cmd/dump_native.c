/* Native frames of a dump. See dump.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmd/dump.h"
#include "sys/modules.h"
#include "sys/stop_the_world.h"

struct scry_dump_native {
	struct scry_unwinder *unwinder;
	struct scry_modules *names;
	struct scry_mixed_merger merger;
	struct scry_native_frame frames[SCRY_UNWINDER_FRAMES_MAX];
	struct scry_woven merged[SCRY_UNWINDER_FRAMES_MAX + SCRY_WALK_FRAMES_MAX];
};

int scry_dump_native_open(struct scry_dump *d)
{
	const struct scry_space space = {.pid = d->proc.pid, .core = d->core};
	struct scry_dump_native *n = calloc(1, sizeof(*n));
	int err = -ENOMEM;

	d->native = n;
	if (n && (n->names = scry_modules_of(&space)))
		err = scry_unwinder_open(n->names, &d->ruby->mem, &n->unwinder);
	if (!err)
		scry_mixed_merger_init(&n->merger, d->ruby, n->unwinder);
	return err;
}

void scry_dump_native_close(struct scry_dump *d)
{
	if (!d->native)
		return;
	scry_unwinder_close(d->native->unwinder);
	scry_modules_free(d->native->names);
	free(d->native);
	d->native = NULL;
}

/* The registers of a thread that is held, or of a core; NULL: not there. */
static const struct user_regs_struct *held(const struct scry_dump *d, const struct scry_stw *world,
					   pid_t tid)
{
	for (size_t i = 0; d->core && i < d->core->thread_count; i++)
		if (d->core->threads[i].tid == tid)
			return &d->core->threads[i].regs;
	for (size_t i = 0; world && i < world->count; i++)
		if (world->threads[i].tid == tid && world->threads[i].stopped)
			return &world->threads[i].regs;
	return NULL;
}

void scry_dump_native_walk(struct scry_dump *d, const struct scry_stw *world,
			   struct scry_dump_thread *t, struct scry_dump_look *look)
{
	const struct user_regs_struct *regs = held(d, world, t->ruby.tid);
	struct scry_unwind_state at;

	t->native_count = 0;
	t->is_running = false;
	if (!t->ruby.tid)
		return;
	if (regs) {
		at = scry_unwinder_at(regs);
	} else {
		if (d->core || world)
			return;
		look->is_live = true;
		scry_task_open(&look->task, d->proc.pid, t->ruby.tid);
		scry_task_read(&look->task, &look->now);
		t->is_running = look->now.is_running || !look->now.pc;
		if (t->is_running)
			return;
		at = scry_unwinder_blocked(look->now.pc, look->now.sp);
	}
	t->native_count = scry_unwinder_walk(d->native->unwinder, at, d->native->frames, &t->end);
}

bool scry_dump_native_rests(struct scry_dump_look *look)
{
	bool rests =
		!look->is_live || look->now.is_running || scry_task_rests(&look->task, &look->now);

	if (look->is_live)
		scry_task_close(&look->task);
	return rests;
}

static void name_native(struct scry_dump *d, const struct scry_native_frame *f,
			struct scry_dump_frame *ret)
{
	struct scry_code_name name;
	uint32_t module = 0, symbol = 0;

	/* what covers the byte before a return address; of an exact pc that is itself */
	scry_modules_name(d->native->names, f->pc + f->is_exact, &name);
	if (name.module)
		scry_intern_put(&d->symbols.names, name.module, strlen(name.module), &module);
	if (name.symbol)
		scry_intern_put(&d->symbols.names, name.symbol, strlen(name.symbol), &symbol);
	free(name.module);
	ret->is_native = true;
	ret->path = scry_symbols_text(&d->symbols, module);
	ret->name = scry_symbols_text(&d->symbols, symbol);
	ret->label = "";
	ret->address = f->pc;
	ret->offset = name.offset - f->is_exact;
}

int scry_dump_mixed_merge(struct scry_dump *d, const struct scry_walk *w,
			  const struct scry_dump_frame *ruby, struct scry_dump_thread *t)
{
	struct scry_dump_native *n = d->native;
	const struct scry_native_stack native = {n->frames, t->native_count, t->end};
	enum scry_mixed_merge how;
	size_t count = scry_mixed_merge(&n->merger, w, &native, n->merged, &how);

	t->is_apart = how == SCRY_MIXED_MERGE_APART && w->count;
	t->frames = calloc(count + 1, sizeof(*t->frames));
	if (!t->frames)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		if (n->merged[i].is_native)
			name_native(d, &n->frames[n->merged[i].at], &t->frames[t->count++]);
		else if (ruby[n->merged[i].at].name)
			t->frames[t->count++] = ruby[n->merged[i].at];
	}
	return 0;
}
