# shares.rb SECONDS TRUTH.json: spends known shares of time in known lines, and measures by the clocks of
# wall and thread what it has really spent there.
require "json"

BIG = 7**80000 # so long in one call that what else its line does is nothing
SPENT = Hash.new { |h, line| h[line] = { wall: 0.0, cpu: 0.0 } }

def wall = Process.clock_gettime(Process::CLOCK_MONOTONIC)
def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

def measured(line)
  w = wall
  c = cpu
  yield
  SPENT[line][:wall] += wall - w
  SPENT[line][:cpu] += cpu - c
end

def spin(seconds)
  till = cpu + seconds
  x = 0
  while cpu < till
    x += 1 while x % 500 != 0
    x += 1
  end
end

def in_c(seconds)
  till = cpu + seconds
  BIG.to_s while cpu < till
end

sleep 0.7 # whoever watches has come by then
wait = Thread.new { sleep }
till = wall + ARGV[0].to_f
while wall < till
  measured(__LINE__) { spin(0.030) }
  measured(__LINE__) { spin(0.010) }
  measured(__LINE__) { in_c(0.020) }
  measured(__LINE__) { sleep(0.025) }
end
wait.kill
# Two that want the lock at once: what one does not run, it waits for.
till = wall + ARGV[0].to_f / 2
pair = 2.times.map do |i|
  Thread.new do
    Thread.current.name = "pair#{i}"
    measured(__LINE__ + 100 * i) { (x = 0; x += 1 while x % 10_000 != 0 || (x = 1; wall < till)) }
  end
end
pair.each(&:join)
File.write(ARGV[1], JSON.generate(SPENT))
