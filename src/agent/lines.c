/*
 * See lines.h: a line's first call, and the end of what it means.
 *
 * A code means one (return address, pc) for good. When the block that holds the pc is freed, its
 * codes are taken out of the tables, and what is at that address then gets another one.
 *
 * A thread that has ended its Ruby part still has the address of its execution context, which may
 * be freed before the thread is gone. Up to Ruby 3.2 such a thread may also wait for seconds; but
 * there a thread that runs Ruby has its VM stack in its machine stack, so that one that has used
 * less than `depth` of that is not running any. From 3.3 on the thread goes at once, its context's
 * frames are taken away first, and no frame is believed that is not within its stack. When the VM
 * is taken down, its last thread's frames are freed while they can still be found: so lines end
 * before.
 */
#include "agent/lines.h"

struct scry_agent_lines scry_agent_lines SCRY_WIPED;

#define FRAMES_MAX 4096 /* C frames above the first Ruby frame */

/* The first Ruby frame above the C frame at `cfp`. */
__attribute__((noinline)) struct scry_line scry_lines_caller(const struct scry_agent_frames *f,
							     uint64_t cfp, uint64_t end)
{
	for (uint32_t i = 0; i < FRAMES_MAX; i++) {
		uint64_t pc;

		cfp += f->frame_size;
		if (cfp + f->frame_size > end)
			break;
		pc = load64(cfp + f->frame_pc);
		if (pc)
			return (struct scry_line){pc, cfp};
	}
	return (struct scry_line){0, 0};
}

/* Its index + 1; 0: there is no room. Other threads do the same. */
static uint32_t add_start(uint64_t start)
{
	struct scry_agent_starts *s = &scry_agent_lines.starts;
	uint32_t hash = scry_lines_start_hash(start);
	uint32_t set = hash % (SCRY_LINE_STARTS / 4) * 4;

	for (uint32_t i = set; i < set + 4; i++) {
		uint64_t have = s->at[i];

		if (!have)
			__atomic_compare_exchange_n(&s->at[i], &have, start, 0, __ATOMIC_ACQ_REL,
						    __ATOMIC_RELAXED);
		if (have && have != start)
			continue;
		__atomic_fetch_or(&s->bits[hash / 64], 1ull << hash % 64, __ATOMIC_ACQ_REL);
		return i + 1;
	}
	return 0;
}

static struct scry_agent_emitted *emitted_of(uint64_t iseq)
{
	struct scry_agent_lines *l = &scry_agent_lines;

	if (__atomic_exchange_n(&l->is_emitted_used, 1, __ATOMIC_ACQUIRE))
		return 0;
	return &l->emitted[iseq * 0x9e3779b97f4a7c15ull >> 54];
}
_Static_assert(SCRY_LINES_EMITTED == 1u << 10, "the shift above");

/* Is it still what runs at `place`? An iseq may move, code does not. */
static int is_same(const struct scry_agent_emitted *t, const struct scry_agent_place *place)
{
	const struct scry_agent_starts *s = &scry_agent_lines.starts;

	return t->iseq == place->iseq && place->pc - t->code.start <= 8ull * t->code.size &&
	       s->at[t->start] == t->code.start && s->ended[t->start] == t->ended;
}

static void copy_text(uint64_t *to, const uint64_t *from, const struct scry_agent_code *code)
{
	for (uint32_t i = 0; 8 * i < (uint32_t)code->path_size + code->label_size; i++)
		to[i] = from[i];
}

/* Reads what is not known, and keeps it in `t`, if there is one. 0: its end would not be seen. */
static int read_anew(struct scry_agent_emitted *t, const struct scry_agent_place *place,
		     struct scry_line_text *emitted)
{
	struct scry_agent_code code;
	uint32_t start;

	if (!scry_code_read(place, &code, (uint8_t *)emitted->text))
		return 1;
	emitted->def.iseq = place->iseq;
	scry_code_at(&code, place->pc, &emitted->def);
	if (!code.path_size)
		return 1;
	start = add_start(code.start);
	if (start && t) {
		t->start = start - 1;
		t->ended = scry_agent_lines.starts.ended[t->start];
		t->iseq = place->iseq;
		t->pc = place->pc;
		t->code = code;
		t->def = emitted->def;
		copy_text(t->text, emitted->text, &code);
	}
	return start != 0;
}

uint32_t scry_lines_describe(struct scry_line_text *emitted, uint64_t pc, uint64_t iseq)
{
	struct scry_agent_place place = {.pc = pc & ~SCRY_MALLOC_LINE_TOP, .iseq = iseq};
	struct scry_agent_emitted *t = emitted_of(iseq);
	int is_right = 1;

	emitted->def = (struct scry_ring_def){0};
	if (t && is_same(t, &place)) {
		if (t->pc != place.pc)
			scry_code_at(&t->code, place.pc, &t->def);
		t->pc = place.pc;
		emitted->def = t->def;
		copy_text(emitted->text, t->text, &t->code);
	} else {
		is_right = read_anew(t, &place, emitted);
	}
	if (t)
		__atomic_store_n(&scry_agent_lines.is_emitted_used, 0, __ATOMIC_RELEASE);
	emitted->def.top = pc & SCRY_MALLOC_LINE_TOP;
	return is_right ? (uint32_t)(sizeof(emitted->def) + emitted->def.path_size +
				     emitted->def.label_size + 7) /
				  8
			: 0;
}

struct emitted {
	uint64_t head[SCRY_MALLOC_LINE_HEAD];
	struct scry_line_text line;
};

/* The index + 1 of a start; 0: it is not there. */
static uint32_t find_start(uint64_t start)
{
	const struct scry_agent_starts *s = &scry_agent_lines.starts;
	uint32_t set = scry_lines_start_hash(start) % (SCRY_LINE_STARTS / 4) * 4;

	for (uint32_t i = set; i < set + 4; i++)
		if (s->at[i] == start)
			return i + 1;
	return 0;
}

/* It means nothing any more when the block at `start` is freed. */
static void add_code(uint32_t i, uint64_t start)
{
	struct scry_agent_lines *l = &scry_agent_lines;
	uint32_t at = find_start(start), *first, had;

	if (!at)
		return;
	first = &l->starts.codes[at - 1];
	had = __atomic_load_n(first, __ATOMIC_RELAXED);
	do {
		l->next[i] = had;
	} while (!__atomic_compare_exchange_n(first, &had, i + 1, 0, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
}

/* A new code, and what it means: emitted before any thread can find it. 0: there is none left, or
 * no room to emit it. */
static uint32_t emit_line(struct scry_agent_thread *t, uint64_t address,
			  const struct scry_line *line)
{
	struct scry_agent_lines *l = &scry_agent_lines;
	struct emitted emitted;
	uint64_t iseq = load64(line->cfp + scry_agent.line_plan.frames.frame_iseq), *w;
	uint32_t i, words;

	words = scry_lines_describe(&emitted.line, line->pc, iseq);
	words += words ? SCRY_MALLOC_LINE_HEAD : 0;
	w = words ? scry_thread_buffer_reserve(t, words) : 0;
	if (!w)
		return 0;
	i = __atomic_fetch_add(&l->count, 1, __ATOMIC_RELAXED);
	if (i >= SCRY_LINES) {
		__atomic_store_n(&l->count, SCRY_LINES, __ATOMIC_RELAXED);
		return 0;
	}
	emitted.head[0] = SCRY_MALLOC_OP_LINE | (uint64_t)words << 4 |
			  (uint64_t)(SCRY_MALLOC_LINES + i) << SCRY_MALLOC_CODE_AT;
	emitted.head[1] = address;
	emitted.head[2] = line->pc;
	emitted.head[3] = iseq;
	for (uint32_t k = 0; k < words; k++)
		w[k] = ((const uint64_t *)&emitted)[k];
	scry_thread_buffer_publish(t, w + words);
	if (emitted.line.def.path_size)
		add_code(i, (line->pc & ~SCRY_MALLOC_LINE_TOP) - 8ull * emitted.line.def.position);
	return SCRY_MALLOC_LINES + i;
}

static uint32_t slot_of(uint64_t hash, uint32_t i)
{
	return (uint32_t)(hash + i) % SCRY_LINE_SLOTS;
}

/* Two threads may give two codes to the same line at the same time: both are right. */
__attribute__((noinline)) uint32_t scry_lines_find(struct scry_agent_thread *t, uint64_t hash,
						   uint64_t address, const struct scry_line *line)
{
	struct scry_agent_lines *l = &scry_agent_lines;
	uint64_t *front = &l->front[hash % SCRY_LINE_FRONT], entry;
	uint32_t i, code;

	for (i = 0; i < SCRY_LINE_PROBES; i++) {
		entry = __atomic_load_n(&l->at[slot_of(hash, i)], __ATOMIC_ACQUIRE);
		if (scry_lines_is(entry, hash)) {
			__atomic_store_n(front, entry, __ATOMIC_RELEASE);
			return entry & SCRY_LINE_CODE;
		}
	}
	code = __atomic_load_n(&l->count, __ATOMIC_RELAXED) < SCRY_LINES
		       ? emit_line(t, address, line)
		       : 0;
	if (!code) {
		__atomic_fetch_add(&scry_account_of(scry_agent.control)->lines.full, 1,
				   __ATOMIC_RELAXED);
		return 0;
	}
	__atomic_store_n(&l->hashes[code - SCRY_MALLOC_LINES], hash, __ATOMIC_RELEASE);
	entry = (hash & ~(uint64_t)SCRY_LINE_CODE) | code;
	for (i = 0; i < SCRY_LINE_PROBES; i++) {
		uint64_t empty = 0;

		if (__atomic_compare_exchange_n(&l->at[slot_of(hash, i)], &empty, entry, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			break;
	}
	__atomic_store_n(front, entry, __ATOMIC_RELEASE);
	return code;
}

static void clear(uint64_t *slot, uint32_t code)
{
	uint64_t had = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if ((had & SCRY_LINE_CODE) == code)
		__atomic_compare_exchange_n(slot, &had, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void forget_code(uint32_t i)
{
	struct scry_agent_lines *l = &scry_agent_lines;
	uint64_t hash = l->hashes[i];

	clear(&l->front[hash % SCRY_LINE_FRONT], SCRY_MALLOC_LINES + i);
	for (uint32_t k = 0; k < SCRY_LINE_PROBES; k++)
		clear(&l->at[slot_of(hash, k)], SCRY_MALLOC_LINES + i);
}

int scry_lines_end_start(uint64_t address)
{
	struct scry_agent_lines *l = &scry_agent_lines;
	struct scry_agent_starts *s = &l->starts;
	uint32_t at = find_start(address), code;

	if (!at)
		return 0;
	code = __atomic_exchange_n(&s->codes[at - 1], 0, __ATOMIC_ACQ_REL);
	for (uint32_t n = 0; code && code <= SCRY_LINES && n < SCRY_LINES; n++) {
		forget_code(code - 1);
		code = l->next[code - 1];
	}
	__atomic_fetch_add(&s->ended[at - 1], 1, __ATOMIC_RELEASE);
	__atomic_store_n(&s->at[at - 1], 0, __ATOMIC_RELEASE);
	__atomic_fetch_add(&l->generation, 1, __ATOMIC_ACQ_REL);
	return 1;
}
