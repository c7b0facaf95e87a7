/* sys/debug_info: whatever becomes of the child, its parent only goes without an answer. */
#include "sys/debug_info.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct scry_elf *own;

static int set_up(void **state)
{
	(void)state;
	return scry_elf_open_path("/proc/self/exe", &own);
}

static int tear_down(void **state)
{
	(void)state;
	scry_elf_close(own);
	return 0;
}

/* "echo", "none", "crash", "exit", "eat" */
static size_t answer(Dwarf *dwarf, void **state, const void *question, void *ret)
{
	const char *text = question;

	*state = *state ? *state : calloc(1, 1);
	if (!strcmp(text, "echo") && dwarf) {
		memcpy(ret, "yes", 4);
		return 4;
	}
	if (!strcmp(text, "crash"))
		raise(SIGSEGV);
	if (!strcmp(text, "exit"))
		_exit(1);
	while (!strcmp(text, "eat"))
		if (!calloc(1u << 20, 64))
			abort();
	return 0;
}

static size_t ask(struct scry_debug_info *d, const char *question, char *ret)
{
	return scry_debug_info_ask(d, question, strlen(question) + 1, ret);
}

static void it_answers(void **state)
{
	static char text[SCRY_DEBUG_ANSWER_MAX];
	struct scry_debug_info *d = scry_debug_info_open(own, answer);

	(void)state;
	assert_non_null(d); /* tests have debug information */
	for (int i = 0; i < 100; i++) {
		assert_int_equal(ask(d, "echo", text), 4);
		assert_string_equal(text, "yes");
		assert_int_equal(ask(d, "none", text), 0);
	}
	assert_false(scry_debug_info_has_failed(d));
	scry_debug_info_close(d);
}

static void it_ends(void **state)
{
	static const char *const ways[] = {"crash", "exit", "eat"};
	static char text[SCRY_DEBUG_ANSWER_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct scry_debug_info *d = scry_debug_info_open(own, answer);

		assert_non_null(d);
		assert_int_equal(ask(d, ways[i], text), 0);
		assert_true(scry_debug_info_has_failed(d));
		assert_int_equal(ask(d, "echo", text), 0);
		scry_debug_info_close(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_answers), cmocka_unit_test(it_ends)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
