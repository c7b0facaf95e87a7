# ages.rb FIFO: waits for a line, keeps one First, runs seven GCs, keeps a Second, runs two, and a Third.
$stdout.sync = true
class First; end
class Second; end
class Third; end
GC.disable
go = File.open(ARGV[0])
puts "pid #{$$}"
go.gets
GC.start # until then nothing may be known of ages
KEPT = [First.new]
7.times { GC.start }
KEPT << Second.new
2.times { GC.start }
KEPT << Third.new
puts 'ready'
go.gets
puts KEPT.size
