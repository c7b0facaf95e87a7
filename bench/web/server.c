/*
 * fiber_web fiber|pthread|copy PORT: a small HTTP server that says hi, with a thread of some kind
 * for each connection. The same function serves a connection in all ways; what differs is how it
 * waits. bench/web/run measures it.
 */
#include "web.h"

#include "fiber/scry_fiber.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MOST 4096

static const char answer[] =
	"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi";

static bool write_all(int fd, const char *text, size_t size, web_wait *wait)
{
	while (size > 0) {
		ssize_t wrote = write(fd, text, size);

		if (wrote > 0) {
			text += wrote;
			size -= wrote;
		} else if (errno != EAGAIN && errno != EINTR) {
			return false;
		} else if (errno == EAGAIN && !wait(fd, true)) {
			return false;
		}
	}
	return true;
}

/* Requests end with an empty line and have no body; a longer one than fits, or a reset, ends the
 * connection. */
void web_serve(int fd, web_wait *wait)
{
	char request[REQUEST_MOST];
	size_t held = 0;

	for (;;) {
		ssize_t got = read(fd, request + held, sizeof(request) - held);
		char *end;

		if (got < 0 && errno == EAGAIN && wait(fd, false))
			continue;
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return;
		held += got;
		while ((end = memmem(request, held, "\r\n\r\n", 4)) != NULL) {
			size_t used = end + 4 - request;

			if (!write_all(fd, answer, sizeof(answer) - 1, wait))
				return;
			memmove(request, request + used, held - used);
			held -= used;
		}
		if (held == sizeof(request))
			return;
	}
}

int web_listen(int port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
	struct sockaddr_in here = {.sin_family = AF_INET,
				   .sin_port = htons(port),
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0 ||
	    listen(fd, 4096) != 0) {
		perror("fiber_web: listen");
		exit(1);
	}
	return fd;
}

static bool fiber_wait(int fd, bool is_write)
{
	return scry_fiber_wait(fd, is_write ? SCRY_FIBER_WRITE : SCRY_FIBER_READ,
			       SCRY_FIBER_FOREVER) > 0;
}

static void *fiber_serve(void *arg)
{
	int fd = (int)(intptr_t)arg;

	web_serve(fd, fiber_wait);
	scry_fiber_forget(fd);
	close(fd);
	return NULL;
}

static void by_fibers(int listener)
{
	struct scry_fiber_attr attr = {.name = "connection", .is_detached = 1};

	if (scry_fiber_open(&(struct scry_fiber_sched_attr){.size_bytes = 64 << 10}, NULL) != 0)
		exit(1);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			fiber_wait(listener, false);
		else if (scry_fiber_spawn(&attr, fiber_serve, (void *)(intptr_t)fd, NULL) != 0)
			close(fd);
	}
}

static bool thread_wait(int fd, bool is_write)
{
	return false; /* its descriptors block */
}

static void *thread_serve(void *arg)
{
	int fd = (int)(intptr_t)arg;

	web_serve(fd, thread_wait);
	close(fd);
	return NULL;
}

static void by_threads(int listener)
{
	pthread_attr_t attr;

	/* it waits in accept; descriptors that are accepted block, too */
	fcntl(listener, F_SETFL, 0);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		pthread_t thread;

		if (fd >= 0 &&
		    pthread_create(&thread, &attr, thread_serve, (void *)(intptr_t)fd) != 0)
			close(fd);
	}
}

int main(int argc, char **argv)
{
	int listener;

	if (argc != 3) {
		fprintf(stderr, "usage: fiber_web fiber|pthread|copy PORT\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	listener = web_listen(atoi(argv[2]));
	if (strcmp(argv[1], "fiber") == 0)
		by_fibers(listener);
	else if (strcmp(argv[1], "pthread") == 0)
		by_threads(listener);
	else if (strcmp(argv[1], "copy") == 0)
		web_by_copying(listener);
	return 2;
}
