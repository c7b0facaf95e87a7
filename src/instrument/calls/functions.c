/* See functions.h. */
#include "instrument/calls/functions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "hook/aliases.h"
#include "instrument/patch.h"
#include "proto/plan.h"

#define FIRST_CALL_SHIFT 34 /* view/calls_line.h: a call's key has 42 bits for it */

struct scry_calls_opts scry_calls_functions_opts(const struct scry_watch *w, uint32_t pid,
						 uint32_t image)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;

	return (struct scry_calls_opts){
		.writer = w->writer,
		.pid = pid,
		.args = cli->args,
		.tids = pid == (uint32_t)w->proc.pid && !w->root ? &cli->tids : NULL,
		.first_call = (uint64_t)(image & 255) << FIRST_CALL_SHIFT,
		.first_function = (image & 255) * SCRY_SHADOW_HOOKS_MAX,
	};
}

/* A function that sets errno, in a library whose errno can be read. */
static bool sets_errno(struct scry_calls_watch *t, const struct scry_calls_traced *f)
{
	return f->proto->result->marks & SCRY_MARK_ERRNO && f->address &&
	       scry_calls_errno_is_of(&t->error, &t->hooks.objects, f->address);
}

/* What is fetched of its calls. Before the ways into seccomp are seen, nothing by system calls. 0
 * or -ENOMEM, -E2BIG. */
static int plan_calls(struct scry_calls_watch *t, struct scry_calls_traced *f)
{
	const struct scry_calls_cli *cli = t->watch->opts->instrument_opts;
	struct scry_plan_opts opts = {.string_max = (uint32_t)cli->string_size,
				      .elements = (uint32_t)cli->elements,
				      .has_errno = sets_errno(t, f)};
	struct scry_plan plan = {0};
	int r;

	if (cli->args != SCRY_CALLS_NONE)
		scry_plan_make(f->proto, &opts, &plan);
	if (t->breaks) { /* they read from outside */
		f->args = plan.args;
		r = scry_calls_break_plans(t->breaks, t->count, &plan);
		return r < 0 ? r : scry_calls_function(t->calls);
	}
	t->is_unsure |= plan.is_unsure;
	if (plan.is_unsure && !cli->reads_unsure) {
		opts.is_sure_only = true;
		scry_plan_make(f->proto, &opts, &plan);
	}
	r = scry_call_plans_add(&t->plans, plan.is_needed ? &plan.head : NULL, plan.ops);
	f->args = plan.args;
	f->has_plan = r > 0;
	return r < 0 ? r : scry_calls_function(t->calls);
}

static void forget(struct scry_calls_traced *f)
{
	free(f->symbol);
	free(f->version);
	free(f->module);
	free(f->caller);
	free(f->aliases);
}

/* Its number, or -errno with a sentence. Names are copied. */
static int add_traced(struct scry_calls_watch *t, const struct scry_calls_traced *one)
{
	struct scry_calls_traced *f;
	int r;

	if (t->count == SCRY_SHADOW_HOOKS_MAX)
		return scry_fail(-E2BIG, "more than %u functions", SCRY_SHADOW_HOOKS_MAX);
	if (t->count == t->room) {
		uint32_t room = t->room ? 2 * t->room : 64;
		struct scry_calls_traced *more = reallocarray(t->functions, room, sizeof(*more));

		if (!more)
			return scry_no_memory("%u functions", room);
		t->functions = more;
		t->room = room;
	}
	f = &t->functions[t->count];
	*f = *one;
	f->symbol = strdup(one->symbol);
	f->module = strdup(one->module);
	f->version = one->version ? strdup(one->version) : NULL;
	f->caller = one->caller ? strdup(one->caller) : NULL;
	f->aliases = one->aliases ? strdup(one->aliases) : NULL;
	r = f->symbol && f->module && !f->version == !one->version && !f->caller == !one->caller &&
			    !f->aliases == !one->aliases
		    ? plan_calls(t, f)
		    : scry_no_memory("%u functions", t->count);
	if (r < 0) {
		forget(f);
		return r;
	}
	return (int)t->count++;
}

int scry_calls_functions_syscall(void *arg, const char *symbol, const char *prototype,
				 uint32_t *ret_args)
{
	struct scry_calls_watch *t = arg;
	const struct scry_calls_cli *cli = t->watch->opts->instrument_opts;
	const struct scry_proto *proto = scry_protos_find(cli->protos, symbol, "kernel");

	if (!proto && scry_protos_read(t->debug, "the kernel", prototype, strlen(prototype)) == 0)
		proto = scry_protos_find(t->debug, symbol, "");
	scry_error_clear();
	if (!proto)
		proto = &scry_proto_unknown;
	*ret_args = proto->count;
	return add_traced(t, &(struct scry_calls_traced){.symbol = (char *)symbol,
							 .module = (char *)"kernel",
							 .proto = proto});
}

/* Is it one whose calls are those of `row`? Notes where it is another version of its name. */
static bool is_of(struct scry_calls_traced *f, const struct scry_hook *row, bool *is_versioned)
{
	if (strcmp(f->symbol, row->symbol) || strcmp(f->module, row->module))
		return false;
	if (*f->symbol && f->version && strcmp(f->version, row->version)) {
		f->is_versioned = *is_versioned = true;
		return false;
	}
	return !f->caller == !row->caller && (!f->caller || !strcmp(f->caller, row->caller)) &&
	       (*f->symbol || f->address == row->address);
}

/* The number of a row's function; one that comes back with its library keeps it. -errno. */
static int number_of(struct scry_calls_watch *t, struct scry_calls_debug *d,
		     const struct scry_hook *row)
{
	const struct scry_calls_cli *cli = t->watch->opts->instrument_opts;
	const struct scry_proto *proto;
	bool is_versioned = false;

	for (uint32_t i = 0; i < t->count; i++)
		if (is_of(&t->functions[i], row, &is_versioned))
			return (int)i;
	proto = scry_protos_find(cli->protos, row->symbol, row->module);
	if (!proto && d)
		proto = scry_calls_debug_proto(d, row, t->count);
	return add_traced(t,
			  &(struct scry_calls_traced){.symbol = row->symbol,
						      .version = row->version,
						      .is_versioned = is_versioned,
						      .module = row->module,
						      .caller = row->caller,
						      .aliases = row->aliases,
						      .address = row->address,
						      .proto = proto ? proto : &scry_proto_unknown,
						      .way = row->way});
}

/* A program that puts itself under seccomp may be ended by system calls of ours: it is seen first.
 * So is the end of a Ruby's code. */
static uint32_t guard_of(const struct scry_calls_watch *t, const struct scry_hook *row)
{
	uint32_t flags = !strcmp(row->symbol, "prctl")	   ? SCRY_CALL_IS_PRCTL
			 : !strcmp(row->symbol, "syscall") ? SCRY_CALL_IS_SYSCALL
							   : 0;

	flags |= scry_calls_ruby_guard(&t->ruby, row);
	if (!flags)
		return 0;
	return flags |
	       (t->guards && row->request + t->guards >= t->hooks.request_count ? SCRY_CALL_IS_GUARD
										: 0);
}

int scry_calls_functions_fill(struct scry_calls_watch *t, struct scry_hooks *h,
			      struct scry_calls_debug *d)
{
	int r = scry_aliases_find(h);

	for (size_t i = 0; i < h->count && r == 0; i++) {
		struct scry_hook *row = &h->rows[i];
		const struct scry_calls_traced *f;
		int n;

		if (row->to.kind != SCRY_HOOK_CALL || !row->way || row->to.is_guard)
			continue;
		row->to.cookie = guard_of(t, row);
		if (row->to.cookie & SCRY_CALL_IS_GUARD)
			continue;
		n = number_of(t, d, row);
		if (n < 0)
			return n;
		f = &t->functions[n];
		row->to.cookie |= scry_call_cookie((uint32_t)n, f->args, f->has_plan) |
				  (row->is_alone ? SCRY_CALL_IS_ALONE : 0) |
				  (row->spares_red_zone ? SCRY_SHADOW_RED_ZONE : 0);
	}
	return r;
}

/* As nm -D writes it, where the name alone does not say which is meant. */
static void put_symbol(struct scry_writer *w, const struct scry_calls_traced *f, uint32_t *ret)
{
	struct scry_buf name = {0};

	if (!f->is_versioned || !*f->version)
		return;
	scry_buf_printf(&name, "%s@%s", f->symbol, f->version);
	if (!name.failed)
		scry_writer_string(w, name.data, name.len, ret);
	scry_buf_done(&name);
}

int scry_calls_functions_report(struct scry_watch *w, const struct scry_calls_traced *f,
				uint32_t pid, uint32_t number)
{
	struct scry_hook row = {
		.symbol = f->symbol, .module = f->module, .address = f->address, .way = f->way};
	const struct scry_patch_names names = scry_patch_names(w, &row);
	struct scry_ev_function ev = {.function = number,
				      .pid = pid,
				      .symbol_str = names.symbol,
				      .module_str = names.module,
				      .way_str = names.way,
				      .address = f->address};
	const struct scry_event head = {.time_ns = scry_now_ns(), .type = SCRY_EVENT_FUNCTION};

	put_symbol(w->writer, f, &ev.symbol_str);
	if (f->caller)
		scry_writer_string(w->writer, f->caller, strlen(f->caller), &ev.caller_str);
	if (f->aliases && *f->aliases)
		scry_writer_string(w->writer, f->aliases, strlen(f->aliases), &ev.aliases_str);
	scry_writer_string(w->writer, f->proto->text, strlen(f->proto->text), &ev.prototype_str);
	return scry_writer_payload(w->writer, &head, &ev, sizeof(ev));
}

void scry_calls_functions_forget(struct scry_calls_watch *t)
{
	for (uint32_t i = 0; i < t->count; i++)
		forget(&t->functions[i]);
	t->count = 0;
	scry_call_plans_done(&t->plans);
	scry_calls_free(t->calls);
	t->calls = NULL;
	scry_protos_free(t->debug);
	t->debug = NULL;
}
