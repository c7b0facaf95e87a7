# So many threads, sixteen at a time, each of which sleeps and computes; as none is collected, none has another one's struct.
GC.disable
(ARGV[0].to_i / 16).times do
  Array.new(16) { Thread.new { sleep 0.004; 100.times { |i| i * i } } }.each(&:join)
end
puts "right"
