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
#include "base/opt.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "hook/lasting.h"
#include "view/table.h"
#include "vm/ruby.h"

struct row {
	struct scry_proc proc;
	bool is_ruby, has_agent, is_incomplete, is_idle, owner_lives;
	uint32_t forked_from; /* the agent came by fork from this process */
	char module[256];
	uint32_t owner;
	char does[17];
	uint64_t agent_bytes, changes;
	char patches[128]; /* names of the patches that last */
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
	if (row->is_idle) {				    /* has no journal: nothing is left */
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

static void put_agent(const struct row *row, struct scry_buf *buf)
{
	const int pid = row->proc.pid;

	if (row->is_incomplete)
		scry_buf_printf(buf, "mapping was interrupted");
	else if (row->owner_lives)
		scry_buf_printf(buf, "watched by scry %s, process %u", row->does, row->owner);
	else if (row->changes)
		scry_buf_printf(buf, "%llu change%s in place", (unsigned long long)row->changes,
				scry_text_s(row->changes));
	else if (row->forked_from)
		scry_buf_printf(buf, "without effect, by fork from %u", row->forked_from);
	else
		scry_buf_printf(buf,
				row->is_idle ? "idle, %llu KiB until Ruby code runs"
					     : "left in place, %llu KiB",
				(unsigned long long)row->agent_bytes / 1024);
	if (row->is_incomplete || !row->owner_lives)
		scry_buf_printf(buf, "; scry undo -p %d", pid);
}

static struct scry_cell agent_cell(const struct row *row, struct scry_buf *buf)
{
	if (row->patches[0])
		scry_buf_printf(buf, "patched: %s%s", row->patches, row->has_agent ? "; " : "");
	if (row->has_agent)
		put_agent(row, buf);
	return scry_cell_buf(buf);
}

#define GET(name, ...) SCRY_GET(name, struct row, void, __VA_ARGS__)

GET(get_pid, scry_cell_number((uint64_t)row->proc.pid))
GET(get_uid, scry_cell_number(row->proc.uid))
GET(get_threads, scry_cell_number((uint64_t)row->proc.threads))
GET(get_command, scry_cell_string(row->proc.comm))
GET(get_ruby, scry_cell_string(row->module))
GET(get_ruby_shown, scry_cell_string(row->is_ruby ? row->module : NULL))
GET(get_patches, scry_cell_string(row->patches))
GET(get_owner, scry_cell_number(row->owner_lives ? row->owner : 0))
GET(get_agent, agent_cell(row, buf))

static const struct scry_column columns[] = {
	{"pid", "pid", SCRY_CELL_NUMBER, get_pid, 0},
	{"uid", "uid", SCRY_CELL_NUMBER, get_uid, 0},
	{"threads", "threads", SCRY_CELL_NUMBER, get_threads, 0},
	{"command", "command", SCRY_CELL_TEXT, get_command, 0},
	{NULL, "ruby", SCRY_CELL_TEXT, get_ruby, 0},
	{"ruby", NULL, SCRY_CELL_TEXT, get_ruby_shown, SCRY_COLUMN_ELASTIC},
	{NULL, "agent_bytes", SCRY_CELL_NUMBER, SCRY_AT(struct row, agent_bytes)},
	{NULL, "agent_changes", SCRY_CELL_NUMBER, SCRY_AT(struct row, changes)},
	{NULL, "patches", SCRY_CELL_TEXT, get_patches, 0},
	{NULL, "owner_pid", SCRY_CELL_NUMBER, get_owner, 0},
	{"agent", NULL, SCRY_CELL_TEXT, get_agent, 0},
};

/* How many there are. */
static int push_all(struct scry_doc *doc)
{
	const struct scry_table table = {SCRY_COLUMNS(columns)};
	DIR *dir = opendir("/proc");
	struct dirent *d;
	int shown = 0;

	while (dir && (d = readdir(dir))) {
		struct row row;

		if (!isdigit((unsigned char)d->d_name[0]) || !look((pid_t)atoi(d->d_name), &row))
			continue;
		scry_table_push_row(&table, &row, doc);
		shown++;
		scry_proc_close(&row.proc);
	}
	if (dir)
		closedir(dir);
	return shown;
}

int scry_cmd_ps(int argc, char **argv)
{
	struct scry_report_opts form = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_doc doc = {.view = "ps", .schema = 1, .out = stdout};
	bool help = false;
	const struct scry_opt rows[] = {
		{0, "json", SCRY_OPT_FLAG, &form.json, NULL, "print JSON instead of text", NULL},
		{'h', "help", SCRY_OPT_FLAG, &help, NULL, "this help", NULL},
	};
	int rest, r = scry_opt_parse(rows, 2, (struct scry_opt_args){argc, argv}, &rest);

	if (r == 0 && rest < argc)
		r = scry_fail(-EINVAL, "ps takes no words; usage: scry ps [--json]");
	if (r < 0)
		return SCRY_EXIT_USAGE;
	if (help) {
		printf("usage: scry ps [--json]\n\n");
		scry_opt_help(rows, 2, stdout);
		return 0;
	}
	if (scry_report_open(&doc, &form) < 0)
		return SCRY_EXIT_FAILURE;
	scry_doc_table(&doc, columns, sizeof(columns) / sizeof(columns[0]));
	if (!push_all(&doc))
		scry_doc_remark(&doc, "no Ruby process is running%s",
				geteuid() ? " that you may look at" : "");
	return scry_doc_end(&doc) < 0 ? SCRY_EXIT_FAILURE : 0;
}
