/*
 * Foreign bytes as safe text. See text.h.
 */
#include "base/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/*
 * The well-formed sequences are those of table 3-7 of the Unicode standard: the second byte's range
 * depends on the first, which is how overlong forms, surrogates and values above 10FFFF are
 * refused.
 */
size_t scry_utf8_length(const unsigned char *bytes, size_t len, size_t *ret_bad)
{
	unsigned char first = bytes[0], low = 0x80, high = 0xbf;
	size_t want, i;

	*ret_bad = 1;
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	want = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	if (first == 0xe0)
		low = 0xa0;
	else if (first == 0xed)
		high = 0x9f;
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xf4)
		high = 0x8f;
	for (i = 1; i < want; i++) {
		if (i >= len || bytes[i] < low || bytes[i] > high) {
			*ret_bad = i;
			return 0;
		}
		low = 0x80;
		high = 0xbf;
	}
	return want;
}

/* The characters above 9F are all of three bytes but U+061C: E2 80 8E..8F, E2 80 A8..AE and
 * E2 81 A6..A9. With the last a file name can pretend to be another. */
bool scry_text_is_tricky(const unsigned char *at, size_t len)
{
	if (len == 1)
		return at[0] < 0x20 || at[0] == 0x7f;
	if (len == 2)
		return (at[0] == 0xc2 && at[1] < 0xa0) || (at[0] == 0xd8 && at[1] == 0x9c);
	if (len == 3 && at[0] == 0xe2)
		return (at[1] == 0x80 &&
			(at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae))) ||
		       (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9);
	return false;
}

static void text_hex(struct scry_buf *buf, const unsigned char *at, size_t len)
{
	if (len == 1 && *at == '\n')
		scry_buf_append(buf, "\\n", 2);
	else if (len == 1 && *at == '\t')
		scry_buf_append(buf, "\\t", 2);
	else
		for (; len; len--, at++)
			scry_buf_printf(buf, "\\x%02x", *at);
}

/* Appends the bytes escaped, and before each of `also` a backslash. */
static int text_escape(struct scry_buf *buf, const unsigned char *at, size_t len, const char *also)
{
	size_t run = 0;

	while (run < len) {
		size_t bad, good;

		if (at[run] >= ' ' && at[run] < 0x7f && !(*also && strchr(also, at[run]))) {
			run++; /* what nearly all of it is */
			continue;
		}
		good = scry_utf8_length(at + run, len - run, &bad);
		if (good && !scry_text_is_tricky(at + run, good) &&
		    !(good == 1 && strchr(also, at[run]))) {
			run += good;
			continue;
		}
		scry_buf_append(buf, at, run);
		at += run;
		len -= run;
		run = 0;
		if (good == 1 && at[0] && strchr(also, at[0]))
			scry_buf_printf(buf, "\\%c", at[0]);
		else
			text_hex(buf, at, good ? good : bad);
		at += good ? good : bad;
		len -= good ? good : bad;
	}
	return scry_buf_append(buf, at, run);
}

int scry_text_escape(struct scry_buf *buf, const char *bytes, size_t len)
{
	return text_escape(buf, (const unsigned char *)bytes, len, "");
}

struct scry_shown scry_text_shown(const char *text)
{
	struct scry_shown shown = {""};
	struct scry_buf buf = {0};
	size_t len;

	scry_text_escape(&buf, text, strlen(text));
	len = buf.len;
	if (len >= sizeof(shown.text)) {
		len = sizeof(shown.text) - sizeof("...");
		while (len && (buf.data[len] & 0xc0) == 0x80) /* not within a character */
			len--;
		strcpy(&shown.text[len], "...");
	}
	if (len)
		memcpy(shown.text, buf.data, len);
	scry_buf_done(&buf);
	return shown;
}

int scry_text_quote(struct scry_buf *buf, const char *bytes, size_t len)
{
	scry_buf_append(buf, "\"", 1);
	text_escape(buf, (const unsigned char *)bytes, len, "\"\\");
	return scry_buf_append(buf, "\"", 1);
}

size_t scry_text_width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

/* Where the character begins that is `columns` behind `at`. */
static const char *forward(const char *at, size_t columns)
{
	while (*at && columns) {
		at++;
		columns -= ((unsigned char)*at & 0xc0) != 0x80;
	}
	return at;
}

static int shorten_word(struct scry_buf *buf, const char *word, size_t length, size_t most)
{
	const size_t head = (most - 3) / 2, tail = most - 3 - head;
	const char *end;
	size_t width = 0;
	int r;

	for (size_t i = 0; i < length; i++)
		width += ((unsigned char)word[i] & 0xc0) != 0x80;
	if (width <= most)
		return scry_buf_append(buf, word, length);
	end = forward(word, width - tail);
	r = scry_buf_append(buf, word, (size_t)(forward(word, head) - word));
	if (r == 0)
		r = scry_buf_append(buf, "...", 3);
	return r ? r : scry_buf_append(buf, end, length - (size_t)(end - word));
}

int scry_text_shorten(struct scry_buf *buf, const char *text, size_t most)
{
	int r = 0;

	while (*text && r == 0) {
		const size_t length = strcspn(text, " ");

		r = shorten_word(buf, text, length, most);
		text += length;
		if (*text && r == 0)
			r = scry_buf_append(buf, text++, 1);
	}
	return r;
}

uint64_t scry_share(uint64_t part, uint64_t whole, uint64_t scale)
{
	unsigned __int128 share;

	if (!whole)
		return 0;
	share = ((unsigned __int128)part * scale + whole / 2) / whole;
	return share > UINT64_MAX ? UINT64_MAX : (uint64_t)share;
}

int scry_text_percent(struct scry_buf *buf, uint64_t part, uint64_t whole)
{
	const uint64_t tenths = scry_share(part, whole, 1000);

	return scry_buf_printf(buf, "%llu.%llu %%", (unsigned long long)(tenths / 10),
			       (unsigned long long)(tenths % 10));
}

int scry_text_count(struct scry_buf *buf, uint64_t value)
{
	char digits[24];
	size_t len = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, value), i;

	for (i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			scry_buf_append(buf, ",", 1);
		scry_buf_append(buf, &digits[i], 1);
	}
	return scry_buf_append(buf, "", 0);
}

uint64_t scry_two_digits(uint64_t value, uint64_t most)
{
	uint64_t unit = 1, rounded;

	while (value / unit >= 100)
		unit *= 10;
	rounded = (value / unit + (value % unit >= (unit + 1) / 2)) * unit;
	return rounded < most ? rounded : most;
}

const char *scry_text_s(uint64_t count)
{
	return count == 1 ? "" : "s";
}

const char *scry_text_were(uint64_t count)
{
	return count == 1 ? "was" : "were";
}

int scry_text_things(struct scry_buf *buf, uint64_t count, const char *plural)
{
	int err = scry_text_count(buf, count);

	return err ? err
		   : scry_buf_printf(buf, " %.*s", (int)(strlen(plural) - (count == 1)), plural);
}

int scry_text_size(struct scry_buf *buf, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024)
		return scry_buf_printf(buf, "%" PRIu64 " B", bytes);
	while (value >= 1023.95 && unit < 5) {
		value /= 1024;
		unit++;
	}
	return scry_buf_printf(buf, "%.1f %s", value, units[unit]);
}

int scry_text_duration(struct scry_buf *buf, uint64_t ns)
{
	uint64_t s = ns / 1000000000;

	if (!ns)
		return scry_buf_append(buf, "0 ms", 4);
	if (ns < 100000)
		return scry_buf_printf(buf, "%.0f us", (double)ns / 1e3);
	if (ns < 10000000)
		return scry_buf_printf(buf, "%.1f ms", (double)ns / 1e6);
	if (ns < 1000000000)
		return scry_buf_printf(buf, "%.0f ms", (double)ns / 1e6);
	if (s < 120)
		return scry_buf_printf(buf, "%.1f s", (double)ns / 1e9);
	if (s < 7200)
		return scry_buf_printf(buf, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	return scry_buf_printf(buf, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
}
