/*
 * scry-replay and batches that nobody would make: it refuses them or replays them, and does not
 * crash, hang, or take more than it was allowed.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "malloc_gen.h"
#include "replan/feed.h"

#define LIVE_MAX (UINT64_C(64) << 20)
#define TURNS_MAX 6000 /* of 10 ms that a batch may take */

static struct malloc_gen gen;
static struct scry_malloc_feed *feed;
static struct scry_replay_memory *m;
static uint64_t random_state = 1;

static uint64_t draw(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 11) % below;
}

static int setup(void **state)
{
	struct scry_malloc_feed_opts o = {.live_max = LIVE_MAX};

	gen = (struct malloc_gen){.calls = 4000,
				  .threads = 4,
				  .live = 200,
				  .cross = 40,
				  .churn = 300,
				  .size_max = 100000,
				  .seed = 9};
	malloc_gen_init(&gen);
	assert_int_equal(scry_malloc_feed_new(&gen.source, &o, &feed), 0);
	m = scry_malloc_feed_memory(feed);
	return 0;
}

static int teardown(void **state)
{
	scry_malloc_feed_free(feed);
	return 0;
}

static void *fresh(void)
{
	size_t bytes;
	char *copy;

	/* Gives the batch's words back as they were made. */
	assert_int_equal(scry_malloc_feed_rewind(feed), 0);
	assert_int_equal(scry_malloc_feed_batch(feed), 1);
	bytes = (size_t)m->head.blocks * sizeof(m->words[0]);
	copy = malloc(bytes);
	memcpy(copy, m->words, bytes);
	return copy;
}

static void set_head(enum scry_replay_mode mode, uint32_t blocks)
{
	uint32_t streams = m->head.streams, slots = m->head.slots;

	memset(&m->head, 0, sizeof(m->head));
	m->head.magic = SCRY_REPLAY_MAGIC;
	m->head.version = SCRY_REPLAY_VERSION;
	m->head.mode = mode;
	m->head.touch = SCRY_TOUCH_RECORDED;
	m->head.sample_every = 7;
	m->head.live_max = LIVE_MAX;
	m->head.address_max = UINT64_C(8) << 30;
	m->head.batch = 1;
	m->head.streams = streams;
	m->head.blocks = blocks;
	m->head.slots = slots;
	m->head.turn = SCRY_TURN_BATCH;
}

static pid_t start(void)
{
	static const char program[] = SCRY_TARGET_DIR "/../../src/replay/scry-replay";
	char number[16];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(number, sizeof(number), "%d", scry_malloc_feed_fd(feed));
	fcntl(scry_malloc_feed_fd(feed), F_SETFD, 0);
	execle(program, program, number, (char *)NULL, (char *[]){NULL});
	_exit(127);
}

static void next_turn(uint32_t turn)
{
	__atomic_store_n(&m->head.turn, turn, __ATOMIC_RELEASE);
	syscall(SYS_futex, &m->head.turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Its exit status; fails on a signal and on a hang. */
static int end_of(pid_t pid, uint64_t *ret_bytes)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	uint32_t left[] = {SCRY_TURN_EXIT, SCRY_TURN_DRAIN};
	int status = 0, count = 2;
	struct rusage usage;

	for (int turns = 0; wait4(pid, &status, WNOHANG, &usage) != pid; turns++) {
		uint32_t turn = __atomic_load_n(&m->head.turn, __ATOMIC_ACQUIRE);

		if (turns == TURNS_MAX) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			fail_msg("it hangs at word %llu", (unsigned long long)m->head.position);
		}
		if (turn == SCRY_TURN_FEEDER && count)
			next_turn(left[--count]);
		else
			syscall(SYS_futex, &m->head.turn, FUTEX_WAIT, turn, &pause, NULL, 0);
	}
	*ret_bytes = (uint64_t)usage.ru_maxrss << 10;
	if (WIFSIGNALED(status))
		fail_msg("it was ended by signal %d: %s", WTERMSIG(status), m->head.why);
	return WEXITSTATUS(status);
}

/* One, some or many words are others; now and then the head or a stream is. */
static void spoil(uint32_t blocks, uint32_t streams)
{
	uint64_t count = 1 + draw(draw(4) ? 4 : 40), words = (uint64_t)blocks * SCRY_REPLAY_BLOCK;

	while (count--) {
		uint64_t *w = &m->words[0][draw(words)];

		switch (draw(8)) {
		case 0:
			*w ^= UINT64_C(1) << draw(64);
			break;
		case 1:
			*w = m->words[0][draw(words)];
			break;
		case 2:
			*w = (*w & ~UINT64_C(63)) | draw(64);
			break;
		case 3: /* another slot */
			*w = (*w & ~(UINT64_C(0x3ffffff) << 6)) | draw(300) << 6;
			break;
		case 4: /* another tag */
			*w = (*w & ~(UINT64_C(0xffff) << 48)) | draw(20) << 48;
			break;
		case 5:
			*w = draw(UINT64_MAX);
			break;
		case 6:
			m->streams[draw(streams)] = (uint32_t)draw(blocks + 2);
			break;
		default:
			if (draw(4) == 0)
				(&m->head.batch)[draw(4)] ^= 1u << draw(32);
		}
	}
}

static void hostile(void **state)
{
	unsigned int tries = getenv("SCRY_SOAK") ? 5000 : 250, refused = 0;
	uint32_t streams[64], blocks, stream_count, slots;
	void *copy = fresh();

	blocks = m->head.blocks;
	stream_count = m->head.streams;
	slots = m->head.slots;
	assert_true(stream_count <= 64);
	memcpy(streams, m->streams, stream_count * sizeof(streams[0]));
	for (unsigned int i = 0; i < tries; i++) {
		uint64_t bytes;
		int status;

		memcpy(m->words, copy, (size_t)blocks * sizeof(m->words[0]));
		memcpy(m->streams, streams, stream_count * sizeof(streams[0]));
		m->head.streams = stream_count;
		m->head.slots = slots;
		set_head((enum scry_replay_mode)(i % SCRY_REPLAY_MODES), blocks);
		if (i >= 3) /* the first are as they were made */
			spoil(blocks, stream_count);
		status = end_of(start(), &bytes);
		if (status != 0 && status != 3)
			fail_msg("try %u: status %d, %s", i, status, m->head.why);
		if (status == 3 && !*m->head.why)
			fail_msg("try %u: refused without a word", i);
		if (i < 3)
			assert_int_equal(status, 0);
		/* What lives, its own tables, and what allocators waste. */
		if (bytes > LIVE_MAX * 4 + (UINT64_C(256) << 20))
			fail_msg("try %u: it took %llu MiB", i, (unsigned long long)(bytes >> 20));
		refused += status == 3;
	}
	print_message("# %u of %u batches were refused\n", refused, tries);
	assert_true(refused > tries / 4);
	free(copy);
}

/* What it is told of itself must be right, too. */
static void heads(void **state)
{
	uint64_t bytes;

	free(fresh());
	set_head(SCRY_REPLAY_TIMED, m->head.blocks);
	m->head.version++;
	assert_int_equal(end_of(start(), &bytes), 3);
	free(fresh());
	set_head(9, m->head.blocks);
	assert_int_equal(end_of(start(), &bytes), 3);
	free(fresh());
	set_head(SCRY_REPLAY_TIMED, m->head.blocks);
	m->head.live_max = 1000;
	assert_int_equal(end_of(start(), &bytes), 3);
	assert_non_null(strstr(m->head.why, "--memory"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heads),
		cmocka_unit_test(hostile),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
