#!/usr/bin/env bats
# The truth tests on other Rubies: SCRY_TEST_RUBIES="/path/to/ruby:/path/to/another". Arguments may
# follow a path ("/path/to/ruby --yjit").

load lib

setup() {
	prepare
	mapfile -t RUBIES < <(rubies)
}

# What other files test on this machine's own Ruby.
need_others() {
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	RUBIES=("${RUBIES[@]:1}")
}

# agree RUBY SCRIPT: the VM's account and scry's are equal.
agree() {
	local -a ruby
	read -ra ruby <<<"$1"
	TRUTH="$T/truth.json" "${ruby[@]}" -r "$HERE/truth.rb" "$2" >"$T/truth.out" &&
		"$SCRY" objects --top 0 -o "$T/scry.json" --force -- "${ruby[@]}" -r "$HERE/quiet.rb" "$2" >"$T/scry.out" &&
		cmp "$T/truth.out" "$T/scry.out" &&
		"${ruby[0]}" "$HERE/compare.rb" any "$2" "$T/truth.json" "$T/scry.json"
}

agrees() { # RUBY SCRIPT: for most_hold
	agree "$@" >"$T/log" 2>&1 && return 0
	echo "$1: $(cat "$T/log")"
	return 2
}

# on_each FOLDER: every script of it, on every Ruby; says all that differ.
on_each() {
	local ruby script bad=0
	for ruby in "${RUBIES[@]}"; do
		for script in "$HERE/$1"/*.rb; do
			read -ra words <<<"$ruby"
			"${words[@]}" "$script" >/dev/null 2>&1 || { echo "$ruby cannot run $script" >&3; continue; }
			# With a JIT the VM's own account now and then misses an object of a thread.
			most_hold 2 3 agrees "$ruby" "$script" || bad=1
		done
	done
	[ "$bad" = 0 ]
}

@test "truth, on every other Ruby" {
	need_others
	on_each truth
}

@test "late, on every other Ruby" {
	need_others
	on_each late
}

@test "a live program, on every Ruby: the rows stand in the ratio of its rounds" {
	for ruby in "${RUBIES[@]}"; do
		read -ra words <<<"$ruby"
		start counted "${words[@]}" "$HERE/programs/counted.rb"
		wait_for 10 in_file "^pid" "$T/counted.out"
		for i in 1 2 3; do
			"$SCRY" objects -p "$PID" -d 500ms --top 0 -o "$T/o.json" --force
			lost="$(json "$T/o.json" 'r["data_quality"]["lost"]')"
			point="$(json "$T/o.json" 'rows.select { |x| x["line"] == 11 && x["class"] == "Point" }.sum { |x| x["allocated"] }')"
			echo "$ruby: $point"
			[ "$point" -gt 100 ]
			json_is "$T/o.json" "rows.select { |x| x['line'] == 15 && x['class'] == 'String' }.sum { |x| x['allocated'] }.then { |n| (n - 3 * $point).abs <= 4 + 3 * $lost }"
			json_is "$T/o.json" 'r["data_quality"]["errors"] == 0'
		done
		"$SCRY" ps | grep -w "$PID"
		kill -TERM "$PID"
		finish "$PID"
	done
}
