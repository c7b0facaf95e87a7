#!/usr/bin/env bats
# scry calls --engine=breakpoint: the calls are those of the program, which is none the worse for it.

load lib

# runs NAME ARGS...: the target of that name listens.
runs() {
	listens "$1" "$TARGETS/target_$1" "${@:2}"
}

# answers NAME "MODE N": says it to the target, which is right.
answers() {
	echo "$2" >&8
	wait_for 60 grep -qE "^$2 (right|wrong)" "$T/$1.out" && in_file "^$2 right" "$T/$1.out" || {
		tail -3 "$T/$1.out"
		return 1
	}
}

rounds() {
	[ "$(grep -c "^round .* wrong 0$" "$T/traced.out")" -eq "$1" ]
}

go() { # NUMBER of the round, of target_traced
	echo >&8
	wait_for 60 rounds "$1"
}

# breaks PID ARGS...: traces it by breakpoints.
breaks() {
	local pid=$1
	shift
	traces "$pid" --engine=breakpoint "$@"
}

by_breakpoints() { # STATUS ARGS...
	local status=$1
	shift
	scry_ends "$status" calls --engine=breakpoint "$@"
}

# counts_are FILE "NAME CALLS"...: of sums in JSON, from which nothing is missing.
counts_are() {
	local file=$1
	shift
	printf '%s\n' "$@" | "$RUBY" --disable=gems -rjson -e '
	  r = JSON.parse(File.read(ARGV[0]))
	  want = $stdin.readlines.to_h { |l| [l.split[0], l.split[1].to_i] }
	  got = r["rows"].to_h { |x| [x["function"], x["calls"]] }
	  whole = r["data_quality"].values_at("lost", "errors") == [0, 0]
	  puts "want #{want}, got #{got}", r["data_quality"] unless got == want && whole
	  exit got == want && whole' "$file"
}

handles_sigtrap() { # PID
	(($(sed -n 's/^SigCgt:\t*/0x/p' "/proc/$1/status") & 0x10))
}

@test "16 threads: every call with its arguments and result; the code is as before" {
	local pid before
	need_root "entering a process that is not a child of scry"
	runs traced 16 200
	pid=$PID
	before=$(state_of "$pid")
	breaks "$pid" -x 'traced_*' --json
	scry=$PID
	head -1 "$T/scry.err" | grep -q "breakpoints in process $pid.*SIGKILL"
	go 1
	ends_watch "$scry"
	"$RUBY" --disable=gems -rjson - "$T/scry.out" <<'RUBY'
calls = File.foreach(ARGV[0]).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
sums, inner = calls.partition { |c| c["function"] == "traced_sum" }
want = (0...16).flat_map { |t| (0...200).map { |i| [t, i, t ^ i, t * 1_000_003 + i * 7 + (t ^ i) - (i % 4 == 0 ? i : 0)] } }
number = ->(v) { v.is_a?(String) ? [Integer(v)].pack("Q").unpack1("q") : v }
got = sums.map { |c| c["args"].first(3).map { |a| Integer(a) } + [number[c["result"]]] }
puts data_quality, "sums #{sums.size} inner #{inner.size}"
exit got.sort == want.sort && inner.size == 16 * 50 && calls.all? { |c| c["state"] == "returned" } &&
     data_quality.values_at("lost", "errors") == [0, 0]
RUBY
	as_before "$pid" "$before" "after a trace by breakpoints"
	go 2
	exec 8>&-
	finish "$pid"
}

@test "threads that are made while others meet breakpoints without a pause" {
	# what is proven is that threads may begin while others meet breakpoints: 64 of them do, however often these are met
	by_breakpoints 0 -x 'traced_*' -c --json -- "$TARGETS/target_traced" 16 1000 4
	[ "$(grep -c "^round .* wrong 0$" "$T/scry.out")" -eq 4 ]
	grep -v "^pid\|^round" "$T/scry.out" >"$T/sums.json"
	counts_are "$T/sums.json" "traced_sum 64000" "traced_inner 16000"
}

@test "the same text as with hooks" {
	by_breakpoints 0 --clients -- "$TARGETS/target_traced_text"
	cp "$T/scry.out" "$T/breaks.out"
	scry_ends 0 calls --clients -- "$TARGETS/target_traced_text"
	# The program's own line comes when it does.
	in_file "^right$" "$T/breaks.out"
	in_file "^right$" "$T/scry.out"
	diff <(grep -vx right "$T/breaks.out") <(grep -vx right "$T/scry.out")
	[ "$(wc -l <"$T/scry.out")" -gt 90 ]
}

@test "recursion, tail calls, jumps, fibers, exceptions: each call, and how it ended" {
	[ -f "$TARGETS/libthrowing.so" ] || skip "no C++ compiler"
	need_root "entering a process that is not a child of scry"
	runs returner "$TARGETS/libthrowing.so"
	pid=$PID
	breaks "$pid" -x ret_deep -x 'ret_tail*' -x ret_jump -x ret_fiber -x ret_cancel -x ret_fork -x ret_spawn \
		-x '*thrower*' --json
	scry=$PID
	for mode in "jump 60" "tail 100" "fibers 1" "cancel 4" "fork 3" "spawn 3" "throw 1"; do
		answers returner "$mode"
	done
	ends_watch "$scry"
	"$RUBY" --disable=gems -rjson - "$T/scry.out" "$T/returner.out" <<'RUBY'
calls = File.foreach(ARGV[0]).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
told = File.readlines(ARGV[1]).map(&:split).select { |f| f[0] == "count" }.to_h { |f| [f[1], f[2..].map(&:to_i)] }
by = calls.group_by { |c| c["function"] }
bad = by.reject { |name, c| !told[name] || [c.size, c.count { |x| x["state"] == "returned" }] == told[name] }
bad.each { |name, c| puts "#{name}: told #{told[name]}, seen #{c.map { |x| x["state"] }.tally}" }
puts data_quality
exit by.size >= 7 && bad.empty? && data_quality.values_at("lost", "errors") == [0, 0]
RUBY
	exec 8>&-
	finish "$pid"
}

@test "signals, traps of its own, children, waits, a stop and exec" {
	local pid
	need_root "entering a process that is not a child of scry"
	runs met
	pid=$PID
	breaks "$pid" -x met -c --json
	scry=$PID
	answers met "calls 100"
	answers met "signals 200"
	answers met "traps 20"
	answers met "forks 20"
	answers met "vforks 20"
	answers met "spawns 10"
	answers met "waits 500"
	answers met "ends 20"
	kill -STOP "$pid"
	wait_for 10 grep -qi "^State:.T" "/proc/$pid/status"
	kill -CONT "$pid"
	answers met "calls 10"
	echo "exec 1" >&8
	finish "$scry"
	answers met "calls 5"
	"$RUBY" --disable=gems -rjson -e '
	  r = JSON.parse(File.read(ARGV[0]))
	  # two a signal; those of fork children are theirs, of vfork children the program uses itself
	  least = 100 + 200 * 2 + 20 + 20 + 20 * 2 + 10 + 500 + 10
	  puts r["data_quality"], r["rows"]
	  exit r["rows"][0]["calls"] >= least && r["data_quality"].values_at("lost", "errors") == [0, 0] &&
	       r["notes"].any? { |n| n =~ /another program/ }' "$T/scry.out"
	exec 8>&-
	finish "$pid"
}

@test "all functions of a program, and where they return to: it works on, and after the watch too" {
	by_breakpoints 0 -x '*' -c -d 5s -- /usr/bin/python3 -S -E -c 'import json; print(json.dumps([6 * 7]))'
	in_file '^\[42\]$' "$T/scry.out"
	grep -qE '[0-9]+ of [0-9]+ functions are not traced, such as ' "$T/scry.out"
}

@test "a program that leaves a child and ends at once: the child has none of the breakpoints" {
	for _ in $(seq "$(share 10 200)"); do
		by_breakpoints 0 -x met -c -- "$TARGETS/target_met" leave
		wait_for 20 in_file "^child right" "$T/scry.out"
	done
}

@test "libraries that come and go, in time for their constructors; in other namespaces" {
	printf '%s\n' "open $TARGETS/libplug.so" "call 2" close "open $TARGETS/libplug.so" "call 1" \
		"dlmopen $TARGETS/libplug.so" "call 1" close close "churn 20 $TARGETS/libplug.so" \
		"storm 4 10 $TARGETS/libplug.so" >"$T/words"
	"$SCRY" calls --engine=breakpoint -x work_mix -o "$T/x.scry" -- "$TARGETS/target_loader" <"$T/words" >"$T/out" 2>"$T/err"
	[ "$(grep -c " right" "$T/out")" -ge 3 ]
	in_file "^storm .* 0 wrong" "$T/out"
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" 'r["data_quality"].values_at("lost", "errors") == [0, 0]'
	# 1 + 3, 1 + 2, 1 + 2; each of the churn; the storm's threads share what is open
	json_is "$T/o.json" 'rows.sum { |x| x["calls"] } >= 10 + 20 + 4 * 10'
}

@test "static programs, and an IFUNC that is bound" {
	[ -x "$TARGETS/target_caller_static" ] || skip "no static programs with this toolchain"
	for way in static static_pie; do
		echo "call 30" >"$T/words"
		"$SCRY" calls --engine=breakpoint -x work_fold -x work_mix -c --json -- "$TARGETS/target_caller_$way" \
			<"$T/words" >"$T/out" 2>"$T/err"
		grep -q "right$" "$T/out"
		grep -v '^pid\|^sum' "$T/out" >"$T/o.json"
		counts_are "$T/o.json" "work_fold 30" "work_mix 60"
	done
	need_root "entering a process that is not a child of scry"
	runs caller_static
	by_breakpoints 0 -p "$PID" -x '*restore_rt*' -x work_mix --dry-run
	grep -q "leave .*__restore_rt .*signal handlers return to it" "$T/scry.out"
	exec 8>&-
	rm "$T/in"
	runs caller_now
	echo "call 1" >&8 # its slot is bound at the start
	wait_for 10 in_file "right$" "$T/caller_now.out"
	breaks "$PID" -x 'strlen@libc.so*' -c
	scry=$PID
	echo "call 50" >&8
	wait_for 10 bash -c "[ \$(grep -c 'right$' '$T/caller_now.out') -eq 2 ]"
	ends_watch "$scry"
	grep -qE "^ *100.0 .* strlen$" "$T/scry.out"
}

@test "scry is killed, or nobody reads it: its keeper puts the code back" {
	local pid before
	need_root "entering a process that is not a child of scry"
	runs traced 4 500
	pid=$PID
	before=$(state_of "$pid")
	breaks "$pid" -x 'traced_*' -c
	echo >&8
	keeper=$(keeper_of "$PID")
	kill -KILL "$PID"
	finish "$PID" || true
	wait_for 20 is_gone "$keeper"
	as_before "$pid" "$before" "after the front was killed"
	wait_for 20 rounds 1
	start scry bash -c '"$0" calls --engine=breakpoint -p "$1" -x "traced_*" 2>"$2" | head -n 3' "$SCRY" "$pid" "$T/err"
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/err"
	go 2
	finish "$scry"
	[ "$(wc -l <"$T/scry.out")" -eq 3 ]
	as_before "$pid" "$before" "after its reader left"
	go 3
	exec 8>&-
	finish "$pid"
}

@test "the keeper is killed while threads meet breakpoints: the program lives, undo puts the code back" {
	local pid before
	need_root "entering a process that is not a child of scry"
	runs traced 4 3000
	pid=$PID
	before=$(state_of "$pid")
	for i in $(seq "$(share 3 100)"); do
		breaks "$pid" -x 'traced_*' -c
		scry=$PID
		keeper=$(keeper_of "$scry")
		echo >&8
		sleep "0.0$((RANDOM % 10))"
		kill -KILL "$keeper"
		finish "$scry" || true
		wait_for 10 is_gone "$keeper"
		# some pass the breakpoints by the agent
		[ $((RANDOM % 2)) -eq 0 ] || wait_for 60 rounds "$i"
		undo "$pid"
		as_before "$pid" "$before" "after the keeper died"
		wait_for 60 rounds "$i"
	done
	exec 8>&-
	finish "$pid"
}

@test "a thread that blocks all signals, then the keeper is killed: the other threads live" {
	local pid keeper
	need_root "entering a process that is not a child of scry"
	runs met
	pid=$PID
	breaks "$pid" -x met -c
	scry=$PID
	keeper=$(keeper_of "$scry")
	answers met "blocked 10"
	for i in $(seq 100); do # until the handler is there again, which takes some of these
		answers met "calls $i"
		! handles_sigtrap "$pid" || break
		sleep 0.02
	done
	handles_sigtrap "$pid"
	kill -KILL "$keeper"
	finish "$scry" || true
	wait_for 10 is_gone "$keeper"
	answers met "calls 1000"
	undo "$pid"
	exec 8>&-
	finish "$pid"
}

@test "a dry run says what would be changed; what is not there is said" {
	need_root "entering a process that is not a child of scry"
	runs traced 1 1
	by_breakpoints 0 -p "$PID" -x 'traced_*' -x later@libnone --dry-run
	grep -q "1 byte at 0x[0-9a-f]*, the entry of traced_sum" "$T/scry.out"
	grep -q "wait .*later@libnone" "$T/scry.out"
	grep -q "ptrace" "$T/scry.out"
	by_breakpoints 125 -x no_such_function -- true
	says "no object was ever loaded that defines 'no_such_function"
	exec 8>&-
	finish "$PID"
}

@test "a keeper that is stopped while it traces a program is woken: the program's signals pass" {
	cat >"$T/answers.py" <<'END'
import os, signal
signal.signal(signal.SIGUSR1, lambda *a: print("got it", flush=True))
print("pid", os.getpid(), flush=True)
while True:
    signal.pause()
END
	start scry "$SCRY" calls --engine=breakpoint -x getenv --force -o "$T/x.scry" -- /usr/bin/python3 "$T/answers.py"
	scry=$PID
	wait_for 20 in_file "^pid" "$T/scry.out"
	program=$(sed -n 's/^pid //p' "$T/scry.out")
	keeper=$(keeper_of "$scry")
	HELD=$keeper
	grep -q "^TracerPid:[[:space:]]*$keeper$" "/proc/$program/status"
	kill -STOP "$keeper"
	kill -USR1 "$program"
	wait_for 20 in_file "got it" "$T/scry.out"
	grep -q "was stopped while it traced process $program" "$T/scry.err"
	kill -KILL "$program"
	ended "$scry"
	[ "$status" -eq 137 ]
}
