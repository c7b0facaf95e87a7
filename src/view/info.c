/*
 * The info view: what a recording is made of, whole or torn.
 */
#include "base/text.h"
#include "view/data_quality.h"
#include "view/table.h"
#include "view/view.h"

#include <string.h>
#include <time.h>

struct info {
	struct scry_reader *reader;
	struct scry_data_quality quality;
	struct scry_ev_session session;
	uint64_t first_ns, last_ns;
};

static void see_times(struct info *info)
{
	const struct scry_chunk *chunk = scry_reader_chunk(info->reader);

	if (chunk->first_ns && (!info->first_ns || chunk->first_ns < info->first_ns))
		info->first_ns = chunk->first_ns;
	if (chunk->last_ns > info->last_ns)
		info->last_ns = chunk->last_ns;
}

static int read_all(struct info *info)
{
	const struct scry_event *event;
	int got;

	while ((got = scry_reader_next(info->reader, &event)) > 0) {
		see_times(info);
		scry_data_quality_event(&info->quality, event);
		info->quality.shown += event->type != SCRY_EVENT_STRING;
		if (event->type == SCRY_EVENT_SESSION)
			memcpy(&info->session, event + 1, sizeof(info->session));
	}
	scry_data_quality_close(&info->quality);
	return got;
}

static struct scry_cell string_cell(const struct info *info, uint32_t id)
{
	struct scry_cell cell = {0};

	cell.bytes = scry_reader_string(info->reader, id, &cell.length);
	cell.is_unknown = !cell.bytes;
	return cell;
}

static void push_totals(const struct info *info, struct scry_doc *doc)
{
	const struct scry_file_head *head = scry_reader_head(info->reader);
	time_t wall = (time_t)(head->wall_ns / 1000000000);
	struct scry_reader_stats stats;
	char begun[40] = "";
	struct tm tm;

	scry_reader_stats(info->reader, &stats);
	if (gmtime_r(&wall, &tm))
		strftime(begun, sizeof(begun), "%Y-%m-%dT%H:%M:%SZ", &tm);
	const struct scry_pair pairs[] = {
		{"instrument", "instrument", SCRY_CELL_TEXT, 0,
		 string_cell(info, info->session.instrument_str)},
		{"begun", "begun (UTC)", SCRY_CELL_TEXT, 0, scry_cell_text(begun, strlen(begun))},
		{"span_ns", "s from the first to the last event", SCRY_CELL_TIME, 0,
		 scry_cell_number(info->last_ns - info->first_ns)},
		{"format_version", "format version", SCRY_CELL_NUMBER, 0,
		 scry_cell_number(head->version)},
		{"scry_version", "scry that wrote it", SCRY_CELL_TEXT, 0,
		 string_cell(info, info->session.version_str)},
		{"host", "host", SCRY_CELL_TEXT, 0, string_cell(info, info->session.host_str)},
		{"command", "command", SCRY_CELL_TEXT, 0,
		 string_cell(info, info->session.command_str)},
		{"size_bytes", "bytes in the file", SCRY_CELL_COUNT, 0,
		 scry_cell_number(stats.file_bytes)},
		{"torn_bytes", "bytes torn at its end, left out", SCRY_CELL_COUNT, 0,
		 scry_cell_number(stats.left_out)},
		{"damaged_events", "damaged events", SCRY_CELL_COUNT, 0,
		 scry_cell_number(stats.errors)},
		{"strings", "strings", SCRY_CELL_COUNT, 0, scry_cell_number(stats.strings)},
	};

	doc->ops->totals(doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

static struct scry_cell get_kind(const void *row, void *view,
				 struct scry_buf *buf __attribute__((unused)))
{
	static const char *const names[SCRY_READER_KINDS] = {
		[0] = "unknown to this scry",
		[SCRY_CHUNK_EVENTS] = "events",
		[SCRY_CHUNK_OBJECTS] = "objects, packed",
		[SCRY_CHUNK_MALLOC] = "malloc, packed",
	};
	const struct scry_reader_stats *stats = view;
	const char *name = names[(const struct scry_reader_kind *)row - stats->kinds];

	return scry_cell_string(name ? name : names[0]);
}

static bool has_chunks(const void *row, void *view __attribute__((unused)))
{
	return ((const struct scry_reader_kind *)row)->chunks != 0;
}

#define NUMBER(member) SCRY_AT(struct scry_reader_kind, member)

static void push_kinds(const struct info *info, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"chunks", "chunks", SCRY_CELL_COUNT, NUMBER(chunks)},
		{"events", "events", SCRY_CELL_COUNT, NUMBER(events)},
		{"bytes", "bytes", SCRY_CELL_COUNT, NUMBER(bytes)},
		{"kind", "kind", SCRY_CELL_TEXT, get_kind, 0},
	};
	struct scry_reader_stats stats;

	scry_reader_stats(info->reader, &stats);
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns),
					     SCRY_ROWS(stats.kinds, SCRY_READER_KINDS),
					     .view = &stats, .has = has_chunks},
			doc);
}

int scry_view_info(struct scry_reader *reader, const struct scry_view_opts *opts,
		   struct scry_doc *doc)
{
	struct info info = {.reader = reader};
	int err;

	scry_data_quality_init(&info.quality, reader);
	err = read_all(&info);
	if (err)
		return err;
	info.quality.noun = "events";
	scry_data_quality_push(&info.quality, doc);
	push_totals(&info, doc);
	push_kinds(&info, doc);
	if (info.quality.process_count - info.quality.exec_count > 1)
		scry_doc_remark(doc, "processes: %u; --view events lists them",
				info.quality.process_count - info.quality.exec_count);
	return 0;
}
