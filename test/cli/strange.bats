#!/usr/bin/env bats
# Processes in which threads are not all there is, memory is not where it was, or is limited: strange.c. They are entered
# without harm, or refused with the reason.

load lib

setup() {
	need_targets
	need_root "entering any process"
	prepare
}

# refused SITUATION PATTERN: it goes on, and says why it is not entered, dry or not.
refused() {
	target strange "$1"
	! grep -q "^none here" "$T/strange.out" || skip "this kernel has no such thing"
	scry_ends 4 patch count strange_add -p "$PID" -d 0.1s
	says "$2"
	[ "$(mappings "$PID")" -eq 0 ]
	ends_right "$PID" strange
}

@test "a process that shares the memory and is no thread: refused, as it could not be stopped" {
	target strange clone
	for verb in count time; do
		scry_ends 4 patch "$verb" strange_add -p "$PID" -d 0.1s
		says "process [0-9]+ has the same memory .*clone with CLONE_VM"
	done
	scry_ends 4 patch count strange_add -p "$PID" --dry-run
	says "has the same memory"
	ends_right "$PID" strange
}

@test "vfork after vfork: waited for, and entered" {
	target strange vforks
	scry_ends 0 patch count strange_add -p "$PID" -d 0.3s -o "$T/o.json"
	json_is "$T/o.json" 'rows[0]["calls"] > 1000'
	ends_right "$PID" strange
}

@test "system calls that are dispatched to the program itself: refused" {
	printf '6.4\n%s\n' "$(uname -r)" | sort -CV || skip "before Linux 6.4 the kernel does not tell"
	refused dispatch "dispatches its own system calls"
}

@test "one thread that dispatches its system calls, not the one that scry holds: refused, nothing stays" {
	printf '6.4\n%s\n' "$(uname -r)" | sort -CV || skip "before Linux 6.4 the kernel does not tell"
	refused one "dispatches its own system calls .*thread [0-9]+"
	target strange one
	for verb in "calls -c -x snprintf" "patch log strange_add" "malloc record -o $T/m.scry"; do
		# shellcheck disable=SC2086
		scry_ends 4 $verb -p "$PID" -d 0.3s
		says "dispatches its own system calls"
		[ "$(mappings "$PID")" -eq 0 ]
	done
	goes_on "$T/strange.out"
	ends_right "$PID" strange
}

@test "a thread that dispatches its system calls later: the agent makes none from then on" {
	local scry target
	printf '6.4\n%s\n' "$(uname -r)" | sort -CV || skip "before Linux 6.4 the kernel does not tell"
	for functions in snprintf "snprintf -x prctl"; do
		rm -f "$T/strange.out"
		target strange later
		target=$PID
		# shellcheck disable=SC2086
		traces "$target" -v -c -x $functions
		scry=$PID
		kill -USR1 "$target"
		wait_for 10 in_file "^dispatches\|^none here" "$T/strange.out"
		! grep -q "^none here" "$T/strange.out" || skip "this kernel has no such thing"
		wait_for 10 in_file "Syscall User Dispatch" "$T/scry.err"
		goes_on "$T/strange.out"
		kill -INT "$scry"
		finish "$scry"
		goes_on "$T/strange.out"
		ends_right "$target" strange
	done
}

@test "an address space that is limited: refused where too little would be left, with what mends it" {
	refused limited "may map no more than [0-9]+ MiB .RLIMIT_AS.*prlimit --pid [0-9]+ --as=unlimited"
}

# Makes a control group with a limit of memory, in $GROUP; $LIMIT is the file that has it.
memory_group() {
	for LIMIT in memory.max memory.limit_in_bytes; do
		for GROUP in "/sys/fs/cgroup/scry-test-$$" "/sys/fs/cgroup/memory/scry-test-$$"; do
			mkdir "$GROUP" 2>/dev/null || continue
			[ -w "$GROUP/$LIMIT" ] && return 0
			rmdir "$GROUP"
		done
	done
	return 1
}

@test "a control group whose memory is nearly used up: refused, with what mends it" {
	memory_group || skip "no right to make a control group with a limit of memory"
	target strange
	echo "$PID" >"$GROUP/cgroup.procs"
	echo 8M >"$GROUP/$LIMIT"
	scry_ends 4 patch log strange_add -p "$PID" -d 0.1s
	says "the control group of process $PID has [0-8] MiB left until its limit of memory.*fix: a higher memory.max"
	echo 28M >"$GROUP/$LIMIT" # enough for one ring, not for two
	scry_ends 0 patch log strange_add -p "$PID" -d 0.1s -o "$T/one.scry"
	scry_ends 4 record -e malloc,calls -x strange_add -p "$PID" -d 0.1s -o "$T/y.scry"
	says "MiB left until its limit of memory, of which scry may take 16"
	echo 200M >"$GROUP/$LIMIT"
	scry_ends 0 patch log strange_add -p "$PID" -d 0.1s -o "$T/x.scry"
	ends_right "$PID" strange
	wait_for 5 rmdir "$GROUP"
}

# moves SITUATION: its function's page is put elsewhere while it is hooked.
moves() {
	local scry target
	rm -f "$T/strange.out"
	target strange "$1"
	target=$PID
	start scry "$SCRY" patch count strange_add -p "$target"
	scry=$PID
	wait_for 10 hooked "$target"
	kill -USR1 "$target"
	wait_for 10 in_file "^moved" "$T/strange.out"
	goes_on "$T/strange.out"
	kill -INT "$scry"
	finish "$scry"
	[ "$(mappings "$target")" -le 1 ] # the page, which is of no file now
	goes_on "$T/strange.out"
	ends_right "$target" strange
}

@test "code that is moved to other memory while it is hooked has its own bytes afterwards" {
	moves moves
	moves files
}

@test "a worker of io_uring's makes no calls for scry: nothing stays" {
	target strange pipes
	! grep -q "^none here" "$T/strange.out" || skip "no io_uring here"
	grep -l "iou-wrk" /proc/"$PID"/task/*/comm || skip "no worker was started"
	for _ in 1 2 3; do
		scry_ends 0 patch count strange_add -p "$PID" -d 0.1s
		[ "$(mappings "$PID")" -eq 0 ]
	done
	ends_right "$PID" strange
}

# foreign_lost REPORT: it says that calls of other threads than libc's were lost.
foreign_lost() {
	json_is "$1" '!r["data_quality"]["is_complete"] && r["data_quality"]["lost"] > 100'
	json_is "$1" 'r["notes"].any? { |x| x.include?("made by threads whose thread pointer is not the C library") }'
}

@test "threads whose thread pointer is not libc's are not harmed, and their calls are counted as lost" {
	local how
	for how in block blank odd swaps; do
		rm -f "$T/strange.out"
		target strange "$how"
		scry_ends 0 calls -c -x strange_add -p "$PID" -d 0.5s -o "$T/$how.json"
		foreign_lost "$T/$how.json"
		scry_ends 0 calls -w 4 -x strange_add -p "$PID" -d 0.1s -o "$T/$how.scry"
		scry_ends 0 patch log strange_add -p "$PID" -d 0.1s -o "$T/$how.log.scry"
		goes_on "$T/strange.out"
		ends_right "$PID" strange
	done
}

@test "the same in a program that scry starts" {
	local scry
	start scry "$SCRY" calls -c -x strange_add -o "$T/o.json" -- "$TARGETS/target_strange" block
	scry=$PID
	wait_for 10 in_file "^round 200" "$T/scry.out"
	kill -TERM "$(awk '/^pid/ { print $2 }' "$T/scry.out")"
	finish "$scry"
	foreign_lost "$T/o.json"
	json_is "$T/o.json" 'r["rows"][0]["calls"] >= 200000'
}
