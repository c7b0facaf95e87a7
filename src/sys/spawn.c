/* See spawn.h. State machine over wait statuses; each step takes at most what is there. */
#include "sys/spawn.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "base/err.h"
#include "sys/elf.h"
#include "sys/maps.h"
#include "sys/proc.h"

int scry_spawn_open(struct scry_spawn *s, pid_t pid)
{
	*s = (struct scry_spawn){0};
	return scry_tracee_seize(&s->t, pid, pid);
}

/* Where the main program's RELRO and the loader lie in the image that was just exec'ed. */
static void look_at_image(struct scry_spawn *s)
{
	struct scry_maps maps;
	struct scry_elf *elf;
	const struct scry_map_entry *m;
	uint64_t phdr = 0, base = 0, bias, start, end;

	s->relro_start = s->relro_end = s->loader_start = s->loader_end = 0;
	scry_proc_auxv(s->t.pid, AT_PHDR, &phdr);
	scry_proc_auxv(s->t.pid, AT_BASE, &base);
	if (scry_maps_read(s->t.pid, &maps) < 0)
		return;
	m = scry_maps_at(&maps, phdr);
	if (m && scry_elf_open_mapped(s->t.pid, m, &elf) == 0) {
		scry_elf_relro(elf, &start, &end);
		if (end > start && scry_elf_bias(elf, &maps, m, &bias) == 0) {
			s->relro_start = (start + bias) & ~4095ull;
			s->relro_end = end + bias;
		}
		scry_elf_close(elf);
	}
	m = base ? scry_maps_at(&maps, base) : NULL;
	if (m) {
		s->loader_start = m->start;
		for (size_t i = 0; i < maps.count; i++)
			if (maps.entries[i].inode == m->inode &&
			    maps.entries[i].end > s->loader_end)
				s->loader_end = maps.entries[i].end;
	}
	scry_maps_done(&maps);
	scry_error_clear();
}

static bool is_relocated(const struct scry_spawn *s, uint64_t ip)
{
	if (!s->loader_start)
		return true; /* static */
	if (s->relro_start)
		return s->nr == SYS_mprotect && s->arg >= s->relro_start && s->arg < s->relro_end;
	return ip < s->loader_start || ip >= s->loader_end;
}

static void resume(struct scry_spawn *s, int signal)
{
	s->t.stopped = false;
	ptrace(s->starting ? PTRACE_SYSCALL : PTRACE_CONT, s->t.tid, 0, signal);
}

static enum scry_spawn_news at_syscall(struct scry_spawn *s)
{
	struct __ptrace_syscall_info info;
	struct iovec iov = {.iov_base = &s->t.regs, .iov_len = sizeof(s->t.regs)};

	if (ptrace(PTRACE_GET_SYSCALL_INFO, s->t.tid, sizeof(info), &info) < 0)
		return SCRY_SPAWN_NOTHING;
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		s->nr = info.entry.nr;
		s->arg = info.entry.args[0];
	} else if (info.op == PTRACE_SYSCALL_INFO_EXIT &&
		   is_relocated(s, info.instruction_pointer) &&
		   ptrace(PTRACE_GETREGSET, s->t.tid, NT_PRSTATUS, &iov) == 0) {
		s->starting = false;
		s->t.group_stopped = false;
		s->t.stopped_at_ns = scry_now_ns();
		return SCRY_SPAWN_IMAGE;
	}
	resume(s, 0);
	return SCRY_SPAWN_NOTHING;
}

enum scry_spawn_news scry_spawn_step(struct scry_spawn *s)
{
	int status, event;
	pid_t r = waitpid(s->t.tid, &status, __WALL | WNOHANG);

	if (r == 0)
		return SCRY_SPAWN_NOTHING;
	if (r < 0 || WIFEXITED(status) || WIFSIGNALED(status)) {
		s->t.seized = s->t.stopped = false;
		return SCRY_SPAWN_EXITED;
	}
	s->t.stopped = true;
	event = status >> 16;
	if (event == PTRACE_EVENT_EXEC) {
		s->starting = true;
		look_at_image(s);
		resume(s, 0);
	} else if (event == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP) {
		s->t.stopped = false;
		ptrace(PTRACE_LISTEN, s->t.tid, 0,
		       0); /* job control: stays stopped until continued */
	} else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
		return at_syscall(s);
	} else {
		resume(s, event ? 0 : WSTOPSIG(status));
	}
	return SCRY_SPAWN_NOTHING;
}

void scry_spawn_go_on(struct scry_spawn *s)
{
	s->starting = false;
	resume(s, 0);
}

void scry_spawn_close(struct scry_spawn *s)
{
	scry_tracee_release(&s->t);
}
