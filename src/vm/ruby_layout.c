/*
 * Learns the whole layout: starts the calibration child, runs the steps in their order, checks the
 * result on the child itself by the same validator that later judges the target, and hands it over.
 *
 * Each item becomes a row for `scry doctor`. The first item without exactly one answer ends it all:
 * a layout is right or is not used.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/elf_digest.h"
#include "vm/ruby_learn.h"

static int (*const steps[])(struct scry_learn *) = {
	scry_learn_slots,   scry_learn_pages,	scry_learn_strings, scry_learn_arrays,
	scry_learn_pieces,  scry_learn_code,	scry_learn_lines,   scry_learn_threads,
	scry_learn_frames,  scry_learn_vm,	scry_learn_tids,    scry_learn_locks,
	scry_learn_methods, scry_learn_classes, scry_learn_owners,  scry_learn_allocators,
	scry_learn_trace,   scry_learn_sizes,
};

void scry_ruby_add_check(struct scry_ruby *ruby, const struct scry_ruby_check *check)
{
	struct scry_ruby_check *more;

	for (size_t i = 0; i < ruby->check_count; i++) {
		if (strcmp(ruby->checks[i].item, check->item) == 0) { /* validated again */
			ruby->checks[i] = *check;
			return;
		}
	}
	more = realloc(ruby->checks, (ruby->check_count + 1) * sizeof(*more));
	if (!more)
		return;
	ruby->checks = more;
	ruby->checks[ruby->check_count++] = *check;
}

static void print_value(const struct scry_pick *pick, char *buf, size_t size)
{
	uint64_t value = pick->value;

	if (pick->parts == 3)
		snprintf(buf, size, "%u, %u, %u", (uint32_t)(value >> 32),
			 (uint32_t)(value >> 16) & 0xffff, (uint32_t)value & 0xffff);
	else if (pick->parts == 2)
		snprintf(buf, size, "%u, %u", (uint32_t)(value >> 32), (uint32_t)value);
	else
		snprintf(buf, size, value < 4096 ? "%" PRIu64 : "0x%" PRIx64, value);
}

bool scry_learn_optional(struct scry_learn *learn, const char *item, const struct scry_pick *pick,
			 const char *proof, const char *without)
{
	struct scry_ruby_check check = {
		.value = "not known", .how = "calibration child", .ok = true};

	snprintf(check.item, sizeof(check.item), "%s", item);
	if (pick->hits == 1)
		print_value(pick, check.value, sizeof(check.value));
	snprintf(check.proof, sizeof(check.proof), "%s", pick->hits == 1 ? proof : without);
	scry_ruby_add_check(learn->target, &check);
	return pick->hits == 1;
}

int scry_learn_item(struct scry_learn *learn, const char *item, const struct scry_pick *pick,
		    const char *fmt, ...)
{
	struct scry_ruby_check check = {.how = "calibration child", .ok = pick->hits == 1};
	va_list args;

	snprintf(check.item, sizeof(check.item), "%s", item);
	va_start(args, fmt);
	vsnprintf(check.proof, sizeof(check.proof), fmt, args);
	va_end(args);
	if (strncmp(check.proof, "decoded ", 8) == 0) {
		memcpy(check.how, check.proof, sizeof(check.how) - 1);
		snprintf(check.proof, sizeof(check.proof), "one load from the argument");
	}
	print_value(pick, check.value, sizeof(check.value));
	if (!check.ok)
		snprintf(check.proof, sizeof(check.proof), "%s",
			 pick->hits ? "more than one place explains the facts"
				    : "no place explains the facts");
	scry_ruby_add_check(learn->target, &check);
	if (check.ok)
		return 0;
	return scry_fail(-ENOTSUP, "cannot learn '%s' of the Ruby in '%s': %s (%u candidates)",
			 item, learn->target->module, check.proof, pick->hits);
}

/* The module of the target in the child: same file, its own place. */
int scry_learn_module(struct scry_learn *learn)
{
	struct scry_ruby *child = learn->child;
	size_t at;

	if (scry_maps_read(child->pid, &child->maps) != 0)
		return scry_fail(-ENOTSUP, "the calibration child died");
	if (scry_ruby_find(child->pid, &child->maps, &at) != 0)
		return scry_fail(-ENOTSUP, "the calibration child is not a Ruby");
	if (scry_elf_open_mapped(child->pid, &child->maps.entries[at], &child->elf) ||
	    scry_elf_bias(child->elf, &child->maps, &child->maps.entries[at], &child->bias))
		return -ENOTSUP;
	snprintf(child->module, sizeof(child->module), "%s", child->maps.entries[at].path);
	return 0;
}

int scry_ruby_is_same_module(const struct scry_ruby *a, const struct scry_ruby *b)
{
	uint8_t mine[SCRY_DIGEST_BYTES], theirs[SCRY_DIGEST_BYTES];

	if (scry_elf_digest(a->elf, mine) == 0 && scry_elf_digest(b->elf, theirs) == 0 &&
	    memcmp(mine, theirs, sizeof(mine)) == 0)
		return 0;
	return scry_fail(-ENOTSUP,
			 "'%s' on disk is not the library that process %d runs, so nothing "
			 "can be learned from it; fix: restart the program",
			 a->module, (int)a->pid);
}

int scry_learn_all(struct scry_learn *learn)
{
	int err = 0;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && !err; i++)
		err = steps[i](learn);
	return err ? err : scry_ruby_validate(learn->child);
}

int scry_ruby_learn(struct scry_ruby *target, const struct scry_proc *proc)
{
	struct scry_learn *learn = calloc(1, sizeof(*learn));
	struct scry_ruby *child = calloc(1, sizeof(*child));
	struct scry_mem live = {.fd = -1};
	struct scry_calib calib = {0};
	int err = scry_calib_start(proc, &calib);

	if (err)
		goto out;
	err = -ENOMEM;
	if (!learn || !child)
		goto out;
	err = scry_mem_open(&live, calib.pid, 0);
	if (err)
		goto out;
	learn->still = scry_still_new(&live);
	if (!learn->still) {
		err = scry_fail(-ENOMEM, "no memory to learn");
		goto out;
	}
	learn->calib = &calib;
	learn->target = target;
	learn->child = child;
	child->pid = calib.pid;
	child->mem = scry_still_mem(learn->still);
	err = scry_learn_module(learn);
	if (!err)
		err = scry_ruby_is_same_module(target, child);
	if (!err)
		err = scry_learn_all(learn);
	if (!err)
		err = scry_ruby_cross_check(child, target);
	if (!err) {
		target->layout = child->layout;
		/* Told only when the child could load 'objspace'. */
		target->whole = scry_fact_next(&calib, NULL, "leaf") != NULL;
	}
out:
	if (learn)
		scry_still_free(learn->still);
	scry_mem_close(&live);
	scry_calib_stop(&calib);
	scry_ruby_free(child);
	free(learn);
	return err;
}
