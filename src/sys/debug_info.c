/* See debug_info.h. */
#include "sys/debug_info.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/debug_file.h"

#define ANSWER_MS 5000
#define CPU_S 10u
#define MEMORY_MAX (4ull << 30) /* of address space: 64-bit offsets, and files of some GiB */

struct scry_debug_info {
	pid_t pid; /* 0: it has ended, and was waited for */
	int fd;	   /* a packet is a question, or an answer */
	bool has_failed;
};

static int limit(int what, rlim_t to)
{
	const struct rlimit l = {to, to};

	return setrlimit((__rlimit_resource_t)what, &l);
}

/* Nothing of the keeper's is left to it but these: the socket is 3, files of ours follow. */
static void confine(int socket, int files[2], pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	for (int i = 0; i < 2; i++) /* out of the way of 3, 4 and 5 */
		files[i] = files[i] < 0 ? -1 : fcntl(files[i], F_DUPFD, 16);
	socket = fcntl(socket, F_DUPFD, 16);
	dup2(socket, 3);
	for (int i = 0; i < 2; i++)
		if (files[i] >= 0)
			files[i] = dup2(files[i], 4 + i);
	close_range(6, ~0u, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_CPU, CPU_S);
	limit(RLIMIT_AS, MEMORY_MAX);
	limit(RLIMIT_FSIZE, 0);
	for (int signal_ = 1; signal_ < 32; signal_++)
		signal(signal_, SIG_DFL);
}

/* Has it units? */
static Dwarf *begin(int fd)
{
	Dwarf_CU *cu = NULL;
	Dwarf *dwarf = fd < 0 ? NULL : dwarf_begin(fd, DWARF_C_READ);

	if (dwarf && dwarf_get_units(dwarf, NULL, &cu, NULL, NULL, NULL, NULL) == 0)
		return dwarf;
	dwarf_end(dwarf);
	return NULL;
}

static void serve(const int files[2], scry_debug_answer *answer)
{
	static char question[SCRY_DEBUG_QUESTION_MAX + 1], text[SCRY_DEBUG_ANSWER_MAX + 1];
	Dwarf *dwarf = begin(files[0]);
	void *state = NULL;
	ssize_t n;

	if (!dwarf)
		dwarf = begin(files[1]);
	while ((n = recv(3, question, SCRY_DEBUG_QUESTION_MAX, 0)) > 0) {
		size_t size = 0;

		question[n] = '\0';
		if (dwarf)
			size = answer(dwarf, &state, question, text + 1);
		if (send(3, text, size + 1, MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

static int begin_child(struct scry_debug_info *d, int files[2], scry_debug_answer *answer)
{
	const pid_t parent = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	d->pid = fork();
	if (d->pid == 0) {
		confine(pair[1], files, parent);
		serve(files, answer);
	}
	close(pair[1]);
	d->fd = pair[0];
	if (d->pid < 0)
		close(pair[0]);
	return d->pid < 0 ? -ENOMEM : 0;
}

struct scry_debug_info *scry_debug_info_open(struct scry_elf *elf, scry_debug_answer *answer)
{
	int own = fcntl(scry_elf_fd(elf), F_DUPFD_CLOEXEC, 3);
	int files[2] = {own, scry_debug_file_open(elf)};
	struct scry_debug_info *d = NULL;

	if (own >= 0 && (!scry_elf_has_debug_info(elf) || !scry_debug_file_is_trusted(own)))
		files[0] = -1;
	if (files[0] >= 0 || files[1] >= 0)
		d = calloc(1, sizeof(*d));
	if (d && begin_child(d, files, answer) < 0) {
		free(d);
		d = NULL;
	}
	if (own >= 0)
		close(own);
	if (files[1] >= 0)
		close(files[1]);
	return d;
}

static void end_child(struct scry_debug_info *d)
{
	if (d->pid <= 0)
		return;
	close(d->fd);
	kill(d->pid, SIGKILL);
	while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR)
		;
	d->pid = 0;
}

void scry_debug_info_close(struct scry_debug_info *info)
{
	if (!info)
		return;
	end_child(info);
	free(info);
}

/* The child is asked only while it has nothing to do, so an answer is to the last question. */
size_t scry_debug_info_ask(struct scry_debug_info *info, const void *question, size_t size,
			   void *ret)
{
	static char text[SCRY_DEBUG_ANSWER_MAX + 1];
	struct pollfd p;
	ssize_t n = -1;
	int r = -1;

	if (info->pid <= 0 || size > SCRY_DEBUG_QUESTION_MAX)
		return 0;
	p = (struct pollfd){.fd = info->fd, .events = POLLIN};
	if (send(info->fd, question, size, MSG_NOSIGNAL) == (ssize_t)size)
		do
			r = poll(&p, 1, ANSWER_MS);
		while (r < 0 && errno == EINTR);
	if (r > 0)
		n = recv(info->fd, text, sizeof(text), 0);
	if (n <= 0) {
		info->has_failed = true;
		end_child(info);
		return 0;
	}
	memcpy(ret, text + 1, (size_t)n - 1);
	return (size_t)n - 1;
}

bool scry_debug_info_has_failed(const struct scry_debug_info *info)
{
	return info->has_failed;
}
