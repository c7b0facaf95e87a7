/* See calling.h. Freestanding. */
#include "agent/agent.h"
#include "agent/syscall.h"

#define FORBID_TICKS \
	(1ull << 31) /* a nap lasts 5 ms; a thread that is away for longer is within the kernel */

static int32_t *inside(void)
{
	return &scry_agent_rows.calling.inside;
}

int scry_calling_is_over(void)
{
	return __atomic_load_n(&scry_agent.forbidden, __ATOMIC_SEQ_CST) ||
	       __atomic_load_n(&scry_agent.control->quiet, __ATOMIC_SEQ_CST);
}

/* We count ourselves in, then look; what forbids says so, then counts: one of us two sees the
 * other. */
int scry_calling_begin(void)
{
	__atomic_fetch_add(inside(), 1, __ATOMIC_SEQ_CST);
	if (likely(!scry_calling_is_over()))
		return 1;
	scry_calling_end();
	return 0;
}

/* In a fork child, made by a signal handler that interrupted us, no thread is counted. */
void scry_calling_end(void)
{
	int32_t have = __atomic_load_n(inside(), __ATOMIC_RELAXED);

	while (have > 0 && !__atomic_compare_exchange_n(inside(), &have, have - 1, 1,
							__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

static uint64_t tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

void scry_calling_forbid(void)
{
	int64_t *guests = &scry_agent.state_page->inflight;
	uint64_t end = tsc() + FORBID_TICKS;

	__atomic_fetch_add(guests, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&scry_agent.forbidden, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&scry_agent.control->filtered, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(inside(), __ATOMIC_SEQ_CST) > 0 && tsc() < end)
		__builtin_ia32_pause();
	__atomic_fetch_sub(guests, 1, __ATOMIC_SEQ_CST);
}

uint32_t scry_calling_pid(void)
{
	uint32_t *pid = &scry_agent_rows.calling.pid;

	if (unlikely(!*pid) && scry_calling_begin()) {
		*pid = (uint32_t)scry_agent_syscall4(SCRY_SYS_GETPID, 0, 0, 0, 0);
		scry_calling_end();
	}
	return *pid;
}

int64_t scry_calling_read(struct scry_agent_pieces to, struct scry_agent_pieces from)
{
	const uint64_t arguments[6] = {scry_calling_pid(), (uint64_t)to.at, to.count,
				       (uint64_t)from.at, from.count};
	int64_t r;

	if (!arguments[0] || !scry_calling_begin())
		return -1;
	r = scry_agent_syscall6(SCRY_SYS_PROCESS_VM_READV, arguments);
	scry_calling_end();
	return r;
}

int64_t scry_calling_nap(uint32_t *word, uint32_t value, int64_t ns)
{
	const int64_t timeout[2] = {0, ns};
	int64_t r;

	if (!scry_calling_begin())
		return -1;
	r = scry_agent_syscall4(SCRY_SYS_FUTEX, (uint64_t)word, SCRY_FUTEX_WAIT, value,
				(uint64_t)timeout);
	scry_calling_end();
	return r;
}
