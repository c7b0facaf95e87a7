#!/usr/bin/env bats
# What lives, what it weighs, how old it is: `scry objects` against ObjectSpace and GC, asked inside
# the program while nothing else runs. Programs are in live/.

load lib

# watched SCRIPT [ARGS...] -- SCRY-OPTIONS...: the script is watched from its first line on stdin until
# it says "ready"; report in $T/o.json. RECORDED: the name of a recording to make it of. HALTED: for so many seconds
# from the end of the watch on the program is stopped.
watched() {
	local script=$1
	local -a args=()
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		args+=("$1")
		shift
	done
	shift
	mkfifo "$T/go"
	exec 7<>"$T/go"
	start target "$RUBY" "$HERE/live/$script" "$T/go" "${args[@]}"
	local target=$PID
	wait_for 20 in_file "^pid" "$T/target.out"
	start scry "$SCRY" objects -p "$target" --top 0 -o "$T/${RECORDED:-o.json}" "$@"
	local scry=$PID
	wait_for 30 in_file "watching process" "$T/scry.err"
	echo >&7
	wait_for 60 in_file "^ready" "$T/target.out"
	[ -z "${HALTED:-}" ] || kill -STOP "$target"
	kill -INT "$scry" || { cat "$T/scry.err"; false; }
	if [ -n "${HALTED:-}" ]; then
		sleep "$HALTED"
		kill -CONT "$target"
	fi
	finish "$scry" || { cat "$T/scry.err"; false; }
	echo >&7
	finish "$target" || { cat "$T/target.err"; false; }
	exec 7>&-
	[ -z "${RECORDED:-}" ] || "$SCRY" report "$T/$RECORDED" --top 0 --json >"$T/o.json"
	json_is "$T/o.json" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
}

# sums FILE: per class [allocated, live, live_bytes, freed bytes, stars] of counts.rb's own objects
SUMS='rows.select { |x| %w[Text List Table Plain Wide Pair Many].include?(x["class"]) }.group_by { |x| x["class"] }'

@test "live and live bytes by class are those of each_object and memsize_of" {
	watched counts.rb "$T/truth.json" -- --by class
	"$RUBY" --disable=gems -rjson -e '
	  truth, report = ARGV.map { |f| JSON.parse(File.read(f)) }
	  rows = report["rows"].to_h { |r| [r["class"], r] }
	  bad = truth["live"].reject { |k, (n, bytes)| rows[k]["live"] == n && rows[k]["live_bytes"] == bytes }
	  bad.each_key { |k| puts "#{k}: program #{truth["live"][k]}, scry #{rows[k].slice("live", "live_bytes", "is_slots_only")}" }
	  # 3001 of each were made, and the same number has died or lives.
	  made = truth["live"].keys.reject { |k| rows[k]["allocated"] == 3001 }
	  puts "made: #{made.map { |k| [k, rows[k]["allocated"]] }}" unless made.empty?
	  stars = truth["live"].keys.select { |k| rows[k]["is_slots_only"] }
	  puts "sizes not known: #{stars}" unless stars.empty?
	  passing = rows["Passing"]["live"] == truth["passing"]
	  puts "Passing: #{rows["Passing"]["live"]}, not #{truth["passing"]}" unless passing
	  exit bad.empty? && made.empty? && stars.empty? && passing' "$T/truth.json" "$T/o.json"
	# What was born before is counted apart: 100 OldText at least are among the older ones.
	json_is "$T/o.json" 'rows.none? { |x| x["class"] == "OldText" } && r["totals"]["frees_older"] >= 100'
}

@test "bytes of the freed are what they were when they died" {
	watched counts.rb "$T/truth.json" -- --by class
	"$RUBY" --disable=gems -rjson -e '
	  truth, report = ARGV.map { |f| JSON.parse(File.read(f)) }
	  rows = report["rows"].to_h { |r| [r["class"], r] }
	  # made(0) is in neither account of the program; and what of the dropped still lives is in both.
	  bad = truth["died"].reject do |k, (n, bytes)|
	    row = rows[k]
	    live, live_bytes = truth["live"][k]
	    if live == 1000 # all the dropped are gone
	      last = row["bytes"] - row["live_bytes"] - bytes # of the one made(0) made
	      row["allocated"] - row["live"] == n + 1 && last.between?(40, 640)
	    else
	      (row["bytes"] - bytes - live_bytes).abs <= 2 * 640
	    end
	  end
	  bad.each_key { |k| puts "#{k}: program died #{truth["died"][k]} live #{truth["live"][k]}, scry #{rows[k].slice("allocated", "bytes", "live", "live_bytes")}" }
	  exit bad.empty?' "$T/truth.json" "$T/o.json"
}

@test "max age: the GCs since the oldest was born" {
	watched ages.rb -- --by class
	json_is "$T/o.json" 'a = rows.to_h { |x| [x["class"], x["max_age_gcs"]] }; [a["First"], a["Second"], a["Third"]] == [9, 2, 0]'
	json_is "$T/o.json" 'r["data_quality"]["gcs"] == 10 && r["data_quality"]["full_gcs"] == 10'
	# survived the last full mark: all but the Third
	json_is "$T/o.json" 'a = rows.to_h { |x| [x["class"], x["old_live"]] }; [a["First"], a["Second"], a["Third"]] == [1, 1, 0]'
}

@test "--live lists what survived the last full mark, and nothing else" {
	watched ages.rb -- --by class --live
	json_is "$T/o.json" 'c = rows.map { |x| x["class"] }; c.include?("First") && c.include?("Second") && !c.include?("Third")'
	json_is "$T/o.json" 'rows.all? { |x| x["old_live"] > 0 && x["old_live"] <= x["live"] }'
}

@test "garbage counts as live until it is collected, and --force-gc collects it" {
	watched garbage.rb -- --by class
	json_is "$T/o.json" 'rows.find { |x| x["class"] == "Dropped" }["live"] == 5001 && !r["data_quality"].key?("forced_gc_us")'
	rm "$T/go" "$T/o.json"
	watched garbage.rb -- --by class --force-gc
	# The machine stack may hold a few of the last.
	json_is "$T/o.json" 'd = rows.find { |x| x["class"] == "Dropped" }; d["allocated"] == 5001 && d["live"] <= 3'
	json_is "$T/o.json" 'rows.find { |x| x["class"] == "Kept" }["live"] == 70 && r["data_quality"]["full_gcs"] == 1'
	# It was the program's own garbage: as many are gone there.
	gone="$(tail -1 "$T/target.out")"
	json_is "$T/o.json" "rows.find { |x| x['class'] == 'Dropped' }['live'] == $gone"
}

@test "--force-gc and --every: who compares a slice with the end is told that only the end is without garbage" {
	RECORDED=x.scry watched garbage.rb -- --every 100ms --force-gc
	json_is "$T/o.json" '(r["notes"] || []).any? { |n| n =~ /the end is after a forced collection; slices count/ }'
	"$SCRY" diff "$T/x.scry@start" "$T/x.scry" >"$T/diff"
	grep -q "note: --force-gc: the end is after a forced collection" "$T/diff"
	rm "$T/go" "$T/o.json"
	watched garbage.rb -- --force-gc
	json_is "$T/o.json" '(r["notes"] || []).none? { |n| n.include?("forced collection") }'
}

# slice_at_end: seconds from the beginning to the last slice of x.scry.
slice_at_end() {
	"$SCRY" report "$T/x.scry" --view events --json | jq -rs '[.[] | select(.event == "slice")] |
		(.[-1].end_ns - .[0].begin_ns) / 1e9 | tostring + "s"'
}

# A few may be on the machine stack.
@test "--gc-slices and diff --live: a leak beside garbage on one line is as much as it is, from slice to slice" {
	RECORDED=x.scry watched leak.rb -- --every 100ms --gc-slices
	json_is "$T/o.json" '(r["notes"] || []).none? { |n| n.include?("slice") }'
	for live in "" --live; do
		"$SCRY" diff "$T/x.scry" --from start --to "$(slice_at_end)" --by class $live --json >"$T/o.json"
		json_is "$T/o.json" 'x = rows.find { |x| x["class"] == "Leaked" }; x["allocated_growth"] == 20400 &&
			(x["old_live_growth"] || x["live_growth"]).between?(400, 408)'
	done
	json_is "$T/o.json" 'x = rows[0]; x.key?("old_live_to") && !x.key?("live_growth") && r["totals"].key?("old_live_growth")'
	json_is "$T/o.json" 'rows.all? { |x| x["old_live_from"] > 0 || x["old_live_to"] > 0 }'
	"$SCRY" diff "$T/x.scry" --from start --live >"$T/diff"
	head -1 "$T/diff" | grep -q "^+[0-9,]* objects that survived a full mark; Leaked at .*leak.rb:[0-9]* grew most, by 40[0-8]$"
	rm "$T/go"
	RECORDED=y.scry watched leak.rb -- --every 100ms # the same without: nothing is known to have survived
	"$SCRY" diff "$T/y.scry" --from start --live >"$T/diff"
	json_is "$T/o.json" 'r["data_quality"]["full_gcs"] > 0' || grep -q "fix: record with --gc-slices" "$T/diff"
	run "$SCRY" objects --gc-slices -- "$RUBY" -e 1
	[ "$status" -eq 2 ]
}

@test "--force-gc by hooks: what survived it is known, as by events" {
	watched garbage.rb -- --by class --force-gc --source hooks
	json_is "$T/o.json" 't = r["totals"]; t["old_live"].to_i > 0 && t["old_live"] >= t["live"] / 2 && r["data_quality"]["full_gcs"] > 0 && r["data_quality"]["forced_gc_us"] > 0'
}

@test "--force-gc of a program that cannot be held when the watch ends: it is asked again" {
	HALTED=0.7 watched garbage.rb -- --by class --force-gc
	json_is "$T/o.json" 'r["data_quality"]["full_gcs"] == 1 && r["data_quality"]["forced_gc_us"] > 0'
}

@test "--force-gc on a program whose collector is off: none is made, and the report says so" {
	watched garbage.rb off -- --by class --force-gc
	[ "$(json "$T/o.json" 'r["data_quality"]["gcs"]')" -eq 0 ] || skip "this ruby collects when rb_gc_start is called, disabled or not"
	json_is "$T/o.json" 'rows.find { |x| x["class"] == "Dropped" }["live"] == 5001'
	json_is "$T/o.json" 'r["notes"].any? { |n| n.include?("switched its collector off") }'
}

@test "--force-gc and -f: children that ended were not collected, and nothing is said to live after a collection" {
	cat >"$T/family.rb" <<'RUBY'
require "io/wait"
$stdout.sync = true
go = File.open(ARGV[0])
puts "pid"
go.gets
2.times { Process.wait(fork { GC.disable; 2000.times { "garbage" + "" }; exit!(0) }) }
puts "ready"
i = 0
i += 1 until i % 1000 == 0 && go.wait_readable(0)
RUBY
	mkfifo "$T/go"
	exec 7<>"$T/go"
	start target "$RUBY" "$T/family.rb" "$T/go"
	local target=$PID
	wait_for 20 in_file "^pid" "$T/target.out"
	start scry "$SCRY" objects -f --force-gc -p "$target" -o "$T/x.scry"
	local scry=$PID
	wait_for 30 in_file "watching process" "$T/scry.err"
	echo >&7
	wait_for 60 in_file "^ready" "$T/target.out"
	kill -INT "$scry"
	finish "$scry"
	echo >&7
	finish "$target"
	exec 7>&-
	"$SCRY" report "$T/x.scry" >"$T/text"
	[ "$(grep -c "live after a forced collection" "$T/text")" -eq 0 ]
	grep -q "not freed yet (may be garbage: no collection could be forced in 2 processes)" "$T/text"
	"$SCRY" report "$T/x.scry" --json >"$T/o.json"
	json_is "$T/o.json" 'r["data_quality"]["uncollected_processes"] == 2 && r["data_quality"]["forced_gc_us"] > 0 && r["totals"]["live"] > 4000'
}

@test "--force-gc of a program that ends by itself: it says so, and does not ask for --force-gc" {
	"$SCRY" objects --force-gc -- "$RUBY" -e '1000.times { "a" + "b" }' >"$T/text"
	grep -q "^note: --force-gc: no GC was made: the program ended before the watch did" "$T/text"
	grep -q "not freed yet (may be garbage: no collection could be forced)" "$T/text"
	[ "$(grep -c "force-gc tells" "$T/text")" -eq 0 ]
}

# So long that handlers would record no more without a fresh lease.
@test "--force-gc of a program that collects more than a second later: what it frees then is counted" {
	HALTED=1.5 watched garbage.rb -- --by class --force-gc
	json_is "$T/o.json" 'rows.find { |x| x["class"] == "Dropped" }["live"] <= 3 && r["data_quality"]["forced_gc_us"] > 0'
	json_is "$T/o.json" '(r["notes"] || []).none? { |n| n.include?("--force-gc") } && !r["data_quality"].key?("uncollected_processes")'
}

# It goes on while scry leaves: what dies then is used again, and nothing says so.
@test "live bytes of a program that never stops allocating are right, or it is said that they may not be" {
	start target "$RUBY" -e 'puts "pid"; $stdout.flush; h = {}; i = 0; loop { h[i % 900] = "k" * 60; 20.times { Array.new(10) { |j| "j#{j}" } }; i += 1; sleep 0.002 }'
	wait_for 20 in_file "^pid" "$T/target.out"
	for _ in 1 2 3 4 5 6; do
		"$SCRY" objects -p "$PID" -d 400ms --top 0 --by class -o "$T/o.json" --force
		json_is "$T/o.json" 'x = rows.find { |x| x["class"] == "Array" }; (x && x["bytes"] % x["allocated"] == 0 && x["unsized"] == 0) ||
			(r["notes"] || []).any? { |n| n =~ /freed by the time sizes were read/ }'
	done
}

@test "a target that sleeps makes no GC, and the report says so" {
	start sleeper "$RUBY" -e '$stdout.sync = true; puts "pid"; t = Time.now; "x".dup while Time.now - t < 3; puts "idle"; sleep'
	wait_for 20 in_file "^pid" "$T/sleeper.out"
	start scry "$SCRY" objects -p "$PID" -o "$T/o.json" --force-gc
	wait_for 20 in_file "watching process" "$T/scry.err"
	wait_for 20 in_file "^idle" "$T/sleeper.out"
	kill -INT "$PID"
	finish "$PID"
	json_is "$T/o.json" '(r["data_quality"]["lost"] > 0 || r["data_quality"]["errors"] == 0) && (r["notes"] || []).any? { |n| n.include?("--force-gc") }'
}

@test "addresses are used again: each object has one life" {
	cat >"$T/reuse.rb" <<'RUBY'
class A; end
class B; end
200.times { 1000.times { A.new }; 300.times { B.new }; GC.start(full_mark: false) if rand < 0.3 }
KEPT = Array.new(50) { B.new }
2.times { GC.start }
puts ObjectSpace.each_object(A).count, ObjectSpace.each_object(B).count
RUBY
	"$SCRY" objects --by class -o "$T/o.json" -- "$RUBY" "$T/reuse.rb" >"$T/out"
	a="$(head -1 "$T/out")" b="$(tail -1 "$T/out")"
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0'
	json_is "$T/o.json" "x = rows.find { |x| x['class'] == 'A' }; x['allocated'] == 200_000 && x['live'] == $a"
	json_is "$T/o.json" "x = rows.find { |x| x['class'] == 'B' }; x['allocated'] == 60_050 && x['live'] == $b"
}
