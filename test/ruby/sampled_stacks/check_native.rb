# check_native.rb FOLDED: C code stands above the Ruby line that called it, and nowhere else; and there is much of it.
CODE = {
  "sha2" => [/sha2\.so|SHA256/, "digests"], # of Ruby's own extension, or of libcrypto
  "crc" => [/crc32|libz\.so|zlib\.so/, "checks"],
  "pop" => [/(__futex_|pthread_cond_|ppoll)\S*_\[n\]\z/, nil],
}.freeze
stacks = File.readlines(ARGV[0], chomp: true).map { |l| l =~ /\A(.*) (\d+)\z/ or abort "no folded line: #{l}"; [$1.split(";"), $2.to_i] }
bad = []
seen = Hash.new(0)
roots = Hash.new(0) # of what has a line of ours
with = Hash.new(0) # of the time below a line, with native frames
all = Hash.new(0)
stacks.each do |frames, ns|
  names = frames.map { |f| f[/Object#(\w+)\z/, 1] }
  line = %w[digests checks counts].find { |n| names.include?(n) }
  native = frames.select { |f| f.end_with?("_[n]") }
  all[line] += ns
  with[line] += ns unless native.empty?
  CODE.each do |what, (pattern, caller)|
    at = frames.index { |f| f.end_with?("_[n]") && f.match?(pattern) } or next
    seen[what] += ns
    next unless caller

    below = names.index(caller)
    bad << "#{what} without #{caller}: #{frames.join(";")}" unless below && below < at
  end
  # What is older than all of Ruby's is left out, so that the same Ruby stack has one root; the interpreter's own too.
  roots[frames.first] += ns if line
  bad << "the interpreter: #{frames.join(";")}" if native.any? { |f| f =~ /vm_exec_core/ }
end
bad << "one Ruby stack in several trees: #{roots}" if roots.keys.any? { |f| f.end_with?("_[n]") }
bad << "not seen: #{CODE.keys - seen.keys}" unless (CODE.keys - seen.keys - (ARGV[1] == "cpu" ? ["pop"] : [])).empty?
shares = %w[digests checks].to_h { |l| [l, all[l].zero? ? 0 : (100.0 * with[l] / all[l]).round] }
bad << "few have native frames: #{shares}" if ARGV[1] == "cpu" && shares.values.min < 90
puts bad.first(5), "#{stacks.size} stacks, #{seen}, with native frames: #{shares}, #{bad.size} complaints"
exit bad.empty?
