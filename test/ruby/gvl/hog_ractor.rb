# hog_ractor.rb FOLDER: in a ractor an extension in C holds the lock for 20 ms forty times, while another thread of that
# ractor wants it each millisecond; the first ractor's threads sleep as often, and wait for nobody. Prints `held NS`.
$VERBOSE = nil
require File.join(ARGV[0], "hog.so")
$stdout.sync = true
sleep 1 # until it is watched
Thread.new { loop { sleep 0.001 } }
hogs = Ractor.new do
  over = false
  waiter = Thread.new do
    Thread.current.name = "waiter"
    sleep 0.001 until over
  end
  hog = Thread.new do
    Thread.current.name = "hog"
    Array.new(40) { Hog.hold(20).tap { sleep 0.004 } }.sum
  end
  held = hog.value
  over = true
  waiter.join
  held
end
puts "held #{hogs.__send__(Ractor.method_defined?(:value) ? :value : :take)}"
