/*
 * Judges a layout on a live Ruby that goes on running.
 *
 * A read of a running VM may be torn, so one bad look proves nothing and one good look does: each
 * rule is tried up to five times. A frame that looks bad is read again, and is judged only while it
 * does not change; a busy thread still shows its older frames. Nothing is stopped or written.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/proc.h"
#include "vm/ruby_iseq.h"
#include "vm/ruby_infer.h"

#define TRIES 5
#define LOOKS 8 /* at one frame */
#define THREADS_JUDGED 64u
#define FRAMES_JUDGED 48u
#define FRAME_MAX 128u

/* Classes that every Ruby exports in a variable, and what they are called. */
static const struct {
	const char *symbol, *name;
} known[] = {
	{"rb_cObject", "Object"},
	{"rb_cString", "String"},
	{"rb_mKernel", "Kernel"},
	{"rb_cThread", "Thread"},
	{"rb_eStandardError", "StandardError"},
	{"rb_mFileTest", "FileTest"},
	{"rb_mProcess", "Process"},
	{"rb_cStat", "File::Stat"},
};

struct tally {
	unsigned int threads, tids; /* judged; of them with a task of the process */
	unsigned int frames, code;  /* judged; of them running Ruby code */
	unsigned int classes;	    /* known ones whose name was right */
	char why[96];
};

static int bad(struct tally *tally, const char *why)
{
	snprintf(tally->why, sizeof(tally->why), "%s", why);
	return -ENOTSUP;
}

static uint64_t word_in(const uint8_t *frame, uint32_t at)
{
	uint64_t word;

	memcpy(&word, frame + at, sizeof(word));
	return word;
}

/* One frame that stood still. */
static int judge_frame(const struct scry_ruby *ruby, const uint8_t *frame, struct tally *tally)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t pc = word_in(frame, l->frame_pc), code = word_in(frame, l->frame_iseq), flags;
	struct scry_ruby_iseq iseq;
	uint32_t pos, line = 0;
	char text[256];
	int err;

	if (scry_mem_u64(&ruby->mem, word_in(frame, l->frame_ep), &flags) || !(flags & 1))
		return bad(tally, "a frame's ep does not point at a flag word");
	tally->frames++;
	if (pc == 0 || code == 0)
		return 0; /* a C method, or one that is being set up */
	if (scry_ruby_iseq_read(ruby, code, &iseq))
		return bad(tally, "a frame's iseq is not an iseq");
	if (scry_ruby_iseq_position(&iseq, pc, &pos))
		return bad(tally, "a frame's pc is not inside its iseq");
	if (scry_ruby_iseq_label(ruby, &iseq, text, sizeof(text)) < 0)
		return bad(tally, "an iseq's label is not a String");
	if (scry_ruby_iseq_path(ruby, &iseq, text, sizeof(text)) < 0)
		return bad(tally, "an iseq's path is not a String");
	err = scry_ruby_iseq_line(ruby, &iseq, pos, &line);
	if ((err && err != -ENOENT) || line > 10000000)
		return bad(tally, "an iseq's line table does not answer");
	tally->code++;
	return 0;
}

/*
 * One frame at `addr` as it was read. Bad once proves nothing, even where the frame is as before:
 * it may have been popped, and pushed again just as it was, while what it points at was read. A
 * wrong layout is bad at each look.
 */
static int judge_slot(const struct scry_ruby *ruby, uint64_t addr, const uint8_t *frame,
		      uint64_t ec, struct tally *tally)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint8_t twin[FRAME_MAX];
	struct tally after;
	uint64_t newest;
	int err = 0;

	for (int i = 0; i < LOOKS; i++) {
		after = *tally;
		err = judge_frame(ruby, frame, &after);
		if (!err)
			break;
		if (scry_mem_read(&ruby->mem, addr, twin, l->frame_size) ||
		    scry_mem_u64(&ruby->mem, ec + l->ec_cfp, &newest))
			return bad(tally, "the control frames cannot be read");
		/* Gone meanwhile, or its slot is not a frame any more? */
		if (addr <= newest || memcmp(frame, twin, l->frame_size) != 0)
			return 0;
	}
	*tally = after;
	return err;
}

/* The newest frames of a thread, oldest of them last. */
static int judge_frames(const struct scry_ruby *ruby, uint64_t cfp, uint64_t end, uint64_t ec,
			struct tally *tally)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	static _Thread_local uint8_t frames[FRAMES_JUDGED * FRAME_MAX];
	uint64_t count = (end - cfp) / l->frame_size;
	int err = 0;

	/* A deep stack: its oldest frames are the quiet ones, but the newest prove cfp. Take the
	 * newest. */
	if (count > FRAMES_JUDGED)
		count = FRAMES_JUDGED;
	if (scry_mem_read(&ruby->mem, cfp, frames, count * l->frame_size))
		return bad(tally, "the control frames cannot be read");
	for (uint64_t i = 0; i < count && !err; i++) {
		uint64_t addr = cfp + i * l->frame_size;

		if (addr + l->frame_size == end)
			break; /* the oldest is a dummy */
		err = judge_slot(ruby, addr, frames + i * l->frame_size, ec, tally);
	}
	return err;
}

static int judge_thread(const struct scry_ruby *ruby, const struct scry_ruby_thread *t,
			struct tally *tally)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t back, stack, size, cfp, end;

	if (t->ec == 0)
		return 0; /* starting or ending */
	if (scry_mem_u64(&ruby->mem, t->ec + l->ec_thread, &back) ||
	    scry_mem_u64(&ruby->mem, t->ec + l->ec_stack, &stack) ||
	    scry_mem_u64(&ruby->mem, t->ec + l->ec_stack_size, &size) ||
	    scry_mem_u64(&ruby->mem, t->ec + l->ec_cfp, &cfp))
		return bad(tally, "a thread's ec cannot be read");
	if (stack == 0 || cfp == 0)
		return 0;
	if (back != t->th)
		return bad(tally, "a thread's ec does not point back at it");
	end = stack + 8 * size;
	if (size > 1u << 26 || cfp <= stack || cfp > end)
		return bad(tally, "a thread's newest frame is not in its stack");
	if ((end - cfp) % l->frame_size)
		return bad(tally, "a thread's stack does not hold whole frames");
	tally->threads++;
	tally->tids += t->tid != 0;
	return judge_frames(ruby, cfp, end, t->ec, tally);
}

/* Names prove the way from a class to its name, and how Strings lie. */
static int judge_classes(const struct scry_ruby *ruby, struct tally *tally)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	char name[64];

	/* Not learned; or the VM boots, and its classes are still without names. */
	if ((!l->class_path && !l->class_path_table && !l->class_ivs) || tally->code == 0)
		return 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		uint64_t at = scry_ruby_symbol(ruby, known[i].symbol), klass;

		if (!at || scry_mem_u64(&ruby->mem, at, &klass) || klass == 0)
			continue;
		if (scry_ruby_class_name(ruby, klass, name, sizeof(name)) != 0 ||
		    strcmp(name, known[i].name) != 0)
			return bad(tally, "a class that is known has another name");
		tally->classes++;
	}
	return 0;
}

/* All threads once. */
static int judge(const struct scry_ruby *ruby, struct tally *tally)
{
	struct scry_ruby_thread *threads = NULL;
	ssize_t n = scry_ruby_threads(ruby, &threads);
	int err = 0;

	if (n < 0) {
		if (n == -ENOTSUP)
			return bad(tally, "the lists of ractors and threads do not close");
		return (int)n;
	}
	if (n == 0) {
		free(threads);
		return -EAGAIN;
	}
	for (ssize_t i = 0; i < n && tally->threads < THREADS_JUDGED && !err; i++)
		err = judge_thread(ruby, &threads[i], tally);
	free(threads);
	/* Without Ruby code the VM is still being made: not all that we would call is there yet. */
	if (!err && (tally->threads == 0 || tally->code == 0))
		err = -EAGAIN;
	if (!err)
		err = judge_classes(ruby, tally);
	/* One may just start or end; M:N threads (th_nt) have a task only while they run. */
	if (!err && ruby->layout.th_tid != SCRY_RUBY_NONE && ruby->layout.th_nt == SCRY_RUBY_NONE &&
	    tally->tids + 2 < tally->threads)
		err = bad(tally, "native ids of threads are not tasks of the process");
	return err;
}

/* A process that ends takes its memory away between one read and the next. */
static bool is_gone(const struct scry_ruby *ruby)
{
	uint64_t at = scry_ruby_symbol(ruby, "ruby_version");
	char byte;

	return !ruby->core && at && scry_mem_read(&ruby->mem, at, &byte, 1) != 0;
}

/* Nothing changes there between two looks: its one thread is held by us, as in its start. */
static bool is_held(const struct scry_ruby *ruby)
{
	struct scry_proc_stat st;
	pid_t *tids = NULL;
	bool is;

	if (ruby->core || scry_proc_stat(ruby->pid, &st) < 0 || st.state != 't' ||
	    scry_proc_tracer(ruby->pid, ruby->pid) != getpid())
		return false;
	is = scry_proc_tasks(ruby->pid, &tids) == 1;
	free(tids);
	return is;
}

static int validate(struct scry_ruby *ruby, bool waits)
{
	struct scry_ruby_check check = {.item = "live threads", .how = "the running target"};
	struct timespec pause = {0, 200000};
	struct tally tally = {0};
	int err = 0;

	for (int i = 0; i < TRIES; i++) {
		tally = (struct tally){0};
		err = judge(ruby, &tally);
		if ((err != -ENOTSUP && err != -EAGAIN) || (err == -EAGAIN && !waits) ||
		    (i == 0 && is_held(ruby)) || is_gone(ruby))
			break;
		nanosleep(&pause, NULL);
	}
	if (err && is_gone(ruby))
		err = scry_proc_fail_gone(ruby->pid);
	ruby->booted = err == 0;
	if (err == -ESRCH)
		return err;
	if (err == -EAGAIN)
		return scry_fail(err, "the Ruby in process %d has not booted yet", (int)ruby->pid);
	check.ok = err == 0;
	snprintf(check.value, sizeof(check.value), "%u threads", tally.threads);
	if (err)
		snprintf(check.proof, sizeof(check.proof), "%s", tally.why);
	else
		snprintf(check.proof, sizeof(check.proof),
			 "%u frames hold, %u Ruby code; %u tids are tasks; %u class names right",
			 tally.frames, tally.code, tally.tids, tally.classes);
	scry_ruby_add_check(ruby, &check);
	if (err == -ENOTSUP)
		return scry_fail(err, "the learned layout does not fit process %d: %s",
				 (int)ruby->pid, tally.why);
	return err;
}

int scry_ruby_validate(struct scry_ruby *ruby)
{
	return validate(ruby, true);
}

int scry_ruby_validate_once(struct scry_ruby *ruby)
{
	return validate(ruby, false);
}
