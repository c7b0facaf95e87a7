/*
 * Names of native code: an address of a process -> object, symbol, offset.
 *
 * Files are opened when seen and kept, for a target that ends soon.
 */
#ifndef SCRY_NAME_NATIVE_H
#define SCRY_NAME_NATIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/elf.h"
#include "sys/space.h"

struct scry_native;

/* Looks at what is mapped in process `pid` (0: all is unknown). NULL: no memory. */
struct scry_native *scry_native_new(pid_t pid);
/* The same of a process or a core. */
struct scry_native *scry_native_of(const struct scry_space *space);
void scry_native_free(struct scry_native *n); /* NULL is legal */
/* The same for one more, who frees it, too. */
struct scry_native *scry_native_share(struct scry_native *n);

/* Had it anything mapped, when it was looked at? */
bool scry_native_sees(const struct scry_native *n);

/* The memory of the newest snapshot, bytes. */
size_t scry_native_bytes(const struct scry_native *n);

/* Does it still run what `parent` runs, whose fork it is? Not when it has ended, or by exec. */
bool scry_native_is_fork(const struct scry_native *n, const struct scry_native *parent);

/* Looks again. Of a process that has ended, the last look stays. Costs a read of /proc/PID/maps. */
void scry_native_see(struct scry_native *n);

/* The same while it runs the program that it ran: what it has by exec is not seen. */
void scry_native_see_on(struct scry_native *n);

/* Where code of a file is mapped there, told by the file's device, inode and offset; 0: it is not.
 */
struct scry_native_place {
	uint32_t dev_major, dev_minor;
	uint64_t inode, offset;
};
uint64_t scry_native_address(const struct scry_native *n, const struct scry_native_place *place);

struct scry_native_name {
	char *module;		/* path, "[anon]" or "[unmapped]"; to be freed by the caller */
	const char *symbol;	/* NULL: none; as long as `n` */
	uint64_t offset;	/* of the address: from the symbol, else from the object */
	uint64_t object_offset; /* from the object, where that is known */
};

/* What covers the byte before `address`, a return address. */
void scry_native_name(struct scry_native *n, uint64_t address, struct scry_native_name *ret);

/* The file that it lies in, and the address in that; NULL: in none that can be read. As long as
 * `n`. */
struct scry_elf *scry_native_file(struct scry_native *n, uint64_t address, uint64_t *ret_address);

#endif
