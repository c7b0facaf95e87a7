/* See seccomp.h. */
#include "sys/seccomp.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/jail.h"
#include "sys/proc.h"

bool scry_seccomp_has(pid_t pid, pid_t tid)
{
	char path[64], text[8192];
	const char *line;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	line = strstr(text, "\nSeccomp:");
	return line && strtol(line + sizeof("\nSeccomp:") - 1, NULL, 10) != 0 &&
	       !scry_jail_has(pid); /* that filter is ours, and ends no thread */
}

bool scry_seccomp_any(pid_t pid)
{
	pid_t *tids = NULL;
	ssize_t n = scry_proc_tasks(pid, &tids);
	bool any = false;

	for (ssize_t i = 0; i < n && !any; i++)
		any = scry_seccomp_has(pid, tids[i]);
	free(tids);
	return any;
}
