# Asks the VM for all objects, over and over, as heap profilers do, and compacts: nothing that scry
# has put into the heap may disturb that. Prints rounds until SIGTERM; "wrong" if an answer is.
require 'objspace'
require 'stringio'

$stdout.sync = true
stop = false
trap(:TERM) { stop = true }
class Mine; end
MINE = Array.new(500) { Mine.new }
ObjectSpace.trace_object_allocations_start if ARGV.include?('traced')
GC.auto_compact = true if GC.respond_to?(:auto_compact=) && ARGV.include?('auto')
GC.stress = true if ARGV.include?('stress')
puts "pid #{$$}"

def ask(round)
  puts 'wrong count' unless ObjectSpace.each_object(Mine).count == 500
  ObjectSpace.each_object(Object) { |x| x.__id__ if round == 1 && Mine === x }
  ObjectSpace.count_objects
  ObjectSpace.count_tdata_objects
  ObjectSpace.count_imemo_objects
  puts 'wrong size' unless ObjectSpace.memsize_of_all(Mine) == 500 * ObjectSpace.memsize_of(MINE[0])
  ObjectSpace.memsize_of_all
  ObjectSpace.reachable_objects_from_root.each_value { |list| list.each(&:inspect) if round == 2 }
  File.open(File::NULL, 'w') { |f| ObjectSpace.dump_all(output: f) } if round % 3 == 0
end

round = 0
until stop
  round += 1
  if ARGV.include?('stress')
    puts 'wrong text' unless [round, 'x'].join('-') == "#{round}-x"
  else
    ask(round)
    GC.compact if round % 2 == 0
    GC.start if round % 5 == 0
    if round % 4 == 0
      pid = fork do
        GC.compact
        ask(3)
        GC.start
        exit!(ObjectSpace.each_object(Mine).count == 500 ? 0 : 1)
      end
      puts 'wrong child' unless Process.wait2(pid)[1].success?
    end
  end
  puts "round #{round}"
end
ask(3) unless ARGV.include?('stress')
puts 'ended'
