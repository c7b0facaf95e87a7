/*
 * Walks VM -> ractors -> threads of another process.
 *
 * Lists are intrusive rings {next, prev}; the head is a node too. Each step checks that the next
 * node points back; a list that changes under us fails that check and is walked again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby.h"

#define RACTORS_MAX 4096u
#define THREADS_MAX 65536u /* of all ractors */
#define TRIES 3
#define STAND_MAX 256u /* words; of longer lists nothing is known */

struct nodes {
	uint64_t *at;
	size_t count, room;
};

static int push(struct nodes *nodes, uint64_t value)
{
	if (nodes->count == nodes->room) {
		size_t room = nodes->room ? nodes->room * 2 : 16;
		uint64_t *more = realloc(nodes->at, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		nodes->at = more;
		nodes->room = room;
	}
	nodes->at[nodes->count++] = value;
	return 0;
}

/* Owners of the nodes of the ring at `head`, each `node` bytes before its node. -EAGAIN: it
 * changed. */
static int walk_ring(const struct scry_mem *mem, uint64_t head, uint32_t node, size_t max,
		     struct nodes *ret)
{
	uint64_t at = head;

	for (size_t i = 0; i <= max; i++) {
		uint64_t next, back;

		if (scry_mem_u64(mem, at, &next))
			return -EAGAIN;
		if (next == 0)
			return -ENODATA; /* the VM boots and has not linked this list yet */
		if (next % 8 || scry_mem_u64(mem, next + 8, &back) || back != at)
			return -EAGAIN;
		if (next == head)
			return 0;
		if (push(ret, next - node))
			return -ENOMEM;
		at = next;
	}
	return -EAGAIN; /* a ring through freed nodes may never come back */
}

static int walk_ractors(const struct scry_ruby *ruby, struct nodes *ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t vm;
	int err = scry_mem_u64(&ruby->mem, ruby->bias + l->vm_root, &vm);

	if (err)
		return err == -ESRCH ? err : -ENODATA; /* the loader has not mapped it yet */
	/* The loader clears the module's last page after it has mapped it: until then it is not an
	 * address. */
	if (vm < 65536 || vm % 8 || vm >> 47)
		return -ENODATA;
	if (l->vm_ractors == SCRY_RUBY_NONE)
		return push(ret, vm);
	return walk_ring(&ruby->mem, vm + l->vm_ractors, l->ractor_node, RACTORS_MAX, ret);
}

/*
 * The tasks of the process. The target may live in its own pid namespace, and then knows them by
 * other numbers: the last number of the NSpid line of a task is the one in its own namespace.
 */
struct tids {
	bool saved; /* a saved image has no tasks: numbers are taken as they are */
	size_t count;
	pid_t *host;
	pid_t *inner; /* NULL: the same as host */
};

static ssize_t core_tasks(const struct scry_core *core, pid_t **ret)
{
	pid_t *tasks = calloc(core->thread_count + 1, sizeof(*tasks));

	for (size_t i = 0; i < core->thread_count && tasks; i++)
		tasks[i] = core->threads[i].tid;
	*ret = tasks;
	return tasks ? (ssize_t)core->thread_count : -ENOMEM;
}

/* Inner numbers only when the namespaces differ: one file of /proc per thread is dear. */
static void read_tids(const struct scry_ruby *ruby, struct tids *ret)
{
	const pid_t pid = ruby->pid;
	pid_t *host = NULL;
	ssize_t n = ruby->core ? core_tasks(ruby->core, &host)
		    : pid      ? scry_proc_tasks(pid, &host)
			       : 0;

	*ret = (struct tids){
		.saved = !ruby->core && pid == 0, .count = n > 0 ? (size_t)n : 0, .host = host};
	if (n <= 0 || ruby->core || scry_proc_tid_inside(pid, pid) == pid)
		return;
	ret->inner = calloc(ret->count, sizeof(*ret->inner));
	for (size_t i = 0; ret->inner && i < ret->count; i++)
		ret->inner[i] = scry_proc_tid_inside(pid, host[i]);
}

/* The task that the target calls `inner`, 0 when there is none. */
static pid_t host_tid(const struct tids *tids, uint32_t inner)
{
	if (tids->saved)
		return (pid_t)inner;
	for (size_t i = 0; i < tids->count; i++) {
		if ((tids->inner ? tids->inner[i] : tids->host[i]) == (pid_t)inner)
			return tids->host[i];
	}
	return 0;
}

/*
 * After fork(2) the one thread that lives on keeps the id it had in the parent (Ruby 3.1 does not
 * renew it). It is the new process's first task: so a single thread without a task is that one, if
 * no other is.
 */
static void mend_forked(pid_t pid, struct scry_ruby_thread *threads, size_t n)
{
	struct scry_ruby_thread *lost = NULL;

	for (size_t i = 0; i < n; i++) {
		if (threads[i].tid == pid)
			return;
		if (threads[i].tid == 0 && threads[i].ec && lost)
			return;
		if (threads[i].tid == 0 && threads[i].ec)
			lost = &threads[i];
	}
	if (lost)
		lost->tid = pid;
}

static void read_thread(const struct scry_ruby *ruby, const struct tids *tids,
			struct scry_ruby_thread *t)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t base = t->th;
	uint32_t tid = 0;

	if (scry_mem_u64(&ruby->mem, t->th + l->th_ec, &t->ec))
		t->ec = 0;
	if (l->th_tid == SCRY_RUBY_NONE)
		return;
	if (l->th_nt != SCRY_RUBY_NONE && scry_mem_u64(&ruby->mem, t->th + l->th_nt, &base))
		return;
	if (base && scry_mem_u32(&ruby->mem, base + l->th_tid, &tid) == 0) {
		t->inner = tid;
		t->tid = host_tid(tids, tid);
	}
}

/* The sentence for what a walk can say at worst. */
static int explain(const struct scry_ruby *ruby, int err)
{
	if (err == -ENODATA)
		return scry_fail(-EAGAIN, "the Ruby in process %d has not booted yet",
				 (int)ruby->pid);
	if (err == -EAGAIN)
		return scry_fail(-ENOTSUP,
				 "the lists of ractors and threads in process %d do not close, or "
				 "have more than %u threads",
				 (int)ruby->pid, THREADS_MAX);
	if (err == -ESRCH)
		return scry_fail(err, "process %d is gone", (int)ruby->pid);
	return scry_no_memory("the threads of process %d", (int)ruby->pid);
}

/* One walk over everything. Count or -errno. */
static ssize_t walk_threads(const struct scry_ruby *ruby, const struct tids *tids,
			    struct scry_ruby_thread **ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	struct nodes ractors = {0}, ths = {0}, owners = {0};
	struct scry_ruby_thread *threads = NULL;
	int err = walk_ractors(ruby, &ractors);

	for (size_t i = 0; i < ractors.count && !err; i++) {
		err = walk_ring(&ruby->mem, ractors.at[i] + l->ractor_threads, l->th_node,
				THREADS_MAX - ths.count, &ths);
		while (owners.count < ths.count && !err)
			err = push(&owners, ractors.at[i]);
	}
	if (!err && !(threads = calloc(ths.count ? ths.count : 1, sizeof(*threads))))
		err = -ENOMEM;
	for (size_t i = 0; i < ths.count && !err; i++) {
		threads[i].th = ths.at[i];
		threads[i].ractor = owners.at[i];
		read_thread(ruby, tids, &threads[i]);
	}
	if (!err && l->th_tid != SCRY_RUBY_NONE)
		mend_forked(ruby->pid, threads, ths.count);
	free(ractors.at);
	free(ths.at);
	free(owners.at);
	if (err)
		return err;
	*ret = threads;
	return (ssize_t)ths.count;
}

ssize_t scry_ruby_threads(const struct scry_ruby *ruby, struct scry_ruby_thread **ret)
{
	ssize_t n = -EAGAIN;
	struct tids tids;

	read_tids(ruby, &tids);
	for (int try = 0; try < TRIES && n == -EAGAIN; try++)
		n = walk_threads(ruby, &tids, ret);
	free(tids.host);
	free(tids.inner);
	return n < 0 ? explain(ruby, (int)n) : n;
}

struct links { /* of a list that is to be as it was: where each word is, and what it was */
	struct scry_mem_span spans[STAND_MAX];
	uint64_t words[STAND_MAX], was[STAND_MAX];
	size_t count;
};

static void expect(struct links *k, uint64_t at, uint64_t was)
{
	k->spans[k->count] = (struct scry_mem_span){at, &k->words[k->count], 8, false};
	k->was[k->count++] = was;
}

static bool stand(const struct scry_ruby *ruby, struct links *k)
{
	scry_mem_gather(&ruby->mem, k->spans, k->count);
	for (size_t i = 0; i < k->count; i++)
		if (!k->spans[i].ok || k->words[i] != k->was[i])
			return false;
	return true;
}

/* Each ring from its head, through its members as they follow each other in the list, back. */
static void expect_rings(const struct scry_ruby *ruby, const struct scry_ruby_thread *threads,
			 size_t count, struct links *k)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	bool has_ring = l->vm_ractors != SCRY_RUBY_NONE;
	uint64_t ractors = has_ring ? k->was[0] + l->vm_ractors : 0, last = ractors;

	for (size_t i = 0; i < count; i++) {
		uint64_t head = threads[i].ractor + l->ractor_threads;
		uint64_t node = threads[i].th + l->th_node;
		bool is_first = !i || threads[i - 1].ractor != threads[i].ractor;
		bool is_last = i + 1 == count || threads[i + 1].ractor != threads[i].ractor;

		if (is_first)
			expect(k, head, node);
		if (is_first && has_ring) {
			expect(k, last, threads[i].ractor + l->ractor_node);
			last = threads[i].ractor + l->ractor_node;
		}
		expect(k, node, is_last ? head : threads[i + 1].th + l->th_node);
	}
	if (has_ring)
		expect(k, last, ractors);
}

bool scry_ruby_threads_stand(const struct scry_ruby *ruby, const struct scry_ruby_thread *threads,
			     size_t count)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t vm, nts[STAND_MAX / 4];
	uint32_t tids[STAND_MAX / 4];
	struct links k = {.count = 0};

	if (!count || count > STAND_MAX / 4 - 1 || l->th_tid == SCRY_RUBY_NONE ||
	    scry_mem_u64(&ruby->mem, ruby->bias + l->vm_root, &vm))
		return false;
	expect(&k, ruby->bias + l->vm_root, vm);
	if (l->vm_ractors == SCRY_RUBY_NONE && vm != threads[0].ractor)
		return false;
	expect_rings(ruby, threads, count, &k);
	if (!stand(ruby, &k))
		return false;
	for (size_t i = 0; i < count; i++) {
		nts[i] = threads[i].th;
		k.spans[i] = (struct scry_mem_span){threads[i].th + l->th_nt, &nts[i], 8, false};
	}
	if (l->th_nt != SCRY_RUBY_NONE)
		scry_mem_gather(&ruby->mem, k.spans, count);
	for (size_t i = 0; i < count; i++) {
		tids[i] = 0;
		k.spans[i] = (struct scry_mem_span){nts[i] + l->th_tid, &tids[i], 4, false};
	}
	scry_mem_gather(&ruby->mem, k.spans, count);
	for (size_t i = 0; i < count; i++)
		if (tids[i] != threads[i].inner || !threads[i].tid)
			return false;
	return true;
}

int scry_ruby_ractors(const struct scry_ruby *ruby)
{
	int err = -EAGAIN;

	for (int try = 0; try < TRIES && err == -EAGAIN; try++) {
		struct nodes ractors = {0};

		err = walk_ractors(ruby, &ractors);
		free(ractors.at);
		if (err == 0)
			return (int)ractors.count;
	}
	return explain(ruby, err);
}
