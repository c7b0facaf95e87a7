# garbage.rb FIFO [off]: waits for a line, drops 5000 objects without collecting, and works on without
# allocating until a second line has come. "off": the collector stays off.
require 'io/wait'

$stdout.sync = true
class Dropped; end
class Kept; end
go = File.open(ARGV[0])
puts "pid #{$$}"
go.gets
GC.disable
KEPT = Array.new(70) { Kept.new }
def drop(n) = n.times { Dropped.new }
drop(5000)
drop(1)
GC.enable unless ARGV[1] == 'off'
puts 'ready'
i = 0
i += 1 until i % 1000 == 0 && go.wait_readable(0)
puts ObjectSpace.each_object(Dropped).count
