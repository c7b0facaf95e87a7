/*
 * What finds fibers, tried on this process, which knows what it has: pages and guards, marks, walks
 * from registers that make no sense, threads' stacks. Whole programs: test/cli/fibers.bats.
 */
#include "name/fibers.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/stack.h"

#define PAGES 64u
#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, Linux 6.13 */
#define CONTROL UINT64_C(0x0000037f00001f80)

static struct scry_space space;
static struct scry_mem mem;
static struct scry_maps maps;
static struct scry_pages pages;

static void look_at_self(void)
{
	space = (struct scry_space){.pid = getpid()};
	assert_int_equal(scry_space_maps(&space, &maps), 0);
	assert_int_equal(scry_space_mem(&space, &mem), 0);
	assert_int_equal(scry_pages_open(&pages, &space, &mem), 0);
}

static void done_with_self(void)
{
	scry_pages_close(&pages);
	scry_mem_close(&mem);
	scry_maps_done(&maps);
}

/* Pages with a page that nobody may touch on either side. */
static char *map_pages(void)
{
	char *at =
		mmap(NULL, (PAGES + 2) * SCRY_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(mprotect(at + SCRY_PAGE, PAGES * SCRY_PAGE, PROT_READ | PROT_WRITE), 0);
	madvise(at + SCRY_PAGE, PAGES * SCRY_PAGE, MADV_NOHUGEPAGE);
	return at + SCRY_PAGE;
}

static void pages_are_told(void **state)
{
	char *at = map_pages();
	struct scry_page_run runs[8];
	uint64_t next, start = (uintptr_t)at, end = start + PAGES * SCRY_PAGE;
	bool has_guard = madvise(at + 8 * SCRY_PAGE, 2 * SCRY_PAGE, GUARD_INSTALL) == 0;

	at[3 * SCRY_PAGE] = at[4 * SCRY_PAGE] = at[20 * SCRY_PAGE] = 1;
	assert_int_equal(((volatile char *)at)[30 * SCRY_PAGE], 0); /* read only: no memory */
	look_at_self();
	for (int way = 0; way < 2;
	     way++) { /* by the kernel's scan, where it has one, and without */
		assert_int_equal(scry_pages_runs(&pages, start, end, runs, 8, &next),
				 has_guard ? 3 : 2);
		assert_int_equal(runs[0].start, start + 3 * SCRY_PAGE);
		assert_int_equal(runs[0].end, start + 5 * SCRY_PAGE);
		assert_int_equal(runs[0].flags, SCRY_PAGE_THERE);
		assert_int_equal(next, end);
		if (has_guard) {
			assert_int_equal(runs[1].start, start + 8 * SCRY_PAGE);
			assert_int_equal(runs[1].end, start + 10 * SCRY_PAGE);
			assert_int_equal(runs[1].flags, SCRY_PAGE_GUARD);
		}
		/* no room: it goes on from there */
		assert_int_equal(scry_pages_runs(&pages, start, end, runs, 1, &next), 1);
		assert_true(next > start && next < end);
		if (!pages.has_scan)
			break;
		at[30 * SCRY_PAGE] = 0;
		pages.has_scan = pages.scans_guards = false;
		end = start + 30 * SCRY_PAGE; /* a page of zeros is there by that way */
	}
	done_with_self();
	munmap(at, PAGES * SCRY_PAGE);
}

static bool has(const struct scry_fiber_list *l, uint64_t address)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->at[i] == address)
			return true;
	return false;
}

static void marks_are_found(void **state)
{
	struct scry_fiber_marks marks;
	char *at = map_pages();
	ucontext_t *context = (ucontext_t *)(at + 40 * SCRY_PAGE + 64);
	uint64_t *block = (uint64_t *)(at + 50 * SCRY_PAGE - 32); /* over two pages */
	uint64_t *newer = (uint64_t *)(at + 54 * SCRY_PAGE - 64);
	uint64_t *self = (uint64_t *)(at + 60 * SCRY_PAGE);
	const struct scry_fiber_area *area;

	getcontext(context);
	block[0] = CONTROL;
	block[7] = (uintptr_t)marks_are_found;
	newer[0] = CONTROL;
	newer[8] = (uintptr_t)marks_are_found;
	self[0] = self[2] = (uintptr_t)self;
	look_at_self();
	assert_int_equal(
		scry_fiber_marks_look(
			&(struct scry_fiber_look){.maps = &maps,
						  .mem = &mem,
						  .pages = &pages,
						  .budget = &(struct scry_fiber_budget){0}},
			&marks),
		0);
	assert_true(has(&marks.contexts, (uintptr_t)context));
	assert_true(has(&marks.blocks, (uintptr_t)block));
	assert_true(has(&marks.blocks, (uintptr_t)newer));
	assert_true(has(&marks.selves, (uintptr_t)self));
	area = scry_fiber_area_at(&marks, (uintptr_t)at + 12345);
	assert_non_null(area);
	assert_int_equal(area->low, (uintptr_t)at);
	assert_int_equal(area->top, (uintptr_t)at + PAGES * SCRY_PAGE);
	assert_int_equal(area->guard_bytes, SCRY_PAGE);
	assert_int_equal(area->lowest, (uintptr_t)at + 40 * SCRY_PAGE);
	assert_int_equal(area->highest, (uintptr_t)at + 61 * SCRY_PAGE);
	assert_false(area->is_thread);
	assert_null(scry_fiber_area_at(&marks, (uintptr_t)at - 1));
	assert_int_equal(marks.lost, 0);
	scry_fiber_marks_done(&marks);
	done_with_self();
	munmap(at, PAGES * SCRY_PAGE);
}

static void control_words(void **state)
{
	static const uint64_t yes[] = {
		CONTROL,
		UINT64_C(0xbeef037f00001fa0), /* flags are up; the last two bytes were never written
					       */
		UINT64_C(0x0000027f00001f80), /* double precision */
		UINT64_C(0x00000f7f00007f80), /* other rounding */
		UINT64_C(0x0000037f00009fc0), /* denormals are zeros */
	};
	static const uint64_t no[] = {0,
				      UINT64_MAX,
				      UINT64_C(0x1f80),
				      UINT64_C(0x0000037f00011f80),
				      UINT64_C(0x0000034000001f80),
				      UINT64_C(0x00007f0000001f80)};

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		assert_true(scry_fiber_is_control(yes[i]));
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_false(scry_fiber_is_control(no[i]));
}

/* Registers and stacks of any content give a verdict, and no frame outside of the bounds. */
static void walks_stay_inside(void **state)
{
	static struct scry_fiber_walker walker;
	struct scry_modules *modules;
	struct scry_unwinder *unwinder;
	char *at = map_pages();
	struct scry_fiber_bounds bounds = {(uintptr_t)at, (uintptr_t)at + PAGES * SCRY_PAGE};
	uint64_t *words = (uint64_t *)at;
	unsigned int frames = 0;

	srandom(4711);
	for (size_t i = 0; i < PAGES * SCRY_PAGE / 8; i++)
		words[i] = random() % 3 ? (uintptr_t)at + (uint64_t)random() % (PAGES * SCRY_PAGE)
					: (uintptr_t)walks_stay_inside +
						  (uint64_t)random() % 65536 - 32768;
	look_at_self();
	modules = scry_modules_of(&space);
	assert_non_null(modules);
	assert_int_equal(scry_unwinder_open(modules, &mem, &unwinder), 0);
	scry_fiber_walker_init(&walker, &maps, &mem, unwinder);
	for (int i = 0; i < 20000; i++) {
		struct scry_unwind_state from = {
			.pc = (uintptr_t)walks_stay_inside + (uint64_t)random() % 65536 - 32768,
			.sp = bounds.low + (uint64_t)random() % (PAGES * SCRY_PAGE) / 8 * 8,
			.bp = bounds.low + (uint64_t)random() % (PAGES * SCRY_PAGE),
		};

		scry_fiber_walk(&walker, from, bounds);
		frames += walker.count;
		for (size_t f = 0; f < walker.count; f++)
			assert_true(walker.frames[f].sp >= bounds.low &&
				    walker.frames[f].sp <= bounds.top);
	}
	assert_true(frames > 0);
	scry_fiber_walker_done(&walker);
	scry_unwinder_close(unwinder);
	scry_modules_free(modules);
	done_with_self();
	munmap(at, PAGES * SCRY_PAGE);
}

static pthread_barrier_t barrier;

static void *stands(void *arg)
{
	*(uintptr_t *)arg = (uintptr_t)pthread_self();
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void stacks_of_threads(void **state)
{
	for (int is_bare = 0; is_bare < 2; is_bare++) {
		pthread_attr_t attr;
		pthread_t thread;
		uintptr_t self;
		uint64_t low = 0, top = 0;

		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, 256 * 1024);
		if (is_bare)
			pthread_attr_setguardsize(&attr, 0);
		pthread_barrier_init(&barrier, NULL, 2);
		assert_int_equal(pthread_create(&thread, &attr, stands, &self), 0);
		pthread_barrier_wait(&barrier);
		look_at_self();
		assert_true(scry_stack_of(&mem, &maps, self, &low, &top));
		assert_true(low < self && self < top);
		assert_int_equal(top - low, 256 * 1024);
		done_with_self();
		pthread_barrier_wait(&barrier);
		pthread_join(thread, NULL);
		pthread_barrier_destroy(&barrier);
		pthread_attr_destroy(&attr);
	}
	look_at_self();
	assert_false(scry_stack_of(&mem, &maps, (uintptr_t)pthread_self(), &(uint64_t){0},
				   &(uint64_t){0}));
	done_with_self();
}

/* All of it, on this process: a context of its own is found, with its frames. */
static ucontext_t home, parked;

static void park(void)
{
	swapcontext(&parked, &home);
	__asm__ volatile(""); /* a call, and no jump */
}

static void fibers_of_self(void **state)
{
	struct scry_fibers *f;
	char *at = map_pages();
	uint64_t frames[SCRY_FIBER_FRAMES_MAX];
	size_t count;
	bool is_there = false;

	getcontext(&parked);
	parked.uc_stack.ss_sp = at;
	parked.uc_stack.ss_size = PAGES * SCRY_PAGE;
	parked.uc_link = &home;
	makecontext(&parked, park, 0);
	swapcontext(&home, &parked);
	space = (struct scry_space){.pid = getpid()};
	assert_int_equal(scry_fibers_open(&space, 0, &f), 0);
	assert_int_equal(f->total, 1);
	assert_int_equal(f->sums.found[SCRY_FIBER_UCONTEXT][SCRY_FIBER_SUSPENDED], 1);
	assert_int_equal(f->all[0].low, (uintptr_t)at);
	assert_int_equal(f->all[0].top, (uintptr_t)at + PAGES * SCRY_PAGE);
	assert_int_equal(f->all[0].guard_bytes, SCRY_PAGE);
	assert_true(f->all[0].used_bytes <= 2 * SCRY_PAGE);
	assert_int_equal(f->all[0].used_bytes + f->all[0].left_bytes, PAGES * SCRY_PAGE);
	count = scry_fibers_frames(f, f->groups[0].stack, frames);
	for (size_t i = 0; i < count; i++) /* a sanitizer has a swapcontext of its own above it */
		is_there |= frames[i] > (uintptr_t)park && frames[i] < (uintptr_t)park + 256;
	assert_true(is_there);
	scry_fibers_close(f);
	munmap(at, PAGES * SCRY_PAGE);
}

/* A return address that is another one after the walk; the registers are the same still. */
static void changes_are_seen(void **state)
{
	static struct scry_fiber_walker walker;
	struct scry_modules *modules;
	struct scry_unwinder *unwinder;
	char *at = map_pages();
	struct scry_fiber_bounds bounds = {(uintptr_t)at, (uintptr_t)at + PAGES * SCRY_PAGE};
	const greg_t *regs = parked.uc_mcontext.gregs;
	uint64_t *back;

	getcontext(&parked);
	parked.uc_stack.ss_sp = at;
	parked.uc_stack.ss_size = PAGES * SCRY_PAGE;
	parked.uc_link = &home;
	makecontext(&parked, park, 0);
	swapcontext(&home, &parked);
	look_at_self();
	modules = scry_modules_of(&space);
	assert_non_null(modules);
	assert_int_equal(scry_unwinder_open(modules, &mem, &unwinder), 0);
	scry_fiber_walker_init(&walker, &maps, &mem, unwinder);
	assert_true(scry_fiber_walk(&walker,
				    (struct scry_unwind_state){.pc = (uint64_t)regs[REG_RIP],
							       .sp = (uint64_t)regs[REG_RSP],
							       .bp = (uint64_t)regs[REG_RBP],
							       .bx = (uint64_t)regs[REG_RBX]},
				    bounds) == SCRY_FIBER_ENTRY_UCONTEXT);
	assert_true(walker.walked > 1);
	assert_false(scry_fiber_has_changed(&walker));
	back = (uint64_t *)(walker.frames[walker.walked - 1].sp - 8);
	*back += 1;
	assert_true(scry_fiber_has_changed(&walker));
	*back -= 1;
	assert_false(scry_fiber_has_changed(&walker));
	scry_fiber_walker_done(&walker);
	scry_unwinder_close(unwinder);
	scry_modules_free(modules);
	done_with_self();
	munmap(at, PAGES * SCRY_PAGE);
}

/* Half of the time for the look, and then what is left of it; processor time, which a busy machine
 * does not use up. */
static void time_is_shared(void **state)
{
	struct scry_fiber_budget b = {.most_ns = 40000000}, endless = {0};

	while (scry_fiber_may_look(&b, 100))
		;
	assert_int_equal(b.unsearched_bytes, 100);
	assert_false(scry_fiber_may_look(&b, 11));
	assert_int_equal(b.unsearched_bytes, 111);
	assert_true(scry_fiber_may_judge(&b) && scry_fiber_has_time(&b));
	assert_int_equal(b.unjudged, 0);
	while (scry_fiber_may_judge(&b))
		;
	assert_int_equal(b.unjudged, 1);
	assert_false(scry_fiber_has_time(&b));
	assert_true(scry_fiber_may_look(&endless, 100) && scry_fiber_may_judge(&endless) &&
		    scry_fiber_has_time(&endless));
}

/* What is not looked through to its end is no area, as nobody knows where guards are in it. */
static void a_look_ends_in_time(void **state)
{
	struct scry_fiber_budget b = {.most_ns = 1};
	struct scry_fiber_marks marks;
	const struct scry_fiber_look look = {
		.maps = &maps, .mem = &mem, .pages = &pages, .budget = &b};

	look_at_self();
	assert_int_equal(scry_fiber_marks_look(&look, &marks), 0);
	assert_int_equal(marks.area_count, 0);
	assert_int_equal(marks.read_bytes, 0);
	assert_true(b.unsearched_bytes > SCRY_PAGE);
	scry_fiber_marks_done(&marks);
	done_with_self();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_told),      cmocka_unit_test(marks_are_found),
		cmocka_unit_test(control_words),       cmocka_unit_test(walks_stay_inside),
		cmocka_unit_test(stacks_of_threads),   cmocka_unit_test(fibers_of_self),
		cmocka_unit_test(changes_are_seen),    cmocka_unit_test(time_is_shared),
		cmocka_unit_test(a_look_ends_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
