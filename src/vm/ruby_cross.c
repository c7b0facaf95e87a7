/*
 * Second witnesses for what was learned: the debug information, where there is any, and the machine
 * code of small exported functions.
 *
 * A witness that says nothing (no such member in this version, another shape of code) is not an
 * objection. One that says something else is: then it is not known which is right, and the layout
 * is refused with both values. The code is decoded along one chain of loads only, from an argument,
 * the thread pointer, a call's result or a word of the module, up to the first branch; what such a
 * function loads is fixed by what it is documented to return.
 */
#include <Zydis/Zydis.h>
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_dwarf.h"
#include "vm/ruby_infer.h"

#define CHAIN_MAX 4
#define CODE_BYTES 96u

#define AT(field) offsetof(struct scry_ruby_layout, field)

/* item: the row of `scry doctor`; field: uint32_t of the layout; spec: see ruby_dwarf.h. */
static const struct {
	const char *item;
	size_t field;
	const char *spec;
} members[] = {
	{"frames (cfp, size, iseq)", AT(ec_cfp), "rb_execution_context_struct:cfp"},
	{"frames (cfp, size, iseq)", AT(frame_size), "rb_control_frame_struct"},
	{"frames (cfp, size, iseq)", AT(frame_iseq), "rb_control_frame_struct:iseq"},
	{"frame pc", AT(frame_pc), "rb_control_frame_struct:pc"},
	{"frame sp", AT(frame_sp), "rb_control_frame_struct:sp"},
	{"frame self", AT(frame_self), "rb_control_frame_struct:self"},
	{"frame ep", AT(frame_ep), "rb_control_frame_struct:ep"},
	{"VM stack and its size", AT(ec_stack), "rb_execution_context_struct:vm_stack"},
	{"VM stack and its size", AT(ec_stack_size), "rb_execution_context_struct:vm_stack_size"},
	{"thread of its ec", AT(ec_thread), "rb_execution_context_struct:thread_ptr"},
	{"thread of its object", AT(th_self), "rb_thread_struct:self"},
	{"ec of its thread", AT(th_ec), "rb_thread_struct:ec"},
	{"ractor of its thread", AT(th_ractor), "rb_thread_struct:ractor"},
	{"VM of its thread", AT(th_vm), "rb_thread_struct:vm"},
	{"thread ring of a ractor", AT(th_node),
	 "rb_thread_struct:lt_node|rb_thread_struct:vmlt_node"},
	{"thread ring of a ractor", AT(ractor_threads), "rb_ractor_struct:threads.set"},
	{"ractor ring of the VM", AT(ractor_node), "rb_ractor_struct:vmlr_node"},
	{"ractor ring of the VM", AT(vm_ractors), "rb_vm_struct:ractor.set"},
	{"native thread id", AT(th_nt), "rb_thread_struct:nt"},
	{"native thread id", AT(th_tid), "rb_native_thread:tid|rb_thread_struct:tid"},
	{"iseq body", AT(iseq_body), "rb_iseq_struct:body"},
	{"iseq instruction words", AT(body_encoded), "rb_iseq_constant_body:iseq_encoded"},
	{"iseq size", AT(body_size), "rb_iseq_constant_body:iseq_size"},
	{"iseq path", AT(body_path), "rb_iseq_constant_body:location.pathobj"},
	{"iseq label", AT(body_label), "rb_iseq_constant_body:location.label"},
	{"iseq first line", AT(body_first_line), "rb_iseq_constant_body:location.first_lineno"},
	{"line table", AT(insns_entries), "rb_iseq_constant_body:insns_info.body"},
	{"line table", AT(insns_count), "rb_iseq_constant_body:insns_info.size"},
	{"line table", AT(insns_succ), "rb_iseq_constant_body:insns_info.succ_index_table"},
	{"line table", AT(insns_positions), "rb_iseq_constant_body:insns_info.positions"},
	{"line entry", AT(insns_entry_size), "iseq_insn_info_entry"},
	{"line entry", AT(insns_entry_line), "iseq_insn_info_entry:line_no"},
	{"string pointer", AT(string_ptr), "RString:as.heap.ptr"},
	{"string length", AT(string_len), "RString:len|RString:as.heap.len"},
	{"string text in slot", AT(string_embed), "RString:as.embed.ary|RString:as.ary"},
	{"array pointer", AT(array_ptr), "RArray:as.heap.ptr"},
	{"array elements in slot", AT(array_embed_ptr), "RArray:as.ary"},
	{"trace argument data", AT(trace_data), "rb_trace_arg_struct:data"},
	{"trace argument event", AT(trace_event), "rb_trace_arg_struct:event"},
	{"trace argument ec, cfp", AT(trace_ec), "rb_trace_arg_struct:ec"},
	{"trace argument ec, cfp", AT(trace_cfp), "rb_trace_arg_struct:cfp"},
};
/* Those of a class whose name is in a table, and of one that has it in a field. */
static const struct {
	const char *item;
	size_t field;
	const char *spec;
	bool table;
} classes[] = {
	{"class name table", AT(class_ext), "RClass:ptr", true},
	{"class name table", AT(class_path_table), "rb_classext_struct:iv_tbl", true},
	{"class name table", AT(st_entries), "st_table:entries", true},
	{"table's first entry", AT(st_bound_start), "st_table:entries_start", true},
	{"table's entry bound", AT(st_bound), "st_table:entries_bound", true},
	{"class name", AT(class_path),
	 "RClass_and_rb_classext_t:classext.classpath|rb_classext_struct:classpath", false},
};

/*
 * What functions load: field after field along one chain. -1: any. `second` is the row's item.
 */
enum source { FROM_ARGUMENT, FROM_THREAD, FROM_MODULE };
static const struct accessor {
	const char *function, *item;
	enum source source;
	size_t fields[2];
	int count;
} accessors[] = {
	{"rb_iseq_label", "iseq label", FROM_ARGUMENT, {AT(iseq_body), AT(body_label)}, 2},
	{"rb_iseq_path", "iseq path", FROM_ARGUMENT, {AT(iseq_body), AT(body_path)}, 2},
	{"rb_iseq_first_lineno",
	 "iseq first line",
	 FROM_ARGUMENT,
	 {AT(iseq_body), AT(body_first_line)},
	 2},
	{"rb_thread_current", "thread of its ec", FROM_THREAD, {AT(ec_thread), AT(th_self)}, 2},
	{"rb_gc_count", "VM word in the module", FROM_MODULE, {0}, 0},
};

struct chain {
	enum source source;
	uint64_t module; /* link-time address of the first word, FROM_MODULE */
	int64_t loads[CHAIN_MAX];
	int count;
};

static uint32_t field_of(const struct scry_ruby_layout *layout, size_t field)
{
	uint32_t value;

	memcpy(&value, (const char *)layout + field, sizeof(value));
	return value;
}

/* Of row `i` of the members, from the beginning of the struct that its spec names. */
static uint32_t member_of(const struct scry_ruby_layout *layout, size_t i)
{
	uint32_t value = field_of(layout, members[i].field);

	if (strcmp(members[i].item, "line table") == 0 && value != SCRY_RUBY_NONE)
		value += layout->body_insns_info;
	return value;
}

static struct scry_ruby_check *row_of(struct scry_ruby *ruby, const char *item)
{
	for (size_t i = 0; i < ruby->check_count; i++) {
		if (strcmp(ruby->checks[i].item, item) == 0)
			return &ruby->checks[i];
	}
	return NULL;
}

/* Adds a witness to the row of `item`, once. */
static void agree(struct scry_ruby *rows, const char *item, const char *witness)
{
	struct scry_ruby_check *row = row_of(rows, item);
	size_t n;

	if (!row || strstr(row->second, witness))
		return;
	n = strlen(row->second);
	snprintf(row->second + n, sizeof(row->second) - n, "%s%s", n ? ", " : "", witness);
}

static int disagree(struct scry_ruby *rows, const char *item, const char *witness,
		    const int64_t values[2])
{
	struct scry_ruby_check *row = row_of(rows, item);

	if (row) {
		row->ok = false;
		snprintf(row->second, sizeof(row->second), "%s says %" PRId64 ", not %" PRId64,
			 witness, values[1], values[0]);
	}
	return scry_fail(-ENOTSUP,
			 "'%s' of the Ruby in '%s' was learned as %" PRId64 ", but %s says %" PRId64
			 "; it is not used",
			 item, rows->module, values[0], witness, values[1]);
}

static int check_member(struct scry_ruby *ruby, struct scry_ruby *rows, struct scry_dwarf *dwarf,
			const char *const row[2], uint32_t learned)
{
	uint64_t said;

	if (learned == SCRY_RUBY_NONE || !scry_dwarf_find(dwarf, row[1], &said))
		return 0;
	if (said != learned)
		return disagree(rows, row[0], "DWARF", (const int64_t[2]){learned, (int64_t)said});
	agree(rows, row[0], "DWARF");
	return 0;
}

static int check_dwarf(struct scry_ruby *ruby, struct scry_ruby *rows)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	struct scry_dwarf *dwarf = scry_dwarf_open(ruby->elf);
	int err = 0;

	for (size_t i = 0; dwarf && i < sizeof(members) / sizeof(members[0]) && !err; i++)
		err = check_member(ruby, rows, dwarf,
				   (const char *const[2]){members[i].item, members[i].spec},
				   member_of(l, i));
	for (size_t i = 0; dwarf && i < sizeof(classes) / sizeof(classes[0]) && !err; i++) {
		if (classes[i].table != (l->class_path_table != 0))
			continue;
		if (classes[i].field == AT(class_ext) && l->class_ext == 0)
			continue;
		err = check_member(ruby, rows, dwarf,
				   (const char *const[2]){classes[i].item, classes[i].spec},
				   field_of(l, classes[i].field));
	}
	scry_dwarf_close(dwarf);
	return err;
}

/* --- code ----------------------------------------------------------------------------------------
 */

/* One instruction of the chain; false at its end. `held` is the register with the last result. */
static bool step(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *op, uint64_t next,
		 struct chain *chain, ZydisRegister *held)
{
	const ZydisDecodedOperandMem *mem = &op[1].mem;

	if (insn->mnemonic == ZYDIS_MNEMONIC_CALL) {
		/* The address of a thread-local variable: its one call comes first. */
		if (chain->count || chain->source != FROM_ARGUMENT)
			return false;
		chain->source = FROM_THREAD;
		*held = ZYDIS_REGISTER_RAX;
		return true;
	}
	if (insn->meta.category == ZYDIS_CATEGORY_COND_BR ||
	    insn->meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
	    insn->meta.category == ZYDIS_CATEGORY_RET)
		return false;
	if ((insn->mnemonic != ZYDIS_MNEMONIC_MOV && insn->mnemonic != ZYDIS_MNEMONIC_MOVSXD) ||
	    op[0].type != ZYDIS_OPERAND_TYPE_REGISTER || op[1].type != ZYDIS_OPERAND_TYPE_MEMORY)
		return true;
	if (chain->count == CHAIN_MAX)
		return false;
	if (mem->segment == ZYDIS_REGISTER_FS) {
		if (chain->count)
			return false;
		chain->source = FROM_THREAD;
		chain->loads[chain->count++] = 0; /* the thread-local word itself */
	} else if (mem->base == ZYDIS_REGISTER_RIP) {
		if (chain->count)
			return false;
		chain->source = FROM_MODULE;
		chain->module = next + (uint64_t)mem->disp.value;
		chain->loads[chain->count++] = 0;
	} else if (mem->base == *held && mem->index == ZYDIS_REGISTER_NONE) {
		chain->loads[chain->count++] = mem->disp.value;
	} else {
		return true;
	}
	*held = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, op[0].reg.value);
	return true;
}

/* Follows the loads of an exported function up to its first branch. */
static bool decode(struct scry_elf *elf, const char *function, struct chain *ret)
{
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	ZydisRegister held = ZYDIS_REGISTER_RDI;
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;
	uint8_t code[CODE_BYTES];
	struct scry_sym sym;
	size_t size;

	*ret = (struct chain){.source = FROM_ARGUMENT};
	if (scry_elf_symbol(elf, function, &sym) || sym.type != STT_FUNC)
		return false;
	size = sym.size && sym.size < sizeof(code) ? sym.size : sizeof(code);
	if (scry_elf_read(elf, sym.value, code, size))
		return false;
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (size_t at = 0; at < size; at += insn.length) {
		if (!ZYAN_SUCCESS(
			    ZydisDecoderDecodeFull(&decoder, code + at, size - at, &insn, op)) ||
		    !step(&insn, op, sym.value + at + insn.length, ret, &held))
			break;
	}
	return ret->count > 0;
}

static int check_accessor(struct scry_ruby *ruby, struct scry_ruby *rows, const struct accessor *a)
{
	struct chain chain;
	char witness[48];
	/* The thread-local word is the first load. */
	int skip = a->source == FROM_THREAD;

	if (!decode(ruby->elf, a->function, &chain) || chain.source != a->source ||
	    chain.count < a->count + skip)
		return 0;
	snprintf(witness, sizeof(witness), "%s", a->function);
	/* A shared library may go through its GOT: then the word is another one. */
	if (a->source == FROM_MODULE) {
		if (chain.module == ruby->layout.vm_root)
			agree(rows, a->item, witness);
		return 0;
	}
	for (int i = 0; i < a->count; i++) {
		int64_t learned = field_of(&ruby->layout, a->fields[i]);
		int64_t said = chain.loads[skip + i];

		if (said != learned)
			return disagree(rows, a->item, witness, (const int64_t[2]){learned, said});
	}
	agree(rows, a->item, witness);
	return 0;
}

int scry_ruby_cross_check(struct scry_ruby *ruby, struct scry_ruby *rows)
{
	int err = check_dwarf(ruby, rows);

	for (size_t i = 0; i < sizeof(accessors) / sizeof(accessors[0]) && !err; i++)
		err = check_accessor(ruby, rows, &accessors[i]);
	return err;
}
