/*
 * Infers the whole layout: starts the calibration child, runs the steps in their order, checks the
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
#include "vm/ruby_infer.h"

static int (*const steps[])(struct scry_infer *) = {
	scry_infer_slots,   scry_infer_pages,	scry_infer_strings, scry_infer_arrays,
	scry_infer_pieces,  scry_infer_code,	scry_infer_lines,   scry_infer_threads,
	scry_infer_frames,  scry_infer_vm,	scry_infer_tids,    scry_infer_locks,
	scry_infer_methods, scry_infer_classes, scry_infer_owners,  scry_infer_allocators,
	scry_infer_trace,   scry_infer_sizes,
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

bool scry_infer_optional(struct scry_infer *infer, const char *item, const struct scry_pick *pick,
			 const char *proof, const char *without)
{
	struct scry_ruby_check check = {
		.value = "not known", .how = "calibration child", .ok = true};

	snprintf(check.item, sizeof(check.item), "%s", item);
	if (pick->hits == 1)
		print_value(pick, check.value, sizeof(check.value));
	snprintf(check.proof, sizeof(check.proof), "%s", pick->hits == 1 ? proof : without);
	scry_ruby_add_check(infer->target, &check);
	return pick->hits == 1;
}

int scry_infer_item(struct scry_infer *infer, const char *item, const struct scry_pick *pick,
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
	scry_ruby_add_check(infer->target, &check);
	if (check.ok)
		return 0;
	return scry_fail(-ENOTSUP, "cannot learn '%s' of the Ruby in '%s': %s (%u candidates)",
			 item, infer->target->module, check.proof, pick->hits);
}

/* The module of the target in the child: same file, its own place. */
int scry_infer_module(struct scry_infer *infer)
{
	struct scry_ruby *child = infer->child;
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

int scry_infer_all(struct scry_infer *infer)
{
	int err = 0;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && !err; i++)
		err = steps[i](infer);
	return err ? err : scry_ruby_validate(infer->child);
}

int scry_ruby_infer(struct scry_ruby *target, const struct scry_proc *proc)
{
	struct scry_infer *infer = calloc(1, sizeof(*infer));
	struct scry_ruby *child = calloc(1, sizeof(*child));
	struct scry_mem live = {.fd = -1};
	struct scry_calib calib = {0};
	int err = scry_calib_start(proc, &calib);

	if (err)
		goto out;
	err = -ENOMEM;
	if (!infer || !child)
		goto out;
	err = scry_mem_open(&live, calib.pid, 0);
	if (err)
		goto out;
	infer->still = scry_still_new(&live);
	if (!infer->still) {
		err = scry_no_memory("learning");
		goto out;
	}
	infer->calib = &calib;
	infer->target = target;
	infer->child = child;
	child->pid = calib.pid;
	child->mem = scry_still_mem(infer->still);
	err = scry_infer_module(infer);
	if (!err)
		err = scry_ruby_is_same_module(target, child);
	if (!err)
		err = scry_infer_all(infer);
	if (!err)
		err = scry_ruby_cross_check(child, target);
	if (!err) {
		target->layout = child->layout;
		/* Reported only when the child could load 'objspace'. */
		target->whole = scry_fact_next(&calib, NULL, "leaf") != NULL;
	}
out:
	if (infer)
		scry_still_free(infer->still);
	scry_mem_close(&live);
	scry_calib_stop(&calib);
	scry_ruby_free(child);
	free(infer);
	return err;
}
