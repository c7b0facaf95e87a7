/* See ucontext.h. */
#include "patch/ucontext.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>

#include "base/err.h"
#include "hook/renew.h"
#include "patch/ucontext_body.h"
#include "patch/ucontext_code.h"
#include "sys/text_share.h"

#define CODE_MAX 1024 /* of one of the three; glibc's have 160 to 400 */

static const char *const names[] = {"getcontext", "setcontext", "swapcontext", "pthread_sigmask",
				    "sigprocmask"};
#define NEEDED 4 /* sigprocmask may be the same function, or lead to it */
static const uint8_t *const routines[] = {scry_ucontext_get, scry_ucontext_set, scry_ucontext_swap,
					  scry_ucontext_mask, scry_ucontext_mask2};

/* The object with the three: the C library, or all of a static program. -1: there is none. */
static ssize_t library_of(const struct scry_linkmap *lm)
{
	for (size_t i = 0; i < lm->count; i++)
		if (lm->is_static ? lm->objects[i].is_main
				  : scry_linkmap_is_named(&lm->objects[i], "libc.so.6"))
			return (ssize_t)i;
	return -1;
}

/* Bytes of the function at `at` as they are in the file, which is what planning compares with. */
static size_t read_function(struct scry_hooks *h, size_t object, uint64_t at, uint8_t ret[CODE_MAX])
{
	const struct scry_object *o = &h->objects.objects[object];
	size_t size = CODE_MAX;

	while (size >= 64 && scry_elf_read(o->elf, at - o->bias, ret, size) < 0)
		size /= 2;
	return size >= 64 ? size : 0;
}

static int refuse(const char *name, const char *module, const char *why)
{
	return scry_fail(-ENOTSUP, "%s in '%s' is not glibc's as scry knows it: %s", name, module,
			 why);
}

static int want_at(struct scry_ucontext *u, size_t i, uint64_t at)
{
	const struct scry_hook_to to = {.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_ENTRY};
	char address[32];

	u->at[i] = at;
	snprintf(address, sizeof(address), "0x%llx", (unsigned long long)at);
	return scry_hooks_want(&u->hooks, address, &to);
}

/* By its name. -ENOENT: it has none so. */
static int want_named(struct scry_ucontext *u, size_t object, size_t i)
{
	struct scry_functions found = {0};
	uint64_t at = 0;
	int r = scry_symbols_find(&u->hooks.objects, names[i], &found);

	for (size_t k = 0; k < found.count && r == 0; k++)
		if (found.rows[k].object == object)
			at = found.rows[k].address;
	scry_functions_done(&found);
	if (r < 0 || !at)
		return r < 0 ? r : -ENOENT;
	for (size_t k = 0; k < i; k++)
		if (u->at[k] == at)
			return 0; /* two names of one function */
	return want_at(u, i, at);
}

/* Unwind tables may have two ranges of one function: what follows belongs to it, if it is one. */
static bool is_body(struct scry_ucontext *u, size_t object, size_t i, uint64_t at)
{
	uint8_t code[CODE_MAX];
	size_t size = read_function(&u->hooks, object, at, code);

	return i < SCRY_UCONTEXT_SITES
		       ? size && !scry_ucontext_body(code, size, (enum scry_ucontext_role)i)
		       : scry_ucontext_is_sigmask(code, size);
}

/* By what it does, in a program without names; there must be one, and no other. -ENOENT. */
static int want_nameless(struct scry_ucontext *u, size_t object, size_t i)
{
	const struct scry_object *o = &u->hooks.objects.objects[object];
	struct scry_text *text;
	uint64_t at = 0;
	int r;

	if (!u->hooks.objects.is_static || i >= NEEDED)
		return -ENOENT;
	r = scry_text_share(o->elf, &text);
	for (size_t k = 0; r == 0 && k < scry_text_range_count(text); k++) {
		const struct scry_text_range *range = scry_text_range(text, k);

		if (range->kind != SCRY_TEXT_FUNCTION ||
		    !is_body(u, object, i, range->start + o->bias))
			continue;
		if (at)
			r = scry_fail(-ENOTSUP, "two functions of '%s' do what %s does", u->module,
				      names[i]);
		at = range->start + o->bias;
	}
	if (r == 0)
		scry_text_free(text);
	return r < 0 ? r : at ? want_at(u, i, at) : -ENOENT;
}

static int check_body(struct scry_ucontext *u, size_t object, size_t i)
{
	uint8_t code[CODE_MAX];
	size_t size = read_function(&u->hooks, object, u->at[i], code);
	const char *why = size ? scry_ucontext_body(code, size, (enum scry_ucontext_role)i)
			       : "its code cannot be read";

	return why ? refuse(names[i], u->module, why) : 0;
}

static int check_row(const struct scry_hook *row)
{
	if (row->way == SCRY_WAY_ENTRY && !row->pad)
		return 0;
	return scry_fail(-ENOTSUP, "the entry of a function of '%s' at %#llx cannot be changed: %s",
			 row->module, (unsigned long long)row->address,
			 row->why ? row->why : "there is no room for a jump");
}

int scry_ucontext_find(struct scry_ucontext *u, const struct scry_proc *proc)
{
	ssize_t object;
	int r;

	*u = (struct scry_ucontext){0};
	r = scry_hooks_open(&u->hooks, proc);
	if (r < 0)
		return r;
	object = library_of(&u->hooks.objects);
	if (object < 0)
		return scry_fail(-ENOTSUP,
				 "process %d (%s) has no glibc: it has no libc.so.6 loaded",
				 proc->pid, proc->comm);
	u->module = u->hooks.objects.objects[object].name;
	r = scry_linkmap_open(&u->hooks.objects, (size_t)object);
	for (size_t i = 0; i < SCRY_UCONTEXT_FUNCTIONS && r == 0; i++) {
		r = want_named(u, (size_t)object, i);
		if (r == -ENOENT)
			r = want_nameless(u, (size_t)object, i);
		if (r == -ENOENT && i >= NEEDED)
			r = 0;
		if (r == -ENOENT)
			return scry_fail(-ENOTSUP, "'%s' has no function %s", u->module, names[i]);
		if (r == 0 && i < SCRY_UCONTEXT_SITES)
			r = check_body(u, (size_t)object, i);
	}
	if (r < 0)
		return r;
	scry_error_clear();
	r = scry_hooks_plan(&u->hooks);
	for (size_t i = 0; i < u->hooks.count && (r == 0 || r == -ENOTSUP); i++) {
		int refused = check_row(&u->hooks.rows[i]);

		if (refused < 0)
			return refused;
	}
	return r;
}

void scry_ucontext_close(struct scry_ucontext *u)
{
	scry_hooks_close(&u->hooks);
}

/* While all are stopped: what /proc shows is the mask of the moment, as sigwait and ppoll have one.
 */
static int compare_masks(const struct scry_stw *w, uint64_t *ret)
{
	uint64_t mask = 0, first = 0;
	bool any = false;

	for (size_t i = 0; i < w->count; i++) {
		if (!w->threads[i].stopped)
			continue;
		if (ptrace(PTRACE_GETSIGMASK, w->threads[i].tid, sizeof(mask), &mask) < 0)
			return scry_fail(-errno, "cannot read the signal mask of thread %d: %s",
					 w->threads[i].tid, strerror(errno));
		first = any ? first : mask;
		any = true;
		if (mask != first)
			return scry_fail(-ENOTSUP,
					 "the threads of process %d have different signal masks "
					 "(%016llx, and %016llx in thread %d): its contexts may "
					 "need the system call",
					 w->pid, (unsigned long long)first,
					 (unsigned long long)mask, w->threads[i].tid);
	}
	*ret = first;
	return 0;
}

int scry_ucontext_common_mask(struct scry_inject *inj, uint64_t *ret, size_t *ret_threads)
{
	struct scry_stw w;
	int r = scry_inject_stop(inj, &w);

	if (r < 0)
		return r;
	r = compare_masks(&w, ret);
	*ret_threads = w.count;
	scry_inject_go(inj, &w);
	return r;
}

/* Of a label of the code, from its first byte. */
static size_t offset_of(const uint8_t *label)
{
	return (size_t)((uintptr_t)label - (uintptr_t)scry_ucontext_code);
}

static size_t number_of(const struct scry_ucontext *u, uint64_t address)
{
	size_t i = 0;

	while (i + 1 < SCRY_UCONTEXT_FUNCTIONS && u->at[i] != address)
		i++; /* each row was asked for by one of them */
	return i;
}

/* The row's stub is a routine; the copy of what is displaced comes into the text's room for it. */
static int lay(const struct scry_ucontext *u, struct scry_hook *row, uint64_t text, uint8_t *code)
{
	const size_t number = number_of(u, row->address);
	const size_t at = offset_of(scry_ucontext_copies) + number * UCONTEXT_COPY;
	const struct scry_x86_code function = {.bytes = row->code,
					       .address = row->address,
					       .size = row->size,
					       .avail = row->avail};
	const struct scry_x86_place place = {.address = text + at, .back = true};
	struct scry_x86_moved moved;
	enum scry_x86_refusal refusal = scry_x86_move(&function, &row->window, &place, &moved);

	if (refusal != SCRY_X86_OK || moved.bytes > UCONTEXT_COPY)
		return scry_fail(-ENOTSUP, "the first instructions of %s cannot be moved: %s",
				 names[number], scry_x86_why(refusal));
	memcpy(code + at, moved.code, moved.bytes);
	memcpy(row->copied, moved.at, sizeof(row->copied));
	row->copy = text + at;
	row->stub = text + offset_of(routines[number]);
	row->has_stub = true;
	return 0;
}

/* The text for a patch there. */
static int make_text(struct scry_ucontext *u, const struct scry_patch_head *head,
		     uint8_t ret[UCONTEXT_TEXT])
{
	int r = 0;

	memset(ret, 0xcc, UCONTEXT_TEXT);
	memcpy(ret, scry_ucontext_code, offset_of(scry_ucontext_code_end));
	for (size_t i = 0; i < u->hooks.count && r == 0; i++)
		r = lay(u, &u->hooks.rows[i], head->text, ret);
	return r;
}

/* One that was taken out and had to stay mapped: with the very same code it is put in again. */
static bool find_left(struct scry_ucontext *u, struct scry_inject *inj, struct scry_patch_head *ret)
{
	uint8_t want[UCONTEXT_TEXT], have[UCONTEXT_TEXT];

	scry_maps_done(&inj->maps);
	return scry_maps_read(inj->proc->pid, &inj->maps) == 0 &&
	       scry_lasting_find(&inj->mem, &inj->maps, SCRY_UCONTEXT_NAME, ret) == 0 &&
	       ret->stage == SCRY_PATCH_OUT && ret->text_size == UCONTEXT_TEXT &&
	       ret->data_size >= UCONTEXT_TEXT && ret->journal_room == SCRY_UCONTEXT_FUNCTIONS &&
	       make_text(u, ret, want) == 0 &&
	       scry_mem_read(&inj->mem, ret->text, have, sizeof(have)) == 0 &&
	       !memcmp(want, have, sizeof(have));
}

static int write_data(const struct scry_inject *inj, const struct scry_patch_head *head,
		      uint64_t mask)
{
	const uint8_t flags[2] = {[UCONTEXT_MEASURING] = 1};
	int r = scry_edit_poke(inj->mem.fd, head->data + UCONTEXT_MASK, &mask, sizeof(mask));

	return r < 0 ? r : scry_edit_poke(inj->mem.fd, head->data, flags, sizeof(flags));
}

int scry_ucontext_apply(struct scry_ucontext *u, struct scry_inject *inj, uint64_t mask,
			struct scry_lasting *ret)
{
	uint8_t text[UCONTEXT_TEXT];
	int r = 0;

	*ret = (struct scry_lasting){0};
	if (!find_left(u, inj, &ret->head)) {
		ret->head = (struct scry_patch_head){.kind = SCRY_PATCH_UCONTEXT,
						     .name = SCRY_UCONTEXT_NAME,
						     .journal_room = SCRY_UCONTEXT_FUNCTIONS,
						     .text_size = UCONTEXT_TEXT,
						     .data_size = UCONTEXT_TEXT};
		r = scry_lasting_map(inj, u->at[SCRY_UCONTEXT_SWAP], &ret->head);
		if (r == 0)
			r = make_text(u, &ret->head, text);
		if (r == 0)
			r = scry_edit_poke(inj->mem.fd, ret->head.text, text, sizeof(text));
	}
	if (r == 0)
		r = write_data(inj, &ret->head, mask);
	if (r < 0 && !*scry_error())
		scry_fail(r, "cannot write into process %d", inj->proc->pid);
	return r < 0 ? r : scry_lasting_on(ret, inj, &u->hooks);
}

int scry_ucontext_start(const struct scry_mem *mem, const struct scry_patch_head *head)
{
	const uint8_t no = 0;
	int r = scry_edit_poke(mem->fd, head->data + UCONTEXT_MEASURING, &no, 1);

	return r < 0 ? scry_fail(r, "cannot write into process %d", mem->pid) : 0;
}

int scry_ucontext_counts(const struct scry_mem *mem, const struct scry_patch_head *head,
			 struct scry_ucontext_counts *ret)
{
	uint64_t page[UCONTEXT_TEXT / 8];
	const uint8_t *bytes = (const uint8_t *)page;
	int r;

	if (head->kind != SCRY_PATCH_UCONTEXT || head->data_size < sizeof(page))
		return -EFAULT;
	r = scry_mem_read(mem, head->data, page, sizeof(page));
	if (r < 0)
		return r;
	*ret = (struct scry_ucontext_counts){.is_measuring = bytes[UCONTEXT_MEASURING],
					     .has_changed = bytes[UCONTEXT_CHANGED]};
	for (size_t line = 0; line < UCONTEXT_LINE_COUNT; line++) {
		const uint64_t *words = page + (UCONTEXT_LINES + line * UCONTEXT_LINE) / 8;

		for (size_t i = 0; i < SCRY_UCONTEXT_SITES; i++) {
			ret->fast[i] += words[2 * i];
			ret->slow[i] += words[2 * i + 1];
		}
	}
	return 0;
}
