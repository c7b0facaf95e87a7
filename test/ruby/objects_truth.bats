#!/usr/bin/env bats
# `scry objects` against the VM's own account: for every script of truth/ the objects per line and
# class are equal, but for the differences the script declares; for every script of late/ both say
# what its table says. doc/TRUTH.md explains.

load lib

# The tables were made on 3.1, Debian 12's. On another Ruby the VM may be right where it is late there, and the scripts
# make other objects: then it is compared as objects_rubies does it.
setup() {
	prepare
	COMPARED="any" BEFORE=(-r "$HERE/quiet.rb")
	[[ "$("$RUBY" -e 'print RUBY_VERSION')" != 3.1.* ]] || COMPARED="" BEFORE=()
}

# both NAME SCRIPT: runs the script for the VM's account and for scry's.
both() {
	local t="$BATS_TEST_TMPDIR"
	TRUTH="$t/truth.json" "$RUBY" -r "$HERE/truth.rb" "$2" >"$t/truth.out"
	"$SCRY" objects --top 0 -o "$t/scry.json" -- "$RUBY" "${BEFORE[@]}" "$2" >"$t/scry.out"
	cmp "$t/truth.out" "$t/scry.out"
}

truth() {
	both "$1" "$HERE/truth/$1.rb"
	"$RUBY" "$HERE/compare.rb" "${COMPARED:-truth}" "$HERE/truth/$1.rb" "$BATS_TEST_TMPDIR/truth.json" "$BATS_TEST_TMPDIR/scry.json"
}

late() {
	both "$1" "$HERE/late/$1.rb"
	"$RUBY" "$HERE/compare.rb" "${COMPARED:-expect}" "$HERE/late/$1.rb" "$BATS_TEST_TMPDIR/truth.json" "$BATS_TEST_TMPDIR/scry.json"
}

@test "truth: arguments" {
	truth arguments
}

@test "truth: arrays" {
	truth arrays
}

@test "truth: blocks" {
	truth blocks
}

@test "truth: cfuncs" {
	truth cfuncs
}

@test "truth: evals" {
	truth evals
}

@test "truth: exceptions" {
	truth exceptions
}

@test "truth: fibers" {
	truth fibers
}

@test "truth: gsub" {
	truth gsub
}

@test "truth: hashes" {
	truth hashes
}

@test "truth: json" {
	truth json
}

@test "truth: literals" {
	truth literals
}

@test "truth: missing" {
	truth missing
}

@test "truth: numbers" {
	truth numbers
}

@test "truth: objects" {
	truth objects
}

@test "truth: strings" {
	truth strings
}

@test "truth: threads" {
	truth threads
}

@test "late: ambiguous" {
	late ambiguous
}

@test "late: aref" {
	late aref
}

@test "late: arith" {
	late arith
}

@test "late: blockparam" {
	late blockparam
}

@test "late: concatstrings" {
	late concatstrings
}

@test "late: double_splat" {
	late double_splat
}

@test "late: heredoc" {
	late heredoc
}

@test "late: last_statement" {
	late last_statement
}

@test "late: masgn" {
	late masgn
}

@test "late: newhash" {
	late newhash
}

@test "late: newhash_open" {
	late newhash_open
}

@test "late: newrange" {
	late newrange
}

@test "late: ontime" {
	late ontime
}

@test "late: pattern" {
	late pattern
}

@test "late: raise_line" {
	late raise_line
}

@test "late: rest_arguments" {
	late rest_arguments
}

@test "late: splat" {
	late splat
}

@test "late: toregexp" {
	late toregexp
}

@test "late: yields" {
	late yields
}

@test "late: zsuper" {
	late zsuper
}

@test "every script has its test" {
	for f in "$HERE"/truth/*.rb "$HERE"/late/*.rb; do
		name="$(basename "$(dirname "$f")"): $(basename "$f" .rb)"
		grep -qF "@test \"$name\"" "$BATS_TEST_FILENAME" || { echo "no test for $name"; false; }
	done
}

@test "the table of doc/TRUTH.md is the one that the scripts declare" {
	"$RUBY" "$HERE/compare.rb" table "$HERE/late" >"$BATS_TEST_TMPDIR/table"
	sed -n '/^| script | line/,/^$/p' "$ROOT/doc/TRUTH.md" | sed '/^$/d' | diff - "$BATS_TEST_TMPDIR/table"
}

@test "--json prints the same object that -o writes" {
	"$SCRY" objects --top 0 --json -- "$RUBY" "$HERE/late/ontime.rb" >"$BATS_TEST_TMPDIR/json"
	json_is "$BATS_TEST_TMPDIR/json" 'r["schema"] == "scry.objects/3"'
	json_is "$BATS_TEST_TMPDIR/json" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
	json_is "$BATS_TEST_TMPDIR/json" 'rows.any? { |x| x["file"].to_s.end_with?("ontime.rb") && x["class"] == "Symbol" && x["allocated"] == 1 }'
}

@test "what does not die is live, what dies is not" {
	cat >"$BATS_TEST_TMPDIR/keep.rb" <<'RUBY'
class Kept; end
class Lost; end
KEPT = []
1000.times { KEPT << Kept.new }
100_000.times { Lost.new }
GC.start
RUBY
	"$SCRY" objects --top 0 -o "$BATS_TEST_TMPDIR/o.json" -- "$RUBY" "$BATS_TEST_TMPDIR/keep.rb"
	json_is "$BATS_TEST_TMPDIR/o.json" 'k = rows.find { |x| x["class"] == "Kept" }; k["allocated"] == 1000 && k["live"] == 1000'
	json_is "$BATS_TEST_TMPDIR/o.json" 'k = rows.find { |x| x["class"] == "Lost" }; k["allocated"] == 100_000 && k["live"] <= 5'
}

@test "the child's own status comes back" {
	run "$SCRY" objects -o "$BATS_TEST_TMPDIR/o.json" -- "$RUBY" -e 'exit 7'
	[ "$status" -eq 7 ]
	run "$SCRY" objects -o "$BATS_TEST_TMPDIR/p.json" -- "$RUBY" -e 'Process.kill(:TERM, $$); sleep'
	[ "$status" -eq 143 ]
	run "$SCRY" objects -- /nonexistent/ruby
	[ "$status" -eq 127 ]
}
