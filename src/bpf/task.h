/* Tasks, for programs in the kernel: what they are, and their numbers in scry's pid namespace. */
#ifndef SCRY_BPF_TASK_H
#define SCRY_BPF_TASK_H

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define SCRY_NAMESPACES 8 /* within each other */
#define TS_COMPAT 0x2u	  /* of thread_info: in a call of 32 bits */

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct pid_namespace {
	struct ns_common ns;
} __attribute__((preserve_access_index));

struct upid {
	int nr;
	struct pid_namespace *ns;
} __attribute__((preserve_access_index));

struct pid {
	unsigned int level;
	struct upid numbers[1];
} __attribute__((preserve_access_index));

struct counted {
	int counter;
} __attribute__((preserve_access_index));

struct signal_struct {
	struct counted live;
} __attribute__((preserve_access_index));

struct thread_info {
	__u32 status;
} __attribute__((preserve_access_index));

typedef struct {
	unsigned long sig[1];
} __attribute__((preserve_access_index)) sigset_t;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *close_on_exec;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct super_block {
	__u32 s_dev;
} __attribute__((preserve_access_index));

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} __attribute__((preserve_access_index));

struct file {
	unsigned int f_flags;
	struct inode *f_inode;
} __attribute__((preserve_access_index));

struct vm_area_struct {
	unsigned long vm_start, vm_pgoff;
	struct file *vm_file;
} __attribute__((preserve_access_index));

struct thread_struct {
	unsigned long fsbase;
} __attribute__((preserve_access_index));

struct action_cache {
	unsigned long allow_native[1]; /* a bit for each call */
} __attribute__((preserve_access_index));

struct seccomp_filter { /* the newest; its cache has those below too */
	struct action_cache cache;
} __attribute__((preserve_access_index));

struct seccomp {
	int mode; /* 0: no filter */
	struct seccomp_filter *filter;
} __attribute__((preserve_access_index));

struct task_struct {
	struct thread_info thread_info;
	int pid, tgid;
	unsigned int ptrace;
	__u64 start_time;
	__u64 self_exec_id;
	unsigned long nvcsw;
	struct pid *thread_pid;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct signal_struct *signal;
	sigset_t blocked;
	struct seccomp seccomp;
	struct files_struct *files;
	struct thread_struct thread;
} __attribute__((preserve_access_index));

struct pt_regs___kernel { /* as the running kernel lays it out */
	unsigned long bx, cx, bp, r10, r8, dx, si, di, orig_ax, ip, sp;
} __attribute__((preserve_access_index));

/* The thread's number in the namespace whose inode is `pid_ns`; 0: it has none there. */
static inline __u32 scry_tid_in(struct task_struct *task, __u32 pid_ns)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	unsigned int level = BPF_CORE_READ(pid, level);
	unsigned int size = bpf_core_type_size(struct upid);
	const char *first = (const char *)pid + bpf_core_field_offset(struct pid, numbers);

	for (unsigned int i = 0; i < SCRY_NAMESPACES && i <= level; i++) {
		struct upid *u = (struct upid *)(first + i * size);

		if (BPF_CORE_READ(u, ns, ns.inum) == pid_ns)
			return (__u32)BPF_CORE_READ(u, nr);
	}
	return 0;
}

/* pid_ns 0: the machine's. */
static inline __u32 scry_tid_of(struct task_struct *task, __u32 pid_ns)
{
	return pid_ns ? scry_tid_in(task, pid_ns) : (__u32)BPF_CORE_READ(task, pid);
}

static inline __u32 scry_pid_of(struct task_struct *task, __u32 pid_ns)
{
	return pid_ns ? scry_tid_in(BPF_CORE_READ(task, group_leader), pid_ns)
		      : (__u32)BPF_CORE_READ(task, tgid);
}

static inline struct task_struct *scry_current(void)
{
	return (struct task_struct *)bpf_get_current_task();
}

#endif
