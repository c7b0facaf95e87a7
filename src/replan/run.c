/* See run.h. */
#include "replan/run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "replan/rss.h"
#include "sys/beside.h"

/* Address space beyond living blocks: allocators reserve generously. */
#define ADDRESS_MORE (UINT64_C(64) << 30)
#define LOOK_NS UINT64_C(100000000) /* whether it lives, gets on and stays below the limit */

struct run {
	struct scry_malloc_feed *feed;
	const struct scry_malloc_allocator *allocator;
	const struct scry_malloc_run_opts *opts;
	struct scry_replay_head *head;
	struct scry_malloc_result *result;
	pid_t pid;
	int status; /* of its end, when it has ended */
	bool has_ended;
	bool is_there; /* it is scry-replay, and not the copy of scry that it was */
	struct scry_malloc_rss rss;
	uint64_t curve_step;
	uint64_t moved_ns, moved_to; /* when and where it was seen to get on */
	uint64_t sampled_ns;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* In the child. Only what the variant asks for is in its environment, so that runs compare. */
static void become(const struct run *r, const char *program, int fd)
{
	static char preload[PATH_MAX + 16], number[16];
	char *env[SCRY_MALLOC_ENV_MAX + 2];
	char *argv[] = {(char *)"scry-replay", number, NULL};
	unsigned int n = 0;
	int null = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s",
		 r->allocator->path ? r->allocator->path : "");
	if (r->allocator->path)
		env[n++] = preload;
	for (unsigned int i = 0; i < r->allocator->env_count; i++)
		env[n++] = (char *)r->allocator->env[i];
	env[n] = NULL;
	snprintf(number, sizeof(number), "%d", fd);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    fcntl(fd, F_SETFD, 0))
		_exit(126);
	execve(program, argv, env);
	_exit(127);
}

static int start(struct run *r)
{
	char program[PATH_MAX];
	int err = scry_beside("scry-replay", "replay", program, sizeof(program));

	if (err)
		return err;
	r->pid = fork();
	if (r->pid < 0)
		return scry_fail(-errno, "cannot start scry-replay: %s", strerror(errno));
	if (!r->pid)
		become(r, program, scry_malloc_feed_fd(r->feed));
	scry_malloc_rss_open(&r->rss, r->pid);
	return 0;
}

static uint64_t sample(struct run *r)
{
	struct scry_malloc_result *s = r->result;
	uint64_t position = __atomic_load_n(&r->head->position, __ATOMIC_RELAXED);
	uint64_t rss = scry_malloc_rss_now(&r->rss);

	if (rss > s->rss_peak)
		s->rss_peak = rss;
	if (s->point_count && position - s->points[s->point_count - 1].position < r->curve_step)
		return rss;
	if (s->point_count == SCRY_MALLOC_CURVE) {
		for (uint32_t i = 0; i < SCRY_MALLOC_CURVE / 2; i++)
			s->points[i] = s->points[i * 2];
		s->point_count /= 2;
		r->curve_step *= 2;
	}
	s->points[s->point_count++] = (struct scry_malloc_point){position, rss};
	return rss;
}

/* How it died, when it was not ended. */
static int reported_end(struct run *r)
{
	char why[sizeof(r->head->why)];
	const char *label = r->allocator->label;

	memcpy(why, r->head->why, sizeof(why));
	why[sizeof(why) - 1] = 0;
	if (WIFEXITED(r->status) && *why)
		return scry_fail(-EINVAL, "%s: %s", label, why);
	if (WIFSIGNALED(r->status))
		return scry_fail(-ECHILD, "%s: the replay was ended by signal %d (%s)%s%s", label,
				 WTERMSIG(r->status), strsignal(WTERMSIG(r->status)),
				 *why ? "; before: " : "", why);
	return scry_fail(-ECHILD, "%s: the replay ended with status %d; can '%s' be loaded?", label,
			 WEXITSTATUS(r->status), r->allocator->path ? r->allocator->path : "libc");
}

static bool has_ended(struct run *r)
{
	if (!r->has_ended && waitpid(r->pid, &r->status, WNOHANG) == r->pid)
		r->has_ended = true;
	return r->has_ended;
}

static int watch(struct run *r)
{
	uint64_t position = __atomic_load_n(&r->head->position, __ATOMIC_RELAXED), now = now_ns();
	uint64_t done = position + __atomic_load_n(&r->head->beats, __ATOMIC_RELAXED), rss;

	if (now - r->sampled_ns >= r->opts->rss_every_ns) {
		rss = sample(r);
		r->sampled_ns = now;
	} else {
		rss = scry_malloc_rss_now(&r->rss);
	}
	if (rss > r->opts->memory && r->is_there)
		return scry_fail(-ENOBUFS, "%s takes more than %llu MiB, the limit; fix: --memory",
				 r->allocator->label, (unsigned long long)(r->opts->memory >> 20));
	if (done != r->moved_to || !r->moved_ns) {
		r->moved_to = done;
		r->moved_ns = now;
	}
	if (now - r->moved_ns > r->opts->stuck_ns)
		return scry_fail(
			-ETIMEDOUT, "%s: the replay has stuck for %llu s at word %llu, batch %u",
			r->allocator->label, (unsigned long long)(r->opts->stuck_ns / 1000000000),
			(unsigned long long)position, r->head->batch);
	return 0;
}

/* Lets it do something, and waits until it has done it. */
static int turn(struct run *r, enum scry_replay_turn what)
{
	const uint64_t every_ns = r->opts->rss_every_ns;
	const struct timespec every = {.tv_nsec = (long)(every_ns < LOOK_NS ? every_ns : LOOK_NS)};
	uint32_t *word = &r->head->turn, value;
	int err = 0;

	r->moved_ns = 0;
	__atomic_store_n(word, what, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	while (!err && (value = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != SCRY_TURN_FEEDER) {
		syscall(SYS_futex, word, FUTEX_WAIT, value, &every, NULL, 0);
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == SCRY_TURN_FEEDER)
			break;
		err = has_ended(r) ? reported_end(r) : watch(r);
	}
	return err;
}

static void prepare(struct run *r)
{
	struct scry_replay_head *head = r->head;
	const struct scry_malloc_run_opts *o = r->opts;
	uint32_t batch = head->batch, streams = head->streams, blocks = head->blocks,
		 slots = head->slots, is_building = head->is_building;

	memset(head, 0, sizeof(*head));
	head->magic = SCRY_REPLAY_MAGIC;
	head->version = SCRY_REPLAY_VERSION;
	head->mode = o->mode;
	head->touch = o->touch;
	head->sample_every = o->sample_every ? o->sample_every : 1;
	head->is_null = r->allocator->is_null;
	head->is_paced = o->is_paced;
	head->is_thinking = o->is_thinking;
	head->live_max = o->memory;
	head->address_max = o->memory + ADDRESS_MORE;
	snprintf(head->allocator, sizeof(head->allocator), "%s",
		 r->allocator->path ? r->allocator->path : "");
	head->batch = batch;
	head->streams = streams;
	head->blocks = blocks;
	head->slots = slots;
	head->is_building = is_building;
}

static int play(struct run *r)
{
	struct scry_malloc_result *s = r->result;
	int got = 1, err = turn(r, SCRY_TURN_DRAIN); /* of nothing: it is there, and empty */
	uint64_t kept;

	s->rss_peak = s->point_count = 0; /* before exec it was a copy of this process */
	r->is_there = true;
	s->rss_begin = sample(r);
	while (!err && got > 0) {
		err = turn(r, SCRY_TURN_BATCH);
		if (!err)
			sample(r);
		if (!err)
			got = scry_malloc_feed_batch(r->feed);
	}
	if (err || got < 0)
		return err ? err : got;
	s->rss_end = sample(r);
	kept = scry_malloc_rss_kept(&r->rss);
	if (kept > s->rss_peak)
		s->rss_peak = kept;
	err = turn(r, SCRY_TURN_DRAIN);
	s->rss_drained = scry_malloc_rss_now(&r->rss);
	return err ? err : turn(r, SCRY_TURN_EXIT);
}

static void take_results(struct run *r)
{
	const struct scry_replay_head *head = r->head;
	struct scry_malloc_result *s = r->result;

	s->cpu_ns = head->cpu_ns;
	s->kernel_ns = head->kernel_ns;
	s->wait_ns = head->wait_ns;
	s->waits = head->waits;
	s->faults = head->faults;
	s->failed = head->failed;
	s->wrong = head->wrong;
	s->live_blocks = head->live_blocks;
	s->has_syscalls = head->has_syscalls;
	memcpy(s->syscalls, head->syscalls, sizeof(s->syscalls));
	s->elapsed_ns = head->ns_end - head->ns_begin;
	s->ticks_per_ns =
		s->elapsed_ns ? (double)(head->tsc_end - head->tsc_begin) / (double)s->elapsed_ns
			      : 1;
	memcpy(s->served, head->served, sizeof(s->served));
	s->served[sizeof(s->served) - 1] = 0;
	memcpy(s->why, head->why, sizeof(s->why));
	s->why[sizeof(s->why) - 1] = 0;
	memcpy(s->histogram, head->histogram, sizeof(s->histogram));
}

static int is_whole(struct run *r)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(r->feed);

	if (r->result->live_blocks == f->live_blocks)
		return 0;
	return scry_fail(-EINVAL, "%s: %llu blocks live at the end and not %llu, as recorded",
			 r->allocator->label, (unsigned long long)r->result->live_blocks,
			 (unsigned long long)f->live_blocks);
}

int scry_malloc_run(struct scry_malloc_feed *feed, const struct scry_malloc_allocator *allocator,
		    const struct scry_malloc_run_opts *opts, struct scry_malloc_result *ret_result)
{
	struct run r = {
		.feed = feed,
		.allocator = allocator,
		.opts = opts,
		.head = &scry_malloc_feed_memory(feed)->head,
		.result = ret_result,
		.rss = {-1, -1},
		.curve_step = 1,
	};
	int err = scry_malloc_feed_rewind(feed), got;

	memset(ret_result, 0, sizeof(*ret_result));
	if (err)
		return err;
	got = scry_malloc_feed_batch(feed);
	if (got < 0)
		return got;
	prepare(&r);
	err = start(&r);
	if (err)
		return err;
	err = play(&r);
	if (!r.has_ended) {
		if (err)
			kill(r.pid, SIGKILL);
		waitpid(r.pid, &r.status, 0);
	}
	scry_malloc_rss_close(&r.rss);
	take_results(&r);
	if (!err && r.status)
		err = reported_end(&r);
	return err ? err : is_whole(&r);
}

/* The upper end of a histogram's bucket, ns. */
static uint64_t bucket_ns(const struct scry_malloc_result *r, uint32_t bucket)
{
	double ticks = bucket < 8
			       ? bucket
			       : (double)((UINT64_C(8) + bucket % 8 + 1) << (bucket / 8 - 1)) - 1;

	return (uint64_t)(ticks / r->ticks_per_ns + 0.5);
}

uint64_t scry_malloc_percentile(const struct scry_malloc_result *r, const uint64_t *histogram,
				double share)
{
	uint64_t sum = 0, met = 0;
	uint32_t i;

	for (i = 0; i < SCRY_REPLAY_BUCKETS; i++)
		sum += histogram[i];
	for (i = 0; i < SCRY_REPLAY_BUCKETS; i++) {
		met += histogram[i];
		if (met && (double)met >= share * (double)sum)
			break;
	}
	return bucket_ns(r, i);
}
