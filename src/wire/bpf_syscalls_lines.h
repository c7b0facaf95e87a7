/* Lines of Ruby that make system calls: what bpf/syscalls.bpf.c gets of a Ruby, and gives of it.
 */
#ifndef SCRY_WIRE_BPF_SYSCALLS_LINES_H
#define SCRY_WIRE_BPF_SYSCALLS_LINES_H

#include "wire/bpf_stacks.h"
#include "wire/bpf_syscalls.h"

#define SCRY_SYSCALLS_RUBIES 256  /* that have lines, at once: entries of map `rubies` */
#define SCRY_SYSCALLS_FRAMES 2048 /* bytes of a Ruby's control frames */
#define SCRY_SYSCALLS_VALUES 4096 /* and of what their environments are in */

/*
 * Map `rubies`, by a number that map `lines` gives for an instance: a Ruby's layout, and where a
 * thread has its execution context: so far from its fs.
 */
struct scry_syscalls_ruby {
	int64_t ec;
	struct scry_bpf_layout layout;
};

/* The newest control frames, as in struct scry_bpf_stack. */
struct scry_syscalls_lines {
	struct scry_syscalls_record head;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t ec, stack, end, cfp, bottom, top;
	uint64_t top_word, top_flags, top_code;
	uint32_t frames_size, reserved;
	uint8_t frames[SCRY_SYSCALLS_FRAMES];
	uint8_t values[SCRY_SYSCALLS_VALUES];
};

#endif
