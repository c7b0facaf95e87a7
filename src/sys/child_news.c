/* See child_news.h. */
#include "sys/child_news.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int news = -1;

static void on_child(int sig)
{
	const uint64_t one = 1;
	const int error = errno;

	(void)sig;
	if (write(news, &one, sizeof(one)) < 0) /* it is full: it can be read all the same */
		errno = error;
}

int scry_child_news_open(void)
{
	struct sigaction sa = {.sa_handler = on_child, .sa_flags = SA_RESTART};

	news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	sigaction(SIGCHLD, &sa, NULL);
	return news;
}

void scry_child_news_take(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}
