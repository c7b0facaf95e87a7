#!/usr/bin/env bats
# Who calls: native stacks without frame pointers, in `scry malloc record --stack` and `scry calls -w`. The truth is
# glibc's own backtrace() in the program, at the same places.

load lib

setup() {
	need_targets
	/usr/bin/python3 -c 'pass' 2>/dev/null || skip "no python3, with which stacks are compared"
	prepare
}

# same DEPTH: the recording's stacks are the program's.
same() {
	"$SCRY" report "$T/x.scry" --view events --json >"$T/events"
	/usr/bin/python3 "$ROOT/test/targets/stacked.py" "$T/events" "$T/stacked.out" "$1"
}

# waits NAME: target_stacked with its input from a pipe, which is open at descriptor 5; its pid in $PID.
waits() {
	mkfifo "$T/go"
	exec 5<>"$T/go"
	start stacked bash -c 'exec "$0" 3 wait <"$1" 5>&-' "$TARGETS/target_stacked" "$T/go"
	wait_for 10 in_file "^pid" "$T/stacked.out"
}

@test "malloc: stacks are those of backtrace(): recursion, alloca, realigned, callbacks, signals, fibers, threads" {
	local depth
	for depth in 64 6 1; do
		"$SCRY" malloc record --stack=$depth --force -o "$T/x.scry" -- "$TARGETS/target_stacked" >"$T/stacked.out" 3>&-
		grep -q "^ok" "$T/stacked.out"
		same "$depth"
	done
}

@test "malloc: the same of a process that runs already, which is as before afterwards" {
	need_root "entering a process that is not a child of scry"
	local program scry before
	waits
	program=$PID
	before=$(state_of "$program")
	start scry "$SCRY" malloc record --stack=64 --force -o "$T/x.scry" -p "$program"
	scry=$PID
	wait_for 20 hooked "$program"
	echo go >&5
	wait_for 20 in_file "^ok" "$T/stacked.out"
	kill -INT "$scry"
	finish "$scry"
	same 64
	as_before "$program" "$before" "after a recording with stacks"
}

@test "malloc: the keeper is killed: the program goes on" {
	need_root "entering a process that is not a child of scry"
	local program scry
	waits
	program=$PID
	start scry "$SCRY" malloc record --stack --force -o "$T/x.scry" -p "$program"
	scry=$PID
	wait_for 20 test -s "$T/x.scry"
	wait_for 20 hooked "$program"
	kill -KILL "$(keeper_of "$scry")"
	ended "$scry"
	echo go >&5
	wait_for 20 in_file "^ok" "$T/stacked.out"
}

@test "malloc: the report names who asked for memory, not the wrapper, and folds stacks" {
	"$SCRY" malloc record --stack --force -o "$T/x.scry" -- "$TARGETS/target_stacked" >"$T/stacked.out" 3>&-
	"$SCRY" report "$T/x.scry" --by caller --top 0 >"$T/callers"
	grep -q "ask+.*target_stacked" "$T/callers"
	"$SCRY" report "$T/x.scry" --by module --json | grep -q '"module": "[^"]*target_stacked"'
	"$SCRY" report "$T/x.scry" --by stack --top 0 >"$T/stacks"
	grep -q "main > recurse > recurse > .* > ask" "$T/stacks"
	"$SCRY" report "$T/x.scry" --folded --sort allocated >"$T/folded" 2>/dev/null
	grep -qE "main;with_alloca;with_alloca;.*;ask [0-9]+$" "$T/folded"
	# nothing is counted twice
	[ "$(awk '{ n += $NF } END { print n }' "$T/folded")" = "$("$SCRY" report "$T/x.scry" --json |
		/usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["totals"]["allocated"])')" ]
}

# tree KEY ARGS...: the tree of $T/x.scry adds up, as text and in JSON.
tree() {
	local key=$1
	shift
	"$SCRY" report "$T/x.scry" --stacks --json "$@" >"$T/tree.json"
	"$SCRY" report "$T/x.scry" --stacks --top 0 "$@" >"$T/tree"
	/usr/bin/python3 "$ROOT/test/targets/malloc_tree.py" "$T/tree.json" "$T/tree" "$key"
}

@test "malloc: the tree of callers is what the stacks add up to, for each thing that is counted" {
	"$SCRY" malloc record --stack --force -o "$T/x.scry" -- "$TARGETS/target_stacked" >"$T/stacked.out" 3>&-
	tree at_bytes
	tree at_bytes --at end
	tree bytes --sort bytes
	tree allocated --sort allocated
	tree at_blocks --sort live
	tree at_blocks --sort at_blocks
	[ "$("$SCRY" report "$T/x.scry" --stacks --sort never_freed_pct 2>"$T/err"; echo $?)" != 0 ]
	grep -q "stacks of malloc cannot be sorted by 'never_freed_pct'; fix: --sort with one of at_bytes" "$T/err"
	tree temporary --sort temporary
	grep -qE "^ +[0-9.]+ .* _start \(target_stacked\)$" "$T/tree"
	grep -qE "^ +[0-9.]+ .* in_qsort \(target_stacked\)$" "$T/tree"
	grep -qE "^ +[0-9.]+ .* ask$" "$T/tree"
	"$SCRY" report "$T/x.scry" --stacks --top 3 >"$T/tree"
	[ "$(grep -cE "^ +[0-9]+\.[0-9] " "$T/tree")" = 3 ]
	[ "$(grep -c "more rows are not shown; --top 0 shows them" "$T/tree")" = 1 ]
	# one stack, and that the others are left out is said
	"$SCRY" report "$T/x.scry" --stacks --top 0 --sort allocated --grep in_qsort >"$T/tree"
	grep -q "in_qsort" "$T/tree"
	[ -z "$(grep in_handler "$T/tree")" ]
	grep -q "stacks.*--grep" "$T/tree"
	"$SCRY" malloc record --force -o "$T/x.scry" -- "$TARGETS/target_stacked" >"$T/stacked.out" 3>&-
	"$SCRY" report "$T/x.scry" --stacks --top 0 >"$T/tree"
	grep -q "no stacks were recorded: each caller is alone; fix: record with --stack" "$T/tree"
	grep -qE " ask \(target_stacked\)$" "$T/tree"
}

@test "calls -w: stacks are those of backtrace(), through frames whose return is followed" {
	"$SCRY" calls -w 64 -x malloc@libc.so.6 -x qsort -x raise --args=full --force -o "$T/x.scry" -- \
		"$TARGETS/target_stacked" >"$T/stacked.out" 3>&-
	grep -q "^ok" "$T/stacked.out"
	same 64
	"$SCRY" report "$T/x.scry" --grep raise >"$T/lines"
	grep -A1 -e "^raise(" -e "raise resumed" "$T/lines" >"$T/raise" # in two lines, as its signal's is between
	grep -qE "^ > target_stacked\(main\+0x[0-9a-f]+\) \[[0-9a-f]+\]$" "$T/raise"
}

@test "calls -w -f: those of a fork child" {
	"$SCRY" calls -w 64 -f -x malloc@libc.so.6 -x qsort -x raise --args=full --force -o "$T/x.scry" -- \
		"$TARGETS/target_stacked" 3 fork >"$T/stacked.out" 3>&-
	grep -q "^ok" "$T/stacked.out"
	same 64
}

@test "calls -w --engine=breakpoint: the same, read from outside" {
	"$SCRY" calls -w 64 --engine=breakpoint -x malloc@libc.so.6 -x qsort -x raise --args=full --force -o "$T/x.scry" -- \
		"$TARGETS/target_stacked" >"$T/stacked.out" 3>&-
	grep -q "^ok" "$T/stacked.out"
	same 64
}

@test "calls -w --engine=breakpoint: the same of a process that runs already" {
	need_root "entering a process that is not a child of scry"
	waits
	start scry "$SCRY" calls -w 6 --engine=breakpoint -x malloc@libc.so.6 --args=full --force -o "$T/x.scry" -p "$PID"
	local scry=$PID
	wait_for 20 in_file "watching process" "$T/scry.err"
	echo go >&5
	wait_for 20 in_file "^ok" "$T/stacked.out"
	kill -INT "$scry"
	finish "$scry"
	same 6
}

@test "calls -w, and strings: of a program that has unaligned accesses trapped (EFLAGS.AC)" {
	cat >"$T/aligned.c" <<-'EOF_C'
		#include <stdlib.h>
		__attribute__((noinline)) int odd(int i, const char *s)
		{
			__asm__ volatile("nop; nop; nop; nop; nop; nop");
			return i + s[0];
		}
		int main(void)
		{
			static char text[] = "xabcdefghijklmno";
			for (int i = 0; i < 100; i++) {
				int got, flags = 0;
				__asm__ volatile("pushfq; orq $0x40000, (%%rsp); popfq" ::: "memory", "cc");
				got = odd(i, text + 1);
				__asm__ volatile("pushfq; pop %%rax; mov %%eax, %0; andq $~0x40000, %%rax; push %%rax; popfq"
						 : "=r"(flags) :: "rax", "memory", "cc");
				if (got != i + 'a' || !(flags & 0x40000))
					return 3;
			}
			return 0;
		}
	EOF_C
	cc -O0 -mno-red-zone -o "$T/aligned" "$T/aligned.c"
	echo 'int odd(int, string);' >"$T/aligned.conf"
	scry_ends 0 calls -F "$T/aligned.conf" -x odd -w 8 -- "$T/aligned"
	[ "$(grep -c '^odd([0-9]*, "abcdefghijklmno") = ' "$T/scry.out")" -eq 100 ]
	[ "$(grep -c '^ > aligned(main' "$T/scry.out")" -eq 100 ]
}

@test "words that are not understood are refused" {
	scry_ends 2 malloc record --stack=65 -- true
	grep -q "at most 64" "$T/scry.err"
	scry_ends 2 calls -w 65 -x strdup -- true
	scry_ends 2 malloc record --stack=deep -- true
}
