/* See descendant_table.h. */
#include "sys/descendant_table.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/tracee.h" /* scry_now_ns */

#define YOUNG_NS 1200000000ull /* an image that is looked for in each turn */
#define POLL_NS 20000000ull    /* between two looks at one that is older */

void scry_descendant_table_init(struct scry_descendant_table *k,
				const struct scry_descendant_table_kind *kind, void *arg)
{
	*k = (struct scry_descendant_table){.kind = kind, .arg = arg};
}

void scry_descendant_table_done(struct scry_descendant_table *k)
{
	for (size_t i = 0; i < k->count; i++)
		free(k->rows[i]);
	free(k->rows);
	k->rows = NULL;
	k->count = k->room = 0;
}

struct scry_relative *scry_descendant_table_find(const struct scry_descendant_table *k, pid_t pid)
{
	for (size_t i = 0; i < k->count; i++)
		if (k->rows[i]->pid == pid)
			return k->rows[i];
	return NULL;
}

static void take_out(struct scry_descendant_table *k, const struct scry_relative *row)
{
	for (size_t i = 0; i < k->count; i++)
		if (k->rows[i] == row) {
			free(k->rows[i]);
			k->rows[i] = k->rows[--k->count];
			return;
		}
}

void scry_descendant_table_forget(struct scry_descendant_table *k, pid_t pid)
{
	const struct scry_relative *row = scry_descendant_table_find(k, pid);

	if (row)
		take_out(k, row);
}

static struct scry_relative *new_row(struct scry_descendant_table *k)
{
	struct scry_relative **more, *row;
	size_t room = k->room ? 2 * k->room : 16;

	if (k->count == k->room) {
		more = room > SCRY_DESCENDANT_TABLE_MAX
			       ? NULL
			       : realloc(k->rows, room * sizeof(struct scry_relative *));
		if (!more)
			return NULL;
		k->rows = more;
		k->room = room;
	}
	row = calloc(1, sizeof(*row) + k->kind->own_bytes);
	if (!row)
		return NULL;
	row->own = row + 1;
	k->rows[k->count++] = row;
	return row;
}

static bool is_living(pid_t pid, struct scry_proc_stat *ret)
{
	return scry_proc_stat(pid, ret) == 0 && ret->state != 'Z' && ret->state != 'X';
}

static struct scry_relative *add(struct scry_descendant_table *k, pid_t pid,
				 const struct scry_proc_stat *st)
{
	struct scry_relative *row = scry_descendant_table_find(k, pid);

	if (row && row->start_ticks == st->start_ticks)
		return row;
	if (row) { /* its number was given out again */
		if (k->kind->gone)
			k->kind->gone(k->arg, row);
		take_out(k, row);
	}
	row = new_row(k);
	if (!row) {
		k->refused++;
		return NULL;
	}
	row->pid = pid;
	row->start_ticks = st->start_ticks;
	row->image = st->image;
	row->since_ns = scry_now_ns();
	row->was_there = !k->has_begun;
	if (k->kind->came)
		k->kind->came(k->arg, row, st);
	return row;
}

struct scry_relative *scry_descendant_table_add(struct scry_descendant_table *k, pid_t pid)
{
	struct scry_proc_stat st;

	return is_living(pid, &st) ? add(k, pid, &st) : NULL;
}

/* Is the process that has this number now a descendant, or a member? */
static bool is_descendant(const struct scry_descendant_table *k, pid_t pid)
{
	const struct scry_relative *row;

	if (pid <= 0)
		return false;
	if (k->kind->is_member(k->arg, pid))
		return true;
	row = scry_descendant_table_find(k, pid);
	return row && scry_proc_start_ticks(pid) == row->start_ticks;
}

static bool is_process(pid_t pid)
{
	struct scry_proc p;
	int r = scry_proc_open(&p, pid);

	if (r == 0)
		scry_proc_close(&p);
	scry_error_clear();
	return r == 0; /* and no thread */
}

/* Of numbers that are in the scans: has a process, or thread, been seen that lived under it, or one
 * that is not a descendant? */
static bool is_seen(const struct scry_descendant_table *k, pid_t pid)
{
	return k->seen[pid % SCRY_DESCENDANT_TABLE_NUMBERS / 8] >> pid % 8 & 1;
}

static void set_seen(struct scry_descendant_table *k, pid_t pid, bool is)
{
	uint8_t *byte = &k->seen[pid % SCRY_DESCENDANT_TABLE_NUMBERS / 8], bit = 1u << pid % 8;

	*byte = is ? *byte | bit : *byte & (uint8_t)~bit;
}

static void look_at_number(void *arg, pid_t pid)
{
	struct scry_descendant_table *k = arg;
	const struct scry_relative *known = scry_descendant_table_find(k, pid);
	struct scry_proc_stat st;
	bool is_alive;

	if (k->kind->is_member(k->arg, pid)) {
		set_seen(k, pid, true);
		return;
	}
	if (scry_proc_stat(pid, &st) < 0)
		return;
	is_alive = st.state != 'Z' && st.state != 'X';
	if (is_alive || !is_descendant(k, st.ppid))
		set_seen(k, pid, true);
	if (!is_alive || (known && known->start_ticks == st.start_ticks))
		return;
	if (!is_descendant(k, st.ppid) &&
	    !(k->kind->is_unidentified && k->kind->is_unidentified(k->arg, pid, &st)))
		return;
	if (is_process(pid))
		add(k, pid, &st);
}

void scry_descendant_table_each_process(void (*what)(void *arg, pid_t pid), void *arg)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			what(arg, (pid_t)strtol(d->d_name, NULL, 10));
	if (dir)
		closedir(dir);
}

void scry_descendant_table_begin(struct scry_descendant_table *k)
{
	for (int i = 0; i < SCRY_DESCENDANT_TABLE_SCANS; i++)
		k->newest[i] = scry_proc_newest();
}

/* Children may be listed before their parents. */
static void look_at_all(struct scry_descendant_table *k)
{
	size_t before;

	do {
		before = k->count;
		scry_descendant_table_each_process(look_at_number, k);
	} while (k->count > before);
}

void scry_descendant_table_scan(struct scry_descendant_table *k)
{
	const pid_t newest = scry_proc_newest();
	const pid_t oldest = k->newest[SCRY_DESCENDANT_TABLE_SCANS - 1];
	const pid_t leaving = k->newest[SCRY_DESCENDANT_TABLE_SCANS - 2], last = k->newest[0];

	if (!k->has_begun) {
		if (!k->newest[0])
			scry_descendant_table_begin(k);
		look_at_all(k);
		k->has_begun = true;
		return;
	}
	if (newest < oldest || newest - oldest > (pid_t)SCRY_DESCENDANT_TABLE_NUMBERS) {
		look_at_all(k);
		k->unseen++;
	} else {
		for (pid_t pid = oldest + 1; pid <= newest; pid++) {
			if (pid > last)
				set_seen(k, pid, false);
			look_at_number(k, pid);
			k->unseen += pid <= leaving && !is_seen(k, pid);
		}
	}
	memmove(k->newest + 1, k->newest, (SCRY_DESCENDANT_TABLE_SCANS - 1) * sizeof(*k->newest));
	k->newest[0] = newest;
}

/* Still there? Its image is 0 for a moment while it changes. */
static bool is_there(struct scry_descendant_table *k, struct scry_relative *row, uint64_t now)
{
	struct scry_proc_stat st;

	if (now < row->poll_ns)
		return true;
	if (!is_living(row->pid, &st) || st.start_ticks != row->start_ticks)
		return false;
	if (st.image && st.image != row->image) {
		if (row->image) {
			row->execs++;
			if (k->kind->execed)
				k->kind->execed(k->arg, row);
		}
		row->image = st.image;
		row->since_ns = now;
		row->look_ns = 0;
	}
	row->poll_ns = now < row->since_ns + YOUNG_NS ? 0 : now + POLL_NS;
	return true;
}

/* `look` may add rows and forget others: the row is looked for again. A row may be younger than the
 * caller's clock, which was read before a scan, or before another row's look: it is of age 0. */
static void turn_one(struct scry_descendant_table *k, struct scry_relative *row, uint64_t now)
{
	const pid_t pid = row->pid;

	if (now < row->since_ns)
		now = row->since_ns;
	if (now >= row->poll_ns && k->kind->is_member(k->arg, pid)) {
		take_out(k, row);
		return;
	}
	if (!is_there(k, row, now)) {
		if (k->kind->gone)
			k->kind->gone(k->arg, row);
		take_out(k, row);
		return;
	}
	if (now < row->look_ns)
		return;
	k->kind->look(k->arg, row, now);
	row = scry_descendant_table_find(k, pid);
	if (row && row->is_taken)
		take_out(k, row);
}

void scry_descendant_table_turn(struct scry_descendant_table *k, uint64_t now_ns)
{
	for (size_t i = k->count; i-- > 0;)
		if (i < k->count)
			turn_one(k, k->rows[i], now_ns);
}

void scry_descendant_table_look(struct scry_descendant_table *k, struct scry_relative *row,
				uint64_t now_ns)
{
	row->poll_ns = row->look_ns = 0;
	turn_one(k, row, now_ns);
}
