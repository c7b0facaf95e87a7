/* See unwinder.h. The stack is read in windows, as a word by a system call of its own is dear. */
#include "sys/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/cfi.h"
#include "sys/fde.h"

#define FILES_MAX 1024u
#define WINDOW 4096u

struct file { /* with code; one for each inode and bias */
	uint64_t inode, bias;
	uint32_t dev_major, dev_minor;
	struct scry_cfi cfi; /* empty: it has no tables */
	struct scry_fdes fdes;
};

struct scry_unwinder {
	struct scry_space space;
	const struct scry_mem *mem;
	struct scry_maps maps;
	struct file *files;
	size_t file_count;
	uint64_t window_at; /* of the stack; 0: none */
	size_t window_size;
	uint8_t window[WINDOW];
};

int scry_unwinder_open(const struct scry_space *space, const struct scry_mem *mem,
		       struct scry_unwinder **ret)
{
	struct scry_unwinder *u = calloc(1, sizeof(*u));
	int err = u ? scry_space_maps(space, &u->maps)
		    : scry_fail(-ENOMEM, "no memory to walk native stacks");

	if (u && !err && !(u->files = calloc(FILES_MAX, sizeof(*u->files))))
		err = scry_fail(-ENOMEM, "no memory to walk native stacks");
	if (err) {
		scry_unwinder_close(u);
		return err;
	}
	u->space = *space;
	u->mem = mem;
	*ret = u;
	return 0;
}

void scry_unwinder_close(struct scry_unwinder *u)
{
	if (!u)
		return;
	for (size_t i = 0; i < u->file_count; i++) {
		scry_cfi_done(&u->files[i].cfi);
		scry_fde_done(&u->files[i].fdes);
	}
	free(u->files);
	scry_maps_done(&u->maps);
	free(u);
}

void scry_unwinder_see(struct scry_unwinder *u)
{
	struct scry_maps maps;

	if (!u->space.core && scry_space_maps(&u->space, &maps) == 0) {
		scry_maps_done(&u->maps);
		u->maps = maps;
	}
	scry_error_clear();
}

static void compile(struct scry_elf *elf, struct file *f)
{
	struct scry_image image = {0};

	if (scry_image_open(elf, &image) == 0 && scry_cfi_compile(elf, &image, &f->cfi) == 0)
		scry_fde_read(elf, &image, &f->fdes);
	scry_error_clear();
	scry_image_close(&image);
}

/* The file whose code is at `address`, its tables made; NULL: none's. */
static struct file *file_at(struct scry_unwinder *u, uint64_t address)
{
	const struct scry_map_entry *m = scry_maps_at(&u->maps, address);
	struct scry_elf *elf = NULL;
	struct file *f;

	if (!m || !m->x || (!m->inode && !scry_elf_is_vdso(m)))
		return NULL;
	for (f = u->files; f < u->files + u->file_count; f++)
		if (f->inode == m->inode && f->dev_major == m->dev_major &&
		    f->dev_minor == m->dev_minor)
			return f;
	if (u->file_count == FILES_MAX)
		return NULL;
	u->file_count++;
	*f = (struct file){.inode = m->inode, .dev_major = m->dev_major, .dev_minor = m->dev_minor};
	if (scry_space_code(&u->space, m, &elf) == 0 &&
	    scry_elf_bias(elf, &u->maps, m, &f->bias) == 0)
		compile(elf, f);
	scry_error_clear();
	scry_elf_close(elf);
	return f;
}

uint64_t scry_unwinder_function(struct scry_unwinder *u, uint64_t address)
{
	const struct file *f = file_at(u, address);
	size_t low = 0, high = f ? f->fdes.count : 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (f->fdes.rows[mid].end > address - f->bias)
			high = mid;
		else
			low = mid + 1;
	}
	return f && low < f->fdes.count && f->fdes.rows[low].start <= address - f->bias
		       ? f->fdes.rows[low].start + f->bias
		       : 0;
}

static int read_word(void *arg, uint64_t address, uint64_t *ret)
{
	struct scry_unwinder *u = arg;
	ssize_t n;

	if (address % 8)
		return 0;
	if (address - u->window_at >= u->window_size) {
		n = scry_mem_read_some(u->mem, address, u->window, sizeof(u->window));
		if (n < 8 && scry_mem_read(u->mem, address, u->window, 8) == 0)
			n = 8; /* an image gives whole pages, or what is asked for */
		u->window_at = address;
		u->window_size = n > 0 ? (size_t)n / 8 * 8 : 0;
		if (!u->window_size)
			return 0;
	}
	memcpy(ret, u->window + (address - u->window_at), 8);
	return 1;
}

void scry_unwinder_use(struct scry_unwinder *u, const struct scry_mem *mem)
{
	u->mem = mem;
}

struct scry_unwind_state scry_unwinder_at(const struct user_regs_struct *regs)
{
	return (struct scry_unwind_state){
		.pc = regs->rip, .sp = regs->rsp, .bp = regs->rbp, .bx = regs->rbx, .is_exact = 1};
}

struct scry_unwind_state scry_unwinder_blocked(uint64_t pc, uint64_t sp)
{
	return (struct scry_unwind_state){
		.pc = pc,
		.sp = sp,
		.is_exact = 1,
		.lost = SCRY_UNWIND_HAS_NO_BP | SCRY_UNWIND_HAS_NO_BX,
	};
}

/* Does the rule count from a register that is not known? */
static bool needs_lost(const struct scry_unwind_state *s, uint64_t rule)
{
	switch (scry_unwind_base(rule)) {
	case SCRY_UNWIND_BP:
	case SCRY_UNWIND_BP_DEREF:
		return s->lost & SCRY_UNWIND_HAS_NO_BP;
	case SCRY_UNWIND_BX:
		return s->lost & SCRY_UNWIND_HAS_NO_BX;
	default:
		return false;
	}
}

size_t scry_unwinder_walk(struct scry_unwinder *u, struct scry_unwind_state at,
			  struct scry_native_frame *ret, enum scry_native_end *ret_end)
{
	size_t count = 0;

	u->window_size = 0; /* what was read for the walk before is old */
	*ret_end = SCRY_NATIVE_TOO_DEEP;
	while (count < SCRY_UNWINDER_FRAMES_MAX) {
		struct file *f = file_at(u, scry_unwind_at(&at));
		uint64_t rule = 0;

		ret[count++] = (struct scry_native_frame){
			.pc = at.pc,
			.sp = at.sp,
			.function = scry_unwinder_function(u, scry_unwind_at(&at)),
			.is_exact = at.is_exact,
		};
		if (f)
			rule = scry_cfi_rule(&f->cfi, scry_unwind_at(&at) - f->bias);
		switch (scry_unwind_step(&at, rule, read_word, u)) {
		case SCRY_UNWIND_GOES_ON:
			if (at.pc)
				continue;
			*ret_end = SCRY_NATIVE_WHOLE; /* as the ABI marks it */
			return count;
		case SCRY_UNWIND_IS_TOP:
			*ret_end = SCRY_NATIVE_WHOLE;
			return count;
		case SCRY_UNWIND_HAS_NO_RULE:
			*ret_end = SCRY_NATIVE_NO_RULE;
			return count;
		case SCRY_UNWIND_CANNOT_READ:
			*ret_end = needs_lost(&at, rule) ? SCRY_NATIVE_NO_REGISTER
							 : SCRY_NATIVE_UNREADABLE;
			return count;
		}
	}
	return count;
}
