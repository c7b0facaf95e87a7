/*
 * Finds the Ruby in a process and opens it.
 *
 * The module that IS Ruby defines `ruby_version`: libruby, or the program itself when it is linked
 * statically; a 15 KB `ruby` program that only loads libruby does not. Names of files are asked
 * first because opening each of a hundred libraries is dear. The one trick: nothing is known of any
 * version; see ruby_layout.c.
 */
#include "vm/ruby.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_learn.h"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool exports_ruby(pid_t pid, const struct scry_map_entry *m)
{
	struct scry_elf *elf;
	struct scry_sym sym;
	bool found;

	if (scry_elf_open_mapped(pid, m, &elf) != 0) {
		scry_error_clear();
		return false;
	}
	found = scry_elf_symbol(elf, "ruby_version", &sym) == 0 &&
		scry_elf_symbol(elf, "ruby_description", &sym) == 0;
	scry_elf_close(elf);
	return found;
}

/* First mapping of each file, in the order: named like Ruby, then the program itself. */
static bool is_candidate(const struct scry_maps *maps, size_t i, const char *exe, int round)
{
	const struct scry_map_entry *m = &maps->entries[i];
	const char *base = base_name(m->path);

	if (m->inode == 0 || m->path[0] != '/' || (i > 0 && strcmp(m[-1].path, m->path) == 0))
		return false;
	if (round == 0)
		return strncmp(base, "libruby", 7) == 0 || strncmp(base, "ruby", 4) == 0;
	return strcmp(m->path, exe) == 0;
}

/* Path of the program as maps prints it: the mapping that holds the auxiliary vector's entry point.
 */
static const char *program_path(pid_t pid, const struct scry_maps *maps)
{
	const struct scry_map_entry *m = NULL;
	uint64_t entry;

	if (scry_proc_auxv(pid, 9 /* AT_ENTRY */, &entry) == 0)
		m = scry_maps_at(maps, entry);
	return m ? m->path : "";
}

/* A module that runs has executable pages; a tool that reads the file (we do) has none. */
static bool is_executable(const struct scry_maps *maps, const struct scry_map_entry *m)
{
	for (size_t i = 0; i < maps->count; i++)
		if (maps->entries[i].x && maps->entries[i].inode == m->inode &&
		    maps->entries[i].dev_minor == m->dev_minor &&
		    maps->entries[i].dev_major == m->dev_major)
			return true;
	return false;
}

int scry_ruby_find(pid_t pid, const struct scry_maps *maps, size_t *ret_entry)
{
	const char *exe = program_path(pid, maps);

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < maps->count; i++) {
			if (!is_candidate(maps, i, exe, round) ||
			    !is_executable(maps, &maps->entries[i]) ||
			    !exports_ruby(pid, &maps->entries[i]))
				continue;
			*ret_entry = i;
			return 0;
		}
	}
	return -ENOENT;
}

uint64_t scry_ruby_symbol(const struct scry_ruby *ruby, const char *name)
{
	struct scry_sym sym;

	return scry_elf_symbol(ruby->elf, name, &sym) == 0 ? ruby->bias + sym.value : 0;
}

/* The description is a C string in the module's constants; read from the file, true before boot
 * too. */
static void read_description(struct scry_ruby *ruby)
{
	struct scry_sym sym;
	char text[sizeof(ruby->description)] = "";

	if (scry_elf_symbol(ruby->elf, "ruby_description", &sym) != 0)
		return;
	for (size_t size = sizeof(text) - 1; size >= 16; size -= 16) {
		if (scry_elf_read(ruby->elf, sym.value, text, size) == 0)
			break;
	}
	text[sizeof(text) - 1] = '\0';
	snprintf(ruby->description, sizeof(ruby->description), "%s", text);
}

static int open_module(struct scry_ruby *ruby, const struct scry_proc *proc)
{
	size_t at;
	int err = scry_maps_read(ruby->pid, &ruby->maps);

	if (err)
		return err;
	if (scry_ruby_find(ruby->pid, &ruby->maps, &at) != 0)
		return scry_fail(-ENOENT, "process %d (%s) has no Ruby in it", (int)ruby->pid,
				 proc->comm);
	snprintf(ruby->module, sizeof(ruby->module), "%s", ruby->maps.entries[at].path);
	err = scry_elf_open_mapped(ruby->pid, &ruby->maps.entries[at], &ruby->elf);
	if (!err)
		err = scry_elf_bias(ruby->elf, &ruby->maps, &ruby->maps.entries[at], &ruby->bias);
	if (err)
		return err;
	read_description(ruby);
	ruby->is_driver = strncmp(base_name(program_path(ruby->pid, &ruby->maps)), "ruby", 4) == 0;
	return 0;
}

static int open_ruby(struct scry_ruby *ruby, const struct scry_proc *proc, bool need_booted)
{
	int err = scry_mem_open(&ruby->mem, ruby->pid, 0);

	if (!err)
		err = open_module(ruby, proc);
	if (err)
		return err;
	if (!ruby->is_driver)
		return scry_fail(
			-ENOTSUP,
			"process %d (%s) embeds Ruby ('%s'); its layout can only be learned "
			"from the ruby command itself",
			(int)ruby->pid, proc->comm, ruby->module);
	err = scry_ruby_learn(ruby, proc);
	if (err)
		return err;
	err = scry_ruby_validate(ruby);
	if (err == -EAGAIN && !need_booted) {
		scry_error_clear();
		err = 0;
	}
	return err;
}

int scry_ruby_open(pid_t pid, bool need_booted, struct scry_ruby **ret)
{
	struct scry_ruby *ruby = calloc(1, sizeof(*ruby));
	struct scry_proc proc;
	int err;

	if (!ruby)
		return scry_fail(-ENOMEM, "no memory to open process %d", (int)pid);
	ruby->pid = pid;
	ruby->mem.fd = -1;
	err = scry_proc_open(&proc, pid);
	if (!err) {
		err = open_ruby(ruby, &proc, need_booted);
		scry_proc_close(&proc);
	}
	if (err)
		scry_ruby_free(ruby);
	else
		*ret = ruby;
	return err;
}

static int open_like(struct scry_ruby *ruby, const struct scry_ruby *parent)
{
	int err = scry_mem_open(&ruby->mem, ruby->pid, 0);

	if (!err)
		err = scry_maps_read(ruby->pid, &ruby->maps);
	for (size_t i = 0; !err && !ruby->elf && i < ruby->maps.count; i++)
		if (!strcmp(ruby->maps.entries[i].path, parent->module))
			err = scry_elf_open_mapped(ruby->pid, &ruby->maps.entries[i], &ruby->elf);
	return err || ruby->elf ? err : -ENOENT;
}

int scry_ruby_fork(const struct scry_ruby *parent, pid_t pid, struct scry_ruby **ret)
{
	struct scry_ruby *ruby = malloc(sizeof(*ruby));
	int err;

	if (!ruby)
		return scry_fail(-ENOMEM, "no memory to open process %d", (int)pid);
	*ruby = *parent;
	ruby->pid = pid;
	ruby->mem = (struct scry_mem){.fd = -1};
	ruby->maps = (struct scry_maps){0};
	ruby->elf = NULL;
	ruby->checks = NULL;
	ruby->check_count = 0;
	err = open_like(ruby, parent);
	if (err)
		scry_ruby_free(ruby);
	else
		*ret = ruby;
	return err;
}

void scry_ruby_free(struct scry_ruby *ruby)
{
	if (!ruby)
		return;
	scry_mem_close(&ruby->mem);
	scry_maps_done(&ruby->maps);
	scry_elf_close(ruby->elf);
	free(ruby->checks);
	free(ruby);
}

void scry_ruby_print_checks(const struct scry_ruby *ruby, FILE *out)
{
	for (size_t i = 0; i < ruby->check_count; i++) {
		const struct scry_ruby_check *c = &ruby->checks[i];

		fprintf(out, "%-4s %-26s %-20s %s; %s\n", c->ok ? "ok" : "FAIL", c->item, c->value,
			c->how, c->proof);
	}
}
