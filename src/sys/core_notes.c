/*
 * See core_notes.h. Layouts: linux/elfcore.h, struct elf_prstatus and elf_prpsinfo; NT_FILE:
 * fs/binfmt_elf.c, fill_files_note.
 */
#include "sys/core_notes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>

#define THREADS_MAX 65536u
#define NAMES_MAX 131072u
#define ADDRESS_END (1ull << 47)

static int add_thread(struct scry_core *core, const char *desc, size_t size)
{
	struct elf_prstatus status;
	struct scry_core_thread *t;

	if (size < sizeof(status) || core->thread_count == THREADS_MAX)
		return 0;
	if ((core->thread_count & (core->thread_count - 1)) == 0) { /* a power of two: grow */
		size_t room = core->thread_count ? 2 * core->thread_count : 1;

		t = reallocarray(core->threads, room, sizeof(*t));
		if (!t)
			return -ENOMEM;
		core->threads = t;
	}
	memcpy(&status, desc, sizeof(status));
	t = &core->threads[core->thread_count++];
	t->tid = status.pr_pid;
	_Static_assert(sizeof(t->regs) == sizeof(status.pr_reg), "registers");
	memcpy(&t->regs, &status.pr_reg, sizeof(t->regs));
	if (core->thread_count == 1)
		core->signal = status.pr_cursig > 0 && status.pr_cursig < 65 ? status.pr_cursig : 0;
	return 0;
}

static void take_process(struct scry_core *core, const char *desc, size_t size)
{
	struct elf_prpsinfo info;

	if (size < sizeof(info))
		return;
	memcpy(&info, desc, sizeof(info));
	core->pid = info.pr_pid > 0 ? info.pr_pid : 0;
	memcpy(core->comm, info.pr_fname, sizeof(info.pr_fname));
	core->comm[sizeof(info.pr_fname)] = '\0';
}

static void take_auxv(struct scry_core *core, const char *desc, size_t size)
{
	core->auxv_count = size / 16 < 64 ? size / 16 : 64;
	memcpy(core->auxv, desc, 16 * core->auxv_count);
}

static int compare(const void *a, const void *b)
{
	const struct scry_core_named *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* count, page size, count times {start, end, page in the file}, then as many names. */
static int take_names(struct scry_core_names *names, const char *desc, size_t size)
{
	const char *end = desc + size, *path;
	struct scry_core_named *rows;
	uint64_t head[2], row[3];
	size_t n = 0;

	if (names->rows || size < sizeof(head))
		return 0;
	memcpy(head, desc, sizeof(head));
	if (head[0] > NAMES_MAX || head[0] * sizeof(row) > size - sizeof(head))
		return 0;
	rows = calloc(head[0] + 1, sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	path = desc + sizeof(head) + head[0] * sizeof(row);
	for (uint64_t i = 0; i < head[0] && path < end; i++) {
		size_t length = strnlen(path, (size_t)(end - path));

		if (length == (size_t)(end - path))
			break;
		memcpy(row, desc + sizeof(head) + i * sizeof(row), sizeof(row));
		if (row[0] < row[1] && row[1] <= ADDRESS_END && row[2] < ADDRESS_END &&
		    head[1] <= 1u << 21)
			rows[n++] =
				(struct scry_core_named){row[0], row[1], row[2] * head[1], path};
		path += length + 1;
	}
	qsort(rows, n, sizeof(*rows), compare);
	names->rows = rows;
	for (size_t i = 0; i < n; i++)
		if (!names->count || rows[i].start >= rows[names->count - 1].end)
			rows[names->count++] = rows[i];
	return 0;
}

int scry_core_notes(struct scry_core *core, Elf_Data *data, struct scry_core_names *names)
{
	size_t at = 0, next, name_at, desc_at;
	GElf_Nhdr note;
	int err = 0;

	while (!err && (next = gelf_getnote(data, at, &note, &name_at, &desc_at)) > 0) {
		const char *desc = (const char *)data->d_buf + desc_at;
		const char *name = (const char *)data->d_buf + name_at;

		at = next;
		if (note.n_namesz < 4 || memcmp(name, "CORE", 4) != 0)
			continue;
		if (note.n_type == NT_PRSTATUS)
			err = add_thread(core, desc, note.n_descsz);
		else if (note.n_type == NT_PRPSINFO)
			take_process(core, desc, note.n_descsz);
		else if (note.n_type == NT_AUXV)
			take_auxv(core, desc, note.n_descsz);
		else if (note.n_type == NT_FILE)
			err = take_names(names, desc, note.n_descsz);
	}
	return err;
}
