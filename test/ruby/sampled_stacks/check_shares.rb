# check_shares.rb TRUTH.json WALL.json CPU.json GVL.json: shares of time by line, against the program's
# own clocks; within two points. WALL and GVL may be "-": only what was run is compared.
require "json"

POINTS = 2.0
truth = JSON.parse(File.read(ARGV[0])).transform_keys(&:to_i)
wall, cpu, gvl = ARGV[1, 3].map { |path| JSON.parse(File.read(path)) unless path == "-" }
@bad = 0

def is(what, got, wanted)
  off = (got - wanted).abs
  @bad += 1 if off > POINTS
  puts format("%-40s %6.2f %%, truth %6.2f %%%s", what, got, wanted, off > POINTS ? "  WRONG" : "")
end

def line_ns(report, line) = report["rows"].select { |r| r["line"] == line && r["method"] == "block in <main>" }.sum { |r| r["total_ns"] }

LINES = truth.keys.select { |l| l < 45 }
{ "wall" => wall, "cpu" => cpu }.compact.each do |clock, report|
  sums = LINES.to_h { |l| [l, line_ns(report, l)] }
  all = sums.values.sum.to_f
  spent = LINES.sum { |l| truth[l][clock] }
  sums.each { |l, ns| is("#{clock}, line #{l}", 100 * ns / all, 100 * truth[l][clock] / spent) }
end
# In a C method: its own time, on the line that calls it.
to_s = cpu["rows"].select { |r| r["method"] == "Integer#to_s" && r["is_c"] }
is("cpu, Integer#to_s of line 39's", 100.0 * to_s.sum { |r| r["total_ns"] } / line_ns(cpu, 39), 100.0)
abort "Integer#to_s is not on its line" unless to_s.all? { |r| r["line"] == 30 }
exit @bad.zero? unless wall
sleeping = wall["rows"].select { |r| r["method"] == "Kernel#sleep" && r["line"] == 40 }.sum { |r| r["self_ns"] }
is("wall, Kernel#sleep of line 40's", 100.0 * sleeping / line_ns(wall, 40), 100.0)
# The pair: what is not spent on a processor is waited for the lock, or for a processor.
pair = truth.select { |l, _| l > 45 }.values
waited = gvl["rows"].select { |r| r["line"] == 48 }.map { |r| r["total_ns"] }.max.to_f / 1e9
total = pair.sum { |s| s["wall"] }
runnable = wall["totals"]["state_runnable_ns"] / 1e9
lowest = total - pair.sum { |s| s["cpu"] } - runnable
puts format("pair: %.2f s waited for the lock, of %.2f s; %.2f s were not on a processor, %.2f s ready", waited, total, lowest + runnable, runnable)
unless waited.between?(lowest - 0.05 * total, lowest + runnable + 0.05 * total)
  puts "  WRONG"
  @bad += 1
end
exit @bad.zero?
