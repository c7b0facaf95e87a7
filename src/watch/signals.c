/* See signals.h. */
#include "watch/signals.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/inherited.h"

volatile sig_atomic_t scry_front_interrupts;
volatile pid_t scry_front_program;

/* It may have ended while a report was printed: then it was not said yet. */
static bool does_run(pid_t program)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)program, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       !info.si_pid;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	const int err = errno;

	(void)context;
	if (scry_front_program > 0 && info->si_code <= 0 && does_run(scry_front_program))
		kill(scry_front_program, sig);
	else if (++scry_front_interrupts > 1)
		_exit(128 + sig);
	errno = err;
}

void scry_signals_hold(bool all, sigset_t *ret_was)
{
	static const int stops[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < (all ? sizeof(stops) / sizeof(*stops) : 3); i++)
		sigaddset(&set, stops[i]);
	sigprocmask(SIG_BLOCK, &set, ret_was);
}

void scry_front_catch_signals(void)
{
	struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (!scry_inherited_is_ignored(SIGHUP)) /* nohup */
		sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

int scry_front_is_gone(bool is_gone)
{
	return is_gone ? scry_fail(-ESRCH, "the target is gone: it ended, or ran another "
					   "program (exec), before the time of -d was over; what "
					   "was seen of it is reported")
		       : 0;
}

int scry_front_status(int err)
{
	switch (-err) {
	case 0:
		return 0;
	case EPERM:
	case EACCES:
		return 3;
	case ENOTSUP:
	case ENOENT:
	case ENOEXEC:
		return 4;
	case ESRCH:
		return 5;
	case EINVAL:
		return SCRY_EXIT_USAGE;
	default:
		return SCRY_EXIT_FAILURE;
	}
}
