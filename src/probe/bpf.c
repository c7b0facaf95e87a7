/* See bpf.h. */
#include "probe/bpf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "base/err.h"
#include "sys/container.h"
#include "base/log.h"
#include "sys/proc.h"

#define CAP_SYS_ADMIN 21
#define CAP_PERFMON 38
#define CAP_BPF 39
#define CPUS_MAX 4096
#define VALUE_MAX 256 /* bytes of an entry that is asked for */

SCRY_BPF_OBJECT(check);

struct attached {
	struct bpf_link *link;
	uint64_t number; /* 0: none */
};

struct scry_bpf {
	struct bpf_object *object;
	const char *name;
	struct attached *links;
	size_t link_count, link_room;
	struct ring_buffer *rings;
};

/* libbpf's own words, and the judge's: of use to those who change a program. */
static int say(enum libbpf_print_level level, const char *fmt, va_list args)
{
	char text[1024];

	if (level == LIBBPF_DEBUG || scry_log_level() < 1)
		return 0;
	vsnprintf(text, sizeof(text), fmt, args);
	scry_log_detail("%s", text);
	return 0;
}

/* --- what the kernel lacks -------------------------------------------------------------------- */

static bool has_line(const char *path, const char *text)
{
	char buf[256] = "";
	FILE *f = fopen(path, "re");

	if (!f)
		return false;
	if (!fgets(buf, sizeof(buf), f))
		buf[0] = 0;
	fclose(f);
	return strstr(buf, text) != NULL;
}

/* The whole machine's user namespace maps all ids to themselves. */
static bool is_first_user_namespace(void)
{
	unsigned int inside = 1, outside = 1, count = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	bool is = !f || (fscanf(f, "%u %u %u", &inside, &outside, &count) == 3 && !inside &&
			 !outside && count == 4294967295u);

	if (f)
		fclose(f);
	return is;
}

static int explain_right(int err)
{
	bool admin = scry_proc_can(CAP_SYS_ADMIN);

	if (!admin && !(scry_proc_can(CAP_BPF) && scry_proc_can(CAP_PERFMON)))
		return scry_fail(-EPERM,
				 "eBPF programs need CAP_BPF and CAP_PERFMON, which this process "
				 "does not have; fix: sudo scry ...%s",
				 scry_container_fix(SCRY_CONTAINER_BPF));
	if (!is_first_user_namespace())
		return scry_fail(-EPERM, "root of a user namespace may not load eBPF programs; "
					 "fix: run scry outside the (rootless) container");
	if (has_line("/sys/kernel/security/lockdown", "[confidentiality]"))
		return scry_fail(
			-EPERM,
			"the kernel is locked down (confidentiality), and lets no eBPF program "
			"read memory; fix: boot with lockdown=integrity, or use no eBPF");
	return scry_fail(
		-EPERM,
		"the kernel refused an eBPF program (%s), though the rights are there: a "
		"container's seccomp filter, or a security module; fix: run scry outside%s",
		strerror(-err), scry_container_fix(SCRY_CONTAINER_CALLS));
}

/* Maps, programs and links are open files; from libbpf 1.5 on also maps not made yet. */
static int explain_limit(const char *object)
{
	return scry_fail(-EMFILE,
			 "the eBPF object '%s' needs more open files than the limit allows; "
			 "fix: ulimit -n 1024",
			 object);
}

static int explain(const struct scry_bpf *b, int err)
{
	struct utsname un = {.release = "?"};

	uname(&un);
	if (err == -EPERM || err == -EACCES)
		return explain_right(err);
	if (err == -ENOMEM)
		return scry_no_memory("the eBPF object '%s'", b->name);
	if (err == -EMFILE)
		return explain_limit(b->name);
	if (err == -ENOSYS)
		return scry_fail(-ENOTSUP, "kernel %s has no eBPF (CONFIG_BPF_SYSCALL)",
				 un.release);
	if (access("/sys/kernel/btf/vmlinux", R_OK) < 0)
		return scry_fail(-ENOTSUP,
				 "kernel %s does not describe its types (/sys/kernel/btf/vmlinux), "
				 "which eBPF programs need; fix: a kernel with "
				 "CONFIG_DEBUG_INFO_BTF, as distributions have it",
				 un.release);
	return scry_fail(-ENOTSUP,
			 "kernel %s does not take the eBPF object '%s' (%s); Linux 5.8 or newer is "
			 "needed; -v shows what it says",
			 un.release, b->name, strerror(-err));
}

/* --- life ------------------------------------------------------------------------------------- */

int scry_bpf_open(struct scry_bpf_image image, struct scry_bpf **ret)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = image.name);
	struct scry_bpf *b = calloc(1, sizeof(*b));
	size_t size = (uintptr_t)image.end - (uintptr_t)image.begin;
	int err;

	if (!b)
		return scry_no_memory("the eBPF object '%s'", image.name);
	libbpf_set_print(say);
	b->name = image.name;
	b->object = bpf_object__open_mem(image.begin, size, &opts);
	if (b->object) {
		*ret = b;
		return 0;
	}
	err = -errno;
	free(b);
	if (err == -EMFILE)
		return explain_limit(image.name);
	return scry_fail(err == -ENOMEM ? err : -ENOEXEC, "the eBPF object '%s' in this scry: %s",
			 image.name, strerror(-err));
}

void scry_bpf_detach(struct scry_bpf *b)
{
	while (b->link_count)
		bpf_link__destroy(b->links[--b->link_count].link);
}

void scry_bpf_detach_number(struct scry_bpf *b, uint64_t number)
{
	size_t kept = 0;

	for (size_t i = 0; i < b->link_count; i++)
		if (b->links[i].number == number)
			bpf_link__destroy(b->links[i].link);
		else
			b->links[kept++] = b->links[i];
	b->link_count = kept;
}

void scry_bpf_close(struct scry_bpf *b)
{
	if (!b)
		return;
	scry_bpf_detach(b);
	free(b->links);
	ring_buffer__free(b->rings);
	bpf_object__close(b->object);
	free(b);
}

/* Where the variable is in .rodata, by the types of the object. */
static int find_constant(struct scry_bpf *b, const char *name, const struct btf_var_secinfo **ret)
{
	const struct btf *btf = bpf_object__btf(b->object);
	int id = btf ? btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC) : -1;
	const struct btf_type *section = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
	const struct btf_var_secinfo *var = section ? btf_var_secinfos(section) : NULL;

	for (int i = 0; section && i < btf_vlen(section); i++, var++) {
		const struct btf_type *type = btf__type_by_id(btf, var->type);

		if (type && !strcmp(btf__name_by_offset(btf, type->name_off), name)) {
			*ret = var;
			return 0;
		}
	}
	return -ENOENT;
}

static struct bpf_map *rodata(struct scry_bpf *b)
{
	struct bpf_map *map = bpf_object__next_map(b->object, NULL);

	while (map && !strstr(bpf_map__name(map), ".rodata"))
		map = bpf_object__next_map(b->object, map);
	return map;
}

int scry_bpf_constant(struct scry_bpf *b, const char *name, const void *value, size_t size)
{
	const struct btf_var_secinfo *var;
	struct bpf_map *map = rodata(b);
	size_t room = 0;
	const char *before = map ? bpf_map__initial_value(map, &room) : NULL;
	char *bytes;
	int err = find_constant(b, name, &var);

	if (!err && (!before || var->size != size || var->offset + size > room))
		err = -EINVAL;
	if (err)
		return scry_fail(err, "the eBPF object '%s' has no constant '%s' of %zu bytes",
				 b->name, name, size);
	bytes = malloc(room);
	if (!bytes)
		return scry_no_memory("a constant");
	memcpy(bytes, before, room);
	memcpy(bytes + var->offset, value, size);
	err = bpf_map__set_initial_value(map, bytes, room);
	free(bytes);
	return err;
}

static int find_map(const struct scry_bpf *b, const char *name, struct bpf_map **ret)
{
	*ret = bpf_object__find_map_by_name(b->object, name);
	return *ret ? 0 : scry_fail(-ENOENT, "the eBPF object '%s' has no map '%s'", b->name, name);
}

static int find_program(struct scry_bpf *b, const char *name, struct bpf_program **ret)
{
	*ret = bpf_object__find_program_by_name(b->object, name);
	return *ret ? 0
		    : scry_fail(-ENOENT, "the eBPF object '%s' has no program '%s'", b->name, name);
}

int scry_bpf_map_entries(struct scry_bpf *b, const char *map, uint32_t entries)
{
	struct bpf_map *m;
	int err = find_map(b, map, &m);

	return err ? err : bpf_map__set_max_entries(m, entries);
}

int scry_bpf_leave_out(struct scry_bpf *b, const char *program)
{
	struct bpf_program *p;
	int err = find_program(b, program, &p);

	return err ? err : bpf_program__set_autoload(p, false);
}

int scry_bpf_load(struct scry_bpf *b)
{
	int err = bpf_object__load(b->object);

	return err ? explain(b, err) : 0;
}

int scry_bpf_check(void)
{
	struct scry_bpf *b;
	int err = scry_bpf_open(SCRY_BPF(check), &b);

	if (err)
		return err;
	err = scry_bpf_load(b);
	scry_bpf_close(b);
	return err;
}

/* --- attaching -------------------------------------------------------------------------------- */

/* Takes the link. */
static int keep_link(struct scry_bpf *b, struct bpf_link *link, uint64_t number)
{
	if (b->link_count == b->link_room) {
		size_t room = b->link_room ? 2 * b->link_room : 16;
		struct attached *more = reallocarray(b->links, room, sizeof(*more));

		if (!more) {
			bpf_link__destroy(link);
			return scry_no_memory("a link");
		}
		b->links = more;
		b->link_room = room;
	}
	b->links[b->link_count++] = (struct attached){link, number};
	return 0;
}

int scry_bpf_attach_perf(struct scry_bpf *b, const char *program, int perf_fd, uint64_t number)
{
	struct bpf_program *p;
	struct bpf_link *link = NULL;
	int err = find_program(b, program, &p);

	if (!err && !(link = bpf_program__attach_perf_event(p, perf_fd)))
		err = errno == EMFILE ? explain_limit(b->name)
				      : scry_fail(-errno,
						  "the eBPF program '%s' cannot be put on a "
						  "clock: %s",
						  program, strerror(errno));
	if (!err)
		return keep_link(b, link, number);
	close(perf_fd);
	return err;
}

int scry_bpf_attach_own(struct scry_bpf *b, const char *program)
{
	struct bpf_program *p;
	struct bpf_link *link;
	int err = find_program(b, program, &p);

	if (err)
		return err;
	link = bpf_program__attach(p);
	if (link)
		return keep_link(b, link, 0);
	err = -errno;
	if (err == -EMFILE)
		return explain_limit(b->name);
	return scry_fail(err, "the eBPF program '%s' cannot be attached: %s", program,
			 strerror(-err));
}

int scry_bpf_attach_uprobe(struct scry_bpf *b, const char *program,
			   const struct scry_bpf_uprobe *at)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = at->is_return, .bpf_cookie = at->number);
	struct bpf_program *p;
	struct bpf_link *link;
	int err = find_program(b, program, &p);

	if (err)
		return err;
	link = bpf_program__attach_uprobe_opts(p, at->pid, at->path, at->offset, &opts);
	if (link)
		return keep_link(b, link, at->number);
	err = -errno;
	if (err == -EMFILE)
		return explain_limit(b->name);
	return scry_fail(err, "no uprobe at 0x%llx of '%s': %s%s", (unsigned long long)at->offset,
			 at->path, strerror(-err),
			 err == -EOPNOTSUPP ? " (CONFIG_UPROBE_EVENTS, or Linux 5.15 for numbers)"
					    : "");
}

/* --- maps and rings --------------------------------------------------------------------------- */

int scry_bpf_map_fd(const struct scry_bpf *b, const char *map)
{
	struct bpf_map *m;
	int err = find_map(b, map, &m);

	return err ? err : bpf_map__fd(m);
}

int scry_bpf_set(struct scry_bpf *b, const char *map, const void *key, const void *value)
{
	int fd = scry_bpf_map_fd(b, map);

	if (fd < 0)
		return fd;
	return bpf_map_update_elem(fd, key, value, BPF_ANY) ? -errno : 0;
}

int scry_bpf_get(struct scry_bpf *b, const char *map, const void *key, void *ret)
{
	int fd = scry_bpf_map_fd(b, map);

	if (fd < 0)
		return fd;
	return bpf_map_lookup_elem(fd, key, ret) ? -errno : 0;
}

int scry_bpf_unset(struct scry_bpf *b, const char *map, const void *key)
{
	int fd = scry_bpf_map_fd(b, map);

	if (fd < 0)
		return fd;
	return bpf_map_delete_elem(fd, key) ? -errno : 0;
}

bool scry_bpf_has(struct scry_bpf *b, const char *map, const void *key)
{
	char value[VALUE_MAX];
	struct bpf_map *m;

	return find_map(b, map, &m) == 0 && bpf_map__value_size(m) <= VALUE_MAX &&
	       bpf_map_lookup_elem(bpf_map__fd(m), key, value) == 0;
}

uint64_t scry_bpf_sum(struct scry_bpf *b, const char *map, uint32_t index)
{
	int cpus = libbpf_num_possible_cpus(), fd = scry_bpf_map_fd(b, map);
	uint64_t *values, sum = 0;

	if (cpus < 1 || cpus > CPUS_MAX || fd < 0)
		return 0;
	values = calloc((size_t)cpus, sizeof(*values));
	if (values && bpf_map_lookup_elem(fd, &index, values) == 0)
		for (int i = 0; i < cpus; i++)
			sum += values[i];
	free(values);
	return sum;
}

int scry_bpf_ring(struct scry_bpf *b, const char *map, scry_bpf_give *give, void *arg)
{
	int fd = scry_bpf_map_fd(b, map), err = 0;

	if (fd < 0)
		return fd;
	if (b->rings)
		err = ring_buffer__add(b->rings, fd, give, arg);
	else if (!(b->rings = ring_buffer__new(fd, give, arg, NULL)))
		err = -errno;
	return err ? scry_fail(err, "cannot read the ring '%s': %s", map, strerror(-err)) : 0;
}

int scry_bpf_take(struct scry_bpf *b)
{
	return b->rings ? ring_buffer__consume(b->rings) : 0;
}
