/*
 * The name of a class as Ruby prints it, copied while the class is alive: "Foo::Bar",
 * "#<Class:0x000...>" for one without a name, "#<Class:Foo>" and "#<Class:#<Foo:0x000...>>" for
 * singletons.
 *
 * Up to 3.1 the name lies in the class's ivar table under a hidden id, in 3.2 in an array at a
 * place that the class's shape gives, later in a field; the layout says which. Plain loads, every
 * pointer checked for shape, every loop bounded; 0 bytes mean: not known.
 */
#include "agent/code.h"
#include "agent/load.h"
#include "agent/objects.h"

#define IVARS_MAX 4096 /* more: not worth the time inside an allocation */
#define SINGLETONS_MAX 4
#define SHAPE_NUMBER_MAX (1u << 24) /* the root's parent is ~0 */
#define SUPERS_MAX 64

struct text {
	uint8_t *at;
	uint32_t room;
};

static void put(struct text *t, const char *s)
{
	for (; *s && t->room; s++, t->room--)
		*t->at++ = (uint8_t)*s;
}

static void put_address(struct text *t, uint64_t value)
{
	char hex[20] = ":0x";

	for (int i = 0; i < 16; i++)
		hex[3 + i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
	hex[19] = 0;
	put(t, hex);
}

static int is_class(uint64_t flags)
{
	return (flags & SCRY_TYPE_MASK) == SCRY_TYPE_CLASS ||
	       (flags & SCRY_TYPE_MASK) == SCRY_TYPE_MODULE;
}

static uint64_t fields_of(uint64_t klass)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;

	return r->class_ext ? load64(klass + r->class_ext) : klass;
}

/* The ivar `key` of a class whose shapes place it. */
static uint64_t look_up_shape(uint64_t klass, uint64_t key)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t ivs = load64(klass + r->class_ivs), vm = load64(r->vm_word), list, shape;
	uint32_t number = (uint32_t)(load64(klass) >> 32), place;

	list = is_pointer(vm) ? load64(vm + r->vm_shapes) : 0;
	if (!key || !is_pointer(ivs) || !is_pointer(list))
		return 0;
	for (int i = 0; i < IVARS_MAX && number < SHAPE_NUMBER_MAX; i++) {
		shape = list + (uint64_t)number * r->shape_size;
		place = load32(shape + r->shape_index);
		if (load64(shape + r->shape_edge) == key && place && place <= IVARS_MAX)
			return load64(ivs + 8ull * (place - 1));
		number = load32(shape + r->shape_parent);
	}
	return 0;
}

/* The value under `key` in the class's ivar table; an entry is {hash, key, value}, a deleted one
 * has hash ~0. */
static uint64_t look_up_table(uint64_t klass, uint64_t key)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t fields = fields_of(klass), table, entry, i, bound;

	if (!key || !is_pointer(fields))
		return 0;
	table = load64(fields + r->class_path_table);
	if (!is_pointer(table))
		return 0;
	entry = load64(table + r->st_entries);
	i = load64(table + r->st_bound_start);
	bound = load64(table + r->st_bound);
	if (!is_pointer(entry) || bound > IVARS_MAX)
		return 0;
	for (; i < bound; i++)
		if (load64(entry + 24 * i + 8) == key && load64(entry + 24 * i) != ~0ull)
			return load64(entry + 24 * i + 16);
	return 0;
}

static uint64_t look_up(uint64_t klass, uint64_t key)
{
	return scry_agent_vm.ruby.class_ivs ? look_up_shape(klass, key) : look_up_table(klass, key);
}

/* The object a singleton class belongs to; 0: not known. */
static uint64_t attached_to(uint64_t klass)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t fields;

	if (r->class_path_table || r->class_ivs)
		return look_up(klass, r->attached_id);
	fields = fields_of(klass);
	return r->class_attached && is_pointer(fields) ? load64(fields + r->class_attached) : 0;
}

static void put_plain(struct text *t, uint64_t klass, uint64_t flags)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t fields = fields_of(klass), name = 0;
	uint32_t size;

	if (r->class_path_table || r->class_ivs) {
		name = look_up(klass, r->classpath_id);
		if (!name)
			name = look_up(klass, r->tmp_classpath_id);
	} else if (is_pointer(fields)) {
		name = load64(fields + r->class_path);
	}
	size = scry_copy_string(name, t->at, t->room);
	t->at += size;
	t->room -= size;
	if (size)
		return;
	put(t, (flags & SCRY_TYPE_MASK) == SCRY_TYPE_MODULE ? "#<Module" : "#<Class");
	put_address(t, klass);
	put(t, ">");
}

/* "#<Foo:0x...>": the object that a singleton class belongs to; its class is the first that is no
 * singleton. */
static int put_object(struct text *t, uint64_t object, uint64_t klass)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;

	for (int i = 0; i < SUPERS_MAX && is_pointer(klass); i++) {
		uint64_t flags = load64(klass);

		if (is_class(flags) && !(flags & r->singleton_flag)) {
			put(t, "#<");
			put_plain(t, klass, flags);
			put_address(t, object);
			put(t, ">");
			return 1;
		}
		klass = load64(klass + r->class_super);
	}
	return 0;
}

/*
 * To 3.1.3 a ractor that starts allocates before it has a frame, and the VM's own event code
 * follows that null pointer. Its object is made before it starts.
 */
int scry_is_ractor(uint64_t klass)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t ractor;

	if (likely(!r->ractor_class))
		return 0;
	ractor = load64(r->ractor_class);
	for (int i = 0; i < SUPERS_MAX && is_pointer(klass); i++) {
		if (klass == ractor)
			return 1;
		klass = load64(klass + r->class_super);
	}
	return 0;
}

void scry_end_before_ractor(struct scry_state_page *g, uint64_t flags, uint64_t klass)
{
	if (likely(!scry_comes_ractor(flags, klass)))
		return;
	scry_account_of(scry_agent.control)->objects.ended = SCRY_ENDED_RACTOR;
	g->wanted = 0; /* the handler takes the hook off when it is done with this event */
}

uint32_t scry_class_name(uint64_t klass, uint8_t *to, uint32_t room)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	struct text t = {to, room};
	uint64_t flags, attached;

	for (int depth = 0; depth <= SINGLETONS_MAX && is_pointer(klass); depth++) {
		flags = load64(klass);
		if (!is_class(flags))
			return 0;
		if ((flags & SCRY_TYPE_MASK) == SCRY_TYPE_MODULE || !(flags & r->singleton_flag)) {
			put_plain(&t, klass, flags);
		} else {
			put(&t, "#<Class:");
			attached = attached_to(klass);
			if (!is_pointer(attached))
				return 0;
			if (is_class(load64(attached))) {
				klass = attached;
				continue;
			}
			depth++;
			if (!put_object(&t, attached, klass))
				return 0;
		}
		for (; depth > 0; depth--)
			put(&t, ">");
		return room - t.room;
	}
	return 0;
}
