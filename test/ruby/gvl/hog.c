/*
 * A C extension that holds the GVL for a time that it measures, and, where Ruby has hooks of its
 * own for that (3.3 and later), counts how long each thread waited for it: an independent truth.
 */
#include <ruby.h>
#include <ruby/thread.h>
#include <ruby/version.h>
#include <stdint.h>
#include <time.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static VALUE hog_hold(VALUE self, VALUE ms)
{
	const uint64_t began = now_ns(), till = began + NUM2ULL(ms) * 1000000u;
	uint64_t now = began;

	while (now < till)
		now = now_ns();
	return ULL2NUM(now - began);
}

static uint64_t spun_ns;

/* One call of many: for so long, by its own clock, which sums them. Of the first and the last look
 * at the clock half each is outside. */
static VALUE hog_spin(VALUE self, VALUE ns)
{
	const uint64_t began = now_ns(), till = began + NUM2ULL(ns);
	uint64_t now = began, looks = 0;

	while (now < till) {
		now = now_ns();
		looks++;
	}
	spun_ns += now - began + (looks ? (now - began) / looks : 0);
	return Qnil;
}

static VALUE hog_spun(VALUE self)
{
	return ULL2NUM(spun_ns);
}

#if RUBY_API_VERSION_CODE >= 30300 /* from then on they say of which thread an event is */
#define HAS_HOOKS

/* By thread, whose wait may be begun by another one, who makes or wakes it. */
static struct row {
	VALUE thread;
	uint64_t ready_ns, waited_ns;
} rows[64];

static struct row *row_of(VALUE thread)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		VALUE none = 0;

		if (rows[i].thread == thread ||
		    __atomic_compare_exchange_n(&rows[i].thread, &none, thread, 0, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST) ||
		    none == thread)
			return &rows[i];
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

	row->waited_ns += row->ready_ns ? now_ns() - row->ready_ns : 0;
	row->ready_ns = 0;
}

static VALUE hog_waited(VALUE self, VALUE thread)
{
	return ULL2NUM(row_of(thread)->waited_ns);
}
#endif

void Init_hog(void)
{
	VALUE hog = rb_define_module("Hog");

#ifdef HAVE_RB_EXT_RACTOR_SAFE
	rb_ext_ractor_safe(true); /* hold alone: what spin sums is of one thread */
#endif

	rb_define_singleton_method(hog, "hold", hog_hold, 1);
	rb_define_singleton_method(hog, "spin", hog_spin, 1);
	rb_define_singleton_method(hog, "spun", hog_spun, 0);
#ifdef HAS_HOOKS
	rb_internal_thread_add_event_hook(on_ready, RUBY_INTERNAL_THREAD_EVENT_READY, NULL);
	rb_internal_thread_add_event_hook(on_resumed, RUBY_INTERNAL_THREAD_EVENT_RESUMED, NULL);
	rb_define_singleton_method(hog, "waited", hog_waited, 1);
#endif
}
