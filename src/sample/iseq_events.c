/*
 * Names of code from a uprobe: see iseq_events.h.
 *
 * The place: rb_iseq_insns_info_encode_positions(iseq), which Ruby exports from 2.7 on, also where
 * it is stripped or hides its other names, as its own extension `ripper` and its tools use it. Not
 * the functions that make iseqs: 19 of 231 pieces of code pass rb_iseq_new_with_opt in 3.1, and 3
 * of 632 in 3.4.
 *
 * The kernel takes the instruction that it displaces from the file. So where memory is not as the
 * file is (another hook is there) no breakpoint may be put.
 */
#include "sample/iseq_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"

#define PLACE "rb_iseq_insns_info_encode_positions"
#define BREAKPOINT 0xcc
#define MANY 200	   /* records at once: the ring may have been full */
#define COMPARED_MAX 5000u /* about 10 us each */

SCRY_BPF_OBJECT(iseq_events);

struct scry_iseq_events_program {
	struct scry_iseq_events_all *all;
	struct scry_bpf *bpf;
	struct scry_iseq_event_layout layout;
	uint64_t lost;
	uint64_t lost_before, unread_before; /* in the sums of programs that were ended */
};

static uint64_t now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Where behind the entry the breakpoint is put: the kernel emulates push and nop in 1 us, but has
 * to step over others in 9. endbr64 is followed by a push as a rule.
 */
static uint64_t cheap_place(const uint8_t code[16])
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

	return memcmp(code, endbr64, sizeof(endbr64)) == 0 ? sizeof(endbr64) : 0;
}

static int file_offset(const struct scry_ruby *ruby, uint64_t addr, uint64_t *ret)
{
	const Elf64_Phdr *ph;

	for (size_t i = 0; (ph = scry_elf_segment(ruby->elf, i)); i++) {
		if (ph->p_type != PT_LOAD || addr < ph->p_vaddr ||
		    addr - ph->p_vaddr >= ph->p_filesz)
			continue;
		*ret = addr - ph->p_vaddr + ph->p_offset;
		return 0;
	}
	return -ENOENT;
}

/* The offset in the file at which the breakpoint may be put. */
static int find_place(const struct scry_ruby *ruby, uint64_t *ret)
{
	uint8_t file[16], memory[16];
	struct scry_sym sym;
	uint64_t at;

	if (scry_elf_symbol(ruby->elf, PLACE, &sym) || sym.type != STT_FUNC ||
	    scry_elf_read(ruby->elf, sym.value, file, sizeof(file)))
		return scry_fail(-ENOTSUP,
				 "'%s' has no function %s, through which all code goes; "
				 "fix: --names=read",
				 ruby->module, PLACE);
	at = cheap_place(file);
	if (scry_mem_read(&ruby->mem, ruby->bias + sym.value, memory, sizeof(memory)))
		return scry_fail(-ESRCH, "process %d is gone", ruby->pid);
	if (memory[at] == BREAKPOINT) /* another probe's: they live together */
		memory[at] = file[at];
	if (memcmp(file, memory, sizeof(file)) != 0)
		return scry_fail(-ENOTSUP,
				 "%s of process %d is hooked already; fix: end that, or "
				 "--names=read",
				 PLACE, ruby->pid);
	if (file_offset(ruby, sym.value + at, ret))
		return scry_fail(-ENOTSUP, "%s is in no segment of '%s'", PLACE, ruby->module);
	return 0;
}

static int give(void *arg, void *record, size_t size)
{
	const struct scry_iseq_events_program *of = arg;
	const struct scry_iseq_event *r = record;

	for (size_t i = 0; i < of->all->count && size >= sizeof(*r); i++) {
		struct scry_iseq_events *p = of->all->open[i];

		if (p->number != r->process)
			continue;
		p->given++;
		return scry_iseq_log_add(&p->births, record, size);
	}
	return 0;
}

static void take(void *arg)
{
	struct scry_iseq_events_program *of = arg;
	uint64_t lost;
	int got = scry_bpf_take(of->bpf);

	if (got >= 0 && got < MANY)
		return;
	lost = scry_bpf_sum(of->bpf, "counts", SCRY_ISEQ_EVENT_LOST);
	for (size_t i = 0; i < of->all->count && (got < 0 || lost != of->lost); i++)
		if (of->all->open[i]->program == of)
			scry_iseq_log_doubt(&of->all->open[i]->births, now_ns());
	of->lost = lost;
}

/* --- programs --------------------------------------------------------------------------------- */

static void free_program(struct scry_iseq_events_program *of)
{
	scry_bpf_close(of->bpf);
	free(of);
}

static int load(struct scry_iseq_events_program *of)
{
	int err = scry_bpf_open(SCRY_BPF(iseq_events), &of->bpf);

	if (!err)
		err = scry_bpf_constant(of->bpf, "scry_iseq_event_layout", &of->layout,
					sizeof(of->layout));
	if (!err)
		err = scry_bpf_load(of->bpf);
	return err ? err : scry_bpf_ring(of->bpf, "births", give, of);
}

static int program_for(struct scry_iseq_events_all *all, const struct scry_ruby *ruby,
		       struct scry_iseq_events_program **ret)
{
	struct scry_iseq_events_program *of;
	struct scry_iseq_event_layout layout;
	int err = scry_iseq_log_layout(&ruby->layout, &layout);

	for (size_t i = 0; i < all->program_count && !err; i++)
		if (memcmp(&all->programs[i]->layout, &layout, sizeof(layout)) == 0) {
			*ret = all->programs[i];
			return 0;
		}
	if (err)
		return err;
	if (all->program_count == SCRY_ISEQ_EVENTS_PROGRAMS)
		return scry_fail(-ENOTSUP, "more than %d different Rubies",
				 SCRY_ISEQ_EVENTS_PROGRAMS);
	of = calloc(1, sizeof(*of));
	if (!of)
		return scry_no_memory("a probe");
	*of = (struct scry_iseq_events_program){.all = all, .layout = layout};
	err = load(of);
	if (err) {
		free_program(of);
		return err;
	}
	all->programs[all->program_count++] = of;
	*ret = of;
	return 0;
}

void scry_iseq_events_all_done(struct scry_iseq_events_all *all)
{
	for (size_t i = 0; i < all->program_count; i++)
		free_program(all->programs[i]);
	free(all->open);
	*all = (struct scry_iseq_events_all){0};
}

/* --- a process -------------------------------------------------------------------------------- */

static int join(struct scry_iseq_events *p, struct scry_iseq_events_all *all)
{
	struct scry_iseq_events **more =
		reallocarray(all->open, all->count + 1, sizeof(struct scry_iseq_events *));

	if (!more)
		return scry_no_memory("a probe");
	all->open = more;
	all->open[all->count++] = p;
	p->number = ++all->number;
	p->all = all;
	return 0;
}

static int attach(struct scry_iseq_events *p, uint64_t offset)
{
	char path[64];
	struct scry_bpf_uprobe at = {
		.path = path, .offset = offset, .pid = p->ruby->pid, .number = p->number};

	snprintf(path, sizeof(path), "/proc/self/fd/%d", scry_elf_fd(p->ruby->elf));
	return scry_bpf_attach_uprobe(p->program->bpf, "iseq_born", &at);
}

int scry_iseq_events_open(struct scry_iseq_events *p, struct scry_iseq_events_all *all,
			  const struct scry_ruby *ruby)
{
	uint64_t offset = 0;
	int err;

	*p = (struct scry_iseq_events){.ruby = ruby};
	scry_iseq_log_init(&p->births, &ruby->layout);
	err = find_place(ruby, &offset);
	if (!err)
		err = program_for(all, ruby, &p->program);
	if (!err)
		err = join(p, all);
	if (!err)
		err = attach(p, offset);
	if (err) {
		scry_iseq_events_close(p);
		return err;
	}
	p->births.take = take;
	p->births.from = p->program;
	return 0;
}

int scry_iseq_events_check(const struct scry_ruby *ruby)
{
	struct scry_iseq_events_all all = {0};
	struct scry_iseq_events_program *of = NULL, anyhow = {.all = &all};
	uint64_t offset;
	int err = ruby ? find_place(ruby, &offset) : load(&anyhow);

	if (!err && ruby)
		err = program_for(&all, ruby, &of);
	scry_bpf_close(anyhow.bpf);
	scry_iseq_events_all_done(&all);
	return err;
}

void scry_iseq_events_tick(struct scry_iseq_events *p)
{
	if (!p->all)
		return;
	take(p->program);
	scry_iseq_log_name_late(&p->births, p->ruby);
}

void scry_iseq_events_end(struct scry_iseq_events *p, struct scry_iseq_events_sums *ret)
{
	struct scry_bpf *b;

	*ret = (struct scry_iseq_events_sums){0};
	if (!p->all)
		return;
	b = p->program->bpf;
	scry_bpf_detach_number(b, p->number);
	scry_iseq_events_tick(p);
	scry_iseq_log_compare(&p->births, p->ruby, COMPARED_MAX);
	ret->births = p->births.sums;
	ret->seen = p->given;
	ret->lost = scry_bpf_sum(b, "counts", SCRY_ISEQ_EVENT_LOST) - p->program->lost_before;
	ret->unread = scry_bpf_sum(b, "counts", SCRY_ISEQ_EVENT_UNREAD) - p->program->unread_before;
	ret->seen += ret->lost + ret->unread;
	p->program->lost_before += ret->lost;
	p->program->unread_before += ret->unread;
}

void scry_iseq_events_close(struct scry_iseq_events *p)
{
	struct scry_iseq_events_all *all = p->all;
	size_t kept = 0;

	for (size_t i = 0; all && i < all->count; i++)
		if (all->open[i] != p)
			all->open[kept++] = all->open[i];
	if (all) {
		scry_bpf_detach_number(p->program->bpf, p->number);
		all->count = kept;
	}
	scry_iseq_log_done(&p->births);
	*p = (struct scry_iseq_events){0};
}
