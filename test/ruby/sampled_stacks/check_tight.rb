# check_tight.rb STACKS.json SAMPLES: each callee only under the line that calls it.
require "json"

CALLERS = { "Object#one" => [8, 12], "Object#two" => [9], "Integer#fdiv" => [10], "Kernel#eql?" => [11], "String#eql?" => [11], "Array#each" => [12] }.freeze
LINES = { "Object#one" => 3, "Object#two" => 5 }.freeze
report = JSON.parse(File.read(ARGV[0]))
bad = Hash.new(0)
seen = leaves = 0
report["rows"].each do |row|
  next unless row["method"]

  seen += row["samples"]
  caller = row["frames"][1] or next
  lines = CALLERS[row["method"]] or next
  leaves += row["samples"]
  line = caller["line"]
  line = 12 if caller["method"] == "Array#each"
  ok = lines.include?(line) && (row["is_c"] || row["method"] == "Array#each" || (row["line"] - LINES[row["method"]]).between?(0, 1))
  bad["#{caller["method"]}:#{caller["line"]} -> #{row["method"]}:#{row["line"]}"] += row["samples"] unless ok
end
t = report["totals"]
puts "#{seen} samples, #{leaves} in a callee; valid #{t["valid"]}, repaired #{t["repaired"]}, rejected #{t["rejected"]}, dropped #{t["dropped"]}; impossible #{bad.values.sum}"
bad.each { |what, n| puts "#{n} x #{what}" }
exit bad.empty? && seen >= ARGV[1].to_i # the fewer in a callee, the less the machine has else to do
