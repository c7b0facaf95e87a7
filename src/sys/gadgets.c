/* See gadgets.h. */
#include "sys/gadgets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/maps.h"
#include "sys/mem.h"

static const unsigned char glibc[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
static const unsigned char musl[] = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};
_Static_assert(sizeof(glibc) <= SCRY_RESTORER_BYTES, "the longer one");

bool scry_gadgets_is_restorer(const void *bytes, size_t size)
{
	return (size >= sizeof(glibc) && !memcmp(bytes, glibc, sizeof(glibc))) ||
	       (size >= sizeof(musl) && !memcmp(bytes, musl, sizeof(musl)));
}

static int find_bytes(const struct scry_mem *mem, const struct scry_map_entry *m, const void *bytes,
		      size_t size, uint64_t *ret)
{
	enum { CHUNK = 1 << 16 };
	unsigned char *buf = malloc(CHUNK + 16);
	int r = -ENOENT;

	if (!buf)
		return -ENOMEM;
	for (uint64_t at = m->start; at < m->end; at += CHUNK) {
		ssize_t n = scry_mem_read_some(mem, at, buf, CHUNK + 16);
		unsigned char *hit = n > 0 ? memmem(buf, (size_t)n, bytes, size) : NULL;

		if (hit) {
			*ret = at + (uint64_t)(hit - buf);
			r = 0;
			break;
		}
	}
	free(buf);
	return r;
}

/* From the top: libc and the loader lie above the program's own big text. 0: nowhere. */
static uint64_t find_in_code(const struct scry_mem *mem, const struct scry_maps *maps,
			     const void *bytes, size_t size)
{
	uint64_t at;

	for (size_t i = maps->count; i-- > 0;) {
		const struct scry_map_entry *m = &maps->entries[i];

		if (m->x && m->r && !m->w && (m->inode || !strcmp(m->path, "[vdso]")) &&
		    find_bytes(mem, m, bytes, size, &at) == 0)
			return at;
	}
	return 0;
}

int scry_gadgets_find(const struct scry_mem *mem, const struct scry_maps *maps,
		      struct scry_gadgets *ret)
{
	static const unsigned char syscall_ret[] = {0x0f, 0x05, 0xc3};
	struct scry_gadgets g = {
		.syscall_ret = find_in_code(mem, maps, syscall_ret, sizeof(syscall_ret)),
		.restorer = find_in_code(mem, maps, glibc, sizeof(glibc)),
	};

	if (!g.restorer)
		g.restorer = find_in_code(mem, maps, musl, sizeof(musl));
	if (!g.syscall_ret || !g.restorer)
		return scry_fail(
			-ENOTSUP, "process %d has no %s in its code, which a safe entry needs",
			mem->pid, g.syscall_ret ? "signal restorer" : "'syscall; ret' sequence");
	*ret = g;
	return 0;
}
