/*
 * The objects view and the diff on recordings with everything in them: sizes, ages, stacks, slices,
 * samples, internal objects. See golden.h.
 */
#include "golden.h"

#include "base/err.h"
#include "view/diff.h"
#include "view/object_rows.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
#define MINUTE (60 * SECOND)
#define MIB (UINT64_C(1) << 20)

struct frame {
	uint32_t parent;
	const char *file;
	uint32_t line;
	const char *method;
	uint32_t flags;
};

/* main -> run -> each (C) -> block in run -> save; main -> report; a deep branch of its own. */
static const struct frame frames[] = {
	{0, "/srv/app/main.rb", 30, "<main>", 0},			       /* 1 */
	{1, "/srv/app/main.rb", 12, "run", 0},				       /* 2 */
	{2, "/srv/app/main.rb", 12, "Array#each", SCRY_STACK_C},	       /* 3 */
	{3, "/srv/app/main.rb", 13, "block in run", 0},			       /* 4 */
	{4, "/var/lib/gems/3.1.0/gems/orm-2.1.0/lib/orm.rb", 88, "save", 0},   /* 5 */
	{1, "/srv/app/main.rb", 20, "report; all", 0},			       /* 6 */
	{0, "/usr/lib/ruby/3.1.0/timeout.rb", 9, "block in create_thread", 0}, /* 7 */
};

struct made {
	struct golden_place place;
	uint32_t stack;
	struct scry_ev_objects counts;
};

/* Ids begin at `first`: what lies before are frames that no site has. */
static void put_frames_from(struct golden *rec, uint32_t first)
{
	uint32_t i;

	for (i = 1; i < first; i++)
		golden_put(rec, SCRY_EVENT_STACK, &(struct scry_ev_stack){.id = i, .line = i},
			   sizeof(struct scry_ev_stack));
	for (i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		struct scry_ev_stack stack = {
			.id = i + first,
			.parent = frames[i].parent ? frames[i].parent + first - 1 : 0,
			.file_str = golden_str(rec, frames[i].file),
			.line = frames[i].line,
			.method_str = golden_str(rec, frames[i].method),
			.flags = frames[i].flags,
		};

		golden_put(rec, SCRY_EVENT_STACK, &stack, sizeof(stack));
	}
}

static void put_frames(struct golden *rec)
{
	put_frames_from(rec, 1);
}

static void put_site(struct golden *rec, uint32_t id, const struct made *made)
{
	const struct golden_place *place = &made->place;
	struct scry_ev_site site = {
		.site = id,
		.pid = place->pid,
		.file_str = place->file ? golden_str(rec, place->file) : 0,
		.line = place->line,
		.class_str = place->class ? golden_str(rec, place->class) : 0,
		.method_str = place->method ? golden_str(rec, place->method) : 0,
		.flags = place->flags,
		.slot_bytes = 40,
		.stack = made->stack,
	};

	golden_put(rec, SCRY_EVENT_SITE, &site, sizeof(site));
}

static void put_counts(struct golden *rec, uint32_t id, uint32_t slice,
		       const struct scry_ev_objects *counts)
{
	struct scry_ev_objects objects = *counts;

	objects.site = id;
	objects.slice = slice;
	objects.bytes = objects.live_bytes + objects.freed_bytes;
	golden_put(rec, SCRY_EVENT_OBJECTS, &objects, sizeof(objects));
}

static void put_end(struct golden *rec, struct scry_ev_totals totals)
{
	totals.pause_max_ns = 412000;
	totals.target_cpu_ns = 10 * SECOND;
	totals.overhead_cpu_ns = 312000000;
	totals.watched_ns = totals.watched_ns ? totals.watched_ns : 30 * SECOND;
	totals.pid = 4711;
	golden_put(rec, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
}

#define ORM "/var/lib/gems/3.1.0/gems/orm-2.1.0/lib/orm.rb"
#define TILT "/usr/lib/ruby/vendor_ruby/tilt.rb"

static const struct made rich[] = {
	{{4711, ORM, 90, "String", "quote", 0, 0, 0},
	 5,
	 {.allocated = 600000,
	  .freed = 599000,
	  .live_bytes = 140000,
	  .freed_bytes = 53910000,
	  .max_age = 12,
	  .old_live = 900,
	  .old_live_bytes = 130000}},
	{{4711, ORM, 90, "String", "quote", 0, 0, 0},
	 6,
	 {.allocated = 200000, .freed = 200000, .freed_bytes = 8000000}},
	{{4711, ORM, 91, "Array", "quote", 0, 0, 0},
	 5,
	 {.allocated = 150000,
	  .freed = 149999,
	  .live_bytes = 40,
	  .freed_bytes = 5999960,
	  .max_age = 1,
	  .flags = SCRY_OBJECTS_SLOTS}},
	{{4711, "/srv/app/main.rb", 14, "Hash", "block in run", 0, 0, 0},
	 4,
	 {.allocated = 40000,
	  .live_bytes = 30000000,
	  .max_age = 31,
	  .old_live = 39000,
	  .old_live_bytes = 29250000}},
	{{4711, TILT, 7, "Proc", "compile", 0, 0, 0},
	 6,
	 {.allocated = 5,
	  .freed = 1,
	  .live_bytes = 320,
	  .freed_bytes = 80,
	  .max_age = 31,
	  .old_live = 4,
	  .old_live_bytes = 320}},
	{{4711, "/usr/lib/ruby/3.1.0/timeout.rb", 11, "Thread", "block in create_thread", 0, 0, 0},
	 7,
	 {.allocated = 3,
	  .live_bytes = 1200,
	  .max_age = 30,
	  .old_live = 3,
	  .old_live_bytes = 1200}},
	{{4711, "(eval)", 1, "Object", "t;x", 0, 0, 0},
	 6,
	 {.allocated = 9000, .freed = 9000, .freed_bytes = 360000}},
	{{4711, NULL, 0, "Thread::Mutex", NULL, 0, 0, 0},
	 0,
	 {.allocated = 7, .live_bytes = 280, .max_age = 31, .old_live = 7, .old_live_bytes = 280}},
	{{4711, ORM, 90, "imemo_ment", "quote", SCRY_SITE_INTERNAL, 0, 0},
	 5,
	 {.allocated = 700,
	  .freed = 100,
	  .live_bytes = 24000,
	  .freed_bytes = 4000,
	  .max_age = 31,
	  .flags = SCRY_OBJECTS_SLOTS}},
	{{4711, ORM, 92, NULL, "quote", SCRY_SITE_INTERNAL, 0, 0},
	 5,
	 {.allocated = 77, .live_bytes = 3080, .max_age = 2, .flags = SCRY_OBJECTS_SLOTS}},
};

static int rich_recording(void)
{
	struct golden rec = golden_begin();
	uint32_t i;

	golden_beginning(&rec, "objects", 4711);
	put_frames(&rec);
	for (i = 0; i < sizeof(rich) / sizeof(rich[0]); i++) {
		put_site(&rec, i + 1, &rich[i]);
		put_counts(&rec, i + 1, 0, &rich[i].counts);
	}
	put_end(&rec, (struct scry_ev_totals){.events = 2000000,
					      .gcs = 31,
					      .full_gcs = 4,
					      .compactions = 1,
					      .moved = 40123});
	return golden_end(&rec);
}

static void everything(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts opts = plain;
	int fd = rich_recording();

	golden_check(fd, "objects", "rich.txt", &plain);
	golden_check(fd, "objects", "rich.json", &plain);
	opts.by = SCRY_VIEW_BY_GEM;
	golden_check(fd, "objects", "rich_gem.txt", &opts);
	golden_check(fd, "objects", "rich_gem.json", &opts);
	opts.by = SCRY_VIEW_BY_METHOD;
	opts.sort = SCRY_VIEW_SORT_LIVE_BYTES;
	golden_check(fd, "objects", "rich_method.txt", &opts);
	opts = plain;
	opts.live = true;
	golden_check(fd, "objects", "rich_live.txt", &opts);
	golden_check(fd, "objects", "rich_live.json", &opts);
	opts = plain;
	opts.by = SCRY_VIEW_BY_FILE;
	opts.live = true;
	golden_check(fd, "objects", "rich_live_file.txt", &opts);
	opts = plain;
	opts.internal = true;
	opts.sort = SCRY_VIEW_SORT_AGE;
	golden_check(fd, "objects", "rich_internal.txt", &opts);
	opts = plain;
	opts.filter = (struct scry_opt_strings){2, {"gem!=(ruby)", "class=[HP]*"}};
	opts.grep = "main";
	golden_check(fd, "objects", "rich_filter.txt", &opts);
	opts.filter = (struct scry_opt_strings){1, {"gem=nothere"}};
	opts.grep = NULL;
	golden_check(fd, "objects", "rich_filter_nothing.txt", &opts);
	golden_width = 80;
	golden_check(fd, "objects", "rich_narrow.txt", &plain);
	golden_width = 0;
	close(fd);
}

static void stacks(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = rich_recording();

	opts.stacks = true;
	golden_check(fd, "objects", "stacks.txt", &opts);
	golden_check(fd, "objects", "stacks.json", &opts);
	golden_check(fd, "objects", "stacks.folded", &opts);
	opts.sort = SCRY_VIEW_SORT_LIVE_BYTES;
	golden_check(fd, "objects", "stacks_live.txt", &opts);
	golden_check(fd, "objects", "stacks_live.folded", &opts);
	opts.top = 3;
	golden_check(fd, "objects", "stacks_top.txt", &opts);
	opts = (struct scry_view_opts)SCRY_VIEW_OPTS_DEFAULT;
	opts.stacks = opts.live = true;
	golden_check(fd, "objects", "stacks_old.txt", &opts);
	golden_width = 72;
	golden_check(fd, "objects", "stacks_narrow.txt", &opts);
	golden_width = 0;
	close(fd);
}

/* One in 64; the last row has too few samples for an interval. */
static int sampled_recording(void)
{
	static const struct made made[] = {
		{{4711, "a.rb", 1, "String", "m", 0, 0, 0},
		 0,
		 {.allocated = 640000,
		  .freed = 608000,
		  .live_bytes = 1280000,
		  .freed_bytes = 24320000,
		  .max_age = 3,
		  .flags = SCRY_OBJECTS_SCALED,
		  .samples = 10000,
		  .live_samples = 500}},
		{{4711, "a.rb", 2, "Array", "m", 0, 0, 0},
		 0,
		 {.allocated = 6400,
		  .freed = 6080,
		  .live_bytes = 12800,
		  .freed_bytes = 243200,
		  .max_age = 1,
		  .flags = SCRY_OBJECTS_SCALED,
		  .samples = 100,
		  .live_samples = 5}},
		{{4711, "a.rb", 3, "Hash", "m", 0, 0, 0},
		 0,
		 {.allocated = 192,
		  .live_bytes = 7680,
		  .max_age = 9,
		  .flags = SCRY_OBJECTS_SCALED,
		  .samples = 3,
		  .live_samples = 3}},
	};
	struct golden rec = golden_begin();
	uint32_t i;

	golden_beginning(&rec, "objects", 4711);
	for (i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		put_site(&rec, i + 1, &made[i]);
		put_counts(&rec, i + 1, 0, &made[i].counts);
	}
	put_end(&rec, (struct scry_ev_totals){.events = 10103, .gcs = 9, .sample_every = 64});
	return golden_end(&rec);
}

static void sampled(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = sampled_recording();

	golden_check(fd, "objects", "sampled.txt", &opts);
	golden_check(fd, "objects", "sampled.json", &opts);
	opts.live = true; /* no full mark was seen */
	golden_check(fd, "objects", "sampled_live.txt", &opts);
	close(fd);
}

/*
 * The interval against a simulation: N objects, each sampled with probability 1/w. In 95 % of 4000
 * runs, give or take 4 standard errors (1.4 %), the truth must lie within it.
 */
static void interval_holds(void **state)
{
	static const struct {
		uint64_t objects;
		unsigned int every;
	} cases[] = {{2000, 16}, {5000, 4}, {20000, 64}};
	uint64_t rng = 88172645463325252u;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned int run, within = 0, runs = 4000;

		for (run = 0; run < runs; run++) {
			struct scry_ev_objects seen = {.flags = SCRY_OBJECTS_SCALED};
			struct scry_object_counts counts;
			uint64_t half, n;

			for (n = 0; n < cases[i].objects; n++) {
				rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
				seen.samples += (rng >> 11) % cases[i].every == 0;
			}
			seen.allocated = seen.samples * cases[i].every;
			counts = scry_object_counts_of(&seen);
			assert_true(scry_object_interval(counts.allocated_variance, counts.samples,
							 &half));
			within += seen.allocated + half >= cases[i].objects &&
				  seen.allocated <= cases[i].objects + half;
		}
		assert_in_range(within, runs * 0.936, runs * 0.964);
	}
}

static void put_slice(struct golden *rec, uint32_t slice)
{
	struct scry_ev_slice event = {
		.slice = slice,
		.pid = 4711,
		.begin_ns = GOLDEN_START_NS + (slice - 1) * 5 * MINUTE,
		.end_ns = GOLDEN_START_NS + slice * 5 * MINUTE,
		.gc_count = 10 * slice,
		.rss_bytes = 200 * MIB + slice * 50 * MIB,
	};

	golden_put(rec, SCRY_EVENT_SLICE, &event, sizeof(event));
}

/* Site 1 leaks, site 2 is a cache that fills in slice 1 and stays, site 3 comes in slice 3 and goes
 * at the end; site 4 churns. Counters that did not change are left out. */
static int sliced_recording(bool has_end)
{
	static const struct made made[] = {
		{{4711, "/srv/app/leak.rb", 5, "String", "keep", 0, 0, 0}, 4, {0}},
		{{4711, "/srv/app/cache.rb", 9, "Hash", "fill", 0, 0, 0}, 2, {0}},
		{{4711, ORM, 90, "Array", "quote", 0, 0, 0}, 5, {0}},
		{{4711, ORM, 90, "String", "quote", 0, 0, 0}, 5, {0}},
	};
	struct golden rec = golden_begin();
	uint64_t n;
	uint32_t i;

	golden_beginning(&rec, "objects", 4711);
	put_frames(&rec);
	for (i = 0; i < 4; i++)
		put_site(&rec, i + 1, &made[i]);
	for (n = 1; n <= 5; n++) {
		struct scry_ev_objects leak = {
			.allocated = n * 1000, .live_bytes = n * 50000, .max_age = n * 10};
		struct scry_ev_objects cache = {.allocated = 500, .live_bytes = 100000};
		struct scry_ev_objects burst = {.allocated = 3000, .live_bytes = 120000};
		struct scry_ev_objects churn = {.allocated = n * 100000,
						.freed = n * 100000 - (n % 2 ? 10 : 30),
						.live_bytes = (n % 2 ? 10 : 30) * 40,
						.freed_bytes = n * 4000000};

		put_slice(&rec, (uint32_t)n);
		put_counts(&rec, 1, (uint32_t)n, &leak);
		if (n == 1)
			put_counts(&rec, 2, 1, &cache);
		if (n == 3)
			put_counts(&rec, 3, 3, &burst);
		put_counts(&rec, 4, (uint32_t)n, &churn);
	}
	if (has_end) {
		put_counts(&rec, 1, 0,
			   &(struct scry_ev_objects){.allocated = 5400, .live_bytes = 270000});
		put_counts(&rec, 2, 0,
			   &(struct scry_ev_objects){.allocated = 500, .live_bytes = 100000});
		put_counts(&rec, 3, 0,
			   &(struct scry_ev_objects){
				   .allocated = 3000, .freed = 3000, .freed_bytes = 120000});
		put_counts(&rec, 4, 0,
			   &(struct scry_ev_objects){
				   .allocated = 540000, .freed = 540000, .freed_bytes = 21600000});
		put_end(&rec, (struct scry_ev_totals){.events = 1000000,
						      .gcs = 54,
						      .full_gcs = 6,
						      .watched_ns = 27 * MINUTE});
	}
	return golden_end(&rec);
}

struct ends { /* of a diff: recordings, and moments in them */
	int from, to;
	uint64_t from_ns, to_ns;
	const char *from_name, *to_name;
};

static void check_diff(const struct ends *ends, const char *file, const struct scry_view_opts *opts)
{
	struct scry_doc doc = {.view = "diff", .schema = SCRY_DIFF_SCHEMA};
	struct scry_diff_side from = {.name = ends->from_name}, to = {.name = ends->to_name};
	struct scry_buf page = {0};
	char *text;
	size_t len;

	doc.out = doc.talk = open_memstream(&text, &len);
	assert_int_equal(scry_reader_open(ends->from, &from.reader), 0);
	assert_int_equal(scry_reader_open(ends->to, &to.reader), 0);
	assert_int_equal(scry_moment_find(ends->from, ends->from_ns, &from.moment), 0);
	assert_int_equal(scry_moment_find(ends->to, ends->to_ns, &to.moment), 0);
	assert_int_equal(golden_open(&doc, file), 0);
	assert_int_equal(scry_view_diff(&from, &to, opts, &doc), 0);
	assert_int_equal(scry_doc_end(&doc), 0);
	scry_reader_close(from.reader);
	scry_reader_close(to.reader);
	fclose(doc.out);
	scry_buf_append(&page, text, len);
	free(text);
	golden_compare(file, &page);
	scry_buf_done(&page);
}

static void slices(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = sliced_recording(true), cut = sliced_recording(false);
	struct ends ends = {fd, fd, 5 * MINUTE, 25 * MINUTE, NULL, NULL};

	check_diff(&ends, "diff_slices.txt", &opts);
	check_diff(&ends, "diff_slices.json", &opts);
	ends.to_ns = SCRY_MOMENT_END;
	opts.sort = SCRY_VIEW_SORT_ALLOCATED;
	opts.filter = (struct scry_opt_strings){1, {"gem=(app)"}};
	check_diff(&ends, "diff_to_end.txt", &opts);
	opts = (struct scry_view_opts)SCRY_VIEW_OPTS_DEFAULT;
	ends.from_ns = SCRY_MOMENT_BEGINNING;
	ends.to_ns = 15 * MINUTE;
	opts.stacks = true;
	check_diff(&ends, "diff_stacks.txt", &opts);
	check_diff(&ends, "diff_stacks.json", &opts);
	ends.from_ns = ends.to_ns;
	check_diff(&ends, "diff_nothing.txt", &opts);
	opts.stacks = false;
	golden_check(fd, "objects", "sliced.txt", &opts);
	golden_check(cut, "objects", "sliced_cut.txt", &opts); /* the last slice stands in */
	close(fd);
	close(cut);
}

/* Another run of the program: other ids, other order, another process; the leak is mended. */
static int mended_recording(void)
{
	static const struct made made[] = {
		{{815, "/srv/app/new.rb", 1, "Set", "fresh", 0, 0, 0},
		 0,
		 {.allocated = 20, .live_bytes = 800}},
		{{815, ORM, 90, "String", "quote", 0, 0, 0},
		 9,
		 {.allocated = 540000, .freed = 540000, .freed_bytes = 21600000}},
		{{815, "/srv/app/leak.rb", 5, "String", "keep", 0, 0, 0},
		 8,
		 {.allocated = 5400,
		  .freed = 5300,
		  .live_bytes = 5000,
		  .freed_bytes = 265000,
		  .old_live = 60,
		  .old_live_bytes = 3000}},
	};
	struct golden rec = golden_begin();
	uint32_t i;

	golden_str(&rec, "another string first");
	golden_beginning(&rec, "objects", 815);
	put_frames_from(&rec, 5);
	for (i = 0; i < 3; i++) {
		put_site(&rec, i + 1, &made[i]);
		put_counts(&rec, i + 1, 0, &made[i].counts);
	}
	put_end(&rec,
		(struct scry_ev_totals){
			.events = 600000, .gcs = 60, .full_gcs = 7, .watched_ns = 60 * MINUTE});
	return golden_end(&rec);
}

static void two_recordings(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	struct ends ends = {sliced_recording(true), mended_recording(), SCRY_MOMENT_END,
			    SCRY_MOMENT_END,	    "before.scry",	"after.scry"};

	check_diff(&ends, "diff_two.txt", &opts);
	check_diff(&ends, "diff_two.json", &opts);
	opts.by = SCRY_VIEW_BY_CLASS;
	opts.sort = SCRY_VIEW_SORT_BYTES;
	check_diff(&ends, "diff_two_class.txt", &opts);
	opts = (struct scry_view_opts)SCRY_VIEW_OPTS_DEFAULT;
	opts.stacks = true; /* matched by what the frames show: their ids differ */
	check_diff(&ends, "diff_two_stacks.txt", &opts);
	opts = (struct scry_view_opts)SCRY_VIEW_OPTS_DEFAULT;
	opts.live = true;
	ends.from_ns = 5 * MINUTE; /* nothing is known to have survived a full mark by then */
	check_diff(&ends, "diff_two_live.txt", &opts);
	close(ends.from);
	close(ends.to);
}

static void moments(void **state)
{
	struct scry_moment moment;
	int fd = sliced_recording(true), none = rich_recording();

	assert_int_equal(scry_moment_find(fd, 11 * MINUTE, &moment), 0);
	assert_int_equal(moment.slice, 2);
	assert_int_equal(moment.since_ns, 10 * MINUTE);
	assert_int_equal(moment.until_ns, GOLDEN_START_NS + 10 * MINUTE);
	assert_int_equal(moment.rss_bytes, 300 * MIB);
	assert_int_equal(scry_moment_find(fd, 30 * MINUTE, &moment), 0); /* 27 min: the end */
	assert_int_equal(moment.slice, 0);
	assert_int_equal(moment.until_ns, 0);
	assert_int_equal(moment.since_ns, 27 * MINUTE);
	assert_int_equal(scry_moment_find(fd, 40 * MINUTE, &moment), -ENOENT);
	assert_non_null(strstr(scry_error(), "the last one ends at 25 min"));
	assert_int_equal(scry_moment_find(none, 5 * MINUTE, &moment), -ENOENT);
	assert_non_null(strstr(scry_error(), "record with --every"));
	assert_int_equal(scry_moment_find(none, SCRY_MOMENT_END, &moment), 0);
	close(fd);
	close(none);
}

static void options(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts opts = plain;

	assert_int_equal(scry_view_opts_check(&opts), 0);
	opts.grep = "/(/";
	assert_int_equal(scry_view_opts_check(&opts), -EINVAL);
	opts = plain;
	opts.filter = (struct scry_opt_strings){1, {"nonsense"}};
	assert_int_equal(scry_view_opts_check(&opts), -EINVAL);
	opts = plain;
	opts.stacks = true;
	assert_int_equal(scry_view_opts_check(&opts), 0);
	opts.sort = SCRY_VIEW_SORT_AGE;
	assert_int_equal(scry_view_opts_check(&opts), -EINVAL);
	opts.sort = SCRY_VIEW_SORT_DEFAULT;
	opts.by = SCRY_VIEW_BY_GEM;
	assert_int_equal(scry_view_opts_check(&opts), -EINVAL);
}

/* A recording may say any double. */
static void interval_is_bounded(void **state)
{
	const double hostile[] = {1e300, -1.0, 1.0 / 0.0, 0.0 / 0.0};
	uint64_t half;

	(void)state;
	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		assert_true(scry_object_interval(hostile[i], 100, &half));
		assert_true(half == UINT64_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(interval_is_bounded),
		cmocka_unit_test(everything),
		cmocka_unit_test(stacks),
		cmocka_unit_test(sampled),
		cmocka_unit_test(interval_holds),
		cmocka_unit_test(slices),
		cmocka_unit_test(two_recordings),
		cmocka_unit_test(moments),
		cmocka_unit_test(options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
