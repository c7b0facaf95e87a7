/*
 * sys/modules on this process: an object that is mapped twice; one whose file is not what memory
 * has; one whose file was written anew; files that were read before; the vDSO.
 */
#include "sys/modules.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "sys/elf_memory.h"

#define WORK SCRY_TARGET_DIR "/libwork.so"
#define PAGE 4096ul

static char path[sizeof("/dev/shm/scry-modules-XXXXXX")] = "/tmp/scry-modules-XXXXXX";

static void copy_work(void)
{
	static uint8_t bytes[1 << 20];
	int from = open(WORK, O_RDONLY), to = open(path, O_WRONLY | O_CREAT, 0700);
	ssize_t n = read(from, bytes, sizeof(bytes));

	assert_true(n > 0 && n < (ssize_t)sizeof(bytes) && write(to, bytes, (size_t)n) == n);
	close(from);
	close(to);
}

static void assert_name(struct scry_modules *t, const void *function, const char *symbol)
{
	struct scry_code_name name;

	scry_modules_name(t, (uintptr_t)function + 1, &name);
	assert_non_null(name.symbol);
	assert_string_equal(name.symbol, symbol);
	assert_int_equal(name.offset, 1);
	free(name.module);
}

/* The entry of the function at `address`, by the unwind tables. */
static uint64_t entry(struct scry_modules *t, uint64_t address)
{
	uint64_t bias;
	struct scry_module *m = scry_modules_at(t, address, &bias);
	const struct scry_fdes *fdes = m ? scry_module_fdes(m) : NULL;

	for (size_t i = 0; fdes && i < fdes->count; i++)
		if (fdes->rows[i].start <= address - bias && address - bias < fdes->rows[i].end)
			return fdes->rows[i].start + bias;
	return 0;
}

static void test_twice(void **state)
{
	void *one = dlopen("libm.so.6", RTLD_NOW),
	     *two = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
	const uint64_t first = (uintptr_t)dlsym(one, "cbrt"),
		       second = (uintptr_t)dlsym(two, "cbrt");
	struct scry_modules *t = scry_modules_new(getpid());
	uint64_t bias[2];

	(void)state;
	assert_true(first && second && first != second);
	assert_int_equal(entry(t, first + 1), first);
	assert_int_equal(entry(t, second + 1), second);
	assert_int_equal(entry(t, first + 1), first);
	assert_ptr_equal(scry_modules_at(t, first, &bias[0]), scry_modules_at(t, second, &bias[1]));
	assert_true(bias[0] != bias[1]);
	scry_modules_free(t);
	dlclose(two);
	dlclose(one);
}

/* The build-id, in memory. */
static uint8_t *build_id(void *function)
{
	Dl_info info;
	const ElfW(Ehdr) * head;
	const ElfW(Phdr) * p;

	assert_int_not_equal(dladdr(function, &info), 0);
	head = info.dli_fbase;
	p = (const void *)((const uint8_t *)head + head->e_phoff);
	for (int i = 0; i < head->e_phnum; i++) {
		uint8_t *at = (uint8_t *)info.dli_fbase + p[i].p_vaddr, *end = at + p[i].p_filesz;

		while (p[i].p_type == PT_NOTE && at < end) {
			ElfW(Nhdr) note;

			memcpy(&note, at, sizeof(note));
			if (note.n_type == NT_GNU_BUILD_ID)
				return at + sizeof(note) + 4;
			at += sizeof(note) + (note.n_namesz + 3) / 4 * 4 +
			      (note.n_descsz + 3) / 4 * 4;
		}
	}
	return NULL;
}

static void write_memory(uint8_t *at, uint8_t byte)
{
	uint8_t *page = (uint8_t *)((uintptr_t)at & ~(PAGE - 1));

	assert_int_equal(mprotect(page, PAGE, PROT_READ | PROT_WRITE), 0);
	*at = byte;
	assert_int_equal(mprotect(page, PAGE, PROT_READ), 0);
}

/* What memory has is another build than the file: symbols, rules and code come from memory. */
static void test_other_file(void **state)
{
	struct scry_modules *t;
	struct scry_module *m;
	const uint8_t *id;
	uint8_t *at, byte;
	uint64_t bias;
	void *work, *function;

	(void)state;
	copy_work();
	work = dlopen(path, RTLD_NOW);
	function = dlsym(work, "work_call");
	assert_non_null(function);
	at = build_id(function);
	assert_non_null(at);
	byte = (uint8_t) ~*at;
	write_memory(at, byte);
	t = scry_modules_new(getpid());
	m = scry_modules_at(t, (uintptr_t)function, &bias);
	assert_non_null(m);
	assert_true(scry_elf_build_id(scry_module_elf(m), &id) >= 16);
	assert_int_equal(*id, byte);
	assert_name(t, function, "work_call");
	assert_int_equal(entry(t, (uintptr_t)function), (uintptr_t)function);
	assert_true(scry_module_cfi(m)->rows.count > 2);
	/* a copy is made once */
	scry_modules_see(t);
	assert_ptr_equal(scry_modules_at(t, (uintptr_t)function, &bias), m);
	/* memory that is as the file again is the file's */
	write_memory(at, (uint8_t)~byte);
	scry_modules_see(t);
	assert_ptr_not_equal(scry_modules_at(t, (uintptr_t)function, &bias), m);
	assert_name(t, function, "work_call");
	scry_modules_free(t);
	dlclose(work);
	unlink(path);
}

/* A file keeps its number when it is written anew; what was read of it does not hold. */
static void test_written_anew(void **state)
{
	struct scry_modules *t = scry_modules_new(getpid());
	struct scry_module *before;
	struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct stat was, is;
	uint64_t bias;
	void *work;

	(void)state;
	copy_work();
	work = dlopen(path, RTLD_NOW);
	scry_modules_see(t);
	before = scry_modules_at(t, (uintptr_t)dlsym(work, "work_call"), &bias);
	assert_non_null(before);
	dlclose(work);
	assert_int_equal(stat(path, &was), 0);
	copy_work();
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	assert_int_equal(stat(path, &is), 0);
	assert_int_equal(was.st_ino, is.st_ino);
	work = dlopen(path, RTLD_NOW);
	scry_modules_see(t);
	assert_ptr_not_equal(scry_modules_at(t, (uintptr_t)dlsym(work, "work_call"), &bias),
			     before);
	assert_name(t, dlsym(work, "work_call"), "work_call");
	scry_modules_free(t);
	dlclose(work);
	unlink(path);
}

static const struct scry_elf *libc_of(struct scry_modules *t)
{
	uint64_t bias;
	struct scry_module *m = scry_modules_at(t, (uintptr_t)dlsym(RTLD_DEFAULT, "malloc"), &bias);

	return m ? scry_module_elf(m) : NULL;
}

/* The next program that has the same library gets what was read of it; the names are right there,
 * and when the first one is over. */
static void test_kept(void **state)
{
	struct scry_modules *one = scry_modules_new(getpid()), *two = scry_modules_new(getpid());

	(void)state;
	assert_non_null(libc_of(one));
	assert_ptr_equal(libc_of(one), libc_of(two));
	scry_modules_free(one);
	assert_name(two, dlsym(RTLD_DEFAULT, "getenv"), "getenv");
	scry_modules_free(two);
	one = scry_modules_new(getpid());
	assert_name(one, dlsym(RTLD_DEFAULT, "getenv"), "getenv");
	scry_modules_free(one);
}

static bool is_open(const char *file)
{
	char link[32], to[64];

	for (int fd = 3; fd < 1024; fd++) {
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		if (!strcmp(to, file))
			return true;
	}
	return false;
}

/* A file system that nobody uses any more can be unmounted; that of "/" never is. */
static void test_not_kept(void **state)
{
	char other[] = "/dev/shm/scry-modules-XXXXXX", at_root[sizeof(path)];
	struct scry_modules *t;
	struct stat st, root;
	void *work;

	(void)state;
	memcpy(at_root, path, sizeof(path));
	close(mkstemp(other));
	assert_int_equal(stat(other, &st) | stat("/", &root), 0);
	if (st.st_dev == root.st_dev) {
		unlink(other);
		print_message("/dev/shm is no file system of its own here\n");
		skip();
	}
	memcpy(path, other, sizeof(other));
	copy_work();
	memcpy(path, at_root, sizeof(path));
	work = dlopen(other, RTLD_NOW);
	assert_non_null(work);
	t = scry_modules_new(getpid());
	assert_name(t, dlsym(work, "work_call"), "work_call");
	assert_true(is_open(other));
	scry_modules_free(t);
	assert_false(is_open(other));
	dlclose(work);
	unlink(other);
}

/* What was kept of a file is asked of each program's memory. */
static void test_kept_is_proven(void **state)
{
	struct scry_modules *t;
	const uint8_t *id;
	uint8_t *at, byte;
	uint64_t bias;
	void *work, *function;

	(void)state;
	copy_work();
	work = dlopen(path, RTLD_NOW);
	function = dlsym(work, "work_call");
	t = scry_modules_new(getpid());
	assert_name(t, function, "work_call");
	scry_modules_free(t);
	at = build_id(function);
	byte = (uint8_t) ~*at;
	write_memory(at, byte);
	t = scry_modules_new(getpid());
	assert_true(
		scry_elf_build_id(scry_module_elf(scry_modules_at(t, (uintptr_t)function, &bias)),
				  &id) >= 16);
	assert_int_equal(*id, byte);
	assert_name(t, function, "work_call");
	scry_modules_free(t);
	write_memory(at, (uint8_t)~byte);
	dlclose(work);
	unlink(path);
}

static void test_vdso(void **state)
{
	struct scry_modules *t = scry_modules_new(getpid());
	void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
	const void *function = vdso ? dlsym(vdso, "__vdso_clock_gettime") : NULL;
	uint64_t bias;

	(void)state;
	assert_non_null(function);
	assert_name(t, function, "clock_gettime");
	assert_non_null(scry_modules_at(t, (uintptr_t)function, &bias));
	assert_int_equal(bias, getauxval(AT_SYSINFO_EHDR));
	scry_modules_free(t);
}

/* A process that ends between a look at its mappings and the first name. */
static void test_vdso_of_the_dead(void **state)
{
	void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
	const void *function = dlsym(vdso, "__vdso_clock_gettime");
	struct scry_modules *t;
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		pause();
		_exit(0);
	}
	t = scry_modules_new(pid);
	scry_modules_see_on(t);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_name(t, function, "clock_gettime");
	scry_modules_free(t);
}

#define FORGED (60ul << 20)

/* An ELF object of 60 MiB: a header, `full` bytes that are not zero, and a hole. */
static uint8_t *forge(size_t full)
{
	const Elf64_Ehdr head = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(head),
		.e_ehsize = sizeof(head),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1};
	const Elf64_Phdr load = {.p_type = PT_LOAD,
				 .p_flags = PF_R | PF_X,
				 .p_filesz = FORGED,
				 .p_memsz = FORGED,
				 .p_align = PAGE};
	uint8_t *at = mmap(NULL, FORGED, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), &load, sizeof(load));
	memset(at + PAGE, 0x90, full);
	return at;
}

/* Zeros take up nothing; what is read of a process has a limit. */
static void test_copy_of_holes(void **state)
{
	uint8_t *at = forge(PAGE), last = 1;
	struct scry_mem mem;
	struct scry_elf_copies copies = {.mem = &mem, .left = FORGED + PAGE};
	struct scry_elf *elf, *none = NULL;
	struct stat st;
	uint64_t bias;

	(void)state;
	assert_int_equal(scry_mem_open(&mem, getpid(), 0), 0);
	assert_int_equal(scry_elf_open_memory(&copies, (uintptr_t)at, &elf, &bias), 0);
	assert_int_equal(bias, (uintptr_t)at);
	assert_int_equal(fstat(scry_elf_fd(elf), &st), 0);
	assert_int_equal(st.st_size, FORGED);
	assert_true(st.st_blocks * 512 <= 4 * (blkcnt_t)PAGE);
	assert_true(copies.kept >= 2 * PAGE && copies.kept <= 4 * PAGE);
	assert_int_equal(pread(scry_elf_fd(elf), &last, 1, FORGED - 1), 1);
	assert_int_equal(last, 0);
	assert_int_equal(pread(scry_elf_fd(elf), &last, 1, 2 * PAGE - 1), 1);
	assert_int_equal(last, 0x90);
	assert_int_equal(copies.left, PAGE);
	assert_int_equal(scry_elf_open_memory(&copies, (uintptr_t)at, &none, &bias), -EFBIG);
	assert_null(none);
	scry_elf_close(elf);
	scry_elf_copies_done(&copies);
	scry_mem_close(&mem);
	munmap(at, FORGED);
}

/* Copies out of many processes have one limit, and what is freed is given back. */
static void test_copies_in_all(void **state)
{
	enum { MANY = SCRY_ELF_MEMORY_KEPT_MAX / (FORGED - 2 * PAGE) + 1 };
	uint8_t *at = forge(FORGED - 2 * PAGE);
	struct scry_elf_copies copies[MANY];
	struct scry_elf *elfs[MANY] = {NULL};
	struct scry_mem mem;
	uint64_t bias;

	(void)state;
	assert_int_equal(scry_mem_open(&mem, getpid(), 0), 0);
	for (int i = 0; i < MANY; i++) {
		copies[i] = (struct scry_elf_copies){.mem = &mem, .left = FORGED};
		assert_int_equal(scry_elf_open_memory(&copies[i], (uintptr_t)at, &elfs[i], &bias),
				 i == MANY - 1 ? -EFBIG : 0);
	}
	assert_non_null(strstr(scry_error(), "256 MiB"));
	assert_int_equal(copies[MANY - 1].kept, 0);
	scry_elf_close(elfs[0]);
	scry_elf_copies_done(&copies[0]);
	copies[0].left = FORGED;
	assert_int_equal(scry_elf_open_memory(&copies[0], (uintptr_t)at, &elfs[0], &bias), 0);
	for (int i = 0; i < MANY; i++) {
		scry_elf_close(elfs[i]);
		scry_elf_copies_done(&copies[i]);
	}
	scry_mem_close(&mem);
	munmap(at, FORGED);
}

/* Code that is no object (a JIT's, in a file of memory) takes one place of the table, however often
 * it is looked at. */
static void test_no_object(void **state)
{
	int fd = memfd_create("jit", MFD_CLOEXEC);
	struct scry_modules *t = scry_modules_new(getpid());
	uint64_t bias;
	void *jit, *work;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "\xc3\xc3\xc3\xc3", 4), 4);
	jit = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(jit, MAP_FAILED);
	for (int i = 0; i < 600; i++) { /* more than there are places */
		scry_modules_see(t);
		assert_null(scry_modules_at(t, (uintptr_t)jit, &bias));
	}
	copy_work();
	work = dlopen(path, RTLD_NOW);
	assert_non_null(work);
	scry_modules_see(t);
	assert_name(t, dlsym(work, "work_call"), "work_call");
	scry_modules_free(t);
	dlclose(work);
	unlink(path);
	munmap(jit, PAGE);
	close(fd);
}

static void test_none(void **state)
{
	struct scry_modules *t = scry_modules_new(0);
	struct scry_code_name name;
	uint64_t bias;

	(void)state;
	assert_non_null(t);
	assert_null(scry_modules_at(t, (uintptr_t)test_none, &bias));
	scry_modules_name(t, (uintptr_t)test_none, &name);
	assert_string_equal(name.module, "[unmapped]");
	free(name.module);
	scry_modules_see(t);
	scry_modules_free(t);
}

static int set_up(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	close(fd);
	return fd < 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_twice),	      cmocka_unit_test(test_other_file),
		cmocka_unit_test(test_written_anew),  cmocka_unit_test(test_kept),
		cmocka_unit_test(test_not_kept),      cmocka_unit_test(test_kept_is_proven),
		cmocka_unit_test(test_vdso),	      cmocka_unit_test(test_vdso_of_the_dead),
		cmocka_unit_test(test_copy_of_holes), cmocka_unit_test(test_copies_in_all),
		cmocka_unit_test(test_no_object),     cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
