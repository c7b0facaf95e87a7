# Objects and classes: instance variables, Struct, Comparable, Set, modules, singletons, cloning.

require 'set'

class Version
  include Comparable
  attr_reader :parts

  def initialize(text)
    @parts = text.split(".").map(&:to_i)
  end

  def <=>(other)
    parts <=> other.parts
  end

  def to_s
    parts.join(".")
  end
end

class Node
  include Enumerable
  attr_accessor :left, :right

  def initialize(value, left = nil, right = nil)
    @value, @left, @right = value, left, right
  end

  def each(&block)
    left&.each(&block)
    block.call(@value)
    right&.each(&block)
  end
end

class Many
  def initialize
    @a = @b = @c = @d = nil
    @e = @f = @g = @h = "many"
  end
end

Pair = Struct.new(:left, :right) do
  def swap = Pair.new(right, left)
end
Named = Struct.new(:name, keyword_init: true)

module Greets
  def greet = "hello from #{self.class}"
end

def comparing(n)
  n.times do
    a = Version.new("1.2.10")
    b = Version.new("1.10.2")
    a < b
    [b, a].min.to_s
    a.clamp(a, b)
    a.between?(a, b)
    "#{a} #{b}"
    [a, b].sort
  end
end

def trees(n)
  n.times do |i|
    t = Node.new(2, Node.new(1), Node.new(3))
    t.map { |x| x.to_s }
    t.to_a
    t.sort_by { |x| -x }
    t.include?(3)
    t.each_slice(2).to_a
    t.first
    t.min
    t.inject(:+)
    t.each_entry.to_a
    t.lazy.map { |x| x * 2 }.to_a
    t.to_set
    t.reduce([]) { |m, x| m + [x] }
    t.each_with_index.to_a
    t.zip(t)
  end
end

def sets(n)
  n.times do |i|
    s = Set.new([1, 2, 3])
    s << i
    s | [9]
    s & Set[1, 2]
    s.map { |x| x + 1 }
    s.subset?(Set[1])
    s.to_a
    s.group_by(&:odd?)
    s.inspect
    s.dup.add("x")
  end
end

def structs(n)
  n.times do
    p = Pair.new("l", "r")
    p.swap.swap
    Named.new(name: "n").to_h
    p == p.dup
    p.to_a.hash
    l, r = *p
    p.eql?(l) || r
  end
end

def singletons(n)
  n.times do
    o = Object.new
    def o.own = "own"
    o.own
    o.extend(Greets)
    o.greet
    o.singleton_class
    o.clone.greet
    o.dup
    o.instance_variable_set(:@iv, [1])
    o.instance_variables
    Many.new
    Many.new.dup
    Many.new.inspect.size
  end
end

def classes(n)
  n.times do
    c = Class.new { def hi = "hi" }
    c.new.hi
    m = Module.new { def there = "there" }
    c.include(m)
    c.new.there
    d = Class.new(c)
    d.new.hi
    Struct.new(:q).new([1])
    d.instance_methods(false)
    d.ancestors.size
    d.prepend(m)
    d.new.there
  end
end

def work
  comparing(20)
  trees(20)
  sets(20)
  structs(20)
  singletons(20)
  classes(5)
end

work

# Where the VM names the line of the next instruction:
# late: 116 Class: ruby=0 scry=20
# late: 117 Class: ruby=20 scry=0

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 44 Array: ruby=0 scry=1
# born: 44 Hash: ruby=0 scry=1
# born: 47 Array: ruby=0 scry=1
# born: 47 Hash: ruby=1 scry=2
# born: 140 Array: ruby=5 scry=10
# born: 140 Hash: ruby=0 scry=5
