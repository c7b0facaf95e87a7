/* What bpf/check.bpf.c writes into its ring. */
#ifndef SCRY_WIRE_BPF_CHECK_H
#define SCRY_WIRE_BPF_CHECK_H

#include <stdint.h>

struct scry_bpf_checked {
	uint64_t pid_tid; /* of the first namespace: process << 32 | thread */
	uint64_t word;	  /* the constant that was set before loading */
};

_Static_assert(sizeof(struct scry_bpf_checked) == 16, "shared with the kernel's side");

#endif
