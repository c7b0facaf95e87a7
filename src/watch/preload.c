/* See preload.h. */
#include "watch/preload.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/beside.h"
#include "sys/elf.h"
#include "watch/session.h"
#include "wire/preload.h"

#define OBJECT "libscry-malloc.so"
#define LOOK_NS 20000000ull /* between two looks whether processes run another program */
#define NAMELESS_NS \
	2000000000ull /* so long a child buffer may be no process's while one is awaited */
#define STRANGERS_MAX 65536u

/* As execvp searches. */
static int find_command(const char *name, char *path, size_t size)
{
	const char *dirs = getenv("PATH");

	if (strchr(name, '/'))
		return snprintf(path, size, "%s", name) < (int)size ? 0 : -ENOENT;
	for (dirs = dirs ? dirs : "/bin:/usr/bin"; *dirs;) {
		size_t n = strcspn(dirs, ":");
		struct stat st;

		if (snprintf(path, size, "%.*s/%s", (int)n, n ? dirs : ".", name) < (int)size &&
		    !access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode))
			return 0;
		dirs += n + (dirs[n] == ':');
	}
	return -ENOENT;
}

/* Of a script: its interpreter. False: it is none. */
static bool read_interpreter(const char *path, char *ret, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[256] = "";
	const char *at;
	bool is_script =
		file && fgets(line, sizeof(line), file) && line[0] == '#' && line[1] == '!';

	if (file)
		fclose(file);
	at = line + 2 + strspn(line + 2, " \t");
	return is_script && snprintf(ret, size, "%.*s", (int)strcspn(at, " \t\n"), at) < (int)size;
}

static int check_rights(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 &&
	    ((st.st_mode & S_ISUID && st.st_uid != geteuid()) ||
	     (st.st_mode & S_ISGID && st.st_gid != getegid()) ||
	     (geteuid() && getxattr(path, "security.capability", NULL, 0) > 0)))
		return scry_fail(-ENOTSUP,
				 "'%s' gains rights at its start (setuid, setgid or capabilities): "
				 "the loader preloads nothing into it",
				 path);
	return 0;
}

/* The name of a library of sanitizers among those that it needs. */
static bool has_sanitizer(struct scry_elf *elf)
{
	static const char *const names[] = {"libasan.so", "libtsan.so", "liblsan.so",
					    "libhwasan.so"};
	const uint8_t *text;
	uint64_t at, size;
	bool has = false;

	if (scry_elf_section(elf, ".dynstr", &at, &size) < 0 ||
	    scry_elf_view(elf, at, &text) < size)
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		has |= memmem(text, size, names[i], strlen(names[i])) != NULL;
	return has;
}

bool scry_preload_has_malloc(struct scry_elf *elf)
{
	struct scry_sym sym;

	return scry_elf_has_interp(elf) && scry_elf_symbol(elf, "malloc", &sym) == 0 &&
	       sym.type == STT_FUNC;
}

static int check_file(const char *path)
{
	struct scry_elf *elf;
	int r = check_rights(path);

	if (r < 0)
		return r;
	if (scry_elf_open_path(path, &elf) < 0) { /* exec will say what it is */
		scry_error_clear();
		return 0;
	}
	if (has_sanitizer(elf))
		r = scry_fail(-ENOTSUP,
			      "'%s' is built with a sanitizer, whose library must be the first: "
			      "nothing can be preloaded into it",
			      path);
	else if (scry_preload_has_malloc(elf))
		r = scry_fail(-ENOTSUP,
			      "'%s' has its own malloc: a preloaded one would not be called; "
			      "fix: attach instead, without --preload",
			      path);
	else if (!scry_elf_has_interp(elf))
		r = scry_fail(-ENOTSUP,
			      "'%s' is a static program: nothing can be preloaded into it; fix: "
			      "attach instead, without --preload",
			      path);
	scry_elf_close(elf);
	return r;
}

static int find_object(char *path)
{
	char found[PATH_MAX];
	int r = scry_beside(OBJECT, "preload", found, sizeof(found));

	if (r < 0)
		return r;
	if (!realpath(found, path))
		return scry_fail(-errno, "cannot use '%s': %s", found, strerror(errno));
	if (strpbrk(path, ": \n"))
		return scry_fail(-EINVAL,
				 "'%s' cannot be preloaded: its path has a colon or a space", path);
	return 0;
}

int scry_preload_check(char *const *command)
{
	char object[PATH_MAX], path[PATH_MAX], interpreter[PATH_MAX];
	int r = find_object(object);

	if (r < 0 || find_command(command[0], path, sizeof(path)) < 0)
		return r; /* exec will say that it is not there */
	if (read_interpreter(path, interpreter, sizeof(interpreter)))
		return check_file(interpreter);
	return check_file(path);
}

int scry_preload_environ(const char *text)
{
	char value[128], object[PATH_MAX], all[2 * PATH_MAX];
	const char *had = getenv("LD_PRELOAD");

	if (sscanf(text, "%127[^\n]\n%4095[^\n]", value, object) != 2)
		return -1;
	snprintf(all, sizeof(all), "%s%s%s", object, had && *had ? ":" : "", had ? had : "");
	return setenv(SCRY_PRELOAD_ENV, value, 1) || setenv("LD_PRELOAD", all, 1) ? -1 : 0;
}

int scry_preload_start(struct scry_session *s, pid_t child)
{
	struct scry_watch *w = scry_watch_new(s);
	char object[PATH_MAX], text[PATH_MAX + 128];
	int r = w ? find_object(object) : -ENOMEM;

	if (r == 0)
		r = scry_pool_make(&w->pool);
	if (r == 0)
		r = s->instrument->adopt(w);
	if (r < 0)
		return r;
	w->is_over = true; /* it is not a process: it has the pool of the processes that are */
	s->preload = w;
	scry_map_init(&s->strangers, STRANGERS_MAX);
	scry_session_lease(s, SCRY_LEASE_NS);
	r = scry_watch_keep_fresh(w);
	if (r < 0)
		return r;
	scry_watch_hurry();
	scry_pool_follow(&w->pool, 1);
	snprintf(text, sizeof(text), "%d:%d:%d:%d:%u\n%s", SCRY_PRELOAD_ABI, getpid(), w->pool.fd,
		 s->opts->follow ? 0 : child, w->pool.head->nonce, object);
	scry_send_news(s, SCRY_NEWS_GO, 0, text);
	return 0;
}

/* The program that this process ran before. */
static void end_older(struct scry_session *s, const struct scry_watch *young)
{
	for (size_t i = s->count; i-- > 0;) {
		struct scry_watch *w = s->watches[i];

		if (w == young || w->is_over || w->proc.pid != young->proc.pid)
			continue;
		w->target_gone = true;
		scry_watch_end(w, "it ran another program (exec)");
		scry_inject_unlock(w->inj);
	}
}

/* It is known whose child buffer this is. */
static void introduce(struct scry_session *s, struct scry_watch *w)
{
	struct scry_proc_stat st = {0};

	end_older(s, w);
	scry_map_remove(&s->strangers, (uint64_t)w->proc.pid, NULL);
	if (scry_proc_stat(w->proc.pid, &st) == 0)
		w->image_was = st.image;
	scry_execs_open(&w->execs, w->proc.pid);
	w->cpu_began_ns = scry_proc_cpu_ns(w->proc.pid);
	w->instrument->identified(w);
	scry_watch_introduce(w);
	if (s->entered == 1)
		scry_send_news(s, SCRY_NEWS_ENTERED, 0, "");
	scry_pool_seen(&w->root->pool, w->child_buffer, true);
}

static void look_for_owner(struct scry_session *s, struct scry_watch *w)
{
	pid_t pid = scry_pool_owner(&w->root->pool, w->child_buffer);

	if (!pid)
		return;
	if (scry_proc_open(&w->proc, pid) == 0 && scry_pool_is_member(&w->root->pool, pid)) {
		introduce(s, w);
	} else { /* it has ended, or that is its number in another pid namespace */
		scry_pool_seen(&w->root->pool, w->child_buffer, false);
		s->nameless++;
		scry_proc_close(&w->proc);
		w->proc.pid = 0;
		w->target_gone = true; /* the keeper's turn ends it */
	}
	scry_error_clear();
}

/* Of those below `count`. */
static void look_for_owners(struct scry_session *s, size_t count, bool is_program)
{
	for (size_t i = count < s->count ? count : s->count; i-- > 0;) {
		struct scry_watch *w = s->watches[i];

		if (scry_preload_has(w) && !w->proc.pid && !w->is_over && !w->target_gone &&
		    is_program == (scry_account_of(w->inj->control)->malloc.preloaded != 0))
			look_for_owner(s, w);
	}
}

/* A process that has run another program: should that not join, it was a stranger's. */
static void look_for_strangers(struct scry_session *s)
{
	uint64_t now = scry_now_ns();
	bool all = now >= s->scan_ns;

	for (size_t i = s->count; i-- > 0;) {
		struct scry_watch *w = s->watches[i];
		struct scry_proc_stat st;

		if (!scry_preload_has(w) || !w->proc.pid || w->is_over ||
		    (!all && !w->may_have_execed))
			continue;
		w->may_have_execed = false;
		if (scry_proc_stat(w->proc.pid, &st) < 0 || !st.image || st.image == w->image_was ||
		    st.start_ticks != w->proc.start_ticks)
			continue;
		scry_map_put(&s->strangers, (uint64_t)w->proc.pid, 1);
		w->target_gone = true;
		scry_watch_end(w, "it ran another program (exec)");
		scry_inject_unlock(w->inj);
	}
	if (all)
		s->scan_ns = now + LOOK_NS;
}

/*
 * A fork child may have run another program by now, which is in another child buffer, and taken
 * later: once that one was seen, the child's is seen in the next look at all child buffers.
 * Programs first, they end what their processes did before.
 */
void scry_preload_turn(struct scry_session *s)
{
	size_t count;

	scry_follow_child_buffers(s);
	count = s->count;
	scry_follow_child_buffers(s);
	look_for_owners(s, count, true);
	look_for_owners(s, count, false);
	look_for_strangers(s);
}

/* A process that takes a child buffer says at once which it is; any process that has the pool may
 * take one in no process's name.
 */
static bool is_young(const struct scry_watch *w)
{
	return scry_now_ns() < w->began_ns + NAMELESS_NS;
}

bool scry_preload_remains(const struct scry_session *s)
{
	if (s->leader && scry_proc_is_running(s->leader, s->leader_start))
		return true;
	for (size_t i = 0; i < s->count; i++) {
		const struct scry_watch *w = s->watches[i];

		if (!w->is_over && (w->proc.pid || w->target_gone || is_young(w)))
			return true;
	}
	return false;
}
