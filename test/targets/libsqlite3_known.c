/* As libmariadb_known.c, for a length that is an int; and called from a constructor. */
#include <stddef.h>
#include <string.h>

int sqlite3_prepare_v2(void *db, const char *sql, int length, void **statement, const char **rest);

__attribute__((noinline, noclone, noipa)) int
sqlite3_prepare_v2(void *db, const char *sql, int length, void **statement, const char **rest)
{
	(void)db, (void)statement, (void)rest;
	return (int)strnlen(sql, length < 0 ? (size_t)-1 : (size_t)length);
}

/* A call that only who was there before constructors sees. */
__attribute__((constructor)) static void begin(void)
{
	sqlite3_prepare_v2(NULL, "constructor", -1, NULL, NULL);
}
