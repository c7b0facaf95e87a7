/*
 * A hostile program, for jails (test/unit/sys_jail.c). Alone it says "pid N" and sleeps, as a
 * target does. As a jail's child it tries to do harm, and says of each try whether it failed as it
 * must:
 *
 *   jailed try VICTIM SHMID DIRECTORY SCRY ALONE    ("ok NAME", "FAIL NAME", at the end "done")
 *   jailed bomb | stay                              forks for ever; leaves others behind ("ready")
 *
 * VICTIM and SCRY are processes outside, SHMID is shared memory outside, DIRECTORY may be written
 * to by the user. ALONE is 1 where it has a pid namespace of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static long victim, shmid, scry;
static const char *directory;
static bool is_alone;

static const char *at(const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

/* Opens /proc/PID/NAME. */
static long proc(long pid, const char *name, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%ld/%s", pid, name);
	return open(path, flags);
}

static long reads(long fd)
{
	char c;

	return fd < 0 ? -1 : pread((int)fd, &c, 1, 0);
}

/* --- others ------------------------------------------------------------------------------------
 */

static long do_kill(void)
{
	return kill((pid_t)victim, SIGKILL);
}
static long do_kill_scry(void)
{
	return kill((pid_t)scry, SIGSTOP);
}
static long do_tgkill(void)
{
	return syscall(SYS_tgkill, victim, victim, SIGKILL);
}
static long do_tkill(void)
{
	return syscall(SYS_tkill, victim, SIGKILL);
}
static long do_queue(void)
{
	return sigqueue((pid_t)victim, SIGTERM, (union sigval){.sival_int = 1});
}
static long do_pidfd(void)
{
	long fd = syscall(SYS_pidfd_open, victim, 0);

	return fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}
static long do_seize(void)
{
	return ptrace(PTRACE_SEIZE, victim, 0, 0);
}
static long do_traceme(void)
{
	return ptrace(PTRACE_TRACEME, 0, 0, 0);
}
static long do_read_memory(void)
{
	static char to[8];
	struct iovec here = {to, 8}, there = {(void *)&victim, 8};

	return process_vm_readv((pid_t)victim, &here, 1, &there, 1, 0);
}
static long do_write_memory(void)
{
	static long from;
	struct iovec here = {&from, 8}, there = {(void *)&from, 8};

	return process_vm_writev(getpid(), &here, 1, &there, 1, 0);
}
static long do_mem(void)
{
	return is_alone ? reads(proc(victim, "mem", O_RDONLY)) : -1;
}
static long do_scry_mem(void)
{
	return is_alone ? reads(proc(scry, "mem", O_RDONLY)) : -1;
}
static long do_scry_environ(void)
{
	return is_alone ? reads(proc(scry, "environ", O_RDONLY)) : -1;
}
static long do_scry_maps(void)
{
	return is_alone ? reads(proc(scry, "maps", O_RDONLY)) : -1;
}
static long do_scry_files(void)
{
	return is_alone ? proc(scry, "fd/0", O_RDONLY) : -1;
}
static long do_scry_root(void)
{
	return is_alone ? proc(scry, "root/etc", O_RDONLY) : -1;
}
static long do_parent_mem(void)
{
	return reads(proc(getppid(), "mem", O_RDONLY));
}
static long do_priority(void)
{
	return setpriority(PRIO_PROCESS, (id_t)victim, 10);
}
static long do_user_priority(void)
{
	return setpriority(PRIO_USER, getuid(), 10);
}
static long do_affinity(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	return sched_setaffinity((pid_t)victim, sizeof(set), &set);
}
static long do_limits(void)
{
	const struct rlimit none = {0, 0};

	return prlimit((pid_t)victim, RLIMIT_NOFILE, &none, NULL);
}
static long do_owner(void)
{
	return fcntl(0, F_SETOWN, (int)victim);
}

/* --- memory and sockets ------------------------------------------------------------------------
 */

static long do_shmat(void)
{
	return (long)shmat((int)shmid, NULL, SHM_RDONLY);
}
static long do_shmget(void)
{
	return shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
}
static long do_shmctl(void)
{
	return shmctl((int)shmid, IPC_RMID, NULL);
}
static long do_inet(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}
static long do_unix(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}
static long do_netlink(void)
{
	return socket(AF_NETLINK, SOCK_RAW, 0);
}
static long do_pair(void)
{
	int fds[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}
static long do_key(void)
{
	return syscall(SYS_add_key, "user", "scry", "x", 1, KEY_SPEC_SESSION_KEYRING);
}
static long do_keyctl(void)
{
	return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0);
}

/* --- files -------------------------------------------------------------------------------------
 */

static long do_create(void)
{
	return open(at("new"), O_WRONLY | O_CREAT, 0600);
}
static long do_creat(void)
{
	return creat(at("new"), 0600);
}
static long do_write(void)
{
	return open(at("file"), O_RDWR);
}
static long do_append(void)
{
	return open(at("file"), O_WRONLY | O_APPEND);
}
static long do_trunc(void)
{
	return open(at("file"), O_RDONLY | O_TRUNC);
}
static long do_truncate(void)
{
	return truncate(at("file"), 0);
}
static long do_tmpfile(void)
{
	return open(directory, O_TMPFILE | O_RDWR, 0600);
}
static long do_openat2(void)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = {O_WRONLY, 0, 0};

	return syscall(SYS_openat2, AT_FDCWD, at("file"), &how, sizeof(how));
}
static long do_unlink(void)
{
	return unlink(at("file"));
}
static long do_rename(void)
{
	char *old = strdup(at("file"));

	return rename(old, at("other"));
}
static long do_link(void)
{
	return link("/proc/self/exe", at("new"));
}
static long do_symlink(void)
{
	return symlink("/", at("new"));
}
static long do_mkdir(void)
{
	return mkdir(at("new"), 0700);
}
static long do_fifo(void)
{
	return mkfifo(at("new"), 0600);
}
static long do_chmod(void)
{
	return chmod(at("file"), 0777);
}
static long do_times(void)
{
	return utimensat(AT_FDCWD, at("file"), NULL, 0);
}
static long do_device(void)
{
	return is_alone ? open("/dev/null", O_RDONLY) : -1;
}
static long do_sysctl(void)
{
	return open("/proc/sys/kernel/core_pattern", O_WRONLY);
}
static long do_own_mem(void)
{
	return open("/proc/self/mem", O_RDWR);
}
static long do_terminal(void)
{
	return ioctl(0, TIOCSTI, "x");
}

/* --- the kernel --------------------------------------------------------------------------------
 */

static long do_mount(void)
{
	return mount("none", "/", "tmpfs", 0, NULL);
}
static long do_unshare(void)
{
	return unshare(CLONE_NEWUSER);
}
static long do_clone(void)
{
	return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
}
static long do_setns(void)
{
	long fd = proc(scry, "ns/pid", O_RDONLY);

	return fd < 0 ? -1 : setns((int)fd, 0);
}
static long do_chroot(void)
{
	return chroot("/");
}
static long do_uring(void)
{
	static char params[120];

	return syscall(SYS_io_uring_setup, 1, params);
}
static long do_bpf(void)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

	return syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
}
static long do_perf(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .exclude_kernel = 1};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}
static long do_fault(void)
{
	return syscall(SYS_userfaultfd, 1);
}
static long do_exec(void)
{
	return execl("/bin/true", "true", NULL);
}
static long do_setuid(void)
{
	return setuid(0);
}
static long do_session(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(setsid() < 0);
	return waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) ? -1 : 0;
}
static long do_group(void)
{
	return setpgid(0, 0);
}
static long do_alarm(void)
{
	const struct itimerval off = {0};

	return setitimer(ITIMER_REAL, &off, NULL);
}
static long do_death(void)
{
	return prctl(PR_SET_PDEATHSIG, 0);
}
static long do_raise(void)
{
	struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};

	return setrlimit(RLIMIT_CPU, &r);
}
static long do_32bit(void)
{
	long r = 20; /* getpid */

	__asm__ volatile("int $0x80" : "+a"(r) : : "memory");
	return r < 0 ? -1 : r;
}
static long do_x32(void)
{
	return syscall(0x40000000 + SYS_getpid);
}
static long do_keep(void) /* descriptors beyond its three pipes */
{
	for (int fd = 3; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			return fd;
	return -1;
}

/* --- what must go ------------------------------------------------------------------------------
 */

static void *run(void *arg)
{
	return arg;
}
static long does_thread(void)
{
	pthread_t t;
	int got;

	return pthread_create(&t, NULL, run, &got) || pthread_join(t, NULL) ? -1 : 0;
}
static long does_fork(void)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}
static long does_kill(void)
{
	int status = 0;
	pid_t pid = is_alone ? fork() : 0;

	if (pid == 0 && is_alone)
		pause();
	return !is_alone || (kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid) ? 0 : -1;
}
static long does_abort(void) /* signals of its own, as raise() and pthread_kill() send them */
{
	signal(SIGUSR1, SIG_IGN);
	return raise(SIGUSR1);
}
static long does_memory(void)
{
	int fd = memfd_create("x", 0);

	return fd < 0 || ftruncate(fd, 4096) ||
			       mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
				       MAP_FAILED
		       ? -1
		       : close(fd);
}
static long does_own_memory(void)
{
	char to[8];
	struct iovec here = {to, 8}, there = {(void *)&victim, 8};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0);
}
static long does_self(void)
{
	char text[32] = "";
	ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);
	long fd = open("/proc/self/mem", O_RDONLY);

	return n <= 0 || fd < 0 ? -1 : close((int)fd);
}
static long does_list(void)
{
	return open(directory, O_RDONLY | O_DIRECTORY) < 0 ? -1 : 0;
}
static long does_time(void)
{
	timer_t t;
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};

	return timer_create(CLOCK_MONOTONIC, &e, &t) || timer_delete(t) ? -1 : 0;
}

#define T(name)             \
	{                   \
#name, name \
	}
static const struct {
	const char *name;
	long (*what)(void);
} tries[] = {
	T(do_keep),	 T(do_kill),	     T(do_kill_scry),	 T(do_tgkill),
	T(do_tkill),	 T(do_queue),	     T(do_pidfd),	 T(do_seize),
	T(do_traceme),	 T(do_read_memory),  T(do_write_memory), T(do_mem),
	T(do_scry_mem),	 T(do_scry_environ), T(do_scry_maps),	 T(do_scry_files),
	T(do_scry_root), T(do_parent_mem),   T(do_priority),	 T(do_user_priority),
	T(do_affinity),	 T(do_limits),	     T(do_owner),	 T(do_shmat),
	T(do_shmget),	 T(do_shmctl),	     T(do_inet),	 T(do_unix),
	T(do_netlink),	 T(do_pair),	     T(do_key),		 T(do_keyctl),
	T(do_create),	 T(do_creat),	     T(do_write),	 T(do_append),
	T(do_trunc),	 T(do_truncate),     T(do_tmpfile),	 T(do_openat2),
	T(do_unlink),	 T(do_rename),	     T(do_link),	 T(do_symlink),
	T(do_mkdir),	 T(do_fifo),	     T(do_chmod),	 T(do_times),
	T(do_device),	 T(do_sysctl),	     T(do_own_mem),	 T(do_terminal),
	T(do_mount),	 T(do_unshare),	     T(do_clone),	 T(do_setns),
	T(do_chroot),	 T(do_uring),	     T(do_bpf),		 T(do_perf),
	T(do_fault),	 T(do_exec),	     T(do_setuid),	 T(do_group),
	T(do_session),	 T(do_alarm),	     T(do_death),	 T(do_raise),
	T(do_32bit),	 T(do_x32),	     T(does_thread),	 T(does_fork),
	T(does_kill),	 T(does_abort),	     T(does_memory),	 T(does_own_memory),
	T(does_self),	 T(does_list),	     T(does_time),
};

static void try_all(char **argv)
{
	victim = atol(argv[2]);
	shmid = atol(argv[3]);
	directory = argv[4];
	scry = atol(argv[5]);
	is_alone = atoi(argv[6]);
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		long r = tries[i].what();
		bool is_well = strncmp(tries[i].name, "does", 4) ? r < 0 : r >= 0;

		printf("%s %s %ld %s\n", is_well ? "ok" : "FAIL", tries[i].name, r,
		       r < 0 ? strerrorname_np(errno) : "");
	}
	puts("done");
	fflush(stdout);
	pause();
}

/* Everybody who can be left behind: in a session of its own if that may be made, its parent gone.
 */
static void leave_behind(void)
{
	for (int i = 0; i < 20; i++)
		if (fork() == 0) {
			setsid();
			if (fork())
				_exit(0);
			signal(SIGTERM, SIG_IGN);
			signal(SIGHUP, SIG_IGN);
			for (;;)
				pause();
		}
	puts("ready");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc > 6 && !strcmp(argv[1], "try")) {
		try_all(argv);
	} else if (argc > 1 && !strcmp(argv[1], "bomb")) {
		for (;;)
			fork();
	} else if (argc > 1 && !strcmp(argv[1], "stay")) {
		leave_behind();
		return 0;
	}
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (;;)
		pause();
}
