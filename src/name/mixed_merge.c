/* See mixed_merge.h. */
#include "name/mixed_merge.h"

#include "vm/ruby_value.h"

#define FRAME_IFUNC 0x6666u
#define FLAG_FINISH 0x20u /* vm_core.h, VM_FRAME_FLAG_FINISH */
#define DEFINITION_BYTES 64u

struct weaving {
	const struct scry_mixed_merger *w;
	const struct scry_walk *walk;
	const struct scry_native_stack *native;
	struct scry_woven *out;
	size_t ruby_at, native_at, count; /* what is put comes from here */
};

void scry_mixed_merger_init(struct scry_mixed_merger *w, const struct scry_ruby *ruby,
			    struct scry_unwinder *u)
{
	uint64_t leave = ruby->layout.leave_word;

	*w = (struct scry_mixed_merger){.ruby = ruby};
	if (leave)
		w->interpreter = scry_unwinder_function(u, ruby->bias + leave);
}

/* Was it entered by a new activation of the interpreter? */
static bool is_finish(const struct scry_walk_frame *f)
{
	uint32_t type = SCRY_FRAME_TYPE(f->flags);

	return f->iseq && f->flags & FLAG_FINISH && type != SCRY_FRAME_CFUNC &&
	       type != FRAME_IFUNC && type != SCRY_FRAME_DUMMY;
}

static bool is_interpreter(const struct weaving *v, size_t i)
{
	return v->native->frames[i].function == v->w->interpreter;
}

static void put_native(struct weaving *v, size_t end)
{
	for (; v->native_at < end; v->native_at++)
		if (!v->w->interpreter || !is_interpreter(v, v->native_at))
			v->out[v->count++] = (struct scry_woven){true, (uint32_t)v->native_at};
}

static void put_ruby(struct weaving *v, size_t end)
{
	for (; v->ruby_at < end; v->ruby_at++)
		v->out[v->count++] = (struct scry_woven){false, (uint32_t)v->ruby_at};
}

/* Behind the native frame of C method `f` among those up to `end`; 0: none is. */
static size_t native_of(const struct weaving *v, const struct scry_walk_frame *f, size_t end)
{
	const struct scry_ruby *ruby = v->w->ruby;
	uint64_t words[DEFINITION_BYTES / 8], entry, def;

	if (!ruby->layout.frame_me || !f->entry || !(entry = scry_walk_entry(ruby, f->entry)) ||
	    scry_mem_u64(&ruby->mem, entry + ruby->layout.me_def, &def) ||
	    scry_mem_read(&ruby->mem, def, words, sizeof(words)))
		return 0;
	for (size_t i = v->native_at; i < end; i++)
		for (size_t j = 0; v->native->frames[i].function && j < DEFINITION_BYTES / 8; j++)
			if (words[j] == v->native->frames[i].function)
				return i + 1;
	return 0;
}

static bool is_c(const struct scry_walk_frame *f)
{
	return !f->iseq && SCRY_FRAME_TYPE(f->flags) == SCRY_FRAME_CFUNC;
}

/* One part: native frames up to `native_end`, control frames up to `ruby_end`. A C method whose own
 * native frame is not found has all above it that is not surely of an older one. */
static void put_part(struct weaving *v, size_t native_end, size_t ruby_end)
{
	while (v->ruby_at < ruby_end && is_c(&v->walk->frames[v->ruby_at])) {
		size_t end = 0;

		for (size_t i = v->ruby_at; !end && i < ruby_end && is_c(&v->walk->frames[i]);
		     i++) {
			end = native_of(v, &v->walk->frames[i], native_end);
			end -= end && i != v->ruby_at;
		}
		put_native(v, end ? end : native_end);
		put_ruby(v, v->ruby_at + 1);
	}
	put_native(v, native_end);
	put_ruby(v, ruby_end);
}

static size_t next_interpreter(const struct weaving *v, size_t from)
{
	while (from < v->native->count && !is_interpreter(v, from))
		from++;
	return from;
}

static size_t next_finish(const struct weaving *v, size_t from)
{
	while (from < v->walk->count && !is_finish(&v->walk->frames[from]))
		from++;
	return from;
}

/* As many activations as there are frames that began one? Of a stack that was not walked to its
 * end: not more. */
static bool fits(const struct weaving *v)
{
	size_t begun = 0, run = 0;

	for (size_t i = 0; i < v->walk->count; i++)
		begun += is_finish(&v->walk->frames[i]);
	for (size_t i = 0; i < v->native->count; i++)
		run += is_interpreter(v, i);
	return v->native->end == SCRY_NATIVE_WHOLE && !v->walk->is_cut ? run == begun
								       : run <= begun;
}

size_t scry_mixed_merge(const struct scry_mixed_merger *w, const struct scry_walk *walk,
			const struct scry_native_stack *native, struct scry_woven *ret,
			enum scry_mixed_merge *ret_how)
{
	struct weaving v = {.w = w, .walk = walk, .native = native, .out = ret};
	size_t run, begun;

	*ret_how = w->interpreter && fits(&v) ? SCRY_MIXED_MERGE_EXACT : SCRY_MIXED_MERGE_APART;
	if (*ret_how == SCRY_MIXED_MERGE_APART) {
		for (; v.native_at < native->count; v.native_at++)
			ret[v.count++] = (struct scry_woven){true, (uint32_t)v.native_at};
		put_ruby(&v, walk->count);
		return v.count;
	}
	while ((run = next_interpreter(&v, v.native_at)) < native->count) {
		begun = next_finish(&v, v.ruby_at);
		put_part(&v, run, begun + (begun < walk->count));
		v.native_at = run + 1;
	}
	put_part(&v, native->count, walk->count);
	return v.count;
}
