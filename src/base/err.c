/*
 * The sentence of the last failure, one per thread. See err.h.
 */
#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

int scry_no_memory(const char *fmt, ...)
{
	char what[sizeof(sentence)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return scry_fail(-ENOMEM, "not enough memory for %s", what);
}

static bool has_no_reader(FILE *out)
{
	struct pollfd p = {.fd = fileno(out)};

	return p.fd >= 0 && poll(&p, 1, 0) > 0 && p.revents & POLLERR;
}

/* Why a write failed that stdio made when it was full, and has not reported: it is tried again,
 * with a byte for a file that is not kept. */
static int reason_of(FILE *out)
{
	struct stat st;
	int fd = fileno(out);

	if (fd < 0 || fstat(fd, &st) || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)) ||
	    write(fd, "\n", 1) == 1)
		return EIO;
	return errno;
}

int scry_flush(FILE *out, const char *what)
{
	int err;

	errno = 0;
	if (!fflush(out) && !ferror(out))
		return 0;
	err = errno;
	if (has_no_reader(out)) { /* | head -1: there is nothing to complain of */
		scry_error_clear();
		return -EPIPE;
	}
	err = err ? err : reason_of(out);
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
