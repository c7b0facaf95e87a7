/*
 * The agent's header page, by which it is found, and what lies where. Freestanding. What the host
 * reads of it is hostile input.
 */
#ifndef SCRY_WIRE_HEADER_H
#define SCRY_WIRE_HEADER_H

#include <stdint.h>

#define SCRY_AGENT_MAGIC 0x31746e6761797263ull /* "cryagnt1" */
#define SCRY_AGENT_ABI 7u
#define SCRY_PAGE 4096u

/*
 * First page of the text mapping: how ps, undo and the next attach find an agent. Written as soon
 * as the page exists, so that whoever dies later leaves something that can be found.
 */
enum scry_agent_stage {
	SCRY_AGENT_MAPPING = 1, /* not complete: no code of it can be running */
	SCRY_AGENT_READY,
	SCRY_AGENT_LEAVING, /* proven unused; being unmapped */
	/* The VM still holds the address of a handler, which then finds the state page closed and
	 * needs nothing from `tail` on. That is unmapped, or about to be: the journal's nonce
	 * shows. */
	SCRY_AGENT_IDLE,
};
/*
 * A slab: stubs within reach of the code that is hooked. Code, then one private page that fork
 * children find wiped (its first word is 1 in the process that was entered), then counters, shared
 * with the keeper. A header may name one that could not be mapped any more: the magic at the
 * beginning of its code shows.
 */
#define SCRY_SLAB_MAGIC 0x31626c7379726373ull
#define SCRY_SLABS_MAX 16u
struct scry_slab {
	uint64_t code, code_size, used; /* bytes */
	uint64_t state_page;
	uint64_t counters, counters_size; /* 8 bytes each */
};

/*
 * The agent's parts (src/agent/agent.ld), bits. Each has its place in the reservation, which is
 * closed until the part is wanted.
 */
enum scry_agent_part {
	SCRY_PART_CORE = 1, /* always there */
	SCRY_PART_VM = 2,   /* what is known of a Ruby; objects and lines need it */
	SCRY_PART_OBJECTS = 4,
	SCRY_PART_LINES = 8,  /* of Ruby, for malloc and calls */
	SCRY_PART_WALK = 16,  /* native stacks, for malloc and calls */
	SCRY_PART_CALLS = 32, /* entries and returns: patch time, calls */
	SCRY_PART_MALLOC = 64,
	SCRY_PART_GVL = 128, /* the lock of a Ruby VM */
};
/* Whose addresses a VM may hold: an idle agent keeps them, and closes the others. */
#define SCRY_PARTS_IDLE ((uint32_t)SCRY_PART_CORE | SCRY_PART_VM | SCRY_PART_OBJECTS)

struct scry_agent_header {
	uint64_t magic;
	uint32_t abi;
	uint32_t stage;	     /* enum scry_agent_stage */
	uint64_t image_hash; /* of the embedded agent: adopt only an equal one */
	uint64_t text, text_size;
	uint64_t private_, private_size;
	uint64_t shared, shared_size;
	uint64_t tail;	/* from here to the end of shared: only while a watch is on */
	uint64_t nonce; /* the journal has it too: what lies from `tail` on is the agent's */
	uint64_t image, image_data; /* where the core's code, its data begin */
	/* 0: fork children are not followed; see wire/child_buffers.h */
	uint64_t child_buffers, child_buffers_size;
	uint64_t has_open; /* a memfd of ours may be open: hook/shared.h */
	uint64_t slab_count;
	struct scry_slab slabs[SCRY_SLABS_MAX];
	/* from ABI 4 on; what is before lies there in all, so that older agents are found */
	uint64_t parts; /* enum scry_agent_part: those that are mapped and written */
	uint64_t aside; /* the control page of an idle agent, which has no shared pages */
};

#endif
