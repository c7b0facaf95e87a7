# A fiber scheduler, as small as it can be: fibers that sleep, wait for pipes, and for a Queue that threads fill, for so
# many rounds. At the end `right` and the sum, which is known.
require "fiber"

class Turns
  def initialize
    @readers, @writers, @sleepers, @blocked = {}, {}, {}, {}
    @woken, @wakes = Queue.new, IO.pipe
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def run
    until [@readers, @writers, @sleepers, @blocked].all?(&:empty?) && @woken.empty?
      till = @sleepers.values.min
      pause = till && [till - now, 0].max
      read, written = IO.select(@readers.keys + [@wakes[0]], @writers.keys, [], @woken.empty? ? pause : 0)
      @wakes[0].read_nonblock(1000) if read&.delete(@wakes[0])
      ready = (read || []).map { |io| @readers.delete(io) } + (written || []).map { |io| @writers.delete(io) }
      ready += @sleepers.select { |_, at| at <= now }.keys.each { |fiber| @sleepers.delete(fiber) }
      ready << @woken.pop until @woken.empty?
      ready.each { |fiber| fiber.resume if fiber.alive? }
    end
  end

  def close = run

  def io_wait(io, events, _timeout)
    (events & IO::READABLE != 0 ? @readers : @writers)[io] = Fiber.current
    Fiber.yield
    events
  end

  def kernel_sleep(seconds = nil)
    @sleepers[Fiber.current] = now + seconds
    Fiber.yield
  end

  def block(_blocker, _timeout = nil)
    @blocked[Fiber.current] = true
    Fiber.yield
    true
  end

  def unblock(_blocker, fiber)
    @blocked.delete(fiber)
    @woken << fiber
    @wakes[1].write_nonblock("x")
  end

  def fiber(&block)
    Fiber.new(blocking: false, &block).tap(&:resume)
  end
end

$stdout.sync = true
puts "pid #{$$}"
sum = 0 # what is added is read first: meanwhile others add
ARGV[0].to_i.times do
  Thread.new do
    Fiber.set_scheduler(Turns.new)
    queue = Queue.new
    Thread.new { 50.times { |i| queue << i } }
    Thread.new { 50.times { |i| queue << i; Thread.pass } }
    20.times { |i| Fiber.schedule { sleep 0.001 * (i % 3); sum += i } }
    5.times do |i|
      out, into = IO.pipe
      Fiber.schedule { n = out.read(2).to_i; sum += n }
      Fiber.schedule { sleep 0.001; into.write(format("%02d", i)) }
    end
    Fiber.schedule { 100.times { n = queue.pop; sum += n } }
  end.join
end
puts "right #{sum}"
