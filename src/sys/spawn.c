/*
 * See spawn.h. State machine over wait statuses; each step takes at most what is there. Each thread
 * is waited for by its own number: a status of another tracee of ours is never taken.
 */
#include "sys/spawn.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/brk_signal.h"
#include "sys/elf.h"
#include "sys/maps.h"
#include "sys/proc.h"
#include "sys/regular.h"
#include "sys/served.h"

#define STATIC_SYSCALLS 32 /* glibc's come to six */
#define CATCH_NS 50000000ull
#define BRK_NS 100000000ull /* a loader comes to its breakpoint within some milliseconds */
#define PAGE 4096ull
#define SIGNALS_MAX 32 /* of the one that was kept: a program that runs another one gets fewer */

static struct scry_spawn *add(struct scry_spawns *s, const struct scry_spawn *row)
{
	struct scry_spawn **more, *own;
	size_t capacity = s->capacity ? 2 * s->capacity : 16;

	if (s->count == s->capacity) {
		more = s->count < SCRY_SPAWNS_MAX ? reallocarray(s->rows, capacity, sizeof(*more))
						  : NULL;
		if (!more)
			return NULL;
		s->rows = more;
		s->capacity = capacity;
	}
	own = malloc(sizeof(*own));
	if (!own)
		return NULL;
	*own = *row;
	s->rows[s->count++] = own;
	return own;
}

static void end_signal(struct scry_spawn *s)
{
	if (s->brk_fd)
		scry_brk_signal_close(s->brk_fd);
	s->brk_fd = 0;
}

static void forget(struct scry_spawns *s, struct scry_spawn *row)
{
	size_t i = 0;

	while (i + 1 < s->count && s->rows[i] != row)
		i++;
	end_signal(row);
	scry_tracee_release(&row->t);
	free(row);
	s->rows[i] = s->rows[--s->count];
}

static int seize(struct scry_spawns *s, pid_t pid, struct scry_spawn **ret)
{
	const unsigned long children =
		PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
	struct scry_spawn row = {0};
	int r = scry_tracee_seize_with(&row.t, pid, pid, s->follows ? children : 0);

	if (r < 0)
		return r;
	*ret = add(s, &row);
	if (*ret)
		return 0;
	scry_tracee_release(&row.t);
	return scry_fail(-ENOMEM, "too many processes are followed at once");
}

int scry_spawns_add(struct scry_spawns *s, pid_t pid)
{
	struct scry_spawn *row;

	return seize(s, pid, &row);
}

/* The last IRELATIVE relocation of a static program, which relocates itself. */
static void find_irelative(struct scry_spawn *s, struct scry_elf *elf, uint64_t bias)
{
	const uint8_t *table;
	size_t cursor = 0, size;

	while (scry_elf_rela_next(elf, &cursor, &table, &size))
		for (size_t at = 0; at + sizeof(Elf64_Rela) <= size; at += sizeof(Elf64_Rela)) {
			Elf64_Rela rela;

			memcpy(&rela, table + at, sizeof(rela));
			if (ELF64_R_TYPE(rela.r_info) == R_X86_64_IRELATIVE &&
			    scry_elf_read(elf, rela.r_offset, &s->irelative_was, 8) == 0)
				s->irelative = rela.r_offset + bias;
		}
}

/* Where the loader in mapping `m` says that its list has changed; 0: not known. Looked up once for
 * a file. */
static uint64_t find_brk(pid_t pid, const struct scry_maps *maps, const struct scry_map_entry *m)
{
	static struct stat known;
	static uint64_t from_start; /* of the file's first mapping; 0: it has none */
	uint64_t bias;
	struct scry_elf *elf;
	struct scry_sym sym;
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, m->start,
		 m->end);
	if (m->offset || !scry_served_answers(pid, m) || stat(path, &st) < 0)
		return 0;
	if (!scry_regular_is_same(&known, &st)) {
		if (scry_elf_open_mapped(pid, m, &elf) < 0)
			return 0;
		from_start = 0;
		if (scry_elf_symbol(elf, "_dl_debug_state", &sym) == 0 &&
		    scry_elf_bias(elf, maps, m, &bias) == 0)
			from_start = sym.value + bias - m->start;
		known = st;
		scry_elf_close(elf);
	}
	return from_start ? m->start + from_start : 0;
}

/* What loaders protect: whole pages. One that fills none is never protected, and not waited for. */
static void set_relro(struct scry_spawn *s, uint64_t start, uint64_t end)
{
	start &= ~(PAGE - 1);
	end &= ~(PAGE - 1);
	if (end <= start)
		return;
	s->relro_start = start;
	s->relro_end = end;
}

/* Where the main program's RELRO and the loader lie in the image that was just exec'ed. */
static void look_at_image(struct scry_spawn *s)
{
	struct scry_maps maps;
	struct scry_elf *elf;
	const struct scry_map_entry *m;
	struct scry_auxv said[] = {{AT_PHDR, 0}, {AT_BASE, 0}};
	uint64_t phdr, base, bias, start, end;

	s->relro_start = s->relro_end = s->loader_start = s->loader_end = 0;
	s->irelative = s->syscalls = s->brk = 0;
	s->is_glibc = s->is_main_done = false;
	scry_proc_auxv_read(s->t.pid, said, 2);
	phdr = said[0].value;
	base = said[1].value;
	if (scry_maps_read(s->t.pid, &maps) < 0)
		return;
	m = scry_maps_at(&maps, phdr);
	if (m && scry_elf_open_mapped(s->t.pid, m, &elf) == 0) {
		bool has_bias = scry_elf_bias(elf, &maps, m, &bias) == 0;

		scry_elf_relro(elf, &start, &end);
		if (end > start && has_bias)
			set_relro(s, start + bias, end + bias);
		if (!base && has_bias)
			find_irelative(s, elf, bias);
		scry_elf_close(elf);
	}
	m = base ? scry_maps_at(&maps, base) : NULL;
	if (m) {
		s->loader_start = m->start;
		s->is_glibc = strstr(m->path, "/ld-linux") != NULL;
		if (s->is_glibc && s->relro_start)
			s->brk = find_brk(s->t.pid, &maps, m);
		for (size_t i = 0; i < maps.count; i++)
			if (maps.entries[i].inode == m->inode &&
			    maps.entries[i].end > s->loader_end)
				s->loader_end = maps.entries[i].end;
	}
	scry_maps_done(&maps);
	scry_error_clear();
}

/* That of the C library's start; constructors come later. One that never does it is not waited for.
 */
static bool is_static_relocated(struct scry_spawn *s)
{
	uint64_t word;

	if (!s->irelative || s->syscalls++ == STATIC_SYSCALLS)
		return true;
	errno = 0;
	word = (uint64_t)ptrace(PTRACE_PEEKDATA, s->t.tid, s->irelative, 0);
	return errno || word != s->irelative_was;
}

static bool is_relocated(struct scry_spawn *s, uint64_t ip)
{
	if (!s->loader_start)
		return is_static_relocated(s);
	if (s->is_main_done && s->nr == SYS_mprotect)
		return s->arg >= s->loader_start && s->arg < s->loader_end;
	if (s->is_main_done)
		return s->nr == SYS_munmap || ip < s->loader_start || ip >= s->loader_end;
	if (s->relro_start) {
		s->is_main_done =
			s->nr == SYS_mprotect && s->arg >= s->relro_start && s->arg < s->relro_end;
		return s->is_main_done && !s->is_glibc;
	}
	return ip < s->loader_start || ip >= s->loader_end;
}

static void resume(struct scry_spawn *s, int signal)
{
	s->t.stopped = false;
	ptrace(s->starting && !s->brk_fd ? PTRACE_SYSCALL : PTRACE_CONT, s->t.tid, 0, signal);
}

static void stand_still(struct scry_spawn *s)
{
	s->starting = false;
	s->brk_until_ns = 0;
	s->t.group_stopped = false;
	s->t.stopped_at_ns = scry_now_ns();
}

/* The loader takes the right to write from the main program's RELRO when all is relocated. */
static bool was_relocated(const struct scry_spawn *row)
{
	const struct scry_map_entry *m;
	struct scry_maps maps;
	bool r = true;

	if (scry_maps_read(row->t.pid, &maps) < 0)
		return true;
	m = row->relro_start ? scry_maps_at(&maps, row->relro_start) : NULL;
	if (m)
		r = !m->w;
	scry_maps_done(&maps);
	return r;
}

static bool read_registers(struct scry_spawn *s)
{
	struct iovec iov = {.iov_base = &s->t.regs, .iov_len = sizeof(s->t.regs)};

	return ptrace(PTRACE_GETREGSET, s->t.tid, NT_PRSTATUS, &iov) == 0;
}

/* Until then nothing that it does is looked at. */
static void ask_for_signal(struct scry_spawn *s)
{
	int fd = s->brk ? scry_brk_signal_open(s->t.tid, s->brk) : -ENOENT;

	s->brk_fd = s->brk_number = fd > 0 ? fd : 0;
	s->brk_until_ns = s->brk_fd ? scry_now_ns() + BRK_NS : 0;
	s->brks = 0;
}

/* The kernel names the descriptor (F_SETSIG, fcntl(2)): signals of others have none, or another. */
static bool is_ours(const struct scry_spawn *s, const siginfo_t *info)
{
	return info->si_signo == SCRY_BRK_SIGNAL && info->si_code >= POLL_IN &&
	       info->si_code <= POLL_HUP && info->si_fd == s->brk_number;
}

/* It is stopped before that signal. It may come when its descriptor is closed already. */
static bool is_brk_signal(const struct scry_spawn *s, int signal)
{
	siginfo_t info;

	return s->starting && s->brk_number && signal == SCRY_BRK_SIGNAL &&
	       ptrace(PTRACE_GETSIGINFO, s->t.tid, 0, &info) == 0 && is_ours(s, &info);
}

static bool is_on_its_way(const struct scry_spawn *s)
{
	struct __ptrace_peeksiginfo_args args = {.nr = 1};
	siginfo_t info;

	for (; ptrace(PTRACE_PEEKSIGINFO, s->t.tid, &args, &info) == 1; args.off++)
		if (is_ours(s, &info))
			return true;
	return false;
}

/* The signal did not come, or not where it should: from now on its calls are looked at, unless its
 * start is over. */
static bool fall_back(struct scry_spawn *s)
{
	end_signal(s);
	s->brk_until_ns = 0;
	scry_tracee_mend_signal(s->t.tid);
	if (was_relocated(s) && !is_on_its_way(s) && read_registers(s)) {
		s->is_late = true;
		stand_still(s);
		return true;
	}
	resume(s, 0);
	return false;
}

/* No kernel promises that signal. Asked for again in each pass until it is stopped: other stops may
 * come first, and clear that. */
static void look_at_clock(struct scry_spawn *s)
{
	if (!s->brk_until_ns || scry_now_ns() < s->brk_until_ns)
		return;
	end_signal(s);
	ptrace(PTRACE_INTERRUPT, s->t.tid, 0, 0);
}

/* The loader comes there when it begins to load, and when all is relocated; in between, too, where
 * there are auditors: then its calls are looked at. */
static bool at_brk(struct scry_spawn *s)
{
	const bool is_over = was_relocated(s), is_first = !s->brks++;

	if (!s->brk_fd || !read_registers(s) || s->t.regs.rip != s->brk)
		return fall_back(s);
	/* One was missed, and this may be a dlopen of the program's; or auditors. */
	if (is_first == is_over || (is_over && scry_proc_task_count(s->t.pid) > 1))
		return fall_back(s);
	if (is_over) {
		end_signal(s);
		stand_still(s);
		return true;
	}
	s->brk_until_ns = scry_now_ns() + BRK_NS;
	resume(s, 0);
	return false;
}

/* Is the moment there? Else it goes on. */
static bool at_syscall(struct scry_spawn *s)
{
	struct __ptrace_syscall_info info;
	struct iovec iov = {.iov_base = &s->t.regs, .iov_len = sizeof(s->t.regs)};

	if (ptrace(PTRACE_GET_SYSCALL_INFO, s->t.tid, sizeof(info), &info) < 0)
		info.op = PTRACE_SYSCALL_INFO_NONE; /* it was killed meanwhile */
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		s->nr = info.entry.nr;
		s->arg = info.entry.args[0];
	} else if (info.op == PTRACE_SYSCALL_INFO_EXIT &&
		   is_relocated(s, info.instruction_pointer) &&
		   ptrace(PTRACE_GETREGSET, s->t.tid, NT_PRSTATUS, &iov) == 0) {
		stand_still(s);
		return true;
	}
	resume(s, 0);
	return false;
}

/* A process or thread that `parent` made: it is ours already, and will stop by itself. */
static void add_child(struct scry_spawns *s, const struct scry_spawn *parent, int event)
{
	struct scry_spawn row = {.t.seized = true,
				 .since_ns = scry_now_ns(),
				 .is_kept = parent->is_kept,
				 .is_thread = event == PTRACE_EVENT_CLONE,
				 .is_vforked = event == PTRACE_EVENT_VFORK};
	unsigned long tid = 0;

	if (ptrace(PTRACE_GETEVENTMSG, parent->t.tid, 0, &tid) < 0 || !tid)
		return;
	row.t.tid = row.t.pid = (pid_t)tid; /* of a thread the process is named when it execs */
	if (!add(s, &row)) {
		s->refused++;
		scry_tracee_release(&row.t);
	}
}

/* A signal on its way. With one too many the thread goes on alone. */
static void pass_signal(struct scry_spawns *s, struct scry_spawn *row, int signal)
{
	scry_tracee_mend_signal(row->t.tid);
	row->signals += row->is_kept && signal != SIGCHLD;
	if (row->signals <= SIGNALS_MAX) {
		resume(row, signal);
		return;
	}
	row->t.signal = signal;
	s->dropped++;
	forget(s, row);
}

/* One status. True: its program is stopped. */
static bool take(struct scry_spawns *s, struct scry_spawn *row, int status)
{
	int event = status >> 16;

	row->t.stopped = true;
	if (event == PTRACE_EVENT_EXEC) {
		row->t.pid = row->t.tid;
		row->starting = true;
		row->is_late = false;
		end_signal(row);
		look_at_image(row);
		ask_for_signal(row);
		resume(row, 0);
	} else if (event == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP) {
		row->t.stopped = false;
		if (row->brk_until_ns) /* what it does not run does not count */
			row->brk_until_ns = scry_now_ns() + BRK_NS;
		ptrace(PTRACE_LISTEN, row->t.tid, 0,
		       0); /* job control: stays stopped until continued */
	} else if (event == PTRACE_EVENT_STOP && row->brk_until_ns && !row->brk_fd) {
		return fall_back(row);
	} else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
		   event == PTRACE_EVENT_CLONE) {
		add_child(s, row, event);
		if (row->since_ns) { /* one that starts others is followed for longer */
			row->since_ns = scry_now_ns();
			row->signals = 0;
		}
		resume(row, 0);
	} else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
		return at_syscall(row);
	} else {
		scry_tracee_mend_signal(row->t.tid);
		resume(row, 0);
	}
	return false;
}

static struct scry_spawn *row_of(struct scry_tracee *t)
{
	return (struct scry_spawn *)((char *)t - offsetof(struct scry_spawn, t));
}

int scry_spawns_catch(struct scry_spawns *s, pid_t pid, struct scry_tracee **ret)
{
	struct scry_spawn *row;
	int r = seize(s, pid, &row);

	if (r == 0) {
		r = scry_tracee_stop(&row->t, scry_now_ns() + CATCH_NS);
		if (r < 0 || row->t.group_stopped) {
			forget(s, row);
			return r < 0 ? r : -EAGAIN;
		}
	}
	if (r < 0)
		return r;
	look_at_image(row);
	if (!was_relocated(row)) {
		row->starting = true;
		resume(row, 0);
		return 1;
	}
	*ret = &row->t;
	return 0;
}

/*
 * It was ours, and is not, though it has not ended: another of its threads, which we do not trace,
 * has run a program, and has its number now. That program is held as one that was noticed late.
 */
static void take_over(struct scry_spawns *s, struct scry_spawn *row)
{
	const bool is_process = !row->is_thread;
	const pid_t pid = row->t.tid;
	struct scry_tracee *t;
	int r;

	forget(s, row);
	r = is_process ? scry_spawns_catch(s, pid, &t) : 1;
	if (r == 0)
		row_of(t)->is_late = row_of(t)->is_ready = true;
	s->missed += r < 0;
	scry_error_clear();
}

void scry_spawns_pass(struct scry_spawns *s)
{
	for (size_t i = s->count; i-- > 0;) {
		struct scry_spawn *row = s->rows[i];
		int status;
		pid_t r;

		if (row->t.stopped || row->is_paused) /* ready, or handed out and not given back */
			continue;
		r = waitpid(row->t.tid, &status, __WALL | WNOHANG);
		if (r == 0) {
			look_at_clock(row);
			continue;
		}
		if (r < 0 || WIFEXITED(status) || WIFSIGNALED(status)) {
			row->t.seized = row->t.stopped = false;
			if (r < 0)
				take_over(s, row);
			else
				forget(s, row);
		} else if (status >> 16 || WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			row->is_ready = take(s, row, status);
		} else if (is_brk_signal(row, WSTOPSIG(status))) {
			row->t.stopped = true;
			row->is_ready = at_brk(row);
		} else {
			row->t.stopped = true;
			pass_signal(s, row, WSTOPSIG(status));
		}
	}
}

struct scry_tracee *scry_spawns_step(struct scry_spawns *s)
{
	scry_spawns_pass(s);
	for (size_t i = s->count; i-- > 0;)
		if (s->rows[i]->is_ready) {
			s->rows[i]->is_ready = false;
			return &s->rows[i]->t;
		}
	return NULL;
}

bool scry_spawns_is_starting(const struct scry_spawns *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->rows[i]->starting)
			return true;
	return false;
}

void scry_spawns_go_on(struct scry_spawns *s, struct scry_tracee *t)
{
	struct scry_spawn *row = row_of(t);

	(void)s;
	row->starting = false;
	resume(row, t->signal); /* that has come while it was held */
	t->signal = 0;
}

void scry_spawns_keep(struct scry_spawns *s, struct scry_tracee *t)
{
	row_of(t)->since_ns = scry_now_ns();
	row_of(t)->is_kept = true;
	row_of(t)->signals = 0;
	if (s->follows) /* of its processes, not of its threads: others may want to hold those */
		scry_tracee_options(t, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK);
	scry_spawns_go_on(s, t);
}

bool scry_spawn_is_vforked(const struct scry_tracee *t)
{
	return ((const struct scry_spawn *)((const char *)t - offsetof(struct scry_spawn, t)))
		->is_vforked;
}

bool scry_spawn_is_late(const struct scry_tracee *t)
{
	return ((const struct scry_spawn *)((const char *)t - offsetof(struct scry_spawn, t)))
		->is_late;
}

bool scry_spawns_has(const struct scry_spawns *s, pid_t pid)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->rows[i]->t.tid == pid)
			return true;
	return false;
}

void scry_spawns_drop(struct scry_spawns *s, pid_t pid)
{
	for (size_t i = s->count; i-- > 0;)
		if (s->rows[i]->t.tid == pid)
			forget(s, s->rows[i]);
}

void scry_spawns_pause(struct scry_spawns *s, pid_t pid)
{
	scry_spawns_pass(s); /* whom it has made until now is followed */
	for (size_t i = 0; i < s->count; i++) {
		struct scry_spawn *row = s->rows[i];

		if (row->t.tid != pid || row->starting || row->t.stopped || row->is_paused)
			continue;
		scry_tracee_release(&row->t);
		row->is_paused = true;
	}
}

bool scry_spawns_resume(struct scry_spawns *s, pid_t pid)
{
	const unsigned long children = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;

	for (size_t i = 0; i < s->count; i++) {
		struct scry_spawn *row = s->rows[i];

		if (row->t.tid != pid || !row->is_paused)
			continue;
		row->is_paused = false;
		if (scry_tracee_seize_with(&row->t, pid, pid, s->follows ? children : 0) < 0) {
			scry_error_clear();
			forget(s, row);
		}
		return true;
	}
	return false;
}

void scry_spawns_drop_older(struct scry_spawns *s, uint64_t ns)
{
	for (size_t i = s->count; i-- > 0;)
		if (s->rows[i]->since_ns && s->rows[i]->since_ns < ns && !s->rows[i]->starting &&
		    !s->rows[i]->t.stopped) {
			s->dropped++;
			forget(s, s->rows[i]);
		}
}

/* Those that it has made are followed as processes are; others may want to hold them. */
static void forget_threads(struct scry_spawns *s, pid_t pid)
{
	for (size_t i = s->count; i-- > 0;)
		if (s->rows[i]->t.tid != pid && scry_proc_of_thread(s->rows[i]->t.tid) == pid)
			forget(s, s->rows[i]);
}

uint64_t scry_spawns_let_go(struct scry_spawns *s, struct scry_tracee *t)
{
	uint64_t since = t->stopped_at_ns; /* its own measure: release fills held_ns */

	if (scry_spawn_is_late(t))
		forget_threads(s, t->pid);
	forget(s, row_of(t));
	return since ? scry_now_ns() - since : 0;
}

void scry_spawns_done(struct scry_spawns *s)
{
	while (s->count)
		forget(s, s->rows[s->count - 1]);
	free(s->rows);
	*s = (struct scry_spawns){.follows = s->follows,
				  .refused = s->refused,
				  .dropped = s->dropped,
				  .missed = s->missed};
}
