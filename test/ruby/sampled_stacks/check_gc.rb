# check_gc.rb TRUTH STACKS.json: the collector's share of the program's time is that of the VM's clock,
# within two points; it stands on the lines that allocate.
require "json"

gc_ns, ran_ns, = File.read(ARGV[0]).split.map(&:to_f)
report = JSON.parse(File.read(ARGV[1]))
rows = report["rows"].select { |r| (r["frames"] || []).drop(1).any? { |f| f["method"] == "<main>" && [14, 15].include?(f["line"]) } }
gc = rows.select { |r| r["method"] == "(garbage collection)" }
ran = rows.sum { |r| r["cpu_ns"] + r["runnable_ns"] + r["gc_ns"] }
seen = 100.0 * rows.sum { |r| r["gc_ns"] } / ran
truth = 100 * gc_ns / ran_ns
lines = gc.group_by { |r| r["line"] }.transform_values { |l| l.sum { |r| r["samples"] } }
puts format("in the collector: %.2f %%, truth %.2f %%; lines %p", seen, truth, lines)
abort "no collection was seen" if gc.empty?
abort "a state without its frame, or a frame without its state" if rows.any? { |r| (r["gc_ns"] > 0) != (r["method"] == "(garbage collection)") }
abort "time is off" if (seen - truth).abs > 2
abort "not where objects are made" if lines.fetch(5, 0) * 2 < lines.values.sum
