/*
 * What the dynamic loader goes by in an object: PT_DYNAMIC and the tables it leads to.
 *
 * Symbols with their versions, relocations, needed names. Section headers are not used where
 * PT_DYNAMIC is there, so files without them (sstrip) and static PIEs are read too; a static
 * program has relocations only (of IFUNCs), found by its section headers if it has kept them. The
 * tables point into the file, which is hostile: every access is checked against what the file
 * holds.
 *
 * Life: a zeroed struct, scry_dynamic_open, calls, scry_dynamic_done; the elf must live longer.
 */
#ifndef SCRY_SYS_DYNAMIC_H
#define SCRY_SYS_DYNAMIC_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/elf.h"

#define SCRY_DYNAMIC_TABLES 16

struct scry_dynamic {
	struct scry_elf *elf;
	const uint8_t *symbols, *strings, *versions, *hash, *relr; /* NULL: has none */
	size_t symbol_count, strings_size, version_count, hash_size;
	size_t relr_size; /* bytes of DT_RELR: relative relocations only, no function is named there
			   */
	struct {
		const uint8_t *at;
		size_t count;
	} rela[SCRY_DYNAMIC_TABLES];
	size_t rela_count;
	const char **version_names; /* by version index; NULL: no such */
	size_t version_names_count;
	const char *soname; /* NULL: has none */
	uint32_t *needed;   /* offsets of DT_NEEDED strings */
	size_t needed_count;
	bool binds_now;	  /* DF_BIND_NOW, DF_1_NOW: no slot of it is ever lazy */
	bool is_symbolic; /* DF_SYMBOLIC: it looks into itself first */
};

/* A symbol of .dynsym. */
struct scry_dynsym {
	uint64_t value, size;
	const char *name;    /* owned by the elf, never NULL */
	const char *version; /* "" when it has none, or the base version */
	uint8_t type, bind;
	bool is_defined;
	bool is_hidden; /* not the default version of its name (name@VERSION, not name@@VERSION) */
};

/* Reads the tables' places. 0; -ENOMEM with a sentence. What makes no sense is left out: a file
 * that is broken has fewer symbols. */
int scry_dynamic_open(struct scry_elf *elf, struct scry_dynamic *ret);
void scry_dynamic_done(struct scry_dynamic *d);

/* Symbol `i` (1 .. symbol_count - 1). False: its name is not in the file. */
bool scry_dynamic_symbol(const struct scry_dynamic *d, size_t i, struct scry_dynsym *ret);

/* Relocation `i` of table `table`; i < rela[table].count. */
Elf64_Rela scry_dynamic_rela(const struct scry_dynamic *d, size_t table, size_t i);

/* String at `offset` of DT_STRTAB, or NULL. */
const char *scry_dynamic_string(const struct scry_dynamic *d, uint64_t offset);

/* Definitions called `name`, one of each version, in the table's order: by the GNU hash where the
 * file has one, so a symbol that is not in it, which the loader would not find, is left out.
 * `*cursor` is 0 at first. False: no more. */
bool scry_dynamic_named(const struct scry_dynamic *d, const char *name, size_t *cursor,
			struct scry_dynsym *ret);

/* The definition by which the loader would bind a reference to `name` with `version` ("": none), by
 * the rules of glibc's dl-lookup.c (check_match). 0 or -ENOENT. */
int scry_dynamic_find(const struct scry_dynamic *d, const char *name, const char *version,
		      struct scry_dynsym *ret);

#endif
