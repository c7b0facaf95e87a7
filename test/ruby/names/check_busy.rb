# check_busy.rb PROBE.json TRUTH READ.json: with the probe, busy.rb's evaluated code has the share of processor time
# that the program says, each at a line that it has, and next to no sample lacks a part of its stack; read, many do.
require "json"

def share(path)
  report = JSON.parse(File.read(path))
  gone = report["rows"].select { |r| r["method"].to_s.match?(/\bgone_\d+\z/) }
  gone.each do |r|
    k = r["method"][/\d+\z/].to_i
    abort "gone_#{k} is at #{r["file"]}:#{r["line"]}" unless r["file"] == "gone_#{k}.rb" && (k % 50 + 2..k % 50 + 5).cover?(r["line"])
  end
  t = report["totals"]
  cut = t["repaired"] + t["rejected"] # a frame of it, or all of it, has no name
  part = 100.0 * gone.sum { |r| r["self_ns"] } / report["rows"].sum { |r| r["self_ns"] }
  puts format("%d methods, %.1f %% of the time; of %d samples %d cut or unknown, %d newest frames left out", gone.size, part, t["samples"], cut, t["dropped"])
  [part, cut.to_f / t["samples"], t]
end

busy, all = File.read(ARGV[1]).split.map(&:to_f)
truth = 100 * busy / all
puts format("by the program %.1f %%", truth)
part, cut, totals = share(ARGV[0])
_, read_cut, = share(ARGV[2])
abort "told wrong" unless totals["names_differ"].zero? && totals["names_agree"] > 10 && totals["code_lost"].zero?
abort "not all of it is named" unless cut < 0.03 && totals["dropped"] < 0.02 * totals["samples"] && (part - truth).abs < 4
abort "reading has named it as well: this is no proof" unless read_cut > 3 * cut
