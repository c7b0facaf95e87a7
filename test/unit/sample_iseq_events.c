/*
 * sample/iseq_events on a living Ruby (RUBY, or the one of the system): code that was gone before
 * anybody asked is named, to the line; the process's code is byte-identical after the probe's end,
 * be it by SIGKILL; and other processes of the same library never had a breakpoint. Where the
 * machine lets us load nothing this is said and skipped.
 */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "child.h"
#include "sample/iseq_events.h"
#include "vm/ruby_symbol.h"

#define HOLDS 12
#define PAGE 4096u

struct fixture {
	struct child child;
	struct scry_ruby *ruby;
	struct scry_iseq_events_all probes;
	struct scry_iseq_events probe;
};

static const char *ruby_path(void)
{
	const char *path = getenv("RUBY");

	return path && *path == '/' ? path : "/usr/bin/ruby";
}

static bool start(struct fixture *f)
{
	*f = (struct fixture){0};
	if (!child_start(&f->child, ruby_path(), SCRY_TEST_DIR "/ruby/names/gone.rb"))
		return false;
	if (scry_ruby_open(f->child.pid, SCRY_RUBY_BOOTED, &f->ruby))
		fail_msg("%s", scry_error());
	return true;
}

static bool open_probe(struct fixture *f)
{
	int err = scry_iseq_events_open(&f->probe, &f->probes, f->ruby);

	if (err == -EPERM) {
		print_message("skipped: %s\n", scry_error());
		return false;
	}
	if (err)
		fail_msg("%s", scry_error());
	return true;
}

static void end(struct fixture *f)
{
	scry_iseq_events_close(&f->probe);
	scry_iseq_events_all_done(&f->probes);
	scry_ruby_free(f->ruby);
	child_end(&f->child);
}

/* Is there a frame of gone_K, in its file, at its line? Others of that name: false. */
static bool is_named(struct scry_symbols *s, const struct scry_ruby *ruby, struct scry_walk *w,
		     int k)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	char label[32], path[32];
	bool found = false;

	snprintf(label, sizeof(label), "gone_%d", k);
	snprintf(path, sizeof(path), "gone_%d.rb", k);
	scry_symbols_turn(s);
	scry_symbols_name(s, ruby, w, named);
	for (size_t i = 0; i < w->count; i++) {
		const struct scry_symbol *symbol = scry_symbols_get(s, named[i].symbol);

		if (!symbol || strcmp(scry_symbols_text(s, symbol->label), label) != 0)
			continue;
		assert_string_equal(scry_symbols_text(s, symbol->path), path);
		assert_int_equal(named[i].line, k + 3);
		found = true;
	}
	return found;
}

/* The frames of the main thread, which is about to wait in gone_K. */
static void walk(struct fixture *f, struct scry_walk *w, int k)
{
	const struct timespec moment = {0, 1000000};
	bool is_there = false;

	for (int i = 0; i < 5000 && !is_there; i++) {
		struct scry_ruby_thread *threads = NULL; /* anew: a fiber has another stack */
		struct scry_symbols s;

		nanosleep(&moment, NULL);
		assert_int_equal(scry_ruby_threads(f->ruby, &threads), 1);
		assert_int_equal(scry_symbols_init(&s), 0);
		is_there = scry_walk_collect(w, f->ruby, &threads[0], NULL) == SCRY_WALK_VALID &&
			   is_named(&s, f->ruby, w, k);
		scry_symbols_done(&s);
		free(threads);
	}
	assert_true(is_there);
}

static void gone_code_is_named(void **state)
{
	struct scry_symbols told, read;
	struct scry_iseq_events_sums sums;
	struct scry_walk w;
	struct fixture f;
	unsigned int by_memory = 0;

	if (!start(&f))
		skip();
	if (!open_probe(&f)) {
		end(&f);
		skip();
	}
	assert_int_equal(scry_walk_init(&w), 0);
	assert_int_equal(scry_symbols_init(&told), 0);
	assert_int_equal(scry_symbols_init(&read), 0);
	told.births = &f.probe.births;
	for (int k = 0; k < HOLDS; k++) {
		char ask[32];

		snprintf(ask, sizeof(ask), "hold %d", k);
		child_ask(&f.child, ask, "held ");
		walk(&f, &w, k);
		child_ask(&f.child, "go", "gone");
		scry_iseq_events_tick(&f.probe);
		assert_true(is_named(&told, f.ruby, &w, k));
		by_memory += is_named(&read, f.ruby, &w, k);
	}
	/* Memory alone has forgotten them: else this would be no proof. */
	assert_true(by_memory < HOLDS / 2);
	assert_true(told.reported >= HOLDS / 2);
	scry_iseq_events_end(&f.probe, &sums);
	assert_true(sums.births.agree > 0);
	assert_int_equal(sums.births.differ, 0);
	assert_int_equal(sums.births.bad + sums.births.dropped + sums.lost + sums.unread, 0);
	assert_int_equal(sums.births.born, sums.seen);
	scry_symbols_done(&read);
	scry_symbols_done(&told);
	scry_walk_done(&w);
	end(&f);
}

/* The executable segments of the module, in memory and in the file. Returns how many bytes differ.
 */
static size_t changed(const struct scry_ruby *ruby, const struct scry_mem *mem)
{
	const Elf64_Phdr *ph;
	size_t differ = 0;

	for (size_t i = 0; (ph = scry_elf_segment(ruby->elf, i)); i++) {
		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X))
			continue;
		for (uint64_t at = 0; at < ph->p_filesz; at += PAGE) {
			size_t size = ph->p_filesz - at < PAGE ? ph->p_filesz - at : PAGE;
			uint8_t file[PAGE], memory[PAGE];

			assert_int_equal(scry_elf_read(ruby->elf, ph->p_vaddr + at, file, size), 0);
			assert_int_equal(
				scry_mem_read(mem, ruby->bias + ph->p_vaddr + at, memory, size), 0);
			for (size_t k = 0; k < size; k++)
				differ += file[k] != memory[k];
		}
	}
	return differ;
}

static void only_its_own_code_is_touched(void **state)
{
	struct fixture f, other;

	if (!start(&f))
		skip();
	assert_true(start(&other));
	assert_int_equal(changed(f.ruby, &f.ruby->mem), 0);
	if (open_probe(&f)) {
		assert_int_equal(changed(f.ruby, &f.ruby->mem), 1);
		assert_int_equal(changed(other.ruby, &other.ruby->mem), 0);
		scry_iseq_events_close(&f.probe);
	}
	assert_int_equal(changed(f.ruby, &f.ruby->mem), 0);
	end(&other);
	end(&f);
}

/* What a fork child inherits does it no harm, is not recorded, and goes too. */
static void a_fork_child_is_let_be(void **state)
{
	struct scry_iseq_events_sums sums;
	struct scry_mem mem;
	struct fixture f;
	char ask[32];
	int pid, sum;

	if (!start(&f))
		skip();
	if (open_probe(&f)) {
		assert_int_equal(
			sscanf(child_ask(&f.child, "fork", "forked "), "%d %d", &pid, &sum), 2);
		assert_int_equal(sum, 5150);
		assert_int_equal(scry_mem_open(&mem, pid, false), 0);
		scry_iseq_events_end(&f.probe, &sums);
		assert_int_equal(sums.seen, 0);
		assert_int_equal(changed(f.ruby, &mem), 0);
		scry_mem_close(&mem);
		snprintf(ask, sizeof(ask), "end %d", pid);
		child_ask(&f.child, ask, "ended");
	}
	end(&f);
}

static void killed_it_leaves_nothing(void **state)
{
	struct fixture f;
	struct timespec moment = {0, 5000000};
	int told[2];
	char byte = 0;

	if (!start(&f))
		skip();
	for (int i = 0; i < 5; i++) {
		pid_t pid;

		assert_int_equal(pipe(told), 0);
		pid = fork();
		if (pid == 0) {
			int err = scry_iseq_events_open(&f.probe, &f.probes, f.ruby);

			byte = err == 0 ? 'y' : err == -EPERM ? 'n' : 'e';
			if (write(told[1], &byte, 1) != 1)
				_exit(1);
			pause();
			_exit(0);
		}
		assert_int_equal(read(told[0], &byte, 1), 1);
		assert_int_not_equal(byte, 'e');
		assert_int_equal(changed(f.ruby, &f.ruby->mem), byte == 'y');
		if (i % 2) /* while code is made */
			fprintf(f.child.to, "fork\n");
		fflush(f.child.to);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		for (int k = 0; k < 1000 && changed(f.ruby, &f.ruby->mem); k++)
			nanosleep(&moment, NULL);
		assert_int_equal(changed(f.ruby, &f.ruby->mem), 0);
		if (i % 2) {
			char ask[32];
			int child;

			assert_int_equal(sscanf(child_next(&f.child), "forked %d 5150", &child), 1);
			snprintf(ask, sizeof(ask), "end %d", child);
			child_ask(&f.child, ask, "ended");
		}
		close(told[0]);
		close(told[1]);
	}
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gone_code_is_named),
		cmocka_unit_test(only_its_own_code_is_touched),
		cmocka_unit_test(a_fork_child_is_let_be),
		cmocka_unit_test(killed_it_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
