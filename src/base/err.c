/*
 * The sentence of the last failure, one per thread. See err.h.
 */
#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

static __thread char sentence[1024];

int scry_fail(int err, const char *fmt, ...)
{
	/* The arguments may contain the older sentence, so it is replaced only at the end. */
	char fresh[sizeof(sentence)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(fresh, sizeof(fresh), fmt, ap);
	va_end(ap);
	__builtin_memcpy(sentence, fresh, sizeof(sentence));
	return err;
}

static bool has_no_reader(FILE *out)
{
	struct pollfd p = {.fd = fileno(out)};

	return p.fd >= 0 && poll(&p, 1, 0) > 0 && p.revents & POLLERR;
}

int scry_flush(FILE *out, const char *what)
{
	int err;

	errno = 0;
	if (!fflush(out) && !ferror(out))
		return 0;
	err = errno ? errno : EIO;
	if (has_no_reader(out)) { /* | head -1: there is nothing to complain of */
		scry_error_clear();
		return -EPIPE;
	}
	return scry_fail(-err, "cannot write %s: %s", what, strerror(err));
}

const char *scry_error(void)
{
	return sentence;
}

void scry_error_clear(void)
{
	sentence[0] = '\0';
}
