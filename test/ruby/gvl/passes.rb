# One thread computes, one calls Thread.pass in a loop, one makes calls that give the lock for a moment and take it back.
$stdout.sync = true
Thread.new { Thread.current.name = "busy"; loop {} }
Thread.new { Thread.current.name = "sort"; list = (0..100_000).to_a; loop { list.sort { |a, b| b <=> a } } }
Thread.new { Thread.current.name = "passer"; loop { Thread.pass } }
Thread.new do
  Thread.current.name = "brief"
  out, into = IO.pipe
  loop { into.syswrite("x"); out.sysread(1) }
end
puts "pid #{$$}"
sleep
