/* Hooks functions of a running process and lets go of them, over and over, by the engine itself:
 * what hundreds of `scry patch count` would do, without their start.
 *
 *   hook_storm [-n ALL] [-x SOME] [-o ONE] [-t HOLD_US] [-s SEED] [-w entry|got|site]
 *              [-a] [-c] [-r] PID NAME...
 *
 *   -n  all functions named, on and off, so many times (1)
 *   -x  then a random half, quarter ... of them, so many times
 *   -o  then one after the other, as many as that, evenly chosen; 0: each
 *
 * -a: a NAME is a part of an object's path, and every function of its unwind table is wanted, named
 * or not. -c prints "calls N SYMBOL" for each function hooked, -r "refused ADDRESS SYMBOL: WHY".
 * The last lines:
 *
 *   functions F refused R cycles C writes W moved M
 *   pause on MEDIAN MAX off MEDIAN MAX us threads T
 *   left BYTES
 *
 * Exit 0: every cycle was done, and the process is left as it was found. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "hook/enter_check.h"
#include "hook/hooks.h"

#define SAMPLES_MAX 100000

struct storm {
	unsigned long all, some, hold_us;
	long one; /* -1: not wanted */
	struct scry_hook_to to;
	bool by_object, tells_calls, tells_refused;
	struct scry_proc proc;
	struct scry_inject inj;
	struct scry_hooks hooks;
	uint32_t *ways; /* as planned */
	uint64_t done, writes;
	double *on_us, *off_us;
};

static volatile sig_atomic_t stop;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

static void hold(unsigned long us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = us % 1000000 * 1000};

	if (us)
		nanosleep(&t, NULL);
}

static void sample(double *list, uint64_t i, const struct scry_inject *inj)
{
	if (i < SAMPLES_MAX)
		list[i] = (double)inj->pause_max_ns / 1000;
}

/* On and off once, what is chosen. */
static int turn(struct storm *s)
{
	int r;

	s->inj.pause_max_ns = 0;
	r = scry_hooks_on(&s->hooks, &s->inj, NULL);
	if (r < 0)
		return r;
	sample(s->on_us, s->done, &s->inj);
	s->writes += 2 * s->hooks.edit_count;
	hold(s->hold_us);
	s->inj.pause_max_ns = 0;
	r = scry_hooks_off(&s->hooks, &s->inj);
	sample(s->off_us, s->done, &s->inj);
	s->done++;
	return r;
}

static int storm_all(struct storm *s)
{
	int r = 0;

	for (unsigned long i = 0; i < s->all && r == 0 && !stop; i++)
		r = turn(s);
	return r;
}

/* A row without a way is passed over: so subsets are chosen. */
static int storm_some(struct storm *s)
{
	int r = 0;

	for (unsigned long i = 0; i < s->some && r == 0 && !stop; i++) {
		unsigned int one_in = 2u << random() % 5;

		for (size_t k = 0; k < s->hooks.count; k++)
			s->hooks.rows[k].way = random() % one_in ? 0 : s->ways[k];
		r = turn(s);
	}
	return r;
}

static int storm_one(struct storm *s)
{
	size_t count = s->hooks.count, wanted = s->one ? (size_t)s->one : count,
	       step = wanted < count ? count / wanted : 1;
	int r = 0;

	if (s->one < 0)
		return 0;
	for (size_t k = 0; k < count; k++)
		s->hooks.rows[k].way = 0;
	for (size_t i = 0; i < count && r == 0 && !stop; i += step) {
		s->hooks.rows[i].way = s->ways[i];
		r = s->ways[i] ? turn(s) : 0;
		s->hooks.rows[i].way = 0;
	}
	return r;
}

/* Each function of object `i`: by its address. */
static int want_ranges(struct storm *s, size_t i)
{
	struct scry_object *object = &s->hooks.objects.objects[i];
	const struct scry_text_range *range;
	struct scry_text *text = NULL;
	int r = scry_linkmap_open(&s->hooks.objects, i);

	if (r == 0)
		r = scry_text_read(object->elf, &text);
	for (size_t k = 0; r == 0 && (range = scry_text_range(text, k)); k++) {
		char name[32];

		if (range->kind != SCRY_TEXT_FUNCTION)
			continue;
		snprintf(name, sizeof(name), "%#llx",
			 (unsigned long long)(range->start + object->bias));
		r = scry_hooks_want(&s->hooks, name, &s->to);
	}
	scry_text_free(text);
	return r;
}

static int want(struct storm *s, const char *name)
{
	int r = -ENOENT;

	if (!s->by_object)
		return scry_hooks_want(&s->hooks, name, &s->to);
	for (size_t i = 0; i < s->hooks.objects.count; i++) {
		const struct scry_object *o = &s->hooks.objects.objects[i];

		if (o->mapping && strstr(o->mapping->path, name))
			r = want_ranges(s, i);
	}
	return r;
}

static int enter(struct storm *s, pid_t pid, char **names)
{
	int r = scry_proc_open(&s->proc, pid);

	if (r == 0)
		r = scry_inject_lock(&s->inj, &s->proc);
	if (r == 0)
		r = scry_inject_check(&s->proc);
	if (r == 0)
		r = scry_hooks_open(&s->hooks, &s->proc);
	for (; *names && r == 0; names++)
		r = want(s, *names);
	if (r == 0)
		r = scry_hooks_plan(&s->hooks);
	s->inj.max_pause_ns = 500000000;
	s->inj.purpose = "storm";
	if (r == 0)
		r = scry_inject_enter(&s->inj, s->hooks.rows[0].address, NULL);
	s->ways = calloc(s->hooks.count + 1, sizeof(*s->ways));
	s->on_us = calloc(SAMPLES_MAX, sizeof(double));
	s->off_us = calloc(SAMPLES_MAX, sizeof(double));
	if (r == 0 && (!s->ways || !s->on_us || !s->off_us))
		r = -ENOMEM;
	for (size_t i = 0; i < s->hooks.count && r == 0; i++)
		s->ways[i] = s->hooks.rows[i].way;
	return r;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void tell(struct storm *s)
{
	uint64_t n = s->done < SAMPLES_MAX ? s->done : SAMPLES_MAX;

	for (size_t i = 0; i < s->hooks.count; i++) {
		const struct scry_hook *row = &s->hooks.rows[i];

		if (s->tells_calls && row->has_stub)
			printf("calls %llu %s\n", (unsigned long long)scry_hook_calls(row, &s->inj),
			       row->symbol);
		if (s->tells_refused && !s->ways[i])
			printf("refused %#llx %s: %s\n", (unsigned long long)row->address,
			       row->symbol, row->why);
	}
	printf("functions %zu refused %zu cycles %llu writes %llu moved %zu\n", s->hooks.count,
	       s->hooks.refused, (unsigned long long)s->done, (unsigned long long)s->writes,
	       s->hooks.moved);
	if (!n)
		return;
	qsort(s->on_us, n, sizeof(double), by_value);
	qsort(s->off_us, n, sizeof(double), by_value);
	printf("pause on %.0f %.0f off %.0f %.0f us threads %u\n", s->on_us[n / 2], s->on_us[n - 1],
	       s->off_us[n / 2], s->off_us[n - 1], s->inj.pause_threads);
}

static int run(struct storm *s, pid_t pid, char **names)
{
	struct scry_undo_report report;
	uint64_t left = 0;
	int r = enter(s, pid, names), e;
	char why[512] = "";

	if (r == 0)
		r = storm_all(s);
	if (r == 0)
		r = storm_some(s);
	if (r == 0)
		r = storm_one(s);
	if (r < 0)
		snprintf(why, sizeof(why), "%s", scry_error());
	if (s->inj.control) {
		tell(s);
		e = scry_inject_leave(&s->inj, &report, &left);
		r = r ? r : e;
		printf("left %llu\n", (unsigned long long)left);
	}
	if (r < 0)
		fprintf(stderr, "hook_storm: %s\n",
			*why		? why
			: *scry_error() ? scry_error()
					: strerror(-r));
	scry_hooks_close(&s->hooks);
	scry_inject_done(&s->inj);
	scry_proc_close(&s->proc);
	free(s->ways);
	free(s->on_us);
	free(s->off_us);
	return r < 0 || left ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct storm s = {.all = 1,
			  .one = -1,
			  .to = {.kind = SCRY_HOOK_COUNT},
			  .inj = {.lock = -1, .mem.fd = -1},
			  .hooks.mem.fd = -1};
	struct sigaction action = {.sa_handler = on_term};
	unsigned int seed = 1;
	int c;

	while ((c = getopt(argc, argv, "+n:x:o:t:s:w:acr")) != -1) {
		if (c == 'n')
			s.all = strtoul(optarg, NULL, 0);
		else if (c == 'x')
			s.some = strtoul(optarg, NULL, 0);
		else if (c == 'o')
			s.one = strtol(optarg, NULL, 0);
		else if (c == 't')
			s.hold_us = strtoul(optarg, NULL, 0);
		else if (c == 's')
			seed = (unsigned int)strtoul(optarg, NULL, 0);
		else if (c == 'w')
			s.to.way = !strcmp(optarg, "got")    ? SCRY_WAY_GOT
				   : !strcmp(optarg, "site") ? SCRY_WAY_SITE
							     : SCRY_WAY_ENTRY;
		else if (c == 'a')
			s.by_object = true;
		else if (c == 'c')
			s.tells_calls = true;
		else if (c == 'r')
			s.tells_refused = true;
		else
			return 2;
	}
	if (argc - optind < 2) {
		fprintf(stderr, "hook_storm: a process and a name are wanted\n");
		return 2;
	}
	srandom(seed);
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	return run(&s, (pid_t)atoi(argv[optind]), argv + optind + 1);
}
