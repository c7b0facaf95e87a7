/*
 * A recording of calls that never were (test/unit/malloc_gen), packed as the keeper packs them:
 * malloc_make FILE CALLS [THREADS LIVE CROSS CHURN SIZE_MAX SEED]. Prints what lives at the end:
 * "live BLOCKS BYTES".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "rec/malloc_pack.h"
#include "rec/writer.h"
#include "../unit/malloc_gen.h"

#define PID 4711

static struct malloc_gen gen;
static uint32_t number[MALLOC_GEN_LIVE]; /* the packer's, of the generator's blocks */

static void check(int err)
{
	if (err < 0) {
		fprintf(stderr, "malloc_make: %d %s\n", err, scry_error());
		exit(1);
	}
}

static void heads(struct scry_writer *w)
{
	struct scry_ev_session session = {0};
	struct scry_ev_process process = {.pid = PID};
	struct scry_ev_totals totals = {.pid = PID, .events = gen.calls};
	struct scry_ev_memory memory = {.pid = PID};

	check(scry_writer_string(w, "malloc", 6, &session.instrument_str));
	check(scry_writer_string(w, "/bin/made", 9, &process.exe_str));
	check(scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_SESSION}, &session,
				  sizeof(session)));
	check(scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_PROCESS}, &process,
				  sizeof(process)));
	check(scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_TOTALS}, &totals,
				  sizeof(totals)));
	check(scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_MEMORY}, &memory,
				  sizeof(memory)));
	for (uint32_t i = 1; i <= gen.calls / (gen.churn ? gen.churn : gen.calls) + gen.threads;
	     i++) {
		struct scry_ev_thread thread = {.thread = i, .pid = PID, .tid = PID + i - 1};

		check(scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_THREAD},
					  &thread, sizeof(thread)));
	}
}

static void calls(struct scry_writer *w)
{
	struct scry_producer producer = {.pid = PID, .start_ticks = 1};
	const struct scry_ev_malloc *made;
	struct scry_malloc_pack *p;

	check(scry_malloc_pack_new(&producer, &p));
	for (uint64_t at = 1; gen.source.next(&gen.source, &made) > 0; at++) {
		struct scry_ev_malloc call = *made;
		uint32_t block = call.block;

		if (call.function != SCRY_MALLOC_THREAD_END)
			call.block = number[block];
		check(scry_malloc_pack_add(p, at * 100, &call, &call.block));
		if (call.function != SCRY_MALLOC_THREAD_END)
			number[block] = call.block;
		if (scry_malloc_pack_pending(p) >= SCRY_MALLOC_PACK_BYTES / 2)
			check(scry_malloc_pack_write(p, w));
	}
	check(scry_malloc_pack_write(p, w));
	scry_malloc_pack_free(p);
}

int main(int argc, char **argv)
{
	static const char *const defaults[] = {"100000", "1", "5000", "0", "0", "4096", "1"};
	uint64_t n[7];
	struct scry_writer *w;
	int fd;

	if (argc < 2)
		return 2;
	for (int i = 0; i < 7; i++)
		n[i] = strtoull(argc > i + 2 ? argv[i + 2] : defaults[i], NULL, 10);
	gen = (struct malloc_gen){.calls = n[0],
				  .threads = (uint32_t)n[1],
				  .live = (uint32_t)n[2],
				  .cross = (uint32_t)n[3],
				  .churn = (uint32_t)n[4],
				  .size_max = (uint32_t)n[5],
				  .seed = n[6]};
	malloc_gen_init(&gen);
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return 1;
	check(scry_writer_open(fd, 0, &w));
	heads(w);
	calls(w);
	check(scry_writer_close(w));
	printf("live %u %llu\n", gen.count, (unsigned long long)gen.live_bytes);
	return 0;
}
