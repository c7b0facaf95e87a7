/*
 * Offsets of struct members from a module's debug information, where it has any: an independent
 * witness for what was learned. Never a source: most programs carry none.
 */
#ifndef SCRY_VM_RUBY_DWARF_H
#define SCRY_VM_RUBY_DWARF_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/elf.h"

struct scry_dwarf;

/* The debug information of `elf`, or NULL when there is none that may be read. */
struct scry_dwarf *scry_dwarf_open(struct scry_elf *elf);
void scry_dwarf_close(struct scry_dwarf *dwarf);

/*
 * `spec` is "struct:member.member", or "struct" for its size; more of them after '|', of which the
 * first that exists counts. Offset or size in bytes; false when there is no such member.
 */
bool scry_dwarf_find(struct scry_dwarf *dwarf, const char *spec, uint64_t *ret);

#endif
