#!/usr/bin/env bats
# scry stacks --native: frames of C code woven into sampled stacks.

load lib

setup() {
	prepare
	K="$HERE/sampled_stacks"
}

@test "who runs and who waits: C code above the line that called it, and nowhere else" {
	need_bpf
	while read -ra words; do
		"${words[@]}" -e 'require "digest"; require "zlib"' 2>/dev/null || continue # built without them
		start native "${words[@]}" --disable=gems "$K/native.rb"
		wait_for 20 in_file "^ready" "$T/native.out"
		"$SCRY" stacks -q --native --cpu -d 1s --force -o "$T/cpu.folded" -p "$PID"
		"$RUBY" --disable=gems "$K/check_native.rb" "$T/cpu.folded" cpu || { echo "${words[*]}"; return 1; }
		"$SCRY" stacks -q --native -d 700ms --force -o "$T/wall.scry" -p "$PID"
		"$SCRY" report --idle --folded "$T/wall.scry" >"$T/wall.folded"
		"$RUBY" --disable=gems "$K/check_native.rb" "$T/wall.folded" wall || { echo "${words[*]}"; return 1; }
		"$SCRY" report "$T/wall.scry" >"$T/wall.txt"
		grep -q '^note: native frames: of [0-9]* stacks that were read [1-9][0-9]* have all, ' "$T/wall.txt"
		"$SCRY" stacks -q --native -d 100ms --force -o "$T/wall.html" -p "$PID"
		grep -q '(native)' "$T/wall.html"
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
		rm -f "$T/native.out"
	done < <(rubies)
	"$SCRY" report --json --stacks "$T/wall.scry" >"$T/wall.json"
	json_is "$T/wall.json" 'rows.any? { |r| r["is_native"] && r["frames"].any? { |f| f.key?("module") } && r["frames"].any? { |f| f["kind"] == "c" } }'
}

@test "without eBPF it is refused with what mends it; --engine=read has who waits" {
	start native "$RUBY" --disable=gems "$K/native.rb"
	wait_for 20 in_file "^ready" "$T/native.out"
	if command -v setpriv >/dev/null && [ "$(id -u)" = 0 ]; then
		run setpriv --bounding-set=-sys_admin,-bpf,-perfmon "$SCRY" stacks -q --native -d 100ms -p "$PID"
		[ "$status" != 0 ]
		[[ "$output" == *"native frames of running threads need eBPF"* ]]
		[[ "$output" == *"--engine=read"* ]]
	fi
	# From 3.2 on it is a method in Ruby that calls C.
	pop="$("$RUBY" -e 'puts Queue.new.method(:pop).source_location ? "<internal:thread_sync>:\\d+:Thread::Queue#pop" : "pop_\\[c\\]"')"
	waiting() {
		"$SCRY" stacks -q --native --engine=read -d 300ms --force -o "$T/read.scry" -p "$PID" &&
			"$SCRY" report --idle --folded "$T/read.scry" >"$T/read.folded" 2>"$T/read.notes" &&
			"$RUBY" -e 'exit File.readlines(ARGV[0]).any? { |l| l.match?(/#{ARGV[1]};.*_\[n\] \d+$/) }' "$T/read.folded" "$pop"
	}
	wait_for 10 waiting
	grep -q 'running threads have them with --engine=bpf or --pause only' "$T/read.notes"
}
