/*
 * How many functions of ELF files can be hooked at their entry by a jump of 5 bytes, and why the
 * others cannot: hook_census [-v] FILE... prints a table in Markdown; -v lists each refused
 * function.
 *
 * The last column is what is left when short-jump trampolines are used, too. Counted as hookable:
 * the window can be displaced, its copy written within reach, and nothing known leads into its
 * inside. That no thread stands there is a question to a process, not here.
 */
#include <inttypes.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "sys/short_jump.h"
#include "sys/text.h"

#define JUMP_BYTES 5
#define AWAY 0x8000000 /* of a copy from its function */

struct census {
	size_t functions, ok, entered, by[SCRY_X86_REFUSALS];
	size_t short_jumps, endbr, rip, branch, call, filler, single, loops;
};

static bool verbose;

static void list(const struct scry_text_range *range, const struct scry_x86_code *text,
		 const char *why)
{
	printf("  %" PRIx64 " size %zu avail %zu: %s:", range->start, text->size, text->avail, why);
	for (size_t i = 0; i < 16 && i < text->avail; i++)
		printf(" %02x", text->bytes[i]);
	printf("\n");
}

static void take_window(struct census *c, const struct scry_x86_window *w)
{
	c->ok++;
	c->rip += (w->has & SCRY_X86_RIP) != 0;
	c->branch += (w->has & SCRY_X86_BRANCH) != 0;
	c->call += (w->has & SCRY_X86_CALL) != 0;
	c->filler += (w->has & SCRY_X86_FILLER) != 0;
	c->single += (w->has & SCRY_X86_ONE) != 0;
}

/* Each refused function for itself: that two want the same filler is left out. */
static void take_refused(struct census *c, struct scry_text *object,
			 const struct scry_text_range *range, const char *why)
{
	struct scry_short_jump_request request = {.text = object, .range = range};
	struct scry_x86_code code;
	struct scry_short_jump short_jump;
	bool reached = scry_short_jump_plan(&request, &short_jump) == SCRY_X86_OK;

	c->short_jumps += reached;
	if (!verbose)
		return;
	scry_text_bytes(object, range, &code);
	list(range, &code, why);
	printf("    %s\n", reached ? "by a trampoline" : "not by a trampoline either");
}

static void take_function(struct census *c, struct scry_text *object,
			  const struct scry_text_range *range)
{
	struct scry_x86_place place = {.address = range->start + AWAY, .back = true};
	enum scry_x86_refusal why;
	struct scry_x86_window w;
	struct scry_x86_moved m;
	struct scry_x86_code code;
	struct scry_transfer who;
	uint64_t start;
	char text[100];

	scry_text_bytes(object, range, &code);
	c->functions++;
	why = scry_x86_window(&code, JUMP_BYTES, SCRY_X86_JUMP_OK, &w);
	if (!why)
		why = scry_x86_move(&code, &w, &place, &m);
	c->by[why]++;
	if (why) {
		take_refused(c, object, range, scry_x86_why(why));
		return;
	}
	start = range->start + w.endbr;
	c->endbr += w.endbr != 0;
	if (scry_text_enters(object, start, start + w.bytes, &(struct scry_transfers){&who, 1})) {
		c->entered++;
		snprintf(text, sizeof(text), "entered inside, kind %d, %" PRIx64 " -> %" PRIx64,
			 who.kind, who.source, who.target);
		take_refused(c, object, range, text);
		return;
	}
	take_window(c, &w);
	c->loops += scry_text_loops(object, range->start, w.endbr + (size_t)w.bytes) != 0;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void print(const char *path, const struct census *c, const struct scry_text_stats *s,
		  double ms)
{
	char copy[4096];
	size_t transfers = 0;

	for (int i = 0; i < SCRY_TRANSFER_KINDS; i++)
		transfers += s->transfers[i];
	snprintf(copy, sizeof(copy), "%s", path);
	printf("| %s | %zu | %.2f %% | %zu | %zu |", basename(copy), c->functions,
	       100.0 * (double)c->ok / (double)(c->functions ? c->functions : 1), c->ok,
	       c->entered);
	for (int i = 1; i < SCRY_X86_REFUSALS; i++)
		if (i != SCRY_X86_HOOKED && i != SCRY_X86_REACH && i != SCRY_X86_ROOM)
			printf(" %zu |", c->by[i]);
	printf(" %zu |\n", c->functions - c->ok - c->short_jumps);
	fprintf(stderr,
		"%s: %.0f ms; ranges: %zu functions %zu cold %zu plt %zu signal, %zu bad; "
		"%" PRIu64 " instructions, %zu errors; gaps %" PRIu64 " bytes, %zu errors; "
		"%zu transfers (call %zu jmp32 %zu jcc32 %zu jmp8 %zu jcc8 %zu loop %zu table %zu "
		"pointer %zu), %zu outside; of the hookable: endbr64 %zu rip %zu branch %zu call "
		"%zu filler %zu single %zu, looping to their start %zu\n",
		copy, ms, s->ranges[0], s->ranges[1], s->ranges[2], s->ranges[3], s->bad_fdes,
		s->instructions, s->range_errors, s->gap_bytes, s->gap_errors, transfers,
		s->transfers[0], s->transfers[1], s->transfers[2], s->transfers[3], s->transfers[4],
		s->transfers[5], s->transfers[6], s->transfers[7], s->outside, c->endbr, c->rip,
		c->branch, c->call, c->filler, c->single, c->loops);
}

static int census(const char *path)
{
	struct census c = {0};
	struct scry_text_stats stats;
	struct scry_text *object;
	struct scry_elf *elf;
	double start, ms;

	if (scry_elf_open_path(path, &elf) < 0)
		return -1;
	start = now_ms();
	if (scry_text_read(elf, &object) < 0) {
		scry_elf_close(elf);
		return -1;
	}
	ms = now_ms() - start;
	for (size_t i = 0; i < scry_text_range_count(object); i++)
		if (scry_text_range(object, i)->kind == SCRY_TEXT_FUNCTION)
			take_function(&c, object, scry_text_range(object, i));
	scry_text_stats(object, &stats);
	print(path, &c, &stats, ms);
	scry_text_free(object);
	scry_elf_close(elf);
	return 0;
}

int main(int argc, char **argv)
{
	int first = 1, bad = 0;

	if (argc > 1 && strcmp(argv[1], "-v") == 0) {
		verbose = true;
		first = 2;
	}
	printf("| file | functions | hookable | | a branch from elsewhere into the window |");
	for (int i = 1; i < SCRY_X86_REFUSALS; i++)
		if (i != SCRY_X86_HOOKED && i != SCRY_X86_REACH && i != SCRY_X86_ROOM)
			printf(" %s |", scry_x86_why((enum scry_x86_refusal)i));
	printf(" not even by a trampoline |\n|---|");
	for (int i = 1; i < SCRY_X86_REFUSALS + 2; i++)
		printf("---|");
	printf("\n");
	for (int i = first; i < argc; i++) {
		if (census(argv[i]) < 0) {
			fprintf(stderr, "%s\n", scry_error());
			bad = 1;
		}
	}
	return bad;
}
