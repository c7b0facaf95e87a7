#!/usr/bin/env bats
# `scry malloc replay`: recordings with a known answer, replayed under the allocators that are here.

load lib

setup() {
	need_targets
	prepare
	MAKE="$BUILD/test/malloc_make"
}

# make_recording CALLS THREADS LIVE CROSS CHURN SIZE_MAX SEED: $T/a.scry, what lives at its end in $BLOCKS and $BYTES.
make_recording() {
	local word
	read -r word BLOCKS BYTES < <("$MAKE" "$T/a.scry" "$@")
	[ "$word" = live ]
}

# replay ARGS...: its JSON in $T/a.json; by $FIRST, if that is set.
replay() {
	# shellcheck disable=SC2086 # words
	${FIRST:-} "$SCRY" malloc replay "$T/a.scry" --json "$@" >"$T/a.json" 2>"$T/a.err" || {
		cat "$T/a.err"
		head -c 2000 "$T/a.json"
		return 1
	}
}

is() { # JQ-EXPRESSION
	[ -s "$T/a.json" ] && jq -e "$1" "$T/a.json" >/dev/null && return 0
	echo "not so: $1"
	jq -c '.totals, .notes' "$T/a.json"
	return 1
}

# sound: who verifies in $WITH, of the allocators that are here. In $UNSOUND, empty or a sentence, who gives out memory
# that lives, as any program sees: mimalloc 3.0.1 (Debian 13; mended in 3.0.2) forgets of a page that it has given up and
# takes back that blocks in it were aligned, and frees them where they were not begun.
sound() {
	local name lib
	gcc -O1 -fno-builtin -o "$T/aligned" -xc - <<-'END'
		#include <malloc.h>
		#include <stdlib.h>
		#include <string.h>
		static char *p[4000];
		int main(void)
		{
			for (int i = 0; i < 4000; i++)
				memset(p[i] = valloc(112), i, 112);
			for (int i = 0; i < 4000; i += 2)
				free(p[i]);
			for (int i = 0; i < 4000; i += 2)
				memset(p[i] = malloc(4347), i, 4347);
			for (int i = 0; i < 4000 * 112; i++)
				if (p[i / 112][i % 112] != (char)(i / 112))
					return 1;
			return 0;
		}
	END
	WITH=glibc UNSOUND=''
	for name in jemalloc.so.2 tcmalloc_minimal.so.4 mimalloc.so.2.0 mimalloc.so.3; do
		lib=/usr/lib/x86_64-linux-gnu/lib$name
		[ -e "$lib" ] || continue
		if LD_PRELOAD=$lib "$T/aligned"; then WITH+=",${name%%[._]*}"; else UNSOUND="$(readlink -f "$lib") gives out memory that lives: not verified"; fi
	done
}

@test "all functions by one thread: verified under each allocator that is here" {
	make_recording 60000 1 3000 0 0 200000 1
	sound
	replay --runs 1 --verify --with "$WITH"
	is '.schema == "scry.malloc-replay/2"'
	is '.totals.calls == 60000 and .data_quality.events == 60000'
	is ".totals.live_end_bytes == $BYTES"
	is '[.notes[] | select(test("verified, no block was wrong"))] | length >= 1'
	is '[.rows[] | select(.kind == "all") | .failed] | add == 0'
	is '[.rows[] | select(.kind == "all") | .rss_peak_bytes > 1000000] | all'
	is '[.rows[] | select(.allocator == "glibc" and .kind != "all") | .calls] | add == 60000'
	[ -z "$UNSOUND" ] || skip "$UNSOUND"
}

@test "threads that take blocks over, begin and end: verified, as recorded and by one thread" {
	make_recording 60000 5 1000 40 1000 20000 2
	sound
	replay --runs 1 --verify --with "$WITH"
	is '.totals.threads > 40 and .totals.threads_peak == 5 and .totals.crossed > 10000'
	is ".totals.live_end_bytes == $BYTES"
	is '[.notes[] | select(test("wrong blocks|gave"))] | length == 0'
	replay --runs 1 --verify --threads 1 --with "$WITH"
	is '.totals.threads == 1 and .totals.threads_peak == 1'
	is ".totals.live_end_bytes == $BYTES"
	is '[.notes[] | select(test("by one thread"))] | length == 1'
	[ -z "$UNSOUND" ] || skip "$UNSOUND"
}

@test "the allocator that is named is the one that is called" {
	make_recording 20000 3 500 20 0 3000 3
	MARKER=$T/none replay --runs 1 --with "glibc"
	[ ! -e "$T/none" ]
	replay --runs 1 --with "glibc,$TARGETS/libmarker.so:MARKER=$T/marker"
	is "[.rows[] | select(.allocator | test(\"libmarker\")) | .object] | unique == [\"$(realpath "$TARGETS/libmarker.so")\"]"
	# Each run makes all calls but the questions for a usable size; the file is of the last run.
	read -r word calls <"$T/marker"
	asked=$(jq '[.rows[] | select(.allocator == "glibc" and .kind == "usable_size") | .calls] | add // 0' "$T/a.json")
	[ "$word" = calls ]
	[ "$calls" -ge $((20000 - asked)) ]
}

@test "an allocator that does not serve, or not all, is refused" {
	make_recording 2000 1 100 0 0 3000 4
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --with "glibc,$(ls /lib/x86_64-linux-gnu/libm.so.6)"
	[ "$status" -eq 1 ]
	[[ "$output" == *"malloc is served by '"*"libc.so.6' and not by"*"libm.so.6'"* ]]
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --with "glibc,$TARGETS/libmarker_half.so"
	[ "$status" -eq 1 ]
	[[ "$output" == *"not one allocator"* ]]
}

@test "verify finds an allocator whose calloc does not zero" {
	make_recording 2000 1 100 0 0 3000 5
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --verify --with "glibc,$TARGETS/libmarker_wrong.so"
	[ "$status" -eq 1 ]
	[[ "$output" == *"blocks that are wrong; the first: "*"calloc did not zero it"* ]]
}

@test "an allocator that crashes: it is said that it was its code" {
	make_recording 2000 1 100 0 0 3000 5
	gcc -shared -fPIC -O1 -fno-builtin -o "$T/libcrash.so" -xc - <<-'END'
		#include <stddef.h>
		#include <string.h>
		static char room[1 << 24];
		static size_t at, calls;
		void *malloc(size_t n) { if (++calls == 500) *(volatile int *)0 = 1; at += (n + 15) & ~15ul; return at > sizeof(room) ? NULL : room + at - ((n + 15) & ~15ul); }
		void free(void *p) { (void)p; }
		void *calloc(size_t a, size_t b) { return malloc(a * b); }
		void *realloc(void *p, size_t n) { void *q = malloc(n); return q && p ? memcpy(q, p, n) : q; }
	END
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --with "glibc,$T/libcrash.so"
	[ "$status" -eq 1 ]
	[[ "$output" == *"libcrash.so: the replay was ended by signal 11"*"; before: it ran code of '$T/libcrash.so'"* ]]
}

@test "variants differ by their environment; words that cannot be are said" {
	make_recording 20000 3 500 20 0 3000 6
	replay --runs 1 --with 'glibc,glibc:MALLOC_ARENA_MAX=1:GLIBC_TUNABLES=glibc.malloc.tcache_count=0\:glibc.malloc.arena_max=1'
	is '[.rows[] | select(.kind == "all")] | length == 2'
	for bad in nosuch glibc:ARENAS glibc:ARENA_MAX=2 jemalloc:MALLOC_ARENA_MAX=2 /no/such.so; do
		run "$SCRY" malloc replay "$T/a.scry" --with "$bad"
		[ "$status" -eq 1 ]
		[[ "$output" == "scry: "* ]]
	done
	run "$SCRY" malloc replay "$T/a.scry" --runs 0
	[ "$status" -eq 2 ]
	run "$SCRY" malloc replay "$T/none.scry"
	[ "$status" -eq 1 ]
	run "$SCRY" malloc replay
	[ "$status" -eq 2 ]
}

@test "one allocator, or one run, tells nothing" {
	make_recording 5000 1 100 0 0 3000 7
	replay --runs 3 --with glibc
	is '.totals.winner == null and (.totals.verdict | test("^cannot tell"))'
	replay --runs 1 --with glibc,jemalloc
	is '.totals.winner == null and (.totals.verdict | test("^cannot tell"))'
}

@test "more than is allowed is refused with a sentence" {
	make_recording 5000 1 1000 0 0 300000 8
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --memory 100K
	[ "$status" -eq 1 ]
	[[ "$output" == *"live at once"*"--memory"* ]]
	replay --runs 1 --with glibc
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --memory $(($(jq .totals.live_peak_bytes "$T/a.json") + 1)) --with glibc
	[ "$status" -eq 1 ]
	[[ "$output" == *"glibc takes more than"*"--memory"* ]]
}

@test "pictures: well-formed, from nobody's network, with a line for each allocator" {
	make_recording 20000 1 1000 0 0 3000 9
	"$SCRY" malloc replay "$T/a.scry" --runs 1 --with 'glibc,glibc:MALLOC_A=<b>' -o "$T/a.svg" >"$T/a.txt"
	grep -q "calls replayed" "$T/a.txt"
	[ "$(python3 -c 'import sys, xml.dom.minidom as d; print(len(d.parse(sys.argv[1]).getElementsByTagName("polyline")))' "$T/a.svg")" = 2 ]
	"$SCRY" malloc replay "$T/a.scry" --runs 1 --with glibc -o "$T/a.html" >/dev/null
	grep -q "<svg" "$T/a.html"
	no grep -qE "(src|href)=|<script" "$T/a.html" "$T/a.svg"
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --with glibc -o "$T/a.html"
	[ "$status" -eq 1 ]
	[[ "$output" == *"--force"* ]]
}

@test "a torn or damaged recording is replayed as far as it goes" {
	make_recording 60000 2 1000 20 0 3000 10
	head -c $(($(stat -c %s "$T/a.scry") - 100)) "$T/a.scry" >"$T/b.scry"
	mv "$T/b.scry" "$T/a.scry"
	if replay --runs 1 --with glibc; then
		is '.data_quality.torn_bytes > 0'
	else
		grep -q "no call of a malloc function" "$T/a.err"
	fi
}

@test "--check runs the program itself under each allocator; a static one is told of" {
	make_recording 5000 1 500 0 0 3000 11
	replay --runs 3 --with "glibc,$TARGETS/libmarker.so:MARKER=$T/real" --check -- /bin/sh -c 'exit 3'
	is '[.rows[] | select(.kind == "all") | .real_cpu_ns, .predicted_cpu_ns | . != null] | all'
	is '.totals.real_verdict != null'
	is '[.notes[] | select(test("ended with status 3"))] | length == 2'
	grep -q "calls [1-9]" "$T/real"
	if [ -x "$TARGETS/target_caller_static" ]; then
		gcc -static -o "$T/static" -xc - <<<'#include <unistd.h>
			int main(void) { usleep(200000); return 0; }'
		replay --runs 1 --with "glibc,$TARGETS/libmarker.so" --check -- "$T/static"
		is '[.notes[] | select(test("is static, so that nothing can be preloaded, not by (glibc|.*libmarker.so): "))] | length == 2'
		is '[.rows[].real_cpu_ns] | all(. == null)'
	fi
	run "$SCRY" malloc replay "$T/a.scry" --runs 1 --with glibc --check -- /no/such/program
	[ "$status" -eq 1 ]
	[[ "$output" == *"cannot run '/no/such/program'"* ]]
	run "$SCRY" malloc replay "$T/a.scry" --check
	[ "$status" -eq 2 ]
	[[ "$output" == *"--check runs the program itself, and none is named; fix: --check -- CMD; "* ]]
	run "$SCRY" malloc replay "$T/a.scry" -- /bin/true
	[ "$status" -eq 2 ]
	[[ "$output" == *"only --check runs the program behind --; fix: --check -- CMD; "* ]]
}

# served SOURCE ARGS...: a program that appends to $T/served who serves it, and lives on for a while.
make_served() {
	cat >"$T/served.c" <<-'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		#ifdef OWN
		static char room[1 << 24];
		static size_t at;
		void *malloc(size_t n) { n = (n + 15) & ~15ul; return at + n > sizeof(room) ? NULL : room + (at += n) - n; }
		void free(void *p) { (void)p; }
		void *calloc(size_t a, size_t b) { return malloc(a * b); }
		void *realloc(void *p, size_t n) { void *q = malloc(n); return q && p ? memcpy(q, p, n) : q; }
		#endif
		int main(int argc, char **argv)
		{
			FILE *f = fopen(argv[1], "a");
			Dl_info info;
			dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info);
			fprintf(f, "%s\n", strrchr(info.dli_fname, '/') + 1);
			fclose(f);
			return usleep(200000);
		}
	END
	gcc -O1 -fno-builtin -rdynamic "$T/served.c" -o "$T/program" "$@"
	: >"$T/served"
}

@test "--check: a program that is linked with an allocator is run under glibc all the same" {
	make_recording 5000 1 500 0 0 3000 11
	make_served -Wl,--no-as-needed "$TARGETS/libmarker.so" -Wl,-rpath,"$TARGETS"
	replay --runs 3 --with "glibc,$TARGETS/libmarker.so" --check -- "$T/program" "$T/served"
	is '[.notes // [] | .[] | select(test("served by"))] == []'
	is '[.rows[] | select(.kind == "all") | .real_cpu_ns != null] == [true, true]'
	[ "$(sort "$T/served" | uniq -c | awk '{ print $1, $2 }')" = "3 libc.so.6
4 libmarker.so" ] # once to see who serves
}

@test "--check: a program with a malloc of its own is compared with none" {
	make_recording 5000 1 500 0 0 3000 11
	make_served -DOWN
	replay --runs 3 --with "glibc,$TARGETS/libmarker.so" --check -- "$T/program" "$T/served"
	is '[.notes[] | select(test("/program. is served by .*/program, not by (glibc|.*libmarker.so): its own runs under .* are not compared"))] | length == 2'
	is '[.rows[].real_cpu_ns] | all(. == null)'
	is '.totals.real_verdict == null'
}

@test "--check: a program that ends by the clock is not compared by its processor time" {
	# its processor time differs by 200 ms, and it takes 2 s all the same: on a busy machine too, if it goes before others
	local FIRST="chrt -f 1"
	$FIRST true || FIRST=
	make_recording 400000 1 500 0 0 3000 11
	gcc -O1 -o "$T/clock" -xc - <<<'#include <stdlib.h>
		#include <time.h>
		int main(void) {
			struct timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a); srand(a.tv_nsec);
			long work = getenv("MARKER") ? 100 : 300; /* ms of processor time */
			do { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b); } while (b.tv_sec * 1000 + b.tv_nsec / 1000000 < work);
			clock_gettime(CLOCK_MONOTONIC, &b);
			long left = 2000000000 - ((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec);
			if (left > 0) nanosleep(&(struct timespec){left / 1000000000, left % 1000000000}, NULL);
			return 0; }'
	replay --runs 3 --with "glibc,$TARGETS/libmarker.so:MARKER=$T/real" --check -- "$T/clock"
	is '.totals.real_is_by_clock and .totals.real_best_time == null'
	is '.totals.real_verdict | test("program time is not compared: each run takes equally long")'
}

@test "--check: a run that ends otherwise than the first is compared with none" {
	make_recording 5000 1 500 0 0 3000 11
	cat >"$T/dies" <<-'END'
		#!/bin/bash
		i=0
		[ -z "$MARKER" ] || kill -SEGV $$
		while [ $i -lt 20000 ]; do i=$((i + 1)); done
	END
	chmod +x "$T/dies"
	run "$SCRY" malloc replay "$T/a.scry" --runs 3 --json --with "glibc,$TARGETS/libmarker.so:MARKER=$T/real" --check -- "$T/dies"
	[ "$status" -eq 1 ]
	"$SCRY" malloc replay "$T/a.scry" --runs 3 --json --with "glibc,$TARGETS/libmarker.so:MARKER=$T/real" --check -- "$T/dies" \
		>"$T/a.json" 2>"$T/a.err" || true
	is '[.notes[] | select(test("signal 11, in its first run otherwise: not compared"))] | length == 1'
	is '.totals.real_winner == null and (.totals.real_verdict | test("cannot tell"))'
	is '[.rows[] | select(.kind == "all") | .real_cpu_ns != null] == [true, false]'
}

@test "--check: what each run reads, and what is in its environment" {
	make_recording 5000 1 500 0 0 3000 11
	seq 1000 >"$T/input"
	# only the run that reads all of it ends with 0; none sees what its caller has preloaded or set for an allocator
	cat >"$T/reads" <<-'END'
		#!/bin/bash
		[ "$(wc -l)" = 1000 ] && [ -z "$LD_PRELOAD$MALLOC_ARENA_MAX" ] && [ "$KEPT" = 1 ]
	END
	chmod +x "$T/reads"
	KEPT=1 MALLOC_ARENA_MAX=1 LD_PRELOAD=$TARGETS/libmarker.so \
		replay --runs 2 --with glibc --check -- "$T/reads" <"$T/input"
	is '[(.notes // [])[] | select(test("ended with status"))] | length == 0'
	# who started us may ignore the end of children: it is heard of all the same
	(
		trap "" CHLD
		replay --runs 1 --with glibc --check -- /bin/false
	)
	is '[.notes[] | select(test("ended with status 1"))] | length == 1'
	is '.rows[0].real_cpu_ns < 1000000000'
}

@test "an allocator that gives no memory is not compared" {
	{
		echo "scry-malloc 1 pid 7"
		for ((i = 1; i <= 300; i++)); do
			echo "7: malloc(1000) = $i"
		done
	} >"$T/a.txt"
	cat >"$T/poor.c" <<-'END'
		#include <stddef.h>
		#include <string.h>
		static char room[1 << 20];
		static size_t at;
		void *malloc(size_t n) { if (n == 1000 || at + n > sizeof(room) - 16) return 0; at += (n + 15) & ~15ul; return room + at - ((n + 15) & ~15ul); }
		void free(void *p) { (void)p; }
		void *calloc(size_t a, size_t b) { return malloc(a * b); }
		void *realloc(void *p, size_t n) { void *q = malloc(n); if (p && q) memcpy(q, p, n); return q; }
	END
	gcc -shared -fPIC -O1 -fno-builtin -o "$T/libpoor.so" "$T/poor.c"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	replay --runs 3 --with "glibc,$T/libpoor.so"
	is '[.rows[] | select(.kind == "all") | .failed] == [0, 300]'
	is '[.notes[] | select(test("libpoor.so gave no memory for 300 of 300 calls: not compared"))] | length == 1'
	is '.totals.winner == null'
}

@test "compare that is told to stop leaves nothing behind" {
	TMPDIR=$T start compare "$SCRY" malloc compare --runs 1 --with glibc -- /bin/sleep 60
	wait_for 20 bash -c "pgrep -P \$(pgrep -P $PID) sleep || pgrep -P \$(pgrep -d, -P $PID) sleep"
	kill -TERM "$PID"
	ended "$PID"
	[ "$status" -eq 1 ]
	in_file "stopped by signal 15 while '/bin/sleep' was recorded" "$T/compare.err"
	[ -z "$(ls -d "$T"/scry-* 2>/dev/null)" ]
}

@test "compare: recorded, replayed and run, in one command that leaves nothing behind" {
	TMPDIR=$T "$SCRY" malloc compare --runs 1 --with "glibc,$TARGETS/libmarker.so" --json -- \
		/bin/sh -c 'echo data; exec cat /proc/self/maps' >"$T/a.json" 2>"$T/a.err" || {
		cat "$T/a.err"
		return 1
	}
	is '.totals.calls > 0 and .totals.real_verdict != null'
	in_file "^data$" "$T/a.err"
	[ -z "$(ls -d "$T"/scry-* 2>/dev/null)" ]
	"$SCRY" malloc compare --runs 1 --with glibc --keep "$T/kept.scry" -- /bin/cat /proc/self/maps >/dev/null 2>&1
	"$SCRY" info "$T/kept.scry" >/dev/null
	run "$SCRY" malloc compare --runs 1 --with glibc --keep "$T/kept.txt" -- /bin/true
	[ "$status" -eq 2 ]
	grep -q "kept.txt': unknown kind of file, '.txt'; fix: x.scry" <<<"$output"
	[ ! -e "$T/kept.txt" ]
	run "$SCRY" malloc compare --runs 1 --with glibc --keep "$T/kept.scry" -- /bin/true
	[ "$status" -eq 1 ]
	"$SCRY" malloc compare --runs 1 --with glibc --keep "$T/kept.scry" --force -- /bin/cat /proc/self/maps >/dev/null 2>&1
	run "$SCRY" malloc compare --with glibc
	[ "$status" -eq 2 ]
	run "$SCRY" malloc compare --with glibc -- /no/such/program
	[ "$status" -eq 1 ]
}

@test "anonymous memory is the allocator's alone; two thousand threads, one after the other, are begun" {
	{
		echo "scry-malloc 1 pid 7"
		for ((i = 1; i <= 2000; i++)); do
			echo "$((i + 1)): malloc(64) = $i"
			echo "$((i + 1)): free($i)"
			echo "$((i + 1)): thread_end()"
		done
	} >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	replay --runs 1 --with glibc
	is '.totals.calls == 4000 and .totals.threads == 2000 and .totals.threads_peak == 2'
	is '.rows[0].rss_peak_bytes < 600000'
}

@test "system calls are counted, those of the allocator and no other" {
	{
		echo "scry-malloc 1 pid 7"
		for ((i = 1; i <= 50; i++)); do
			echo "1: malloc(200000) = $i"
			echo "1: free($i)"
		done
		echo "2: malloc(100) = 60"
		echo "2: free(60)"
	} >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	replay --runs 1 --with glibc:MALLOC_MMAP_THRESHOLD_=65536:MALLOC_ARENA_MAX=1,glibc:MALLOC_MMAP_THRESHOLD_=1000000:MALLOC_TRIM_THRESHOLD_=1000000:MALLOC_TOP_PAD_=1000000
	jq -e '.notes[]? | select(test("were not counted"))' "$T/a.json" && skip "no seccomp listener here"
	is '.rows[0] | .mmap == 50 and .munmap == 50 and .futex == 0 and .syscalls == .brk + 100'
	is '[.rows[] | select(.kind == "all")][1] | .mmap < 5 and .brk < 5'
	is '[.rows[] | select(.kind == "malloc") | .syscalls == null] | all'
}

@test "--pace recorded: calls wait for their time, and waiting is no CPU time" {
	local began
	printf '%s\n' 'scry-malloc 1 pid 7' '@1000000000' '1: malloc(100) = 1' '2: malloc(50) = 2' '@1300000000' '2: free(1)' '1: free(2)' >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	began=$(date +%s%N)
	replay --runs 2 --with glibc --pace recorded
	[ $(($(date +%s%N) - began)) -gt 599000000 ]
	is '.totals.pace == "recorded" and .totals.recorded_ns > 299000000 and .totals.calls == 4'
	is '.rows[0].cpu_ns < 300000000 and .totals.live_end_bytes == 0'
	replay --runs 1 --with glibc
	is '.totals.pace == "none"'
}

@test "a big block that never ends is touched as far as the program's memory says" {
	{
		echo 'scry-malloc 1 pid 7'
		echo '1: calloc(100000000) = 1'
		echo '1: malloc(1000000) = 2'
		for i in 1 2 3; do
			echo "memory threads=1 rss_anon=6000000 at=${i}00000000"
			echo '1: malloc(64) = 3'
			echo '1: free(3)'
		done
	} >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	replay --runs 1 --with glibc
	is '.rows[0].rss_peak_bytes | . > 5000000 and . < 7000000'
	replay --runs 1 --with glibc --touch all
	is '.rows[0].rss_peak_bytes > 100000000'
}

# grown: a block of 50 MB that becomes 100, then 200, by realloc, and two looks at memory after each; 6 MB were resident.
grown() {
	local i at=1
	echo 'scry-malloc 1 pid 7'
	for i in 'malloc(50000000)' 'realloc(1, 100000000)' 'realloc(1, 200000000)'; do
		echo "1: $i = 1"
		for _ in 1 2 3; do
			echo "memory threads=1 rss_anon=6000000 at=${at}00000000"
			echo "@$((at++))50000000"
			echo '1: malloc(64) = 3'
			echo '1: free(3)'
		done
	done
}

@test "a big block that realloc makes bigger is touched as far as the program's memory says, at each size" {
	grown >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	replay --runs 1 --with glibc
	is '.rows[0].rss_peak_bytes | . > 5000000 and . < 14000000'
	replay --runs 1 --with glibc --touch all
	is '.rows[0].rss_peak_bytes > 200000000'
}

# late_calls: twenty blocks of 5 MB, a fifth of each touched; ten end, half a second before the last look.
late_calls() {
	local i
	echo 'scry-malloc 1 pid 7'
	echo '@100000000'
	echo '1: malloc(5000000) = 0'
	for i in 110 200 300 700 800; do # calls are written late: looks stand before those that were made before
		echo "memory threads=1 rss_anon=$((i < 400 ? 21000000 : 11000000)) rss_file=1000000 rss_peak=22000000 at=${i}000000"
	done
	for ((i = 1; i < 20; i++)); do
		echo "1: malloc(5000000) = $i"
	done
	echo '@400000000'
	for ((i = 0; i < 10; i++)); do
		echo "1: touched($i) usable=1000000"
		echo "1: free($i)"
	done
}

@test "big blocks that never end: looks at memory are taken in the order of time, though calls are written late" {
	late_calls >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	replay --runs 1 --with glibc
	is '.rows[0].rss_peak_bytes | . > 20000000 and . < 23000000'
	is '.rows[0].rss_end_bytes | . > 10000000 and . < 13000000'
	grep -v -e free -e touched "$T/a.txt" >"$T/b.txt" # all looks but one after the last call
	"$SCRY" malloc import "$T/b.txt" --force -o "$T/a.scry"
	replay --runs 1 --with glibc
	is '.rows[0].rss_peak_bytes | . > 10000000 and . < 13000000'
}

@test "compare: an allocator that is not known is refused before the program is run" {
	run "$SCRY" malloc compare --with nosuchthing -- /usr/bin/touch "$T/was_run"
	[ "$status" -eq 1 ]
	[ ! -e "$T/was_run" ]
}

@test "an output that cannot be made is refused before anything is replayed or run" {
	touch "$T/old.json"
	run "$SCRY" malloc compare -o "$T/old.json" --with glibc -- /usr/bin/touch "$T/was_run"
	[ "$status" -eq 1 ]
	[[ "$output" == *"exists; fix: another name, or --force"* ]]
	run "$SCRY" malloc compare -o "$T/none/x.json" --with glibc -- /usr/bin/touch "$T/was_run"
	[ "$status" -eq 1 ]
	[ ! -e "$T/was_run" ]
}

@test "a program that was attached to: what it had before is no call of it, and no more of that is touched than it used" {
	need_root "entering a process that is not a child of scry"
	cat >"$T/table.c" <<-'END'
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		int main(void) {
			char *table = malloc(200 << 20), *other = malloc(100 << 20);
			memset(table, 1, 6 << 20), memset(other, 1, 3 << 20);
			printf("pid\n"), fflush(stdout);
			getchar();
			for (int i = 0; i < 20000; i++) {
				char *volatile p = malloc(100);
				free(p);
			}
			free(other);
			printf("done\n"), fflush(stdout);
			getchar();
			return table[5] != 1;
		}
	END
	gcc -O1 -fno-builtin -o "$T/table" "$T/table.c"
	listens table "$T/table"
	local table=$PID
	start scry "$SCRY" malloc record -p "$table" -o "$T/a.scry"
	wait_for 20 in_file "watching process" "$T/scry.err"
	echo >&8
	wait_for 10 in_file "done" "$T/table.out"
	ends_watch "$PID"
	echo >&8
	finish "$table"
	replay --runs 1 --with glibc
	is '.totals.threads_peak == 1 and .totals.pace == "none"'
	is '[.rows[] | select(.kind == "all")][0].calls <= 40010'
	is '[.rows[] | select(.kind == "all")][0].rss_peak_bytes < 30000000'
}

# Sizes that fit into no gap that was left before: glibc takes more than twice of what lives at once.
@test "gaps between blocks are the allocator's, and the replay has them: they are not called missing" {
	{
		echo "scry-malloc 1 pid 4711"
		echo "thread thread=1 tid=4711 name=main"
		echo "memory threads=1 rss_anon=11500000 at=5000000"
		awk 'BEGIN {
			for (size = 500; size < 100000; size *= 6) {
				n = int(4000000 / size)
				for (i = 0; i < n; i++)
					print "1: malloc(" size ") = " ++block
				for (i = 0; i < n; i++)
					if (i % 8)
						print "1: free(" block - i ")"
			}
		}'
	} >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	replay --runs 1 --with glibc
	is ".totals.live_peak_bytes * 2 < 11500000"
	is '[.notes[]? | select(test("anonymous memory"))] == []'
}
