#!/usr/bin/env bats
# The end of a watch: its memory stays where somebody may come back to it who is seen in no stop.

load lib

setup() {
	need_targets
	prepare
	need_root "eBPF"
}

# unseen HOW: the program, its pid in $pid; its text in $before.
unseen() {
	listens unseen "$TARGETS/target_unseen" "$1"
	pid=$PID
	before=$(text "$pid")
}

# watches ARGS...: scry with these works in it, its pid in $scry.
watches() {
	start scry "$SCRY" "$@" -p "$pid" 8>&-
	scry=$PID
	wait_for 20 changed || { cat "$T/scry.err"; return 1; }
}

changed() {
	watched "$pid" && no text_is "$pid" "$before"
}

ends_unseen() {
	echo end >&8
	exec 8>&-
	finish "$pid"
	in_file "^right" "$T/unseen.out"
}

# shared ARGS...: processes that share its memory are born in a watch: its code is put back, the rest stays.
shared() {
	unseen shares
	watches "$@"
	echo born >&8
	wait_for 20 in_file "^born" "$T/unseen.out"
	ends_watch "$scry"
	text_is "$pid" "$before"
	in_file "stay mapped in process $pid.*another process runs on its memory" "$T/scry.out"
	"$SCRY" ps | grep -qw "^ *$pid"
	ends_unseen
}

@test "processes that share its memory, born while system calls are counted in it: they go on" {
	need_bpf
	shared syscalls --exact=site
}

@test "processes that share its memory, born while calls are counted: they go on" {
	shared patch count unseen_work
}

@test "processes that share its memory, born while calls are timed: they go on" {
	shared patch time unseen_work
}

# switched ARGS...: nothing is unmapped that a context goes on in.
switched() {
	unseen switches
	for _ in 1 2 3; do
		watches "$@"
		ends_watch "$scry"
		text_is "$pid" "$before"
	done
	ends_unseen
}

@test "contexts that a signal handler switches, while system calls are counted: they go on" {
	need_bpf
	switched syscalls --exact=site
}

@test "contexts that a signal handler switches, while calls are counted: they go on" {
	switched patch count unseen_work
}

@test "returns that are followed, and wrapped by a patch that stays: they go home" {
	cat >"$T/wrap.c" <<'C'
#include <scry/patch.h>
static void enters(struct scry_patch_call *call, uint64_t kept[4]);
static void returns(struct scry_patch_return *done, uint64_t kept[4]);
SCRY_WRAP(unseen_wait, enters, returns)
SCRY_COUNTER(left)
static void enters(struct scry_patch_call *call, uint64_t kept[4])
{
}
static void returns(struct scry_patch_return *done, uint64_t kept[4])
{
	scry_count(left);
}
C
	cc -I"$ROOT/include" -shared -fPIC -O1 -nostartfiles -o "$T/wrap.so" "$T/wrap.c"
	unseen waits
	scry_ends 0 patch apply "$T/wrap.so" -p "$pid" --max-pause 2s
	for _ in 1 2 3; do
		scry_ends 0 patch time unseen_wait -p "$pid" -d 500ms
		no in_file "stay mapped" "$T/scry.err"
	done
	"$SCRY" patch list -p "$pid" >"$T/list"
	in_file "left  *[1-9]" "$T/list"
	scry_ends 0 patch undo wrap -p "$pid" --max-pause 2s
	ends_unseen
}
