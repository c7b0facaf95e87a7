/* A Ruby's layout as programs in the kernel read it. */
#ifndef SCRY_SAMPLE_LAYOUT_H
#define SCRY_SAMPLE_LAYOUT_H

#include "vm/ruby.h"
#include "wire/bpf_stacks.h"

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
