/* --until: what it takes, and when it holds. */
#include "watch/until.h"

#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static bool holds(const char *text, struct scry_until_now now)
{
	struct scry_until until;

	assert_int_equal(scry_until_parse(text, &until), 0);
	return scry_until_holds(&until, &now);
}

static void at_the_limit(void **state)
{
	static const struct {
		const char *more, *at_least;
		size_t offset;
		uint64_t limit;
	} rows[] = {
		{"rss>2G", "rss>=2G", offsetof(struct scry_until_now, rss_bytes), 2ull << 30},
		{"live>10", "live>=10", offsetof(struct scry_until_now, live), 10},
		{"allocated>10", "allocated>=10", offsetof(struct scry_until_now, allocated), 10},
		{"gcs>50", "gcs>=50", offsetof(struct scry_until_now, gcs), 50},
	};
	size_t i;
	int delta;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (delta = -1; delta <= 1; delta++) {
			struct scry_until_now now = {0};
			uint64_t value = rows[i].limit + (uint64_t)(int64_t)delta;

			memcpy((char *)&now + rows[i].offset, &value, sizeof(value));
			assert_int_equal(holds(rows[i].more, now), delta > 0);
			assert_int_equal(holds(rows[i].at_least, now), delta >= 0);
		}
		/* the others do not matter */
		assert_false(holds(rows[i].more, (struct scry_until_now){0}));
	}
	assert_true(holds("rss>1.5KiB", (struct scry_until_now){.rss_bytes = 1537}));
	assert_false(holds("rss>0", (struct scry_until_now){.live = 1, .gcs = 1, .allocated = 1}));
}

static void never(void **state)
{
	assert_false(holds(NULL, (struct scry_until_now){UINT64_MAX, UINT64_MAX, 1, 1}));
}

static void refuses(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{"", "not a condition"},      {">5", "not a condition"},
		{"rss", "in quotes"},	      {"gcs", "in quotes"},
		{"cpu>5", "not a condition"}, {"rss<5", "not a condition"},
		{"rss>", "not a size"},	      {"gcs>x", "not a number"},
		{"gcs>-1", "not a number"},   {"live>2G", "not a number"},
		{"rss>>5", "not a size"},     {"rss > 5", "not a condition"},
	};
	struct scry_until until = {.limit = 77};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(scry_until_parse(rows[i].text, &until), -EINVAL);
		assert_non_null(strstr(scry_error(), rows[i].why));
		assert_int_equal(until.limit, 77);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_the_limit),
		cmocka_unit_test(never),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
