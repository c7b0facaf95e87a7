/*
 * The events view: every event of a recording, as it comes.
 *
 * Nothing here knows a payload: rec/fields.h says what each is made of, for text and JSON alike.
 */
#include "rec/fields.h"
#include "view/data_quality.h"
#include "view/view.h"

#include <string.h>

#define PAIRS_MAX 24 /* time, tid, name, and the fields of the widest payload */

static struct scry_cell field_cell(const struct scry_reader *reader, const struct scry_field *field,
				   const struct scry_event *event)
{
	struct scry_cell cell = {.number = scry_field_value(field, event)};

	if (field->kind != SCRY_FIELD_STRING)
		return cell;
	cell.bytes = scry_reader_string(reader, (uint32_t)cell.number, &cell.length);
	cell.is_unknown = !cell.bytes;
	return cell;
}

static enum scry_cell_kind field_cell_kind(const struct scry_field *field)
{
	switch ((enum scry_field_kind)field->kind) {
	case SCRY_FIELD_STRING:
		return SCRY_CELL_TEXT;
	case SCRY_FIELD_ADDRESS:
		return SCRY_CELL_HEX;
	default:
		return SCRY_CELL_NUMBER;
	}
}

static size_t put_fields(struct scry_reader *reader, const struct scry_event *event,
			 struct scry_pair *pairs, size_t room)
{
	const struct scry_event_kind *kind = scry_event_kind(event->type);
	size_t i, count = 0;

	for (i = 0; i < kind->field_count && count < room; i++) {
		const struct scry_field *field = &kind->fields[i];

		if (field->kind == SCRY_FIELD_RESERVED)
			continue;
		pairs[count++] = (struct scry_pair){
			.key = field->name,
			.kind = field_cell_kind(field),
			.cell = field_cell(reader, field, event),
		};
	}
	if (event->type == SCRY_EVENT_STRING && count < room) {
		const struct scry_ev_string *string = (const void *)(event + 1);
		struct scry_cell cell = {0};

		cell.bytes = scry_reader_string(reader, string->id, &cell.length);
		cell.is_unknown = !cell.bytes;
		pairs[count++] = (struct scry_pair){.key = "text", .cell = cell};
	}
	return count;
}

static void push_event(struct scry_reader *reader, const struct scry_event *event,
		       struct scry_doc *doc)
{
	const struct scry_event_kind *kind = scry_event_kind(event->type);
	uint64_t start = scry_reader_head(reader)->mono_ns;
	const char *name = kind ? kind->name : "unknown";
	struct scry_cell time = scry_cell_unknown();
	struct scry_pair pairs[PAIRS_MAX] = {
		[1] = {"tid", NULL, SCRY_CELL_NUMBER, 7, scry_cell_number(event->tid)},
		[2] = {"event", NULL, SCRY_CELL_TEXT, 8, scry_cell_text(name, strlen(name))},
	};
	size_t count = 3;

	if (event->time_ns)
		time = scry_cell_number(event->time_ns > start ? event->time_ns - start : 0);
	pairs[0] = (struct scry_pair){"time_ns", NULL, SCRY_CELL_TIME, 12, time};
	if (!event->tid)
		pairs[1].cell = scry_cell_unknown();
	if (kind) {
		count += put_fields(reader, event, pairs + count, PAIRS_MAX - count);
	} else {
		pairs[count++] = (struct scry_pair){
			.key = "type",
			.kind = SCRY_CELL_NUMBER,
			.cell = scry_cell_number(event->type),
		};
		pairs[count++] = (struct scry_pair){
			.key = "size_bytes",
			.kind = SCRY_CELL_NUMBER,
			.cell = scry_cell_number(event->size),
		};
	}
	doc->ops->record(doc, pairs, count);
}

int scry_view_events(struct scry_reader *reader, const struct scry_view_opts *opts,
		     struct scry_doc *doc)
{
	const struct scry_event *event;
	struct scry_data_quality quality;
	int got;

	scry_data_quality_init(&quality, reader);
	while ((got = scry_reader_next(reader, &event)) > 0 && !ferror(doc->out)) {
		push_event(reader, event, doc);
		scry_data_quality_event(&quality, event);
		quality.shown++;
	}
	if (got < 0)
		return got;
	scry_data_quality_close(&quality);
	quality.noun = "events";
	scry_data_quality_push(&quality, doc);
	return 0;
}
