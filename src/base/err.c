/*
 * The sentence of the last failure, one per thread. See err.h.
 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
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

int scry_flush(FILE *out, const char *what)
{
	errno = 0;
	if (fflush(out) || ferror(out))
		return scry_fail(errno ? -errno : -EIO, "cannot write %s: %s", what,
				 strerror(errno ? errno : EIO));
	return 0;
}

const char *scry_error(void)
{
	return sentence;
}

void scry_error_clear(void)
{
	sentence[0] = '\0';
}
