/* See agent_map.h. Every remote result is looked at, but nothing depends on our living to see it.
 */
#include "hook/agent_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/err.h"
#include "hook/hold.h"
#include "hook/shared.h"
#include "sys/cgroup.h"
#include "sys/edit.h"
#include "sys/proc.h"
#include "wire/child_buffers.h"

#define REACH (1ull << 30)

static uint64_t page_up(uint64_t n)
{
	return (n + SCRY_PAGE - 1) & ~(uint64_t)(SCRY_PAGE - 1);
}

uint64_t scry_agent_state_page(const struct scry_agent_header *h)
{
	return h->text - SCRY_PAGE;
}

uint64_t scry_agent_journal(const struct scry_agent_header *h)
{
	return h->private_ + h->private_size - SCRY_JOURNAL_BYTES;
}

uint64_t scry_agent_call_stack(const struct scry_agent_header *h)
{
	return scry_agent_journal(h);
}

/* Where the one reservation ends that begins with the process state page. */
static uint64_t end_of(const struct scry_agent_header *h)
{
	return h->shared + h->shared_size;
}

/* Where scry writes by the header's word lies within the reservation: what an older build has there
 * is not known, and it is refused before that. */
static bool is_in_place(const struct scry_agent_header *h)
{
	return h->abi != SCRY_AGENT_ABI ||
	       (h->image == h->text + SCRY_PAGE && h->image_data == h->private_ &&
		h->aside >= h->private_ && h->aside < h->tail &&
		h->tail - h->aside >= sizeof(struct scry_shared_head));
}

/* Code of parts that are not wanted is closed: the mapping ends before. */
static bool is_plausible(const struct scry_agent_header *h, const struct scry_map_entry *m)
{
	return h->magic == SCRY_AGENT_MAGIC && h->text == m->start &&
	       h->text_size >= m->end - m->start && h->text_size <= 1 << 20 &&
	       h->private_ == h->text + h->text_size && h->private_size <= 64u << 20 &&
	       h->shared == h->private_ + h->private_size && h->shared_size <= 1u << 30 &&
	       h->private_size > SCRY_JOURNAL_BYTES + SCRY_PAGE + SCRY_CALL_STACK_BYTES &&
	       h->tail > h->private_ && h->tail < scry_agent_journal(h) && !(h->tail % SCRY_PAGE) &&
	       h->slab_count <= SCRY_SLABS_MAX && is_in_place(h);
}

int scry_agent_find(const struct scry_mem *mem, const struct scry_maps *maps,
		    struct scry_agent_header *ret)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct scry_map_entry *m = &maps->entries[i];
		struct scry_agent_header h;

		if (!m->x || m->w || m->inode || *m->path)
			continue;
		if (scry_mem_read(mem, m->start, &h, sizeof(h)) == 0 && is_plausible(&h, m)) {
			*ret = h;
			ret->has_open = 0; /* what is there is read when it matters */
			return 0;
		}
	}
	return -ENOENT;
}

/* Is [start, start + size) mapped without a hole, writable, private or shared as wanted? */
static bool is_mapped(const struct scry_maps *maps, uint64_t start, uint64_t size, bool shared)
{
	const struct scry_map_entry *m;

	for (uint64_t at = start; at < start + size; at = m->end) {
		m = scry_maps_at(maps, at);
		if (!m || !m->w || m->shared != shared)
			return false;
	}
	return true;
}

bool scry_agent_is_whole(const struct scry_agent_header *h, const struct scry_maps *maps)
{
	const uint64_t stack = scry_agent_call_stack(h) - SCRY_CALL_STACK_BYTES;

	return h->stage == SCRY_AGENT_READY &&
	       is_mapped(maps, scry_agent_state_page(h), SCRY_PAGE, false) &&
	       is_mapped(maps, h->image_data, SCRY_PAGE, false) &&
	       is_mapped(maps, stack, h->shared - stack, false) &&
	       is_mapped(maps, h->shared, h->shared_size, true);
}

bool scry_agent_has_tail(const struct scry_agent_header *h, const struct scry_maps *maps,
			 int mem_fd)
{
	const uint64_t journal = scry_agent_journal(h);
	const struct scry_map_entry *m = scry_maps_at(maps, journal);
	uint64_t nonce;

	return m && !m->shared && !m->inode && h->nonce &&
	       pread(mem_fd, &nonce, sizeof(nonce),
		     (off_t)(journal + offsetof(struct scry_journal, nonce))) == sizeof(nonce) &&
	       nonce == h->nonce;
}

bool scry_agent_is_ours(const struct scry_agent_header *h, const struct scry_mem *mem,
			const struct scry_agent_source *source)
{
	struct scry_agent_content is[SCRY_AGENT_RANGES_MAX];
	size_t n = scry_agent_source_contents((uint32_t)h->parts, is);
	unsigned char *have = malloc(source->data_at);
	bool same = have && h->abi == SCRY_AGENT_ABI && h->image_hash == source->hash &&
		    h->parts & SCRY_PART_CORE &&
		    h->shared_size == page_up(SCRY_SHARED_HEAD + 8ull * SCRY_RING_WORDS);

	for (size_t i = 0; i < n && same; i++)
		if (is[i].access == SCRY_AGENT_CODE)
			same = scry_mem_read(mem, h->image + is[i].at, have, is[i].size) == 0 &&
			       !memcmp(have, is[i].bytes, is[i].size);
	free(have);
	return same;
}

int scry_agent_plan(const struct scry_maps *maps, const struct scry_agent_source *source,
		    uint64_t near, struct scry_agent_header *ret)
{
	uint64_t text = SCRY_PAGE + source->data_at;
	uint64_t private_ =
		source->end - source->data_at + SCRY_CALL_STACK_BYTES + SCRY_JOURNAL_BYTES;
	uint64_t shared = page_up(SCRY_SHARED_HEAD + 8ull * SCRY_RING_WORDS);
	uint64_t bytes = SCRY_PAGE + text + private_ + shared, nonce = 0;
	uint64_t base = scry_maps_gap(maps, near, bytes, REACH);

	if (!base)
		return scry_fail(-ENOMEM,
				 "no free address space of %llu bytes within 1 GiB of %#llx",
				 (unsigned long long)bytes, (unsigned long long)near);
	base += SCRY_PAGE; /* the state page's */
	while (!nonce)
		if (getrandom(&nonce, sizeof(nonce), 0) < 0)
			return scry_fail(-errno, "no random number: %s", strerror(errno));
	*ret = (struct scry_agent_header){
		.magic = SCRY_AGENT_MAGIC,
		.abi = SCRY_AGENT_ABI,
		.stage = SCRY_AGENT_MAPPING,
		.image_hash = source->hash,
		.text = base,
		.text_size = text,
		.private_ = base + text,
		.private_size = private_,
		.shared = base + text + private_,
		.shared_size = shared,
		.tail = base + SCRY_PAGE + source->tail_at,
		.aside = base + SCRY_PAGE + scry_agent_source_symbol("scry_agent") +
			 offsetof(struct scry_agent_data, aside),
		.nonce = nonce,
		.image = base + SCRY_PAGE,
		.image_data = base + SCRY_PAGE + source->data_at,
	};
	return 0;
}

/* One remote syscall; its result or -errno. */
static int64_t remote(struct scry_tracee *t, const struct scry_call *how, const uint64_t call[7])
{
	int64_t value;
	int r = scry_tracee_syscall(t, how, call, &value);

	return r < 0 ? r : value;
}

static int failed(int64_t r)
{
	return r < 0 && r > -4096 ? (int)r : 0;
}

int scry_agent_write_header(const struct scry_agent_header *h, int mem_fd)
{
	return scry_edit_poke(mem_fd, h->text, h, sizeof(*h));
}

static int map_shared(const struct scry_agent_header *h, struct scry_tracee *t,
		      const struct scry_call *how, int *ret_fd)
{
	const struct scry_shared to = {h->shared, h->shared_size, MAP_FIXED, h->text};

	return scry_shared_map(&to, t, how, ret_fd);
}

bool scry_agent_has_child_buffers(const struct scry_agent_header *h, const struct scry_maps *maps)
{
	const struct scry_map_entry *m =
		h->child_buffers ? scry_maps_at(maps, h->child_buffers) : NULL;

	return m && m->start == h->child_buffers &&
	       m->end == h->child_buffers + h->child_buffers_size && m->shared && m->r && m->w &&
	       !m->x && m->deleted && h->child_buffers_size == SCRY_CHILD_BUFFERS_BYTES &&
	       !strncmp(m->path, SCRY_SHARED_PATH, strlen(SCRY_SHARED_PATH));
}

static int finish(struct scry_tracee *t, const struct scry_call *how, int r)
{
	int end = scry_tracee_finish(t, how);

	r = r < 0 ? r : end;
	if (r == -ETIMEDOUT)
		return scry_fail(
			r,
			"thread %d of process %d did not run long enough to map memory: "
			"the machine is too busy; its code was not changed; fix: try again",
			t->tid, t->pid);
	if (r < 0 && !*scry_error())
		scry_fail(r, "cannot map memory in process %d: %s", t->pid, strerror(-r));
	return r < 0 ? r : 0;
}

/*
 * Limits that count addresses (RLIMIT_AS), or memory that may be written (RLIMIT_DATA), hold for
 * what scry maps too. It takes nothing that the program could come to need: half of what is left
 * stays. -ENOTSUP with a sentence.
 */
static int fits(pid_t pid, uint64_t bytes, uint64_t writable)
{
	const struct {
		const char *row, *name, *option;
		uint64_t used, wanted;
	} limits[] = {
		{"Max address space", "RLIMIT_AS, ulimit -v", "as", scry_proc_mapped(pid), bytes},
		{"Max data size", "RLIMIT_DATA, ulimit -d", "data", scry_proc_writable(pid),
		 writable},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t most = scry_proc_limit(pid, limits[i].row);

		if (limits[i].used + 2 * limits[i].wanted <= most)
			continue;
		return scry_fail(
			-ENOTSUP,
			"process %d may map no more than %llu MiB (%s), and has %llu: with "
			"the %llu that scry takes too little is left for its own; fix: "
			"prlimit --pid %d --%s=unlimited",
			pid, (unsigned long long)(most >> 20), limits[i].name,
			(unsigned long long)(limits[i].used >> 20),
			(unsigned long long)(limits[i].wanted >> 20), pid, limits[i].option);
	}
	return 0;
}

int scry_agent_room(pid_t pid, uint32_t rings, uint64_t *ret_left)
{
	const uint64_t wanted = SCRY_RING_WORDS * 8ull * rings;
	const uint64_t left = scry_cgroup_memory_left(pid);

	*ret_left = left;
	if (left >= 2 * wanted)
		return 0;
	return scry_fail(
		-ENOTSUP,
		"the control group of process %d has %llu MiB left until its limit of memory, of "
		"which scry may take %llu: the kernel would end one of its processes; fix: a "
		"higher memory.max (docker update --memory), or scry stacks, which takes none",
		pid, (unsigned long long)(left >> 20), (unsigned long long)(wanted >> 20));
}

/* Closed until it is known to be ours: the journal's nonce, then the header, say so. What a kill
 * leaves before that is of no use. -EEXIST: something else is there. */
static int reserve(const struct scry_agent_header *h, uint64_t start, struct scry_tracee *t,
		   const struct scry_call *how)
{
	const uint64_t call[7] = {SYS_mmap,
				  start,
				  end_of(h) - start,
				  PROT_NONE,
				  MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED_NOREPLACE,
				  (uint64_t)-1};
	int r = scry_shared_mmap(call, t, how);

	return r < 0 ? r
		     : scry_edit_poke(how->mem_fd,
				      scry_agent_journal(h) + offsetof(struct scry_journal, nonce),
				      &h->nonce, sizeof(h->nonce));
}

static int open_parts(const struct scry_agent_header *h, uint32_t parts, struct scry_tracee *t,
		      const struct scry_call *how)
{
	struct scry_agent_range ranges[SCRY_AGENT_RANGES_MAX];
	size_t n = scry_agent_source_ranges(parts, ranges);
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct scry_agent_range *is = &ranges[i];
		const int access = is->access == SCRY_AGENT_CODE ? PROT_READ | PROT_EXEC
								 : PROT_READ | PROT_WRITE;
		const uint64_t calls[][7] = {
			{SYS_mprotect, h->image + is->at, is->size, (uint64_t)access},
			{SYS_madvise, h->image + is->at, is->size, MADV_WIPEONFORK},
		};

		r = scry_hold_calls(t, how, calls, is->access == SCRY_AGENT_WIPED ? 2 : 1);
	}
	return r;
}

/* The stack for calls and the journal. */
static int open_journal(const struct scry_agent_header *h, struct scry_tracee *t,
			const struct scry_call *how)
{
	const uint64_t stack = scry_agent_call_stack(h) - SCRY_CALL_STACK_BYTES;
	const uint64_t call[1][7] = {
		{SYS_mprotect, stack, h->shared - stack, PROT_READ | PROT_WRITE}};

	return scry_hold_calls(t, how, call, 1);
}

static uint64_t writable_bytes(uint32_t parts)
{
	struct scry_agent_range ranges[SCRY_AGENT_RANGES_MAX];
	size_t n = scry_agent_source_ranges(parts, ranges);
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += ranges[i].access == SCRY_AGENT_CODE ? 0 : ranges[i].size;
	return bytes;
}

int scry_agent_open(const struct scry_agent_header *h, uint32_t parts, struct scry_tracee *t,
		    const struct scry_call *how)
{
	int r;

	scry_error_clear();
	r = fits(t->pid, 0, writable_bytes(parts));
	if (r == 0)
		r = open_parts(h, parts, t, how);
	return finish(t, how, r);
}

/* Of an agent that could not be mapped whole nothing stays: no scry would find it. */
static void give_back(const struct scry_agent_header *h, struct scry_tracee *t,
		      const struct scry_call *how, int r)
{
	const uint64_t start = scry_agent_state_page(h);
	const uint64_t call[1][7] = {{SYS_munmap, start, end_of(h) - start}};

	scry_hold_calls(t, how, call, 1);
	if ((r == -EACCES || r == -EPERM) && !*scry_error())
		scry_fail(r,
			  "process %d may have no new executable memory (PR_SET_MDWE, systemd's "
			  "MemoryDenyWriteExecute=, or SELinux's execmem); fix: start it without "
			  "that; scry stacks and dump put nothing into it",
			  t->pid);
}

int scry_agent_map(const struct scry_agent_header *h, uint32_t parts, struct scry_tracee *t,
		   const struct scry_call *how, int *ret_fd)
{
	const uint64_t calls[][7] = {
		{SYS_mprotect, h->text, SCRY_PAGE, PROT_READ | PROT_EXEC},
		{SYS_mprotect, scry_agent_state_page(h), SCRY_PAGE, PROT_READ | PROT_WRITE},
		{SYS_madvise, scry_agent_state_page(h), SCRY_PAGE, MADV_WIPEONFORK},
	};
	int r;

	*ret_fd = -1;
	scry_error_clear();
	r = fits(t->pid, end_of(h) - scry_agent_state_page(h),
		 writable_bytes(parts) + SCRY_CALL_STACK_BYTES + SCRY_JOURNAL_BYTES + SCRY_PAGE);
	if (r < 0)
		return finish(t, how, r);
	r = reserve(h, scry_agent_state_page(h), t, how);
	if (r < 0)
		return finish(t, how, r); /* -EEXIST: the caller looks elsewhere */
	r = scry_agent_write_header(h, how->mem_fd);
	if (r == 0)
		r = scry_hold_calls(t, how, calls, 3);
	if (r == 0)
		r = open_parts(h, parts, t, how);
	if (r == 0)
		r = open_journal(h, t, how);
	if (r == 0)
		r = map_shared(h, t, how, ret_fd);
	if (r < 0 && r != -ETIMEDOUT)
		give_back(h, t, how, r);
	return finish(t, how, r);
}

int scry_agent_revive(const struct scry_agent_header *h, struct scry_tracee *t,
		      const struct scry_call *how)
{
	struct scry_maps maps;
	int r = scry_maps_read(t->pid, &maps);

	if (r < 0)
		return r;
	scry_error_clear();
	if (!scry_agent_has_tail(h, &maps, how->mem_fd))
		r = reserve(h, h->tail, t, how);
	scry_maps_done(&maps);
	if (r == -EEXIST)
		scry_fail(r,
			  "process %d has mapped its own memory where scry's was; fix: let one of "
			  "its Ruby threads run, and then scry undo -p %d",
			  t->pid, t->pid);
	if (r == 0)
		r = open_parts(h, (uint32_t)h->parts, t, how);
	if (r == 0)
		r = open_journal(h, t, how);
	return finish(t, how, r);
}

int scry_agent_map_child_buffers(const struct scry_agent_header *h, struct scry_tracee *t,
				 const struct scry_call *how, int *ret_fd)
{
	const uint64_t gone[7] = {SYS_munmap, h->child_buffers, h->child_buffers_size};
	const uint64_t no_dump[7] = {SYS_madvise, h->child_buffers, h->child_buffers_size,
				     MADV_DONTDUMP};
	struct scry_shared to = {h->child_buffers, h->child_buffers_size,
				 MAP_FIXED_NOREPLACE | MAP_NORESERVE, h->text};
	struct scry_maps maps;
	int r = scry_maps_read(t->pid, &maps);

	*ret_fd = -1;
	if (r < 0)
		return r;
	scry_error_clear();
	r = fits(t->pid, h->child_buffers_size, 0);
	if (r == 0 && scry_agent_has_child_buffers(h, &maps)) /* of an earlier watch */
		r = failed(remote(t, how, gone));
	scry_maps_done(&maps);
	if (r == 0)
		r = scry_shared_map(&to, t, how, ret_fd);
	if (r == 0) /* a core dump would bring all its pages to life */
		r = failed(remote(t, how, no_dump));
	return finish(t, how, r);
}

static uint64_t slab_bytes(const struct scry_slab *slab)
{
	return slab->code_size + SCRY_PAGE + slab->counters_size;
}

/* Of the reservation. What is closed needs no memory; which that is of another build is not known.
 */
static uint64_t open_bytes(const struct scry_agent_header *h)
{
	const uint64_t end = h->stage == SCRY_AGENT_IDLE ? h->tail : end_of(h);
	struct scry_agent_range ranges[SCRY_AGENT_RANGES_MAX];
	size_t n = scry_agent_source_ranges((uint32_t)h->parts, ranges);
	uint64_t bytes = 2 * SCRY_PAGE; /* state page and header */
	struct scry_agent_source own;

	if (scry_agent_source_read(&own) < 0 || own.hash != h->image_hash)
		return end - scry_agent_state_page(h);
	for (size_t i = 0; i < n; i++)
		bytes += h->image + ranges[i].at < end ? ranges[i].size : 0;
	if (h->stage != SCRY_AGENT_IDLE)
		bytes += SCRY_CALL_STACK_BYTES + SCRY_JOURNAL_BYTES + h->shared_size;
	return bytes;
}

uint64_t scry_agent_bytes(const struct scry_agent_header *h)
{
	uint64_t bytes = open_bytes(h);

	for (uint64_t i = 0; i < h->slab_count; i++)
		bytes += slab_bytes(&h->slabs[i]);
	return bytes;
}

int scry_agent_plan_slab(const struct scry_agent_header *h, const struct scry_maps *maps,
			 uint64_t near, uint64_t code_size, uint64_t counters,
			 struct scry_slab *ret)
{
	uint64_t code = page_up(code_size), shared = page_up(counters * 8);
	uint64_t at;

	at = scry_maps_gap(maps, near, code + SCRY_PAGE + shared, REACH);
	if (!at)
		return scry_fail(
			-ENOMEM, "no free address space of %llu bytes within 1 GiB of %#llx",
			(unsigned long long)(code + SCRY_PAGE + shared), (unsigned long long)near);
	*ret = (struct scry_slab){.code = at,
				  .code_size = code,
				  .state_page = at + code,
				  .counters = at + code + SCRY_PAGE,
				  .counters_size = shared};
	return 0;
}

int scry_agent_map_slab(const struct scry_agent_header *h, const struct scry_slab *slab,
			struct scry_tracee *t, const struct scry_call *how, int *ret_fd)
{
	const uint64_t flags = MAP_ANONYMOUS | MAP_PRIVATE, none = (uint64_t)-1;
	const uint64_t calls[][7] = {
		{SYS_mmap, slab->code, slab_bytes(slab), PROT_READ | PROT_EXEC,
		 flags | MAP_FIXED_NOREPLACE, none},
		{SYS_mmap, slab->state_page, SCRY_PAGE + slab->counters_size,
		 PROT_READ | PROT_WRITE, flags | MAP_FIXED, none},
		{SYS_madvise, slab->state_page, SCRY_PAGE, MADV_WIPEONFORK},
	};
	const struct scry_shared to = {slab->counters, slab->counters_size, MAP_FIXED, h->text};
	const uint64_t magic = SCRY_SLAB_MAGIC, open_ = 1;
	int r = scry_shared_mmap(calls[0], t, how);

	*ret_fd = -1;
	if (r == 0)
		r = scry_edit_poke(how->mem_fd, slab->code, &magic, sizeof(magic));
	if (r == 0)
		r = scry_shared_mmap(calls[1], t, how);
	if (r == 0)
		r = failed(remote(t, how, calls[2]));
	if (r == 0)
		r = scry_shared_map(&to, t, how, ret_fd);
	if (r == 0)
		r = scry_edit_poke(how->mem_fd, slab->state_page, &open_, sizeof(open_));
	return finish(t, how, r);
}

/* Is it there? All of it is mapped in one step, and then divided. */
static bool has_slab(const struct scry_slab *slab, const struct scry_maps *maps, int mem_fd)
{
	const struct scry_map_entry *m = scry_maps_at(maps, slab->code);
	uint64_t magic;

	return m && m->x && !m->w && !m->inode && m->start == slab->code &&
	       (m->end == slab->state_page || m->end == slab->code + slab_bytes(slab)) &&
	       pread(mem_fd, &magic, sizeof(magic), (off_t)slab->code) == sizeof(magic) &&
	       (!magic || magic == SCRY_SLAB_MAGIC);
}

uint64_t scry_agent_control(const struct scry_agent_header *h, const struct scry_mem *mem)
{
	struct scry_claim claim;

	if (h->stage == SCRY_AGENT_IDLE)
		return h->aside;
	if (!h->child_buffers || scry_mem_read(mem, scry_agent_state_page(h) + SCRY_CLAIM_OFFSET,
					       &claim, sizeof(claim)) < 0)
		return h->shared;
	return claim.owned && claim.owned <= SCRY_CHILD_BUFFERS
		       ? h->child_buffers + SCRY_PAGE + (claim.owned - 1) * SCRY_CHILD_BUFFER_BYTES
		       : h->shared;
}

int scry_agent_rehome(const struct scry_agent_header *h, uint32_t parts, struct scry_tracee *t,
		      const struct scry_call *how, int *ret_fd)
{
	int r = scry_shared_close_left(h->text, t, how);

	*ret_fd = -1;
	scry_error_clear();
	if (r == 0 && parts) /* a scry that only takes it out is not refused */
		r = fits(t->pid, 0, writable_bytes(parts));
	if (r == 0)
		r = open_parts(h, parts, t, how);
	return finish(t, how, r < 0 ? r : map_shared(h, t, how, ret_fd));
}

struct ranges { /* system calls on what is to go */
	uint64_t calls[SCRY_SLABS_MAX + 2 + 2 * SCRY_AGENT_RANGES_MAX][7];
	size_t count;
};

static void add_call(struct ranges *r, uint64_t number, const struct scry_agent_range *of,
		     uint64_t argument)
{
	uint64_t *call = r->calls[r->count++];

	call[0] = number, call[1] = of->at, call[2] = of->size, call[3] = argument;
}

static void add(struct ranges *r, uint64_t start, uint64_t size)
{
	add_call(r, SYS_munmap, &(const struct scry_agent_range){.at = start, .size = size}, 0);
}

/* What parts have before the tail. */
static void add_closed(struct ranges *r, const struct scry_agent_header *h, uint32_t parts)
{
	struct scry_agent_range ranges[SCRY_AGENT_RANGES_MAX];
	size_t n = scry_agent_source_ranges(parts, ranges);

	for (size_t i = 0; i < n; i++) {
		ranges[i].at += h->image;
		if (ranges[i].at >= h->tail)
			continue;
		add_call(r, SYS_madvise, &ranges[i], MADV_DONTNEED);
		add_call(r, SYS_mprotect, &ranges[i], PROT_NONE);
	}
}

/* What lies elsewhere, as far as it is seen to be ours. */
static void add_others(struct ranges *r, const struct scry_agent_header *h,
		       const struct scry_maps *maps, int mem_fd)
{
	for (uint64_t i = 0; i < h->slab_count; i++)
		if (has_slab(&h->slabs[i], maps, mem_fd))
			add(r, h->slabs[i].code, slab_bytes(&h->slabs[i]));
	if (scry_agent_has_child_buffers(h, maps))
		add(r, h->child_buffers, h->child_buffers_size);
}

static int unmap(const struct scry_agent_header *h, enum scry_agent_stage stage,
		 struct scry_tracee *t, const struct scry_call *how)
{
	struct scry_agent_header now = *h;
	struct ranges ranges = {0};
	struct scry_maps maps;
	bool has_tail;
	int r = scry_maps_read(t->pid, &maps);

	if (r < 0)
		return r;
	add_others(&ranges, h, &maps, how->mem_fd);
	has_tail = scry_agent_has_tail(h, &maps, how->mem_fd);
	scry_maps_done(&maps);
	if (stage == SCRY_AGENT_LEAVING) /* in one call, so that all of it is there or nothing */
		add(&ranges, scry_agent_state_page(h),
		    (has_tail ? end_of(h) : h->tail) - scry_agent_state_page(h));
	else if (has_tail)
		add(&ranges, h->tail, end_of(h) - h->tail);
	now.stage = stage;
	if (stage == SCRY_AGENT_IDLE) { /* not named any more, then closed */
		now.parts &= SCRY_PARTS_IDLE;
		add_closed(&ranges, h, (uint32_t)h->parts & ~SCRY_PARTS_IDLE);
	}
	r = scry_shared_close_left(h->text, t, how);
	if (r == 0)
		r = scry_agent_write_header(&now, how->mem_fd);
	if (r == 0)
		r = scry_hold_calls(t, how, ranges.calls, ranges.count);
	now.slab_count = now.child_buffers = now.child_buffers_size = 0;
	if (r == 0 && stage == SCRY_AGENT_IDLE)
		r = scry_agent_write_header(&now, how->mem_fd);
	return r;
}

int scry_agent_unmap(const struct scry_agent_header *h, struct scry_tracee *t,
		     const struct scry_call *how)
{
	int r = unmap(h, SCRY_AGENT_LEAVING, t, how), end = scry_tracee_finish(t, how);

	return r < 0 ? r : end;
}

int scry_agent_retire(const struct scry_agent_header *h, struct scry_tracee *t,
		      const struct scry_call *how)
{
	int r = unmap(h, SCRY_AGENT_IDLE, t, how), end = scry_tracee_finish(t, how);

	return r < 0 ? r : end;
}
