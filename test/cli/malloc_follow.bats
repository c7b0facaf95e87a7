#!/usr/bin/env bats
# scry malloc record -f: children, each as a part of its own, with the blocks that it has of its parent. What each of them
# calls is the same in each run, and no end of a block is unknown.

load lib
load malloc

records() {
	"$SCRY" malloc record -f -v --force -o "$T/x.scry" -- "$@" >"$T/out" 2>"$T/err" || {
		cat "$T/err"
		return 1
	}
	"$SCRY" info "$T/x.scry" | grep -q " 0  damaged events"
}

@test "children, and theirs, free what they have of their parents" {
	local whole=0 # of three at least one; of the others it is said that they are not
	for i in 1 2 3; do
		records "$TARGETS/target_malloc_family"
		grep -qx "right" "$T/out"
		parts >"$T/parts.$i"
		# where the machine stood still for longer than the lease, that is told
		"$SCRY" info "$T/x.scry" | head -1 | grep -q " 0 lost," || continue
		whole=$((whole + 1))
		# the first process has threads; each of its children frees 300 blocks of it, and has a child that frees 100
		[ "$(grep -c "^300 calls 0 0$" "$T/parts.$i")" -eq 8 ]
		[ "$(grep -c "^100 calls 0 0$" "$T/parts.$i")" -eq 8 ]
		[ "$(grep -c "calls 0 0$" "$T/parts.$i")" -eq 17 ]
	done
	[ "$whole" -gt 0 ]
	# and who reads it knows them
	"$SCRY" report --json "$T/x.scry" >"$T/o.json"
	local pid
	pid=$(json "$T/o.json" 'r["processes"].find { |p| p["calls"] == 300 }["pid"]')
	"$SCRY" malloc export -p "$pid" "$T/x.scry" >"$T/child.txt"
	no grep -F "(?" "$T/child.txt"
	[ "$(grep -c ": older(" "$T/child.txt")" -ge 300 ]
	[ "$(grep -c ": free(" "$T/child.txt")" -eq 300 ]
	"$SCRY" report --json --pid "$pid" "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" 'r["totals"]["unknown_ends"] == 0 && r["totals"]["older_blocks"] >= 300'
	json_is "$T/o.json" 'r["totals"]["allocator"].start_with?("glibc")'
}

# One recording of the script: all blocks have a beginning, and the counts are those of the one before.
script_is_whole() {
	records "$T/script" || return 2
	[ "$(cat "$T/out")" = "sub
end" ] || return 2
	parts >"$T/parts"
	! grep -v "calls 0 0$" "$T/parts" || return 2
	[ -e "$T/parts.1" ] || cp "$T/parts" "$T/parts.1"
	cmp "$T/parts.1" "$T/parts" || return 2
}

# Two of three: a subshell may exec while its own parent stands in a stop that the keeper is to end, and then its fork is
# not merged in time: the few blocks that it has of its parent and frees are counted as unknown, which the report says.
@test "a script, its subshells and what it runs" {
	cat >"$T/script" <<-'END'
		#!/bin/bash
		for i in 1 2 3; do x=$(sort /etc/passwd | head -2); done
		(y=1; echo sub)
		echo end
	END
	chmod +x "$T/script"
	most_hold 2 3 script_is_whole
	"$SCRY" report "$T/x.scry" >"$T/report"
	grep -q "/head" "$T/report"
	grep -q "/sort" "$T/report"
	no grep "damaged\|late" "$T/report"
}

@test "children of a live process: left as they were" {
	need_root "entering a process that is not a child of scry"
	target malloc_family run
	local before
	before=$(text "$PID")
	scry_ends 0 malloc record -f -v -p "$PID" -d 1s -o "$T/x.scry"
	cp "$T/scry.err" "$T/err"
	[ "$(parts | wc -l)" -gt 2 ]
	text_is "$PID" "$before"
	for child in $(pgrep -P "$PID"); do
		wait_for 5 bash -c "[ ! -e /proc/$child ] || ! '$SCRY' ps | grep -w '^ *$child' | grep -q watched"
	done
	ends_right "$PID" malloc_family
	grep -qx right "$T/malloc_family.out"
}

@test "a child that is still in fork when the watch ends returns from it" {
	need_root "entering a process that is not a child of scry"
	target odd atfork
	local odd=$PID before scry
	before=$(text "$odd")
	start scry "$SCRY" malloc record -f -p "$odd" -o "$T/x.scry"
	scry=$PID
	wait_for 20 watched "$odd"
	kill -USR1 "$odd"
	wait_for 10 in_file "^child in fork" "$T/odd.out"
	ends_watch "$scry"
	wait_for 10 in_file "^child ended" "$T/odd.out"
	grep -qx "child ended 0" "$T/odd.out"
	text_is "$odd" "$before"
	ends_right "$odd" odd
}

@test "a signal handler forks in the midst of a call, and its child returns into it" {
	local how
	for how in "malloc record" "malloc record --stack" "malloc record -f" "malloc record --preload -f" "calls -c -x malloc -f"; do
		start scry "$SCRY" $how --force -o "$T/x.scry" -- "$TARGETS/target_odd" sigfork 40
		wait_for 60 grep -qE "^(sigfork right|wrong)" "$T/scry.out"
		kill -TERM "$(sed -n 's/^pid //p' "$T/scry.out")"
		finish "$PID" || true # its status is the program's, if that was wrong
		! grep "^wrong" "$T/scry.out" || {
			echo "by scry $how"
			return 1
		}
		grep -qx "sigfork right" "$T/scry.out"
	done
}

@test "children that end without a call cost no memory" {
	local small keeper
	start scry "$SCRY" malloc record -f --force -o "$T/x.scry" -- "$TARGETS/target_malloc_forks" 200000 60
	wait_for 20 in_file "^made" "$T/scry.out"
	keeper=$(keeper_of "$PID")
	sleep 1 # what it made is read
	small=$(awk '/^VmRSS/ { print $2 }' "/proc/$keeper/status")
	wait_for 60 in_file "^forked" "$T/scry.out"
	wait_for 10 bash -c "[ \$(awk '/^VmRSS/ { print \$2 }' /proc/$keeper/status) -lt $((small + 100000)) ]" # else 3 MiB each
	kill -TERM "$(pgrep -P "$PID" -f "^$TARGETS/target_malloc_forks")"
	finish "$PID"
	"$SCRY" info "$T/x.scry" | head -1 | grep -q " 0 lost, 0 errors"
}

# exported PID: calls in its text.
exported() {
	"$SCRY" malloc export "$T/x.scry" --pid "$1" 2>"$T/scry.err" | grep -cE "(malloc|free)\("
}

@test "children that are idle for long: export has what report shows" {
	local pid
	records "$TARGETS/target_malloc_forks" 1000 300 50
	grep -qx right "$T/out"
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	jq -r '.processes[] | select(.calls == 50) | .pid' "$T/report" | sort -n >"$T/pids"
	[ "$(wc -l <"$T/pids")" -ge 100 ] # of 300: where the machine stands still lanes run out
	for pid in $(head -3 "$T/pids") $(tail -3 "$T/pids"); do
		[ "$(exported "$pid")" -eq 50 ]
	done
}

@test "children that are idle for long: no more memory than --memory has, which is said" {
	local pid
	scry_ends 0 malloc record -f --force --memory 16M -o "$T/x.scry" -- "$TARGETS/target_malloc_forks" 200000 40 50
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	jq -r '.processes[] | select(.calls == 50) | .pid' "$T/report" | sort -n >"$T/pids"
	[ "$(wc -l <"$T/pids")" -eq 40 ]
	jq -r '.notes[]' "$T/report" | grep -q "waited for their first call of malloc than --memory has room for"
	for pid in $(head -2 "$T/pids") $(tail -2 "$T/pids"); do
		[ "$(exported "$pid")" -eq 50 ]
	done
}

# They have ended before anybody has read what they had mapped: it is what their parent has.
@test "who called has a name in children that end at once, or exec" {
	records sh -c 'i=0; while [ $i -lt 30 ]; do (x=$i; cd /); (cd /; exec cat /dev/null); i=$((i + 1)); done'
	"$SCRY" report "$T/x.scry" --view events --json >"$T/events"
	[ "$(jq -s 'map(select(.event == "caller") | .pid) | unique | length' "$T/events")" -ge 30 ]
	[ "$(jq -c 'select(.event == "caller" and (.module | startswith("[")))' "$T/events" | wc -l)" -eq 0 ]
}

# On a busy machine a child has run on to its next program before its fork is merged, or its lane looked at.
@test "children that exec before their parent's fork is known have their parent's blocks" {
	for i in 1 2 3; do start "loop$i" bash -c 'while :; do :; done'; done
	for _ in $(seq "$(share 3 30)"); do
		scry_ends 0 malloc record -v -f --force -o "$T/x.scry" -- bash -c \
			'for i in $(seq 30); do /bin/true; (exec /bin/true); x=$(/bin/echo a | /bin/cat); done'
		[ "$(grep -c " 0 ends of unknown blocks" "$T/scry.err")" -ge 150 ]
		no grep -E " [1-9][0-9,]* ends of unknown blocks" "$T/scry.err"
	done
}

@test "children of a process that never called malloc are whole" {
	records "$TARGETS/target_malloc_crowd" 10
	parts >"$T/parts"
	[ "$(grep -c "^150 calls 0 0$" "$T/parts")" -eq 10 ]
	"$SCRY" report --json --top 0 "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" 'r["data_quality"]["is_complete"] && r["data_quality"]["events"] == 1500'
	json_is "$T/o.json" 'r["processes"].sum { |p| p["calls"] } == 1500'
}

@test "more children at once than there are lanes: line two and JSON say how many are missing" {
	records "$TARGETS/target_malloc_crowd" 100
	"$SCRY" report --json "$T/x.scry" >"$T/o.json"
	"$SCRY" report "$T/x.scry" >"$T/o.txt"
	# children that end give their buffers back, but all live at once here
	sed -n 2p "$T/o.txt" | grep -qx "incomplete: 36 processes missing"
	json_is "$T/o.json" '!r["data_quality"]["is_complete"] && r["data_quality"]["missing_processes"] == 36'
	json_is "$T/o.json" 'r["data_quality"]["events"] == 64 * 150'
	grep -q "36 fork children were not watched: all child buffers that there is room for were taken" "$T/o.txt"
}

@test "without -f it is said that there were children" {
	"$SCRY" malloc record -o "$T/x.scry" -- "$TARGETS/target_malloc_family" >/dev/null
	"$SCRY" report "$T/x.scry" | grep "had child processes, which are not in this recording; fix: -f"
}

@test "of several processes: which one is shown is said, and which there are" {
	records "$TARGETS/target_malloc_family"
	local most other
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	most=$(jq .totals.pid "$T/report")
	other=$(jq -r '.data_quality.processes[].pid' "$T/report" | grep -vx "$most" | head -1)
	"$SCRY" report "$T/x.scry" | grep -q "not above: .* and 1[0-9] more; --pid PID shows another one"
	[ "$("$SCRY" report "$T/x.scry" --pid "$other" --json | jq .totals.pid)" -eq "$other" ]
	"$SCRY" malloc export "$T/x.scry" >"$T/text" 2>"$T/scry.err"
	says "process $most is written, with most calls; --pid PID for another: [0-9]+ \\(300 calls\\).* and [0-9]+ more"
	grep -q "^scry-malloc 1 pid $most" "$T/text"
	"$SCRY" malloc export "$T/x.scry" --pid "$other" 2>"$T/scry.err" | grep -q "^scry-malloc 1 pid $other"
	[ ! -s "$T/scry.err" ]
	scry_ends 1 report "$T/x.scry" --pid 4194304
	says "process 4194304 is not in this recording.*fix: --pid PID, of .*$most"
	scry_ends 1 malloc export "$T/x.scry" --pid 4194304
	says "process 4194304 has no calls.*fix: --pid PID, of $most \\("
}
