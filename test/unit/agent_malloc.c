/* The agent's thread buffers and malloc handlers, run in this process: instead of a hook, the test
 * calls the handler's entry with the original in r11. */
#include "agent/calls.h"
#include "agent/code.h"
#include "agent/lines.h"
#include "agent/malloc.h"
#include "agent/thread_buffer.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TID_AT_GLIBC 720

struct scry_agent_vm scry_agent_vm;   /* in the agent: code.c */
struct scry_shadow scry_agent_shadow; /* in the agent: shadow.c */
int scry_child_buffer_claim(
	struct scry_state_page *g,
	void (*moved)(struct scry_state_page *g)) /* in the agent: child_buffer.c */
{
	(void)moved;
	(void)g;
	return 0;
}

static struct scry_state_page *state_page;
static struct scry_shared_head shared;
static struct scry_control *const control = &shared.control;
static uint64_t *ring;

void *hooked_malloc(size_t size), *hooked_calloc(size_t n, size_t size);
void *hooked_realloc(void *p, size_t size);
void hooked_free(void *p);
__asm__(".text\n"
	".macro hooked name\n"
	".globl hooked_\\name\n"
	"hooked_\\name:\n"
	"	lea original_\\name(%rip), %r11\n"
	"	jmp scry_agent_\\name\n"
	"original_\\name:\n"
	"	jmp *in_\\name(%rip)\n"
	".endm\n"
	"hooked malloc\n"
	"hooked calloc\n"
	"hooked realloc\n"
	"hooked free\n");

/* What the originals do: libc's, or a test's. */
void *(*in_malloc)(size_t), *(*in_calloc)(size_t, size_t), *(*in_realloc)(void *, size_t);
void (*in_free)(void *);

/* What is said of code, in a test that is about its pc and its return address. */
static int code_reads;

int scry_code_read(const struct scry_agent_place *place, struct scry_agent_code *ret, uint8_t *text)
{
	*ret = (struct scry_agent_code){.start = place->pc - 16,
					.size = 8,
					.path_size = 4}; /* it begins two words before pc */
	memcpy(text, "x.rb", 4);
	code_reads++;
	return 1;
}

void scry_code_at(const struct scry_agent_code *code, uint64_t pc, struct scry_ring_def *def)
{
	def->position = (uint32_t)((pc - code->start) / 8);
	def->line_before = 100 + def->position;
	def->path_size = code->path_size;
	def->label_size = 0;
}

static struct scry_thread_buffer *buffer_at(size_t i)
{
	return (struct scry_thread_buffer *)(ring + i * SCRY_THREAD_BUFFER_WORDS);
}

/* The records of all thread buffers, one behind the other: op, address, size as asked for. */
struct seen {
	uint64_t op, address, size, tsc, slack, caller;
	uint32_t tid, serial;
};
static struct seen seen[SCRY_THREAD_BUFFERS * SCRY_THREAD_BUFFER_WORDS / 2];

static size_t see(void)
{
	size_t n = 0;

	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++) {
		const struct scry_thread_buffer *buffer = buffer_at(i);
		const uint64_t *w = (const uint64_t *)(buffer + 1), *end = w + buffer->head;

		assert_true(buffer->head <= SCRY_THREAD_BUFFER_ROOM);
		assert_int_equal(buffer->stamping, 0);
		while (w < end) {
			struct seen *s = &seen[n++];
			bool is_long;

			*s = (struct seen){.op = w[0] & 15,
					   .address = (w[0] >> 4 & ((1ull << 44) - 1)) << 3,
					   .size = w[0] >> 48,
					   .tsc = w[1] & ((1ull << SCRY_MALLOC_TSC_BITS) - 1),
					   .slack = w[1] >> SCRY_MALLOC_TSC_BITS & 0xff,
					   .caller = w[1] >> SCRY_MALLOC_CODE_AT,
					   .tid = buffer->tid,
					   .serial = buffer->serial};
			is_long = s->op < SCRY_MALLOC_OP_TIME && s->size == SCRY_MALLOC_SIZE_LONG;
			if (is_long)
				s->size = w[2] >> 16;
			if (s->op == SCRY_MALLOC_OP_LINE)
				w += scry_malloc_line_words(w[0]);
			else
				w += is_long ? 3 : 2;
			if (s->op == SCRY_MALLOC_OP_CALLER || s->op == SCRY_MALLOC_OP_LINE)
				n--; /* what the tests look at are calls */
		}
		assert_ptr_equal(w, end);
	}
	return n;
}

static int set_up(void **state)
{
	(void)state;
	if (!ring) {
		ring = mmap(NULL, 8 * SCRY_RING_WORDS, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		state_page = mmap(NULL, SCRY_PAGE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		madvise(state_page, 4096, MADV_WIPEONFORK);
	}
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		memset(buffer_at(i), 0, sizeof(struct scry_thread_buffer));
	memset(&scry_agent, 0, sizeof(scry_agent));
	memset(&scry_agent_rows, 0, sizeof(scry_agent_rows));
	memset(&scry_agent_malloc_functions, 0, sizeof(scry_agent_malloc_functions));
	memset(&scry_agent_callers, 0, sizeof(scry_agent_callers));
	memset(&scry_agent_lines, 0, sizeof(scry_agent_lines));
	memset(&scry_agent_walks, 0, sizeof(scry_agent_walks));
	memset(&scry_agent_vm, 0, sizeof(scry_agent_vm));
	memset(&shared, 0, sizeof(shared));
	control->lease_tsc = control->lease_end_tsc = UINT64_MAX;
	*state_page = (struct scry_state_page){.open = 1, .ring = (uint64_t)(uintptr_t)ring};
	scry_agent.state_page = state_page;
	scry_agent.control = control;
	scry_agent.tracking = (struct scry_agent_tracking){
		.tid_offset = TID_AT_GLIBC,
		.channels[SCRY_CHANNEL_CORE] = {.control = control,
						.pool = (struct scry_thread_buffer *)ring,
						.rows = scry_agent_rows.threads,
						.time_op = SCRY_MALLOC_OP_TIME,
						.is_on = 1}};
	scry_agent_malloc_functions = (struct scry_agent_malloc){
		.usable = (uint64_t)(uintptr_t)malloc_usable_size, .is_glibc = 1};
	in_malloc = malloc;
	in_calloc = calloc;
	in_realloc = realloc;
	in_free = free;
	return 0;
}

static uint64_t where(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void each_call(void **state)
{
	void *p, *q, *was;
	size_t n;

	(void)state;
	errno = 77;
	p = hooked_malloc(100);
	q = hooked_calloc(3, 7);
	was = p;
	p = hooked_realloc(p, 100000);
	hooked_free(q);
	hooked_free(p);
	hooked_free(NULL);
	assert_int_equal(errno, 77);
	n = see();
	assert_int_equal(n, 7);
	assert_int_equal(seen[0].op, SCRY_MALLOC_OP_MALLOC);
	assert_int_equal(seen[0].address, where(was));
	assert_int_equal(seen[0].size, 100);
	assert_int_equal(seen[0].slack, 4);
	assert_int_equal(seen[1].op, SCRY_MALLOC_OP_CALLOC);
	assert_int_equal(seen[1].size, 21);
	assert_int_equal(seen[2].op, SCRY_MALLOC_OP_REALLOC_BEGIN);
	assert_int_equal(seen[2].address, where(was));
	assert_int_equal(seen[3].op, SCRY_MALLOC_OP_REALLOC_END);
	assert_int_equal(seen[3].address, where(p));
	assert_int_equal(seen[3].size, 100000);
	assert_int_equal(seen[4].op, SCRY_MALLOC_OP_FREE);
	assert_int_equal(seen[4].address, where(q));
	assert_int_equal(seen[6].address, 0);
	for (size_t i = 1; i < n; i++)
		assert_true(seen[i].tsc >= seen[i - 1].tsc);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(seen[i].tid, syscall(SYS_gettid));
		assert_true(seen[i].caller && seen[i].caller < SCRY_MALLOC_CALLERS);
	}
	assert_true(seen[0].caller != seen[1].caller);
	assert_int_equal(control->lost + control->busy, 0);
}

static void what_failed(void **state)
{
	volatile size_t huge = PTRDIFF_MAX;

	(void)state;
	assert_null(hooked_malloc(huge));
	assert_int_equal(errno, ENOMEM);
	assert_null(hooked_calloc(huge, 16));
	assert_int_equal(see(), 2);
	assert_int_equal(seen[0].address, 0);
	assert_int_equal(seen[0].size, (1ull << 48) - 1);
	assert_int_equal(seen[1].size, (1ull << 48) - 1);
}

/* Allocators call their own functions, which are hooked. */
static void *nesting(size_t size)
{
	void *p = hooked_calloc(1, size);

	hooked_free(hooked_realloc(NULL, 10));
	return p;
}

static void calls_within_are_none(void **state)
{
	(void)state;
	in_malloc = nesting;
	free(hooked_malloc(50));
	assert_int_equal(see(), 1);
	assert_int_equal(seen[0].op, SCRY_MALLOC_OP_MALLOC);
	assert_int_equal(control->busy, 3); /* nobody has said that they are the allocator's */
	control->busy = 0;
	scry_agent_malloc_functions.end = UINT64_MAX;
	free(hooked_malloc(50));
	assert_int_equal(control->busy, 0);
}

static sigjmp_buf out;

static void *jumping(size_t size)
{
	(void)size;
	siglongjmp(out, 1);
}

/* Somebody left the original by longjmp: the thread goes on to record. */
static void left_by_longjmp(void **state)
{
	(void)state;
	in_malloc = jumping;
	if (!sigsetjmp(out, 0))
		hooked_malloc(10);
	in_malloc = malloc;
	hooked_free(hooked_malloc(10));
	assert_int_equal(see(), 2);
}

static void *hundred_calls(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100; i++)
		hooked_free(hooked_malloc(10));
	return NULL;
}

/* A thread with the thread pointer of one that has ended is another one. */
static void threads_come_and_go(void **state)
{
	uint64_t births[64] = {0};
	size_t count = 0;

	(void)state;
	for (int i = 0; i < 20; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, hundred_calls, NULL);
		pthread_join(thread, NULL);
	}
	assert_int_equal(see(), 20 * 200);
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		if (buffer_at(i)->head)
			births[count++] = buffer_at(i)->birth;
	assert_int_equal(count, 20);
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < i; k++)
			assert_true(births[i] != births[k]);
	assert_int_equal(control->lost, 0);
	assert_true(control->head >= 20 * SCRY_THREAD_BUFFER_WORDS);
}

/* The same where the libc's own tid is not known: then the keeper says who has ended. */
static void ended_by_the_keeper(void **state)
{
	(void)state;
	scry_agent.tracking.tid_offset = 0;
	for (int i = 0; i < 10; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, hundred_calls, NULL);
		pthread_join(thread, NULL);
		for (size_t k = 0; k < SCRY_THREAD_BUFFERS; k++)
			if ((buffer_at(k)->state & 3) == SCRY_THREAD_BUFFER_OPEN)
				buffer_at(k)->state ^=
					SCRY_THREAD_BUFFER_OPEN ^ SCRY_THREAD_BUFFER_DEAD;
	}
	assert_int_equal(see(), 10 * 200);
	for (size_t i = 0; i < 10 * 200; i++)
		assert_int_equal(seen[i].serial, 0);
}

static atomic_bool shall_drain;

static void *drain(void *arg)
{
	uint64_t *taken = arg;

	while (shall_drain && !__atomic_load_n(&control->buffer_waiting, __ATOMIC_SEQ_CST))
		usleep(100); /* until somebody waits */
	while (shall_drain) {
		for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++) {
			struct scry_thread_buffer *buffer = buffer_at(i);

			if ((__atomic_load_n(&buffer->state, __ATOMIC_ACQUIRE) & 3) !=
			    SCRY_THREAD_BUFFER_CLOSED)
				continue;
			*taken += buffer->head;
			buffer->head = 0;
			__atomic_store_n(&buffer->state, buffer->state & ~3ull, __ATOMIC_RELEASE);
			__atomic_fetch_add(&control->buffer_freed, 1, __ATOMIC_SEQ_CST);
		}
		usleep(2000);
	}
	return NULL;
}

static void full_pool_is_waited_for(void **state)
{
	const int calls = 2000000;
	uint64_t taken = 0;
	pthread_t keeper;

	(void)state;
	shall_drain = true;
	pthread_create(&keeper, NULL, drain, &taken);
	for (int i = 0; i < calls / 2; i++)
		hooked_free(hooked_malloc(10));
	shall_drain = false;
	pthread_join(keeper, NULL);
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		taken += buffer_at(i)->head;
	assert_int_equal(control->lost, 0);
	assert_true(control->buffer_waits > 0);
	assert_true(taken >= 2ull * calls && taken <= 2ull * calls + 16);
}

/* Who finds room goes on recording; until the lease's end. */
static void nobody_waits_without_a_lease(void **state)
{
	(void)state;
	control->lease_tsc = 1; /* long over */
	hooked_free(hooked_malloc(10));
	assert_int_equal(see(), 2);
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		buffer_at(i)->state = SCRY_THREAD_BUFFER_CLOSED;
	hooked_free(hooked_malloc(10));
	assert_int_equal(control->lost_lease, 2);
	assert_int_equal(control->buffer_waits, 0);
	control->buffer_freed++; /* the keeper comes back, and goes */
	control->lease_tsc = scry_tsc() + 300000000;
	hooked_free(hooked_malloc(10));
	assert_int_equal(control->lost, 4);
	assert_int_equal(control->buffer_waits, 1);
	control->lease_tsc = control->lease_end_tsc = 0; /* and never again */
	for (int i = 0; i < 2000; i++)
		hooked_free(hooked_malloc(10));
	assert_int_equal(scry_agent.tracking.channels[SCRY_CHANNEL_CORE].is_on, 0);
	assert_true(control->lost <= 6);
}

/* No segment will come. */
static void nobody_waits_for_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++) /* all are other threads' */
		buffer_at(i)->state = SCRY_THREAD_BUFFER_OPEN;
	hooked_free(hooked_malloc(10));
	assert_int_equal(control->lost, 2);
	assert_int_equal(control->buffer_waits, 0);
	buffer_at(3)->state = SCRY_THREAD_BUFFER_FREE;
	control->buffer_freed++;
	hooked_free(hooked_malloc(10));
	assert_int_equal(control->lost, 2);
	assert_int_equal(see(), 2);
}

/* The keeper lives and takes nothing: a second, once, and then nobody waits until it does. */
static void a_keeper_that_takes_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		buffer_at(i)->state = SCRY_THREAD_BUFFER_CLOSED;
	for (int i = 0; i < 100; i++)
		hooked_free(hooked_malloc(10));
	assert_int_equal(control->lost, 200);
	assert_int_equal(control->buffer_waits, 1);
	buffer_at(3)->state = SCRY_THREAD_BUFFER_FREE;
	control->buffer_freed++;
	hooked_free(hooked_malloc(10));
	assert_int_equal(control->lost, 200);
	assert_int_equal(see(), 2);
}

static void fork_child(void **state)
{
	pid_t child;
	int status;

	(void)state;
	hooked_free(hooked_malloc(10));
	child = fork();
	if (child == 0) { /* its state page is wiped; here its table is not: it must not be used */
		memset(scry_agent_rows.threads, 0, sizeof(scry_agent_rows.threads));
		for (int i = 0; i < 1000; i++)
			hooked_free(hooked_malloc(10));
		_exit(control->lost + control->busy != 0);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(see(), 2);
}

static void long_pauses(void **state)
{
	size_t i, n;

	(void)state;
	hooked_free(hooked_malloc(10));
	for (i = 0; i < SCRY_THREADS && !scry_agent_rows.threads[i].fs; i++)
		;
	scry_agent_rows.threads[i].epoch_end = 0; /* as if minutes had passed */
	scry_agent_rows.threads[i].repeats = 0;
	hooked_free(hooked_malloc(10));
	n = see();
	assert_int_equal(n, 5);
	assert_int_equal(seen[2].op, SCRY_MALLOC_OP_TIME);
	assert_int_equal(seen[2].tsc, seen[3].tsc);
}

static uint64_t stamp_of_call(void)
{
	size_t n;

	free(hooked_malloc(10));
	n = see();
	return seen[n - 1].tsc;
}

static void *call_once(void *arg)
{
	hooked_free(hooked_malloc(10));
	return arg;
}

/* A stamp is repeated while it is a thread's turn, and no longer. */
static void turns(void **state)
{
	uint64_t first = stamp_of_call(), other, last;
	pthread_t thread;
	size_t n;

	for (int i = 0; i < 15; i++)
		assert_int_equal(stamp_of_call(), first);
	last = stamp_of_call();
	assert_true(last > first);
	control->turn = 0; /* the keeper's */
	first = stamp_of_call();
	assert_true(first > last);
	assert_int_equal(stamp_of_call(), first);

	pthread_create(&thread, NULL, call_once, NULL);
	pthread_join(thread, NULL);
	n = see();
	for (other = 0; n-- > 0;) /* of one call more than this thread has made */
		other = seen[n].size == 10 && seen[n].tsc > other ? seen[n].tsc : other;
	assert_true(other > first);
	assert_true(control->turn != 0);
	call_once(NULL);
	n = see();
	for (last = 0; n-- > 0;)
		last = seen[n].tsc > last ? seen[n].tsc : last;
	assert_true(last > other);

	control->turn = SCRY_TURN_ALL;
	call_once(NULL);
	n = see();
	for (first = 0; n-- > 0;)
		first += seen[n].tsc > last;
	assert_int_equal(first, 2); /* both are later, and not the same */
	assert_int_equal(control->turn, SCRY_TURN_ALL);
}

static struct scry_control *shut; /* a page that may be read */

/* As if it came just behind the exchange. */
static void on_fault(int sig)
{
	mprotect(shut, sizeof(*shut), PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < SCRY_THREADS; i++)
		if (scry_agent_rows.threads[i].inside)
			shut->turn = where(&scry_agent_rows.threads[i]);
	siglongjmp(out, 1);
}

static __attribute__((noinline)) char call_deep(void)
{
	volatile char deep[1024] = {0};

	return hooked_malloc(10) ? deep[0] : 1;
}

/* Left by longjmp when it had the turn, and no stamp yet: the older one is not repeated. */
static void left_in_a_turn(void **state)
{
	uint64_t between;

	shut = mmap(NULL, sizeof(*shut), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	*shut = *control;
	scry_agent.tracking.channels[SCRY_CHANNEL_CORE].control = shut;
	assert_int_equal(stamp_of_call(), stamp_of_call());
	shut->turn = 0;
	between = scry_tsc();
	signal(SIGSEGV, on_fault);
	mprotect(shut, sizeof(*shut), PROT_READ);
	if (!sigsetjmp(out, 1))
		call_deep();
	signal(SIGSEGV, SIG_DFL);
	assert_true(shut->turn != 0);
	assert_in_range((stamp_of_call() - between) & ((1ull << SCRY_MALLOC_TSC_BITS) - 1), 0,
			1ull << (SCRY_MALLOC_TSC_BITS - 1));
}

static volatile sig_atomic_t interrupted;

static void on_alarm(int sig)
{
	(void)sig;
	hooked_free(hooked_malloc(20));
	interrupted++;
}

static void *no_memory_is_touched(size_t size)
{
	static char block[64] __attribute__((aligned(16)));

	(void)size;
	return block + 16;
}

static void nothing(void *p)
{
	(void)p;
}

/* A handler that allocates interrupts us anywhere: all records stay whole. */
static void signals(void **state)
{
	uint64_t recorded = 0, calls = 0;

	(void)state;
	in_malloc = no_memory_is_touched;
	in_free = nothing;
	scry_agent_malloc_functions.is_glibc = 0;
	scry_agent_malloc_functions.usable = 0;
	interrupted = 0;
	signal(SIGALRM, on_alarm);
	ualarm(500, 500);
	while (interrupted < 300) {
		if (calls % 100 == 0) { /* before its buffer is full: nobody else empties it */
			recorded += see();
			for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
				buffer_at(i)->head = 0;
		}
		hooked_free(hooked_malloc(10));
		calls++;
	}
	ualarm(0, 0);
	recorded += see();
	assert_true(recorded + control->busy >= 2 * calls);
	assert_int_equal(control->lost, 0);
}

/* A Ruby of two frames: a C function's, called from code at `pc`. */
static struct frame {
	uint64_t pc, iseq;
} frames[4];
static struct {
	struct frame *cfp, *stack;
	uint64_t words;
} ec;
static __thread void *current_ec;

static void be_ruby(uint64_t pc)
{
	uint64_t fs;

	__asm__("mov %%fs:0, %0" : "=r"(fs));
	scry_agent_vm.hooks.tls_offset = (int64_t)(where(&current_ec) - fs);
	scry_agent.line_plan.on = 1;
	scry_agent.line_plan.frames = (struct scry_agent_frames){
		.frame_iseq = 8, .frame_size = 16, .ec_stack = 8, .ec_stack_size = 16};
	current_ec = &ec;
	ec.stack = frames;
	ec.cfp = &frames[1];
	ec.words = sizeof(frames) / 8;
	frames[2].pc = pc;
	frames[2].iseq = 0x1000;
}

/* The caller's code of a call from here. */
static __attribute__((noinline)) uint64_t code_of_call(void)
{
	size_t n;

	free(hooked_malloc(10));
	n = see();
	return seen[n - 1].caller;
}

static void lines_of_a_vm(void **state)
{
	uint64_t *code = hooked_malloc(64), pc = where(code + 2), first, native;

	(void)state;
	native = code_of_call();
	assert_true(native < SCRY_MALLOC_CALLERS);
	be_ruby(pc);
	first = code_of_call();
	assert_true(first >= SCRY_MALLOC_LINES);
	assert_int_equal(code_of_call(), first);
	be_ruby(0x20000);
	assert_int_equal(code_of_call(), first + 1);
	be_ruby(pc);
	assert_int_equal(code_of_call(), first);
	frames[1].pc = pc; /* its own frame is the newest: another line, perhaps */
	assert_int_equal(code_of_call(), first + 2);
	frames[1].pc = 0;
	hooked_free(code); /* others are at that pc from now on */
	assert_int_equal(code_of_call(), first + 3);
	be_ruby(0x20000);
	assert_int_equal(code_of_call(), first + 1);
	assert_int_equal(scry_account_of(control)->lines.full, 0);
}

static void lines_that_are_not(void **state)
{
	uint64_t native = code_of_call(), line;

	(void)state;
	be_ruby(0x20000);
	line = code_of_call();
	assert_true(line >= SCRY_MALLOC_LINES);
	ec.cfp = &frames[4];
	assert_int_equal(code_of_call(), native);
	ec.cfp = NULL;
	assert_int_equal(code_of_call(), native);
	be_ruby(0);
	assert_int_equal(code_of_call(), native);
	be_ruby(0x20000);
	current_ec = NULL;
	assert_int_equal(code_of_call(), native);
	be_ruby(0x20000);
	scry_agent.line_plan.depth = UINT64_MAX;
	assert_int_equal(code_of_call(), native);
	scry_agent.line_plan.depth = 0;
	assert_int_equal(code_of_call(), line);
	scry_lines_over();
	assert_int_equal(code_of_call(), native);
}

/* What the newest LINE record says of its code. */
static uint32_t told_line(void)
{
	uint32_t line = 0;

	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++) {
		const uint64_t *w = (const uint64_t *)(buffer_at(i) + 1),
			       *end = w + buffer_at(i)->head;

		while (w < end) {
			const struct scry_line_text *told =
				(const void *)(w + SCRY_MALLOC_LINE_HEAD);

			if ((w[0] & 15) != SCRY_MALLOC_OP_LINE) {
				w += (w[0] & 15) < SCRY_MALLOC_OP_TIME &&
						     w[0] >> 48 == SCRY_MALLOC_SIZE_LONG
					     ? 3
					     : 2;
				continue;
			}
			assert_int_equal(told->def.path_size, 4);
			assert_memory_equal(told->text, "x.rb", 4);
			line = told->def.line_before;
			w += scry_malloc_line_words(w[0]);
		}
	}
	return line;
}

/* Code is read once for all of its lines, and anew when other code lies in its place. */
static void lines_of_known_code(void **state)
{
	uint64_t *code = hooked_malloc(64), pc = where(code + 2);
	int reads;

	(void)state;
	be_ruby(pc);
	code_of_call();
	reads = code_reads;
	assert_int_equal(told_line(), 102);
	be_ruby(pc + 8);
	code_of_call();
	assert_int_equal(told_line(), 103);
	be_ruby(pc | SCRY_MALLOC_LINE_TOP);
	code_of_call();
	be_ruby(pc + 24);
	code_of_call();
	assert_int_equal(told_line(), 105);
	assert_int_equal(code_reads, reads);
	hooked_free(code);
	be_ruby(pc + 8); /* of the same iseq, as if that were another one by now */
	code_of_call();
	assert_int_equal(code_reads, reads + 1);
	assert_int_equal(told_line(), 102);
}

/* More lines than there are codes: native code stands for the rest. */
static void lines_without_end(void **state)
{
	uint64_t native = code_of_call();

	(void)state;
	scry_agent_lines.count = SCRY_LINES - 1;
	be_ruby(0x20000);
	assert_int_equal(code_of_call(), SCRY_MALLOC_CODES - 1);
	be_ruby(0x30000);
	assert_int_equal(code_of_call(), native);
	assert_int_equal(scry_account_of(control)->lines.full, 1);
	be_ruby(0x20000);
	assert_int_equal(code_of_call(), SCRY_MALLOC_CODES - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_call, set_up),
		cmocka_unit_test_setup(what_failed, set_up),
		cmocka_unit_test_setup(calls_within_are_none, set_up),
		cmocka_unit_test_setup(left_by_longjmp, set_up),
		cmocka_unit_test_setup(threads_come_and_go, set_up),
		cmocka_unit_test_setup(ended_by_the_keeper, set_up),
		cmocka_unit_test_setup(full_pool_is_waited_for, set_up),
		cmocka_unit_test_setup(nobody_waits_without_a_lease, set_up),
		cmocka_unit_test_setup(nobody_waits_for_nothing, set_up),
		cmocka_unit_test_setup(a_keeper_that_takes_nothing, set_up),
		cmocka_unit_test_setup(fork_child, set_up),
		cmocka_unit_test_setup(long_pauses, set_up),
		cmocka_unit_test_setup(turns, set_up),
		cmocka_unit_test_setup(left_in_a_turn, set_up),
		cmocka_unit_test_setup(signals, set_up),
		cmocka_unit_test_setup(lines_of_a_vm, set_up),
		cmocka_unit_test_setup(lines_that_are_not, set_up),
		cmocka_unit_test_setup(lines_of_known_code, set_up),
		cmocka_unit_test_setup(lines_without_end, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
