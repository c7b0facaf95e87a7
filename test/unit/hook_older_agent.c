/*
 * The header of an agent of ABI 3, in this process: it is found, taken for whole or not as its
 * stage says, and never for one of ours. What stands in its header is what a scry of then wrote.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "hook/agent_map.h"

#define CODE_BYTES (19 * SCRY_PAGE) /* header page included */
#define PRIVATE_BYTES (45u << 20)
#define SHARED_BYTES ((8u << 20) + SCRY_PAGE)

struct older_header { /* as it was */
	uint64_t magic;
	uint32_t abi, stage;
	uint64_t image_hash, text, text_size, private_, private_size, shared, shared_size;
	uint64_t tail, nonce, image, image_data, child_buffers, child_buffers_size, has_open,
		slab_count;
	struct scry_slab slabs[SCRY_SLABS_MAX];
};

static uint64_t text;

static int put(void **state)
{
	/* closed pages around it: it is a mapping of its own */
	char *all = mmap(NULL, CODE_BYTES + 2 * SCRY_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	struct older_header h = {
		.magic = SCRY_AGENT_MAGIC, .abi = 3, .stage = SCRY_AGENT_READY, .nonce = 4711};

	(void)state;
	assert_ptr_not_equal(all, MAP_FAILED);
	text = (uint64_t)(uintptr_t)all + SCRY_PAGE;
	h.text = text;
	h.text_size = CODE_BYTES;
	h.private_ = h.text + h.text_size;
	h.private_size = PRIVATE_BYTES;
	h.shared = h.private_ + h.private_size;
	h.shared_size = SHARED_BYTES;
	h.image = h.text + SCRY_PAGE;
	h.image_data = h.private_;
	h.tail = h.private_ + 4 * SCRY_PAGE;
	h.slab_count = 1;
	h.slabs[0].code = 4096;
	assert_int_equal(mprotect(all + SCRY_PAGE, CODE_BYTES, PROT_READ | PROT_WRITE), 0);
	memcpy(all + SCRY_PAGE, &h, sizeof(h));
	assert_int_equal(mprotect(all + SCRY_PAGE, CODE_BYTES, PROT_READ | PROT_EXEC), 0);
	return 0;
}

static void found_and_not_ours(void **state)
{
	struct scry_agent_header h;
	struct scry_agent_source source;
	struct scry_maps maps = {0};
	struct scry_mem mem;

	(void)state;
	assert_int_equal(scry_mem_open(&mem, getpid(), 0), 0);
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	assert_int_equal(scry_agent_source_read(&source), 0);
	assert_int_equal(scry_agent_find(&mem, &maps, &h), 0);
	assert_int_equal(h.text, text);
	assert_int_equal(h.abi, 3);
	assert_int_equal(h.slab_count, 1);
	assert_int_equal(h.slabs[0].code, 4096);
	assert_int_equal(h.parts, 0);
	assert_false(scry_agent_is_ours(&h, &mem, &source));
	h.image_hash = source.hash; /* whatever it says */
	assert_false(scry_agent_is_ours(&h, &mem, &source));
	h.image_hash = 0; /* all that is reserved */
	h.slab_count = 0;
	assert_int_equal(scry_agent_bytes(&h),
			 SCRY_PAGE + CODE_BYTES + PRIVATE_BYTES + SHARED_BYTES);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(found_and_not_ours)};

	return cmocka_run_group_tests(tests, put, NULL);
}
