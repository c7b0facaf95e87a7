/* Counts by the kernel's uprobe: uprobe PID FILE OFFSET; prints "on", and the count at SIGTERM. */
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct perf_event_attr attr = {.size = sizeof(attr), .sample_period = 0};
	unsigned long long count = 0;
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	sigset_t set;
	int fd, sig;

	if (argc != 4 || !f || fscanf(f, "%u", &attr.type) != 1)
		return 2;
	attr.config1 = (unsigned long long)(size_t)argv[2];
	attr.config2 = strtoull(argv[3], NULL, 0);
	fd = (int)syscall(SYS_perf_event_open, &attr, atoi(argv[1]), -1, -1, 0);
	if (fd < 0) {
		perror("uprobe");
		return 1;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	printf("on\n");
	fflush(stdout);
	sigwait(&set, &sig);
	if (read(fd, &count, 8) != 8)
		return 1;
	printf("%llu\n", count);
	return 0;
}
