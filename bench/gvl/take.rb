# What taking and giving the GVL costs: a pipe is written and read by one thread, each time without the lock.
# Prints the nanoseconds of processor time of one round, of which each gives the lock twice and takes it twice.
r, w = IO.pipe
n = (ARGV[0] || 200_000).to_i
best = Array.new(5) do
  before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
  n.times do
    w.write("x")
    r.read(1)
  end
  (Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) - before) / n
end.min
puts best
