#!/usr/bin/env bats
# scry dump: what every thread does. The judge is Ruby's own backtrace, and the kernel's word.

load lib

# agrees RUBY...: the dump of the shapes is frame for frame what Ruby says.
agrees() {
	start shapes "$@" "$HERE/dump/shapes.rb"
	wait_for 20 in_file "^ruby" "$T/shapes.out" || return 1
	"$SCRY" dump --json -p "$PID" >"$T/dump.json" || return 1
	"$RUBY" "$HERE/dump/compare.rb" "$T/shapes.out" "$T/dump.json" || return 1
	"$SCRY" dump --json --pause --max-pause 2s -p "$PID" >"$T/dump.json" || return 1
	"$RUBY" "$HERE/dump/compare.rb" "$T/shapes.out" "$T/dump.json" || return 1
	kill -KILL "$PID"
	finish "$PID" 2>/dev/null || true
}

@test "stacks are those of Thread#backtrace, in all shapes of code" {
	agrees "$RUBY"
}

@test "stacks are those of Thread#backtrace, on every Ruby" {
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	IFS=: read -ra rubies <<<"$SCRY_TEST_RUBIES"
	for ruby in "${rubies[@]}"; do
		read -ra words <<<"$ruby"
		# The shapes need syntax of 3.0.
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue
		agrees "${words[@]}" || { echo "$ruby"; return 1; }
	done
}

# state_is NAME EXPRESSION: of that thread (`t`), in a fresh dump.
state_is() {
	"$SCRY" dump --json -p "$PID" >"$T/dump.json" &&
		[ "$(json "$T/dump.json" "t = r['threads'].find { |x| x['name'] == '$1' }; $2")" = true ]
}

@test "what threads wait for: lock of the VM, descriptors, times" {
	start waits "$RUBY" "$HERE/dump/waits.rb"
	wait_for 10 in_file "^ready" "$T/waits.out"
	wait_for 20 state_is nap 't["state"] == "sleeping" && t["wait"].match?(/(still|at most) (9\d\d|1000)/)'
	wait_for 5 state_is forever 't["state"] == "sleeping"'
	wait_for 5 state_is pipe 't["state"] == "blocked" && t["wait"].include?("pipe")'
	wait_for 5 state_is peer 't["state"] == "blocked" && t["wait"].match?(/tcp 127.0.0.1:\d+ -> 127.0.0.1:\d+/)'
	wait_for 5 state_is queue 't["state"] == "blocked" && t["frames"][0]["method"] == "Thread::Queue#pop"'
	# Three compute: one has the lock, two wait for it; who is who changes.
	wait_for 20 state_is busy1 't["state"] == "gvl"'
	wait_for 20 state_is busy2 '%w[cpu runnable].include?(t["state"])'
	"$SCRY" dump --json -p "$PID" >"$T/dump.json"
	json_is "$T/dump.json" 'r["threads"].select { |t| t["state"] == "gvl" }.all? { |t| t["name"].match?(/busy|waits|ruby/) }'
}

# They come to stand still one after the other.
alike() {
	"$SCRY" dump -p "$PID" --depth 3 >"$T/out" && grep -q '^[34] threads alike: .*"alike".*: blocked' "$T/out" &&
		grep -q ' more; --depth 0 shows them$' "$T/out" # it has gone as deep as it will
}

@test "text: threads alike are shown once, deep stacks are cut" {
	start waits "$RUBY" "$HERE/dump/waits.rb"
	wait_for 10 in_file "^ready" "$T/waits.out"
	wait_for 20 alike
	grep -qE 'Thread::Queue#pop( \(C\))?$' "$T/out" # from Ruby 3.3 on it is written in Ruby
	grep -q ' more; --depth 0 shows them$' "$T/out"
	"$SCRY" dump -p "$PID" --depth 0 >"$T/out"
	[ "$(grep -c 'Deep#down$' "$T/out")" = 30 ]
}

@test "errors name what mends them" {
	run "$SCRY" dump
	[ "$status" = 2 ]
	run "$SCRY" dump -p 4194303
	[ "$status" = 5 ]
	start sleeper sleep 1000
	run "$SCRY" dump -p "$PID"
	[ "$status" = 4 ]
	[[ "$output" == *"has no Ruby in it"* ]]
	run "$SCRY" dump -p 2
	[[ "$output" != *"kthreadd"* || "$output" == *"is a thread of the kernel"* ]]
}

@test "a Ruby without section headers is not called a program without Ruby" {
	lib="$("$RUBY" -e 'puts File.readlines("/proc/self/maps").map { |l| l.split[5].to_s }.find { |f| File.basename(f).start_with?("libruby") }')"
	[ -n "$lib" ] || skip "this ruby has no library of its own"
	name="$("$RUBY" -e 'puts ARGV[0][/\A(.*?\.so\.\d+\.\d+)/, 1]' "$(basename "$lib")")"
	"$RUBY" -e 'b = File.binread(ARGV[0]); b[0x28, 8] = [0].pack("Q"); b[0x3c, 4] = [0, 0].pack("S2"); File.binwrite(ARGV[1], b)' "$lib" "$T/$name"
	start bare env LD_LIBRARY_PATH="$T" "$RUBY" -e '$stdout.syswrite("ready"); sleep'
	wait_for 10 in_file ready "$T/bare.out"
	grep -q "$T/$name" "/proc/$PID/maps" || skip "this ruby takes its library from elsewhere"
	run "$SCRY" dump -p "$PID"
	[ "$status" = 4 ]
	[[ "$output" == *"'$T/$name' of process $PID may be a Ruby, but has no section headers"*"; fix: "* ]]
}

@test "a process that is stopped is said to be, with what lets it go on" {
	start waits "$RUBY" "$HERE/dump/waits.rb"
	wait_for 10 in_file "^ready" "$T/waits.out"
	"$SCRY" dump -p "$PID" >"$T/out"
	[ "$(grep -c "is stopped by a signal" "$T/out")" -eq 0 ]
	kill -STOP "$PID"
	wait_for 10 in_file "^State:	T" "/proc/$PID/status"
	"$SCRY" dump -p "$PID" >"$T/out"
	grep -q "is stopped by a signal.*kill -CONT $PID$" "$T/out"
	"$SCRY" dump --json -p "$PID" >"$T/out.json"
	grep -q '"is_stopped": true' "$T/out.json"
	kill -CONT "$PID"
}

# Threads that are in the VM's list and nowhere else, each with the deep stack of the first.
@test "a program that forges its list of threads: frames have a bound, and the rest is counted" {
	"$RUBY" -e 'exit(RUBY_VERSION >= "3.0" && RUBY_VERSION < "3.2")' || skip "the forged list is that of Ruby 3.0 and 3.1"
	"$RUBY" -rfiddle -e 1 2>/dev/null || skip "this ruby has no fiddle"
	start forged "$RUBY" "$HERE/dump/forged.rb" 700 8000
	wait_for 20 in_file ready "$T/forged.out"
	"$SCRY" dump -p "$PID" >"$T/out"
	grep -qE '^note: incomplete: the frames of [0-9]+ threads, and what these wait for, are left out' "$T/out"
	"$SCRY" dump --json -p "$PID" >"$T/dump.json"
	[ "$(wc -c <"$T/dump.json")" -lt 250000000 ]
	json_is "$T/dump.json" 'out = r["threads"].select { |t| t["is_left_out"] }
	  r["threads"].size == 701 && out.size == r["totals"]["left_out"] && out.all? { |t| t["frames"].empty? } && !out.empty? &&
	    r["threads"].sum { |t| t["frames"].size } < 1_201_000'
}

@test "nothing of the process changes, and nothing is left" {
	start waits "$RUBY" "$HERE/dump/waits.rb"
	wait_for 10 in_file "^ready" "$T/waits.out"
	before="$(cat "/proc/$PID/maps" | grep -v heap | awk '{ print $1, $2, $6 }' | grep / ; ls "/proc/$PID/fd")"
	"$SCRY" dump -p "$PID" >"$T/out"
	[ "$before" = "$(cat "/proc/$PID/maps" | grep -v heap | awk '{ print $1, $2, $6 }' | grep /; ls "/proc/$PID/fd")" ]
	grep -q "^TracerPid:	0" "/proc/$PID/status"
	"$SCRY" dump --pause --max-pause 2s -p "$PID" >"$T/out"
	grep -q "^TracerPid:	0" "/proc/$PID/status"
	grep -qE "^State:	[RS]" "/proc/$PID/status"
}

# native RUBY...: native frames of blocked threads, by two registers; of stopped ones, by all; as gdb has them.
native() {
	start shapes "$@" "$HERE/dump/shapes.rb"
	wait_for 20 in_file "^ruby" "$T/shapes.out" || return 1
	"$SCRY" dump --json -p "$PID" >"$T/plain.json" || return 1
	"$SCRY" dump --json --native -p "$PID" >"$T/native.json" || return 1
	"$SCRY" dump --json --native --pause --max-pause 2s -p "$PID" >"$T/paused.json" || return 1
	gdb -nx -batch -p "$PID" -x "$HERE/dump/gdb_stacks.py" >"$T/gdb.out" 2>"$T/gdb.err" || return 1
	"$RUBY" "$HERE/dump/native.rb" "$T/plain.json" "$T/native.json" "$T/gdb.out" || return 1
	"$RUBY" "$HERE/dump/native.rb" "$T/plain.json" "$T/paused.json" "$T/gdb.out" || return 1
	kill -KILL "$PID"
	finish "$PID" 2>/dev/null || true
}

@test "native frames are gdb's, merged with Ruby's" {
	command -v gdb >/dev/null || skip "no gdb"
	native "$RUBY"
}

@test "native frames are gdb's, on every Ruby" {
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	command -v gdb >/dev/null || skip "no gdb"
	IFS=: read -ra rubies <<<"$SCRY_TEST_RUBIES"
	for ruby in "${rubies[@]}"; do
		[[ $ruby != *--*jit* ]] || continue # its code has no unwind tables
		read -ra words <<<"$ruby"
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue
		rm -f "$T/shapes.out"
		native "${words[@]}" || { echo "$ruby"; return 1; }
	done
}

@test "native frames: of a thread that runs with --pause only; text" {
	start waits "$RUBY" "$HERE/dump/waits.rb"
	wait_for 10 in_file "^ready" "$T/waits.out"
	runs() {
		"$SCRY" dump --native -p "$PID" --depth 0 >"$T/out" && grep -q 'note: it runs: only --pause knows its native frames' "$T/out"
	}
	wait_for 20 runs
	grep -qE '^        rb_queue_pop\+0x[0-9a-f]+ in |functions without a symbol in libruby|^        \+0x' "$T/out"
	grep -qE '^        start_thread\+0x[0-9a-f]+ in libc' "$T/out"
	all_three() { # they are born one after the other
		"$SCRY" dump --native --pause --max-pause 2s --json -p "$PID" >"$T/dump.json" &&
			json_is "$T/dump.json" 'r["threads"].count { |t| t["name"].start_with?("busy") } == 3'
	}
	wait_for 20 all_three
	json_is "$T/dump.json" 'r["threads"].select { |t| t["name"].start_with?("busy") }.all? { |t|
		t["native_end"] == "whole" && t["is_merged"] && t["frames"].any? { |f| f["name"] == "start_thread" } }'
}

@test "in a big process suspended fibers are looked for only when that is asked for, and it is said" {
	start big "$RUBY" -e 'big = "a" * (300 << 20); f = Fiber.new { Fiber.yield }; f.resume; puts "ready"; $stdout.flush; sleep'
	wait_for 20 in_file ready "$T/big.out"
	"$SCRY" dump -p "$PID" >"$T/out"
	grep -qE '^note: suspended fibers were not looked for, as that takes long in 3[0-9.]+ MiB of memory; fix: --fibers$' "$T/out"
	"$SCRY" dump -p "$PID" --fibers >"$T/out"
	no grep -q 'not looked for' "$T/out"
	grep -q ', 1 suspended fiber$' "$T/out"
}

@test "suspended fibers are shown where they wait, also in a core; ended ones and the one that runs are not" {
	while read -r -a words; do
		start fibers "${words[@]}" "$HERE/dump/fibers.rb"
		wait_for 10 in_file ready "$T/fibers.out"
		has_fibers() {
			"$SCRY" dump --fibers --json "$@" >"$T/f.json" && json_is "$T/f.json" \
				'r["fibers"].map { |f| [f["count"], f["frames"].map { |x| [x["method"], x["line"]] }[1]] }.sort ==
				  [[1, ["block in Object#wait_there", 5]], [2, ["Object#wait_here", 2]]]'
		}
		wait_for 10 has_fibers -p "$PID" || { echo "${words[*]}"; return 1; }
		"$SCRY" dump -p "$PID" >"$T/out"
		grep -q ', 3 suspended fibers$' "$T/out"
		grep -A2 '^2 suspended fibers:$' "$T/out" | grep -q ':2  Object#wait_here$'
		if command -v gcore >/dev/null && [ "${words[*]}" = "$RUBY" ]; then
			gcore -o "$T/core" "$PID" >"$T/gcore.out" 2>&1
			has_fibers --core "$T/core.$PID"
		fi
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
	done < <(rubies)
}
