/*
 * The loaded bytes of an ELF file.
 */
#include "sys/image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static int read_part(int fd, const Elf64_Phdr *p, struct scry_image_part *ret)
{
	struct scry_image_part part = {
		.start = p->p_vaddr, .end = p->p_vaddr + p->p_filesz, .flags = p->p_flags};
	size_t done = 0;

	part.bytes = malloc(p->p_filesz);
	if (!part.bytes)
		return scry_no_memory("%" PRIu64 " bytes of a segment", p->p_filesz);
	while (done < p->p_filesz) {
		ssize_t n = pread(fd, part.bytes + done, p->p_filesz - done,
				  (off_t)(p->p_offset + done));

		if (n <= 0) {
			free(part.bytes);
			return scry_fail(-EIO,
					 "the segment at 0x%" PRIx64 " is longer than its file",
					 p->p_vaddr);
		}
		done += (size_t)n;
	}
	*ret = part;
	return 0;
}

int scry_image_open(struct scry_elf *elf, struct scry_image *ret)
{
	struct scry_image image = {0};
	uint64_t room = scry_elf_room(elf), sum = 0;
	const Elf64_Phdr *p;
	int r = 0;

	if (room > SCRY_IMAGE_BYTES_MAX)
		room = SCRY_IMAGE_BYTES_MAX;
	for (size_t i = 0; r == 0 && (p = scry_elf_segment(elf, i)); i++) {
		if (p->p_type != PT_LOAD || p->p_filesz == 0)
			continue;
		if (p->p_filesz > room - sum || p->p_vaddr > UINT64_MAX - p->p_filesz ||
		    image.count == SCRY_IMAGE_PARTS_MAX)
			r = scry_fail(-EFBIG,
				      "the file's segments are larger than the %" PRIu64
				      " MiB that scry reads of it",
				      room >> 20);
		else
			r = read_part(scry_elf_fd(elf), p, &image.parts[image.count]);
		if (r == 0)
			sum += image.parts[image.count++].end - p->p_vaddr;
	}
	if (r < 0)
		scry_image_close(&image);
	else
		*ret = image;
	return r;
}

static bool is_part(const struct scry_image_part *part, const Elf64_Phdr *p, int fd)
{
	const uint64_t size = part->end - part->start;
	uint8_t bytes[65536];
	ssize_t n;

	if (p->p_vaddr != part->start || p->p_filesz != size || p->p_flags != part->flags)
		return false;
	for (uint64_t at = 0; at < size; at += (uint64_t)n) {
		const uint64_t left = size - at;

		n = pread(fd, bytes, left < sizeof(bytes) ? left : sizeof(bytes),
			  (off_t)(p->p_offset + at));
		if (n <= 0 || memcmp(bytes, part->bytes + at, (size_t)n) != 0)
			return false;
	}
	return true;
}

bool scry_image_is_same(const struct scry_image *image, struct scry_elf *elf)
{
	const Elf64_Phdr *p;
	size_t part = 0;

	for (size_t i = 0; (p = scry_elf_segment(elf, i)); i++) {
		if (p->p_type != PT_LOAD || p->p_filesz == 0)
			continue;
		if (part == image->count || !is_part(&image->parts[part], p, scry_elf_fd(elf)))
			return false;
		part++;
	}
	return part == image->count;
}

void scry_image_close(struct scry_image *image)
{
	for (size_t i = 0; i < image->count; i++)
		free(image->parts[i].bytes);
	*image = (struct scry_image){0};
}

const struct scry_image_part *scry_image_part(const struct scry_image *image, uint64_t addr)
{
	for (size_t i = 0; i < image->count; i++)
		if (addr >= image->parts[i].start && addr < image->parts[i].end)
			return &image->parts[i];
	return NULL;
}

const uint8_t *scry_image_at(const struct scry_image *image, uint64_t addr, size_t *ret_avail)
{
	const struct scry_image_part *part = scry_image_part(image, addr);

	if (!part)
		return NULL;
	*ret_avail = part->end - addr;
	return part->bytes + (addr - part->start);
}
