#!/usr/bin/env bats
# scry stacks --pause: what runs is held for each look. Every stack is possible and none is rejected; the
# program goes on as before, whoever dies. What threads in all states feel of it: test/unit/sys_pause.c.

load lib
bats_require_minimum_version 1.5.0

setup() {
	prepare
	K="$HERE/sampled_stacks"
}

# held PID: a recording with some samples, which a machine with much else to do may take a while for.
held() {
	"$SCRY" stacks -q --pause -r "$(share 1000 5000)" -d "$(share 800ms 40s)" --stacks --force -o "$T/p.json" -p "$1" &&
		json_is "$T/p.json" 'r["totals"]["samples"] > 20'
}

@test "a program of known calls: every stack is possible, none is repaired or rejected" {
	while read -ra words; do
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue # syntax
		start possible "${words[@]}" --disable=gems "$K/possible.rb" 600
		wait_for 20 in_file ready "$T/possible.out"
		wait_for 30 held "$PID"
		"$RUBY" --disable=gems "$K/check_possible.rb" "$T/p.json" 1 || { echo "${words[*]}"; return 1; }
		json_is "$T/p.json" 'r["totals"]["repaired"] == 0 && r["totals"]["rejected"] == 0'
		# It stood still for a tenth of the time at most; the last look may be a long one.
		json_is "$T/p.json" 't = r["totals"]; t["held_looks"] == t["ticks"] && t["held_threads"] > 0 && t["held_median_ns"] <= t["held_longest_ns"] && (t["held_ns"] - t["held_longest_ns"]) * 10 <= r["data_quality"]["watched_ns"]'
		json_is "$T/p.json" '(r["data_quality"]["pause_max_us"] * 1000).round == r["totals"]["held_longest_ns"]'
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
		rm -f "$T/possible.out"
	done < <(rubies)
}

@test "more looks than the program has time for: it is slowed down, and said" {
	start tight "$RUBY" "$K/tight.rb"
	wait_for 10 in_file ready "$T/tight.out"
	slowed() {
		"$SCRY" stacks -q --pause -r 20000 -d 300ms -p "$PID" >"$T/text" && in_file " looks were left out" "$T/text"
	}
	wait_for 20 slowed
	grep -qE "^note: [0-9]+ looks were left out, so that the program was stopped for no more than 10 % of the time; fix: " "$T/text"
	grep -q "exact: read while no thread ran" "$T/text"
	grep -q "held for a look: the median" "$T/text"
}

@test "SIGKILL of scry at any moment: the program goes on as before" {
	start tight "$RUBY" "$K/tight.rb"
	wait_for 10 in_file ready "$T/tight.out"
	for _ in $(seq "$(share 1 25)"); do
		stays_well "$PID" "$SCRY" stacks -q --pause -r 5000 -o "$T/k.scry" --force -p "$PID"
	done
}

@test "a program that is started and ends while it is held keeps its status" {
	for _ in 1 2 3; do
		rm -f "$T/x.scry"
		run timeout 60 "$SCRY" stacks -q --pause -r 5000 -o "$T/x.scry" -- "$RUBY" -e 'Thread.new { loop {} }
		  nil until File.size?(ARGV[0]).to_i > 100
		  x = 0; x += 1 while x < 2_000_000; exit 7' "$T/x.scry"
		[ "$status" -eq 7 ]
	done
	"$SCRY" report --view events "$T/x.scry" >"$T/events"
	grep -q " pauses " "$T/events"
}

@test "its children are held too, each for itself" {
	watched() {
		local got=0
		"$SCRY" stacks -q -f --pause -r 500 --force -o "$T/k.scry" -- "$RUBY" -e 'def spin(s) = (t = Time.now + s; nil while Time.now < t)
		  def worker = spin(0.4)
		  2.times.map { fork { worker } }.each { |pid| Process.wait(pid) }
		  exit 3' || got=$?
		[ "$got" = 3 ] && "$SCRY" report --force -o "$T/k.json" "$T/k.scry" &&
			json_is "$T/k.json" 'rows.any? { |x| x["method"] == "Object#worker" } && r["totals"]["rejected"] == 0' &&
			[ "$("$SCRY" report --view events "$T/k.scry" | grep -c " pauses .* threads=[1-9]")" -ge 2 ]
	}
	wait_for 20 watched # a machine with much else to do may see them too late
}

@test "native frames of threads that run, without eBPF" {
	start native "$RUBY" --disable=gems "$K/native.rb"
	wait_for 20 in_file "^ready" "$T/native.out"
	natives() {
		"$SCRY" stacks -q --native --pause --cpu -r 500 -d "$(share 800ms 10s)" --force -o "$T/cpu.folded" -p "$PID" &&
			"$RUBY" --disable=gems "$K/check_native.rb" "$T/cpu.folded" cpu
	}
	wait_for 30 natives
}

@test "what cannot be is refused, with what mends it" {
	run "$SCRY" stacks --pause --engine=bpf -p 1
	[ "$status" -eq 2 ]
	[[ "$output" == *"; fix: "* ]]
	[ -x "${SCRY_BUILD:-$ROOT/build}/test/targets/tracer" ] || skip "no targets: run make first"
	start tight "$RUBY" "$K/tight.rb"
	local tight=$PID
	wait_for 10 in_file ready "$T/tight.out"
	start tracer "${SCRY_BUILD:-$ROOT/build}/test/targets/tracer" "$tight"
	wait_for 10 in_file "^tracing" "$T/tracer.out"
	run "$SCRY" stacks --pause -d 100ms -p "$tight"
	[ "$status" -eq 3 ]
	[[ "$output" == *"process $PID traces its thread $tight already; fix: "* ]]
}
