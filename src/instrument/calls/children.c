/* See children.h. */
#include "instrument/calls/children.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/map.h"
#include "watch/ask.h"

struct child {
	struct scry_watch *watch; /* the root's */
	struct scry_calls *calls;
	uint32_t pid, first_function;
	int pidfd; /* -1: it has ended */
	bool has_child_buffer;
	uint64_t counted; /* calls that its child buffer has counted as its own */
};

struct scry_calls_children {
	struct scry_map by_pid; /* -> index + 1 */
	struct child *rows[SCRY_CALLS_CHILDREN_MAX];
	uint32_t count;
	uint64_t refused;
};

static int meet(void *arg, uint32_t function)
{
	const struct child *c = arg;
	const struct scry_calls_watch *t = c->watch->state;

	return function < t->count
		       ? scry_calls_functions_report(c->watch, &t->functions[function], c->pid,
						     c->first_function + function)
		       : 0;
}

/* Entered by itself, as what it runs now was: then it has its own tap. */
static bool is_entered(const struct scry_watch *w, uint32_t pid)
{
	const struct scry_watch *other;

	for (size_t i = 0; (other = scry_watch_beside(w, i)); i++) {
		const struct scry_calls_watch *t = other->state;

		if ((uint32_t)other->proc.pid == pid && t && !t->root)
			return true;
	}
	return false;
}

static void forget(struct child *c)
{
	if (c->pidfd >= 0)
		close(c->pidfd);
	scry_calls_free(c->calls);
	free(c);
}

static struct child *add(struct scry_watch *w, uint32_t pid)
{
	struct scry_calls_watch *t = w->state;
	const uint32_t image = scry_watch_part(w, pid);
	struct child *c = calloc(1, sizeof(*c));
	struct scry_calls_opts opts = scry_calls_functions_opts(w, pid, image);

	if (!c)
		return NULL;
	*c = (struct child){.watch = w,
			    .pid = pid,
			    .first_function = opts.first_function,
			    .pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0)};
	opts.is_child = true;
	opts.meet = meet;
	opts.meet_arg = c;
	if (scry_calls_new(&opts, &c->calls) < 0 ||
	    scry_map_put(&t->children->by_pid, pid, t->children->count + 1) < 0) {
		forget(c);
		return NULL;
	}
	scry_stream_clock_of(scry_calls_stream(c->calls), scry_calls_stream(t->calls));
	t->children->rows[t->children->count++] = c;
	return c;
}

struct scry_calls *scry_calls_children_of(void *root, uint32_t pid)
{
	struct scry_calls_watch *t = root;
	struct scry_watch *w = t->watch;
	struct child *c;
	uint64_t i;

	if (!t->children) {
		t->children = calloc(1, sizeof(*t->children));
		if (!t->children)
			return NULL;
		scry_map_init(&t->children->by_pid, SCRY_CALLS_CHILDREN_MAX);
	}
	if (scry_map_get(&t->children->by_pid, pid, &i))
		c = t->children->rows[i - 1];
	else if (t->children->count < SCRY_CALLS_CHILDREN_MAX && !is_entered(w, pid))
		c = add(w, pid);
	else
		c = NULL;
	t->children->refused += t->children->count == SCRY_CALLS_CHILDREN_MAX && !c;
	scry_error_clear();
	return c && (c->has_child_buffer || !is_entered(w, pid)) ? c->calls : NULL;
}

bool scry_calls_children_has_buffer(const struct scry_calls_watch *root, uint32_t pid)
{
	uint64_t i;

	return root->children && scry_map_get(&root->children->by_pid, pid, &i) &&
	       root->children->rows[i - 1]->has_child_buffer;
}

void scry_calls_children_buffer(struct scry_calls_watch *root, const struct scry_calls *calls,
				bool has_child_buffer)
{
	struct scry_calls_stats stats;

	for (uint32_t i = 0; root->children && i < root->children->count; i++) {
		struct child *c = root->children->rows[i];

		if (c->calls != calls)
			continue;
		scry_calls_stats(calls, &stats);
		c->counted = has_child_buffer ? 0 : stats.calls;
		c->has_child_buffer = has_child_buffer;
	}
}

int scry_calls_children_merge(struct scry_calls_watch *root, uint64_t watermark)
{
	int r = 0;

	for (uint32_t i = 0; root->children && i < root->children->count; i++) {
		struct child *c = root->children->rows[i];
		int e;

		if (c->has_child_buffer)
			continue;
		scry_stream_look(scry_calls_stream(c->calls));
		e = scry_calls_merge(c->calls, watermark);
		r = r ? r : e;
	}
	return r;
}

uint64_t scry_calls_children_count(const struct scry_calls_watch *root, uint64_t *ret_refused)
{
	struct scry_calls_stats stats;
	uint64_t calls = 0;

	*ret_refused = root->children ? root->children->refused : 0;
	for (uint32_t i = 0; root->children && i < root->children->count; i++) {
		const struct child *c = root->children->rows[i];

		if (c->has_child_buffer)
			continue;
		scry_calls_stats(c->calls, &stats);
		calls += stats.calls - c->counted;
	}
	return calls;
}

uint32_t scry_calls_children_known(const struct scry_calls_watch *root)
{
	return root->children ? root->children->count : 0;
}

bool scry_calls_children_live(const struct scry_calls_watch *root)
{
	bool live = false;

	for (uint32_t i = 0; root->children && i < root->children->count; i++) {
		struct child *c = root->children->rows[i];
		struct pollfd ended = {.fd = c->pidfd, .events = POLLIN};

		if (c->pidfd >= 0 && poll(&ended, 1, 0) == 1) {
			close(c->pidfd);
			c->pidfd = -1;
		}
		live |= c->pidfd >= 0 && !is_entered(c->watch, c->pid);
	}
	return live;
}

void scry_calls_children_free(struct scry_calls_watch *root)
{
	for (uint32_t i = 0; root->children && i < root->children->count; i++) {
		forget(root->children->rows[i]);
	}
	if (root->children)
		scry_map_done(&root->children->by_pid);
	free(root->children);
	root->children = NULL;
}
