# A program that compacts its heap while threads work. It knows what lives, and checks itself.
#   load.rb ROUNDS FIFO: waits for a line, works, prints a sum and the living of each class after the last
#   GC, and waits for a line again.
$stdout.sync = true
GC.auto_compact = true if GC.respond_to?(:auto_compact=)

class Node
  attr_reader :value, :next

  def initialize(value, nxt)
    @value = value
    @next = nxt
  end
end

class Passing; end

go = File.open(ARGV[1])
puts "pid #{$$}"
go.gets
rounds = Integer(ARGV[0])
kept = Array.new(4) { nil }
threads = 4.times.map do |t|
  Thread.new do
    rounds.times do |i|
      kept[t] = Node.new(i, kept[t])
      20.times { Passing.new }
      s = "text #{i} of #{t}"
      h = { i => s, s => i }
      raise "wrong hash" unless h[i] == "text #{i} of #{t}" && h["text #{i} of #{t}"] == i
      Thread.pass if i % 50 == 0
      GC.compact if t == 0 && i % (rounds / 5) == 0
    end
  end
end
threads.each(&:join)
threads = nil
sum = kept.sum do |node|
  n = 0
  while node
    n += node.value
    node = node.next
  end
  n
end
2.times { GC.start }
counts = [Node, Passing].map { |k| ObjectSpace.each_object(k).count }
puts "sum #{sum} nodes #{counts[0]} passing #{counts[1]} compactions #{GC.stat(:compact_count)}"
go.gets
puts 'done'
