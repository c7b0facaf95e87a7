# Two threads compute in turns and one waits for a Queue, beside so many ractors that compute, each with a lock of its own.
$stdout.sync = true
$VERBOSE = nil # ractors are said to be experimental
2.times { |i| Thread.new { Thread.current.name = "busy#{i}"; loop {} } }
queue = Thread.new { Thread.current.name = "queue"; Queue.new.pop }
Thread.pass until queue.stop?
Array.new(ARGV[0].to_i) { Ractor.new { loop {} } }
puts "pid #{$$}"
sleep
