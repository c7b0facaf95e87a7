/* The malloc view: recordings with a known answer, as pages in test/golden/ and as sums. */
#include "view/malloc_sum.h"

#include "base/err.h"
#include "malloc_program.h"
#include "view/malloc_verdict.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* 2,000 rounds: parse makes and frees, cache_add keeps 1,000 bytes of each. */
static int leaking(void)
{
	struct program p = begin();

	for (int i = 0; i < 2000; i++) {
		uint32_t block = make(&p, 1, 100 + i % 7);

		make(&p, 2, 1000);
		end_block(&p, block);
		if (i % 500 == 499)
			look(&p, 1000000 + (uint64_t)i * 1100);
	}
	return finish(&p, 6000);
}

/* Holds 40 MB at its peak, frees nearly all; the kernel goes on to see 39 MB. */
static int retaining(void)
{
	static uint32_t blocks[10000];
	struct program p = begin();

	for (int i = 0; i < 10000; i++)
		blocks[i] = make(&p, 1 + i % 2, 4000);
	look(&p, 42000000);
	for (int i = 0; i < 10000; i++)
		if (i % 100)
			end_block(&p, blocks[i]);
	for (int i = 0; i < 30000; i++)
		end_block(&p, make(&p, 1, 64));
	look(&p, 39000000);
	return finish(&p, 79900);
}

static enum scry_malloc_verdict verdict_of(const struct scry_malloc_sum *sum)
{
	struct scry_buf buf = {0};
	enum scry_malloc_verdict verdict = scry_malloc_verdict(scry_malloc_sum_main(sum), &buf);

	assert_true(buf.len > 0);
	scry_buf_done(&buf);
	return verdict;
}

static void leak(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = leaking();
	struct scry_malloc_sum sum = sum_of(fd, 0);
	struct scry_malloc_process *p = scry_malloc_sum_main(&sum);

	assert_int_equal(p->calls, 6000);
	assert_int_equal(p->allocated, 4000);
	assert_int_equal(p->ended, 2000);
	assert_int_equal(p->short_lived, 2000);
	assert_int_equal(p->live.bytes, 2000 * 1000);
	assert_int_equal(p->live.blocks, 2000);
	assert_int_equal(p->callers[1].live.bytes, 0);
	assert_int_equal(p->callers[2].live.bytes, 2000 * 1000);
	assert_false(grows(p, 1));
	assert_true(grows(p, 2));
	assert_int_equal(verdict_of(&sum), SCRY_MALLOC_VERDICT_GROWS);
	scry_malloc_sum_done(&sum);
	golden_check(fd, "malloc", "malloc_leak.txt", &plain);
	golden_check(fd, "malloc", "malloc_leak.json", &plain);
	assert_true(golden_sorts(fd, "malloc", &plain) > 0);
	golden_check(fd, "info", "malloc_info.txt", &plain);
	close(fd);
}

static void retention(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = retaining();
	struct scry_malloc_sum sum = sum_of(fd, 1000000 + 20000ull * 5000);
	struct scry_malloc_process *p = scry_malloc_sum_main(&sum);

	assert_int_equal(p->peak.bytes, 10000 * 4000);
	assert_int_equal(p->peak.blocks, 10000);
	assert_int_equal(p->callers[1].peak.bytes, 5000 * 4000);
	assert_int_equal(p->callers[1].peak.blocks, 5000);
	assert_int_equal(p->live.blocks, 100);
	/* Stamps are 64 calls apart. */
	assert_in_range(p->at.blocks, 5000, 5064);
	assert_int_equal(p->callers[1].at.blocks + p->callers[2].at.blocks, p->at.blocks);
	assert_int_equal(verdict_of(&sum), SCRY_MALLOC_VERDICT_RETAINS);
	scry_malloc_sum_done(&sum);
	golden_check(fd, "malloc", "malloc_retention.txt", &opts);
	opts.at = "end";
	opts.grep = "evil";
	golden_check(fd, "malloc", "malloc_end.txt", &opts);
	opts.at = "100ms";
	golden_check(fd, "malloc", "malloc_then.json", &opts);
	close(fd);
}

/* A program's own malloc has no name that is known: it is told by its file. */
static void own_allocator(void **state)
{
	struct program p = begin();
	struct scry_ev_allocator own = {.pid = PID, .module_str = golden_str(&p.rec, "/srv/own")};
	int fd;

	golden_put(&p.rec, SCRY_EVENT_ALLOCATOR, &own, sizeof(own));
	make(&p, 1, 100);
	fd = finish(&p, 1);
	shows(fd, "\"allocator\": \"/srv/own\"");
	close(fd);
}

/* Small blocks: what is rounded up and their heads are malloc's too. */
static void small_blocks(void **state)
{
	struct program p = begin();
	struct scry_malloc_process *process;
	struct scry_malloc_sum sum;
	int fd;

	for (int i = 0; i < 100000; i++)
		make(&p, 1, 8);
	look(&p, 3300000);
	for (int i = 0; i < 100000; i++)
		end_block(&p, make(&p, 1, 8));
	fd = finish(&p, 300000);
	sum = sum_of(fd, 0);
	process = scry_malloc_sum_main(&sum);
	assert_int_equal(process->peak.bytes, 100001 * 8);
	assert_int_equal(process->taken, 100000 * 32);
	assert_int_equal(process->taken_peak, 100001 * 32);
	assert_int_equal(verdict_of(&sum), SCRY_MALLOC_VERDICT_FRAGMENTS);
	scry_malloc_sum_done(&sum);
	shows(fd, "\"rss_explained_pct\": 97,");
	close(fd);
}

/* Blocks that were there before are no growth, no calls and no lives of the recording. */
static void older(void **state)
{
	struct program p = begin();
	struct scry_malloc_process *process;
	struct scry_malloc_sum sum;
	uint32_t found[1000];
	int fd;

	for (int i = 0; i < 1000; i++)
		found[i] = call(&p, (struct scry_ev_malloc){.function = SCRY_MALLOC_OLDER,
							    .size = 4000,
							    .usable = 4008});
	look(&p, 4500000);
	for (int i = 0; i < 1000; i++)
		end_block(&p, make(&p, 1, 64));
	for (int i = 0; i < 10; i++)
		call(&p, (struct scry_ev_malloc){
				 .function = SCRY_MALLOC_FREE, .thread = 2, .block = found[i]});
	look(&p, 4500000);
	fd = finish(&p, 2010);
	sum = sum_of(fd, 0);
	process = scry_malloc_sum_main(&sum);
	assert_int_equal(process->calls, 2010);
	assert_int_equal(process->allocated, 1000);
	assert_int_equal(process->bytes, 64000);
	assert_int_equal(process->ended, 1010);
	assert_int_equal(process->lived, 1000);
	assert_int_equal(process->short_lived, 1000);
	assert_int_equal(process->foreign_ends, 0);
	assert_int_equal(process->live.bytes, 990 * 4000);
	assert_false(grows(process, 0));
	assert_int_equal(verdict_of(&sum), SCRY_MALLOC_VERDICT_STEADY);
	scry_malloc_sum_done(&sum);
	shows(fd, "\"short_lived_pct\": 100,");
	close(fd);
}

/* Memory that was there before, none of whose blocks were found: not "not malloc's". */
static void older_unknown(void **state)
{
	struct scry_ev_memory memory = {.pid = PID, .rss_anon = 80000000};
	struct program p = begin();
	struct scry_event head = {.type = SCRY_EVENT_MEMORY, .time_ns = p.time_ns};
	struct scry_buf buf = {0};
	struct scry_malloc_sum sum;
	int fd;

	assert_int_equal(scry_writer_payload(p.rec.w, &head, &memory, sizeof(memory)), 0);
	for (int i = 0; i < 1000; i++)
		end_block(&p, make(&p, 1, 64));
	look(&p, 80000000);
	fd = finish(&p, 2000);
	sum = sum_of(fd, 0);
	assert_int_equal(scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf),
			 SCRY_MALLOC_VERDICT_UNKNOWN);
	assert_non_null(strstr(buf.data, "76.3 MiB were resident before the first call"));
	assert_null(strstr(buf.data, "explains only"));
	scry_buf_done(&buf);
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* What a fork child had from its parent is not "not malloc's", however little it calls itself. */
static void fork_child(void **state)
{
	const struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_producer producer = {PID + 1, 0, 6};
	struct scry_ev_memory memory = {.pid = PID + 1, .rss_anon = 60000000};
	struct program parent = begin(), child;
	struct scry_buf buf = {0};
	struct scry_malloc_process *p;
	struct scry_malloc_sum sum;
	int fd;

	for (int i = 0; i < 60; i++)
		make(&parent, 1, 1000000);
	assert_int_equal(scry_malloc_pack_write(parent.pack, parent.rec.w), 0);
	child = parent;
	assert_int_equal(scry_malloc_pack_fork(parent.pack, &producer, &child.pack), 0);
	for (int i = 0; i < 1000; i++)
		end_block(&child, make(&child, 1, 1500));
	assert_int_equal(scry_malloc_pack_write(child.pack, child.rec.w), 0);
	golden_put(&child.rec, SCRY_EVENT_MEMORY, &memory, sizeof(memory));
	scry_malloc_pack_free(child.pack);
	fd = finish(&parent, 2060);
	sum = sum_of(fd, 0);
	p = scry_malloc_sum_main(&sum);
	assert_int_equal(p->pid, PID + 1);
	assert_true(p->rss_peak > 0);
	assert_int_equal(p->functions[SCRY_MALLOC_OLDER], 60);
	assert_int_equal(p->live.bytes, 60000000);
	assert_int_equal(p->unknown_ends, 0);
	assert_int_equal(scry_malloc_verdict(p, &buf), SCRY_MALLOC_VERDICT_STEADY);
	assert_null(strstr(buf.data, "explains only"));
	scry_buf_clear(&buf);
	golden_show(fd, "malloc", "x.txt", &opts, &buf);
	assert_non_null(strstr(buf.data, "scry malloc: 2 processes"));
	scry_buf_done(&buf);
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* All that the recorder gives are told apart. */
static void many_callers(void **state)
{
	struct program p = begin();
	uint64_t sizes = 0;
	struct scry_malloc_process *process;
	struct scry_malloc_sum sum;
	int fd;

	put_caller(&p.rec, (1u << 19) - 1, "last", 0);
	make(&p, (1u << 19) - 1, 100);
	make(&p, 1u << 19, 50);
	fd = finish(&p, 2);
	sum = sum_of(fd, 0);
	process = scry_malloc_sum_main(&sum);
	assert_int_equal(process->callers[0].allocated, 0); /* nobody */
	for (uint32_t i = 1; i < process->caller_count; i++)
		if (process->callers[i].name.caller >= (1u << 19) - 1)
			sizes += process->callers[i].peak.bytes * process->callers[i].allocated;
	assert_int_equal(sizes, 150);
	scry_malloc_sum_done(&sum);
	shows(fd, "\"symbol\": \"last\"");
	close(fd);
}

/* It was looked at in its beginning only: that says nothing of its peak. */
static void looked_at_early(void **state)
{
	struct scry_ev_memory memory = {.pid = PID, .rss_anon = 700000};
	struct program p = begin();
	struct scry_event head = {.type = SCRY_EVENT_MEMORY, .time_ns = p.time_ns};
	struct scry_buf buf = {0};
	struct scry_malloc_sum sum;
	int fd;

	head.time_ns += 1000000;
	assert_int_equal(scry_writer_payload(p.rec.w, &head, &memory, sizeof(memory)), 0);
	for (int i = 0; i < 5000; i++)
		make(&p, 1, 4000);
	fd = finish(&p, 5000);
	sum = sum_of(fd, 0);
	scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf);
	assert_non_null(strstr(buf.data, "at the last look, 99 ms before the last call, when "));
	scry_buf_done(&buf);
	scry_malloc_sum_done(&sum);
	shows(fd, "\"rss_explained_pct\": null,");
	close(fd);
}

/* Resized by another caller, freed by another thread, failed, NULL, unknown. */
static void odd_calls(void **state)
{
	struct program p = begin();
	uint32_t block = make(&p, 1, 10);
	struct scry_malloc_process *process;
	struct scry_malloc_sum sum;
	int fd;

	call(&p, (struct scry_ev_malloc){.function = SCRY_MALLOC_REALLOC,
					 .flags = SCRY_MALLOC_MOVED,
					 .caller = 2,
					 .size = 5000,
					 .block = block});
	call(&p, (struct scry_ev_malloc){.function = SCRY_MALLOC_REALLOC,
					 .flags = SCRY_MALLOC_FAILED,
					 .caller = 1,
					 .size = UINT64_MAX,
					 .block = block});
	call(&p, (struct scry_ev_malloc){.function = SCRY_MALLOC_FREE, .flags = SCRY_MALLOC_NULL});
	call(&p,
	     (struct scry_ev_malloc){.function = SCRY_MALLOC_FREE, .flags = SCRY_MALLOC_UNKNOWN});
	call(&p,
	     (struct scry_ev_malloc){.function = SCRY_MALLOC_FREE, .thread = 2, .block = block});
	fd = finish(&p, 6);
	sum = sum_of(fd, 0);
	process = scry_malloc_sum_main(&sum);
	assert_int_equal(process->peak.bytes, 5000);
	assert_int_equal(process->callers[1].peak.bytes, 0);
	assert_int_equal(process->callers[2].peak.bytes, 5000);
	assert_int_equal(process->live.bytes, 0);
	assert_int_equal(process->ended, 1);
	assert_int_equal(process->foreign_ends, 1);
	assert_int_equal(process->failed, 1);
	assert_int_equal(process->null_frees, 1);
	assert_int_equal(process->unknown_ends, 1);
	assert_int_equal(process->moved, 1);
	assert_int_equal(verdict_of(&sum), SCRY_MALLOC_VERDICT_UNKNOWN);
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* A recording of which something cannot be read is not complete. */
static void not_complete(void **state)
{
	struct scry_event head = {.type = SCRY_EVENT_MALLOC};
	struct scry_ev_malloc loose = {.pid = PID};
	struct program p = begin();
	int fd;

	make(&p, 1, 100);
	fd = finish(&p, 1);
	shows(fd, "\"is_complete\": true");
	close(fd);
	p = begin();
	make(&p, 1, 100);
	assert_int_equal(scry_writer_payload(p.rec.w, &head, &loose, sizeof(loose)), 0);
	fd = finish(&p, 1);
	shows(fd, "\"is_complete\": false");
	close(fd);
}

/* What the kernel said stands before the calls of its time: it waits for them. */
static void early_look(void **state)
{
	struct scry_ev_memory memory = {.pid = PID, .rss_anon = 5000000};
	struct scry_event head = {.type = SCRY_EVENT_MEMORY};
	struct program p = begin();
	struct scry_malloc_process *process;
	struct scry_malloc_sum sum;
	int fd;

	head.time_ns = p.time_ns + 1000ull * 20000;
	assert_int_equal(scry_writer_payload(p.rec.w, &head, &memory, sizeof(memory)), 0);
	for (int i = 0; i < 2000; i++)
		make(&p, 1, 1000);
	fd = finish(&p, 2000);
	sum = sum_of(fd, 0);
	process = scry_malloc_sum_main(&sum);
	assert_int_equal(process->rss, 5000000);
	assert_in_range(process->rss_live, 930 * 1000, 1070 * 1000); /* stamps: each 64 calls */
	scry_malloc_sum_done(&sum);
	close(fd);
}

static const struct scry_malloc_caller_sum *caller_sum(const struct scry_malloc_process *p,
						       uint32_t id)
{
	for (uint32_t i = 0; i < p->caller_count; i++)
		if (p->callers[i].name.caller == id)
			return &p->callers[i];
	fail();
	return NULL;
}

/* Ids are the recording's: a great one costs no more than a small one. */
static void great_ids(void **state)
{
	struct scry_malloc_sum sum = {0};
	struct {
		struct scry_event head;
		struct scry_ev_caller caller;
	} told = {.head.type = SCRY_EVENT_CALLER, .caller.caller = UINT32_MAX};
	struct {
		struct scry_event head;
		struct scry_ev_stack stack;
	} stack = {.head.type = SCRY_EVENT_STACK, .stack = {.id = (1u << 24) - 1}};

	for (told.caller.pid = 1; told.caller.pid <= 100; told.caller.pid++)
		assert_int_equal(scry_malloc_sum_event(&sum, &told.head), 0);
	assert_int_equal(scry_malloc_sum_event(&sum, &stack.head), 0);
	assert_int_equal(sum.count, 100);
	assert_in_range(sum.bytes, 1, 5u << 18);
	assert_int_equal(caller_sum(sum.processes[0], UINT32_MAX)->name.pid, 1);
	assert_in_range(sum.stacks.cap, 1, 4096);
	scry_malloc_sum_done(&sum);
}

/* Figures of callers at the peak, against a count that copies all at each new peak. */
static void peak_of_callers(void **state)
{
	struct program p = begin();
	uint64_t live[8] = {0}, at_peak[8] = {0}, all = 0, peak = 0, rng = 7;
	struct {
		uint32_t block, caller, size;
	} held[500];
	struct scry_malloc_sum sum;
	uint32_t count = 0;
	int fd;

	for (int i = 0; i < 50000; i++) {
		rng = rng * 6364136223846793005u + 1442695040888963407u;
		if (count < 500 && (count == 0 || rng >> 63)) {
			uint32_t caller = (uint32_t)(rng >> 33) % 8,
				 size = (uint32_t)(rng >> 40) % 900;

			held[count].block = make(&p, caller, size);
			held[count].caller = caller;
			held[count++].size = size;
			live[caller] += size;
			all += size;
		} else {
			uint32_t at = (uint32_t)(rng >> 33) % count;

			end_block(&p, held[at].block);
			live[held[at].caller] -= held[at].size;
			all -= held[at].size;
			held[at] = held[--count];
		}
		if (all > peak) {
			peak = all;
			memcpy(at_peak, live, sizeof(live));
		}
	}
	fd = finish(&p, 50000);
	sum = sum_of(fd, 0);
	assert_int_equal(scry_malloc_sum_main(&sum)->peak.bytes, peak);
	for (int i = 0; i < 8; i++) {
		const struct scry_malloc_caller_sum *c =
			caller_sum(scry_malloc_sum_main(&sum), (uint32_t)i);

		assert_int_equal(c->peak.bytes, at_peak[i]);
		assert_int_equal(c->live.bytes, live[i]);
	}
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* A stack whose outermost frames are shorter than the dots in their place. */
static void short_stack(void **state)
{
	static const char *const names[] = {"f", "g", "h", "i", "innermost"};
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_ev_caller caller = {.caller = 3, .pid = PID, .stack = 5};
	struct program p = begin();
	struct scry_buf page = {0};
	int fd;

	for (uint32_t i = 0; i < 5; i++) {
		struct scry_ev_stack frame = {.id = i + 1,
					      .parent = i,
					      .flags = SCRY_STACK_NATIVE,
					      .method_str = golden_str(&p.rec, names[i])};

		golden_put(&p.rec, SCRY_EVENT_STACK, &frame, sizeof(frame));
	}
	golden_put(&p.rec, SCRY_EVENT_CALLER, &caller, sizeof(caller));
	make(&p, 3, 100);
	fd = finish(&p, 1);
	opts.by = SCRY_VIEW_BY_STACK;
	golden_show(fd, "malloc", "x.txt", &opts, &page);
	assert_non_null(strstr(page.data, " of it came from f > g > h > i > innermost"));
	scry_buf_done(&page);
	close(fd);
}

static void nothing(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	struct program p = begin();
	int fd = finish(&p, 0);

	golden_check(fd, "malloc", "malloc_nothing.txt", &opts);
	opts.at = "noon";
	assert_int_equal(scry_view_opts_check(&opts), -EINVAL);
	assert_non_null(strstr(scry_error(), "noon"));
	opts.at = "1.5s";
	assert_int_equal(scry_view_opts_check(&opts), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leak),		 cmocka_unit_test(retention),
		cmocka_unit_test(odd_calls),	 cmocka_unit_test(nothing),
		cmocka_unit_test(great_ids),	 cmocka_unit_test(peak_of_callers),
		cmocka_unit_test(early_look),	 cmocka_unit_test(not_complete),
		cmocka_unit_test(older),	 cmocka_unit_test(older_unknown),
		cmocka_unit_test(fork_child),	 cmocka_unit_test(small_blocks),
		cmocka_unit_test(own_allocator), cmocka_unit_test(looked_at_early),
		cmocka_unit_test(many_callers),	 cmocka_unit_test(short_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
