/* What holds of a call is added to its place's sum. */
#ifndef SCRY_BPF_KINDS_H
#define SCRY_BPF_KINDS_H

#include "bpf/calls.h"

/* A call of two kinds at one address (fcntl) has both; a third one is not asked. */
static __always_inline void found(struct scry_syscalls_sum *s, __u32 what, bool is_vain)
{
	struct scry_syscalls_kind_sum *k = &s->kinds[0];

	if (k->what && k->what != what)
		k = &s->kinds[1];
	if (k->what && k->what != what)
		return;
	k->what = what;
	k->asked++;
	k->vain += is_vain;
	if (is_vain)
		k->ticks += s->pending;
}

#endif
