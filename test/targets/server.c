/* A server whose answers come from libfaulty.so: a line with a number gets "value N" or "error". A
 * thread for each connection, to 127.0.0.1. Prints "pid N port P". */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

extern int table_get(unsigned index, int *ret);

static void *serve(void *arg)
{
	FILE *f = fdopen((int)(long)arg, "r+");
	char line[64];
	int value;

	while (f && fgets(line, sizeof(line), f)) {
		fseek(f, 0, SEEK_CUR);
		if (table_get((unsigned)atoi(line), &value) == 0)
			fprintf(f, "value %d\n", value);
		else
			fprintf(f, "error\n");
		fflush(f);
	}
	if (f)
		fclose(f);
	return NULL;
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 64) ||
	    getsockname(listener, (struct sockaddr *)&at, &size))
		return 1;
	printf("pid %d port %d\n", (int)getpid(), ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd >= 0 && pthread_create(&thread, NULL, serve, (void *)(long)fd) == 0)
			pthread_detach(thread);
	}
}
