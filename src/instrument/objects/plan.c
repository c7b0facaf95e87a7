/*
 * What the agent knows for a watch of objects: see plan.h.
 */
#include "instrument/objects/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"
#include "vm/ruby_size.h"
#include "vm/ruby_types.h"

/* What watching costs the target, in ns, with the VM's own part; from bench/objects.md. */
#define EVENT_NS 25	 /* a birth or an end that is recorded */
#define STACK_NS 45	 /* more, for the stack of a birth */
#define HOOK_EVENT_NS 13 /* the same two by hooks */
#define HOOK_BIRTH_NS 9
#define BIRTH_NS 27   /* a birth that sampling passes over */
#define SAMPLE_NS 300 /* one that it takes */

#define SAMPLE_MAX 1000000u
#define SAMPLE_BYTES_MIN 1024u
#define SAMPLE_BYTES_MAX (64u << 20)

/* Can both hold of one object? */
static bool may_both(uint64_t mask, uint64_t value, const struct scry_size_rule *rule)
{
	return !((value ^ rule->value) & mask & rule->mask);
}

/* The first rule of `type` that says "nothing outside" by flags alone, and that no rule before it
 * takes objects from. */
static struct scry_agent_plain plain_of(const struct scry_size_rules *rules, uint32_t type)
{
	const struct scry_size_type *t = &rules->type[type];

	for (uint32_t i = 0; i < t->count; i++) {
		const struct scry_size_rule *rule = &rules->rule[t->first + i];
		struct scry_agent_plain plain = {
			rule->mask | t->same_mask | rule->same_mask,
			rule->value | t->same_value | rule->same_value,
		};
		uint32_t before = 0;

		if (rule->kind != SCRY_SIZE_NONE || rule->word_at)
			continue;
		while (before < i &&
		       !may_both(plain.mask, plain.value, &rules->rule[t->first + before]))
			before++;
		if (before == i)
			return plain;
	}
	return (struct scry_agent_plain){0, 1};
}

void scry_objects_fill_plan(const struct scry_ruby *ruby, struct scry_agent_ruby *p)
{
	const struct scry_ruby_layout *l = &ruby->layout;

	*p = (struct scry_agent_ruby){
		.iseq_body = l->iseq_body,
		.body_encoded = l->body_encoded,
		.body_size = l->body_size,
		.body_path = l->body_path,
		.body_label = l->body_label,
		.body_first_line = l->body_first_line,
		.body_insns_info = l->body_insns_info,
		.insns_entries = l->insns_entries,
		.insns_count = l->insns_count,
		.insns_succ = l->insns_succ,
		.insns_entry_size = l->insns_entry_size,
		.insns_entry_line = l->insns_entry_line,
		.string_ptr = l->string_ptr,
		.string_len = l->string_len,
		.string_embed = l->string_embed,
		.string_embed_len_shift = l->string_embed_len_shift,
		.array_embed_ptr = l->array_embed_ptr,
		.array_ptr = l->array_ptr,
		.first_line_is_value = l->first_line_fixnum,
		.iseq_flags_mask = l->iseq_flags_mask,
		.iseq_flags_value = l->iseq_flags_value,
		.string_noembed = l->string_noembed,
		.string_embed_len_mask = l->string_embed_len_mask,
		.array_embed = l->array_embed,
		.class_ext = l->class_ext,
		.class_path = l->class_path,
		.class_path_table = l->class_path_table,
		.class_super = l->class_super,
		.class_attached = l->class_attached,
		.class_ivs = l->class_ivs,
		.vm_shapes = l->vm_shapes,
		.shape_size = l->shape_size,
		.shape_edge = l->shape_edge,
		.shape_index = l->shape_index,
		.shape_parent = l->shape_parent,
		.st_entries = l->st_entries,
		.st_bound_start = l->st_bound_start,
		.st_bound = l->st_bound,
		.classpath_id = l->classpath_id,
		.tmp_classpath_id = l->tmp_classpath_id,
		.attached_id = l->attached_id,
		.singleton_flag = l->singleton_flag,
		.add_event_hook2 = scry_ruby_symbol(ruby, "rb_add_event_hook2"),
		.remove_event_hook = scry_ruby_symbol(ruby, "rb_remove_event_hook_with_data"),
		.ractor_class = l->hooks_break_ractors ? scry_ruby_symbol(ruby, "rb_cRactor") : 0,
		.vm_word = ruby->bias + l->vm_root,
		.job_register = scry_ruby_symbol(ruby, "rb_postponed_job_register_one"),
		.job_preregister = scry_ruby_symbol(ruby, "rb_postponed_job_preregister"),
		.job_trigger = scry_ruby_symbol(ruby, "rb_postponed_job_trigger"),
		.job_wake = scry_ruby_symbol(ruby, "rb_during_gc"),
		.page_mask = l->page_mask,
		.page_header = l->page_header,
		.page_slot_size = l->page_slot_size,
		.gc_count = scry_ruby_symbol(ruby, "rb_gc_count"),
		.gc_stat = scry_ruby_symbol(ruby, "rb_gc_stat"),
		.intern = scry_ruby_symbol(ruby, "rb_intern"),
		.id2sym = scry_ruby_symbol(ruby, "rb_id2sym"),
		.gc_start = scry_ruby_symbol(ruby, "rb_gc_start"),
		.xmalloc = scry_ruby_symbol(ruby, "ruby_xmalloc"),
		.data_wrap = scry_ruby_symbol(ruby, "rb_data_typed_object_wrap"),
		.gc_register = scry_ruby_symbol(ruby, "rb_gc_register_address"),
		.gc_unregister = scry_ruby_symbol(ruby, "rb_gc_unregister_address"),
		.gc_location = scry_ruby_symbol(ruby, "rb_gc_location"),
		.each_objects = scry_ruby_symbol(ruby, "rb_objspace_each_objects_without_setup"),
		.set_end_proc = scry_ruby_symbol(ruby, "rb_set_end_proc"),
		.memsize_of = scry_ruby_symbol(ruby, "rb_obj_memsize_of"),
		.is_marked = scry_ruby_symbol(ruby, "rb_objspace_marked_object_p"),
		.in_heap = scry_ruby_symbol(ruby, "rb_gc_pointer_to_heap_p"),
	};
	scry_ruby_size_rules(ruby, &p->sizes);
	for (uint32_t type = 0; type < SCRY_SIZE_TYPES; type++)
		p->plain[type] = plain_of(&p->sizes, type);
	for (uint32_t type = 0; type < SCRY_SIZE_TYPES; type++)
		p->core_class[type] = scry_ruby_core_class(ruby, type);
}

void scry_objects_fill_frames(const struct scry_ruby_layout *l, bool with_stacks, bool with_pages,
			      struct scry_agent_frames *f)
{
	*f = (struct scry_agent_frames){
		.trace_event = l->trace_event,
		.trace_ec = l->trace_ec,
		.trace_cfp = l->trace_cfp,
		.trace_data = l->trace_data,
		.frame_pc = l->frame_pc,
		.frame_iseq = l->frame_iseq,
		.frame_sp = l->frame_sp,
		.frame_ep = l->frame_ep,
		.frame_size = l->frame_size,
		.ec_cfp = l->ec_cfp,
		.ec_stack = l->ec_stack,
		.ec_stack_size = l->ec_stack_size,
		.pc_advanced = l->trace_pc_advanced ? 8 : 0,
		.with_stacks = with_stacks,
		.with_pages = with_pages,
	};
}

int scry_objects_read_sample(const char *text, struct scry_objects_sample *ret)
{
	bool by_count = strspn(text, "0123456789") == strlen(text);
	int r = by_count ? scry_opt_read_u64(text, &ret->every)
			 : scry_opt_read_size(text, &ret->bytes);

	if (r < 0)
		return r;
	if (by_count ? ret->every < 2 || ret->every > SAMPLE_MAX
		     : ret->bytes < SAMPLE_BYTES_MIN || ret->bytes > SAMPLE_BYTES_MAX)
		return scry_fail(-EINVAL,
				 "--sample takes one object in 2 to 1000000, or one in so many "
				 "bytes, 1KiB to 64MiB");
	return 0;
}

/*
 * Quantiles of the geometric distribution: how many objects until the next one that is taken, each
 * with chance 1 / mean. Returns their mean, which the finite table makes a little smaller.
 */
static double fill_gaps(double mean, uint32_t *gaps)
{
	double log_miss = log1p(-1 / mean), sum = 0;

	for (uint32_t i = 0; i < SCRY_SAMPLE_GAPS; i++) {
		double u = (i + 0.5) / SCRY_SAMPLE_GAPS;

		gaps[i] = (uint32_t)fmax(1, ceil(log1p(-u) / log_miss));
		sum += gaps[i];
	}
	return sum / SCRY_SAMPLE_GAPS;
}

double scry_objects_fill_sampling(const struct scry_objects_sample *sample, uint32_t slot_size,
				  bool slots_differ, struct scry_agent_sampling *ret)
{
	double mean =
		sample->bytes ? fmax(2, (double)sample->bytes / slot_size) : (double)sample->every;

	memset(ret, 0, sizeof(*ret));
	if (!sample->bytes && !sample->every)
		return 0;
	ret->on = 1;
	ret->by_bytes = sample->bytes != 0 && slots_differ;
	ret->unit = slot_size;
	return fill_gaps(mean, ret->gaps);
}

uint64_t scry_objects_cost_ns(const struct scry_agent_sampling *sampling, bool by_hooks,
			      bool with_stacks, const struct scry_objects_totals *t)
{
	uint64_t stacks = with_stacks ? t->allocs * STACK_NS : 0;
	uint64_t event = by_hooks ? HOOK_EVENT_NS : EVENT_NS;
	uint64_t birth = by_hooks ? HOOK_BIRTH_NS : BIRTH_NS;

	return stacks + (sampling->on ? t->estimated * birth + t->allocs * SAMPLE_NS
				      : (t->allocs + t->frees) * event);
}
