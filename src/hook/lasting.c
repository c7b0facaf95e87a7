/*
 * The proof that memory may go is a search for its addresses, as a conservative collector makes it:
 * in registers, on stacks (also those of coroutines, and signal frames that no thread is on) and in
 * data. It takes a read of all memory that was written to while no thread runs, so there is a
 * limit.
 */
#include "hook/lasting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "hook/hold.h"
#include "hook/renew.h"
#include "hook/shared.h"
#include "sys/mounts.h"
#include "sys/written.h"

#define REACH (1ull << 30)
#define HEAD_BYTES 8192u
#define LOOK_BYTES (4ull << 30) /* of a mapping; a larger one has a head only at its start */
#define MAP_TRIES 5
#define OFF_TRIES 5
#define PROOF_BYTES (64u << 20) /* some 20 ms */
#define CHUNK_BYTES (256u << 10)
#define TAG_BITS 17 /* above an address of user space, of 47 bits */

static uint64_t page_up(uint64_t n)
{
	return (n + SCRY_PAGE - 1) & ~(uint64_t)(SCRY_PAGE - 1);
}

static uint64_t journal_bytes(const struct scry_patch_head *h)
{
	return page_up(sizeof(struct scry_journal) +
		       h->journal_room * sizeof(struct scry_journal_entry));
}

/* Is [at, at + size) within the patch? */
static bool holds(const struct scry_patch_head *h, uint64_t start, uint64_t at, uint64_t size)
{
	return at >= start && at <= start + h->size && size <= start + h->size - at;
}

static bool is_plausible(const struct scry_patch_head *h, uint64_t start)
{
	return h->magic == SCRY_PATCH_MAGIC && h->version >= 1 && h->size >= HEAD_BYTES &&
	       h->size <= SCRY_PATCH_BYTES_MAX && h->size % SCRY_PAGE == 0 &&
	       h->journal == start + HEAD_BYTES && h->journal_room <= SCRY_JOURNAL_MAX &&
	       holds(h, start, h->journal, journal_bytes(h)) &&
	       holds(h, start, h->text, h->text_size) &&
	       holds(h, start, h->constants, h->constants_size) &&
	       holds(h, start, h->data, h->data_size) && h->data_size > SCRY_CALL_STACK_BYTES &&
	       h->stack == h->data + h->data_size && h->counter_count <= SCRY_PATCH_COUNTERS &&
	       h->stage >= SCRY_PATCH_MAPPING && h->stage <= SCRY_PATCH_OUT;
}

static uint64_t start_of(const struct scry_patch_head *h)
{
	return h->journal - HEAD_BYTES;
}

static bool read_head(const struct scry_mem *mem, uint64_t at, struct scry_patch_head *ret)
{
	if (scry_mem_read(mem, at, ret, sizeof(*ret)) < 0 || !is_plausible(ret, at))
		return false;
	ret->name[sizeof(ret->name) - 1] = '\0';
	for (uint64_t i = 0; i < ret->counter_count; i++)
		ret->counters[i].name[sizeof(ret->counters[i].name) - 1] = '\0';
	return true;
}

static bool may_hold_head(const struct scry_map_entry *m)
{
	return !m->w && !m->shared && !m->inode && !*m->path && (m->x || !m->r) &&
	       m->end - m->start > HEAD_BYTES;
}

/* Which pages may be heads: [*ret, *ret_end) from `at` on, none where both are the same. A head was
 * written: no page that is not there is brought in to look for one, as its server may be the
 * program itself, or gone. The kernel makes one mapping of a patch and of the program's own code
 * beside it, so all pages are looked at; but for closed ones, which are reserved by the terabyte,
 * and where it is not known what is there: the first. */
static void next_pages(const struct scry_written *written, const struct scry_map_entry *m,
		       uint64_t at, uint64_t *ret, uint64_t *ret_end)
{
	const uint64_t look_end =
		!m->x || m->end - m->start > LOOK_BYTES ? m->start + SCRY_PAGE : m->end;

	*ret = *ret_end = m->end;
	if (at < look_end && scry_written_run(written, at, look_end, ret, ret_end))
		return;
	*ret = at == m->start ? at : m->end;
	*ret_end = at == m->start ? at + SCRY_PAGE : m->end;
}

static bool find_in_pages(const struct scry_mem *mem, uint64_t at, uint64_t end,
			  struct scry_patch_head *ret)
{
	uint64_t heads[SCRY_MEM_HEADS][2];

	while (at < end) {
		const uint64_t pages = (end - at) / SCRY_PAGE;
		const ssize_t n = scry_mem_page_heads(
			mem, at, pages < SCRY_MEM_HEADS ? pages : SCRY_MEM_HEADS, heads);

		for (ssize_t i = 0; i < n; i++)
			if (heads[i][0] == SCRY_PATCH_MAGIC &&
			    read_head(mem, at + (uint64_t)i * SCRY_PAGE, ret))
				return true;
		at += (n > 0 ? (uint64_t)n : 1) * SCRY_PAGE;
	}
	return false;
}

int scry_lasting_next(const struct scry_mem *mem, const struct scry_maps *maps, uint64_t *at,
		      struct scry_patch_head *ret)
{
	struct scry_written written;
	struct scry_patch_head h;
	bool is_found = false;

	scry_written_open(&written, mem->pid, maps);
	for (size_t i = 0; i < maps->count && !is_found; i++) {
		const struct scry_map_entry *m = &maps->entries[i];
		uint64_t from = *at > m->start ? *at : m->start, end;

		while (may_hold_head(m) && from < m->end && !is_found) {
			next_pages(&written, m, from, &from, &end);
			is_found = find_in_pages(mem, from, end, &h);
			from = end;
		}
	}
	scry_written_close(&written);
	if (!is_found)
		return -ENOENT;
	*at = start_of(&h) + SCRY_PAGE;
	*ret = h;
	return 0;
}

int scry_lasting_find(const struct scry_mem *mem, const struct scry_maps *maps, const char *name,
		      struct scry_patch_head *ret)
{
	struct scry_patch_head h, out;
	bool is_out = false;
	uint64_t at = 0;

	while (scry_lasting_next(mem, maps, &at, &h) == 0) {
		if (strcmp(h.name, name))
			continue;
		if (h.stage != SCRY_PATCH_OUT) {
			*ret = h;
			return 0;
		}
		out = h;
		is_out = true;
	}
	if (is_out)
		*ret = out;
	return is_out ? 0 : -ENOENT;
}

bool scry_lasting_at(const struct scry_mem *mem, const struct scry_maps *maps, uint64_t address,
		     struct scry_patch_head *ret)
{
	const struct scry_map_entry *m = scry_maps_at(maps, address);
	uint64_t at = m ? m->start : 0;
	struct scry_patch_head h;

	while (m && scry_lasting_next(mem, maps, &at, &h) == 0 && start_of(&h) <= address)
		if (address - start_of(&h) < h.size) {
			*ret = h;
			return true;
		}
	return false;
}

int scry_lasting_write(const struct scry_inject *inj, const struct scry_patch_head *head)
{
	int r = scry_edit_poke(inj->mem.fd, start_of(head), head, sizeof(*head));

	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

/* Addresses, from the sizes. */
static int place(const struct scry_maps *maps, uint64_t near, struct scry_patch_head *h)
{
	const uint64_t text = page_up(h->text_size), constants = page_up(h->constants_size);
	uint64_t start;

	h->data_size = page_up(h->data_size) + SCRY_CALL_STACK_BYTES;
	h->size = HEAD_BYTES + journal_bytes(h) + text + constants + h->data_size;
	if (h->size > SCRY_PATCH_BYTES_MAX)
		return scry_fail(-EFBIG, "the patch takes %llu MiB, more than %u",
				 (unsigned long long)(h->size >> 20), SCRY_PATCH_BYTES_MAX >> 20);
	start = scry_maps_gap(maps, near, h->size, REACH);
	if (!start)
		return scry_fail(-ENOMEM,
				 "no free address space of %llu bytes within 1 GiB of %#llx",
				 (unsigned long long)h->size, (unsigned long long)near);
	h->journal = start + HEAD_BYTES;
	h->text = h->journal + journal_bytes(h);
	h->constants = h->text + text;
	h->data = h->constants + constants;
	h->stack = h->data + h->data_size;
	h->text_size = text;
	h->constants_size = constants;
	return 0;
}

/* Closed until it is named; of what cannot be opened nothing stays. */
static int map_patch(struct scry_tracee *t, const struct scry_call *how, void *arg)
{
	const struct scry_patch_head *h = arg;
	const uint64_t start = start_of(h), code = h->text + h->text_size - start;
	const uint64_t map[7] = {SYS_mmap,
				 start,
				 h->size,
				 PROT_NONE,
				 MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED_NOREPLACE,
				 (uint64_t)-1};
	const uint64_t open[][7] = {
		{SYS_mprotect, start, code, PROT_READ | PROT_EXEC},
		{SYS_mprotect, h->constants, h->constants_size, PROT_READ},
		{SYS_mprotect, h->data, h->data_size, PROT_READ | PROT_WRITE},
	};
	const uint64_t gone[1][7] = {{SYS_munmap, start, h->size}};
	int r = scry_shared_mmap(map, t, how);

	if (r < 0)
		return r;
	r = scry_edit_poke(how->mem_fd, start, h, sizeof(*h));
	for (size_t i = 0; i < 3 && r == 0; i++)
		if (open[i][2])
			r = scry_hold_calls(t, how, &open[i], 1);
	if (r < 0)
		scry_hold_calls(t, how, gone, 1);
	return r;
}

int scry_lasting_map(struct scry_inject *inj, uint64_t near, struct scry_patch_head *head)
{
	struct scry_patch_head h;
	struct timespec ts;
	int r = -EEXIST;

	clock_gettime(CLOCK_REALTIME, &ts);
	head->magic = SCRY_PATCH_MAGIC;
	head->version = SCRY_PATCH_VERSION;
	head->stage = SCRY_PATCH_MAPPING;
	head->since_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	head->uid = getuid();
	head->start = inj->proc->start_ticks;
	while (!head->nonce)
		if (getrandom(&head->nonce, sizeof(head->nonce), 0) < 0)
			return scry_fail(-errno, "no random number: %s", strerror(errno));
	for (int i = 0; i < MAP_TRIES && r == -EEXIST; i++) { /* something was mapped there */
		h = *head;
		scry_maps_done(&inj->maps);
		r = scry_maps_read(inj->proc->pid, &inj->maps);
		if (r == 0)
			r = place(&inj->maps, near, &h);
		if (r == 0)
			r = scry_inject_call(inj, NULL, map_patch, &h);
	}
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, h.journal + offsetof(struct scry_journal, nonce),
				   &h.nonce, sizeof(h.nonce));
	if (r == 0)
		*head = h;
	return r < 0 && !*scry_error() ? scry_fail(r, "cannot map memory in process %d: %s",
						   inj->proc->pid, strerror(-r))
				       : r;
}

/* What works on the journal works on that of the patch meanwhile. */
static void swap_journals(struct scry_lasting *p, struct scry_inject *inj)
{
	const struct scry_edit edit = inj->edit;

	inj->edit = p->edit;
	p->edit = edit;
}

int scry_lasting_on(struct scry_lasting *p, struct scry_inject *inj, struct scry_hooks *h)
{
	int r = scry_lasting_open(p, inj, &p->head);

	if (r < 0)
		return r;
	if (h->count > p->head.journal_room)
		return scry_fail(-ENOSPC, "%zu changes are more than the patch has room for",
				 h->count);
	p->head.stage = SCRY_PATCH_ON;
	r = scry_lasting_write(inj, &p->head);
	if (r < 0)
		return r;
	swap_journals(p, inj);
	inj->lasts = true;
	r = scry_hooks_change(h, inj, NULL);
	inj->lasts = false;
	swap_journals(p, inj);
	return r;
}

int scry_lasting_open(struct scry_lasting *p, struct scry_inject *inj,
		      const struct scry_patch_head *head)
{
	int r;

	p->head = *head;
	r = scry_edit_open(&p->edit, &inj->mem, head->journal);
	if (r == 0 && p->edit.count > head->journal_room)
		r = scry_fail(-EINVAL, "the journal of patch '%s' is damaged", head->name);
	return r;
}

void scry_lasting_close(struct scry_lasting *p)
{
	scry_edit_close(&p->edit);
	*p = (struct scry_lasting){0};
}

struct proof {
	uint64_t start, end; /* of the patch */
	uint64_t guard;	     /* the process's pointer guard; 0: not known, or none */
	uint64_t left;	     /* bytes that may be read yet */
	uint64_t deadline_ns;
	uint64_t *words;
	struct scry_mounts mounts; /* of the process */
};

/* An address of user space with anything in the bits above it: a number, as patch/wrap.S has one
 * beside a return address, a tag (LAM, boxed values). */
static bool holds_address(const struct proof *p, uint64_t word)
{
	return (word - p->start) << TAG_BITS < (p->end - p->start) << TAG_BITS;
}

/* Or as glibc keeps pointers to code in data (PTR_MANGLE of its sysdeps/unix/sysv/linux/x86_64:
 * xor with the guard, rotated left by 17): those of setjmp, on_exit, atexit. */
static bool leads_there(const struct proof *p, uint64_t word)
{
	const uint64_t plain = (word >> 17 | word << 47) ^ p->guard;

	return holds_address(p, word) || plain - p->start < p->end - p->start;
}

/* In the thread's control block, which each thread has a copy of (glibc's tcbhead_t). */
static uint64_t pointer_guard(const struct scry_inject *inj, const struct scry_stw *w)
{
	uint64_t guard = 0;

	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].stopped && w->threads[i].regs.fs_base &&
		    scry_mem_u64(&inj->mem, w->threads[i].regs.fs_base + 0x30, &guard) == 0)
			break;
	return guard;
}

static const char too_much[] = "its memory is too large to be searched in a pause",
		  is_used[] = "a thread, a stack or data still leads there",
		  unseen[] = "scry cannot see which of its memory is present";

/* Of the first n bytes that were read. Words that are not aligned are not addresses. */
static const char *judge(struct proof *p, size_t n)
{
	if (n > p->left || scry_now_ns() > p->deadline_ns)
		return too_much;
	p->left -= n;
	for (size_t i = 0; i < n / 8; i++)
		if (leads_there(p, p->words[i]))
			return is_used;
	return NULL;
}

/* NULL: no word of [at, end), which is there, leads to the patch. */
static const char *look_at_words(const struct scry_inject *inj, struct proof *p, uint64_t at,
				 uint64_t end)
{
	const char *why = NULL;

	while (at < end && !why) {
		const uint64_t size = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
		ssize_t n = scry_mem_read_some(&inj->mem, at, p->words, size);

		if (n <= 0) /* given back by a process that shares it */
			return too_much;
		why = judge(p, (size_t)n);
		at += (uint64_t)n;
	}
	return why;
}

/* Only what is there is read: to bring more into memory may take the answer of a server, which is
 * stopped, too. */
static const char *look_at_mapping(const struct scry_inject *inj, struct proof *p,
				   const struct scry_written *written,
				   const struct scry_map_entry *m)
{
	const char *why = NULL;
	uint64_t run, end;

	for (uint64_t at = m->start; at < m->end && !why; at = end) {
		if (scry_now_ns() > p->deadline_ns)
			return too_much;
		if (!scry_written_run(written, at, m->end, &run, &end))
			return unseen;
		why = run < end ? look_at_words(inj, p, run, end) : NULL;
	}
	return why;
}

static void link_of(const struct scry_inject *inj, const struct scry_map_entry *m, char ret[96])
{
	snprintf(ret, 96, "/proc/%d/map_files/%llx-%llx", inj->proc->pid,
		 (unsigned long long)m->start, (unsigned long long)m->end);
}

static int open_shared(const struct scry_inject *inj, const struct scry_map_entry *m)
{
	char path[96];
	struct stat st;
	int fd, by;

	link_of(inj, m, path);
	by = open(path, O_PATH | O_CLOEXEC);
	if (by < 0 || fstat(by, &st) < 0 || !S_ISREG(st.st_mode) || st.st_ino != m->inode) {
		if (by >= 0)
			close(by);
		return -1;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", by);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	close(by);
	return fd;
}

/* Could the process have written to it, through this mapping, whatever may be done with it now? The
 * mode of its link is that of the open file (the kernel's proc_map_files_instantiate). */
static bool could_be_written(const struct scry_inject *inj, const struct scry_map_entry *m)
{
	char path[96];
	struct stat st;

	link_of(inj, m, path);
	return m->w || lstat(path, &st) < 0 || st.st_mode & S_IWUSR;
}

/* The words of file bytes [at, end), of which none may lead to the patch. `flags`: of preadv2. */
static const char *look_at_file(struct proof *p, int fd, uint64_t at, uint64_t end, int flags)
{
	const char *why = NULL;

	while (at < end && !why) {
		const uint64_t size = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
		struct iovec to = {p->words, size};
		ssize_t n = preadv2(fd, &to, 1, (off_t)at, flags);

		if (n <= 0)
			return n < 0 ? unseen : NULL;
		why = judge(p, (size_t)n);
		at += (uint64_t)n;
	}
	return why;
}

/* All of the file that is mapped and is there: what of it is in the process's tables says little,
 * as a fork child has none, nor one that was paged out. Of a disk's file only what is in memory, as
 * a disk may not answer in time. */
static const char *look_at_whole(const struct scry_inject *inj, struct proof *p,
				 const struct scry_map_entry *m, int flags)
{
	const off_t end = (off_t)(m->offset + (m->end - m->start));
	const int fd = open_shared(inj, m);
	const char *why = NULL;
	off_t at = (off_t)m->offset, hole;

	if (fd < 0)
		return unseen;
	while (!why && at < end) {
		at = lseek(fd, at, SEEK_DATA);
		if (at < 0 || at >= end) {
			why = at < 0 && errno != ENXIO ? unseen : NULL;
			break;
		}
		hole = lseek(fd, at, SEEK_HOLE);
		why = hole < 0 ? unseen
			       : look_at_file(p, fd, (uint64_t)at,
					      (uint64_t)(hole < end ? hole : end), flags);
		at = hole;
	}
	close(fd);
	return why;
}

static const char *look_at_shared(const struct scry_inject *inj, struct proof *p,
				  const struct scry_written *written,
				  const struct scry_map_entry *m)
{
	enum scry_mount_kind kind = SCRY_MOUNT_DEVICES; /* or rings of the kernel's: no stacks */

	if (scry_maps_is_shared_memory(m))
		return look_at_whole(inj, p, m, 0);
	if (!could_be_written(inj, m))
		return NULL;
	if (*m->path == '/')
		kind = scry_mounts_kind(&p->mounts, m->dev_major, m->dev_minor);
	if (kind == SCRY_MOUNT_MEMORY || kind == SCRY_MOUNT_DISK)
		return look_at_whole(inj, p, m, kind == SCRY_MOUNT_DISK ? RWF_NOWAIT : 0);
	if (kind == SCRY_MOUNT_UNKNOWN || kind == SCRY_MOUNT_KERNEL)
		return unseen;
	return m->w ? look_at_mapping(inj, p, written, m) : NULL;
}

static bool is_in_registers(const struct proof *p, const struct scry_stw *w)
{
	for (size_t i = 0; i < w->count; i++) {
		const unsigned long long *words = (const void *)&w->threads[i].regs;

		for (size_t k = 0; k < sizeof(w->threads[i].regs) / sizeof(*words); k++)
			if (w->threads[i].stopped && leads_there(p, words[k]))
				return true;
	}
	return false;
}

/* The patch's own memory, and the agent's, in which no thread is (look_at_all). */
static bool is_scrys(const struct scry_inject *inj, const struct proof *p, uint64_t at)
{
	const struct scry_agent_header *h = &inj->header;

	return (at >= p->start && at < p->end) ||
	       (at >= scry_agent_state_page(h) && at < h->shared + h->shared_size);
}

static bool stands_on_ours(const struct scry_inject *inj, const struct scry_stw *w)
{
	const uint64_t end = scry_agent_call_stack(&inj->header);

	return scry_stw_stands_on(w, end - SCRY_CALL_STACK_BYTES, end);
}

/* While all are stopped. NULL: no thread can come to the patch any more. */
static const char *look_at_all(struct scry_inject *inj, struct proof *p, const struct scry_stw *w)
{
	struct scry_written written;
	const char *why = is_in_registers(p, w) || stands_on_ours(inj, w) ? is_used : NULL;

	scry_maps_done(&inj->maps);
	if (scry_maps_read(inj->proc->pid, &inj->maps) < 0)
		return "its mappings cannot be read";
	scry_written_open(&written, inj->proc->pid, &inj->maps);
	for (size_t i = 0; i < inj->maps.count && !why; i++) {
		const struct scry_map_entry *m = &inj->maps.entries[i];

		/* whatever may be done with it now: a stack that no thread is on may be closed */
		if (!is_scrys(inj, p, m->start) && scry_written_is_memory(m))
			why = m->shared ? look_at_shared(inj, p, &written, m)
					: look_at_mapping(inj, p, &written, m);
	}
	scry_written_close(&written);
	return why;
}

/* Is all that the head names anonymous memory, so that nothing else goes? */
static bool is_ours(const struct scry_inject *inj, const struct scry_patch_head *h)
{
	const uint64_t start = start_of(h);
	uint64_t nonce;

	if (scry_mem_u64(&inj->mem, h->journal + offsetof(struct scry_journal, nonce), &nonce) <
		    0 ||
	    nonce != (h->stage == SCRY_PATCH_MAPPING ? nonce : h->nonce))
		return false;
	for (uint64_t at = start; at < start + h->size;) {
		const struct scry_map_entry *m = scry_maps_at(&inj->maps, at);

		if (!m || m->inode || m->shared || *m->path)
			return false;
		at = m->end;
	}
	return true;
}

struct kernel_action { /* of rt_sigaction */
	uint64_t handler, flags, restorer, mask;
};

/* Does the kernel lead there, for a signal? Asked into the patch's own stack for calls, on whose
 * lower half no thread is. */
static int is_a_handler(struct scry_tracee *t, const struct scry_call *how,
			const struct scry_patch_head *h)
{
	const uint64_t at = h->stack - SCRY_CALL_STACK_BYTES;
	int r = 0;

	for (uint64_t signal = 1; signal <= 64 && r == 0; signal++) {
		const uint64_t ask[1][7] = {{SYS_rt_sigaction, signal, 0, at, 8}};
		struct kernel_action is;

		r = scry_hold_calls(t, how, ask, 1);
		if (r == 0 && pread(how->mem_fd, &is, sizeof(is), (off_t)at) != sizeof(is))
			r = -EFAULT;
		if (r == 0 &&
		    (is.handler - start_of(h) < h->size || is.restorer - start_of(h) < h->size))
			r = -EBUSY;
	}
	return r;
}

static int unmap_patch(struct scry_tracee *t, const struct scry_call *how, void *arg)
{
	const struct scry_patch_head *h = arg;
	const uint64_t gone[1][7] = {{SYS_munmap, start_of(h), h->size}};
	int r = h->kind == SCRY_PATCH_UCONTEXT ? 0 : is_a_handler(t, how, h);

	return r < 0 ? r : scry_hold_calls(t, how, gone, 1);
}

static const char *prove(struct scry_inject *inj, const struct scry_patch_head *h)
{
	struct proof p = {.start = start_of(h),
			  .end = start_of(h) + h->size,
			  .left = PROOF_BYTES,
			  .words = malloc(CHUNK_BYTES)};
	const char *why = "its threads could not be stopped";
	struct scry_stw w;

	if (!p.words)
		return "there is not enough memory to look";
	scry_mounts_read(inj->proc->pid, &p.mounts);
	for (int i = 0; i < OFF_TRIES && why; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		if (scry_inject_stop(inj, &w) < 0)
			break;
		p.left = PROOF_BYTES;
		p.deadline_ns = w.deadline_ns;
		p.guard = pointer_guard(inj, &w);
		why = look_at_all(inj, &p, &w);
		if (!why && !is_ours(inj, h))
			why = "other memory lies there";
		if (!why && scry_proc_shares_memory(inj->proc->pid))
			why = "another process runs on its memory";
		scry_inject_go(inj, &w);
		if (why == too_much)
			break;
	}
	scry_mounts_done(&p.mounts);
	free(p.words);
	scry_error_clear();
	return why;
}

int scry_lasting_off(struct scry_lasting *p, struct scry_inject *inj, struct scry_undo_report *ret,
		     uint64_t *ret_left, const char **ret_why)
{
	int r;

	*ret_left = p->head.size;
	swap_journals(p, inj);
	r = scry_inject_undo(inj, 0, inj->edit.count, ret);
	swap_journals(p, inj);
	if (r == 0 && p->head.stage == SCRY_PATCH_ON) {
		p->head.stage = SCRY_PATCH_OUT;
		r = scry_lasting_write(inj, &p->head);
	}
	if (r < 0)
		return r;
	*ret_why = prove(inj, &p->head);
	if (!*ret_why) {
		r = scry_inject_call(inj, NULL, unmap_patch, &p->head);
		*ret_left = r < 0 ? p->head.size : 0;
		*ret_why = r == -EBUSY ? is_used : r < 0 ? "it could not be unmapped" : NULL;
	}
	scry_error_clear();
	return 0;
}
