#!/usr/bin/env bats
# Bytes of each line and class against ObjectSpace.memsize_of, asked in the program itself: objects of many kinds
# and sizes, those that died and those that live when the program ends (weights/make.rb, judge.rb). By events, by hooks,
# sampled, with stacks; started and attached. On $RUBY, and on those of SCRY_TEST_RUBIES.

load lib

# started RUBY SAMPLED OPTIONS...
started() {
	local ruby=$1 sampled=$2 times
	shift 2
	for times in $(seq "$(share 3 20)"); do
		# shellcheck disable=SC2086
		"$SCRY" objects --force --top 0 -o "$T/o.json" "$@" -- $ruby "$HERE/weights/make.rb" "$T/truth" >"$T/out" 2>&1 || {
			# some have no hooks: then that is said
			grep -q "cannot be watched by hooks" "$T/out" && return 0
			cat "$T/out"
			return 1
		}
		"$RUBY" "$HERE/weights/judge.rb" "$T/truth" "$T/o.json" ${sampled:+"$sampled"} || {
			echo "$ruby, $times: $*"
			return 1
		}
	done
}

@test "weights: by events, from the beginning to the end" {
	while read -r ruby; do started "$ruby" ""; done < <(rubies)
}

@test "weights: by hooks" {
	while read -r ruby; do started "$ruby" "" --source hooks; done < <(rubies)
}

@test "weights: with stacks" {
	while read -r ruby; do started "$ruby" "" --stacks; done < <(rubies)
}

# Where the VM does not say what is marked (3.4 on), a sampled object is seen to have ended when its content is gone:
# its size is then what it was when the collection had marked.
@test "weights: sampled, by objects and by bytes" {
	while read -r ruby; do
		started "$ruby" sampled --sample 10
		started "$ruby" sampled --sample 4KiB
		started "$ruby" sampled --sample 10 --source hooks
	done < <(rubies)
}

# attached RUBY SAMPLED OPTIONS...: from a line on stdin until all is made
attached() {
	local ruby=$1 sampled=$2 target scry
	shift 2
	rm -f "$T/go"
	mkfifo "$T/go"
	exec 7<>"$T/go"
	# shellcheck disable=SC2086
	start target $ruby "$HERE/weights/make.rb" "$T/truth" wait <"$T/go"
	target=$PID
	wait_for 20 in_file "^ready" "$T/target.out"
	start scry "$SCRY" objects -p "$target" --force --top 0 -o "$T/o.json" "$@"
	scry=$PID
	wait_for 30 in_file "watching process" "$T/scry.err"
	echo >&7
	wait_for 60 in_file "^done" "$T/target.out"
	kill -INT "$scry"
	finish "$scry" || { cat "$T/scry.err"; return 1; }
	echo >&7
	finish "$target"
	exec 7>&-
	"$RUBY" "$HERE/weights/judge.rb" "$T/truth" "$T/o.json" ${sampled:+"$sampled"} || {
		echo "$ruby: $*"
		return 1
	}
}

@test "weights: of a process that runs" {
	while read -r ruby; do
		for _ in $(seq "$(share 2 20)"); do attached "$ruby" ""; done
	done < <(rubies)
}

# It waits in the midst of a sweep, which 3.4 and later tell only when it is over.
@test "weights: of a process that runs, sampled" {
	while read -r ruby; do
		for _ in $(seq "$(share 2 20)"); do attached "$ruby" sampled --sample 10; done
	done < <(rubies)
}

@test "weights: what cannot be asked is counted as that, and starred: the program ends by exit!" {
	"$SCRY" objects --top 0 -o "$T/o.json" -- "$RUBY" -e '$k = []; 1000.times { $k << "x" * 900 }; exit!(true)' >"$T/out" 2>&1
	json_is "$T/o.json" 'x = rows.find { |x| x["file"] == "-e" && x["class"] == "String" && x["live"] >= 1000 }
	  x["live_unsized"] >= 1000 && x["unsized"] >= x["live_unsized"] && x["is_slots_only"] && r["totals"]["unsized"] >= 1000'
	"$SCRY" objects --top 0 -- "$RUBY" -e '$k = []; 1000.times { $k << "x" * 900 }; exit!(true)' >"$T/text" 2>/dev/null
	grep -q "unsized" "$T/text"
}

@test "weights: where the bytes of most objects are not known, rows are sorted by count, and that is said" {
	cat >"$T/most.rb" <<-'EOF'
		X = "x".freeze
		20_000.times { X.match(/x/) }
		900.times { "y" * 4000 }
	EOF
	"$SCRY" objects --top 0 --sort bytes -o "$T/o.json" -- "$RUBY" --disable=gems "$T/most.rb" >"$T/out" 2>&1
	json_is "$T/o.json" 'mine = rows.select { |x| x["file"].to_s.end_with?("most.rb") }
	  mine[0]["class"] == "MatchData" && mine[0]["bytes"] < mine.find { |x| x["line"] == 3 && x["class"] == "String" }["bytes"]'
	grep -q "sorted by count, not by bytes" "$T/o.json"
	"$SCRY" objects --top 0 --force --sort bytes -o "$T/o.json" -- "$RUBY" -e '3000.times { "y" * 900 }' >"$T/out" 2>&1
	no grep -q "sorted by count" "$T/o.json"
}

@test "weights: who asks all objects for their size at its end is told what it is told without scry, and is not kept waiting" {
	cat >"$T/ask.rb" <<-'EOF'
		require "objspace"
		at_exit { 5.times { ObjectSpace.memsize_of_all; ObjectSpace.count_objects_size } ; puts "asked" }
		$k = Array.new(1000) { "x" * 900 }
		5.times { ObjectSpace.memsize_of_all }
	EOF
	"$SCRY" objects --top 0 -o "$T/o.json" -- "$RUBY" "$T/ask.rb" >"$T/out" 2>&1
	grep -q asked "$T/out"
	json_is "$T/o.json" 'x = rows.find { |x| x["line"] == 3 && x["class"] == "String" && x["live"] >= 1000 }
	  x["live_unsized"] == 0 && x["live_bytes"] >= 1000 * 900'
}
