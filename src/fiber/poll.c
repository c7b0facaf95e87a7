/*
 * Descriptors that fibers wait for, by epoll. Each wait arms the descriptor once (EPOLLONESHOT), as
 * poll(2) would: what is ready already is reported at once, whatever was read before. An event
 * carries the number that its arming had: what an earlier file of the same number, kept open by a
 * duplicate, reports later is dropped.
 */
#include "fiber/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64 /* taken at once */
#define NS_PER_S 1000000000ll
#define RETRY_NS 10000000ll /* until what could not be had is asked for again */
#define MAIL UINT64_MAX	    /* the data of the event descriptor's event */

int scry_fiber_poll_open(struct scry_fiber_sched *sched)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = MAIL};
	int error;

	sched->epoll = epoll_create1(EPOLL_CLOEXEC);
	sched->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sched->epoll >= 0 && sched->event >= 0 &&
	    epoll_ctl(sched->epoll, EPOLL_CTL_ADD, sched->event, &event) == 0)
		return 0;
	error = -errno;
	scry_fiber_poll_close(sched);
	sched->epoll = sched->event = -1;
	return error;
}

/* By close, which ThreadSanitizer has to see. */
void scry_fiber_poll_close(struct scry_fiber_sched *sched)
{
	int cancelled;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
	if (sched->epoll >= 0)
		close(sched->epoll);
	if (sched->event >= 0)
		close(sched->event);
	pthread_setcancelstate(cancelled, NULL);
}

static int watch_of(struct scry_fiber_sched *sched, int fd, struct scry_fd_watch **ret_watch)
{
	uint32_t room = sched->watch_room;
	struct scry_fd_watch *watches;

	if (fd < 0)
		return -EBADF;
	if ((uint32_t)fd >= room) {
		if (fcntl(fd, F_GETFD) < 0) /* before a wild number asks for much memory */
			return -EBADF;
		room = room == 0 ? 64 : room;
		while (room <= (uint32_t)fd)
			room *= 2;
		watches = realloc(sched->watches, room * sizeof(*watches));
		if (watches == NULL)
			return -ENOMEM;
		memset(watches + sched->watch_room, 0,
		       (room - sched->watch_room) * sizeof(*watches));
		sched->watches = watches;
		sched->watch_room = room;
	}
	*ret_watch = &sched->watches[fd];
	return 0;
}

/* Asks for the next event of a descriptor, for the fibers that wait for it. */
static int arm(struct scry_fiber_sched *sched, int fd, struct scry_fd_watch *watch)
{
	struct epoll_event event = {
		.events = EPOLLONESHOT | (watch->reader != NULL ? EPOLLIN | EPOLLRDHUP : 0) |
			  (watch->writer != NULL ? EPOLLOUT : 0),
		.data.u64 = (uint64_t)++watch->generation << 32 | (uint32_t)fd,
	};

	if (epoll_ctl(sched->epoll, EPOLL_CTL_MOD, fd, &event) == 0 ||
	    (errno == ENOENT && epoll_ctl(sched->epoll, EPOLL_CTL_ADD, fd, &event) == 0))
		return 0;
	return -errno;
}

/* Takes a fiber off its descriptor. */
static void take_off(struct scry_fiber_sched *sched, struct scry_fiber *fiber)
{
	struct scry_fd_watch *watch = &sched->watches[fiber->wait_fd];

	if (watch->reader == fiber)
		watch->reader = NULL;
	if (watch->writer == fiber)
		watch->writer = NULL;
	watch->generation++;
	fiber->is_on_descriptor = 0;
	sched->waiting--;
}

static void finish(struct scry_fiber_sched *sched, struct scry_fiber *fiber, int result)
{
	take_off(sched, fiber);
	scry_fiber_timer_remove(sched, fiber);
	fiber->wait_result = result;
	scry_fiber_queue(sched, fiber);
}

/* The same, and others that wait for the descriptor go on waiting. When that fails he hears
 * nothing, as after a close. */
static void leave(struct scry_fiber_sched *sched, struct scry_fiber *fiber)
{
	struct scry_fd_watch *watch = &sched->watches[fiber->wait_fd];

	take_off(sched, fiber);
	if (watch->reader != NULL || watch->writer != NULL)
		arm(sched, fiber->wait_fd, watch);
}

void scry_fiber_poll_cancel(struct scry_fiber_sched *sched, struct scry_fiber *fiber)
{
	fiber->wait_result = 0;
	if (fiber->is_on_descriptor)
		leave(sched, fiber);
}

static void deliver(struct scry_fiber_sched *sched, const struct epoll_event *event)
{
	uint32_t fd = (uint32_t)event->data.u64, generation = event->data.u64 >> 32;
	struct scry_fiber *reader, *writer;
	struct scry_fd_watch *watch;
	int bits = 0;

	if (fd >= sched->watch_room || sched->watches[fd].generation != generation)
		return;
	watch = &sched->watches[fd];
	if (event->events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
		bits |= SCRY_FIBER_READ;
	if (event->events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
		bits |= SCRY_FIBER_WRITE;
	reader = watch->reader;
	writer = watch->writer;
	if (reader != NULL && (bits & reader->wait_events))
		finish(sched, reader, bits & reader->wait_events);
	if (writer != NULL && writer != reader && (bits & writer->wait_events))
		finish(sched, writer, bits & writer->wait_events);
	if (watch->reader != NULL || watch->writer != NULL)
		arm(sched, fd, watch);
}

/* Before Linux 5.11, and under valgrind 3.19, times are whole milliseconds: rounded up, as no sleep
 * may be too short. */
static int wait_for_events(int epoll, struct epoll_event *events, int64_t timeout_ns)
{
	struct timespec wait = {timeout_ns / NS_PER_S, timeout_ns % NS_PER_S};
	int64_t ms = timeout_ns < 0 ? -1 : (timeout_ns + 999999) / 1000000;
	int count = syscall(SYS_epoll_pwait2, epoll, events, EVENTS, timeout_ns < 0 ? NULL : &wait,
			    NULL, 0);

	if (count >= 0 || errno != ENOSYS)
		return count;
	return syscall(SYS_epoll_wait, epoll, events, EVENTS, ms > INT32_MAX ? INT32_MAX : (int)ms);
}

/*
 * The program has closed what is the scheduler's, as by closefrom(3); the numbers may be another
 * file's by now, and are let go. A fiber that waits for a descriptor waits for it anew, or hears
 * that it is closed.
 */
static int reopen(struct scry_fiber_sched *sched)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = MAIL};
	int error;

	if (epoll_ctl(sched->epoll, EPOLL_CTL_MOD, sched->event, &event) == 0)
		return -EALREADY; /* nothing is wrong with them */
	error = scry_fiber_poll_open(sched);
	if (error != 0)
		return error;
	for (uint32_t fd = 0; fd < sched->watch_room; fd++) {
		struct scry_fd_watch *watch = &sched->watches[fd];
		struct scry_fiber *reader = watch->reader, *writer = watch->writer;

		if ((reader == NULL && writer == NULL) || arm(sched, fd, watch) == 0)
			continue;
		if (reader != NULL)
			finish(sched, reader, -EBADF);
		if (writer != NULL && writer != reader)
			finish(sched, writer, -EBADF);
	}
	return 0;
}

/* Without a descriptor left it is tried again, and until then only time goes by. */
static void reopen_or_wait(struct scry_fiber_sched *sched, int64_t timeout_ns)
{
	int64_t ns = timeout_ns < 0 || timeout_ns > RETRY_NS ? RETRY_NS : timeout_ns;

	if (reopen(sched) != 0)
		syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = ns}, NULL);
}

void scry_fiber_poll(struct scry_fiber_sched *sched, int64_t timeout_ns)
{
	struct epoll_event events[EVENTS];
	int count;

	if (timeout_ns != 0) {
		/* a thread that sends mail looks at this after it has sent it */
		atomic_store(&sched->is_asleep, 1);
		if (atomic_load(&sched->woken) != NULL ||
		    (atomic_load(&sched->mails) != NULL && !sched->is_mail_stuck))
			timeout_ns = 0;
		else if (sched->is_mail_stuck && (timeout_ns < 0 || timeout_ns > RETRY_NS))
			timeout_ns = RETRY_NS;
	}
	count = wait_for_events(sched->epoll, events, timeout_ns);
	if (count < 0 && (errno == EBADF || errno == EINVAL))
		reopen_or_wait(sched, timeout_ns);
	atomic_store(&sched->is_asleep, 0);
	for (int i = 0; i < count; i++) {
		uint64_t rings;

		if (events[i].data.u64 != MAIL)
			deliver(sched, &events[i]);
		else if (syscall(SYS_read, sched->event, &rings, sizeof(rings)) < 0)
			continue; /* rung once more meanwhile: mail is looked at in any case */
	}
	if (count > 0)
		scry_fiber_mail_take(sched);
}

/* Without waiting: poll(2) knows regular files, too. */
static int poll_now(int fd, int events)
{
	struct pollfd one = {.fd = fd,
			     .events = (events & SCRY_FIBER_READ ? POLLIN | POLLRDHUP : 0) |
				       (events & SCRY_FIBER_WRITE ? POLLOUT : 0)};
	int bits = 0;

	if (syscall(SYS_poll, &one, 1, 0) < 0)
		return -errno;
	if (one.revents & POLLNVAL)
		return -EBADF;
	if (one.revents & (POLLIN | POLLRDHUP | POLLERR | POLLHUP))
		bits |= SCRY_FIBER_READ;
	if (one.revents & (POLLOUT | POLLERR | POLLHUP))
		bits |= SCRY_FIBER_WRITE;
	return bits & events;
}

/* Puts the fiber on a descriptor and arms that. 1: it can have no event, as it is a regular file.
 */
static int wait_on(struct scry_fiber_sched *sched, struct scry_fiber *self, int fd, int events)
{
	struct scry_fd_watch *watch;
	int error = watch_of(sched, fd, &watch);

	if (error != 0)
		return error;
	if (((events & SCRY_FIBER_READ) && watch->reader != NULL) ||
	    ((events & SCRY_FIBER_WRITE) && watch->writer != NULL))
		return -EBUSY;
	if (events & SCRY_FIBER_READ)
		watch->reader = self;
	if (events & SCRY_FIBER_WRITE)
		watch->writer = self;
	self->wait_fd = fd;
	self->wait_events = events;
	self->is_on_descriptor = 1;
	sched->waiting++;
	error = arm(sched, fd, watch);
	if (error == 0)
		return 0;
	leave(sched, self);
	return error == -EPERM ? 1 : error;
}

int scry_fiber_wait(int fd, int events, int64_t timeout_ns)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *sched = self->sched;
	int error;

	if (sched == NULL)
		return -EPERM;
	if (events == 0 || (events & ~(SCRY_FIBER_READ | SCRY_FIBER_WRITE)) != 0)
		return -EINVAL;
	if (fd < 0)
		return -EBADF;
	if (timeout_ns == 0)
		return poll_now(fd, events);
	scry_fiber_enter(sched);
	error = wait_on(sched, self, fd, events);
	/* the one that is not open, or no epoll, may be the scheduler's own */
	if ((error == -EINVAL || (error == -EBADF && fcntl(fd, F_GETFD) >= 0)) &&
	    reopen(sched) == 0)
		error = wait_on(sched, self, fd, events);
	if (error == 0 && timeout_ns > 0) {
		error = scry_fiber_timer_add(sched, self, scry_fiber_after(timeout_ns));
		if (error != 0)
			leave(sched, self);
	}
	if (error == 0) {
		self->state = SCRY_STATE_WAITING | sched->keep;
		scry_fiber_go_on(sched);
		return self->wait_result;
	}
	sched->busy = 0;
	return error == 1 ? events : error;
}

int scry_fiber_forget(int fd)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;
	struct scry_fiber *reader, *writer;

	if (sched == NULL)
		return -EPERM;
	if (fd < 0 || (uint32_t)fd >= sched->watch_room)
		return 0;
	scry_fiber_enter(sched);
	reader = sched->watches[fd].reader;
	writer = sched->watches[fd].writer;
	if (reader != NULL)
		finish(sched, reader, -EBADF);
	if (writer != NULL && writer != reader)
		finish(sched, writer, -EBADF);
	sched->watches[fd].generation++;
	epoll_ctl(sched->epoll, EPOLL_CTL_DEL, fd, NULL); /* it may never have been there */
	sched->busy = 0;
	return 0;
}
