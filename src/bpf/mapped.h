/* In which file the code is that a thread runs. */
#ifndef SCRY_BPF_MAPPED_H
#define SCRY_BPF_MAPPED_H

#include "bpf/task.h"
#include "wire/bpf_syscalls.h"

struct asked {
	__u64 ip;
	struct scry_syscalls_file file;
};

static long see_file(struct task_struct *task, struct vm_area_struct *vma, void *arg)
{
	struct asked *a = arg;
	struct file *file = vma->vm_file;

	a->file.is_known = 1;
	if (!file)
		return 0;
	a->file.inode = BPF_CORE_READ(file, f_inode, i_ino);
	a->file.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	a->file.offset = a->ip - vma->vm_start + (vma->vm_pgoff << 12);
	return 0;
}

static __always_inline void ask_file(__u64 ip, struct asked *a)
{
	a->ip = ip;
	if (ip && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_find_vma))
		bpf_find_vma(bpf_get_current_task_btf(), ip, see_file, a, 0);
}

#endif
