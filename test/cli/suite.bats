#!/usr/bin/env bats
# The runner of the tests (tools/run-tests) on trees of its own: what proves nothing does not pass.

source "$BATS_TEST_DIRNAME/lib.bash"

# suite TEXT: a tree whose one bats file is TEXT (with TEST for @test), below a folder called scry; what its run says is in $T/log.
suite() {
	local tree=$T/scry/main
	mkdir -p "$tree/tools" "$tree/test/cli" "$tree/build/test"
	cp "$ROOT/tools/run-tests" "$tree/tools/run-tests"
	echo "${1//TEST/@test}" >"$tree/test/cli/one.bats"
	env -u SCRY -u SCRY_BUILD -u XDG_CACHE_HOME bash "$tree/tools/run-tests" build >"$T/log" 2>&1 3>&-
}

@test "what passes, passes; what is skipped is said at the end, with its reason" {
	suite 'TEST "right" { true; }
TEST "later" { skip "no such thing here"; }'
	tail -2 "$T/log" | head -1 | grep -qx "skipped: one: later # skip no such thing here"
	[ "$(tail -1 "$T/log")" = "1 passed, 0 failed, 1 skipped" ]
}

@test "the longest files begin first, and are told first; the end says what files took" {
	suite 'TEST "right" { true; }'
	echo '@test "long" { true; }' >"$T/scry/main/test/cli/kill.bats"
	bash "$T/scry/main/tools/run-tests" build >"$T/log" 2>&1 3>&-
	[ "$(head -1 "$T/log")" = "ok    kill: long" ]
	grep -qE '^[0-9]+ s of processors; longest, in s \(of processors\): (kill|one) [0-9]+ \([0-9]+\),' "$T/log"
	[ "$(tail -1 "$T/log")" = "2 passed, 0 failed" ]
}

@test "a file of which everything is skipped fails" {
	no suite 'TEST "a" { skip "no such thing here"; }
TEST "b" { skip "nor that"; }'
	grep -qx "FAIL  one: all of it was skipped" "$T/log"
	[ "$(tail -1 "$T/log")" = "0 passed, 1 failed, 2 skipped" ]
}

@test "a failure, a file that ends early, no file at all: the run fails, and says which" {
	no suite 'TEST "wrong" { false; }'
	grep -qx "failed: one: wrong" "$T/log"
	printf '#!/bin/sh\necho 1..2\necho ok 1 - a\nexit 1\n' >"$T/scry/main/build/test/unit_two"
	chmod +x "$T/scry/main/build/test/unit_two"
	no suite 'TEST "right" { true; }'
	grep -qx "FAIL  two: exit status 1, 1 of 2 tests done" "$T/log"
	rm "$T/scry/main/test/cli/one.bats"
	mkdir -p "$T/scry/main/test/ruby"
	echo '@test "right" { true; }' >"$T/scry/main/test/ruby/one.bats"
	no suite 'TEST "right" { true; }'
	grep -qx "FAIL  one: two tests have this name, and one result would be lost" "$T/log"
	rm "$T/scry/main/test/ruby/one.bats" "$T/scry/main/test/cli/one.bats"
	no bash "$T/scry/main/tools/run-tests" build one >"$T/log" 2>&1
	grep -q "there is no test 'one'" "$T/log"
}

@test "most_hold: chance may spoil one of three, a wrong figure none, no answer is no proof" {
	local answers
	answer() { local got=${answers%% *}; answers=${answers#* }; return "$got"; }
	answers="0 2 0 "
	most_hold 2 3 answer
	answers="2 0 2 0 0 "
	no most_hold 2 3 answer
	[ "$answers" = "0 0 " ] # the answer was known: nothing was tried again
	skip() { skipped=$1; return 3; } # bats' own ends this test
	answers="1 0 1 "
	no most_hold 2 3 answer
	[ "$skipped" = "the machine is too busy: 2 of 3 measurements say nothing" ]
}

@test "a program in a clone that is called scry has none of scry's mappings" {
	mkdir -p "$T/scry/scry"
	cp "$(readlink -f /bin/sleep)" "$T/scry/scry/scry-sleeps"
	start sleeps "$T/scry/scry/scry-sleeps" 60
	wait_for 10 grep -q "scry-sleeps" "/proc/$PID/maps"
	[ "$(mappings "$PID")" -eq 0 ]
}
