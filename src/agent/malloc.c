/*
 * The malloc functions: each function of the allocator that serves a process leads here (REPLACE
 * hooks; malloc_thunk.S hands on the original). What is written is wire/malloc_ring.h.
 *
 * An end is recorded before the original runs, a beginning after it has returned, a realloc twice.
 * Calls that the allocator makes of itself while a handler runs are not events. Results, errno and
 * exceptions are the original's: nothing here sets errno, and nothing can throw through a frame of
 * ours, as operator new is asked by its nothrow sister first.
 */
#include "agent/malloc.h"
#include "agent/lines.h"
#include "agent/returns.h"
#include "agent/thread_buffer.h"
#include "agent/walk.h"
#include "wire/payload_malloc.h"

struct scry_agent_malloc scry_agent_malloc_functions;
struct scry_agent_callers scry_agent_callers SCRY_WIPED;

#define SIZE_MAX48 ((1ull << 48) - 1)

#define ITSELF SCRY_MALLOC_CALLERS /* in the place of a caller's code: no event */

#define INLINE inline __attribute__((always_inline))

/* Calls may be followed as well: then a thunk's address is there. */
#define CALLED_BY ((uint64_t)__builtin_return_address(0))
/* In a handler that its thunk jumps to; rbx comes as an argument, as C code may use it. */
#define FRAME ((const uint64_t *)__builtin_frame_address(0))
#define CALLED_FROM ((struct from){.slot = FRAME + 1, .frame = FRAME, .bx = bx})

typedef struct scry_agent_thread thread;

struct from { /* the caller; by value, as it is not looked at without stacks */
	const uint64_t *slot, *frame;
	uint64_t bx;
};

_Static_assert(SCRY_MALLOC_NEW == 8 && SCRY_MALLOC_NEW_ARRAY == 9 && SCRY_MALLOC_FREE == 12 &&
		       SCRY_MALLOC_DELETE == 13 && SCRY_MALLOC_DELETE_ARRAY == 14,
	       "malloc_thunk.S");

void *scry_malloc(uint64_t size, void *(*original)(uint64_t), uint64_t bx);
void *scry_calloc(uint64_t n, uint64_t size, void *(*original)(uint64_t, uint64_t), uint64_t bx);
void *scry_realloc(void *p, uint64_t size, void *(*original)(void *, uint64_t), uint64_t bx);
void *scry_reallocarray(void *p, uint64_t n, uint64_t size,
			void *(*original)(void *, uint64_t, uint64_t), uint64_t bx);
void scry_free(void *p, void (*original)(void *));
int scry_posix_memalign(void **out, uint64_t align, uint64_t size,
			int (*original)(void **, uint64_t, uint64_t), uint64_t bx);
void *scry_memalign(uint64_t align, uint64_t size, void *(*original)(uint64_t, uint64_t),
		    uint64_t bx);
void *scry_aligned_alloc(uint64_t align, uint64_t size, void *(*original)(uint64_t, uint64_t),
			 uint64_t bx);
void *scry_valloc(uint64_t size, void *(*original)(uint64_t), uint64_t bx);
void *scry_pvalloc(uint64_t size, void *(*original)(uint64_t), uint64_t bx);
void *scry_mallocx(uint64_t size, uint64_t flags, void *(*original)(uint64_t, uint64_t),
		   uint64_t bx);
void *scry_rallocx(void *p, uint64_t size, uint64_t flags,
		   void *(*original)(void *, uint64_t, uint64_t), uint64_t bx);
uint64_t scry_xallocx(void *p, uint64_t size, uint64_t extra, uint64_t flags,
		      uint64_t (*original)(void *, uint64_t, uint64_t, uint64_t), uint64_t bx);
uint64_t scry_usable_size(void *p, uint64_t (*original)(void *));
int scry_fork(int (*original)(void));
void scry_malloc_down(void);
uint64_t scry_new(uint64_t size, uint64_t align, uint64_t which, const uint64_t *slot, uint64_t bx);
uint64_t scry_new_nothrow(const uint64_t *arguments, uint64_t align, uint64_t function,
			  uint64_t (*original)(uint64_t, uint64_t, uint64_t), uint64_t bx);
void scry_delete(const uint64_t *arguments, uint64_t function,
		 void (*original)(uint64_t, uint64_t, uint64_t));

static inline uint64_t word0(uint64_t op, uint64_t address, uint64_t size)
{
	return op | (address >> 3 & ((1ull << 44) - 1)) << 4 | size << 48;
}

static inline uint64_t word2(uint64_t function, uint64_t align, uint64_t size)
{
	/* the next power of two, as allocators have it */
	uint64_t log2 = align > 1 ? 64u - (uint64_t)__builtin_clzll(align - 1) : 0;

	return function | log2 << 8 | (size < SIZE_MAX48 ? size : SIZE_MAX48) << 16;
}

/* Callers. */

static inline uint32_t caller_slot(uint64_t address)
{
	return (uint32_t)(address * 0x9e3779b97f4a7c15ull >> 49);
}
_Static_assert(SCRY_MALLOC_CALLERS == 1u << 15, "the shift above");

/* Its record comes before its first use: a thread that finds one that is not emitted yet emits it
 * itself. */
static int emit_caller(thread *t, uint64_t *slot, uint64_t address)
{
	uint64_t *w = scry_thread_buffer_reserve(t, 2), had = address;

	if (!w)
		return 0;
	w[0] = word0(SCRY_MALLOC_OP_CALLER, 0, (uint64_t)(slot - scry_agent_callers.at));
	w[1] = address;
	scry_thread_buffer_publish(t, w + 2);
	__atomic_compare_exchange_n(slot, &had, address | SCRY_CALLER_EMITTED, 0, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
	return 1;
}

/*
 * glibc's threads, when they end, free what their caches hold once more (tcache_thread_shutdown):
 * blocks that the program has given back already. It is known by the call, which is one to free
 * itself; all others in libc go through its PLT, so that free may be interposed.
 */
static int is_itself(uint64_t address)
{
	const struct scry_agent_malloc *m = &scry_agent_malloc_functions;
	const uint8_t *call = (const uint8_t *)address - 5;

	return m->free_at && address - m->start < m->end - m->start && *call == 0xe8 &&
	       address + (uint64_t)(int64_t) * (const int32_t *)(call + 1) == m->free_at;
}

static __attribute__((noinline)) uint64_t find_caller(thread *t, uint64_t found)
{
	const uint64_t address = scry_return_home(found);
	uint32_t first = caller_slot(address);

	for (uint32_t i = 0; i < SCRY_CALLER_PROBES; i++) {
		uint32_t code = (first + i) % SCRY_MALLOC_CALLERS;
		uint64_t *slot = &scry_agent_callers.at[code], have;

		if (!code)
			continue;
		have = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
		if (have == (address | SCRY_CALLER_ITSELF) || (!have && is_itself(address))) {
			__atomic_compare_exchange_n(slot, &have, address | SCRY_CALLER_ITSELF, 0,
						    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
			return ITSELF;
		}
		if (!have)
			__atomic_compare_exchange_n(slot, &have, address, 0, __ATOMIC_ACQ_REL,
						    __ATOMIC_ACQUIRE);
		if (!have || have == address)
			return emit_caller(t, slot, address) ? code : 0;
		if (have == (address | SCRY_CALLER_EMITTED))
			return code;
	}
	return 0;
}

/* A return address. Thunks are not in the table: only a caller that is not found is looked at
 * again. */
static inline uint64_t caller_code(thread *t, uint64_t address)
{
	uint32_t code = caller_slot(address);

	if (likely(scry_agent_callers.at[code] == (address | SCRY_CALLER_EMITTED)))
		return code;
	return find_caller(t, address);
}

/* A stack: emitted before its first use, as callers are. */
static __attribute__((cold)) int emit_stack(thread *t, uint32_t id, const uint64_t *frames,
					    uint32_t count)
{
	uint64_t *w = scry_thread_buffer_reserve(t, SCRY_MALLOC_STACK_HEAD + count);

	if (!w)
		return 0;
	w[0] = SCRY_MALLOC_OP_STACK | (SCRY_MALLOC_STACK_HEAD + (uint64_t)count) << 4;
	w[1] = id;
	for (uint32_t i = 0; i < count; i++)
		w[SCRY_MALLOC_STACK_HEAD + i] = frames[i];
	scry_thread_buffer_publish(t, w + SCRY_MALLOC_STACK_HEAD + count);
	return 1;
}

struct caller {
	uint64_t code, stack;
};

static __attribute__((noinline)) uint64_t stack_of(thread *t, const uint64_t *slot,
						   const uint64_t *frame, uint64_t bx)
{
	const struct scry_walk_from from = {.slot = slot, .bp = *frame, .bx = bx};

	return scry_walk_stack(t, &from, emit_stack);
}

/* Of a beginning, the only calls that have lines: where a Ruby ends blocks, in a GC for the most
 * part, says nothing of them. With a stack, the code is that of a line, or none. */
static INLINE struct caller caller_of(thread *t, struct from from)
{
	struct caller c = {0, 0};

	if (unlikely(scry_agent.unwinding.users & SCRY_USER_MALLOC))
		c.stack = stack_of(t, from.slot, from.frame, from.bx);
	if (scry_agent.line_plan.on & SCRY_USER_MALLOC)
		c.code = scry_lines_code(t, scry_return_home(*from.slot));
	if (!c.code && !c.stack)
		c.code = caller_code(t, *from.slot);
	return c;
}

/* Blocks. */

/* glibc: chunk sizes in their header, flags in the low bits, 2: mapped by itself. */
static inline uint64_t glibc_usable(const void *p)
{
	uint64_t chunk = ((const uint64_t *)p)[-1];

	return (chunk & ~7ull) - (chunk & 2 ? 16 : 8);
}

static inline uint64_t usable_of(const void *p)
{
	const struct scry_agent_malloc *m = &scry_agent_malloc_functions;

	if (likely(m->is_glibc))
		return glibc_usable(p);
	return m->usable ? ((uint64_t(*)(const void *))m->usable)(p) : 0;
}

static inline uint64_t slack_of(const void *p, uint64_t size)
{
	uint64_t slack = usable_of(p) - size;

	return slack < SCRY_MALLOC_SLACK_UNKNOWN ? slack : SCRY_MALLOC_SLACK_UNKNOWN;
}

/* Now and then: is the header still what malloc_usable_size says? */
static __attribute__((noinline)) void check_header(const void *p)
{
	struct scry_agent_malloc *m = &scry_agent_malloc_functions;

	if (m->is_glibc && m->usable &&
	    ((uint64_t(*)(const void *))m->usable)(p) != glibc_usable(p)) {
		m->is_other = 1;
		m->is_glibc = 0;
	}
}

struct record {
	uint64_t op, address, size, caller, slack, stack;
};

/* Beginnings have a word more, where stacks are recorded. Behind the last one. */
static inline uint64_t *put_stack(uint64_t *w, const struct record *r)
{
	if (SCRY_MALLOC_STACKED >> r->op & 1 &&
	    unlikely(scry_agent.unwinding.users & SCRY_USER_MALLOC))
		*w++ = r->stack;
	return w;
}

static INLINE void put(thread *t, const struct record *r)
{
	int is_long = r->size >= SCRY_MALLOC_SIZE_LONG;
	uint64_t *w = scry_thread_buffer_reserve(t, 4), now;

	if (unlikely(!w)) {
		scry_thread_buffer_lost(scry_channel(SCRY_CHANNEL_CORE));
		return;
	}
	now = scry_thread_buffer_order(t, &w);
	w[0] = word0(r->op, r->address, is_long ? SCRY_MALLOC_SIZE_LONG : r->size);
	w[1] = scry_malloc_word1(now, r->slack, r->caller);
	if (unlikely(is_long))
		w[2] = word2(0, 0, r->size);
	scry_thread_buffer_publish(t, put_stack(w + 2 + is_long, r));
}

static void put_long(thread *t, const struct record *r, uint64_t third)
{
	uint64_t *w = scry_thread_buffer_reserve(t, 4), now;

	if (unlikely(!w)) {
		scry_thread_buffer_lost(scry_channel(SCRY_CHANNEL_CORE));
		return;
	}
	now = scry_thread_buffer_order(t, &w);
	w[0] = word0(r->op, r->address, SCRY_MALLOC_SIZE_LONG);
	w[1] = scry_malloc_word1(now, r->slack, r->caller);
	w[2] = third;
	scry_thread_buffer_publish(t, put_stack(w + 3, r));
}

static INLINE uint64_t begun(thread *t, uint64_t op, const void *p, uint64_t size, struct from from)
{
	struct caller c = caller_of(t, from);
	struct record r = {op, (uint64_t)p, size, c.code, 0, c.stack};

	if (likely(p)) {
		r.slack = slack_of(p, size);
		if (unlikely(!(scry_thread_buffer_of(t)->head & ~1u)))
			check_header(p);
	}
	put(t, &r);
	return (uint64_t)p;
}

static inline void about_to_end(const void *p)
{
	if (scry_agent.line_plan.on && unlikely(scry_lines_may_start((uint64_t)p)))
		scry_lines_end_start((uint64_t)p);
}

/* A call from outside the allocator while a handler runs: a signal handler's. What the allocator
 * jumps to seems to be called by us. */
static __attribute__((noinline)) void passed(uint64_t found)
{
	const uint64_t address = scry_return_home(found);
	const struct scry_agent_malloc *m = &scry_agent_malloc_functions;
	const struct scry_agent_channel *c = scry_channel(SCRY_CHANNEL_CORE);
	const struct scry_state_page *g = scry_agent.state_page;

	if (g->open && c->is_on && address - m->start >= m->end - m->start &&
	    address - m->text >= m->text_end - m->text && scry_thread_buffer_is_inside(c))
		__atomic_fetch_add(&c->control->busy, 1, __ATOMIC_RELAXED);
}

/* The handlers. */

void *scry_malloc(uint64_t size, void *(*original)(uint64_t), uint64_t bx)
{
	thread *t = scry_thread_buffer_enter();
	void *p;

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(size);
	}
	p = original(size);
	begun(t, SCRY_MALLOC_OP_MALLOC, p, size, CALLED_FROM);
	scry_thread_buffer_leave(t);
	return p;
}

static uint64_t product(uint64_t n, uint64_t size)
{
	uint64_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? SIZE_MAX48 : bytes;
}

void *scry_calloc(uint64_t n, uint64_t size, void *(*original)(uint64_t, uint64_t), uint64_t bx)
{
	thread *t = scry_thread_buffer_enter();
	void *p;

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(n, size);
	}
	p = original(n, size);
	begun(t, SCRY_MALLOC_OP_CALLOC, p, product(n, size), CALLED_FROM);
	scry_thread_buffer_leave(t);
	return p;
}

static inline void realloc_begins(thread *t, const void *p, int is_array, uint64_t address)
{
	struct record r = {SCRY_MALLOC_OP_REALLOC_BEGIN, (uint64_t)p, (uint64_t)is_array,
			   caller_code(t, address),	 0,	      0};

	about_to_end(p);
	put(t, &r);
}

void *scry_realloc(void *p, uint64_t size, void *(*original)(void *, uint64_t), uint64_t bx)
{
	thread *t = scry_thread_buffer_enter();

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(p, size);
	}
	realloc_begins(t, p, 0, CALLED_BY);
	p = original(p, size);
	begun(t, SCRY_MALLOC_OP_REALLOC_END, p, size, CALLED_FROM);
	scry_thread_buffer_leave(t);
	return p;
}

/* By functions that are seldom called. */
static __attribute__((noinline)) void other_resizes(thread *t, const void *p, int is_array,
						    uint64_t address)
{
	realloc_begins(t, p, is_array, address);
}

static __attribute__((noinline)) void other_resized(thread *t, const void *p, uint64_t size,
						    struct from from)
{
	begun(t, SCRY_MALLOC_OP_REALLOC_END, p, size, from);
	scry_thread_buffer_leave(t);
}

void *scry_reallocarray(void *p, uint64_t n, uint64_t size,
			void *(*original)(void *, uint64_t, uint64_t), uint64_t bx)
{
	thread *t = scry_thread_buffer_enter();

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(p, n, size);
	}
	other_resizes(t, p, 1, CALLED_BY);
	p = original(p, n, size);
	other_resized(t, p, product(n, size), CALLED_FROM);
	return p;
}

void scry_free(void *p, void (*original)(void *))
{
	thread *t = scry_thread_buffer_enter();
	struct record r = {SCRY_MALLOC_OP_FREE, (uint64_t)p, 0, 0, 0, 0};

	if (unlikely(!t)) {
		passed(CALLED_BY);
		original(p);
		return;
	}
	r.caller = caller_code(t, CALLED_BY);
	if (likely(r.caller != ITSELF)) {
		about_to_end(p);
		put(t, &r);
	}
	original(p);
	scry_thread_buffer_leave(t);
}

/* Functions that have no operation of their own. */
static void other_begun(thread *t, const void *p, uint64_t third, struct from from)
{
	struct caller c = caller_of(t, from);
	struct record r = {SCRY_MALLOC_OP_ALLOC, (uint64_t)p, 0, c.code, 0, c.stack};

	if (p)
		r.slack = slack_of(p, third >> 16);
	put_long(t, &r, third);
	scry_thread_buffer_leave(t);
}

int scry_posix_memalign(void **out, uint64_t align, uint64_t size,
			int (*original)(void **, uint64_t, uint64_t), uint64_t bx)
{
	thread *t = scry_thread_buffer_enter();
	int error;

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(out, align, size);
	}
	error = original(out, align, size);
	other_begun(t, error ? 0 : *out, word2(SCRY_MALLOC_POSIX_MEMALIGN, align, size),
		    CALLED_FROM);
	return error;
}

static inline void *aligned(uint64_t align, uint64_t size, void *(*original)(uint64_t, uint64_t),
			    uint64_t function, struct from from)
{
	thread *t = scry_thread_buffer_enter();
	void *p;

	if (unlikely(!t)) {
		passed(*from.slot);
		return original(align, size);
	}
	p = original(align, size);
	other_begun(t, p, word2(function, align, size), from);
	return p;
}

void *scry_memalign(uint64_t align, uint64_t size, void *(*original)(uint64_t, uint64_t),
		    uint64_t bx)
{
	return aligned(align, size, original, SCRY_MALLOC_MEMALIGN, CALLED_FROM);
}

void *scry_aligned_alloc(uint64_t align, uint64_t size, void *(*original)(uint64_t, uint64_t),
			 uint64_t bx)
{
	return aligned(align, size, original, SCRY_MALLOC_ALIGNED_ALLOC, CALLED_FROM);
}

static inline void *by_page(uint64_t size, void *(*original)(uint64_t), uint64_t function,
			    struct from from)
{
	thread *t = scry_thread_buffer_enter();
	void *p;

	if (unlikely(!t)) {
		passed(*from.slot);
		return original(size);
	}
	p = original(size);
	other_begun(t, p, word2(function, 0, size), from);
	return p;
}

void *scry_valloc(uint64_t size, void *(*original)(uint64_t), uint64_t bx)
{
	return by_page(size, original, SCRY_MALLOC_VALLOC, CALLED_FROM);
}

void *scry_pvalloc(uint64_t size, void *(*original)(uint64_t), uint64_t bx)
{
	return by_page(size, original, SCRY_MALLOC_PVALLOC, CALLED_FROM);
}

/* jemalloc's own. Flags: the alignment's log2 in the low six bits, 0 none; then one for zeros. */
void *scry_mallocx(uint64_t size, uint64_t flags, void *(*original)(uint64_t, uint64_t),
		   uint64_t bx)
{
	uint64_t function = flags & 63	 ? SCRY_MALLOC_MEMALIGN
			    : flags & 64 ? SCRY_MALLOC_CALLOC
					 : SCRY_MALLOC_MALLOC;
	thread *t = scry_thread_buffer_enter();
	void *p;

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(size, flags);
	}
	p = original(size, flags);
	other_begun(t, p, word2(function, 1ull << (flags & 63), size), CALLED_FROM);
	return p;
}

void *scry_rallocx(void *p, uint64_t size, uint64_t flags,
		   void *(*original)(void *, uint64_t, uint64_t), uint64_t bx)
{
	thread *t = scry_thread_buffer_enter();

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(p, size, flags);
	}
	other_resizes(t, p, 0, CALLED_BY);
	p = original(p, size, flags);
	other_resized(t, p, size, CALLED_FROM);
	return p;
}

/* Where it lies, or not at all: what is returned is how long the block is then. */
uint64_t scry_xallocx(void *p, uint64_t size, uint64_t extra, uint64_t flags,
		      uint64_t (*original)(void *, uint64_t, uint64_t, uint64_t), uint64_t bx)
{
	thread *t = scry_thread_buffer_enter();
	uint64_t is;

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(p, size, extra, flags);
	}
	other_resizes(t, p, 0, CALLED_BY);
	is = original(p, size, extra, flags);
	other_resized(t, is < size ? 0 : p, size, CALLED_FROM);
	return is;
}

uint64_t scry_usable_size(void *p, uint64_t (*original)(void *))
{
	thread *t = scry_thread_buffer_enter();
	struct record r = {SCRY_MALLOC_OP_USABLE, (uint64_t)p, 0, 0, 0, 0};

	if (unlikely(!t)) {
		passed(CALLED_BY);
		return original(p);
	}
	r.caller = caller_code(t, CALLED_BY);
	r.size = original(p);
	put(t, &r);
	scry_thread_buffer_leave(t);
	return r.size;
}

/*
 * operator new, where the allocator has its own: its nothrow sister is asked, so that an exception
 * finds no frame of ours. 0: the thunk goes on to the original, which will most likely throw.
 */
uint64_t scry_new(uint64_t size, uint64_t align, uint64_t which, const uint64_t *slot, uint64_t bx)
{
	static const uint8_t functions[SCRY_NOTHROWS] = {SCRY_MALLOC_NEW, SCRY_MALLOC_NEW_ARRAY,
							 SCRY_MALLOC_NEW, SCRY_MALLOC_NEW_ARRAY};
	uint64_t (*sister)(uint64_t, uint64_t, uint64_t) =
		(void *)scry_agent_malloc_functions.nothrow[which];
	uint64_t tag = 0, p; /* std::nothrow_t is empty: any address does */
	int is_aligned = which >= SCRY_NOTHROW_NEW_ALIGNED;
	const struct from from = {.slot = slot, .frame = FRAME, .bx = bx};
	thread *t = sister ? scry_thread_buffer_enter() : 0;

	if (unlikely(!t)) {
		passed(*slot);
		return 0;
	}
	p = is_aligned ? sister(size, align, (uint64_t)&tag) : sister(size, (uint64_t)&tag, 0);
	other_begun(t, (void *)p, word2(functions[which], is_aligned ? align : 0, size), from);
	return p;
}

/* A frame of ours, which must find its code when it is returned to, in a thread that has no row. */
static void begin_unknown(void)
{
	__atomic_fetch_add(&scry_agent.state_page->inflight, 1, __ATOMIC_SEQ_CST);
}

static void end_unknown(void)
{
	__atomic_fetch_sub(&scry_agent.state_page->inflight, 1, __ATOMIC_SEQ_CST);
}

/* `arguments`: rdi, rsi, rdx, r11, then the return address. */
uint64_t scry_new_nothrow(const uint64_t *arguments, uint64_t align, uint64_t function,
			  uint64_t (*original)(uint64_t, uint64_t, uint64_t), uint64_t bx)
{
	const struct from from = {.slot = arguments + 4, .frame = FRAME, .bx = bx};
	thread *t = scry_thread_buffer_enter();
	uint64_t p;

	if (unlikely(!t)) {
		passed(arguments[4]);
		begin_unknown();
		p = original(arguments[0], arguments[1], arguments[2]);
		end_unknown();
		return p;
	}
	p = original(arguments[0], arguments[1], arguments[2]);
	other_begun(t, (void *)p, word2(function, align, arguments[0]), from);
	return p;
}

void scry_delete(const uint64_t *arguments, uint64_t function,
		 void (*original)(uint64_t, uint64_t, uint64_t))
{
	thread *t = scry_thread_buffer_enter();
	void *p = (void *)arguments[0];
	struct record r = {SCRY_MALLOC_OP_FREE_BY, arguments[0], 0, 0, 0, 0};

	if (unlikely(!t)) {
		passed(arguments[4]);
		begin_unknown();
		original(arguments[0], arguments[1], arguments[2]);
		end_unknown();
		return;
	}
	r.caller = caller_code(t, arguments[4]);
	about_to_end(p);
	put_long(t, &r, word2(function, 0, 0));
	original(arguments[0], arguments[1], arguments[2]);
	scry_thread_buffer_leave(t);
}

/*
 * fork, when children are recorded too: the keeper learns up to which call the child has what its
 * parent has. In the child our process state page is zero, and this frame returns from the child's
 * own copy of the agent.
 */
static int emit_fork(enum scry_malloc_op op, int64_t pid)
{
	thread *t = scry_thread_buffer_enter();
	uint64_t *w = t ? scry_thread_buffer_reserve(t, 2) : 0, now;

	if (w) {
		now = scry_thread_buffer_order(t, &w);
		w[0] = word0(op, (uint64_t)(pid > 0 ? pid : 0) << 3, 0);
		w[1] = scry_malloc_word1(now, 0, 0);
		scry_thread_buffer_publish(t, w + 2);
	}
	if (t)
		scry_thread_buffer_leave(t);
	return w != 0;
}

int scry_fork(int (*original)(void))
{
	uint64_t *forking = &scry_agent.state.forking;
	int is_emitted = scry_agent.state_page->open && emit_fork(SCRY_MALLOC_OP_FORK, 0), pid;

	__atomic_fetch_add(forking, 1, __ATOMIC_SEQ_CST);
	pid = original();
	if (pid == 0) { /* the other threads that forked are not here */
		__atomic_store_n(forking, 0, __ATOMIC_SEQ_CST);
		return 0;
	}
	if (is_emitted)
		emit_fork(SCRY_MALLOC_OP_FORKED, pid);
	__atomic_fetch_sub(forking, 1, __ATOMIC_SEQ_CST);
	return pid;
}

void scry_malloc_down(void)
{
	scry_lines_over();
}
