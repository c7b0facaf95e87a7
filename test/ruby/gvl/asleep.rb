# Sleeps for 100 ms with the lock, again and again.
require "fiddle"
$stdout.sync = true
nap = Fiddle::Function.new(Fiddle.dlopen(nil)["usleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
puts "pid #{$$}"
loop { nap.call(100_000); sleep 0.01 }
