# gc.rb SECONDS IDLE TRUTH: allocates for SECONDS of processor time, so that a busy machine has time to look at
# it, while it keeps a heap that is dear to mark; IDLE threads sleep and wake. TRUTH: time in the collector, and on
# a processor, by the VM's own clocks.
def run_ns = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
def churn(n) = n.times.map { |i| "x#{i}" }.size
def work(n) = n.times { |i| (i * 7) % 13 }

keep = Array.new(200_000) { |i| "object #{i}" * 2 }
ARGV[1].to_i.times { Thread.new { loop { sleep 0.01 } } }
ran = run_ns
gc = GC.stat(:time)
till = ran + ARGV[0].to_f * 1e9
while run_ns < till
  churn(2000)
  work(20_000)
end
File.write(ARGV[2], "#{(GC.stat(:time) - gc) * 1_000_000} #{run_ns - ran} #{keep.size}")
