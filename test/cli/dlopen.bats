#!/usr/bin/env bats
# Libraries that are loaded after scry has entered: hooked before their constructors run, forgotten when
# they are unloaded, hooked again when they come back. The plug-in's constructor calls work_mix itself,
# so that one call more is counted for each time it is loaded in time.

load lib

teardown() {
	exec 7>&- || true
	end_started
}

# loader SUFFIX: starts target_loader (SUFFIX "" or "_musl"), its input on descriptor 7, its pid in $LOADER.
loader() {
	[ -x "$TARGETS/target_loader$1" ] || skip "no target_loader$1 here"
	PLUG="$TARGETS/libplug$1.so" WORK="libwork$1.so"
	[ -p "$T/in" ] || mkfifo "$T/in"
	start loader sh -c 'exec "$1" <"$2"' sh "$TARGETS/target_loader$1" "$T/in"
	LOADER=$PID
	exec 7<>"$T/in" # waits for no reader, should there be none
	wait_for 10 in_file "^pid" "$T/loader.out"
}

has_lines() { # N FILE
	[ "$(wc -l <"$2")" -ge "$1" ]
}

# say LINE: to the loader, and waits for its answer, in $ANSWER.
say() {
	local lines
	lines=$(wc -l <"$T/loader.out")
	echo "$1" >&7
	wait_for 60 has_lines $((lines + 1)) "$T/loader.out" || {
		cat "$T/loader.out" "$T/front.err"
		return 1
	}
	ANSWER=$(tail -1 "$T/loader.out")
}

# count ARGS...: scry patch count (or $VERB) of $LOADER, in the background, once it is in. Its pid in $FRONT.
count() {
	start front "$SCRY" patch "${VERB:-count}" "$@" -p "$LOADER" -o "$T/count.json"
	FRONT=$PID
	wait_for 10 watched "$LOADER"
	wait_for 10 hooked "$LOADER"
}

# counted_is SYMBOL CALLS: ends the count, and what it has counted of SYMBOL.
end_count() {
	[ -n "$FRONT" ] && kill -INT "$FRONT" && ended "$FRONT"
	FRONT=""
	[ "$status" -eq "${1:-0}" ] || {
		echo "scry ended with $status"
		cat "$T/front.err"
		return 1
	}
}
# Where it says that it came too late for constructors, it may lack what they called. How often is counted for the last
# test of this file.
calls_are() {
	local is="==" late=0
	! is_late || is="<=" late=1
	echo "$late" >>"$BATS_FILE_TMPDIR/late"
	json_is "$T/count.json" "rows.select { |x| x['symbol'] == '$1' }.sum { |x| x['calls'] } $is $2" ||
		{ json "$T/count.json" "[rows, r['notes']]"; return 1; }
}
is_late() {
	grep -q "before scry was ready" "$T/count.json"
}

opened_closed_opened() { # SUFFIX
	loader "$1"
	before=$(text "$LOADER")
	count "work_mix@$WORK" "plug_run@libplug$1.so"
	say "open $PLUG"
	say "call 5"
	[[ "$ANSWER" == *right ]]
	say close
	say "open $PLUG"
	say "call 2"
	[[ "$ANSWER" == *right ]]
	end_count
	calls_are plug_run 2
	# musl keeps what was closed and constructs it once
	if [ -z "$1" ]; then calls_are work_mix 11; else calls_are work_mix 10; fi
	say "call 2"
	[[ "$ANSWER" == *right ]]
	say close
	[ -n "$1" ] || wait_for 2 text_is "$LOADER" "$before"
	[ "$(mappings "$LOADER")" -eq 0 ]
}

@test "a library loaded later is hooked before its constructors, and again when it comes back" {
	opened_closed_opened ""
}

@test "the same with musl" {
	opened_closed_opened _musl
}

@test "time: a library that is loaded later, goes and comes back" {
	VERB=time opened_closed_opened ""
}

@test "time: dlopen and dlclose, many times: each constructor is timed" {
	rounds=$(share 200 2000)
	loader ""
	VERB=time count "work_mix@$WORK"
	say "churn $rounds $PLUG"
	[ "$ANSWER" = churned ]
	end_count
	calls_are work_mix "$rounds"
	json_is "$T/count.json" "rows.sum { |x| x['returned'] } == $rounds"
}

@test "time: two threads that load and unload" {
	loader ""
	VERB=time count "work_mix@$WORK" "plug_run@libplug.so"
	say "storm 2 50 $PLUG"
	[[ "$ANSWER" == "storm 100 right 0 wrong" ]]
	end_count
	calls_are plug_run 100
}

@test "dlopen and dlclose at once, many times: each constructor is counted" {
	rounds=$(share 300 3000)
	loader ""
	count "work_mix@$WORK"
	say "churn $rounds $PLUG"
	[ "$ANSWER" = churned ]
	end_count
	calls_are work_mix "$rounds"
	json_is "$T/count.json" "rows.size == 1"
}

@test "three namespaces" {
	loader ""
	count "work_mix@$WORK"
	for n in 1 2 3; do
		say "dlmopen $PLUG"
		say "call $n"
		[[ "$ANSWER" == *right ]]
	done
	say close
	end_count
	calls_are work_mix 12
	json_is "$T/count.json" "rows.map { |x| x['address'] }.uniq.size == 3"
	say "call 1"
	[[ "$ANSWER" == *right ]]
	[ "$(mappings "$LOADER")" -eq 0 ]
}

@test "slots of a library loaded later, and calls in it" {
	loader ""
	count "work_mix@$WORK" --via=got
	say "open $PLUG"
	say "call 5"
	[[ "$ANSWER" == *right ]]
	say close
	say "open $PLUG"
	say "call 5"
	[[ "$ANSWER" == *right ]]
	end_count
	calls_are work_mix 14
	json_is "$T/count.json" "rows.all? { |x| x['way'] == 'got' }"
	say "call 5"
	[[ "$ANSWER" == *right ]]
	[ "$(mappings "$LOADER")" -eq 0 ]
}

threads_load() { # SUFFIX
	rounds=$(share 100 1000)
	loader "$1"
	before=$(text "$LOADER")
	count "plug_run@libplug$1.so"
	say "storm 4 $rounds $PLUG"
	[ "$ANSWER" = "storm $((4 * rounds)) right 0 wrong" ]
	end_count
	calls_are plug_run $((4 * rounds))
	[ -n "$1" ] || [ "$(text "$LOADER")" = "$before" ]
}

@test "four threads load and unload" {
	threads_load ""
}

@test "four threads load and unload, musl" {
	threads_load _musl
}

enter_storm() { # SUFFIX
	loader "$1"
	echo "storm 3 $(share 3000 30000) $PLUG" >&7
	for _ in $(seq "$(share 8 100)"); do
		status=0
		"$SCRY" patch count "plug_run@libplug$1.so" "work_mix@$WORK" -p "$LOADER" -d 0.1s >"$T/out" 2>"$T/err" || status=$?
		[ "$status" -eq 0 ] || [ "$status" -eq 4 ] || { cat "$T/err"; false; }
	done
	wait_for 120 grep -q "^storm" "$T/loader.out"
	tail -1 "$T/loader.out"
	grep -q "right 0 wrong" "$T/loader.out"
	[ "$(mappings "$LOADER")" -eq 0 ]
}

@test "entered and left while three threads load and unload" {
	enter_storm ""
}

@test "entered and left while three threads load and unload, musl" {
	enter_storm _musl
}

@test "fork children of a program whose thread loads, and one that loads itself" {
	loader ""
	say "open $PLUG"
	count "plug_run@libplug.so"
	say "forks $(share 50 500) $TARGETS/libover.so"
	[[ "$ANSWER" == *"right 0 wrong" ]]
	say close
	for _ in $(seq 100); do # a wait would be 50 ms each time; a busy machine is not
		say "child $PLUG"
		[[ "$ANSWER" == "child right in "* ]]
		ms=$(echo "$ANSWER" | awk '{ print $4 }')
		[ "$ms" -ge 40 ] || break
	done
	[ "$ms" -lt 40 ]
	end_count
	calls_are plug_run 0
}

@test "the keeper is killed while a thread waits: the program goes on at once and computes right" {
	for suffix in "" _musl; do
		rm -f "$T/in"
		loader "$suffix"
		start front "$SCRY" patch count "plug_run@libplug$suffix.so" -p "$LOADER"
		FRONT=$PID
		wait_for 10 hooked "$LOADER"
		keeper=$(keeper_of "$FRONT")
		kill -STOP "$keeper"
		lines=$(wc -l <"$T/loader.out")
		echo "open $PLUG" >&7
		kill -KILL "$keeper" "$FRONT"
		wait_for 5 has_lines $((lines + 1)) "$T/loader.out"
		for _ in 1 2 3 4 5; do
			say "call 3"
			[[ "$ANSWER" == *right ]]
			say close
			say "open $PLUG"
		done
		undo "$LOADER"
		[ "$(mappings "$LOADER")" -eq 0 ]
		say "call 3"
		[[ "$ANSWER" == *right ]]
		exec 7>&-
		ended "$LOADER"
		[ "$status" -eq 0 ]
	done
}

# stop_between_holds KEEPER PID: SIGSTOP, but not while it holds a thread of the program, which would
# stand as long as the keeper does.
stop_between_holds() {
	while kill -STOP "$1" && grep -qs "^TracerPid:[[:space:]]*[1-9]" /proc/"$2"/task/*/status; do
		kill -CONT "$1"
		sleep 0.01
	done
}

@test "the keeper is stopped in storms of loads: they go on, and it catches up" {
	for suffix in "" _musl; do
		rm -f "$T/in"
		loader "$suffix"
		before=$(text "$LOADER")
		start front "$SCRY" patch count "plug_run@libplug$suffix.so" "work_mix@$WORK" -p "$LOADER" -o "$T/count$suffix.json"
		FRONT=$PID
		wait_for 10 hooked "$LOADER"
		keeper=$(keeper_of "$FRONT")
		HELD="$HELD $keeper"
		for _ in 1 2 3; do
			lines=$(wc -l <"$T/loader.out")
			echo "storm 3 50 $PLUG" >&7
			stop_between_holds "$keeper" "$LOADER"
			wait_for 10 has_lines $((lines + 1)) "$T/loader.out"
			tail -1 "$T/loader.out" | grep -q "storm 150 right 0 wrong"
			kill -CONT "$keeper"
		done
		for _ in 1 2 3 4 5; do # on a busy machine it has not caught up at once
			sleep 0.05
			say "storm 3 50 $PLUG"
			[ "$ANSWER" = "storm 150 right 0 wrong" ]
		done
		kill -INT "$FRONT"
		ended "$FRONT"
		[ "$status" -eq 0 ]
		json_is "$T/count$suffix.json" "rows.select { |x| x['symbol'] == 'plug_run' }.sum { |x| x['calls'] }.between?(150, 1200)"
		[ -n "$suffix" ] || wait_for 2 text_is "$LOADER" "$before"
		[ "$(mappings "$LOADER")" -eq 0 ]
		exec 7>&-
		ended "$LOADER"
	done
}

@test "both are killed at any time of a storm of loads, and undo takes all out" {
	loader ""
	text=$(text "$LOADER")
	echo "storm 3 $(share 2000 20000) $PLUG" >&7
	for i in $(seq "$(share 6 100)"); do
		start front "$SCRY" patch count "plug_run@libplug.so" "work_mix@$WORK" -p "$LOADER" -d 60s
		FRONT=$PID
		wait_for 10 watched "$LOADER" || {
			echo "run $i: not entered"
			cat "$T/front.out" "$T/front.err"
			return 1
		}
		sleep "0.0$((i * 37 % 100))"
		keeper=$(keeper_of "$FRONT") || {
			echo "run $i: no keeper"
			cat "$T/front.out" "$T/front.err"
			return 1
		}
		kill -KILL "$keeper" "$FRONT" 2>/dev/null || true
		finish "$FRONT" || true
		wait_for 5 is_gone "$keeper"
		undo "$LOADER"
	done
	wait_for 120 grep -q "^storm" "$T/loader.out"
	grep -q "right 0 wrong" "$T/loader.out"
	undo "$LOADER"
	[ "$(mappings "$LOADER")" -eq 0 ]
	[ "$(text "$LOADER")" = "$text" ]
}

@test "a library that never comes is waited for, and said" {
	loader ""
	before=$(state_of "$LOADER")
	scry_ends 4 patch count "plug_run@libnever.so" -p "$LOADER" -d 0.3s
	says "no loaded object defines it yet; waiting"
	says "never loaded"
	as_before "$LOADER" "$before" "in vain"
}

@test "python: an extension and its library, imported later" {
	command -v python3 >/dev/null || skip "no python3"
	python3 -c 'import _sqlite3' 2>/dev/null || skip "this python3 has no _sqlite3"
	mkfifo "$T/in"
	start loader sh -c 'exec python3 -u -c "
import os, sys
print(\"pid\", os.getpid())
for line in sys.stdin: exec(line)" <"$1"' sh "$T/in"
	LOADER=$PID
	exec 7<>"$T/in"
	wait_for 10 in_file "^pid" "$T/loader.out"
	count 'PyInit__sqlite3@*' 'sqlite3_*@libsqlite3.so.0'
	say 'import sqlite3; c = sqlite3.connect(":memory:"); print(c.execute("select 6*7").fetchone()[0])'
	[ "$ANSWER" = 42 ]
	say 'import ssl; print(len(ssl.OPENSSL_VERSION) > 0)'
	end_count
	calls_are PyInit__sqlite3 1
	json_is "$T/count.json" "rows.any? { |x| x['symbol'] =~ /sqlite3_(open|prepare)/ && x['calls'] > 0 }"
	[ "$(mappings "$LOADER")" -eq 0 ]
	say 'print(c.execute("select 7*7").fetchone()[0])'
	[ "$ANSWER" = 49 ]
}

@test "ruby: an extension that is required later" {
	mkfifo "$T/in"
	start loader sh -c 'exec "$1" -e "
STDOUT.sync = true
puts \"pid #{\$\$}\"
STDIN.each_line { |l| puts eval(l) }" <"$2"' sh "$RUBY" "$T/in"
	LOADER=$PID
	exec 7<>"$T/in"
	wait_for 10 in_file "^pid" "$T/loader.out"
	count 'Init_*@*digest*' 'Init_bigdecimal@*' 'Init_*@*zlib*'
	say 'require "digest"; require "digest/md5"; Digest::MD5.hexdigest("x")'
	[ "$ANSWER" = 9dd4e461268c8034f5c8564e155c67a6 ]
	say 'require "zlib"; Zlib.crc32("x")'
	end_count
	calls_are Init_digest 1
	calls_are Init_zlib 1
	[ "$(mappings "$LOADER")" -eq 0 ]
}

# A thread that loads waits 50 ms for scry at most: a machine with much else to do may keep the keeper away so long.
@test "of the counts above four of five were made without coming too late for a load" {
	[ -s "$BATS_FILE_TMPDIR/late" ] || skip "the tests above were not run"
	late=$(grep -c 1 "$BATS_FILE_TMPDIR/late" || true)
	all=$(wc -l <"$BATS_FILE_TMPDIR/late")
	echo "late $late of $all"
	[ $((late * 5)) -le "$all" ]
}
