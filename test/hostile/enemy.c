/*
 * Programs that do their worst to whoever looks into them: enemy KIND [FILE]. Each calls work_fold
 * and malloc all the time, says "pid", and ends by SIGTERM, or by what it does to itself. FILE is
 * one that it may read only, or, where the kind says so, its own. Kinds: see the table at the end.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/targets/libwork.h"
#include "wire/account.h"

#define PAGE 4096
#define NAP_US 200
#define MANY_MAPS 30000
#define LINE 8192

static const char *file;
static char *own_path;
static volatile uint64_t sink;

static void nap(void)
{
	usleep(NAP_US);
}

/* Who does not come back from its beginning says it there. */
static void say_pid(void)
{
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
}

/* ---- what scry has put into us ---- */

struct part {
	uint64_t start, end;
	char perms[5];
};

/* `on` with each mapping that has come since `known` was taken. */
static void each_new(void (*on)(const struct part *), bool is_baseline)
{
	static uint64_t known[4096];
	static size_t count;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[LINE], path[LINE];
	struct part p;

	while (maps && fgets(line, sizeof(line), maps)) {
		size_t i = 0;

		*path = '\0';
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %4095s", &p.start, &p.end,
			   p.perms, path) < 3)
			continue;
		if (is_baseline && count < 4096)
			known[count++] = p.start;
		while (i < count && known[i] != p.start)
			i++;
		if (is_baseline || i < count || strstr(path, "[stack") || !strcmp(path, "[heap]"))
			continue;
		if (write(1, "met\n", 4) < 0)
			_exit(1);
		on(&p);
	}
	if (maps)
		fclose(maps);
}

static void scribble(const struct part *p)
{
	const bool is_large = p->end - p->start > 64 * PAGE;
	uint64_t *words = (uint64_t *)p->start;

	if (p->perms[1] != 'w')
		return;
	for (int i = 0; i < 64; i++) /* the control page, then anywhere */
		words[(size_t)random() % ((is_large ? 64 * PAGE : p->end - p->start) / 8)] =
			i % 3 ? (uint64_t)random() << 33 ^ (uint64_t)random()
			      : (uint64_t)random() % 64;
}

static void control_only(const struct part *p)
{
	struct scry_control *c = (struct scry_control *)p->start;

	if (p->perms[1] != 'w' || p->perms[3] != 's' || c->magic != SCRY_CONTROL_MAGIC)
		return;
	c->owner_pid = (uint32_t)getpid();
	c->head = (uint64_t)random() << 40;
	c->tail = ~c->head;
	c->lease_tsc = c->lease_end_tsc = ~0ull;
	c->load_seq++;
	c->lost = ~0ull;
	memset(scry_account_of(c), 0xff, sizeof(struct scry_account));
	c->target_pid = 1;
}

static void header_only(const struct part *p)
{
	struct scry_agent_header *h = (struct scry_agent_header *)p->start;

	if (p->perms[2] != 'x' || h->magic != SCRY_AGENT_MAGIC ||
	    mprotect(h, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
		return;
	h->shared = (uint64_t)&sink & ~0xfffull;
	h->private_ = h->text;
	h->private_size = ~0ull;
	h->slab_count = ~0ull;
	h->child_buffers = 0xffffffffff600000ull;
	h->stage = SCRY_AGENT_LEAVING;
}

static void take_away(const struct part *p)
{
	munmap((void *)p->start, p->end - p->start);
}

static void shut(const struct part *p)
{
	mprotect((void *)p->start, p->end - p->start, PROT_NONE);
}

static void leave_it(const struct part *p)
{
	_exit(p->start == 0);
}

static void become_root(const struct part *p)
{
	execl("/bin/su", "su", "--help", NULL);
	_exit(p->start != 0);
}

static void seal_off(const struct part *p)
{
	mlock((void *)p->start, p->end - p->start);
	madvise((void *)p->start, p->end - p->start, MADV_DONTNEED);
}

static void (*on_new)(const struct part *);
static atomic_int watches;
static void *watch_maps(void *unused)
{
	free(malloc(1000)); /* an arena of our own */
	each_new(NULL, true);
	for (watches = 1;; nap())
		each_new(on_new, false);
	return unused;
}

/* ---- kinds ---- */

static void meets(void (*how)(const struct part *))
{
	pthread_t id;

	on_new = how;
	pthread_create(&id, NULL, watch_maps, NULL);
	while (!watches)
		nap();
}
static void forge_all(void)
{
	meets(scribble);
}
static void forge_control(void)
{
	meets(control_only);
}
static void forge_header(void)
{
	meets(header_only);
}
static void unmap(void)
{
	meets(take_away);
}
static void protect(void)
{
	meets(shut);
}
static void drop(void)
{
	meets(seal_off);
}
static void leaves(void)
{
	meets(leave_it);
}
static void su(void)
{
	meets(become_root);
}

static void *map_and_unmap(void *unused)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	for (;;) {
		char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

		mmap(p + PAGE, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS,
		     -1, 0);
		munmap(p, 4 * PAGE);
	}
	return unused;
}
static void churn_maps(void)
{
	pthread_t id;

	pthread_create(&id, NULL, map_and_unmap, NULL);
}
static void many_maps(void)
{
	for (int i = 0; i < MANY_MAPS; i++)
		mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *end_at_once(void *unused)
{
	return unused;
}
static void *make_threads(void *unused)
{
	pthread_t id;

	for (;;)
		if (pthread_create(&id, NULL, end_at_once, NULL) == 0)
			pthread_detach(id);
	return unused;
}
static void threads(void)
{
	pthread_t id;

	pthread_create(&id, NULL, make_threads, NULL);
}

static void names(void)
{
	prctl(PR_SET_NAME, "x) R 1 1\n1 0 (");
}

static void *flip_names(void *unused)
{
	for (;; nap())
		prctl(PR_SET_NAME, random() % 2 ? ") Z 0 0 0 0 0" : "\n\n\nTracerPid:1");
	return unused;
}
static void status_lines(void)
{
	pthread_t id;

	pthread_create(&id, NULL, flip_names, NULL);
}

static struct link_map *last_loaded(void)
{
	struct link_map *l = _r_debug.r_map;

	while (l->l_next)
		l = l->l_next;
	return l;
}
static void loaded_in_a_ring(void)
{
	last_loaded()->l_next = _r_debug.r_map;
}
static void loaded_without_end(void)
{
	static struct link_map more[20000];
	struct link_map *l = last_loaded();

	for (size_t i = 0; i < 20000; i++) {
		more[i] = *l;
		more[i].l_addr += i * PAGE;
		more[i].l_prev = l;
		l->l_next = &more[i];
		l = &more[i];
	}
	l->l_next = NULL;
}
static void *wander(void *unused)
{
	struct link_map *l = last_loaded(), was = *l;

	for (;; nap()) {
		l->l_addr = (ElfW(Addr))random() << 20;
		l->l_ld = (ElfW(Dyn) *)(random() % 2 ? 0x1000 : 0xffffffffff600000);
		l->l_name = random() % 2 ? (char *)8 : "../../../../etc/shadow";
		nap();
		l->l_addr = was.l_addr;
		l->l_ld = was.l_ld;
		l->l_name = was.l_name;
	}
	return unused;
}
static void loaded_elsewhere(void)
{
	pthread_t id;

	pthread_create(&id, NULL, wander, NULL);
}
static void r_debug_gone(void)
{
	_r_debug.r_map = (struct link_map *)0x10;
	_r_debug.r_brk = 0xdeadbeefdeadull;
	_r_debug.r_version = 77;
}

/* Each word of the tables that the loader has read already. */
static void spoil(ElfW(Sxword) tag, uint64_t value)
{
	void *at = dlsym(RTLD_DEFAULT, "work_fold");
	struct link_map *l = NULL;
	Dl_info info;
	ElfW(Dyn) * d;

	if (!dladdr1(at, &info, (void **)&l, RTLD_DL_LINKMAP) || !l)
		_exit(1);
	mprotect((void *)((uintptr_t)l->l_ld & ~0xffful), 2 * PAGE, PROT_READ | PROT_WRITE);
	for (d = l->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			d->d_un.d_val = value;
}
static void no_symbols(void)
{
	spoil(DT_SYMTAB, 0x1000);
}
static void no_strings(void)
{
	spoil(DT_STRTAB, ~0ull - 100);
}
static void endless_strings(void)
{
	spoil(DT_STRSZ, 1ull << 62);
}
static void endless_relocations(void)
{
	spoil(DT_PLTRELSZ, 1ull << 62);
}
static void relocations_in_the_code(void)
{
	spoil(DT_JMPREL, (uint64_t)&spoil);
}

static void endless_hash(void)
{
	static uint32_t table[64] = {1, 1, 1, 0, ~0u, ~0u, 1, 2, 2, 2, 2, 2};

	spoil(DT_GNU_HASH, (uint64_t)table);
}

static void *stop_and_go(void *unused)
{
	pid_t parent = getpid();

	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			kill(parent, SIGSTOP);
			nap();
			if (kill(parent, SIGCONT))
				_exit(0);
			nap();
		}
	}
	return unused;
}
static void stops(void)
{
	stop_and_go(NULL);
}

static void on_signal(int sig)
{
	sink += (uint64_t)sig;
}
static void signals(void)
{
	pid_t parent = getpid();

	for (int i = SIGRTMIN; i < SIGRTMIN + 4; i++)
		signal(i, on_signal);
	signal(SIGTRAP, SIG_IGN);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			kill(parent, SIGRTMIN + (int)(random() % 4));
			kill(parent, SIGTRAP);
			nap();
		}
	}
}
static void is_traced(void)
{
	pid_t parent = getpid();

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;; nap())
			if (ptrace(PTRACE_ATTACH, parent, 0, 0) == 0) {
				waitpid(parent, NULL, __WALL);
				ptrace(PTRACE_DETACH, parent, 0, 0);
			}
	}
}
static void *in_vfork(void *unused)
{
	for (;;)
		if (vfork() == 0) {
			usleep(100000);
			_exit(0);
		}
	return unused;
}
static void vforks(void)
{
	pthread_t id;

	pthread_create(&id, NULL, in_vfork, NULL);
}
static void forks(void)
{
	for (int i = 0; i < 4; i++) {
		if (fork() != 0)
			continue;
		for (prctl(PR_SET_PDEATHSIG, SIGKILL);; wait(NULL))
			if (fork() == 0)
				_exit(0);
	}
}
static void *exec_self(void *unused)
{
	usleep(30000);
	execl("/proc/self/exe", own_path, "execs", NULL);
	_exit(1);
	return unused;
}
static void execs(void)
{
	pthread_t id;

	pthread_create(&id, NULL, exec_self, NULL);
}
static void *close_all(void *unused)
{
	for (;; nap())
		syscall(SYS_close_range, 3, ~0u, 0);
	return unused;
}
static void closes(void)
{
	pthread_t id;

	pthread_create(&id, NULL, close_all, NULL);
}
static void memfds(void)
{
	struct rlimit r = {1024, 1024};

	setrlimit(RLIMIT_NOFILE, &r);
	for (int i = 0; i < 500; i++) {
		int fd = (int)syscall(SYS_memfd_create, "scry", 0);

		if (ftruncate(fd, 1 << 20))
			return;
	}
}
static void limits(void)
{
	const int which[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_NPROC,
			     RLIMIT_CORE};
	const struct rlimit none = {0, 0};

	say_pid();
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
		setrlimit((__rlimit_resource_t)which[i], &none);
}
static void little_memory(void)
{
	const struct rlimit some = {16 << 20, 16 << 20};

	setrlimit(RLIMIT_AS, &some);
}
static void file_is_cut(void) /* FILE: our own; nothing of it is used */
{
	struct stat st;
	int fd = open(file, O_RDWR | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) || !dlopen(file, RTLD_NOW))
		_exit(1);
	if (fork() != 0)
		return;
	for (prctl(PR_SET_PDEATHSIG, SIGKILL);; nap()) {
		sink += (uint64_t)ftruncate(fd, 100);
		nap();
		sink += (uint64_t)ftruncate(fd, st.st_size);
	}
}
static void file_is_a_fifo(void) /* FILE: our own */
{
	if (!dlopen(file, RTLD_NOW) || unlink(file) || mkfifo(file, 0666))
		_exit(1);
}
static void file_is_a_link(void) /* FILE: our own */
{
	if (!dlopen(file, RTLD_NOW) || unlink(file) || symlink("/dev/zero", file))
		_exit(1);
}
static void file_is_a_directory(void) /* FILE: our own */
{
	if (!dlopen(file, RTLD_NOW) || unlink(file) || mkdir(file, 0777))
		_exit(1);
}
static void file_is_another(void) /* FILE: our own */
{
	FILE *f;

	if (!dlopen(file, RTLD_NOW) || unlink(file) || !(f = fopen(file, "w")))
		_exit(1);
	fprintf(f, "\177ELF\002\001\001 and nothing else");
	fclose(f);
}
static void loads_file(void) /* FILE: an ELF file that lies */
{
	if (!dlopen(file, RTLD_NOW))
		_exit(1);
}
static void bad_thread_block(void)
{
	char *self = (char *)pthread_self();

	*(int *)(self + 0x2d0) = 1; /* glibc, struct pthread: tid */
}
static void heap_in_a_ring(void)
{
	void *p[9]; /* seven go into the thread's cache, two into a fast bin */

	say_pid();
	for (int i = 0; i < 9; i++)
		p[i] = malloc(40);
	for (int i = 0; i < 9; i++)
		free(p[i]);
	for (int i = 0; i < 9; i++) /* each is its own next one */
		*(uintptr_t *)p[i] = (uintptr_t)p[i] ^ (uintptr_t)p[i] >> 12;
	for (;;)
		sink += work_fold((const uint64_t[]){1, 2}, 2);
}
static void heap_of_nonsense(void)
{
	uint64_t *p = malloc(100);

	say_pid();
	for (int i = -2; i < 1000; i++)
		p[i] = (uint64_t)random() << 4 | 1;
	for (;;)
		sink += work_fold((const uint64_t[]){1, 2}, 2);
}
static void frames_in_a_ring(void)
{
	static uintptr_t frame[2];

	say_pid();
	frame[0] = (uintptr_t)frame;
	frame[1] = (uintptr_t)&spoil + 8;
	for (;;)
		__asm__ volatile("push %%rbp\nmov %0, %%rbp\nmov $20000, %%ecx\n1: dec %%ecx\njnz "
				 "1b\npop %%rbp"
				 :
				 : "r"(frame)
				 : "rcx", "cc", "memory");
}
static void stack_elsewhere(void)
{
	say_pid();
	for (;;)
		__asm__ volatile("mov %%rsp, %%rax\nmov $0x100000, %%rsp\nmov $20000, %%ecx\n"
				 "1: dec %%ecx\njnz 1b\nmov %%rax, %%rsp"
				 :
				 :
				 : "rax", "rcx", "cc", "memory");
}
static void *leave_alone(void *unused)
{
	for (;; nap())
		sink += work_fold((const uint64_t[]){1, 2}, 2);
	return unused;
}
static void leaderless(void)
{
	pthread_t id;

	say_pid();
	pthread_create(&id, NULL, leave_alone, NULL);
	pthread_exit(NULL);
}

static const struct {
	const char *name;
	void (*begin)(void);
} kinds[] = {
	{"forge-all", forge_all},
	{"forge-control", forge_control},
	{"forge-header", forge_header},
	{"unmap", unmap},
	{"protect", protect},
	{"drop", drop},
	{"leaves", leaves},
	{"su", su},
	{"churn-maps", churn_maps},
	{"many-maps", many_maps},
	{"threads", threads},
	{"names", names},
	{"status-lines", status_lines},
	{"loaded-in-a-ring", loaded_in_a_ring},
	{"loaded-without-end", loaded_without_end},
	{"loaded-elsewhere", loaded_elsewhere},
	{"r-debug-gone", r_debug_gone},
	{"no-symbols", no_symbols},
	{"no-strings", no_strings},
	{"endless-strings", endless_strings},
	{"endless-relocations", endless_relocations},
	{"relocations-in-the-code", relocations_in_the_code},
	{"endless-hash", endless_hash},
	{"stops", stops},
	{"signals", signals},
	{"is-traced", is_traced},
	{"vforks", vforks},
	{"forks", forks},
	{"execs", execs},
	{"closes", closes},
	{"memfds", memfds},
	{"limits", limits},
	{"little-memory", little_memory},
	{"file-is-cut", file_is_cut},
	{"file-is-a-fifo", file_is_a_fifo},
	{"file-is-a-link", file_is_a_link},
	{"file-is-a-directory", file_is_a_directory},
	{"file-is-another", file_is_another},
	{"loads-file", loads_file},
	{"bad-thread-block", bad_thread_block},
	{"heap-in-a-ring", heap_in_a_ring},
	{"heap-of-nonsense", heap_of_nonsense},
	{"frames-in-a-ring", frames_in_a_ring},
	{"stack-elsewhere", stack_elsewhere},
	{"leaderless", leaderless},
};

int main(int argc, char **argv)
{
	size_t i = 0;

	if (argc < 2)
		return 2;
	own_path = argv[0];
	file = argc > 2 ? argv[2] : NULL;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (i < sizeof(kinds) / sizeof(kinds[0]) && strcmp(kinds[i].name, argv[1]) != 0)
		i++;
	if (i == sizeof(kinds) / sizeof(kinds[0]))
		return 2;
	sink += work_fold((const uint64_t[]){1, 2}, 2);
	kinds[i].begin();
	say_pid();
	for (;;) {
		void *volatile p = malloc(100);

		sink += work_fold((const uint64_t[]){1, 2}, 2);
		free(p);
		usleep(10);
	}
}
