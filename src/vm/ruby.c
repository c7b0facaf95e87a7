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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "sys/elf_digest.h"
#include "vm/ruby_cache.h"
#include "vm/ruby_calib.h"
#include "vm/ruby_infer.h"
#include "vm/ruby_learners.h" /* made by meson: SCRY_LEARNERS */

#define BOOT_S 10 /* a Ruby older than that which seems not to have booted has another layout */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static struct scry_space space_of(const struct scry_ruby *ruby)
{
	return (struct scry_space){.pid = ruby->pid, .core = ruby->core};
}

static bool exports_ruby(const struct scry_space *space, const struct scry_map_entry *m)
{
	struct scry_elf *elf;
	struct scry_sym sym;
	bool found;

	if (scry_space_elf(space, m, &elf) != 0) {
		scry_error_clear();
		return false;
	}
	found = scry_elf_symbol(elf, "ruby_version", &sym) == 0 &&
		scry_elf_symbol(elf, "ruby_description", &sym) == 0;
	scry_elf_close(elf);
	return found;
}

static int stop_at_any(const struct scry_sym *sym, void *arg)
{
	(void)sym;
	(void)arg;
	return 1;
}

/* A file whose section headers were taken away has none. */
static bool has_symbols(const struct scry_space *space, const struct scry_map_entry *m)
{
	struct scry_elf *elf;
	bool has;

	if (scry_space_elf(space, m, &elf) != 0) {
		scry_error_clear();
		return true; /* that is another question */
	}
	has = scry_elf_each_symbol(elf, stop_at_any, NULL) != 0;
	scry_elf_close(elf);
	return has;
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
static const char *program_path(const struct scry_space *space, const struct scry_maps *maps)
{
	const struct scry_map_entry *m = NULL;
	uint64_t entry;

	if (scry_space_auxv(space, 9 /* AT_ENTRY */, &entry) == 0)
		m = scry_maps_at(maps, entry);
	return m ? m->path : "";
}

/* The executable mapping of m's file. A reader of the file (scry, and a Ruby that prints its own
 * [BUG] report) has others; a plain reader has none: NULL. */
static const struct scry_map_entry *code_of(const struct scry_maps *maps,
					    const struct scry_map_entry *m)
{
	for (size_t i = 0; i < maps->count; i++)
		if (maps->entries[i].x && maps->entries[i].inode == m->inode &&
		    maps->entries[i].dev_minor == m->dev_minor &&
		    maps->entries[i].dev_major == m->dev_major)
			return &maps->entries[i];
	return NULL;
}

static int find(const struct scry_space *space, const struct scry_maps *maps, size_t *ret_entry)
{
	const char *exe = program_path(space, maps);

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < maps->count; i++) {
			if (!is_candidate(maps, i, exe, round) ||
			    !code_of(maps, &maps->entries[i]) ||
			    !exports_ruby(space, &maps->entries[i]))
				continue;
			*ret_entry = i;
			return 0;
		}
	}
	return -ENOENT;
}

int scry_ruby_find(pid_t pid, const struct scry_maps *maps, size_t *ret_entry)
{
	const struct scry_space space = {.pid = pid};

	return find(&space, maps, ret_entry);
}

uint64_t scry_ruby_symbol(const struct scry_ruby *ruby, const char *name)
{
	struct scry_sym sym;

	return ruby->elf && scry_elf_symbol(ruby->elf, name, &sym) == 0 ? ruby->bias + sym.value
									: 0;
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

/* No Ruby was found: none is there, or one that cannot be recognised. */
static int fail_without(const struct scry_ruby *ruby, const struct scry_proc *proc)
{
	const struct scry_space space = space_of(ruby);
	const struct scry_map_entry *entries = ruby->maps.entries;

	for (size_t i = 0; i < ruby->maps.count; i++)
		if (is_candidate(&ruby->maps, i, "", 0) && code_of(&ruby->maps, &entries[i]) &&
		    !has_symbols(&space, &entries[i]))
			return scry_fail(-ENOENT,
					 "'%s' of process %d may be a Ruby, but has no section "
					 "headers, by which its symbols are read; fix: strip it by "
					 "strip(1), which leaves them",
					 entries[i].path, (int)ruby->pid);
	return scry_fail(-ENOENT,
			 "process %d (%s) has no Ruby in it; fix: scry ps lists Ruby processes; "
			 "scry calls, patch and malloc watch any program",
			 (int)ruby->pid, proc->comm);
}

static int open_module(struct scry_ruby *ruby, const struct scry_proc *proc)
{
	const struct scry_space space = space_of(ruby);
	const struct scry_map_entry *m;
	size_t at;
	int err = scry_space_maps(&space, &ruby->maps);

	if (err)
		return err;
	if (!ruby->maps.count && !ruby->core)
		return scry_proc_fail_gone(ruby->pid);
	if (find(&space, &ruby->maps, &at) != 0)
		return fail_without(ruby, proc);
	m = &ruby->maps.entries[at];
	snprintf(ruby->module, sizeof(ruby->module), "%s", m->path);
	err = scry_space_elf(&space, m, &ruby->elf);
	if (!err)
		err = scry_elf_bias(ruby->elf, &ruby->maps, code_of(&ruby->maps, m), &ruby->bias);
	if (err)
		return err;
	read_description(ruby);
	ruby->is_driver = strncmp(base_name(program_path(&space, &ruby->maps)), "ruby", 4) == 0;
	return 0;
}

/*
 * What was learned is what a program of that user said, with whatever libraries his environment
 * names: it serves him alone. So no child can have another user's Ruby refused, or watched along
 * what does not hold.
 */
static bool make_id(const struct scry_ruby *ruby, struct scry_cache_key *ret)
{
	*ret = (struct scry_cache_key){.id_size = SCRY_DIGEST_BYTES + sizeof(ruby->users),
				       .learners = SCRY_LEARNERS};
	_Static_assert(SCRY_DIGEST_BYTES + sizeof(ruby->users) <= sizeof(ret->id), "it has room");
	memcpy(ret->id + SCRY_DIGEST_BYTES, ruby->users, sizeof(ruby->users));
	return scry_elf_digest(ruby->elf, ret->id) == 0;
}

static bool make_key(const struct scry_ruby *ruby, struct scry_cache_key *ret)
{
	return (ruby->core || !scry_calib_has_collector(ruby->pid)) && make_id(ruby, ret);
}

/* The first row: where the layout is from. */
static void report_source(struct scry_ruby *ruby, const char *value, int64_t learned_s)
{
	struct scry_ruby_check check = {.item = "layout", .ok = true, .proof = "validated now"};
	time_t when = (time_t)learned_s;
	struct tm tm;

	snprintf(check.value, sizeof(check.value), "%s", value);
	if (localtime_r(&when, &tm))
		strftime(check.how, sizeof(check.how), "learned %Y-%m-%d %H:%M", &tm);
	scry_ruby_add_check(ruby, &check);
}

static void forget(struct scry_ruby *ruby)
{
	ruby->layout = (struct scry_ruby_layout){0};
	free(ruby->checks);
	ruby->checks = NULL;
	ruby->check_count = 0;
	ruby->booted = false;
	scry_error_clear();
}

/* Seconds since it was started; more than it takes a Ruby to boot when that is not known. */
static uint64_t age_s(const struct scry_proc *proc)
{
	struct timespec now = {0};
	uint64_t started = proc->start_ticks / (uint64_t)sysconf(_SC_CLK_TCK);

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec > started ? (uint64_t)now.tv_sec - started : 0;
}

/* Where validation fails on a core, it is of the moment and not of the layout. */
static int judge_core(struct scry_ruby *ruby, int err)
{
	if (!ruby->core || err != -ENOTSUP || !ruby->check_count ||
	    strcmp(ruby->checks[ruby->check_count - 1].item, "live threads") != 0)
		return err;
	scry_error_clear();
	return 0;
}

/* Was it once done to a child of the same bytes what is done along this layout? */
static bool is_rehearsed(const struct scry_ruby_layout *layout)
{
	for (size_t i = 0; i < SCRY_RUBY_WAYS; i++)
		if (layout->rehearsed[i].agent)
			return true;
	return layout->gvl.is_proven;
}

/* It starts, and is held until this is done: a watch has it judged when it has booted. */
static int put_off(struct scry_ruby *ruby)
{
	snprintf(ruby->checks[0].proof, sizeof(ruby->checks[0].proof),
		 "to be validated when it has booted");
	scry_error_clear();
	return 0;
}

/*
 * A layout that was learned before, if the live target says that it holds. A Ruby that has not
 * booted cannot say so, and nothing that was not judged is used, but for what was rehearsed, or
 * learned in this run, in one that starts: -EAGAIN. 0, -ESRCH, or -ENOENT.
 */
static int use_cached(struct scry_ruby *ruby, const struct scry_cache_key *key,
		      enum scry_ruby_need need)
{
	struct scry_cached cached;
	int err;

	if (scry_cache_load(key, &cached) != 0)
		return -ENOENT;
	ruby->layout = cached.layout;
	report_source(ruby, "from the cache", cached.learned_s);
	for (size_t i = 0; i < cached.check_count; i++)
		scry_ruby_add_check(ruby, &cached.checks[i]);
	scry_cached_done(&cached);
	err = scry_ruby_validate(ruby);
	if (err == 0 || err == -ESRCH)
		return err;
	ruby->unjudged = err == -EAGAIN && need == SCRY_RUBY_STARTS && ruby->check_count &&
			 is_rehearsed(&ruby->layout);
	if (ruby->unjudged || (err == -EAGAIN && need == SCRY_RUBY_ANY && ruby->check_count &&
			       scry_cache_is_learned(key, &ruby->layout)))
		return put_off(ruby);
	if (ruby->core && ruby->core->cut) /* it cannot judge */
		return judge_core(ruby, err);
	forget(ruby);
	return err == -EAGAIN ? err : -ENOENT;
}

static bool is_trusted(const char *path, uint64_t inode)
{
	struct stat st;

	return stat(path, &st) == 0 && (!inode || st.st_ino == inode) &&
	       (st.st_uid == 0 || st.st_uid == geteuid());
}

/*
 * May what a child of this target said, a layout or a verdict, serve others? The child was the
 * target's own program. So only files of root or the caller count, in our own mount namespace: a
 * user who is root in a container has other files under the same names.
 */
static bool may_keep(const struct scry_ruby *ruby)
{
	const struct scry_map_entry *m = NULL;
	struct stat ours, theirs;
	char path[64];

	if (ruby->core)
		return false;
	for (size_t i = 0; i < ruby->maps.count && !m; i++) {
		if (strcmp(ruby->maps.entries[i].path, ruby->module) == 0)
			m = &ruby->maps.entries[i];
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)ruby->pid);
	if (!m || stat("/proc/self/ns/mnt", &ours) != 0 || stat(path, &theirs) != 0 ||
	    ours.st_ino != theirs.st_ino)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)ruby->pid);
	return is_trusted(path, 0) && is_trusted(ruby->module, m->inode);
}

/* But for what is found out by other means than learning. */
static bool is_same_layout(const struct scry_ruby_layout *a, const struct scry_ruby_layout *b)
{
	static const size_t parts[][2] = {
		{0, offsetof(struct scry_ruby_layout, alloc_functions)},
		{offsetof(struct scry_ruby_layout, sizes), sizeof(struct scry_ruby_layout)},
	};

	_Static_assert(offsetof(struct scry_ruby_layout, sizes) ==
			       offsetof(struct scry_ruby_layout, rehearsed) + sizeof(a->rehearsed),
		       "allocation functions and rehearsals, and nothing else, lie between");
	for (size_t i = 0; i < 2; i++)
		if (memcmp((const char *)a + parts[i][0], (const char *)b + parts[i][0],
			   parts[i][1] - parts[i][0]))
			return false;
	return true;
}

void scry_ruby_keep(const struct scry_ruby *ruby)
{
	struct scry_cache_key key;
	struct scry_cached known;

	if (!may_keep(ruby) || !make_key(ruby, &key) || scry_cache_load(&key, &known) != 0)
		return;
	known.layout.alloc_functions = ruby->layout.alloc_functions;
	known.layout.gvl = ruby->layout.gvl;
	if (is_same_layout(&known.layout, &ruby->layout))
		memcpy(known.layout.rehearsed, ruby->layout.rehearsed,
		       sizeof(known.layout.rehearsed));
	scry_cache_store(&key, &known);
	scry_cached_done(&known);
}

void scry_ruby_drop(const struct scry_ruby *ruby)
{
	struct scry_cache_key key;

	if (make_id(ruby, &key))
		scry_cache_drop(&key);
}

/* What makes objects is not learned here (instrument/objects/alloc_functions): what is known of it
 * stays known. What was rehearsed, was rehearsed with that very layout. */
static void take_found(struct scry_ruby *ruby, const struct scry_cache_key *key)
{
	struct scry_cached known;

	if (!key || scry_cache_load(key, &known) != 0)
		return;
	ruby->layout.alloc_functions = known.layout.alloc_functions;
	ruby->layout.gvl = known.layout.gvl;
	if (is_same_layout(&known.layout, &ruby->layout))
		memcpy(ruby->layout.rehearsed, known.layout.rehearsed,
		       sizeof(known.layout.rehearsed));
	scry_cached_done(&known);
}

/* Known by what it cannot run, not by its number. */
static int fail_old(const struct scry_ruby *ruby)
{
	char said[256];

	snprintf(said, sizeof(said), "%s", scry_error());
	return scry_fail(
		-ENOTSUP,
		"process %d runs %s, which is older than what scry can learn (it stops at: %s); "
		"supported are CRuby 2.7 and later; scry calls, patch and malloc watch any program",
		(int)ruby->pid, ruby->description, said);
}

static int infer_now(struct scry_ruby *ruby, const struct scry_proc *proc,
		     const struct scry_cache_key *key)
{
	struct scry_cached fresh = {.learned_s = (int64_t)time(NULL)};
	size_t rows;
	int err;

	if (!ruby->is_driver)
		return scry_fail(
			-ENOTSUP,
			"process %d (%s) embeds Ruby ('%s'); its layout can only be learned "
			"from the ruby command itself; fix: run scry doctor -p PID once on a ruby "
			"that uses the same library; then try again",
			(int)ruby->pid, proc->comm, ruby->module);
	report_source(ruby, "learned now", fresh.learned_s);
	err = scry_ruby_infer(ruby, proc);
	if (err)
		return err == -ENOEXEC ? fail_old(ruby) : err;
	take_found(ruby, key);
	rows = ruby->check_count - 1;
	err = scry_ruby_validate(ruby);
	if ((err == 0 || err == -EAGAIN) && key && ruby->whole && may_keep(ruby)) {
		fresh.layout = ruby->layout;
		fresh.checks = ruby->checks + 1;
		fresh.check_count = rows;
		scry_cache_store(key, &fresh);
		scry_cache_learned(key, &ruby->layout);
	}
	return err;
}

static int open_ruby(struct scry_ruby *ruby, const struct scry_proc *proc, enum scry_ruby_need need)
{
	struct scry_cache_key key, *known = NULL;
	struct scry_space space = space_of(ruby);
	int err = scry_space_mem(&space, &ruby->mem);

	ruby->users[0] = proc ? proc->uid : getuid();
	ruby->users[1] = proc ? proc->euid : geteuid();
	if (err == -ESRCH && !ruby->core)
		err = scry_proc_fail_gone(ruby->pid);
	if (!err)
		err = open_module(ruby, proc);
	if (err)
		return err;
	if (make_key(ruby, &key))
		known = &key;
	err = known ? use_cached(ruby, known, need) : -ENOENT;
	if (err == -EAGAIN && (need != SCRY_RUBY_BOOTS || age_s(proc) > BOOT_S) &&
	    !(ruby->core && ruby->core->cut))
		err = -ENOENT;
	if (err == -EAGAIN)
		return scry_fail(err, "the Ruby in process %d has not booted yet", (int)ruby->pid);
	if (err == -ENOENT)
		err = judge_core(ruby, infer_now(ruby, proc, known));
	if (err == -EAGAIN && (need == SCRY_RUBY_ANY || need == SCRY_RUBY_STARTS)) {
		scry_error_clear();
		err = 0;
	}
	return err;
}

int scry_ruby_open(pid_t pid, enum scry_ruby_need need, struct scry_ruby **ret)
{
	struct scry_ruby *ruby = calloc(1, sizeof(*ruby));
	struct scry_proc proc;
	int err;

	if (!ruby)
		return scry_no_memory("opening process %d", (int)pid);
	ruby->pid = pid;
	ruby->mem.fd = -1;
	err = scry_proc_open(&proc, pid);
	if (!err) {
		err = open_ruby(ruby, &proc, need);
		scry_proc_close(&proc);
	}
	if (err)
		scry_ruby_free(ruby);
	else
		*ret = ruby;
	return err;
}

/* Which process could be its own: the caller, running the core's program. */
static int stand_in(const struct scry_core *core, struct scry_proc *ret)
{
	const struct scry_map_entry *m = scry_core_program(core);
	const struct scry_core_file *file = m ? scry_core_file(core, m) : NULL;

	*ret = (struct scry_proc){.pidfd = -1,
				  .uid = getuid(),
				  .euid = geteuid(),
				  .gid = getgid(),
				  .egid = getegid()};
	snprintf(ret->comm, sizeof(ret->comm), "%s", core->comm);
	if (file &&
	    (size_t)snprintf(ret->exe, sizeof(ret->exe), "%s", file->path) >= sizeof(ret->exe))
		return scry_fail(-ENAMETOOLONG, "the path of the core's program is too long");
	return 0;
}

int scry_ruby_open_core(const struct scry_core *core, struct scry_ruby **ret)
{
	struct scry_ruby *ruby = calloc(1, sizeof(*ruby));
	struct scry_proc proc;
	int err;

	if (!ruby)
		return scry_no_memory("reading a core");
	ruby->pid = core->pid;
	ruby->core = core;
	ruby->mem.fd = -1;
	err = stand_in(core, &proc);
	if (!err)
		err = open_ruby(ruby, &proc, SCRY_RUBY_BOOTED);
	if (err)
		scry_ruby_free(ruby);
	else
		*ret = ruby;
	return err;
}

int scry_ruby_like(const struct scry_ruby *parent, struct scry_ruby **ret)
{
	struct scry_ruby *ruby = malloc(sizeof(*ruby));

	if (!ruby)
		return scry_no_memory("another Ruby");
	*ruby = *parent;
	ruby->pid = 0;
	ruby->mem = (struct scry_mem){.fd = -1};
	ruby->maps = (struct scry_maps){0};
	ruby->elf = NULL;
	ruby->checks = NULL;
	ruby->check_count = 0;
	*ret = ruby;
	return 0;
}

int scry_ruby_bind(struct scry_ruby *ruby, pid_t pid)
{
	struct scry_mem mem = {.fd = -1};
	int err = scry_mem_open(&mem, pid, 0);

	if (!err)
		err = scry_maps_read(pid, &ruby->maps);
	for (size_t i = 0; !err && !ruby->elf && i < ruby->maps.count; i++)
		if (!strcmp(ruby->maps.entries[i].path, ruby->module))
			err = scry_elf_open_mapped(pid, &ruby->maps.entries[i], &ruby->elf);
	if (!err && !ruby->elf)
		err = -ENOENT;
	if (err) {
		scry_mem_close(&mem);
		return err;
	}
	ruby->pid = pid;
	ruby->mem = mem;
	return 0;
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

void scry_ruby_put_check(const struct scry_ruby_check *check, struct scry_buf *buf)
{
	scry_buf_printf(buf, "%-20s %s; %s%s%s", check->value, check->how, check->proof,
			check->second[0] ? "; also " : "", check->second);
}

/* Its Ruby's path: in a chroot the kernel writes those of its mounts, which are its own, from the
 * root of the host. */
static int name_module(struct scry_ruby *child, pid_t pid)
{
	struct scry_maps maps = {0};
	size_t at;
	int r = scry_maps_read(pid, &maps);

	if (r == 0)
		r = scry_ruby_find(pid, &maps, &at);
	if (r == 0)
		snprintf(child->module, sizeof(child->module), "%s", maps.entries[at].path);
	scry_maps_done(&maps);
	return r;
}

int scry_calib_ruby(const struct scry_ruby *like, pid_t pid, struct scry_ruby **ret)
{
	struct scry_ruby *child;
	int r = scry_ruby_like(like, ret);

	if (r == 0)
		r = name_module(*ret, pid);
	if (r == 0)
		r = scry_ruby_bind(*ret, pid);
	if (r < 0)
		return scry_fail(-ENOTSUP, "the child does not run '%s'", like->module);
	child = *ret;
	for (size_t i = 0; i < child->maps.count; i++)
		if (!strcmp(child->maps.entries[i].path, child->module)) {
			r = scry_elf_bias(child->elf, &child->maps, &child->maps.entries[i],
					  &child->bias);
			break;
		}
	if (r == 0)
		r = scry_ruby_is_same_module(like, child);
	return r;
}
