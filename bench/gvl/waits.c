/*
 * How long each thread's wait for the lock was, by the VM's own events (READY to RESUMED): what
 * waits.rb holds scry's numbers against.
 */
#include <ruby.h>
#include <ruby/thread.h>
#include <stdint.h>
#include <time.h>

#define ROWS 4096

static struct row {
	VALUE thread;
	uint64_t ready_ns, waited_ns;
} rows[ROWS];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct row *row_of(VALUE thread)
{
	for (size_t i = 0, at = thread / 8 % ROWS; i < ROWS; i++, at = (at + 1) % ROWS) {
		VALUE none = 0;

		if (rows[at].thread == thread ||
		    __atomic_compare_exchange_n(&rows[at].thread, &none, thread, 0,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
		    none == thread)
			return &rows[at];
	}
	rb_bug("too many threads");
}

static void on_ready(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *arg)
{
	row_of(data->thread)->ready_ns = now_ns();
}

static void on_resumed(rb_event_flag_t event, const rb_internal_thread_event_data_t *data,
		       void *arg)
{
	struct row *row = row_of(data->thread);

	row->waited_ns = row->ready_ns ? now_ns() - row->ready_ns : 0;
	row->ready_ns = 0;
}

/* The newest wait of this thread that is over. */
static VALUE waits_last(VALUE self)
{
	return ULL2NUM(row_of(rb_thread_current())->waited_ns);
}

void Init_waits(void)
{
	VALUE waits = rb_define_module("Waits");

	rb_define_singleton_method(waits, "last", waits_last, 0);
	rb_internal_thread_add_event_hook(on_ready, RUBY_INTERNAL_THREAD_EVENT_READY, NULL);
	rb_internal_thread_add_event_hook(on_resumed, RUBY_INTERNAL_THREAD_EVENT_RESUMED, NULL);
}
