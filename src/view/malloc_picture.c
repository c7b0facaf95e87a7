/*
 * Memory over a recording, drawn: SVG by hand, no script, nothing from a network. See
 * malloc_replay.h.
 */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "view/malloc_replay.h"

#define WIDTH 960
#define HEIGHT 440
#define LEFT 76
#define RIGHT 16
#define TOP 28
#define BOTTOM 56
#define PLOT_WIDTH (WIDTH - LEFT - RIGHT)
#define PLOT_HEIGHT (HEIGHT - TOP - BOTTOM)
#define LEGEND_COLUMNS 5

static const char *const colours[] = {"#c0392b", "#2471a3", "#1e8449", "#b9770e",
				      "#7d3c98", "#117a65", "#5d4037", "#d81b60"};

struct scale {
	uint64_t position, bytes; /* at the right and at the top */
};

/* Foreign text between tags. */
static void put_text(struct scry_buf *out, const char *text)
{
	struct scry_buf safe = {0};

	scry_text_escape(&safe, text, strlen(text));
	for (text = scry_buf_str(&safe); *text; text++) {
		if (*text == '<')
			scry_buf_append(out, "&lt;", 4);
		else if (*text == '&')
			scry_buf_append(out, "&amp;", 5);
		else if (*text == '"')
			scry_buf_append(out, "&quot;", 6);
		else
			scry_buf_append(out, text, 1);
	}
	scry_buf_done(&safe);
}

static void include(struct scale *s, const struct scry_replay_point *points, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (points[i].bytes > s->bytes)
			s->bytes = points[i].bytes;
		if (points[i].position > s->position)
			s->position = points[i].position;
	}
}

static double x_of(const struct scale *s, uint64_t position)
{
	return LEFT + (double)position / (double)s->position * PLOT_WIDTH;
}

static double y_of(const struct scale *s, uint64_t bytes)
{
	return TOP + PLOT_HEIGHT - (double)bytes / (double)s->bytes * PLOT_HEIGHT;
}

/* A step of 1, 2, 4, ... of a unit, four to eight of them up to the top. */
static uint64_t step_of(uint64_t bytes)
{
	uint64_t step = 1024;

	while (bytes / step >= 8)
		step *= 2;
	return step;
}

static void put_frame(const struct scale *s, const struct scry_replay_report *r,
		      struct scry_buf *out)
{
	uint64_t step = step_of(s->bytes);

	for (uint64_t at = 0; at <= s->bytes; at += step) {
		double y = y_of(s, at);

		scry_buf_printf(out,
				"<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" "
				"stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
				"text-anchor=\"end\">",
				LEFT, y, WIDTH - RIGHT, y, LEFT - 6, y + 4);
		scry_text_size(out, at);
		scry_buf_printf(out, "</text>\n");
	}
	for (uint64_t i = 0; i <= 4; i++) {
		scry_buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
				x_of(s, s->position / 4 * i), TOP + PLOT_HEIGHT + 16,
				i == 4 ? "end" : "middle");
		scry_text_count(out, r->words ? r->calls * i / 4 : 0);
		scry_buf_printf(out, "%s</text>\n", i == 4 ? " calls" : "");
	}
	scry_buf_printf(out,
			"<text x=\"%d\" y=\"16\">anonymous memory of each replay, beside the "
			"bytes that were asked for and live</text>\n",
			LEFT);
}

static void put_line(const struct scale *s, const struct scry_replay_point *points, uint32_t count,
		     struct scry_buf *out)
{
	for (uint32_t i = 0; i < count; i++)
		scry_buf_printf(out, "%s%.1f,%.1f", i ? " " : "", x_of(s, points[i].position),
				y_of(s, points[i].bytes));
}

static void put_legend(uint32_t at, const char *colour, const char *label, struct scry_buf *out)
{
	uint32_t x = LEFT + at % LEGEND_COLUMNS * (PLOT_WIDTH / LEGEND_COLUMNS);
	uint32_t y = HEIGHT - BOTTOM + 34 + at / LEGEND_COLUMNS * 15;

	scry_buf_printf(out,
			"<rect x=\"%u\" y=\"%u\" width=\"12\" height=\"4\" fill=\"%s\"/>"
			"<text x=\"%u\" y=\"%u\">",
			x, y - 6, colour, x + 17, y);
	put_text(out, label);
	scry_buf_printf(out, "</text>\n");
}

int scry_replay_svg(const struct scry_replay_report *r, struct scry_buf *out)
{
	struct scale s = {.position = 1, .bytes = 4096};

	include(&s, r->live, r->live_count);
	for (uint32_t i = 0; i < r->count; i++)
		include(&s, r->rows[i].points, r->rows[i].point_count);
	scry_buf_printf(out,
			"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
			"width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n"
			"<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
			WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
	put_frame(&s, r, out);
	if (r->live_count) {
		scry_buf_printf(out, "<polygon fill=\"#e5e7e9\" points=\"%d,%d ", LEFT,
				TOP + PLOT_HEIGHT);
		put_line(&s, r->live, r->live_count, out);
		scry_buf_printf(out, " %.1f,%d\"/>\n",
				x_of(&s, r->live[r->live_count - 1].position), TOP + PLOT_HEIGHT);
	}
	put_legend(0, "#e5e7e9", "bytes that live", out);
	for (uint32_t i = 0; i < r->count; i++) {
		const char *colour = colours[i % (sizeof(colours) / sizeof(colours[0]))];

		scry_buf_printf(out,
				"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" "
				"points=\"",
				colour);
		put_line(&s, r->rows[i].points, r->rows[i].point_count, out);
		scry_buf_printf(out, "\"/>\n");
		put_legend(i + 1, colour, r->rows[i].label, out);
	}
	return scry_buf_printf(out, "</svg>\n");
}

static void put_cells(struct scry_buf *out, const struct scry_replay_row *row)
{
	const uint64_t counts[] = {row->cpu_ns.median / 1000,
				   scry_two_digits(row->all.p50_ns, UINT64_MAX),
				   scry_two_digits(row->all.p99_ns, UINT64_MAX),
				   scry_two_digits(row->all.p999_ns, UINT64_MAX)};
	const uint64_t sizes[] = {row->rss_peak.median, row->rss_end.median,
				  row->rss_drained.median};

	scry_buf_printf(out, "<tr><td>");
	put_text(out, row->label);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		scry_buf_printf(out, "<td>");
		scry_text_count(out, counts[i]);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		scry_buf_printf(out, "<td>");
		scry_text_size(out, sizes[i]);
	}
	scry_buf_printf(out, "<td>");
	scry_text_count(out, row->faults.median);
	scry_buf_printf(out, "</tr>\n");
}

int scry_replay_html(const struct scry_replay_report *r, struct scry_buf *out)
{
	struct scry_replay_verdict verdict;

	if (scry_replay_goes_by_real(r))
		scry_replay_judge_real(r, &verdict);
	else
		scry_replay_judge(r, &verdict);
	scry_buf_printf(out,
			"<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
			"<title>scry malloc replay</title>\n"
			"<style>body{font-family:sans-serif;max-width:960px;margin:2em auto}"
			"td,th{text-align:right;padding:2px 10px}td:first-child{text-align:left}"
			"</style>\n<p>");
	put_text(out, verdict.sentence);
	scry_buf_printf(out, "</p>\n");
	scry_replay_svg(r, out);
	scry_buf_printf(out, "<table>\n<tr><th>allocator<th>CPU us<th>p50 ns<th>p99<th>p99.9"
			     "<th>peak<th>end<th>drained<th>faults</tr>\n");
	for (uint32_t i = 0; i < r->count; i++)
		if (r->rows[i].runs)
			put_cells(out, &r->rows[i]);
	scry_buf_printf(out, "</table>\n");
	for (uint32_t i = 0; i < r->note_count; i++) {
		scry_buf_printf(out, "<p>");
		put_text(out, r->notes[i]);
		scry_buf_printf(out, "</p>\n");
	}
	return scry_buf_printf(out, "</html>\n");
}
