/* See child_buffers.h. A child buffer is cleared by what frees it, so that a child finds all words
 * 0. */
#include "hook/child_buffers.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/err.h"
#include "hook/shared.h"
#include "hook/threads.h"
#include "wire/preload.h"

/* a child buffer that was used for more gives its memory back */
#define WORDS_KEPT (4ull * SCRY_SEGMENT_WORDS)

int scry_pool_open(struct scry_pool *p, struct scry_inject *inj, struct scry_tracee *held)
{
	int fd, r = held ? 0 : scry_threads_clear_out(inj);
	void *view;

	if (r == 0)
		r = scry_inject_child_buffers(inj, held, &fd);
	if (r < 0)
		return r;
	view = mmap(NULL, SCRY_CHILD_BUFFERS_BYTES, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	if (view == MAP_FAILED)
		return scry_fail(-errno, "cannot map the child buffers of process %d: %s",
				 inj->proc->pid, strerror(errno));
	*p = (struct scry_pool){.head = view,
				.address = inj->header.child_buffers,
				.state_page = inj->state_page,
				.data = inj->data,
				.text = inj->header.text,
				.sets = SCRY_CHILD_BUFFERS,
				.most = SCRY_CHILD_BUFFERS};
	if (getrandom(&p->nonce, sizeof(p->nonce), 0) != sizeof(p->nonce))
		p->nonce = scry_now_ns();
	for (uint32_t i = 0; i < SCRY_CHILD_BUFFERS; i++)
		scry_pool_control(p, i)->magic = SCRY_CONTROL_MAGIC;
	return 0;
}

int scry_pool_make(struct scry_pool *p)
{
	int fd = memfd_create(SCRY_PRELOAD_POOL, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *view = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)SCRY_CHILD_BUFFERS_BYTES) == 0) {
		errno = EPERM; /* a process that may join may also cut it */
		if (scry_shared_seal(fd, SCRY_CHILD_BUFFERS_BYTES))
			view = mmap(NULL, SCRY_CHILD_BUFFERS_BYTES, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_NORESERVE, fd, 0);
	}
	if (view == MAP_FAILED) {
		int err = errno;

		if (fd >= 0)
			close(fd);
		return scry_fail(-err, "cannot make the shared memory: %s", strerror(err));
	}
	*p = (struct scry_pool){.head = view,
				.fd = fd,
				.names_owners = true,
				.sets = SCRY_CHILD_BUFFERS,
				.most = SCRY_CHILD_BUFFERS};
	if (getrandom(&p->head->nonce, sizeof(p->head->nonce), 0) != sizeof(p->head->nonce))
		p->head->nonce = (uint32_t)scry_now_ns();
	for (uint32_t i = 0; i < SCRY_CHILD_BUFFERS; i++)
		scry_pool_control(p, i)->magic = SCRY_CONTROL_MAGIC;
	return 0;
}

void scry_pool_close(struct scry_pool *p)
{
	if (p->head)
		munmap(p->head, SCRY_CHILD_BUFFERS_BYTES);
	if (p->names_owners)
		close(p->fd);
	*p = (struct scry_pool){0};
}

void scry_pool_share(struct scry_pool *p, uint32_t instruments)
{
	p->sets = p->most = SCRY_CHILD_BUFFERS / instruments;
	if (instruments == 1)
		return;
	p->burnt |= 1;
	p->head->taken[0] = 1;
}

uint32_t scry_pool_bound(struct scry_pool *p, uint32_t instruments, uint64_t left)
{
	const uint64_t set_bytes = SCRY_RING_WORDS * 8ull * instruments;
	const uint64_t sets = left / 2 / set_bytes, children = sets ? sets - 1 : 0;
	const uint32_t own = instruments > 1; /* set 0 */

	if (children < p->sets - own)
		p->most = (uint32_t)children + own;
	return p->most - own;
}

uint32_t scry_pool_child_buffer(const struct scry_pool *p, uint32_t child_buffer, uint32_t number)
{
	return child_buffer + number * p->sets;
}

pid_t scry_pool_owner(const struct scry_pool *p, uint32_t child_buffer)
{
	uint64_t pid =
		__atomic_load_n(&scry_pool_control(p, child_buffer)->child_pid, __ATOMIC_ACQUIRE);

	return pid <= INT32_MAX ? (pid_t)pid : 0;
}

void scry_pool_burn(struct scry_pool *p, uint32_t child_buffer)
{
	struct scry_control *c = scry_pool_control(p, child_buffer);

	p->burnt |= 1ull << child_buffer;
	c->lease_end_tsc = 0;
	__atomic_store_n(&c->lease_tsc, 0, __ATOMIC_RELEASE);
}

void scry_pool_seen(struct scry_pool *p, uint32_t child_buffer, bool is_known)
{
	struct scry_control *c = scry_pool_control(p, child_buffer);

	if (!is_known) /* it cannot be known whose it is */
		scry_pool_burn(p, child_buffer);
	__atomic_store_n(&c->owner_pid, (uint32_t)getpid(), __ATOMIC_RELEASE);
	syscall(SYS_futex, &c->owner_pid, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool scry_pool_is_member(const struct scry_pool *p, pid_t pid)
{
	struct scry_maps maps = {0};
	bool is_mapped = false;
	struct stat st;

	if (fstat(p->fd, &st) == 0 && scry_maps_read(pid, &maps) == 0)
		for (size_t i = 0; i < maps.count; i++)
			is_mapped |= maps.entries[i].inode == st.st_ino && maps.entries[i].shared;
	scry_maps_done(&maps);
	scry_error_clear();
	return is_mapped;
}

/* The pointer last: a child that is born in between sees none, or all. */
int scry_pool_announce(struct scry_pool *p, struct scry_inject *inj,
		       const struct scry_agent_frames *frames)
{
	const struct scry_follow f = {
		.child_buffers = (struct scry_child_buffers *)p->address,
		.nonce = p->nonce,
		.frames = *frames,
		.sets = p->most,
		.channel_at = {p->channel_at[SCRY_CHANNEL_CORE], p->channel_at[SCRY_CHANNEL_CALLS]},
		.table_at = p->table_at};
	const uint64_t at = inj->data + offsetof(struct scry_agent_data, follow);
	const size_t after = offsetof(struct scry_follow, nonce);
	int r = scry_edit_poke(inj->mem.fd, at + after, (const char *)&f + after,
			       sizeof(f) - after);

	return r < 0 ? r
		     : scry_edit_poke(inj->mem.fd, at, &f.child_buffers, sizeof(f.child_buffers));
}

void scry_pool_follow(struct scry_pool *p, uint32_t watch)
{
	__atomic_store_n(&p->head->follow, watch, __ATOMIC_SEQ_CST);
}

struct scry_control *scry_pool_control(const struct scry_pool *p, uint32_t child_buffer)
{
	return (struct scry_control *)((char *)p->head + SCRY_PAGE +
				       child_buffer * SCRY_CHILD_BUFFER_BYTES);
}

void scry_pool_lease(struct scry_pool *p, uint64_t lease_tsc, uint64_t lease_end_tsc)
{
	for (uint32_t i = 0; i < SCRY_CHILD_BUFFERS; i++) {
		struct scry_control *c = scry_pool_control(p, i);

		if (p->burnt >> i & 1)
			continue;
		c->lease_end_tsc = lease_end_tsc;
		__atomic_store_n(&c->lease_tsc, lease_tsc, __ATOMIC_RELEASE);
	}
}

/* Any of its set. */
static bool is_burnt(const struct scry_pool *p, uint32_t child_buffer)
{
	bool is = false;

	for (uint32_t i = child_buffer % p->sets; i < SCRY_CHILD_BUFFERS && !is; i += p->sets)
		is = p->burnt >> i & 1;
	return is;
}

bool scry_pool_is_taken(const struct scry_pool *p, uint32_t child_buffer)
{
	return child_buffer < p->sets && !is_burnt(p, child_buffer) &&
	       __atomic_load_n(&p->head->taken[child_buffer], __ATOMIC_SEQ_CST) != 0;
}

static void clean(struct scry_control *c)
{
	if (c->head > WORDS_KEPT)
		madvise((char *)c + SCRY_SHARED_HEAD, SCRY_CHILD_BUFFER_BYTES - SCRY_SHARED_HEAD,
			MADV_REMOVE);
	c->owner_pid = 0;
	c->turn = 0;
	c->target_pid = c->target_start = 0;
	memset(&c->head, 0, sizeof(*c) - offsetof(struct scry_control, head));
	memset(scry_account_of(c), 0, sizeof(struct scry_account));
}

void scry_pool_free(struct scry_pool *p, uint32_t child_buffer)
{
	if (is_burnt(p, child_buffer)) /* a process may still write there */
		return;
	for (uint32_t i = child_buffer; i < SCRY_CHILD_BUFFERS; i += p->sets)
		clean(scry_pool_control(p, i));
	__atomic_store_n(&p->head->taken[child_buffer], 0, __ATOMIC_SEQ_CST);
}

/* No sentence anywhere: that a process is another user's, or gone, is the usual answer. */
int scry_pool_ask(const struct scry_pool *p, pid_t pid, struct scry_claim *ret)
{
	struct scry_mem mem = {.fd = -1};
	struct scry_follow follow;
	uint64_t magic;
	int r = p->names_owners ? -EACCES : scry_mem_open(&mem, pid, 0);

	/* only what passes: a wait for an answer that never comes would not end */
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EINTR || r == -EAGAIN) {
		scry_error_clear();
		return -EAGAIN;
	}
	if (r == 0 &&
	    (scry_mem_u64(&mem, p->text, &magic) < 0 || magic != SCRY_AGENT_MAGIC ||
	     scry_mem_read(&mem, p->data + offsetof(struct scry_agent_data, follow), &follow,
			   offsetof(struct scry_follow, frames)) < 0 ||
	     (uint64_t)follow.child_buffers != p->address || follow.nonce != p->nonce ||
	     scry_mem_read(&mem, p->state_page + SCRY_CLAIM_OFFSET, ret, sizeof(*ret)) < 0))
		r = -ENOENT;
	scry_mem_close(&mem);
	scry_error_clear();
	return r < 0 ? -ENOENT : 0;
}

bool scry_pool_is_descendant(const struct scry_pool *p, pid_t pid)
{
	struct scry_mem mem = {.fd = -1};
	struct scry_state_page state_page = {.open = 1};
	struct scry_claim claim;
	bool r = scry_pool_ask(p, pid, &claim) == 0 && !claim.owned &&
		 scry_mem_open(&mem, pid, 0) == 0 &&
		 scry_mem_read(&mem, p->state_page, &state_page, sizeof(state_page)) == 0 &&
		 !state_page.open;

	scry_mem_close(&mem);
	scry_error_clear();
	return r;
}
