#!/usr/bin/env bats
# Programs that serve files of their own memory (served.c): who reads of such a file while all their threads stand waits
# for ever, and so do they.

source "$BATS_TEST_DIRNAME/looks.bash"

# served KIND ARGS...: scry ARGS at such a program, which goes on. It ends with $ENDS.
served() {
	local kind=$1 rounds got=0
	shift
	mkdir -p "$THEIRS/mount"
	start served "$TARGETS/target_served" "$kind" "$TARGETS/libwork.so" "$THEIRS/mount"
	wait_for 20 in_file . "$T/served.out"
	! in_file "no file system" "$T/served.out" || skip "$(cat "$T/served.out")"
	wait_for 20 in_file "^pid" "$T/served.out"
	timeout -s KILL 60 "$SCRY" "$@" -p "$PID" >"$T/out" 2>"$T/err" 3>&- || got=$?
	cat "$T/out" "$T/err"
	[ "$got" -eq "${ENDS:-0}" ]
	rounds=$(grep -c round "$T/served.out") || true
	wait_for 20 more_rounds "$rounds"
	kill -KILL "$PID"
	finish "$PID" || true
}

more_rounds() {
	[ "$(grep -c round "$T/served.out")" -gt "$(($1 + 1))" ]
}

@test "code of a file that the program serves itself is changed, and put back" {
	served code patch count work_fold -d 0.1s
	others_go_on
}

@test "a stack in a file that the program serves itself" {
	served stack patch count work_fold -d 0.1s
	others_go_on
}

@test "files of a server that answers no more: what is in memory is shown, and the file is named" {
	served dead fibers --json
	json_is "$T/out" "r['totals']['suspended'] == 1 && r['notes'].any? { |x| x.include?('/mount/lib.so') && x.include?('does not answer') }"
	served dead patch count usleep -d 0.3s
	in_file "^usleep has 100.0 %" "$T/out"
	ENDS=4 served dead patch count work_fold -d 0.3s
	in_file "no loaded object of process .* cannot be read: its server does not answer" "$T/err"
	others_go_on
}
