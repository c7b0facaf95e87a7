/* See syscall_lines.h. */
#include "sample/syscall_lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/intern.h"
#include "base/log.h"
#include "base/map.h"
#include "name/stacks.h"
#include "sample/layout.h"
#include "sys/maps.h"
#include "sys/proc.h"
#include "vm/ruby.h"
#include "vm/ruby_symbol.h"
#include "vm/ruby_walk.h"

#define INSTANCES_MAX (1u << 20)
#define ASK_NS 5000000u	      /* between two questions whether an instance is a Ruby */
#define ASK_TIMES 20u	      /* and so many times what one takes */
#define YOUNG_NS 2000000000u  /* whose libraries may not be there yet, or whose VM boots */
#define TLS_BYTES (16u << 10) /* below the thread register: where static TLS lies */
#define TRIES 50u
#define NAMES_BYTES (64u << 20)
#define MISSES 8u
#define TH_WORDS 128u /* of a thread's struct, among which its pthread_t is */
#define TCB_SELF 16u  /* a thread's control block says twice where it is: tcb and self of glibc */

enum state { ASKING, FINDING, KNOWN, REFUSED };

struct instance {
	uint32_t number, at; /* at: its place in map `rubies` */
	pid_t pid;
	enum state state;
	bool has_ended, is_ruby;
	unsigned int tries;
	bool is_sure;	     /* a record had frames */
	unsigned int misses; /* records without, before that */
	uint64_t since_ns, ask_ns;
	struct scry_ruby *ruby;
	struct scry_symbols symbols; /* valid with ruby */
};

struct scry_syscall_lines {
	struct scry_writer *writer;
	struct scry_bpf *bpf;
	struct instance **instances;
	size_t count, room;
	struct scry_map by_number; /* -> place + 1 */
	struct scry_walk walk;
	struct scry_named_frame *named;
	struct scry_stacks stacks; /* of all, as many processes have the same */
	struct scry_intern names;  /* paths and methods in them */
	struct scry_syscalls_ruby rubies[SCRY_SYSCALLS_RUBIES];
	uint32_t ruby_count;
	char note[300];
};

struct scry_syscall_lines *scry_syscall_lines_new(struct scry_writer *writer, struct scry_bpf *bpf)
{
	struct scry_syscall_lines *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->writer = writer;
	l->bpf = bpf;
	l->named = calloc(SCRY_WALK_FRAMES_MAX, sizeof(*l->named));
	scry_map_init(&l->by_number, INSTANCES_MAX);
	scry_stacks_init(&l->stacks, SCRY_STACKS_MAX);
	scry_intern_init(&l->names, INSTANCES_MAX, NAMES_BYTES);
	if (!l->named || scry_walk_init(&l->walk) < 0) {
		free(l->named);
		free(l);
		return NULL;
	}
	return l;
}

static void free_instance(struct instance *i)
{
	if (i->ruby)
		scry_symbols_done(&i->symbols);
	scry_ruby_free(i->ruby);
	free(i);
}

void scry_syscall_lines_free(struct scry_syscall_lines *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->count; i++)
		free_instance(l->instances[i]);
	free(l->instances);
	scry_map_done(&l->by_number);
	scry_walk_done(&l->walk);
	scry_stacks_done(&l->stacks);
	scry_intern_done(&l->names);
	free(l->named);
	free(l);
}

static struct instance *find(const struct scry_syscall_lines *l, uint32_t number)
{
	uint64_t at;

	return scry_map_get(&l->by_number, number, &at) ? l->instances[at - 1] : NULL;
}

static void refuse(struct scry_syscall_lines *l, struct instance *i, const char *why)
{
	i->state = REFUSED;
	snprintf(l->note, sizeof(l->note), "no lines of the Ruby in process %d: %s", (int)i->pid,
		 why);
	scry_error_clear();
}

static int keep_ruby(struct instance *i, struct scry_ruby *ruby)
{
	i->ruby = ruby;
	i->is_ruby = true;
	return scry_symbols_init(&i->symbols);
}

/* --- what it is ------------------------------------------------------------------------------ */

static void find_out(struct scry_syscall_lines *l, struct instance *i);

/* A fork has what its parent has, where it has it. */
static void be_like(struct scry_syscall_lines *l, struct instance *i, const struct instance *parent)
{
	struct scry_ruby *ruby = NULL;

	if (parent->state != KNOWN && parent->state != FINDING)
		return;
	if (scry_ruby_like(parent->ruby, &ruby) < 0)
		return;
	if (scry_ruby_bind(ruby, i->pid) < 0 || keep_ruby(i, ruby) < 0) {
		if (!i->ruby)
			scry_ruby_free(ruby);
		scry_error_clear();
		i->state = REFUSED; /* it has ended */
		return;
	}
	i->state = parent->state;
	i->at = parent->at;
	if (i->state == KNOWN)
		scry_bpf_set(l->bpf, "lines", &i->number, &i->at);
	else
		find_out(l, i);
}

void scry_syscall_lines_add(struct scry_syscall_lines *l, uint32_t number, pid_t pid,
			    uint32_t parent)
{
	const struct instance *of = parent ? find(l, parent) : NULL;
	struct instance *i, **more;

	if (!number || find(l, number))
		return;
	if (l->count == l->room) {
		more = reallocarray(l->instances, l->room ? 2 * l->room : 64, sizeof(*more));
		if (!more)
			return;
		l->instances = more;
		l->room = l->room ? 2 * l->room : 64;
	}
	i = calloc(1, sizeof(*i));
	if (!i || scry_map_put(&l->by_number, number, l->count + 1) < 0) {
		free(i);
		return;
	}
	*i = (struct instance){.number = number, .pid = pid, .since_ns = scry_walk_now_ns()};
	l->instances[l->count++] = i;
	if (of)
		be_like(l, i, of);
}

void scry_syscall_lines_ended(struct scry_syscall_lines *l, uint32_t number)
{
	struct instance *i = find(l, number);

	if (i)
		i->has_ended = true;
}

/* Is there a Ruby in it? Its libraries come one after the other. */
static bool has_ruby(pid_t pid)
{
	struct scry_maps maps = {0};
	size_t entry;
	bool has = scry_maps_read(pid, &maps) == 0 && scry_ruby_find(pid, &maps, &entry) == 0;

	scry_maps_done(&maps);
	scry_error_clear();
	return has;
}

/*
 * How far from `fs` the nearest word lies that is `ec`; 0: none does. Below a thread's static TLS
 * is its stack, which has that word in many places, but all TLS is nearer.
 */
static int64_t search(const struct scry_mem *mem, uint64_t fs, uint64_t ec)
{
	static uint64_t words[TLS_BYTES / 8];
	uint64_t size = sizeof(words);

	/* what is mapped below it may be less than that */
	while (size >= 512 && scry_mem_read(mem, fs - size, words, size) < 0)
		size /= 2;
	for (uint64_t i = size / 8; size >= 512 && i-- > 0;)
		if (words[i] == ec)
			return (int64_t)(8 * i) - (int64_t)size;
	return 0;
}

static uint64_t context_of(const struct scry_ruby *ruby, pid_t tid)
{
	struct scry_ruby_thread *threads = NULL;
	ssize_t count = scry_ruby_threads(ruby, &threads);
	uint64_t ec = 0;

	for (ssize_t i = 0; i < count; i++)
		if (threads[i].tid == tid)
			ec = threads[i].ec;
	free(threads);
	scry_error_clear();
	return ec;
}

static void know(struct scry_syscall_lines *l, struct instance *i, int64_t ec);

/* A control block among the words at `base`; 0: there is none. */
static uint64_t control_block(const struct scry_mem *mem, uint64_t base)
{
	uint64_t words[TH_WORDS], tcb, self;

	if (!base || scry_mem_read(mem, base, words, sizeof(words)) < 0)
		return 0;
	for (size_t i = 0; i < TH_WORDS; i++)
		if (words[i] && words[i] % 64 == 0 && scry_mem_u64(mem, words[i], &tcb) == 0 &&
		    tcb == words[i] && scry_mem_u64(mem, tcb + TCB_SELF, &self) == 0 && self == tcb)
			return tcb;
	return 0;
}

/* The VM knows a thread's pthread_t, which glibc has made the address of its control block. */
static int64_t ask_threads(const struct scry_ruby *ruby)
{
	struct scry_ruby_thread *threads = NULL;
	ssize_t count = scry_ruby_threads(ruby, &threads);
	int64_t found = 0;

	for (ssize_t i = 0; i < count && !found; i++) {
		uint64_t base = threads[i].th, fs = control_block(&ruby->mem, base);

		if (!fs && ruby->layout.th_nt != SCRY_RUBY_NONE &&
		    scry_mem_u64(&ruby->mem, base + ruby->layout.th_nt, &base) == 0)
			fs = control_block(&ruby->mem, base);
		if (fs && threads[i].ec)
			found = search(&ruby->mem, fs, threads[i].ec);
	}
	free(threads);
	scry_error_clear();
	return found;
}

/* Another process of the same Ruby has shown where: then most likely there. Else its own threads
 * do, if not now then by the register of one that makes a call. */
static void find_out(struct scry_syscall_lines *l, struct instance *i)
{
	const struct scry_bpf_layout layout = scry_sample_layout(i->ruby);
	int64_t at = 0;

	i->state = FINDING;
	for (uint32_t k = 0; k < l->ruby_count && !at; k++)
		if (memcmp(&l->rubies[k].layout, &layout, sizeof(layout)) == 0)
			at = l->rubies[k].ec;
	if (!at)
		at = ask_threads(i->ruby);
	if (at)
		know(l, i, at);
}

static void ask(struct scry_syscall_lines *l, struct instance *i, uint64_t now)
{
	struct scry_ruby *ruby = NULL;
	uint64_t took;
	bool has;
	int err;

	if (now < i->ask_ns)
		return;
	has = has_ruby(i->pid);
	took = scry_walk_now_ns() - now; /* of a process with many mappings it may be long */
	i->ask_ns = now + (took > ASK_NS / ASK_TIMES ? ASK_TIMES * took : ASK_NS);
	if (!has) {
		if (now - i->since_ns > YOUNG_NS)
			i->state = REFUSED;
		return;
	}
	if (!l->bpf) {
		refuse(l, i, "they are read by eBPF, which is not permitted here");
		return;
	}
	err = scry_ruby_open(i->pid, SCRY_RUBY_BOOTS, &ruby);
	if (err == -EAGAIN) {
		scry_error_clear();
		return;
	}
	if (err == -ESRCH || err == -ENOENT) {
		i->state = REFUSED;
		scry_error_clear();
		return;
	}
	i->is_ruby = true;
	if (err || keep_ruby(i, ruby) < 0)
		refuse(l, i, err ? scry_error() : "no memory");
	else
		find_out(l, i);
}

void scry_syscall_lines_turn(struct scry_syscall_lines *l, bool settles)
{
	const uint64_t now = scry_walk_now_ns();

	for (size_t at = 0; at < l->count;) {
		struct instance *i = l->instances[at];

		if (i->has_ended && settles) {
			scry_map_remove(&l->by_number, i->number, NULL);
			l->instances[at] = l->instances[--l->count];
			if (at < l->count)
				scry_map_put(&l->by_number, l->instances[at]->number, at + 1);
			free_instance(i);
			continue;
		}
		if (i->state == ASKING && !i->has_ended)
			ask(l, i, now);
		at++;
	}
}

/* The place of what is alike, new or known; SCRY_SYSCALLS_RUBIES: there is no room. */
static uint32_t place_of(struct scry_syscall_lines *l, const struct scry_syscalls_ruby *r)
{
	for (uint32_t i = 0; i < l->ruby_count; i++)
		if (memcmp(&l->rubies[i], r, sizeof(*r)) == 0)
			return i;
	if (l->ruby_count == SCRY_SYSCALLS_RUBIES ||
	    scry_bpf_set(l->bpf, "rubies", &l->ruby_count, r) < 0)
		return SCRY_SYSCALLS_RUBIES;
	l->rubies[l->ruby_count] = *r;
	return l->ruby_count++;
}

static void know(struct scry_syscall_lines *l, struct instance *i, int64_t ec)
{
	struct scry_syscalls_ruby r;

	memset(&r, 0, sizeof(r));
	r.ec = ec;
	r.layout = scry_sample_layout(i->ruby);
	i->at = place_of(l, &r);
	if (i->at == SCRY_SYSCALLS_RUBIES || scry_bpf_set(l->bpf, "lines", &i->number, &i->at) < 0)
		refuse(l, i, "there are too many");
	else
		i->state = KNOWN;
	scry_log_detail("process %d: its threads have their context at fs%+lld", (int)i->pid,
			(long long)ec);
}

void scry_syscall_lines_see(struct scry_syscall_lines *l, const struct scry_syscalls_stack *r)
{
	struct instance *i = find(l, r->head.key.instance);
	uint64_t ec;
	int64_t at;

	if (!i || i->state != FINDING || !r->fs)
		return;
	ec = context_of(i->ruby, (pid_t)r->head.key.tid);
	if (!ec) /* none of the VM's threads */
		return;
	at = search(&i->ruby->mem, r->fs, ec);
	if (context_of(i->ruby, (pid_t)r->head.key.tid) != ec)
		return; /* another fiber runs */
	if (at)
		know(l, i, at);
	if (i->state == FINDING && ++i->tries == TRIES)
		refuse(l, i, "where its threads have their execution context was not found");
}

/* --- records --------------------------------------------------------------------------------- */

static bool is_dead(const struct instance *i, const struct scry_symbol *symbol, uint64_t taken_ns,
		    const struct scry_walk *w)
{
	/* named after the copy was made, and not there any more: its words may be others' */
	return symbol->made_ns >= taken_ns && scry_walk_alive(w, i->ruby) < w->count;
}

static uint32_t name_of(struct scry_syscall_lines *l, const struct instance *i, uint32_t name)
{
	const char *text = scry_symbols_text(&i->symbols, name);
	uint32_t id = 0;

	scry_intern_put(&l->names, text, strlen(text), &id);
	return id;
}

/* Is this frame a line of the program's own? */
static bool is_line(const struct scry_named_frame *f, const struct scry_symbol *symbol)
{
	return symbol && !f->is_hidden && !symbol->is_c && !symbol->is_internal;
}

/* The newest line and its callers; a C method has its caller's line, and is left out. 0: the newest
 * has no name, or it may be another's by now. */
static uint32_t intern_stack(struct scry_syscall_lines *l, struct instance *i, uint64_t taken_ns)
{
	uint32_t parent = 0;

	for (size_t at = 0; at < l->walk.count; at++) {
		const struct scry_symbol *symbol =
			scry_symbols_get(&i->symbols, l->named[at].symbol);

		if (!symbol && !l->named[at].is_hidden)
			return 0;
		if (is_line(&l->named[at], symbol))
			break;
	}
	for (size_t at = l->walk.count; at > 0; at--) {
		const struct scry_symbol *symbol =
			scry_symbols_get(&i->symbols, l->named[at - 1].symbol);
		struct scry_stack_frame frame = {.parent = parent};

		if (!is_line(&l->named[at - 1], symbol))
			continue;
		if (is_dead(i, symbol, taken_ns, &l->walk))
			return 0;
		frame.path = name_of(l, i, symbol->path);
		frame.line = l->named[at - 1].line;
		frame.label = name_of(l, i, symbol->name);
		parent = scry_stacks_add(&l->stacks, &frame);
		if (!parent)
			return 0;
	}
	return parent;
}

/* A thread that begins has no context there yet, others never have; but where none has, it is
 * elsewhere. */
static void look_for_misses(struct scry_syscall_lines *l, struct instance *i,
			    const struct scry_syscalls_lines *r)
{
	i->is_sure |= r->frames_size != 0;
	if (i->is_sure || ++i->misses < MISSES || !context_of(i->ruby, (pid_t)r->head.key.tid))
		return;
	i->misses = 0;
	i->state = ++i->tries < TRIES ? FINDING : REFUSED;
	scry_bpf_unset(l->bpf, "lines", &i->number);
}

uint32_t scry_syscall_lines_stack(struct scry_syscall_lines *l, const struct scry_syscalls_lines *r)
{
	struct instance *i = find(l, r->head.key.instance);
	const struct scry_walk_copy copy = {
		.ec = r->ec,
		.stack = r->stack,
		.end = r->end,
		.cfp = r->cfp,
		.bottom = r->bottom,
		.top = r->top,
		.frames = r->frames,
		.values = r->values,
		.frames_size = r->frames_size,
		.newest = {r->top_word, r->top_flags, r->top_code},
	};

	if (i && i->state == KNOWN)
		look_for_misses(l, i, r);
	if (!i || i->state != KNOWN || !r->frames_size || r->frames_size > sizeof(r->frames) ||
	    r->top < r->bottom || r->top - r->bottom > sizeof(r->values))
		return 0;
	scry_walk_forget(&l->walk); /* it may have been another process's */
	if (scry_walk_take(&l->walk, i->ruby, &copy) != SCRY_WALK_VALID) {
		return 0;
	}
	l->walk.time_ns = r->time_ns;
	scry_symbols_turn(&i->symbols);
	scry_symbols_name(&i->symbols, i->ruby, &l->walk, l->named);
	return scry_stacks_write(&l->stacks, intern_stack(l, i, r->time_ns), &l->names, l->writer);
}

bool scry_syscall_lines_is_ruby(const struct scry_syscall_lines *l, uint32_t instance)
{
	const struct instance *i = find(l, instance);

	return i && i->is_ruby;
}

const char *scry_syscall_lines_note(const struct scry_syscall_lines *l)
{
	return l->note[0] ? l->note : NULL;
}
