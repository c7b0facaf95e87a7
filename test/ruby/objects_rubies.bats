#!/usr/bin/env bats
# The truth tests on other Rubies: SCRY_TEST_RUBIES="/path/to/ruby:/path/to/another". Arguments may
# follow a path ("/path/to/ruby --yjit"). Nothing is asked of the machine: without the variable all
# is skipped.

load lib

setup() {
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	prepare
	IFS=: read -ra RUBIES <<<"$SCRY_TEST_RUBIES"
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

# on_each FOLDER: every script of it, on every Ruby; says all that differ.
on_each() {
	local ruby script bad=0
	for ruby in "${RUBIES[@]}"; do
		for script in "$HERE/$1"/*.rb; do
			read -ra words <<<"$ruby"
			"${words[@]}" "$script" >/dev/null 2>&1 || { echo "$ruby cannot run $script" >&3; continue; }
			# Again: a busy machine loses events, and with a JIT the VM's own account now and then misses
			# an object of a thread.
			for _ in 1 2 3; do
				agree "$ruby" "$script" >"$T/log" 2>&1 && continue 2
			done
			echo "$ruby: $(cat "$T/log")"
			bad=1
		done
	done
	[ "$bad" = 0 ]
}

# watch_whole PID: a short watch into $T/o.json; again when the machine was too busy to see all.
watch_whole() {
	for _ in 1 2 3 4 5; do
		"$SCRY" objects -p "$1" -d 500ms --top 0 -o "$T/o.json" --force || return 1
		json_is "$T/o.json" 'r["honesty"]["lost"] == 0' >/dev/null && return 0
	done
	echo "events were lost in each of five watches"
	return 1
}

@test "truth, on every Ruby" {
	on_each truth
}

@test "late, on every Ruby" {
	on_each late
}

@test "a live program, on every Ruby: the rows stand in the ratio of its rounds" {
	for ruby in "${RUBIES[@]}"; do
		read -ra words <<<"$ruby"
		start counted "${words[@]}" "$HERE/programs/counted.rb"
		wait_for 10 in_file "^pid" "$T/counted.out"
		for i in 1 2 3; do
			watch_whole "$PID"
			point="$(json "$T/o.json" 'rows.select { |x| x["line"] == 11 && x["class"] == "Point" }.sum { |x| x["allocated"] }')"
			echo "$ruby: $point"
			[ "$point" -gt 100 ]
			json_is "$T/o.json" "rows.select { |x| x['line'] == 15 && x['class'] == 'String' }.sum { |x| x['allocated'] }.then { |n| (n - 3 * $point).abs <= 4 }"
			json_is "$T/o.json" 'r["honesty"]["errors"] == 0'
		done
		"$SCRY" ps | grep -w "$PID"
		kill -TERM "$PID"
		finish "$PID"
	done
}
