/*
 * Events or hooks: see source.h. What makes and frees objects is known from
 * instrument/objects/alloc_functions; here it is asked whether that holds in this very process: one
 * ractor, no code made at run time, every entry as in its file and free to be changed.
 */
#include "instrument/objects/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/err.h"
#include "base/text.h"
#include "instrument/objects/alloc_functions.h"
#include "watch/ask.h"

#define SLOW_NS 1000000000ull
#define TRIES 5

/* Does a word of /proc/PID/NAME (cmdline, environ) switch a JIT on? */
static bool names_jit(pid_t pid, const char *name)
{
	char path[64], *word = NULL;
	size_t size = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	f = fopen(path, "re");
	while (f && !found && getdelim(&word, &size, '\0', f) > 0)
		found = strstr(word, "--yjit") || strstr(word, "--jit") || strstr(word, "--mjit") ||
			strstr(word, "--rjit") || !strncmp(word, "RUBY_YJIT_ENABLE=1", 18);
	free(word);
	if (f)
		fclose(f);
	return found;
}

/* Memory of no file that may be executed: code made at run time, when no agent is there. */
static void look_for_code(const struct scry_watch *w, const struct scry_ruby *ruby, bool *ret_code,
			  bool *ret_agent)
{
	struct scry_agent_header h;
	struct scry_maps maps = {0};

	*ret_code = *ret_agent = false;
	if (scry_maps_read(w->proc.pid, &maps) < 0)
		return;
	*ret_agent = scry_agent_find(&ruby->mem, &maps, &h) == 0;
	for (size_t i = 0; i < maps.count && !*ret_agent; i++)
		*ret_code |= maps.entries[i].x && !maps.entries[i].path[0];
	scry_maps_done(&maps);
}

static int refuse(const struct scry_watch *w, const char *why)
{
	return scry_fail(
		-ENOTSUP,
		"objects of process %d cannot be watched by hooks: %s; fix: --source event",
		w->proc.pid, why);
}

static int want(struct scry_objects_hooks *h, uint64_t address, const struct scry_hook_to *to)
{
	char request[32];

	snprintf(request, sizeof(request), "%#" PRIx64, address);
	return scry_hooks_want(&h->hooks, request, to);
}

static int plan_hooks(struct scry_watch *w, const struct scry_ruby *ruby,
		      struct scry_objects_hooks *h)
{
	const struct scry_hook_to born = {
		.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_born"};
	const struct scry_hook_to freed = {
		.kind = SCRY_HOOK_CALL, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_called"};
	const struct scry_hook_to finalize = {.kind = SCRY_HOOK_CALL,
					      .way = SCRY_WAY_ENTRY,
					      .handler = "scry_agent_called",
					      .cookie = SCRY_CALL_FINALIZE};
	uint64_t down = scry_ruby_symbol(ruby, "ruby_sig_finalize");
	const struct scry_ruby_alloc_functions *m = &ruby->layout.alloc_functions;
	int r = scry_hooks_open(&h->hooks, &w->proc);

	h->is_open = true;
	for (uint32_t i = 0; i < m->count && r == 0; i++)
		r = want(h, ruby->bias + m->make[i], &born);
	if (r == 0)
		r = want(h, ruby->bias + m->end, &freed);
	if (r == 0 && down)
		r = want(h, down, &finalize);
	if (r == 0)
		r = scry_hooks_plan(&h->hooks);
	for (size_t i = 0; i < h->hooks.count && r == 0; i++)
		if (!h->hooks.rows[i].way)
			r = refuse(w, h->hooks.rows[i].why);
	return r;
}

bool scry_objects_has_jit(const struct scry_watch *w, const struct scry_ruby *ruby)
{
	bool has_code, has_agent;

	look_for_code(w, ruby, &has_code, &has_agent);
	return has_code || names_jit(w->proc.pid, "cmdline") || names_jit(w->proc.pid, "environ");
}

static int try_hooks(struct scry_watch *w, struct scry_ruby *ruby, struct scry_objects_hooks *h)
{
	const struct scry_ruby_alloc_functions *m = &ruby->layout.alloc_functions;
	uint64_t began = scry_now_ns(), module = 0;
	int64_t offset = 0;
	bool has_code;
	int r = scry_alloc_functions_find(ruby, &w->proc);

	if (r == 0 && scry_now_ns() - began > SLOW_NS)
		scry_watch_say(
			w,
			"found out by counting which functions of this Ruby make its objects; the "
			"next watch knows");
	if (r == 0 && !m->is_proven)
		r = refuse(w, m->why);
	if (r == 0 && m->end_mask != SCRY_NO_MASK && ruby->layout.slots_differ)
		r = refuse(w, "slots of different sizes are freed together");
	if (r == 0 && !w->held && scry_ruby_ractors(ruby) > 1)
		r = refuse(w, "it has several ractors, which make objects at the same time");
	look_for_code(w, ruby, &has_code, &h->is_late);
	if (r == 0 &&
	    (has_code || names_jit(w->proc.pid, "cmdline") || names_jit(w->proc.pid, "environ")))
		r = refuse(w, "it runs code made at run time (a JIT)");
	if (r == 0)
		r = scry_ruby_current_ec(ruby, &module, &offset);
	if (r == 0 && !h->is_late)
		r = plan_hooks(w, ruby, h);
	if (r < 0)
		return r;
	h->ruby = ruby;
	h->plan = (struct scry_agent_hooks){
		.on = 1,
		.end_argument = (uint16_t)m->end_argument,
		.end_mask = (uint16_t)m->end_mask,
		.end_stride = ruby->layout.slot_size,
		.tls_module = module,
		.tls_offset = offset,
		.vm_objspace = m->vm_objspace,
		.objspace_count = m->objspace_gcs,
		.objspace_made = m->objspace_made,
		.gc_count = m->objspace_gcs ? 0 : scry_ruby_symbol(ruby, "rb_gc_count"),
	};
	return 0;
}

int scry_objects_choose(struct scry_watch *w, struct scry_ruby *ruby,
			enum scry_objects_source source, struct scry_objects_hooks *ret)
{
	int r;

	if (!w->held && ruby->layout.th_tid == SCRY_RUBY_NONE)
		return scry_fail(-ENOTSUP,
				 "which native threads run the Ruby threads of process %d is not "
				 "known of this Ruby (%s), so none can begin the watch; fix: scry "
				 "objects -- CMD",
				 w->proc.pid, ruby->description);
	r = source == SCRY_SOURCE_EVENT ? 0 : try_hooks(w, ruby, ret);
	if (r == 0 || source == SCRY_SOURCE_HOOKS)
		return r;
	scry_objects_source_done(ret);
	scry_watch_detail(w, "%s", scry_error());
	scry_error_clear();
	return 0;
}

int scry_objects_report_source(struct scry_watch *w, const struct scry_objects_hooks *h)
{
	return scry_edit_poke(w->inj->mem.fd,
			      scry_inject_symbol(w->inj, "scry_agent_vm") +
				      offsetof(struct scry_agent_vm, hooks),
			      &h->plan, sizeof(h->plan));
}

/* Does the thread keep its execution context where the agent will look for it? */
static bool keeps_ec(const struct scry_objects_hooks *h, uint64_t fs, uint64_t ec)
{
	uint64_t block, word;

	return scry_ruby_tls_block(&h->ruby->mem, fs, h->plan.tls_module, &block) == 0 &&
	       scry_mem_u64(&h->ruby->mem, block + (uint64_t)h->plan.tls_offset, &word) == 0 &&
	       word == ec;
}

struct place { /* of a thread's storage, for its life */
	pid_t tid;
	uint64_t fs;
};

/* Where each thread has its own: a stop for the registers only. How many (malloc'ed), or -errno. */
static ssize_t find_places(struct scry_watch *w, struct place **ret)
{
	struct scry_stw world;
	size_t n;
	int r = scry_inject_stop(w->inj, &world);

	if (r < 0)
		return r;
	n = world.count;
	*ret = calloc(n + 1, sizeof(**ret));
	for (size_t i = 0; *ret && i < n; i++)
		if (world.threads[i].stopped)
			(*ret)[i] =
				(struct place){world.threads[i].tid, world.threads[i].regs.fs_base};
	scry_inject_go(w->inj, &world);
	return *ret ? (ssize_t)n : -ENOMEM;
}

/* One look at running threads. */
static void compare_ec(const struct scry_objects_hooks *h, const struct place *places,
		       ssize_t count, size_t *ret_right, size_t *ret_wrong)
{
	struct scry_ruby_thread *threads;
	ssize_t n = scry_ruby_threads(h->ruby, &threads);

	*ret_right = *ret_wrong = 0;
	for (ssize_t k = 0; k < n; k++)
		for (ssize_t i = 0; i < count; i++)
			if (threads[k].ec && threads[k].tid && threads[k].tid == places[i].tid)
				++*(keeps_ec(h, places[i].fs, threads[k].ec) ? ret_right
									     : ret_wrong);
	if (n >= 0)
		free(threads);
}

/* Of a live process: its Ruby threads do. One that switches fibers, starts or ends may differ at a
 * moment. */
bool scry_objects_keep_ec(struct scry_watch *w, const struct scry_objects_hooks *h)
{
	struct place *places = NULL;
	ssize_t n = find_places(w, &places);
	size_t right = 0, wrong = 1;

	for (int i = 0; i < TRIES && n > 0 && (wrong || !right); i++)
		compare_ec(h, places, n, &right, &wrong);
	free(places);
	scry_error_clear();
	return n > 0 && right && right >= 4 * wrong;
}

int scry_objects_hook(struct scry_watch *w, struct scry_objects_hooks *h)
{
	int r = 0;

	if (!h->plan.on)
		return 0;
	if (!w->held && !scry_objects_keep_ec(w, h))
		r = refuse(w, "its threads do not keep their execution context where they should");
	if (r < 0)
		return r;
	if (h->is_late)
		r = plan_hooks(w, h->ruby, h);
	return r < 0 ? r : scry_hooks_on(&h->hooks, w->inj, w->held);
}

void scry_objects_source_done(struct scry_objects_hooks *h)
{
	if (h->is_open)
		scry_hooks_close(&h->hooks);
	*h = (struct scry_objects_hooks){0};
}

void scry_objects_describe_source(const struct scry_objects_hooks *h, FILE *out)
{
	if (!h->plan.on) {
		fprintf(out,
			"  source      NEWOBJ and FREEOBJ events of the VM, by a raw event hook\n");
		fprintf(out, "  code        no byte of the program's or Ruby's code or data is "
			     "patched by "
			     "us; the\n"
			     "              VM's own hook list gets one entry, which is taken out "
			     "at the "
			     "end\n");
		return;
	}
	fprintf(out, "  source      hooks on the functions that make objects and the one that "
		     "frees them\n");
	for (size_t i = 0; i < h->hooks.count; i++) {
		const struct scry_hook *row = &h->hooks.rows[i];

		fprintf(out, "  change      %u bytes at %#" PRIx64 ", %s%s\n", row->jump,
			row->address + row->window.endbr,
			*row->symbol ? "the entry of " : "the entry of a function without a name",
			scry_text_shown(row->symbol).text);
	}
}
