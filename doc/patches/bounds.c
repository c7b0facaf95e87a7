/*
 * Mends a defect in a library function of a running program: table_get() of libfaulty.so takes the
 * index behind the last one, too (test/targets/libfaulty.c). The server that uses it goes on, with
 * all its connections.
 *
 *     cc -shared -fPIC -O2 -nostartfiles -o bounds.so bounds.c
 *     sudo scry patch apply ./bounds.so -p PID
 *     sudo scry patch list -p PID              # how many calls were refused
 *     sudo scry patch undo bounds -p PID
 */
#include <scry/patch.h>

#define ENTRIES 4

static int mended(unsigned index, int *ret);
SCRY_REPLACE_IN(table_get, "@libfaulty.so", mended)
SCRY_COUNTER(refused)

static int mended(unsigned index, int *ret)
{
	if (index >= ENTRIES) {
		scry_count(refused);
		return -1;
	}
	return SCRY_ORIGINAL(table_get)(index, ret);
}
