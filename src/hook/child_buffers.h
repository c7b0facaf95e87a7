/*
 * The host's end of the child buffers: the pool of one entered process and all its fork
 * descendants.
 *
 * Life: open (map it) -> announce (the agent knows of it) -> follow -> watch the claims: find the
 * owner of each taken child buffer, read the child buffer, free it when the owner is gone -> follow
 * 0 -> close. What is read here any descendant of the process can write: indices are ours, words
 * are checked.
 */
#ifndef SCRY_HOOK_CHILD_BUFFERS_H
#define SCRY_HOOK_CHILD_BUFFERS_H

#include "hook/inject.h"
#include "wire/child_buffers.h"

struct scry_pool {
	struct scry_child_buffers *head; /* our own view; NULL: there is no pool */
	uint64_t address;		 /* of the pool in every descendant */
	uint64_t state_page, data, text;
	uint64_t nonce;
	int fd;		   /* of a pool that is joined */
	uint64_t burnt;	   /* bits: child buffers that may not be used any more; never free again */
	bool names_owners; /* so it is: child buffers say whose they are, no process's memory is
			      read */
	/* where several instruments record, a child buffer for each: see scry_pool_share */
	uint32_t sets;
	uint32_t most; /* of them that are given out */
	uint64_t channel_at[SCRY_CHANNELS], table_at;
};

/* Maps the pool into the process. After scry_inject_enter; `held` as there. */
int scry_pool_open(struct scry_pool *p, struct scry_inject *inj, struct scry_tracee *held);
/* A pool that processes join by themselves (wire/preload.h): no process is entered. */
int scry_pool_make(struct scry_pool *p);
void scry_pool_close(struct scry_pool *p);

/*
 * So many instruments record: each process has a child buffer of each, and set 0 is that of the
 * process that was entered. The caller says then at how many bytes those of channels, and of a
 * table, lie from the first. Before scry_pool_announce.
 */
void scry_pool_share(struct scry_pool *p, uint32_t instruments);
/*
 * The rings of processes in child buffers fill memory of their control group, until whose limit
 * `left` bytes remain: half of that is given out at most, less what the process that was entered
 * may fill itself. Returns how many children may have a child buffer at a time. After
 * scry_pool_share.
 */
uint32_t scry_pool_bound(struct scry_pool *p, uint32_t instruments, uint64_t left);
/* The child buffer of instrument `number` in the set of `child_buffer`. */
uint32_t scry_pool_child_buffer(const struct scry_pool *p, uint32_t child_buffer, uint32_t number);

/* Informs the agent: from now on it can give a child its frames. Before the hook is on. */
int scry_pool_announce(struct scry_pool *p, struct scry_inject *inj,
		       const struct scry_agent_frames *frames);

/* Children take up this watch from now on; 0: no more. */
void scry_pool_follow(struct scry_pool *p, uint32_t watch);

/* When handlers stop recording, and when they take themselves off, for all child buffers. */
void scry_pool_lease(struct scry_pool *p, uint64_t lease_tsc, uint64_t lease_end_tsc);

bool scry_pool_is_taken(const struct scry_pool *p, uint32_t child_buffer);
struct scry_control *scry_pool_control(const struct scry_pool *p, uint32_t child_buffer);

/* Of a pool that is joined: it is known whose this is, or never will be, and then its handlers go
 * off. The process that took it waits for this. */
void scry_pool_seen(struct scry_pool *p, uint32_t child_buffer, bool is_known);
/* It is taken up no more, and never free again: its handlers go off. What is read of it goes on. */
void scry_pool_burn(struct scry_pool *p, uint32_t child_buffer);
/* The process in this child buffer, in its own pid namespace; 0: not said yet. */
pid_t scry_pool_owner(const struct scry_pool *p, uint32_t child_buffer);
/* Has process `pid` that pool mapped? Numbers of another pid namespace mean others. */
bool scry_pool_is_member(const struct scry_pool *p, pid_t pid);

/* The owner is gone and the words of its set are read: another child may have it. */
void scry_pool_free(struct scry_pool *p, uint32_t child_buffer);

/* Is `pid` such a descendant, and has it never recorded (its process state page is as the fork left
 * it)? Then its VM may have our hook, which goes at its first event. */
bool scry_pool_is_descendant(const struct scry_pool *p, pid_t pid);

/* What process `pid` says of itself. 0; -ENOENT: not such a descendant, not alive, or not ours to
 * read; -EAGAIN: it could not be asked (no descriptor, no memory). Costs an open and three reads.
 */
int scry_pool_ask(const struct scry_pool *p, pid_t pid, struct scry_claim *ret);

#endif
