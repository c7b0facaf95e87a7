# slower.rb N: a round of work is one call of #same and N calls of #slow, each a millisecond of processor time.
def spin
  till = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.001
  nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < till
end

def same = spin

def slow = spin

times = ARGV[0].to_i
Thread.new { Queue.new.pop }
$stdout.syswrite("ready")
loop do
  same
  times.times { slow }
end
