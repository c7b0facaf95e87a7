/*
 * FDEs of .eh_frame. libdw cuts the entries; pointers and the first unwind rules are read here.
 *
 * Where: PT_GNU_EH_FRAME points at .eh_frame_hdr, which points at .eh_frame; a static program
 * without one may still have the section. The end is the section's, or the terminator.
 */
#include "sys/fde.h"

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* A pointer encoding: low nibble the format, the next bits what it is relative to. */
#define ENC_FORMAT 0x0f
#define ENC_RELATIVE 0x70
#define ENC_PCREL 0x10

struct cursor {
	const uint8_t *at, *end;
	uint64_t address; /* of `at` */
};

static bool take(struct cursor *c, void *ret, size_t size)
{
	if ((size_t)(c->end - c->at) < size)
		return false;
	memcpy(ret, c->at, size);
	c->at += size;
	c->address += size;
	return true;
}

static bool take_uleb(struct cursor *c, uint64_t *ret)
{
	uint64_t value = 0;
	uint8_t byte;

	for (unsigned int shift = 0; shift < 63; shift += 7) {
		if (!take(c, &byte, 1))
			return false;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* An encoded pointer. Only forms that linkers write for code: absolute or relative to itself. */
static bool take_pointer(struct cursor *c, uint8_t encoding, uint64_t *ret)
{
	uint64_t from = (encoding & ENC_RELATIVE) == ENC_PCREL ? c->address : 0;
	int32_t s32;
	uint32_t u32;
	int16_t s16;
	uint64_t u64;

	if ((encoding & ENC_RELATIVE) != ENC_PCREL && (encoding & ENC_RELATIVE) != 0)
		return false;
	switch (encoding & ENC_FORMAT) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		if (!take(c, &u64, sizeof(u64)))
			return false;
		*ret = from + u64;
		return true;
	case DW_EH_PE_sdata4:
		if (!take(c, &s32, sizeof(s32)))
			return false;
		*ret = from + (uint64_t)(int64_t)s32;
		return true;
	case DW_EH_PE_udata4:
		if (!take(c, &u32, sizeof(u32)))
			return false;
		*ret = from + u32;
		return true;
	case DW_EH_PE_sdata2:
		if (!take(c, &s16, sizeof(s16)))
			return false;
		*ret = from + (uint64_t)(int64_t)s16;
		return true;
	default:
		return false;
	}
}

/* Where .eh_frame lies and how much of it there is. */
static const uint8_t *find_frames(struct scry_elf *elf, const struct scry_image *image,
				  uint64_t *ret_address, size_t *ret_size)
{
	const uint8_t *bytes = NULL;
	uint64_t address, size;
	const Elf64_Phdr *p;

	if (scry_elf_section(elf, ".eh_frame", &address, &size) == 0) {
		bytes = scry_image_at(image, address, ret_size);
		*ret_address = address;
		if (bytes && *ret_size > size)
			*ret_size = size;
		return bytes;
	}
	for (size_t i = 0; (p = scry_elf_segment(elf, i)); i++) {
		struct cursor c = {.address = p->p_vaddr};
		uint8_t head[4];
		size_t avail;

		if (p->p_type != PT_GNU_EH_FRAME)
			continue;
		c.at = scry_image_at(image, p->p_vaddr, &avail);
		c.end = c.at ? c.at + avail : NULL;
		if (c.at && take(&c, head, sizeof(head)) && head[0] == 1 &&
		    take_pointer(&c, head[1], ret_address))
			return scry_image_at(image, *ret_address, ret_size);
	}
	return NULL;
}

/* What a CIE says of its FDEs. */
struct cie {
	Dwarf_Off offset;
	uint8_t encoding;
	bool has_size; /* 'z': augmentation data with a length in front */
	bool is_signal;
	bool is_known;
	Dwarf_CIE from;
};

static struct cie read_cie(const Dwarf_CIE *from, Dwarf_Off offset)
{
	struct cie cie = {
		.offset = offset, .encoding = DW_EH_PE_absptr, .is_known = true, .from = *from};
	struct cursor c = {.at = from->augmentation_data};
	const char *a = from->augmentation;
	uint64_t personality;
	uint8_t encoding;

	c.end = c.at ? c.at + from->augmentation_data_size : NULL;
	if (*a == 'z') {
		cie.has_size = true;
		a++;
	}
	for (; *a && cie.is_known; a++) {
		if (*a == 'R')
			cie.is_known = take(&c, &cie.encoding, 1);
		else if (*a == 'L')
			cie.is_known = take(&c, &encoding, 1);
		else if (*a == 'P')
			cie.is_known = take(&c, &encoding, 1) &&
				       take_pointer(&c, encoding & ENC_FORMAT, &personality);
		else if (*a == 'S')
			cie.is_signal = true;
		else
			cie.is_known = *a == 'B';
	}
	return cie;
}

/*
 * Do the rules at the range's first byte stay as the CIE has them? A cold part of a function with a
 * frame says at once where the frame is; where it begins with a landing pad, gcc puts a nop first
 * (offset 0 means "no landing pad") and says so behind that.
 */
static bool begins_as_entry(const uint8_t *at, const uint8_t *end, uint8_t first_code_byte)
{
	for (; at < end; at++) {
		if (*at == (DW_CFA_advance_loc | 1) && first_code_byte == 0x90 && at + 1 < end)
			return at[1] == DW_CFA_nop;
		if (*at == DW_CFA_nop)
			continue;
		if (*at == DW_CFA_undefined && end - at >= 2) { /* _start: no caller */
			at++;
			continue;
		}
		return (*at & 0xc0) == DW_CFA_advance_loc || *at == DW_CFA_advance_loc1 ||
		       *at == DW_CFA_advance_loc2 || *at == DW_CFA_advance_loc4 ||
		       *at == DW_CFA_set_loc || *at == DW_CFA_remember_state;
	}
	return true;
}

static bool read_fde(const struct cie *cie, struct cursor c, struct scry_fde_program *ret)
{
	uint64_t start, size, skip = 0;

	if (!cie->is_known || (cie->encoding & 0x80) || !take_pointer(&c, cie->encoding, &start) ||
	    !take_pointer(&c, cie->encoding & ENC_FORMAT, &size))
		return false;
	if (cie->has_size && (!take_uleb(&c, &skip) || skip > (uint64_t)(c.end - c.at)))
		return false;
	if (size == 0 || size > UINT32_MAX || start > UINT64_MAX - size)
		return false;
	*ret = (struct scry_fde_program){.start = start,
					 .end = start + size,
					 .is_signal = cie->is_signal,
					 .code_align = cie->from.code_alignment_factor,
					 .data_align = cie->from.data_alignment_factor,
					 .return_register = cie->from.return_address_register,
					 .initial = cie->from.initial_instructions,
					 .initial_end = cie->from.initial_instructions_end,
					 .own = c.at + skip,
					 .own_end = c.end};
	return true;
}

static int by_start(const void *a, const void *b)
{
	const struct scry_fde *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static int append(struct scry_fdes *fdes, size_t *room, const struct scry_fde *fde)
{
	if (fdes->count == *room) {
		size_t more = *room ? 2 * *room : 1024;
		struct scry_fde *rows = reallocarray(fdes->rows, more, sizeof(*rows));

		if (!rows)
			return scry_no_memory("%zu code ranges", more);
		fdes->rows = rows;
		*room = more;
	}
	fdes->rows[fdes->count++] = *fde;
	if (fdes->count > SCRY_FDE_MAX)
		return scry_fail(-EFBIG, "the file has more than %u code ranges", SCRY_FDE_MAX);
	return 0;
}

static const unsigned char ident[EI_NIDENT] = {[EI_CLASS] = ELFCLASS64, [EI_DATA] = ELFDATA2LSB};

/* Sorted, without empty rows; of two with the same start the first stays. */
static void tidy(const struct scry_image *image, struct scry_fdes *fdes)
{
	size_t kept = 0;

	if (fdes->count)
		qsort(fdes->rows, fdes->count, sizeof(*fdes->rows), by_start);
	for (size_t i = 0; i < fdes->count; i++) {
		const struct scry_fde *row = &fdes->rows[i];
		const struct scry_image_part *part = scry_image_part(image, row->start);

		if (!part || !(part->flags & PF_X) || row->end > part->end ||
		    (kept && row->start < fdes->rows[kept - 1].end))
			fdes->bad++;
		else
			fdes->rows[kept++] = *row;
	}
	fdes->count = kept;
}

/* .eh_frame while it is read. */
struct frames {
	Elf_Data data;
	uint64_t address; /* of the data */
	struct cie cie;	  /* the one read last */
};

static bool take_entry(struct frames *f, const Dwarf_FDE *entry, struct scry_fde_program *ret)
{
	const uint8_t *base = f->data.d_buf;
	struct cie *cie = &f->cie;
	Dwarf_CFI_Entry parent;
	Dwarf_Off next;

	if (!cie->is_known || cie->offset != entry->CIE_pointer) {
		*cie = (struct cie){0};
		if (entry->CIE_pointer >= f->data.d_size ||
		    dwarf_next_cfi(ident, &f->data, true, entry->CIE_pointer, &next, &parent) !=
			    0 ||
		    !dwarf_cfi_cie_p(&parent))
			return false;
		*cie = read_cie(&parent.cie, entry->CIE_pointer);
	}
	return read_fde(cie,
			(struct cursor){.at = entry->start,
					.end = entry->end,
					.address = f->address + (uint64_t)(entry->start - base)},
			ret);
}

int scry_fde_each(struct scry_elf *elf, const struct scry_image *image,
		  int (*fn)(const struct scry_fde_program *, void *), void *arg, size_t *ret_bad)
{
	struct frames f = {.data = {.d_type = ELF_T_BYTE, .d_version = EV_CURRENT}};
	struct scry_fde_program program;
	Dwarf_Off at = 0, next = 0;
	size_t size = 0;
	const uint8_t *bytes = find_frames(elf, image, &f.address, &size);
	Dwarf_CFI_Entry entry;
	int r = 0;

	*ret_bad = 0;
	if (!bytes)
		return scry_fail(-ENOENT, "the file has no unwind tables (.eh_frame): where its "
					  "functions begin and end is not known");
	f.data.d_buf = (void *)(uintptr_t)bytes;
	f.data.d_size = size;
	for (; r == 0 && dwarf_next_cfi(ident, &f.data, true, at, &next, &entry) == 0; at = next) {
		if (next <= at)
			break;
		if (dwarf_cfi_cie_p(&entry))
			continue;
		if (take_entry(&f, &entry.fde, &program))
			r = fn(&program, arg);
		else
			++*ret_bad;
	}
	return r;
}

struct reading {
	const struct scry_image *image;
	struct scry_fdes *fdes;
	size_t room;
};

static int take_range(const struct scry_fde_program *p, void *arg)
{
	struct reading *to = arg;
	size_t avail;
	const uint8_t *code = scry_image_at(to->image, p->start, &avail);
	const struct scry_fde fde = {.start = p->start,
				     .end = p->end,
				     .is_signal = p->is_signal,
				     .is_entry =
					     begins_as_entry(p->own, p->own_end, code ? *code : 0)};

	return append(to->fdes, &to->room, &fde);
}

int scry_fde_read(struct scry_elf *elf, const struct scry_image *image, struct scry_fdes *ret)
{
	struct scry_fdes fdes = {0};
	struct reading to = {.image = image, .fdes = &fdes};
	int r = scry_fde_each(elf, image, take_range, &to, &fdes.bad);

	tidy(image, &fdes);
	if (r == 0 && fdes.count == 0)
		r = scry_fail(-ENOENT, "the file's unwind tables (.eh_frame) name no function");
	if (r < 0)
		scry_fde_done(&fdes);
	else
		*ret = fdes;
	return r;
}

void scry_fde_done(struct scry_fdes *fdes)
{
	free(fdes->rows);
	*fdes = (struct scry_fdes){0};
}
