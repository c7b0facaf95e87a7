# check_lockstep.rb TRUTH REPORT: the share of the one method, within 3.5 points.
require "json"
truth = JSON.parse(File.read(ARGV[0]))
rows = JSON.parse(File.read(ARGV[1]))["rows"]
seen = truth.to_h { |name, _| [name, rows.select { |r| r["method"] == "Object##{name}" }.map { |r| r["total_ns"] }.max.to_i] }
share = ->(times) { 100.0 * times["begins"] / times.values.sum }
puts format("%.1f %% were, %.1f %% are seen", share[truth], share[seen])
exit (share[truth] - share[seen]).abs < 3.5
