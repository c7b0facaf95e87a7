/* sys/core on a small core whose every byte is known; cut off, its file replaced, or none at all.
 */
#include "sys/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/err.h"
#include "core_make.h"
#include "sys/regular.h"

#define FILE_OF SCRY_TARGET_DIR "/libplug.so"

static int open_bytes(const uint8_t *bytes, size_t size, struct scry_core **ret)
{
	int fd = memfd_create("core", MFD_CLOEXEC), err;
	char path[40];

	assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = scry_core_open(path, NULL, ret);
	close(fd);
	return err;
}

static void test_whole(void **state)
{
	uint8_t bytes[CORE_SIZE], word[8], page[CORE_PAGE], file[CORE_PAGE];
	const struct scry_map_entry *m;
	struct scry_core *core;
	struct scry_elf *elf;
	struct scry_mem mem;
	uint64_t entry;
	int fd = open(FILE_OF, O_RDONLY | O_CLOEXEC);

	assert_int_equal(open_bytes(bytes, core_make(bytes, FILE_OF), &core), 0);
	assert_int_equal(core->pid, 4711);
	assert_string_equal(core->comm, "maker");
	assert_int_equal(core->signal, 6);
	assert_int_equal(core->thread_count, 2);
	assert_int_equal(core->threads[1].tid, 4712);
	assert_int_equal(core->threads[0].regs.rip, CORE_CODE + CORE_PAGE + 16);
	assert_int_equal(core->cut, 0);
	assert_int_equal(scry_core_auxv(core, AT_ENTRY, &entry), 0);
	assert_int_equal(entry, CORE_CODE + CORE_PAGE);
	m = scry_core_program(core);
	assert_true(m && m->x && m->offset == CORE_PAGE);
	assert_string_equal(m->path, FILE_OF);
	assert_int_equal(scry_core_file(core, m)->check, SCRY_CORE_SAME);
	assert_int_equal(scry_core_elf(core, m, &elf), 0);
	scry_elf_close(elf);
	/* code comes from the file, what was written from the core, across parts too */
	mem = scry_core_mem(core);
	assert_int_equal(scry_mem_read(&mem, CORE_CODE + CORE_PAGE, page, CORE_PAGE), 0);
	assert_int_equal(pread(fd, file, CORE_PAGE, CORE_PAGE), CORE_PAGE);
	assert_memory_equal(page, file, CORE_PAGE);
	assert_int_equal(scry_mem_read(&mem, CORE_CODE + 2 * CORE_PAGE - 4, word, 8), 0);
	assert_memory_equal(word, file + CORE_PAGE - 4, 4);
	assert_memory_equal(word + 4, "cccc", 4);
	assert_int_equal(scry_mem_read(&mem, CORE_HEAP + 2 * CORE_PAGE - 8, word, 8), 0);
	assert_memory_equal(word, "dddddddd", 8);
	assert_int_equal(scry_mem_read(&mem, CORE_HEAP + 2 * CORE_PAGE - 4, word, 8), -EFAULT);
	assert_int_equal(scry_mem_read(&mem, CORE_HEAP + 3 * CORE_PAGE, word, 8), -EFAULT);
	scry_core_close(core);
	close(fd);
}

static void test_cut(void **state)
{
	uint8_t bytes[CORE_SIZE], word[8];
	size_t size = core_make(bytes, FILE_OF);
	struct scry_core *core;
	struct scry_mem mem;

	/* in the midst of the heap, and in the midst of the file's data: which is not its file's */
	assert_int_equal(open_bytes(bytes, size - 2 * CORE_PAGE, &core), 0);
	assert_int_equal(core->cut, 2 * CORE_PAGE);
	mem = scry_core_mem(core);
	assert_int_equal(scry_mem_read(&mem, CORE_HEAP + CORE_PAGE - 8, word, 8), 0);
	assert_int_equal(scry_mem_read(&mem, CORE_HEAP + CORE_PAGE, word, 8), -EFAULT);
	scry_core_close(core);
	assert_int_equal(open_bytes(bytes, 3 * CORE_PAGE + 8, &core), 0);
	mem = scry_core_mem(core);
	assert_int_equal(scry_mem_read(&mem, CORE_CODE + 2 * CORE_PAGE, word, 8), 0);
	assert_memory_equal(word, "cccccccc", 8);
	assert_int_equal(scry_mem_read(&mem, CORE_CODE + 2 * CORE_PAGE + 8, word, 8), -EFAULT);
	scry_core_close(core);
	/* before the notes */
	assert_int_equal(open_bytes(bytes, 600, &core), -ENODATA);
	assert_non_null(strstr(scry_error(), "cut off at 600 bytes"));
	scry_error_clear();
}

static void test_other_file(void **state)
{
	uint8_t bytes[CORE_SIZE], word[8];
	size_t size = core_make(bytes, FILE_OF);
	struct scry_core *core;
	struct scry_mem mem;

	bytes[2 * CORE_PAGE + offsetof(Elf64_Ehdr, e_shoff)] ^= 8; /* stripped since */
	assert_int_equal(open_bytes(bytes, size, &core), 0);
	assert_int_equal(core->files[0].check, SCRY_CORE_SAME);
	scry_core_close(core);
	bytes[2 * CORE_PAGE + 900] ^= 1; /* its first page was another */
	assert_int_equal(open_bytes(bytes, size, &core), 0);
	assert_int_equal(core->files[0].check, SCRY_CORE_OTHER);
	mem = scry_core_mem(core);
	assert_int_equal(scry_mem_read(&mem, CORE_CODE + CORE_PAGE, word, 8), -EFAULT);
	assert_int_equal(scry_mem_read(&mem, CORE_CODE, word, 8), 0);
	scry_core_close(core);
	size = core_make(bytes, "/nowhere/at/all");
	assert_int_equal(open_bytes(bytes, size, &core), 0);
	assert_int_equal(core->files[0].check, SCRY_CORE_GONE);
	scry_core_close(core);
}

static void test_no_core(void **state)
{
	struct scry_core *core;

	assert_int_equal(scry_core_open(FILE_OF, NULL, &core), -ENOEXEC);
	assert_int_equal(scry_core_open("/", NULL, &core), -ENOEXEC);
	assert_int_equal(scry_core_open("/dev/null", NULL, &core), -ENOEXEC);
	assert_int_equal(scry_core_open("/nowhere", NULL, &core), -ENOENT);
	/* names that a core has of files are not trusted to be files */
	assert_int_equal(scry_regular_open("/proc/version"), -ENXIO);
	assert_non_null(strstr(scry_error(), "'/nowhere'"));
	scry_error_clear();
}

/* Notes that are named again and again cost no more than their limit. */
static void test_overlapping_notes(void **state)
{
	enum { ROWS = 40000, EACH = 8192 };
	const size_t size = CORE_SIZE + ROWS * sizeof(Elf64_Phdr);
	uint8_t *bytes = calloc(1, size);
	struct scry_core *core;
	Elf64_Ehdr head;
	Elf64_Phdr p;

	assert_non_null(bytes);
	core_make(bytes, FILE_OF);
	memcpy(&head, bytes, sizeof(head));
	memcpy(&p, bytes + head.e_phoff, sizeof(p));
	p.p_filesz = EACH;
	head.e_phoff = CORE_SIZE;
	head.e_phnum = ROWS;
	memcpy(bytes, &head, sizeof(head));
	for (size_t i = 0; i < ROWS; i++)
		memcpy(bytes + CORE_SIZE + i * sizeof(p), &p, sizeof(p));
	assert_int_equal(open_bytes(bytes, size, &core), -E2BIG);
	assert_non_null(strstr(scry_error(), "notes of more than the 256 MiB"));
	scry_error_clear();
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_other_file),
		cmocka_unit_test(test_no_core),
		cmocka_unit_test(test_overlapping_notes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
