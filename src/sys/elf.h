/*
 * An ELF file that a process has mapped: segments, dynamic symbols, full symbols, relocations,
 * build-id.
 *
 * The file is opened through /proc/PID/map_files or /proc/PID/root and must be the regular file
 * that the mapping names (device and inode), so that containers and deleted files work and a
 * swapped file is refused. Reads the file with libelf; never the process's memory.
 */
#ifndef SCRY_SYS_ELF_H
#define SCRY_SYS_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/maps.h"

struct scry_elf;

#define SCRY_SYMBOL_LENGTH_MAX 16384u /* bytes; what is longer is not a name */

struct scry_sym {
	uint64_t value; /* link-time address (add the bias), or TLS offset when type is STT_TLS */
	uint64_t size;
	uint8_t type; /* STT_* */
	uint8_t bind; /* STB_* */
	uint16_t section;
	const char *name; /* owned by the elf */
};

/* Opens the file behind mapping `m` of process `pid`. 0 or -errno with a sentence. */
int scry_elf_open_mapped(pid_t pid, const struct scry_map_entry *m, struct scry_elf **ret);
/* Is it the vDSO of a 64-bit program? It is not a file (sys/elf_memory). */
bool scry_elf_is_vdso(const struct scry_map_entry *m);
/* Opens a file by path (tests, scry itself). */
int scry_elf_open_path(const char *path, struct scry_elf **ret);
void scry_elf_close(struct scry_elf *elf);

/* Symbol by name: .dynsym, then .symtab. Only defined ones. 0 or -ENOENT, no sentence. */
int scry_elf_symbol(struct scry_elf *elf, const char *name, struct scry_sym *ret);
/* The function symbol that covers link-time address `addr`, or -ENOENT. */
int scry_elf_symbol_at(struct scry_elf *elf, uint64_t addr, struct scry_sym *ret);

/* Calls `fn` for each defined and named symbol, .dynsym, then .symtab or one that was lent (names
 * may come twice), until it returns other than 0, which is returned. */
int scry_elf_each_symbol(struct scry_elf *elf, int (*fn)(const struct scry_sym *, void *),
			 void *arg);

/* Program header `i`, or NULL behind the last. Owned by the elf. */
const Elf64_Phdr *scry_elf_segment(const struct scry_elf *elf, size_t i);
/* Link-time address and bytes of the first section whose name is `name`: 0 or -ENOENT, no sentence
 * (files may have no section headers). */
int scry_elf_section(struct scry_elf *elf, const char *name, uint64_t *ret_addr,
		     uint64_t *ret_size);

/* Difference between run-time and link-time addresses, from any mapping of the file in `maps`. */
int scry_elf_bias(struct scry_elf *elf, const struct scry_maps *maps,
		  const struct scry_map_entry *m, uint64_t *ret);

/* Link-time address of the GOT slot through which this object calls `name` (JUMP_SLOT or GLOB_DAT).
 * -ENOENT when none. */
int scry_elf_got_slot(struct scry_elf *elf, const char *name, uint64_t *ret);

/* GNU build-id bytes; returns length (0: none). Owned by the elf. */
size_t scry_elf_build_id(struct scry_elf *elf, const uint8_t **ret);

/* Has it a section of debug information of its own? */
bool scry_elf_has_debug_info(struct scry_elf *elf);
/* The file itself, for readers of what is not read here (debug information). Owned by the elf. */
int scry_elf_fd(const struct scry_elf *elf);
/* How many bytes may be read of it, by the blocks that it takes up on its disk: a file of gigabytes
 * that is all hole costs only us. */
uint64_t scry_elf_room(const struct scry_elf *elf);

/* Bytes of the file as they are mapped at link-time address `addr`: 0 or -EFAULT. For comparing
 * memory with its file. */
int scry_elf_read(struct scry_elf *elf, uint64_t addr, void *buf, size_t size);

/* The file's bytes as they are mapped at link-time address `addr`, up to the end of that segment's
 * part of the file: *ret and their count, 0 when the address is not in the file. Owned by the elf.
 */
size_t scry_elf_view(struct scry_elf *elf, uint64_t addr, const uint8_t **ret);

/* Link-time address and bytes of PT_DYNAMIC; false: has none (a static program). */
bool scry_elf_dynamic(struct scry_elf *elf, uint64_t *ret_addr, uint64_t *ret_size);

/* The RELA tables that section headers name and that are loaded, one a call from *cursor 0: bytes
 * and their count. For static programs, which have no PT_DYNAMIC. False at the end. */
bool scry_elf_rela_next(struct scry_elf *elf, size_t *cursor, const uint8_t **ret,
			size_t *ret_size);

/* The defined symbols of .symtab, or of one that was lent, one a call from *cursor 0; false at the
 * end. */
bool scry_elf_symtab_next(struct scry_elf *elf, size_t *cursor, struct scry_sym *ret);

/* Of sys/debug_file: is .symtab missing, and asked for the first time? The file's name in
 * .gnu_debuglink, false: none, or no file's name. `debug` is owned by `elf` from then on, unless it
 * has no .symtab: false. */
bool scry_elf_wants_symbols(struct scry_elf *elf);
bool scry_elf_debuglink(struct scry_elf *elf, char *ret, size_t room);
bool scry_elf_lend(struct scry_elf *elf, struct scry_elf *debug);

/* Does it have PT_INTERP / a TLS segment; entry point; [start, end) of PT_GNU_RELRO (0,0 when
 * none). */
bool scry_elf_has_interp(struct scry_elf *elf);
uint64_t scry_elf_entry(struct scry_elf *elf);
bool scry_elf_has_tls(struct scry_elf *elf);
void scry_elf_relro(struct scry_elf *elf, uint64_t *ret_start, uint64_t *ret_end);

#endif
