/*
 * Programs of src/bpf in the kernel, by libbpf: one object's programs, maps and attachments.
 *
 * Life: open, set constants and sizes, load, attach, take from rings, close. What is attached is
 * taken off by close, and by the kernel when this process ends, however it ends: nothing is pinned.
 * One thread. Where the kernel refuses, the sentence says what it lacks and what mends it.
 *
 * The object is known by its name in src/bpf/meson.build: SCRY_BPF_OBJECT(check) declares its
 * bytes, and scry_bpf_open(SCRY_BPF(check), &b) opens them.
 */
#ifndef SCRY_PROBE_BPF_H
#define SCRY_PROBE_BPF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scry_bpf;

struct scry_bpf_image {
	const char *name;
	const unsigned char *begin, *end;
};
#define SCRY_BPF_OBJECT(name) \
	extern const unsigned char scry_bpf_image_##name[], scry_bpf_image_##name##_end[]
#define SCRY_BPF(name) \
	((struct scry_bpf_image){#name, scry_bpf_image_##name, scry_bpf_image_##name##_end})

/* May programs be loaded at all, now, by us? By loading the smallest one. 0, or as scry_bpf_load.
 */
int scry_bpf_check(void);

/* 0; -ENOMEM, or -ENOEXEC: these bytes are not an object. */
int scry_bpf_open(struct scry_bpf_image image, struct scry_bpf **ret);
void scry_bpf_close(struct scry_bpf *b); /* NULL is legal */

/* Between open and load. A `const volatile` variable of the object, of just this size; how many
 * entries a map has (bytes of a ring: a power of two, pages); a program that is not loaded. All:
 * 0 or -ENOENT, -EINVAL. */
int scry_bpf_constant(struct scry_bpf *b, const char *name, const void *value, size_t size);
int scry_bpf_map_entries(struct scry_bpf *b, const char *map, uint32_t entries);
int scry_bpf_leave_out(struct scry_bpf *b, const char *program);

/*
 * Maps are made, programs judged and loaded. 0; -EPERM: no right (CAP_BPF and CAP_PERFMON, or a
 * container, or lockdown); -ENOTSUP: a kernel that lacks something; each with a sentence. What
 * the kernel's judge said is logged with -vv.
 */
int scry_bpf_load(struct scry_bpf *b);

/* Runs `program` at each overflow of a perf event. Takes perf_fd, also when it fails. `number`: for
 * scry_bpf_detach_number. */
int scry_bpf_attach_perf(struct scry_bpf *b, const char *program, int perf_fd, uint64_t number);

/* Attaches `program` to what its section names (a raw tracepoint). 0 or -errno with a sentence. */
int scry_bpf_attach_own(struct scry_bpf *b, const char *program);

/* Takes off everything that was attached; the object stays loaded. */
void scry_bpf_detach(struct scry_bpf *b);

/*
 * Runs `program` where `pid` (-1: any process) executes the byte at `offset` of the file `path`,
 * which need not be executable by us and may be /proc/PID/root/... or /proc/PID/map_files/...; or
 * when the function that begins there returns. `number`: what bpf_get_attach_cookie() gives (0:
 * none; Linux 5.15). With a pid the breakpoint is in that process alone, in a page of its own. 0 or
 * -errno with a sentence.
 */
struct scry_bpf_uprobe {
	const char *path;
	uint64_t offset; /* in the file */
	pid_t pid;
	bool is_return;
	uint64_t number;
};
int scry_bpf_attach_uprobe(struct scry_bpf *b, const char *program,
			   const struct scry_bpf_uprobe *at);
/* Takes off those of this number. */
void scry_bpf_detach_number(struct scry_bpf *b, uint64_t number);

/* Maps: of hashes and arrays. `value` of a per-cpu map is one of scry_bpf_sum. 0 or -errno. */
int scry_bpf_set(struct scry_bpf *b, const char *map, const void *key, const void *value);
int scry_bpf_get(struct scry_bpf *b, const char *map, const void *key, void *ret); /* -ENOENT */
int scry_bpf_unset(struct scry_bpf *b, const char *map, const void *key);
bool scry_bpf_has(struct scry_bpf *b, const char *map, const void *key);
/* A u64 of a per-cpu array, summed over the processors; 0 when there is none. */
uint64_t scry_bpf_sum(struct scry_bpf *b, const char *map, uint32_t index);
int scry_bpf_map_fd(const struct scry_bpf *b, const char *map); /* stays ours; -ENOENT */

/*
 * The records of a ring buffer, in their order, to `give`; what does not return 0 ends the taking.
 * More than one ring can be added. scry_bpf_take: those that are there, without waiting; returns
 * how many, or what `give` returned (negative). The map's descriptor is readable (poll) when there
 * are some, whether or not the kernel's side wakes for them.
 */
typedef int scry_bpf_give(void *arg, void *record, size_t size);
int scry_bpf_ring(struct scry_bpf *b, const char *map, scry_bpf_give *give, void *arg);
int scry_bpf_take(struct scry_bpf *b);

#endif
