/* What scry reads of a process's loaded objects and slots, printed as data: for tests and
 * developers.
 *
 *   link_probe PID                objects: SPACE BASE [main] [loader] [vdso] [startup] NAME
 *   link_probe PID REQUEST...     and for each slot of the functions that are asked for:
 *                                 slot ADDRESS KIND OBJECT -> DEFINITION NAME [lazy] [unsure]
 * [relro] The last line says how many, and the milliseconds of reading the list, finding and
 * planning. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "sys/slots.h"

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void print_objects(const struct scry_linkmap *lm)
{
	for (size_t i = 0; i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];

		printf("object %u 0x%" PRIx64 "%s%s%s%s %s\n", o->space, o->bias,
		       o->is_main ? " main" : "", o->is_loader ? " loader" : "",
		       o->is_vdso ? " vdso" : "", o->at_startup ? " startup" : "", o->name);
	}
}

static void print_slots(const struct scry_linkmap *lm, const struct scry_functions *f,
			const struct scry_slots *slots)
{
	for (size_t i = 0; i < slots->count; i++) {
		const struct scry_slot *s = &slots->rows[i];

		printf("slot 0x%" PRIx64 " %s %s -> 0x%" PRIx64 " %s%s%s%s\n",
		       s->address - lm->objects[s->object].bias, scry_slot_kind_name(s->kind),
		       last_part(lm->objects[s->object].name), s->definition,
		       f->rows[s->function].name, s->is_lazy ? " lazy" : "",
		       s->is_sure ? "" : " unsure", s->is_relro ? " relro" : "");
	}
}

static int probe(pid_t pid, char **requests, int count)
{
	struct scry_functions functions = {0};
	struct scry_slots slots = {0};
	struct scry_linkmap lm = {0};
	struct scry_mem mem = {.fd = -1};
	double start = now_ms(), listed = 0, found = 0, planned = 0;
	int r = scry_mem_open(&mem, pid, 0);

	if (r == 0)
		r = scry_linkmap_read(pid, &mem, &lm);
	listed = now_ms();
	scry_linkmap_open_all(&lm);
	for (int i = 0; i < count && r == 0; i++)
		r = scry_symbols_find(&lm, requests[i], &functions);
	found = now_ms();
	if (r == 0 && count)
		r = scry_slots_find(&lm, &mem, &functions, &slots);
	planned = now_ms();
	if (r == 0) {
		print_objects(&lm);
		print_slots(&lm, &functions, &slots);
		printf("%zu objects %zu spaces %zu functions %zu slots of %zu relocations, %zu "
		       "elsewhere, %zu unread, %zu unopened; list %.2f ms, find %.2f ms, plan %.2f "
		       "ms\n",
		       lm.count, lm.space_count, functions.count, slots.count, slots.relocations,
		       slots.elsewhere, slots.unread, slots.unopened, listed - start,
		       found - listed, planned - found);
	}
	scry_slots_done(&slots);
	scry_functions_done(&functions);
	scry_linkmap_done(&lm);
	scry_mem_close(&mem);
	return r;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: link_probe PID [REQUEST...]\n");
		return 2;
	}
	if (probe(atoi(argv[1]), argv + 2, argc - 2) < 0) {
		fprintf(stderr, "link_probe: %s\n", scry_error());
		return 1;
	}
	return 0;
}
