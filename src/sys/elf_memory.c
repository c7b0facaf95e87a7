/* See elf_memory.h. The copy is a sparse memfd, so that all that reads files reads it. */
#include "sys/elf_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

#define PAGE 4096u
#define BLOCK 65536u
#define SEGMENTS_MAX 64u
#define BYTES_MAX 4096u		/* of a note, that are compared */
#define DYNAMIC_MAX 512u	/* entries */
#define OFFSET_MAX (1ull << 32) /* in the file */

struct copy {
	const struct scry_mem *mem;
	uint64_t bias;
	uint64_t kept; /* bytes of `fd` that are not holes, at most */
	uint64_t end;  /* of what was read, in the file */
	int fd;
	Elf64_Ehdr head;
	Elf64_Phdr segments[SEGMENTS_MAX];
};

/* Of all copies, by all threads. */
static _Atomic uint64_t kept_in_all;

static bool take_page(struct copy *c)
{
	if (atomic_fetch_add(&kept_in_all, PAGE) + PAGE > SCRY_ELF_MEMORY_KEPT_MAX) {
		kept_in_all -= PAGE;
		return false;
	}
	c->kept += PAGE;
	return true;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
	return !bytes[0] && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* Page by page of the file: zeros stay a hole. */
static int put(struct copy *c, const void *bytes, size_t size, uint64_t offset)
{
	const uint8_t *at = bytes;
	size_t part;

	for (; size; at += part, offset += part, size -= part) {
		part = PAGE - offset % PAGE < size ? PAGE - offset % PAGE : size;
		if (is_zero(at, part))
			continue;
		if (!take_page(c))
			return -EFBIG;
		if (pwrite(c->fd, at, part, (off_t)offset) != (ssize_t)part)
			return -ENOMEM;
	}
	return 0;
}

/* Does the file have link-time address `at`? */
static bool is_loaded(const struct copy *c, uint64_t at)
{
	for (unsigned int i = 0; i < c->head.e_phnum; i++) {
		const Elf64_Phdr *p = &c->segments[i];

		if (p->p_type == PT_LOAD && at >= p->p_vaddr && at - p->p_vaddr < p->p_filesz)
			return true;
	}
	return false;
}

/* Lowers *left by the bytes of its segments. */
static int read_head(struct copy *c, uint64_t header, uint64_t *left)
{
	const Elf64_Ehdr *h = &c->head;
	const uint64_t most = *left < SCRY_ELF_MEMORY_BYTES_MAX ? *left : SCRY_ELF_MEMORY_BYTES_MAX;
	uint64_t bytes = 0;

	if (scry_mem_read(c->mem, header, &c->head, sizeof(c->head)) ||
	    memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
	    h->e_machine != EM_X86_64 || h->e_phentsize != sizeof(Elf64_Phdr) || !h->e_phnum ||
	    h->e_phnum > SEGMENTS_MAX || h->e_phoff > BLOCK ||
	    scry_mem_read(c->mem, header + h->e_phoff, c->segments,
			  h->e_phnum * sizeof(Elf64_Phdr)))
		return scry_fail(-ENOEXEC, "there is no ELF object at 0x%" PRIx64, header);
	c->bias = UINT64_MAX;
	for (unsigned int i = 0; i < h->e_phnum; i++) {
		const Elf64_Phdr *p = &c->segments[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (p->p_offset > OFFSET_MAX || p->p_filesz > most - bytes)
			return scry_fail(-EFBIG, "the object at 0x%" PRIx64 " is too large to copy",
					 header);
		bytes += p->p_filesz;
		if (p->p_offset < PAGE && c->bias == UINT64_MAX)
			c->bias = header + p->p_offset - p->p_vaddr;
	}
	if (c->bias == UINT64_MAX)
		return scry_fail(-ENOEXEC, "the object at 0x%" PRIx64 " loads no header", header);
	*left -= bytes;
	return 0;
}

static int copy_segment(struct copy *c, const Elf64_Phdr *p)
{
	uint8_t block[BLOCK];
	uint64_t at = 0;
	int err;

	while (at < p->p_filesz) {
		const uint64_t from = c->bias + p->p_vaddr + at, left = p->p_filesz - at;
		ssize_t n = scry_mem_read_some(c->mem, from, block, left < BLOCK ? left : BLOCK);

		if (n <= 0) { /* up to the page's end */
			at += PAGE - from % PAGE;
			continue;
		}
		err = put(c, block, (size_t)n, p->p_offset + at);
		if (err)
			return err;
		at += (uint64_t)n;
		if (p->p_offset + at > c->end)
			c->end = p->p_offset + at;
	}
	return 0;
}

/* As the file has it: glibc writes run-time addresses there, the kernel and musl do not. */
static int mend_dynamic(struct copy *c, const Elf64_Phdr *p)
{
	Elf64_Dyn entries[DYNAMIC_MAX] = {0};
	const size_t bytes = p->p_filesz < sizeof(entries) ? p->p_filesz : sizeof(entries);
	ssize_t n = pread(c->fd, entries, bytes, (off_t)p->p_offset);

	for (size_t i = 0; n > 0 && i < (size_t)n / sizeof(entries[0]); i++)
		if (is_loaded(c, entries[i].d_un.d_ptr - c->bias))
			entries[i].d_un.d_ptr -= c->bias;
	return n <= 0 ? 0 : put(c, entries, (size_t)n, p->p_offset);
}

/* Section headers are not loaded. */
static int write_head(struct copy *c)
{
	c->head.e_shoff = 0;
	c->head.e_shnum = 0;
	c->head.e_shstrndx = SHN_UNDEF;
	return put(c, &c->head, sizeof(c->head), 0);
}

static int copy_object(struct copy *c)
{
	int err = 0;

	for (unsigned int i = 0; i < c->head.e_phnum && !err; i++)
		if (c->segments[i].p_type == PT_LOAD)
			err = copy_segment(c, &c->segments[i]);
	if (!err && ftruncate(c->fd, (off_t)c->end) < 0)
		err = -ENOMEM;
	for (unsigned int i = 0; i < c->head.e_phnum && !err; i++)
		if (c->segments[i].p_type == PT_DYNAMIC && c->segments[i].p_offset <= OFFSET_MAX)
			err = mend_dynamic(c, &c->segments[i]);
	if (!err)
		err = write_head(c);
	if (err == -EFBIG)
		return scry_fail(err, "copies of ELF objects take up %llu MiB: no more are made",
				 SCRY_ELF_MEMORY_KEPT_MAX >> 20);
	if (err == -ENOMEM)
		return scry_no_memory("a copy of an ELF object");
	return err ? scry_fail(err, "cannot copy an ELF object: %s", strerror(-err)) : 0;
}

int scry_elf_open_memory(struct scry_elf_copies *copies, uint64_t header, struct scry_elf **ret,
			 uint64_t *ret_bias)
{
	struct copy c = {.mem = copies->mem};
	int err = read_head(&c, header, &copies->left);
	char path[40];

	if (err)
		return err;
	c.fd = memfd_create("scry-elf", MFD_CLOEXEC);
	if (c.fd < 0)
		return scry_fail(-errno, "cannot make a file in memory: %s", strerror(errno));
	err = copy_object(&c);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", c.fd);
	if (!err)
		err = scry_elf_open_path(path, ret);
	close(c.fd);
	if (err) {
		kept_in_all -= c.kept;
		return err;
	}
	copies->kept += c.kept;
	*ret_bias = c.bias;
	return 0;
}

void scry_elf_copies_done(struct scry_elf_copies *copies)
{
	kept_in_all -= copies->kept;
	copies->kept = 0;
}

/* Is memory at `bias` as the file is, from link-time address `at` on? */
static enum scry_elf_proof compare(struct scry_elf *elf, const struct scry_mem *mem, uint64_t bias,
				   const Elf64_Phdr *p)
{
	uint8_t theirs[BYTES_MAX], ours[BYTES_MAX];
	const size_t size = p->p_filesz < BYTES_MAX ? p->p_filesz : BYTES_MAX;

	if (!size || scry_elf_read(elf, p->p_vaddr, ours, size) ||
	    scry_mem_read(mem, bias + p->p_vaddr, theirs, size))
		return SCRY_ELF_UNKNOWN;
	return memcmp(theirs, ours, size) == 0 ? SCRY_ELF_SAME : SCRY_ELF_OTHER;
}

enum scry_elf_proof scry_elf_prove(struct scry_elf *elf, const struct scry_mem *mem, uint64_t bias)
{
	static const uint32_t types[] = {PT_NOTE, PT_PHDR};
	enum scry_elf_proof proof = SCRY_ELF_UNKNOWN;
	const Elf64_Phdr *p;

	for (size_t t = 0; t < 2 && proof == SCRY_ELF_UNKNOWN; t++)
		for (size_t i = 0; (p = scry_elf_segment(elf, i)) && proof != SCRY_ELF_OTHER; i++)
			if (p->p_type == types[t]) {
				enum scry_elf_proof one = compare(elf, mem, bias, p);

				proof = one == SCRY_ELF_UNKNOWN ? proof : one;
			}
	return proof;
}
