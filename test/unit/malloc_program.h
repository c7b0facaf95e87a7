/*
 * A program that makes calls of malloc by itself, recorded, and what is shown of it. begin, calls,
 * finish; the caller closes the fd.
 */
#ifndef SCRY_TEST_MALLOC_PROGRAM_H
#define SCRY_TEST_MALLOC_PROGRAM_H

#include "golden.h"
#include "rec/malloc_pack.h"
#include "view/malloc_growth.h"
#include "view/malloc_sum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PID 4711u

struct program { /* that makes calls by itself */
	struct golden rec;
	struct scry_malloc_pack *pack;
	uint64_t time_ns;
};

static inline void put_caller(struct golden *rec, uint32_t id, const char *symbol, uint32_t line)
{
	struct scry_ev_caller caller = {
		.caller = id,
		.pid = PID,
		.module_str = golden_str(rec, "/usr/lib/libapp.so.1"),
		.symbol_str = golden_str(rec, symbol),
		.offset = 0x1c,
	};

	if (line) {
		caller.file_str = golden_str(rec, "app/evil\x1b[2J.rb");
		caller.line = line;
		caller.method_str = golden_str(rec, "load");
	}
	golden_put(rec, SCRY_EVENT_CALLER, &caller, sizeof(caller));
}

static inline struct program begin(void)
{
	const struct scry_producer producer = {PID, 0, 5};
	struct program p = {.rec = golden_begin(), .time_ns = GOLDEN_START_NS + 1000000};
	struct scry_ev_allocator allocator = {
		.pid = PID,
		.module_str = golden_str(&p.rec, "/lib/x86_64-linux-gnu/libc.so.6"),
		.name_str = golden_str(&p.rec, "glibc 2.36"),
	};
	struct scry_ev_thread thread = {1, PID, PID, golden_str(&p.rec, "main")};

	golden_beginning(&p.rec, "malloc", PID);
	golden_put(&p.rec, SCRY_EVENT_ALLOCATOR, &allocator, sizeof(allocator));
	golden_put(&p.rec, SCRY_EVENT_THREAD, &thread, sizeof(thread));
	put_caller(&p.rec, 1, "parse", 0);
	put_caller(&p.rec, 2, "cache_add", 12);
	assert_int_equal(scry_malloc_pack_new(&producer, &p.pack), 0);
	return p;
}

static inline uint32_t call(struct program *p, struct scry_ev_malloc call)
{
	uint32_t block;

	call.thread = call.thread ? call.thread : 1;
	p->time_ns += 20000;
	assert_int_equal(scry_malloc_pack_add(p->pack, p->time_ns, &call, &block), 0);
	return block;
}

static inline uint32_t make(struct program *p, uint32_t caller, uint64_t size)
{
	return call(p,
		    (struct scry_ev_malloc){.function = SCRY_MALLOC_MALLOC,
					    .caller = caller,
					    .size = size,
					    .usable = size < 24 ? 24 : (size + 23) / 16 * 16 - 8});
}

static inline void end_block(struct program *p, uint32_t block)
{
	call(p, (struct scry_ev_malloc){.function = SCRY_MALLOC_FREE, .block = block});
}

static inline void look_at(struct program *p, uint64_t rss, uint64_t held)
{
	struct scry_ev_memory memory = {.pid = PID, .threads = 1, .rss_anon = rss, .held = held};
	struct scry_event head = {.type = SCRY_EVENT_MEMORY, .time_ns = p->time_ns};

	assert_int_equal(scry_malloc_pack_write(p->pack, p->rec.w), 0);
	assert_int_equal(scry_writer_payload(p->rec.w, &head, &memory, sizeof(memory)), 0);
}

static inline void look(struct program *p, uint64_t rss)
{
	look_at(p, rss, 0);
}

static inline int finish(struct program *p, uint64_t calls)
{
	assert_int_equal(scry_malloc_pack_write(p->pack, p->rec.w), 0);
	golden_totals(&p->rec, PID, calls);
	scry_malloc_pack_free(p->pack);
	return golden_end(&p->rec);
}

static inline struct scry_malloc_sum sum_of(int fd, uint64_t at_ns)
{
	struct scry_malloc_sum sum = {
		.began_ns = GOLDEN_START_NS, .has_at = at_ns != 0, .at_ns = at_ns};
	const struct scry_event *event;
	struct scry_reader *r;

	assert_int_equal(scry_reader_open(fd, &r), 0);
	sum.reader = r;
	while (scry_reader_next(r, &event) > 0)
		assert_int_equal(scry_malloc_sum_event(&sum, event), 0);
	sum.reader = NULL;
	scry_malloc_sum_close(&sum);
	scry_reader_close(r);
	return sum;
}

static inline bool grows(const struct scry_malloc_process *p, uint32_t caller)
{
	struct scry_malloc_growth growth;

	return scry_malloc_caller_growth(p, &p->callers[caller], &growth);
}

/* The view of it, as JSON, has this. */
static inline void shows(int fd, const char *what)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_buf page = {0};

	golden_show(fd, "malloc", "x.json", &opts, &page);
	assert_non_null(strstr(page.data, what));
	scry_buf_done(&page);
}

#endif
