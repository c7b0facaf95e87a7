/* See malloc_print.h. */
#include "cmd/malloc_print.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cmd/output.h"
#include "cmd/report.h"

static int print_document(const struct scry_replay_report *report, FILE *out, bool is_json)
{
	struct scry_report_opts form = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_doc doc = {.view = "malloc-replay", .schema = 2, .out = out, .talk = stderr};
	int err;

	form.json = is_json;
	err = scry_report_open(&doc, &form);
	if (err)
		return err;
	scry_replay_push(report, &doc);
	return scry_doc_end(&doc);
}

static int print_picture(const struct scry_replay_report *report, FILE *out, bool is_page)
{
	struct scry_buf text = {0};
	int err = is_page ? scry_replay_html(report, &text) : scry_replay_svg(report, &text);

	if (err)
		return scry_no_memory("the picture");
	if (fwrite(text.data, 1, text.len, out) != text.len || fflush(out))
		err = scry_fail(-errno, "cannot write the picture: %s", strerror(errno));
	scry_buf_done(&text);
	return err;
}

int scry_malloc_print(const struct scry_replay_report *report, const char *path, bool is_json,
		      bool force)
{
	bool is_page = scry_output_is(path, ".html"),
	     is_picture = is_page || scry_output_is(path, ".svg");
	struct scry_output o;
	int err = scry_output_stream(&o, path, force);

	if (err)
		return err;
	is_json |= scry_output_is(path, ".json");
	if (is_picture)
		err = print_picture(report, o.out, is_page);
	if (!err)
		err = print_document(report, is_picture ? stdout : o.out, is_json);
	return scry_output_close(&o, err);
}
