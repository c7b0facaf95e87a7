/*
 * See lines.h: a line's first call, and the end of what it means.
 *
 * A code means one (return address, pc) for good. When the block that holds the pc is freed, its
 * code is taken out of the table, and who then stands at that address gets another code.
 *
 * A thread that has ended its Ruby part still has the address of its execution context, which may
 * be freed before the thread is gone. Up to Ruby 3.2 such a thread may also wait for seconds; but
 * there a thread that runs Ruby has its VM stack in its machine stack, so that one that has used
 * less than `depth` of that is not running any. From 3.3 on the thread goes at once, its
 * context's frames are taken away first, and no frame is believed that is not within its stack.
 * When the VM is taken down, its last thread's frames are freed while they can still be found: so
 * lines end before.
 */
#include "agent/lines.h"

#include "agent/syscall.h"

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

/* 0: there is no room. Other threads do the same. */
static int add_start(uint64_t start)
{
	struct scry_agent_starts *s = &scry_agent.lines.starts;
	uint32_t hash = scry_lines_start_hash(start);
	uint64_t *set = &s->at[hash % (SCRY_LINE_STARTS / 4) * 4];

	for (uint32_t i = 0; i < 4; i++) {
		uint64_t have = set[i];

		if (!have)
			__atomic_compare_exchange_n(&set[i], &have, start, 0, __ATOMIC_ACQ_REL,
						    __ATOMIC_RELAXED);
		if (have && have != start)
			continue;
		__atomic_fetch_or(&s->bits[hash / 64], 1ull << hash % 64, __ATOMIC_ACQ_REL);
		return 1;
	}
	return 0;
}

uint32_t scry_lines_describe(struct scry_line_told *told, uint64_t pc, uint64_t iseq)
{
	struct scry_agent_place place = {.pc = pc & ~SCRY_MALLOC_LINE_TOP, .iseq = iseq};
	uint32_t size;

	if (!scry_agent.lines.pid)
		scry_agent.lines.pid = (uint32_t)scry_agent_syscall4(SCRY_SYS_GETPID, 0, 0, 0, 0);
	told->def = (struct scry_ring_def){.top = pc & SCRY_MALLOC_LINE_TOP};
	scry_describe(&told->def, &place, (uint8_t *)told->text);
	if (told->def.path_size && !add_start(place.pc - 8ull * told->def.position))
		return 0;
	size = (uint32_t)sizeof(told->def) + told->def.path_size + told->def.label_size;
	return (size + 7) / 8;
}

struct told {
	uint64_t head[SCRY_MALLOC_LINE_HEAD];
	struct scry_line_told line;
};

/* A new code, and what it means: told before anybody can find it. 0: there is none left, or no room
 * to tell it. */
static uint32_t tell_line(struct scry_agent_thread *t, uint64_t address,
			  const struct scry_line *line)
{
	struct scry_agent_lines *l = &scry_agent.lines;
	struct told told;
	uint64_t iseq = load64(line->cfp + scry_agent.line_plan.frames.frame_iseq), *w;
	uint32_t i, words;

	words = scry_lines_describe(&told.line, line->pc, iseq);
	words += words ? SCRY_MALLOC_LINE_HEAD : 0;
	w = words ? scry_track_reserve(t, words) : 0;
	if (!w)
		return 0;
	i = __atomic_fetch_add(&l->count, 1, __ATOMIC_RELAXED);
	if (i >= SCRY_LINES) {
		__atomic_store_n(&l->count, SCRY_LINES, __ATOMIC_RELAXED);
		return 0;
	}
	told.head[0] = SCRY_MALLOC_OP_LINE | (uint64_t)words << 4 |
		       (uint64_t)(SCRY_MALLOC_LINES + i) << 48;
	told.head[1] = address;
	told.head[2] = line->pc;
	told.head[3] = iseq;
	for (uint32_t k = 0; k < words; k++)
		w[k] = ((const uint64_t *)&told)[k];
	scry_track_publish(t, w + words);
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
	struct scry_agent_lines *l = &scry_agent.lines;
	uint32_t i, code;

	for (i = 0; i < SCRY_LINE_PROBES; i++) {
		uint64_t have = __atomic_load_n(&l->at[slot_of(hash, i)], __ATOMIC_ACQUIRE);

		if (have && !((have ^ hash) >> 16))
			return have & 0xffff;
	}
	code = __atomic_load_n(&l->count, __ATOMIC_RELAXED) < SCRY_LINES
		       ? tell_line(t, address, line)
		       : 0;
	if (!code) {
		__atomic_fetch_add(&scry_agent.control->lines_full, 1, __ATOMIC_RELAXED);
		return 0;
	}
	for (i = 0; i < SCRY_LINE_PROBES; i++) {
		uint32_t slot = slot_of(hash, i);
		uint64_t empty = 0;

		if (l->at[slot])
			continue;
		l->slots[code - SCRY_MALLOC_LINES] = (uint16_t)slot;
		__atomic_store_n(&l->pcs[code - SCRY_MALLOC_LINES], line->pc, __ATOMIC_RELEASE);
		if (__atomic_compare_exchange_n(&l->at[slot], &empty, (hash & ~0xffffull) | code, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			break;
	}
	return code;
}

int scry_lines_end_start(uint64_t address)
{
	struct scry_agent_starts *s = &scry_agent.lines.starts;
	uint32_t set = scry_lines_start_hash(address) % (SCRY_LINE_STARTS / 4) * 4;
	int found = 0;

	for (uint32_t i = set; i < set + 4; i++)
		if (s->at[i] == address) {
			s->at[i] = 0;
			found = 1;
		}
	return found;
}

/* The pc behind the last word is still of this code. */
__attribute__((noinline)) void scry_lines_forget(uint64_t start, uint64_t size)
{
	struct scry_agent_lines *l = &scry_agent.lines;
	uint32_t count = __atomic_load_n(&l->count, __ATOMIC_RELAXED);

	if (!scry_lines_end_start(start))
		return;
	for (uint32_t i = 0; i < count && i < SCRY_LINES; i++) {
		uint64_t had;

		if ((l->pcs[i] & ~SCRY_MALLOC_LINE_TOP) - start > size)
			continue;
		l->pcs[i] = 0;
		had = l->at[l->slots[i]];
		if ((had & 0xffff) == SCRY_MALLOC_LINES + i)
			__atomic_compare_exchange_n(&l->at[l->slots[i]], &had, 0, 0,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
}

void scry_lines_over(void)
{
	scry_agent.line_plan.on = 0;
}
