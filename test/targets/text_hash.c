/* What of a process must be the same before and after: one line per kind of memory, so that
 * "byte-identical" is a comparison of lines.
 *
 *   text_hash [--got] PID
 *
 *   text  executable file mappings, as they stand in /proc/PID/mem
 *   got   with --got: read-only private file mappings, among them RELRO with the bound GOT
 *
 * A line is "KIND HASH mappings N bytes N"; addresses and paths are hashed too. Exit 1: could not
 * read all of it. It stops nothing and changes nothing. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4352 /* fields and a path */

struct total {
	const char *kind;
	uint64_t hash, mappings, bytes;
};

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *p = data;

	for (; size >= 8; p += 8, size -= 8) {
		uint64_t word;

		memcpy(&word, p, 8);
		hash = (hash ^ word) * 0x9fb21c651e98df25ull;
		hash ^= hash >> 32;
	}
	for (; size; p++, size--)
		hash = (hash ^ *p) * 0x100000001b3ull;
	return hash;
}

static int add_mapping(struct total *t, int mem, uint64_t start, uint64_t end)
{
	static unsigned char buf[1 << 16];

	t->mappings++;
	while (start < end) {
		size_t want = end - start < sizeof(buf) ? end - start : sizeof(buf);
		ssize_t n = pread(mem, buf, want, (off_t)start);

		if (n <= 0)
			return -1;
		t->hash = mix(t->hash, buf, (size_t)n);
		t->bytes += (uint64_t)n;
		start += (uint64_t)n;
	}
	return 0;
}

/* The kind a mapping counts as; NULL: neither. */
static struct total *kind_of(const char *perms, const char *path, struct total *text,
			     struct total *got)
{
	if (*path != '/' || strncmp(path, "/memfd:scry-", 12) == 0)
		return NULL;
	if (perms[2] == 'x')
		return text;
	return strcmp(perms, "r--p") == 0 ? got : NULL;
}

int main(int argc, char **argv)
{
	int with_got = argc > 1 && strcmp(argv[1], "--got") == 0;
	struct total text = {.kind = "text"}, got = {.kind = "got"};
	char name[64], line[LINE_MAX_BYTES];
	FILE *maps;
	int mem, failed = 0;

	if (argc != 2 + with_got) {
		fprintf(stderr, "usage: text_hash [--got] PID\n");
		return 2;
	}
	snprintf(name, sizeof(name), "/proc/%s/mem", argv[1 + with_got]);
	mem = open(name, O_RDONLY);
	snprintf(name, sizeof(name), "/proc/%s/maps", argv[1 + with_got]);
	maps = fopen(name, "r");
	if (mem < 0 || !maps) {
		perror(name);
		return 1;
	}
	while (fgets(line, sizeof(line), maps)) {
		uint64_t start, end;
		char perms[8], *path;
		int at = 0;
		struct total *t;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %n", &start, &end, perms,
			   &at) < 3)
			continue;
		path = line + at;
		path[strcspn(path, "\n")] = 0;
		t = kind_of(perms, path, &text, with_got ? &got : NULL);
		if (!t)
			continue;
		t->hash = mix(t->hash, &start, sizeof(start));
		t->hash = mix(t->hash, path, strlen(path));
		failed |= add_mapping(t, mem, start, end);
	}
	printf("text %016" PRIx64 " mappings %" PRIu64 " bytes %" PRIu64 "\n", text.hash,
	       text.mappings, text.bytes);
	if (with_got)
		printf("got %016" PRIx64 " mappings %" PRIu64 " bytes %" PRIu64 "\n", got.hash,
		       got.mappings, got.bytes);
	return failed || !text.mappings ? 1 : 0;
}
