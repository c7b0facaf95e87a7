/*
 * Names of ids, and of the methods that C frames run.
 *
 * A C frame has no code to name it. Its method entry lies below its ep, the entry's definition has
 * the id under which it was defined, and the VM's symbol table is an Array of Arrays of 512 pairs
 * {name, symbol} (symbol.c, get_id_serial_entry): pair number id >> 4, but for operators, whose id
 * is the number itself and small. In 4.1 each of these Arrays is a T_DATA, which points to a
 * length, a capacity and 512 pairs {symbol, name} (darray.h).
 */
#include <errno.h>

#include "vm/ruby.h"
#include "vm/ruby_value.h"

#define PAIRS 512u
#define SCOPE_BITS 4
#define DARRAY_HEAD 16u
#define PAIR_BYTES 16u
#define PAIR_NAME 8u
#define OPERATORS_END 512u /* ids of other names are at least 16 times the last operator's */

/* Element `i` of an Array. */
static int element(const struct scry_ruby *ruby, uint64_t array, uint64_t i, uint64_t *ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t flags, at = array + l->array_embed_ptr;

	if (array < SCRY_RUBY_NIL_MAX || array % 8)
		return -ENOENT;
	if (scry_mem_u64(&ruby->mem, array, &flags))
		return -EFAULT;
	if ((flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_ARRAY)
		return -ENOENT;
	if (!(flags & l->array_embed) && scry_mem_u64(&ruby->mem, array + l->array_ptr, &at))
		return -EFAULT;
	return scry_mem_u64(&ruby->mem, at + 8 * i, ret) ? -EFAULT : 0;
}

/* The name of pair `i` of a group. */
static int name_in(const struct scry_ruby *ruby, uint64_t group, uint64_t i, uint64_t *ret)
{
	uint64_t flags, data, size;

	if (!ruby->layout.ids_data)
		return element(ruby, group, i * 2, ret);
	if (group < SCRY_RUBY_NIL_MAX || group % 8)
		return -ENOENT;
	if (scry_mem_u64(&ruby->mem, group, &flags))
		return -EFAULT;
	if ((flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_DATA)
		return -ENOENT;
	if (scry_mem_u64(&ruby->mem, group + ruby->layout.ids_data, &data) ||
	    scry_mem_u64(&ruby->mem, data, &size))
		return -EFAULT;
	if (size > PAIRS || i >= size)
		return -ENOENT;
	return scry_mem_u64(&ruby->mem, data + DARRAY_HEAD + PAIR_BYTES * i + PAIR_NAME, ret)
		       ? -EFAULT
		       : 0;
}

ssize_t scry_ruby_id_name(const struct scry_ruby *ruby, uint64_t id, char *buf, size_t size)
{
	uint64_t number = id < OPERATORS_END ? id : id >> SCOPE_BITS, ids, group, name;
	int err;

	if (!ruby->layout.ids_root || id == 0 || number >> 32)
		return -ENOENT;
	if (scry_mem_u64(&ruby->mem, ruby->bias + ruby->layout.ids_root, &ids))
		return -EFAULT;
	err = element(ruby, ids, number / PAIRS, &group);
	if (!err)
		err = name_in(ruby, group, number % PAIRS, &name);
	return err ? err : scry_ruby_string(ruby, name, buf, size);
}

ssize_t scry_ruby_c_method(const struct scry_ruby *ruby, uint64_t cfp, char *buf, size_t size)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t ep, me, flags, def, id;

	if (!l->frame_me)
		return -ENOENT;
	if (scry_mem_u64(&ruby->mem, cfp + l->frame_ep, &ep) ||
	    scry_mem_u64(&ruby->mem, ep - l->frame_me, &me))
		return -EFAULT;
	if (me < SCRY_RUBY_NIL_MAX || me % 8 || scry_mem_u64(&ruby->mem, me, &flags) ||
	    (flags & l->iseq_flags_mask) != l->me_flags)
		return -ENOENT;
	if (scry_mem_u64(&ruby->mem, me + l->me_def, &def) ||
	    scry_mem_u64(&ruby->mem, def + l->def_id, &id))
		return -EFAULT;
	return scry_ruby_id_name(ruby, id, buf, size);
}
