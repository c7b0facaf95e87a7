/*
 * From a frame to its caller's, by the module's .eh_frame (DWARF 5 section 6.4; System V psABI
 * section 4.2.4 for its encodings). Expressions are not evaluated: frames that need one end the
 * walk. Every read is bounded by the file, every step by the stack.
 */
#include "fiber/mapped_file.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define REGISTERS 17
#define SAVED_STATES 8
#define PCREL_SDATA4 0x1b
#define PCREL_INDIRECT 0x80

struct bytes {
	const unsigned char *at, *end;
	bool is_bad; /* read past its end */
};

enum rule { RULE_SAME, RULE_UNDEFINED, RULE_OFFSET, RULE_REGISTER, RULE_UNKNOWN };

struct row {
	uint32_t cfa_register;
	int64_t cfa_offset;
	bool is_cfa_known;
	struct {
		enum rule rule;
		int64_t value;
	} of[REGISTERS];
};

/* The code's range, its program and its common one. */
struct fde {
	uint64_t begin, end;
	uint64_t code_align;
	int64_t data_align;
	struct bytes common, own;
	bool is_signal;
};

static uint64_t take(struct bytes *from, unsigned size)
{
	uint64_t value = 0;

	if ((size_t)(from->end - from->at) < size) {
		from->is_bad = true;
		from->at = from->end;
		return 0;
	}
	memcpy(&value, from->at, size);
	from->at += size;
	return value;
}

static uint64_t take_leb(struct bytes *from, bool is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0, byte;

	do {
		byte = take(from, 1);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (is_signed && shift < 64 && (byte & 0x40))
		value |= UINT64_MAX << shift;
	return value;
}

static uint64_t take_uleb(struct bytes *from)
{
	return take_leb(from, false);
}

static int64_t take_sleb(struct bytes *from)
{
	return (int64_t)take_leb(from, true);
}

/* A CIE; only pointers relative to themselves, in four bytes, are known: what compilers write on
 * x86_64. */
static bool read_cie(struct bytes cie, struct fde *fde, bool *ret_has_data)
{
	const char *augmentation;
	struct bytes data;

	take(&cie, 1);
	augmentation = (const char *)cie.at;
	while (!cie.is_bad && take(&cie, 1) != 0)
		;
	fde->code_align = take_uleb(&cie);
	fde->data_align = take_sleb(&cie);
	take_uleb(&cie); /* the return address is register 16 */
	*ret_has_data = augmentation[0] == 'z';
	if (cie.is_bad || (augmentation[0] != 'z' && augmentation[0] != '\0'))
		return false;
	if (*ret_has_data) {
		uint64_t size = take_uleb(&cie);

		if (size > (size_t)(cie.end - cie.at))
			return false;
		data = (struct bytes){cie.at, cie.at + size, false};
		cie.at += size;
		for (const char *letter = augmentation + 1; *letter != '\0'; letter++) {
			unsigned encoding;

			if (*letter == 'R' && take(&data, 1) != PCREL_SDATA4)
				return false;
			if (*letter == 'L')
				take(&data, 1);
			if (*letter == 'P') {
				encoding = take(&data, 1);
				take(&data, (encoding & 7) == 3 ? 4 : 8);
			}
			if (*letter == 'S')
				fde->is_signal = true;
		}
	}
	fde->common = cie;
	return true;
}

/* .eh_frame of a program without .eh_frame_hdr: a static one that is not a PIE registers it by
 * itself, and only the section headers say where it is. */
static bool by_section(const struct scry_mapped_file *image, struct bytes *ret_bytes,
		       uint64_t *ret_address)
{
	struct scry_mapped_section section;

	if (!scry_mapped_file_section(image, ".eh_frame", &section))
		return false;
	*ret_bytes = (struct bytes){section.bytes, section.bytes + section.size, false};
	*ret_address = section.address;
	return true;
}

/* .eh_frame: where .eh_frame_hdr says, as the file has it, to the end of its segment. */
static bool eh_frame(const struct scry_mapped_file *image, struct bytes *ret_bytes,
		     uint64_t *ret_address)
{
	const Elf64_Ehdr *head = (const void *)image->bytes;
	const Elf64_Phdr *segments = (const void *)(image->bytes + head->e_phoff), *hdr = NULL;
	uint64_t address;
	int32_t distance;

	for (int i = 0; i < head->e_phnum; i++)
		if (segments[i].p_type == PT_GNU_EH_FRAME)
			hdr = &segments[i];
	if (hdr == NULL)
		return by_section(image, ret_bytes, ret_address);
	if (hdr->p_offset > image->size || image->size - hdr->p_offset < 8 ||
	    image->bytes[hdr->p_offset] != 1 || image->bytes[hdr->p_offset + 1] != PCREL_SDATA4)
		return false;
	memcpy(&distance, image->bytes + hdr->p_offset + 4, 4);
	address = hdr->p_vaddr + 4 + distance;
	for (int i = 0; i < head->e_phnum; i++) {
		const Elf64_Phdr *segment = &segments[i];

		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
		    address - segment->p_vaddr >= segment->p_filesz ||
		    segment->p_offset > image->size ||
		    segment->p_filesz > image->size - segment->p_offset)
			continue;
		ret_bytes->at = image->bytes + segment->p_offset + (address - segment->p_vaddr);
		ret_bytes->end = image->bytes + segment->p_offset + segment->p_filesz;
		ret_bytes->is_bad = false;
		*ret_address = address;
		return true;
	}
	return false;
}

/* The FDE of an address of the file. All of them are gone through: this is done once, on the way to
 * a report. */
static int find_fde(const struct scry_mapped_file *image, uint64_t address, struct fde *ret_fde)
{
	struct bytes all;
	uint64_t base;
	const unsigned char *begin;

	if (image->bytes == NULL || !eh_frame(image, &all, &base))
		return -ENODATA;
	begin = all.at;
	while (!all.is_bad && all.at < all.end) {
		uint64_t size = take(&all, 4);
		struct bytes entry = {all.at, all.at + size, false};
		const unsigned char *id_at = entry.at, *cie_at;
		struct fde fde = {0};
		struct bytes cie;
		uint64_t id, place;
		bool has_data;

		if (size == 0)
			break;
		if (size == 0xffffffff || size > (size_t)(all.end - all.at))
			return -EINVAL;
		all.at += size;
		id = take(&entry, 4);
		if (id == 0) /* a CIE */
			continue;
		if (id > (size_t)(id_at - begin) || id < 4)
			return -EINVAL;
		place = base + (entry.at - begin);
		fde.begin = place + (int32_t)take(&entry, 4);
		fde.end = fde.begin + take(&entry, 4);
		if (address < fde.begin || address >= fde.end)
			continue;
		cie_at = id_at - id;
		cie = (struct bytes){cie_at, all.end, false};
		size = take(&cie, 4);
		if (size > (size_t)(all.end - cie.at))
			return -EINVAL;
		cie.end = cie.at + size;
		if (take(&cie, 4) != 0 || !read_cie(cie, &fde, &has_data))
			return -EINVAL;
		if (has_data) {
			uint64_t skip = take_uleb(&entry);

			if (skip > (size_t)(entry.end - entry.at))
				return -EINVAL;
			entry.at += skip;
		}
		fde.own = entry;
		*ret_fde = fde;
		return 0;
	}
	return -ENODATA;
}

static void set_rule(struct row *row, uint64_t reg, enum rule rule, int64_t value)
{
	if (reg >= REGISTERS)
		return; /* vector registers: none is called-saved */
	row->of[reg].rule = rule;
	row->of[reg].value = value;
}

struct machine {
	struct row row, initial, saved[SAVED_STATES];
	unsigned depth;
	uint64_t at, stop;
	const struct fde *fde;
};

/* Opcodes whose operand is in their low six bits, or that move on: true when it was one. */
static bool run_short(struct machine *machine, unsigned opcode, struct bytes *program)
{
	const struct fde *fde = machine->fde;
	unsigned low = opcode & 0x3f;

	switch (opcode >> 6) {
	case 1: /* DW_CFA_advance_loc */
		machine->at += low * fde->code_align;
		return true;
	case 2: /* DW_CFA_offset */
		set_rule(&machine->row, low, RULE_OFFSET,
			 (int64_t)take_uleb(program) * fde->data_align);
		return true;
	case 3: /* DW_CFA_restore */
		if (low < REGISTERS)
			machine->row.of[low] = machine->initial.of[low];
		return true;
	}
	if (opcode >= 2 && opcode <= 4) { /* DW_CFA_advance_loc1, 2, 4 */
		machine->at += take(program, 1u << (opcode - 2)) * fde->code_align;
		return true;
	}
	return false;
}

static void skip_block(struct bytes *program)
{
	uint64_t size = take_uleb(program);

	if (size > (size_t)(program->end - program->at))
		program->is_bad = true;
	else
		program->at += size;
}

/* The others: DW_CFA_* by their numbers, DWARF 5 table 7.29. */
static int run_long(struct machine *machine, unsigned opcode, struct bytes *program)
{
	struct row *row = &machine->row;
	int64_t align = machine->fde->data_align;
	uint64_t reg;

	switch (opcode) {
	case 0x00: /* nop */
		return 0;
	case 0x05: /* offset_extended */
		reg = take_uleb(program);
		set_rule(row, reg, RULE_OFFSET, (int64_t)take_uleb(program) * align);
		return 0;
	case 0x07: /* undefined */
		set_rule(row, take_uleb(program), RULE_UNDEFINED, 0);
		return 0;
	case 0x08: /* same_value */
		set_rule(row, take_uleb(program), RULE_SAME, 0);
		return 0;
	case 0x09: /* register */
		reg = take_uleb(program);
		set_rule(row, reg, RULE_REGISTER, take_uleb(program));
		return 0;
	case 0x0a: /* remember_state */
		if (machine->depth == SAVED_STATES)
			return -EINVAL;
		machine->saved[machine->depth++] = *row;
		return 0;
	case 0x0b: /* restore_state */
		if (machine->depth == 0)
			return -EINVAL;
		*row = machine->saved[--machine->depth];
		return 0;
	case 0x0c: /* def_cfa */
		row->cfa_register = take_uleb(program);
		row->cfa_offset = take_uleb(program);
		row->is_cfa_known = true;
		return 0;
	case 0x0d: /* def_cfa_register */
		row->cfa_register = take_uleb(program);
		row->is_cfa_known = true;
		return 0;
	case 0x0e: /* def_cfa_offset */
		row->cfa_offset = take_uleb(program);
		return 0;
	case 0x0f: /* def_cfa_expression */
		row->is_cfa_known = false;
		skip_block(program);
		return 0;
	case 0x10: /* expression */
	case 0x16: /* val_expression */
		set_rule(row, take_uleb(program), RULE_UNKNOWN, 0);
		skip_block(program);
		return 0;
	case 0x2e: /* GNU_args_size */
		take_uleb(program);
		return 0;
	default:
		return -EINVAL;
	}
}

static int run(struct machine *machine, struct bytes program)
{
	while (program.at < program.end && !program.is_bad && machine->at <= machine->stop) {
		unsigned opcode = take(&program, 1);
		struct machine *m = machine;
		int error;

		if (run_short(m, opcode, &program))
			continue;
		error = run_long(m, opcode, &program);
		if (error != 0)
			return error;
	}
	return program.is_bad ? -EINVAL : 0;
}

static int apply(const struct row *row, struct scry_registers *registers, uintptr_t low,
		 uintptr_t high, uint64_t *ret_cfa)
{
	struct scry_registers caller = *registers;
	uint64_t cfa;

	if (!row->is_cfa_known || row->cfa_register >= REGISTERS)
		return -EINVAL;
	cfa = registers->value[row->cfa_register] + row->cfa_offset;
	if (cfa <= low || cfa > high)
		return -EINVAL;
	caller.value[7] = cfa;
	if (row->of[16].rule == RULE_UNDEFINED) {
		*ret_cfa = cfa;
		return -ENOMSG;
	}
	for (int i = 0; i < REGISTERS; i++) {
		uint64_t address = cfa + row->of[i].value;

		switch (row->of[i].rule) {
		case RULE_OFFSET:
			if (address < low || address > high - 8)
				return -EINVAL;
			memcpy(&caller.value[i], (const void *)address, 8);
			break;
		case RULE_REGISTER:
			if ((uint64_t)row->of[i].value < REGISTERS)
				caller.value[i] = registers->value[row->of[i].value];
			break;
		case RULE_UNKNOWN:
			caller.value[i] = 0;
			break;
		default:
			break;
		}
	}
	*registers = caller;
	*ret_cfa = cfa;
	return 0;
}

int scry_mapped_file_caller(const struct scry_mapped_file *image, struct scry_registers *registers,
			    uintptr_t low, uintptr_t high, uint64_t *ret_cfa)
{
	uint64_t address = registers->value[16] - image->bias;
	struct machine machine;
	struct fde fde;
	int error = find_fde(image, address, &fde);

	if (error != 0)
		return error;
	memset(&machine, 0, sizeof(machine));
	machine.fde = &fde;
	machine.stop = UINT64_MAX;
	error = run(&machine, fde.common);
	if (error != 0)
		return error;
	machine.initial = machine.row;
	machine.at = fde.begin;
	machine.stop = address;
	error = run(&machine, fde.own);
	if (error != 0)
		return error;
	return apply(&machine.row, registers, low, high, ret_cfa);
}
