/*
 * What a watch without -f does not see: children that are Rubies, each with a lock of its own.
 *
 * A server's workers are what a user looks for who names its master. Children are found by their
 * numbers, some milliseconds late, and counted; one that ends sooner is not. Reads /proc only.
 */
#include <stdlib.h>

#include "base/err.h"
#include "base/text.h"
#include "instrument/gvl/gvl.h"
#include "instrument/gvl/unseen.h"
#include "sys/descendant_table.h"
#include "watch/ask.h"

#define SCAN_NS 20000000ull
#define NAMED_MAX 3

struct own {
	bool is_ruby;
};

struct scry_gvl_unseen {
	struct scry_descendant_table descendants;
	const struct scry_watch *watch;
	uint64_t scan_ns, count;
	bool is_early;	       /* with -f: those that were forked before anything was counted */
	pid_t pids[NAMED_MAX]; /* of the first ones; 0: none */
};

/* Those that the same run watches are seen. */
static bool is_member(void *arg, pid_t pid)
{
	const struct scry_gvl_unseen *u = arg;
	const struct scry_watch *beside;
	bool is = pid == u->watch->proc.pid;

	for (size_t i = 0; !is && (beside = scry_watch_beside(u->watch, i)); i++)
		is = beside->proc.pid == pid && !beside->is_over;
	return is;
}

/* It ran another program at once, as what `system` starts. */
static void execed(void *arg, struct scry_relative *row)
{
	struct scry_gvl_unseen *u = arg;
	struct own *own = row->own;

	u->count -= own->is_ruby;
	own->is_ruby = false;
	for (int i = 0; i < NAMED_MAX; i++)
		if (u->pids[i] == row->pid)
			u->pids[i] = 0;
}

static bool is_ruby(pid_t pid)
{
	struct scry_maps maps = {0};
	size_t entry;
	bool is = scry_maps_read(pid, &maps) == 0 && scry_ruby_find(pid, &maps, &entry) == 0;

	scry_maps_done(&maps);
	scry_error_clear();
	return is;
}

/* One that has its parent's memory still is on its way into another program. */
static void look(void *arg, struct scry_relative *row, uint64_t now)
{
	struct scry_gvl_unseen *u = arg;
	struct own *own = row->own;

	row->look_ns = now;
	if (scry_proc_share_memory(u->watch->proc.pid, row->pid))
		return;
	row->look_ns = SCRY_DESCENDANT_TABLE_KNOWN;
	own->is_ruby = is_ruby(row->pid);
	u->count += own->is_ruby;
	for (int i = 0; i < NAMED_MAX && own->is_ruby; i++)
		if (!u->pids[i]) {
			u->pids[i] = row->pid;
			break;
		}
}

static const struct scry_descendant_table_kind kind = {
	.is_member = is_member,
	.execed = execed,
	.look = look,
	.own_bytes = sizeof(struct own),
};

struct scry_gvl_unseen *scry_gvl_unseen_new(const struct scry_watch *w)
{
	struct scry_gvl_unseen *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->watch = w;
	scry_descendant_table_init(&u->descendants, &kind, u);
	return u;
}

void scry_gvl_unseen_free(struct scry_gvl_unseen *u)
{
	if (u)
		scry_descendant_table_done(&u->descendants);
	free(u);
}

static void scan(struct scry_gvl_unseen *u)
{
	const uint64_t now = scry_now_ns();

	if (now < u->scan_ns)
		return;
	scry_descendant_table_scan(&u->descendants);
	scry_descendant_table_turn(&u->descendants, now);
	u->scan_ns = scry_now_ns() + SCAN_NS;
}

void scry_gvl_unseen_turn(struct scry_gvl_unseen *u)
{
	if (!u->is_early)
		scan(u);
}

void scry_gvl_unseen_end_early(struct scry_gvl_unseen *u)
{
	if (u->is_early)
		return;
	u->is_early = true;
	u->scan_ns = 0;
	scan(u);
}

void scry_gvl_unseen_note(const struct scry_gvl_unseen *u, struct scry_watch *w)
{
	char pids[64] = "";
	size_t length = 0;

	for (int i = 0; i < NAMED_MAX; i++)
		if (u->pids[i])
			length += (size_t)snprintf(pids + length, sizeof(pids) - length, "%s%d",
						   length ? ", " : "", (int)u->pids[i]);
	if (u->count && u->is_early)
		scry_watch_note(w,
				"at least %llu child process%s of process %d %s forked before its "
				"VM was known to scry, and %s not watched: %s%s",
				(unsigned long long)u->count, u->count == 1 ? "" : "es",
				(int)w->proc.pid, u->count == 1 ? "was" : "were",
				u->count == 1 ? "was" : "were", pids,
				u->count > NAMED_MAX ? ", ..." : "");
	else if (u->count)
		scry_watch_note(w,
				"at least %llu child process%s of process %d %s a Ruby with a "
				"lock of its own, and %s not watched: %s%s; fix: -f",
				(unsigned long long)u->count, u->count == 1 ? "" : "es",
				(int)w->proc.pid, u->count == 1 ? "is" : "are each",
				u->count == 1 ? "was" : "were", pids,
				u->count > NAMED_MAX ? ", ..." : "");
}
