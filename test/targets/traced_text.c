/*
 * Strings as arguments, whole and cut, some of them at the very end of readable memory: each is
 * read as far as its function reads it, and no further.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int mysql_query(void *connection, const char *sql);
int mysql_real_query(void *connection, const char *sql, unsigned long length);
int sqlite3_prepare_v2(void *db, const char *sql, int length, void **statement, const char **rest);

#define PAGE 4096
#define LONG 3000

int main(void)
{
	char *page =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = page + PAGE, text[LONG + 1];
	void *c = (void *)0x1230;

	if (page == MAP_FAILED || mprotect(end, PAGE, PROT_NONE) < 0)
		return 1;
	memset(text, 'x', LONG);
	text[LONG] = 0;
	mysql_real_query(c, "SELECT 1", 8);
	mysql_real_query(c, "SELECT 'secret'", 6);
	mysql_real_query(c, "a\0b\n\"", 5);
	mysql_real_query(c, NULL, 0);
	mysql_real_query(c, "", 0);
	for (size_t n = 1; n < 18; n++) {
		memset(end - n, 'y', n);
		mysql_real_query(c, end - n, n);
		sqlite3_prepare_v2(c, end - n, (int)n, NULL, NULL);
		end[-1] = 0;
		mysql_query(c, end - n);
		sqlite3_prepare_v2(c, end - n, -1, NULL, NULL);
		sqlite3_prepare_v2(c, end - n, 100, NULL, NULL);
	}
	mysql_query(c, NULL);
	mysql_query(c, text);
	mysql_real_query(c, text, LONG);
	text[256] = 0;
	mysql_query(c, text);
	puts("right");
	return 0;
}
