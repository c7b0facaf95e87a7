/* Recording for `scry malloc compare`: see malloc_compare.h. */
#include "cmd/malloc_compare.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "cmd/malloc.h"
#include "replan/check.h"

static volatile sig_atomic_t stopped; /* by this signal */
static volatile pid_t recorder;

/* One from the terminal has reached the recorder already. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)context;
	stopped = sig;
	if (recorder > 0 && info->si_code <= 0)
		kill(recorder, sig);
}

/* In a child: what watching leaves in a process ends with it, and stdout is for the comparison. */
static _Noreturn void record(const char *path, bool force, bool is_kept, char *const *command,
			     int count)
{
	/* twice is once */
	const char *same = "--no-lines";
	const char *head[] = {
		"record", same, force ? "--force" : same, is_kept ? same : "--quiet", "-o",
		path,	  "--"};
	enum { HEAD = sizeof(head) / sizeof(head[0]) };
	char **argv = calloc((size_t)count + HEAD + 1, sizeof(*argv));
	int status;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	scry_malloc_check_input();
	if (!argv || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		_exit(125);
	for (int i = 0; i < HEAD; i++)
		argv[i] = (char *)head[i];
	for (int i = 0; i < count; i++)
		argv[HEAD + i] = command[i];
	status = scry_cmd_malloc_record(count + HEAD, argv);
	if (status && *scry_error())
		scry_log_error("%s", scry_error());
	fflush(NULL);
	_exit(status);
}

int scry_malloc_record_to(const char *path, bool force, bool is_kept, char *const *command,
			  int *ret_status)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	struct sigaction before[3];
	int count = 0, status = 0;
	pid_t pid;

	while (command[count])
		count++;
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return scry_fail(-errno, "cannot start a recording: %s", strerror(errno));
	if (!pid)
		record(path, force, is_kept, command, count);
	recorder = pid;
	for (int i = 0; i < 3; i++)
		sigaction(signals[i], &ours, &before[i]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	recorder = 0;
	for (int i = 0; i < 3; i++)
		sigaction(signals[i], &before[i], NULL);
	*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (stopped)
		return scry_fail(-EINTR, "stopped by signal %d while '%s' was recorded",
				 (int)stopped, command[0]);
	if (access(path, R_OK) || (*ret_status >= 125 && *ret_status <= 127))
		return scry_fail(-ENOENT, "'%s' was not recorded: status %d", command[0],
				 *ret_status);
	return 0;
}
