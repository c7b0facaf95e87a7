/* What a descriptor of a process is: /proc/PID/fd, and the tables of sockets in /proc/PID/net,
 * which are those of its own network namespace. */
#include "sys/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* "0100007F:1F90" of /proc/net/tcp: words in host order. */
static void address(const char *hex, char *buf, size_t size)
{
	char text[INET6_ADDRSTRLEN] = "?";
	uint32_t words[4] = {0};
	unsigned int port = 0;
	int wide = strcspn(hex, ":") > 8;

	for (int i = 0; i < (wide ? 4 : 1); i++)
		sscanf(hex + i * 8, "%8" SCNx32, &words[i]);
	sscanf(hex + (wide ? 33 : 9), "%x", &port);
	inet_ntop(wide ? AF_INET6 : AF_INET, words, text, sizeof(text));
	snprintf(buf, size, wide ? "[%s]:%u" : "%s:%u", text, port);
}

/* The line of an internet socket. */
static int inet_name(const char *kind, const char *line, uint64_t inode, char *buf, size_t size)
{
	char local[64], remote[64], from[80], to[80];
	unsigned int state;
	uint64_t has;

	if (sscanf(line, " %*d: %63s %63s %x %*s %*s %*s %*s %*s %" SCNu64, local, remote, &state,
		   &has) != 4 ||
	    has != inode)
		return -ENOENT;
	address(local, from, sizeof(from));
	address(remote, to, sizeof(to));
	if (state == 10) /* TCP_LISTEN */
		snprintf(buf, size, "%s %s, listening", kind, from);
	else
		snprintf(buf, size, "%s %s -> %s", kind, from, to);
	return 0;
}

static int unix_name(const char *line, uint64_t inode, char *buf, size_t size)
{
	char path[128] = "";
	uint64_t has;

	if (sscanf(line, "%*s %*s %*s %*s %*s %*s %" SCNu64 " %127[^\n]", &has, path) < 1 ||
	    has != inode)
		return -ENOENT;
	snprintf(buf, size, "unix socket%s%s", *path ? " " : "", path);
	return 0;
}

static int socket_name(pid_t pid, uint64_t inode, char *buf, size_t size)
{
	static const char *const tables[] = {"tcp", "tcp6", "udp", "udp6", "unix"};
	char path[64], line[512];

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		FILE *file;
		int err = -ENOENT;

		snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, tables[i]);
		file = fopen(path, "re");
		while (file && err && fgets(line, sizeof(line), file))
			err = i == 4 ? unix_name(line, inode, buf, size)
				     : inet_name(tables[i], line, inode, buf, size);
		if (file)
			fclose(file);
		if (!err)
			return 0;
	}
	snprintf(buf, size, "socket");
	return 0;
}

int scry_fd_name(pid_t pid, int fd, char *buf, size_t size)
{
	char path[64], target[512];
	uint64_t inode;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return -ENOENT;
	target[n] = '\0';
	if (sscanf(target, "socket:[%" SCNu64, &inode) == 1)
		return socket_name(pid, inode, buf, size);
	if (strncmp(target, "pipe:", 5) == 0)
		snprintf(target, sizeof(target), "pipe");
	else if (strncmp(target, "anon_inode:", 11) == 0)
		memmove(target, target + 11, strlen(target + 11) + 1);
	snprintf(buf, size, "%s", target);
	return 0;
}

void scry_fd_raise_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}
