#!/usr/bin/env bats
# scry stacks: shares of time against a program's own clocks, and no stack that cannot be.

load lib
bats_require_minimum_version 1.5.0

setup() {
	prepare
	K="$HERE/sampled_stacks"
}

shares() {
	"$SCRY" stacks -q --engine=read -o "$T/s.scry" --force -- "$RUBY" "$K/shares.rb" "$(share 1.5 20)" "$T/truth.json" || return 2
	for weight in wall cpu gvl; do
		"$SCRY" report "--$weight" --force -o "$T/$weight.json" "$T/s.scry" || return 2
	done
	"$RUBY" --disable=gems "$K/check_shares.rb" "$T/truth.json" "$T/wall.json" "$T/cpu.json" "$T/gvl.json" >"$T/log" && return 0
	was_late "$T/wall.json" && return 1
	cat "$T/log"
	return 3
}

# A program that the machine drives off now and then runs for so short a time that chance is a point or two.
@test "shares of time are those of the program's clocks, within two points" {
	most_hold 2 3 shares
}

# bursts OPTION...: processor time of threads that wait most of the time, beside their clocks.
bursts() {
	"$SCRY" stacks -q --cpu "$@" --force -o "$T/b.json" -- "$RUBY" "$K/burst.rb" "$(share 150 600)" "$T/truth.json" &&
		"$RUBY" --disable=gems "$K/check_burst.rb" "$T/truth.json" "$T/b.json"
}

@test "processor time in bursts between looks: to what ran, or unknown, never to the waits between" {
	for _ in $(seq "$(share 1 10)"); do
		bursts --pause
		bursts --engine=read
	done
	start spin1 "$RUBY" -e 'loop {}'
	local spin=$PID
	start spin2 "$RUBY" -e 'loop {}'
	for _ in $(seq "$(share 1 10)"); do
		bursts --pause
		bursts --engine=read
	done
	kill -KILL "$spin" "$PID"
}

@test "a program of known calls: every stack is possible, while code, objects, threads and fibers come and go" {
	while read -ra words; do
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue # syntax
		"$SCRY" stacks -q --engine=read -r "$(share 4000 5000)" --stacks --force -o "$T/p.json" -- "${words[@]}" --disable=gems "$K/possible.rb" "$(share 2.5 30)" >"$T/out"
		"$RUBY" --disable=gems "$K/check_possible.rb" "$T/p.json" 200 || { echo "${words[*]}"; return 1; }
	done < <(rubies)
}

@test "calls as fast as can be: every stack is possible" {
	while read -ra words; do
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue
		start tight "${words[@]}" "$K/tight.rb"
		wait_for 10 in_file ready "$T/tight.out"
		"$SCRY" stacks -q --engine=read -r 5000 -d "$(share 1500ms 30s)" --stacks --force -o "$T/t.json" -p "$PID"
		"$RUBY" --disable=gems "$K/check_tight.rb" "$T/t.json" 50 || { echo "${words[*]}"; return 1; }
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
	done < <(rubies)
}

@test "recording, report, forms" {
	start tight "$RUBY" "$K/tight.rb"
	wait_for 10 in_file ready "$T/tight.out"
	"$SCRY" stacks -q --engine=read -d 1s -o "$T/t.scry" -p "$PID"
	"$SCRY" report "$T/t.scry" >"$T/text"
	grep -q "^scry stacks: pid $PID ruby" "$T/text"
	grep -q "valid: equal when read twice" "$T/text"
	grep -q "block in Object#calls" "$T/text"
	"$SCRY" report --folded "$T/t.scry" >"$T/folded" 2>/dev/null
	times="$("$RUBY" -e 'puts 1.method(:times).source_location ? "<internal:numeric>:[0-9]+:Integer#times" : "Integer#times_\\[c\\]"')" # 3.3: in Ruby
	grep -qE "^[^ ]*tight.rb:17:block_in_<main>.*$times;.*block_in_Object#calls.* [0-9]+\$" "$T/folded"
	[ -z "$(grep -vE '^[^ ]+ [0-9]+$' "$T/folded")" ]
	# The forms tell of the same time.
	"$SCRY" report -o "$T/t.json" "$T/t.scry"
	sum="$(awk '{ n += $2 } END { print n }' "$T/folded")"
	json_is "$T/t.json" "rows.sum { |x| x['self_ns'] } == $sum && r['totals']['wall_ns'] == $sum"
	json_is "$T/t.json" 'r["schema"] == "scry.stacks/3" && r["totals"]["valid"] > 0'
	"$SCRY" report --view events "$T/t.scry" | grep -q " sampling .*rate=1000"
	"$SCRY" info "$T/t.scry" >/dev/null
}

@test "a flame graph: a page that needs nothing, whose numbers are the report's" {
	start tight "$RUBY" "$K/tight.rb"
	wait_for 10 in_file ready "$T/tight.out"
	"$SCRY" stacks -q -d 500ms -o "$T/t.scry" -p "$PID"
	"$SCRY" report -o "$T/t.html" "$T/t.scry"
	"$SCRY" stacks -q -d 200ms -o "$T/at_once.html" -p "$PID"
	head -1 "$T/at_once.html" | grep -q "^<!DOCTYPE html>"
	"$SCRY" report -o "$T/t.json" "$T/t.scry"
	no grep -qE 'https?:|src=|href=' "$T/t.html"
	"$RUBY" --disable=gems "$K/check_flame.rb" "$T/t.html" "$T/t.json"
	run "$SCRY" report -o "$T/no.html" --json "$T/t.scry"
	[ "$status" -eq 2 ]
}

# Threads that never do anything, one that works, and one that sleeps now and then.
idle_program='rest = [Thread.new { Thread.current.name = "idle"; Queue.new.pop },
		Thread.new { Thread.current.name = "asleep"; sleep }]
	sleep 0.01 until rest.all?(&:stop?)
	Thread.new { Thread.current.name = "busy"; loop { Array.new(2000) { |i| i.to_s }.sort } }
	$stdout.syswrite("ready")
	loop { 3000.times { |i| i.to_s }; sleep 0.002 }'

@test "idle threads are hidden, counted, and shown with --idle; rows by method, gem, thread and process" {
	start idle "$RUBY" -e "$idle_program"
	wait_for 10 in_file ready "$T/idle.out"
	"$SCRY" stacks -q -d 1s -o "$T/i.scry" -p "$PID"
	"$SCRY" report --top 0 "$T/i.scry" >"$T/hidden"
	grep -q '^note: 2 idle threads are hidden, .*Thread::Queue#pop.*; --idle shows them$' "$T/hidden"
	no grep -q '  Thread::Queue#pop' "$T/hidden"
	"$SCRY" report --idle --top 0 "$T/i.scry" >"$T/shown"
	grep -q '  Thread::Queue#pop' "$T/shown"
	no grep -q 'idle threads are hidden' "$T/shown"
	"$SCRY" report --json "$T/i.scry" >"$T/i.json" # programs get all
	json_is "$T/i.json" 't = r["totals"]; rows.sum { |x| x["self_ns"] } == t["wall_ns"] && t["idle_threads"] == 2'
	for by in method gem thread process; do
		"$SCRY" report --json --by "$by" "$T/i.scry" >"$T/$by.json"
		json_is "$T/$by.json" "rows.sum { |x| x['self_ns'] } == r['totals']['wall_ns'] && rows.all? { |x| x.key?('$by') }"
	done
	json_is "$T/thread.json" 'rows.map { |x| x["thread"][/\A(\w+) \(\d+\)/, 1] }.sort == %w[asleep busy idle ruby]'
	json_is "$T/process.json" "rows.map { |x| x['process'] } == ['process $PID']"
	run "$SCRY" report --by site "$T/i.scry"
	[ "$status" -ne 0 ]
	[[ "$output" == *"stacks are by line, method, gem, thread or process"* ]]
}

@test "several processes: a list with line breaks, a table by process, the sums of each" {
	local pids=()
	for _ in 1 2 3; do
		start many "$RUBY" -e '$stdout.syswrite("ready"); loop { 3000.times { |i| i.to_s }; sleep 0.002 }'
		wait_for 10 in_file ready "$T/many.out"
		pids+=("$PID")
	done
	for engine in read auto; do
		"$SCRY" stacks -q --engine="$engine" -d 500ms --force -o "$T/m.scry" -p "$(printf '%s\n' "${pids[@]}")"
		"$SCRY" report --json "$T/m.scry" >"$T/m.json"
		json_is "$T/m.json" "r['processes'].map { |x| x['pid'] }.sort == [${pids[0]}, ${pids[1]}, ${pids[2]}].sort &&
			r['processes'].sum { |x| x['total_ns'] } == r['totals']['wall_ns']"
		"$SCRY" report --json --pid "${pids[1]}" "$T/m.scry" >"$T/one.json"
		[ "$(json "$T/one.json" 'r["totals"]["wall_ns"]')" = "$(json "$T/m.json" "r['processes'].find { |x| x['pid'] == ${pids[1]} }['total_ns']")" ]
		json_is "$T/one.json" '!r.key?("processes")'
	done
	"$SCRY" stacks -q -d 300ms -p "${pids[0]}" -p "${pids[2]}" >"$T/out"
	[ "$(grep -cE "^ *[0-9.]+ .* (${pids[0]}|${pids[2]})$" "$T/out")" -eq 2 ]
	start rests "$RUBY" -e '$stdout.syswrite("ready"); sleep'
	wait_for 10 in_file ready "$T/rests.out"
	"$SCRY" stacks -q -d 300ms -p "${pids[0]},$PID" >"$T/out" # one that does nothing is in the table too
	grep -qE "^ *0\.0 .* $PID$" "$T/out"
	run "$SCRY" stacks -q -d 300ms -p "${pids[0]}" -p 4194303
	[ "$status" -eq 5 ]
}

@test "diff: which methods take more of the time, and which take less" {
	for times in 1 4; do
		start slower "$RUBY" "$K/slower.rb" "$times"
		wait_for 10 in_file ready "$T/slower.out"
		"$SCRY" stacks -q -d 1500ms -o "$T/$times.scry" -p "$PID"
	done
	"$SCRY" diff --json "$T/1.scry" "$T/4.scry" >"$T/d.json"
	# as long as the other one, then four times as long
	json_is "$T/d.json" 's = ->(m) { rows.find { |x| x["what"] == m } }
		part = ->(r) { [r["total_before_ns_per_s"], r["total_after_ns_per_s"]].map { |ns| ns / 1e9 } }
		slow, same = part[s["Object#slow"]], part[s["Object#same"]]
		slow[1] / same[1] > 1.5 * slow[0] / same[0] && rows.none? { |x| x["what"].include?("Queue#pop") }'
	"$SCRY" diff "$T/1.scry" "$T/1.scry" >"$T/out"
	grep -q '^no row has changed' "$T/out"
	"$SCRY" diff --by thread --idle "$T/1.scry" "$T/4.scry" >"$T/out"
	"$SCRY" diff --top 1 "$T/4.scry" "$T/1.scry" >"$T/out"
	grep -qE 'takes (less|more)( with what it calls)?: [0-9.]+ ms of each second, then ' "$T/out"
	run "$SCRY" diff --by site "$T/1.scry" "$T/4.scry"
	[ "$status" -ne 0 ]
	[[ "$output" == *"stacks are compared by line, method, gem or thread"* ]]
}

# It may have lost its task again when it is looked at last, as from Ruby 3.3 on at its end.
@test "by thread: one row a thread, by its last name" {
	while read -ra words; do
		for engine in --engine=read --pause; do
			"$SCRY" stacks -q $engine --idle --by thread --force -o "$T/t.json" -- "${words[@]}" -e '
			  Thread.new { sleep 0.5; Thread.current.name = "renamed"; sleep }
			  Thread.new { sleep 0.2; 12.times { sleep 0.05 } }.name = "worker"
			  5.times { |i| Thread.new { Thread.current.name = "short #{i}"; sleep 0.1 }.join }
			  sleep 1'
			# Where looks were missed, a thread that lives for a tenth of a second may not have been seen.
			json_is "$T/t.json" 'names = rows.map { |x| x["thread"][/\A(.*) \([1-9]\d*\)\z/, 1] }
			  short, t = (0..4).map { |i| "short #{i}" }, r["totals"]
			  named = ["renamed", "worker"] + (t["missed"] * 20 > t["ticks"] ? short & names : short)
			  names.size == named.size + 1 && (named - names).empty?' ||
				{ cat "$T/t.json"; echo "${words[*]} $engine"; return 1; }
		done
	done < <(rubies)
}

@test "a program whose threads are all idle is shown as it is" {
	start idle "$RUBY" -e '$stdout.syswrite("ready"); sleep'
	wait_for 10 in_file ready "$T/idle.out"
	"$SCRY" stacks -q -d 300ms -p "$PID" >"$T/out"
	grep -q 'Kernel#sleep' "$T/out"
	no grep -q 'hidden' "$T/out"
}

@test "speedscope: a profile of each thread, whose weights are the report's" {
	start idle "$RUBY" -e "$idle_program"
	wait_for 10 in_file ready "$T/idle.out"
	"$SCRY" stacks -q -d 500ms -o "$T/i.scry" -p "$PID"
	"$SCRY" report --idle -o "$T/i.speedscope.json" "$T/i.scry"
	"$SCRY" report -o "$T/i.json" "$T/i.scry"
	"$RUBY" --disable=gems -rjson -e '
	  s, r = ARGV.map { |f| JSON.parse(File.read(f)) }
	  frames = s["shared"]["frames"]
	  s["profiles"].size == 4 or abort "#{s["profiles"].size} profiles"
	  own = Hash.new(0)
	  s["profiles"].each do |p|
	    p["type"] == "sampled" && p["samples"].size == p["weights"].size && p["endValue"] == p["weights"].sum or abort p["name"]
	    p["samples"].zip(p["weights"]) { |stack, w| own[frames[stack.last].values_at("name", "file", "line")] += w }
	  end
	  wanted = Hash.new(0)
	  r["rows"].each { |x| wanted[x.values_at("method", "file", "line")] += x["self_ns"] if x["self_ns"] > 0 }
	  own == wanted or abort "#{own}\n#{wanted}"' "$T/i.speedscope.json" "$T/i.json"
}

@test "a program that is started keeps its output, input and status" {
	# It ends when it is watched: then more than the head of the recording is written, and scry wakes for each look.
	local till='looks = -> { File.read("/proc/#{Process.ppid}/status")[/^voluntary_ctxt_switches:\s*(\d+)/, 1].to_i }
		sleep 0.02 until File.size?(ARGV[0]).to_i > 100; till = looks[] + 100; sleep 0.02 until looks[] > till;'
	local got=0
	echo "in" | "$SCRY" stacks -q -o "$T/x.scry" -- "$RUBY" -e "puts STDIN.gets; $till exit 7" "$T/x.scry" >"$T/out" || got=$?
	[ "$got" -eq 7 ]
	[ "$(cat "$T/out")" = "in" ]
	"$SCRY" report "$T/x.scry" | grep -q "Kernel#sleep (C)"
	got=0
	"$SCRY" stacks -q -o "$T/y.scry" -- "$RUBY" -e "$till Process.kill(:KILL, \$\$)" "$T/y.scry" || got=$?
	[ "$got" -eq 137 ]
	run -127 "$SCRY" stacks -- /no/such/program
	run "$SCRY" stacks -q -- true
	[ "$status" -eq 125 ]
	[[ "$output" == *"ended before a Ruby in it could be sampled, or had none; fix: "* ]]
}

@test "a program is waited for also where who started scry lets nobody hear of children" {
	env --ignore-signal=CHLD true || skip "this env cannot ignore signals"
	run timeout 60 env --ignore-signal=CHLD "$SCRY" stacks -q --force -o "$T/i.scry" -- \
		"$RUBY" -e 'sleep 0.02 until File.size?(ARGV[0]).to_i > 100; exit 3' "$T/i.scry"
	[ "$status" -eq 3 ]
}

@test "more threads than descriptors that a shell allows: what each does is known" {
	start many "$RUBY" --disable=gems -e '100.times { Thread.new { sleep } }; $stdout.syswrite("ready"); sleep'
	wait_for 20 in_file ready "$T/many.out"
	sh -c 'ulimit -Sn 64; exec "$@"' sh "$SCRY" stacks -q --engine=read -d 500ms -o "$T/m.json" -p "$PID"
	json_is "$T/m.json" 't = r["totals"]; t["samples"] >= 101 && t["state_unknown_ns"] == 0 && t["state_sleeping_ns"] + t["state_blocked_ns"] > 0.9 * t["wall_ns"]'
}

@test "SIGKILL of scry at any moment: the program goes on as before" {
	start tight "$RUBY" "$K/tight.rb"
	wait_for 10 in_file ready "$T/tight.out"
	stays_well "$PID" "$SCRY" stacks -q --engine=read -r 5000 -o "$T/k.scry" --force -p "$PID"
}

@test "what cannot be is refused, with what mends it" {
	for words in "-p 1 -- true" "-r 0 -p 1" "-r 30000 -p 1" "--cpu --gvl -p 1" ""; do
		# shellcheck disable=SC2086
		run "$SCRY" stacks $words
		[ "$status" -eq 2 ]
	done
	run "$SCRY" stacks -p 4194303
	[ "$status" -eq 5 ]
}

@test "a process that is stopped: its stack is shown, and that it did not run" {
	start stopped "$RUBY" --disable=gems -e 'puts "ok"; $stdout.flush; loop {}'
	wait_for 10 in_file ok "$T/stopped.out"
	kill -STOP "$PID"
	wait_for 5 grep -q "^State:.*stopped" "/proc/$PID/status"
	"$SCRY" stacks -q -d 200ms -o "$T/stopped.json" -p "$PID"
	json_is "$T/stopped.json" 'r["notes"].grep(/stopped by a signal .* fix: kill -CONT/).size == 1'
	kill -CONT "$PID"
}
