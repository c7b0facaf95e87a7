/*
 * Whom `objects` asks when it switches its events on and off: a fork child that ended before its
 * Ruby was found is no error of the watch. One that lives, and cannot be read, is.
 */
#include "instrument/objects/asks.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "instrument/objects/own.h"
#include "sys/mem.h"
#include "vm/ruby.h"

static const uint64_t magic = SCRY_AGENT_MAGIC; /* the child's copy stands for an agent's text */

static bool never(const struct scry_watch *w, uint64_t ns)
{
	(void)w, (void)ns;
	return false;
}

/* The errors of asking a child whose Ruby was not found, while it lives or afterwards. */
static uint64_t errors_of(bool lives)
{
	const struct scry_ruby parent = {0};
	struct scry_objects_watch o = {0};
	struct scry_inject inj = {.header.text = (uint64_t)&magic};
	struct scry_watch w = {.inj = &inj, .state = &o};
	const pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	w.proc.pid = pid;
	assert_int_equal(scry_ruby_like(&parent, &o.ruby), 0);
	assert_int_equal(scry_mem_open(&inj.mem, pid, 0), 0);
	if (!lives) {
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		assert_true(scry_ruby_bind(o.ruby, pid) < 0);
	}
	assert_int_equal(scry_objects_ask(&w, SCRY_ASK_ALL, never), -1);
	if (lives) {
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
	scry_mem_close(&inj.mem);
	scry_ruby_free(o.ruby);
	return w.errors;
}

static void ended(void **state)
{
	(void)state;
	assert_int_equal(errors_of(false), 0);
}

static void lives(void **state)
{
	(void)state;
	assert_int_equal(errors_of(true), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ended),
		cmocka_unit_test(lives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
