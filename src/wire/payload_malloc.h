/*
 * Payloads of a malloc recording: see wire/payload.h, which includes this.
 *
 * Calls come in the order in which a replay by one thread may make them: a block's end comes after
 * its beginning and before its address is given out again, whichever threads did it.
 */
#ifndef SCRY_WIRE_PAYLOAD_MALLOC_H
#define SCRY_WIRE_PAYLOAD_MALLOC_H

#include <stdint.h>

enum scry_malloc_function {
	SCRY_MALLOC_NONE,
	/* a block begins */
	SCRY_MALLOC_MALLOC,
	SCRY_MALLOC_CALLOC, /* size: the product */
	SCRY_MALLOC_POSIX_MEMALIGN,
	SCRY_MALLOC_ALIGNED_ALLOC,
	SCRY_MALLOC_MEMALIGN,
	SCRY_MALLOC_VALLOC,
	SCRY_MALLOC_PVALLOC,
	SCRY_MALLOC_NEW, /* operator new, where the allocator has one of its own */
	SCRY_MALLOC_NEW_ARRAY,
	/* a block goes on, with another size */
	SCRY_MALLOC_REALLOC,
	SCRY_MALLOC_REALLOCARRAY,
	/* a block ends */
	SCRY_MALLOC_FREE,
	SCRY_MALLOC_DELETE,
	SCRY_MALLOC_DELETE_ARRAY,
	/* it is asked about */
	SCRY_MALLOC_USABLE_SIZE,
	/* no calls: what the recorder has to say */
	SCRY_MALLOC_OLDER,	/* a block begins that is older than the recording */
	SCRY_MALLOC_TOUCHED,	/* of `block`, `usable` bytes lie in pages that are resident */
	SCRY_MALLOC_THREAD_END, /* `thread` has ended */
	SCRY_MALLOC_FUNCTIONS,
};

/* Flags. */
#define SCRY_MALLOC_FAILED 1u /* returned no memory: no block begins, one asked about goes on */
#define SCRY_MALLOC_NULL 2u   /* was given no block: free(NULL); realloc(NULL) begins one */
#define SCRY_MALLOC_UNKNOWN                                                                      \
	4u		      /* was given one that the recording does not know, not in `block`; \
				 realloc of it begins one */
#define SCRY_MALLOC_ENDED 8u  /* realloc to 0 bytes that ended the block and returned NULL */
#define SCRY_MALLOC_MOVED 16u /* realloc: returned another address */

#define SCRY_MALLOC_NO_BLOCK 0xffffffffu

struct scry_ev_malloc { /* a call of a malloc function; time_ns is that of the last stamp before it
			 */
	uint32_t pid;
	uint32_t function; /* enum scry_malloc_function */
	uint32_t flags;
	uint32_t thread; /* number of a THREAD event of this process */
	uint32_t caller; /* id of a CALLER event; 0 unknown */
	uint32_t block;	 /* number of the block, given by the recording: dense from 0, used again
			    after its end; SCRY_MALLOC_NO_BLOCK */
	uint64_t size;	 /* bytes asked for */
	uint64_t usable; /* bytes that may be used; 0 not known */
	uint64_t align;	 /* bytes asked for; 0 none */
};

struct scry_ev_caller {	 /* a place that calls malloc functions */
	uint32_t caller; /* id, dense from 1 within a process */
	uint32_t pid;
	uint32_t module_str; /* path */
	uint32_t symbol_str;
	uint64_t offset; /* of the return address: from the symbol, else from the module */
	uint32_t file_str, line, method_str; /* what a VM ran there, where known */
	uint32_t flags;
	uint32_t stack; /* id of a STACK event: its frame; 0: not recorded */
	uint32_t reserved;
};

struct scry_ev_thread {	 /* may come again for a number: the last one holds */
	uint32_t thread; /* number, dense from 1 within a process, in order of their first call */
	uint32_t pid;
	uint32_t tid; /* 0: of a sampled one that has not begun */
	uint32_t name_str;
};

struct scry_ev_memory { /* what the kernel says of a process at time_ns */
	uint32_t pid, threads;
	uint64_t rss_anon, rss_file, rss_shmem; /* bytes */
	uint64_t faults, major_faults;		/* since its start */
	uint64_t user_ns, system_ns;		/* the same */
	uint64_t rss_peak; /* bytes, resident of all kinds, at most until now */
	uint64_t held;	   /* bytes that malloc has from the kernel, as glibc counts; 0 unknown */
	uint64_t arenas;   /* of malloc's; 0: `held` is not known, or an older recording */
	uint64_t arenas_held; /* of `held`, in the arenas but for the first one: those of threads */
};

struct scry_ev_object_file { /* which build of an object a process had loaded */
	uint32_t pid;
	uint32_t module_str; /* its path, as in CALLER and STACK */
	uint32_t build_str;  /* its build-id, in hex */
	uint32_t flags;
};

#define SCRY_ALLOCATOR_OLDER_PARTIAL 1u /* there were more older blocks than were found */

struct scry_ev_allocator { /* the allocator that serves the calls */
	uint32_t pid;
	uint32_t module_str; /* path of the object whose malloc is called */
	uint32_t name_str;   /* "glibc 2.36", "jemalloc", ...; 0 unknown */
	uint32_t flags;
	uint64_t older_blocks, older_bytes; /* found at the beginning: OLDER events follow */
};

#endif
