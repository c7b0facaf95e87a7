# What lives and what it weighs, by the VM's own account.
#
#   counts.rb FIFO OUT: waits for a line, makes and drops objects, collects, writes {class => [count, bytes]}
#   of its living to OUT as JSON, and waits for a line.
#
# "bytes" are ObjectSpace.memsize_of, summed. Only objects of its own classes are counted, so nothing
# of the libraries is in it.
require 'objspace'
require 'json'

$stdout.sync = true
class OldText < String; end
OLD = Array.new(300) { OldText.new('before the watch') }
class Text < String; end
class List < Array; end
class Table < Hash; end
class Plain; def initialize = @a = 1; end
class Wide; def initialize = (1..12).each { |i| instance_variable_set("@v#{i}", i) }; end
Pair = Struct.new(:a, :b)
Many = Struct.new(:a, :b, :c, :d, :e, :f, :g, :h)
class Passing; end
KINDS = [Text, List, Table, Plain, Wide, Pair, Many].freeze

def made(i)
  [
    Text.new('x' * (i * 7 % 300)),
    List.new(i % 40, nil),
    Table.new.tap { |t| (i % 23).times { |k| t[k] = i } },
    Plain.new,
    Wide.new,
    Pair.new(i, i),
    Many.new(i),
  ]
end

go = File.open(ARGV[0])
puts "pid #{$$}"
go.gets
kept = []
died = Hash.new { |h, k| h[k] = [0, 0] }
3000.times do |i|
  all = made(i)
  if i % 3 == 0
    kept << all
  else
    all.each do |x|
      died[x.class.name][0] += 1
      died[x.class.name][1] += ObjectSpace.memsize_of(x)
    end
  end
  Passing.new
  GC.start(full_mark: false) if i % 500 == 0
end
all = nil
OLD.pop(100)
made(0) # covers what is left of the last round on the machine stack
3.times { GC.start }
live = KINDS.to_h do |k|
  list = ObjectSpace.each_object(k).to_a
  [k.name, [list.size, list.sum { |x| ObjectSpace.memsize_of(x) }]]
end
File.write(ARGV[1], JSON.generate({ live: live, died: died, passing: ObjectSpace.each_object(Passing).count, old: ObjectSpace.each_object(OldText).count }))
puts 'ready'
go.gets
puts kept.size
