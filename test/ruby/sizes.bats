#!/usr/bin/env bats
# What scry says an object takes, against ObjectSpace: every object of a heap that holds thousands of each
# kind. None may be wrong; unknown only those kinds that are not learned, and objects with variables of
# their own. On $RUBY, and on those of SCRY_TEST_RUBIES="/path/to/ruby:/path/to/another".

load lib

setup() {
	PROBE="${SCRY%/*}/test/ruby_probe"
	[ -x "$PROBE" ] || skip "no ruby_probe at $PROBE: run make first"
	"$RUBY" -e 'require "objspace"; require "json"' || skip "ruby has no objspace"
	prepare
}

# sizes_agree RUBY...
sizes_agree() {
	start sizes "$@" "$HERE/programs/sizes.rb" "$T/dump"
	wait_for 60 grep -q ready "$T/sizes.out"
	grep -o '^{"address":"0x[0-9a-f]*", "type":"[A-Z]*"' "$T/dump" | grep -v SHAPE | cut -d'"' -f4 >"$T/addresses"
	"$PROBE" -q -s "$PID" <"$T/addresses" >"$T/sizes"
	"$RUBY" "$HERE/sizes_compare.rb" "$T/dump" "$T/sizes"
	end_started
}

@test "the size of every object is what ObjectSpace says" {
	sizes_agree "$RUBY"
}

@test "the same on other Rubies" {
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	IFS=: read -ra rubies <<<"$SCRY_TEST_RUBIES"
	for ruby in "${rubies[@]}"; do
		read -ra words <<<"$ruby"
		echo "$ruby"
		sizes_agree "${words[@]}"
	done
}

@test "every kind of object is learned" {
	start still "$RUBY" -e 'puts "ready"; $stdout.flush; sleep'
	wait_for 10 grep -q ready "$T/still.out"
	"$PROBE" "$PID" >"$T/probe"
	for kind in String Array Hash Object Struct Bignum Float Symbol Rational Complex; do
		grep -q "^ok   size of $kind " "$T/probe" || { grep "size of" "$T/probe"; false; }
	done
}
