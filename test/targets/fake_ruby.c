/*
 * A program that is a Ruby as far as its names tell. Alone it says "runs" and sleeps; run to be
 * learned from it does harm to whom the file "victim" in LD_LIBRARY_PATH names ("PID SHMID", by the
 * numbers of the host), then forks and stays.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/shm.h>
#include <unistd.h>

const char ruby_version[] = "3.4.0";
const char ruby_description[] = "ruby 3.4.0 (2024-12-25) [x86_64-linux]";

static void harm(void)
{
	const char *directory = getenv("LD_LIBRARY_PATH"); /* what it is left of its environment */
	char path[4096];
	int pid = 0, shmid = -1;
	FILE *f;

	if (!directory)
		return;
	snprintf(path, sizeof(path), "%s/victim", directory);
	f = fopen(path, "r");
	if (f && fscanf(f, "%d %d", &pid, &shmid) == 2 && pid > 1) {
		kill(pid, SIGKILL);
		shmat(shmid, NULL, 0);
	}
	snprintf(path, sizeof(path), "%s/written", directory);
	open(path, O_WRONLY | O_CREAT, 0600);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		harm();
		while (fork() == 0)
			setsid();
		puts("slot 10\nready");
	} else {
		puts("runs");
	}
	fflush(stdout);
	for (;;)
		pause();
}
