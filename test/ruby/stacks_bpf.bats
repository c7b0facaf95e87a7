#!/usr/bin/env bats
# scry stacks --engine=bpf: the truths of stacks_sampled.bats for samples that the threads give
# themselves, in the kernel.

load lib
bats_require_minimum_version 1.5.0

setup() {
	prepare
	K="$HERE/sampled_stacks"
}

processor_shares() {
	"$SCRY" stacks -q --engine=bpf --cpu -r 5000 --force -o "$T/cpu.json" -- "$RUBY" "$K/shares.rb" "$(share 1 20)" "$T/truth.json" || return 2
	"$RUBY" --disable=gems "$K/check_shares.rb" "$T/truth.json" - "$T/cpu.json" - || return 2
}

# On a busy machine it runs so little that chance is a point or two.
@test "shares of processor time are those of the program's clock, within two points" {
	need_bpf
	most_hold 2 3 processor_shares
	json_is "$T/cpu.json" 'r["totals"]["clocked"] == r["totals"]["samples"] && r["totals"]["ticks"] == 0'
	# What the kernel has counted for all that was run there.
	spent="$("$RUBY" --disable=gems -rjson -e 'puts JSON.parse(File.read(ARGV[0])).values.sum { |s| s["cpu"] }' "$T/truth.json")"
	json_is "$T/cpu.json" "rows.select { |x| x['line'] && x['file'].end_with?('shares.rb') }.sum { |x| x['self_ns'] } / 1e9 > 0.7 * $spent"
}

lockstep_shares() {
	"$SCRY" stacks -q --engine=bpf --cpu --force -o "$T/l.json" -- "$RUBY" --disable=gems "$K/lockstep.rb" "$(share 1.2 20)" "$T/truth.json" || return 2
	"$RUBY" --disable=gems "$K/check_lockstep.rb" "$T/truth.json" "$T/l.json" || return 2
}

# 30 hundredths of each millisecond are one method's: a clock of a millisecond would meet always the
# same moment. On a busy machine it runs so little that chance is a point or two.
@test "a program in lockstep with the rate: shares are those of its own clock" {
	need_bpf
	most_hold 2 3 lockstep_shares
}

shares() {
	"$SCRY" stacks -q --engine=bpf -o "$T/s.scry" --force -- "$RUBY" "$K/shares.rb" "$(share 1.5 20)" "$T/truth.json" || return 2
	for weight in wall cpu gvl; do
		"$SCRY" report "--$weight" --force -o "$T/$weight.json" "$T/s.scry" || return 2
	done
	"$RUBY" --disable=gems "$K/check_shares.rb" "$T/truth.json" "$T/wall.json" "$T/cpu.json" "$T/gvl.json" >"$T/log" && return 0
	was_late "$T/wall.json" && return 1
	cat "$T/log"
	return 3
}

@test "shares of all time: what runs by its clock, what waits by reading" {
	need_bpf
	most_hold 2 3 shares # chance: as above
}

# A program that has to share its processor with another one.
ready() {
	"$SCRY" stacks -q "$@" --force -o "$T/r.json" -- taskset -c 0 "$RUBY" --disable=gems "$K/ready.rb" "$T/ready" || return 2
	"$RUBY" --disable=gems "$K/check_ready.rb" "$T/ready" "$T/r.json" || return 2
}

# A virtual machine that stands still for a moment has run, by its own clocks, and no tick has come.
@test "running and ready are told apart as the kernel counts them in the end" {
	need_bpf
	taskset -c 0 true 2>/dev/null || skip "processor 0 is not ours"
	start other taskset -c 0 sh -c 'while :; do :; done'
	most_hold 2 3 ready --engine=bpf
	most_hold 2 3 ready
	json_is "$T/r.json" 'r["totals"]["clocked"] > 0' # auto
}

@test "a program of known calls: every stack is possible, while code, objects, threads and fibers come and go" {
	need_bpf
	while read -ra words; do
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue # syntax
		"$SCRY" stacks -q --engine=bpf --cpu -r "$(share 4000 5000)" --stacks --force -o "$T/p.json" -- "${words[@]}" --disable=gems "$K/possible.rb" "$(share 2 30)" >"$T/out"
		"$RUBY" --disable=gems "$K/check_possible.rb" "$T/p.json" 200 || { echo "${words[*]}"; return 1; }
	done < <(rubies)
}

@test "calls as fast as can be: every stack is possible" {
	need_bpf
	while read -ra words; do
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue
		start tight "${words[@]}" "$K/tight.rb"
		wait_for 10 in_file ready "$T/tight.out"
		"$SCRY" stacks -q --engine=bpf --cpu -r 5000 -d "$(share 1s 30s)" --stacks --force -o "$T/t.json" -p "$PID"
		"$RUBY" --disable=gems "$K/check_tight.rb" "$T/t.json" 50 || { echo "${words[*]}"; return 1; }
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
	done < <(rubies)
}

@test "methods in which regular expressions match are known again, with their class, from call to call" {
	need_bpf
	start matches "$RUBY" --disable=gems "$K/matches.rb"
	wait_for 10 in_file ready "$T/matches.out"
	"$SCRY" stacks -q --engine=bpf --cpu -r 2000 -d "$(share 1500ms 20s)" --force -o "$T/m.json" -p "$PID"
	json_is "$T/m.json" 'r["totals"]["samples"] > 100'
	json_is "$T/m.json" '(r["totals"]["repaired"] + r["totals"]["rejected"]) * 33 <= r["totals"]["samples"]'
	json_is "$T/m.json" 'all = r["rows"].select { |x| x["method"].to_s.end_with?("parse") }.sum { |x| x["total_ns"] }
	  named = r["rows"].select { |x| x["method"] == "Reader#parse" }.sum { |x| x["total_ns"] }
	  named > 0 && named >= all * 0.97'
	json "$T/m.json" 'rows.select { |x| %w[Handler#parse Reader#handle].include?(x["method"]) }' >"$T/others"
	[ ! -s "$T/others" ] || { cat "$T/others"; return 1; }
}

@test "a deep stack: all callers, line by line, as the VM tells them" {
	need_bpf
	while read -ra words; do
		rm -f "$T/deep.json"
		start deep "${words[@]}" "$K/deep.rb" 300 "$T/deep.json"
		wait_for 10 test -e "$T/deep.json"
		for time in 700ms 5s 20s; do # on a busy machine it runs little
			"$SCRY" stacks -q --engine=bpf --cpu -d $time --stacks --force -o "$T/d.json" -p "$PID"
			"$RUBY" --disable=gems "$K/check_deep.rb" "$T/deep.json" "$T/d.json" 0 || { echo "${words[*]}"; return 1; } # no wrong one
			! "$RUBY" --disable=gems "$K/check_deep.rb" "$T/deep.json" "$T/d.json" 20 || break
		done
		"$RUBY" --disable=gems "$K/check_deep.rb" "$T/deep.json" "$T/d.json" 20
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
	done < <(rubies)
}

@test "threads that are started later have the clock too; a scry in a pid namespace" {
	need_bpf
	# A new thread each time, which works for 80 ms of its own clock.
	cat >"$T/later.rb" <<-'END'
		def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
		def work(n = 0, till = cpu + 0.08) = (n += 1 while cpu < till)
		puts "ready"
		$stdout.flush
		loop { Thread.new { work }.join }
	END
	start later "$RUBY" --disable=gems "$T/later.rb"
	wait_for 10 in_file ready "$T/later.out"
	"$SCRY" stacks -q --engine=bpf --cpu -d 1s -o "$T/l.json" -p "$PID"
	later='rows.select { |x| x["method"] == "Object#work" }.map { |x| x["total_ns"] }.max > 0.5 * r["totals"]["cpu_ns"] && r["totals"]["valid"] > 10'
	json_is "$T/l.json" "$later"
	unshare --pid --fork --mount-proc true 2>/dev/null || skip "no namespaces here"
	# shellcheck disable=SC2016
	unshare --pid --fork --kill-child --mount-proc sh -c '"$1" --disable=gems "$2" >"$5" &
		until [ -s "$5" ]; do sleep 0.05; done
		"$3" stacks -q --engine=bpf --cpu -d 1s -o "$4" -p $!; kill -KILL $!' sh "$RUBY" "$T/later.rb" "$SCRY" "$T/n.json" "$T/n.out"
	json_is "$T/n.json" "$later"
}

@test "SIGKILL of scry at any moment: the program goes on as before" {
	need_bpf
	start tight "$RUBY" "$K/tight.rb"
	wait_for 10 in_file ready "$T/tight.out"
	stays_well "$PID" "$SCRY" stacks -q --engine=bpf -r 5000 -o "$T/k.scry" --force -p "$PID"
}

@test "without the rights: bpf is refused with what mends it, auto reads" {
	start tight "$RUBY" "$K/tight.rb"
	wait_for 10 in_file ready "$T/tight.out"
	local drop=(setpriv "--bounding-set=-sys_admin,-bpf,-perfmon")
	if ! "${drop[@]}" true 2>/dev/null; then drop=(); fi
	run -3 "${drop[@]}" "$SCRY" stacks -q --engine=bpf -d 1s -p "$PID"
	[[ "$output" == *"CAP_BPF and CAP_PERFMON"*"; fix: sudo scry"* ]]
	"${drop[@]}" "$SCRY" stacks -v --cpu -d 300ms -o "$T/a.json" -p "$PID" 2>"$T/err"
	grep -q "read from outside, as eBPF is not available: .*CAP_BPF" "$T/err"
	json_is "$T/a.json" 'r["totals"]["ticks"] > 0 && !r["totals"].key?("clocked")'
	run "$SCRY" stacks --engine=magic -p "$PID"
	[ "$status" -eq 2 ]
}
