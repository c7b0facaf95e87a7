/*
 * Memory that claims to be fibers, and is none. fibers_liar KIND:
 *
 *   registry   a registry of libscryfiber's whose tables are huge, lead nowhere or into themselves
 *   contexts   100,000 contexts whose stacks overlap, wrap around, or are of other memory
 *   blocks     a mapping full of control words with an address of code 56 bytes behind each
 *   threads    descriptors of threads that name each other's stacks
 *   changes    guarded stacks with contexts that a thread changes all the time
 *   deep       DEEP real contexts, each DEPTH frames deep, no two stacks alike
 *
 * Prints "pid N", and then waits for the end of its input; must still be there when it has been
 * looked at.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define MAGIC 0x7265626966797263ull
#define LIES 100000
#define ROOM (64u << 20)
#define STACK 65536u
#define STACKS 64
#define DEEP 900
#define DEPTH 1000

uint64_t registry[16] = {MAGIC, 2}; /* in .data, as the library's is */
static ucontext_t home, contexts[STACKS];

static void fill_registry(void)
{
	/* of schedulers, pools, slabs and fibers alike: main tid pools, classes, slots count slabs
	 * size, extra bytes, sp state name entry low top magic sched */
	uint32_t fields[] = {64, 68, 0, 256, 72, 76, 0, 80, 0, 128, 88, 96, 0, 0, 8, 104, 112, 120};
	uint64_t *self =
		mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* every table is the mapping itself: 65,536 schedulers of 256 pools of 65,536 slabs */
	for (size_t i = 0; i < ROOM / 8; i++)
		self[i] = (uint64_t)self;
	for (size_t i = 0; i < ROOM / 128; i++) {
		uint32_t *counts = (uint32_t *)(self + 16 * i + 9);

		counts[0] = 65536; /* slots */
		counts[1] = 65536; /* slabs */
		self[16 * i + 10] = STACK;
		self[16 * i + 11] = (uint64_t)(self + 16);
		self[16 * i + 12] = 3;
		self[16 * i + 13] = (uint64_t)self + ROOM;
		self[16 * i + 14] = MAGIC;
	}
	((uint32_t *)registry)[3] = 65536; /* capacity */
	registry[2] = (uint64_t)self;
	registry[3] = 8;
	memcpy(&registry[4], fields, sizeof(fields));
}

static void fill_contexts(void)
{
	ucontext_t *all = mmap(NULL, LIES * sizeof(*all), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < LIES; i++) {
		ucontext_t *c = &all[i];

		c->uc_mcontext.fpregs = (fpregset_t)&c->__fpregs_mem;
		c->uc_mcontext.gregs[REG_RIP] = (greg_t)fill_contexts;
		c->uc_mcontext.gregs[REG_RSP] = (greg_t)((char *)all + 8 * i);
		c->uc_stack.ss_sp = i % 2 ? (char *)all - i : (char *)(UINTPTR_MAX - i);
		c->uc_stack.ss_size = i % 3 ? SIZE_MAX - i : 1u << 30;
	}
}

static void fill_blocks(void)
{
	uint64_t *all =
		mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < ROOM / 8; i++)
		all[i] = i % 2 ? (uint64_t)fill_blocks + i % 64 : 0x037f00001f80ull;
}

static void fill_threads(void)
{
	char *all = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i + 64 < ROOM / 64; i++) {
		uint64_t *d = (uint64_t *)(all + 64 * i);

		d[0] = d[2] = (uint64_t)d;
		d[3] = (uint64_t)all + (i * 4096) % ROOM;
		d[4] = ROOM;
	}
}

static void waits(void)
{
	swapcontext(&contexts[0], &home);
}

static void *changes(void *arg)
{
	for (uint64_t i = 0;; i++) {
		ucontext_t *c = &contexts[i % STACKS];

		c->uc_mcontext.gregs[REG_RSP] += i / STACKS & 1 ? 4096 : -4096;
		c->uc_mcontext.gregs[REG_RIP] ^= 16;
	}
	return arg;
}

static ucontext_t deep[DEEP];
static unsigned int deepest;

__attribute__((noinline)) static void descend(unsigned int path, unsigned int depth)
{
	if (!depth)
		swapcontext(&deep[deepest], &home);
	else if (path & 1) {
		descend(path >> 1, depth - 1);
		__asm__ volatile("nop");
	} else {
		descend(path >> 1, depth - 1);
		__asm__ volatile("");
	}
}

static void begin_deep(void)
{
	descend(deepest, DEPTH);
}

static void fill_deep(void)
{
	for (deepest = 0; deepest < DEEP; deepest++) {
		ucontext_t *c = &deep[deepest];

		getcontext(c);
		c->uc_stack.ss_size = 2 * STACK;
		c->uc_stack.ss_sp = mmap(NULL, c->uc_stack.ss_size, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		c->uc_link = &home;
		makecontext(c, begin_deep, 0);
		swapcontext(&home, c);
	}
}

static void fill_changes(void)
{
	pthread_t thread;

	for (int i = 0; i < STACKS; i++) {
		char *low = mmap(NULL, STACK + 4096, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		mprotect(low, 4096, PROT_NONE);
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = low + 4096;
		contexts[i].uc_stack.ss_size = STACK;
		contexts[i].uc_link = &home;
		makecontext(&contexts[i], waits, 0);
	}
	pthread_create(&thread, NULL, changes, NULL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fill)(void);
	} kinds[] = {{"registry", fill_registry}, {"contexts", fill_contexts},
		     {"blocks", fill_blocks},	  {"threads", fill_threads},
		     {"changes", fill_changes},	  {"deep", fill_deep}};
	char byte;

	for (size_t i = 0; argc > 1 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(argv[1], kinds[i].name) == 0)
			kinds[i].fill();
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
