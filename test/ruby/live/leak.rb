# leak.rb FIFO: waits for a line, then keeps 100 objects of 5,100 that one line makes, four times with quiet between,
# and works on without allocating until a second line has come.
require 'io/wait'

$stdout.sync = true
class Leaked; end
KEPT = Array.new(1000)
go = File.open(ARGV[0])
puts "pid #{$$}"
go.gets
def quiet(seconds)
  ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  i = 0
  i += 1 until i % 1000 == 0 && Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
end
at = 0
4.times do
  n = 0
  while n < 5100
    one = Leaked.new
    if n % 51 == 0
      KEPT[at] = one
      at += 1
    end
    n += 1
  end
  one = nil
  quiet(0.2)
end
quiet(0.6)
puts 'ready'
i = 0
i += 1 until i % 1000 == 0 && go.wait_readable(0)
