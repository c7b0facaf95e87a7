# check_burst.rb TRUTH REPORT: what the program ran is with the stacks that ran, or unknown, and not with waits.
require "json"
truth, r = ARGV.map { |f| JSON.parse(File.read(f)) }
t = r["totals"]
s = ->(method, key) { r["rows"].select { |x| x["method"] == method }.sum { |x| x[key] } / 1e9 }
hot = s["Object#hot", "total_ns"]
waits = s["Thread::Queue#pop", "self_ns"] + s["Queue#pop", "self_ns"]
unknown = t["cpu_unknown_ns"] / 1e9
said = format("hot %.3f of %.3f s, waits %.3f, unknown %.3f, process %.3f of %.3f, running %.3f, others %.3f", hot, truth["hot"], waits, unknown,
              t["cpu_ns"] / 1e9, truth["process"], t["state_cpu_ns"] / 1e9, truth["others"])
puts said
abort "waits have it" if waits > 0.25 * truth["hot"] + truth["others"] # to wait and be woken costs time, too
abort "more than was run" if hot > 1.2 * truth["hot"]
abort "lost" if hot + unknown < 0.75 * truth["hot"]
abort "the sum is another" if (t["cpu_ns"] / 1e9 - truth["process"]).abs > 0.1 + 0.1 * truth["process"]
abort "the row of what is unknown says something else" if t["cpu_unknown_ns"] != r["rows"].select { |x| x["method"] =~ /unknown/ }.sum { |x| x["self_ns"] }
abort "more running than on a processor" if t["state_cpu_ns"] > t["cpu_ns"]
