#!/usr/bin/env bats
# scry calls where other tracers see nothing, see some, or end the program: every way to link, load and leave. All
# calls are shown, or it is said aloud why not.
#
# Elsewhere: threads, signals, recursion, tail calls, longjmp, C++ exceptions, fibers in C: calls.bats. What is left
# of a killed tracer, or one whose reader is gone: calls.bats. Children: calls_follow.bats.

load lib

# caller NAME: starts target_caller_NAME; its pid in $PID.
caller() {
	listens caller "$TARGETS/target_caller_$1"
}

# sums_are FILE.scry WANT: calls of each function, a Ruby hash.
sums_are() {
	"$SCRY" report --view calls-sums --json "$1" >"$T/o.json"
	json_is "$T/o.json" "r['data_quality'].values_at('lost', 'errors') == [0, 0] && rows.to_h { |r| [r['function'], r['calls']] } == $2"
}

# counts WANT FUNCTION... -- CMD...: of a program that is started, its input $T/input.
counts() {
	local want=$1 functions=()
	shift
	while [ "$1" != -- ]; do
		functions+=(-x "$1")
		shift
	done
	"$SCRY" calls "${functions[@]}" --force -o "$T/x.scry" "$@" <"$T/input" >"$T/scry.out" 2>"$T/scry.err" 3>&- || {
		cat "$T/scry.err"
		return 1
	}
	sums_are "$T/x.scry" "$want"
}

# plugs ARGS...: starts target_loader under scry calls ARGS; its input on 7.
plugs() {
	mkfifo "$T/plugs"
	exec 7<>"$T/plugs"
	start scry bash -c 'exec "$@" <"$0" 7>&-' "$T/plugs" "$SCRY" calls "$@" --force -o "$T/x.scry" -- "$TARGETS/target_loader"
	scry=$PID
	wait_for 20 in_file "^pid" "$T/scry.out"
}

say() { # LINE of the loader; and its answer
	echo "$1" >&7
	wait_for 30 in_file "$2" "$T/scry.out" || {
		cat "$T/scry.out" "$T/scry.err"
		return 1
	}
}

@test "bound lazily or at once, with IBT's PLT or none, at a fixed address, static: all calls" {
	echo "call 100" >"$T/input"
	for way in lazy now ibt noplt nopie relr static static_pie; do
		[ -x "$TARGETS/target_caller_$way" ] || continue
		counts '{"work_fold" => 100, "work_mix" => 200}' work_fold work_mix -- "$TARGETS/target_caller_$way" || {
			echo "of target_caller_$way"
			return 1
		}
		grep -q "right$" "$T/scry.out"
	done
}

@test "what an IFUNC chooses: at the start too, and in static programs" {
	echo "call 100" >"$T/input"
	for way in lazy now static static_pie; do
		[ -x "$TARGETS/target_caller_$way" ] || continue
		"$SCRY" calls -x strlen --force -o "$T/x.scry" -- "$TARGETS/target_caller_$way" <"$T/input" >"$T/scry.out"
		grep -q "right$" "$T/scry.out"
		"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
		json_is "$T/o.json" "rows.find { |r| r['function'] == 'strlen' }['calls'] >= 100"
		"$SCRY" report --json "$T/x.scry" >"$T/lines"
		"$RUBY" --disable=gems -rjson -e 'results = File.foreach(ARGV[0]).map { |l| JSON.parse(l)["result"] }.each_cons(60)
			exit results.any? { |r| r == (0..59).to_a }' "$T/lines"
	done
}

@test "what an IFUNC chose, through a pointer; where it is another's choice too, that is said" {
	scry_ends 0 calls -x strlen@libc.so.6 -o "$T/x.scry" -- "$TARGETS/target_taken" 300
	"$SCRY" report --json "$T/x.scry" >"$T/lines"
	"$RUBY" --disable=gems -rjson -e 'results = File.foreach(ARGV[0]).map { |l| JSON.parse(l) }.select { |c| c["function"] == "strlen" }.map { |c| c["result"] }
		exit results.each_cons(300).any? { |r| r.uniq == [5] }' "$T/lines"
	scry_ends 0 calls -x memcpy@libc.so.6 -x memmove@libc.so.6 -c -- "$TARGETS/target_taken" 3
	grep -q "calls of .* through pointers are not seen" "$T/scry.out" "$T/scry.err"
}

@test "attached, before and after: static programs are left as they were" {
	local pid before
	need_root "entering a process that is not a child of scry"
	for way in static static_pie; do
		[ -x "$TARGETS/target_caller_$way" ] || skip "no static programs with this toolchain"
		rm -f "$T/in"
		caller "$way"
		pid=$PID
		before=$(state_of "$pid")
		start scry "$SCRY" calls -p "$pid" -x 'work_fold' --force -o "$T/x.scry"
		scry=$PID
		wait_for 20 in_file "watching process $pid" "$T/scry.err"
		echo "call 50" >&8
		wait_for 20 in_file "right$" "$T/caller.out"
		kill -INT "$scry"
		finish "$scry"
		sums_are "$T/x.scry" '{"work_fold" => 50}'
		as_before "$pid" "$before" "after a trace"
		exec 8>&-
		finish "$pid"
	done
}

@test "C++ exceptions through traced frames of a static program" {
	local pid before
	need_root "entering a process that is not a child of scry"
	[ -x "$TARGETS/target_throws_static" ] || skip "no static C++ programs with this toolchain"
	start throws "$TARGETS/target_throws_static" 2
	pid=$PID
	wait_for 20 in_file "^round" "$T/throws.out"
	before=$(got "$pid")
	start scry "$SCRY" calls -p "$pid" -x '*third*' -x '*second*' -x '*first*' -c --force -o "$T/x.scry"
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/scry.err"
	goes_on "$T/throws.out"
	kill -INT "$scry"
	finish "$scry" || {
		cat "$T/scry.err"
		return 1
	}
	[ "$(got "$pid")" = "$before" ]
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" "rows.sum { |r| r['left'] } > 0 && rows.sum { |r| r['returned'] } > 0"
	ends_right "$pid" throws
}

@test "a static program without names is refused, by its reason, and runs" {
	[ -x "$TARGETS/target_caller_static" ] || skip "no static programs with this toolchain"
	strip -o "$T/bare" "$TARGETS/target_caller_static"
	echo "call 1" >"$T/input"
	"$SCRY" calls -x 0x401000 -- "$T/bare" <"$T/input" >"$T/scry.out" 2>"$T/scry.err" || [ $? -eq 125 ]
	says "static program: it is stripped"
	grep -q "right$" "$T/scry.out"
}

@test "a program of musl" {
	[ -x "$TARGETS/target_caller_musl" ] || skip "no musl-gcc"
	echo "call 100" >"$T/input"
	counts '{"work_fold" => 100, "work_mix" => 200}' work_fold work_mix -- "$TARGETS/target_caller_musl"
}

@test "a stripped library, and a static function of the program" {
	mkdir "$T/lib"
	strip -o "$T/lib/libwork.so" "$TARGETS/libwork.so"
	echo "call 10" >"$T/input"
	counts '{"work_fold" => 10}' work_fold -- env LD_PRELOAD="$T/lib/libwork.so" "$TARGETS/target_caller_lazy"
	scry_ends 0 calls -x work@MAIN -o "$T/y.scry" -- "$TARGETS/target_traced" 4 10 2
	sums_are "$T/y.scry" '{"work" => 8}'
}

@test "static functions of stripped programs and libraries, by their debug files, if these are theirs" {
	mkdir -p "$T/d/.debug"
	objcopy --only-keep-debug "$TARGETS/target_traced" "$T/d/.debug/traced.debug"
	objcopy --strip-all --add-gnu-debuglink="$T/d/.debug/traced.debug" "$TARGETS/target_traced" "$T/d/traced"
	scry_ends 0 calls -x work -o "$T/x.scry" -- "$T/d/traced" 4 10 2
	sums_are "$T/x.scry" '{"work" => 8}'
	# of another build
	objcopy --only-keep-debug "$TARGETS/target_taken" "$T/d/.debug/traced.debug"
	scry_ends 125 calls -x work@MAIN -- "$T/d/traced" 4 10 2
	says "no object was ever loaded that defines 'work@MAIN'"
	rm "$T/d/.debug/traced.debug"
	scry_ends 125 calls -x work@MAIN -- "$T/d/traced" 4 10 2
}

@test "dlopen, dlclose and again, dlmopen: from constructors on" {
	local plug
	plug=$(realpath "$TARGETS/libplug.so")
	plugs -x plug_run -x work_mix@libwork.so
	say "open $plug" "^opened"
	say "call 3" "^sum .* right"
	say close "^closed"
	say "open $plug" "^opened"
	say "call 5" "^sum .* right"
	say "dlmopen $plug" "^opened"
	say "call 7" "^sum .* right"
	exec 7>&-
	finish "$scry"
	sums_are "$T/x.scry" '{"plug_run" => 3, "work_mix" => 3 + 15 + 3}' || {
		cat "$T/o.json"
		return 1
	}
}

@test "Ruby: fibers that switch stacks within traced calls" {
	"$RUBY" -e 1 2>/dev/null || skip "no $RUBY here"
	cat >"$T/fibers.rb" <<'RUBY'
fibers = (1..20).map { |n| Fiber.new { (1..n).to_a.each_slice(1) { |one| Fiber.yield one[0] }; nil } }
sum = 0
until fibers.empty?
  fibers = fibers.select { |f| (got = f.resume) && sum += got }
end
puts "sum #{sum}"
RUBY
	scry_ends 0 calls -x rb_block_call -x 'rb_fiber_yield*' -o "$T/x.scry" -- "$RUBY" "$T/fibers.rb"
	grep -q "^sum 1540$" "$T/scry.out"
	"$SCRY" report --json "$T/x.scry" >"$T/lines"
	"$RUBY" --disable=gems -rjson - "$T/lines" <<'RUBY'
calls = File.foreach(ARGV[0]).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
yields, blocks = %w[rb_fiber_yield rb_block_call].map { |f| calls.select { |c| c["function"].start_with?(f) } }
exit 0 if yields.empty? # this Ruby yields by a function without a name
puts data_quality, yields.size, calls.map { |c| c["state"] }.tally
# 20 fibers yield 1 + 2 + ... + 20 times; one that has not ended within each_slice is inside of rb_block_call
inside = yields.count { |y| blocks.any? { |b| b["time_ns"] <= y["time_ns"] && y["time_ns"] <= b["time_ns"] + b["duration_ns"].to_i } }
exit yields.size == 210 && inside == 210 && yields.all? { |c| c["state"] == "returned" } && data_quality.values_at("lost", "errors") == [0, 0]
RUBY
}

@test "functions that are chosen at run time and not bound yet (IFUNC, lazy) are traced" {
	cat >"$T/lazy.c" <<-'EOF_C'
		#include <string.h>
		#include <sys/time.h>
		#include <time.h>
		int main(int argc, char **argv)
		{
			struct timeval now;
			char text[64];
			for (int i = 0; i < 3; i++) {
				gettimeofday(&now, NULL);
				time(NULL);
				memmove(text, argv[0], (size_t)argc);
			}
			return 0;
		}
	EOF_C
	cc -O0 -fno-builtin -Wl,-z,lazy -o "$T/lazy" "$T/lazy.c"
	if ! readelf -rW "$T/lazy" | grep -q 'JUMP_SLOT.* gettimeofday'; then
		echo "the linker has no lazy slots: not tested" >&3
		skip "the linker makes no lazy slots"
	fi
	for filter in "-e @MAIN" "-x gettimeofday+time+memmove"; do
		scry_ends 0 calls --objects=never $filter -- "$T/lazy"
		for name in gettimeofday time; do
			[ "$(grep -c "^$name(" "$T/scry.out")" -eq 3 ]
		done
		[ "$(grep -c '^memmove(' "$T/scry.out")" -ge 3 ] # others may call it, too
	done
	# who asks for another choice of glibc's gets it
	GLIBC_TUNABLES=glibc.malloc.check=0 scry_ends 0 calls -c -- "$T/lazy"
}
