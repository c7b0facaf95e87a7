/*
 * Kin of this process: children and theirs are found by their numbers, threads are none; who runs
 * another program is looked at again; who ends is told once; who is taken up leaves, and his own
 * children are kin.
 */
#include "sys/descendant_table.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/tracee.h"

#define MANY 40

struct own {
	uint32_t looks;
};

struct model {
	struct scry_descendant_table k;
	pid_t member; /* besides this process */
	pid_t taken;  /* to be */
	uint32_t came, execed, gone, looks;
	uint64_t again_ns; /* look_ns of who is looked at */
};

static bool is_member(void *arg, pid_t pid)
{
	const struct model *m = arg;

	return pid == getpid() || (m->member && pid == m->member);
}

static void came(void *arg, struct scry_relative *row, const struct scry_proc_stat *st)
{
	struct model *m = arg;

	assert_int_equal(((struct own *)row->own)->looks, 0);
	assert_true(st->ppid > 0);
	m->came++;
}

static void execed(void *arg, struct scry_relative *row)
{
	struct model *m = arg;

	assert_true(row->execs > 0);
	m->execed++;
}

static void look(void *arg, struct scry_relative *row, uint64_t now)
{
	struct model *m = arg;

	assert_true(now >= row->since_ns); /* its age is a difference of the two */
	m->looks++;
	((struct own *)row->own)->looks++;
	row->is_taken = row->pid == m->taken;
	if (row->is_taken)
		m->member = row->pid;
	row->look_ns = m->again_ns ? now + m->again_ns : SCRY_DESCENDANT_TABLE_KNOWN;
}

static void gone(void *arg, struct scry_relative *row)
{
	struct model *m = arg;

	assert_true(row->pid > 0);
	m->gone++;
}

static const struct scry_descendant_table_kind kind = {
	.is_member = is_member,
	.came = came,
	.execed = execed,
	.look = look,
	.gone = gone,
	.own_bytes = sizeof(struct own),
};

static void begin(struct model *m)
{
	*m = (struct model){0};
	scry_descendant_table_init(&m->k, &kind, m);
	scry_descendant_table_scan(&m->k);
	assert_true(m->k.has_begun);
}

static void turn(struct model *m)
{
	scry_descendant_table_scan(&m->k);
	scry_descendant_table_turn(&m->k, scry_now_ns());
}

static void until(struct model *m, const uint32_t *counter, uint32_t value)
{
	for (int i = 0; i < 20000 && *counter < value; i++) {
		turn(m);
		usleep(500);
	}
	assert_int_equal(*counter, value);
}

/* Waits to be killed; with `depth` it has a child that does. */
static pid_t child(int depth)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	signal(SIGTERM, SIG_DFL);
	if (depth && !child(depth - 1))
		_exit(1);
	for (;;)
		pause();
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void found_and_gone(void **state)
{
	pid_t pids[MANY];
	struct model m;

	(void)state;
	begin(&m);
	for (int i = 0; i < MANY; i++)
		pids[i] = child(0);
	until(&m, &m.came, MANY);
	assert_int_equal(m.k.count, MANY);
	assert_int_equal(m.looks, MANY);
	for (int i = 0; i < 20; i++)
		turn(&m);
	assert_int_equal(m.looks, MANY); /* they are known */
	for (int i = 0; i < MANY; i++)
		end(pids[i]);
	until(&m, &m.gone, MANY);
	assert_int_equal(m.k.count, 0);
	scry_descendant_table_done(&m.k);
}

/* Who was there is found in the first scan, and his children too, whatever the order. */
static void there_before(void **state)
{
	pid_t pid = child(3);
	struct model m;

	(void)state;
	for (int i = 0; i < 20000; i++) { /* until all four are there */
		begin(&m);
		if (m.k.count == 4)
			break;
		scry_descendant_table_done(&m.k);
		usleep(500);
	}
	assert_int_equal(m.k.count, 4);
	for (size_t i = 0; i < m.k.count; i++)
		assert_true(m.k.rows[i]->was_there);
	while (m.k.count) {
		pid_t one = m.k.rows[0]->pid;

		kill(one, SIGKILL);
		scry_descendant_table_forget(&m.k, one);
	}
	waitpid(pid, NULL, 0);
	scry_descendant_table_done(&m.k);
}

static void *wait_for_stop(void *arg)
{
	pthread_mutex_lock(arg);
	pthread_mutex_unlock(arg);
	return NULL;
}

static void threads_are_none(void **state)
{
	pthread_mutex_t stop = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[8];
	struct model m;
	pid_t last;

	(void)state;
	begin(&m);
	pthread_mutex_lock(&stop);
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wait_for_stop, &stop), 0);
	last = child(0); /* its number is behind theirs */
	until(&m, &m.came, 1);
	assert_int_equal(m.k.rows[0]->pid, last);
	pthread_mutex_unlock(&stop);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	end(last);
	until(&m, &m.gone, 1);
	scry_descendant_table_done(&m.k);
}

static void another_program(void **state)
{
	struct model m;
	pid_t pid;

	(void)state;
	begin(&m);
	pid = child(0);
	until(&m, &m.looks, 1);
	end(pid);
	until(&m, &m.gone, 1);
	pid = fork();
	if (!pid) {
		usleep(100000);
		execl("/bin/sleep", "sleep", "1000", NULL);
		_exit(1);
	}
	until(&m, &m.looks, 2);
	until(&m, &m.execed, 1);
	assert_int_equal(m.looks, 3);
	assert_int_equal(scry_descendant_table_find(&m.k, pid)->execs, 1);
	end(pid);
	until(&m, &m.gone, 2);
	scry_descendant_table_done(&m.k);
}

static void taken_up(void **state)
{
	struct model m;
	pid_t pid;

	(void)state;
	begin(&m);
	m.taken = pid = child(0);
	until(&m, &m.looks, 1);
	assert_int_equal(m.k.count, 0);
	assert_int_equal(m.member, pid);
	for (int i = 0; i < 20; i++)
		turn(&m);
	assert_int_equal(m.came, 1);
	/* told by somebody: a row for a while, but a member is none */
	assert_non_null(scry_descendant_table_add(&m.k, pid));
	turn(&m);
	assert_int_equal(m.k.count, 0);
	assert_int_equal(m.gone, 0);
	end(pid);
	assert_null(scry_descendant_table_add(&m.k, pid));
	scry_descendant_table_done(&m.k);
}

/* A look is due when it said so, and at once when that is asked for. */
static void looks_again(void **state)
{
	struct scry_relative *row;
	struct model m;
	pid_t pid;

	(void)state;
	begin(&m);
	m.again_ns = 1000000000000ull;
	pid = child(0);
	row = scry_descendant_table_add(&m.k, pid);
	assert_non_null(row);
	assert_ptr_equal(scry_descendant_table_add(&m.k, pid), row);
	turn(&m);
	assert_int_equal(m.looks, 1);
	turn(&m);
	assert_int_equal(m.looks, 1);
	scry_descendant_table_look(&m.k, row, scry_now_ns());
	assert_int_equal(m.looks, 2);
	scry_descendant_table_turn(&m.k, scry_now_ns() + 2 * m.again_ns);
	assert_int_equal(m.looks, 3);
	/* the number is another process now */
	row->start_ticks--;
	assert_ptr_not_equal(scry_descendant_table_add(&m.k, pid), NULL);
	assert_int_equal(m.gone, 1);
	assert_int_equal(m.came, 2);
	assert_int_equal(m.k.count, 1);
	end(pid);
	until(&m, &m.gone, 2);
	scry_descendant_table_done(&m.k);
}

/* The clock was read before the scan that found it, as by who reads it once in a turn. */
static void younger_than_the_clock(void **state)
{
	uint64_t before = scry_now_ns();
	struct model m;
	pid_t pid;

	(void)state;
	begin(&m);
	pid = child(0);
	assert_non_null(scry_descendant_table_add(&m.k, pid));
	scry_descendant_table_turn(&m.k, before);
	assert_int_equal(m.looks, 1);
	end(pid);
	until(&m, &m.gone, 1);
	scry_descendant_table_done(&m.k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(found_and_gone),
		cmocka_unit_test(there_before),
		cmocka_unit_test(threads_are_none),
		cmocka_unit_test(another_program),
		cmocka_unit_test(taken_up),
		cmocka_unit_test(looks_again),
		cmocka_unit_test(younger_than_the_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
