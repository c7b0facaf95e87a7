/* `scry ps`: the Ruby processes of this machine, and every process that holds an agent or
 * a patch. Reads only.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "hook/lasting.h"
#include "vm/ruby.h"

struct row {
	struct scry_proc proc;
	bool is_ruby, has_agent, is_incomplete, is_idle, owner_lives;
	uint32_t heir_of; /* the agent came by fork from this process */
	char module[256];
	uint32_t owner;
	char does[17];
	uint64_t agent_bytes, changes;
	char patches[128]; /* names of those that last */
};

static void look_at_agent(struct row *row, const struct scry_mem *mem, const struct scry_maps *maps)
{
	struct scry_agent_header h;
	struct scry_control c;
	struct scry_edit edit;

	if (scry_agent_find(mem, maps, &h) < 0)
		return;
	row->has_agent = true;
	row->agent_bytes = scry_agent_bytes(&h);
	if (scry_mem_read(mem, scry_agent_control(&h, mem), &c, sizeof(c)) == 0 &&
	    c.target_pid == (uint64_t)row->proc.pid) {
		row->owner = c.owner_pid;
		snprintf(row->does, sizeof(row->does), "%.16s", c.owner_does);
		row->owner_lives =
			c.owner_pid && scry_proc_is_running((pid_t)c.owner_pid, c.owner_start);
	}
	row->is_idle = h.stage == SCRY_AGENT_IDLE;
	if (row->is_idle) {				    /* has no journal: nothing stands */
		if (scry_agent_has_tail(&h, maps, mem->fd)) /* its unmapping was interrupted */
			row->agent_bytes += h.shared + h.shared_size - h.tail;
		return;
	}
	if (scry_edit_open(&edit, (struct scry_mem *)mem, scry_agent_journal(&h)) == 0)
		row->changes = scry_edit_standing(&edit);
	scry_edit_close(&edit);
}

static void look_for_patches(struct row *row, const struct scry_mem *mem,
			     const struct scry_maps *maps)
{
	struct scry_patch_head head;
	uint64_t at = 0;
	size_t used;

	while (scry_lasting_next(mem, maps, &at, &head) == 0) {
		if (head.stage != SCRY_PATCH_ON)
			continue;
		used = strlen(row->patches);
		snprintf(row->patches + used, sizeof(row->patches) - used, "%s%s", used ? ", " : "",
			 head.name);
	}
}

/* False: nothing to show, or not ours to read. */
static bool look(pid_t pid, struct row *row)
{
	struct scry_maps maps;
	struct scry_mem mem;
	size_t entry;

	memset(row, 0, sizeof(*row));
	if (scry_proc_open(&row->proc, pid) < 0)
		return false;
	if (scry_maps_read(pid, &maps) == 0) {
		if (scry_ruby_find(pid, &maps, &entry) == 0) {
			row->is_ruby = true;
			snprintf(row->module, sizeof(row->module), "%s", maps.entries[entry].path);
		}
		if (scry_mem_open(&mem, pid, 0) == 0) {
			look_at_agent(row, &mem, &maps);
			look_for_patches(row, &mem, &maps);
			scry_mem_close(&mem);
		}
		scry_maps_done(&maps);
	}
	scry_error_clear();
	if (row->is_ruby || row->has_agent || row->patches[0])
		return true;
	scry_proc_close(&row->proc);
	return false;
}

static void agent_only(const struct row *row, char *buf, size_t size)
{
	if (row->is_incomplete)
		snprintf(buf, size, "mapping was interrupted; scry undo -p %d", row->proc.pid);
	else if (row->owner_lives)
		snprintf(buf, size, "watched by scry %s, process %u", row->does, row->owner);
	else if (row->changes)
		snprintf(buf, size, "%llu change%s; scry undo -p %d",
			 (unsigned long long)row->changes,
			 row->changes == 1 ? " in place" : "s in place", row->proc.pid);
	else if (row->heir_of)
		snprintf(buf, size, "without effect, by fork from %u; scry undo -p %d",
			 row->heir_of, row->proc.pid);
	else if (row->is_idle)
		snprintf(buf, size, "idle, %llu KiB until Ruby code runs; scry undo -p %d",
			 (unsigned long long)row->agent_bytes / 1024, row->proc.pid);
	else
		snprintf(buf, size, "left in place, %llu KiB; scry undo -p %d",
			 (unsigned long long)row->agent_bytes / 1024, row->proc.pid);
}

static const char *agent_words(const struct row *row, char *buf, size_t size)
{
	size_t used = 0;

	if (!row->has_agent && !row->patches[0])
		return "-";
	if (row->patches[0])
		used = (size_t)snprintf(buf, size, "patched: %s%s", row->patches,
					row->has_agent ? "; " : "");
	if (!row->has_agent || used >= size)
		return buf;
	agent_only(row, buf + used, size - used);
	return buf;
}

static void print_json(struct scry_json *j, const struct row *row)
{
	scry_json_object_begin(j);
	scry_json_key(j, "pid");
	scry_json_u64(j, (uint64_t)row->proc.pid);
	scry_json_key(j, "uid");
	scry_json_u64(j, row->proc.uid);
	scry_json_key(j, "threads");
	scry_json_u64(j, (uint64_t)row->proc.threads);
	scry_json_key(j, "command");
	scry_json_text(j, row->proc.comm);
	scry_json_key(j, "ruby");
	scry_json_text(j, row->module);
	scry_json_key(j, "agent_bytes");
	scry_json_u64(j, row->agent_bytes);
	scry_json_key(j, "agent_changes");
	scry_json_u64(j, row->changes);
	scry_json_key(j, "patches");
	scry_json_text(j, row->patches);
	scry_json_key(j, "owner_pid");
	scry_json_u64(j, row->owner_lives ? row->owner : 0);
	scry_json_object_end(j);
}

static void each_process(struct scry_json *json, int *ret_shown)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		struct row row;
		char words[256];

		if (!isdigit((unsigned char)d->d_name[0]) || !look((pid_t)atoi(d->d_name), &row))
			continue;
		if (json)
			print_json(json, &row);
		else
			printf("%8d  %6u  %7d  %-16s %-48s  %s\n", row.proc.pid, row.proc.uid,
			       row.proc.threads, scry_text_shown(row.proc.comm).text,
			       row.is_ruby ? scry_text_shown(row.module).text : "-",
			       scry_text_shown(agent_words(&row, words, sizeof(words))).text);
		++*ret_shown;
		scry_proc_close(&row.proc);
	}
	if (dir)
		closedir(dir);
}

int scry_cmd_ps(int argc, char **argv)
{
	bool json = false, help = false;
	const struct scry_opt rows[] = {
		{0, "json", SCRY_OPT_FLAG, &json, NULL, "print JSON instead of text", NULL},
		{'h', "help", SCRY_OPT_FLAG, &help, NULL, "this help", NULL},
	};
	struct scry_json j;
	int rest, shown = 0, r = scry_opt_parse(rows, 2, (struct scry_opt_args){argc, argv}, &rest);

	if (r == 0 && rest < argc)
		r = scry_fail(-EINVAL, "ps takes no words; usage: scry ps [--json]");
	if (r < 0)
		return SCRY_EXIT_USAGE;
	if (help) {
		printf("usage: scry ps [--json]\n\n");
		scry_opt_help(rows, 2, stdout);
		return 0;
	}
	if (json) {
		scry_json_init(&j, stdout);
		scry_json_object_begin(&j);
		scry_json_key(&j, "schema");
		scry_json_text(&j, "scry.ps/1");
		scry_json_key(&j, "rows");
		scry_json_array_begin(&j);
		each_process(&j, &shown);
		scry_json_array_end(&j);
		scry_json_object_end(&j);
		return scry_json_done(&j) < 0 ? 1 : 0;
	}
	printf("%8s  %6s  %7s  %-16s %-48s  %s\n", "pid", "uid", "threads", "command", "ruby",
	       "agent");
	each_process(NULL, &shown);
	if (!shown)
		printf("no Ruby process is running%s\n", geteuid() ? " that you may look at" : "");
	return scry_flush(stdout, "the list") < 0 ? 1 : 0;
}
