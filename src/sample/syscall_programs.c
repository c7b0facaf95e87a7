/* See syscall_programs.h. */
#include "sample/syscall_programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/intern.h"
#include "base/log.h"
#include "base/map.h"
#include "sys/modules.h"
#include "name/native_stacks.h"
#include "sys/proc.h"
#include "sys/syscalls.h"
#include "sys/unwinder.h"
#include "wire/unwind.h"

#define INSTANCES_MAX (1u << 20)
#define CODES_MAX (1u << 16)
#define FRAMES_MAX 64u
#define AGAIN_NS 5000000u     /* after a look that did not show what was asked for */
#define AGAIN_TIMES 10u	      /* and after so many times what it took, as it may take long */
#define MAPS_MAX (256u << 20) /* bytes of lists of mappings: their paths may be long */
#define RETIRED 32u	      /* programs of instances that have ended, kept for what others need */
#define SYSCALL_BYTES 2u      /* of the instruction: also of int 0x80 and sysenter */

struct program { /* what is mapped in a process: of one instance, and of forks of it */
	pid_t pid;
	uint32_t instance;
	unsigned int users;
	uint64_t seen_ns, again_ns; /* the last look; none before */
	struct scry_modules *native;
	struct scry_native_stacks *stacks;
	struct scry_unwinder *unwinder; /* made for the first stack */
	bool is_vain;			/* the last look did not show what it was for */
	struct scry_intern numbers;	/* addresses of a stack -> its number */
	size_t bytes;			/* of its list of mappings, and what is known of each */
};

/* Of what is known of a place's number. */
enum { INSTANCE, PLACE, CALLER, KEY };

struct instance {
	uint32_t number, parent;
	pid_t pid;
	struct program *program; /* NULL: it was not looked at, or has ended */
	bool has_ended, was_seen, is_reported;
	/* which program it is */
	uid_t uid;
	uint64_t start_ticks, since_ns;
	uint32_t exe_str, threads;
};

struct scry_syscall_programs {
	struct scry_writer *writer;
	bool (*still)(void *arg, pid_t pid, uint32_t instance);
	void *arg;
	struct instance *instances;
	size_t count, room, programs, unseen;
	size_t settled; /* instances before it have no program */
	size_t bytes;	/* of all programs' */
	struct scry_map by_number;
	struct program *retired[RETIRED];
	size_t retired_next;
	struct scry_modules *own;   /* ours; made when it is asked */
	struct scry_code_name name; /* the last one: its module is ours */
	struct scry_intern codes;   /* instance, place, caller -> place in `numbers` + 1 */
	struct scry_syscall_number *numbers;
	size_t number_room;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct scry_syscall_programs *
scry_syscall_programs_new(struct scry_writer *writer,
			  bool (*still)(void *arg, pid_t pid, uint32_t instance), void *arg)
{
	struct scry_syscall_programs *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->writer = writer;
	p->still = still;
	p->arg = arg;
	scry_map_init(&p->by_number, INSTANCES_MAX);
	scry_intern_init(&p->codes, CODES_MAX, CODES_MAX * 32u);
	return p;
}

static void release(struct scry_syscall_programs *p, struct program *g)
{
	if (!g || --g->users)
		return;
	scry_unwinder_close(g->unwinder);
	scry_native_stacks_free(g->stacks);
	scry_modules_free(g->native);
	scry_intern_done(&g->numbers);
	p->bytes -= g->bytes;
	free(g);
	p->programs--;
}

void scry_syscall_programs_free(struct scry_syscall_programs *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++)
		release(p, p->instances[i].program);
	for (size_t i = 0; i < RETIRED; i++)
		release(p, p->retired[i]);
	scry_modules_free(p->own);
	free(p->instances);
	free(p->name.module);
	scry_map_done(&p->by_number);
	scry_intern_done(&p->codes);
	free(p->numbers);
	free(p);
}

static struct instance *find(const struct scry_syscall_programs *p, uint32_t number)
{
	uint64_t at;

	return scry_map_get(&p->by_number, number, &at) ? &p->instances[at] : NULL;
}

static void weigh(struct scry_syscall_programs *p, struct program *g)
{
	p->bytes -= g->bytes;
	g->bytes = 2 * scry_modules_maps(g->native)->bytes;
	p->bytes += g->bytes;
}

/* What is mapped there now. NULL: it is not there any more, or there are too many. */
static struct program *look(struct scry_syscall_programs *p, pid_t pid, uint32_t instance)
{
	struct program *g = NULL;

	if (p->programs < SCRY_SYSCALL_PROGRAMS_MAX && p->bytes < MAPS_MAX &&
	    p->still(p->arg, pid, instance))
		g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	p->programs++;
	*g = (struct program){.pid = pid, .instance = instance, .users = 1, .seen_ns = now_ns()};
	scry_intern_init(&g->numbers, SCRY_NATIVE_STACKS_MAX, 64u << 20);
	g->native = scry_modules_new(pid);
	if (g->native) {
		weigh(p, g);
		g->stacks = scry_native_stacks_new(g->native);
	}
	if (g->stacks && scry_modules_maps(g->native)->count && p->still(p->arg, pid, instance))
		return g;
	release(p, g);
	return NULL;
}

static uint32_t string(struct scry_syscall_programs *p, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(p->writer, text, strlen(text), &id);
	return id;
}

/* Which program it is, while it is that. */
static void see_process(struct scry_syscall_programs *p, struct instance *i)
{
	struct scry_proc proc;

	if (scry_proc_open(&proc, i->pid) == 0) {
		if (p->still(p->arg, i->pid, i->number)) {
			i->uid = proc.uid;
			i->start_ticks = proc.start_ticks;
			i->exe_str = string(p, proc.exe);
			i->threads = (uint32_t)proc.threads;
		}
		scry_proc_close(&proc);
	}
	scry_error_clear();
}

/* A process is reported once, as what it was last. */
static void report(struct scry_syscall_programs *p, struct instance *i)
{
	const struct scry_ev_process process = {.pid = (uint32_t)i->pid,
						.uid = i->uid,
						.start_ticks = i->start_ticks,
						.exe_str = i->exe_str};
	const struct scry_ev_attach attach = {.pid = (uint32_t)i->pid, .threads = i->threads};
	const struct scry_event head = {.time_ns = i->since_ns, .type = SCRY_EVENT_PROCESS};

	if (i->is_reported)
		return;
	i->is_reported = true;
	scry_writer_payload(p->writer, &head, &process, sizeof(process));
	scry_writer_payload(p->writer,
			    &(struct scry_event){.time_ns = i->since_ns, .type = SCRY_EVENT_ATTACH},
			    &attach, sizeof(attach));
}

void scry_syscall_programs_report(struct scry_syscall_programs *p)
{
	for (size_t at = 0; at < p->count; at++)
		report(p, &p->instances[at]);
}

void scry_syscall_programs_replaced(struct scry_syscall_programs *p, uint32_t old)
{
	struct instance *i = find(p, old);

	if (!i)
		return;
	i->has_ended = true;
	i->is_reported = true; /* of what it is now */
}

void scry_syscall_programs_add(struct scry_syscall_programs *p, uint32_t number, pid_t pid,
			       uint32_t parent)
{
	const struct instance *of;
	struct instance *more, *i;

	if (!number || find(p, number))
		return;
	if (p->count == p->room) {
		size_t room = p->room ? 2 * p->room : 64;

		more = reallocarray(p->instances, room, sizeof(*more));
		if (!more)
			return;
		p->instances = more;
		p->room = room;
	}
	of = parent ? find(p, parent) : NULL;
	if (scry_map_put(&p->by_number, number, p->count) < 0)
		return;
	i = &p->instances[p->count++];
	*i = (struct instance){.number = number, .parent = parent, .pid = pid};
	if (of && of->program) {
		i->program = of->program;
		i->program->users++;
	} else {
		i->program = look(p, pid, number);
	}
	i->was_seen = i->program != NULL;
	i->since_ns = now_ns();
	p->unseen += !i->was_seen;
	see_process(p, i);
}

void scry_syscall_programs_ended(struct scry_syscall_programs *p, uint32_t number)
{
	struct instance *i = find(p, number);

	if (i)
		i->has_ended = true;
}

static void retire(struct scry_syscall_programs *p, struct instance *i)
{
	struct program **at = &p->retired[p->retired_next++ % RETIRED];

	release(p, *at);
	*at = i->program;
	i->program = NULL;
}

void scry_syscall_programs_settle(struct scry_syscall_programs *p)
{
	bool is_first = true;

	for (size_t at = p->settled; at < p->count; at++) {
		struct instance *i = &p->instances[at];

		if (i->has_ended && i->program)
			retire(p, i);
		is_first &= i->has_ended;
		if (is_first)
			p->settled = at + 1;
	}
}

static void see(struct scry_syscall_programs *p, struct program *g)
{
	const uint64_t began = now_ns();
	uint64_t took;

	scry_modules_see_on(g->native);
	weigh(p, g);
	g->seen_ns = now_ns();
	took = AGAIN_TIMES * (g->seen_ns - began);
	g->again_ns = g->seen_ns + (took > AGAIN_NS ? took : AGAIN_NS);
}

/* What was mapped since, or unmapped: a fork's own is not the parent's. */
static void look_again(struct scry_syscall_programs *p, struct instance *i)
{
	struct program *g = i->program;

	if ((now_ns() < g->again_ns && g->is_vain) || !p->still(p->arg, i->pid, i->number))
		return;
	if (g->instance == i->number) {
		see(p, g);
		return;
	}
	g = look(p, i->pid, i->number);
	if (!g)
		return;
	release(p, i->program);
	i->program = g;
}

static bool is_mapped(const struct scry_code_name *name)
{
	return name->module && strcmp(name->module, "[unmapped]") != 0;
}

static struct scry_module_place place_in(const struct scry_syscalls_place *r)
{
	return (struct scry_module_place){r->file.device >> 20, r->file.device & 0xfffff,
					  r->file.inode, r->file.offset};
}

/* Has it mapped there what the kernel says? Something else may have been there before. */
static bool agrees(const struct scry_modules *n, const struct scry_syscalls_place *r,
		   const struct scry_code_name *name)
{
	const struct scry_module_place place = place_in(r);

	if (!is_mapped(name))
		return false;
	if (!r->file.is_known)
		return true;
	if (!r->file.inode)
		return name->module[0] == '[';
	return scry_modules_address(n, &place) == r->head.key.ip;
}

/* By what its own process has mapped. */
static bool name_there(struct scry_syscall_programs *p, struct instance *i,
		       const struct scry_syscalls_place *r)
{
	const uint64_t ip = r->head.key.ip;

	if (!i->program && !i->has_ended) {
		i->program = look(p, i->pid, i->number);
		p->unseen -= i->program && !i->was_seen;
		i->was_seen |= i->program != NULL;
	}
	if (!i->program)
		return false;
	scry_modules_name(i->program->native, ip, &p->name);
	if (agrees(i->program->native, r, &p->name))
		return true;
	look_again(p, i);
	free(p->name.module);
	scry_modules_name(i->program->native, ip, &p->name);
	i->program->is_vain = !agrees(i->program->native, r, &p->name);
	return !i->program->is_vain;
}

static bool name_by(struct scry_syscall_programs *p, struct scry_modules *n,
		    const struct scry_syscalls_place *r)
{
	const struct scry_module_place place = place_in(r);
	const uint64_t at = n ? scry_modules_address(n, &place) : 0;

	if (!at)
		return false;
	free(p->name.module);
	scry_modules_name(n, at, &p->name);
	return is_mapped(&p->name);
}

/* By what others have mapped of the same file. */
static bool name_elsewhere(struct scry_syscall_programs *p, const struct scry_syscalls_place *r)
{
	if (!r->file.inode)
		return false;
	if (!p->own)
		p->own = scry_modules_new(getpid());
	if (name_by(p, p->own, r))
		return true;
	for (size_t i = 0; i < RETIRED; i++)
		if (p->retired[i] && name_by(p, p->retired[i]->native, r))
			return true;
	for (size_t i = p->settled; i < p->count; i++)
		if (p->instances[i].program && name_by(p, p->instances[i].program->native, r))
			return true;
	return false;
}

void scry_syscall_programs_name(struct scry_syscall_programs *p,
				const struct scry_syscalls_place *r, struct scry_syscall_place *ret)
{
	struct instance *i = find(p, r->head.key.instance);
	const uint64_t ip = r->head.key.ip;

	free(p->name.module);
	p->name.module = NULL;
	*ret = (struct scry_syscall_place){.module = "[not looked at]",
					   .offset = ip - SYSCALL_BYTES};
	if ((i && name_there(p, i, r)) || name_elsewhere(p, r)) {
		/* a symbol may begin within the instruction, if a program wants to mislead */
		const bool has_symbol = p->name.symbol && p->name.offset >= SYSCALL_BYTES;

		*ret = (struct scry_syscall_place){p->name.module,
						   has_symbol ? p->name.symbol : NULL,
						   (has_symbol	     ? p->name.offset
						    : p->name.symbol ? p->name.object_offset
								     : p->name.offset) -
							   SYSCALL_BYTES};
	} else if (i && i->was_seen)
		ret->module = "[unmapped]";
}

/* The copied stack, as memory. */
static int read_copy(const void *image, uint64_t addr, void *buf, size_t size)
{
	const struct scry_syscalls_stack *r = image;

	if (addr < r->sp || addr - r->sp > r->size || size > r->size - (addr - r->sp))
		return -1;
	memcpy(buf, r->bytes + (addr - r->sp), size);
	return 0;
}

struct walked {
	struct scry_native_frame frames[SCRY_UNWINDER_FRAMES_MAX];
	uint64_t addresses[FRAMES_MAX + 1]; /* return addresses, the innermost first */
	size_t frame_count, count;	    /* the last address is 0 where the rest is not known */
};

static void walk(struct scry_syscall_programs *p, struct program *g,
		 const struct scry_syscalls_stack *r, struct walked *ret)
{
	const bool is_there = p->still(p->arg, g->pid, g->instance);
	const struct scry_mem copy = {.fd = -1, .image = r, .image_read = read_copy};
	const struct user_regs_struct regs = {
		.rip = r->head.key.ip, .rsp = r->sp, .rbp = r->bp, .rbx = r->bx};
	enum scry_native_end end = SCRY_NATIVE_NO_RULE;
	size_t count = 0, kept = 1;

	if (!g->unwinder && scry_unwinder_open(g->native, &copy, &g->unwinder) < 0)
		scry_error_clear();
	for (int look = 0; g->unwinder && look < 2 && end == SCRY_NATIVE_NO_RULE; look++) {
		scry_unwinder_use(g->unwinder, &copy);
		count = scry_unwinder_walk(g->unwinder, scry_unwinder_at(&regs), ret->frames, &end);
		if (end != SCRY_NATIVE_NO_RULE || now_ns() - g->seen_ns < AGAIN_NS || !is_there)
			break;
		see(p, g); /* a library may have been mapped since */
	}
	ret->addresses[0] = r->head.key.ip; /* as it were: the call is before it */
	for (size_t i = 1; i < count && kept < FRAMES_MAX; i++)
		ret->addresses[kept++] =
			ret->frames[i].pc | (ret->frames[i].is_exact ? SCRY_UNWIND_EXACT : 0);
	if (end != SCRY_NATIVE_WHOLE || kept < count)
		ret->addresses[kept++] = 0;
	ret->frame_count = count < FRAMES_MAX ? count : FRAMES_MAX;
	ret->count = kept;
}

/*
 * How many frames behind the innermost only hand the call's number on (sys/syscall_number), in the
 * object that the call is in: from glibc 2.41 on three functions of its own are between write() and
 * its system call, and where callers are shown they would take the room of the program's.
 */
static size_t handing_on(struct program *g, const struct walked *w)
{
	struct scry_syscall_code at = {0}, caller = {0};
	const struct scry_syscall_callee callee = {.code = &at};
	struct scry_syscall_number n;
	size_t i = 0, next;

	at.elf = scry_modules_elf(g->native, w->addresses[0], &at.address);
	if (w->frame_count < 2 ||
	    scry_modules_elf(g->native, w->frames[1].pc, &caller.address) != at.elf)
		return 0;
	n = scry_syscall_number(&at);
	while (n.is_argument || n.is_on_stack) {
		const bool is_register = n.is_argument && n.argument < SCRY_SYSCALL_PUSHED;

		next = i + 1;
		while (n.is_on_stack && next < w->frame_count &&
		       w->frames[next].sp < w->frames[i].sp + n.above)
			next++;
		if (next == w->frame_count ||
		    (n.is_on_stack && w->frames[next].sp != w->frames[i].sp + n.above))
			break;
		caller.elf = scry_modules_elf(g->native, w->frames[next].pc, &caller.address);
		if (!caller.elf || caller.elf != at.elf)
			break;
		i = next;
		if (n.is_on_stack)
			n.argument = SCRY_SYSCALL_PUSHED;
		if (!scry_syscall_number_passed(&caller, is_register ? &callee : NULL, &n))
			break;
		at = caller;
	}
	return i ? i - 1 : 0;
}

uint32_t scry_syscall_programs_stack(struct scry_syscall_programs *p,
				     const struct scry_syscalls_stack *r)
{
	static struct walked w;
	struct instance *i = find(p, r->head.key.instance);
	struct program *g;
	uint32_t number = 0, known;
	size_t less;

	if (!i || !i->program || !r->head.key.ip || r->size > sizeof(r->bytes))
		return 0;
	g = i->program;
	walk(p, g, r, &w);
	known = g->numbers.count;
	if (scry_intern_put(&g->numbers, (const char *)w.addresses,
			    w.count * sizeof(w.addresses[0]), &number) < 0)
		return 0;
	if (g->numbers.count != known) {
		less = handing_on(g, &w);
		memmove(&w.addresses[1], &w.addresses[1 + less],
			(w.count - 1 - less) * sizeof(w.addresses[0]));
		if (scry_native_stacks_define(g->stacks, number, w.addresses, w.count - less) < 0)
			return 0;
	}
	scry_native_stacks_look(g->stacks);
	return scry_native_stacks_write(g->stacks, number, p->writer);
}

/* --- which call it is, where only the code says --------------------------------------------- */

/* `*by_caller`: it is the caller's code that says. Words of the stack count from r->sp. */
static struct scry_syscall_number read_number(struct scry_syscall_programs *p, struct program *g,
					      const uint64_t key[KEY], bool *by_caller)
{
	struct scry_syscall_code at = {0}, caller = {0};
	struct scry_syscall_callee callee = {.code = &at};
	struct scry_syscall_number n;

	at.elf = scry_modules_elf(g->native, key[PLACE], &at.address);
	n = scry_syscall_number(&at);
	*by_caller = n.is_argument && key[CALLER];
	if (!*by_caller)
		return n;
	free(p->name.module);
	scry_modules_name(g->native, key[PLACE], &p->name);
	callee.name = p->name.symbol;
	caller.elf = scry_modules_elf(g->native, key[CALLER], &caller.address);
	if (caller.elf && scry_syscall_number_passed(&caller, &callee, &n))
		n.above += sizeof(key[CALLER]); /* its address has been taken off by then */
	return n;
}

/* With the word of the stack that it is in. */
static struct scry_syscall_number with_word(struct scry_syscall_number n,
					    const struct scry_syscalls_stack *r)
{
	uint64_t word;

	if (n.is_on_stack && r->size >= sizeof(word) && n.above <= r->size - sizeof(word)) {
		memcpy(&word, r->bytes + n.above, sizeof(word));
		n.is_known = word <= UINT32_MAX && scry_syscall_name((uint32_t)word);
		n.number = (uint32_t)word;
	}
	return n;
}

struct scry_syscall_number scry_syscall_programs_number(struct scry_syscall_programs *p,
							const struct scry_syscalls_stack *r)
{
	struct instance *i = find(p, r->head.key.instance);
	uint64_t key[KEY] = {r->head.key.instance, r->head.key.ip, 0};
	struct scry_syscall_number n = {.code = SCRY_SYSCALL_CODE_UNREAD}, *more;
	const uint32_t count = p->codes.count;
	bool by_caller;
	uint32_t id = 0;

	if (r->size >= sizeof(key[CALLER]) && r->size <= sizeof(r->bytes))
		memcpy(&key[CALLER], r->bytes, sizeof(key[CALLER])); /* or anything else */
	for (int with = 0; with < 2; with++) {
		const uint64_t of[KEY] = {key[INSTANCE], key[PLACE], with ? key[CALLER] : 0};

		id = scry_intern_find(&p->codes, (const char *)of, sizeof(of));
		if (id)
			return with_word(p->numbers[id - 1], r);
	}
	if (!i || !i->program)
		return n;
	n = read_number(p, i->program, key, &by_caller);
	if (n.code == SCRY_SYSCALL_CODE_UNREAD) { /* it may have been mapped since */
		look_again(p, i);
		n = read_number(p, i->program, key, &by_caller);
	}
	if (!by_caller)
		key[CALLER] = 0;
	if (count == p->number_room) {
		more = reallocarray(p->numbers, count ? 2 * count : 256, sizeof(*more));
		if (!more)
			return with_word(n, r);
		p->numbers = more;
		p->number_room = count ? 2 * count : 256;
	}
	if (n.code != SCRY_SYSCALL_CODE_UNREAD &&
	    scry_intern_put(&p->codes, (const char *)key, sizeof(key), &id) == 0)
		p->numbers[id - 1] = n;
	return with_word(n, r);
}

size_t scry_syscall_programs_unseen(const struct scry_syscall_programs *p)
{
	return p->unseen;
}
