#!/usr/bin/env bats
# Entry and return of functions: what comes back, what is left by jumps and exceptions, what is walked over by
# unwinders, fibers, forks and signals. The program says itself how often each function was called and came back.

load lib

setup() {
	need_targets
	need_root "entering a process that is not a child of scry"
	prepare
}

THROWN="*thrower* *middle* *compare* throwing_storm"

# returner [LIB]: starts it, its pid in $PID.
returner() {
	listens returner "$TARGETS/target_returner" "$@"
}

# answers MODE N: how many it has given.
answers() {
	grep -cE "^$1 $2 (right|wrong)$" "$T/returner.out" || true
}

answers_more() { # THAN MODE N
	[ "$(answers "$2" "$3")" -gt "$1" ]
}

# does MODE N: and says that it was right.
does() {
	local before
	before=$(answers "$1" "$2")
	echo "$1 $2" >&8
	wait_for 120 answers_more "$before" "$1" "$2" || return 1
	grep -E "^$1 $2 (right|wrong)$" "$T/returner.out" | tail -n 1 | grep -q "right$" && return 0
	echo "$1 $2 went wrong:"
	tail -n 5 "$T/returner.out"
	cat "$T/returner.err"
	return 1
}

# times PID NAME..., logs PID NAME...: starts scry on it, its pid in $PID.
times() {
	hooks time "$@"
}

logs() {
	hooks log "$@"
}

hooks() { # VERB PID NAME...
	local verb=$1 pid=$2
	shift 2
	set -f
	start scry "$SCRY" patch "$verb" "$@" -p "$pid" --max-pause 2s --force -o "$T/o.json" # the machine may be busy
	set +f
	wait_for 20 hooked "$pid" || { cat "$T/scry.err"; return 1; }
	wait_for 20 following "$pid"
}

# Hooks are followed once all are on: then the front says so.
following() {
	in_file "watching process $1" "$T/scry.err"
}

# as_told: the report has for each function that the program has counted the same calls and returns.
as_told() {
	"$RUBY" --disable=gems -rjson - "$T/o.json" "$T/returner.out" <<'RUBY'
rows = JSON.parse(File.read(ARGV[0]))["rows"].to_h { |r| [r["symbol"], r] }
told = File.readlines(ARGV[1]).map(&:split).select { |f| f[0] == "count" }.to_h { |f| [f[1], f[2..].map(&:to_i)] }
bad = told.reject { |name, counts| rows[name] && rows[name].values_at("calls", "returned") == counts }
bad.each { |name, counts| puts "#{name}: told #{counts}, reported #{rows[name]&.values_at("calls", "returned")}" }
exit(bad.empty? && !told.empty?)
RUBY
}

row() { # NAME EXPRESSION in r
	json_is "$T/o.json" "(r = rows.find { |x| x['symbol'] == '$1' }) && ($2)" && return 0
	"$RUBY" --disable=gems -rjson -e 'puts JSON.parse(File.read(ARGV[0]))["rows"].select { |r| r["symbol"] == ARGV[1] }' "$T/o.json" "$1"
	return 1
}

leaves() { # PID
	exec 8>&-
	finish "$1"
	in_file "wrong 0$" "$T/returner.out"
}

@test "calls, recursion, tail calls, jumps, fibers, cancelled threads, forks, spawns, signals: exact" {
	local before pid
	returner "$TARGETS/libthrowing.so"
	pid=$PID
	before=$(state_of "$pid")
	times "$pid" "ret_*"
	scry=$PID
	does nest 10000
	does deep 3
	does tail 1000
	does jump 999
	does fibers 10
	does cancel 10
	does fork 5
	does spawn 6
	does signals 200
	ends_watch "$scry"
	as_told
	row ret_jump "r['left'] == 999 / 3 * 11 && r['missed'] == 0"
	row ret_deep "r['returned'] == 30_000 && r['missed'] == 0"
	as_before "$pid" "$before" "after returns of all kinds"
	does nest 100
	leaves "$pid"
}

@test "a storm of C++ exceptions through followed frames" {
	local before pid
	returner "$TARGETS/libthrowing.so"
	pid=$PID
	before=$(state_of "$pid")
	set -f
	# shellcheck disable=SC2086
	times "$pid" $THROWN usleep
	scry=$PID
	does throw 20
	ends_watch "$scry"
	row throwing_storm "r['calls'] == 20 && r['returned'] == 20"
	row _ZN12_GLOBAL__N_16middleElRl "r['calls'] == 40_000 && r['returned'] == 16_000"
	row _ZN12_GLOBAL__N_17throwerElRl "r['calls'] == 149_000 && r['returned'] == 0"
	as_before "$pid" "$before" "after exceptions"
	does throw 2
	leaves "$pid"
}

@test "all of libc, libstdc++, libgcc and the loader at once" {
	local before pid
	returner "$TARGETS/libthrowing.so"
	pid=$PID
	before=$(state_of "$pid")
	times "$pid" "*@libc.so.6" "*@libstdc++" "*@libgcc_s" "*@ld-linux" "ret_*"
	scry=$PID
	does throw 5
	does nest 1000
	does jump 99
	does fibers 3
	does cancel 5
	does fork 5
	does spawn 6
	does signals 100
	ends_watch "$scry"
	as_told
	as_before "$pid" "$before" "after all of libc"
	does throw 1
	leaves "$pid"
}

@test "entering and leaving, again and again, while 32 threads sleep in followed calls" {
	local before pid times
	times=$(share 12 100)
	returner "$TARGETS/libthrowing.so"
	pid=$PID
	before=$(state_of "$pid")
	for ((i = 0; i < times; i++)); do
		for mode in "throw 40" "nest 20000" "deep 3" "jump 300" "fibers 20" "cancel 5" "signals 30" "crowd 5"; do
			echo "$mode" >&8
		done
		set -f
		# shellcheck disable=SC2086
		scry_ends 0 patch time "ret_*" usleep $THROWN -p "$pid" -d "0.0$((i % 9 + 1))s" --force -o "$T/o.json"
		set +f
		"$SCRY" ps | grep -w "$pid" && return 1
	done
	does nest 1
	as_before "$pid" "$before" "after $times times"
	no grep "wrong$" "$T/returner.out"
	leaves "$pid"
}

@test "keeper and front are killed: calls go home, undo takes all out" {
	local before pid
	returner "$TARGETS/libthrowing.so"
	pid=$PID
	before=$(state_of "$pid")
	for pause in 0.1 1.5; do
		set -f
		# shellcheck disable=SC2086
		times "$pid" "ret_*" usleep $THROWN
		set +f
		scry=$PID
		echo "signals 500" >&8
		kill -KILL "$(keeper_of "$scry")" "$scry"
		sleep "$pause"
		echo "throw 20" >&8
		undo "$pid"
		rm -f "$T/scry.err"
		as_before "$pid" "$before" "after undo"
	done
	does nest 1
	does cancel 5
	no grep "wrong$" "$T/returner.out"
	leaves "$pid"
}

@test "a fork child deep in followed calls: undo takes scry out of it, and it comes home" {
	local pid child before
	returner
	pid=$PID
	before=$(text "$pid")
	times "$pid" "ret_*" usleep
	scry=$PID
	echo "heir 15" >&8
	wait_for 10 in_file "^heir" "$T/returner.out"
	child=$(awk '$1 == "heir" { print $2; exit }' "$T/returner.out")
	undo "$child"
	grep -q "the agent is unmapped" "$T/scry.out"
	text_is "$child" "$before"
	wait_for 20 in_file "^heir 15 right" "$T/returner.out"
	ends_watch "$scry"
	as_told
	leaves "$pid"
}

@test "times are those of the program's own clock" {
	local pid spun
	returner
	pid=$PID
	times "$pid" ret_spin ret_sleep usleep
	scry=$PID
	does spin 2000
	ends_watch "$scry"
	spun=$(awk '$1 == "spun" { print $2 }' "$T/returner.out")
	row ret_spin "r['returned'] == 2000 && (0.9..1.0).cover?(r['total_ns'] / $spun.0)"
	row ret_spin "r['p50_ns'] <= r['p99_ns'] && r['p99_ns'] <= r['max_ns'] && r['max_ns'] <= r['total_ns']"
	row usleep "r['mean_ns'] >= 5_000_000 && r['p50_ns'] >= 5_000_000 && r['calls'] >= r['returned']"
	# It reads its next order, and has none when the watch ends.
	times "$pid" read@libc
	scry=$PID
	does spin 1
	ends_watch "$scry"
	row read "r['calls'] > r['returned']"
	leaves "$pid"
}

@test "by the slots and by the calls" {
	local pid via
	returner
	pid=$PID
	for via in got site; do
		times "$pid" ret_inner usleep --via=$via
		scry=$PID
		does nest 500
		ends_watch "$scry"
	done
	row ret_inner "r['calls'] == 500 && r['returned'] == 500 && r['way'] == 'site'"
	leaves "$pid"
}

@test "an unwinder that is loaded during the watch is hooked, and the watch goes on" {
	local pid
	returner
	pid=$PID
	times "$pid" "ret_*"
	scry=$PID
	does nest 10
	does cancel 5
	does nest 10
	ends_watch "$scry"
	row ret_outer "r['calls'] == 20 && r['returned'] == 20"
	does cancel 5
	leaves "$pid"
}

@test "refused: what returns twice or asks who called, and programs that unwind otherwise" {
	local pid
	returner
	pid=$PID
	for name in setjmp _setjmp longjmp vfork swapcontext getcontext pthread_exit dlsym; do
		scry_ends 4 patch time "$name@libc.so.6" -p "$pid" -d 0.1s
		says "cannot be followed"
	done
	leaves "$pid"
	mkfifo "$T/static.in"
	exec 9<>"$T/static.in"
	[ -x "$TARGETS/target_caller_static" ] || skip "no static programs with this toolchain"
	strip -o "$T/bare" "$TARGETS/target_caller_static"
	start static bash -c 'exec "$@" <"$0" 9>&-' "$T/static.in" "$T/bare"
	pid=$PID
	wait_for 10 in_file "^pid" "$T/static.out"
	scry_ends 4 patch time work_mix -p "$pid" -d 0.1s
	says "a static program"
	exec 9>&-
	finish "$pid"
}

@test "Ruby: all rb_* functions, with fibers, exceptions, threads, forks and GC stress" {
	local pid before
	"$RUBY" -e 1 2>/dev/null || skip "no $RUBY here"
	start ruby "$RUBY" "$ROOT/test/ruby/programs/returns.rb"
	wait_for 20 in_file "^round" "$T/ruby.out"
	pid=$PID
	before=$(text "$pid")
	for _ in $(seq "$(share 3 20)"); do
		scry_ends 0 patch time "rb_*" "ruby_*" -p "$pid" -d 0.7s --force -o "$T/o.json"
		json_is "$T/o.json" "rows.size > 50 && rows.all? { |r| r['calls'] >= r['returned'] + r['left'] }"
		json_is "$T/o.json" "rows.any? { |r| r['left'] > 0 } && rows.sum { |r| r['missed'] } == 0"
	done
	text_is "$pid" "$before"
	! "$SCRY" ps | grep -w "$pid" | grep -v -- "-$" || false
	ends_right "$pid" ruby
}

@test "a log of entries: every one, in order, with its thread and its arguments" {
	local before pid
	returner "$TARGETS/libthrowing.so"
	pid=$PID
	before=$(state_of "$pid")
	logs "$pid" ret_outer ret_inner ret_deep ret_fiber ret_cancel ret_signal
	scry=$PID
	does nest 10000
	does deep 3
	does fibers 10
	does cancel 10
	does signals 200
	ends_watch "$scry"
	"$RUBY" --disable=gems -rjson - "$T/o.json" "$T/returner.out" <<'RUBY'
calls = File.readlines(ARGV[0]).map { |line| JSON.parse(line) }
report = calls.pop
told = File.readlines(ARGV[1]).map(&:split).select { |f| f[0] == "count" }.to_h { |f| [f[1], f[2].to_i] }
logged = calls.map { |c| c["function"] }.tally
lost = report["data_quality"]["lost"] # of signal handlers that came while a record was written: counted, each of them
abort "told #{told}, logged #{logged}, lost #{lost}" unless told.slice(*logged.keys).values.sum == calls.size + lost && lost * 10 < calls.size
abort "others than those of signals" unless %w[ret_deep ret_fiber ret_cancel].all? { |name| logged[name] == told[name] }
abort "events" unless report["data_quality"]["events"] == calls.size
abort "not in order" unless calls.each_cons(2).all? { |a, b| a["time_ns"] <= b["time_ns"] }
# before the signals: outer 0, inner 0, outer 1, inner 1, ...
nest = calls.first(20_000).select { |c| c["function"].match?(/outer|inner/) }.map { |c| [c["function"], c["arg1"].to_i(16)] }
abort "arguments, order" unless nest == 10_000.times.flat_map { |i| [["ret_outer", i], ["ret_inner", i]] }
RUBY
	as_before "$pid" "$before" "after a log"
	leaves "$pid"
}

@test "a log of what signal handlers and threads call at once: none is lost unsaid, or twice" {
	local pid
	target busy
	pid=$PID
	scry_ends 0 patch log work_fold busy_six -p "$pid" -d 0.1 --args 6 --force -o "$T/o.json"
	"$RUBY" --disable=gems -rjson - "$T/o.json" <<'RUBY'
calls = File.readlines(ARGV[0]).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
abort data_quality.to_s unless data_quality["events"] == calls.size && calls.size > 1000 && data_quality["errors"] == 0
abort "arguments" unless calls.all? { |c| c.key?("arg6") && (c["function"] == "work_fold" || c["arg4"] == "0x3") }
abort "threads" unless calls.map { |c| c["tid"] }.uniq.size > 1
RUBY
	ends_right "$pid" busy
}
