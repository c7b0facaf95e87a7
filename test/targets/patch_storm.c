/* Puts patch 'ucontext' into a running process and takes it out again, over and over, by the engine
 * itself: what hundreds of `scry patch apply` and `undo` would do, without the watch before.
 *
 *   patch_storm [-n CYCLES] [-t HOLD_US] [-a] [-f] [-o FILE.so] PID
 *
 * -o: that patch instead. -a: puts it in and leaves it there; -f: in a child, which may be killed
 * (killer.c). Each time it is entered and left anew, as scry does. The last line is "cycles N left
 * BYTES pause MAX us". Exit 0: every cycle was done. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "patch/apply.h"
#include "patch/ucontext.h"

#define MAX_PAUSE_NS 500000000u

static uint64_t left, pause_ns;
static const char *file; /* -o */
static struct scry_patch_file patch_file;

/* Enters, does it, leaves. */
static int within(const struct scry_proc *proc, uint64_t near,
		  int (*work)(struct scry_inject *inj, void *arg), void *arg)
{
	struct scry_inject inj = {.lock = -1, .mem.fd = -1};
	struct scry_undo_report report;
	uint64_t agent;
	int gone, r = scry_inject_lock(&inj, proc);

	inj.max_pause_ns = MAX_PAUSE_NS;
	if (r == 0)
		r = scry_inject_enter(&inj, near, NULL);
	if (r == 0)
		r = work(&inj, arg);
	gone = inj.control ? scry_inject_leave(&inj, &report, &agent) : 0;
	pause_ns = inj.pause_max_ns > pause_ns ? inj.pause_max_ns : pause_ns;
	scry_inject_done(&inj);
	return r < 0 ? r : gone;
}

static int put_file_in(struct scry_inject *inj, void *arg)
{
	struct scry_lasting patch;
	int r = scry_patch_file_put_on(arg, inj, &patch);

	scry_edit_close(&patch.edit);
	return r;
}

static int put_in(struct scry_inject *inj, void *arg)
{
	struct scry_lasting patch;
	uint64_t mask;
	size_t threads;
	int r = scry_ucontext_common_mask(inj, &mask, &threads);

	if (r == 0)
		r = scry_ucontext_apply(arg, inj, mask, &patch);
	if (r == 0)
		r = scry_ucontext_start(&inj->mem, &patch.head);
	scry_edit_close(&patch.edit);
	return r;
}

static int take_out(struct scry_inject *inj, void *arg)
{
	struct scry_lasting patch = {0};
	struct scry_patch_head head;
	struct scry_undo_report report;
	const char *why = NULL;
	int r;

	(void)arg;
	scry_maps_done(&inj->maps);
	r = scry_maps_read(inj->proc->pid, &inj->maps);
	if (r == 0)
		r = scry_lasting_find(&inj->mem, &inj->maps,
				      file ? patch_file.name : SCRY_UCONTEXT_NAME, &head);
	if (r == 0)
		r = scry_lasting_open(&patch, inj, &head);
	if (r == 0)
		r = scry_lasting_off(&patch, inj, &report, &left, &why);
	scry_lasting_close(&patch);
	return r;
}

static int turn(const struct scry_proc *proc, unsigned long hold_us, int only_in)
{
	const struct timespec hold = {.tv_nsec = (long)hold_us * 1000};
	struct scry_ucontext u;
	int r;

	if (file) {
		r = scry_patch_file_open(&patch_file, file, proc,
					 &(struct scry_patch_risks){true, true});
		if (r == 0)
			r = within(proc, patch_file.near, put_file_in, &patch_file);
		scry_patch_file_close(&patch_file);
	} else {
		r = scry_ucontext_find(&u, proc);
		if (r == 0)
			r = within(proc, u.at[2], put_in, &u);
		scry_ucontext_close(&u);
	}
	nanosleep(&hold, NULL);
	return r < 0 || only_in ? r : within(proc, 0, take_out, NULL);
}

static int in_child(void)
{
	int status = 1;
	pid_t pid = fork();

	if (pid > 0) {
		waitpid(pid, &status, 0);
		exit(status != 0);
	}
	return pid;
}

int main(int argc, char **argv)
{
	unsigned long cycles = 1, hold_us = 1000, done = 0;
	struct scry_proc proc;
	int option, only_in = 0, r = 0;

	while ((option = getopt(argc, argv, "n:t:afo:")) != -1)
		switch (option) {
		case 'n':
			cycles = strtoul(optarg, NULL, 10);
			break;
		case 't':
			hold_us = strtoul(optarg, NULL, 10);
			break;
		case 'a':
			only_in = 1;
			break;
		case 'o':
			file = optarg;
			break;
		case 'f':
			r = in_child();
			break;
		default:
			return 2;
		}
	if (optind + 1 != argc) {
		fprintf(stderr, "patch_storm: a process is wanted\n");
		return 2;
	}
	r = scry_proc_open(&proc, (pid_t)atoi(argv[optind]));
	for (; done < cycles && r == 0; done += r == 0)
		r = turn(&proc, hold_us, only_in);
	if (r < 0)
		fprintf(stderr, "patch_storm: %s\n", *scry_error() ? scry_error() : strerror(-r));
	printf("cycles %lu left %llu pause %llu us\n", done, (unsigned long long)left,
	       (unsigned long long)pause_ns / 1000);
	return r < 0;
}
