# Time in known C code below known lines, in Ruby below another, and threads that wait in known functions.
require "digest"
require "zlib"

BIG = "x" * (1 << 20)
def digests = Digest::SHA256.hexdigest(BIG)
def checks = Zlib.crc32(BIG)
def counts = (i = 0; i += 1 while i < 100_000)

queue = Queue.new
Thread.new { Thread.current.name = "pops"; queue.pop }
Thread.new { Thread.current.name = "sleeps"; sleep }
puts "ready"
$stdout.flush
loop { digests; 4.times { checks }; counts }
