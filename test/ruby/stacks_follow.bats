#!/usr/bin/env bats
# scry stacks -f: fork children, theirs, daemons, and the Rubies that they run.

load lib
bats_require_minimum_version 1.5.0

setup() {
	need_scry
	T="$BATS_TEST_TMPDIR"
	STARTED=""
	K="$HERE/sampled_stacks"
}

teardown() {
	end_started
}

# saw_all REPORT: the work of each of the processes, and which process did it.
saw_all() {
	for name in worker grandchild demon execed spawned below_a_shell; do
		json_is "$1" "rows.any? { |x| x['method'] == 'Object#$name' && x['total_ns'] > 100_000_000 }" || return 1
	done
}

@test "all that a started program starts is sampled, and it ends as without" {
	local got=0
	start scry "$SCRY" stacks -q -f -o "$T/k.scry" -- "$RUBY" "$K/kin.rb" "$T/go"
	wait_for 20 test -s "$T/k.scry"
	touch "$T/go"
	finish "$PID" || got=$?
	[ "$got" -eq 3 ]
	[ "$(cat "$T/scry.out")" = ready ]
	"$SCRY" report -o "$T/k.json" "$T/k.scry"
	saw_all "$T/k.json"
	# One process alone has its own rows and sums.
	"$SCRY" report "$T/k.scry" >"$T/text"
	pid="$("$SCRY" report --view events "$T/k.scry" | sed -n 's/.* process .*pid=\([0-9]*\).*/\1/p' | head -n 1)"
	grep -q "^process $pid: .* samples, .* looks, .* missed" "$T/text"
	"$SCRY" report --pid "$pid" --force -o "$T/one.json" "$T/k.scry"
	json_is "$T/one.json" "rows.none? { |x| %w[Object#execed Object#spawned].include?(x['method']) }"
	json "$T/k.json" 'r["totals"]["samples"]' >"$T/all"
	json_is "$T/one.json" "r['totals']['samples'].between?(1, $(cat "$T/all") - 1)"
}

@test "of a program that runs: what it starts from then on; nothing of others" {
	start kin "$RUBY" "$K/kin.rb" "$T/go"
	program=$PID
	wait_for 10 in_file ready "$T/kin.out"
	start other "$RUBY" -e 'def stranger = sleep(0.01); pid = fork { 200.times { stranger } }; Process.wait(pid)'
	"$SCRY" stacks -q -f -o "$T/k.scry" -p "$program" &
	scry=$!
	wait_for 20 test -s "$T/k.scry"
	touch "$T/go"
	wait "$scry"
	"$SCRY" report -o "$T/k.json" "$T/k.scry"
	saw_all "$T/k.json"
	json_is "$T/k.json" "rows.none? { |x| x['method'].to_s.include?('stranger') }"
	got=0
	finish "$program" || got=$?
	[ "$got" -eq 3 ]
}

@test "what cannot be followed is refused" {
	start still "$RUBY" -e '$stdout.syswrite("ready"); sleep'
	wait_for 10 in_file ready "$T/still.out"
	run "$SCRY" stacks -f --engine=bpf -p "$PID"
	[ "$status" -eq 2 ]
	[[ "$output" == *"does not follow children"* ]]
	run "$SCRY" stacks -f --native -p $$
	[ "$status" -eq 2 ]
}
