/*
 * Functions of loaded objects by what a person asks for: SYMBOL[@LIB], SYMBOL@VERSION.
 *
 * SYMBOL is a name, a glob (`mysql_*`), of C++ and Rust also demangled, with or without parameters
 * (`ns::Class::method`, base/demangle.h), or 0xADDRESS for a function without a name: the link-time
 * address in LIB, or without LIB the run-time address. LIB is the soname or the last part of the
 * path of one or more objects; where none is called so, a version of the name
 * (`realpath@GLIBC_2.3`, and with @@, as nm -D writes them), else any part of the path ("mariadb");
 * a glob too. Without a version all versions of a name, and all namespaces, are answers. Functions
 * are taken from .dynsym and .symtab, or, where that was stripped, from a separate debug file
 * (sys/debug_file); data is not.
 *
 * What begins with a sign is a filter expression (sys/filter.h), of names only.
 */
#ifndef SCRY_SYS_SYMBOLS_H
#define SCRY_SYS_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/nearest.h"
#include "sys/linkmap.h"

#define SCRY_FUNCTIONS_MAX 200000

struct scry_function {
	uint64_t address; /* run-time; of the resolver when is_ifunc */
	uint64_t size;	  /* bytes, 0: not known */
	uint32_t object;  /* index into the link map that it was found in */
	bool is_ifunc; /* STT_GNU_IFUNC: `address` is run once by the loader and must not be hooked;
			  what it chose is known from bound slots only (sys/slots) */
	bool is_exported;
	const char *name;    /* "" for a bare address; owned by the link map's files */
	const char *version; /* "" without */
};

struct scry_functions { /* zeroed: empty */
	struct scry_function *rows;
	size_t count, room;
	size_t hits;		    /* names found, those of an address that was there included */
	struct scry_map by_address; /* address -> index */
};

/*
 * Adds the functions that `request` names to `ret`, each address once, by its public name: an
 * exported one, of these the one with the fewest underscores in front. 0; -ENOENT: there is none;
 * -EINVAL: no request; -ENOSPC, -ENOMEM; all with a sentence, and what was added stays.
 */
int scry_symbols_find(struct scry_linkmap *lm, const char *request, struct scry_functions *ret);
/* All IFUNCs that loaded objects export or name. 0 or -errno as above. */
int scry_symbols_find_ifuncs(struct scry_linkmap *lm, struct scry_functions *ret);

/* What a request that found nothing was meant to be: of the names of the objects that it concerns
 * the one nearest to its SYMBOL. Nothing is asked of filters, globs and addresses. */
struct scry_nearest_text scry_symbols_ask(struct scry_linkmap *lm, const char *request);

/* Does it begin with a sign? */
bool scry_symbols_is_filter(const char *request);

/*
 * Adds the functions that loaded objects have slots for (calls through a PLT, or without one),
 * where `filter` takes the slot: there LIBRARY is what calls. All exported definitions of the
 * names; which of them a slot leads to, sys/slots says. 0, also when there are none; -errno as
 * above.
 */
int scry_symbols_find_called(struct scry_linkmap *lm, const char *filter,
			     struct scry_functions *ret);

/* Of .dynsym only: what others may call by name. */
int scry_symbols_find_exported(struct scry_linkmap *lm, const char *request,
			       struct scry_functions *ret);

/* All names of functions of one object, with or without a type, until `each` returns other than 0,
 * which is returned. */
typedef int scry_symbol_each(const struct scry_function *function, uint8_t type, void *arg);
int scry_symbols_each(struct scry_linkmap *lm, size_t object, scry_symbol_each *each, void *arg);
void scry_functions_done(struct scry_functions *functions);

/* Index of the function at run-time address `addr`, or -ENOENT. */
ssize_t scry_functions_at(const struct scry_functions *functions, uint64_t addr);

#endif
