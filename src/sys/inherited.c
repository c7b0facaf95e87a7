/* See inherited.h. */
#include "sys/inherited.h"

#include <signal.h>
#include <stddef.h>

static struct {
	sigset_t mask, ignored;
	bool is_kept;
} inherited;

void scry_inherited_keep(void)
{
	struct sigaction action;

	sigemptyset(&inherited.ignored);
	for (int i = 1; i <= SIGRTMAX; i++) /* not those of the C library, between the two kinds */
		if (sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
			sigaddset(&inherited.ignored, i);
	inherited.is_kept = sigprocmask(SIG_SETMASK, NULL, &inherited.mask) == 0;
}

/* The mask comes last: what is pending is to meet the dispositions of the program. */
void scry_inherited_give_back(void)
{
	if (!inherited.is_kept)
		return;
	for (int i = 1; i <= SIGRTMAX; i++)
		signal(i, scry_inherited_is_ignored(i) ? SIG_IGN : SIG_DFL);
	sigprocmask(SIG_SETMASK, &inherited.mask, NULL);
}

bool scry_inherited_is_ignored(int signal)
{
	return inherited.is_kept && sigismember(&inherited.ignored, signal) == 1;
}
