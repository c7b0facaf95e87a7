#!/usr/bin/env bats
# What is to be done to a Ruby is done to a child of it first: on $RUBY and on all in $SCRY_TEST_RUBIES. Each way of watching
# comes out as on stage, or is refused with the step at which the child went wrong; never is a program harmed.

load lib

setup() {
	need_scry
	prepare
	export XDG_CACHE_HOME="$T/cache"
	mkdir "$XDG_CACHE_HOME"
	IFS=: read -ra rubies <<<"$RUBY${SCRY_TEST_RUBIES:+:$SCRY_TEST_RUBIES}"
}

# Makes a known number of Strings, collects and compacts, has threads, a fork child and a ractor if it can; says its sum.
program='
def made(n) = n.times.sum { ("x" * 500).size }
sum = made(20_000)
GC.start
sum += made(100)
sum += Array.new(3) { Thread.new { made(100) } }.sum(&:value)
Process.wait(fork { made(100); GC.start })
abort "the fork child was ended by #{$?}" unless $?.success?
if defined?(Ractor)
  made = Ractor.new { 100.times.sum { ("x" * 500).size } }
  sum += made.respond_to?(:value) ? made.value : made.take
end
GC.compact if GC.respond_to?(:compact)
sum += made(100)
puts "sum #{sum}"
'

# watched RUBY OPTIONS...: the program's sum is right, and the report without an error; or it was refused with the reason.
watched() {
	local ruby=$1 want
	shift
	want="$("$ruby" -W0 -e "$program")"
	run "$SCRY" objects "$@" -- "$ruby" -W0 -e "$program"
	echo "$ruby $*: $output"
	[[ "$output" == *"$want"* ]]
	[[ "$output" != *"[BUG]"* ]]
	[[ "$output" == *"scry objects: "* && "$output" != *"incomplete: "* ||
		"$output" == *"incomplete: losses unknown"*" ractors: "* ||
		"$output" == *"incomplete: losses unknown"*"note: the watch ended when the program made a ractor: "* || "$output" == *"ran on without scry"*"; fix: "* ]]
}

@test "a program that does all that was rehearsed computes what it should, watched in each way" {
	for ruby in "${rubies[@]}"; do
		watched "$ruby"
		watched "$ruby" --stacks
		watched "$ruby" --sample 10
		watched "$ruby" --source hooks
	done
}

@test "events are as on stage; what was found out is kept" {
	for ruby in "${rubies[@]}"; do
		start quiet "$ruby" -e '$stdout.sync = true; puts "runs"; sleep'
		wait_for 10 in_file runs "$T/quiet.out"
		"$SCRY" doctor -p "$PID" >"$T/first" || true
		grep -E "rehearsal: events +as on stage" "$T/first"
		"$SCRY" doctor -p "$PID" >"$T/second" || true
		[ "$(grep rehearsal "$T/first")" = "$(grep rehearsal "$T/second")" ]
		kill "$PID"
	done
}

@test "a program that embeds Ruby is watched when the ruby command was, and refused before" {
	cp "$(readlink -f "$(command -v "$RUBY")")" "$T/host"
	start host "$T/host" -e '$stdout.sync = true; puts "runs"; loop { Array.new(10) { Object.new }; sleep 0.01 }'
	wait_for 10 in_file runs "$T/host.out"
	host=$PID
	run "$SCRY" objects -p "$host" -d 0.2s
	[ "$status" -ne 0 ]
	[[ "$output" == *"embeds Ruby"*"fix: run scry doctor -p PID once on a ruby"* ]]
	start ruby "$RUBY" -e '$stdout.sync = true; puts "runs"; sleep'
	wait_for 10 in_file runs "$T/ruby.out"
	"$SCRY" dump -p "$PID" >/dev/null # the layout alone does not do
	run "$SCRY" objects -p "$host" -d 0.2s
	[ "$status" -ne 0 ]
	[[ "$output" == *"can only be rehearsed on the ruby command; fix: run scry doctor -p PID once on a ruby"* ]]
	"$SCRY" doctor -p "$PID" >/dev/null || true
	"$SCRY" objects -p "$host" -d 0.5s >"$T/out"
	grep -q "^scry objects: " "$T/out"
	no grep "^incomplete: " "$T/out"
}

# The kernel shares processors out by session (autogroup): a session that was put first would starve all others, the keeper's too.
@test "doctor leaves the priority of the session it is run in" {
	[ -w /proc/self/autogroup ] && grep -q . /proc/self/autogroup || skip "no autogroups in this kernel"
	start sleeper "$RUBY" -e 'sleep'
	setsid --wait bash -c 'echo 3 >/proc/self/autogroup; "$@" >/dev/null; cat /proc/self/autogroup' _ "$SCRY" doctor -p "$PID" >"$T/session"
	grep -q "nice 3$" "$T/session" || { cat "$T/session"; false; }
}
