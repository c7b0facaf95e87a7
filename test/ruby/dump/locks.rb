# Threads that wait for locks, queues and each other, and who keeps them waiting, as the program knows it.
# Says each answer as "NAME KIND OWNER", then "ready" when all of them wait.
require "monitor"
STDOUT.sync = true
Thread.report_on_exception = false

def named(name)
  Thread.new do
    Thread.current.name = name
    yield
  end
end

def waits(thread)
  sleep 0.01 until thread.stop? # asleep, or waiting for a lock
end

MUTEX, PART, LEFT, RIGHT, FIBERS = Array.new(5) { Mutex.new }
MONITOR = Monitor.new
QUEUE, FULL, NEWS = Queue.new, SizedQueue.new(1), ConditionVariable.new
FULL << 1
LONG = "a thread whose name has more than fifteen bytes"

all = []
all << holder = named(LONG) { MUTEX.lock; MONITOR.enter; sleep }
waits(holder)
all << named("wants mutex") { MUTEX.lock }
all << named("wants block") { MUTEX.synchronize {} }
all << named("wants monitor") { MONITOR.synchronize {} }
all << named("wants item") { QUEUE.pop }
all << named("wants room") { FULL << 2 }
all << named("wants news") { PART.synchronize { NEWS.wait(PART) } }
all << named("wants end") { holder.join }
# Held by a fiber that does not run.
all << fiber = named("has fibers") do
  Fiber.new { FIBERS.lock; Fiber.yield }.tap(&:resume)
  sleep
end
waits(fiber)
all << named("wants fiber") { FIBERS.lock }
# Locked and unlocked again: the last owner holds it no more.
freed = Mutex.new
named("had it") { freed.lock; freed.unlock }.join
all << named("has it") { freed.lock; sleep }
all << named("wants freed") { sleep 0.05 until freed.locked?; freed.lock }
# A deadlock of two; Ruby does not say so, as others may still go on.
all << named("left") { LEFT.lock; sleep 0.2; RIGHT.lock }
all << named("right") { RIGHT.lock; sleep 0.2; LEFT.lock }

all.each { |t| waits(t) }
sleep 0.01 until all[-2..-1].all? { |t| t.backtrace[0] =~ /lock'/ && t.stop? }
sleep 0.01 until all[-3].backtrace[0] =~ /lock'/
puts <<ANSWERS
wants_mutex mutex #{LONG}
wants_block mutex #{LONG}
wants_monitor monitor #{LONG}
wants_item queue
wants_room queue_room
wants_news condition
wants_end thread #{LONG}
wants_fiber mutex has fibers
wants_freed mutex has it
left mutex right
right mutex left
ready
ANSWERS
sleep
