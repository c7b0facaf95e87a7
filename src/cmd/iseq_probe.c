/*
 * Names of code from a uprobe: see iseq_probe.h.
 *
 * The place: rb_iseq_insns_info_encode_positions(iseq), which Ruby exports from 2.7 on, also where
 * it is stripped or hides its other names, as its own extension `ripper` and its tools use it. Not
 * the functions that make iseqs: 19 of 231 pieces of code pass rb_iseq_new_with_opt in 3.1, and 3
 * of 632 in 3.4.
 *
 * The kernel takes the instruction that it displaces from the file. So where memory is not as the
 * file is (another hook stands there) no breakpoint may be put.
 */
#include "cmd/iseq_probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"

#define PLACE "rb_iseq_insns_info_encode_positions"
#define BREAKPOINT 0xcc
#define MANY 200	   /* records at once: the ring may have been full */
#define COMPARED_MAX 5000u /* about 10 us each */

SCRY_BPF_OBJECT(iseq_births);

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
	return scry_births_add(arg, record, size);
}

static void take(void *arg)
{
	struct scry_iseq_probe *p = arg;
	uint64_t lost;
	int got = scry_bpf_take(p->bpf);

	if (got >= 0 && got < MANY)
		return;
	lost = scry_bpf_sum(p->bpf, "counts", SCRY_BIRTH_LOST);
	if (got < 0 || lost != p->lost)
		scry_births_doubt(&p->births, now_ns());
	p->lost = lost;
}

static int attach(struct scry_iseq_probe *p, const struct scry_birth_layout *layout,
		  uint64_t offset)
{
	char path[64];
	struct scry_bpf_uprobe at = {.path = path, .offset = offset, .pid = p->ruby->pid};
	int err = scry_bpf_open(SCRY_BPF(iseq_births), &p->bpf);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", scry_elf_fd(p->ruby->elf));
	if (!err)
		err = scry_bpf_constant(p->bpf, "scry_birth_layout", layout, sizeof(*layout));
	if (!err)
		err = scry_bpf_load(p->bpf);
	if (!err)
		err = scry_bpf_ring(p->bpf, "births", give, &p->births);
	if (!err)
		err = scry_bpf_attach_uprobe(p->bpf, "iseq_born", &at);
	return err;
}

int scry_iseq_probe_open(struct scry_iseq_probe *p, const struct scry_ruby *ruby)
{
	struct scry_birth_layout layout;
	uint64_t offset = 0;
	int err = scry_births_layout(&ruby->layout, &layout);

	*p = (struct scry_iseq_probe){.ruby = ruby};
	scry_births_init(&p->births, &ruby->layout);
	if (!err)
		err = find_place(ruby, &offset);
	if (!err)
		err = attach(p, &layout, offset);
	if (err) {
		scry_iseq_probe_close(p);
		return err;
	}
	p->births.take = take;
	p->births.from = p;
	return 0;
}

void scry_iseq_probe_tick(struct scry_iseq_probe *p)
{
	if (!p->bpf)
		return;
	take(p);
	scry_births_name_late(&p->births, p->ruby);
}

void scry_iseq_probe_end(struct scry_iseq_probe *p, struct scry_iseq_probe_sums *ret)
{
	*ret = (struct scry_iseq_probe_sums){0};
	if (!p->bpf)
		return;
	scry_bpf_detach(p->bpf);
	scry_iseq_probe_tick(p);
	scry_births_compare(&p->births, p->ruby, COMPARED_MAX);
	ret->births = p->births.sums;
	ret->seen = scry_bpf_sum(p->bpf, "counts", SCRY_BIRTH_SEEN);
	ret->lost = scry_bpf_sum(p->bpf, "counts", SCRY_BIRTH_LOST);
	ret->unread = scry_bpf_sum(p->bpf, "counts", SCRY_BIRTH_UNREAD);
}

void scry_iseq_probe_close(struct scry_iseq_probe *p)
{
	scry_bpf_close(p->bpf);
	scry_births_done(&p->births);
	*p = (struct scry_iseq_probe){0};
}
