# Known answers about the GVL: threads that compute without end, one that sleeps often, four that wait for something else
# than the lock. `hog MS` on stdin: those that compute stop, one that wants the lock each millisecond begins, and calls in
# C hold it for some MS, by the clock of who makes them. `end` ends it.
$stdout.sync = true
stop = false
line, latch = Queue.new, Mutex.new.tap(&:lock)
busy = Array.new(3) { |i| Thread.new { Thread.current.name = "busy#{i}"; nil until stop } }
busy << Thread.new do
  Thread.current.name = "io"
  sleep 0.002 until stop
end
nap = Thread.new { Thread.current.name = "nap"; sleep }
idle = [nap, Thread.new { Thread.current.name = "queue"; line.pop }, Thread.new { Thread.current.name = "mutex"; latch.lock },
        Thread.new { Thread.current.name = "join"; nap.join }]
Thread.pass until idle.all?(&:stop?)
puts "pid #{$$}"

def hog(ms)
  number = 3**60_000
  number * number
  held = 0
  while held < ms / 1000.0
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    number * number
    held += Process.clock_gettime(Process::CLOCK_MONOTONIC) - before
  end
  held
end

while (word, ms = $stdin.gets&.split) && word != "end"
  stop = true
  busy.each(&:join)
  over = false
  waiter = Thread.new { Thread.current.name = "waiter"; sleep 0.001 until over }
  held = Thread.new { Thread.current.name = "hog"; hog(ms.to_i) }.value
  over = true
  waiter.join
  puts "held #{(held * 1e9).to_i}"
end
puts "right"
