#!/usr/bin/env bats
# A busy process watched for long: neither it nor scry grows. SCRY_SOAK=1: 10^8 events each.

load lib

rss() {
	awk '/^VmRSS/ { print $2 }' "/proc/$1/status"
}

objects_of() {
	sed -n 's/^round .* objects \([0-9]*\) .*/\1/p' "$T/busy.out" | tail -1
}

# more_than N: the program has made so many objects
more_than() {
	[ "$(objects_of)" -gt "$1" ]
}

# steady OBJECTS OPTIONS...: from a fifth of so many objects on, the program and the keeper stay within
# a quarter and 8 MiB of their sizes.
steady() {
	local objects=$1 at
	shift
	start busy "$RUBY" "$HERE/programs/busy.rb"
	local busy=$PID
	wait_for 30 in_file "^round" "$T/busy.out"
	start scry "$SCRY" objects -p "$busy" --top 0 -o "$T/o.json" "$@"
	local scry=$PID
	wait_for 30 in_file "watching process" "$T/scry.err"
	local keeper
	keeper="$(pgrep -P "$scry" scry-keeper)"
	at="$(objects_of)"
	wait_for 3600 more_than $((at + objects / 5))
	works_on "$keeper" # which has read of them by then
	at="$(objects_of)"
	local busy_kib keeper_kib
	busy_kib="$(rss "$busy")" keeper_kib="$(rss "$keeper")"
	wait_for 3600 more_than $((at + objects * 4 / 5))
	echo "program $busy_kib -> $(rss "$busy") KiB, keeper $keeper_kib -> $(rss "$keeper") KiB"
	[ "$(rss "$busy")" -le $((busy_kib * 5 / 4 + 8192)) ]
	[ "$(rss "$keeper")" -le $((keeper_kib * 5 / 4 + 8192)) ]
	kill -INT "$scry"
	finish "$scry" || { cat "$T/scry.err"; false; }
	# On a loaded machine the keeper may come too late; an end that was lost then shows as an error.
	json_is "$T/o.json" "r['data_quality']['errors'] == 0 || r['data_quality']['lost'] > r['data_quality']['errors']"
	kill -TERM "$busy"
	finish "$busy"
	tail -1 "$T/busy.out" | grep -q ended
}

many() {
	if [ -n "${SCRY_SOAK:-}" ]; then echo 50000000; else echo 2500000; fi
}

@test "long: plain" {
	steady "$(many)"
}

@test "long: with stacks" {
	steady "$(many)" --stacks
}

@test "long: sampled, with stacks" {
	steady "$(many)" --sample 50 --stacks
}
