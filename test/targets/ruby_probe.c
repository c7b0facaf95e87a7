/*
 * ruby_probe PID [VALUE...]: opens the Ruby of PID and prints, as data for tests, one fact per
 * line: ruby DESCRIPTION / module PATH / open_us N / check ... / thread TH tid N / frame LINE PATH
 * LABEL / class VALUE NAME Options before PID: -q no checks, -b do not need a booted VM, -n N open
 * it N times, -s sizes of the objects whose addresses come by standard input. Exit 0, or 1 with the
 * sentence on stderr.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "vm/ruby.h"
#include "vm/ruby_iseq.h"
#include "vm/ruby_size.h"
#include "vm/ruby_value.h"

#define FRAMES_MAX 400

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void print_frame(const struct scry_ruby *ruby, uint64_t cfp, uint64_t pc, uint64_t code)
{
	char path[512] = "?", label[256] = "";
	struct scry_ruby_iseq iseq;
	uint32_t pos, line = 0;

	if (!pc || !code) {
		scry_ruby_c_method(ruby, cfp, label, sizeof(label));
		printf("frame c %s\n", label);
		return;
	}
	if (scry_ruby_iseq_read(ruby, code, &iseq) || scry_ruby_iseq_position(&iseq, pc, &pos)) {
		printf("frame bad\n");
		return;
	}
	scry_ruby_iseq_line(ruby, &iseq, pos, &line);
	scry_ruby_iseq_path(ruby, &iseq, path, sizeof(path));
	scry_ruby_iseq_label(ruby, &iseq, label, sizeof(label));
	printf("frame %u %s %s\n", line, path, label);
}

static void print_thread(const struct scry_ruby *ruby, const struct scry_ruby_thread *t)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t stack, size, cfp, end;

	printf("thread 0x%" PRIx64 " tid %d\n", t->th, (int)t->tid);
	if (scry_mem_u64(&ruby->mem, t->ec + l->ec_stack, &stack) ||
	    scry_mem_u64(&ruby->mem, t->ec + l->ec_stack_size, &size) ||
	    scry_mem_u64(&ruby->mem, t->ec + l->ec_cfp, &cfp))
		return;
	end = stack + 8 * size;
	for (int i = 0; i < FRAMES_MAX && cfp + l->frame_size < end; i++, cfp += l->frame_size) {
		uint64_t pc, code;

		if (scry_mem_u64(&ruby->mem, cfp + l->frame_pc, &pc) ||
		    scry_mem_u64(&ruby->mem, cfp + l->frame_iseq, &code))
			return;
		print_frame(ruby, cfp, pc, code);
	}
}

static void print_value(const struct scry_ruby *ruby, uint64_t value)
{
	char name[512] = "?", text[512];
	uint64_t flags = 0, klass = value;

	scry_mem_u64(&ruby->mem, value, &flags);
	if ((flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_CLASS &&
	    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_MODULE)
		scry_mem_u64(&ruby->mem, value + SCRY_RUBY_CLASS, &klass);
	if (scry_ruby_class_name(ruby, klass, name, sizeof(name)))
		snprintf(name, sizeof(name), "?");
	printf("class 0x%" PRIx64 " %s\n", value, name);
	if (scry_ruby_string(ruby, value, text, sizeof(text)) >= 0)
		printf("string 0x%" PRIx64 " %s\n", value, text);
}

static void print_leaves(const char *kind, const struct scry_ruby_leaf *leaves, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		printf("%s 0x%" PRIx64 " words %u types 0x%x%s\n", kind, leaves[i].word,
		       leaves[i].words, leaves[i].types,
		       leaves[i].pops_nothing ? " pops-nothing" : "");
}

static void print_size_rules(const struct scry_size_rules *r)
{
	static const char *const kinds[] = {"unknown", "none", "const", "linear", "table", "shape"};

	for (uint32_t t = 0; t < SCRY_SIZE_TYPES; t++) {
		const struct scry_size_type *type = &r->type[t];

		if (type->count)
			printf("size type %u same 0x%" PRIx64 " == 0x%" PRIx64 "\n", t,
			       type->same_mask, type->same_value);
		for (uint32_t i = type->first; i < (uint32_t)type->first + type->count; i++) {
			const struct scry_size_rule *rule = &r->rule[i];

			printf("size rule 0x%" PRIx64 " == 0x%" PRIx64
			       " same 0x%x == 0x%x: %s via %u at "
			       "%u width %u * %u + %d null_at %u table %u\n",
			       rule->mask, rule->value, rule->same_mask, rule->same_value,
			       kinds[rule->kind], rule->via, rule->at, rule->width, rule->scale,
			       rule->add, rule->null_at, rule->table);
		}
	}
	for (uint32_t t = 0; t < SCRY_SIZE_TABLES && r->bytes[t][0]; t++) {
		printf("size table %u:", t);
		for (uint32_t i = 0; i < SCRY_SIZE_POWERS; i++)
			printf(" %" PRId64, r->bytes[t][i]);
		printf("\n");
	}
	printf("size shapes root 0x%" PRIx64 " inner %u stride %u mask 0x%x\n", r->shape_root,
	       r->shape_inner, r->shape_stride, r->shape_mask);
}

/* "size ADDRESS type N slot N extra N|? flags F|free" for each address (hex) of standard input, and
 * how long it took. */
static int print_sizes(const struct scry_ruby *ruby)
{
	size_t count = 0, room = 1u << 22;
	uint64_t *address = malloc(room * sizeof(*address)), start, flags;
	struct scry_ruby_size *size = malloc(room * sizeof(*size));

	while (address && size && count < room && scanf("%" SCNx64, &address[count]) == 1)
		count++;
	start = now_us();
	if (!address || !size || scry_ruby_sizes(ruby, address, count, size) != 0) {
		fprintf(stderr, "ruby_probe: %s\n", scry_error());
		return 1;
	}
	printf("sizes %zu us %" PRIu64 "\n", count, now_us() - start);
	for (size_t i = 0; i < count; i++) {
		printf("size 0x%" PRIx64 " type %u slot %u extra ", address[i], size[i].type,
		       size[i].slot);
		if (size[i].known)
			printf("%" PRIu64 "\n", size[i].extra);
		else if (size[i].is_free || scry_mem_u64(&ruby->mem, address[i], &flags))
			printf("free\n");
		else
			printf("? flags 0x%" PRIx64 "\n", flags);
	}
	free(address);
	free(size);
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: ruby_probe [-q] [-b] [-s] [-n TIMES] PID [VALUE...]\n");
	return 2;
}

static void print_checks(const struct scry_ruby *ruby)
{
	struct scry_buf text = {0};

	for (size_t i = 0; i < ruby->check_count; i++) {
		const struct scry_ruby_check *c = &ruby->checks[i];

		scry_buf_clear(&text);
		scry_ruby_put_check(c, &text);
		printf("%-4s %-26s %s\n", c->ok ? "ok" : "FAIL", c->item, scry_buf_str(&text));
	}
	scry_buf_done(&text);
}

int main(int argc, char **argv)
{
	struct scry_ruby_thread *threads = NULL;
	bool quiet = false, need_booted = true, sizes = false;
	struct scry_ruby *ruby = NULL;
	int option, times = 1;
	uint64_t start = 0, took = 0;
	ssize_t n;

	while ((option = getopt(argc, argv, "qbsn:")) != -1) {
		quiet = quiet || option == 'q';
		need_booted = need_booted && option != 'b';
		sizes = sizes || option == 's';
		times = option == 'n' ? atoi(optarg) : times;
		if (option == '?')
			return usage();
	}
	if (optind == argc)
		return usage();
	for (int i = 0; i < times; i++) {
		scry_ruby_free(ruby);
		ruby = NULL;
		start = now_us();
		if (scry_ruby_open(atoi(argv[optind]), need_booted, &ruby) != 0) {
			fprintf(stderr, "ruby_probe: %s\n", scry_error());
			return 1;
		}
		took = now_us() - start;
	}
	printf("ruby %s\nmodule %s\nopen_us %" PRIu64 "\n", ruby->description, ruby->module, took);
	if (sizes) {
		int bad = print_sizes(ruby);

		scry_ruby_free(ruby);
		return bad;
	}
	start = now_us();
	if (ruby->booted && scry_ruby_validate(ruby) == 0)
		printf("validate_us %" PRIu64 "\n", now_us() - start);
	if (!quiet) {
		print_checks(ruby);
		print_leaves("leaf", ruby->layout.leaf, ruby->layout.leaf_count);
		print_leaves("after", ruby->layout.after, ruby->layout.after_count);
		print_size_rules(&ruby->layout.sizes);
	}
	if (ruby->booted && (n = scry_ruby_threads(ruby, &threads)) >= 0) {
		printf("ractors %d\nthreads %zd\n", scry_ruby_ractors(ruby), n);
		for (ssize_t i = 0; i < n; i++)
			print_thread(ruby, &threads[i]);
		free(threads);
	}
	for (int i = optind + 1; i < argc; i++)
		print_value(ruby, strtoull(argv[i], NULL, 16));
	scry_ruby_free(ruby);
	return 0;
}
