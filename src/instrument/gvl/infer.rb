# The script of the child in which a Ruby's lock is learned and its hooks are rehearsed (infer.c). A line "NAME N"
# asks; all threads sleep when the answer has been given, and for a quarter of a second after it.

$stdout.sync = true
THREADS = Array.new(4) do
  Thread.new do
    loop do
      sleep
      n = Thread.current[:ms] or next
      Thread.current[:ms] = nil
      sleep 0.25
      till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + n / 1000.0
      while Process.clock_gettime(Process::CLOCK_MONOTONIC) < till
        2000.times { n } # so that the others want it meanwhile, and wait in the queue
        Thread.pass
        2000.times { n }
        sleep 0.0001 # who only passes, gets it back at once where nobody waits yet
      end
    end
  end
end
Thread.pass until THREADS.all?(&:stop?)

while (line = $stdin.gets)
  name, n = line.split
  case name
  when "contend"
    THREADS.each do |t|
      t[:ms] = n.to_i
      t.wakeup
    end
  when "fork"
    pid = fork { Array.new(3) { Thread.new { 1000.times { Thread.pass } } }.each(&:join) }
    status = Process.wait2(pid)[1]
    $stdout.syswrite("status #{status.exitstatus || -status.termsig}\n")
  end
  $stdout.syswrite("done #{name}\nready\n")
end
