/*
 * `scry syscalls --exact=site`: a counter before each instruction that makes system calls, where
 * the code there is
 *
 *   b8 NN NN NN NN   mov $number, %eax     becomes   e9 ...   jmp stub
 *   0f 05            syscall               stays
 *
 * The stub counts, does the mov and jumps back to the `syscall`, which stays where the kernel, and
 * whoever looks at the program, expects it: a call that the kernel makes again begins there and is
 * counted once. The window is the mov alone, so no thread can be inside.
 *
 * It must be the only way to the `syscall`, or calls would be missing (sys/syscall_number). The
 * stub uses no stack, of which there may be none, or no more: it keeps the flags in rax, which the
 * mov sets.
 *
 * No unwind table covers the stub. A signal may end a thread there by unwinding it, with libc's
 * cancellation: read() allows that by a call before its `syscall`, and forbids it behind. What
 * would be unwound further up, clean-ups of C++ and -fexceptions, would be skipped. So where a
 * program has any, no place is counted that has a call before it in its function.
 */
#include "instrument/sites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/err.h"
#include "base/text.h"
#include "hook/renew.h"
#include "instrument/instruments.h"
#include "sys/syscall_number.h"
#include "watch/loading.h"
#include "wire/bpf_syscalls.h"

#define MOV_BYTES 5u
#define SYSCALL_BYTES 2u
#define CODE_BYTES (MOV_BYTES + SYSCALL_BYTES)
#define CALL_NS 6 /* what counting adds to a call; bench/syscalls.md */

struct sites {
	struct scry_hooks hooks;
	const char *why[SCRY_SITES_MAX]; /* of the options' rows; NULL: counted */
	size_t gone;			 /* rows whose code was unmapped meanwhile */
	bool unwinds;			 /* the program has clean-ups for unwinders */
	uint64_t on_ns, off_ns;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Is there `mov $number,%eax; syscall`, as far as bytes show? */
static bool has_form(const uint8_t *code, uint32_t number)
{
	return code[0] == 0xb8 && !memcmp(code + 1, &number, 4) && code[5] == 0x0f &&
	       code[6] == 0x05;
}

static const char no_mov[] = "no mov of 5 bytes right before it sets its number";

/* Why the code before `site` in object `o` may not become a jump; NULL: it may. */
static const char *code_refusal(const struct scry_sampled_site *site, const struct scry_object *o,
				const uint8_t *code, bool unwinds)
{
	const uint64_t mov = site->at.address - MOV_BYTES;
	const struct scry_syscall_code end = {o->elf, mov + CODE_BYTES - o->bias};
	struct scry_syscall_number number;
	uint8_t file[CODE_BYTES];

	if (scry_elf_read(o->elf, mov - o->bias, file, sizeof(file)) < 0 ||
	    !has_form(file, site->at.number))
		return no_mov;
	if (memcmp(file, code, sizeof(file)))
		return "its bytes are not those of its file: another tool has changed them, or a "
		       "scry that counted its parent (then fix: scry undo -p PID)";
	number = scry_syscall_number(&end);
	if (!number.is_known)
		return "other code may lead to it past the mov before it";
	if (number.from != mov - o->bias) /* these bytes are the end of another instruction */
		return no_mov;
	if (unwinds && number.is_behind_call)
		return "a cancelled thread may be unwound from there, and would skip clean-ups "
		       "(C++, "
		       "-fexceptions)";
	if (mov / SCRY_PAGE != (mov + MOV_BYTES - 1) / SCRY_PAGE)
		return "the mov before it crosses a page";
	return NULL;
}

/* The same of all; then *ret_object and `code` are filled. */
static const char *refusal(struct sites *s, const struct scry_sampled_site *site,
			   ssize_t *ret_object, uint8_t code[CODE_BYTES])
{
	struct scry_hooks *h = &s->hooks;
	const uint64_t mov = site->at.address - MOV_BYTES;
	const ssize_t object = site->at.address ? scry_linkmap_at(&h->objects, mov) : -ENOENT;
	const struct scry_object *o = object < 0 ? NULL : &h->objects.objects[object];

	if (site->at.abi != SCRY_ABI_64)
		return "it is a call of 32 bits";
	if (!o || !o->mapping || scry_linkmap_open(&h->objects, (size_t)object) < 0)
		return "its code is in no file";
	if (!site->module || strcmp(o->mapping->path, site->module))
		return "another file is mapped there now";
	if (site->at.number == SYS_exit || site->at.number == SYS_rt_sigreturn)
		return "a thread may have no stack of its own there";
	if (scry_hooks_is_go(h, mov))
		return "it is Go code, whose stacks have no room to spare";
	if (scry_mem_read(&h->mem, mov, code, CODE_BYTES) < 0)
		return "its code cannot be read";
	*ret_object = object;
	return code_refusal(site, o, code, s->unwinds);
}

static bool has_row(const struct scry_hooks *h, uint64_t address)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].address == address)
			return true;
	return false;
}

/* There is room. NULL: its row is there. */
static const char *add_row(struct sites *s, const struct scry_sampled_site *site)
{
	struct scry_hooks *h = &s->hooks;
	struct scry_hook *row = &h->rows[h->count];
	struct scry_x86_code code = {.size = CODE_BYTES, .avail = CODE_BYTES};
	ssize_t object = -1;
	const char *why;

	*row = (struct scry_hook){.address = site->at.address - MOV_BYTES,
				  .size = CODE_BYTES,
				  .avail = CODE_BYTES,
				  .to = {.kind = SCRY_HOOK_COUNT, .way = SCRY_WAY_ENTRY},
				  .way = SCRY_WAY_ENTRY,
				  .jump = MOV_BYTES,
				  .frees_rax = true};
	why = refusal(s, site, &object, row->code);
	scry_error_clear();
	if (why)
		return why;
	code.bytes = row->code;
	code.address = row->address;
	if (has_row(h, row->address) ||
	    scry_x86_window(&code, MOV_BYTES, 0, &row->window) != SCRY_X86_OK)
		return "it is counted in another row";
	row->object_start = h->objects.objects[object].start;
	row->object_end = h->objects.objects[object].end;
	row->symbol = strdup(site->symbol ? site->symbol : "");
	row->version = strdup("");
	row->module = strdup(site->module);
	h->count++; /* what is NULL is freed as well */
	return row->symbol && row->version && row->module ? NULL : "there was no memory for it";
}

static int none_counted(const struct sites *s, const struct scry_sites_opts *opts, int pid)
{
	const struct scry_sampled_site *first = &opts->rows[0];

	return scry_fail(-ENOTSUP,
			 "of %zu place%s where process %d makes system calls none can be counted "
			 "in it; the first, %s from %s+%#llx: %s; fix: --exact",
			 opts->count, opts->count == 1 ? "" : "s", pid,
			 first->name ? first->name : "a call",
			 first->symbol	 ? first->symbol
			 : first->module ? first->module
					 : "",
			 (unsigned long long)first->at.offset, s->why[0]);
}

static int prepare(struct scry_watch *w)
{
	const struct scry_sites_opts *opts = w->opts->instrument_opts;
	struct sites *s = calloc(1, sizeof(*s));
	struct scry_hooks *h;
	int r;

	if (!s)
		return -ENOMEM;
	w->state = s;
	h = &s->hooks;
	r = scry_loading_open(w, h);
	if (r < 0)
		return r;
	h->rows = calloc(opts->count, sizeof(*h->rows));
	if (!h->rows)
		return scry_no_memory("the hooks");
	h->room = opts->count;
	s->unwinds = scry_linkmap_may_unwind(&h->objects);
	for (size_t i = 0; i < opts->count; i++)
		s->why[i] = add_row(s, &opts->rows[i]);
	if (!h->count)
		return none_counted(s, opts, w->proc.pid);
	scry_hooks_sort(h);
	w->near = h->rows[0].address;
	return 0;
}

static int enter(struct scry_watch *w)
{
	struct sites *s = w->state;
	int r = scry_hooks_on(&s->hooks, w->inj, w->held);

	s->on_ns = now_ns();
	return r;
}

static int drain(struct scry_watch *w)
{
	(void)w;
	return 0;
}

static void leave(struct scry_watch *w)
{
	struct sites *s = w->state;

	s->off_ns = now_ns();
	for (size_t i = 0; i < s->hooks.count; i++) {
		const struct scry_hook *row = &s->hooks.rows[i];
		uint8_t want[MOV_BYTES], got[MOV_BYTES];

		if (!row->way)
			continue;
		scry_x86_jump(row->address, row->stub, want);
		s->gone += scry_mem_read(&s->hooks.mem, row->address, got, sizeof(got)) < 0 ||
			   memcmp(want, got, sizeof(got));
	}
	scry_error_clear();
}

/* NULL: it is not counted, and *why says so if it shall have been. */
static const struct scry_hook *row_of(const struct sites *s, const struct scry_sampled_site *site,
				      const char **why)
{
	for (size_t i = 0; i < s->hooks.count && !*why; i++) {
		const struct scry_hook *row = &s->hooks.rows[i];

		if (row->address != site->at.address - MOV_BYTES)
			continue;
		if (row->way)
			return row;
		*why = row->why;
	}
	return NULL;
}

static uint32_t string(struct scry_watch *w, const char *text)
{
	uint32_t id = 0;

	if (text)
		scry_writer_string(w->writer, text, strlen(text), &id);
	return id;
}

static int put(struct scry_watch *w, uint16_t type, const void *payload, size_t size)
{
	return scry_writer_payload(w->writer, &(struct scry_event){.type = type}, payload, size);
}

static int put_site(struct scry_watch *w, const struct scry_sampled_site *site, const char *why)
{
	const struct scry_hook *row = row_of(w->state, site, &why);
	struct scry_ev_syscall_site at = site->at;
	struct scry_ev_syscall ev = {.site = at.site,
				     .pid = (uint32_t)w->proc.pid,
				     .calls = row ? scry_hook_calls(row, w->inj) : 0,
				     .ticks = site->ticks};
	int r, e;

	w->events += ev.calls;
	at.name_str = string(w, site->name);
	at.module_str = string(w, site->module);
	at.symbol_str = string(w, site->symbol);
	at.why_str = string(w, row ? NULL : why);
	r = put(w, SCRY_EVENT_SYSCALL_SITE, &at, sizeof(at));
	e = put(w, SCRY_EVENT_SYSCALL, &ev, sizeof(ev));
	return r ? r : e;
}

static int finish(struct scry_watch *w)
{
	const struct scry_sites_opts *opts = w->opts->instrument_opts;
	struct sites *s = w->state;
	struct scry_ev_syscalls ev = opts->sample;
	int r = 0, e;

	for (size_t i = 0; i < opts->count; i++) {
		e = put_site(w, &opts->rows[i], s->why[i]);
		r = r ? r : e;
	}
	ev.flags |= SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_AT_SITES;
	ev.calls = w->events;
	ev.watched_ns = (s->off_ns ? s->off_ns : now_ns()) - s->on_ns;
	w->cost_ns = w->events * CALL_NS;
	e = put(w, SCRY_EVENT_SYSCALLS, &ev, sizeof(ev));
	if (s->gone)
		scry_watch_note(w,
				"%zu place%s %s unloaded, or loaded anew, while calls were counted "
				"there: those since then are not",
				s->gone, scry_text_s(s->gone), scry_text_were(s->gone));
	if (opts->left_out)
		scry_watch_note(w,
				"%zu more places that make system calls have no row: the %u that "
				"take the most time have",
				opts->left_out, SCRY_SITES_MAX);
	return r ? r : e;
}

static void done(struct scry_watch *w)
{
	struct sites *s = w->state;

	if (s)
		scry_hooks_close(&s->hooks);
	free(s);
	w->state = NULL;
}

/* There is no --dry-run to describe it for: what it does begins with a sample. */
const struct scry_instrument scry_instrument_sites = {
	.name = "syscalls",
	.summary = "system calls, counted in the process",
	.prepare = prepare,
	.enter = enter,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};
