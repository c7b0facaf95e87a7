/* See living.h. */
#include "sys/living.h"

#include <stdlib.h>

#include "sys/proc.h"

static int has_ended(pid_t pid, pid_t tid)
{
	const char state = scry_proc_task_state(pid, tid);

	return !state || state == 'Z' || state == 'X';
}

pid_t scry_living_thread(pid_t pid)
{
	pid_t *tids = NULL, living = pid;
	ssize_t n;

	if (scry_proc_task_state(pid, pid) != 'Z')
		return pid;
	n = scry_proc_tasks(pid, &tids);
	for (ssize_t i = 0; i < n && living == pid; i++)
		if (!has_ended(pid, tids[i]))
			living = tids[i];
	if (n >= 0)
		free(tids);
	return living;
}
