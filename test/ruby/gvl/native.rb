# One thread packs, which is native code that does not need the lock; one computes with it; one sleeps. Until TERM.
require "zlib"
$stdout.sync = true
over = false
trap("TERM") { over = true }
text = Random.new(1).bytes(4 << 20)
threads = {
  "packs" => -> { Zlib::Deflate.deflate(text, 9) },
  "computes" => -> { 10_000.times { |i| i * i } },
  "sleeps" => -> { sleep 0.001 }
}.map { |name, work| Thread.new { Thread.current.name = name; work[] until over } }
puts "pid #{$$}"
threads.each(&:join)
puts "right"
