#!/usr/bin/env bats
# What `scry objects` is told to stop at, to slice, to list and to sum by: against programs whose
# counts are known.

load lib

setup() {
	prepare
	cat >"$T/steps.rb" <<'RUBY'
# Until it is killed: each round keeps 10 Kept and drops 90 Lost, and every 20th round collects.
$stdout.sync = true
class Kept; end
class Lost; end
KEPT = []
def keep = 10.times { KEPT << Kept.new }
def lose = 90.times { Lost.new }
puts 'pid'
i = 0
loop do
  keep
  lose
  i += 1
  GC.start(full_mark: false) if i % 20 == 0
  sleep 0.002
end
RUBY
}

steps() {
	start steps "$RUBY" "$T/steps.rb"
	wait_for 20 in_file "^pid" "$T/steps.out"
}

# until EXPR: it ends by itself, with a report; the program goes on.
until_holds() {
	steps
	timeout 60 "$SCRY" objects -p "$PID" --until "$1" --by class --top 0 -o "$T/o.json"
	kill -0 "$PID"
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0 && r["data_quality"]["is_complete"]'
}

@test "--until live: it is so, and was not much before" {
	until_holds 'live>2000'
	# a GC may have come between the look and the end
	json_is "$T/o.json" 'r["totals"]["live"] > 100 && r["totals"]["allocated"].between?(2000, 1_000_000)'
	json_is "$T/o.json" 'rows.find { |x| x["class"] == "Kept" }["live"] == rows.find { |x| x["class"] == "Kept" }["allocated"]'
}

@test "--until allocated" {
	until_holds 'allocated>20000'
	json_is "$T/o.json" 'r["totals"]["allocated"] > 20_000'
}

@test "--until gcs" {
	until_holds 'gcs>5'
	json_is "$T/o.json" 'r["data_quality"]["gcs"] > 5'
}

@test "--until rss: at once when it holds already" {
	until_holds 'rss>1M'
	json_is "$T/o.json" 'r["data_quality"]["watched_ns"] < 10_000_000_000'
}

@test "--every and diff: what grew in between is what the program made in between" {
	steps
	"$SCRY" objects -p "$PID" -d 3s --every 500ms -o "$T/x.scry"
	"$SCRY" diff "$T/x.scry" --from start --by class --json >"$T/all.json"
	"$SCRY" diff "$T/x.scry" --from 1s --to 2s --by class --json >"$T/part.json"
	"$SCRY" report "$T/x.scry" --by class --json >"$T/end.json"
	# line one is of the later moment
	json_is "$T/part.json" 'r["data_quality"]["watched_ns"] == r["totals"]["to_ns"] && r["totals"]["to_ns"].between?(1_500_000_000, 2_500_000_000)'
	"$RUBY" --disable=gems -rjson -e '
	  all, part, last = ARGV.map { |f| JSON.parse(File.read(f)) }
	  row = ->(r, k) { r["rows"].find { |x| x["class"] == k } || {} }
	  # From the beginning to the end: all that was made; in a part less; 10 Kept for 90 Lost in each, and
	  # every Kept lives.
	  kept, lost = %w[Kept Lost].map { |k| [all, part].map { |r| row[r, k]["allocated_growth"] || 0 } }
	  p kept, lost
	  exit kept[0] == row[last, "Kept"]["allocated"] && kept[1].positive? && kept[1] < kept[0] &&
	       kept.zip(lost).all? { |k, l| (l - 9 * k).abs <= 180 } &&
	       [all, part].all? { |r| row[r, "Kept"]["live_growth"] == row[r, "Kept"]["allocated_growth"] }' "$T/all.json" "$T/part.json" "$T/end.json"
}

@test "--by method and gem, --filter, --internal: sums of the same counts" {
	cat >"$T/sums.rb" <<'RUBY'
require 'set'
class Mine; end
class Other; end
def one = 100.times { Mine.new }
def two = 50.times { Mine.new; Other.new }
3.times { one }
2.times { two }
KEPT = Set.new([1, 2, 3])
200.times { Set.new([1]) }
RUBY
	"$SCRY" objects --top 0 -o "$T/x.scry" -- "$RUBY" "$T/sums.rb"
	report() {
		"$SCRY" report "$T/x.scry" --json "$@" >"$T/r.json"
	}
	report --by class
	json_is "$T/r.json" 'rows.find { |x| x["class"] == "Mine" }["allocated"] == 400 && rows.find { |x| x["class"] == "Other" }["allocated"] == 100'
	report --by method --filter "file=*sums.rb"
	json_is "$T/r.json" 'm = rows.group_by { |x| x["method"] }.transform_values { |l| l.sum { |x| x["allocated"] } }; m["block in one"] == 300 && m["block in two"] == 200'
	json_is "$T/r.json" 'rows.sum { |x| x["allocated"] } + r["totals"]["left_out"] == r["totals"]["allocated"] - r["totals"]["internal"]'
	report --filter "class=Mine"
	json_is "$T/r.json" 'rows.sum { |x| x["allocated"] } == 400 && rows.map { |x| x["line"] }.sort == [4, 5]'
	report --filter "class!=Mine" --filter "method=block in two"
	json_is "$T/r.json" 'rows.size == 1 && rows[0]["class"] == "Other" && rows[0]["allocated"] == 100'
	report --by gem
	json_is "$T/r.json" 'g = rows.to_h { |x| [x["gem"], x["allocated"]] }; g["(app)"] >= 500 && g.keys.any? { |k| k.to_s =~ /ruby|stdlib/i }'
	json_is "$T/r.json" 'rows.sum { |x| x["allocated"] } == r["totals"]["allocated"] - r["totals"]["internal"]'
	report --internal
	json_is "$T/r.json" 'rows.sum { |x| x["allocated"] } == r["totals"]["allocated"] && rows.select { |x| x["is_internal"] }.sum { |x| x["allocated"] } == r["totals"]["internal"] && r["totals"]["internal"] > 0'
}
