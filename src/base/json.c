/*
 * A streaming JSON writer. See json.h.
 */
#include "base/json.h"

#include "base/err.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void scry_json_init(struct scry_json *json, FILE *out)
{
	*json = (struct scry_json){.out = out};
}

int scry_json_done(struct scry_json *json)
{
	assert(json->depth == 0);
	fputc('\n', json->out);
	return scry_flush(json->out, "JSON");
}

/* Comma and line break as the place in the document needs; afterwards a value may be written. */
static void json_separate(struct scry_json *json)
{
	if (json->after_key) {
		json->after_key = false;
		return;
	}
	if (json->has_items)
		fputc(',', json->out);
	if (json->break_next)
		fputc('\n', json->out);
	else if (json->has_items)
		fputc(' ', json->out);
	json->break_next = false;
	json->has_items = true;
}

static void json_before_value(struct scry_json *json)
{
	assert(json->after_key || json->depth == 0 || json->closer[json->depth - 1] == ']');
	json_separate(json);
}

static void json_begin(struct scry_json *json, char opener, char closer)
{
	json_before_value(json);
	assert(json->depth < SCRY_JSON_DEPTH);
	json->closer[json->depth] = closer;
	json->had_items[json->depth] = json->has_items;
	json->depth++;
	json->has_items = false;
	fputc(opener, json->out);
}

static void json_end(struct scry_json *json, char closer)
{
	assert(json->depth > 0 && json->closer[json->depth - 1] == closer && !json->after_key);
	if (json->break_next)
		fputc('\n', json->out);
	json->break_next = false;
	json->depth--;
	json->has_items = json->had_items[json->depth];
	fputc(closer, json->out);
}

void scry_json_object_begin(struct scry_json *json)
{
	json_begin(json, '{', '}');
}

void scry_json_object_end(struct scry_json *json)
{
	json_end(json, '}');
}

void scry_json_array_begin(struct scry_json *json)
{
	json_begin(json, '[', ']');
}

void scry_json_array_end(struct scry_json *json)
{
	json_end(json, ']');
}

static bool json_is_plain(unsigned char byte)
{
	return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
}

static void json_escaped_byte(FILE *out, unsigned char byte)
{
	static const char shorts[] = "\b\t\n\f\r\"\\";
	static const char letters[] = "btnfr\"\\";
	const char *found = byte ? strchr(shorts, byte) : NULL;

	if (found)
		fprintf(out, "\\%c", letters[found - shorts]);
	else
		fprintf(out, "\\u%04x", byte);
}

/* A character of one to three bytes, by its number: C1 controls, separators, writing direction. */
static void json_escaped(FILE *out, const unsigned char *at, size_t len)
{
	unsigned int number = len == 2 ? at[0] & 0x1fu : at[0] & 0xfu;

	if (len == 1) {
		json_escaped_byte(out, *at);
		return;
	}
	for (size_t i = 1; i < len; i++)
		number = number << 6 | (at[i] & 0x3fu);
	fprintf(out, "\\u%04x", number);
}

static void json_quoted(FILE *out, const unsigned char *bytes, size_t len)
{
	size_t at = 0;

	fputc('"', out);
	while (at < len) {
		size_t run = 0, good, bad;

		while (at + run < len && json_is_plain(bytes[at + run]))
			run++;
		fwrite(bytes + at, 1, run, out);
		at += run;
		if (at >= len)
			break;
		good = scry_utf8_length(bytes + at, len - at, &bad);
		if (good > 1 && !scry_text_is_tricky(bytes + at, good))
			fwrite(bytes + at, 1, good, out);
		else if (good)
			json_escaped(out, bytes + at, good);
		else
			fputs("\\ufffd", out);
		at += good ? good : bad;
	}
	fputc('"', out);
}

void scry_json_key(struct scry_json *json, const char *key)
{
	assert(json->depth > 0 && json->closer[json->depth - 1] == '}' && !json->after_key);
	json_separate(json);
	json_quoted(json->out, (const unsigned char *)key, strlen(key));
	fputs(": ", json->out);
	json->after_key = true;
}

void scry_json_string(struct scry_json *json, const char *bytes, size_t len)
{
	json_before_value(json);
	json_quoted(json->out, (const unsigned char *)bytes, len);
}

void scry_json_text(struct scry_json *json, const char *text)
{
	if (text)
		scry_json_string(json, text, strlen(text));
	else
		scry_json_null(json);
}

void scry_json_u64(struct scry_json *json, uint64_t value)
{
	json_before_value(json);
	fprintf(json->out, "%" PRIu64, value);
}

void scry_json_i64(struct scry_json *json, int64_t value)
{
	json_before_value(json);
	fprintf(json->out, "%" PRId64, value);
}

void scry_json_double(struct scry_json *json, double value)
{
	char digits[32];
	int precision;

	if (!isfinite(value)) {
		scry_json_null(json);
		return;
	}
	for (precision = 6; precision <= 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*g", precision, value);
		if (strtod(digits, NULL) == value)
			break;
	}
	json_before_value(json);
	fputs(digits, json->out);
}

void scry_json_bool(struct scry_json *json, bool value)
{
	json_before_value(json);
	fputs(value ? "true" : "false", json->out);
}

void scry_json_null(struct scry_json *json)
{
	json_before_value(json);
	fputs("null", json->out);
}

void scry_json_break(struct scry_json *json)
{
	json->break_next = true;
}
