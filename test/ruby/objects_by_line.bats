#!/usr/bin/env bats
# `scry objects` beside what a profiler within the program says, in memory_profiler's way: what each line allocated while
# no collection ran, and what of it is retained after some. By ObjectSpace alone, no gem. Tracing stays on: once it is
# stopped, ObjectSpace says of a new object in a freed one's slot what it knew of that one.

load lib

@test "by line and class, allocated and retained are what ObjectSpace says within the program" {
	cat >"$T/lines.rb" <<'RUBY'
require "json"
require "objspace"
class Spot; end
KEPT = []
def leaves(n) = n.times { Spot.new } # dropped at once
def keeps(n)
  n.times do |i|
    text = "a text of #{i}, too long to be in its slot"
    KEPT << text if i % 3 == 0
    KEPT << [i, Spot.new] if i % 5 == 0
  end
end
def lasts(n)
  n.times { |i| KEPT << { i => i.to_s } }
end
def counts
  sums = Hash.new(0)
  ObjectSpace.each_object do |o|
    file = ObjectSpace.allocation_sourcefile(o)
    line = ObjectSpace.allocation_sourceline(o)
    sums["#{line} #{o.class}"] += 1 if file == __FILE__ && line.between?(5, 15)
  end
  sums
end
GC.start
GC.disable
ObjectSpace.trace_object_allocations_start
leaves(700)
keeps(900)
lasts(300)
allocated = counts
GC.enable
4.times { GC.start }
File.write(ENV.fetch("TRUTH"), JSON.dump(allocated: allocated, retained: counts))
RUBY
	TRUTH="$T/truth.json" "$SCRY" objects --force-gc -o "$T/o.json" -- "$RUBY" "$T/lines.rb"
	cat >"$T/compare.rb" <<'RUBY'
require "json"
truth = JSON.parse(File.read(ARGV[0]))
sums = Hash.new { |h, k| h[k] = [0, 0] }
JSON.parse(File.read(ARGV[1]))["rows"].each do |r|
  next unless r["file"]&.end_with?("/lines.rb") && r["line"].between?(5, 15)
  sum = sums["#{r["line"]} #{r["class"]}"]
  sum[0] += r["allocated"]
  sum[1] += r["live"]
end
want = truth["allocated"].to_h { |k, n| [k, [n, truth["retained"].fetch(k, 0)]] }
(want.keys | sums.keys).each { |k| puts "#{k}: #{want[k]} by ObjectSpace, #{sums[k]} by scry" if want[k] != sums[k] }
abort "too little to compare" if want.size < 6 || want.values.count { |_, kept| kept > 100 } < 4
exit(want == sums)
RUBY
	"$RUBY" "$T/compare.rb" "$T/truth.json" "$T/o.json"
}
