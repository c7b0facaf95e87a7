#!/usr/bin/env bats
# Patches that last: scry patch apply ucontext, against programs that look at their own contexts (test/targets/contexts.c)
# and count their own switches (ring.c). What is put in stays when scry has gone, and goes byte for byte.

load lib

setup() {
	need_targets
	prepare
	need_root "eBPF"
	need_bpf
	STORM="$BUILD/test/patch_storm"
}

# contexts ARGS...: the program, its pid in $PID.
contexts() {
	listens contexts "$TARGETS/target_contexts" "$@"
}

# does WORD: the program reads it.
does() {
	echo "$1" >&8
}

# ends_right PID: all of its contexts were as with glibc.
contexts_right() {
	does end
	exec 8>&-
	ended "$1"
	grep -q "^switches [1-9][0-9]* wrong 0$" "$T/contexts.out" && [ "$status" -eq 0 ] && return 0
	cat "$T/contexts.out"
	return 1
}

# applies PID ARGS...: puts it in, with short watches; the report in $T/scry.out.
applies() {
	local pid=$1
	shift
	scry_ends 0 patch apply ucontext -p "$pid" --audit 300ms -d 300ms --max-pause 2s "$@"
}

takes_out() { # PID
	scry_ends 0 patch undo ucontext -p "$1" --max-pause 2s
}

# The one thread may have been on its way to the system call when the code was changed: it makes that call after.
is_faster() { # FILE
	"$RUBY" --disable=gems -rjson -e '
r = JSON.parse(File.read(ARGV[0]))
abort r["schema"] unless r["schema"] == "scry.patch_apply/2" && r["totals"]["patch"] == "ucontext" && r["totals"]["bytes_changed"] > 0
b, a = r["rows"]
abort "rows #{r["rows"]}" unless [b["window"], a["window"]] == %w[before after]
abort "before #{b}, after #{a}" unless b["switches"] > 1000 && a["switches"] > 2 * b["switches"] * a["cpu_ns"] / b["cpu_ns"]
abort "#{a["switch_ns"]} ns instead of #{b["switch_ns"]}" unless a["switch_ns"] * 4 < b["switch_ns"]
abort "system calls #{b["system_calls"]}, #{a["system_calls"]}" unless b["system_calls"] >= b["switches"] && a["system_calls"] <= 1
abort "samples #{b}, #{a}" unless b["samples_inside"] * 5 > b["samples"] && a["samples_inside"] * 20 < a["samples"]' "$1"
}

@test "a ring of contexts switches without the system call, until it is undone" {
	target ring
	before=$(state_of "$PID")
	applies "$PID" --json
	is_faster "$T/scry.out"
	"$SCRY" patch list -p "$PID" >"$T/list"
	in_file "patch 'ucontext' applied" "$T/list"
	in_file "swapcontext  ~[1-9][0-9]* calls without the system call" "$T/list"
	"$SCRY" ps | grep -w "$PID" | grep -q "patched: ucontext"
	timeout -s INT 1 strace -qq -f -p "$PID" -o "$T/strace" 3>&- || true
	no in_file rt_sigprocmask "$T/strace"
	takes_out "$PID"
	in_file "its memory is unmapped" "$T/scry.out"
	as_before "$PID" "$before" "after the undo"
	"$SCRY" patch list -p "$PID" | grep -q "nothing to undo"
	kill "$PID"
}

@test "contexts that never come back to a stack whose ends are known" {
	start ring "$TARGETS/target_ring" 0 100 apart
	wait_for 10 in_file "^pid" "$T/ring.out"
	sleep 0.2
	before=$(state_of "$PID")
	for _ in 1 2; do
		applies "$PID"
		in_file "a context switch takes" "$T/scry.out" || in_file "a context switch takes" "$T/scry.err"
		takes_out "$PID"
		in_file "its memory is unmapped" "$T/scry.out"
		as_before "$PID" "$before" "after the undo"
	done
	kill "$PID"
}

@test "what is counted is what the program counts" {
	start ring "$TARGETS/target_ring" 3000000
	wait_for 10 in_file "^pid" "$T/ring.out"
	"$STORM" -a "$PID"
	"$SCRY" patch list -p "$PID" >"$T/first"
	kill -STOP "$PID"
	"$SCRY" patch list -p "$PID" >"$T/list"
	counted=$(sed -n 's/.*swapcontext  ~\([0-9]*\) calls.*/\1/p' "$T/list")
	[ "$counted" -gt 0 ]
	kill -CONT "$PID"
	finish "$PID"
	switches=$(sed -n 's/^switches //p' "$T/ring.out")
	[ "$switches" -eq 21000000 ]
	[ "$counted" -le "$switches" ]
}

@test "registers, rounding, sums, masks: threads that are patched and not, many times" {
	contexts 6
	before=$(state_of "$PID")
	"$STORM" -n "$(share 40 1000)" "$PID" >"$T/storm" 2>&1 || { cat "$T/storm"; false; }
	in_file " left 0 " "$T/storm"
	as_before "$PID" "$before" "after the storm"
	contexts_right "$PID"
}

@test "a mask that is changed later turns the system call on again" {
	contexts 2
	applies "$PID"
	does mask
	changed() { "$SCRY" patch list -p "$PID" | grep -q "has changed a signal mask"; }
	wait_for 10 changed
	slow() { "$SCRY" patch list -p "$PID" | sed -n 's/.*swapcontext.*, \([0-9]*\) with it/\1/p'; }
	first=$(slow)
	more() { [ "$(slow)" -gt $((first + 1000)) ]; }
	wait_for 10 more
	takes_out "$PID"
	contexts_right "$PID"
}

@test "a program that uses masks is refused, and not touched" {
	contexts 2 masks
	before=$(state_of "$PID")
	scry_ends 4 patch apply ucontext -p "$PID" --audit 300ms
	says "mask"
	as_before "$PID" "$before" "after the refusal"
	contexts_right "$PID"
}

@test "refused: no switches, no glibc, applied already, a filter, a wrong name" {
	target busy
	scry_ends 4 patch apply ucontext -p "$PID" --audit 100ms
	says "nothing to take out"
	contexts 1
	applies "$PID" -q
	scry_ends 1 patch apply ucontext -p "$PID" --audit 100ms
	says "already; fix: scry patch list"
	scry_ends 2 patch apply something -p "$PID"
	scry_ends 4 patch undo something -p "$PID"
	says "has no patch 'something'"
	takes_out "$PID"
	contexts_right "$PID"
}

@test "--dry-run touches nothing" {
	contexts 1
	before=$(state_of "$PID")
	scry_ends 0 patch apply ucontext -p "$PID" --dry-run
	in_file "change  5 bytes at 0x" "$T/scry.out"
	as_before "$PID" "$before" "after a dry run"
	contexts_right "$PID"
}

@test "watches leave a patch where it is, and do not hook what it has changed" {
	contexts 2
	before=$(state_of "$PID")
	applies "$PID" -q
	patched=$(text "$PID")
	scry_ends 0 patch count malloc pthread_sigmask -p "$PID" -d 200ms --json
	in_file '"symbol": "malloc"' "$T/scry.out"
	scry_ends 4 patch count swapcontext --via=entry -p "$PID" -d 200ms
	says "a patch of scry's is applied"
	undo "$PID"
	in_file "has patch 'ucontext', which stays" "$T/scry.out"
	wait_for 5 text_is "$PID" "$patched"
	takes_out "$PID"
	as_before "$PID" "$before" "after watches and the undo"
	contexts_right "$PID"
}

@test "a fork child has the patch, and its own undo" {
	contexts 1
	applies "$PID" -q
	does fork
	wait_for 10 in_file "^forked" "$T/contexts.out"
	child=$(sed -n 's/^forked //p' "$T/contexts.out")
	"$SCRY" patch list -p "$child" | grep -q "ucontext' applied .*, inherited"
	patched=$(text "$PID")
	takes_out "$child"
	"$SCRY" patch list -p "$child" | grep -q "nothing to undo"
	text_is "$PID" "$patched"
	"$SCRY" patch list -p "$PID" | grep -q "ucontext' applied"
	takes_out "$PID"
	contexts_right "$PID"
	in_file "^child $child wrong 0" "$T/contexts.out"
}

@test "a static program, and one without names" {
	cp "$TARGETS/target_contexts_static" "$T/stripped"
	strip "$T/stripped"
	for program in "$TARGETS/target_contexts_static" "$T/stripped"; do
		rm -f "$T/in"
		listens contexts "$program" 2
		before=$(state_of "$PID")
		applies "$PID" -q
		"$SCRY" patch list -p "$PID" | grep -q "swapcontext  ~[1-9]"
		takes_out "$PID"
		as_before "$PID" "$before" "$program"
		contexts_right "$PID"
	done
}

@test "-- CMD: the program is patched when it switches, and its status is scry's" {
	status=0
	"$SCRY" patch apply ucontext --audit 300ms -d 200ms --json -- "$TARGETS/target_ring" 40000000 >"$T/out" 2>"$T/err" 3>&- || status=$?
	[ "$status" -eq 0 ] || { cat "$T/err"; false; }
	in_file "^switches 280000000" "$T/out"
	sed -n '/^{/,/^}/p' "$T/out" >"$T/json"
	is_faster "$T/json"
	status=0
	"$SCRY" patch apply ucontext --audit 100ms -- sh -c 'sleep 0.3; exit 7' >"$T/out" 2>"$T/err" 3>&- || status=$?
	[ "$status" -eq 7 ] || { cat "$T/err"; false; }
	in_file "ended before it was seen" "$T/err"
}

# Killed in the midst of putting in and taking out, at any system call: what is left works, and undo takes it out.
@test "killed at any system call" {
	contexts 3
	before=$(state_of "$PID")
	total=$("$TARGETS/killer" keeper 0 -- "$STORM" -f "$PID" 2>&1 >/dev/null 3>&- |
		sed -n 's/^killer: stops //p')
	[ "$total" -gt 200 ]
	points=$(share 24 100000)
	killed=0
	bad=0
	for ((i = 0; i < points && bad < 3; i++)); do
		n=$((1 + i * (total - 1) / points))
		"$TARGETS/killer" keeper "$n" -- "$STORM" -f "$PID" >/dev/null 2>"$T/killer.err" 3>&- || true
		grep -q "killed at" "$T/killer.err" && killed=$((killed + 1))
		if "$SCRY" patch list -p "$PID" | grep -q "patch 'ucontext'"; then
			takes_out "$PID"
		fi
		undo "$PID"
		as_before "$PID" "$before" "$(grep 'killed at' "$T/killer.err")" || bad=$((bad + 1))
	done
	echo "$killed of $points points of $total stops"
	[ "$bad" -eq 0 ] && [ "$killed" -gt $((points / 2)) ]
	contexts_right "$PID"
}
