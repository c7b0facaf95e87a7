# Two threads compute in turns and one waits for a Queue, beside so many ractors, each with a lock of its own, in which two
# threads compute in turns. A line of input makes one more, whose threads compute for a second; it prints for how long.
$stdout.sync = true
$VERBOSE = nil # ractors are said to be experimental
2.times { |i| Thread.new { Thread.current.name = "busy#{i}"; loop {} } }
queue = Thread.new { Thread.current.name = "queue"; Queue.new.pop }
Thread.pass until queue.stop?
Array.new(ARGV[0].to_i) { |k| Ractor.new(k) { |n| Array.new(2) { |i| Thread.new { Thread.current.name = "r#{n}t#{i}"; loop {} } }.each(&:join) } }
puts "pid #{$$}"
while $stdin.gets
  late = Ractor.new do
    now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
    began = now[]
    Array.new(2) do |i|
      Thread.new do
        Thread.current.name = "late#{i}"
        nil while now[] < began + 1_000_000_000
      end
    end.each(&:join)
    now[] - began
  end
  puts "late #{late.__send__(Ractor.method_defined?(:value) ? :value : :take)}"
end
sleep
