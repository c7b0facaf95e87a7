/* See record.h. */
#include "sample/record.h"

#include <string.h>

struct scry_ruby_gc_now scry_record_gc(const struct scry_walk *w, const struct scry_bpf_stack *r)
{
	const struct scry_ruby_gc *gc = &w->gc;
	uint8_t bytes[SCRY_RUBY_GC_BYTES] = {0};

	if (!w->gc_heap || !gc->is_known)
		return (struct scry_ruby_gc_now){0};
	if (gc->has_epochs) {
		memcpy(bytes + gc->count - gc->from, &r->gc_count, sizeof(r->gc_count));
		bytes[gc->marking.at - gc->from] = r->gc_marking;
	}
	bytes[gc->during.at - gc->from] = r->gc_during; /* the same byte, perhaps */
	return scry_ruby_gc_say(gc, bytes);
}

static enum scry_walk_verdict take_copy(struct scry_walk *w, const struct scry_ruby *ruby,
					const struct scry_bpf_stack *r, struct scry_ruby_gc_now gc)
{
	const struct scry_walk_copy copy = {
		.ec = r->ec,
		.stack = r->stack,
		.end = r->end,
		.cfp = r->cfp,
		.bottom = r->bottom,
		.top = r->top,
		.frames = (const char *)r + r->frames_at,
		.values = (const char *)r + r->values_at,
		.frames_size = r->frames_size,
		.newest = {r->top_word, r->top_flags, r->top_code},
		.gc = gc,
	};
	const enum scry_walk_verdict verdict = scry_walk_take(w, ruby, &copy);

	w->time_ns = r->time_ns;
	return verdict;
}

enum scry_walk_verdict scry_record_take(struct scry_walk *w, const struct scry_ruby *ruby,
					const struct scry_bpf_stack *r, size_t size,
					struct scry_ruby_gc_now gc)
{
	enum scry_walk_verdict verdict;

	if (r->kind == SCRY_BPF_EMPTY)
		return SCRY_WALK_EMPTY;
	if (r->kind != SCRY_BPF_STACK || r->top < r->bottom || r->frames_at > size ||
	    r->values_at > size || r->frames_size > size - r->frames_at ||
	    r->top - r->bottom > size - r->values_at)
		return SCRY_WALK_REJECTED;
	if (!scry_walk_is_same_epoch(w, ruby, &gc, r->time_ns))
		return take_copy(w, ruby, r, (struct scry_ruby_gc_now){0});
	verdict = take_copy(w, ruby, r, gc);
	if (w->has_read && !scry_walk_is_same_epoch(w, ruby, &gc, scry_walk_now_ns())) {
		scry_walk_forget(w); /* what was read now is of a later one */
		verdict = take_copy(w, ruby, r, (struct scry_ruby_gc_now){0});
	}
	return verdict;
}

static bool is_unsure(const struct scry_symbol *symbol, uint64_t taken_ns)
{
	return symbol && !symbol->is_reported && symbol->made_ns >= taken_ns;
}

size_t scry_record_keep_sure(struct scry_walk *w, const struct scry_ruby *ruby,
			     struct scry_symbols *symbols, struct scry_named_frame *named,
			     uint64_t taken_ns, bool *ret_is_new)
{
	size_t unsure = 0, alive, cut = 0;

	*ret_is_new = false;
	for (size_t i = 0; i < w->count; i++)
		if (is_unsure(scry_symbols_get(symbols, named[i].symbol), taken_ns))
			unsure = i + 1; /* the oldest */
	if (!unsure || scry_walk_is_same_epoch(w, ruby, &w->now, scry_walk_now_ns()))
		return 0;
	alive = w->count - scry_walk_alive(w, ruby); /* index of the newest */
	for (size_t i = 0; i < alive && i < unsure; i++) {
		if (!is_unsure(scry_symbols_get(symbols, named[i].symbol), taken_ns))
			continue;
		if (scry_symbols_report(symbols, ruby, w, i, &named[i]))
			*ret_is_new = true;
		else
			cut = i + 1;
	}
	w->count -= cut;
	memmove(named, named + cut, w->count * sizeof(*named));
	return cut;
}
