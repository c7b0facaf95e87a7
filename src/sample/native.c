/* See native.h. */
#include "sample/native.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/map.h"
#include "sys/modules.h"

#define PENDING_MAX 256u /* threads whose record has come and whose stack has not */
#define PENDING_FRAMES 512u
#define LOOK_NS 1000000000u /* what is mapped is read again after so long ... */
#define MISSED_NS 50000000u /* ... or so long, where a stack led elsewhere */
#define CODE_MAX (1u << 20)

struct pending {
	uint32_t tid;
	uint64_t time_ns;
	size_t count;
	enum scry_native_end end;
	struct scry_native_frame frames[PENDING_FRAMES];
};

struct scry_samples_native {
	const struct scry_ruby *ruby;
	struct scry_intern *names;
	struct scry_unwinder *unwinder;
	struct scry_modules *symbols;
	struct scry_mixed_merger merger;
	struct scry_native_frame frames[SCRY_UNWINDER_FRAMES_MAX];
	size_t count;
	enum scry_native_end end;
	struct scry_woven merged[SCRY_UNWINDER_FRAMES_MAX + SCRY_WALK_FRAMES_MAX];
	struct pending *pending;
	size_t next; /* of them that is used again */
	/* pc -> index of its frame, and the frames; parent is not set */
	struct scry_map code;
	struct scry_stack_frame *named;
	size_t named_count, named_room;
	uint64_t looked_ns;
	bool is_missed;
	struct scry_samples_native_sums sums;
};

static uint64_t now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int scry_samples_native_open(const struct scry_ruby *ruby, struct scry_intern *names,
			     struct scry_samples_native **ret)
{
	const struct scry_space space = {.pid = ruby->pid, .core = ruby->core};
	struct scry_samples_native *n = calloc(1, sizeof(*n));
	int err = -ENOMEM;

	if (n && (n->pending = calloc(PENDING_MAX, sizeof(*n->pending))) &&
	    (n->symbols = scry_modules_of(&space)))
		err = scry_unwinder_open(n->symbols, &ruby->mem, &n->unwinder);
	if (!err) {
		n->ruby = ruby;
		n->names = names;
		n->looked_ns = now_ns();
		scry_map_init(&n->code, CODE_MAX);
		scry_mixed_merger_init(&n->merger, ruby, n->unwinder);
		if (!n->merger.interpreter)
			err = scry_fail(
				-ENOTSUP,
				"native frames cannot be merged into stacks of this Ruby (%s): "
				"its interpreter was not found; fix: without --native",
				ruby->description);
	}
	if (err == -ENOMEM)
		scry_no_memory("native frames");
	if (err)
		scry_samples_native_close(n);
	else
		*ret = n;
	return err;
}

void scry_samples_native_close(struct scry_samples_native *n)
{
	if (!n)
		return;
	scry_unwinder_close(n->unwinder);
	scry_modules_free(n->symbols);
	scry_map_done(&n->code);
	free(n->named);
	free(n->pending);
	free(n);
}

/* Files may have been mapped or unmapped: what was known of addresses may be wrong. */
static void look_again(struct scry_samples_native *n)
{
	uint64_t now = now_ns();

	if (now - n->looked_ns < (n->is_missed ? MISSED_NS : LOOK_NS))
		return;
	n->looked_ns = now;
	n->is_missed = false;
	scry_modules_see(n->symbols);
	scry_map_done(&n->code);
	scry_map_init(&n->code, CODE_MAX);
	n->named_count = 0;
}

void scry_samples_native_none(struct scry_samples_native *n)
{
	n->count = 0;
}

static void walk(struct scry_samples_native *n, struct scry_unwind_state from)
{
	look_again(n);
	n->count = scry_unwinder_walk(n->unwinder, from, n->frames, &n->end);
	n->is_missed |= n->end == SCRY_NATIVE_NO_RULE;
}

void scry_samples_native_waits(struct scry_samples_native *n, const struct scry_task_now *now)
{
	n->count = 0;
	if (!now->is_running && !now->is_gone && now->pc)
		walk(n, scry_unwinder_blocked(now->pc, now->sp));
}

void scry_samples_native_held(struct scry_samples_native *n, const struct user_regs_struct *regs)
{
	walk(n, scry_unwinder_at(regs));
}

/* The copied stack, as memory. */
static int read_copy(const void *image, uint64_t addr, void *buf, size_t size)
{
	const struct scry_bpf_native *r = image;

	if (addr < r->sp || addr - r->sp > r->size || size > r->size - (addr - r->sp))
		return -EFAULT;
	memcpy(buf, r->bytes + (addr - r->sp), size);
	return 0;
}

int scry_samples_native_record(struct scry_samples_native *n, const void *record, size_t size)
{
	const struct scry_bpf_native *r = record;
	const struct scry_mem copy = {.fd = -1, .image = r, .image_read = read_copy};
	const struct user_regs_struct regs = {
		.rip = r->pc, .rsp = r->sp, .rbp = r->bp, .rbx = r->bx};
	struct pending *p = &n->pending[n->next++ % PENDING_MAX];

	if (size < sizeof(*r) || r->size > sizeof(r->bytes))
		return -EPROTO;
	look_again(n);
	scry_unwinder_use(n->unwinder, &copy);
	p->count = scry_unwinder_walk(n->unwinder, scry_unwinder_at(&regs), n->frames, &p->end);
	scry_unwinder_use(n->unwinder, &n->ruby->mem);
	n->is_missed |= p->end == SCRY_NATIVE_NO_RULE;
	if (p->count > PENDING_FRAMES) {
		p->count = PENDING_FRAMES;
		p->end = SCRY_NATIVE_TOO_DEEP;
	}
	memcpy(p->frames, n->frames, p->count * sizeof(*p->frames));
	p->tid = r->tid;
	p->time_ns = r->time_ns;
	return 0;
}

void scry_samples_native_recorded(struct scry_samples_native *n, uint32_t tid, uint64_t time_ns)
{
	n->count = 0;
	for (size_t i = 0; i < PENDING_MAX; i++) {
		const struct pending *p = &n->pending[i];

		if (p->tid != tid || p->time_ns != time_ns)
			continue;
		n->count = p->count;
		n->end = p->end;
		memcpy(n->frames, p->frames, p->count * sizeof(*p->frames));
		return;
	}
}

size_t scry_samples_mixed_merge(struct scry_samples_native *n, const struct scry_walk *walk,
				const struct scry_woven **ret)
{
	const struct scry_native_stack native = {n->frames, n->count, n->end};
	enum scry_mixed_merge how = SCRY_MIXED_MERGE_EXACT;
	size_t count = 0;

	if (n->count)
		count = scry_mixed_merge(&n->merger, walk, &native, n->merged, &how);
	if (!n->count)
		n->sums.none++;
	else if (how == SCRY_MIXED_MERGE_APART)
		n->sums.apart++;
	else if (n->end == SCRY_NATIVE_WHOLE)
		n->sums.whole++;
	else
		n->sums.cut++;
	if (!n->count || how == SCRY_MIXED_MERGE_APART)
		for (count = 0; count < walk->count; count++)
			n->merged[count] = (struct scry_woven){false, (uint32_t)count};
	*ret = n->merged;
	return count;
}

static uint32_t put(struct scry_samples_native *n, const char *text)
{
	uint32_t id = 0;

	if (text)
		scry_intern_put(n->names, text, strlen(text), &id);
	return id;
}

/* One frame for all places of a function; one without a symbol is known by where it begins. */
static struct scry_stack_frame name_of(struct scry_samples_native *n,
				       const struct scry_native_frame *f)
{
	struct scry_stack_frame frame = {.flags = SCRY_STACK_NATIVE};
	struct scry_code_name name;

	scry_modules_name(n->symbols, f->pc + f->is_exact, &name);
	frame.path = put(n, name.module);
	frame.label = put(n, name.symbol);
	if (!name.symbol)
		frame.line = (uint32_t)(name.offset - f->is_exact -
					(f->function ? f->pc - f->function : 0));
	free(name.module);
	return frame;
}

struct scry_stack_frame scry_samples_native_frame(struct scry_samples_native *n, uint32_t at)
{
	const struct scry_native_frame *f = &n->frames[at];
	uint64_t key = f->pc << 1 | f->is_exact, index;
	struct scry_stack_frame *more;

	if (scry_map_get(&n->code, key, &index))
		return n->named[index];
	if (n->named_count == n->named_room) {
		size_t room = n->named_room ? 2 * n->named_room : 1024;

		more = reallocarray(n->named, room, sizeof(*more));
		if (!more)
			return name_of(n, f);
		n->named = more;
		n->named_room = room;
	}
	n->named[n->named_count] = name_of(n, f);
	scry_map_put(&n->code, key, n->named_count);
	return n->named[n->named_count++];
}

struct scry_samples_native_sums scry_samples_native_sums(const struct scry_samples_native *n)
{
	return n->sums;
}
