# compare.rb OUTPUT CALLS: every line of the program's output has its call, and that the same frames; and no call more.
require "json"

truth = {}
File.foreach(ARGV[0]) do |line|
  pid, tag, frames = line.chomp.split(" ", 3)
  truth[[pid.to_i, tag.to_i]] = frames.split("|").map { |f| f.split("\t") }
end
unknown = 0
File.foreach(ARGV[1]) do |line|
  call = JSON.parse(line)
  next unless call["function"] == "umask" && call["args"][0].to_i > 1000
  key = [call["pid"], call["args"][0].to_i]
  want = truth.delete(key) or abort "no such call: #{line}"
  unless call["ruby_frames"]
    unknown += 1
    next
  end
  got = call["ruby_frames"].map { |f| f.values_at("file", "line", "method") }
  got.reject! { |file, _, _| file&.start_with?("<internal:") }
  got = got.reject.with_index { |_, i| i.positive? && got[i - 1][2].to_s.start_with?("rescue in ") }
  same = got.size == want.size && got.zip(want).all? { |g, w| g[0] == w[0] && g[1] == w[1].to_i && (g[2] == "<compiled>" || g[2].to_s.end_with?(w[2])) }
  abort "#{key}\n got  #{got}\n want #{want}" unless same
end
abort "not seen: #{truth.keys.first(5)}, of #{truth.size}" unless truth.empty?
abort "#{unknown} stacks are not known" if unknown.positive? && !ARGV[2]
puts "unknown #{unknown}" if unknown.positive?
