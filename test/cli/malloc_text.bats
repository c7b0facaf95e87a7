#!/usr/bin/env bats
# A malloc recording as text and back, by the command line.

load lib

setup() {
	prepare
	cat >"$T/a.txt" <<-'END'
	scry-malloc 1 pid 4711
	caller caller=1 module=/usr/lib/libapp.so symbol=parse offset=28
	thread thread=1 tid=4711 name=main
	@1000
	1: malloc(24) = 0 usable=24 caller=1
	1: realloc(0, 48) = 0 moved usable=56 caller=1
	1: free(0)
	END
}

@test "text becomes a recording, which is text again and has a report" {
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	"$SCRY" malloc export "$T/a.scry" >"$T/b.txt"
	diff <(grep -v ^@ "$T/a.txt") <(grep -v ^@ "$T/b.txt")
	"$SCRY" malloc import - -o "$T/b.scry" <"$T/b.txt"
	"$SCRY" malloc export "$T/b.scry" -o "$T/c.txt"
	cmp "$T/b.txt" "$T/c.txt"
	"$SCRY" report "$T/a.scry" | grep -F "parse+0x1c (libapp.so)"
	"$SCRY" report "$T/a.scry" --json --at end | jq -e '.schema == "scry.malloc/3" and .data_quality.events == 3 and .totals.peak_bytes == 48'
	"$SCRY" info "$T/a.scry" | grep -F "malloc, packed"
	"$SCRY" report "$T/a.scry" --at 1h | grep -F "note: the recording ends after "
	[[ "$("$SCRY" report "$T/a.scry" --at 0)" != *"the recording ends after"* ]]
}

@test "what was recorded, as text and back: the same calls at the same times, and the same report" {
	"$SCRY" malloc record -q -o "$T/r.scry" -- "$TARGETS/target_malloc_family"
	"$SCRY" malloc export "$T/r.scry" -o "$T/o.txt"
	"$SCRY" malloc import "$T/o.txt" -o "$T/s.scry"
	"$SCRY" malloc export "$T/s.scry" -o "$T/b.txt"
	diff "$T/o.txt" "$T/b.txt"
	"$SCRY" report --json "$T/r.scry" >"$T/r.json"
	"$SCRY" report --json "$T/s.scry" >"$T/s.json"
	# The verdict of growth knows of the program's end, which the text does not tell.
	for of in r s; do json "$T/$of.json" 'r["totals"].except("verdict")' >"$T/$of.totals"; done
	cmp "$T/r.totals" "$T/s.totals"
	json_is "$T/s.json" 'r["totals"]["peak_ns"] > 0'
}

@test "folded, a recording without stacks: native callers by their names" {
	cat >>"$T/a.txt" <<-'END'
	caller caller=2 module=/usr/lib/libbare.so offset=16
	1: malloc(10) = 0 usable=24 caller=2
	1: malloc(10) = 1 usable=24 caller=1
	1: malloc(10) = 2 usable=24
	END
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	"$SCRY" report "$T/a.scry" --folded --at end 2>/dev/null >"$T/folded"
	diff <(LC_ALL=C sort "$T/folded") - <<-'END'
	[unknown] 10
	libbare.so+0x10 10
	parse 10
	END
}

@test "what is no such text is refused with its line, and no half recording is left" {
	echo "1: free(9)" >>"$T/a.txt"
	run "$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	[ "$status" -eq 1 ]
	[[ "$output" == *"a.txt': line 8: no block of that number lives"* ]]
	[ ! -e "$T/a.scry" ]
	run "$SCRY" malloc export "$T/a.txt"
	[ "$status" -eq 1 ]
	run "$SCRY" malloc import "$T/a.txt"
	[ "$status" -eq 2 ]
	run "$SCRY" report "$T/a.txt" --at noon
	[ "$status" -eq 2 ]
	for command in "report" "malloc export" "malloc replay"; do
		# shellcheck disable=SC2086
		run "$SCRY" $command "$T/a.txt" --pid 4294972007
		[ "$status" -eq 2 ]
		[[ "$output" == *"option --pid: '4294972007' is too big a number"* ]]
	done
}

@test "the report of malloc refuses what is for objects only" {
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	for option in --live --internal; do
		run "$SCRY" report "$T/a.scry" $option
		[ "$status" -eq 1 ]
		[[ "$output" == *"the malloc view has no $option;"* ]]
	done
	run "$SCRY" report "$T/a.scry" --filter class=String
	[ "$status" -eq 1 ]
	[[ "$output" == *"the malloc view has no column 'class' to filter by; fix: --filter with one of module, "* ]]
	run "$SCRY" report "$T/a.scry" --sort age
	[ "$status" -eq 1 ]
	[[ "$output" == *"the malloc view has no column 'age' to sort by; fix: --sort with one of at_bytes, at_blocks, "* ]]
	"$SCRY" report "$T/a.scry" --sort live --top 1 --grep parse | grep -F "parse+0x1c (libapp.so)"
}

@test "--force: the old file stays when the input is no good, and is never the input itself" {
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	cp "$T/a.scry" "$T/was.scry"
	mkdir "$T/out"
	echo precious >"$T/out/old"
	echo "1: free(9)" >"$T/bad.txt"
	run "$SCRY" malloc export "$T/nosuch.scry" -o "$T/out/old" --force
	[ "$status" -eq 1 ]
	run "$SCRY" malloc export "$T/a.txt" -o "$T/out/old" --force
	[ "$status" -eq 1 ]
	run "$SCRY" malloc import "$T/bad.txt" -o "$T/out/old" --force
	[ "$status" -eq 1 ]
	run "$SCRY" report "$T/a.scry" --by class -o "$T/out/old" --force
	[ "$status" -eq 1 ]
	run "$SCRY" diff "$T/a.scry" "$T/a.scry" --by gem -o "$T/out/old" --force
	[ "$status" -eq 1 ]
	[ "$(cat "$T/out/old")" = precious ]
	run "$SCRY" report "$T/a.scry" --view info -o "$T/out/r.html"
	[ "$status" -eq 1 ]
	[ "$(ls -A "$T/out")" = old ]
	cp "$T/a.scry" "$T/plain" # an ending that is not written is refused before
	for command in "malloc export" report "malloc replay"; do
		run "$SCRY" $command "$T/plain" -o "$T/plain" --force
		[ "$status" -eq 1 ]
		[[ "$output" == *"plain' is the file that is being read"* ]]
		run "$SCRY" $command "$T/a.scry" -o "$T/a.scry" --force
		[ "$status" -ne 0 ]
	done
	cmp "$T/plain" "$T/was.scry"
	cmp "$T/a.scry" "$T/was.scry"
	"$SCRY" malloc export "$T/a.scry" -o "$T/out/old" --force
	head -1 "$T/out/old" | grep -Fx "scry-malloc 1 pid 4711"
	[ "$(stat -c %a "$T/out/old")" = 600 ]
	[ "$(ls -A "$T/out")" = old ]
}

has_open() { # PID FOLDER: a file of it
	ls -l "/proc/$1/fd" | grep -qF "$2/"
}

@test "--force: who is killed while he writes leaves the old file, and nothing beside it" {
	mkdir "$T/out"
	echo precious >"$T/out/old"
	mkfifo "$T/in"
	exec 8<>"$T/in"
	start scry "$SCRY" malloc import "$T/in" -o "$T/out/old" --force
	wait_for 10 has_open "$PID" "$T/out"
	kill -KILL "$PID"
	ended "$PID"
	[ "$status" -eq 137 ]
	[ "$(cat "$T/out/old")" = precious ]
	[ "$(ls -A "$T/out")" = old ]
}

@test "a torn recording is said to be one when it is exported, and in the recording made of that" {
	"$SCRY" malloc import "$T/a.txt" -o "$T/a.scry"
	printf 'half a chunk' >>"$T/a.scry"
	"$SCRY" malloc export "$T/a.scry" -o "$T/b.txt" 2>"$T/err"
	grep -F "the recording's end is torn" "$T/err"
	grep "^lost why=" "$T/b.txt"
	"$SCRY" malloc import "$T/b.txt" -o "$T/b.scry"
	"$SCRY" report "$T/b.scry" | grep -Fx "incomplete: losses unknown"
	"$SCRY" report "$T/b.scry" | grep -F "end is torn"
	"$SCRY" report "$T/b.scry" --json | jq -e '.data_quality.is_complete == false'
	[ "$("$SCRY" malloc export "$T/b.scry" 2>"$T/err" | grep -c ^lost)" -eq 1 ]
	[ ! -s "$T/err" ]
}
