# check_native.rb FOLDED: C code stands above the Ruby line that called it, and nowhere else; and there is much of it.
CODE = {
  "sha2" => [/sha2\.so|SHA256/, "digests"], # of Ruby's own extension, or of libcrypto
  "crc" => [/crc32|libz\.so|zlib\.so/, "checks"],
  "pop" => [/(__futex_|pthread_cond_|ppoll)\S*_\[n\]\z/, nil],
}.freeze
stacks = File.readlines(ARGV[0], chomp: true).map { |l| l =~ /\A(.*) (\d+)\z/ or abort "no folded line: #{l}"; [$1.split(";"), $2.to_i] }
bad = []
seen = Hash.new(0)
midst = [] # a page of the stack was not there
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
  # Native frames of the thread's beginning are the outermost, and the interpreter's own are not shown.
  midst << [frames.join(";"), ns] if !native.empty? && frames.first !~ /\A(_start|clone3?|__clone)_\[n\]\z|\A\S+\+0x\h+_\[n\]\z/
  bad << "the interpreter: #{frames.join(";")}" if native.any? { |f| f =~ /vm_exec_core/ }
end
bad << "begins in its midst: #{midst.first}" if midst.sum(&:last) > seen.values.sum / 10
bad << "not seen: #{CODE.keys - seen.keys}" unless (CODE.keys - seen.keys - (ARGV[1] == "cpu" ? ["pop"] : [])).empty?
shares = %w[digests checks].to_h { |l| [l, all[l].zero? ? 0 : (100.0 * with[l] / all[l]).round] }
bad << "few have native frames: #{shares}" if ARGV[1] == "cpu" && shares.values.min < 90
puts bad.first(5), "#{stacks.size} stacks, #{seen}, with native frames: #{shares}, #{bad.size} complaints"
exit bad.empty?
