/*
 * fiber_clients idle|slow|reset PORT COUNT: clients that are a trouble to servers.
 *
 * idle   opens so many connections, each asks once; says "ready", and holds them until its standard
 * input ends slow   so many send their request byte by byte, all at the same time; each has to be
 * answered reset  so many send half a request, and end it by a reset
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char request[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";

static int connect_to(int port)
{
	struct sockaddr_in there = {.sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&there, sizeof(there)) != 0) {
		perror("fiber_clients: connect");
		exit(1);
	}
	return fd;
}

static void is_answered(int fd)
{
	char text[200];
	ssize_t got = read(fd, text, sizeof(text));

	if (got < 2 || memcmp(text, "HTTP/1.1 200", 12) != 0 ||
	    memcmp(text + got - 2, "hi", 2) != 0) {
		fprintf(stderr, "fiber_clients: no answer, or a wrong one\n");
		exit(1);
	}
}

static void send_all(int fd, const char *text, size_t size)
{
	if (write(fd, text, size) != (ssize_t)size) {
		perror("fiber_clients: write");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int port, count, *fds;

	if (argc != 4 || (count = atoi(argv[3])) < 1 ||
	    (fds = calloc(count, sizeof(*fds))) == NULL) {
		fprintf(stderr, "usage: fiber_clients idle|slow|reset PORT COUNT\n");
		return 2;
	}
	port = atoi(argv[2]);
	for (int i = 0; i < count; i++) {
		fds[i] = connect_to(port);
		if (strcmp(argv[1], "idle") == 0) {
			send_all(fds[i], request, sizeof(request) - 1);
			is_answered(fds[i]);
		} else if (strcmp(argv[1], "reset") == 0) {
			struct linger now = {1, 0};

			send_all(fds[i], request, sizeof(request) / 2);
			setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
			close(fds[i]);
		}
	}
	for (size_t at = 0; strcmp(argv[1], "slow") == 0 && at < sizeof(request) - 1; at++)
		for (int i = 0; i < count; i++)
			send_all(fds[i], request + at, 1);
	for (int i = 0; strcmp(argv[1], "slow") == 0 && i < count; i++)
		is_answered(fds[i]);
	puts("ready");
	fflush(stdout);
	while (strcmp(argv[1], "idle") == 0 && getchar() != EOF)
		;
	return 0;
}
