/*
 * The verdict of a document. See verdict.h.
 */
#include "view/verdict.h"

#include "base/text.h"

void scry_verdict(struct scry_doc *doc, const struct scry_buf *sentence)
{
	doc->ops->verdict(doc, scry_buf_str(sentence), sentence->len);
}

void scry_verdict_note(struct scry_doc *doc, const struct scry_buf *sentence)
{
	if (doc->is_data)
		doc->ops->note(doc, scry_buf_str(sentence), sentence->len);
	scry_verdict(doc, sentence);
}

void scry_verdict_took(struct scry_buf *buf, uint64_t total_ns, uint64_t calls, uint64_t max_ns)
{
	scry_buf_printf(buf, " took most: ");
	scry_text_duration(buf, total_ns);
	scry_buf_printf(buf, " in ");
	scry_text_things(buf, calls, "calls");
	scry_buf_printf(buf, ", the longest ");
	scry_text_duration(buf, max_ns);
}

void scry_verdict_filtered(struct scry_buf *buf, bool has_grep)
{
	scry_buf_printf(buf, "no row matches --filter%s", has_grep ? " and --grep" : "");
}

void scry_verdict_percent(struct scry_buf *buf, uint64_t part, uint64_t whole)
{
	const uint64_t tenths = scry_share(part, whole, 1000);

	if (part && !tenths)
		scry_buf_printf(buf, "less than 0.1 %%");
	else if (part < whole && tenths == 1000)
		scry_buf_printf(buf, "more than 99.9 %%");
	else
		scry_text_percent(buf, part, whole);
}

void scry_verdict_share(struct scry_buf *buf, uint64_t part, uint64_t whole, const char *things)
{
	scry_verdict_percent(buf, part, whole);
	scry_buf_printf(buf, " of ");
	scry_text_things(buf, whole, things);
}
