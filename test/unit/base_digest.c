/* BLAKE2b-256, against digests that coreutils' b2sum -l 256 gives. */
#include "base/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char text[2 * SCRY_DIGEST_BYTES + 1];

static const char *hex(struct scry_digest *d)
{
	uint8_t bytes[SCRY_DIGEST_BYTES];

	scry_digest_end(d, bytes);
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return text;
}

static void test_known(void **state)
{
	struct scry_digest d;

	(void)state;
	scry_digest_init(&d);
	assert_string_equal(hex(&d),
			    "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
	scry_digest_init(&d);
	scry_digest_add(&d, "abc", 3);
	assert_string_equal(hex(&d),
			    "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

/* The same in pieces of any length, about the ends of blocks too. */
static void test_pieces(void **state)
{
	static uint8_t bytes[1000];
	struct scry_digest d;
	char whole[sizeof(text)];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	for (size_t size = 120; size < 400; size++) {
		scry_digest_init(&d);
		scry_digest_add(&d, bytes, size);
		strcpy(whole, hex(&d));
		for (size_t piece = 1; piece < 260; piece += 17) {
			scry_digest_init(&d);
			for (size_t at = 0; at < size; at += piece)
				scry_digest_add(&d, bytes + at,
						size - at < piece ? size - at : piece);
			assert_string_equal(hex(&d), whole);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
