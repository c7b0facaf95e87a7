/*
 * The keeper's end of the thread buffers against threads of this process that do what the agent
 * does (wire/thread_buffers.h). A record is {thread << 40 | number, stamp}.
 */
#include "hook/thread_buffers.h"

#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cmocka.h>

#define POOL_BYTES (8ull * SCRY_RING_WORDS)
#define PRODUCERS 6
#define RECORDS 200000
#define CHURN 700 /* threads, one after the other: more than there are segments */
#define ROOM (SCRY_THREAD_BUFFER_WORDS - SCRY_THREAD_BUFFER_HEAD)

static struct scry_control *control;
static uint64_t *pool;

static int set_up(void **state)
{
	(void)state;
	control = mmap(NULL, SCRY_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pool = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return control == MAP_FAILED || pool == MAP_FAILED;
}

static int tear_down(void **state)
{
	(void)state;
	munmap(control, SCRY_PAGE);
	munmap(pool, POOL_BYTES);
	return 0;
}

/* a producer */

struct producer {
	uint64_t name;
	uint64_t records;
	struct scry_thread_buffer *buffer;
	uint64_t state, birth;
	uint32_t serial, tid;
	unsigned int pause; /* rdtsc ticks between records, now and then */
};

static struct scry_thread_buffer *buffer_at(uint32_t i)
{
	return (struct scry_thread_buffer *)(pool + (size_t)i * SCRY_THREAD_BUFFER_WORDS);
}

static bool claim(struct producer *p)
{
	for (uint32_t i = 0; i < SCRY_THREAD_BUFFERS; i++) {
		struct scry_thread_buffer *t = buffer_at(i);
		uint64_t have = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
		uint64_t open = (have & ~3ull) + 4 + SCRY_THREAD_BUFFER_OPEN, reach;

		if ((have & 3) != SCRY_THREAD_BUFFER_FREE)
			continue;
		reach = __atomic_load_n(&control->head, __ATOMIC_RELAXED);
		while (reach < (i + 1ull) * SCRY_THREAD_BUFFER_WORDS &&
		       !__atomic_compare_exchange_n(&control->head, &reach,
						    (i + 1ull) * SCRY_THREAD_BUFFER_WORDS, true,
						    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			;
		if (!__atomic_compare_exchange_n(&t->state, &have, open, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		t->thread = (uint64_t)p;
		t->birth = p->birth;
		t->tid = p->tid;
		t->serial = p->serial++;
		t->begin_tsc = __rdtsc();
		p->buffer = t;
		p->state = open;
		return true;
	}
	return false;
}

static void wait_and_claim(struct producer *p)
{
	while (!claim(p)) {
		uint32_t freed = __atomic_load_n(&control->buffer_freed, __ATOMIC_SEQ_CST);

		__atomic_store_n(&control->buffer_waiting, 1, __ATOMIC_SEQ_CST);
		if (claim(p))
			return;
		syscall(SYS_futex, &control->buffer_freed, FUTEX_WAIT, freed,
			&(struct timespec){.tv_nsec = 5000000}, NULL, 0);
	}
}

static void close_buffer(struct producer *p)
{
	uint64_t open = p->state;

	__atomic_compare_exchange_n(&p->buffer->state, &open,
				    (open & ~3ull) | SCRY_THREAD_BUFFER_CLOSED, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	p->buffer = NULL;
}

static void record(struct producer *p, uint64_t number)
{
	uint32_t head;
	uint64_t *w;

	if (p->buffer && p->buffer->head + 2 > ROOM)
		close_buffer(p);
	if (!p->buffer)
		wait_and_claim(p);
	head = p->buffer->head;
	w = (uint64_t *)(p->buffer + 1) + head;
	*(volatile uint32_t *)&p->buffer->stamping = 1;
	w[1] = __rdtsc();
	w[0] = p->name << 40 | number;
	__atomic_store_n(&p->buffer->head, head + 2, __ATOMIC_RELEASE);
	__atomic_store_n(&p->buffer->stamping, 0, __ATOMIC_RELEASE);
}

static void begin(struct producer *p)
{
	p->birth = __rdtsc();
	p->tid = (uint32_t)syscall(SYS_gettid);
}

static void *produce(void *arg)
{
	struct producer *p = arg;

	begin(p);
	for (uint64_t i = 0; i < p->records; i++) {
		record(p, i);
		if (p->pause && i % 64 == 0)
			for (uint64_t end = __rdtsc() + p->pause; __rdtsc() < end;)
				_mm_pause();
	}
	return NULL;
}

/* what was taken */

struct seen {
	uint64_t id, next, words;
	uint32_t tid;
	bool has_ended;
};
struct taker {
	struct seen seen[CHURN + PRODUCERS + 1]; /* by the producer's name */
	uint64_t low;				 /* the watermark so far: nothing older may come */
	uint64_t older, ended, words, unordered;
};

static int take(void *arg, const struct scry_stream_words *run)
{
	struct taker *t = arg;

	if (run->has_ended) {
		for (size_t i = 0; i < sizeof(t->seen) / sizeof(t->seen[0]); i++)
			t->ended += t->seen[i].id == run->thread && !t->seen[i].has_ended;
		return 0;
	}
	assert_int_equal(run->count % 2, 0);
	for (size_t i = 0; i < run->count; i += 2) {
		uint64_t name = run->words[i] >> 40, number = run->words[i] & 0xffffffffff;
		struct seen *s = &t->seen[name];

		assert_true(name < sizeof(t->seen) / sizeof(t->seen[0]));
		s->id = s->id ? s->id : run->thread;
		assert_int_equal(s->id, run->thread);
		t->unordered += number != s->next;
		s->next = number + 1;
		t->older += run->words[i + 1] <= t->low;
		if (run->begin_tick)
			assert_true(run->words[i + 1] >= run->begin_tick);
		t->words += 2;
	}
	return 0;
}

static bool spares; /* now and then all, else what the watermark waits for */

/* Takes until all threads have ended. */
static void take_all(struct scry_thread_buffers *buffers, struct taker *t, uint64_t ended)
{
	for (uint64_t looks = 0; t->ended < ended; looks++) {
		struct scry_thread_buffers_taken taken;

		scry_thread_buffers_spare(buffers, spares && looks % 4);
		assert_int_equal(scry_thread_buffers_take(buffers, take, t, &taken), 0);
		assert_true(taken.watermark >= t->low);
		assert_true(taken.watermark < taken.now_tsc);
		assert_in_range(taken.fill, 0, 1000);
		t->low = taken.watermark;
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	}
}

static void test_threads(void **state)
{
	static struct taker t;
	static struct producer p[PRODUCERS];
	struct scry_thread_buffers_stats stats;
	struct scry_thread_buffers *buffers;
	pthread_t threads[PRODUCERS];

	(void)state;
	memset(&t, 0, sizeof(t));
	assert_int_equal(scry_thread_buffers_new(control, pool, getpid(), true, &buffers), 0);
	for (uint64_t i = 0; i < PRODUCERS; i++) {
		p[i] = (struct producer){.name = i, .records = RECORDS, .pause = i % 2 ? 20000 : 0};
		assert_int_equal(pthread_create(&threads[i], NULL, produce, &p[i]), 0);
	}
	take_all(buffers, &t, PRODUCERS);
	for (size_t i = 0; i < PRODUCERS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(t.seen[i].next, RECORDS);
	}
	assert_int_equal(t.words, 2ull * RECORDS * PRODUCERS);
	assert_int_equal(t.unordered, 0);
	assert_int_equal(t.older, 0);
	scry_thread_buffers_stats(buffers, &stats);
	assert_int_equal(stats.words, t.words);
	assert_int_equal(stats.threads, PRODUCERS);
	assert_int_equal(stats.bad + stats.unfinished + stats.overdue, 0);
	for (uint32_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		assert_int_equal(buffer_at(i)->state & 3, SCRY_THREAD_BUFFER_FREE);
	scry_thread_buffers_free(buffers);
}

static void test_threads_spared(void **state)
{
	spares = true;
	test_threads(state);
	spares = false;
}

/* One thread after the other, each with a few records and no word of farewell: the segments of
 * those that are gone are given back, else the later ones would wait for ever. */
static void *churn(void *arg)
{
	struct producer *p = arg;
	pthread_t thread;

	for (size_t i = 0; i < CHURN; i++) {
		p[i] = (struct producer){.name = i, .records = 5};
		if (pthread_create(&thread, NULL, produce, &p[i]) || pthread_join(thread, NULL))
			abort();
	}
	return NULL;
}

static void test_churn(void **state)
{
	static struct taker t;
	static struct producer p[CHURN];
	struct scry_thread_buffers *buffers;
	pthread_t thread;

	(void)state;
	memset(&t, 0, sizeof(t));
	assert_int_equal(scry_thread_buffers_new(control, pool, getpid(), true, &buffers), 0);
	assert_int_equal(pthread_create(&thread, NULL, churn, p), 0);
	take_all(buffers, &t, CHURN);
	pthread_join(thread, NULL);
	assert_int_equal(t.words, 2 * 5 * CHURN);
	assert_int_equal(t.unordered, 0);
	assert_int_equal(t.older, 0);
	scry_thread_buffers_free(buffers);
}

/* A record that is being written holds the watermark back, until it is published or a second has
 * passed. */
static void test_hold(void **state)
{
	static struct taker t;
	struct producer a = {.name = 1}, b = {.name = 2};
	struct scry_thread_buffers_taken taken;
	struct scry_thread_buffers_stats stats;
	struct scry_thread_buffers *buffers;
	uint64_t stamp;

	(void)state;
	memset(&t, 0, sizeof(t));
	assert_int_equal(scry_thread_buffers_new(control, pool, 0, true, &buffers), 0);
	begin(&a);
	begin(&b);
	b.tid = a.tid + 1;
	record(&a, 0);
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	a.buffer->stamping = 1;
	stamp = __rdtsc();
	for (int i = 0; i < 3; i++) {
		record(&b, (uint64_t)i);
		assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
		assert_true(taken.watermark < stamp);
	}
	a.buffer->stamping = 0;
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	while (taken.watermark < stamp)
		assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	a.buffer->stamping = 1;
	stamp = __rdtsc();
	do {
		assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
		scry_thread_buffers_stats(buffers, &stats);
		assert_true(stats.overdue || taken.watermark < stamp);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	} while (taken.watermark < stamp);
	assert_int_equal(stats.overdue, 1);
	scry_thread_buffers_end(buffers);
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	assert_true(taken.watermark == UINT64_MAX);
	scry_thread_buffers_stats(buffers, &stats);
	assert_int_equal(stats.unfinished, 1);
	assert_int_equal(stats.words, 2 * 4);
	scry_thread_buffers_free(buffers);
}

static void take_one(struct scry_thread_buffers *buffers, struct taker *t)
{
	struct scry_thread_buffers_taken taken;

	assert_int_equal(scry_thread_buffers_take(buffers, take, t, &taken), 0);
	t->low = taken.watermark;
}

/* Where only that is taken for which the watermark waits it comes on all the same, nothing older
 * than it comes later, and those who have no room learn that we live. */
static void test_spare(void **state)
{
	static struct taker t;
	struct producer a = {.name = 1}, b = {.name = 2};
	struct scry_thread_buffers *buffers;
	uint64_t stamp, *w;
	uint32_t freed;

	(void)state;
	memset(&t, 0, sizeof(t));
	assert_int_equal(scry_thread_buffers_new(control, pool, 0, true, &buffers), 0);
	begin(&a);
	begin(&b);
	b.tid = a.tid + 1;
	record(&a, 0);
	record(&b, 0);
	take_one(buffers, &t);
	a.buffer->stamping = 1;
	stamp = __rdtsc();
	while (__rdtsc() < stamp + 2000000) /* ten times the keeper's margin */
		_mm_pause();
	take_one(buffers, &t);
	scry_thread_buffers_spare(buffers, true);
	record(&b, 1);
	freed = control->buffer_freed;
	take_one(buffers, &t);
	assert_int_equal(control->buffer_freed, freed + 1);
	assert_int_equal(t.words, 4);
	assert_true(t.low < stamp);
	w = (uint64_t *)(a.buffer + 1) + a.buffer->head;
	w[0] = a.name << 40 | 1;
	w[1] = stamp;
	__atomic_store_n(&a.buffer->head, a.buffer->head + 2, __ATOMIC_RELEASE);
	a.buffer->stamping = 0;
	close_buffer(&a);
	record(&a, 2);
	take_one(buffers, &t);
	assert_int_equal(t.words, 6);
	assert_true(t.low > stamp);
	scry_thread_buffers_spare(buffers, false);
	take_one(buffers, &t);
	assert_int_equal(t.words, 10);
	assert_int_equal(t.older + t.unordered, 0);
	scry_thread_buffers_free(buffers);
}

/* An agent that an earlier keeper left: what it had written is passed over, what follows is not. */
static void test_adopted(void **state)
{
	static struct taker t;
	struct producer a = {.name = 1}, b = {.name = 2};
	struct scry_thread_buffers_taken taken;
	struct scry_thread_buffers *buffers;

	(void)state;
	memset(&t, 0, sizeof(t));
	begin(&a);
	begin(&b);
	b.tid = a.tid + 1;
	for (uint64_t i = 0; i < ROOM; i++) /* two segments */
		record(&a, i);
	record(&b, 0);
	assert_int_equal(scry_thread_buffers_new(control, pool, 0, true, &buffers), 0);
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	assert_int_equal(t.words, 0);
	t.seen[1].next = ROOM;
	for (uint64_t i = 0; i < ROOM; i++)
		record(&a, ROOM + i);
	close_buffer(&b); /* without another word */
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	assert_int_equal(t.words, 2 * ROOM);
	assert_int_equal(t.unordered, 0);
	scry_thread_buffers_free(buffers);
}

/* A second segment that is seen before the first (it was opened behind our back) waits for it. */
static void test_serials(void **state)
{
	static struct taker t;
	struct producer a = {.name = 1};
	struct scry_thread_buffers_taken taken;
	struct scry_thread_buffers *buffers;
	uint64_t first;

	(void)state;
	memset(&t, 0, sizeof(t));
	assert_int_equal(scry_thread_buffers_new(control, pool, 0, true, &buffers), 0);
	begin(&a);
	for (uint64_t i = 0; i <= ROOM / 2; i++)
		record(&a, i);
	first = buffer_at(0)->state;
	buffer_at(0)->state = 0;
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	assert_int_equal(t.words, 0);
	buffer_at(0)->state = first;
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	assert_int_equal(t.words, ROOM + 2);
	assert_int_equal(t.unordered, 0);
	scry_thread_buffers_free(buffers);
}

/* What happens where it is looked who has ended: --wrap in test/meson.build. */
static void (*meanwhile)(void);
static pid_t hidden; /* is left out of what is listed */
static int listed;   /* how often */
static pid_t inside; /* what a tid is more in a pid namespace that the target is said to have */

ssize_t __real_scry_proc_tasks(pid_t pid, pid_t **ret);
ssize_t __wrap_scry_proc_tasks(pid_t pid, pid_t **ret);
ssize_t __wrap_scry_proc_tasks(pid_t pid, pid_t **ret)
{
	ssize_t count, kept = 0;

	if (meanwhile)
		meanwhile();
	count = __real_scry_proc_tasks(pid, ret);
	for (ssize_t i = 0; i < count; i++)
		if ((*ret)[i] != hidden)
			(*ret)[kept++] = (*ret)[i];
	listed++;
	return count < 0 ? count : kept;
}

pid_t __real_scry_proc_tid_inside(pid_t pid, pid_t tid);
pid_t __wrap_scry_proc_tid_inside(pid_t pid, pid_t tid);
pid_t __wrap_scry_proc_tid_inside(pid_t pid, pid_t tid)
{
	return __real_scry_proc_tid_inside(pid, tid) + inside;
}

static void take_until_listed(struct scry_thread_buffers *buffers, struct taker *t, int times)
{
	struct scry_thread_buffers_taken taken;

	for (listed = 0; listed < times;) {
		assert_int_equal(scry_thread_buffers_take(buffers, take, t, &taken), 0);
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	}
}

static pthread_barrier_t stages; /* has a tid; may end */

static void *live(void *arg)
{
	begin(arg);
	pthread_barrier_wait(&stages);
	pthread_barrier_wait(&stages);
	return NULL;
}

static void start(struct producer *p, pthread_t *ret)
{
	pthread_barrier_init(&stages, NULL, 2);
	assert_int_equal(pthread_create(ret, NULL, live, p), 0);
	pthread_barrier_wait(&stages);
}

static void end(pthread_t thread)
{
	pthread_barrier_wait(&stages);
	pthread_join(thread, NULL);
}

/* A thread that lives, and that a listing leaves out, keeps its segment. */
static void test_left_out(void **state)
{
	static struct taker t;
	struct producer a = {.name = 1};
	struct scry_thread_buffers *buffers;
	pthread_t thread;

	(void)state;
	memset(&t, 0, sizeof(t));
	assert_int_equal(scry_thread_buffers_new(control, pool, getpid(), false, &buffers), 0);
	start(&a, &thread);
	record(&a, 0);
	hidden = (pid_t)a.tid;
	take_until_listed(buffers, &t, 3);
	assert_int_equal(t.ended, 0);
	assert_int_equal(a.buffer->state, a.state);
	record(&a, 1);
	hidden = 0;
	end(thread);
	take_all(buffers, &t, 1);
	assert_int_equal(t.words, 4);
	scry_thread_buffers_free(buffers);
}

/* By which number it can be asked for is not known: twice in succession is proof. */
static void test_left_out_inside(void **state)
{
	static struct taker t;
	struct producer a = {.name = 1};
	struct scry_thread_buffers *buffers;
	pthread_t thread;

	(void)state;
	memset(&t, 0, sizeof(t));
	assert_int_equal(scry_thread_buffers_new(control, pool, getpid(), false, &buffers), 0);
	start(&a, &thread);
	inside = 1000;
	a.tid += 1000;
	record(&a, 0);
	for (int i = 0; i < 2; i++) {
		hidden = (pid_t)a.tid - inside;
		take_until_listed(buffers, &t, 1);
		hidden = 0;
		take_until_listed(buffers, &t, 1);
		assert_int_equal(t.ended, 0);
		assert_int_equal(a.buffer->state, a.state);
	}
	hidden = (pid_t)a.tid - inside;
	take_until_listed(buffers, &t, 2);
	assert_int_equal(t.ended, 1);
	hidden = inside = 0;
	end(thread);
	scry_thread_buffers_free(buffers);
}

static const uint64_t me = 1 << 20; /* as the agent's thread has a number of its own */
static uint64_t my_stamp;

static void take_turn(void)
{
	__atomic_exchange_n(&control->turn, me, __ATOMIC_SEQ_CST);
	_mm_lfence();
	my_stamp = __rdtsc();
	while (__rdtsc() < my_stamp + 2000000) /* ten times the keeper's margin */
		_mm_pause();
	meanwhile = NULL;
}

/* Whose turn it is repeats its stamp: also where the turn was taken while the keeper looked, that
 * stamp is not one which the keeper has said is over. */
static void test_turn(void **state)
{
	static struct taker t;
	struct producer a = {.name = 1};
	struct scry_thread_buffers_taken taken;
	struct scry_thread_buffers *buffers;

	(void)state;
	memset(&t, 0, sizeof(t));
	my_stamp = 0;
	assert_int_equal(scry_thread_buffers_new(control, pool, getpid(), false, &buffers), 0);
	begin(&a);
	record(&a, 0);
	meanwhile = take_turn;
	while (!my_stamp) {
		control->turn = me;
		assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
		assert_int_equal(control->turn, my_stamp ? me : 0);
	}
	assert_true(taken.watermark < my_stamp);
	assert_int_equal(scry_thread_buffers_take(buffers, take, &t, &taken), 0);
	assert_int_equal(control->turn, 0);
	control->turn = me;
	assert_true(scry_thread_buffers_stamp(buffers) > my_stamp);
	assert_int_equal(control->turn, SCRY_TURN_ALL);
	scry_thread_buffers_free(buffers);
}

static int count_words(void *arg, const struct scry_stream_words *run)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < run->count; i++)
		sum += run->words[i];
	*(uint64_t *)arg += run->count + (sum & 1);
	assert_true(run->count <= ROOM);
	return 0;
}

/* Any content: nothing is read that is not there, and it ends. */
static void test_hostile(void **state)
{
	struct scry_thread_buffers_taken taken;
	struct scry_thread_buffers *buffers;
	uint64_t words = 0, before = 0;

	(void)state;
	srandom(5);
	assert_int_equal(scry_thread_buffers_new(control, pool, getpid(), false, &buffers), 0);
	for (int round = 0; round < 3000; round++) {
		for (int n = 0; n < 200; n++) {
			struct scry_thread_buffer *t =
				buffer_at((uint32_t)random() % SCRY_THREAD_BUFFERS);

			t->state = (uint64_t)random() % 64;
			t->head = random() % 4 ? (uint32_t)random() % (ROOM + 2)
					       : (uint32_t)random() * 2;
			t->stamping = random() % 16 == 0;
			t->thread = (uint64_t)random() % 8;
			t->birth = random() % 4 ? (uint64_t)random() % 8 : (uint64_t)random();
			t->serial = (uint32_t)random() % 8;
			t->tid = (uint32_t)random();
			t->begin_tsc = (uint64_t)random() << 32;
		}
		control->head = (uint64_t)random() << 16;
		assert_int_equal(scry_thread_buffers_take(buffers, count_words, &words, &taken), 0);
		assert_true(taken.watermark >= before);
		before = taken.watermark;
	}
	scry_thread_buffers_end(buffers);
	assert_int_equal(scry_thread_buffers_take(buffers, count_words, &words, &taken), 0);
	assert_true(words > 0);
	scry_thread_buffers_free(buffers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_threads_spared, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_churn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hold, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_spare, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_adopted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_serials, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_left_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_left_out_inside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_turn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
