/*
 * See core.h. libelf reads the tables of the file; memory is read by pread, never mapped: a core
 * that is still being written, or cut, must not end us by SIGBUS.
 */
#include "sys/core.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bisect.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/intern.h"
#include "sys/core_notes.h"
#include "sys/regular.h"
#include "sys/served.h"

#define FILES_MAX 4096u
#define NOTES_MAX (256u << 20)
#define ADDRESS_END (1ull << 47)
#define PAGE 4096u

/* --- memory ----------------------------------------------------------------------------------- */

static const struct scry_core_segment *segment_at(const struct scry_core *core, uint64_t addr)
{
	const size_t low = scry_bisect(core->segment_count, i, core->segments[i].end <= addr);

	return low < core->segment_count && core->segments[low].start <= addr ? &core->segments[low]
									      : NULL;
}

static int read_at(int fd, uint64_t offset, char *buf, size_t size)
{
	while (size) {
		ssize_t n = pread(fd, buf, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EFAULT;
		buf += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

/* What was not dumped, from the file that was mapped there. A file that is shorter than its mapping
 * ends in zeros up to the page's end; those bytes are not an answer here. */
static int read_file(const struct scry_core *core, uint64_t addr, char *buf, size_t size)
{
	const struct scry_map_entry *m = scry_maps_at(&core->maps, addr);
	const struct scry_core_file *file = m ? scry_core_file(core, m) : NULL;

	if (!file || !file->elf || size > m->end - addr)
		return -EFAULT;
	return read_at(scry_elf_fd(file->elf), m->offset + (addr - m->start), buf, size);
}

static int read_core(const void *image, uint64_t addr, void *buf, size_t size)
{
	const struct scry_core *core = image;
	char *to = buf;

	while (size) {
		const struct scry_core_segment *p = segment_at(core, addr);
		size_t n = size;
		int err;

		if (!p)
			return -EFAULT;
		if (n > p->end - addr)
			n = p->end - addr;
		if (addr - p->start < p->filed) {
			if (n > p->filed - (addr - p->start))
				n = p->filed - (addr - p->start);
			err = read_at(core->fd, p->offset + (addr - p->start), to, n);
		} else {
			/* of what was written the file has older bytes */
			err = p->is_cut && p->flags & PF_W ? -EFAULT : read_file(core, addr, to, n);
		}
		if (err)
			return err;
		addr += n;
		to += n;
		size -= n;
	}
	return 0;
}

struct scry_mem scry_core_mem(const struct scry_core *core)
{
	return (struct scry_mem){.fd = -1, .image = core, .image_read = read_core};
}

/* --- files ------------------------------------------------------------------------------------ */

const struct scry_core_file *scry_core_file(const struct scry_core *core,
					    const struct scry_map_entry *m)
{
	return m->inode && m->inode <= core->file_count && core->files[m->inode - 1].path
		       ? &core->files[m->inode - 1]
		       : NULL;
}

/* A regular file by a name out of the core. */
static int open_regular(const char *path, struct scry_elf **ret)
{
	int err = 0, fd = scry_served_path_answers(path) ? scry_regular_open(path) : -ETIMEDOUT;
	char self[40];

	if (fd == -ETIMEDOUT)
		return scry_fail(fd,
				 "cannot open '%s': the server of its file system does not "
				 "answer",
				 path);
	if (fd < 0) {
		err = fd == -ENXIO ? -ENOENT : fd;
		return scry_fail(err, "cannot open '%s': %s", path, strerror(-err));
	}
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	err = scry_elf_open_path(self, ret);
	close(fd);
	return err == -ENOEXEC ? scry_fail(err, "'%s' is not an ELF file", path) : err;
}

int scry_core_elf(const struct scry_core *core, const struct scry_map_entry *m,
		  struct scry_elf **ret)
{
	const struct scry_core_file *file = scry_core_file(core, m);

	if (!file)
		return scry_fail(-ENOENT, "the core names no file of code at 0x%" PRIx64, m->start);
	if (file->check == SCRY_CORE_OTHER)
		return scry_fail(-ESTALE, "'%s' is no longer the file that the core's process ran",
				 file->path);
	return open_regular(file->path, ret);
}

/* Sections are not part of what is loaded: strip(1) takes them away. */
static void forget_sections(char *page)
{
	Elf64_Ehdr head;

	memcpy(&head, page, sizeof(head));
	head.e_shoff = 0;
	head.e_shnum = head.e_shstrndx = 0;
	memcpy(page, &head, sizeof(head));
}

/* Is the page that the process had at `addr` that of the file? */
static enum scry_core_check check_file(const struct scry_core *core, uint64_t addr, int fd)
{
	const struct scry_core_segment *p = segment_at(core, addr);
	char theirs[PAGE], ours[PAGE] = {0};
	ssize_t n;

	if (!p || p->filed - (addr - p->start) < PAGE || p->filed < addr - p->start ||
	    read_at(core->fd, p->offset + (addr - p->start), theirs, PAGE))
		return SCRY_CORE_UNCHECKED;
	n = pread(fd, ours, sizeof(ours), 0);
	forget_sections(theirs);
	forget_sections(ours);
	return n > 0 && memcmp(theirs, ours, (size_t)n) == 0 ? SCRY_CORE_SAME : SCRY_CORE_OTHER;
}

/* Opens each file that has code, once; `m` is its first mapping. */
static int open_file(struct scry_core *core, const struct scry_map_entry *m, const char *path)
{
	struct scry_core_file *file = &core->files[m->inode - 1];

	file->path = strdup(path);
	if (!file->path)
		return -ENOMEM;
	file->check = SCRY_CORE_GONE;
	if (open_regular(path, &file->elf)) {
		scry_error_clear();
		return 0;
	}
	file->check = m->offset ? SCRY_CORE_UNCHECKED
				: check_file(core, m->start, scry_elf_fd(file->elf));
	if (file->check == SCRY_CORE_OTHER) {
		scry_elf_close(file->elf);
		file->elf = NULL;
	}
	return 0;
}

const struct scry_map_entry *scry_core_program(const struct scry_core *core)
{
	uint64_t entry;

	return scry_core_auxv(core, AT_ENTRY, &entry) ? NULL : scry_maps_at(&core->maps, entry);
}

static int open_files(struct scry_core *core, const char *program)
{
	const struct scry_map_entry *main_at = scry_core_program(core), *m;
	int err = 0;

	core->files = calloc(core->file_count + 1, sizeof(*core->files));
	if (!core->files)
		return -ENOMEM;
	for (size_t i = 0; i < core->maps.count && !err; i++) {
		const struct scry_map_entry *first = &core->maps.entries[i];
		bool is_code = false;

		if (!first->inode || core->files[first->inode - 1].path)
			continue;
		for (m = first; m < core->maps.entries + core->maps.count && m - first < 64; m++)
			is_code |= m->x && m->inode == first->inode;
		if (is_code)
			err = open_file(core, first,
					program && main_at && first->inode == main_at->inode
						? program
						: first->path);
	}
	return err;
}

/* The file that was said to be its program must be that. */
static int judge_program(const struct scry_core *core, const char *program)
{
	const struct scry_map_entry *m = scry_core_program(core);
	const struct scry_core_file *file = m ? scry_core_file(core, m) : NULL;
	struct scry_elf *elf = NULL;
	int err = file && file->path ? 0 : -EINVAL;

	if (err)
		return scry_fail(err,
				 "the core does not say what its program was: '%s' is of no "
				 "use; fix: without --exe",
				 program);
	if (file->check == SCRY_CORE_OTHER)
		return scry_fail(-ENOEXEC, "'%s' is not the program that the core's process ran",
				 program);
	err = open_regular(program, &elf);
	scry_elf_close(elf);
	return err;
}

/* Which of the mappings that were not dumped are code, the files say. */
static void settle_code(struct scry_core *core)
{
	for (size_t i = 0; i < core->maps.count; i++) {
		struct scry_map_entry *m = &core->maps.entries[i];
		const struct scry_core_segment *p = segment_at(core, m->start);
		const struct scry_core_file *file = scry_core_file(core, m);
		const Elf64_Phdr *h;

		if (!m->x || !p || p->filed || !file || !file->elf)
			continue;
		m->x = false;
		for (size_t j = 0; (h = scry_elf_segment(file->elf, j)); j++)
			m->x |= h->p_type == PT_LOAD && h->p_flags & PF_X &&
				h->p_offset / PAGE * PAGE == m->offset;
	}
}

/* --- tables ----------------------------------------------------------------------------------- */

static int compare_segments(const void *a, const void *b)
{
	const struct scry_core_segment *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static void add_segment(struct scry_core *core, const GElf_Phdr *p)
{
	struct scry_core_segment segment = {.start = p->p_vaddr,
					    .filed = p->p_filesz,
					    .offset = p->p_offset,
					    .flags = p->p_flags};
	uint64_t size = p->p_memsz > p->p_filesz ? p->p_memsz : p->p_filesz;

	if (!size || p->p_vaddr >= ADDRESS_END || size > ADDRESS_END - p->p_vaddr ||
	    p->p_offset >= ADDRESS_END)
		return;
	segment.end = segment.start + size;
	if (segment.offset > core->size)
		segment.filed = 0;
	else if (segment.filed > core->size - segment.offset)
		segment.filed = core->size - segment.offset;
	core->cut += p->p_filesz - segment.filed;
	segment.is_cut = segment.filed != p->p_filesz;
	core->segments[core->segment_count++] = segment;
}

static void sort_segments(struct scry_core *core)
{
	size_t n = 0;

	qsort(core->segments, core->segment_count, sizeof(*core->segments), compare_segments);
	for (size_t i = 0; i < core->segment_count; i++)
		if (!n || core->segments[i].start >= core->segments[n - 1].end)
			core->segments[n++] = core->segments[i];
	core->segment_count = n;
}

static int read_tables(struct scry_core *core, Elf *elf, struct scry_core_names *names)
{
	uint64_t notes = 0; /* bytes: segments may be the same ones, again and again */
	size_t count = 0;
	int err = 0;

	if (elf_getphdrnum(elf, &count))
		count = 0;
	if (count > SCRY_MAPS_MAX)
		return scry_fail(-E2BIG,
				 "the core has %zu segments, more than the %u that scry looks "
				 "through",
				 count, SCRY_MAPS_MAX);
	core->segments = calloc(count + 1, sizeof(*core->segments));
	if (!core->segments)
		return -ENOMEM;
	for (size_t i = 0; i < count && !err; i++) {
		GElf_Phdr p;
		Elf_Data *data;

		if (!gelf_getphdr(elf, (int)i, &p))
			continue;
		if (p.p_type == PT_LOAD)
			add_segment(core, &p);
		if (p.p_type != PT_NOTE || p.p_offset >= core->size)
			continue;
		if (p.p_filesz > core->size - p.p_offset)
			p.p_filesz = core->size - p.p_offset;
		if (p.p_filesz > NOTES_MAX - notes)
			return scry_fail(
				-E2BIG,
				"the core has notes of more than the %u MiB that scry reads",
				NOTES_MAX >> 20);
		notes += p.p_filesz;
		data = elf_getdata_rawchunk(elf, (int64_t)p.p_offset, p.p_filesz,
					    p.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		if (data)
			err = scry_core_notes(core, data, names);
	}
	sort_segments(core);
	return err;
}

/* gcore leaves out what it does not dump: code and constants of files. */
static int add_undumped(struct scry_core *core, const struct scry_core_names *names)
{
	size_t known = core->segment_count, at = 0;
	struct scry_core_segment *more =
		reallocarray(core->segments, 2 * known + names->count + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	core->segments = more;
	for (size_t i = 0; i < names->count; i++) {
		uint64_t start = names->rows[i].start, end = names->rows[i].end;

		while (at < known && more[at].end <= start)
			at++;
		for (size_t j = at; start < end; j++) {
			uint64_t stop = j < known && more[j].start < end ? more[j].start : end;

			if (start < stop)
				more[core->segment_count++] = (struct scry_core_segment){
					.start = start, .end = stop, .flags = PF_R | PF_X};
			start = j < known && more[j].end < end ? more[j].end : end;
		}
	}
	sort_segments(core);
	return 0;
}

/* As a line of /proc/PID/maps, for scry_maps_parse. */
static void put_mapping(struct scry_buf *buf, const struct scry_map_entry *m)
{
	scry_buf_printf(buf, "%" PRIx64 "-%" PRIx64 " %c%c%cp %" PRIx64 " 00:00 %" PRIu64 " ",
			m->start, m->end, m->r ? 'r' : '-', m->w ? 'w' : '-', m->x ? 'x' : '-',
			m->offset, m->inode);
	for (const char *c = m->path; *c; c++)
		scry_buf_printf(buf, *c == '\n' ? "\\012" : "%c", *c);
	scry_buf_printf(buf, "\n");
}

/* The mapping that begins at `start` in a segment: up to where NT_FILE says that a file begins or
 * ends.
 */
static struct scry_map_entry cut(const struct scry_core_segment *p, uint64_t start,
				 const struct scry_core_named *row, struct scry_intern *paths)
{
	struct scry_map_entry m = {.start = start,
				   .end = p->end,
				   .r = p->flags & PF_R,
				   .w = p->flags & PF_W,
				   .x = p->flags & PF_X,
				   .path = ""};
	uint32_t id;

	if (row && row->start > start && row->start < p->end)
		m.end = row->start;
	if (row && row->start <= start) {
		m.end = row->end < p->end ? row->end : p->end;
		m.offset = row->offset + (start - row->start);
		m.path = row->path;
		if (row->path[0] == '/' &&
		    scry_intern_put(paths, row->path, strlen(row->path), &id) == 0)
			m.inode = id;
	}
	return m;
}

static int make_maps(struct scry_core *core, const struct scry_core_names *names)
{
	struct scry_intern paths;
	struct scry_buf text = {0};
	size_t at = 0;

	scry_intern_init(&paths, FILES_MAX, FILES_MAX * PAGE);
	for (size_t i = 0; i < core->segment_count; i++) {
		const struct scry_core_segment *p = &core->segments[i];

		for (uint64_t start = p->start; start < p->end;) {
			struct scry_map_entry m;

			while (at < names->count && names->rows[at].end <= start)
				at++;
			m = cut(p, start, at < names->count ? &names->rows[at] : NULL, &paths);
			put_mapping(&text, &m);
			start = m.end;
		}
	}
	core->file_count = paths.count;
	scry_intern_done(&paths);
	if (text.failed || (!text.data && scry_buf_append(&text, "\n", 1))) {
		scry_buf_done(&text);
		return -ENOMEM;
	}
	return scry_maps_parse(text.data, &core->maps);
}

int scry_core_auxv(const struct scry_core *core, uint64_t type, uint64_t *ret)
{
	for (size_t i = 0; i < core->auxv_count; i++)
		if (core->auxv[2 * i] == type) {
			*ret = core->auxv[2 * i + 1];
			return 0;
		}
	return -ENOENT;
}

/* Is it a core, of this kind of machine? */
static int check_head(Elf *elf, const char *path)
{
	GElf_Ehdr head;

	if (!elf || elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &head) ||
	    head.e_type != ET_CORE)
		return scry_fail(-ENOEXEC, "'%s' is not a core file", path);
	if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != EM_X86_64 ||
	    head.e_ident[EI_DATA] != ELFDATA2LSB)
		return scry_fail(-ENOEXEC, "'%s' is not a core of an x86-64 process", path);
	return 0;
}

static int open_core(struct scry_core *core, const char *path, const char *program)
{
	struct scry_core_names names = {0};
	struct stat st;
	Elf *elf;
	int err;

	core->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (core->fd < 0 || fstat(core->fd, &st)) {
		err = -errno;
		return scry_fail(err, "cannot open '%s': %s", path, strerror(-err));
	}
	if (!S_ISREG(st.st_mode))
		return scry_fail(-ENOEXEC, "'%s' is not a core file", path);
	core->size = (uint64_t)st.st_size;
	elf_version(EV_CURRENT);
	elf = elf_begin(core->fd, ELF_C_READ, NULL);
	err = check_head(elf, path);
	if (!err)
		err = read_tables(core, elf, &names);
	if (!err)
		err = add_undumped(core, &names);
	if (!err)
		err = make_maps(core, &names);
	free(names.rows);
	elf_end(elf);
	if (!err)
		err = open_files(core, program);
	if (!err && program)
		err = judge_program(core, program);
	if (!err)
		settle_code(core);
	if (err == -ENOMEM)
		scry_no_memory("the core '%s'", path);
	if (!err && (!core->segment_count || !core->thread_count))
		err = scry_fail(-ENODATA,
				"the core '%s' has no %s: it was cut off at %" PRIu64
				" bytes; fix: look at ulimit -c and the disk's room",
				path, core->segment_count ? "threads" : "memory", core->size);
	return err;
}

int scry_core_open(const char *path, const char *program, struct scry_core **ret)
{
	struct scry_core *core = calloc(1, sizeof(*core));
	int err;

	if (!core)
		return scry_no_memory("the core '%s'", path);
	core->fd = -1;
	err = open_core(core, path, program);
	if (err)
		scry_core_close(core);
	else
		*ret = core;
	return err;
}

void scry_core_close(struct scry_core *core)
{
	if (!core)
		return;
	for (size_t i = 0; i < core->file_count && core->files; i++) {
		scry_elf_close(core->files[i].elf);
		free(core->files[i].path);
	}
	free(core->files);
	free(core->threads);
	free(core->segments);
	scry_maps_done(&core->maps);
	if (core->fd >= 0)
		close(core->fd);
	free(core);
}
