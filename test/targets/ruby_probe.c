/*
 * ruby_probe PID [VALUE...]: opens the Ruby of PID and prints, as data for tests, one fact per
 * line: ruby DESCRIPTION / module PATH / open_us N / check ... / thread TH tid N / frame LINE PATH
 * LABEL / class VALUE NAME Options before PID: -q no checks, -b do not need a booted VM, -n N open
 * it N times. Exit 0, or 1 with the sentence on stderr.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "vm/ruby.h"
#include "vm/ruby_iseq.h"
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

static int usage(void)
{
	fprintf(stderr, "usage: ruby_probe [-q] [-b] [-n TIMES] PID [VALUE...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct scry_ruby_thread *threads = NULL;
	bool quiet = false, need_booted = true;
	struct scry_ruby *ruby = NULL;
	int option, times = 1;
	uint64_t start = 0, took = 0;
	ssize_t n;

	while ((option = getopt(argc, argv, "qbn:")) != -1) {
		quiet = quiet || option == 'q';
		need_booted = need_booted && option != 'b';
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
	start = now_us();
	if (ruby->booted && scry_ruby_validate(ruby) == 0)
		printf("validate_us %" PRIu64 "\n", now_us() - start);
	if (!quiet) {
		scry_ruby_print_checks(ruby, stdout);
		print_leaves("leaf", ruby->layout.leaf, ruby->layout.leaf_count);
		print_leaves("after", ruby->layout.after, ruby->layout.after_count);
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
