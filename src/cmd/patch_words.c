/* See patch_words.h. */
#include "cmd/patch_words.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "cmd/watch_opts.h"

enum scry_hook_way scry_patch_way(const struct scry_patch_opts *opts)
{
	static const enum scry_hook_way ways[] = {SCRY_WAY_AUTO, SCRY_WAY_ENTRY, SCRY_WAY_SITE,
						  SCRY_WAY_GOT};

	return ways[opts->via];
}

void scry_patch_describe(const struct scry_hooks *h, FILE *out)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];
		const struct scry_shown symbol = scry_text_shown(row->symbol),
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

void scry_patch_tell_refused(struct scry_watch *w, const struct scry_hooks *h, const char *done)
{
	if (h->refused > 2)
		scry_watch_note(w,
				"%zu of %zu functions cannot be reached and are not %s; --dry-run "
				"names them",
				h->refused, h->count, done);
	for (size_t i = 0; i < h->count && h->refused <= 2; i++)
		if (!h->rows[i].way && !h->rows[i].to.is_guard)
			scry_watch_note(w, "%s in %s is not %s: %s", h->rows[i].symbol,
					h->rows[i].module, done, h->rows[i].why);
}

bool scry_patch_is_silent(const struct scry_hooks *h, const struct scry_hook *row, uint64_t calls)
{
	return !calls && strpbrk(h->requests[row->request], "*?[");
}

void scry_patch_tell_silent(struct scry_watch *w, size_t silent)
{
	if (silent)
		scry_watch_note(w, "%zu function%s of a pattern %s watched and not called", silent,
				scry_text_s(silent), scry_text_were(silent));
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

static int check(const struct scry_patch_verb *verb, const struct scry_patch_opts *patch,
		 const struct scry_watch_opts *opts, struct scry_report_opts *report)
{
	int r;

	if (!patch->spec_count)
		return scry_fail(-EINVAL,
				 "name a function to %s: scry patch %s SYMBOL[@LIB] -p PID",
				 verb->name, verb->name);
	if (patch->args > 6)
		return scry_fail(-EINVAL, "--args %llu: six arguments come in registers",
				 (unsigned long long)patch->args);
	r = scry_report_opts_check(report, opts->output);
	if (r == 0 && report->folded)
		r = scry_fail(-EINVAL, "'%s': %ss have no stacks to fold", opts->output,
			      verb->name);
	return r;
}

int scry_patch_verb(int argc, char **argv, const struct scry_patch_verb *verb)
{
	struct scry_patch_opts patch = {.args = 3};
	struct scry_watch_opts opts = {.instrument_opts = &patch};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{0, "via", SCRY_OPT_CHOICE, &patch.via, "WAY",
		 "how to reach the function (default auto)", "auto|entry|site|got"},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "print JSON instead of text", NULL},
		SCRY_WATCH_ROWS(&opts, &talk),
		{0, "args", SCRY_OPT_U64, &patch.args, "N",
		 "record the first N argument registers, 0 to 6 (default 3)", NULL}, /* last */
	};
	char usage[128];
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]) - !verb->has_args,
		.opts = &opts,
		.talk = &talk,
		.usage = usage,
		.name_count = &patch.spec_count,
	};
	int r;

	snprintf(usage, sizeof(usage),
		 "scry patch %s SYMBOL[@LIB]... -p PID | -- CMD [-d TIME] [--via=entry|site|got]",
		 verb->name);
	patch.specs = argv + 1;
	r = scry_watch_parse(&cli, argc, argv);
	if (r == 1)
		return 0;
	if (r == 0)
		r = check(verb, &patch, &opts, &report);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	return opts.dry_run ? scry_dry_run(&opts, verb->instrument)
			    : scry_run(&opts, verb->instrument, &report);
}
