/*
 * The moment at which a program that is just starting has a VM, and has run nothing on it yet.
 */
#ifndef SCRY_VM_RUBY_BOOT_H
#define SCRY_VM_RUBY_BOOT_H

#include "vm/ruby.h"

/*
 * Where a starting program calls `function` (ruby_options: the VM is up, nothing is loaded yet):
 * an aligned word with its address, or, is_call, the 5 bytes of a `call rel32`. 0, or -ENOENT when
 * it starts in another way.
 */
struct scry_ruby_boot {
	uint64_t addr, function;
	bool is_call;
};
int scry_ruby_boot(const struct scry_ruby *ruby, struct scry_ruby_boot *ret);

#endif
