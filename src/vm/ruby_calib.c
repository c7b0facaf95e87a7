/*
 * Runs the calibration child.
 *
 * The binary is executed by descriptor (opened through /proc/PID/exe), so a deleted or replaced
 * file does not matter; sys/jail sees to it that it runs as the target's user, finds its libraries,
 * and can do nothing else. Nothing is written, so nothing must be cleaned up. What it says on
 * stderr is kept for the refusal.
 */
#include "vm/ruby_calib.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/debug_file.h"
#include "vm/ruby_calib_script.h" /* made by meson from ruby_calib.rb: static const char calib_script[] */

#define LIMIT_CPU_S 5
#define LIMIT_MS 20000 /* on a busy machine */
#define TEXT_MAX (4u << 20)
#define FACTS_MAX 65536u

#define KEPT 2
/* A layout in the cache is used where no child can run. */
#define FIX "scry doctor -p PID of another ruby of the same build, once; then try again"

struct plan {
	const struct scry_proc *target;
	int exe;
	int in[2], out[2], err[2];
	char kept[KEPT][4096]; /* "NAME=..." or "" */
	const char *script;    /* given as -e; NULL: fed through stdin */
};

/*
 * Of the target's environment the child may see where its libraries are, and which collector it
 * loads (a Ruby with a modular GC).
 */
static const char *const kept[KEPT] = {"LD_LIBRARY_PATH", "RUBY_GC_LIBRARY"};

static void find_kept(pid_t pid, size_t which, char *ret, size_t room)
{
	size_t size = 0, length = strlen(kept[which]);
	char path[64], *text = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	f = fopen(path, "re");
	while (f && getdelim(&text, &size, '\0', f) > 0) {
		if (strncmp(text, kept[which], length) == 0 && text[length] == '=' &&
		    strlen(text) < room) {
			strcpy(ret, text);
			break;
		}
	}
	free(text);
	if (f)
		fclose(f);
}

bool scry_calib_has_collector(pid_t pid)
{
	char text[4096] = "";

	find_kept(pid, 1, text, sizeof(text));
	return text[0] != '\0' && text[strlen(kept[1]) + 1] != '\0';
}

/* As the target's user, and locked in: sys/jail. */
static int start_child(const struct plan *plan, struct scry_jail *ret)
{
	char *const argv[] = {"ruby",
			      "--disable=gems,rubyopt",
			      "-W0",
			      plan->script ? "-e" : "-",
			      (char *)(uintptr_t)plan->script,
			      NULL};
	char *envp[KEPT + 1] = {0};
	const struct scry_jail_plan jail = {
		.target = plan->target,
		.exe = plan->exe,
		.files = {plan->in[0], plan->out[1], plan->err[1]},
		.argv = argv,
		.envp = envp,
		/* With all functions hooked it may take all its time. */
		.cpu_s = plan->script ? LIMIT_MS / 1000 : LIMIT_CPU_S,
		.life_s = LIMIT_MS / 1000,
	};
	size_t used = 0;
	int r;

	for (size_t i = 0; i < KEPT; i++)
		if (plan->kept[i][0])
			envp[used++] = (char *)(uintptr_t)plan->kept[i];
	r = scry_jail_start(&jail, ret);
	return r < 0 ? scry_fail(r, "the calibration child failed: %s; fix: " FIX, scry_error())
		     : 0;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct feed {
	int in, out;
	const char *text;
	size_t size;
	bool stays; /* `in` is left open */
};

/* Feeds the text and collects the facts until the line "ready". Returns malloc'ed text or NULL. */
static char *talk(const struct feed *f, uint64_t end_ms)
{
	size_t sent = 0, used = 0, room = 1u << 16, total = f->size;
	int in = f->in, out = f->out;
	char *text = malloc(room);

	while (text) {
		struct pollfd p[2] = {{out, POLLIN, 0}, {sent < total ? in : -1, POLLOUT, 0}};
		int64_t left = (int64_t)(end_ms - now_ms());
		ssize_t n;

		if (left <= 0 || (poll(p, 2, (int)left) < 0 && errno != EINTR))
			break;
		if (p[1].revents) {
			n = write(in, f->text + sent, total - sent);
			sent = n > 0 ? sent + (size_t)n : errno == EAGAIN ? sent : total;
			if (sent == total && !f->stays)
				close(in);
		}
		if (!p[0].revents)
			continue;
		if (room - used < 4096) {
			char *more = room < TEXT_MAX ? realloc(text, room * 2) : NULL;

			if (!more)
				break;
			text = more;
			room *= 2;
		}
		n = read(out, text + used, room - used - 1);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
		used += n > 0 ? (size_t)n : 0;
		text[used] = '\0';
		if (used >= 7 && strcmp(text + used - 7, "\nready\n") == 0) {
			if (sent < total && !f->stays)
				close(in);
			return text;
		}
	}
	if (sent < total && !f->stays)
		close(in);
	free(text);
	return NULL;
}

/* All tasks asleep, seen twice: after "ready" the main thread has one call to go. */
static bool wait_still(pid_t pid, uint64_t end_ms)
{
	int quiet = 0;

	while (quiet < 2 && now_ms() < end_ms) {
		pid_t *tasks = NULL;
		ssize_t n = scry_proc_tasks(pid, &tasks);
		bool all = n > 0;

		for (ssize_t i = 0; i < n && all; i++)
			all = scry_proc_task_state(pid, tasks[i]) == 'S';
		free(tasks);
		quiet = all ? quiet + 1 : 0;
		if (quiet < 2)
			poll(NULL, 0, 1);
	}
	return quiet >= 2;
}

/* Links the facts of each kind, for they are walked again and again. */
static int link_kinds(struct scry_calib *calib)
{
	size_t last[SCRY_FACT_KINDS];

	for (size_t i = 0; i < calib->fact_count; i++) {
		const char *kind = calib->facts[i].words[0];
		size_t k = 0;

		while (k < calib->kind_count &&
		       strcmp(calib->facts[calib->first[k]].words[0], kind) != 0)
			k++;
		if (k == SCRY_FACT_KINDS)
			return scry_fail(-EPROTO, "the calibration child reports too many kinds");
		if (k == calib->kind_count)
			calib->first[calib->kind_count++] = i;
		else
			calib->facts[last[k]].next = i;
		last[k] = i;
	}
	return 0;
}

int scry_calib_parse(struct scry_calib *calib, char *text)
{
	size_t lines = 1;

	calib->text = text;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	if (lines > FACTS_MAX)
		lines = FACTS_MAX;
	calib->facts = calloc(lines, sizeof(*calib->facts));
	if (!calib->facts)
		return scry_no_memory("%zu facts", lines);
	for (char *line, *rest = text; calib->fact_count < lines && (line = strsep(&rest, "\n"));) {
		struct scry_fact *fact = &calib->facts[calib->fact_count];
		char *word;

		while (fact->count < SCRY_FACT_WORDS && (word = strsep(&line, " "))) {
			if (*word)
				fact->words[fact->count++] = word;
		}
		calib->fact_count += fact->count > 0;
	}
	if (!calib->fact_count ||
	    strcmp(calib->facts[calib->fact_count - 1].words[0], "ready") != 0)
		return scry_fail(-EPROTO, "the calibration child did not finish its facts");
	return link_kinds(calib);
}

/* The first line of what the child said on stderr, printable; "" when nothing. */
static void read_complaint(int fd, char *buf, size_t size)
{
	ssize_t n = read(fd, buf, size - 1);
	size_t used = n > 0 ? (size_t)n : 0;

	for (size_t i = 0; i < used; i++) {
		if (buf[i] == '\n')
			used = i;
		else if (buf[i] < ' ' || buf[i] > '~')
			buf[i] = '?';
	}
	buf[used] = '\0';
}

/* Does it say that the script is in a newer language than it knows? */
static bool is_too_old(const char *said)
{
	static const char *const words[] = {"syntax error", "undefined method",
					    "uninitialized constant", "wrong number of arguments",
					    "unknown keyword"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(said, words[i]))
			return true;
	return false;
}

/* What scry_jail_wait said of its end, and its stderr. */
static int explain_end(int r, int status, int err_fd)
{
	char said[200], how[64];

	if (r < 0)
		return scry_fail(-ENOTSUP, "the calibration child failed: %s; fix: " FIX,
				 scry_error());
	if (r == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
		return scry_fail(
			-ENOTSUP,
			"the calibration child was not ready after %d s; fix: once more when "
			"the machine has less to do; or " FIX,
			LIMIT_MS / 1000);
	if (WIFEXITED(status))
		snprintf(how, sizeof(how), "it ended with status %d", WEXITSTATUS(status));
	else
		snprintf(how, sizeof(how), "it was ended by signal %d", WTERMSIG(status));
	read_complaint(err_fd, said, sizeof(said));
	if (is_too_old(said))
		return scry_fail(-ENOEXEC, "%s", said);
	return scry_fail(-ENOTSUP, "the calibration child failed: %s%s%s; fix: " FIX, how,
			 said[0] ? ": " : "", said);
}

/* Why the child said nothing. */
static int explain(struct scry_jail *jail, int err_fd, uint64_t end_ms)
{
	int status = 0, r = scry_jail_wait(jail, end_ms, &status);

	return explain_end(r, status, err_fd);
}

static int open_plan(struct plan *plan)
{
	pid_t pid = plan->target->pid;
	char path[64];
	int err;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	plan->exe = open(pid ? path : plan->target->exe, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	err = plan->exe < 0 ? -errno : 0;
	if (err)
		return scry_fail(err, "cannot open the program of process %d: %s", (int)pid,
				 strerror(-err));
	if (!pid && !scry_debug_file_is_trusted(plan->exe))
		return scry_fail(-EPERM,
				 "'%s' is not run to learn from it: it is neither root's nor yours",
				 plan->target->exe);
	if (pipe2(plan->in, O_CLOEXEC) || pipe2(plan->out, O_CLOEXEC) ||
	    pipe2(plan->err, O_CLOEXEC))
		return scry_fail(-errno, "cannot make a pipe: %s", strerror(errno));
	fcntl(plan->in[1], F_SETFL, O_NONBLOCK);
	fcntl(plan->out[0], F_SETFL, O_NONBLOCK);
	fcntl(plan->err[0], F_SETFL, O_NONBLOCK);
	for (size_t i = 0; pid && i < KEPT; i++)
		find_kept(pid, i, plan->kept[i], sizeof(plan->kept[i]));
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Writing to a child that died must not kill us: SIGPIPE stays blocked and is swallowed. */
static char *talk_quietly(const struct feed *feed, uint64_t end_ms)
{
	struct timespec zero = {0, 0};
	sigset_t pipe_set, old;
	char *text;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	text = talk(feed, end_ms);
	if (!sigismember(&old, SIGPIPE)) {
		while (sigtimedwait(&pipe_set, NULL, &zero) == SIGPIPE)
			;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return text;
}

static void close_plan(struct plan *plan)
{
	close_fd(&plan->exe);
	close_fd(&plan->in[0]);
	close_fd(&plan->in[1]);
	close_fd(&plan->out[0]);
	close_fd(&plan->out[1]);
	close_fd(&plan->err[0]);
	close_fd(&plan->err[1]);
}

/* Starts it, and closes our copies of its ends. 0 or -errno with a sentence. */
static int start(struct plan *plan, struct scry_jail *ret)
{
	int err = open_plan(plan);

	if (!err)
		err = start_child(plan, ret);
	close_fd(&plan->in[0]);
	close_fd(&plan->out[1]);
	close_fd(&plan->err[1]);
	return err;
}

static struct plan plan_for(const struct scry_proc *target, const char *script)
{
	return (struct plan){.target = target,
			     .exe = -1,
			     .in = {-1, -1},
			     .out = {-1, -1},
			     .err = {-1, -1},
			     .script = script};
}

/* Takes `text` over: the facts of a child that then sits still. */
static int take_facts(struct scry_calib *calib, char *text, uint64_t end_ms)
{
	int err = scry_calib_parse(calib, text);

	if (!err && !wait_still(calib->pid, end_ms))
		err = scry_fail(-ENOTSUP, "the calibration child does not sit still");
	return err;
}

int scry_calib_start(const struct scry_proc *target, struct scry_calib *ret)
{
	struct feed feed = {.text = calib_script, .size = sizeof(calib_script) - 1};
	struct plan plan = plan_for(target, NULL);
	struct scry_calib calib = {0};
	uint64_t end_ms = now_ms() + LIMIT_MS;
	int err = start(&plan, &calib.jail);
	char *text;

	if (!err) {
		calib.pid = calib.jail.pid;
		feed.in = plan.in[1];
		feed.out = plan.out[0];
		text = talk_quietly(&feed, end_ms);
		plan.in[1] = -1;
		err = text ? take_facts(&calib, text, end_ms)
			   : explain(&calib.jail, plan.err[0], end_ms);
	}
	close_plan(&plan);
	if (err)
		scry_calib_stop(&calib);
	else
		*ret = calib;
	return err;
}

int scry_calib_open(const struct scry_proc *target, const char *script, struct scry_calib_talk *ret)
{
	struct plan plan = plan_for(target, script);
	struct scry_jail jail;
	int err = start(&plan, &jail);

	if (!err) {
		*ret = (struct scry_calib_talk){.pid = jail.pid,
						.jail = jail,
						.in = plan.in[1],
						.out = plan.out[0],
						.err = plan.err[0],
						.end_ms = now_ms() + LIMIT_MS};
		plan.in[1] = plan.out[0] = plan.err[0] = -1;
	}
	close_plan(&plan);
	return err;
}

int scry_calib_ask(struct scry_calib_talk *talk, const char *line, struct scry_calib *ret)
{
	struct scry_calib answer = {.pid = talk->pid};
	const struct feed feed = {.in = talk->in,
				  .out = talk->out,
				  .text = line,
				  .size = strlen(line),
				  .stays = true};
	char *text = talk_quietly(&feed, talk->end_ms);
	int err = text ? take_facts(&answer, text, talk->end_ms)
		       : explain(&talk->jail, talk->err, talk->end_ms);

	answer.pid = 0; /* its end is not the child's */
	if (err)
		scry_calib_stop(&answer);
	else
		*ret = answer;
	return err;
}

int scry_calib_end(struct scry_calib_talk *talk)
{
	int status = 0, r;

	close_fd(&talk->in);
	r = scry_jail_wait(&talk->jail, talk->end_ms, &status);
	if (r > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return explain_end(r, status, talk->err);
}

void scry_calib_close(struct scry_calib_talk *talk)
{
	close_fd(&talk->in);
	close_fd(&talk->out);
	close_fd(&talk->err);
	scry_jail_end(&talk->jail);
	talk->pid = 0;
}

void scry_calib_stop(struct scry_calib *calib)
{
	if (!calib)
		return;
	scry_jail_end(&calib->jail);
	free(calib->facts);
	free(calib->text);
	memset(calib, 0, sizeof(*calib));
}

const struct scry_fact *scry_fact_next(const struct scry_calib *calib, const struct scry_fact *last,
				       const char *kind)
{
	if (last && strcmp(last->words[0], kind) == 0)
		return last->next ? &calib->facts[last->next] : NULL;
	for (size_t k = 0; k < calib->kind_count; k++) {
		const struct scry_fact *f = &calib->facts[calib->first[k]];

		if (strcmp(f->words[0], kind) != 0)
			continue;
		while (last && f <= last && f->next)
			f = &calib->facts[f->next];
		return last && f <= last ? NULL : f;
	}
	return NULL;
}

uint64_t scry_fact_addr(const struct scry_fact *fact, int i)
{
	return i < fact->count ? strtoull(fact->words[i], NULL, 16) : 0;
}

long scry_fact_number(const struct scry_fact *fact, int i)
{
	return i < fact->count ? strtol(fact->words[i], NULL, 10) : 0;
}

size_t scry_fact_text(const struct scry_fact *fact, int i, char *buf, size_t size)
{
	const char *hex = i < fact->count ? fact->words[i] : "";
	size_t n = 0;

	while (n + 1 < size && hex[2 * n] && hex[2 * n + 1]) {
		char pair[3] = {hex[2 * n], hex[2 * n + 1], '\0'};

		buf[n++] = (char)strtoul(pair, NULL, 16);
	}
	buf[n] = '\0';
	return n;
}
