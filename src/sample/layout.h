/* A Ruby's layout as programs in the kernel read it. */
#ifndef SCRY_SAMPLE_LAYOUT_H
#define SCRY_SAMPLE_LAYOUT_H

#include "vm/ruby.h"
#include "vm/ruby_walk.h"
#include "wire/bpf_stacks.h"

/* Do the programs read the words that they need of a newest frame? */
static inline bool scry_sample_is_readable(const struct scry_ruby *ruby)
{
	const struct scry_ruby_layout *l = &ruby->layout;

	return l->frame_ep <= 8 * (SCRY_BPF_FRAME_WORDS - 1) && l->frame_ep % 8 == 0 &&
	       l->frame_pc <= 8 * (SCRY_BPF_FRAME_WORDS - 1) && l->frame_pc % 8 == 0 &&
	       l->frame_me <= 8 * (SCRY_BPF_ENV_WORDS - 1) && l->frame_me % 8 == 0 &&
	       l->me_def <= 8 * (SCRY_BPF_ENTRY_WORDS - 1) && l->me_def % 8 == 0;
}

/* Where the collector of that walk's process says what it does. */
static inline struct scry_bpf_gc scry_sample_gc(const struct scry_walk *w)
{
	struct scry_bpf_gc gc = {0};

	if (w->gc_heap && w->gc.is_known)
		gc.during = w->gc_heap + w->gc.during.at;
	if (w->gc_heap && w->gc.has_epochs) {
		gc.count = w->gc_heap + w->gc.count;
		gc.marking = w->gc_heap + w->gc.marking.at;
	}
	return gc;
}

/* pid_ns and native are 0. */
static inline struct scry_bpf_layout scry_sample_layout(const struct scry_ruby *ruby)
{
	const struct scry_ruby_layout *l = &ruby->layout;

	return (struct scry_bpf_layout){
		.th_ec = l->th_ec,
		.th_nt = l->th_nt,
		.th_tid = l->th_tid,
		.ec_stack = l->ec_stack,
		.ec_stack_size = l->ec_stack_size,
		.ec_cfp = l->ec_cfp,
		.ec_thread = l->ec_thread,
		.frame_size = l->frame_size,
		.frame_ep = l->frame_ep,
		.frame_pc = l->frame_pc,
		.frame_me = l->frame_me,
		.me_def = l->me_def,
		.def_iseq = l->def_iseq,
	};
}

#endif
