#!/usr/bin/env bats
# No room for the recording: the program that is watched does not notice; what was written is a
# shorter recording which can be read; the end says so.

load lib

teardown() {
	end_started
	[ ! -d "$T/small" ] || umount "$T/small" 2>/dev/null || true
}

# After a watch of counted.rb, pid $1, whose recording $2 could not grow: status $3, talk in $T/err.
is_short_but_whole() {
	local ruby=$1 file=$2 status=$3
	cat "$T/err"
	kill -0 "$ruby"
	[ "$status" -ne 0 ]
	[ "$status" -lt 126 ]
	grep -qiE "no space|ulimit -f is reached|largest size" "$T/err"
	scry_ends 0 info "$file"
	scry_ends 0 report "$file"
	scry_ends 0 report "$file" --json
	json_is "$T/scry.out" 'r["data_quality"]["lost"] > 0 || r["data_quality"]["torn"]'
	scry_ends 0 report "$file" --view events
	[ "$(mappings "$ruby")" -le 3 ]
	"$SCRY" undo -p "$ruby"
	kill -TERM "$ruby"
	finish "$ruby"
	tail -1 "$T/counted.out" | grep -q "^rounds [0-9]"
}

@test "a full disk while every event is recorded" {
	need_root "mounting a small tmpfs"
	mkdir "$T/small"
	mount -t tmpfs -o size=1m tmpfs "$T/small" || skip "no tmpfs may be mounted here"
	counted
	before=$(text "$PID")
	status=0
	"$SCRY" objects --raw -p "$PID" -d 1s -o "$T/small/full.scry" >"$T/out" 2>"$T/err" || status=$?
	text_is "$PID" "$before"
	is_short_but_whole "$PID" "$T/small/full.scry" "$status"
}

@test "a limit on the size of files while every event is recorded" {
	counted
	status=0
	(
		ulimit -f 1024 # KiB
		exec "$SCRY" objects --raw -p "$PID" -d 1s -o "$T/limit.scry" >"$T/out" 2>"$T/err"
	) || status=$?
	is_short_but_whole "$PID" "$T/limit.scry" "$status"
}

@test "a full disk from the beginning" {
	need_root "mounting a small tmpfs"
	mkdir "$T/small"
	mount -t tmpfs -o size=64k tmpfs "$T/small" || skip "no tmpfs may be mounted here"
	dd if=/dev/zero of="$T/small/filler" bs=4k 2>/dev/null || true
	counted
	status=0
	"$SCRY" objects -p "$PID" -d 0.3s -o "$T/small/o.scry" >"$T/out" 2>"$T/err" || status=$?
	cat "$T/err"
	[ "$status" -ne 0 ]
	[ "$status" -lt 126 ]
	grep -qi "no space" "$T/err"
	"$SCRY" undo -p "$PID"
	[ "$(mappings "$PID")" -eq 0 ]
	kill -TERM "$PID"
	finish "$PID"
}

@test "a full disk at the end, where all is written at once" {
	need_root "mounting a small tmpfs"
	mkdir "$T/small"
	mount -t tmpfs -o size=64k tmpfs "$T/small" || skip "no tmpfs may be mounted here"
	dd if=/dev/zero of="$T/small/filler" bs=4k count=13 2>/dev/null
	start threads "$RUBY" -e '60.times { Thread.new { loop { sleep 0.01 } } }; puts "pid"; $stdout.flush; sleep'
	wait_for 20 in_file "^pid" "$T/threads.out"
	status=0
	"$SCRY" gvl -p "$PID" -d 0.5s -o "$T/small/end.scry" >"$T/out" 2>"$T/err" || status=$?
	cat "$T/err"
	[ "$status" -eq 1 ]
	grep -q "^scry: cannot write the recording: No space" "$T/err"
	[ "$(tail -1 "$T/err")" = "scry: the recording lacks its end" ]
}

@test "--max-size is kept, and the report says what is missing" {
	counted
	"$SCRY" objects --raw --max-size 1MiB -p "$PID" -d 1s -o "$T/max.scry" >"$T/out" 2>"$T/err" || true
	cat "$T/err"
	[ "$(stat -c %s "$T/max.scry")" -le 1048576 ]
	scry_ends 0 report "$T/max.scry" --json
	json_is "$T/scry.out" 'r["data_quality"]["lost"] > 0'
}

# A program whose calls of malloc $1 has no room for: as much as fits is there, the rest is counted.
mallocs_are_cut() {
	local file=$1 of unwritten
	shift
	status=0
	"$SCRY" malloc record -v "$@" -o "$file" -- /usr/bin/python3 -c 'if True:
		import random
		random.seed(1)
		for i in range(200000):
			bytes(600 + random.randrange(3000))
		raise SystemExit(7)' >"$T/out" 2>"$T/err" || status=$?
	cat "$T/err"
	[ "$(stat -c %s "$file")" -gt 70000 ]
	grep -q "watch goes on to its end" "$T/err"
	of=$(sed -nE 's/.*: ([0-9]+) calls, .*/\1/p' "$T/err")
	unwritten=$(sed -nE 's/.* ([0-9]+) calls not written.*/\1/p' "$T/err")
	[ "$of" -gt 400000 ]
	scry_ends 0 report "$file" --json
	json_is "$T/scry.out" "r['functions'].sum { |f| f['calls'] } == $of - $unwritten"
	json_is "$T/scry.out" "(0..100) === r['data_quality']['lost'] - $unwritten"
	json_is "$T/scry.out" 'r["notes"][0].start_with?("the recording is cut")'
	json_is "$T/scry.out" 'r["totals"]["verdict"] == "unknown"'
}

@test "calls of malloc beyond --max-size, and the program's own status" {
	mallocs_are_cut "$T/max.scry" --max-size 100k
	[ "$status" -eq 7 ]
	[ "$(stat -c %s "$T/max.scry")" -le 102400 ]
}

# Each call is an entry and a return; of each chunk that was not written all events are counted.
@test "two instruments beyond --max-size: both watch to the end, and what is not written is counted" {
	printf '%s\n' '#include <stdlib.h>' '#include <unistd.h>' '__attribute__((noipa)) void f(void *p) { (void)p; }' \
		'int main(void) { for (int i = 0; i < 60000; i++) { void *p = malloc(100); f(p); free(p);' \
		'if (i % 600 == 0) usleep(5000); } }' >"$T/big.c"
	cc -O1 -g -o "$T/big" "$T/big.c"
	scry_ends 0 record --max-size 300k -e malloc,calls -x f -o "$T/max.scry" -- "$T/big"
	scry_ends 0 report --section malloc --json "$T/max.scry"
	json_is "$T/scry.out" '(120_000..120_100) === r["data_quality"]["events"] &&
	  (0..100) === r["data_quality"]["lost"] + (r["functions"] || []).sum { |f| f["calls"] } - 120_000'
	scry_ends 0 report --section calls --json "$T/max.scry"
	"$RUBY" --disable=gems -rjson -e '*calls, last = $stdin.each_line.map { |l| JSON.parse(l) }
	  data_quality = last["data_quality"]
	  puts calls.size, data_quality
	  exit (0..2000) === data_quality["lost"] - 2 * (60_000 - calls.size) && data_quality["watched_ns"] > 500_000_000' <"$T/scry.out"
}

@test "calls of malloc beyond a full disk: scry has failed, and says how the program ended" {
	need_root "mounting a small tmpfs"
	mkdir "$T/small"
	mount -t tmpfs -o size=100k tmpfs "$T/small" || skip "no tmpfs may be mounted here"
	mallocs_are_cut "$T/small/full.scry"
	[ "$status" -eq 125 ]
	grep -q "lacks its end; the program ended with status 7" "$T/err"
}

@test "a report to a full disk" {
	[ -e /dev/full ] || skip "no /dev/full"
	target busy 2
	status=0
	"$SCRY" patch count work_mix -p "$PID" -d 0.1s >/dev/full 2>"$T/err" || status=$?
	cat "$T/err"
	[ "$status" -eq 1 ]
	grep -qi "no space" "$T/err"
	ends_right "$PID" busy
}

@test "a list, and calls as text, to a full disk" {
	[ -e /dev/full ] || skip "no /dev/full"
	printf '%s\n' "scry-malloc 1 pid 1" "thread thread=1 tid=1 name=main" @1 "1: malloc(24) = 0" >"$T/a.txt"
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	for words in ps doctor --help --version "undo -p $$" "malloc export $T/a.scry" "patch list -p $$"; do
		status=0
		# shellcheck disable=SC2086
		"$SCRY" $words >/dev/full 2>"$T/err" || status=$?
		echo "scry $words: $status"
		[ "$status" -eq 1 ]
		grep -q "cannot write .*: No space left on device" "$T/err"
	done
	status=0
	counted
	"$SCRY" dump -p "$PID" >/dev/full 2>"$T/err" || status=$?
	[ "$status" -eq 1 ]
	status=0
	{ "$SCRY" --help 2>"$T/err" || status=$?; } | true
	[ ! -s "$T/err" ] # whoever reads no more is told nothing
}

@test "a program that may not make large files is watched all the same" {
	start limited bash -c 'ulimit -f 64; echo pid; exec sleep 60'
	wait_for 10 in_file "^pid" "$T/limited.out"
	scry_ends 0 patch count getppid -p "$PID" -d 0.1s
	[ "$(mappings "$PID")" -eq 0 ]
	kill "$PID"
	status=0
	wait "$PID" || status=$?
	[ "$status" -eq 143 ] # by our signal, and by no other before
}

@test "a report that does not fit a full disk: it says so, and not that input or output failed" {
	[ -e /dev/full ] || skip "no /dev/full"
	target busy 2
	scry_ends 0 patch log work_mix -p "$PID" -d 0.1s -o "$T/log.scry"
	ends_right "$PID" busy
	for words in "report --view events" "report --json" "report --top 0"; do
		status=0
		# shellcheck disable=SC2086
		"$SCRY" $words "$T/log.scry" >/dev/full 2>"$T/err" || status=$?
		[ "$status" -eq 1 ]
		grep -q "cannot write .*: No space left on device" "$T/err"
	done
	need_root "mounting a small disk"
	mkdir "$T/small"
	mount -t tmpfs -o size=64k none "$T/small" || skip "no small disk can be mounted"
	scry_ends 1 report --view events "$T/log.scry" -o "$T/small/x.txt"
	says "cannot write .*: No space left on device"
	[ -z "$(ls -A "$T/small")" ]
}
