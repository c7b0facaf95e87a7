# workers.rb FILE N: when FILE is there, forks so many workers, one after the other; each works for
# 50 ms.
def worker
  till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.05
  nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < till
end
sleep 0.01 until File.exist?(ARGV[0])
Integer(ARGV[1]).times { Process.wait(fork { worker }) }
