/*
 * The threads of a replay. The main thread plays stream 0; the others are begun by the word of the
 * thread that made the call before their first, and end as recorded. All end a batch together.
 *
 * A thread is really gone (its caches and arenas handed back) when it was joined; a thread that
 * begins one first joins those that had ended by then, so that never more live at once than were
 * recorded.
 */
#include "replay/replay.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#define STACK_BYTES (256u << 10)

struct thread {
	struct stream stream;
	pthread_t id;
	uint32_t next_ended; /* stream + 1 */
	uint32_t batch;	     /* the one it is to begin in */
	uint32_t piece;	     /* of the null allocator */
};

static struct thread *threads;
static char *stacks;
static pthread_mutex_t begin_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t ended_list;  /* stream + 1; to be joined */
static uint32_t ended_count; /* since the beginning */
static uint32_t begun;	     /* threads, the main one left out */
static uint32_t main_ended;
static uint32_t running; /* threads that have not ended this batch, the main one left out */
static uint32_t batch;	 /* futex: the one that may be played */

/* The stream's words of this batch. True: the thread ends. */
static bool play(struct thread *t)
{
	struct scry_replay_head *head = replay.head;
	struct stream *l = &t->stream;
	struct rusage from, to;
	uint64_t kernel;
	bool is_end;

	if (replay.first[l->number] == SCRY_REPLAY_NONE)
		return false;
	l->waits = l->wait_ticks = l->wait_ns = l->failed = 0;
	getrusage(RUSAGE_THREAD, &from);
	is_end = replay_work(l, replay.first[l->number]);
	__atomic_fetch_add(&head->failed, l->failed, __ATOMIC_RELAXED);
	if (head->is_building)
		return is_end;
	getrusage(RUSAGE_THREAD, &to);
	l->wait_ns += replay_ticks_ns(l->wait_ticks);
	kernel = (uint64_t)(to.ru_stime.tv_sec - from.ru_stime.tv_sec) * 1000000000u +
		 (uint64_t)(to.ru_stime.tv_usec - from.ru_stime.tv_usec) * 1000;
	__atomic_fetch_add(&head->kernel_ns, kernel, __ATOMIC_RELAXED);
	__atomic_fetch_add(&head->wait_ns, l->wait_ns, __ATOMIC_RELAXED);
	__atomic_fetch_add(&head->waits, l->waits, __ATOMIC_RELAXED);
	__atomic_fetch_add(&head->faults, (uint64_t)(to.ru_minflt - from.ru_minflt),
			   __ATOMIC_RELAXED);
	return is_end;
}

static void leave_batch(void)
{
	if (__atomic_sub_fetch(&running, 1, __ATOMIC_ACQ_REL) == 0)
		replay_futex_wake(&running);
}

static void *body(void *arg)
{
	struct thread *t = arg;
	uint32_t now = t->batch;

	if (replay.head->is_null)
		replay_null_begin(t->piece);
	while (!play(t)) {
		leave_batch();
		while (__atomic_load_n(&batch, __ATOMIC_ACQUIRE) == now)
			replay_futex_wait(&batch, now);
		now = __atomic_load_n(&batch, __ATOMIC_ACQUIRE);
	}
	t->next_ended = __atomic_load_n(&ended_list, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&ended_list, &t->next_ended, t->stream.number + 1,
					    false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	__atomic_fetch_add(&ended_count, 1, __ATOMIC_RELEASE);
	leave_batch();
	return NULL;
}

static void join_ended(void)
{
	uint32_t list = __atomic_exchange_n(&ended_list, 0, __ATOMIC_ACQUIRE);

	while (list) {
		struct thread *t = &threads[list - 1];

		list = t->next_ended; /* before the join: a stream is used again only after it */
		pthread_join(t->id, NULL);
		if (replay.head->is_null)
			replay_null_give(t->piece);
	}
}

void replay_join(struct stream *l, uint32_t ended)
{
	uint64_t begin = replay_thread_ns();
	uint32_t turns = 0;

	while ((int32_t)(__atomic_load_n(&ended_count, __ATOMIC_ACQUIRE) - ended) < 0)
		if (turns++ < 200)
			sched_yield();
		else
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	l->wait_ns += turns ? replay_thread_ns() - begin + replay_clock_ns : 0;
	pthread_mutex_lock(&begin_lock);
	join_ended();
	pthread_mutex_unlock(&begin_lock);
}

/* Putting it into memory is not a cost of a thread's. */
static void take_piece(struct stream *by, struct thread *t)
{
	uint64_t begin = replay_thread_ns();

	t->piece = replay_null_take();
	by->wait_ns += replay_thread_ns() - begin + replay_clock_ns;
}

void replay_spawn(struct stream *by, uint32_t stream, uint32_t ended)
{
	struct thread *t = &threads[stream];
	pthread_attr_t attr;

	replay_join(by, ended);
	pthread_mutex_lock(&begin_lock);
	t->stream = (struct stream){.number = stream, .left = 1 + stream % 16};
	t->batch = batch;
	if (replay.head->is_null)
		take_piece(by, t);
	begun++;
	__atomic_fetch_add(&running, 1, __ATOMIC_RELAXED);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stacks + (size_t)stream * STACK_BYTES, STACK_BYTES);
	if (pthread_create(&t->id, &attr, body, t))
		replay_die(
			"cannot begin a thread; fix: a higher limit (ulimit -u), or --threads 1");
	pthread_attr_destroy(&attr);
	pthread_mutex_unlock(&begin_lock);
}

void replay_threads_init(void)
{
	threads = replay_map(SCRY_REPLAY_STREAMS * sizeof(*threads));
	stacks = replay_map((size_t)SCRY_REPLAY_STREAMS * STACK_BYTES);
	threads[0].stream.left = 1;
	replay_null_init();
	if (replay.head->is_null)
		replay_null_begin(replay_null_take());
	replay.epochs = replay_map(SCRY_REPLAY_EPOCHS * sizeof(*replay.epochs));
}

/*
 * CPU time is that of the process, less what waited: threads begin and end in it, as an allocator
 * has much to do then that no call shows. What beginning one takes by itself is found without an
 * allocator, as the rest of what the replay takes.
 */
void replay_batch(void)
{
	struct scry_replay_head *head = replay.head;
	uint64_t begin, spent, waited = head->wait_ns;
	uint32_t left;

	__builtin_memset(replay.epochs, 0, SCRY_REPLAY_EPOCHS * sizeof(*replay.epochs));
	begin = replay_process_ns();
	/* A thread that has begun and not ended sleeps in body(). */
	__atomic_store_n(&running, begun - (ended_count - main_ended), __ATOMIC_RELAXED);
	__atomic_fetch_add(&batch, 1, __ATOMIC_RELEASE);
	replay_futex_wake(&batch);
	if (play(&threads[0])) {
		main_ended = 1;
		__atomic_fetch_add(&ended_count, 1, __ATOMIC_RELEASE);
	}
	while ((left = __atomic_load_n(&running, __ATOMIC_ACQUIRE)))
		replay_futex_wait(&running, left);
	join_ended();
	if (head->is_building)
		return;
	spent = replay_process_ns() - begin;
	waited = head->wait_ns - waited;
	head->cpu_ns += spent > waited ? spent - waited : 0;
}
