/* A core instead of a process. See dump.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "cmd/dump.h"
#include "vm/ruby_gvl.h"
#include "vm/ruby_locks.h"

/* What the kernel leaves in rax when a signal ends a system call that is to be made again
 * (linux/errno.h), or not. */
#define INTERRUPTED 4
#define RESTART_FIRST 512
#define RESTART_LAST 516

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The file of a Ruby's that is not as it was; NULL. */
static const struct scry_core_file *missing_file(const struct scry_core *core)
{
	for (size_t i = 0; i < core->file_count; i++) {
		const struct scry_core_file *f = &core->files[i];

		if (f->path && !f->elf && strstr(base_name(f->path), "ruby"))
			return f;
	}
	return NULL;
}

/* Why its Ruby could not be read: what the core lacks comes before what follows from that. */
static int explain(const struct scry_core *core, const char *path, int err)
{
	const struct scry_core_file *f = missing_file(core);

	if (core->cut)
		return scry_fail(
			-ENODATA,
			"the core '%s' was cut off, it lacks %llu bytes and with them what "
			"leads to its threads; fix: look at ulimit -c and the disk's room",
			path, (unsigned long long)core->cut);
	if (f)
		return scry_fail(err,
				 "the core '%s' needs the file '%s', which %s; fix: put the file "
				 "that it ran back "
				 "there, or say --exe FILE if it is the program",
				 path, f->path,
				 f->check == SCRY_CORE_OTHER ? "was replaced since"
							     : "cannot be read");
	if (err == -ENOENT && !core->file_count)
		return scry_fail(err, "the core '%s' does not say which files were mapped", path);
	if (err == -ENOENT)
		return scry_fail(err, "the process of the core '%s' (%s) had no Ruby in it", path,
				 core->comm);
	if (err == -EAGAIN)
		return scry_fail(-ENOTSUP, "the Ruby of the core '%s' had not booted", path);
	return err;
}

int scry_dump_core_open(struct scry_dump *d, const char *path, const char *exe)
{
	struct stat st;
	int err = scry_core_open(path, exe, &d->core);

	if (err)
		return err;
	d->core_path = path;
	d->proc.pid = d->core->pid;
	memcpy(d->proc.comm, d->core->comm, sizeof(d->core->comm));
	if (fstat(d->core->fd, &st) == 0)
		d->wall_s = st.st_mtime;
	err = scry_ruby_open_core(d->core, &d->ruby);
	if (err)
		return explain(d->core, path, err);
	for (size_t i = 0; i < d->ruby->check_count; i++)
		d->is_odd |=
			!d->ruby->checks[i].ok && !strcmp(d->ruby->checks[i].item, "live threads");
	return 0;
}

static const struct scry_core_thread *find(const struct scry_core *core, pid_t tid)
{
	for (size_t i = 0; i < core->thread_count; i++)
		if (core->threads[i].tid == tid)
			return &core->threads[i];
	return NULL;
}

/* In a system call, or running its own code? */
static struct scry_task_now task_of(const struct scry_core_thread *t)
{
	struct scry_task_now now = {.nr = -2, .is_gone = !t};
	int64_t result;

	if (!t)
		return now;
	result = -(int64_t)t->regs.rax;
	now.is_running =
		(int64_t)t->regs.orig_rax < 0 ||
		!(result == INTERRUPTED || (result >= RESTART_FIRST && result <= RESTART_LAST));
	if (!now.is_running)
		now = (struct scry_task_now){
			.nr = (int64_t)t->regs.orig_rax,
			.args = {t->regs.rdi, t->regs.rsi, t->regs.rdx, t->regs.r10, t->regs.r8,
				 t->regs.r9},
		};
	return now;
}

void scry_dump_core_states(struct scry_dump *d)
{
	struct scry_ruby_thread *threads = calloc(d->count + 1, sizeof(*threads));
	bool *waits = calloc(d->count + 1, sizeof(*waits));

	for (size_t i = 0; threads && i < d->count; i++)
		threads[i] = d->threads[i].ruby;
	if (threads && waits)
		scry_ruby_gvl_waiters(d->ruby, threads, d->count, waits);
	for (size_t i = 0; waits && i < d->count; i++) {
		struct scry_dump_thread *t = &d->threads[i];
		const struct scry_core_thread *thread = find(d->core, t->ruby.tid);
		const struct scry_task_now now = task_of(thread);

		t->has_signal = d->core->signal && thread == d->core->threads;
		t->state = scry_thread_state(&now, &now, waits[i]);
		scry_dump_wait(d, &now, t);
		if (!t->is_other)
			scry_ruby_thread_name(d->ruby, &t->ruby, t->name, sizeof(t->name));
	}
	free(threads);
	free(waits);
}
