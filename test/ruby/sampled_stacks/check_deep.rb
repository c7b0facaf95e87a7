# check_deep.rb TRUTH.json STACKS.json MIN: have all samples in `work` just the callers that the VM told,
# line by line?
require "json"

truth = JSON.parse(File.read(ARGV[0])).map { |path, line, label| [path, line, label] }
seen = bad = 0
JSON.parse(File.read(ARGV[1]))["rows"].each do |row|
  next unless row["method"] == "Object#work"

  callers = row["frames"].drop(1).reverse.map { |f| [f["file"], f["line"], f["method"].sub(/\A.*in /, "").sub(/\A.*[#.]/, "")] }
  # From 3.4 on the VM tells of its own code as it does of C: at the place of the caller.
  callers.each_cons(2) { |a, b| b[0, 2] = a[0, 2] if b[0].start_with?("<internal:") }
  at = callers.index { |f| f[2] == "leaf" }
  got = callers[0...at]
  seen += row["samples"]
  next if got == truth

  bad += row["samples"]
  n = got.zip(truth).index { |a, b| a != b } || got.size
  puts "#{got.size} callers, told #{truth.size}; the first that differs is #{n}: #{got[n]}, told #{truth[n]}"
end
puts "#{seen} samples below #{truth.size} callers, #{bad} wrong"
exit bad.zero? && seen >= ARGV[2].to_i
