# both.rb GO: as soon as there is a file GO, a thread sleeps with the lock, and packs without it, which is native code,
# again and again, until GO is gone. Prints how much processor time that packing took by its own clock, `packed NS`: what
# it was before GO, which is in no watch, is not in it.
require "fiddle"
require "zlib"
$stdout.sync = true
nap = Fiddle::Function.new(Fiddle.dlopen(nil)["usleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
text = Random.new(1).bytes(1 << 20)
cpu = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
Thread.new do
  Thread.current.name = "both"
  sleep 0.01 until File.exist?(ARGV[0])
  packed = 0
  while File.exist?(ARGV[0])
    nap.call(60_000)
    began = cpu[]
    Zlib::Deflate.deflate(text, 9)
    packed += cpu[] - began
  end
  puts "packed #{(packed * 1e9).to_i}"
  sleep # what has ended has no processor time that could be asked for
end
puts "pid #{$$}"
sleep
