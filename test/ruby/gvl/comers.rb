# So many threads, sixteen at a time, each of which sleeps and computes; as none is collected, none has another one's struct.
# Rows of threads that have ended come back when scry's keeper gets a processor: after so many threads it is waited for.
GC.disable
keeper = Dir["/proc/[0-9]*/stat"].filter_map do |file|
  pid, comm, _, parent = File.read(file).match(/\A(\d+) \((.*)\) (\S) (\d+)/)&.captures
  "/proc/#{pid}/status" if comm == "scry-keeper" && parent.to_i == Process.ppid
rescue Errno::ENOENT, Errno::ESRCH
  nil
end.first
turns = -> { keeper ? File.read(keeper)[/^voluntary_ctxt_switches:\s*(\d+)/, 1].to_i : 0 }
(ARGV[0].to_i / 16).times do |i|
  Array.new(16) { Thread.new { sleep 0.004; 100.times { |i| i * i } } }.each(&:join)
  next unless keeper && i % 16 == 15
  had = turns[]
  sleep 0.001 until turns[] >= had + 8
end
puts "right"
