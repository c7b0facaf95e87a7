# hog.rb FOLDER GO: as soon as there is a file GO, an extension in C holds the lock for 20 ms forty times, while another thread wants it each millisecond and
# a third one computes now and then. Prints what each thread says: `held NS`, and `waited NAME NS` where the VM's own hooks
# know that.
require File.join(ARGV[0], "hog.so")
$stdout.sync = true
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
start, over, held = Queue.new, false, 0
names = %w[waiter counter hog]
begins = lambda do |i|
  Thread.current.name = names[i]
  start.pop
end
waiter = Thread.new do
  begins[0]
  sleep 0.001 until over
end
counter = Thread.new do
  begins[1]
  until over
    till = now[] + 0.002
    nil while now[] < till
    sleep 0.003
  end
end
hog = Thread.new do
  begins[2]
  held = Array.new(40) { Hog.hold(20).tap { sleep 0.004 } }.sum
end
sleep 0.01 until File.exist?(ARGV[1]) # it is watched
3.times { start << 1 }
hog.join
over = true
[waiter, counter].each(&:join)
puts "held #{held}"
[waiter, counter, hog].each { |t| puts "waited #{t.name} #{Hog.waited(t)}" } if Hog.respond_to?(:waited)
