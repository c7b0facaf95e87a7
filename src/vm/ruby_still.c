/*
 * A page cache over scry_mem: open addressing, 2^16 pages (256 MiB) at most, holes are remembered
 * too.
 *
 * When the table is full, further pages are read from the source each time: slower, never wrong.
 */
#include "vm/ruby_still.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define TABLE (1u << 16)
#define LINE (PAGE / 64)

struct page {
	uint64_t addr;	/* 0: free */
	uint8_t *bytes; /* NULL: a hole */
	uint64_t read;	/* a bit for each LINE bytes that were asked for */
};

struct scry_still {
	const struct scry_mem *source;
	size_t used;
	struct page pages[TABLE];
};

struct scry_still *scry_still_new(const struct scry_mem *source)
{
	struct scry_still *still = calloc(1, sizeof(*still));

	if (still)
		still->source = source;
	return still;
}

void scry_still_free(struct scry_still *still)
{
	if (!still)
		return;
	for (size_t i = 0; i < TABLE; i++)
		free(still->pages[i].bytes);
	free(still);
}

/* The page at `addr` (page-aligned), fetched if need be; NULL when the table is full. */
static struct page *page_at(struct scry_still *still, uint64_t addr)
{
	size_t at = (size_t)((addr / PAGE) * 0x9e3779b97f4a7c15ull >> 48) % TABLE;
	struct page *p;

	while (still->pages[at].addr && still->pages[at].addr != addr)
		at = (at + 1) % TABLE;
	p = &still->pages[at];
	if (p->addr)
		return p;
	if (still->used >= TABLE / 2)
		return NULL;
	still->used++;
	p->addr = addr;
	p->bytes = malloc(PAGE);
	if (p->bytes && scry_mem_read(still->source, addr, p->bytes, PAGE) != 0) {
		free(p->bytes);
		p->bytes = NULL;
	}
	return p;
}

static int read_cached(const void *image, uint64_t addr, void *buf, size_t size)
{
	struct scry_still *still = (struct scry_still *)(uintptr_t)image;
	char *out = buf;

	while (size) {
		uint64_t base = addr & ~(uint64_t)(PAGE - 1);
		size_t at = (size_t)(addr - base);
		size_t n = size < PAGE - at ? size : PAGE - at;
		struct page *p = page_at(still, base);

		if (!p) {
			if (scry_mem_read(still->source, addr, out, n) != 0)
				return -EFAULT;
		} else if (!p->bytes) {
			return -EFAULT;
		} else {
			memcpy(out, p->bytes + at, n);
			for (size_t line = at / LINE; line <= (at + n - 1) / LINE; line++)
				p->read |= 1ull << line;
		}
		out += n;
		addr += n;
		size -= n;
	}
	return 0;
}

struct scry_mem scry_still_mem(struct scry_still *still)
{
	return (struct scry_mem){
		.pid = still->source->pid,
		.fd = -1,
		.image = still,
		.image_read = read_cached,
	};
}

void scry_still_each(const struct scry_still *still,
		     void (*fn)(void *arg, uint64_t addr, const uint8_t *bytes), void *arg)
{
	for (size_t i = 0; i < TABLE; i++) {
		const struct page *p = &still->pages[i];
		uint8_t bytes[PAGE] = {0};

		if (!p->addr || !p->bytes || !p->read)
			continue;
		for (size_t line = 0; line < 64; line++) {
			if (p->read >> line & 1)
				memcpy(bytes + line * LINE, p->bytes + line * LINE, LINE);
		}
		fn(arg, p->addr, bytes);
	}
}

bool scry_still_word(struct scry_still *still, uint64_t addr, uint64_t *ret)
{
	if (addr % 8 || addr < PAGE || addr >= 1ull << 47)
		return false;
	return read_cached(still, addr, ret, 8) == 0;
}
