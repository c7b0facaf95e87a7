#!/usr/bin/env bats
# Programs that do their worst to whoever looks into them: enemy.c.

source "$BATS_TEST_DIRNAME/looks.bash"

@test "what scry shares with a program is forged, unmapped, shut" {
	LOOKS="calls malloc" MEETS=1
	enemies forge-all forge-control forge-header unmap protect drop
}

@test "a program that ends, or becomes another user's, when it is entered" {
	MEETS=1
	enemies leaves su
}

@test "a program that becomes itself again all the time" {
	enemies execs
}

@test "mappings, threads, names that change while they are looked at" {
	LOOKS="calls malloc"
	enemies churn-maps many-maps threads names status-lines leaderless
}

@test "the loader's list: a ring, without end, elsewhere, gone" {
	enemies loaded-in-a-ring loaded-without-end loaded-elsewhere r-debug-gone
}

@test "the loader's tables: no symbols, endless strings, hashes, relocations" {
	enemies no-symbols no-strings endless-strings endless-hash endless-relocations relocations-in-the-code
}

@test "stopped, signalled, traced by another, in vfork, forking all the time" {
	enemies stops signals is-traced vforks forks
}

@test "no descriptors, none left, and limits" {
	enemies closes memfds limits little-memory
}

@test "a mapped file that is cut, or whose name is a FIFO's, a link's, a directory's, another file's" {
	enemies file-is-cut file-is-a-fifo file-is-a-link file-is-a-directory file-is-another
}

@test "thread block, heap, frames and stack of nonsense" {
	LOOKS="calls malloc"
	enemies bad-thread-block heap-in-a-ring heap-of-nonsense frames-in-a-ring stack-elsewhere
}

@test "child buffers in the name of one process, of a child's or of the program's own" {
	local name
	for name in 4194303 "$BESIDE"; do
		rm -f "$T/scry.err"
		start scry "$SCRY" calls -S -f -c -v -x work_fold -p "$BESIDE"
		scry=$PID
		wait_for 20 in_file "process $BESIDE: agent" "$T/scry.err"
		start forge "$TARGETS/forge_lanes" free "$BESIDE" 1 "$name"
		finish "$PID"
		grep -q "^forged" "$T/forge.out"
		kill -INT "$scry"
		finish "$scry"
		grep -q "work_fold" "$T/scry.out"
	done
	others_go_on
}

@test "child buffers that no child has taken: they do not hold up the end" {
	start scry "$SCRY" malloc record -f -v --force -o "$T/m.scry" -p "$BESIDE"
	scry=$PID
	wait_for 20 in_file "process $BESIDE: agent" "$T/scry.err"
	start forge "$TARGETS/forge_lanes" free "$BESIDE" 2
	finish "$PID"
	kill -INT "$scry"
	SECONDS=0
	finish "$scry"
	[ "$SECONDS" -lt 10 ] # one of them alone may take a second
	others_go_on
}
