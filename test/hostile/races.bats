#!/usr/bin/env bats
# Programs that work against the one who enters them. scry is root here, they are not: it may refuse, or work, but
# never write where they may only read, nor end by them.

load ../cli/lib

setup() {
	need_targets
	command -v strace >/dev/null || skip "strace is not installed: run make deps"
	need_root "entering a process of another user"
	prepare
	truncate -s 600M "$T/victim" # as large as the largest of our mappings; holes are read fast
	chmod 444 "$T/victim"
	exec 7<"$T/victim"
	before=$(digest)
}

# Of the victim's beginning, where what scry writes first would be.
digest() {
	head -c 16M "$T/victim" | sha256sum
}

# races MODE ARGS...: scry with ARGS against a racer, three times. Each call by which scry could be deceived takes it
# some ms, so that the racer is always in time, on any machine.
races() {
	local mode=$1 i status
	shift
	for i in 1 2 3; do
		start racer setpriv --reuid=65534 --regid=65534 --clear-groups "$TARGETS/target_racer" "$mode" 7
		wait_for 10 in_file "^pid" "$T/racer.out"
		status=0
		strace -f -o "$T/strace" -e trace=openat,pidfd_getfd,ftruncate,fcntl \
			-e inject=openat,pidfd_getfd,ftruncate,fcntl:delay_enter=3000 "$SCRY" "$@" -p "$PID" >"$T/out" 2>"$T/err" 3>&- || status=$?
		echo "try $i: $status $(tail -1 "$T/err")"
		[ "$(digest)" = "$before" ] || {
			echo "the file was written"
			return 1
		}
		[ "$status" -lt 126 ]
		kill -TERM "$PID"
		wait "$PID" || true # it may have run into its own mappings
	done
}

@test "another file mapped over the shared pages: ring, counters, tables" {
	races maps calls -x getppid -f -w 9 -d 0.1s
}

@test "another file in the place of the shared memory's descriptor" {
	races descriptors patch count getppid -d 0.1s
}

@test "shared memory that changes its size" {
	races sizes patch count getppid -d 0.1s
}
