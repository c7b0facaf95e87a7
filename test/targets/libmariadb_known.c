/* Functions that are called as those of a client library, whose strings may be read. */
#include <stddef.h>
#include <string.h>

int mysql_query(void *connection, const char *sql);
int mysql_real_query(void *connection, const char *sql, unsigned long length);

#define HOOKED __attribute__((noinline, noclone, noipa))

HOOKED int mysql_real_query(void *connection, const char *sql, unsigned long length)
{
	(void)connection;
	return sql && length ? sql[length - 1] : -1;
}

HOOKED int mysql_query(void *connection, const char *sql)
{
	(void)connection;
	return sql ? (int)strlen(sql) : -1;
}
