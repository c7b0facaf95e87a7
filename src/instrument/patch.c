/* See patch.h. */
#include "instrument/patch.h"

#include <string.h>

#include "base/buf.h"
#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "hook/aliases.h"

uint32_t scry_patch_way(const struct scry_patch_opts *opts)
{
	static const enum scry_hook_way ways[] = {SCRY_WAY_AUTO, SCRY_WAY_ENTRY, SCRY_WAY_SITE,
						  SCRY_WAY_GOT};

	return opts->of_callers ? SCRY_WAY_CALLS : (uint32_t)ways[opts->via];
}

void scry_patch_describe(const struct scry_hooks *h, FILE *out)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];
		const struct scry_shown symbol = scry_demangle_shown(row->symbol),
					module = scry_text_shown(row->module);
		size_t slots = scry_hook_slots(h, row);

		if (row->way == SCRY_WAY_ENTRY)
			fprintf(out, "  change      %u bytes at %#llx, the entry of %s in %s%s\n",
				row->jump, (unsigned long long)(row->address + row->window.endbr),
				symbol.text, module.text,
				row->pad ? ", and 5 of filler near by" : "");
		else if (row->way)
			fprintf(out, "  change      %zu call%s and %zu GOT slot%s of %s in %s\n",
				row->place_count - slots, scry_text_s(row->place_count - slots),
				slots, scry_text_s(slots), symbol.text, module.text);
		else
			fprintf(out, "  leave       %s in %s: %s\n", symbol.text, module.text,
				row->why);
	}
}

void scry_patch_report_refused(struct scry_watch *w, const struct scry_hooks *h, const char *done)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (row->way || row->to.is_guard)
			continue;
		if (h->refused > 2) {
			scry_watch_note(w,
					"%zu of %zu functions are not %s, such as %s in %s (%s); "
					"--dry-run%s names them",
					h->refused, h->count, done,
					scry_demangle_shown(row->symbol).text, row->module,
					row->why,
					w->opts->command ? " with -p PID, while it runs," : "");
			break;
		}
		scry_watch_note(w, "%s in %s is not %s: %s", scry_demangle_shown(row->symbol).text,
				row->module, done, row->why);
	}
}

void scry_patch_report_aliases(struct scry_watch *w, struct scry_hooks *h)
{
	const struct scry_hook *first = NULL;
	static const char fix[] = "; fix: scry calls -e, for calls through the PLT or GOT";
	struct scry_buf names = {0};
	size_t count = 0;

	if (scry_aliases_find(h) < 0)
		scry_error_clear();
	for (size_t i = 0; i < h->count; i++) {
		if (!h->rows[i].aliases || !*h->rows[i].aliases)
			continue;
		first = first ? first : &h->rows[i];
		count++;
	}
	if (!first)
		return;
	for (const char *at = first->aliases, *end; (end = strchr(at, '\n')); at = end + 1) {
		char name[SCRY_SHOWN_MAX];

		snprintf(name, sizeof(name), "%.*s", (int)(end - at), at);
		scry_buf_printf(&names, "%s%s", names.len ? ", " : "",
				scry_demangle_shown(name).text);
	}
	if (count == 1)
		scry_watch_note(
			w, "%s has other names (%s): calls by all of them are counted together%s",
			scry_demangle_shown(first->symbol).text, scry_buf_str(&names), fix);
	else
		scry_watch_note(w,
				"%zu functions have other names, such as %s (%s): calls by "
				"all names of one are counted together%s",
				count, scry_demangle_shown(first->symbol).text,
				scry_buf_str(&names), fix);
	scry_buf_done(&names);
}

static bool is_kept(const struct scry_hook *row)
{
	return row->kept && row->way && row->way != SCRY_WAY_ENTRY && !row->to.is_guard;
}

size_t scry_patch_report_kept(struct scry_watch *w, const struct scry_hooks *h, const char *done)
{
	const struct scry_hook *first = NULL;
	size_t count = 0, slots = 0;

	for (size_t i = 0; i < h->count; i++) {
		if (!is_kept(&h->rows[i]))
			continue;
		first = first ? first : &h->rows[i];
		slots += h->rows[i].kept;
		count++;
	}
	if (!count)
		return 0;
	scry_watch_note(w,
			"calls of %s in %s%s through %zu GOT slot%s are not %s: code takes the "
			"address from there too, and pointers must stay as they are; %s",
			scry_demangle_shown(first->symbol).text, first->module,
			count > 1 ? ", and of others," : "", slots, scry_text_s(slots), done,
			first->to.way == SCRY_WAY_GOT ? "fix: --via=entry"
						      : "its entry cannot be changed, for example "
							"because a patch is in (scry patch list)");
	scry_watch_lost_some(w, "calls through slots that must stay as they are");
	return count;
}

bool scry_patch_is_silent(const struct scry_hooks *h, const struct scry_hook *row, uint64_t calls)
{
	return !calls && !is_kept(row) && strpbrk(h->requests[row->request], "*?[");
}

void scry_patch_report_silent(struct scry_watch *w, size_t silent)
{
	if (silent)
		scry_watch_note_of(w, true, "%zu function%s of a pattern %s watched and not called",
				   silent, scry_text_s(silent), scry_text_were(silent));
}

struct scry_patch_names scry_patch_names(struct scry_watch *w, const struct scry_hook *row)
{
	const char *way = scry_hook_way_name(row->way), *symbol = row->symbol;
	struct scry_patch_names names = {0};
	char address[32];

	snprintf(address, sizeof(address), "%#llx", (unsigned long long)row->address);
	if (!*symbol)
		symbol = address;
	scry_writer_string(w->writer, symbol, strlen(symbol), &names.symbol);
	scry_writer_string(w->writer, row->module, strlen(row->module), &names.module);
	scry_writer_string(w->writer, way, strlen(way), &names.way);
	return names;
}
