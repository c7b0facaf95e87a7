/*
 * Infers the VM, its ractors, their thread lists, the word that holds the VM, and native thread
 * ids.
 *
 * Lists are intrusive rings whose head lies in the owner. The trick: a ring proves three things at
 * once. If walking from a word comes back to it through exactly the known threads, then this word
 * is the head, it lies in the owner, and the nodes lie at one distance inside the threads.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define OWNER_BYTES 2048u
#define TH_BYTES 1024u
#define MEMBERS_MAX (SCRY_INFER_THREADS + 2)

/* Does the ring at `head` go through exactly the members, each at `member + node`? */
static bool ring_fits(struct scry_infer *infer, uint64_t head, const uint64_t *members, size_t n,
		      uint64_t node)
{
	bool seen[MEMBERS_MAX] = {false};
	uint64_t at = head, next, back;

	for (size_t step = 0; step <= n; step++) {
		size_t i;

		if (!scry_infer_word(infer, at, &next) ||
		    !scry_infer_word(infer, next + 8, &back) || back != at)
			return false;
		at = next;
		if (at == head)
			return step == n;
		for (i = 0; i < n && members[i] + node != at; i++)
			;
		if (i == n || seen[i])
			return false;
		seen[i] = true;
	}
	return false;
}

/* Finds (head in owner, node in members). */
static void pick_ring(struct scry_infer *infer, uint64_t owner, const uint64_t *members, size_t n,
		      struct scry_pick *ret)
{
	for (uint64_t head = 0; head < OWNER_BYTES; head += 8) {
		uint64_t first;

		if (!scry_infer_word(infer, owner + head, &first))
			return;
		/* The first node decides the distance: it lies in one of the members. */
		for (size_t i = 0; i < n; i++) {
			uint64_t node = first - members[i];

			if (node < TH_BYTES && ring_fits(infer, owner + head, members, n, node))
				scry_pick_add(ret, head << 32 | node);
		}
	}
}

/* Is the word at `at` in th `first` for the main ractor's threads and `other` for the second's? */
static bool common_at(struct scry_infer *infer, uint64_t at, uint64_t first, uint64_t other)
{
	uint64_t word;

	for (size_t i = 0; i < infer->thread_count; i++) {
		if (!scry_infer_word(infer, infer->threads[i].th + at, &word) || word != first)
			return false;
	}
	return scry_infer_word(infer, infer->main.th + at, &word) && word == first &&
	       scry_infer_word(infer, infer->other.th + at, &word) && word == other;
}

static int infer_ractors(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	const struct scry_fact *f = scry_fact_next(infer->calib, NULL, "ractor");
	uint64_t members[MEMBERS_MAX];
	struct scry_pick owner = {0}, ring = {.parts = 2};
	size_t n = 0;
	int err;

	if (!f || !infer->other.value)
		return scry_fail(-ENOTSUP, "cannot learn ractors: this Ruby has none");
	if (!scry_infer_word(infer, scry_fact_addr(f, 1) + infer->data_offset, &infer->ractor))
		return scry_fail(-ENOTSUP, "cannot read the main ractor of the child");
	f = scry_fact_next(infer->calib, f, "ractor");
	if (!scry_infer_word(infer, scry_fact_addr(f, 1) + infer->data_offset,
			     &infer->other_ractor))
		return scry_fail(-ENOTSUP, "cannot read the second ractor of the child");
	for (uint64_t at = 0; at < TH_BYTES; at += 8) {
		if (common_at(infer, at, infer->ractor, infer->other_ractor))
			scry_pick_add(&owner, at);
	}
	err = scry_infer_item(infer, "ractor of its thread", &owner, "%zu threads, 2 ractors",
			      infer->thread_count + 2);
	if (err)
		return err;
	l->th_ractor = (uint32_t)owner.value;

	for (size_t i = 0; i < infer->thread_count; i++)
		members[n++] = infer->threads[i].th;
	members[n++] = infer->main.th;
	pick_ring(infer, infer->ractor, members, n, &ring);
	err = scry_infer_item(infer, "thread ring of a ractor", &ring, "a ring of %zu threads", n);
	l->ractor_threads = (uint32_t)(ring.value >> 32);
	l->th_node = (uint32_t)ring.value;
	if (!err && !ring_fits(infer, infer->other_ractor + l->ractor_threads, &infer->other.th, 1,
			       l->th_node))
		err = scry_fail(-ENOTSUP,
				"the second ractor's threads are not where the first's are");
	return err;
}

/* Each word that all threads have in common may be the VM; it is the one that holds the ring of
 * ractors. */
static int infer_vm_struct(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	const uint64_t ractors[2] = {infer->ractor, infer->other_ractor};
	struct scry_pick vm = {0}, ring = {.parts = 2};
	int err;

	for (uint64_t at = 0; at < TH_BYTES; at += 8) {
		struct scry_pick found = {.parts = 2};
		uint64_t word;

		if (!scry_infer_word(infer, infer->main.th + at, &word) || word < 4096)
			continue;
		if (!common_at(infer, at, word, word))
			continue;
		pick_ring(infer, word, ractors, 2, &found);
		if (!found.hits)
			continue;
		/* A struct inside the VM would see the same ring; the VM's own address is in the
		 * module. */
		scry_pick_add(&vm, at);
		ring = found;
		infer->vm = word;
	}
	err = scry_infer_item(infer, "VM of its thread", &vm, "%zu threads, ring of 2 ractors",
			      infer->thread_count + 2);
	if (!err)
		err = scry_infer_item(infer, "ractor ring of the VM", &ring, "a ring of 2 ractors");
	l->th_vm = (uint32_t)vm.value;
	l->vm_ractors = (uint32_t)(ring.value >> 32);
	l->ractor_node = (uint32_t)ring.value;
	return err;
}

bool scry_infer_is_data(const struct scry_ruby *ruby, size_t i)
{
	const struct scry_map_entry *e = &ruby->maps.entries[i];

	if (!e->r)
		return false;
	if (strcmp(e->path, ruby->module) == 0)
		return !e->x && e->w;
	return e->w && e->inode == 0 && e->path[0] == '\0' && i > 0 && e[-1].end == e->start &&
	       strcmp(e[-1].path, ruby->module) == 0;
}

static int infer_root(struct scry_infer *infer)
{
	struct scry_ruby *child = infer->child;
	uint64_t named = scry_ruby_symbol(child, "ruby_current_vm_ptr"), word;
	struct scry_pick pick = {0};
	unsigned int held = 0;

	for (size_t i = 0; i < child->maps.count; i++) {
		const struct scry_map_entry *e = &child->maps.entries[i];

		if (!scry_infer_is_data(child, i) || e->end - e->start > 64u << 20)
			continue;
		for (uint64_t at = e->start; at < e->end; at += 8) {
			if (!scry_infer_word(infer, at, &word) || word != infer->vm)
				continue;
			held++;
			if (!named || at == named)
				scry_pick_add(&pick, at - child->bias);
		}
	}
	child->layout.vm_root = pick.value;
	return scry_infer_item(infer, "VM word in the module", &pick, "%u words hold the VM%s",
			       held, named ? ", one is ruby_current_vm_ptr" : "");
}

static void infer_hooks(struct scry_infer *infer)
{
	struct scry_ruby_check check = {
		.item = "event hooks", .how = "calibration child", .ok = true};
	const struct scry_fact *f = scry_fact_next(infer->calib, NULL, "hooks");
	bool all = f && scry_fact_number(f, 1) == 1;
	bool has_ractors = scry_fact_next(infer->calib, NULL, "ractor") != NULL;
	bool breaks = f && f->count > 1 && strcmp(f->words[1], "crash") == 0;

	infer->child->layout.hooks_of_all_ractors = all;
	/* Without an answer the worse one is taken. */
	infer->child->layout.hooks_break_ractors = breaks || (has_ractors && !f);
	snprintf(check.value, sizeof(check.value), all ? "of all ractors" : "of one ractor");
	snprintf(check.proof, sizeof(check.proof), "%s",
		 breaks	       ? "this Ruby crashes when a ractor starts while they are on"
		 : f	       ? "an object made in a second ractor"
		 : has_ractors ? "not tried: a ractor that starts may crash while they are on"
			       : "no ractors");
	scry_ruby_add_check(infer->target, &check);
}

/* The word at `at` in every thread, 0 when they differ. */
static uint64_t word_of_all(struct scry_infer *infer, uint64_t at)
{
	uint64_t first, word;

	if (!scry_infer_word(infer, infer->main.th + at, &first))
		return 0;
	for (size_t i = 0; i < infer->thread_count; i++) {
		if (!scry_infer_word(infer, infer->threads[i].th + at, &word) || word != first)
			return 0;
	}
	return first;
}

/* 2.7 has no ractors: the threads hang on the VM itself, which then stands for the only ractor. */
static int infer_lone_vm(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick vm = {0}, ring = {.parts = 2};
	uint64_t members[MEMBERS_MAX];
	size_t n = 0;
	int err;

	for (size_t i = 0; i < infer->thread_count; i++)
		members[n++] = infer->threads[i].th;
	members[n++] = infer->main.th;
	for (uint64_t at = 0; at < TH_BYTES; at += 8) {
		struct scry_pick found = {.parts = 2};
		uint64_t word = word_of_all(infer, at);

		if (word < 4096)
			continue;
		pick_ring(infer, word, members, n, &found);
		if (!found.hits)
			continue;
		scry_pick_add(&vm, at);
		ring = found;
		infer->vm = word;
	}
	err = scry_infer_item(infer, "VM of its thread", &vm, "%zu threads, no ractors", n);
	if (!err)
		err = scry_infer_item(infer, "thread ring of the VM", &ring,
				      "a ring of %zu threads", n);
	l->th_vm = l->th_ractor = (uint32_t)vm.value;
	l->ractor_threads = (uint32_t)(ring.value >> 32);
	l->th_node = (uint32_t)ring.value;
	l->vm_ractors = SCRY_RUBY_NONE;
	return err;
}

int scry_infer_vm(struct scry_infer *infer)
{
	int err;

	infer_hooks(infer);
	if (!scry_fact_next(infer->calib, NULL, "ractor")) {
		err = infer_lone_vm(infer);
		return err ? err : infer_root(infer);
	}
	err = infer_ractors(infer);

	if (!err)
		err = infer_vm_struct(infer);
	if (!err)
		err = infer_root(infer);
	return err;
}

/* The child's tasks, by the numbers that it knows them by. */
struct tasks {
	ssize_t count;
	pid_t *tids;
};

static struct tasks find_tasks(pid_t pid)
{
	struct tasks tasks = {0};

	tasks.count = scry_proc_tasks(pid, &tasks.tids);
	for (ssize_t i = 0; i < tasks.count; i++)
		tasks.tids[i] = scry_proc_tid_inside(pid, tasks.tids[i]);
	return tasks;
}

static bool is_task(const struct tasks *tasks, uint32_t tid)
{
	ssize_t i = 0;

	while (i < tasks->count && tasks->tids[i] != (pid_t)tid)
		i++;
	return i < tasks->count;
}

/* Does the int at `at`, in th or behind its pointer at `nt`, give each known thread's id? */
static bool tid_fits(struct scry_infer *infer, const struct tasks *tasks, uint32_t nt, uint64_t at)
{
	uint32_t seen[SCRY_INFER_THREADS + 1];

	for (size_t i = 0; i <= infer->thread_count; i++) {
		struct scry_infer_thread *t =
			i < infer->thread_count ? &infer->threads[i] : &infer->main;
		uint64_t base = t->th;

		if (nt != SCRY_RUBY_NONE && !scry_infer_word(infer, t->th + nt, &base))
			return false;
		if (scry_mem_u32(&infer->child->mem, base + at, &seen[i]) || seen[i] == 0)
			return false;
		if (t->tid ? seen[i] != t->tid : !is_task(tasks, seen[i]))
			return false;
		for (size_t j = 0; j < i; j++) {
			if (seen[j] == seen[i])
				return false;
		}
	}
	return true;
}

#define BEHIND_BYTES 1024u /* to 3.0 the C library's own thread struct is what th points at */

/*
 * In th (3.1), behind a pointer to the VM's native thread (3.2 on) or to the C library's (to 3.0).
 * Without it threads have no tid.
 */
int scry_infer_tids(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct tasks tasks = find_tasks(infer->calib->pid);
	struct scry_pick pick = {0};
	char proof[96];

	l->th_tid = l->th_nt = SCRY_RUBY_NONE;
	for (uint64_t at = 0; at < TH_BYTES && !pick.hits; at += 4) {
		if (!tid_fits(infer, &tasks, SCRY_RUBY_NONE, at))
			continue;
		scry_pick_add(&pick, at);
		l->th_tid = (uint32_t)at;
	}
	for (uint32_t nt = 0; nt < TH_BYTES && !pick.hits; nt += 8) {
		for (uint64_t at = 0; at < BEHIND_BYTES && !pick.hits; at += 4) {
			if (!tid_fits(infer, &tasks, nt, at))
				continue;
			pick.parts = 2;
			scry_pick_add(&pick, (uint64_t)nt << 32 | at);
			l->th_nt = nt;
			l->th_tid = (uint32_t)at;
		}
	}
	if (tasks.count > 0)
		free(tasks.tids);
	snprintf(proof, sizeof(proof), "%zu threads%s", infer->thread_count + 1,
		 pick.parts ? ", behind a pointer" : "");
	scry_infer_optional(infer, "native thread id", &pick, proof,
			    "threads have no tid: a live process cannot be entered");
	return 0;
}
