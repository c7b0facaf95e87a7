/*
 * Shows what C code of a running Ruby raises, and at which line of Ruby: rb_raise() takes any
 * number of arguments and does not return, so it cannot be replaced by a function, but seen before
 * each call.
 *
 *     cc -shared -fPIC -O2 -nostartfiles -o raise.so raise.c
 *     sudo scry patch apply ./raise.so -p PID
 *     sudo scry patch read raise -p PID        # a line for each, until ^C
 *     sudo scry patch undo raise -p PID
 *
 * Only functions that Ruby exports are called, in a thread that has the VM's lock, as rb_raise's
 * callers have. None of them allocates.
 */
#include <scry/patch.h>

extern const char *rb_class2name(unsigned long klass);
extern const char *rb_sourcefile(void);
extern int rb_sourceline(void);

static void seen(struct scry_patch_call *call);
SCRY_BEFORE(rb_raise, seen)
SCRY_LOG(raised)

struct text {
	char bytes[240];
	size_t size;
};

static void add(struct text *t, const char *text)
{
	for (; text && *text && t->size < sizeof(t->bytes); text++)
		t->bytes[t->size++] = *text;
}

static void add_number(struct text *t, int n)
{
	char digits[12];
	int at = sizeof(digits) - 1;

	digits[at] = '\0';
	do
		digits[--at] = (char)('0' + n % 10);
	while ((n /= 10) > 0 && at);
	add(t, digits + at);
}

static void seen(struct scry_patch_call *call)
{
	struct text t = {.size = 0};

	add(&t, rb_class2name(call->arguments[0]));
	add(&t, " at ");
	add(&t, rb_sourcefile());
	add(&t, ":");
	add_number(&t, rb_sourceline());
	scry_log_write(&raised, t.bytes, t.size);
}
