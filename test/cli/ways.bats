#!/usr/bin/env bats
# Every way to reach a function, in programs built in every way: bound lazily or at once, without a PLT,
# with IBT's, not PIE, static, static PIE, musl; stripped; in other namespaces. One program with a known
# number of calls and a checksum: counts are exact, and after the watch every byte is as before.

load lib

setup() {
	need_targets
	need_root "entering a process that is not a child of scry"
	prepare
}

# caller NAME [COMMAND...]: starts target_caller_NAME, by COMMAND when given; its pid in $PID.
caller() {
	local program="$TARGETS/target_caller_$1"
	shift
	[ -x "$program" ] || skip "no $program: the toolchain cannot build it"
	listens caller "$@" "$program"
}

# calls N: N rounds, and the right sum.
calls() {
	local lines
	lines=$(wc -l <"$T/caller.out")
	echo "call $1" >&8
	wait_for 20 bash -c "[ \$(wc -l <'$T/caller.out') -gt $lines ]"
	tail -1 "$T/caller.out" | grep -q "right$"
}

# counted_by WAY WANT PID NAME...: 1,000 rounds under a watch by that way; WANT is the way that the report shows.
counted_by() {
	local way=$1 want=$2 pid=$3 before
	shift 3
	before=$(state_of "$pid")
	start scry "$SCRY" patch count "$@" -p "$pid" --via="$way" --force -o "$T/o.json"
	wait_for 10 hooked "$pid" || { cat "$T/scry.err"; return 1; }
	calls 1000
	kill -INT "$PID"
	finish "$PID" || { cat "$T/scry.err"; return 1; }
	json_is "$T/o.json" "rows.to_h { |r| [r['calls'], r['way']] } == {1000 => '$want', 2000 => '$want'}" || {
		"$RUBY" --disable=gems -rjson -e 'puts JSON.parse(File.read(ARGV[0]))["rows"]' "$T/o.json"
		return 1
	}
	as_before "$pid" "$before" "after $way"
	calls 10
}

ends() { # PID
	exec 8>&-
	finish "$1"
}

# shaped NAME WAYS NOT: the program NAME is reached by each of WAYS, and refused by NOT.
shaped() {
	local way pid
	caller "$1"
	pid=$PID
	calls 10
	counted_by auto entry "$pid" work_fold work_mix
	for way in $2; do
		counted_by "$way" "$way" "$pid" work_fold work_mix
	done
	for way in $3; do
		scry_ends 4 patch count work_fold work_mix -p "$pid" --via="$way" -d 0.1s
		says "cannot be reached|none of 2"
	done
	ends "$pid"
}

@test "bound lazily" { shaped lazy "entry got" site; }
@test "bound at start, read-only after relocation" { shaped now "entry got" site; }
@test "without a PLT" { shaped noplt "entry got" site; }
@test "with a PLT for IBT, landing pads in front" { shaped ibt "entry got" site; }
@test "at a fixed address" { shaped nopie "entry got" site; }
@test "static" { shaped static "entry site" got; }
@test "static and position independent" { shaped static_pie "entry site" got; }
@test "with musl" { shaped musl "entry got" site; }

@test "static and stripped: by address" {
	local fold mix
	cp "$TARGETS/target_caller_static" "$T/target_caller_bare"
	strip "$T/target_caller_bare"
	TARGETS="$T" caller bare
	fold=$(nm "$TARGETS/target_caller_static" | awk '$3 == "work_fold" { print $1 }')
	mix=$(nm "$TARGETS/target_caller_static" | awk '$3 == "work_mix" { print $1 }')
	scry_ends 4 patch count work_fold -p "$PID" -d 0.1s
	pid=$PID
	counted_by entry entry "$pid" "0x$fold" "0x$mix"
	ends "$pid"
}

@test "in mount, process and user namespaces of its own" {
	unshare -Urpf --mount-proc true 2>/dev/null || skip "no user namespaces here"
	caller now unshare -Urpf --mount-proc
	shell=$PID
	pid=$(pgrep -P "$shell")
	HELD=$pid
	TARGETS="$TARGETS" counted_by auto entry "$pid" work_fold work_mix
	counted_by got got "$pid" work_fold work_mix
	ends "$shell"
}

@test "a function that nobody leads to by this way, and one that is chosen at run time" {
	caller now
	scry_ends 4 patch count strlen@libc.so.6 -p "$PID" -d 0.1s --via=entry
	says "IFUNC"
	scry_ends 0 patch count strlen@libc.so.6 -p "$PID" -d 0.1s --via=got
	ends "$PID"
}

@test "jumps behind a function's first bytes, in tables and in what is no code by the unwind tables" {
	local layout
	for layout in "" _one _fixed _fixed_one; do
		scry_ends 0 patch count 'jumps_*' -o "$T/o$layout.json" -- "$TARGETS/target_jumps$layout" 0
		grep -q "^1 rounds right$" "$T/scry.out" || { cat "$T/scry.out"; return 1; }
		json_is "$T/o$layout.json" "!rows.empty?"
	done
}

@test "a slot that the program also reads as a pointer is left alone" {
	scry_ends 125 patch count labs@libc.so.6 --via=got -- "$TARGETS/target_taken" 50
	says "its callers take its address too"
	scry_ends 0 patch count abs@libc.so.6 --via=got -- "$TARGETS/target_taken" 50
}

@test "where only some slots are left alone, that is said, and the count is not complete" {
	printf 'long labs(long); long other(long a); long other(long a) { return labs(a) + 1; }\n' >"$T/other.c"
	cc -fno-builtin -shared -fPIC -Wl,-z,lazy -o "$T/other.so" "$T/other.c"
	LD_PRELOAD="$T/other.so" scry_ends 0 patch count labs@libc.so.6 --via=got -o "$T/o.json" -- "$TARGETS/target_taken" 50
	json_is "$T/o.json" 'rows.sum { |row| row["calls"] } == 0 && !r["data_quality"]["is_complete"] && r["notes"].any? { |n| n =~ /calls of labs in .* through 1 GOT slot are not counted/ }'
}
