/*
 * Names of classes in another process, as Ruby prints them.
 *
 * To Ruby 3.1 a class has no name field: the name is a value in the class's ivar table, an
 * st_table, under a hidden id ("__classpath__"); a class inside an anonymous one has
 * "__tmp_classpath__" instead. A singleton class has neither, but its object under "__attached__",
 * and is called after it. In 3.2 they are ivars under the same ids, but in an array, and the shape
 * of the class gives their places. From 3.3 on name and object are fields. One loop, no recursion:
 * "#<Class:" is written for each singleton on the way to a class that has a name.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "vm/ruby.h"
#include "vm/ruby_value.h"

#define ENTRIES_MAX 65536u
#define CHUNK 64u
#define DEPTH 8
#define IVARS_MAX 4096
#define SHAPE_NUMBER_MAX (1u << 24) /* the root's parent is ~0 */

struct entry {
	uint64_t hash, key, record;
};

static uint64_t flags_of(const struct scry_ruby *ruby, uint64_t value)
{
	uint64_t flags;

	if (value < SCRY_RUBY_NIL_MAX || value % 8 || scry_mem_u64(&ruby->mem, value, &flags))
		return 0;
	return flags;
}

static bool is_class(uint64_t flags)
{
	uint64_t type = flags & SCRY_RUBY_TYPE_MASK;

	return type == SCRY_RUBY_T_CLASS || type == SCRY_RUBY_T_MODULE;
}

/* Where the class's fields are: behind its ext pointer, or in the slot itself. 0 when unreadable.
 */
static uint64_t fields_of(const struct scry_ruby *ruby, uint64_t klass)
{
	uint64_t ext;

	if (!ruby->layout.class_ext)
		return klass;
	return scry_mem_u64(&ruby->mem, klass + ruby->layout.class_ext, &ext) ? 0 : ext;
}

/* Values of up to two keys in the class's table; those not there stay 0. */
static int look_up(const struct scry_ruby *ruby, uint64_t klass, const uint64_t keys[3],
		   uint64_t ret_values[3])
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t fields = fields_of(ruby, klass), table, entries, start, bound;
	struct entry chunk[CHUNK];

	if (!fields || scry_mem_u64(&ruby->mem, fields + l->class_path_table, &table))
		return -EFAULT;
	if (!table)
		return 0; /* no ivars at all: no name either */
	if (scry_mem_u64(&ruby->mem, table + l->st_entries, &entries) ||
	    scry_mem_u64(&ruby->mem, table + l->st_bound_start, &start) ||
	    scry_mem_u64(&ruby->mem, table + l->st_bound, &bound))
		return -EFAULT;
	if (bound > ENTRIES_MAX || start > bound)
		return -EFAULT;
	for (uint64_t i = start; i < bound; i += CHUNK) {
		uint64_t n = bound - i < CHUNK ? bound - i : CHUNK;

		if (scry_mem_read(&ruby->mem, entries + i * sizeof(chunk[0]), chunk,
				  n * sizeof(chunk[0])))
			return -EFAULT;
		for (uint64_t j = 0; j < n; j++) {
			/* A deleted entry has hash ~0 and a stale key. */
			for (int k = 0; k < 3 && chunk[j].hash != ~0ull; k++) {
				if (keys[k] && chunk[j].key == keys[k])
					ret_values[k] = chunk[j].record;
			}
		}
	}
	return 0;
}

int scry_ruby_shape_ivars(const struct scry_ruby *ruby, uint64_t klass, const uint64_t keys[3],
			  uint64_t ret_values[3])
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t flags, vm, list, shape, edge, ivs;
	uint32_t place, number;

	if (scry_mem_u64(&ruby->mem, klass, &flags) ||
	    scry_mem_u64(&ruby->mem, ruby->bias + l->vm_root, &vm) ||
	    scry_mem_u64(&ruby->mem, vm + l->vm_shapes, &list) ||
	    scry_mem_u64(&ruby->mem, klass + l->class_ivs, &ivs))
		return -EFAULT;
	number = (uint32_t)(flags >> 32);
	/* A parent is older than its child, so its number is smaller. */
	for (uint32_t child = SHAPE_NUMBER_MAX; number < child;) {
		child = number;
		shape = list + (uint64_t)number * l->shape_size;
		if (scry_mem_u64(&ruby->mem, shape + l->shape_edge, &edge) ||
		    scry_mem_u32(&ruby->mem, shape + l->shape_index, &place) ||
		    scry_mem_u32(&ruby->mem, shape + l->shape_parent, &number))
			return -EFAULT;
		for (int k = 0; k < 3 && place && place <= IVARS_MAX; k++) {
			if (keys[k] && edge == keys[k] && !ret_values[k] &&
			    scry_mem_u64(&ruby->mem, ivs + 8ull * (place - 1), &ret_values[k]))
				return -EFAULT;
		}
	}
	return 0;
}

/* The String with the name (0: none), and the object a singleton belongs to (0: none or unknown).
 */
static int name_of(const struct scry_ruby *ruby, uint64_t klass, uint64_t *ret_name,
		   uint64_t *ret_attached)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	const uint64_t keys[3] = {l->classpath_id, l->tmp_classpath_id, l->attached_id};
	uint64_t values[3] = {0}, fields;
	int err;

	if (l->class_path_table || l->class_ivs) {
		err = l->class_ivs ? scry_ruby_shape_ivars(ruby, klass, keys, values)
				   : look_up(ruby, klass, keys, values);
		*ret_name = values[0] ? values[0] : values[1];
		*ret_attached = values[2];
		return err;
	}
	*ret_attached = 0;
	fields = fields_of(ruby, klass);
	if (!fields || scry_mem_u64(&ruby->mem, fields + l->class_path, ret_name) ||
	    (l->class_attached &&
	     scry_mem_u64(&ruby->mem, fields + l->class_attached, ret_attached)))
		return -EFAULT;
	if (*ret_name < SCRY_RUBY_NIL_MAX)
		*ret_name = 0;
	return 0;
}

/* Writes the name proper of a class that is not a singleton. */
static int plain_name(const struct scry_ruby *ruby, uint64_t klass, uint64_t flags, char *buf,
		      size_t size)
{
	uint64_t name = 0, attached;
	int err = name_of(ruby, klass, &name, &attached);

	if (err)
		return err;
	if (name)
		return scry_ruby_string(ruby, name, buf, size) < 0 ? -EFAULT : 0;
	snprintf(buf, size, "#<%s:0x%016" PRIx64 ">",
		 (flags & SCRY_RUBY_TYPE_MASK) == SCRY_RUBY_T_MODULE ? "Module" : "Class", klass);
	return 0;
}

/* The class of an object as `Object#class` says: singletons and included modules are skipped. */
static uint64_t real_class(const struct scry_ruby *ruby, uint64_t klass)
{
	for (int i = 0; i < 64; i++) {
		uint64_t flags = flags_of(ruby, klass);

		if (is_class(flags) && !(flags & ruby->layout.singleton_flag))
			return klass;
		if (!flags || scry_mem_u64(&ruby->mem, klass + ruby->layout.class_super, &klass))
			return 0;
	}
	return 0;
}

int scry_ruby_class_name(const struct scry_ruby *ruby, uint64_t klass, char *buf, size_t size)
{
	char name[1024] = "";
	int depth = 0, err = 0;
	size_t used = 0;

	for (;; depth++) {
		uint64_t flags = flags_of(ruby, klass), attached = 0, ignored = 0;

		if ((flags & SCRY_RUBY_TYPE_MASK) == SCRY_RUBY_T_ICLASS) {
			/* An included module: a proxy whose class word is the module. */
			if (scry_mem_u64(&ruby->mem, klass + SCRY_RUBY_CLASS, &klass))
				return -ENOENT;
			flags = flags_of(ruby, klass);
		}
		if (!is_class(flags) || depth == DEPTH)
			return -ENOENT;
		if (!ruby->layout.singleton_flag || !(flags & ruby->layout.singleton_flag) ||
		    (flags & SCRY_RUBY_TYPE_MASK) == SCRY_RUBY_T_MODULE) {
			err = plain_name(ruby, klass, flags, name, sizeof(name));
			break;
		}
		err = name_of(ruby, klass, &ignored, &attached);
		if (err)
			return -ENOENT;
		if (is_class(flags_of(ruby, attached))) {
			klass = attached;
			continue;
		}
		/* A singleton of an object: "#<Class:#<Foo:0x...>>"; of an unknown one: its
		 * superclass. */
		klass = real_class(ruby, klass);
		flags = flags_of(ruby, klass);
		if (!klass)
			return -ENOENT;
		err = plain_name(ruby, klass, flags, name, sizeof(name));
		depth++;
		if (!err && attached) {
			used = strlen(name);
			if (used + 24 < sizeof(name)) {
				memmove(name + 2, name, used + 1);
				memcpy(name, "#<", 2);
				snprintf(name + used + 2, sizeof(name) - used - 2,
					 ":0x%016" PRIx64 ">", attached);
			}
		}
		break;
	}
	if (err)
		return -ENOENT;
	used = 0;
	buf[0] = '\0';
	for (int i = 0; i < depth && used < size; i++)
		used += (size_t)snprintf(buf + used, size - used, "#<Class:");
	if (used < size)
		used += (size_t)snprintf(buf + used, size - used, "%s", name);
	for (int i = 0; i < depth && used < size; i++)
		used += (size_t)snprintf(buf + used, size - used, ">");
	return 0;
}
