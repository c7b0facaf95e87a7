/* See requests.h. */
#include "instrument/calls/requests.h"

#include <errno.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "watch/loading.h"

bool scry_calls_requests_is_startup(const char *symbol, const char *request)
{
	static const char *const names[] = {"_start",
					    "__libc_start_main",
					    "__libc_start_call_main",
					    "__libc_early_init",
					    "__libc_init_first",
					    "__libc_csu_init",
					    "__libc_csu_fini",
					    "__gmon_start__",
					    "__cxa_finalize",
					    "_ITM_registerTMCloneTable",
					    "_ITM_deregisterTMCloneTable",
					    "register_tm_clones",
					    "deregister_tm_clones",
					    "__do_global_dtors_aux",
					    "frame_dummy",
					    "call_init",
					    "_dl_audit_preinit",
					    "__tunable_get_val",
					    "_init",
					    "_fini"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(symbol, names[i]))
			return !strstr(request, names[i]);
	return false;
}

int scry_calls_requests_want(const struct scry_calls_cli *cli, struct scry_hooks *h)
{
	struct scry_hook_to to = {.kind = SCRY_HOOK_CALL,
				  .handler = "scry_agent_timed",
				  .leaves_out = scry_calls_requests_is_startup};
	int r = 0;

	for (int i = 0; i < cli->request_count && r == 0; i++) {
		to.way = cli->requests[i].of_slots ? SCRY_WAY_CALLS : SCRY_WAY_AUTO;
		to.by_caller = cli->requests[i].of_slots;
		to.is_exported = cli->requests[i].is_exported;
		r = scry_hooks_want(h, cli->requests[i].text, &to);
	}
	return r;
}

void scry_calls_requests_report_slots(struct scry_watch *w, const struct scry_hooks *h)
{
	const struct scry_hook *first = NULL;
	size_t count = 0;

	for (size_t i = 0; i < h->count; i++) {
		if (!h->rows[i].is_ifunc || !h->rows[i].way || h->rows[i].to.way == SCRY_WAY_CALLS)
			continue;
		first = first ? first : &h->rows[i];
		count++;
	}
	if (first && count == 1)
		scry_watch_note(w,
				"%s is chosen at run time (IFUNC): calls of it through pointers "
				"are not seen",
				scry_demangle_shown(first->symbol).text);
	else if (first)
		scry_watch_note(w,
				"%zu functions, %s the first, are chosen at run time (IFUNC): "
				"calls of them through pointers are not seen",
				count, scry_demangle_shown(first->symbol).text);
}

void scry_calls_requests_note(struct scry_calls_cli *cli, struct scry_hooks *h, size_t first)
{
	for (int q = 0; q < cli->request_count; q++) {
		struct scry_calls_request *request = &cli->requests[q];

		request->is_met |= scry_loading_is_met(h, first + (size_t)q);
		if (!request->is_met && !*request->near.text)
			request->near = scry_symbols_ask(&h->objects,
							 request->text + (*request->text == '+'));
	}
}

static int nothing(const struct scry_calls_cli *cli, const struct scry_calls_request *q)
{
	if (cli->is_default)
		return scry_fail(-ENOTSUP,
				 "nothing was traced: no known client library was ever loaded; "
				 "fix: name functions, -x SYMBOL[@LIB]");
	return scry_fail(-ENOTSUP, "nothing was traced: no object was ever loaded that %s '%s'%s",
			 q->of_slots ? "calls" : "defines", q->text + (*q->text == '+'),
			 q->near.text);
}

/* What fork children load is not hooked. What the program itself calls is not to be found there. */
static void report_children(struct scry_watch *speaker, const struct scry_calls_cli *cli)
{
	const uint64_t loads = scry_loading_by_children(speaker);
	bool is_of_program = true;

	for (int i = 0; i < cli->request_count; i++)
		is_of_program &=
			cli->requests[i].of_slots && !strcmp(cli->requests[i].text, "+@MAIN");
	if (loads && !is_of_program)
		scry_watch_note(speaker,
				"fork children loaded or unloaded libraries %llu time%s: functions "
				"and calls of what they loaded are not traced",
				(unsigned long long)loads, scry_text_s(loads));
}

int scry_calls_requests_end(struct scry_watch *speaker)
{
	const struct scry_calls_cli *cli = speaker->opts->instrument_opts;
	const struct scry_calls_request *unmet = NULL;
	bool any = false;

	report_children(speaker, cli);
	for (int i = 0; i < cli->request_count; i++) {
		const struct scry_calls_request *q = &cli->requests[i];

		any |= q->is_met;
		unmet = q->is_met ? unmet : q;
	}
	if (!any && unmet && !cli->system_calls)
		return nothing(cli, unmet);
	for (int i = 0; i < cli->request_count && !cli->is_default; i++)
		if (!cli->requests[i].is_met)
			scry_watch_note(speaker, "%s: no object that %s it was ever loaded%s",
					cli->requests[i].text + (*cli->requests[i].text == '+'),
					cli->requests[i].of_slots ? "calls" : "defines",
					cli->requests[i].near.text);
	return 0;
}
