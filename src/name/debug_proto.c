/* See debug_proto.h. */
#include "name/debug_proto.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include "name/proto_cache.h"
#include "name/proto_readers.h" /* made by meson: SCRY_PROTO_READERS */
#include "sys/debug_info.h"
#include "sys/elf_digest.h"

#define ARGS_MAX 24u
#define NAMES_MAX 64u
#define FIELDS_MAX 16u
#define STRUCT_MAX 128u /* bytes */
#define DEPTH_MAX 3u
#define NAME '?' /* in no other place */

struct extent {
	uint64_t size, align;
};

static bool type_of(Dwarf_Die *die, Dwarf_Die *ret)
{
	Dwarf_Attribute attr;

	return dwarf_attr_integrate(die, DW_AT_type, &attr) && dwarf_formref_die(&attr, ret) &&
	       dwarf_peel_type(ret, ret) == 0;
}

static bool is_cxx(Dwarf_Die *die)
{
	Dwarf_Die cu;

	if (!dwarf_diecu(die, &cu, NULL, NULL))
		return true;
	switch (dwarf_srclang(&cu)) {
	case DW_LANG_C:
	case DW_LANG_C89:
	case DW_LANG_C99:
	case DW_LANG_C11:
		return false;
	default:
		return true;
	}
}

/* The word for an integer of that size; NULL: none. */
static const char *integer(uint64_t size, bool is_signed)
{
	switch (size) {
	case 1:
		return "char";
	case 2:
		return is_signed ? "short" : "ushort";
	case 4:
		return is_signed ? "int" : "uint";
	case 8:
		return is_signed ? "long" : "ulong";
	default:
		return NULL;
	}
}

static const char *base_word(Dwarf_Die *type, uint64_t size)
{
	Dwarf_Attribute attr;
	Dwarf_Word encoding = 0;

	if (!dwarf_attr(type, DW_AT_encoding, &attr) || dwarf_formudata(&attr, &encoding) != 0)
		return NULL;
	switch (encoding) {
	case DW_ATE_boolean:
		return size == 1 ? "bool(char)" : NULL;
	case DW_ATE_float:
		return size == 4 ? "float" : size == 8 ? "double" : NULL;
	case DW_ATE_signed:
	case DW_ATE_signed_char:
		return integer(size, true);
	case DW_ATE_unsigned:
	case DW_ATE_unsigned_char:
	case DW_ATE_UTF:
		return integer(size, false);
	default:
		return NULL;
	}
}

static bool put_word(struct scry_buf *buf, const char *word)
{
	return word && scry_buf_append(buf, word, strlen(word)) == 0;
}

static bool is_char(Dwarf_Die *type)
{
	return dwarf_tag(type) == DW_TAG_base_type && dwarf_bytesize(type) == 1 &&
	       base_word(type, 1) && !strcmp(base_word(type, 1), "char");
}

static bool put_pointer(struct scry_buf *buf, Dwarf_Die *type)
{
	Dwarf_Die to;

	return put_word(buf, type_of(type, &to) && is_char(&to) ? "string" : "addr");
}

static bool put_enum(struct scry_buf *buf, Dwarf_Die *type, uint64_t size)
{
	const char *word = integer(size, true);
	size_t begin = buf->len;
	uint32_t count = 0;
	Dwarf_Die die;

	if (!word)
		return false;
	scry_buf_printf(buf, "enum[%s](", word);
	if (dwarf_child(type, &die) == 0) {
		do {
			Dwarf_Attribute attr;
			Dwarf_Sword value;
			const char *name = dwarf_diename(&die);

			if (dwarf_tag(&die) != DW_TAG_enumerator)
				continue;
			if (++count > NAMES_MAX || !name ||
			    !dwarf_attr(&die, DW_AT_const_value, &attr) ||
			    dwarf_formsdata(&attr, &value) != 0) {
				count = NAMES_MAX + 1;
				break;
			}
			scry_buf_printf(buf, "%s%s=%lld", count > 1 ? "," : "", name,
					(long long)value);
		} while (dwarf_siblingof(&die, &die) == 0);
	}
	if (count && count <= NAMES_MAX)
		return put_word(buf, ")");
	buf->len = begin; /* too many: a number */
	return put_word(buf, word);
}

static bool put_type(struct scry_buf *buf, Dwarf_Die *type, uint32_t depth, struct extent *ret);

static bool put_field(struct scry_buf *buf, Dwarf_Die *member, uint32_t depth, struct extent *all)
{
	struct extent e;
	Dwarf_Attribute attr;
	Dwarf_Word offset = 0;
	Dwarf_Die type;

	if (dwarf_hasattr(member, DW_AT_bit_size) || !type_of(member, &type) ||
	    (dwarf_attr(member, DW_AT_data_member_location, &attr) &&
	     dwarf_formudata(&attr, &offset) != 0) ||
	    !put_type(buf, &type, depth + 1, &e))
		return false;
	all->size = (all->size + e.align - 1) / e.align * e.align;
	if (all->size != offset) /* packed, or aligned by hand */
		return false;
	all->size += e.size;
	all->align = e.align > all->align ? e.align : all->align;
	return true;
}

static bool put_struct(struct scry_buf *buf, Dwarf_Die *type, uint32_t depth, struct extent *ret)
{
	struct extent all = {.align = 1};
	uint32_t count = 0;
	Dwarf_Die die;

	if (depth >= DEPTH_MAX || ret->size > STRUCT_MAX || is_cxx(type) ||
	    dwarf_child(type, &die) != 0)
		return false;
	put_word(buf, "struct(");
	do {
		if (dwarf_tag(&die) != DW_TAG_member)
			continue;
		if (count++ && !put_word(buf, ", "))
			return false;
		if (count > FIELDS_MAX || !put_field(buf, &die, depth, &all))
			return false;
	} while (dwarf_siblingof(&die, &die) == 0);
	ret->align = all.align;
	return (all.size + all.align - 1) / all.align * all.align == ret->size &&
	       put_word(buf, ")");
}

static bool put_array(struct scry_buf *buf, Dwarf_Die *type, uint32_t depth, struct extent *ret)
{
	Dwarf_Die element;
	struct extent e;
	bool is_text;

	if (!depth) /* an argument: it is a pointer */
		return put_word(buf, "addr");
	if (!type_of(type, &element))
		return false;
	is_text = is_char(&element);
	if (!put_word(buf, is_text ? "string(array(" : "array(") ||
	    !put_type(buf, &element, depth + 1, &e) || !e.size || ret->size % e.size)
		return false;
	ret->align = e.align;
	return scry_buf_printf(buf, ", %llu)%s", (unsigned long long)(ret->size / e.size),
			       is_text ? ")" : "") == 0;
}

static bool put_type(struct scry_buf *buf, Dwarf_Die *type, uint32_t depth, struct extent *ret)
{
	Dwarf_Word size = 0;

	if (depth > DEPTH_MAX)
		return false;
	if (dwarf_aggregate_size(type, &size) != 0)
		size = 8;
	*ret = (struct extent){.size = size, .align = size && size <= 8 ? size : 8};
	switch (dwarf_tag(type)) {
	case DW_TAG_base_type:
		return put_word(buf, base_word(type, size));
	case DW_TAG_pointer_type:
		return put_pointer(buf, type);
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
		return put_word(buf, "addr");
	case DW_TAG_enumeration_type:
		return put_enum(buf, type, size);
	case DW_TAG_structure_type:
		return put_struct(buf, type, depth, ret);
	case DW_TAG_array_type:
		return put_array(buf, type, depth, ret);
	default:
		return false;
	}
}

/* The function that begins there. */
static bool find(Dwarf *dwarf, uint64_t address, Dwarf_Die *ret)
{
	Dwarf_Die unit, *scopes = NULL;
	bool found = false;
	int count;

	if (!scry_debug_info_unit(dwarf, address, &unit))
		return false;
	count = dwarf_getscopes(&unit, address, &scopes);
	for (int i = 0; i < count && !found; i++) {
		Dwarf_Addr low;

		found = dwarf_tag(&scopes[i]) == DW_TAG_subprogram &&
			dwarf_lowpc(&scopes[i], &low) == 0 && low == address;
		if (found)
			*ret = scopes[i];
	}
	free(scopes);
	return found;
}

/* NAME is where the function's name belongs. */
static bool put_all(struct scry_buf *buf, Dwarf_Die *function)
{
	Dwarf_Die die, type;
	struct extent e;
	uint32_t count = 0;

	if (!(type_of(function, &type)
		      ? dwarf_tag(&type) != DW_TAG_array_type && put_type(buf, &type, 0, &e)
		      : put_word(buf, "void")))
		return false;
	scry_buf_printf(buf, " %c(", NAME);
	if (dwarf_child(function, &die) == 0) {
		do {
			if (dwarf_tag(&die) != DW_TAG_formal_parameter)
				continue;
			if ((count++ && !put_word(buf, ", ")) || count > ARGS_MAX ||
			    !type_of(&die, &type) || !put_type(buf, &type, 0, &e))
				return false;
		} while (dwarf_siblingof(&die, &die) == 0);
	}
	return put_word(buf, ")");
}

struct scry_debug_protos {
	struct scry_debug_info *info;
	struct scry_proto_cache cache;
	bool has_key;
};

/* In the child. */
static size_t answer(Dwarf *dwarf, void **state, const void *question, void *ret)
{
	struct scry_buf text = {0};
	Dwarf_Die function;
	uint64_t address;
	size_t size = 0;

	(void)state;
	memcpy(&address, question, sizeof(address));
	if (find(dwarf, address, &function) && put_all(&text, &function) && !text.failed &&
	    text.len <= SCRY_DEBUG_ANSWER_MAX) {
		size = text.len;
		memcpy(ret, text.data, size);
	}
	scry_buf_done(&text);
	return size;
}

/* Which object it is, and which debug information. */
static bool make_key(struct scry_elf *elf, const struct scry_debug_info *info,
		     uint8_t ret[SCRY_DIGEST_BYTES])
{
	uint8_t object[SCRY_DIGEST_BYTES];
	struct scry_digest d;

	scry_digest_init(&d);
	if (scry_elf_digest(elf, object) < 0 || scry_debug_info_digest(info, &d) < 0)
		return false;
	scry_digest_add(&d, object, sizeof(object));
	scry_digest_end(&d, ret);
	return true;
}

struct scry_debug_protos *scry_debug_protos_open(struct scry_elf *elf)
{
	struct scry_debug_info *info = scry_debug_info_open(elf, answer);
	struct scry_debug_protos *p = info ? calloc(1, sizeof(*p)) : NULL;

	if (!p) {
		scry_debug_info_close(info);
		return NULL;
	}
	p->info = info;
	scry_proto_cache_init(&p->cache, SCRY_PROTO_READERS);
	p->has_key = make_key(elf, info, p->cache.key);
	if (p->has_key)
		scry_proto_cache_load(&p->cache);
	return p;
}

void scry_debug_protos_close(struct scry_debug_protos *protos)
{
	if (!protos)
		return;
	if (protos->has_key)
		scry_proto_cache_store(&protos->cache);
	scry_proto_cache_done(&protos->cache);
	scry_debug_info_close(protos->info);
	free(protos);
}

bool scry_debug_proto(struct scry_debug_protos *protos, uint64_t address, const char *name,
		      struct scry_buf *ret)
{
	static char fresh[SCRY_DEBUG_ANSWER_MAX];
	const char *text = fresh, *place;
	size_t size;

	if (!scry_proto_cache_get(&protos->cache, address, &text, &size)) {
		size = scry_debug_info_ask(protos->info, &address, sizeof(address), fresh);
		if (!scry_debug_info_has_failed(protos->info))
			scry_proto_cache_put(&protos->cache, address, fresh, size);
		text = fresh;
	}
	place = size ? memchr(text, NAME, size) : NULL;
	return place && scry_buf_printf(ret, "%.*s%s%.*s;\n", (int)(place - text), text, name,
					(int)(text + size - place) - 1, place + 1) == 0;
}
