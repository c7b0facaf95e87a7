# check_ready.rb TRUTH STACKS.json: as much time running and ready as the kernel has counted, within a
# tenth of both and 30 ms?
require "json"

ran, ready = File.read(ARGV[0]).split.map { |ns| ns.to_i / 1e9 }
totals = JSON.parse(File.read(ARGV[1]))["totals"]
seen = %w[state_cpu_ns state_runnable_ns].map { |k| totals[k] / 1e9 }
puts format("ran %.3f s, of it seen %.3f; ready %.3f s, seen %.3f", ran, seen[0], ready, seen[1])
off = 0.1 * (ran + ready) + 0.03
exit seen[0].between?(ran - off, ran + off) && seen[1].between?(ready - off, ready + off)
