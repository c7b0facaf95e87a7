/*
 * Connections on threads that share one stack, as Ruby 1.8 had them: who waits is copied to the
 * heap, and back when its descriptor is ready. The loop that waits for all stands above what
 * threads have on the stack.
 */
#include "web.h"

#include <errno.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SPILLED 512 /* below a frame: what the compiler keeps there */
#define ROOM 1024
#define EVENTS 64

struct thread {
	jmp_buf at;
	char *copy;
	size_t size, room;
	int fd;
};

static struct thread *running;
static jmp_buf loop;
static char *base; /* the end of what threads have on the stack */
static int epoll;

__attribute__((noinline)) static void save(struct thread *thread)
{
	char *sp = (char *)__builtin_frame_address(0) - SPILLED;

	thread->size = base - sp;
	if (thread->size > thread->room) {
		thread->room = thread->size;
		thread->copy = realloc(thread->copy, thread->room);
		if (thread->copy == NULL)
			abort();
	}
	memcpy(thread->copy, sp, thread->size);
}

__attribute__((noinline)) static void put_back(struct thread *thread)
{
	memcpy(base - thread->size, thread->copy, thread->size);
	_longjmp(thread->at, 1);
}

/* From below all that is written. */
__attribute__((noinline)) static void restore(struct thread *thread)
{
	intptr_t missing = (char *)__builtin_frame_address(0) - (base - thread->size);
	volatile char *room = __builtin_alloca(missing > 0 ? missing + ROOM : ROOM);

	room[0] = 0;
	put_back(thread);
}

static bool copy_wait(int fd, bool is_write)
{
	struct epoll_event event = {.events = EPOLLONESHOT | (is_write ? EPOLLOUT : EPOLLIN),
				    .data.ptr = running};

	if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) != 0 &&
	    (errno != ENOENT || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0))
		return false;
	if (_setjmp(running->at) == 0) {
		save(running);
		_longjmp(loop, 1);
	}
	return true;
}

__attribute__((noinline)) static void begin(int fd)
{
	running = calloc(1, sizeof(*running));
	if (running != NULL) {
		running->fd = fd;
		web_serve(fd, copy_wait);
		free(running->copy);
		free(running);
	}
	close(fd);
	_longjmp(loop, 1);
}

/* The next event is taken from where all that outlives a jump lies: not on the stack. */
static struct epoll_event events[EVENTS];
static int count, next;

__attribute__((noinline)) static void run(int listener)
{
	_setjmp(loop);
	base = (char *)__builtin_frame_address(0) - 256;
	for (;;) {
		volatile char *gap = __builtin_alloca(ROOM);

		gap[0] = 0;
		if (next == count) {
			count = epoll_wait(epoll, events, EVENTS, -1);
			next = 0;
			count = count < 0 ? 0 : count;
			_longjmp(loop, 1); /* the gap is given back */
		}
		running = events[next].data.ptr;
		if (running != NULL) {
			next++;
			restore(running);
		}
		/* one connection after the other, until there is none */
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			begin(fd);
		next++;
		_longjmp(loop, 1);
	}
}

void web_by_copying(int listener)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0)
		exit(1);
	run(listener);
}
