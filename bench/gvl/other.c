/* Other.turns(n): a mutex that is not the GVL's is taken and let go n times by the VM's own
 * functions; the nanoseconds of processor time of one turn. */
#include <ruby.h>
#include <ruby/thread_native.h>
#include <time.h>

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static VALUE turns(VALUE self, VALUE count)
{
	const long n = NUM2LONG(count);
	rb_nativethread_lock_t lock;
	double began;

	rb_native_mutex_initialize(&lock);
	began = cpu_ns();
	for (long i = 0; i < n; i++) {
		rb_native_mutex_lock(&lock);
		rb_native_mutex_unlock(&lock);
	}
	return DBL2NUM((cpu_ns() - began) / (double)n);
}

void Init_other(void)
{
	rb_define_singleton_method(rb_define_module("Other"), "turns", turns, 1);
}
