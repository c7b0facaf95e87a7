#!/usr/bin/env bats
# Lines of Ruby that make system calls. The program makes three calls of getppid in one line for each question for a
# file in another: lines and their methods are known, and so is the ratio. On $RUBY, and on those of SCRY_TEST_RUBIES.

load lib

setup() {
	need_scry
	prepare
	need_bpf
	LINES="$HERE/syscalls/lines.rb"
	rubies=("$RUBY")
	if [ -n "${SCRY_TEST_RUBIES:-}" ]; then
		IFS=: read -ra others <<<"$SCRY_TEST_RUBIES"
		rubies+=("${others[@]}")
	fi
	for ruby in "${rubies[@]}"; do # their layouts are learned before: that takes some tenths of a second, in which nothing has lines
		"$SCRY" syscalls -q --exact -o "$T/warm.json" --force -- "$ruby" --disable=gems "$LINES" threads 20000 >/dev/null
	done
}

# has_lines FILE: nearly all calls of either kind are of its line. What was before scry knew the Ruby has none.
has_lines() {
	json_is "$1" 'of = ->(name, line, method) { x = rows.select { |y| y["name"] == name && y["symbol"] != nil }.max_by { |y| y["count"] }
		x && x["file"].to_s.end_with?("/lines.rb") && x["line"] == line && x["method"].to_s.end_with?(method) && x["line_share"] > 0.8 }
		of["getppid", 7, "#often"] && of["newfstatat", 8, "#seldom"]'
}

# by_line FILE: the sums of these two lines are what each call's row has of them, at least, as they wait for the GVL too
# (within some hundredths, more on a busy host: rows share out by process); all rows together are all calls.
by_line() {
	local of
	of="$(json "$T/o.json" '%w[getppid newfstatat].map { |n| x = rows.select { |y| y["name"] == n }.max_by { |y| y["count"] }; (x["count"] * x["line_share"]).floor }.join(" ")')"
	"$SCRY" report --by line -o "$T/by.json" --force "$1"
	json_is "$T/by.json" "want = %w[$of].map(&:to_i); got = [7, 8].map { |n| rows.select { |x| x['file'].to_s.end_with?('/lines.rb') && x['line'] == n }.sum { |x| x['count'] } }
		got[0] > want[0] * 0.85 && got[1] > want[1] * 0.85 && (rows.sum { |x| x['count'] } - r['totals']['calls']).abs < r['totals']['calls'] / 1000"
}

watch() { # MODE ROUNDS OPTIONS...: one that runs already
	local mode=$1 rounds=$2
	shift 2
	mkfifo "$T/in"
	exec 8<>"$T/in"
	start lines bash -c 'exec "$@" <"$0" 8>&-' "$T/in" "$ruby" --disable=gems "$LINES" "$mode" "$rounds" wait
	lines=$PID
	wait_for 20 in_file "^pid" "$T/lines.out"
	start scry "$SCRY" syscalls --exact -p "$lines" -o "$T/o.scry" --force "$@"
	scry=$PID
	wait_for 20 in_file "counting each call" "$T/scry.err"
	echo go >&8
	finish "$lines"
	finish "$scry"
	exec 8>&-
	rm "$T/in"
	"$SCRY" report -o "$T/o.json" --force "$T/o.scry"
}

@test "threads that live for long: line, method, ratio" {
	for ruby in "${rubies[@]}"; do
		watch threads 20000
		has_lines "$T/o.json"
		by_line "$T/o.scry"
	done
}

@test "a thread for each request: those that live for milliseconds have lines too" {
	for ruby in "${rubies[@]}"; do
		watch requests 1500
		has_lines "$T/o.json"
		by_line "$T/o.scry"
	done
}

@test "fork children have lines from their first call on" {
	for ruby in "${rubies[@]}"; do
		watch forks 20000 -f
		has_lines "$T/o.json"
		by_line "$T/o.scry"
	done
}

@test "a Ruby that another one becomes by exec is found" {
	for ruby in "${rubies[@]}"; do
		watch exec 40000
		json_is "$T/o.json" 'x = rows.select { |y| y["name"] == "getppid" }.max_by { |y| y["count"] }; x["count"] == 1_200_000 && x["line"] == 7 && x["line_share"] > 0.5'
	done
}

@test "sampled: lines of the time in calls" {
	for ruby in "${rubies[@]}"; do
		"$SCRY" syscalls -q -o "$T/s.json" --force -- "$ruby" --disable=gems "$LINES" threads 60000 >/dev/null
		json_is "$T/s.json" 'x = rows.select { |y| y["name"] == "newfstatat" }.max_by { |y| y["samples"] }; x["count"].nil? && x["line"] == 8 && x["line_share"] > 0.5'
	done
}

@test "what is no Ruby has no lines, and by line that is said" {
	"$SCRY" syscalls -q --exact --by line -- ls / >"$T/out"
	in_file "no call of a Ruby's was sampled" "$T/out"
}

@test "a Ruby that nobody has learned yet is learned before the watch begins: a short one has lines" {
	for ruby in "${rubies[@]}"; do
		start calls "$ruby" --disable=gems -e '$stdout.sync = true; puts "ready"; loop { Process.ppid }'
		wait_for 20 in_file ready "$T/calls.out"
		XDG_CACHE_HOME="$T/nothing" "$SCRY" syscalls -q --by line -p "$PID" -d 500ms --force -o "$T/o.json"
		json_is "$T/o.json" '(x = rows.find { |y| y["file"] == "-e" && y["line"] == 1 }) && x["samples"] > 0'
		rm -rf "$T/nothing"
		kill "$PID"
	done
}
