# Rounds with a known result, until TERM, by threads that stay the same: they compute, pass, wait for a Queue, a Mutex, a
# condition and a pipe. At the end: `right` and the rounds, or what was wrong.
$stdout.sync = true
over = false
trap("TERM") { over = true }
ask, answer = Queue.new, Queue.new
mutex, condition, count = Mutex.new, ConditionVariable.new, 0
out, into = IO.pipe
Thread.new { while (n = ask.pop) do answer << n * 2 end }
Thread.new { while (n = out.read(4)) do ask << n.to_i end }
Thread.new { loop { Thread.pass } }
2.times do
  Thread.new do
    loop do
      mutex.synchronize do
        count += 1
        condition.signal
      end
      1000.times { |i| i * i }
    end
  end
end
puts "pid #{$$}"
rounds, wrong = 0, nil
until over || wrong
  ask << rounds
  into.write("%04d" % (rounds % 10_000))
  sum = answer.pop + answer.pop
  wrong = "round #{rounds}: #{sum}" unless sum == 2 * rounds + rounds % 10_000 * 2
  mutex.synchronize do
    before = count
    condition.wait(mutex, 1) while count < before + 3
  end
  rounds += 1
end
puts wrong ? "wrong #{wrong}" : "right #{rounds}"
