/*
 * layout_bend FILE FIELD [stamped]: makes a kept layout wrong at one field, and its checksum right.
 * Stamped: its rehearsals say that they were done with that very layout, as no scry writes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vm/ruby_cache.h"

#define HEAD_BYTES 120u /* ruby_cache.c asserts it */

static const struct {
	const char *name;
	size_t at;
	int by;
} fields[] = {
#define FIELD(name, by)                                            \
	{                                                          \
#name, offsetof(struct scry_ruby_layout, name), by \
	}
	FIELD(frame_size, 8),	    FIELD(frame_pc, 8),	  FIELD(frame_iseq, 8),
	FIELD(ec_cfp, 8),	    FIELD(ec_thread, 8),  FIELD(vm_root, 8),
	FIELD(iseq_body, 8),	    FIELD(body_path, 8),  FIELD(body_label, 8),
	FIELD(insns_entry_line, 4), FIELD(class_ext, 8),  FIELD(slot_size, 8),
	FIELD(trace_data, 8),	    FIELD(string_len, 8), FIELD(leaf_count, -1),
	FIELD(sizes.rule[0], 1),
#undef FIELD
};

static int bend(uint8_t *bytes, size_t size, const char *field, int is_stamped)
{
	struct scry_ruby_rehearsal r;
	size_t i = 0, at;

	while (i < sizeof(fields) / sizeof(fields[0]) && strcmp(fields[i].name, field))
		i++;
	if (i == sizeof(fields) / sizeof(fields[0]) ||
	    size < HEAD_BYTES + sizeof(struct scry_ruby_layout))
		return -EINVAL;
	bytes[HEAD_BYTES + fields[i].at] += (uint8_t)fields[i].by;
	for (uint32_t way = 0; way < SCRY_RUBY_WAYS && is_stamped; way++) {
		at = HEAD_BYTES + offsetof(struct scry_ruby_layout, rehearsed) + way * sizeof(r);
		memcpy(&r, bytes + at, sizeof(r));
		r.layout = scry_cache_stamp(bytes + HEAD_BYTES, way & SCRY_RUBY_WAY_HOOKS);
		memcpy(bytes + at, &r, sizeof(r));
	}
	scry_cache_seal(bytes, size);
	return 0;
}

int main(int argc, char **argv)
{
	static uint8_t bytes[SCRY_CACHE_FILE_MAX];
	int fd = argc > 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

	if (size < 0 || bend(bytes, (size_t)size, argv[2], argc > 3) ||
	    pwrite(fd, bytes, (size_t)size, 0) != size) {
		fprintf(stderr, "usage: layout_bend FILE FIELD [stamped]\n");
		return 1;
	}
	close(fd);
	return 0;
}
