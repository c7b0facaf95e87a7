#!/usr/bin/env bats
# A program on a stack of 4 KiB in the midst of a block of its own: scry writes nothing outside of that stack,
# and uses little of it.

load lib

# deep: how many bytes below the calls' stack pointer were ever written.
deep() {
	sed -n 's/^round .* deep //p' "$T/coroutine.out" | tail -1
}

# watches ARGS...: scry, for a while, on the program beside which a thread sleeps.
watches() {
	scry_ends 0 "$@" -p "$PID" -d 0.5s
	goes_on "$T/coroutine.out"
	ends_right "$PID" coroutine
}

@test "beside a thread on a stack of libc's: entered there, and left" {
	target coroutine thread
	before=$(state_of "$PID")
	for _ in 1 2 3; do
		scry_ends 0 patch count work_fold work_mix -p "$PID" -d 0.1s
		grep -q "work_fold" "$T/scry.out"
	done
	as_before "$PID" "$before" "after three watches"
	goes_on "$T/coroutine.out"
	ends_right "$PID" coroutine
}

@test "on the small stack every other millisecond: entered on the other one" {
	target coroutine alternates
	before=$(state_of "$PID")
	scry_ends 0 patch count work_fold -p "$PID" -d 0.2s
	as_before "$PID" "$before" "after a watch"
	goes_on "$T/coroutine.out"
	ends_right "$PID" coroutine
}

@test "never on any other stack: entered at the unused end of its own" {
	target coroutine alone
	before=$(state_of "$PID")
	for _ in 1 2 3; do
		scry_ends 0 patch count work_fold -p "$PID" -d 0.1s
		grep -q "work_fold" "$T/scry.out"
	done
	as_before "$PID" "$before" "after three watches"
	goes_on "$T/coroutine.out"
	ends_right "$PID" coroutine
}

@test "never on any other stack, whose own has no unused end: refused, and nothing is there" {
	target coroutine deep
	before=$(state_of "$PID")
	scry_ends 1 patch count work_fold -p "$PID" -d 0.1s
	says "a stack with known ends"
	as_before "$PID" "$before" "after a refusal"
	goes_on "$T/coroutine.out"
	ends_right "$PID" coroutine
}

# uses MOST ARGS...: how much more of the caller's stack is used when its calls are watched.
uses() {
	local most=$1 before
	shift
	target coroutine shallow
	before=$(deep)
	watches "$@"
	echo "$*: $(deep), $before without"
	[ "$(($(deep) - before))" -le "$most" ]
	rm "$T"/coroutine.*
}

@test "what is hooked uses at most 1 KiB of the caller's stack" {
	uses 1024 patch count work_fold
	uses 1024 patch time work_fold
	uses 1024 patch log work_fold
	uses 1024 calls -x work_fold -o "$T/a.scry"
	uses 1024 calls -x work_fold -w 4 -o "$T/b.scry"
	uses 1024 calls -c -x work_fold
	uses 1024 malloc record -o "$T/c.scry"
	uses 1024 malloc record --stack -o "$T/d.scry"
}

@test "and 2 KiB where arguments are read" {
	printf 'int work_fold(array(string, arg2)*, int);\n' >"$T/prototypes"
	uses 2048 calls -x work_fold -F "$T/prototypes" -o "$T/a.scry"
	uses 2048 calls -x work_fold -w 4 -F "$T/prototypes" -o "$T/b.scry"
}
