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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/debug_file.h"

#define ANSWER_MS 5000
#define CPU_S 10u
#define UNITS_MAX 100000u
#define MEMORY_MAX (4ull << 30) /* of address space: 64-bit offsets, and files of some GiB */

struct scry_debug_info {
	scry_debug_answer *answer;
	int files[2]; /* the object's own, that beside it; -1: not read */
	pid_t pid;    /* 0: not begun yet, or it has ended, and was waited for */
	int fd;	      /* a packet is a question, or an answer */
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
		else
			close(4 + i);
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

bool scry_debug_info_unit(Dwarf *dwarf, uint64_t address, Dwarf_Die *ret)
{
	Dwarf_CU *cu = NULL;
	Dwarf_Die unit;
	bool found = dwarf_addrdie(dwarf, address, &unit) != NULL;

	for (uint32_t n = 0; !found && n < UNITS_MAX &&
			     dwarf_get_units(dwarf, cu, &cu, NULL, NULL, &unit, NULL) == 0;
	     n++)
		found = dwarf_haspc(&unit, address) > 0;
	if (found)
		*ret = unit;
	return found;
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

static int begin_child(struct scry_debug_info *d)
{
	const pid_t parent = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	d->pid = fork();
	if (d->pid == 0) {
		confine(pair[1], d->files, parent);
		serve(d->files, d->answer);
	}
	close(pair[1]);
	d->fd = pair[0];
	if (d->pid > 0)
		return 0;
	d->pid = 0;
	close(pair[0]);
	return -ENOMEM;
}

struct scry_debug_info *scry_debug_info_open(struct scry_elf *elf, scry_debug_answer *answer)
{
	struct scry_debug_info *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->answer = answer;
	d->files[0] = fcntl(scry_elf_fd(elf), F_DUPFD_CLOEXEC, 3);
	d->files[1] = scry_debug_file_open(elf);
	if (d->files[0] >= 0 &&
	    (!scry_elf_has_debug_info(elf) || !scry_debug_file_is_trusted(d->files[0]))) {
		close(d->files[0]);
		d->files[0] = -1;
	}
	if (d->files[0] >= 0 || d->files[1] >= 0)
		return d;
	free(d);
	return NULL;
}

int scry_debug_info_digest(const struct scry_debug_info *info, struct scry_digest *to)
{
	for (int i = 0; i < 2; i++) {
		uint64_t words[8] = {(uint64_t)i};
		struct stat st;

		if (info->files[i] >= 0) {
			if (fstat(info->files[i], &st) < 0)
				return -errno;
			words[1] = st.st_dev;
			words[2] = st.st_ino;
			words[3] = (uint64_t)st.st_size;
			words[4] = (uint64_t)st.st_mtim.tv_sec;
			words[5] = (uint64_t)st.st_mtim.tv_nsec;
			words[6] = (uint64_t)st.st_ctim.tv_sec;
			words[7] = (uint64_t)st.st_ctim.tv_nsec;
		}
		scry_digest_add(to, words, sizeof(words));
	}
	return 0;
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
	for (int i = 0; i < 2; i++)
		if (info->files[i] >= 0)
			close(info->files[i]);
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

	if (info->has_failed || size > SCRY_DEBUG_QUESTION_MAX)
		return 0;
	if (info->pid == 0 && begin_child(info) < 0) {
		info->has_failed = true;
		return 0;
	}
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
