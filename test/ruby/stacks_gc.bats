#!/usr/bin/env bats
# scry stacks: the garbage collector as a state, with the stack that caused it.

load lib
bats_require_minimum_version 1.5.0

setup() {
	prepare
	K="$HERE/sampled_stacks"
}

# gc_share IDLE-THREADS COMMAND...: 0; 1: scry was late, which says nothing.
gc_share() {
	local idle=$1
	shift
	"$SCRY" stacks -q --stacks --force -o "$T/g.json" -- "$@" "$K/gc.rb" "${SCRY_SOAK:+1}1.5" "$idle" "$T/truth" || return 2
	"$RUBY" --disable=gems "$K/check_gc.rb" "$T/truth" "$T/g.json" && return 0
	was_late "$T/g.json" && return 1
	return 3
}

@test "its share of time is that of GC.stat(:time), within two points; alone and among threads" {
	local words idle
	while read -ra words; do
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.1")' || continue # GC.stat(:time)
		for idle in 0 3; do
			most_hold 2 3 gc_share "$idle" "${words[@]}" # chance: the program's own clock is read before and after
		done
	done < <(echo "$RUBY"; if [ -n "${SCRY_TEST_RUBIES:-}" ]; then tr : '\n' <<<"$SCRY_TEST_RUBIES"; fi)
}

@test "it is a frame in every form" {
	start gc "$RUBY" -e 'k = Array.new(200_000) { |i| i.to_s }; $stdout.syswrite("ready"); loop { GC.start }'
	wait_for 20 in_file ready "$T/gc.out"
	"$SCRY" stacks -q -d 500ms -o "$T/g.scry" -p "$PID"
	"$SCRY" report --folded "$T/g.scry" 2>/dev/null | grep -qE 'GC.start[^;]*;[^;]*\(garbage_collection\) [0-9]+$'
	"$SCRY" report "$T/g.scry" >"$T/text"
	grep -q " s collecting garbage" "$T/text"
	grep -q "(garbage collection)" "$T/text"
	"$SCRY" report -o "$T/g.html" "$T/g.scry"
	grep -q "(garbage collection)" "$T/g.html"
}
