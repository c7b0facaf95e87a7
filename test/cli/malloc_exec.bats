#!/usr/bin/env bats
# A program that is a wrapper: what it execs is recorded on, each program as a part of its own, from its first call.

load lib

setup() {
	prepare
	cat >"$T/wrapper" <<-'END'
		#!/bin/bash
		answer=$(echo 42)
		exec env ANSWER=$answer sh -c 'exec sort --parallel=1 "$0"' "$0"
	END
	chmod +x "$T/wrapper"
}

@test "what a wrapper execs is recorded, always the same" {
	sort --parallel=1 "$T/wrapper" >"$T/want"
	for i in 1 2 3; do
		"$SCRY" malloc record -v --force -o "$T/x.scry" -- "$T/wrapper" >"$T/out" 2>"$T/err"
		cmp "$T/want" "$T/out"
		grep -o "[0-9]* calls, [0-9]* blocks" "$T/err" >"$T/calls.$i"
		[ "$(wc -l <"$T/calls.$i")" -eq 4 ] # bash, env, sh, sort
	done
	cmp "$T/calls.1" "$T/calls.2"
	cmp "$T/calls.1" "$T/calls.3"
	"$SCRY" info "$T/x.scry" | grep -q " 0  damaged events"
}

@test "the report names the program with most calls, and the others" {
	"$SCRY" malloc record -o "$T/x.scry" -- "$T/wrapper" >/dev/null
	"$SCRY" report "$T/x.scry" >"$T/report"
	grep -q "^note: not above: .*/env (process [0-9]*, [0-9,]* calls)" "$T/report"
	grep -q "had child processes" "$T/report" # $(echo 42)
}

@test "the text of it is that of the program with most calls" {
	"$SCRY" malloc record -v -o "$T/x.scry" -- "$T/wrapper" >/dev/null 2>"$T/err"
	most=$(grep -o "[0-9]* calls, [0-9]* blocks" "$T/err" | sort -n | tail -1 | cut -d' ' -f1)
	"$SCRY" malloc export "$T/x.scry" -o "$T/text"
	"$SCRY" malloc import "$T/text" -o "$T/y.scry" 2>"$T/imported"
	grep -qx "scry: $most calls written to '$T/y.scry'" "$T/imported"
}

@test "a static program that is exec'ed is recorded too" {
	[ -x "$TARGETS/target_fixed" ] || skip "no static program"
	cat >"$T/static" <<-END
		#!/bin/bash
		exec "$TARGETS/target_fixed"
	END
	chmod +x "$T/static"
	"$SCRY" malloc record -o "$T/x.scry" -- "$T/static" >/dev/null
	"$SCRY" report "$T/x.scry" | grep "^note: not above: .*/target_fixed (process [0-9]*, [1-9][0-9,]* calls)"
}

@test "an exec ends the watch of a process that was attached to, and the report says so" {
	target odd exec "$TARGETS/target_busy" 2
	odd=$PID
	start scry "$SCRY" malloc record -p "$odd" -o "$T/x.scry"
	scry=$PID
	wait_for 20 in_file "watching process $odd" "$T/scry.err"
	kill -USR1 "$odd"
	ended "$scry"
	"$SCRY" report "$T/x.scry" >"$T/report"
	grep "ran another program (exec) after [0-9]* ms, which is not followed" "$T/report"
	ends_right "$odd" odd
}
