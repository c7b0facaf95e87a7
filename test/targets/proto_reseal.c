/* proto_reseal FILE: makes the checksum of kept prototypes right, whatever they are. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "name/proto_cache.h"

int main(int argc, char **argv)
{
	static char bytes[SCRY_PROTO_CACHE_MAX];
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

	if (size > 0)
		scry_proto_cache_seal(bytes, (size_t)size);
	if (size <= 0 || pwrite(fd, bytes, (size_t)size, 0) != size) {
		fprintf(stderr, "usage: proto_reseal FILE\n");
		return 1;
	}
	close(fd);
	return 0;
}
