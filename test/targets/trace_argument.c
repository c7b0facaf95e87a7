/*
 * The small functions by which a Ruby says what an event's argument holds, in the ways that a VM
 * may be built: -DMOVED has another order of the struct, -DSILENT a binding that tells nothing.
 */
#include <stdint.h>
#include <stdlib.h>

struct argument {
#ifdef MOVED
	uint64_t data;
	uint32_t event;
	uint64_t self;
	void *cfp;
	uint64_t id, called_id, klass;
	void *ec;
#else
	uint32_t event;
	void *ec, *cfp;
	uint64_t self, id, called_id, klass, data;
#endif
};

uint32_t rb_tracearg_event_flag(struct argument *arg);
uint64_t rb_tracearg_object(struct argument *arg);
uint64_t rb_tracearg_binding(struct argument *arg);
uint64_t make_binding(void *ec, void *cfp);

__attribute__((noinline)) uint64_t make_binding(void *ec, void *cfp)
{
	return (uint64_t)ec * 3 + (uint64_t)cfp;
}

uint32_t rb_tracearg_event_flag(struct argument *arg)
{
	return arg->event;
}

uint64_t rb_tracearg_object(struct argument *arg)
{
	if (!(arg->event & 0x300000))
		abort();
	if (arg->data == 0x24)
		abort();
	return arg->data;
}

uint64_t rb_tracearg_binding(struct argument *arg)
{
#ifdef SILENT
	return arg->self;
#else
	if ((arg->event & 0x60) != 0)
		return 4;
	return make_binding(arg->ec, arg->cfp);
#endif
}
