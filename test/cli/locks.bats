#!/usr/bin/env bats
# Waits for mutexes and conditions. The program holds each mutex until the kernel says that all who shall wait for it
# sleep, and measures their waits by its own clock: counts are exact, times within a tenth and 20 ms of what it says.

load lib

setup() {
	need_targets
	prepare
}

# contended: starts it, its pid in $PID.
contended() {
	listens contended "$TARGETS/target_contended"
}

does() { # NAME N MS
	local before
	before=$(grep -c "^done $1 " "$T/contended.out" || true)
	echo "$1 $2 $3" >&8
	wait_for 60 does_more "$1" "$before" || { cat "$T/contended.out"; return 1; }
}

does_more() {
	[ "$(grep -c "^done $1 " "$T/contended.out")" -gt "$2" ]
}

# locks PID ARGS...: starts scry on it, its pid in $PID, and waits until waits are followed.
locks() {
	local pid=$1
	shift
	start scry "$SCRY" locks -p "$pid" --max-pause 2s "$@" # the machine may be busy
	wait_for 20 in_file "watching process $pid" "$T/scry.err" || { cat "$T/scry.err"; return 1; }
}

# as_told FILE NAME LOCK [TABLE]: the report has for that variable what the program has said of NAME.
as_told() {
	"$RUBY" --disable=gems -rjson - "$1" "$2" "$3" "${4:-rows}" "$T/contended.out" <<'RUBY'
file, name, lock, table, out = ARGV
rows = JSON.parse(File.read(file))[table].select { |r| r["symbol"] == lock || (lock == "heap" && r["symbol"].nil?) }
told = File.readlines(out).grep(/^#{name} waits/).map { |l| l.split.values_at(2, 4, 6).map(&:to_i) }
abort "#{name}: the program has said nothing" if told.empty?
want = [told.sum { |t| t[0] }, told.sum { |t| t[1] }, told.map { |t| t[2] }.max]
got = [rows.sum { |r| r["waits"] }, rows.sum { |r| r["total_ns"] }, rows.map { |r| r["max_ns"] || 0 }.max || 0]
near = ->(a, b, n) { (a - b).abs <= b / 10 + 20_000_000 * n }
ok = got[0] == want[0] && near[got[1], want[1], want[0]] && near[got[2], want[2], 1]
puts "#{name}: reported #{got}, told #{want}, of #{rows.size} rows" unless ok
exit ok
RUBY
}

row() { # FILE LOCK EXPRESSION in x
	json_is "$1" "(x = (rows + r['conditions']).find { |y| y['symbol'] == '$2' }) && ($3)"
}

leaves() { # PID
	exec 8>&-
	finish "$1"
	no in_file "wrong" "$T/contended.out"
}

@test "counts, times, kinds, names and stacks are what the program says" {
	local pid before name
	need_root "entering a process that is not a child of scry"
	contended
	pid=$PID
	before=$(state_of "$pid")
	locks "$pid" -o "$T/o.json"
	scry=$PID
	does hold 4 400
	does hold 2 200
	does member 3 200
	does heap 2 200
	does recursive 3 200
	does checking 2 200
	does adaptive 2 200
	does cond 3 300
	does timed 1 200
	does timedcond 1 200
	does free 1000000 0
	does ceiling 1000 0
	ends_watch "$scry"
	as_told "$T/o.json" hold queue_lock
	as_told "$T/o.json" member record
	as_told "$T/o.json" heap heap
	as_told "$T/o.json" recursive recursive_lock
	as_told "$T/o.json" checking checking_lock
	as_told "$T/o.json" adaptive adaptive_lock
	as_told "$T/o.json" timed timed_lock
	as_told "$T/o.json" timedcond timed_cond conditions
	as_told "$T/o.json" cond signal_cond conditions
	row "$T/o.json" signal_cond "x['kind'] == 'condition variable' && x['frames'].first['name'] == 'waits_for_condition'"
	row "$T/o.json" queue_lock "x['kind'] == 'mutex' && x['owner_tid'] == $pid && x['offset'] == '0x0' && x['function'] == 'pthread_mutex_lock'"
	row "$T/o.json" queue_lock "x['frames'].map { |f| f['name'] }.first == 'take_queue' && x['frames'].size > 2"
	row "$T/o.json" record "x['offset'] == '0x8'"
	row "$T/o.json" recursive_lock "x['kind'] == 'recursive mutex' && x['failed'] == 0"
	row "$T/o.json" checking_lock "x['kind'] == 'error-checking mutex' && x['failed'] == 0"
	row "$T/o.json" adaptive_lock "x['kind'] == 'adaptive mutex'"
	row "$T/o.json" timed_lock "x['timed_out'] == 1 && x['function'] == 'pthread_mutex_timedlock'"
	row "$T/o.json" timed_cond "x['timed_out'] == 1 && x['function'] == 'pthread_cond_timedwait'"
	# a million locks of a free mutex, a thousand of one whose word holds a ceiling, and 2,000 of one's own, are none
	json_is "$T/o.json" "rows.none? { |x| %w[free_lock ceiling_lock].include?(x['symbol']) }"
	json_is "$T/o.json" "r['data_quality']['lost'] == 0 && r['data_quality']['errors'] == 0 && r['totals']['verdict'] == 'waits'"
	json_is "$T/o.json" "rows.sum { |x| x['waits'] } == r['totals']['mutex_waits'] && r['totals']['mutex_open'] == 0"
	# on a busy machine another lock may have been waited for longest
	json_is "$T/o.json" "r['notes'][0].match?(/\A\d+ threads waited .* for the mutex #{rows.select { |x| x['kind'] =~ /mutex/ }.max_by { |x| x['total_ns'] }['symbol']} .* mostly in \w+.* while thread $pid had it/)"
	as_before "$pid" "$before" "after waits of all kinds"
	does storm 4 100
	leaves "$pid"
}

@test "the text is the same table: by scry locks, and by scry report of the recording" {
	local head
	"$SCRY" locks -o "$T/x.scry" -- "$TARGETS/target_contended" hold 3 300 cond 2 100 >"$T/contended.out" 2>"$T/scry.err" 3>&-
	"$SCRY" report "$T/x.scry" >"$T/report.txt"
	"$SCRY" report "$T/x.scry" --json >"$T/report.json"
	as_told "$T/report.json" hold queue_lock
	tail -n 1 "$T/report.txt" | grep -qE "^scry locks: pid [0-9]+, .*; [0-9]+ waits for a mutex that another thread had; "
	no grep "^ *0  " "$T/report.txt"
	"$SCRY" report -v "$T/x.scry" | grep -qE "^ *0  of them not over when the watch ended$"
	sed -n 1p "$T/report.txt" | grep -qE "^3 threads waited .* for the mutex queue_lock"
	grep -qE "^ +3 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0 +mutex +queue_lock +take_queue\+0x[0-9a-f]+ < waits" "$T/report.txt"
	head=$(grep -n "^waits for conditions" "$T/report.txt" | cut -d: -f1)
	[ "$(grep -n " signal_cond " "$T/report.txt" | head -n 1 | cut -d: -f1)" -gt "$head" ]
	[ "$(grep -n " queue_lock  " "$T/report.txt" | tail -n 1 | cut -d: -f1)" -lt "$head" ]
	"$SCRY" report "$T/x.scry" --json --top 1 --grep signal_cond >"$T/some.json"
	json_is "$T/some.json" "rows.empty? && r['conditions'].size == 1"
	"$SCRY" report "$T/x.scry" --view events >"$T/events.txt"
	[ "$(grep -cE " wait +lock=1 .* how=0 " "$T/events.txt")" -eq 3 ]
}

@test "a program that is run by another one, which becomes it" {
	"$SCRY" locks -o "$T/o.json" -- sh -c 'exec sh -c "exec \"$0\" hold 3 200"' "$TARGETS/target_contended" >"$T/contended.out" 3>&-
	as_told "$T/o.json" hold queue_lock
	json_is "$T/o.json" "r['data_quality']['is_complete'] && r['data_quality']['processes'].size == 3"
}

@test "two processes in one report" {
	local one two
	need_root "entering a process that is not a child of scry"
	contended
	one=$PID
	mkfifo "$T/in2"
	exec 7<>"$T/in2"
	start two bash -c 'exec "$@" <"$0" 7>&- 8>&-' "$T/in2" "$TARGETS/target_contended"
	two=$PID
	wait_for 20 in_file "^pid" "$T/two.out"
	locks "$one" -p "$two" -o "$T/o.json"
	scry=$PID
	wait_for 20 hooked "$two"
	does hold 2 200 # meanwhile the other one is followed too
	echo "hold 3 300" >&7
	wait_for 20 in_file "^done hold" "$T/two.out"
	ends_watch "$scry"
	exec 7>&-
	finish "$two"
	json_is "$T/o.json" "rows.to_h { |x| [x['pid'], x['waits']] } == {$one => 2, $two => 3}"
	leaves "$one"
}

@test "nobody waits: no rows, and it says so" {
	"$SCRY" locks --json -- "$TARGETS/target_contended" free 1000000 0 >"$T/both.out" 3>&-
	grep -v "^pid\|^free" "$T/both.out" >"$T/o.json"
	in_file "^free waits 0" "$T/both.out"
	json_is "$T/o.json" "rows.empty? && r['conditions'].empty? && r['totals']['verdict'] == 'quiet' && r['data_quality']['lost'] == 0"
	json_is "$T/o.json" "r['notes'].include?('no thread began to wait for a mutex that another one had')"
}

@test "a deadlock: it says so, and not that less time would help" {
	need_root "entering a process that is not a child of scry"
	cat >"$T/dead.c" <<'C'
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static void *other(void *unused)
{
	pthread_mutex_lock(&two);
	sleep(4);
	pthread_mutex_lock(&one);
	return unused;
}
int main(void)
{
	pthread_t t;

	pthread_create(&t, NULL, other, NULL);
	pthread_mutex_lock(&one);
	puts("ok");
	fflush(stdout);
	sleep(3);
	pthread_mutex_lock(&two);
	return 0;
}
C
	cc -O1 -pthread -o "$T/dead" "$T/dead.c"
	start dead "$T/dead"
	wait_for 10 in_file "^ok" "$T/dead.out"
	scry_ends 0 locks -p "$PID" -d 8s --max-pause 2s --json # the later wait begins after four seconds
	json_is "$T/scry.out" "r['totals']['mutex_open'] == 2 && r['notes'][0].include?('not over: a deadlock')"
	no grep "hold it for less time" "$T/scry.out"
}

@test "threads that waited before scry came: it says that they did, and not that none waits" {
	need_root "entering a process that is not a child of scry"
	start waits "$RUBY" --disable-gems -e '3.times { Thread.new { Queue.new.pop } }; sleep 0.3; puts "ok"; $stdout.flush; sleep'
	wait_for 10 in_file "^ok" "$T/waits.out"
	scry_ends 0 locks -p "$PID" -d 0.3s --json
	json_is "$T/scry.out" "rows.empty? && r['notes'].grep(/^[3-9] threads slept in a lock, a condition variable or another futex before scry came/).size == 1"
	json_is "$T/scry.out" "r['notes'].include?('no thread began to wait for a mutex that another one had')"
}

@test "cancelled while they wait: left, and the next on their stacks are right" {
	local pid
	need_root "entering a process that is not a child of scry"
	contended
	pid=$PID
	locks "$pid" -o "$T/o.json"
	scry=$PID
	does cancel 4 0
	does hold 4 400 # longer than the keeper takes to see that threads have ended
	does cancel 2 0
	does hold 2 400
	ends_watch "$scry"
	as_told "$T/o.json" hold queue_lock
	row "$T/o.json" cancel_cond "x['waits'] == 6 && x['left'] == 6 && x['open'] == 0 && x['mean_ns'].nil?"
	leaves "$pid"
}

@test "who waits still when scry leaves is open, and gets the mutex when it is free" {
	local pid before
	need_root "entering a process that is not a child of scry"
	contended
	pid=$PID
	before=$(text "$pid")
	locks "$pid" -o "$T/o.json"
	scry=$PID
	does stay 1 1
	ends_watch "$scry"
	row "$T/o.json" stay_lock "x['waits'] == 1 && x['open'] == 1 && x['total_ns'] > 0 && x['total_ns'] == x['max_ns']"
	json_is "$T/o.json" "r['notes'].any? { |n| n.match?(/1 thread waited still for a mutex .* stay_lock/) }"
	text_is "$pid" "$before"
	does stay 1 0
	does hold 2 50
	leaves "$pid"
}

@test "SIGKILL of scry while a thread waits: it goes on, computes right, and all is undone" {
	local pid before keeper who
	need_root "entering a process that is not a child of scry"
	contended
	pid=$PID
	before=$(state_of "$pid")
	for who in front keeper both; do
		locks "$pid" -o "$T/$who.scry"
		scry=$PID
		wait_for 20 hooked "$pid"
		keeper=$(keeper_of "$scry")
		does stay 1 1
		[ $who = keeper ] || kill -KILL "$scry"
		[ $who = front ] || kill -KILL "$keeper"
		wait "$scry" || true
		wait_for 10 is_gone "$keeper"
		does storm 4 200 # hooks may stand still, and nobody listens
		does stay 1 0
		does cond 2 50
		undo "$pid"
		as_before "$pid" "$before" "the $who was killed"
		does storm 4 100
	done
	leaves "$pid"
	[ "$(grep -c "^storm right" "$T/contended.out")" -eq 6 ]
}

@test "a static program of glibc; others than glibc's mutexes are refused with the reason" {
	[ -x "$TARGETS/target_contended_static" ] || skip "no static programs with this toolchain"
	[ -x "$TARGETS/target_contended_musl" ] || skip "no musl-gcc"
	"$SCRY" locks -o "$T/o.json" -- "$TARGETS/target_contended_static" hold 3 300 cond 2 100 >"$T/contended.out" 3>&-
	as_told "$T/o.json" hold queue_lock
	scry_ends 125 locks -- "$TARGETS/target_contended_musl" hold 2 10
	says "only mutexes of glibc are known, and it has musl's; fix: "
	in_file "^hold waits 2" "$T/scry.out" # it ran all the same
	scry_ends 125 locks -- "$TARGETS/target_contended_musl_static" hold 2 10
	says "only mutexes of glibc are known"
}

@test "a dry run touches nothing; what makes no sense is refused" {
	local pid before
	contended
	pid=$PID
	before=$(state_of "$pid")
	scry_ends 0 locks -p "$pid" --dry-run
	in_file "the entry of pthread_mutex_lock in " "$T/scry.out"
	in_file "the entry of pthread_cond_wait in " "$T/scry.out"
	is_as "$pid" "$before"
	scry_ends 2 locks
	scry_ends 2 locks -p "$pid" -w 65
	says "at most 64 frames"
	scry_ends 2 locks -p "$pid" -o "$T/x.folded"
	leaves "$pid"
}
