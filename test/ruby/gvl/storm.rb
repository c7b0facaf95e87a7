# Everything that hands the GVL on, for so many rounds, each with a result that is known; at the end `right` and the sum.
require "monitor"
require "timeout"
$stdout.sync = true
puts "pid #{$$}"
total = 0
trap("USR1") { total += 0 }
rounds = (ARGV[0] || 20).to_i
forks = ARGV[1] != "nofork"
rounds.times do |round|
  queue, out = Queue.new, Queue.new
  workers = Array.new(8) { Thread.new { while (n = queue.pop) != :end do out << n * 2 end } }
  500.times { |n| queue << n }
  8.times { queue << :end }
  workers.each(&:join)
  total += Array.new(out.size) { out.pop }.sum

  mutex, monitor, condition, count = Mutex.new, Monitor.new, ConditionVariable.new, 0
  threads = Array.new(16) do
    Thread.new do
      50.times do
        mutex.synchronize { count += 1; condition.signal }
        monitor.synchronize { Thread.pass }
      end
    end
  end
  mutex.synchronize { condition.wait(mutex, 0.01) until count == 800 }
  threads.each(&:join)
  total += count

  victim = Thread.new { loop { Thread.pass } }
  Process.kill(:USR1, $$)
  begin
    Timeout.timeout(0.005) { loop { Thread.pass } }
  rescue Timeout::Error
    total += 1
  end
  victim.kill.join
  GC.start if (round % 5).zero?
  GC.compact if round == 3 && GC.respond_to?(:compact)
  total += Array.new(round == 1 ? 200 : 20) { |i| Thread.new { sleep 0.001; i } }.sum(&:value)
  next unless forks && (round % 4).zero?
  Array.new(3) { Thread.new { Process.wait2(fork { exit!(Array.new(4) { |i| Thread.new { Thread.pass; i } }.sum(&:value)) })[1].exitstatus } }.each { |t| total += t.value }
end
puts "right #{total}"
