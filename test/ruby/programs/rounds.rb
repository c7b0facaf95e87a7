# frozen_string_literal: true

# Works as often as each line of its input says: a String that the VM has to allocate memory for, at one line (up to 640
# bytes have room in a slot from Ruby 3.2 on), and neither a collection nor a new heap page in between. So whoever
# watches while it waits for the next line has seen whole rounds.
200_000.times { Object.new }
GC.start
GC.disable
$stdout.sync = true

def make(i)
  "x" * (700 + i % 50)
end

KEPT = []
puts "pid #{$$}"
while (line = $stdin.gets)
  rounds, keeps = line.split.map(&:to_i)
  rounds.times { |i| make(i) }
  keeps.to_i.times { |i| KEPT << make(i) }
  puts "done"
end
