/* See calls_ruby.h. */
#include "agent/calls_ruby.h"

#include "agent/calls.h"
#include "agent/lines.h"
#include "wire/call_ring.h"

struct scry_agent_ruby_calls scry_agent_ruby_calls SCRY_WIPED;

#define FACTOR 0x9e3779b97f4a7c15ull
#define DEF_WORDS_MAX (sizeof(struct scry_line_text) / 8)

struct stack {
	uint64_t cfp, end; /* control frames, the newest first; cut: `end` is not the last one's */
	uint64_t generation, hash;
	uint32_t count; /* of Ruby code */
	int is_cut;
};

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * FACTOR;
	return hash ^ hash >> 29;
}

static inline uint64_t begin_hash(uint64_t generation)
{
	return mix(scry_agent.line_plan.watch, generation);
}

/* The generation comes first: what ends later was not on this stack. */
static int look(struct scry_agent_thread *t, struct stack *s)
{
	const struct scry_agent_frames *f = &scry_agent.line_plan.frames;
	uint64_t at, last;

	s->generation = __atomic_load_n(&scry_agent_lines.generation, __ATOMIC_ACQUIRE);
	s->cfp = scry_lines_frames(t, &s->end);
	if (!s->cfp || !f->frame_size)
		return 0;
	last = s->cfp + (uint64_t)SCRY_CALL_RUBY_FRAMES * f->frame_size;
	s->is_cut = last < s->end;
	s->end = s->is_cut ? last : s->end;
	s->hash = begin_hash(s->generation) ^ (uint64_t)s->is_cut;
	s->count = 0;
	for (at = s->cfp; at + f->frame_size <= s->end; at += f->frame_size) {
		uint64_t pc = load64(at + f->frame_pc);

		s->hash = mix(s->hash, pc);
		s->count += pc != 0;
	}
	return s->count != 0;
}

/* What a frame's pc is emitted as. */
static inline uint64_t word_of(const struct stack *s, uint64_t at, uint64_t pc)
{
	return at == s->cfp ? pc | SCRY_MALLOC_LINE_TOP : pc;
}

/* 1: it is emitted, and stays true for this generation; 0: its code could not be read; -1: no room.
 */
static int emit_line(struct scry_agent_thread *t, const struct stack *s, uint64_t pc, uint64_t iseq)
{
	uint64_t *w = scry_thread_buffer_reserve(t, SCRY_CALL_RUBY_LINE_HEAD + DEF_WORDS_MAX);
	struct scry_line_text *emitted;
	uint32_t words;

	if (!w)
		return -1;
	emitted = (struct scry_line_text *)(w + SCRY_CALL_RUBY_LINE_HEAD);
	words = scry_lines_describe(emitted, pc, iseq);
	if (!words || words > DEF_WORDS_MAX || !emitted->def.path_size)
		return 0;
	w[0] = SCRY_CALL_RUBY_LINE;
	w[1] = 0;
	w[2] = SCRY_CALL_RUBY_LINE_HEAD + words;
	w[3] = s->generation;
	w[4] = pc;
	scry_thread_buffer_publish(t, w + SCRY_CALL_RUBY_LINE_HEAD + words);
	return 1;
}

/* Likewise, of all of its lines. */
static int emit_lines(struct scry_agent_thread *t, const struct stack *s)
{
	const struct scry_agent_frames *f = &scry_agent.line_plan.frames;
	int is_whole = 1;

	for (uint64_t at = s->cfp; at + f->frame_size <= s->end; at += f->frame_size) {
		uint64_t pc = load64(at + f->frame_pc), word = word_of(s, at, pc);
		uint64_t hash = mix(begin_hash(s->generation), word);
		uint64_t *known = &scry_agent_ruby_calls.lines[hash % SCRY_RUBY_CALL_LINES];
		int r;

		if (!pc || __atomic_load_n(known, __ATOMIC_ACQUIRE) == hash)
			continue;
		r = emit_line(t, s, word, load64(at + f->frame_iseq));
		if (r < 0)
			return r;
		if (r)
			__atomic_store_n(known, hash, __ATOMIC_RELEASE);
		is_whole &= r;
	}
	return is_whole;
}

static int emit_frames(struct scry_agent_thread *t, const struct stack *s, uint64_t number)
{
	const struct scry_agent_frames *f = &scry_agent.line_plan.frames;
	uint64_t *w = scry_thread_buffer_reserve(t, SCRY_CALL_RUBY_STACK_HEAD + s->count + 1),
		 n = 0;

	if (!w)
		return 0;
	for (uint64_t at = s->cfp; at + f->frame_size <= s->end; at += f->frame_size) {
		uint64_t pc = load64(at + f->frame_pc);

		if (pc && n < s->count)
			w[SCRY_CALL_RUBY_STACK_HEAD + n++] = word_of(s, at, pc);
	}
	if (s->is_cut)
		w[SCRY_CALL_RUBY_STACK_HEAD + n++] = 0;
	w[0] = SCRY_CALL_RUBY_STACK;
	w[1] = 0;
	w[2] = number;
	w[3] = s->generation;
	w[4] = n;
	scry_thread_buffer_publish(t, w + SCRY_CALL_RUBY_STACK_HEAD + n);
	return 1;
}

/* Two threads may give two numbers to one stack: both are right. */
static __attribute__((noinline)) uint64_t emit(struct scry_agent_thread *t, const struct stack *s)
{
	uint64_t number = __atomic_add_fetch(&scry_agent_ruby_calls.numbers, 1, __ATOMIC_RELAXED);
	uint64_t at = s->hash % SCRY_RUBY_CALL_STACKS;
	int r = emit_lines(t, s);

	if (r < 0 || !emit_frames(t, s, number))
		return 0;
	if (r == 0) /* perhaps it can be read the next time */
		return number;
	__atomic_store_n(&scry_agent_ruby_calls.stacks[at].number, number, __ATOMIC_RELAXED);
	__atomic_store_n(&scry_agent_ruby_calls.stacks[at].check, s->hash ^ number * FACTOR,
			 __ATOMIC_RELAXED);
	return number;
}

/* Its number; 0: it has none. */
static uint64_t number_of(struct scry_agent_thread *t)
{
	struct stack s;
	uint64_t at, number, check;

	if (!look(t, &s))
		return 0;
	at = s.hash % SCRY_RUBY_CALL_STACKS;
	number = __atomic_load_n(&scry_agent_ruby_calls.stacks[at].number, __ATOMIC_RELAXED);
	check = __atomic_load_n(&scry_agent_ruby_calls.stacks[at].check, __ATOMIC_RELAXED);
	if (likely(number && check == (s.hash ^ number * FACTOR)))
		return number;
	return emit(t, &s);
}

void scry_call_ruby(const uint64_t *slot)
{
	struct scry_agent_thread *t;
	uint64_t *w, number;

	if (unlikely(scry_calling_is_over()))
		return; /* system calls are forbidden */
	t = scry_call_thread_buffer_enter();
	if (unlikely(!t)) /* the entry that follows says so */
		return;
	number = number_of(t);
	w = number ? scry_thread_buffer_reserve(t, SCRY_CALL_RUBY_WORDS) : 0;
	if (w) {
		uint64_t tsc = scry_thread_buffer_stamp(t, &w);

		w[0] = SCRY_CALL_RUBY;
		w[1] = tsc;
		w[2] = number;
		w[3] = (uint64_t)slot;
		scry_thread_buffer_publish(t, w + SCRY_CALL_RUBY_WORDS);
	}
	scry_thread_buffer_leave(t);
}

void scry_call_ruby_freed(uint64_t address)
{
	if (unlikely(scry_lines_may_start(address)))
		scry_lines_end_start(address);
}
_Static_assert(SCRY_CALL_RUBY_STACK_HEAD + SCRY_CALL_RUBY_FRAMES + 1 <=
			       SCRY_THREAD_BUFFER_RECORD_MAX &&
		       SCRY_CALL_RUBY_LINE_HEAD + DEF_WORDS_MAX <= SCRY_THREAD_BUFFER_RECORD_MAX,
	       "they fit");
