#!/usr/bin/env ruby
# What -k adds to a traced call: ns a call of umask(2) from Ruby at several depths, untraced, traced, and with its Ruby
# stack. Least of some rounds, each of which measures all. ruby bench/calls_ruby.rb [ROUNDS]
ROUNDS = (ARGV[0] || 5).to_i
SCRY = File.expand_path("../build/scry", __dir__)
FILE = "/dev/shm/scry-bench.scry"
PROGRAM = <<~'E'
  def deep(n, &b) n.zero? ? b.call : deep(n - 1, &b); end
  def run
    t = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    i = 0
    while i < 30_000
      File.umask(i & 63)
      i += 1
    end
    (Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - t) / 30_000.0
  end
  [5, 50, 200].each { |n| deep(n) { puts Array.new(4) { run }.min } }
E
TRACED = [SCRY, "calls", "-x", "umask", "-q", "-o", FILE, "--force"].freeze
WAYS = { "untraced" => [], "scry calls" => [*TRACED, "--"], "scry calls -k" => [*TRACED, "-k", "--"] }.freeze
best = Hash.new { |h, k| h[k] = [Float::INFINITY] * 3 }
ROUNDS.times do
  WAYS.each do |name, words|
    got = IO.popen([*words, "ruby", "--disable-gems", "-e", PROGRAM], &:readlines).map(&:to_f)
    best[name] = best[name].zip(got).map(&:min)
  end
end
File.delete(FILE)
puts "Least of #{ROUNDS} rounds, load #{File.read("/proc/loadavg").split.first}.\n\n| ns a call | 5 frames | 50 frames | 200 frames |\n|---|---|---|---|"
best.each { |name, ns| puts "| #{name} | #{ns.map(&:round).join(" | ")} |" }
