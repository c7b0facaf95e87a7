# same.rb LIVE.json CORE.json: thread by thread the same frames, and who waits for what waited for it.
require "json"

live, core = ARGV.map { |path| JSON.parse(File.read(path))["threads"].to_h { |t| [t["tid"], t] } }
abort "threads #{live.keys - core.keys} and #{core.keys - live.keys}" unless live.keys.sort == core.keys.sort
bad = live.reject do |tid, t|
  c = core[tid]
  # Who has the signal runs its handler.
  next true if c["frames"] == t["frames"] && c["verdict"] == "valid" && c["unnamed"].zero? &&
               (c["has_signal"] || c["state"] == t["state"])

  puts "thread #{tid}", JSON.generate(t), JSON.generate(c)
end
puts "#{live.size} threads, #{live.values.sum { |t| t["frames"].size }} frames, #{bad.size} differ"
exit bad.empty? && live.size > 30
