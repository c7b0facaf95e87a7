/*
 * What a fault was: the overflow of a stack of ours, or another handler's business. It is an
 * overflow when the address lies in the guard of a stack, the stack pointer within that stack or
 * its guard, and the one not far below the other; the signal's code is not asked, as it differs
 * with the kind of guard. A report is written without locks or memory of the program: the trick is
 * in mapped_file.c, which maps the file of the code and reads its symbols and unwind tables at that
 * moment.
 *
 * It must not change what becomes of other faults: they go to the handler that was there before, on
 * the signal stack that was.
 */
#include "fiber/stack.h"
#include "fiber/mapped_file.h"
#include "fiber/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define SIGNAL_STACK (64u << 10)
#define REPORT_STACK (64u << 10)
#define REACH (65536 + 32 * 8)
#define FRAMES 12 /* lines of them */
#define STEPS 100 /* of the walk, as a recursion is one line */

struct hit {
	struct scry_stack_pool *pool;
	struct scry_stack_slot *slot;
	uint32_t id;
	char *guard; /* low end of it */
};

/* What the report is made of. */
struct fault {
	struct hit hit;
	siginfo_t *info;
	ucontext_t *context;
	struct scry_stack_overflow overflow;
	struct scry_report report;
	char function[160];
	int answer; /* of the callback */
};

static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction before[2];
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool is_passing; /* a fault is passed on to the handler that was there before */
static __thread void *own_signal_stack;
static __thread unsigned
	watches; /* by the program and by a scheduler: the last one's end frees it */
static char report_stack[REPORT_STACK] __attribute__((aligned(64)));
static atomic_flag report_busy = ATOMIC_FLAG_INIT;

void scry_stack_call_on(void *top, void (*function)(void *), void *argument);

/* The stack whose guard has the address. */
static bool find_guard(uintptr_t address, struct hit *ret_hit)
{
	for (uint32_t p = 0; p < SCRY_POOLS; p++) {
		struct scry_stack_pool *pool = scry_stack_pools(p);

		if (pool == NULL)
			break;
		for (uint32_t i = 0; atomic_load(&pool->is_live) && i < pool->slab_count; i++) {
			struct scry_stack_slab *slab = atomic_load(&pool->slabs[i]);
			uintptr_t first = (uintptr_t)slab + pool->head;
			uint32_t slot;

			if (slab == NULL || address < first ||
			    address - first >= pool->slab_slots * pool->stride)
				continue;
			slot = (address - first) / pool->stride;
			if (address - first - slot * pool->stride >= pool->guard)
				return false;
			*ret_hit =
				(struct hit){pool, &slab->slots[slot], i * pool->slab_slots + slot,
					     scry_slot_guard(pool, slab, slot)};
			return true;
		}
	}
	return false;
}

static void write_value(struct scry_report *report, const char *what, uint64_t value, unsigned base)
{
	scry_report_text(report, what);
	scry_report_number(report, value, base);
}

/* "function+0x12 in module", or what is known of it. */
static void write_place(struct scry_report *report, const struct scry_mapped_file *image,
			uintptr_t ip)
{
	uintptr_t offset;
	const char *function = scry_mapped_file_function(image, ip, &offset);

	if (function != NULL) {
		scry_report_text(report, function);
		write_value(report, "+", offset, 16);
		scry_report_text(report, " in ");
		scry_report_text(report, scry_mapped_file_name(image));
	} else {
		scry_report_text(report, scry_mapped_file_name(image));
		write_value(report, "+", ip - image->low + image->file_offset, 16);
		scry_report_text(report, ", a function without a symbol");
	}
}

static void take_registers(const ucontext_t *context, struct scry_registers *ret_registers)
{
	/* DWARF numbers 0 to 16: psABI figure 3.36 */
	static const int order[17] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
				      REG_RBP, REG_RSP, REG_R8,	 REG_R9,  REG_R10, REG_R11,
				      REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};

	for (int i = 0; i < 17; i++)
		ret_registers->value[i] = context->uc_mcontext.gregs[order[i]];
}

/* One frame and its size; the registers become the caller's. 0: the walk goes on. */
static int write_frame(struct fault *fault, struct scry_registers *registers, bool is_first)
{
	struct scry_report *report = &fault->report;
	uintptr_t low = (uintptr_t)fault->hit.guard, high = low + fault->hit.pool->stride;
	uint64_t sp = registers->value[7], cfa = 0;
	size_t begin, size;
	struct scry_mapped_file image;
	int error;

	/* a return address may lie behind the last instruction of a function: one less lies in the
	 * call */
	registers->value[16] -= !is_first;
	error = scry_mapped_file_open(registers->value[16], &image);
	scry_report_text(report, is_first ? "  in " : "  called by ");
	if (error != 0) {
		write_value(report, "no code, at ", registers->value[16], 16);
		scry_report_text(report, "\n");
		return error;
	}
	begin = report->size;
	write_place(report, &image, registers->value[16]);
	size = report->size - begin;
	error = scry_mapped_file_caller(&image, registers, low + fault->hit.pool->guard, high,
					&cfa);
	scry_mapped_file_close(&image);
	if (is_first) {
		size = size < sizeof(fault->function) - 1 ? size : sizeof(fault->function) - 1;
		memcpy(fault->function, report->text + begin, size);
		fault->overflow.frame_bytes = cfa == 0 ? 0 : cfa - sp;
	}
	if (cfa != 0) {
		write_value(report, ", frame ", cfa - sp, 10);
		scry_report_text(report, " bytes");
	} else {
		scry_report_text(report, error == -ENODATA
						 ? ", size of its frame unknown: its file "
						   "has no unwind table for it"
						 : ", size of its frame unknown");
	}
	scry_report_text(report, "\n");
	return error;
}

/* The innermost frames; one that calls itself from the same place is one line. */
static void write_frames(struct fault *fault)
{
	struct scry_report *report = &fault->report;
	struct scry_registers registers;
	uint64_t ip = 0;
	int lines = 0, times = 0;

	take_registers(fault->context, &registers);
	for (int i = 0; i < STEPS && lines < FRAMES; i++) {
		size_t size = report->size;

		if (registers.value[16] == ip) {
			times++;
		} else {
			if (times > 0) {
				write_value(report, "  and so ", times, 10);
				scry_report_text(report, " times more\n");
				size = report->size;
			}
			times = 0;
			lines++;
		}
		ip = registers.value[16];
		if (write_frame(fault, &registers, i == 0) != 0)
			return;
		if (times > 0)
			report->size = size;
	}
	if (times > 0)
		write_value(report, "  and so, at least, ", times, 10);
	scry_report_text(report, times > 0 ? " times more\n" : "  called by more\n");
}

static void write_registers(struct fault *fault)
{
	static const char names[17][5] = {" rax ", " rdx ", " rcx ", " rbx ", " rsi ", " rdi ",
					  " rbp ", " rsp ", " r8 ",  " r9 ",  " r10 ", " r11 ",
					  " r12 ", " r13 ", " r14 ", " r15 ", " rip "};
	struct scry_registers registers;

	take_registers(fault->context, &registers);
	scry_report_text(&fault->report, "  registers:");
	for (int i = 0; i < 17; i++) {
		char name[6] = "";

		memcpy(name, names[i], 5);
		write_value(&fault->report, name, registers.value[i], 16);
	}
	scry_report_text(&fault->report, "\n");
}

static void write_entry(struct scry_report *report, uintptr_t entry)
{
	struct scry_mapped_file image;

	if (entry == 0 || scry_mapped_file_open(entry, &image) != 0)
		return;
	scry_report_text(report, "  its entry function: ");
	write_place(report, &image, entry);
	scry_report_text(report, "\n");
	scry_mapped_file_close(&image);
}

static void write_all(void *argument)
{
	struct fault *fault = argument;
	struct scry_stack_overflow *overflow = &fault->overflow;
	struct scry_report *report = &fault->report;
	const struct scry_stack_attr *attr = &fault->hit.pool->attr;

	scry_report_text(report, "scry_stack: overflow of ");
	scry_report_text(report, overflow->name != NULL ? overflow->name : "stack");
	write_value(report, overflow->name != NULL ? ", stack " : " ", overflow->id, 10);
	write_value(report, ": ", overflow->size_bytes, 10);
	scry_report_text(report, " bytes, all of them used\n");
	write_frames(fault);
	write_value(report, "  the guard was hit at ", overflow->address, 16);
	write_value(report, ", stack from ", (uintptr_t)fault->hit.guard + fault->hit.pool->guard,
		    16);
	write_value(report, " to ", overflow->top, 16);
	scry_report_text(report, "\n");
	write_entry(report, (uintptr_t)overflow->entry);
	write_registers(fault);
	write_value(report, "  to mend it: SCRY_STACK_SIZE=", 2 * overflow->size_bytes >> 10, 10);
	scry_report_text(report, "K in the environment, or size_bytes\n");
	overflow->function = fault->function;
	if (attr->report_fd >= 0) {
		ssize_t written = write(attr->report_fd, report->text, report->size);

		(void)written; /* there is nowhere else to say it */
	}
	if (attr->on_overflow != NULL)
		fault->answer = attr->on_overflow(overflow, attr->arg);
}

/* Returns whether the program goes on elsewhere. */
static bool report(const struct hit *hit, siginfo_t *info, ucontext_t *context)
{
	static struct fault fault; /* one at a time */
	struct scry_stack_overflow *overflow = &fault.overflow;
	bool goes_on;
	int cancelled;

	/* what it calls would end a thread that is cancelled, out of here */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
	while (atomic_flag_test_and_set(&report_busy))
		__builtin_ia32_pause();
	memset(&fault, 0, sizeof(fault));
	fault.hit = *hit;
	fault.info = info;
	fault.context = context;
	overflow->signal = info->si_signo;
	overflow->name = hit->slot->name;
	overflow->entry = hit->slot->entry;
	overflow->id = hit->id;
	overflow->size_bytes = hit->pool->size;
	overflow->address = (uintptr_t)info->si_addr;
	overflow->ip = context->uc_mcontext.gregs[REG_RIP];
	overflow->sp = context->uc_mcontext.gregs[REG_RSP];
	overflow->top = (uintptr_t)hit->guard + hit->pool->stride -
			hit->id % SCRY_COLOURS * SCRY_COLOUR_BYTES;
	scry_stack_call_on(report_stack + sizeof(report_stack), write_all, &fault);
	goes_on = fault.answer != 0 && overflow->resume_ip != 0;
	if (goes_on) {
		context->uc_mcontext.gregs[REG_RIP] = overflow->resume_ip;
		context->uc_mcontext.gregs[REG_RSP] = overflow->resume_sp;
		context->uc_mcontext.gregs[REG_RDI] = overflow->resume_argument;
		context->uc_mcontext.gregs[REG_RBP] = 0;
		context->uc_mcontext.gregs[REG_EFL] &= ~0x400; /* the direction flag: psABI 3.2.1 */
	}
	atomic_flag_clear(&report_busy);
	pthread_setcancelstate(cancelled, NULL);
	return goes_on;
}

/*
 * As if this handler were not there. One that passes on to this handler, as it was there before,
 * does not know either (is_back); it may also have jumped out of it some time ago, and then it is
 * the kernel that comes again.
 */
static void pass_on(int signal, siginfo_t *info, ucontext_t *context, bool is_back)
{
	struct sigaction *const kept = &before[signal == SIGBUS];
	const struct sigaction is = *kept, *const old = &is;

	if (!is_back && ((old->sa_flags & SA_SIGINFO) != 0 ||
			 (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN))) {
		sigset_t mask, was;

		if (old->sa_flags & SA_RESETHAND) { /* once, as the kernel would call it */
			kept->sa_handler = SIG_DFL;
			kept->sa_flags = 0;
		}
		/* all are blocked here: what its own handler would have had */
		sigorset(&mask, &context->uc_sigmask, &old->sa_mask);
		if (!(old->sa_flags & SA_NODEFER))
			sigaddset(&mask, signal);
		is_passing = true;
		pthread_sigmask(SIG_SETMASK, &mask, &was);
		if (old->sa_flags & SA_SIGINFO)
			old->sa_sigaction(signal, info, context);
		else
			old->sa_handler(signal);
		pthread_sigmask(SIG_SETMASK, &was, NULL);
		is_passing = false;
		return;
	}
	is_passing = false;
	/* a fault cannot be ignored, as its instruction would run again; one that was sent can */
	if (old->sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	/* nor is there an instruction that runs again where a signal's frame did not fit */
	if (info->si_code <= 0 || info->si_code == SI_KERNEL)
		syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), signal, info);
}

/*
 * A stack that grows moves its pointer first. The furthest below it that one instruction reaches
 * (enter) is what the kernel allowed stacks of its own, too. What goes on in a guard ran nowhere.
 */
static bool is_overflow(const siginfo_t *info, const ucontext_t *context, struct hit *ret_hit)
{
	uintptr_t sp = context->uc_mcontext.gregs[REG_RSP], address = (uintptr_t)info->si_addr;

	return info->si_code > 0 && find_guard(address, ret_hit) &&
	       sp >= (uintptr_t)ret_hit->guard &&
	       sp <= (uintptr_t)ret_hit->guard + ret_hit->pool->stride && sp <= address + REACH &&
	       (uintptr_t)context->uc_mcontext.gregs[REG_RIP] != address;
}

static void on_fault(int signal, siginfo_t *info, void *argument)
{
	ucontext_t *context = argument;
	/* the kernel puts the context right above the return address (asm/sigframe.h) */
	bool is_from_kernel = __builtin_dwarf_cfa() == argument;
	int error = errno;
	struct hit hit;

	if (is_overflow(info, context, &hit)) {
		if (!report(&hit, info, context))
			sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	} else {
		pass_on(signal, info, context, is_passing && !is_from_kernel);
	}
	errno = error;
}

/* In front of whatever handler there is now. */
static int install(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK},
			 now;
	int error = 0;

	/* a report takes its time, on a stack that the kernel would give to another handler */
	sigfillset(&action.sa_mask);
	pthread_mutex_lock(&install_lock);
	for (int i = 0; i < 2 && error == 0; i++) {
		if (sigaction(signals[i], NULL, &now) != 0)
			error = -errno;
		else if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault)
			continue;
		before[i] = now;
		if (sigaction(signals[i], &action, NULL) != 0)
			error = -errno;
	}
	pthread_mutex_unlock(&install_lock);
	return error;
}

void scry_overflow_before_fork(void)
{
	pthread_mutex_lock(&install_lock);
}

void scry_overflow_after_fork(bool is_child)
{
	if (is_child) {
		pthread_mutex_init(&install_lock, NULL);
		atomic_flag_clear(&report_busy); /* the one that reported is not in it */
	} else {
		pthread_mutex_unlock(&install_lock);
	}
}

int scry_stack_watch(void)
{
	stack_t had, mine = {.ss_size = SIGNAL_STACK};
	char *memory;
	int error;

	scry_stack_handle_fork();
	error = install();
	if (error != 0)
		return error;
	if (sigaltstack(NULL, &had) != 0)
		return -errno;
	if ((had.ss_flags & SS_DISABLE) == 0) {
		watches += own_signal_stack != NULL;
		return 0;
	}
	if (own_signal_stack != NULL) /* the program took it away */
		munmap(own_signal_stack, SIGNAL_STACK + 4096);
	own_signal_stack = NULL;
	/* with a page below it that ends what grows out of it */
	memory = mmap(NULL, SIGNAL_STACK + 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	mine.ss_sp = memory + 4096;
	if (mprotect(memory, 4096, PROT_NONE) != 0 || sigaltstack(&mine, NULL) != 0) {
		error = -errno;
		munmap(memory, SIGNAL_STACK + 4096);
		return error;
	}
	own_signal_stack = memory;
	watches++;
	return 0;
}

void scry_stack_unwatch(void)
{
	stack_t had, none = {.ss_flags = SS_DISABLE};

	watches -= watches > 0;
	if (own_signal_stack == NULL || watches > 0)
		return;
	if (sigaltstack(NULL, &had) == 0 && had.ss_sp == (char *)own_signal_stack + 4096)
		sigaltstack(&none, NULL);
	munmap(own_signal_stack, SIGNAL_STACK + 4096);
	own_signal_stack = NULL;
}
