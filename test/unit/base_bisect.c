/* The first row that is not before: of every length and at every place. */
#include "base/bisect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void every_place(void **state)
{
	static const unsigned int rows[] = {1, 3, 3, 3, 4, 8, 9, 9};

	for (size_t count = 0; count <= sizeof(rows) / sizeof(rows[0]); count++)
		for (unsigned int of = 0; of < 11; of++) {
			size_t below = 0, upto = 0;

			while (below < count && rows[below] < of)
				below++;
			while (upto < count && rows[upto] <= of)
				upto++;
			assert_int_equal(scry_bisect(count, i, rows[i] < of), below);
			assert_int_equal(scry_bisect(count, i, rows[i] <= of), upto);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_place)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
