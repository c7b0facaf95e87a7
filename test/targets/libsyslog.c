/*
 * Preloaded to scry: what it sends to the system log is written to $SYSLOG_FILE, one line each.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void syslog(int priority, const char *format, ...);
void __syslog_chk(int priority, int flag, const char *format, ...);

static void write_line(const char *format, va_list arguments)
{
	const char *path = getenv("SYSLOG_FILE");
	FILE *f = path ? fopen(path, "a") : NULL;

	if (!f)
		return;
	vfprintf(f, format, arguments);
	fputc('\n', f);
	fclose(f);
}

void syslog(int priority, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
}

void __syslog_chk(int priority, int flag, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
}
