/* See text_share.h. */
#include "sys/text_share.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/regular.h"
#include "sys/text_decode.h"

struct shared {
	struct scry_text *text; /* NULL: free */
	int fd;			/* keeps the inode */
	struct stat st;
	size_t bytes;
	uint64_t used; /* when last, in calls */
};

static struct shared rows[SCRY_TEXT_SHARED];
static uint64_t now;

static void drop(struct shared *row)
{
	if (!row->text)
		return;
	scry_text_free(row->text);
	close(row->fd);
	*row = (struct shared){0};
}

void scry_text_share_done(void)
{
	for (size_t i = 0; i < SCRY_TEXT_SHARED; i++)
		drop(&rows[i]);
}

static struct shared *oldest(void)
{
	struct shared *row = &rows[0];

	for (size_t i = 1; i < SCRY_TEXT_SHARED; i++)
		if (rows[i].used < row->used)
			row = &rows[i];
	return row;
}

/* As if all were decoded: a transfer of 12 bytes each 5 bytes of code, a guess of 4 each 8. */
static size_t bytes_of(const struct scry_text *text)
{
	size_t bytes = text->count * (sizeof(*text->ranges) + 2 * sizeof(*text->units)) +
		       3 * (text->end - text->base);

	for (size_t i = 0; i < text->image.count; i++)
		bytes += text->image.parts[i].end - text->image.parts[i].start;
	return bytes;
}

static void keep(struct scry_elf *elf, const struct stat *st, struct scry_text *text)
{
	const size_t bytes = bytes_of(text);
	struct shared *row = oldest();
	size_t sum = bytes;

	for (size_t i = 0; i < SCRY_TEXT_SHARED; i++)
		sum += rows[i].bytes;
	while (sum > SCRY_TEXT_SHARED_BYTES && row->text) {
		sum -= row->bytes;
		drop(row);
		for (size_t i = 0; i < SCRY_TEXT_SHARED; i++)
			if (rows[i].text && (!row->text || rows[i].used < row->used))
				row = &rows[i];
	}
	row = oldest();
	drop(row);
	if (sum > SCRY_TEXT_SHARED_BYTES)
		return;
	*row = (struct shared){.fd = fcntl(scry_elf_fd(elf), F_DUPFD_CLOEXEC, 3),
			       .st = *st,
			       .bytes = bytes,
			       .used = ++now};
	if (row->fd >= 0)
		row->text = scry_text_ref(text);
	else
		*row = (struct shared){0};
}

int scry_text_share(struct scry_elf *elf, struct scry_text **ret)
{
	struct stat st;
	int r;

	if (fstat(scry_elf_fd(elf), &st) < 0)
		return scry_text_read(elf, ret);
	for (size_t i = 0; i < SCRY_TEXT_SHARED; i++) {
		if (!rows[i].text || !scry_regular_is_same(&rows[i].st, &st))
			continue;
		if (!scry_image_is_same(&rows[i].text->image, elf)) {
			drop(&rows[i]);
			break;
		}
		rows[i].used = ++now;
		*ret = scry_text_ref(rows[i].text);
		return 0;
	}
	r = scry_text_read(elf, ret);
	if (r == 0 && scry_regular_may_stay_open(&st))
		keep(elf, &st, *ret);
	return r;
}
