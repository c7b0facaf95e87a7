/* The least that any tool can cost which sees every object: a raw hook on NEWOBJ and FREEOBJ that
 * only counts. What a profiler does beyond that is its own. Built and loaded by bench/objects.rb.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

static unsigned long long made, freed;

static void count(VALUE data, const rb_trace_arg_t *arg)
{
	/* The first member of the argument is the event (vm_core.h, struct rb_trace_arg_struct). */
	if (*(const rb_event_flag_t *)arg == RUBY_INTERNAL_EVENT_NEWOBJ)
		made++;
	else
		freed++;
}

static void hook(rb_event_flag_t events)
{
	/* A raw hook is called with the event's argument in place of the fields; the type in the
	 * header is that of the ordinary one. */
	rb_add_event_hook2((rb_event_hook_func_t)(void (*)(void))count, events, Qnil,
			   RUBY_EVENT_HOOK_FLAG_SAFE | RUBY_EVENT_HOOK_FLAG_RAW_ARG);
}

static VALUE start(VALUE self)
{
	hook(RUBY_INTERNAL_EVENT_NEWOBJ | RUBY_INTERNAL_EVENT_FREEOBJ);
	return Qnil;
}

/* What a tool pays that samples and needs no ends. */
static VALUE start_births(VALUE self)
{
	hook(RUBY_INTERNAL_EVENT_NEWOBJ);
	return Qnil;
}

static VALUE counts(VALUE self)
{
	return rb_ary_new_from_args(2, ULL2NUM(made), ULL2NUM(freed));
}

void Init_rawhook(void);

void Init_rawhook(void)
{
	VALUE module = rb_define_module("RawHook");

	rb_define_singleton_method(module, "start", start, 0);
	rb_define_singleton_method(module, "start_births", start_births, 0);
	rb_define_singleton_method(module, "counts", counts, 0);
}
