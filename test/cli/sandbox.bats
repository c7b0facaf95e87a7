#!/usr/bin/env bats
# Programs that forbid themselves system calls while they are watched (test/targets/sandbox.c): one of the agent's would
# end them.

source "$BATS_TEST_DIRNAME/lib.bash"

SUM=1034458739526206672 # of 20,000 rounds, three times

# boxed HOW SCRY ARGS...: watches a sandbox from before its filter to its end.
boxed() {
	local how=$1
	shift
	mkfifo "$T/$how.in"
	exec 8<>"$T/$how.in"
	start sandbox bash -c 'exec "$@" <"$0" 8>&-' "$T/$how.in" "$TARGETS/target_sandbox" "$how" 20000
	wait_for 20 in_file "^pid" "$T/sandbox.out"
	"$SCRY" "$@" -v -p "$PID" >"$T/scry.out" 2>"$T/scry.err" 8>&- 3>&- &
	local scry=$!
	wait_for 20 hooked "$PID"
	echo go >&8
	if [[ "$how" = bare* ]]; then
		wait_for 20 in_file "^filtered\|^no filters" "$T/sandbox.out"
		grep -q "^no filters" "$T/sandbox.out" || wait_for 20 in_file "under seccomp" "$T/scry.err"
		echo on >&8
	fi
	ended "$PID"
	wait "$scry"
	grep -q "no filters here" "$T/sandbox.out" && skip "no seccomp filters here"
	[ "$status" -eq 0 ] || { echo "$how, scry $*: ended with $status"; false; }
	[ "$(tail -1 "$T/sandbox.out")" = "ok $SUM" ]
	exec 8>&-
}

@test "log: the tid comes from the thread's control block, and no thread waits by a system call" {
	for how in none prctl syscall syscall-all bare bare-all; do
		boxed "$how" patch log work_fold@libwork.so
		grep -q "60,000 calls, 0 lost, 0 errors" "$T/scry.err"
		[ "$(awk '{print $2}' "$T/scry.out" | sort -u | wc -l)" -eq 3 ]
		[ "$how" = none ] || grep -q "put itself under seccomp" "$T/scry.err"
	done
}

@test "calls with stacks" {
	for how in none prctl syscall-all bare-all; do
		boxed "$how" calls -x work_fold@libwork.so -w 8
		grep -q "60,000 calls, 0 lost, 0 errors" "$T/scry.err"
		[ "$how" = none ] || grep -q "put itself under seccomp" "$T/scry.err"
	done
}

@test "malloc with stacks, and large blocks" {
	for how in none prctl syscall-all bare-all; do
		boxed "$how" malloc record --stack=8 --force -o "$T/m.scry"
		"$SCRY" report "$T/m.scry" --json >"$T/m.json"
		jq -e '.data_quality.lost == 0 and .totals.allocated >= 60000 and .totals.threads == 3' "$T/m.json" || {
			jq -c "\"$how\", .data_quality, .notes, .totals" "$T/m.json"
			return 1
		}
		[ "$how" = none ] || jq -e '.notes[] | select(test("put itself under seccomp"))' "$T/m.json"
	done
}

@test "a program that may not even map memory any more is left without a call in it" {
	boxed_out=$T/sit.in
	mkfifo "$boxed_out"
	exec 8<>"$boxed_out"
	start sandbox bash -c 'exec "$@" <"$0" 8>&-' "$boxed_out" "$TARGETS/target_sandbox" sit
	wait_for 20 in_file "^pid" "$T/sandbox.out"
	before=$(text "$PID")
	"$SCRY" patch log work_fold@libwork.so -p "$PID" >"$T/scry.out" 2>"$T/scry.err" 8>&- 3>&- &
	scry=$!
	wait_for 20 hooked "$PID"
	echo go >&8
	wait_for 20 in_file "^sits" "$T/sandbox.out"
	kill -INT "$scry"
	wait "$scry" || true
	text_is "$PID" "$before"
	grep -q "of the agent stay mapped in process" "$T/scry.err" || { cat "$T/scry.err"; false; }
	run "$SCRY" patch log work_fold@libwork.so -p "$PID"
	[ "$status" -ne 0 ]
	[[ "$output" == *seccomp* ]]
	echo on >&8
	ended "$PID"
	[ "$status" -eq 0 ]
	grep -q "^ok" "$T/sandbox.out"
}

@test "one thread's filter is enough to be refused" {
	start sandbox "$TARGETS/target_odd" seccomp
	wait_for 10 grep -qE "^(round|ok|pid)" "$T/sandbox.out"
	run "$SCRY" patch count work_fold -p "$PID"
	[[ "$output" == *seccomp* ]]
}
