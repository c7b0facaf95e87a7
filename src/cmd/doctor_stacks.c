/*
 * `scry doctor`: what sampling of stacks would do here, and whether the layout that was learned
 * holds for the stacks that are there now.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "cmd/doctor.h"
#include "probe/bpf.h"
#include "sample/clock.h"
#include "sample/iseq_events.h"
#include "vm/ruby_symbol.h"

#define TRIES 20 /* of a thread that runs */

/* Is the program for this Ruby's layout taken by the kernel? It is put on no process. */
static int check_clock(const struct scry_ruby *ruby)
{
	const struct scry_clock_opts opts = {.rate = 1000};
	struct scry_samples samples = {.ruby = (struct scry_ruby *)ruby};
	struct scry_clock *c = NULL;
	int err = scry_clock_open(&opts, &c);

	if (!err)
		err = scry_clock_add(c, &samples);
	if (!err)
		scry_clock_remove(c, &samples);
	scry_clock_close(c);
	return err;
}

void scry_doctor_engines(const struct scry_ruby *ruby)
{
	char text[768];
	int err = ruby ? check_clock(ruby) : scry_bpf_check();

	snprintf(text, sizeof(text), "%s%s",
		 err ? "read: " : "bpf: samples running threads by a clock on each processor",
		 err ? scry_error() : "");
	scry_doctor_optional("stacks: engine", !err, text);
	scry_error_clear();
	err = scry_iseq_events_check(ruby);
	snprintf(text, sizeof(text), "%s%s",
		 err ? "read: " : "probe: with that engine, code is named when it is compiled",
		 err ? scry_error() : "");
	scry_doctor_optional("stacks: names", !err, text);
	scry_error_clear();
}

struct seen {
	size_t threads, whole, part, empty, frames;
};

/* The best of some looks. */
static void look_at(struct scry_symbols *s, struct scry_walk *w, const struct scry_ruby *ruby,
		    const struct scry_ruby_thread *t, struct seen *seen)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	enum scry_walk_verdict verdict = SCRY_WALK_REJECTED;
	bool is_named = false;

	for (int i = 0; i < TRIES && !(is_named && verdict == SCRY_WALK_VALID); i++) {
		verdict = scry_walk_collect(w, ruby, t, NULL);
		if (verdict == SCRY_WALK_EMPTY)
			break;
		is_named =
			verdict <= SCRY_WALK_REPAIRED && scry_symbols_name(s, ruby, w, named) == 0;
	}
	seen->threads++;
	seen->empty += verdict == SCRY_WALK_EMPTY;
	seen->whole += is_named && verdict == SCRY_WALK_VALID;
	seen->part += is_named && verdict == SCRY_WALK_REPAIRED;
	seen->frames += is_named ? w->count : 0;
}

void scry_doctor_stacks(const struct scry_ruby *ruby)
{
	struct scry_ruby_thread *threads = NULL;
	struct scry_symbols symbols;
	struct scry_walk walk;
	struct seen seen = {0};
	ssize_t count = scry_ruby_threads(ruby, &threads);
	char text[256];

	if (count < 0) {
		scry_doctor_line("stacks: self-check", false, scry_error(), "");
		scry_error_clear();
		return;
	}
	if (scry_symbols_init(&symbols) == 0) {
		if (scry_walk_init(&walk) == 0) {
			for (ssize_t i = 0; i < count; i++)
				look_at(&symbols, &walk, ruby, &threads[i], &seen);
			scry_walk_done(&walk);
		}
		scry_symbols_done(&symbols);
	}
	free(threads);
	snprintf(text, sizeof(text),
		 "of %zd threads, %zu stacks are whole, %zu partial, %zu empty, %zu unreadable; "
		 "%zu frames, all named",
		 count, seen.whole, seen.part, seen.empty,
		 (size_t)count - seen.whole - seen.part - seen.empty, seen.frames);
	scry_doctor_line("stacks: self-check", seen.whole + seen.part + seen.empty == (size_t)count,
			 text, "run it again: a wrong layout would fail every time");
}
