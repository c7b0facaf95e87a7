#!/usr/bin/env bats
# scry stacks -f: fork children, theirs, daemons, and the Rubies that they run.

load lib
bats_require_minimum_version 1.5.0

setup() {
	prepare
	K="$HERE/sampled_stacks"
}

teardown() {
	end_started
}

# is_on RECORDING: its process is watched.
is_on() {
	"$SCRY" report --view events "$1" | grep -q " attach "
}

# saw_all REPORT: the work of each of the processes, and which process did it.
saw_all() {
	for name in worker grandchild demon execed spawned below_a_shell; do
		json_is "$1" "rows.any? { |x| x['method'] == 'Object#$name' && x['total_ns'] > 100_000_000 }" || return 1
	done
}

# saw_or_said REPORT: by reading, beside other work, one may end before it is looked at, which is said then.
saw_or_said() {
	json_is "$1" 'seen = %w[worker grandchild demon execed spawned below_a_shell].select { |n| rows.any? { |x| x["method"] == "Object##{n}" && x["total_ns"] > 100_000_000 } }
		unseen = r["notes"].to_a.join[/(\d+) fork child(?:ren)? ended/, 1].to_i
		(seen.size >= 4 && seen.size + unseen >= 6) || [seen, unseen]'
}

@test "all that a started program starts is sampled, and it ends as without" {
	local got=0
	start scry "$SCRY" stacks -q -f -o "$T/k.scry" -- "$RUBY" "$K/kin.rb" "$T/go"
	wait_for 20 is_on "$T/k.scry"
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
	start scry "$SCRY" stacks -q -f --engine=read -o "$T/k.scry" -p "$program"
	wait_for 20 is_on "$T/k.scry"
	touch "$T/go"
	finish "$PID"
	"$SCRY" report -o "$T/k.json" "$T/k.scry"
	saw_or_said "$T/k.json"
	json_is "$T/k.json" "rows.none? { |x| x['method'].to_s.include?('stranger') }"
	got=0
	finish "$program" || got=$?
	[ "$got" -eq 3 ]
}

# Workers of 50 ms: each is in the report, or counted as one that ended before.
short_lived() {
	rm -f "$T/go" "$T/w.scry"
	start workers "$SCRY" stacks -q -f "$@" -o "$T/w.scry" -- "$RUBY" --disable=gems "$K/workers.rb" "$T/go" 8
	wait_for 20 is_on "$T/w.scry" || return 1
	touch "$T/go"
	finish "$PID" || return 1
	"$SCRY" report --force -o "$T/w.json" "$T/w.scry" || return 1
	json_is "$T/w.json" 'unseen = r["notes"].to_a.join[/(\d+) fork child(?:ren)? ended/, 1].to_i
		seen = r["data_quality"]["processes"].size - 1
		(seen + unseen == 8 && seen >= 1) || [seen, unseen]'
}

@test "by eBPF: short workers are seen or counted, with native frames, with names from their birth" {
	need_bpf
	short_lived --cpu
	json_is "$T/w.json" 'rows.any? { |x| x["method"] == "Object#worker" }'
	short_lived --native --engine=bpf
	short_lived --names=probe
}

# All of what each did is counted, up to its end: as its samples are read when it has ended, too. What a clock on each
# processor counts is off by some percent.
@test "by eBPF: the time of children of 0.1 s is whole, and nearly all of it has a name" {
	need_bpf
	cat >"$T/short.rb" <<'RUBY'
def burn(s)
  till = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + s
  nil while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < till
end
20.times { Process.wait(fork { burn(0.1) }) }
t = Process.times
p t.cutime + t.cstime
RUBY
	"$SCRY" stacks --cpu --engine=bpf -f -q -o "$T/short.json" -- "$RUBY" --disable-gems "$T/short.rb" >"$T/truth"
	json_is "$T/short.json" "r['totals']['cpu_ns'].fdiv($(cat "$T/truth") * 1e9).between?(0.9, 1.15)"
	json_is "$T/short.json" 'rows.sum { |x| x["method"] == "Object#burn" ? x["total_ns"] : 0 } > 0.9 * r["totals"]["cpu_ns"]'
}

@test "by eBPF: a cluster that runs, workers that come later, an exec of another Ruby" {
	need_bpf
	local other
	other="$(rubies | tail -n 1)"
	# shellcheck disable=SC2086
	start cluster "$RUBY" --disable=gems "$K/cluster.rb" "$T/go" $other
	program=$PID
	wait_for 20 in_file ready "$T/cluster.out"
	start scry "$SCRY" stacks -q -f --cpu -o "$T/c.scry" -p "$program"
	wait_for 20 is_on "$T/c.scry"
	touch "$T/go"
	finish "$PID"
	finish "$program"
	"$SCRY" report --cpu -o "$T/c.json" "$T/c.scry"
	for name in early late execed; do
		json_is "$T/c.json" "rows.any? { |x| x['method'] == 'Object#$name' && x['total_ns'] > 50_000_000 }"
	done
	json_is "$T/c.json" 'r["totals"]["clocked"] == r["totals"]["samples"]'
}

@test "what has no child to follow is sampled as ever, and its text is as it was" {
	need_bpf
	start still "$RUBY" -e '$stdout.syswrite("ready"); loop { pid = fork { sleep 0.01 }; Process.wait(pid) }'
	wait_for 10 in_file ready "$T/still.out"
	stays_well "$PID" "$SCRY" stacks -q -f --names=probe -o "$T/k.scry" --force -p "$PID"
}

@test "a shell that starts a Ruby: with -f it is sampled, without the sentence says so; env, exec" {
	local work='def busy = (nil while Process.clock_gettime(2) < 0.4); busy' # of its processor time
	busy='rows.any? { |x| x["method"] == "Object#busy" }'
	for engine in auto read; do
		"$SCRY" stacks -q -f --engine=$engine --force -o "$T/s.json" -- sh -c '"$0" --disable=gems -e "$1"; exit 0' "$RUBY" "$work"
		json_is "$T/s.json" "$busy"
	done
	"$SCRY" stacks -q --force -o "$T/s.json" -- env A=1 sh -c 'exec "$0" --disable=gems -e "$1"' "$RUBY" "$work"
	json_is "$T/s.json" "$busy"
	run "$SCRY" stacks -q -o "$T/no.json" -- sh -c '"$0" -e 1; exit 3' "$RUBY"
	[ "$status" -eq 125 ]
	[[ "$output" == *"or had none; fix: "*"-f"* ]]
	run "$SCRY" stacks -q -f -o "$T/no2.json" -- sh -c 'true; exit 3'
	[ "$status" -eq 125 ]
	[[ "$output" == *"could be sampled, or had none"* ]]
}
