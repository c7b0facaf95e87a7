#!/usr/bin/env bats
# scry malloc record where nobody may be entered: the handlers are preloaded, and what is in the recording is the same.

load lib
source "$BATS_TEST_DIRNAME/malloc.bash"

setup() {
	need_targets
	need_python
	prepare
	DENY="$TARGETS/deny"
	"$DENY" true || skip "no seccomp filters here"
	RECORD=("$DENY" "$SCRY" malloc record)
}

@test "preload: ptrace is denied: every call, and it is said" {
	knows "" "libc.so.6, glibc 2"
	grep -q "not permitted.*is preloaded instead" "$T/scry.err"
}

@test "preload: every call, under other allocators" {
	KNOWN_NO_PVALLOC=1 knows "$(lib libjemalloc.so.2)" jemalloc
	knows "$(lib libtcmalloc_minimal.so.4)" tcmalloc
	knows "$(lib libmimalloc.so.2.0 libmimalloc.so.3)" mimalloc
}

@test "preload: ruby and python3 print what they print without" {
	json_as_without 1500
}

@test "preload -f: children, what they run, and the blocks that they have of their parents" {
	"${RECORD[@]}" -f -v --force -o "$T/x.scry" -- "$TARGETS/target_malloc_family" >"$T/out" 2>"$T/err"
	grep -qx right "$T/out"
	parts >"$T/parts"
	[ "$(grep -c "^300 calls 0 0$" "$T/parts")" -eq 8 ]
	[ "$(grep -c "^100 calls 0 0$" "$T/parts")" -eq 8 ]
	[ "$(wc -l <"$T/parts")" -eq 17 ]
	printf '#!/bin/bash\nfor i in 1 2 3; do x=$(sort /etc/passwd | head -2); done\n(y=1; echo sub)\nexec echo end\n' >"$T/script"
	chmod +x "$T/script"
	for i in 1 2; do
		"${RECORD[@]}" -f -v --force -o "$T/x.scry" -- "$T/script" >"$T/out" 2>"$T/err"
		[ "$(cat "$T/out")" = "sub
end" ]
		parts >"$T/parts.$i"
		no grep -v "calls 0 0$" "$T/parts.$i"
	done
	cmp "$T/parts.1" "$T/parts.2"
	"$SCRY" report "$T/x.scry" >"$T/report"
	no grep "damaged\|late\| lost [1-9]" "$T/report"
	# without -f: the shell and what it execs
	"${RECORD[@]}" -v --force -o "$T/x.scry" -- "$T/script" >"$T/out" 2>"$T/err"
	[ "$(parts | wc -l)" -eq 2 ]
	"$SCRY" report "$T/x.scry" | grep -q "had child processes, which are not in this recording; fix: -f"
}

@test "preload: the program is killed: what had returned is recorded" {
	local status=0
	"${RECORD[@]}" --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known" tell "$T/told" 10000 2>"$T/scry.err" 3>&- || status=$?
	[ "$status" -eq 137 ]
	# of malloc and free; what other modules, and constructors, have called is a handful
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	local n others
	n=$(jq '[.functions[] | select(.function == "malloc" or .function == "free").calls] | add' "$T/report")
	others=$(jq '[.rows[] | select(.module | endswith("target_malloc_known") | not).allocated] | add // 0' "$T/report")
	n=$((n - others - 2))
	echo "recorded $n, had returned $(told)"
	[ "$n" -ge "$(told)" ]
	[ "$n" -le "$(($(told) + 4))" ]
}

@test "preload: the keeper is killed, or the time is over: the program goes on" {
	local how program
	for how in keeper time; do
		start scry "${RECORD[@]}" --force -o "$T/x.scry" -d "$([ $how = time ] && echo 0.3s || echo 1m)" -- \
			"$TARGETS/target_malloc_known" run
		wait_for 20 in_file "^round" "$T/scry.out"
		program=$(pgrep -P "$PID" -f "^$TARGETS/target_malloc_known")
		HELD="$HELD $program"
		if [ $how = keeper ]; then
			wait_for 20 test -s "$T/x.scry"
			kill -KILL "$(keeper_of "$PID")"
		else
			wait_for 20 bash -c "'$SCRY' report --view events '$T/x.scry' | grep -q totals"
		fi
		goes_on "$T/scry.out"
		kill -TERM "$program"
		ended "$PID"
		no grep -E "^wrong|wrong [1-9]" "$T/scry.out"
		"$SCRY" info "$T/x.scry" >/dev/null
	done
}

@test "preload: a disk that stands for a while: threads wait, no call is lost" {
	starts_on_a_slow_disk -- "$TARGETS/target_malloc_known" run
	wait_for 8 all_wait "$(program_of "$PID")" # it waits for ten seconds
	touch "$T/disk/go"
	goes_far "$T/scry.out"
	ends_recorded "$PID"
	jq -e '.data_quality | .lost == 0 and .errors == 0' "$T/report"
	grep -qE " 0 ends of unknown blocks, 0 frees inserted, 0 calls recorded too late" "$T/scry.err"
}

@test "preload: nobody is traced, and nobody's memory opened" {
	command -v strace >/dev/null || skip "no strace"
	strace -f -qq -o "$T/trace" -e trace=ptrace,process_vm_readv,process_vm_writev,open,openat,kill,tgkill \
		"$SCRY" malloc record -q --preload --force -o "$T/x.scry" -- /bin/ls / >"$T/out"
	grep -q "open.*/fd/" "$T/trace" # the program has joined
	no grep -E "ptrace|process_vm|/mem\"|kill" "$T/trace"
	"$SCRY" report "$T/x.scry" --json | grep -q '"events": [1-9]'
}

@test "preload: who ends at once has names; who is in another pid namespace is told, and runs" {
	for i in 1 2 3 4 5; do
		"${RECORD[@]}" -q --force -o "$T/x.scry" -- "$TARGETS/target_malloc_sums" >/dev/null
		"$SCRY" report "$T/x.scry" --json --top 0 | jq -r '.rows[].symbol' | grep -qx begin
	done
	unshare -Urpf true 2>/dev/null || skip "no pid namespaces here"
	scry_ends 0 malloc record --preload -f --force -o "$T/x.scry" -- unshare -Urpf "$TARGETS/target_malloc_family"
	grep -qx right "$T/scry.out"
	"$SCRY" report "$T/x.scry" | grep -q "[0-9] process\(es\)\? could not be distinguished from others and \(was\|were\) not recorded"
}

@test "preload: who joins and ends while the keeper is held up is told once" {
	local keeper
	mkfifo "$T/joined" "$T/go" "$T/on" # one for each step: what is opened twice may be read by who read it first
	start scry "${RECORD[@]}" -f --force -o "$T/x.scry" -- \
		/bin/sh -c 'read x <"$0/joined"; read x <"$0/go"; /bin/true; read x <"$0/on"; echo done' "$T"
	keeper=$(keeper_of "$PID")
	HELD=$keeper
	tells() { timeout 60 sh -c 'echo >"$0"' "$1"; } # who opens a FIFO waits for the other
	tells "$T/joined" # the shell has joined, and reads
	kill -STOP "$keeper"
	tells "$T/go"
	tells "$T/on" # true has ended
	kill -CONT "$keeper"
	ended "$PID"
	grep -qx done "$T/scry.out"
	"$SCRY" report "$T/x.scry" | grep -q "note: 1 process could not be distinguished from others"
}

@test "preload: what is left in an environment joins no watch" {
	local fd abi
	abi=$(sed -n "s/^#define SCRY_PRELOAD_ABI //p" "$ROOT/src/wire/preload.h") && [ -n "$abi" ]
	exec {fd}<>"$T/other"
	head -c 8192 /dev/zero >"$T/other"
	SCRY_PRELOAD=$abi:$$:$fd:0:1 LD_PRELOAD="$BUILD/src/preload/libscry-malloc.so" /bin/ls / >"$T/out"
	SCRY_PRELOAD=$abi:4194304:3:0:1 LD_PRELOAD="$BUILD/src/preload/libscry-malloc.so" /bin/ls / >>"$T/out"
	LD_PRELOAD="$BUILD/src/preload/libscry-malloc.so" "$TARGETS/target_malloc_known" >"$T/known.out"
	exec {fd}>&-
	[ "$(sort -u "$T/out")" = "$(/bin/ls / | sort)" ]
	grep -qx right "$T/known.out"
}

@test "preload: what cannot be is refused" {
	[ -x "$TARGETS/target_malloc_known_static" ] || skip "no static programs with this toolchain"
	scry_ends 125 malloc record --preload --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known_static"
	says "static program: nothing can be preloaded"
	[ ! -s "$T/scry.out" ]
	cp /bin/true "$T/gains"
	if [ "$(id -u)" -eq 0 ] && ! findmnt -no OPTIONS -T "$T" | grep -q nosuid; then
		chown nobody "$T/gains"
		chmod u+s "$T/gains"
		scry_ends 125 malloc record --preload --force -o "$T/x.scry" -- "$T/gains"
		says "gains rights at its start"
	fi
	echo 'int main(void) { return 0; }' >"$T/own.c"
	if gcc -fsanitize=address -o "$T/asan" "$T/own.c" 2>/dev/null; then
		scry_ends 125 malloc record --preload --force -o "$T/x.scry" -- "$T/asan"
		says "sanitizer"
	fi
	echo 'void *malloc(unsigned long n) { return (void *)(n & 0); } int main(void) { return malloc(1) != 0; }' >"$T/own.c"
	gcc -fno-builtin -o "$T/own" "$T/own.c"
	scry_ends 125 malloc record --preload --force -o "$T/x.scry" -- "$T/own"
	says "its own malloc"
	scry_ends 0 malloc record --preload -f --force -o "$T/x.scry" -- /bin/sh -c "$T/own; :"
	"$SCRY" report "$T/x.scry" | grep -q "$T/own has its own malloc"
	scry_ends 2 malloc record --preload --force -o "$T/x.scry" -p $$
	says "give -- CMD; a process that runs can only be entered"
}

@test "preload: a program that does not load it is said, before or at the end" {
	[ -x "$TARGETS/target_malloc_known_static" ] || skip "no static programs with this toolchain"
	printf '#!/bin/bash\nexec env -i "$1"\n' >"$T/script"
	chmod +x "$T/script"
	scry_ends 0 malloc record --preload --force -o "$T/x.scry" -- "$T/script" "$TARGETS/target_malloc_known_static"
	"$SCRY" report "$T/x.scry" | grep "1 program that recorded processes ran (exec) did not load what was preloaded"
	printf '#!%s\n' "$TARGETS/target_malloc_known_static" >"$T/script"
	scry_ends 125 malloc record --preload --force -o "$T/x.scry" -- "$T/script"
	says "static program"
}

@test "preload: under a filter that ends a program for what the libc does not call by itself" {
	local kill=--kill
	"$DENY" --kill /bin/echo here || kill=--kill-but-fstat
	"$DENY" "$kill" /bin/echo here || skip "echo needs more than was thought"
	scry_ends 0 malloc record --preload --force -o "$T/x.scry" -- "$DENY" "$kill" /bin/echo here
	grep -qx here "$T/scry.out"
	"$SCRY" report "$T/x.scry" --json >"$T/x.json"
	[ "$(jq ".data_quality.processes | length" "$T/x.json")" -ge 1 ]
	[ "$(jq ".data_quality.lost" "$T/x.json")" -eq 0 ]
}

@test "preload: lanes that nobody has taken do not keep it from its end" {
	start scry "${RECORD[@]}" --force -o "$T/x.scry" -- bash -c 'echo "pid $$"; sleep 3; :'
	local scry=$PID
	wait_for 20 in_file "^pid" "$T/scry.out"
	"$TARGETS/forge_lanes" free "$(sed -n 's/^pid //p' "$T/scry.out")" 2
	wait_for 10 is_gone "$scry"
	finish "$scry"
}
