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
	wait_for 20 state_is nap 't["state"] == "sleeping" && t["wait"].match?(/still 9\d\d/)'
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
	grep -q 'Thread::Queue#pop (C)$' "$T/out"
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
