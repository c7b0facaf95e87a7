/*
 * The trick of leaving: the table names every slot that was changed, so with everybody stopped the
 * words are put back in the stacks. What is left then are copies of a thunk's address in hands: of
 * a thread inside the agent, or of an unwinder that has just read it. Those are waited for.
 */
#include "hook/shadow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "wire/shadow.h"
#include "base/err.h"
#include "hook/loads.h"
#include "hook/threads.h"
#include "hook/shadow_homes.h"

#define THUNKS_AT 64 /* in their slab: after its magic */
#define THUNKS_BYTES (SCRY_SHADOW_THUNKS * SCRY_SHADOW_THUNK_BYTES)
#define SPARE_HOOKS 1024u /* of libraries that are loaded later */
#define SETTLE_TRIES 60
#define SETTLE_WAIT_NS 5000000
#define UNWINDER_WORDS 64 /* of a thread's stack: is it in the unwinder? */
#define CONTEXT_WORDS 768 /* of its stack: libgcc's contexts lie there */
#define FRAME_WORDS 512	  /* of a signal frame, with the vector registers */
/* Where a thread may have a thunk in its hand, or come back to where it has one */
#define PARTS_OF_RETURNS \
	(SCRY_PART_CORE | SCRY_PART_VM | SCRY_PART_LINES | SCRY_PART_WALK | SCRY_PART_CALLS)

static uint64_t shadow_at(const struct scry_inject *inj, size_t offset)
{
	return scry_inject_symbol(inj, "scry_agent_shadow") + offset;
}

static uint64_t following_at(const struct scry_inject *inj, size_t offset)
{
	return inj->data + offsetof(struct scry_agent_data, following) + offset;
}

/* Where the thunks are, in *ret; 0: no call was ever followed, and what follows calls may not be
 * mapped. */
static int read_thunks(const struct scry_inject *inj, uint64_t *ret)
{
	return scry_mem_u64(&inj->mem,
			    following_at(inj, offsetof(struct scry_agent_following, thunks)), ret);
}

static int read_head(const struct scry_inject *inj, struct scry_shadow_head *ret)
{
	return scry_mem_read(&inj->mem, shadow_at(inj, 0), ret, sizeof(*ret));
}

static int write_head(const struct scry_inject *inj, const struct scry_shadow_head *s)
{
	return scry_edit_poke(inj->mem.fd, shadow_at(inj, 0), s, sizeof(*s));
}

static void put_thunk(uint8_t *code, uint64_t at, uint32_t number, uint64_t to)
{
	int32_t rel = (int32_t)(to - (at + 10));

	code[0] = 0x68; /* push $number */
	memcpy(code + 1, &number, 4);
	code[5] = 0xe9; /* jmp to */
	memcpy(code + 6, &rel, 4);
}

static int write_thunks(struct scry_inject *inj, const struct scry_slab *slab, uint64_t *ret)
{
	uint64_t to = scry_inject_symbol(inj, "scry_agent_return"), at = slab->code + THUNKS_AT;
	uint8_t *code = malloc(slab->code_size);
	int r;

	if (!code)
		return scry_no_memory("thunks");
	memset(code, 0xcc, slab->code_size);
	memcpy(code, &(uint64_t){SCRY_SLAB_MAGIC}, 8);
	for (uint32_t i = 0; i < SCRY_SHADOW_THUNKS; i++)
		put_thunk(code + THUNKS_AT + i * SCRY_SHADOW_THUNK_BYTES,
			  at + i * SCRY_SHADOW_THUNK_BYTES, i, to);
	r = scry_edit_poke(inj->mem.fd, slab->code, code, slab->code_size);
	free(code);
	*ret = at;
	return r < 0 ? scry_fail(r, "cannot write thunks into process %d", inj->proc->pid) : 0;
}

/* An earlier watch's entries: its slots are all put back. */
static int wipe(const struct scry_inject *inj)
{
	size_t size = sizeof(((struct scry_shadow *)0)->entries);
	void *zeros = calloc(1, size);
	int r = zeros ? scry_edit_poke(inj->mem.fd,
				       shadow_at(inj, offsetof(struct scry_shadow, entries)), zeros,
				       size)
		      : -ENOMEM;

	free(zeros);
	return r < 0 ? scry_fail(r, "cannot empty the table of returns") : 0;
}

/* The unwinders' entries, which are put back last. */
static int list_last(const struct scry_hooks *h, uint64_t ret[SCRY_SHADOW_LAST])
{
	size_t n = 0;

	while (n < SCRY_SHADOW_LAST && ret[n])
		n += 2;
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (row->to.kind != SCRY_HOOK_REPLACE || row->to.is_guard || !row->way ||
		    row->is_gone)
			continue;
		if (n + 2 > SCRY_SHADOW_LAST)
			return scry_fail(-ENOTSUP,
					 "process %d has more unwinders than can be hooked",
					 h->proc->pid);
		ret[n++] = row->address + row->window.endbr;
		ret[n++] = row->pad;
	}
	return 0;
}

/* Where return addresses may lie: mappings that touch are one. What finds no room is not followed.
 */
static void list_code(const struct scry_maps *maps, struct scry_shadow_code *code)
{
	code->count = 0;
	for (size_t i = 0; i < maps->count; i++) {
		const struct scry_map_entry *m = &maps->entries[i];
		struct scry_shadow_range *last =
			code->count ? &code->ranges[code->count - 1] : NULL;

		if (!m->x || !m->r)
			continue;
		if (last && last->end == m->start)
			last->end = m->end;
		else if (code->count < SCRY_SHADOW_RANGES)
			code->ranges[code->count++] = (struct scry_shadow_range){m->start, m->end};
	}
}

uint32_t scry_shadow_room(const struct scry_hooks *h)
{
	return h->count < SCRY_SHADOW_HOOKS_MAX - SPARE_HOOKS ? (uint32_t)h->count + SPARE_HOOKS
							      : SCRY_SHADOW_HOOKS_MAX;
}

int scry_shadow_start(struct scry_inject *inj, struct scry_tracee *held, struct scry_hooks *h,
		      const struct scry_shadow_stats **ret_stats)
{
	uint32_t hooks = scry_shadow_room(h);
	struct scry_agent_following following = {.on = SCRY_SHADOW_OFF};
	struct scry_shadow_head s;
	int slab, r = read_head(inj, &s);
	bool is_new;

	if (r == 0)
		r = read_thunks(inj, &following.thunks);
	if (r < 0)
		return scry_fail(r, "cannot read the agent in process %d", inj->proc->pid);
	if (h->count > SCRY_SHADOW_HOOKS_MAX)
		return scry_fail(-E2BIG, "%zu functions, more than %u, cannot be timed at once",
				 h->count, SCRY_SHADOW_HOOKS_MAX);
	is_new = !following.thunks;
	slab = scry_inject_slab(inj, held, inj->header.text,
				THUNKS_AT + (is_new ? THUNKS_BYTES : 0),
				(hooks + 1ull) * sizeof(struct scry_shadow_stats) / 8);
	if (slab < 0)
		return slab;
	if (is_new)
		r = write_thunks(inj, &inj->header.slabs[slab], &following.thunks);
	if (r == 0 && inj->adopted)
		r = wipe(inj);
	if (r < 0)
		return r;
	s.stats = inj->header.slabs[slab].counters;
	s.hooks = hooks;
	memset(s.last, 0, sizeof(s.last));
	r = list_last(h, s.last);
	if (r < 0)
		return r;
	scry_shadow_unwinder(h, s.unwinder);
	list_code(&inj->maps, &s.code[s.code_in_use & 1]);
	s.records = 0;
	*ret_stats = (const void *)inj->counters[slab];
	r = write_head(inj, &s);
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, following_at(inj, 0), &following,
				   sizeof(following));
	return r < 0 ? scry_fail(r, "cannot write to the agent in process %d", inj->proc->pid) : 0;
}

static int switch_to(struct scry_inject *inj, uint32_t on)
{
	return scry_edit_poke(inj->mem.fd,
			      following_at(inj, offsetof(struct scry_agent_following, on)), &on,
			      sizeof(on));
}

int scry_shadow_follow(struct scry_inject *inj)
{
	return switch_to(inj, SCRY_SHADOW_ON);
}

int scry_shadow_pause(struct scry_inject *inj)
{
	return switch_to(inj, SCRY_SHADOW_OFF);
}

int scry_shadow_go_on(struct scry_inject *inj, const struct scry_hooks *h)
{
	uint32_t on;
	int r = scry_mem_u32(&inj->mem,
			     following_at(inj, offsetof(struct scry_agent_following, on)), &on);

	if (r < 0 || on != SCRY_SHADOW_HELD || !scry_loads_has_seen_all(h))
		return r;
	r = switch_to(inj, SCRY_SHADOW_ON);
	if (r == 0 && !scry_loads_has_seen_all(h)) /* a thread has given up meanwhile */
		r = switch_to(inj, SCRY_SHADOW_HELD);
	return r;
}

static int poke_head(struct scry_inject *inj, size_t offset, const void *bytes, size_t size)
{
	return scry_edit_poke(inj->mem.fd, shadow_at(inj, offset), bytes, size);
}

int scry_shadow_record(struct scry_inject *inj, uint32_t string_max)
{
	const uint32_t words[2] = {1, string_max};

	return poke_head(inj, offsetof(struct scry_shadow_head, records), words, sizeof(words));
}
_Static_assert(offsetof(struct scry_shadow_head, string_max) ==
		       offsetof(struct scry_shadow_head, records) + 4,
	       "written at once");

int scry_shadow_errno(struct scry_inject *inj, int64_t at)
{
	return poke_head(inj, offsetof(struct scry_shadow_head, errno_at), &at, sizeof(at));
}

int scry_shadow_renew(struct scry_inject *inj, const struct scry_hooks *h,
		      const struct scry_hooks *fresh)
{
	struct scry_shadow_head *s = calloc(1, sizeof(*s));
	struct scry_maps maps = {0};
	uint64_t other = 0;
	int r = s ? scry_maps_read(inj->proc->pid, &maps) : -ENOMEM;

	if (r == 0)
		r = read_head(inj, s);
	if (r == 0) {
		memset(s->last, 0, sizeof(s->last));
		r = list_last(h, s->last);
	}
	if (r == 0)
		r = list_last(fresh, s->last);
	if (r == 0) {
		other = (s->code_in_use & 1) ^ 1;
		list_code(&maps, &s->code[other]);
		r = poke_head(inj,
			      offsetof(struct scry_shadow_head, code) +
				      other * sizeof(s->code[other]),
			      &s->code[other], sizeof(s->code[other]));
	}
	if (r == 0)
		r = poke_head(inj, offsetof(struct scry_shadow_head, code_in_use), &other,
			      sizeof(other));
	if (r == 0)
		r = poke_head(inj, offsetof(struct scry_shadow_head, last), s->last,
			      sizeof(s->last));
	scry_maps_done(&maps);
	free(s);
	return r;
}

static const struct scry_shadow_entry *
entry_at(struct scry_shadow_entry (*entries)[SCRY_SHADOW_WAYS], size_t i)
{
	return &entries[i / SCRY_SHADOW_WAYS][i % SCRY_SHADOW_WAYS];
}

struct returns { /* as the target has it */
	uint64_t thunks;
	bool is_shared; /* others watch the process, and go on: only what is ours is put back */
	struct scry_shadow shadow;
};

static bool is_thunk(const struct returns *s, uint64_t word)
{
	return word - s->thunks < THUNKS_BYTES;
}

/* Two megabytes: while all run. */
static int read_tables(const struct scry_inject *inj, struct returns *s)
{
	const size_t head = offsetof(struct scry_shadow, originals);

	return scry_mem_read(&inj->mem, shadow_at(inj, head), s->shadow.originals,
			     sizeof(s->shadow) - head);
}

/* Every slot of the table that still leads to a thunk gets its own word back. */
static int send_home(const struct scry_inject *inj, struct returns *s)
{
	int r = 0;

	for (size_t i = 0; i < SCRY_SHADOW_BUCKETS * SCRY_SHADOW_WAYS && r == 0; i++) {
		uint64_t key = entry_at(s->shadow.entries, i)->key, word;
		uint64_t slot = key >> SCRY_SHADOW_HOOK_BITS << 3;

		if (!key || scry_mem_u64(&inj->mem, slot, &word) < 0 || !is_thunk(s, word))
			continue;
		word = s->shadow.originals[(word - s->thunks) / SCRY_SHADOW_THUNK_BYTES];
		r = scry_edit_poke(inj->mem.fd, slot, &word, sizeof(word));
	}
	return r;
}

static bool is_unwinder(const struct scry_inject *inj, const struct returns *s, uint64_t ip)
{
	const struct scry_map_entry *m = scry_maps_at(&inj->maps, ip);

	if (ip - s->shadow.head.unwinder[0] <
	    s->shadow.head.unwinder[1] - s->shadow.head.unwinder[0])
		return true;
	return m && m->x && m->path[0] && strstr(m->path, "libgcc_s");
}

/*
 * Is code of libgcc at work in the frames from `at` on (`depth` 0: it is; else one of its addresses
 * is among the first `depth` words), and is a thunk's address there, where the slots themselves are
 * put back already? An unwinder has read it then, and not asked for it yet. Stale words may make us
 * wait in vain: only while they are there.
 */
static bool is_unwinding(const struct scry_inject *inj, const struct returns *s, uint64_t at,
			 ssize_t depth)
{
	uint64_t words[CONTEXT_WORDS + FRAME_WORDS];
	ssize_t n = scry_mem_read_some(&inj->mem, at, words, sizeof(words));
	bool is_there = depth == 0, has_thunk = false;

	for (ssize_t i = 0; i < n / 8; i++) {
		is_there |= i < depth && is_unwinder(inj, s, words[i]);
		has_thunk |= is_thunk(s, words[i]);
	}
	return is_there && has_thunk;
}

/* In a register? */
static bool holds_thunk(const struct returns *s, const struct scry_tracee *t)
{
	uint64_t words[sizeof(t->regs) / 8];
	bool found = false;

	memcpy(words, &t->regs, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / 8; i++)
		found |= is_thunk(s, words[i]);
	return found;
}

/* Some thread, now or where a signal has interrupted it? */
static bool is_any_unwinding(const struct scry_inject *inj, const struct returns *s,
			     const struct scry_stw *w)
{
	bool found = false;

	for (size_t i = 0; i < w->count && !found; i++) {
		const struct scry_tracee *t = &w->threads[i];
		bool is_there = is_unwinder(inj, s, t->regs.rip);

		found = t->stopped &&
			((is_there && holds_thunk(s, t)) ||
			 is_unwinding(inj, s, t->regs.rsp, is_there ? 0 : UNWINDER_WORDS));
	}
	for (size_t i = 0; i < w->saved_count && !found; i++)
		found = is_unwinding(inj, s, w->saved[i].at, FRAME_WORDS + UNWINDER_WORDS);
	return found;
}

/*
 * Calls are followed no more, so once no thread was inside the agent the table does not grow: then
 * it is read, while all run, and at the next stop used. 0: settled; -EAGAIN: come again.
 */
static int settle_once(struct scry_inject *inj, struct returns *s, bool *has_tables)
{
	struct scry_stw w;
	bool is_inside;
	int r;

	scry_maps_done(&inj->maps);
	r = scry_maps_read(inj->proc->pid, &inj->maps);
	if (r == 0)
		r = scry_inject_stop(inj, &w);
	if (r < 0)
		return r;
	is_inside = s->is_shared ? scry_inject_is_inside_of(inj, &w, PARTS_OF_RETURNS)
				 : scry_inject_is_inside(inj, &w);
	if (*has_tables)
		r = send_home(inj, s);
	if (r == 0 && *has_tables)
		r = scry_shadow_homes_put_back(
			inj, &w, &(struct scry_shadow_homes){s->thunks, s->shadow.originals});
	if (r == 0 && (!*has_tables || is_inside || is_any_unwinding(inj, s, &w)))
		r = -EAGAIN;
	scry_inject_go(inj, &w);
	if (r == -EAGAIN && !is_inside && !*has_tables) {
		r = read_tables(inj, s);
		*has_tables = r == 0;
		r = r < 0 ? r : -EAGAIN;
	}
	return r;
}

static bool is_last(const struct returns *s, const struct scry_journal_entry *j)
{
	for (size_t i = 0; i < SCRY_SHADOW_LAST; i++)
		if (s->shadow.head.last[i] == j->address)
			return true;
	return false;
}

/* Is it to be put back now: ours, where others watch the process, and not an unwinder's? */
static bool goes_back(const struct scry_inject *inj, const struct returns *s, size_t entry)
{
	const struct scry_journal_entry *j = &inj->edit.entries[entry];

	return (!s->is_shared || j->set == inj->edit.set) && !is_last(s, j);
}

/* All changes but the unwinders', newest first: no thread enters a followed function any more. */
static int undo_entries(struct scry_inject *inj, const struct returns *s)
{
	int r = 0;

	for (size_t end = inj->edit.count, i; end > 0 && r == 0; end = i) {
		struct scry_undo_report now;

		for (i = end; i > 0 && goes_back(inj, s, i - 1);)
			i--;
		if (i < end) {
			r = scry_inject_undo(inj, i, end - i, &now);
			inj->settled.entries += now.entries;
			inj->settled.restored += now.restored;
			inj->settled.bytes += now.bytes;
		} else {
			i--;
		}
	}
	return r;
}

static int busy(const struct scry_inject *inj)
{
	return scry_fail(-EBUSY,
			 "a thread of process %d is inside scry's code; fix: scry undo -p %d, "
			 "later",
			 inj->proc->pid, inj->proc->pid);
}

static int settle(struct scry_inject *inj, bool is_shared)
{
	struct returns *s = aligned_alloc(64, sizeof(*s));
	int r = s ? read_thunks(inj, &s->thunks) : -ENOMEM;
	bool has_tables = false;

	if (r == 0)
		s->is_shared = is_shared;
	if (r == 0 && s->thunks)
		r = read_head(inj, &s->shadow.head);
	if (r == 0 && s->thunks) {
		r = switch_to(inj, SCRY_SHADOW_OFF);
		if (r == 0 && !is_shared) /* a thread that waits for room, of a scry that was
					     killed, comes out */
			scry_threads_stop(inj);
		if (r == 0)
			r = undo_entries(inj, s);
		for (int i = 0; r == 0 && i < SETTLE_TRIES; i++) {
			if (i)
				nanosleep(&(struct timespec){.tv_nsec = SETTLE_WAIT_NS}, NULL);
			r = settle_once(inj, s, &has_tables);
			if (r == 0)
				break;
			r = r == -EAGAIN && i + 1 < SETTLE_TRIES ? 0 : r;
		}
	}
	free(s);
	return r == -EAGAIN ? busy(inj) : r == -EFAULT ? -ESRCH : r;
}

int scry_shadow_settle(struct scry_inject *inj)
{
	return settle(inj, false);
}

int scry_shadow_leave(struct scry_inject *inj)
{
	return settle(inj, inj->is_shared);
}

int scry_shadow_pending(const struct scry_inject *inj, uint64_t *counts, uint32_t hooks)
{
	struct scry_shadow_entry(*entries)[SCRY_SHADOW_WAYS] =
		malloc(sizeof(((struct scry_shadow *)0)->entries));
	size_t size = sizeof(((struct scry_shadow *)0)->entries);
	int r = entries ? scry_mem_read(&inj->mem,
					shadow_at(inj, offsetof(struct scry_shadow, entries)),
					entries, size)
			: -ENOMEM;

	memset(counts, 0, hooks * sizeof(*counts));
	for (size_t i = 0; i < size / sizeof(**entries) && r == 0; i++) {
		uint64_t key = entry_at(entries, i)->key;
		uint64_t hook = key & ((1u << SCRY_SHADOW_HOOK_BITS) - 1);

		if (key && hook < hooks)
			counts[hook]++;
	}
	free(entries);
	return r;
}

bool scry_shadow_is_needed(const struct scry_inject *inj)
{
	struct scry_shadow_head s;
	uint64_t thunks;

	return read_thunks(inj, &thunks) < 0 || (thunks && (read_head(inj, &s) < 0 || s.orphans));
}
