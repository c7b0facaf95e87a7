/*
 * The patch's text is a room for stubs, then the object's own: each stub is the copy of a
 * function's first instructions, which is what SCRY_ORIGINAL calls, or the code of patch/before.S,
 * around.S or wrap.S with that copy behind it; then, for the last, thunks.
 */
#include "patch/apply.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "hook/renew.h"
#include "hook/shadow.h"
#include "patch/wrap.h"
#include "scry/patch.h"
#include "sys/own_return.h"
#include "sys/text_share.h"

#define STUB_BYTES 768
#define STATE_WANTED 0xe7u /* x87, SSE, AVX, AVX-512 */
#define STATE_LEAST 576u   /* of the first two, with the head */

extern const uint8_t scry_before[], scry_before_words[], scry_before_end[];
extern const uint8_t scry_around[], scry_around_words[], scry_around_end[];
extern const uint8_t scry_wrap[], scry_wrap_words_at[], scry_wrap_end[];

static size_t distance(const uint8_t *from, const uint8_t *to)
{
	return (size_t)((uintptr_t)to - (uintptr_t)from);
}

static int read_file(struct scry_patch_file *f, uint8_t **ret, size_t *ret_size)
{
	struct stat st;
	uint8_t *bytes = NULL;
	size_t done = 0;
	ssize_t n = 1;
	int r = 0, fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0)
		r = scry_fail(-errno, "cannot read '%s': %s", f->path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || st.st_size > SCRY_OBJECT_BYTES_MAX)
		r = scry_fail(-ENOTSUP, "'%s' is not a file, or is larger than %u MiB", f->path,
			      SCRY_OBJECT_BYTES_MAX >> 20);
	if (r == 0) {
		bytes = malloc((size_t)st.st_size + 1);
		r = bytes ? 0 : scry_no_memory("'%s'", f->path);
	}
	while (r == 0 && n > 0 && done < (size_t)st.st_size) {
		n = read(fd, bytes + done, (size_t)st.st_size - done);
		done += n > 0 ? (size_t)n : 0;
	}
	if (r == 0 && n < 0)
		r = scry_fail(-errno, "cannot read '%s': %s", f->path, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (r < 0)
		free(bytes);
	*ret = bytes;
	*ret_size = done;
	return r;
}

void scry_patch_file_name(const char *path, char ret[SCRY_PATCH_NAME])
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t size = strlen(base);

	if (size > 3 && !strcmp(base + size - 3, ".so"))
		size -= 3;
	snprintf(ret, SCRY_PATCH_NAME, "%.*s", (int)size, base);
}

/* --- imports -----------------------------------------------------------------------------------
 */

/* What an IFUNC's resolver chose, by the slots of loaded objects. 0: not known. */
static uint64_t chosen(struct scry_patch_file *f, const struct scry_functions *found, size_t i)
{
	struct scry_slots slots = {0};
	uint64_t at = 0;

	if (scry_slots_find(&f->hooks.objects, &f->hooks.mem, found, &slots) == 0 &&
	    i < slots.function_count)
		at = slots.implementations[i];
	scry_slots_done(&slots);
	return scry_linkmap_at(&f->hooks.objects, at) >= 0 ? at : 0;
}

static int address_of(struct scry_patch_file *f, const struct scry_functions *found,
		      const struct scry_function *row, uint64_t *ret)
{
	*ret = row->is_ifunc ? chosen(f, found, (size_t)(row - found->rows)) : row->address;
	return *ret ? 0
		    : scry_fail(-ENOTSUP,
				"'%s' calls %s, which is chosen when a program starts (IFUNC), and "
				"process %d has not called it yet; fix: write it yourself, or call "
				"another function",
				f->path, row->name, f->hooks.proc->pid);
}

static int fail_absent(const struct scry_patch_file *f, const struct scry_object_import *import)
{
	return scry_fail(-ENOTSUP,
			 "'%s' calls %s%s%s, which nothing that process %d has loaded exports",
			 f->path, import->name, *import->version ? ", version " : "",
			 import->version, f->hooks.proc->pid);
}

/* The definition that the program's own loader would choose: the first in its order, of the version
 * that is asked for. */
static int find_import(void *arg, const struct scry_object_import *import, uint64_t *ret)
{
	struct scry_patch_file *f = arg;
	struct scry_functions found = {0};
	const struct scry_function *best = NULL;
	char request[384];
	int r;

	snprintf(request, sizeof(request), "%s%s%s", import->name, *import->library ? "@" : "",
		 import->library);
	r = scry_symbols_find_exported(&f->hooks.objects, request, &found);
	for (size_t i = 0; i < found.count && r == 0; i++) {
		const struct scry_function *row = &found.rows[i];

		if (*import->version && strcmp(row->version, import->version) != 0)
			continue;
		if (!best || row->object < best->object)
			best = row;
	}
	if (!best && r == 0 && found.count == 1) /* a function that has several versions */
		best = found.rows;
	if (best)
		r = address_of(f, &found, best, ret);
	else if (r == 0 || r == -ENOENT)
		r = import->is_weak ? 0 : fail_absent(f, import);
	if (!best && r == 0)
		*ret = 0;
	if (r == 0)
		scry_error_clear();
	scry_functions_done(&found);
	return r;
}

/* --- functions to be changed -------------------------------------------------------------------
 */

static bool is_function(const struct scry_object_entry *e)
{
	return e->kind != SCRY_PATCH_COUNTER && e->kind != SCRY_PATCH_LOG;
}

/* Calls from its own object: a compiler that sees both may keep values over the call in registers
 * that the function leaves alone (gcc's -fipa-ra, part of -O2), and another function does not. */
static bool is_called_within(struct scry_patch_file *f, uint64_t address)
{
	const ssize_t object = scry_linkmap_at(&f->hooks.objects, address);
	const struct scry_transfers none = {0};
	struct scry_text *text;
	bool is = true; /* where it is not known */

	if (object < 0 || scry_linkmap_open(&f->hooks.objects, (size_t)object) < 0 ||
	    scry_text_share(f->hooks.objects.objects[object].elf, &text) < 0)
		return is;
	is = scry_text_sites(text, address - f->hooks.objects.objects[object].bias, &none) > 0;
	scry_text_free(text);
	return is;
}

/* Cancellation unwinds libc's own functions, too, which hold locks (fgets that of its FILE): the
 * object that imports pthread_cancel; -1: none. One that finds it otherwise is not known. */
static ssize_t canceller(struct scry_patch_file *f)
{
	struct scry_linkmap *lm = &f->hooks.objects;
	ssize_t who = -1;
	uint64_t slot;

	for (size_t i = 0; i < lm->count && who < 0; i++)
		if (!lm->objects[i].is_loader && scry_linkmap_open(lm, i) == 0 &&
		    scry_elf_got_slot(lm->objects[i].elf, "pthread_cancel", &slot) == 0)
			who = (ssize_t)i;
	scry_error_clear();
	return who;
}

/* No unwinder knows of a replaced function, nor of a thunk that a return leads to. */
static int check_unwound(struct scry_patch_file *f)
{
	const int pid = f->hooks.proc->pid;
	ssize_t who;

	if (scry_linkmap_may_unwind(&f->hooks.objects))
		return scry_fail(
			-ENOTSUP,
			"process %d has code that exceptions or cancellation unwind (C++, or "
			"-fexceptions), and what passes a replaced function that way ends the "
			"program or skips its clean-ups; fix: SCRY_BEFORE, or "
			"--no-exceptions, if you know that nothing does",
			pid);
	who = canceller(f);
	if (who >= 0)
		return scry_fail(
			-ENOTSUP,
			"process %d can cancel threads (%s calls pthread_cancel), and a thread "
			"that "
			"is cancelled in a replaced or followed function leaves locks of libc's "
			"taken (of a FILE that it reads); fix: SCRY_BEFORE, or --no-exceptions, if "
			"you know that none is cancelled there",
			pid,
			f->hooks.objects.objects[who].name[0] ? f->hooks.objects.objects[who].name
							      : "the program");
	return 0;
}

static int check_replaced(struct scry_patch_file *f, const struct scry_patch_risks *risks)
{
	int r = risks->no_exceptions ? 0 : check_unwound(f);

	if (r < 0)
		return r;
	for (size_t i = 0; i < f->object.entry_count && !risks->no_ipa_ra; i++)
		if (f->object.entries[i].kind == SCRY_PATCH_REPLACE &&
		    is_called_within(f, f->row_of[i]))
			return scry_fail(
				-ENOTSUP,
				"%s is called within its own object, where the compiler may count "
				"on registers that it leaves alone (gcc -O2 has -fipa-ra), and "
				"your function does not; fix: SCRY_BEFORE or SCRY_AROUND, which "
				"keep all, or --no-ipa-ra, if the object was compiled with "
				"-fno-ipa-ra or by clang",
				f->object.entries[i].name);
	return 0;
}

/* With what the search said: it knows whether the library is missing, or the function in it. */
static int fail_unknown(const struct scry_patch_file *f, const struct scry_object_entry *e)
{
	const bool is_glued = !strchr(e->name, '@') && strstr(e->name, ".so");
	char why[512];

	snprintf(why, sizeof(why), "%s", scry_error());
	return scry_fail(-ENOTSUP, "'%s' changes %s, which process %d does not have: %s", f->path,
			 e->name, f->hooks.proc->pid,
			 is_glued
				 ? "a library's name begins with '@'; fix: \"@libc.so.6\" in place "
				   "of \"libc.so.6\""
				 : why);
}

static int want(struct scry_patch_file *f, size_t i)
{
	const struct scry_object_entry *e = &f->object.entries[i];
	/* whose return is followed is a CALL, for hook/shadow_check */
	const struct scry_hook_to to = {.kind = e->kind == SCRY_PATCH_WRAP ? SCRY_HOOK_CALL
									   : SCRY_HOOK_REPLACE,
					.way = SCRY_WAY_ENTRY};
	const size_t before = f->hooks.count;
	int r = scry_hooks_want(&f->hooks, e->name, &to);

	if (r == -ENOENT)
		return fail_unknown(f, e);
	if (r < 0)
		return r;
	if (f->hooks.count == before)
		return scry_fail(-ENOTSUP, "'%s' changes %s twice", f->path, e->name);
	if (f->hooks.count != before + 1)
		return scry_fail(-ENOTSUP,
				 "'%s' changes %s, of which process %d has %zu that differ; fix: "
				 "name the library (SCRY_REPLACE_IN, SCRY_BEFORE_IN, ...)",
				 f->path, e->name, f->hooks.proc->pid, f->hooks.count - before);
	f->row_of[i] = f->hooks.rows[before].address;
	f->near = f->row_of[i];
	return 0;
}

/* Which scry_shadow_refuse gives of functions that are known by name. */
static bool asks_its_caller(struct scry_patch_file *f, const struct scry_hook *row)
{
	const ssize_t object = scry_linkmap_at(&f->hooks.objects, row->address);
	struct scry_text *text = object < 0 ? NULL : f->hooks.texts[object];
	const uint64_t at =
		text ? row->address - f->hooks.objects.objects[object].bias : row->address;
	const struct scry_text_range *range = text ? scry_text_at(text, at) : NULL;
	struct scry_x86_code code;

	if (!range || range->start != at)
		return false;
	scry_text_bytes(text, range, &code);
	return scry_own_return_is_read(&code);
}

/* Each of them: one that is left out would be missed unawares. */
static int check_followed(struct scry_patch_file *f)
{
	int r = scry_shadow_refuse(&f->hooks);

	for (size_t i = 0; i < f->hooks.count && r == 0; i++)
		if (f->hooks.rows[i].to.kind == SCRY_HOOK_CALL &&
		    asks_its_caller(f, &f->hooks.rows[i]))
			r = scry_fail(-ENOTSUP,
				      "the return of %s of '%s' cannot be followed: its code looks "
				      "at its return address, and would find another; fix: "
				      "SCRY_BEFORE",
				      f->hooks.requests[f->hooks.rows[i].request],
				      f->hooks.rows[i].module);
	for (size_t i = 0; i < f->hooks.count && r == 0; i++)
		if (!f->hooks.rows[i].way)
			r = scry_fail(-ENOTSUP,
				      "the return of %s of '%s' cannot be followed: %s; fix: "
				      "SCRY_BEFORE",
				      f->hooks.requests[f->hooks.rows[i].request],
				      f->hooks.rows[i].module, f->hooks.rows[i].why);
	return r;
}

static int plan(struct scry_patch_file *f, const struct scry_patch_risks *risks)
{
	bool replaces = false, follows = false;
	int r = 0;

	for (size_t i = 0; i < f->object.entry_count && r == 0; i++) {
		replaces |= f->object.entries[i].kind != SCRY_PATCH_BEFORE &&
			    is_function(&f->object.entries[i]);
		follows |= f->object.entries[i].kind == SCRY_PATCH_WRAP;
		if (is_function(&f->object.entries[i]))
			r = want(f, i);
	}
	if (r < 0)
		return r;
	if (!f->near)
		return scry_fail(-ENOTSUP, "'%s' changes no function", f->path);
	r = replaces ? check_replaced(f, risks) : 0;
	if (r == 0 && follows)
		r = scry_shadow_check(&f->hooks);
	if (r < 0)
		return r;
	r = scry_hooks_plan(&f->hooks); /* its own sentence names ways that there are not here */
	for (size_t i = 0; i < f->hooks.count && (r == 0 || r == -ENOTSUP); i++) {
		const struct scry_hook *row = &f->hooks.rows[i];

		if (row->way != SCRY_WAY_ENTRY || row->pad)
			return scry_fail(-ENOTSUP, "%s of '%s' cannot be changed at its entry: %s",
					 f->hooks.requests[row->request], row->module,
					 row->why ? row->why : "there is no room for a jump");
	}
	return follows ? check_followed(f) : r;
}

/* --- in ----------------------------------------------------------------------------------------
 */

int scry_patch_file_open(struct scry_patch_file *f, const char *path, const struct scry_proc *proc,
			 const struct scry_patch_risks *risks)
{
	uint8_t *file;
	size_t size;
	int r;

	*f = (struct scry_patch_file){.path = path, .hooks.mem.fd = -1};
	scry_patch_file_name(path, f->name);
	r = read_file(f, &file, &size);
	if (r == 0)
		r = scry_patch_object_read(file, size, path, &f->object);
	if (r == 0)
		r = scry_hooks_open(&f->hooks, proc);
	if (r == 0) /* for an address that is none yet: names and imports are judged */
		r = scry_patch_object_bind(&f->object, 1ull << 40, path, find_import, f);
	return r < 0 ? r : plan(f, risks);
}

void scry_patch_file_close(struct scry_patch_file *f)
{
	if (f->hooks.proc)
		scry_hooks_close(&f->hooks);
	scry_patch_object_free(&f->object);
}

void scry_patch_file_describe(const struct scry_patch_file *f, FILE *out)
{
	for (size_t i = 0; i < f->object.entry_count; i++) {
		const struct scry_object_entry *e = &f->object.entries[i];

		if (!is_function(e))
			continue;
		for (size_t k = 0; k < f->hooks.count; k++)
			if (f->hooks.rows[k].address == f->row_of[i])
				fprintf(out, "  %s  %s of %s, 5 bytes at %#llx\n",
					e->kind == SCRY_PATCH_BEFORE	? "before "
					: e->kind == SCRY_PATCH_REPLACE ? "replace"
					: e->kind == SCRY_PATCH_WRAP	? "wrap   "
									: "around ",
					scry_text_shown(e->name).text,
					scry_text_shown(f->hooks.rows[k].module).text,
					(unsigned long long)(f->hooks.rows[k].address +
							     f->hooks.rows[k].window.endbr));
	}
}

static uint64_t stub_bytes(const struct scry_patch_file *f)
{
	const uint64_t bytes = f->object.entry_count * STUB_BYTES;

	return (bytes + SCRY_PAGE - 1) / SCRY_PAGE * SCRY_PAGE;
}

/* Of the text, before the object: stubs, then the thunks of followed returns. */
static uint64_t front_bytes(const struct scry_patch_file *f)
{
	return stub_bytes(f) + scry_wrap_text_bytes(&f->object);
}

static struct scry_wrap_place wrap_place(const struct scry_patch_file *f,
					 const struct scry_patch_head *head)
{
	return (struct scry_wrap_place){.text = head->text + stub_bytes(f),
					.table = head->data + f->object.data_size};
}

/* What of the state is saved, and how many bytes that takes: its components have fixed places
 * (Intel's manual, volume 1, 13.5). -ENOTSUP with a sentence. */
static int state_size(struct scry_wrap_state *ret)
{
	uint32_t a, b, c, d, low, high;

	__cpuid(1, a, b, c, d);
	if (!(c & bit_OSXSAVE))
		return scry_fail(-ENOTSUP,
				 "this processor has no XSAVE, by which SCRY_BEFORE, SCRY_AROUND "
				 "and SCRY_WRAP keep vector registers; fix: SCRY_REPLACE");
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	ret->mask = low & STATE_WANTED;
	ret->bytes = STATE_LEAST;
	for (uint32_t i = 2; i < 32; i++) {
		if (!(ret->mask >> i & 1))
			continue;
		__cpuid_count(0xd, i, a, b, c, d);
		ret->bytes = a + b > ret->bytes ? a + b : ret->bytes;
	}
	return 0;
}

struct code { /* NULL: there is none, the function leads to the handler itself */
	const uint8_t *start, *words, *end;
};

static struct code code_of(uint32_t kind)
{
	if (kind == SCRY_PATCH_BEFORE)
		return (struct code){scry_before, scry_before_words, scry_before_end};
	if (kind == SCRY_PATCH_WRAP)
		return (struct code){scry_wrap, scry_wrap_words_at, scry_wrap_end};
	if (kind == SCRY_PATCH_AROUND || kind == SCRY_PATCH_AROUND_VOID)
		return (struct code){scry_around, scry_around_words, scry_around_end};
	return (struct code){0};
}

/* Code and words of entry `i`, whose handler lies at `handler`. */
static int fill_code(const struct scry_patch_file *f, size_t i, uint64_t handler,
		     const struct scry_wrap_place *place, uint8_t *code)
{
	const uint32_t kind = f->object.entries[i].kind;
	const struct code t = code_of(kind);
	uint64_t words[SCRY_WRAP_WORDS] = {handler};
	struct scry_wrap_state state;
	int r = state_size(&state);

	if (r < 0)
		return r;
	words[1] = state.mask;
	words[2] = state.bytes;
	if (kind == SCRY_PATCH_WRAP) {
		scry_wrap_words((uint32_t)i, handler, place, &state, words);
	} else if (kind != SCRY_PATCH_BEFORE) {
		words[1] &= ~1ull; /* a result may lie in the x87 unit, and nothing else does */
		words[3] = kind == SCRY_PATCH_AROUND;
	}
	memcpy(code, t.start, distance(t.start, t.end));
	memcpy(code + distance(t.start, t.words), words, distance(t.words, t.end));
	return 0;
}

/* The stub of entry `i` into `code`; its row leads there. */
static int lay_stub(struct scry_patch_file *f, size_t i, const struct scry_patch_head *patch,
		    uint8_t *code)
{
	const struct scry_object_entry *e = &f->object.entries[i];
	const struct code t = code_of(e->kind);
	const size_t head = t.start ? distance(t.start, t.end) : 0;
	const uint64_t at = patch->text + i * STUB_BYTES;
	const uint64_t handler = patch->text + front_bytes(f) + e->what;
	const struct scry_wrap_place wrap = wrap_place(f, patch);
	struct scry_x86_place place = {.address = at + head, .back = true};
	struct scry_x86_moved moved;
	struct scry_hook *row = f->hooks.rows;
	enum scry_x86_refusal refusal;
	int r = 0;

	while (row->address != f->row_of[i])
		row++;
	refusal = scry_x86_move(&(struct scry_x86_code){.bytes = row->code,
							.address = row->address,
							.size = row->size,
							.avail = row->avail},
				&row->window, &place, &moved);
	if (refusal != SCRY_X86_OK || head + moved.bytes > STUB_BYTES)
		return scry_fail(-ENOTSUP, "the first instructions of %s cannot be moved: %s%s",
				 e->name, scry_x86_why(refusal),
				 refusal == SCRY_X86_REACH
					 ? "; fix: a patch of its own for each library"
					 : "");
	if (t.start)
		r = fill_code(f, i, handler, &wrap, code);
	if (e->kind != SCRY_PATCH_BEFORE && e->kind != SCRY_PATCH_WRAP)
		memcpy(f->object.image + e->original, &place.address, 8);
	memcpy(code + head, moved.code, moved.bytes);
	memcpy(row->copied, moved.at, sizeof(row->copied));
	row->copy = place.address;
	row->stub = t.start ? at : handler;
	row->has_stub = true;
	return r;
}

static int write_patch(struct scry_patch_file *f, const struct scry_inject *inj,
		       const struct scry_patch_head *head)
{
	const uint64_t stubs = front_bytes(f), at = head->text + stubs;
	const struct scry_wrap_place wrap = wrap_place(f, head);
	const struct scry_patch_object *o = &f->object;
	struct scry_wrap_state state;
	uint8_t *code = malloc(stubs);
	int r = code ? 0 : scry_no_memory("the patch");

	if (code)
		memset(code, 0xcc, stubs);
	for (size_t i = 0; i < o->entry_count && r == 0; i++)
		if (is_function(&o->entries[i]))
			r = lay_stub(f, i, head, code + i * STUB_BYTES);
	if (r == 0 && stubs > stub_bytes(f))
		r = state_size(&state);
	if (r == 0 && stubs > stub_bytes(f))
		scry_wrap_lay_thunks(o, at, &wrap, &state, code + stub_bytes(f));
	if (r == 0) {
		r = scry_edit_poke(inj->mem.fd, head->text, code, stubs);
		if (r == 0)
			r = scry_edit_poke(inj->mem.fd, at, o->image,
					   o->text_size + o->constants_size + o->data_size);
		if (r < 0)
			scry_fail(r, "cannot write into process %d", inj->proc->pid);
	}
	free(code);
	return r;
}

static void name_counters(const struct scry_patch_file *f, struct scry_patch_head *head)
{
	const uint64_t missed =
		wrap_place(f, head).table + offsetof(struct scry_wrap_table, missed);

	for (size_t i = 0; i < f->object.entry_count; i++) {
		const struct scry_object_entry *e = &f->object.entries[i];
		struct scry_patch_counter *c = &head->counters[head->counter_count];

		if (is_function(e) && e->kind != SCRY_PATCH_WRAP)
			continue;
		snprintf(c->name, sizeof(c->name), "%.48s%s", e->name,
			 e->kind == SCRY_PATCH_WRAP ? " missed" : "");
		c->at = e->kind == SCRY_PATCH_WRAP ? missed + 8 * i
						   : head->text + front_bytes(f) + e->what;
		c->is_log = e->kind == SCRY_PATCH_LOG;
		head->counter_count++;
	}
}

int scry_patch_file_put_on(struct scry_patch_file *f, struct scry_inject *inj,
			   struct scry_lasting *ret)
{
	const uint64_t stubs = front_bytes(f);
	uint8_t *file;
	size_t size;
	int r;

	*ret = (struct scry_lasting){
		.head = {.kind = SCRY_PATCH_OBJECT,
			 .journal_room = f->hooks.count,
			 .text_size = stubs + f->object.text_size,
			 .constants_size = f->object.constants_size,
			 .data_size = f->object.data_size + scry_wrap_data_bytes(&f->object)}};
	memcpy(ret->head.name, f->name, sizeof(f->name));
	r = scry_lasting_map(inj, f->near, &ret->head);
	/* The image anew, for where it lies: it was bound for nowhere. */
	if (r == 0) {
		size = f->object.file_size;
		file = f->object.file;
		f->object.file = NULL;
		scry_patch_object_free(&f->object);
		r = scry_patch_object_read(file, size, f->path, &f->object);
	}
	if (r == 0)
		r = scry_patch_object_bind(&f->object, ret->head.text + stubs, f->path, find_import,
					   f);
	if (r == 0)
		r = write_patch(f, inj, &ret->head);
	if (r == 0) {
		name_counters(f, &ret->head);
		r = scry_lasting_write(inj, &ret->head);
	}
	return r < 0 ? r : scry_lasting_on(ret, inj, &f->hooks);
}
