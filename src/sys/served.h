/*
 * Files whose server may not answer: on a network, or of a program (FUSE). A process that opens or
 * reads such a file waits until the server likes, and no signal but SIGKILL ends that. So a child
 * process asks first, and has a second for it; one that waits on is left to its fate, with nothing
 * of ours open, and collected when a later one is asked.
 *
 * A file system of the kernel's own on a disk or in memory is not asked. An answer is believed for
 * a second, none for half a minute: a server that dies between the two is still waited for. While
 * eight do not answer no others are asked, and their files are taken for such as well: a program
 * may have any number.
 */
#ifndef SCRY_SYS_SERVED_H
#define SCRY_SYS_SERVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/maps.h"

/* Does the server of the file answer that is mapped at `m` of process `pid`? Yes, where that cannot
 * be asked. Any thread; it may take a second, so not while threads are held. */
bool scry_served_answers(pid_t pid, const struct scry_map_entry *m);

/* The same of a file by its path in our file system. */
bool scry_served_path_answers(const char *path);

/* Mappings of a process of files whose server does not answer: memory of them is only what their
 * process has touched. */
struct scry_served_range {
	uint64_t start, end;
};
struct scry_served {
	struct scry_served_range *ranges; /* ascending; of more than 4,096 the last goes on */
	size_t count;
	int pagemap;	 /* of the process; -1: nothing of them is read */
	char first[512]; /* the file of the first; "": none */
};

/* Into `ret`, which is to be closed in any case; zeros are legal. `maps` may go. */
void scry_served_look(pid_t pid, const struct scry_maps *maps, struct scry_served *ret);
void scry_served_done(struct scry_served *s);

/* How many bytes of [addr, addr + size) can be read without asking such a server, from `addr` on.
 */
size_t scry_served_readable(const struct scry_served *s, uint64_t addr, size_t size);

#endif
